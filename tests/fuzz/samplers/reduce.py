"""Reductions, cumulative ops, and what is taken along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..registry import axis_of, exact, samples
from .shape import some_axes

exact("ArgMax ArgMin ReduceMax ReduceMin Hardmax")


@samples("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum")
@samples("ReduceSumSquare")
def reductions(g: Context, spec: OpSpec) -> Call:
    span = (0.1, 8) if spec.op_type == "ReduceLogSum" else (-9, 9)
    empty = spec.op_type in ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
    x = g.take(allowed(spec, 0), 0, 4, span=span, least=0 if empty else 1)
    attributes: dict[str, Any] = g.maybe(keepdims=0)
    if g.chance(4):
        return Call(
            [x] if g.below(2) else [x, np.array([], np.int64)], {**attributes, **g.maybe(noop_with_empty_axes=1)}
        )
    exactly = None if x.dtype.is_float or spec.op_type != "ReduceSum" else True
    return Call([x, g.given(np.array(some_axes(g, x.array.ndim), np.int64))], attributes, exact=exactly)


@samples("ArgMax ArgMin")
def arg(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    axis = axis_of(g, x.array.ndim)
    return Call([x], {**({"axis": axis} if axis else {}), **g.maybe(keepdims=0, select_last_index=1)})


@samples("CumSum CumProd")
def cumulative(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, span=(-3, 3))
    axis = g.given(np.array(axis_of(g, x.array.ndim)), g.pick(("int64", "int32")))
    return Call([x, axis], g.maybe(exclusive=1, reverse=1), exact=x.dtype.is_integer)


@samples("Softmax LogSoftmax Hardmax")
def softmax(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 4, span=(-50, 50), least=1)
    return Call([x], {"axis": axis_of(g, x.array.ndim)} if g.below(3) else {})


@samples("LpNormalization")
def lp_normalization(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 4, least=1, span=(-50, 50))
    return Call([x], {**g.maybe(p=[1, 2]), **({"axis": axis_of(g, x.array.ndim)} if g.below(2) else {})})


@samples("MeanVarianceNormalization")
def mean_variance(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 4, 4, least=2)
    return Call([x], {} if g.below(2) else {"axes": sorted(a % 4 for a in some_axes(g, 4, 1))})
