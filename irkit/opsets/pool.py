"""Pooling: the float ``p`` of the first LpPool versions, and RoiAlign's half pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.types import dtype_of
from irkit.opsets.common import attribute, carried, dynamic_rank, impossible, int64, rank_of
from irkit.opsets.registry import Results, decompose, lower, upgrade


@upgrade("LpPool GlobalLpPool", 1)
def whole_p(b: Builder, op: OnnxOp) -> Results | None:
    p = op.attr("p")
    if p != int(p) or (op.op_type == "LpPool" and op.attr("kernel_shape") is None):
        return None
    return b.op(op.op_type, op.operands[0], **carried(op, p=int(p)))


@lower("LpPool", 1)
def lp_pool_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if attribute(op, "ceil_mode") or any(d != 1 for d in attribute(op, "dilations") or ()):
        raise impossible(op, "the older form knows neither ceil_mode nor dilations")
    return b.op(to, op.operands[0], **carried(op, "ceil_mode", "dilations", p=float(attribute(op, "p"))))


@lower("GlobalLpPool", 1)
def global_lp_pool_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    return b.op(to, op.operands[0], p=float(attribute(op, "p")))


@decompose("LpPool", 1)
def lp_pool(b: Builder, op: OnnxOp) -> Results | None:
    kernel, kind = op.attr("kernel_shape"), dtype_of(op.operands[0].type)
    if kernel is None or kind is None:
        return None
    p = b.constant(np.array(op.attr("p"), np.float32).astype(kind.numpy))
    powers = b.Pow(b.Abs(op.operands[0]), p)
    mean = b.AveragePool(powers, count_include_pad=1, **carried(op, "p"))
    count = b.constant(np.array(np.prod(kernel), np.float32).astype(kind.numpy))
    return b.Pow(b.Mul(mean, count), b.Reciprocal(p))


@decompose("GlobalLpPool", 1)
def global_lp_pool(b: Builder, op: OnnxOp) -> Results | None:
    x, kind = op.operands[0], dtype_of(op.operands[0].type)
    if kind is None:
        return None
    p = b.constant(np.array(op.attr("p"), np.float32).astype(kind.numpy))
    rank = rank_of(x)
    axes: Any = (
        int64(b, range(2, rank))
        if rank is not None
        else b.Range(int64(b, 2), b.Squeeze(dynamic_rank(b, x)), int64(b, 1))
    )
    return b.Pow(b.ReduceSum(b.Pow(b.Abs(x), p), axes), b.Reciprocal(p))


# RoiAlign: version 10 did not shift by half a pixel.


@upgrade("RoiAlign", 10)
def roi_align_shift(b: Builder, op: OnnxOp) -> Results | None:
    return b.RoiAlign(*op.operands, **carried(op, coordinate_transformation_mode="output_half_pixel"))


@lower("RoiAlign", 10)
def roi_align_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    mode = attribute(op, "coordinate_transformation_mode")
    if mode != "output_half_pixel":
        raise impossible(op, f"the older form means output_half_pixel, not '{mode}'")
    return b.op(to, *op.operands, **carried(op, "coordinate_transformation_mode"))
