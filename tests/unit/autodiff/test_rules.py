"""The gradient rules of the core families, from all sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import irkit as ik
from irkit.passes.autodiff.transform import differentiate
from tests.unit.autodiff import cases
from tests.unit.autodiff.checks import check

FAMILIES: dict[str, Callable[[int], dict[str, cases.Case]]] = {
    "elementwise": cases.elementwise,
    "reductions": cases.reductions,
    "shapes": cases.shapes,
    "control": cases.control,
}
ALL = [(family, name) for family, make in FAMILIES.items() for name in make(0)]


ONCE = {"loop that collects a sequence"}
"""Refused when differentiated twice, which forward mode is as well."""


@pytest.mark.parametrize(("family", "name"), ALL)
def test_rule(family: str, name: str) -> None:
    build, *arrays = FAMILIES[family](1)[name]
    check(build, *arrays, forward=name not in ONCE, second=name not in ONCE)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_refused_twice(name: str) -> None:
    build, *arrays = cases.control(1)[name]
    with pytest.raises(ik.IrkitError, match="sequence or optional that it carries"):
        check(build, *arrays)


@pytest.mark.parametrize(("family", "name"), ALL)
def test_rule_with_unknown_sizes(family: str, name: str) -> None:
    build, *arrays = FAMILIES[family](2)[name]
    check(build, *arrays, symbolic=True, forward=name not in ONCE, second=name not in ONCE)


def _gradients(build: Callable[..., Any], arrays: list[Any]) -> list[Any]:
    b = ik.Builder("g")
    xs = [b.input(f"x{i}", a.dtype, a.shape) for i, a in enumerate(arrays)]
    found = build(b, *xs)
    y = found[0] if isinstance(found, tuple) else found
    one = b.Expand(b.CastLike(b.constant(np.float32(1)), y), b.Shape(y))
    wrt = [x for x in xs if x.dtype.is_float]
    for i, (grad, x) in enumerate(zip(differentiate(b, [y], wrt, [one]), wrt, strict=True)):
        b.output(b.Sub(x, x) if grad is None else grad, f"g{i}")
    return list(ik.compile(b.module(), seed=3).run({f"x{i}": a for i, a in enumerate(arrays)}).values())


# Their functions hold constants of float64.
OF_FLOAT64 = {
    *("pow 2", "pow 3", "div by a constant", "concat, first", "concat, last", "clip below", "where", "cast", "range"),
    *("loop until a condition", "loop that reads its counter", "loop that collects a sequence"),
    *("if, then", "if, else", "if in a loop", "dropout in a branch", "noise in a loop"),
}


# Ops that have no form of bfloat16: Shrink, and all on sequences.
NOT_OF_BFLOAT16 = {"shrink", "loop whose state grows", "sequence", "sequence map", "pieces"}
NARROW = [(np.float32, 1e-3), (np.float16, 0.1), (ml_dtypes.bfloat16, 0.5)]


@pytest.mark.parametrize(
    ("family", "name", "dtype", "rtol"),
    [
        (*case, dtype, rtol)
        for case in ALL
        if case[1] not in OF_FLOAT64
        for dtype, rtol in NARROW
        if not (dtype is ml_dtypes.bfloat16 and case[1] in NOT_OF_BFLOAT16)
    ],
)
def test_rule_in_other_dtypes(family: str, name: str, dtype: Any, rtol: float) -> None:
    """The gradient is of the operand's dtype, and near that of float64."""
    build, *arrays = FAMILIES[family](1)[name]
    narrow = [a.astype(dtype) if a.dtype == np.float64 else a for a in arrays]
    # The same numbers, so that nothing but the arithmetic differs.
    wide = [a.astype(np.float64) if a.dtype == dtype else a for a in narrow]
    for got, want in zip(_gradients(build, narrow), _gradients(build, wide), strict=True):
        assert got.dtype == dtype
        scale = np.abs(want).max(initial=0.1)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize(("shape", "axis", "block"), [((), 0, 0), ((2,), 0, 0), ((5,), 1, 0), ((2, 3), 1, 2)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_dequantize_linear(shape: tuple[int, ...], axis: int, block: int, symbolic: bool) -> None:
    """Linear in its scales, which are float32 at most: so a difference by 1 is exact but for rounding."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (2, 5)).astype(np.uint8)
    scale = rng.uniform(0.5, 1, shape).astype(np.float32)
    zero = rng.integers(0, 9, shape).astype(np.uint8)
    weights = rng.uniform(-1, 1, (2, 5)).astype(np.float32)

    b = ik.Builder("g")
    values = [
        b.input(name, a.dtype, [f"{name}{k}" for k in range(a.ndim)] if symbolic else a.shape)
        for name, a in (("x", x), ("scale", scale), ("zero", zero))
    ]
    y = b.DequantizeLinear(*values, axis=axis, block_size=block)
    b.output(b.ReduceSum(b.Mul(y, weights), keepdims=0), "loss")
    run = ik.compile(ik.value_and_grad(b.module(), wrt="scale")).run
    found = run({"x": x, "scale": scale, "zero": zero})
    assert found["grad/scale"].shape == shape
    for index in np.ndindex(shape):
        more = scale.copy()
        more[index] += 1
        slope = run({"x": x, "scale": more, "zero": zero})["loss"] - found["loss"]
        np.testing.assert_allclose(found["grad/scale"][index], slope, rtol=1e-3, atol=1e-4)
