"""Signals: the axis of DFT was an attribute, and 1 by default, at opset 17."""

from __future__ import annotations

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.opsets.common import carried, impossible, int64, ints_of, nonnegative, rank_of
from irkit.opsets.registry import Results, lower, upgrade


@upgrade("DFT", 17)
def dft_axis_operand(b: Builder, op: OnnxOp) -> Results | None:
    axis = op.attr("axis")
    if axis < 0 and rank_of(op.operands[0]) is None:
        return None
    return b.DFT(op.operands[0], op.operand(1), int64(b, axis), **carried(op, "axis"))


@lower("DFT", 17)
def dft_axis_attribute(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    given = op.operand(2)
    axis = [-2] if given is None else ints_of(given)
    if axis is None or len(axis) != 1:
        raise impossible(op, "its axis is not constant")
    found = nonnegative(op, axis[0], rank_of(op.operands[0]))
    return b.op(to, op.operands[0], op.operand(1), axis=None if found == 1 else found, **carried(op))
