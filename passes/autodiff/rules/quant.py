"""Casts and quantization."""

from __future__ import annotations

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, refused, vjp

proven_zero("CastLike", "only its dtype matters", [1])
proven_zero("QuantizeLinear", "piecewise constant")
proven_zero("DequantizeLinear", "a zero point", [2])
refused("BitCast", "the bits of a number are no smooth function of it")


@vjp("Cast", "CastLike")
def cast(g: Vjp) -> Tensor:
    return g.cast(g.ct, g.x(0))


@vjp("DequantizeLinear")
def dequantize(g: Vjp) -> Gradients:
    """``(x - zero_point) scale``, with a scale for all, along an axis, or by blocks along it."""
    b, x, scale = g.b, g.x(0), g.x(1)
    first = second = None
    rank = g.rank(x)
    axis, block = g.attr("axis"), g.attr("block_size") or 0
    axis = axis % rank if rank else 0
    if g.needs(0):
        first = g.cast(b.Mul(g.ct, g.cast(_spread(g, scale, x, axis, block), g.ct)), x)
    if g.needs(1):
        offset = g.cast(x, g.ct)
        if g.x(2) is not None:
            offset = b.Sub(offset, g.cast(_spread(g, g.x(2), x, axis, block), g.ct))
        second = g.cast(_gathered(g, b.Mul(g.ct, offset), scale, axis, block), scale)
    return first, second


def _spread(g: Vjp, value: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point as it broadcasts against the data."""
    rank = g.rank(value)
    if rank == 0 or (rank == 1 and value.shape == (1,) and not block):
        return value
    if not block:
        return g.b.Unsqueeze(value, g.i64([i for i in range(g.rank(x)) if i != axis]))
    b = g.b
    each = b.Unsqueeze(value, g.i64([axis + 1]))
    shape = [g.i64([1])] * (axis + 1) + [g.i64([block])] + [g.i64([1])] * (g.rank(x) - axis - 1)
    wide = b.Tile(each, g.join(shape))
    sizes = [g.size(value, i) for i in range(rank)]
    sizes[axis] = g.fold("Mul", sizes[axis], g.i64([block]))
    whole = b.Reshape(wide, g.join(sizes))
    return b.Slice(whole, g.i64([0]), g.size(x, axis), g.i64([axis]))


def _gathered(g: Vjp, value: Tensor, scale: Tensor, axis: int, block: int) -> Tensor:
    """The sum over the elements that share a scale."""
    rank = g.rank(value)
    if g.rank(scale) == 0 or (g.rank(scale) == 1 and scale.shape == (1,) and not block):
        return g.reshape_like(g.b.ReduceSum(value, keepdims=0), scale)
    if not block:
        return g.reduce_sum(value, [i for i in range(rank) if i != axis])
    b = g.b
    blocks = g.size(scale, axis)
    missing = g.fold("Sub", g.fold("Mul", blocks, g.i64([block])), g.size(value, axis))
    whole = b.Pad(value, g.join([g.i64([0]), missing]), None, g.i64([axis]))
    sizes = [g.size(scale, i) for i in range(rank)]
    sizes.insert(axis + 1, g.i64([block]))
    return g.reduce_sum(b.Reshape(whole, g.join(sizes)), [axis + 1])
