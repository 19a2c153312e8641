"""Single ops on arrays."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Operation

import irkit as ik
from irkit.backends.numpy import Budget, can_evaluate, evaluate
from irkit.errors import BudgetError, ExecutionError


def last_op(build: object) -> Operation:
    b = ik.Builder()
    value = build(b)  # type: ignore[operator]
    first = value[0] if isinstance(value, tuple) else value
    return first.ssa.op


def test_values() -> None:
    op = last_op(lambda b: b.Add(b.input("x", "float32", [2]), b.input("y", "float32", [2])))
    assert can_evaluate(op)
    x = np.array([1, 2], np.float32)
    (found,) = evaluate(op, [x, x])
    assert found.tolist() == [2, 4]
    with pytest.raises(ExecutionError, match="Add"):
        evaluate(op, [x, np.ones(3, np.float32)])


def test_repeated_and_absent_operands() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [])
    op = b.Clip(x, None, x).ssa.op
    assert can_evaluate(op)
    (found,) = evaluate(op, [np.float32(5), None, np.float32(2)])  # type: ignore[list-item]
    assert found == 2


def test_results_are_no_views() -> None:
    op = last_op(lambda b: b.Identity(b.input("x", "float32", [2])))
    x = np.ones(2, np.float32)
    (found,) = evaluate(op, [x])
    found += 1
    assert x.tolist() == [1, 1]


def test_several_results() -> None:
    op = last_op(lambda b: b.TopK(b.input("x", "int64", [3]), b.constant([1])))
    values, indices = evaluate(op, [np.array([1, 9, 2]), np.array([1])])
    assert (values.tolist(), indices.tolist()) == ([9], [1])


def test_graphs_without_captures() -> None:
    op = last_op(lambda b: b.Loop(3, None, 0, body=lambda b, i, c, s: (c, s + i)))
    assert can_evaluate(op)
    (found,) = evaluate(op, [np.array(3), None, np.array(0)])
    assert found == 3


def test_what_cannot_be_evaluated() -> None:
    assert not can_evaluate(last_op(lambda b: b.RandomNormal(shape=[2])))

    def capturing(b: ik.Builder) -> object:
        x = b.input("x", "int64", [])
        return b.Loop(3, None, 0, body=lambda b, i, c, s: (c, s + x))

    assert not can_evaluate(last_op(capturing))

    def drawing(b: ik.Builder) -> object:
        return b.Loop(3, None, 0.0, body=lambda b, i, c, s: (c, s + b.RandomNormal(shape=[])))

    assert not can_evaluate(last_op(drawing))


def test_budget() -> None:
    op = last_op(lambda b: b.ConstantOfShape(b.input("x", "int64", [1])))
    with pytest.raises(BudgetError, match="ConstantOfShape"):
        evaluate(op, [np.array([1000])], budget=Budget(bytes=100))


def test_older_form() -> None:
    from irkit.dialects.onnx import op_class

    b = ik.Builder()
    x = b.input("x", "float32", [2, 2, 2])
    op = b.op(op_class("", "Softmax", 11), x, axis=1).ssa.op
    assert can_evaluate(op)
    (found,) = evaluate(op, [np.zeros((2, 2, 2), np.float32)])
    # Below opset 13 the axes from `axis` on are one.
    assert found.tolist() == np.full((2, 2, 2), 0.25).tolist()
