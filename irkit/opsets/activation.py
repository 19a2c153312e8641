"""Softmax and its kin: below opset 13 over all axes from ``axis`` on, taken as one."""

from __future__ import annotations

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.opsets.common import attribute, carried, impossible, nonnegative, rank_of
from irkit.opsets.registry import NEGATIVE_AXIS_SINCE, Results, decompose, lower, upgrade

SOFTMAXES = "Softmax LogSoftmax Hardmax"


@upgrade(SOFTMAXES, 1, 11)
def over_last_axis(b: Builder, op: OnnxOp) -> Results | None:
    axis, rank = op.attr("axis"), rank_of(op.operands[0])
    if axis == -1 and op.since >= NEGATIVE_AXIS_SINCE:
        return b.op(op.op_type, op.operands[0], axis=-1)
    # From the last axis on there is but one; the default changed, so it is written out.
    return b.op(op.op_type, op.operands[0], axis=axis) if rank is not None and axis == rank - 1 else None


@lower(SOFTMAXES, 1, 11)
def over_trailing_axes(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, axis = op.operands[0], attribute(op, "axis")
    rank = rank_of(x)
    if axis == -1 and to.since >= NEGATIVE_AXIS_SINCE:
        return b.op(to, x, axis=-1)
    if rank is None:
        raise impossible(op, "the older form takes all axes from one on, and the rank of its operand is not known")
    axis = nonnegative(op, axis, rank)
    if axis == rank - 1:
        return b.op(to, x, axis=axis)
    order = [*(i for i in range(rank) if i != axis), axis]
    back = [order.index(i) for i in range(rank)]
    return b.Transpose(b.op(to, b.Transpose(x, perm=order), axis=rank - 1), perm=back)


@decompose(SOFTMAXES, 1, 11)
def of_flattened(b: Builder, op: OnnxOp) -> Results:
    x = op.operands[0]
    flat = b.op(op.op_type, b.Flatten(x, **carried(op), **({} if "axis" in op.properties else {"axis": 1})), axis=-1)
    return b.Reshape(flat, b.Shape(x), allowzero=1)
