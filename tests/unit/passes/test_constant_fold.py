"""Folding: what, how far, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import irkit as ik
from irkit.backends.onnx import export
from irkit.dialects.onnx.values import constant_of
from irkit.frontends.onnx import load
from irkit.ir.location import describe
from irkit.ir.names import name_of
from irkit.ir.types import tensor
from irkit.passes import optimize
from irkit.passes.constant_fold import ConstantFolding
from tests.corpus.build import from_text

Count = Callable[..., int]


def folded(b: ik.Builder, **options: Any) -> tuple[ik.Module, ConstantFolding]:
    step = ConstantFolding(**options)
    return optimize(b.module(), [step], verify_each=True), step


def value(module: ik.Module, output: int = 0) -> np.ndarray:
    data = constant_of(module.returned[output])
    assert data is not None
    return data.array()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda b: b.constant(np.float32([1, 2])) + 1, np.float32([2, 3])),
        (lambda b: b.constant(np.int8(100)) * np.int8(100), np.int8(16)),
        (lambda b: b.Div(np.int32([-7]), np.int32([2])), np.int32([-3])),
        (lambda b: b.constant(np.array([1.5, -2], ml_dtypes.bfloat16)) + 1, np.array([2.5, -1], ml_dtypes.bfloat16)),
        (lambda b: b.Cast(np.float32([0, 1, np.nan]), to=9), np.array([False, True, True])),
        (lambda b: b.StringConcat(np.array(["é"], object), np.array(["b"], object)), np.array(["éb"], object)),
        (lambda b: b.Concat(np.zeros((0, 2), np.float32), np.ones((1, 2), np.float32), axis=0), np.float32([[1, 1]])),
        (lambda b: b.ReduceSum(np.zeros((0, 2), np.float32), np.array([0])), np.float32([[0, 0]])),
        (lambda b: b.NonZero(np.array([0, 3, 0, 4])), np.array([[1, 3]])),
        (lambda b: b.Range(np.int64(1), np.int64(7), np.int64(3)), np.array([1, 4])),
        (lambda b: b.Neg(np.float32(0.0)), np.float32(-0.0)),
    ],
)
def test_constants_fold_to_the_bit(make: Callable[[ik.Builder], ik.Tensor], expected: Any) -> None:
    b = ik.Builder()
    b.output(make(b), "y")
    made, step = folded(b)
    found = value(made)
    assert found.dtype == np.asarray(expected).dtype
    assert found.shape == np.asarray(expected).shape
    if found.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == np.asarray(expected).tobytes()
    assert step.skipped == []


def test_a_chain_folds_in_one_run_and_says_where_from(count: Count) -> None:
    b = ik.Builder()
    y = b.constant(1.0, "float32")
    for _ in range(100):
        y = b.Neg(y)
    b.output(y, "y")
    module = b.module()
    made = optimize(module, "constant-fold,dce")
    assert [op.name for op in made.block.ops] == ["onnx.Constant", "func.return"]
    (constant, _) = made.block.ops
    assert describe(constant.location).startswith("made by constant-fold from")
    assert name_of(made.returned[0]) == name_of(module.returned[0])


def test_a_folded_output_keeps_its_name() -> None:
    model = from_text("g () => (float[1] y, float[1] z) <float[1] a = {1.0}> { y = Neg (a)  z = Exp (y) }")
    written = export(optimize(load(model), "O2"))
    assert [tuple(n.output) for n in written.graph.node] == [("y",), ("z",)]


def test_functions_get_constants(count: Count) -> None:
    model = from_text(
        """
        g (float[2] x) => (float[2] y) { y = local.F (x) }
        <domain: "local", opset_import: ["" : 21]>
        F (v) => (w) { a = Constant <value_float = 2.0> ()  s = Neg (a)  w = Mul (v, s) }
        """,
        imports={"local": 1},
    )
    made = optimize(load(model), "constant-fold,dce", verify_each=True)
    assert (count(made, "Neg"), count(made, "Constant"), count(made, "Initializer")) == (0, 1, 0)


def test_below_opset_9_integers_become_initializers(count: Count) -> None:
    """Constant had only floats then."""
    text = "g (float[2,3] x) => (int64[2] y) { s = Shape (x)  y = Identity (s) }"
    made = optimize(load(from_text(text, opset=8, ir_version=3)), "constant-fold,dce", verify_each=True)
    assert (count(made, "Constant"), count(made, "Initializer")) == (0, 1)
    assert [o.version for o in export(made).opset_import] == [8]


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda b, x: b.Shape(x), False),
        (lambda b, x: b.Shape(x, start=1), True),
        (lambda b, x: b.Shape(x, start=-1, end=100), True),
        (lambda b, x: b.Shape(x, start=0, end=1), False),
        (lambda b, x: b.Gather(b.Shape(x), np.array([2, -2])), True),
        (lambda b, x: b.Gather(b.Shape(x), np.array(0)), False),
        (lambda b, x: b.Slice(b.Shape(x), np.array([1]), np.array([2**62])), True),
        (lambda b, x: b.Slice(b.Shape(x), np.array([-1]), np.array([0]), np.array([0]), np.array([-1])), True),
        (lambda b, x: b.Slice(b.Shape(x), np.array([0]), np.array([2])), False),
        (lambda b, x: b.Concat(np.array([-1]), b.Shape(x, start=1), axis=0), True),
        (lambda b, x: b.Concat(b.Shape(x), np.array([1]), axis=0), False),
        (lambda b, x: b.Unsqueeze(b.Gather(b.Shape(x), np.array(1)), np.array([0])), True),
        (lambda b, x: b.Squeeze(b.Shape(x, start=2)), True),
        (lambda b, x: b.Cast(b.Gather(b.Shape(x), np.array([1])), to=6), True),
        (lambda b, x: b.Size(x), False),
        (lambda b, x: b.Size(b.Transpose(np.zeros((2, 5), np.float32))), True),
    ],
)
def test_sizes_fold_where_they_are_known(make: Callable[[ik.Builder, ik.Tensor], ik.Tensor], known: bool) -> None:
    """Whatever folds equals what a run with a batch of 7 gives."""
    from irkit.backends import compile as compile_module

    b = ik.Builder()
    x = b.input("x", "float32", ["N", 3, 4])
    b.output(make(b, x), "y")
    module = b.module()
    made, _ = folded(_Made(module))
    assert (constant_of(made.returned[0]) is not None) == known
    if known:
        expected = compile_module(module).run({"x": np.zeros((7, 3, 4), np.float32)})["y"]
        assert value(made).dtype == expected.dtype
        assert np.array_equal(value(made), expected)


class _Made(ik.Builder):
    """A module where a builder is expected."""

    def __init__(self, module: ik.Module) -> None:
        self._module = module

    def module(self) -> ik.Module:
        return self._module


def test_types_follow_from_what_was_folded() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3, 4])
    target = b.Concat(np.array([-1]), b.Slice(b.Shape(x), np.array([2]), np.array([3])), axis=0)
    b.output(b.Shape(b.Reshape(x, target)), "y")
    made, _ = folded(b)
    assert value(made).tolist() == [6, 4]


def test_splats_stay_splats() -> None:
    b = ik.Builder()
    zeros = b.ConstantOfShape(np.array([100, 100]))
    b.output(b.Transpose(b.Exp(zeros) * 3), "y")
    made, _ = folded(b)
    data = constant_of(made.returned[0])
    assert data is not None
    assert data.is_splat
    assert data.shape == (100, 100)
    assert data.element == np.float32(3)


def test_reshaped_weights_share_their_bytes() -> None:
    weights = np.arange(1 << 20, dtype=np.float32)
    b = ik.Builder()
    w = b.initializer(weights, "w")
    b.output(b.Reshape(b.Unsqueeze(w, np.array([0])), np.array([1024, 1024])), "y")
    module = b.module()
    held = constant_of(module.returned[0].owner.operands[0].owner.operands[0])
    made, _ = folded(_Made(module))
    assert held is not None
    assert np.shares_memory(value(made), held.array())


SKIPPED: list[tuple[Callable[[ik.Builder], ik.Tensor], dict[str, Any], str]] = [
    (lambda b: b.Tile(np.float32([1, 2]), np.array([1 << 20])), {}, "max-bytes=1048576"),
    (lambda b: b.Exp(np.zeros(1000, np.float32)), {"max_memory": 100}, "max-memory=100"),
    (lambda b: b.Tile(np.float32([1, 2]), np.array([100])), {"max_growth": 100}, "max-growth=100"),
    (lambda b: b.Div(np.array([1]), np.array([0])), {}, "computing it fails"),
    (lambda b: b.Gather(np.array([1]), np.array([5])), {}, "computing it fails"),
    (lambda b: b.Bernoulli(np.float32([0.5])), {}, "it draws random numbers"),
    (lambda b: b.DequantizeLinear(np.int8([1]), np.float32(0.5)), {}, "quantization is kept"),
]


@pytest.mark.parametrize(("make", "options", "reason"), SKIPPED, ids=[reason for *_, reason in SKIPPED])
def test_what_is_skipped_says_why(make: Callable[[ik.Builder], ik.Tensor], options: Any, reason: str) -> None:
    b = ik.Builder()
    b.output(make(b), "y")
    made, step = folded(b, **options)
    assert constant_of(made.returned[0]) is None
    assert reason in step.skipped[0].reason
    assert reason in step.notes()[0]


def test_small_integers_fold_whatever_the_budget() -> None:
    b = ik.Builder()
    b.output(b.Tile(np.array([1, 2]), np.array([8])), "y")
    made, _ = folded(b, max_bytes=0, max_growth=0, max_memory=0)
    assert value(made).tolist() == [1, 2] * 8


def test_what_frees_its_operand_does_not_count_as_growth() -> None:
    weights = np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    b = ik.Builder()
    w = b.initializer(weights, "w")
    b.output(b.Transpose(w), "y")
    made, step = folded(b)
    assert step.skipped == []
    assert np.array_equal(value(made), weights.T)
    b = ik.Builder()
    w = b.initializer(weights, "w")
    b.output(b.Transpose(w), "y")
    b.output(w, "z")
    made, step = folded(b)
    assert "max-bytes" in step.skipped[0].reason


def test_overridable_inputs_and_unused_ops_are_left() -> None:
    model = from_text("g (float[2] x, float[2] w) => (float[2] y) { s = Neg (w)  t = Exp (s)  y = Mul (x, s) }")
    from onnx import numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    module = load(model)
    assert not ConstantFolding().run(module)


def test_a_result_that_contradicts_its_type_is_not_folded() -> None:
    from irkit.passes.types import set_type

    b = ik.Builder()
    b.output(b.Exp(np.float32([1, 2])), "y")
    module = b.module()
    set_type(module.returned[0], tensor("float32", (3,)))
    step = ConstantFolding()
    step.run(module)
    assert "is inferred" in step.skipped[0].reason
