"""Pooling: AveragePool, MaxPool, LpPool, their Global forms, MaxUnpool, RoiAlign, MaxRoiPool.

Windows are boxes, so a maximum or a sum over one is taken axis by axis. Conventions: a maximum over a window that
holds a NaN is NaN; among equal maxima Indices names the first in row-major order; a window that lies wholly in padding
gives the lowest value (MaxPool) or NaN (AveragePool without count_include_pad). The extent that ``ceil_mode`` adds
beyond the padding never counts as an element. The two Roi pools give 0 for an empty bin. RoiAlign with mode ``max``
takes the greatest of the four weighted neighbours of all samples of a bin, not of their sums: the text of the spec does
not say so, its official test does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import widen
from irkit.backends.numpy.kernels._nn import (
    Budget,
    Window,
    ask_for,
    explicit_pads,
    integers,
    pad_spatial,
    plan_window,
    require,
    spatial_attribute,
    spatial_slices,
)
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []

Ints = Sequence[int] | None


def _pool_window(
    x: np.ndarray, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str, ceil_mode: int
) -> Window:
    require(x.ndim >= 3, f"X of shape {x.shape} must have a batch, a channel and at least one spatial axis")
    require(bool(kernel), "kernel_shape is missing")
    return plan_window(x.shape[2:], kernel or (), strides, dilations, pads, auto_pad, bool(ceil_mode))


def _reduce_windows(
    x: np.ndarray, window: Window, combine: Callable[..., np.ndarray], fill: object, budget: Budget
) -> np.ndarray:
    """``combine`` (a binary ufunc) over all windows, one spatial axis after another; padding is worth ``fill``."""
    ask_for((*x.shape[:2], *window.out), x, budget)
    for axis in range(2, x.ndim):
        x = _reduce_along(x, axis, window, combine, fill)
    return x


def _reduce_along(
    x: np.ndarray, axis: int, window: Window, combine: Callable[..., np.ndarray], fill: object
) -> np.ndarray:
    """The windows along one axis, from slices of x as it lies: an element of the kernel sees some of the positions."""
    before = (slice(None),) * axis
    out = window.out[axis - 2]
    spans = _spans(window, axis - 2)
    # Those that see the input at every position come first: they need nothing to start from.
    spans.sort(key=lambda span: (span[0], -span[1]))
    whole = [x[(*before, seen)] for first, last, seen in spans if first == 0 and last == out][:2]
    if len(whole) == len(spans) == 1:
        return whole[0]
    if len(whole) == 2:
        y = combine(*whole)
    else:
        y = np.empty((*x.shape[:axis], out, *x.shape[axis + 1 :]), x.dtype)
        y[...] = whole[0] if whole else fill
    for first, last, seen in spans[len(whole) :]:
        part = y[(*before, slice(first, last))]
        combine(part, x[(*before, seen)], out=part)
    return y


def _spans(window: Window, i: int) -> list[tuple[int, int, slice]]:
    """Per element of the kernel along spatial axis i: the first and last + 1 position that sees the input with it, and
    what they see of it."""
    stride, size = window.strides[i], window.size[i]
    found: list[tuple[int, int, slice]] = []
    for k in range(window.kernel[i]):
        shift = k * window.dilations[i] - window.begin[i]
        first, last = max(0, -(shift // stride)), min(window.out[i], (size - 1 - shift) // stride + 1)
        if first < last:
            start = first * stride + shift
            found.append((first, last, slice(start, start + (last - first - 1) * stride + 1, stride)))
    return found


def _lowest(dtype: np.dtype) -> object:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


@kernel("MaxPool")
def max_pool(
    x: np.ndarray,
    *,
    n_out: int,
    budget: Budget,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> Any:
    window = _pool_window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    data = widen(x) if x.dtype.kind in "fV" else x
    if n_out == 1:
        y = _reduce_windows(data, window, np.maximum, _lowest(data.dtype), budget)
        return y.astype(x.dtype, copy=False)
    y, indices = _max_with_indices(data, window, bool(storage_order), budget)
    return y.astype(x.dtype, copy=False), indices


def _max_with_indices(
    x: np.ndarray, window: Window, column_major: bool, budget: Budget
) -> tuple[np.ndarray, np.ndarray]:
    """Maxima of all windows and where they are, as indices into the whole input laid out flat.

    With ``column_major`` the spatial axes are laid out first axis fastest; batch and channel stay outermost.
    """
    padded = pad_spatial(x, window, _lowest(x.dtype), budget)
    rank, size = len(window.out), window.size
    pitch = [prod(size[:i]) if column_major else prod(size[i + 1 :]) for i in range(rank)]
    best = np.full((*x.shape[:2], *window.out), _lowest(x.dtype), x.dtype)
    place = np.full(best.shape, -1, np.int64)
    for offset in np.ndindex(*window.kernel):
        inside = np.ones((1,) * rank, bool)
        flat = np.zeros((1,) * rank, np.int64)
        for i, k in enumerate(offset):
            at = np.arange(window.out[i]) * window.strides[i] + k * window.dilations[i] - window.begin[i]
            at = at.reshape((-1,) + (1,) * (rank - 1 - i))
            inside = inside & (at >= 0) & (at < size[i])
            flat = flat + at * pitch[i]
        candidate = padded[(slice(None), slice(None), *spatial_slices(window, offset))]
        better = inside & ((place < 0) | (candidate > best) | ((candidate != candidate) & (best == best)))
        best = np.where(better, candidate, best)
        place = np.where(better, flat, place)
    first = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank) * prod(size)
    return best, place + first


@kernel("AveragePool")
def average_pool(
    x: np.ndarray,
    *,
    budget: Budget,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> np.ndarray:
    window = _pool_window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = _reduce_windows(widen(x), window, np.add, 0, budget)
    return np.divide(total, _counts(window, bool(count_include_pad), total.dtype)).astype(x.dtype, copy=False)


@lru_cache(256)
def _counts(window: Window, count_include_pad: bool, dtype: np.dtype) -> np.ndarray:
    """How many elements each window averages over, of shape (*out)."""
    counts = np.ones((1,) * len(window.out), dtype)
    for i, n in enumerate(window.size):
        at = np.arange(window.out[i])[:, None] * window.strides[i] + np.arange(window.kernel[i]) * window.dilations[i]
        low, high = window.begin[i], window.begin[i] + n
        if count_include_pad:
            low, high = 0, high + window.end[i]
        count = ((at >= low) & (at < high)).sum(axis=1).astype(dtype)
        counts = counts * count.reshape((-1,) + (1,) * (len(window.out) - 1 - i))
    return counts


def _norm(x: np.ndarray, p: int, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """``reduce(|x| ** p) ** (1 / p)``, in the working dtype."""
    require(p >= 1, f"p {p} must be at least 1")
    if p == 1:
        return reduce(np.abs(x))
    if p == 2:
        return np.sqrt(reduce(x * x))
    return reduce(np.abs(x) ** p) ** (1.0 / p)


@kernel("LpPool")
def lp_pool(
    x: np.ndarray,
    *,
    budget: Budget,
    kernel_shape: Ints = None,
    p: int = 2,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> np.ndarray:
    window = _pool_window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return _norm(widen(x), p, lambda v: _reduce_windows(v, window, np.add, 0, budget)).astype(x.dtype, copy=False)


def _spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    require(x.ndim >= 2, f"X of shape {x.shape} must have a batch and a channel axis")
    return tuple(range(2, x.ndim))


@kernel("GlobalAveragePool")
def global_average_pool(x: np.ndarray) -> np.ndarray:
    axes = _spatial_axes(x)
    data = widen(x)
    count = np.asarray(prod(x.shape[2:]), data.dtype)
    return np.asarray(data.sum(axis=axes, keepdims=True) / count).astype(x.dtype, copy=False)


@kernel("GlobalMaxPool")
def global_max_pool(x: np.ndarray) -> np.ndarray:
    axes = _spatial_axes(x)
    require(0 not in x.shape[2:], f"X of shape {x.shape} has no elements to take the maximum of")
    return widen(x).max(axis=axes, keepdims=True).astype(x.dtype, copy=False)


@kernel("GlobalLpPool")
def global_lp_pool(x: np.ndarray, *, p: int = 2) -> np.ndarray:
    axes = _spatial_axes(x)
    return _norm(widen(x), p, lambda v: v.sum(axis=axes, keepdims=True)).astype(x.dtype, copy=False)


@kernel("MaxUnpool")
def max_unpool(
    x: np.ndarray,
    indices: np.ndarray,
    output_shape: np.ndarray | None = None,
    *,
    budget: Budget,
    kernel_shape: Ints = None,
    strides: Ints = None,
    pads: Ints = None,
) -> np.ndarray:
    """Indices count in the tensor that was pooled, whose extents follow from kernel, strides and pads; a larger
    ``output_shape`` pads that tensor with zeros at the end, a smaller one cuts it."""
    rank = x.ndim - 2
    require(rank >= 1, f"X of shape {x.shape} must have a batch, a channel and at least one spatial axis")
    require(indices.shape == x.shape, f"I must have the shape of X, {x.shape}, found {indices.shape}")
    kernel = spatial_attribute("kernel_shape", kernel_shape, rank)
    step = spatial_attribute("strides", strides, rank)
    begin, end = explicit_pads(pads, rank)
    terms = zip(x.shape[2:], step, kernel, begin, end, strict=True)
    pooled = (*x.shape[:2], *((n - 1) * s + k - b - e for n, s, k, b, e in terms))
    require(min(pooled) >= 0, f"pads {begin + end} leave nothing of the output {pooled}")
    shape = pooled if output_shape is None else integers(output_shape)
    require(len(shape) == x.ndim and min(shape) >= 0, f"output_shape {shape} must have {x.ndim} extents")
    budget.allocate((prod(pooled) + prod(shape)) * x.itemsize)
    flat = np.zeros(prod(pooled), x.dtype)
    at = indices.ravel()
    wrong = (at < 0) | (at >= flat.size)
    if wrong.any():
        raise KernelError(f"index {int(at[wrong][0])} is outside the pooled tensor of shape {pooled}")
    flat[at] = x.ravel()
    source = flat.reshape(pooled)
    if shape == pooled:
        return source
    result = np.zeros(shape, x.dtype)
    common = tuple(slice(0, min(a, b)) for a, b in zip(shape, pooled, strict=True))
    result[common] = source[common]
    return result


def _check_batch(index: np.ndarray, batch: int) -> None:
    wrong = (index < 0) | (index >= batch)
    if wrong.any():
        raise KernelError(f"batch index {int(index[wrong][0])} is outside [0, {batch - 1}]")


def _bilinear_taps(at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two neighbours and their weights of coordinates along one axis: (low, high, weight of high); weight NaN outside.

    Coordinates in [-1, 0] take the first element and those in [size - 1, size] the last, as RoiAlign has it.
    """
    outside = ~((at >= -1) & (at <= size))
    inner = np.clip(np.where(outside, 0, at), 0, size - 1)
    low = np.minimum(inner.astype(np.int64), max(size - 2, 0))
    high = np.minimum(low + 1, size - 1)
    return low, high, np.where(outside, np.nan, inner - low)


@kernel("RoiAlign")
def roi_align(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    budget: Budget,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> np.ndarray:
    require(x.ndim == 4, f"X of shape {x.shape} must be (N, C, H, W)")
    require(rois.ndim == 2 and rois.shape[1] == 4, f"rois of shape {rois.shape} must be (num_rois, 4)")
    count = rois.shape[0]
    require(batch_indices.shape == (count,), f"batch_indices of shape {batch_indices.shape} must be ({count},)")
    require(mode in ("avg", "max"), f"mode {mode!r} must be 'avg' or 'max'")
    require(
        coordinate_transformation_mode in ("half_pixel", "output_half_pixel"),
        f"coordinate_transformation_mode {coordinate_transformation_mode!r} must be half_pixel or output_half_pixel",
    )
    require(output_height >= 1 and output_width >= 1, f"the output of {output_height} x {output_width} is empty")
    _check_batch(batch_indices, x.shape[0])
    half_pixel = coordinate_transformation_mode == "half_pixel"
    channels, height, width = x.shape[1:]
    data = widen(x)
    budget.allocate(count * channels * output_height * output_width * data.itemsize)
    y = np.zeros((count, channels, output_height, output_width), data.dtype)
    if not y.size or not height * width:
        return y.astype(x.dtype, copy=False)
    corners = rois.astype(np.float64) * spatial_scale - (0.5 if half_pixel else 0.0)
    require(bool(np.isfinite(corners).all()), "rois must be finite")
    for r, (x1, y1, x2, y2) in enumerate(corners):
        samples: list[np.ndarray] = []
        for start, stop, bins in ((y1, y2, output_height), (x1, x2, output_width)):
            length = stop - start if half_pixel else max(stop - start, 1.0)
            grid = sampling_ratio if sampling_ratio > 0 else max(int(np.ceil(length / bins)), 0)
            budget.allocate(bins * grid * data.itemsize)
            points = np.arange(bins)[:, None] + (np.arange(grid) + 0.5) / max(grid, 1)
            samples.append(start + points * (length / bins))
        tall, wide = samples
        if not tall.size or not wide.size:
            continue
        budget.allocate(channels * tall.size * wide.size * data.itemsize)
        top, bottom, fy = _bilinear_taps(tall.ravel(), height)
        left, right, fx = _bilinear_taps(wide.ravel(), width)
        plane = data[int(batch_indices[r])]
        outside = np.isnan(fy)[:, None] | np.isnan(fx)
        fy = np.nan_to_num(fy).astype(data.dtype)[:, None]
        fx = np.nan_to_num(fx).astype(data.dtype)
        rows = plane[:, top] * (1 - fy), plane[:, bottom] * fy
        terms = [v for row in rows for v in (row[:, :, left] * (1 - fx), row[:, :, right] * fx)]
        values = sum(terms[1:], terms[0]) if mode == "avg" else np.maximum.reduce(terms)
        values = np.where(outside, np.zeros((), data.dtype), values)
        values = values.reshape(channels, *tall.shape, *wide.shape)
        y[r] = values.mean(axis=(2, 4)) if mode == "avg" else values.max(axis=(2, 4))
    return y.astype(x.dtype, copy=False)


@kernel("MaxRoiPool")
def max_roi_pool(
    x: np.ndarray, rois: np.ndarray, *, budget: Budget, pooled_shape: Ints = None, spatial_scale: float = 1.0
) -> np.ndarray:
    """Bins as in Fast R-CNN: corners rounded (halves away from zero), both inclusive, every bin at least touched."""
    require(x.ndim == 4, f"X of shape {x.shape} must be (N, C, H, W)")
    require(rois.ndim == 2 and rois.shape[1] == 5, f"rois of shape {rois.shape} must be (num_rois, 5)")
    pooled = spatial_attribute("pooled_shape", pooled_shape, 2)
    budget.allocate(rois.shape[0] * x.shape[1] * prod(pooled) * x.itemsize)
    table = rois.astype(np.float64)
    require(bool(np.isfinite(table).all()), "rois must be finite")
    _check_batch(table[:, 0], x.shape[0])
    y = np.zeros((rois.shape[0], x.shape[1], *pooled), x.dtype)
    corners = np.floor(np.abs(table[:, 1:]) * spatial_scale + 0.5) * np.sign(table[:, 1:])
    for r, (x1, y1, x2, y2) in enumerate(corners):
        plane = widen(x[int(table[r, 0])])
        spans: list[list[tuple[int, int]]] = []
        for start, stop, bins, size in ((y1, y2, pooled[0], x.shape[2]), (x1, x2, pooled[1], x.shape[3])):
            length = max(stop - start + 1, 1.0) / bins
            low = np.clip(np.floor(np.arange(bins) * length) + start, 0, size).astype(np.int64)
            high = np.clip(np.ceil(np.arange(1, bins + 1) * length) + start, 0, size).astype(np.int64)
            spans.append(list(zip(low.tolist(), high.tolist(), strict=True)))
        for i, (top, bottom) in enumerate(spans[0]):
            for j, (left, right) in enumerate(spans[1]):
                if top < bottom and left < right:
                    y[r, :, i, j] = plane[:, top:bottom, left:right].max(axis=(1, 2))
    return y
