"""Gathering, scattering, sorting: ``k`` of TopK, the end-relative indices of OneHot, Scatter's newer name."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.types import dtype_of
from irkit.opsets.common import array_of, attribute, carried, impossible, int64, ints_of
from irkit.opsets.registry import Results, decompose, lower, upgrade

# TopK


@upgrade("TopK", 1)
def top_k_operand(b: Builder, op: OnnxOp) -> Results | None:
    return b.TopK(op.operands[0], int64(b, [op.attr("k")]), **carried(op, "k"))


@lower("TopK", 1, 10)
def top_k_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if attribute(op, "largest") != 1:
        raise impossible(op, "the older form gives the largest elements alone")
    # Unsorted results may come in any order, so sorted ones, too.
    kept = carried(op, "largest", "sorted")
    if to.since == 10:
        return b.op(to, *op.operands, **kept)
    k = ints_of(op.operands[1])
    if k is None or len(k) != 1:
        raise impossible(op, "its k is not constant")
    return b.op(to, op.operands[0], k=k[0], **kept)


# OneHot


@upgrade("OneHot", 9)
def one_hot_of_nonnegative(b: Builder, op: OnnxOp) -> Results | None:
    return b.OneHot(*op.operands, **carried(op)) if _nonnegative(op.operands[0]) else None


@lower("OneHot", 9)
def one_hot_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if not _nonnegative(op.operands[0]):
        raise impossible(op, "the older form takes an index below 0 for none, and its indices may be negative")
    return b.op(to, *op.operands, **carried(op))


@decompose("OneHot", 9)
def one_hot(b: Builder, op: OnnxOp) -> Results | None:
    indices, depth, values = op.operands
    kind = dtype_of(indices.type)
    if kind is None:
        return None
    none = b.CastLike(b.Reshape(depth, int64(b, [1])), indices)
    zero = b.constant(np.zeros((), kind.numpy))
    return b.OneHot(b.Where(b.Less(indices, zero), none, indices), depth, values, **carried(op))


def _nonnegative(value: SSAValue) -> bool:
    kind, held = dtype_of(value.type), array_of(value)
    return (kind is not None and kind.kind == "uint") or (held is not None and bool((held >= 0).all()))


# Scatter


@decompose("Scatter", 9, 11)
def scatter(b: Builder, op: OnnxOp) -> Results:
    return b.ScatterElements(*op.operands, **carried(op))
