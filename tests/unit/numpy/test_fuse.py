"""Runs of elementwise steps: the same bits as one by one, and nothing is written over that is still read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import compile, tiles
from irkit.backends.numpy.fuse import fuse
from irkit.errors import ExecutionError
from irkit.ir.module import Module

Build = Callable[[ik.Builder, Any, Any], Any]
PROGRAMS: dict[str, Build] = {
    "arithmetic": lambda b, x, y: b.Max((x + y) * 2 - y, x / (y + 3), x),
    "one operand twice": lambda b, x, y: b.Mul(x + x, x + x),
    "activations": lambda b, x, y: b.Sigmoid(b.Gelu(b.Elu(x)) + b.Softplus(b.Erf(y))),
    "clip": lambda b, x, y: b.Clip(b.Clip(x * y, -0.5, None), None, 0.25),
    "temporaries": lambda b, x, y: (b.Exp(x) + b.Tanh(y)) * (b.Cos(x) - b.Sin(y)) + b.Sqrt(b.Abs(x * y)),
    "sum of one and of many": lambda b, x, y: b.Sum(b.Sum(b.Relu(x)), y, x, b.Neg(y)),
}
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "small": ((5,), (5,)),
    "scalar": ((), ()),
    "empty": ((0, 3), (0, 3)),
    "flat": ((1000,), (1000,)),
    "number": ((7, 300), ()),
    "row": ((50, 40), (40,)),
    "column": ((50, 40), (50, 1)),
    "channels": ((2, 6, 11, 13), (6, 1, 1)),
    "ones in front": ((1, 1, 500), (1, 500)),
    "long rows": ((3, 700), (3, 700)),
    "both ways": ((40, 1), (1, 50)),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE_BYTES", 256)


def module(build: Build, element: str = "float32", shapes: Any = (None, None)) -> Module:
    b = ik.Builder()
    x, y = (b.input(name, element, shape) for name, shape in zip("xy", shapes, strict=True))
    found = build(b, x, y)
    for index, value in enumerate(found if isinstance(found, tuple) else (found,)):
        b.output(value, f"o{index}")
    return b.module()


def agree(made: Module, *feeds: np.ndarray, rtol: float = 0, atol: float = 0) -> list[np.ndarray]:
    """Runs fused and step by step, compares every bit unless a tolerance is given, and returns the results."""
    named = dict(zip(made.input_names, feeds, strict=True))
    before = [feed.copy() for feed in feeds]
    fused = compile(made)
    found = [list(fused.run(named).values()) for _ in range(2)]
    found.append(list(compile(made, threads=2).run(named).values()))
    expected = list(compile(made, profile=True).run(named).values())
    for results in found:
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol, atol)
    for feed, kept in zip(feeds, before, strict=True):
        np.testing.assert_array_equal(feed, kept)
    return expected


def fused_names(made: Module) -> list[list[str]]:
    """The ops of each step as it is run."""
    f = compile(made)
    (plan,) = f._plans.values()
    runs = [getattr(step.function, "steps", [step]) for step in fuse(plan).steps]
    return [[step.op.name.removeprefix("onnx.") for step in run] for run in runs]


@pytest.mark.parametrize("element", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_bits(program: str, shape: str, element: str) -> None:
    rng = np.random.default_rng(7)
    x, y = (np.asarray(rng.standard_normal(s), element) for s in SHAPES[shape])
    agree(module(PROGRAMS[program], element, SHAPES[shape]), x, y)
    # With sizes and rank not known when compiled.
    agree(module(PROGRAMS[program], element), x, y)


def test_runs_are_found() -> None:
    shapes = ((8, 8), (8, 8))
    assert fused_names(module(lambda b, x, y: b.Exp(x + y) * 2, shapes=shapes)) == [["Add", "Exp", "Mul"]]
    mixed = module(lambda b, x, y: b.Relu(b.MatMul(b.Exp(x), y)) - 1, shapes=shapes)
    assert fused_names(mixed) == [["Exp"], ["MatMul"], ["Relu", "Sub"]]
    integers = module(lambda b, x, y: b.Abs(x + y), "int32", shapes)
    assert fused_names(integers) == [["Add"], ["Abs"]]


def test_several_results() -> None:
    def build(b: ik.Builder, x: Any, y: Any) -> Any:
        first = x + y
        second = b.Exp(first)
        return first, second * first, b.Neg(second)

    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    first, second, third = agree(module(build, shapes=((40, 40), (40, 40))), x, x)
    np.testing.assert_allclose(first, 2 * x, rtol=1e-6)
    np.testing.assert_allclose(third, -np.exp(2 * x), rtol=1e-5)
    np.testing.assert_allclose(second, np.exp(2 * x) * 2 * x, rtol=1e-5)


def test_written_over_only_what_is_not_read_again() -> None:
    def build(b: ik.Builder, x: Any, y: Any) -> Any:
        product = b.MatMul(x, y)
        shared = b.MatMul(y, x)
        # `product` may be written over; `shared` is read again, by an op and as a view.
        return b.Relu(product + shared) - product, b.Transpose(shared, perm=[1, 0]), b.Exp(shared)

    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((30, 30)).astype(np.float32) for _ in range(2))
    first, second, third = agree(module(build, shapes=((30, 30), (30, 30))), x, y)
    np.testing.assert_allclose(first, np.maximum(x @ y + y @ x, 0) - x @ y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, (y @ x).T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(third, np.exp(y @ x), rtol=1e-4)


def test_a_result_is_written_over_the_operand_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module(lambda b, x, y: b.Relu(b.MatMul(x, y)), shapes=((64, 64), (64, 64)))
    x = np.ones((64, 64), np.float32)
    f = compile(made)
    f(x, x)
    empties: list[Any] = []
    empty = np.empty
    monkeypatch.setattr(tiles.np, "empty", lambda *a, **k: empties.append(a) or empty(*a, **k))
    assert f(x, x)[0, 0] == 64
    assert not [shape for shape, *_ in empties if shape == (64, 64)]


def test_batch_normalization() -> None:
    rng = np.random.default_rng(2)
    scale, bias, mean, variance = (rng.random(6).astype(np.float32) for _ in range(4))

    def build(b: ik.Builder, x: Any, y: Any) -> Any:
        return b.Relu(b.BatchNormalization(x, scale, bias, mean, variance, epsilon=1e-3, outputs=1)) + y

    x = rng.standard_normal((2, 6, 9, 7)).astype(np.float32)
    made = module(build, shapes=(("N", 6, 9, 7), ("N", 6, 9, 7)))
    (found,) = agree(made, x, x, rtol=1e-5, atol=1e-6)
    assert fused_names(made) == [["BatchNormalization", "Relu", "Add"]]
    along = (1, 6, 1, 1)
    normal = (x - mean.reshape(along)) / np.sqrt(variance.reshape(along) + 1e-3)
    expected = np.maximum(normal * scale.reshape(along) + bias.reshape(along), 0) + x
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_failing_op_is_named() -> None:
    made = module(lambda b, x, y: b.Exp(b.Neg(x) + y), shapes=(("N",), ("M",)))
    for size in (3, 1000):
        with pytest.raises(ExecutionError, match="broadcast") as caught:
            compile(made)(np.ones(size, np.float32), np.ones(size + 1, np.float32))
        assert caught.value.op == "onnx.Add"
        assert f"float32[{size}], float32[{size + 1}]" in caught.value.message


def test_shapes_may_change_between_runs() -> None:
    f = compile(module(PROGRAMS["arithmetic"], shapes=(("N",), ("N",))))
    for size in [*range(1, 200, 3), 5000]:
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(f(x, x), np.maximum(np.maximum((x + x) * 2 - x, x / (x + 3)), x))
