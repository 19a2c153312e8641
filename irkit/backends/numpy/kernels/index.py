"""Ops that read or write by index, and those that find indices.

Indices count from the back when negative; one out of range is an error that gives the index, the axis and its
dimension (OneHot alone ignores them, as it must). Scatter ops without a reduction apply duplicate indices in order,
so the last wins; the sums and products of float16 and bfloat16 are taken in float32 and rounded once. The order of
TopK and Unique puts NaN above every number, and Unique takes all NaNs for one value. TopK gives equal values by
ascending index and sorts even where it need not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from irkit.backends.numpy.kernels._common import normalize_axis, scalar
from irkit.backends.numpy.kernels._indexing import Array, check_indices
from irkit.backends.numpy.registry import KernelError, kernel

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


@kernel("Gather")
def gather(data: Array, indices: Array, *, axis: int = 0) -> Array:
    axis = normalize_axis(axis, data.ndim)
    try:
        taken = data.take(indices.reshape(-1), axis=axis)
    except IndexError:
        # With nothing to take from an empty axis NumPy objects even though there is nothing to read.
        taken = data.take(check_indices(indices, data.shape[axis], axis).reshape(-1), axis=axis, mode="clip")
    return taken.reshape(data.shape[:axis] + indices.shape + data.shape[axis + 1 :])


def _check_elementwise(data: Array, indices: Array, axis: int) -> None:
    """The shapes that GatherElements and ScatterElements accept: no axis but one may be longer in ``indices``."""
    fits = indices.ndim == data.ndim and all(
        i == axis or n <= d for i, (n, d) in enumerate(zip(indices.shape, data.shape, strict=True))
    )
    if not fits:
        raise KernelError(f"indices of shape {indices.shape} do not fit data of shape {data.shape} on axis {axis}")


def _flat_elements(data: Array, indices: Array, axis: int) -> Array:
    """For each entry of ``indices``, the row-major position in ``data`` of the element it names."""
    flat: Any = check_indices(indices, data.shape[axis], axis) * prod(data.shape[axis + 1 :])
    for i, dim in enumerate(indices.shape):
        if i != axis:
            steps = np.arange(dim) * prod(data.shape[i + 1 :])
            flat = flat + steps.reshape((-1,) + (1,) * (indices.ndim - 1 - i))
    return flat


def _flat_tuples(shape: tuple[int, ...], indices: Array, first_axis: int) -> Array:
    """The row-major position within ``shape`` of each index tuple in the last axis of ``indices``."""
    flat = np.zeros(indices.shape[:-1], dtype=np.int64)
    for j, dim in enumerate(shape):
        flat = flat * dim + check_indices(indices[..., j], dim, first_axis + j)
    return flat


@kernel("GatherElements")
def gather_elements(data: Array, indices: Array, *, axis: int = 0) -> Array:
    axis = normalize_axis(axis, data.ndim)
    _check_elementwise(data, indices, axis)
    return data.reshape(-1).take(_flat_elements(data, indices, axis).reshape(-1), mode="clip").reshape(indices.shape)


@kernel("GatherND")
def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    b = batch_dims
    if not 0 <= b < min(data.ndim, indices.ndim) or data.shape[:b] != indices.shape[:b]:
        raise KernelError(f"batch_dims {b} does not fit data of shape {data.shape} and indices of {indices.shape}")
    depth = indices.shape[-1]
    if not 1 <= depth <= data.ndim - b:
        raise KernelError(f"indices of shape {indices.shape} hold tuples of {depth} for data of shape {data.shape}")
    where, rest = data.shape[b : b + depth], data.shape[b + depth :]
    flat = _flat_tuples(where, indices, b)
    places, batch = prod(where), prod(data.shape[:b])
    if b:
        flat = flat + (np.arange(batch) * places).reshape(data.shape[:b] + (1,) * (flat.ndim - b))
    rows = data.reshape(batch * places, prod(rest)).take(flat.reshape(-1), axis=0, mode="clip")
    return rows.reshape(indices.shape[:-1] + rest)


_REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(data: Array, flat: Array, updates: Array, reduction: str) -> Array:
    """A copy of ``data`` with ``updates`` written at row-major positions, or combined with what stands there."""
    if updates.dtype != data.dtype:
        raise KernelError(f"updates have dtype {updates.dtype}, data has {data.dtype}")
    out = np.array(data, order="C", copy=True)
    if reduction == "none":
        out.reshape(-1)[flat.reshape(-1)] = updates.reshape(-1)
        return out
    function = _REDUCTIONS.get(reduction)
    if function is None:
        raise KernelError(f"reduction {reduction!r} is none of none, add, mul, max, min")
    if data.dtype == object or (data.dtype.kind == "c" and reduction in ("max", "min")):
        raise KernelError(f"reduction {reduction!r} is not defined on {data.dtype}")
    if data.dtype in _NARROW and reduction in ("add", "mul"):
        wide = out.astype(np.float32)
        function.at(wide.reshape(-1), flat.reshape(-1), updates.reshape(-1).astype(np.float32))
        return wide.astype(data.dtype)
    function.at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
    return out


@kernel("ScatterElements")
def scatter_elements(data: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    axis = normalize_axis(axis, data.ndim)
    _check_elementwise(data, indices, axis)
    if updates.shape != indices.shape:
        raise KernelError(f"updates have shape {updates.shape}, indices {indices.shape}")
    return _scatter(data, _flat_elements(data, indices, axis), updates, reduction)


@kernel("Scatter", since=9)
@kernel("Scatter", since=11)
def scatter(data: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    return scatter_elements(data, indices, updates, axis=axis)


@kernel("ScatterND")
def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    if indices.ndim < 1 or indices.shape[-1] > data.ndim:
        raise KernelError(f"indices of shape {indices.shape} do not fit data of shape {data.shape}")
    depth = indices.shape[-1]
    rest = data.shape[depth:]
    if updates.shape != indices.shape[:-1] + rest:
        raise KernelError(f"updates have shape {updates.shape}, not {indices.shape[:-1] + rest}")
    width = prod(rest)
    flat = _flat_tuples(data.shape[:depth], indices, 0).reshape(-1, 1) * width + np.arange(width)
    return _scatter(data, flat, updates, reduction)


@kernel("NonZero")
def non_zero(data: Array) -> Array:
    if data.ndim == 0:
        return np.zeros((0, int(bool(data.item()))), dtype=np.int64)
    return np.array(np.nonzero(data), dtype=np.int64).reshape(data.ndim, -1)


@kernel("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1, budget: Any) -> Array:
    rank = indices.ndim
    axis = normalize_axis(axis, rank + 1)
    classes = int(scalar(depth, "depth"))
    if classes < 0:
        raise KernelError(f"depth is {classes}, which must not be negative")
    if values.shape != (2,):
        raise KernelError(f"values must have shape (2,), not {values.shape}")
    shape = (*indices.shape[:axis], classes, *indices.shape[axis:])
    budget.allocate(prod(shape) * values.itemsize)
    # uint64 beyond int64 would turn negative, and so into a valid index.
    bounded = np.minimum(indices, np.iinfo(np.int64).max) if indices.dtype == np.uint64 else indices
    flat = bounded.astype(np.int64).reshape(prod(indices.shape[:axis]), prod(indices.shape[axis:]))
    flat = np.where(flat < 0, flat + classes, flat)
    outer, inner = np.nonzero((flat >= 0) & (flat < classes))
    out = np.full((flat.shape[0], classes, flat.shape[1]), values[0], dtype=values.dtype)
    out[outer, flat[outer, inner], inner] = values[1]
    return out.reshape(shape)


@kernel("Compress")
def compress(data: Array, condition: Array, *, axis: int | None = None) -> Array:
    source = data.reshape(-1) if axis is None else data
    along = 0 if axis is None else normalize_axis(axis, data.ndim)
    if condition.ndim != 1 or len(condition) > source.shape[along]:
        raise KernelError(f"condition of shape {condition.shape} is longer than dimension {source.shape[along]}")
    return source.take(np.flatnonzero(condition), axis=along)


def _comparable(data: Array) -> Array:
    """The same values in a dtype that NumPy sorts natively."""
    return data.astype(np.float32) if data.dtype in _NARROW else data


@kernel("Unique")
def unique(data: Array, *, axis: int | None = None, sorted: int = 1, n_out: int) -> tuple[Array, ...]:
    keys: Array = _comparable(data)
    if axis is None:
        _, first, inverse, counts = np.unique(
            keys.reshape(-1), return_index=True, return_inverse=True, return_counts=True
        )
    else:
        axis = normalize_axis(axis, data.ndim)
        # Each element becomes the rank of its value, so that rows compare as integers whatever the dtype.
        codes = np.unique(keys.reshape(-1), return_inverse=True)[1].reshape(data.shape)
        rows = np.moveaxis(codes, axis, 0).reshape(data.shape[axis], data.size // max(data.shape[axis], 1))
        if rows.shape[1] == 0:
            rows = np.zeros((data.shape[axis], 1), dtype=np.int64)
        _, first, inverse, counts = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    values = data.reshape(-1).take(first) if axis is None else data.take(first, axis=axis)
    outputs = (values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64))
    return outputs[:n_out]


def _top_by_sort(keys: Array, k: int, largest: bool) -> Array:
    """Positions of the k first of each row by a stable sort of whole rows."""
    if not largest:
        return np.argsort(keys, axis=1, kind="stable")[:, :k]
    # Sorting the reversed row and reading it backwards keeps equal values in ascending order of index.
    backwards = np.argsort(keys[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return keys.shape[1] - 1 - backwards[:, :k]


def _top_by_partition(keys: Array, k: int, largest: bool) -> Array:
    """The same in linear time: all that lies beyond the k-th value, and as many equal to it as are missing."""
    rows, n = keys.shape
    kth = n - k if largest else k - 1
    bound = np.partition(keys, kth, axis=1)[:, kth, np.newaxis]
    beyond = keys > bound if largest else keys < bound
    equal = keys == bound
    missing = k - beyond.sum(axis=1, keepdims=True)
    chosen = beyond | (equal & (np.cumsum(equal, axis=1) <= missing))
    positions = np.nonzero(chosen)[1].reshape(rows, k)
    order = _top_by_sort(np.take_along_axis(keys, positions, axis=1), k, largest)
    return np.take_along_axis(positions, order, axis=1)


@kernel("TopK")
def top_k(data: Array, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    axis = normalize_axis(axis, data.ndim)
    count, dim = int(scalar(k, "K")), data.shape[axis]
    if not 0 <= count <= dim:
        raise KernelError(f"K is {count}, but axis {axis} has dimension {dim}")
    moved = np.moveaxis(data, axis, -1)
    lead = moved.shape[:-1]
    keys = _comparable(moved).reshape(prod(lead), dim)
    select: Callable[[Array, int, bool], Array] = _top_by_sort
    if 0 < count < dim // 8 and dim > 256 and not (keys.dtype.kind == "f" and np.isnan(keys).any()):
        select = _top_by_partition
    positions = select(keys, count, bool(largest)).astype(np.int64)
    indices = np.moveaxis(positions.reshape((*lead, count)), -1, axis)
    return np.take_along_axis(data, indices, axis=axis), indices
