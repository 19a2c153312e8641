"""Pooling. Among equal maxima the first of a window, in row-major order, takes the whole gradient."""

from __future__ import annotations

from math import prod

import numpy as np

from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._through import through
from irkit.passes.autodiff.rules._window import (
    Size,
    Windows,
    counted,
    cut,
    known,
    padded,
    reshape,
    size_of,
    spatial,
    transposed,
    vector,
    windows,
)

proven_zero("MaxUnpool", "indices and shapes", [1, 2])
proven_zero("RoiAlign", "indices", [2])
proven_zero("MaxRoiPool", "the regions are rounded to whole elements", [1])


def _windows(g: Vjp) -> Windows:
    return windows(g, g.x(0), g.y(), g.attr("kernel_shape"))


def _spread(g: Vjp, ct: Tensor, win: Windows) -> Tensor:
    """The sum, at each element of the operand, of what stands at the windows that hold it."""
    ones = g.b.Expand(g.const(1.0, ct), vector(g.b, [1, 1, *win.kernel]))
    images = transposed(g, reshape(g.b, ct, [-1, 1, *win.out]), ones, 1, win)
    return g.reshape_like(images, g.x(0))


@vjp("AveragePool")
def average_pool(g: Vjp) -> Tensor:
    win = _windows(g)
    share = g.b.Mul(g.ct, _inverse_counts(g, win))
    return _spread(g, share, win)


def _inverse_counts(g: Vjp, win: Windows) -> Tensor:
    """One over the number of elements that count in each window: (out, ...), or a scalar."""
    b, rank, padding_counts = g.b, len(win.size), bool(g.attr("count_include_pad"))
    bare = known([*win.begin, *win.end]) and not any([*win.begin, *win.end])
    if not g.attr("ceil_mode") and (bare or padding_counts):
        return g.const(1 / prod(g.attr("kernel_shape")))
    total: Tensor | None = None
    wide = "float64" if g.ct.dtype is not None and g.ct.dtype.name == "float64" else "float32"
    for i in range(rank):
        low = vector(b, [0 if padding_counts else win.begin[i]])
        high = vector(b, [win.begin[i] + win.size[i] + (win.end[i] if padding_counts else 0)])
        at = b.Add(
            b.Unsqueeze(counted(b, win.out[i]) * win.strides[i], [1]), counted(b, win.kernel[i]) * win.dilations[i]
        )
        inside = b.And(b.GreaterOrEqual(at, low), b.Less(at, high))
        count = b.ReduceSum(g.cast(inside, wide), [1], keepdims=0)
        count = reshape(b, count, [-1 if axis == i else 1 for axis in range(rank)])
        total = count if total is None else b.Mul(total, count)
    assert total is not None
    return g.cast(b.Reciprocal(total), g.ct)


def _scattered(g: Vjp, ct: Tensor, indices: Tensor, like: Tensor, *, once: bool) -> Tensor:
    """Zeros of the shape of ``like``, with the cotangent added at indices into it laid out flat."""
    b = g.b
    zeros = b.Expand(g.const(0.0, ct), g.count(like))
    flat = b.ScatterElements(
        zeros,
        b.Reshape(indices, [-1]),
        b.Reshape(ct, [-1]),
        axis=0,
        reduction="none" if once else "add",
    )
    return g.reshape_like(flat, like)


@vjp("MaxPool")
def max_pool(g: Vjp) -> Tensor:
    b, x, win = g.b, g.x(0), _windows(g)
    if g.attr("storage_order"):
        names = ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode")
        _, indices = b.MaxPool(x, outputs=2, **{name: g.attr(name) for name in names})
    else:
        indices = g.y(1)
    once = all(isinstance(e, int) and e <= s for e, s in zip(win.extent, win.strides, strict=True))
    if once and _is_unpooled_exactly(g, win):
        pads = {"pads": [*win.begin, *win.end]} if any([*win.begin, *win.end]) else {}
        return b.MaxUnpool(g.ct, indices, kernel_shape=win.kernel, strides=win.strides, **pads)
    return _scattered(g, g.ct, indices, x, once=once)


def _is_unpooled_exactly(g: Vjp, win: Windows) -> bool:
    """Whether MaxUnpool by the same windows gives a tensor of the operand's shape. onnxruntime has it for float32."""
    if not all(map(known, (win.size, win.out, win.begin, win.end))) or any(d > 1 for d in win.dilations):
        return False
    reached = [r - p - q for r, p, q in zip(win.reach, win.begin, win.end, strict=True)]
    return reached == win.size and g.ct.dtype is not None and g.ct.dtype.name == "float32"


def _of_norm(g: Vjp, p: int, ct: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The two factors of the gradient of ``y = sum(|x| ** p) ** (1 / p)``: at the results, and at the elements.

    The norm has the gradient 0 where it is 0.
    """
    b = g.b
    if p == 1:
        return ct, b.Sign(x)
    zero = b.Equal(y, g.const(0.0, y))
    safe = b.Where(zero, g.const(1.0, y), y)
    share = b.Div(ct, safe if p == 2 else b.Pow(safe, g.const(float(p - 1), y)))
    share = b.Mul(share, g.cast(b.Not(zero), ct))
    if p == 2:
        return share, x
    return share, b.Mul(b.Sign(x), b.Pow(b.Abs(x), g.const(float(p - 1), x)))


@vjp("LpPool")
def lp_pool(g: Vjp) -> Tensor:
    share, factor = _of_norm(g, g.attr("p"), g.ct, g.x(0), g.y())
    return g.b.Mul(_spread(g, share, _windows(g)), factor)


@vjp("GlobalLpPool")
def global_lp_pool(g: Vjp) -> Tensor:
    share, factor = _of_norm(g, g.attr("p"), g.ct, g.x(0), g.y())
    return g.b.Mul(share, factor)


@vjp("GlobalAveragePool")
def global_average_pool(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    sizes = spatial(g, x)
    if known(sizes):
        return b.Expand(b.Mul(g.ct, g.const(1 / max(prod(sizes), 1))), g.shape_of(x))
    wide = "float64" if g.ct.dtype is not None and g.ct.dtype.name == "float64" else "float32"
    count = g.cast(b.Reciprocal(g.cast(g.count(x, range(2, g.rank(x))), wide)), g.ct)
    return b.Expand(b.Mul(g.ct, count), g.shape_of(x))


@vjp("GlobalMaxPool")
def global_max_pool(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    rows = b.Flatten(x, axis=2)
    place = b.ArgMax(rows, axis=1, keepdims=1)
    found = b.ScatterElements(g.zeros_like(rows), place, b.Flatten(g.ct, axis=2), axis=1)
    return g.reshape_like(found, x)


@vjp("MaxUnpool")
def max_unpool(g: Vjp) -> Tensor:
    b, x, ct = g.b, g.x(0), g.ct
    if g.x(2) is not None:
        # Indices count in the tensor that was pooled, which the result pads or cuts.
        rank = g.rank(x)
        kernel = g.attr("kernel_shape")
        strides, pads = g.attr("strides") or [1] * len(kernel), g.attr("pads") or [0] * 2 * len(kernel)
        axes = list(range(2, rank))
        end = [
            (n - 1) * s + k - p - q - m
            for n, m, s, k, p, q in zip(
                spatial(g, x), spatial(g, ct), strides, kernel, pads[: rank - 2], pads[rank - 2 :], strict=True
            )
        ]
        ct = padded(b, ct, axes, [0] * len(axes), end)
    found = b.Gather(b.Reshape(ct, [-1]), b.Reshape(g.x(1), [-1]))
    return g.reshape_like(found, x)


# Regions of interest


@vjp("RoiAlign")
def roi_align(g: Vjp) -> Gradients:
    """Through two small matrices a region, that take rows and columns of an image to those of a bin."""
    highest = g.attr("mode") == "max"

    def forward(b: Builder, x: Tensor, rois: Tensor) -> Tensor:
        corners = rois * g.attr("spatial_scale")
        if g.attr("coordinate_transformation_mode") == "half_pixel":
            corners = corners - 0.5
        images = b.Gather(x, g.x(2), axis=0)
        sides = [
            _Side(b, g, cut(b, corners, [1], [first], [1]), cut(b, corners, [1], [first + 2], [1]), bins, size)
            for first, bins, size in (
                (1, g.attr("output_height"), size_of(g, x, 2)),
                (0, g.attr("output_width"), size_of(g, x, 3)),
            )
        ]
        tall, wide = sides
        if not highest:
            rows = b.MatMul(b.Unsqueeze(tall.mean(), [1]), images)
            return b.MatMul(rows, b.Unsqueeze(b.Transpose(wide.mean(), perm=[0, 2, 1]), [1]))
        return _highest(b, g, images, tall, wide)

    return [*through(g, forward, [g.x(0), g.x(1)]), None]


class _Side:
    """The samples of all regions along one axis.

    Attributes:
        at: (regions, bins, samples): where they lie, cut to the image.
        counts: (regions, 1, samples): which of them there are.
        inside: (regions, bins, samples): whether a sample lies in the image, or just beside.
        grid: (regions, 1, 1): how many samples a bin has.
    """

    def __init__(self, b: Builder, g: Vjp, start: Tensor, stop: Tensor, bins: int, size: Size) -> None:
        self.b, self.g, self.bins, self.size = b, g, bins, size
        length = b.Sub(stop, start)
        if g.attr("coordinate_transformation_mode") != "half_pixel":
            length = b.Max(length, g.const(1.0, start))
        start, step = b.Unsqueeze(start, [2]), b.Unsqueeze(b.Div(length, g.const(float(bins), start)), [2])
        ratio = g.attr("sampling_ratio")
        if ratio > 0:
            grid = b.Expand(g.i64([ratio]), b.Shape(step))
            most: Size = ratio
        else:
            grid = b.Cast(b.Max(b.Ceil(step), g.const(0.0, start)), to=7)
            most = b.Reshape(b.Max(b.ReduceMax(grid, keepdims=0), g.i64(1)), g.i64([1]))
        sample = reshape(b, counted(b, most), [1, 1, -1])
        self.counts = g.cast(b.Less(sample, grid), start)
        self.grid = g.cast(b.Max(grid, g.i64(1)), start)
        part = b.Div(b.Add(g.cast(sample, start), g.const(0.5, start)), self.grid)
        bin_ = g.const(np.arange(bins).reshape(1, bins, 1), start)
        at = b.Add(start, b.Mul(b.Add(bin_, part), step))
        last = g.cast(vector(b, [size]), start)
        self.inside = g.cast(b.And(b.GreaterOrEqual(at, g.const(-1.0, at)), b.LessOrEqual(at, last)), at)
        self.last = b.Sub(last, g.const(1.0, last))
        self.at = b.Max(b.Min(at, self.last), g.const(0.0, at))

    def mean(self) -> Tensor:
        """(regions, bins, size): the weight of each element in the mean over a bin's samples."""
        b = self.b
        place = self.g.cast(counted(b, self.size), self.at)
        far = b.Abs(b.Sub(b.Unsqueeze(self.at, [3]), place))
        weights = b.Relu(b.Sub(self.g.const(1.0, far), far))
        counts = b.Unsqueeze(b.Mul(self.inside, self.counts), [3])
        return b.Div(b.ReduceSum(b.Mul(weights, counts), [2], keepdims=0), self.grid)

    def neighbours(self) -> list[Tensor]:
        """Twice (regions, bins * samples, size): the weights of the elements before and after each sample."""
        b, g = self.b, self.g
        low = b.Max(b.Min(b.Floor(self.at), b.Sub(self.last, g.const(1.0, self.at))), g.const(0.0, self.at))
        high = b.Min(b.Add(low, 1), self.last)
        after = b.Sub(self.at, low)
        before = b.Sub(g.const(1.0, after), after)
        place = g.cast(counted(b, self.size), self.at)
        found: list[Tensor] = []
        for index, weight in ((low, before), (high, after)):
            chosen = g.cast(b.Equal(b.Unsqueeze(index, [3]), place), weight)
            weights = b.Mul(chosen, b.Unsqueeze(b.Mul(weight, self.inside), [3]))
            found.append(reshape(b, weights, [b.Shape(weights, start=0, end=1), -1, b.Shape(weights, start=3)]))
        return found


def _highest(b: Builder, g: Vjp, images: Tensor, tall: _Side, wide: _Side) -> Tensor:
    """The greatest of the weighted neighbours of all samples of each bin."""
    terms: list[Tensor] = []
    counts = b.Mul(
        reshape(b, tall.counts, [-1, 1, 1, b.Shape(tall.counts, start=2), 1, 1]),
        reshape(b, wide.counts, [-1, 1, 1, 1, 1, b.Shape(wide.counts, start=2)]),
    )
    there = b.Greater(counts, g.const(0.0, counts))
    shape = vector(
        b, [b.Shape(images, end=2), tall.bins, b.Shape(tall.at, start=2), wide.bins, b.Shape(wide.at, start=2)]
    )
    for rows in tall.neighbours():
        part = b.MatMul(b.Unsqueeze(rows, [1]), images)
        for columns in wide.neighbours():
            values = b.MatMul(part, b.Unsqueeze(b.Transpose(columns, perm=[0, 2, 1]), [1]))
            terms.append(b.Where(there, b.Reshape(values, shape), g.const(-np.inf, values)))
    top = b.ReduceMax(b.Max(*terms), [3, 5], keepdims=0)
    return b.Where(b.IsInf(top, detect_positive=0), g.const(0.0, top), top)


@vjp("MaxRoiPool")
def max_roi_pool(g: Vjp) -> Gradients:
    """Through the place of each bin's first maximum: that of every row of the image, then that of the rows."""
    b, rois, scale = g.b, g.x(1), g.attr("spatial_scale")
    # Regions have no gradient, and what is told from them stands outside.
    corners = cut(b, rois, [1], [1], [4])
    corners = b.Mul(b.Floor(b.Abs(corners) * scale + 0.5), b.Sign(corners))
    tall, wide = (
        _bins(g, cut(b, corners, [1], [first], [1]), cut(b, corners, [1], [first + 2], [1]), bins, size)
        for first, bins, size in zip((1, 0), g.attr("pooled_shape"), spatial(g, g.x(0)), strict=True)
    )
    batch = b.Cast(b.Squeeze(cut(b, rois, [1], [0], [1]), [1]), to=7)

    def forward(b: Builder, x: Tensor) -> Tensor:
        images = b.Gather(x, batch, axis=0)
        lowest = g.const(-np.inf, x)
        # (regions, channels, rows, bins across, columns), then (regions, channels, bins down, rows, bins across).
        across = b.Where(b.Unsqueeze(wide, [1, 2]), b.Unsqueeze(images, [3]), lowest)
        across = b.Squeeze(b.GatherElements(across, b.ArgMax(across, axis=4, keepdims=1), axis=4), [4])
        down = b.Where(b.Unsqueeze(tall, [1, 4]), b.Unsqueeze(across, [2]), lowest)
        top = b.Squeeze(b.GatherElements(down, b.ArgMax(down, axis=3, keepdims=1), axis=3), [3])
        return b.Where(b.IsInf(top, detect_positive=0), g.const(0.0, top), top)

    return [*through(g, forward, [g.x(0)]), None]


def _bins(g: Vjp, start: Tensor, stop: Tensor, bins: int, size: Size) -> Tensor:
    """(regions, bins, size): whether an element lies in a bin."""
    b = g.b
    length = b.Div(b.Max(b.Sub(stop, start) + 1.0, g.const(1.0, start)), g.const(float(bins), start))
    index = g.const(np.arange(bins).reshape(1, bins), start)
    low = b.Add(b.Floor(b.Mul(index, length)), start)
    high = b.Add(b.Ceil(b.Mul(index + 1.0, length)), start)
    place = g.cast(counted(b, size), start)
    return b.And(b.GreaterOrEqual(place, b.Unsqueeze(low, [2])), b.Less(place, b.Unsqueeze(high, [2])))
