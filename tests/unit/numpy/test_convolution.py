"""Convolutions with what follows them: as one by one within roundings, and each value there that is asked for."""

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

RNG = np.random.default_rng(11)
CHANNELS = 6


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (0.5 + RNG.random(shape)).astype(np.float32)


def normalized(b: ik.Builder, x: Any) -> Any:
    scale, variance = positive(CHANNELS), positive(CHANNELS)
    return b.BatchNormalization(x, scale, floats(CHANNELS), floats(CHANNELS), variance, epsilon=1e-3)


Tail = Callable[[ik.Builder, Any, Any], Any]
TAILS: dict[str, tuple[Tail, list[list[str]]]] = {
    "nothing": (lambda b, y, r: y, [["Conv"]]),
    "relu": (lambda b, y, r: b.Relu(y), [["Conv", "Relu"]]),
    "clip": (lambda b, y, r: b.Clip(y, -0.5, 0.75), [["Conv", "Clip"]]),
    "norm": (lambda b, y, r: b.Relu(normalized(b, y)), [["Conv", "BatchNormalization", "Relu"]]),
    "scale": (
        lambda b, y, r: normalized(b, y) * positive(CHANNELS, 1, 1) + floats(1, CHANNELS, 1, 1),
        [["Conv", "BatchNormalization", "Mul", "Add"]],
    ),
    "residual": (
        lambda b, y, r: b.Relu(b.Sum(r, normalized(b, y))),
        [["Conv", "BatchNormalization", "Sum", "Relu"]],
    ),
    "residual first": (lambda b, y, r: b.Exp(r - y) * y, [["Conv", "Sub", "Exp", "Mul"]]),
    "temporaries": (
        lambda b, y, r: b.Sigmoid(y) * b.HardSwish(y + 1),
        [["Conv", "Sigmoid", "Add", "HardSwish", "Mul"]],
    ),
    "number": (lambda b, y, r: (y + 3) * 0.5, [["Conv", "Add", "Mul"]]),
    "read twice": (lambda b, y, r: (b.Relu(y), b.Neg(y)), [["Conv"], ["Relu", "Neg"]]),
    "in between": (lambda b, y, r: (b.Relu(n := normalized(b, y)), n), [["Conv", "BatchNormalization"], ["Relu"]]),
}


def module(tail: Tail, shape: Any, known: bool = True, bias: bool = True, **attributes: Any) -> Module:
    """Conv of x and what follows; ``r`` has the shape of its output, filters are inputs unless known."""
    b = ik.Builder()
    x, r = b.input("x", "float32", shape), b.input("r", "float32", [shape[0], CHANNELS, *shape[2:]])
    w, c = floats(CHANNELS, shape[1] // attributes.get("group", 1), 3, 3), floats(CHANNELS)
    filters = b.initializer(w, "w") if known else b.input("w", "float32", w.shape)
    added = (b.initializer(c, "c") if known else b.input("c", "float32", c.shape)) if bias else None
    y = b.Conv(x, filters, added, pads=[1, 1, 1, 1], **attributes)
    found = tail(b, y, r)
    for index, value in enumerate(found if isinstance(found, tuple) else (found,)):
        b.output(value, f"o{index}")
    return b.module()


def feeds(made: Module, batch: int = 2, size: int = 7) -> dict[str, np.ndarray]:
    shapes = {"x": (batch, CHANNELS, size, 5), "r": (batch, CHANNELS, size, 5)}
    shapes |= {"w": (CHANNELS, CHANNELS, 3, 3), "c": (CHANNELS,)}
    return {name: floats(*shapes[name]) for name in made.input_names}


def agree(made: Module, given: dict[str, np.ndarray]) -> None:
    expected = compile(made, profile=True).run(given)
    f = compile(made)
    for found in (f.run(given), f.run(given), compile(made, threads=2).run(given)):
        for name, wanted in expected.items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def fused_names(made: Module) -> list[list[str]]:
    """The ops of each step as it is run."""
    (plan,) = compile(made)._plans.values()
    runs = [getattr(step.function, "steps", [step]) for step in fuse(plan).steps]
    return [[step.op.name.removeprefix("onnx.") for step in run] for run in runs]


@pytest.mark.parametrize("tile", [None, 64])
@pytest.mark.parametrize("tail", TAILS)
def test_as_one_by_one(monkeypatch: pytest.MonkeyPatch, tail: str, tile: int | None) -> None:
    if tile is not None:
        monkeypatch.setattr(tiles, "TILE_BYTES", tile)
    function, steps = TAILS[tail]
    shape = ("N", CHANNELS, "H", 5)
    made = module(function, shape)
    assert fused_names(made) == steps
    for batch, size in ((2, 7), (1, 4)):
        agree(made, feeds(made, batch, size))
    for changed in (module(function, shape, bias=False), module(function, shape, known=False)):
        agree(changed, feeds(changed))
    fixed = module(function, (2, CHANNELS, 7, 5))
    agree(fixed, feeds(fixed))


@pytest.mark.parametrize(("rank", "element"), [(1, "float32"), (3, "float32"), (2, "float64")])
def test_other_ranks_and_types(rank: int, element: str) -> None:
    b = ik.Builder()
    x = b.input("x", element, ["N", 4, *("HWD"[:rank])])
    w, c = (v.astype(element) for v in (floats(CHANNELS, 4, *(2,) * rank), floats(CHANNELS)))
    vectors = [v.astype(element) for v in (positive(CHANNELS), c, c, positive(CHANNELS))]
    b.output(b.Relu(b.BatchNormalization(b.Conv(x, w, c), *vectors)), "y")
    agree(b.module(), {"x": floats(2, 4, *(5, 4, 3)[:rank]).astype(element)})


@pytest.mark.parametrize(("batch", "height"), [(0, 5), (2, 0)])
def test_nothing_to_compute(batch: int, height: int) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", ["N", 2, "H", 5])
    b.output(b.Relu(b.Conv(x, floats(4, 2, 3, 3), floats(4))), "y")
    agree(b.module(), {"x": floats(batch, 2, height, 5)})


def test_what_follows_may_be_larger() -> None:
    b = ik.Builder()
    x, r = b.input("x", "float32", ["N", 2, "H", "W"]), b.input("r", "float32", ["N", 3, "A", "B"])
    b.output(b.Relu(b.Conv(x, floats(3, 2, 1, 1), floats(3)) + r), "y")
    given = {"x": floats(2, 2, 1, 1), "r": floats(2, 3, 4, 5)}
    agree(b.module(), given)


def test_magnitudes_that_do_not_fit_are_not_folded() -> None:
    """A scale that overflows beside a zero: the ops one by one give NaN only where the definition does."""
    b = ik.Builder()
    x = b.input("x", "float32", [1, 2, 3, 3])
    one = np.ones(2, np.float32)
    y = b.BatchNormalization(b.Conv(x, 1e30 * np.ones((2, 2, 1, 1), np.float32)), one * 1e30, one, one, one)
    b.output(y, "y")
    made = b.module()
    given = {"x": np.zeros((1, 2, 3, 3), np.float32)}
    np.testing.assert_array_equal(compile(made).run(given)["y"], compile(made, profile=True).run(given)["y"])


def test_rounding_by_a_large_number_is_kept() -> None:
    """Adding 1.5 * 2**23 and taking it away rounds to whole numbers; folding the two would not."""
    large = np.float32(1.5 * 2**23)
    b = ik.Builder()
    x = b.input("x", "float32", [1, 2, 4, 4])
    b.output((normalized_by_two(b, b.Conv(x, floats(2, 2, 1, 1))) + large) - large, "y")
    found = compile(b.module())(floats(1, 2, 4, 4))
    np.testing.assert_array_equal(found, np.rint(found))


def normalized_by_two(b: ik.Builder, x: Any) -> Any:
    return b.BatchNormalization(x, *(positive(2) for _ in range(4)))


def test_every_value_can_be_fetched_and_seen() -> None:
    made = module(TAILS["residual"][0], (2, CHANNELS, 7, 5))
    given = feeds(made)
    seen: list[str] = []
    compile(made, hook=lambda op, operands, results: seen.append(op.name)).run(given)
    assert seen == ["onnx.Conv", "onnx.BatchNormalization", "onnx.Sum", "onnx.Relu"]
    f = compile(made)
    names = [name for name in f._named() if f.can_fetch(name)]
    expected = compile(made, profile=True).run(given, names)
    for name, found in f.run(given, names).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5)


def test_the_failing_op_is_named() -> None:
    b = ik.Builder()
    x, r = b.input("x", "float32", ["N", 2, "H", "W"]), b.input("r", "float32", ["N", 3, "H", "W"])
    b.output(b.Relu(b.Conv(x, floats(3, 2, 3, 3), floats(3)) + r), "y")
    f = compile(b.module())
    with pytest.raises(ExecutionError, match="does not fit") as caught:
        f(floats(1, 2, 2, 2), floats(1, 3, 2, 2))
    assert caught.value.op == "onnx.Conv"
    with pytest.raises(ExecutionError, match="broadcast") as caught:
        f(floats(1, 2, 5, 5), floats(1, 3, 5, 5))
    assert caught.value.op == "onnx.Add"


def test_constants_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [3])
    b.output(x + b.Unsqueeze(b.Transpose(b.initializer(floats(3), "w")), np.array([0])), "y")
    made = b.module()
    (plan,) = compile(made)._plans.values()
    assert [step.op.name for step in fuse(plan).steps] == ["onnx.Add"]
    agree(made, {"x": floats(3)})


def test_constants_that_fail_fail_in_the_run() -> None:
    b = ik.Builder()
    x = b.input("x", "int32", [2])
    one, zero = (b.initializer(np.full(2, value, np.int32), f"c{value}") for value in (1, 0))
    b.output(x + b.Div(one, zero), "y")
    f = compile(b.module())
    with pytest.raises(ExecutionError, match="zero") as caught:
        f(np.zeros(2, np.int32))
    assert caught.value.op == "onnx.Div"
