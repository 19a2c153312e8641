"""Building graphs by hand."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.errors import InferenceError, IrkitError, VerifyError
from irkit.ir.location import where
from irkit.ir.op import is_absent
from irkit.ir.types import shape_of, tensor


def test_operators_make_the_ops_they_stand_for() -> None:
    b = ik.Builder()
    x, y = b.input("x", "float32", [2]), b.input("y", "float32", [2])
    i, p = b.input("i", "int32", [2]), b.input("p", "bool", [2])
    made = [x + y, x - y, x * y, x / y, x**y, -x, abs(x), x < y, x <= y, x > y, x >= y, i & i, i | i, i ^ i, ~i]
    made += [p & p, p | p, p ^ p, ~p, 1 - x]
    names = [t.ssa.owner.name.removeprefix("onnx.") for t in made]
    assert (
        names
        == (
            "Add Sub Mul Div Pow Neg Abs Less LessOrEqual Greater GreaterOrEqual BitwiseAnd BitwiseOr BitwiseXor "
            "BitwiseNot And Or Xor Not Sub"
        ).split()
    )


def test_numbers_take_the_dtype_of_what_they_meet() -> None:
    b = ik.Builder()
    for element in ("float16", "float32", "float64", "bfloat16", "int8", "uint64"):
        x = b.input(element, element, [3])
        assert (x + 1).type == tensor(element, [3])
        assert (2 * x).type == tensor(element, [3])
    loop = b.Loop(3, None, b.input("s", "float64", [1]), body=lambda b, i, c, s: (c, s + 1))
    assert loop.type == tensor("float64", [1])


def test_symbolic_sizes_survive() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", ["N", 3])
    y = b.input("y", "float32", ["N", 1])
    assert (x + y).shape == ("N", 3)
    assert (x + b.input("z", "float32", ["M", 3])).shape == (None, 3)
    assert b.Relu(x @ np.zeros((3, 4), np.float32)).shape == ("N", 4)
    assert b.input("u", "float32").shape is None


def test_absent_operands_share_one_value_at_the_top_and_trailing_ones_go() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    clipped = b.Clip(x, None, 1.0)
    again = b.Clip(clipped, None, 2.0)
    bare = b.Clip(again, None, None)
    assert len(bare.ssa.owner.operands) == 1
    absents = {v for op in (clipped, again) for v in op.ssa.owner.operands if is_absent(v)}
    assert len(absents) == 1
    assert b.block.first_op is absents.pop().owner


def test_regions_come_from_functions_and_capture() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", ["N"])
    scale = x * 2
    chosen = b.If(
        b.ReduceSum(x, keepdims=0) > 0,
        then_branch=lambda inner: inner.Add(scale, 1),
        else_branch=lambda inner: inner.Identity(x),
    )
    total, partial = b.Scan(
        b.constant(np.float32(0)), x, num_scan_inputs=1, body=lambda inner, s, item: (inner.Add(s, item), inner.Neg(s))
    )
    assert chosen.shape == ("N",)
    assert total.shape == ()
    assert partial.shape == ("N",)
    b.output(chosen, "y")
    b.output(partial, "p")
    module = b.module()
    assert list(module.outputs) == ["y", "p"]


def test_results_are_as_many_as_the_schema_says_or_as_asked() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [6])
    assert len(b.TopK(x, [2])) == 2
    assert len(b.Split(x, num_outputs=3)) == 3
    assert isinstance(b.Dropout(x), ik.Tensor)
    assert len(b.Dropout(x, outputs=2)) == 2


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda b, x: b.MatMul(x, np.zeros((9, 9), np.float32)), InferenceError, ["onnx.MatMul", "test_builder.py"]),
        (lambda b, x: x + np.zeros((5, 7), np.float32), InferenceError, ["broadcast", "[2, 3]", "[5, 7]"]),
        (
            lambda b, x: b.Conv(b.Reshape(x, [1, 3, 2]), np.ones((4, 5, 1), np.float32)),
            InferenceError,
            ["3 channels", "take 5"],
        ),
        (
            lambda b, x: b.ConvTranspose(b.Reshape(x, [1, 3, 2]), np.ones((4, 5, 1), np.float32)),
            InferenceError,
            ["3 channels", "take 4"],
        ),
        (
            lambda b, x: b.Conv(b.Reshape(x, [1, 6, 1]), np.ones((3, 3, 1), np.float32), group=2),
            InferenceError,
            ["divide into 2 groups"],
        ),
        (lambda b, x: b.Rellu(x), IrkitError, ["onnx.Rellu", "case-sensitive"]),
        (lambda b, x: b.Softmax(x, axes=1), TypeError, ["axes", "axis"]),
        (lambda b, x: b.If(True, then_branch=lambda b: x), TypeError, ["else_branch"]),
        (lambda b, x: b.Loop(1, None, x, body=lambda b, i: i), InferenceError, ["takes 3 inputs", "takes 1"]),
        (lambda b, x: b.Loop(1, None, x, body=lambda b, i, c, s: s * 2), InferenceError, ["carries 1", "gives 1"]),
        (lambda b, x: b.Concat([x, x], axis=0), TypeError, ["not of Tensor"]),
        (lambda b, x: bool(x), TypeError, ["truth value"]),
        (lambda b, x: list(x), TypeError, ["iterated"]),
    ],
)
def test_mistakes_are_said_where_they_are_made(make, error, words) -> None:  # type: ignore[no-untyped-def]
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3])
    with pytest.raises(error) as caught:
        make(b, x)
    for word in words:
        assert word in str(caught.value)


def test_ops_know_the_line_that_made_them() -> None:
    b = ik.Builder()
    y = b.Relu(b.input("x", "float32", [1]))
    assert "test_builder.py:" in where(y.ssa)


def test_a_builder_in_front_of_an_op_fuses_its_location() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [1])
    y = b.Relu(x)
    b.output(y, "y")
    module = b.module()
    relu = y.ssa.owner
    inner = ik.Builder.before(relu, module.ctx, by="a-pass")
    new = inner.Neg(x)
    assert new.ssa.owner.next_op is relu
    assert where(new.ssa).startswith("made by a-pass from ")
    assert "test_builder.py" in where(new.ssa)


def test_other_domains_by_their_full_name() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3])
    y = b.op("onnx.ml.Scaler", x, offset=[1.0], scale=[2.0])
    assert shape_of(y.type) == (2, 3)


def test_a_builder_makes_one_module() -> None:
    b = ik.Builder()
    b.output(b.input("x", "float32", [2]), "y")
    b.module()
    with pytest.raises(IrkitError, match="made its module already"):
        b.module()


def test_an_output_is_not_called_like_another_input() -> None:
    b = ik.Builder()
    x, y = b.input("x", "float32", [2]), b.input("y", "float32", [2])
    b.output(x + y, "y")
    with pytest.raises(VerifyError, match="an input and an output are both called 'y'"):
        b.module()
    b = ik.Builder()
    b.output(b.input("x", "float32", [2]), "x")
    assert b.module().output_names == ["x"]
