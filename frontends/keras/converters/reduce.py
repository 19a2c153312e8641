"""Reductions and running totals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import FIRST, LAST, Value, place, to_first
from irkit.ir.builder import Tensor

REDUCTIONS = {
    "Sum": "ReduceSum",
    "Mean": "ReduceMean",
    "Max": "ReduceMax",
    "Amax": "ReduceMax",
    "Min": "ReduceMin",
    "Amin": "ReduceMin",
    "Prod": "ReduceProd",
    "Logsumexp": "ReduceLogSumExp",
    "Any": "ReduceMax",
    "All": "ReduceMin",
}


def axes_of(axis: Any, rank: int) -> list[int]:
    """The axes that an operation goes over, from the front."""
    if axis is None:
        return list(range(rank))
    return sorted(a % rank for a in (axis if isinstance(axis, (list, tuple)) else [axis]))


def reduced(c: Emitter, name: str, x: Any, axis: Any, keepdims: Any, dtype: str) -> Value:
    """A reduction, in the layout at hand where its result can be told in it."""
    axes, keep = axes_of(axis, x.rank), bool(keepdims)
    if not axes:
        return x
    layout = c.layout(x)
    if layout == FIRST and not keep:
        left = [a for a in to_first(x.rank) if a not in axes]
        if left != sorted(left):
            layout = LAST
    at = sorted(place(a, x.rank, layout) for a in axes)
    made = c.b.op(name, c.form(x, layout, dtype), np.array(at, np.int64), keepdims=int(keep))
    shape = [1 if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes]
    return Value(shape, str(made.dtype), made, layout=layout if keep else LAST, depth=c.b.depth)


@converter(*REDUCTIONS)
def reduce(c: Emitter, op: Any, x: Any) -> Value:
    dtype = c.out.dtype
    if dtype == "bool" or op.kind in ("Any", "All"):
        return reduced(
            c,
            REDUCTIONS[op.kind],
            c.spread(lambda t: c.cast(c.cast(t, "bool"), "int32"), x),
            op.axis,
            op.keepdims,
            "int32",
        )
    found = reduced(c, REDUCTIONS[op.kind], x, op.axis, op.keepdims, dtype)
    initial = getattr(op, "initial", None)
    if initial is not None:
        found = c.spread(c.b.Max if op.kind == "Max" else c.b.Min, found, initial, dtype=dtype)
    return found


def moments(c: Emitter, x: Any, axis: Any, keepdims: bool, dtype: str) -> tuple[Value, Value]:
    """The mean and the variance about it."""
    mean = reduced(c, "ReduceMean", x, axis, True, dtype)
    off = c.spread(c.b.Sub, x, mean, dtype=dtype)
    square = c.spread(lambda t: c.b.Mul(t, t), off)
    variance = reduced(c, "ReduceMean", square, axis, keepdims, dtype)
    return (mean if keepdims else reduced(c, "ReduceMean", x, axis, False, dtype)), variance


@converter("Var", "Std")
def variance(c: Emitter, op: Any, x: Any) -> Value:
    dtype = c.out.dtype
    _, found = moments(c, x, op.axis, bool(op.keepdims), dtype)
    return found if op.kind == "Var" else c.spread(c.b.Sqrt, found)


@converter("Moments")
def both_moments(c: Emitter, op: Any, x: Any) -> list[Value]:
    """Computed in float32 where the input is of half width, as Keras does."""
    wide = "float32" if c.out.dtype in ("float16", "bfloat16") else c.out.dtype
    return list(moments(c, x, op.axes, bool(op.keepdims), wide))


@converter("CountNonzero")
def count_nonzero(c: Emitter, op: Any, x: Any) -> Value:
    other = c.spread(lambda t: c.cast(c.cast(t, "bool"), "int32"), x)
    return reduced(c, "ReduceSum", other, op.axis, False, "int32")


@converter("Ptp")
def peak_to_peak(c: Emitter, op: Any, x: Any) -> Value:
    high, low = (reduced(c, name, x, op.axis, op.keepdims, c.out.dtype) for name in ("ReduceMax", "ReduceMin"))
    return c.spread(c.b.Sub, high, low)


@converter("Average")
def average(c: Emitter, op: Any, x: Any, weights: Any = None) -> Value:
    dtype = c.out.dtype
    if weights is None:
        return reduced(c, "ReduceMean", x, op.axis, False, dtype)
    rank = weights.rank if isinstance(weights, Value) else np.ndim(weights)
    if rank == 1 and x.rank > 1:
        axis = op.axis % x.rank
        weights = c.b.Reshape(c.get(weights, dtype), np.array([-1 if i == axis else 1 for i in range(x.rank)]))
        wide = Value([x.shape[axis] if i == axis else 1 for i in range(x.rank)], dtype, weights, depth=c.b.depth)
        below = reduced(c, "ReduceSum", wide, None, False, dtype)
    else:
        wide = weights
        below = reduced(c, "ReduceSum", wide, op.axis, False, dtype)
    product = c.spread(c.b.Mul, x, wide, dtype=dtype)
    return c.spread(c.b.Div, reduced(c, "ReduceSum", product, op.axis, False, dtype), below, dtype=dtype)


NAN_FILL = {
    "Nansum": ("ReduceSum", 0.0),
    "Nanprod": ("ReduceProd", 1.0),
    "Nanmax": ("ReduceMax", -math.inf),
    "Nanmin": ("ReduceMin", math.inf),
}


def without_nan(c: Emitter, x: Any, fill: float, dtype: str) -> Value:
    """A value with something else in the place of NaN."""
    return c.spread(lambda t: c.b.Where(c.b.IsNaN(t), c.get(fill, dtype), t), x, dtype=dtype)


@converter(*NAN_FILL)
def nan_reduce(c: Emitter, op: Any, x: Any) -> Value:
    name, fill = NAN_FILL[op.kind]
    dtype = c.out.dtype
    if not dtype.startswith(("float", "bfloat")):
        return reduced(c, name, x, op.axis, op.keepdims, dtype)
    found = reduced(c, name, without_nan(c, x, fill, dtype), op.axis, op.keepdims, dtype)
    if op.kind in ("Nansum", "Nanprod"):
        return found
    # Nothing but NaN gives NaN.
    return c.spread(lambda t: c.b.Where(c.b.Equal(t, fill), c.get(math.nan, dtype), t), found, dtype=dtype)


@converter("Nanmean", "Nanvar", "Nanstd")
def nan_moments(c: Emitter, op: Any, x: Any) -> Value:
    dtype = c.out.dtype
    there = c.spread(lambda t: c.cast(c.b.Not(c.b.IsNaN(t)), dtype), x, dtype=dtype)

    def mean(what: Value, keep: bool) -> Value:
        total = reduced(c, "ReduceSum", what, op.axis, keep, dtype)
        return c.spread(c.b.Div, total, reduced(c, "ReduceSum", there, op.axis, keep, dtype))

    clean = without_nan(c, x, 0.0, dtype)
    if op.kind == "Nanmean":
        return mean(clean, bool(op.keepdims))
    centre = mean(clean, True)
    off = c.spread(lambda t, m, k: c.b.Mul(c.b.Sub(t, m), k), clean, centre, there)
    square = c.spread(lambda t: c.b.Mul(t, t), off)
    found = mean(square, bool(op.keepdims))
    return found if op.kind == "Nanvar" else c.spread(c.b.Sqrt, found)


@converter("Cumsum", "Cumprod", "Nancumsum", "Nancumprod")
def running(c: Emitter, op: Any, x: Any) -> Any:
    dtype = c.out.dtype
    nan, product = op.kind.startswith("Nan"), op.kind.lower().endswith("prod")
    if nan and x.dtype.startswith(("float", "bfloat")):
        x = without_nan(c, x, 1.0 if product else 0.0, x.dtype)
    made, axis = c.get(x, dtype), op.axis
    if axis is None:
        made, axis = c.b.Reshape(made, np.array([-1])), 0
    axis %= max(x.rank, 1)
    small = dtype in ("bool", "int8", "uint8", "int16", "uint16")
    if small:
        made = c.cast(made, "int32")
    if not product:
        return c.cast(c.b.CumSum(made, np.asarray(axis, np.int64)), dtype)
    order = [axis, *(a for a in range(x.rank) if a != axis)]
    ahead = c.b.Transpose(made, perm=order) if axis else made
    start = c.b.Gather(ahead, np.asarray(0), axis=0)
    _, found = c.b.Scan(
        c.b.CastLike(c.b.Add(c.b.Mul(c.b.Cast(start, to=1), 0.0), 1.0), made),
        ahead,
        num_scan_inputs=1,
        body=lambda b, total, item: (b.Mul(total, item), b.Mul(total, item)),
    )
    return c.cast(c.b.Transpose(found, perm=[int(i) for i in np.argsort(order)]) if axis else found, dtype)


@converter("Diff")
def diff(c: Emitter, op: Any, a: Any) -> Tensor:
    made = c.get(a)
    axis = np.array([op.axis % a.rank])
    for _ in range(op.n):
        after = c.b.Slice(made, np.array([1]), np.array([1 << 62]), axis)
        made = c.b.Sub(after, c.b.Slice(made, np.array([0]), np.array([-1]), axis))
    return made


@converter("Median", "Quantile", "Percentile")
def quantile(c: Emitter, op: Any, x: Any, q: Any = 0.5) -> Any:
    """Order statistics of sorted values, between them by the method (Hyndman and Fan's definition 7 for linear)."""
    b, dtype = c.b, c.out.dtype
    axes = axes_of(op.axis, x.rank)
    left = [a for a in range(x.rank) if a not in axes]
    count = math.prod([x.shape[a] for a in axes])
    if isinstance(count, Dim):
        raise c.refusal("a quantile over an axis whose size depends on the input's has no form here")
    moved = b.Transpose(c.get(x, dtype), perm=[*left, *axes])
    flat = b.Reshape(moved, c.vector([*(x.shape[a] for a in left), count]))
    ordered, _ = b.TopK(flat, np.array([count]), axis=-1, largest=0, sorted=1)
    wanted = np.asarray(q, np.float64) / (100 if op.kind == "Percentile" else 1)
    if isinstance(q, Value):
        raise c.refusal("a quantile must be a number that is known before the run")
    method = getattr(op, "method", "linear")
    parts = []
    for each in wanted.reshape(-1):
        at = float(each) * (count - 1)
        low, high = math.floor(at), math.ceil(at)
        if method in ("lower", "higher", "nearest"):
            low = high = {"lower": low, "higher": high, "nearest": round(at)}[method]
        share = 0.5 if method == "midpoint" and low != high else at - low
        below, above = (b.Gather(ordered, np.asarray(i), axis=-1) for i in (low, high))
        found = below if low == high else b.Add(b.Mul(below, 1 - share), b.Mul(above, share))
        if op.keepdims:
            found = b.Unsqueeze(found, np.array(axes))
        parts.append(found)
    if wanted.ndim == 0:
        return parts[0]
    return b.Reshape(b.Concat(*(b.Unsqueeze(p, np.array([0])) for p in parts), axis=0), c.vector(c.out.shape))


@converter("SegmentSum", "SegmentMax", "SegmentMin", "SegmentProd")
def segments(c: Emitter, op: Any, data: Any, ids: Any) -> Tensor:
    """Rows reduced by the segment that each belongs to; a row of a negative segment counts nowhere."""
    if op.num_segments is None:
        raise c.refusal("the number of segments is not given", "pass num_segments")
    b, name = c.b, op.kind.removeprefix("Segment")
    info = np.finfo if c.out.dtype.startswith("float") else np.iinfo
    fill = {"Sum": 0, "Prod": 1, "Max": info(c.out.dtype).min, "Min": info(c.out.dtype).max}[name]
    if c.out.dtype.startswith("float") and name in ("Max", "Min"):
        fill = -math.inf if name == "Max" else math.inf
    # One more row takes what belongs to no segment.
    rows = [op.num_segments + 1, *data.shape[1:]]
    start = b.Expand(c.get(np.asarray(fill), c.out.dtype), c.vector(rows))
    index = c.get(ids, "int64")
    index = b.Where(b.Less(index, 0), np.asarray(op.num_segments, np.int64), index)
    reduction = {"Sum": "add", "Prod": "mul", "Max": "max", "Min": "min"}[name]
    made = b.ScatterND(start, b.Unsqueeze(index, np.array([1])), c.get(data, c.out.dtype), reduction=reduction)
    return b.Slice(made, np.array([0]), np.array([-1]), np.array([0]))
