"""Images: Resize and CenterCropPad, which are linear; GridSample and AffineGrid."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.errors import UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._sample import Taps, around, cubic, linear, sampled, within
from irkit.passes.autodiff.rules._through import through
from irkit.passes.autodiff.rules._window import Size, cut, size_of, spatial, vector

proven_zero("Resize", "sizes", [3])
proven_zero("AffineGrid CenterCropPad", "sizes", [1])
proven_zero("ImageDecoder NonMaxSuppression", "gives integers")


# Resize


@vjp("Resize")
def resize(g: Vjp) -> Gradients:
    """Along each axis the op is a product with a matrix, namely with what it makes of the unit matrix."""
    for index in (1, 2):
        if g.needs(index):
            raise UnsupportedError(
                f"it has no gradient in {('roi', 'scales')[index - 1]}",
                op=g.op.name,
                where=where(g.op),
                hint="keep the gradient from going through it with irkit.stop_gradient",
            )
    ct, rank = g.ct, g.rank(g.x(0))
    axes = [axis % rank for axis in g.attr("axes") or range(rank)]
    for place, axis in enumerate(axes):
        if not _untouched(g, place, axis):
            ct = _product(g.b, ct, _matrix(g, place, axis, axes), axis, rank)
    return (ct,)


def _scales(g: Vjp) -> Tensor | None:
    """The scales, which may be given as none."""
    found = g.constant(2)
    return None if found is not None and found.size == 0 else g.x(2)


def _crops(g: Vjp) -> bool:
    return g.attr("coordinate_transformation_mode") == "tf_crop_and_resize"


def _untouched(g: Vjp, place: int, axis: int) -> bool:
    """Whether an axis certainly stays as it is."""
    if _crops(g):
        return False
    if _scales(g) is not None:
        scales = g.constant(2)
        return scales is not None and float(scales.array().reshape(-1)[place]) == 1
    sizes = g.ints(3)
    stretched = g.attr("keep_aspect_ratio_policy") == "stretch"
    return stretched and sizes is not None and sizes[place] == size_of(g, g.x(0), axis)


def _matrix(g: Vjp, place: int, axis: int, axes: list[int]) -> Tensor:
    """(out, n): how an axis of n elements is resized."""
    b, x, ct = g.b, g.x(0), g.ct
    n = size_of(g, x, axis)
    eye = b.EyeLike(b.Expand(g.const(0.0, ct), vector(b, [n, n])))
    names = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode")
    options: dict[str, Any] = {name: g.attr(name) for name in names}
    one, scales = g.i64([place]), _scales(g)
    roi = b.Gather(g.x(1), g.i64([place, place + len(axes)])) if _crops(g) else None
    if scales is not None:
        return b.Resize(eye, roi, b.Gather(scales, one), axes=[0], **options)
    sizes, policy = g.x(3), g.attr("keep_aspect_ratio_policy")
    if policy == "stretch":
        return b.Resize(eye, roi, None, b.Gather(sizes, one), axes=[0], **options)
    # All axes share a scale, that of one of them, which therefore goes along.
    extents = vector(b, [size_of(g, x, a) for a in axes])
    ratios = b.Div(g.cast(sizes, "float64"), g.cast(extents, "float64"))
    leader = b.ArgMin(ratios) if policy == "not_larger" else b.ArgMax(ratios)
    units = b.Expand(b.Unsqueeze(eye, [2]), vector(b, [n, n, b.Gather(extents, leader)]))
    pair = b.Concat(b.Gather(sizes, one), b.Gather(sizes, leader), axis=0)
    found = b.Resize(units, roi, None, pair, axes=[1, 2], keep_aspect_ratio_policy=policy, **options)
    return b.Transpose(b.Squeeze(cut(b, found, [2], [0], [1]), [2]), perm=[1, 0])


def _product(b: Builder, value: Tensor, matrix: Tensor, axis: int, rank: int) -> Tensor:
    """The sum of a value times a matrix over an axis and the matrix's rows: its columns take the axis's place."""
    if axis == rank - 1:
        return b.MatMul(value, matrix)
    if axis == rank - 2:
        return b.MatMul(b.Transpose(matrix, perm=[1, 0]), value)
    swapped = list(range(rank))
    swapped[axis], swapped[-1] = rank - 1, axis
    return b.Transpose(b.MatMul(b.Transpose(value, perm=swapped), matrix), perm=swapped)


@vjp("CenterCropPad")
def center_crop_pad(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    axes = g.attr("axes")
    shape = g.shape_of(x) if axes is None else vector(b, [size_of(g, x, axis) for axis in axes])
    return b.CenterCropPad(g.ct, shape, axes=axes)


# Sampling on a grid


@vjp("AffineGrid")
def affine_grid(g: Vjp) -> Tensor:
    """The product of the cotangent with the points, which are what the op makes of the identity."""
    b, theta, size = g.b, g.x(0), g.x(1)
    rank = g.rank(g.ct) - 2
    unit = b.Expand(g.const(np.eye(rank, rank + 1)), g.shape_of(theta))
    points = b.AffineGrid(unit, size, align_corners=g.attr("align_corners"))
    points, ct = (b.Reshape(v, [0, -1, rank]) for v in (points, g.ct))
    columns = b.Transpose(ct, perm=[0, 2, 1])
    return b.Concat(b.MatMul(columns, points), b.ReduceSum(columns, [2], keepdims=1), axis=2)


@vjp("GridSample")
def grid_sample(g: Vjp) -> Gradients:
    """Through the elements next to each point, gathered and weighted."""

    def forward(b: Builder, x: Tensor, grid: Tensor) -> Tensor:
        size = spatial(g, x)
        rank = len(size)
        points = b.Reshape(grid, [0, -1, rank])
        # The last coordinate is that of the first axis.
        columns = [b.Squeeze(cut(b, points, [2], [rank - 1 - axis], [1]), [2]) for axis in range(rank)]
        taps = [_taps(g, v, n) for v, n in zip(columns, size, strict=True)]
        found = sampled(b, g, b.Reshape(x, [0, 0, -1]), taps, size)
        return g.reshape_like(found, g.y())

    return through(g, forward, [g.x(0), g.x(1)])


def _taps(g: Vjp, v: Tensor, n: Size) -> Taps:
    """The elements of an axis that count at coordinates from -1 to 1, (N, points)."""
    b = g.b
    mode, padding, corners = g.attr("mode"), g.attr("padding_mode"), bool(g.attr("align_corners"))
    one, zero = g.const(1.0, v), g.const(0.0, v)
    count = g.cast(vector(b, [n]), v)
    last = b.Sub(count, one)
    half = b.Mul(b.Add(v, one), g.const(0.5, v))
    at = b.Mul(half, last) if corners else b.Sub(b.Mul(half, count), g.const(0.5, v))
    low = zero if corners else g.const(-0.5, v)
    span = last if corners else count
    if mode == "nearest":
        at = b.Round(at)
    if padding == "reflection":
        at = _reflected(b, g, at, low, span)
    at = b.Max(b.Min(at, b.Add(count, g.const(8.0, v))), g.const(-8.0, v))
    offsets = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    places, far = around(g, at, offsets)
    if mode == "nearest":
        weights = g.b.Expand(one, b.Shape(places))
    else:
        weights = linear(g, far) if mode == "linear" else cubic(g, far)
    if padding == "zeros":
        return within(g, places, weights, n)
    if padding == "reflection":
        places = b.Round(_reflected(b, g, places, low, span))
    return b.Max(b.Min(places, last), zero), weights


def _reflected(b: Builder, g: Vjp, at: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """Coordinates mirrored at both ends of an interval until inside."""
    positive = b.Greater(span, g.const(0.0, span))
    width = b.Where(positive, span, g.const(1.0, span))
    twice = b.Mul(width, g.const(2.0, at))
    beyond = b.Abs(b.Sub(at, low))
    rest = b.Sub(beyond, b.Mul(b.Floor(b.Div(beyond, twice)), twice))
    folded = b.Where(b.Greater(rest, width), b.Sub(twice, rest), rest)
    return b.Add(b.Mul(folded, g.cast(positive, at)), low)
