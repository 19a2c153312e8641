"""Gemm: broadcasting its third operand by attribute (below opset 7), and doing without it (from 11 on)."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.types import dtype_of, shape_of
from irkit.opsets.common import carried, impossible, sizes_of
from irkit.opsets.registry import Results, decompose, lower, upgrade
from irkit.opsets.rewrite import renamed_back


def _broadcast(op: OnnxOp) -> int:
    """What ``broadcast`` is to be; 1 is right in any case, 0 where C certainly has the result's shape."""
    shape, made = sizes_of(op.operand(2)), shape_of(op.results[0].type)
    return int(shape is None or shape != made or None in shape)


@upgrade("Gemm", 1, 6)
def gemm_by_shape(b: Builder, op: OnnxOp) -> Results | None:
    return b.Gemm(*op.operands, **carried(op, "broadcast")) if op.attr("broadcast") == _broadcast(op) else None


@decompose("Gemm", 1, 6)
def gemm(b: Builder, op: OnnxOp) -> Results:
    return b.Gemm(*op.operands, **carried(op, "broadcast"))


@lower("Gemm", 1, 6, 7, 9)
def gemm_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if op.operand(2) is not None:
        if to.since >= 7:
            return renamed_back(b, op, to)
        return b.op(to, *op.operands, broadcast=_broadcast(op) or None, **carried(op))
    kind = dtype_of(op.operands[0].type)
    if kind is None:
        raise impossible(op, "the older form needs a third operand, and the dtype for a zero is not known")
    zero: Any = b.constant(np.zeros((), kind.numpy))
    broadcast = {} if to.since >= 7 else {"broadcast": 1}
    return b.op(to, *op.operands[:2], zero, **carried(op, **broadcast))
