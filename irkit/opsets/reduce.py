"""Reductions: ``axes`` was an attribute before opset 13 (ReduceSum) or 18 (the others)."""

from __future__ import annotations

from typing import Any

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.ir.types import dtype_of
from irkit.opsets.common import attribute, carried, impossible, int64, ints_of, nonnegative, rank_of
from irkit.opsets.registry import NEGATIVE_AXIS_SINCE, Results, decompose, lower, upgrade

REDUCTIONS = "ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSumSquare"
LOGARITHMIC = "ReduceLogSum ReduceLogSumExp"
EXTREMA = "ReduceMax ReduceMin"


@upgrade(REDUCTIONS, 1, 11, 13)
@upgrade(EXTREMA, 1, 11, 12, 13)
@upgrade("ReduceSum", 1, 11)
def axes_to_operand(b: Builder, op: OnnxOp) -> Results | None:
    axes = op.attr("axes")
    if axes is None:
        return b.op(op.op_type, op.operands[0], **carried(op))
    # An empty list means all axes, too; but an attribute that is not there cannot be told from it afterwards.
    if not axes or (min(axes) < 0 and op.since < NEGATIVE_AXIS_SINCE and rank_of(op.operands[0]) is None):
        return None
    return _reduced(b, op, op.operands[0])


def _reduced(b: Builder, op: OnnxOp, x: Any) -> Tensor:
    axes = op.attr("axes")
    return b.op(op.op_type, x, int64(b, axes) if axes else None, **carried(op, "axes"))


@upgrade(LOGARITHMIC, 1, 11, 13)
def axes_to_operand_of_floats(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    return None if kind is None or not kind.is_float else axes_to_operand(b, op)


@upgrade(LOGARITHMIC, 18)
def logarithm_of_floats(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    return None if kind is None or not kind.is_float else b.op(op.op_type, *op.operands, **carried(op))


@lower(LOGARITHMIC, 18)
def logarithm(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    return b.op(to, *op.operands, **carried(op))


@lower(REDUCTIONS, 1, 11, 13)
@lower(LOGARITHMIC, 1, 11, 13)
@lower(EXTREMA, 1, 11, 12, 13)
@lower("ReduceSum", 1, 11)
def axes_to_attribute(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, given = op.operands[0], op.operand(1)
    axes = ints_of(given)
    if given is not None and axes is None:
        raise impossible(op, "its axes are not constant")
    if not axes and attribute(op, "noop_with_empty_axes"):
        return _elementwise_part(b, op)
    if axes and to.since < NEGATIVE_AXIS_SINCE:
        axes = [nonnegative(op, axis, rank_of(x)) for axis in axes]
    return b.op(to, x, axes=axes or None, **carried(op, "noop_with_empty_axes"))


def _elementwise_part(b: Builder, op: OnnxOp) -> Tensor:
    """A reduction over no axes: what it does to each element."""
    x = op.operands[0]
    match op.op_type:
        case "ReduceL1" | "ReduceL2":
            return b.Abs(x)
        case "ReduceSumSquare":
            return b.Mul(x, x)
        case "ReduceLogSum":
            return b.Log(x)
        case _:
            return b.Identity(x)


@decompose(REDUCTIONS, 1, 11, 13)
@decompose(EXTREMA, 1, 11, 12, 13)
@decompose("ReduceSum", 1, 11)
def reduction(b: Builder, op: OnnxOp) -> Results:
    return _reduced(b, op, op.operands[0])


@decompose(LOGARITHMIC, 1, 11, 13, 18)
def reduction_of_integers(b: Builder, op: OnnxOp) -> Results:
    x, kind = op.operands[0], dtype_of(op.operands[0].type)
    integers = kind is not None and kind.is_integer
    wide: Any = b.Cast(x, to=11) if integers else x
    made = b.op(op.op_type, wide, *op.operands[1:], **carried(op)) if op.since == 18 else _reduced(b, op, wide)
    return b.Cast(made, to=kind.code) if integers and kind is not None else made
