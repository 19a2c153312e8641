"""What the rules of ops that sample images between elements share.

A tap is an element that counts at a point: per axis, its index and its weight, (groups, points, taps) each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import Vjp
from irkit.passes.autodiff.rules._window import Size, reshape, size_of, vector

__all__ = ["Taps", "around", "cubic", "linear", "sampled", "within"]

Taps = tuple[Tensor, Tensor]
_A = -0.75


def around(g: Vjp, at: Tensor, offsets: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The places at some offsets from the element before each coordinate, and how far the coordinate is from that."""
    b = g.b
    first = b.Floor(at)
    places = b.Add(b.Unsqueeze(first, [2]), g.const(np.asarray(offsets), at))
    return places, b.Unsqueeze(b.Sub(at, first), [2])


def linear(g: Vjp, far: Tensor) -> Tensor:
    """The weights of the elements at the offsets 0 and 1."""
    return g.b.Add(g.b.Mul(far, g.const([-1.0, 1.0], far)), g.const([1.0, 0.0], far))


def cubic(g: Vjp, far: Tensor) -> Tensor:
    """Those of the elements at the offsets -1 to 2: the cubic convolution kernel of Keys (1981), equation 4."""
    b = g.b
    t = b.Add(b.Mul(far, g.const([1.0, 1.0, -1.0, -1.0], far)), g.const([1.0, 0.0, 1.0, 2.0], far))
    near, beyond = (_A + 2, -(_A + 3), 0.0, 1.0), (_A, -5 * _A, 8 * _A, -4 * _A)
    total: Tensor | None = None
    for inner, outer in zip(near, beyond, strict=True):
        coefficients = g.const([outer, inner, inner, outer], far)
        total = coefficients if total is None else b.Add(b.Mul(total, t), coefficients)
    assert total is not None
    return total


def within(g: Vjp, places: Tensor, weights: Tensor, size: Size) -> Taps:
    """Taps whose places may lie outside an axis; there they count as 0."""
    b = g.b
    zero, last = g.const(0.0, places), g.cast(vector(b, [size - 1]), places)
    inside = b.And(b.GreaterOrEqual(places, zero), b.LessOrEqual(places, last))
    return b.Max(b.Min(places, last), zero), b.Mul(weights, g.cast(inside, weights))


def sampled(b: Builder, g: Vjp, flat: Tensor, taps: Sequence[Taps], size: Sequence[Size]) -> Tensor:
    """Values of images (groups, channels, elements) between elements: (groups, channels, points).

    Args:
        taps: per axis; their places may be floats.
        size: of the images' axes.
    """
    groups, channels = size_of(g, flat, 0), size_of(g, flat, 1)
    rank = len(taps)
    index: Tensor | None = None
    weight: Tensor | None = None
    for axis, ((places, shares), n) in enumerate(zip(taps, size, strict=True)):
        # One axis of taps for each axis of the image.
        spread = [2 + i for i in range(rank) if i != axis]
        place, share = (b.Unsqueeze(v, spread) if spread else v for v in (b.Cast(places, to=7), shares))
        index = place if index is None else b.Add(b.Mul(index, vector(b, [n])), place)
        weight = share if weight is None else b.Mul(weight, share)
    assert index is not None
    assert weight is not None
    chosen = b.Expand(reshape(b, index, [groups, 1, -1]), vector(b, [1, channels, 1]))
    count = int(np.prod([_taps_of(places) for places, _ in taps]))
    found = reshape(b, b.GatherElements(flat, chosen, axis=2), [groups, channels, -1, count])
    return b.ReduceSum(b.Mul(found, reshape(b, weight, [groups, 1, -1, count])), [3], keepdims=0)


def _taps_of(places: Tensor) -> int:
    shape = places.shape
    assert shape is not None
    assert isinstance(shape[2], int)
    return shape[2]
