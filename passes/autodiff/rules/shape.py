"""Reshaping, transposing, joining, cutting, repeating and padding: each rule undoes what its op did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("Shape Size", "gives integers")
proven_zero("Reshape Expand", "a shape", [1])
proven_zero("Squeeze Unsqueeze", "axes", [1])
proven_zero("Split", "sizes", [1])
proven_zero("Slice", "places", [1, 2, 3, 4])
proven_zero("Tile", "how often", [1])
proven_zero("Pad", "how much, and along which axes", [1, 3])
proven_zero("ReverseSequence", "lengths", [1])


@vjp("Identity")
def identity(g: Vjp) -> Gradients:
    return (g.cts[0],)


@vjp("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(g: Vjp) -> Tensor:
    return g.reshape_like(g.ct, g.x(0))


@vjp("Transpose")
def transpose(g: Vjp) -> Tensor:
    perm = g.attr("perm")
    if perm is None:
        return g.b.Transpose(g.ct)
    return g.b.Transpose(g.ct, perm=[list(perm).index(i) for i in range(len(perm))])


@vjp("Concat")
def concat(g: Vjp) -> Gradients:
    b, axis, count = g.b, g.attr("axis"), g.n_operands
    if count == 1:
        return (g.ct,)
    sizes = [g.size(g.x(i), axis) for i in range(count)]
    wanted = [i for i in range(count) if g.needs(i)]
    if len(wanted) == 1 and wanted[0] in (0, count - 1):
        # One end: cheaper cut off than split.
        first = wanted[0] == 0
        begin, end = (g.i64([0]), sizes[0]) if first else (b.Neg(sizes[-1]), g.i64([np.iinfo(np.int64).max]))
        if first or g.ints_of(sizes[-1]) not in ([0], None):
            # (From -0 on would be everything.)
            cut = b.Slice(g.ct, begin, end, g.i64([axis]))
            return [cut if i == wanted[0] else None for i in range(count)]
    return list(b.Split(g.ct, g.join(sizes), axis=axis, outputs=count))


@vjp("Split")
def split(g: Vjp) -> Tensor:
    if len(g.op.results) == 1:
        return g.ct
    return g.b.Concat(*(g.ct_of(i) for i in range(len(g.op.results))), axis=g.attr("axis"))


# Rules by places: an op that copies elements is asked where each came from -------------------------------------------


def places(g: Vjp, x: Tensor) -> Tensor:
    """For each element of a tensor its place in the flattened tensor."""
    return g.reshape_like(g.b.Range(g.i64(0), g.b.Size(x), g.i64(1)), x)


def put_back(g: Vjp, x: Tensor, source: Tensor, ct: Tensor) -> Tensor:
    """Adds up, for each element of ``x``, the cotangents of its copies; ``source`` tells whose copy each one is."""
    b, flat = g.b, g.i64([-1])
    zeros = b.Expand(g.const(0, ct), g.count(x))
    found = b.ScatterElements(zeros, b.Reshape(source, flat), b.Reshape(ct, flat), reduction="add")
    return g.reshape_like(found, x)


def copies(g: Vjp, copy: Callable[[Tensor], Tensor]) -> Tensor:
    """The cotangent of the operand of an op that copies its elements; ``copy`` does the same with places."""
    return put_back(g, g.x(0), copy(places(g, g.x(0))), g.ct)


@vjp("Slice")
def slice_(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    starts, steps = g.ints(1), g.ints(4)
    rank = x.rank
    axes = g.ints(3) if g.x(3) is not None else None if starts is None else list(range(len(starts)))
    plain = g.x(4) is None or (steps is not None and all(s == 1 for s in steps))
    if starts is None or axes is None or not plain or rank is None:
        rest = [g.x(i) for i in range(1, g.n_operands)]
        return copies(g, lambda p: b.Slice(p, *rest))
    before: list[Tensor] = []
    after: list[Tensor] = []
    for start, axis in zip(starts, axes, strict=True):
        size, kept = g.size(x, axis % rank), g.size(g.y(), axis % rank)
        # As Slice clamps it.
        begin = _clamped(g, start, size)
        before.append(begin)
        after.append(g.fold("Sub", g.fold("Sub", size, begin), kept))
    pads = g.join([*before, *after])
    return b.Pad(g.ct, pads, None, g.i64(axes))


def _clamped(g: Vjp, start: int, size: Tensor) -> Tensor:
    if start >= 0:
        return g.fold("Min", g.i64([start]), size)
    return g.fold("Max", g.fold("Add", size, g.i64([max(start, -(1 << 62))])), g.i64([0]))


@vjp("Expand")
def expand(g: Vjp) -> Tensor:
    return g.unbroadcast(g.ct, 0)


@vjp("Tile")
def tile(g: Vjp) -> Tensor:
    """The sum over the copies: each axis is split into how often and how much."""
    b, x = g.b, g.x(0)
    rank = g.rank(x)
    if rank == 0:
        return g.ct
    pairs = [b.Unsqueeze(v, g.i64([1])) for v in (g.x(1), g.shape_of(x))]
    sizes = b.Reshape(b.Concat(*pairs, axis=1), g.i64([-1]))
    return g.reduce_sum(b.Reshape(g.ct, sizes, allowzero=1), range(0, 2 * rank, 2))


@vjp("Pad")
def pad(g: Vjp) -> Gradients:
    b, mode = g.b, g.attr("mode")
    axes = [g.x(3)] if g.x(3) is not None else []
    if mode != "constant":
        return (copies(g, lambda p: b.Pad(p, g.x(1), None, *axes, mode=mode)),)
    # What was added is cut off, what was cut off is zero.
    inside = b.Pad(g.ct, b.Neg(g.x(1)), None, *axes)
    if g.x(2) is None or not g.needs(2):
        return (inside,)
    outside = b.Sub(b.ReduceSum(g.ct, keepdims=0), b.ReduceSum(inside, keepdims=0))
    return inside, None, g.reshape_like(outside, g.x(2))


@vjp("DepthToSpace")
def depth_to_space(g: Vjp) -> Tensor:
    return _to_depth(g, str(g.attr("mode")))


@vjp("SpaceToDepth")
def space_to_depth(g: Vjp) -> Tensor:
    return g.b.DepthToSpace(g.ct, blocksize=g.attr("blocksize"), mode=g.attr("mode") or "DCR")


def _to_depth(g: Vjp, mode: str) -> Tensor:
    b, size = g.b, g.attr("blocksize")
    if mode == "DCR":
        return b.SpaceToDepth(g.ct, blocksize=size)
    # Channels first: [N, C, H, p, W, q] -> [N, C, p, q, H, W].
    x = g.x(0)
    height, width = g.size(x, 2), g.size(x, 3)
    channels = g.size(g.y(), 1)
    block = g.i64([size])
    apart = b.Reshape(g.ct, b.Concat(g.size(x, 0), channels, height, block, width, block, axis=0))
    return g.reshape_like(b.Transpose(apart, perm=[0, 1, 3, 5, 2, 4]), x)


@vjp("ReverseSequence")
def reverse_sequence(g: Vjp) -> Tensor:
    return g.b.ReverseSequence(g.ct, g.x(1), batch_axis=g.attr("batch_axis"), time_axis=g.attr("time_axis"))
