"""Images: Resize and CenterCropPad, which are linear; GridSample and AffineGrid."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from irkit.errors import UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._through import through
from irkit.passes.autodiff.rules._window import Size, cut, reshape, size_of, spatial, vector

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
        batch, channels = size_of(g, x, 0), size_of(g, x, 1)
        rank = len(size)
        points = b.Reshape(grid, [0, -1, rank])
        index: Tensor | None = None
        weight: Tensor | None = None
        taps = [
            _taps(b, g, b.Squeeze(cut(b, points, [2], [rank - 1 - axis], [1]), [2]), n) for axis, n in enumerate(size)
        ]
        chosen = list(product(*(range(len(t)) for t in taps)))
        rows: list[tuple[Tensor, Tensor]] = []
        for choice in chosen:
            index = weight = None
            for t, places, n in zip(choice, taps, size, strict=True):
                place, share = places[t]
                index = place if index is None else b.Add(b.Mul(index, vector(b, [n])), place)
                weight = share if weight is None else b.Mul(weight, share)
            assert index is not None
            assert weight is not None
            rows.append((b.Unsqueeze(index, [1]), b.Unsqueeze(weight, [1, 2])))
        # (N, taps, points), to be found at once in (N, C, elements).
        places = b.Concat(*(place for place, _ in rows), axis=1)
        places = b.Expand(reshape(b, places, [batch, 1, -1]), vector(b, [1, channels, 1]))
        found = b.GatherElements(b.Reshape(x, [0, 0, -1]), places, axis=2)
        found = reshape(b, found, [batch, channels, len(rows), -1])
        weights = b.Concat(*(share for _, share in rows), axis=2)
        total = b.ReduceSum(b.Mul(found, weights), [2], keepdims=0)
        return b.Reshape(total, g.shape_of(g.y()), allowzero=1)

    return through(g, forward, [g.x(0), g.x(1)])


def _taps(b: Builder, g: Vjp, v: Tensor, n: Size) -> list[tuple[Tensor, Tensor]]:
    """The elements of an axis that count at points, as (index, weight) each; the weight is 0 for one outside."""
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
    first = b.Floor(at)
    far = b.Sub(at, first)
    if mode == "nearest":
        weights = [(0.0, b.Expand(one, b.Shape(at)))]
    elif mode == "linear":
        weights = [(0.0, b.Sub(one, far)), (1.0, far)]
    else:
        weights = [(float(k), _cubic(b, g, far, k)) for k in (-1, 0, 1, 2)]
    found: list[tuple[Tensor, Tensor]] = []
    for offset, weight in weights:
        place = b.Add(first, g.const(offset, v)) if offset else first
        if padding == "zeros":
            inside = b.And(b.GreaterOrEqual(place, zero), b.LessOrEqual(place, last))
            weight = b.Mul(weight, g.cast(inside, weight))
        elif padding == "reflection":
            place = b.Round(_reflected(b, g, place, low, span))
        place = b.Max(b.Min(place, last), zero)
        found.append((b.Cast(place, to=7), weight))
    return found


def _reflected(b: Builder, g: Vjp, at: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """Coordinates mirrored at both ends of an interval until inside."""
    positive = b.Greater(span, g.const(0.0, span))
    width = b.Where(positive, span, g.const(1.0, span))
    twice = b.Mul(width, g.const(2.0, at))
    beyond = b.Abs(b.Sub(at, low))
    rest = b.Sub(beyond, b.Mul(b.Floor(b.Div(beyond, twice)), twice))
    folded = b.Where(b.Greater(rest, width), b.Sub(twice, rest), rest)
    return b.Add(b.Mul(folded, g.cast(positive, at)), low)


def _cubic(b: Builder, g: Vjp, far: Tensor, k: int, a: float = -0.75) -> Tensor:
    """The cubic convolution kernel of Keys (1981), equation 4, at the distance ``|k - far|``."""
    t = b.Sub(far, g.const(float(k), far)) if k <= 0 else b.Sub(g.const(float(k), far), far)

    def polynomial(*coefficients: float) -> Tensor:
        total = g.const(coefficients[0], far)
        for c in coefficients[1:]:
            total = b.Add(b.Mul(total, t), g.const(c, far))
        return total

    return polynomial(a + 2, -(a + 3), 0.0, 1.0) if k in (0, 1) else polynomial(a, -5 * a, 8 * a, -4 * a)
