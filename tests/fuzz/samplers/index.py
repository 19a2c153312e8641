"""Gathering, scattering, searching and sorting."""

from __future__ import annotations

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import OpSpec

from ..generate import Call, Context, Reject, allowed
from ..registry import BOOL, axis_of, exact, samples

exact("Gather GatherElements GatherND ScatterElements ScatterND Compress NonZero OneHot TopK Unique")


def _indices(g: Context, shape: tuple[int, ...], size: int) -> object:
    if size == 0 and 0 not in shape:
        raise Reject("nothing to index")
    kind = BY_NAME[g.pick(("int64", "int32"))]
    low = -size if g.below(2) else 0
    array = g.rng().integers(low, max(size, 1), shape)
    return g.given(array, kind)


@samples("Gather")
def gather(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1)
    axis = axis_of(g, x.array.ndim)
    return Call([x, _indices(g, g.dims(0, 2), x.shape[axis])], {"axis": axis} if axis or g.below(2) else {})


@samples("GatherElements")
def gather_elements(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1)
    axis = axis_of(g, x.array.ndim)
    shape = [g.between(min(size, 1), size) for size in x.shape]
    shape[axis] = g.between(0, 4)
    return Call([x, _indices(g, tuple(shape), x.shape[axis])], {"axis": axis})


def _tuples(g: Context, shape: tuple[int, ...], batch: int, unique: bool) -> np.ndarray:
    """Index tuples into the axes from ``batch`` on; if asked, no two the same."""
    depth = g.between(1, len(shape) - batch)
    limits = shape[batch : batch + depth]
    if 0 in shape:
        raise Reject("nothing to index")
    rng, lead = g.rng(), shape[:batch]
    if unique:
        places = rng.permutation(int(np.prod(limits)))[: g.between(1, 3)]
        return np.stack(np.unravel_index(places, limits), -1)
    count = (*lead, *g.dims(1, 2, 1))
    return np.stack([rng.integers(-n, n, count) for n in limits], -1)


@samples("GatherND")
def gather_nd(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    batch = g.below(min(2, x.array.ndim))
    return Call([x, g.given(_tuples(g, x.shape, batch, False))], {"batch_dims": batch} if batch else {})


_REDUCTIONS = ("none", "add", "mul", "max", "min")


@samples("ScatterElements")
def scatter_elements(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    axis = axis_of(g, x.array.ndim)
    how = g.pick(_REDUCTIONS if x.dtype.kind not in ("bool", "string") else ("none",))
    shape = [g.between(1, size) for size in x.shape]
    rng = g.rng()
    if how == "none":
        # Two updates of one place would leave open which comes last.
        rows = [rng.permutation(x.shape[axis])[: shape[axis]] for _ in range(int(np.prod(shape)) // shape[axis])]
        array = np.moveaxis(np.array(rows).reshape(*np.delete(shape, axis), shape[axis]), -1, axis)
    else:
        array = rng.integers(-x.shape[axis], x.shape[axis], shape)
    updates = g.make(x.dtype, shape)
    exactly = (how != "add" and how != "mul") or x.dtype.is_integer
    attributes = {"axis": axis} | ({} if how == "none" else {"reduction": how})
    return Call([x, g.given(array, g.pick(("int64", "int32"))), updates], attributes, exact=exactly)


@samples("ScatterND")
def scatter_nd(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    how = g.pick(_REDUCTIONS if x.dtype.kind not in ("bool", "string") else ("none",))
    tuples = _tuples(g, x.shape, 0, how == "none")
    updates = g.make(x.dtype, (*tuples.shape[:-1], *x.shape[tuples.shape[-1] :]))
    exactly = (how != "add" and how != "mul") or x.dtype.is_integer
    return Call([x, g.given(tuples), updates], {} if how == "none" else {"reduction": how}, exact=exactly)


@samples("Compress")
def compress(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1)
    axis = axis_of(g, x.array.ndim) if g.below(2) else None
    size = x.array.size if axis is None else x.shape[axis]
    condition = g.make(BOOL[0], (g.between(0, min(size, 6)),))
    return Call([x, condition], {} if axis is None else {"axis": axis})


@samples("NonZero")
def non_zero(g: Context, spec: OpSpec) -> Call:
    return Call([g.take([d for d in allowed(spec, 0) if d.kind != "string"], 1)])


@samples("OneHot")
def one_hot(g: Context, spec: OpSpec) -> Call:
    kinds = [d for d in allowed(spec, 0) if d.bits >= 32]
    depth = g.between(1, 4)
    indices = g.take(kinds, 0, 3, span=(-depth - 1, depth + 1), fits=lambda v: not v.shadows)
    if indices.dtype.is_float and (indices.array != np.round(indices.array)).any():
        raise Reject("indices between integers")
    values = g.make(g.dtype([d for d in allowed(spec, 2) if d.kind != "string"]), (2,))
    size = g.given(np.array(depth) if g.below(2) else np.array([depth]), g.pick(("int64", "int32", "float32")))
    rank = indices.array.ndim
    return Call([indices, size, values], g.maybe(axis=[*range(-rank - 1, rank + 1)]))


@samples("TopK")
def top_k(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    axis = axis_of(g, x.array.ndim)
    k = g.between(0 if g.chance(8) else 1, x.shape[axis])
    return Call([x, g.given([k])], {"axis": axis, **g.maybe(largest=0)}, outputs=2)


@samples("Unique")
def unique(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 3, least=1)
    axis = {"axis": axis_of(g, x.array.ndim)} if g.below(2) else {}
    return Call([x], {**axis, **g.maybe(sorted=0)}, outputs=g.pick((4, 1, 2, 3)))
