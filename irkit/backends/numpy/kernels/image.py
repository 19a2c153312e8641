"""Images: Resize, GridSample, AffineGrid, ImageDecoder, NonMaxSuppression, CenterCropPad.

Conventions where the spec is silent or at odds with itself: Resize rounds (halves to even) and saturates to integer
types, GridSample truncates as the spec says and saturates; in Resize a length of the output that follows from a scale
enters the coordinate transformations before it is rounded, as the official tests have it; a NaN in a grid reads as -1;
cubic sampling with border padding repeats the border for every tap; an axis of one element lies at 0 in AffineGrid
with ``align_corners``. Among equal scores NonMaxSuppression takes the box of the lower index first. ImageDecoder needs
Pillow.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from irkit.backends.numpy.kernels._common import compute_dtype, normalize_axes, widen
from irkit.backends.numpy.kernels._nn import Budget, integers, require
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []

Taps = tuple[np.ndarray, np.ndarray]
"""Positions (points, taps) along one axis, possibly outside it, and their weights."""


def _interpolation_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype values of a type are interpolated in; KernelError for strings."""
    require(dtype.kind != "O", "strings can only be sampled with mode 'nearest'")
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    return compute_dtype(dtype)


def _saturate(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Interpolated values as a dtype; integers, already whole, are clipped to its range."""
    if dtype.kind not in "iu":
        return x.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    low, high = x <= limits.min, x >= limits.max
    result = np.where(low | high, 0, x).astype(dtype)
    result[low], result[high] = limits.min, limits.max
    return result


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(distance), 0, None)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel of Keys (1981), equation 4."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _taps(at: np.ndarray, filter_: Callable[[np.ndarray], np.ndarray], reach: int, stretch: float = 1.0) -> Taps:
    """All positions within ``reach * stretch`` of every coordinate, and the filter's weight of each."""
    support = reach * stretch
    first = np.floor(at - support).astype(np.int64) + 1
    place = first[:, None] + np.arange(int(np.ceil(2 * support)))
    return place, filter_((place - at[:, None]) / stretch)


# Resize


def _resized(
    shape: Sequence[int], axes: Sequence[int], scales: np.ndarray | None, sizes: np.ndarray | None, policy: str
) -> tuple[list[int], list[float], list[float]]:
    """Output extent, scale, and output extent before it was rounded, of each of the axes.

    The region of interest does not enter: official shape inference leaves it out, though the op's text has it.
    """
    require((scales is None) != (sizes is None), "one of scales and sizes must be given, and only one")
    extents = [shape[a] for a in axes]
    if scales is not None:
        require(scales.shape == (len(axes),), f"scales of shape {scales.shape} must have {len(axes)} elements")
        require(bool((scales > 0).all()) and bool(np.isfinite(scales).all()), f"scales {scales} must be positive")
        # The product is rounded to float32 before the floor, as official shape inference does.
        out = [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(extents, scales, strict=True)]
        factors = [float(s) for s in scales]
        return out, factors, [n * s for n, s in zip(extents, factors, strict=True)]
    wanted = () if sizes is None else integers(sizes)
    require(len(wanted) == len(axes), f"sizes {wanted} must have {len(axes)} elements")
    require(all(s >= 0 for s in wanted), f"sizes {wanted} must not be negative")
    require(all(n or not s for n, s in zip(extents, wanted, strict=True)), "an empty axis cannot be resized")
    ratios = [s / n if n else 1.0 for s, n in zip(wanted, extents, strict=True)]
    if policy == "stretch":
        return list(wanted), ratios, [float(s) for s in wanted]
    require(policy in ("not_larger", "not_smaller"), f"keep_aspect_ratio_policy {policy!r} is unknown")
    scale = min(ratios, default=1.0) if policy == "not_larger" else max(ratios, default=1.0)
    exact = [scale * n for n in extents]
    return [int(np.floor(v + 0.5)) for v in exact], [scale] * len(axes), exact


def _original(mode: str, n: int, out: int, scale: float, fractional: float, roi: tuple[float, float]) -> np.ndarray:
    """The coordinate in the input of every output along one axis (the table of coordinate_transformation_mode).

    ``fractional`` is the output length before it was rounded down.
    """
    x = np.arange(out, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return n / 2 + (x + 0.5 - out / 2) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
        case "align_corners":
            return x * ((n - 1) / (fractional - 1)) if fractional != 1 else np.zeros(out)
        case "asymmetric":
            return x / scale
        case "tf_crop_and_resize":
            start, end = roi
            if out > 1:
                return start * (n - 1) + x * (end - start) * (n - 1) / (fractional - 1)
            return np.full(out, 0.5 * (start + end) * (n - 1))
        case _:
            raise KernelError(f"coordinate_transformation_mode {mode!r} is unknown")


NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@kernel("Resize")
def resize(
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    budget: Budget,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> np.ndarray:
    require(mode in ("nearest", "linear", "cubic"), f"mode {mode!r} must be 'nearest', 'linear' or 'cubic'")
    require(nearest_mode in NEAREST, f"nearest_mode {nearest_mode!r} is unknown")
    require(not antialias or mode != "nearest", "antialias needs mode 'linear' or 'cubic'")
    over = tuple(range(x.ndim)) if axes is None else normalize_axes(axes, x.ndim)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    bounds = [(0.0, 1.0)] * len(over)
    if crop:
        if roi is None or roi.shape != (2 * len(over),):
            raise KernelError(f"tf_crop_and_resize needs a roi of {2 * len(over)} elements")
        bounds = [(float(a), float(b)) for a, b in zip(roi[: len(over)], roi[len(over) :], strict=True)]
    scales, sizes = (None if v is None or (v.size == 0 and over) else v for v in (scales, sizes))
    out, factors, exact = _resized(x.shape, over, scales, sizes, keep_aspect_ratio_policy)
    shape = list(x.shape)
    for axis, length in zip(over, out, strict=True):
        shape[axis] = length
    itemsize = x.itemsize if mode == "nearest" else _interpolation_dtype(x.dtype).itemsize
    budget.allocate(prod(shape) * itemsize)
    if 0 in shape:
        return np.zeros(shape, x.dtype)

    y = x if mode == "nearest" else x.astype(_interpolation_dtype(x.dtype), copy=False)
    outside: list[tuple[int, np.ndarray]] = []
    for axis, length, scale, fractional, span in sorted(zip(over, out, factors, exact, bounds, strict=True)):
        n = x.shape[axis]
        if length == n and scale == 1 and span == (0.0, 1.0):
            continue
        at = _original(coordinate_transformation_mode, n, length, scale, fractional, span)
        if crop:
            outside.append((axis, (at < 0) | (at > n - 1)))
        at = np.clip(at, -n - 8, 2 * n + 8) if crop else at
        if mode == "nearest":
            y = np.take(y, np.clip(NEAREST[nearest_mode](at), 0, n - 1).astype(np.int64), axis=axis)
            continue
        stretch = max(1.0, 1 / scale) if antialias else 1.0
        filter_, reach = (_linear, 1) if mode == "linear" else (lambda d: _cubic(d, cubic_coeff_a), 2)
        place, weights = _taps(at, filter_, reach, stretch)
        if exclude_outside:
            weights = np.where((place >= 0) & (place < n), weights, 0)
        if exclude_outside or antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        y = _weighted_take(y, np.clip(place, 0, n - 1), weights, axis)
    for axis, mask in outside:
        mask = mask.reshape((-1,) + (1,) * (x.ndim - 1 - axis))
        y = np.where(mask, np.asarray(extrapolation_value).astype(y.dtype), y)
    if x.dtype == np.bool_ and mode != "nearest":
        return y >= 0.5
    return y if mode == "nearest" else _saturate(np.rint(y) if x.dtype.kind in "iu" else y, x.dtype)


def _weighted_take(x: np.ndarray, place: np.ndarray, weights: np.ndarray, axis: int) -> np.ndarray:
    """``sum_t weights[:, t] * x[place[:, t]]`` along an axis."""
    column = (-1,) + (1,) * (x.ndim - 1 - axis)
    weights = weights.astype(np.real(x).dtype)
    result = np.take(x, place[:, 0], axis=axis)
    result *= weights[:, 0].reshape(column)
    for t in range(1, place.shape[1]):
        term = np.take(x, place[:, t], axis=axis)
        term *= weights[:, t].reshape(column)
        result += term
    return result


# Sampling on a grid


def _reflect(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Coordinates outside [low, high] mirrored at its ends until inside."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    t = np.abs(x - low) % (2 * span)
    inside = (x >= low) & (x <= high)
    return np.where(inside, x, np.where(t > span, 2 * span - t, t) + low)


@kernel("GridSample")
def grid_sample(
    x: np.ndarray, grid: np.ndarray, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> np.ndarray:
    require(mode in ("linear", "nearest", "cubic"), f"mode {mode!r} must be 'linear', 'nearest' or 'cubic'")
    require(padding_mode in ("zeros", "border", "reflection"), f"padding_mode {padding_mode!r} is unknown")
    rank, size = x.ndim - 2, x.shape[2:]
    require(rank >= 1, f"X of shape {x.shape} must have a batch, a channel and at least one spatial axis")
    require(
        grid.ndim == x.ndim and grid.shape[0] == x.shape[0] and grid.shape[-1] == rank,
        f"grid of shape {grid.shape} must be ({x.shape[0]}, ..., {rank}) and have {x.ndim} axes",
    )
    require(0 not in size or padding_mode == "zeros", f"X of shape {x.shape} has no elements to sample")
    batch, channels, out = x.shape[0], x.shape[1], grid.shape[1:-1]
    dtype = x.dtype if mode == "nearest" else _interpolation_dtype(x.dtype)
    y = np.full((batch, channels, prod(out)), "" if dtype.kind == "O" else 0, dtype)
    if not y.size or 0 in size:
        return y.reshape(batch, channels, *out).astype(x.dtype, copy=False)
    flat = x.reshape(batch, channels, -1).astype(dtype, copy=False)
    real = np.float64 if mode == "nearest" else np.real(y).dtype
    points = np.nan_to_num(widen(grid), nan=-1.0, posinf=None, neginf=None).reshape(batch, -1, rank)
    taps: list[tuple[np.ndarray, ...]] = []
    for axis, n in enumerate(size):
        v = points[:, :, rank - 1 - axis]
        at = (v + 1) / 2 * (n - 1) if align_corners else ((v + 1) * n - 1) / 2
        taps.append(_grid_taps(at, n, mode, padding_mode, bool(align_corners)))
    for choice in product(*(range(place.shape[-1]) for place, _, _ in taps)):
        index: np.ndarray | int = 0
        weight: np.ndarray | float = 1.0
        inside: np.ndarray | bool = True
        for t, (place, weights, valid), n in zip(choice, taps, size, strict=True):
            index = index * n + place[..., t]
            weight = weight * weights[..., t]
            inside = inside & valid[..., t]
        picked = np.take_along_axis(flat, np.asarray(index)[:, None, :], axis=2)
        inside = np.asarray(inside)[:, None, :]
        if mode == "nearest":
            y = np.where(inside, picked, y)
        else:
            y += np.where(inside, picked * np.asarray(weight).astype(real)[:, None, :], np.zeros((), dtype))
    y = y.reshape(batch, channels, *out)
    if x.dtype == np.bool_ and mode != "nearest":
        return y.astype(np.bool_)
    return _saturate(np.trunc(y) if x.dtype.kind in "iu" and mode != "nearest" else y, x.dtype)


def _grid_taps(at: np.ndarray, n: int, mode: str, padding: str, align_corners: bool) -> tuple[np.ndarray, ...]:
    """Indices into an axis of n elements, weights, and which of them count, each (batch, points, taps)."""
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    if mode == "nearest":
        at = np.rint(at)
    if padding == "reflection":
        at = _reflect(at, low, high)
    shape = at.shape
    at = np.clip(at, -8, n + 8).ravel().astype(np.float64)
    if mode == "nearest":
        place, weights = at.astype(np.int64)[:, None], np.ones((at.size, 1))
    elif mode == "linear":
        place, weights = _taps(at, _linear, 1)
    else:
        place, weights = _taps(at, lambda d: _cubic(d, -0.75), 2)
    valid = (place >= 0) & (place < n) if padding == "zeros" else np.ones(place.shape, bool)
    if padding == "reflection":
        place = np.rint(_reflect(place.astype(np.float64), low, high)).astype(np.int64)
    else:
        place = np.clip(place, 0, n - 1)
    return tuple(v.reshape(*shape, -1) for v in (place, weights, valid))


@kernel("AffineGrid")
def affine_grid(theta: np.ndarray, size: np.ndarray, *, budget: Budget, align_corners: int = 0) -> np.ndarray:
    shape = integers(size)
    rank = len(shape) - 2
    require(rank in (2, 3), f"size {shape} must be (N, C, H, W) or (N, C, D, H, W)")
    require(
        theta.shape == (shape[0], rank, rank + 1), f"theta must be {(shape[0], rank, rank + 1)}, found {theta.shape}"
    )
    require(min(shape) >= 0, f"size {shape} must not be negative")
    dtype = compute_dtype(theta.dtype)
    budget.allocate(shape[0] * prod(shape[2:]) * rank * dtype.itemsize)
    lines = []
    for n in shape[2:]:
        at = np.arange(n, dtype=np.float64)
        if align_corners:
            lines.append(2 * at / (n - 1) - 1 if n > 1 else np.zeros(n))
        else:
            lines.append((2 * at + 1) / max(n, 1) - 1)
    # Coordinates run from the innermost axis to the outermost, and end in the 1 of homogeneous coordinates.
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack((*places, np.ones(shape[2:])), axis=-1).reshape(-1, rank + 1).astype(dtype)
    grid = np.matmul(points, theta.astype(dtype, copy=False).swapaxes(1, 2))
    return grid.reshape(shape[0], *shape[2:], rank).astype(theta.dtype, copy=False)


@kernel("ImageDecoder")
def image_decoder(encoded_stream: np.ndarray, *, budget: Budget, pixel_format: str = "RGB") -> np.ndarray:
    """A stream that cannot be decoded gives an empty image, as the spec has it."""
    formats = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
    require(pixel_format in formats, f"pixel_format {pixel_format!r} must be one of {', '.join(formats)}")
    try:
        from PIL import Image
    except ImportError as error:
        raise KernelError("ImageDecoder needs Pillow: install irkit with the extra 'images'") from error
    channels = 1 if pixel_format == "Grayscale" else 3
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            budget.allocate(image.width * image.height * channels)
            pixels = np.asarray(image.convert(formats[pixel_format]), np.uint8)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return np.zeros((0, 0, channels), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


# Boxes and cropping


@kernel("NonMaxSuppression")
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
    *,
    center_point_box: int = 0,
) -> np.ndarray:
    require(boxes.ndim == 3 and boxes.shape[2] == 4, f"boxes of shape {boxes.shape} must be (batches, boxes, 4)")
    require(
        scores.ndim == 3 and (scores.shape[0], scores.shape[2]) == boxes.shape[:2],
        f"scores of shape {scores.shape} must be (batches, classes, boxes), for boxes of shape {boxes.shape}",
    )
    most, overlap, least = (
        None if v is None else v.reshape(-1)[0] for v in (max_output_boxes_per_class, iou_threshold, score_threshold)
    )
    limit = 0 if most is None else max(int(most), 0)
    threshold = np.float32(0) if overlap is None else overlap
    require(bool(0 <= threshold <= 1), f"iou_threshold {threshold} must lie in [0, 1]")
    if center_point_box:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        first, second = centre - half, centre + half
    else:
        first, second = boxes[..., :2], boxes[..., 2:]
    low, high = np.minimum(first, second), np.maximum(first, second)
    area = (high - low).prod(axis=-1)
    selected: list[tuple[int, int, int]] = []
    for n, c in product(range(scores.shape[0]), range(scores.shape[1])):
        score = scores[n, c]
        left = np.argsort(-score, kind="stable")
        if least is not None:
            left = left[score[left] >= least]
        count = 0
        while left.size and count < limit:
            best, left = left[0], left[1:]
            selected.append((n, c, int(best)))
            count += 1
            sides = np.minimum(high[n, left], high[n, best]) - np.maximum(low[n, left], low[n, best])
            common = np.clip(sides, 0, None).prod(axis=-1)
            union = area[n, left] + area[n, best] - common
            left = left[~((union > 0) & (common / np.where(union > 0, union, 1) > threshold))]
    return np.array(selected, np.int64).reshape(-1, 3)


@kernel("CenterCropPad")
def center_crop_pad(
    x: np.ndarray, shape: np.ndarray, *, budget: Budget, axes: Sequence[int] | None = None
) -> np.ndarray:
    over = tuple(range(x.ndim)) if axes is None else normalize_axes(axes, x.ndim)
    wanted = integers(shape)
    require(len(wanted) == len(over), f"shape {wanted} must have {len(over)} extents, one for each of axes {over}")
    require(all(n >= 0 for n in wanted), f"shape {wanted} must not be negative")
    out = list(x.shape)
    source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for axis, n in zip(over, wanted, strict=True):
        have, out[axis] = x.shape[axis], n
        if n < have:
            source[axis] = slice((have - n) // 2, (have - n) // 2 + n)
        else:
            target[axis] = slice((n - have) // 2, (n - have) // 2 + have)
    budget.allocate(prod(out) * x.itemsize)
    result = np.full(out, "" if x.dtype.kind == "O" else 0, x.dtype)
    result[tuple(target)] = x[tuple(source)]
    return result
