"""Ops that move, cut and fill."""

from __future__ import annotations

import math

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import OpSpec

from ..generate import Call, Context, Reject, allowed
from ..graph import Value
from ..registry import axis_of, exact, samples

__all__ = ["some_axes"]

exact("Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile Pad Slice Concat Split CenterCropPad DepthToSpace")
exact("SpaceToDepth Shape Size ConstantOfShape EyeLike Range Trilu ReverseSequence TensorScatter")


def some_axes(g: Context, rank: int, least: int = 0) -> list[int]:
    """Some different axes, counted from either end, in any order."""
    if rank < least:
        raise Reject("too few axes")
    rest, found = list(range(rank)), []
    for _ in range(g.between(least, rank)):
        axis = rest.pop(g.below(len(rest)))
        found.append(axis - rank if g.chance(3) else axis)
    return found


@samples("Reshape")
def reshape(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    sizes, rest = [], x.array.size
    while rest > 1 and len(sizes) < 3:
        sizes.append(g.pick([d for d in range(1, rest + 1) if rest % d == 0]))
        rest //= sizes[-1]
    if rest != 1 or (not sizes and g.below(2)):
        sizes.append(rest)
    if x.array.size == 0:
        return Call([x, g.given([*x.shape, 1])], {"allowzero": 1})
    if sizes and g.below(2):
        at = g.below(len(sizes))
        sizes[at] = 0 if at < len(x.shape) and x.shape[at] == sizes[at] else -1
    return Call([x, g.given(np.array(sizes, np.int64))])


@samples("Flatten")
def flatten(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    rank = x.array.ndim
    return Call([x], {"axis": g.between(-rank, rank)} if g.below(3) else {"axis": min(1, rank)})


@samples("Squeeze")
def squeeze(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, fits=lambda v: 1 in v.shape, shape=lambda: (1, *g.dims(0, 2), 1))
    rank = x.array.ndim
    ones = [axis - rank * g.below(2) for axis, size in enumerate(x.shape) if size == 1]
    return Call([x] if g.chance(3) else [x, ones[g.below(len(ones)) :]])


@samples("Unsqueeze")
def unsqueeze(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 0, 3)
    count = g.between(1, 2)
    rank = x.array.ndim + count
    axes = [g.below(rank), *range(rank)]
    return Call([x, [a - rank * g.below(2) for a in dict.fromkeys(axes)][:count]])


@samples("Transpose")
def transpose(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    rest = list(range(x.array.ndim))
    return Call([x], {"perm": [rest.pop(g.below(len(rest))) for _ in range(x.array.ndim)]} if g.below(3) else {})


@samples("Expand")
def expand(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 0, 3)
    sizes = [g.pick((1, size)) if size != 1 else g.pick((2, 1, 3, 0)) for size in x.shape]
    sizes = [*g.dims(0, 2, 1), *sizes] if g.below(2) else sizes[g.below(len(sizes) + 1) :]
    return Call([x, np.array(sizes, np.int64)] if g.below(4) else [x, g.given(np.array(sizes, np.int64))])


@samples("Tile")
def tile(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 3)
    return Call([x, [g.pick((1, 2, 3, 0) if g.chance(4) else (1, 2)) for _ in x.shape]])


@samples("Pad")
def pad(g: Context, spec: OpSpec) -> Call:
    mode = g.pick(("constant", "reflect", "edge", "wrap"))
    x = g.take(allowed(spec, 0), 1, 4, least=0 if mode == "constant" else 2)
    rank = x.array.ndim
    axes = some_axes(g, rank, 1) if g.chance(3) else list(range(rank))
    first, last = ([], [])
    for axis in axes:
        size = x.shape[axis]
        most = size - 1 if mode == "reflect" else size if mode == "wrap" else 2
        least = -(size // 2) if mode == "constant" and g.chance(4) else 0
        first.append(g.between(least, most))
        last.append(g.between(least, most))
    fill = g.make(x.dtype, ()) if mode == "constant" and g.below(2) else None
    operands = [x, g.given(np.array(first + last, np.int64)), fill]
    return Call(operands + ([g.given(axes)] if axes != list(range(rank)) else []), {"mode": mode})


@samples("Slice")
def cut(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 4)
    axes = some_axes(g, x.array.ndim, 1) if g.below(2) else list(range(g.between(1, x.array.ndim)))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        starts.append(g.between(-size - 1, size + 1))
        ends.append(g.pick([size, *range(-size - 1, size + 2), 2**31 - 1, -(2**31)]))
        steps.append(g.pick((1, 1, 2, -1, -2)))
    kind = BY_NAME[g.pick(("int64", "int32"))]
    full = any(s != 1 for s in steps) or g.below(2)
    written = axes != list(range(len(axes))) or full
    operands = [g.given(v, kind) for v in (starts, ends)]
    return Call([x, *operands, *([g.given(axes, kind)] if written else []), *([g.given(steps, kind)] if full else [])])


@samples("Concat")
def concat(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1)
    axis = axis_of(g, x.array.ndim)
    at = axis % x.array.ndim

    def fits(v: Value) -> bool:
        return v.shape[:at] == x.shape[:at] and v.shape[at + 1 :] == x.shape[at + 1 :] and len(v.shape) == len(x.shape)

    def other() -> tuple[int, ...]:
        return (*x.shape[:at], g.between(0, 3), *x.shape[at + 1 :])

    return Call([x, *(g.take([x.dtype], fits=fits, shape=other) for _ in range(g.below(3)))], {"axis": axis})


@samples("Split")
def split(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    axis = axis_of(g, x.array.ndim)
    size = x.shape[axis]
    if g.below(2):
        count = g.between(1, size)
        # The last part is smaller where it does not come out even, but it is there.
        if math.ceil(size / count) * (count - 1) > size:
            raise Reject("empty parts")
        return Call([x], {"axis": axis, "num_outputs": count}, outputs=count)
    first = g.between(0, size)
    return Call([x, [first, size - first]], {"axis": axis}, outputs=2)


@samples("CenterCropPad")
def center_crop_pad(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 3, least=1)
    axes = some_axes(g, x.array.ndim, 1) if g.below(2) else None
    shape = [g.between(1, 5) for _ in (range(x.array.ndim) if axes is None else axes)]
    return Call([x, g.given(shape, g.pick(("int64", "int32")))], {"axes": axes} if axes else {})


@samples("DepthToSpace SpaceToDepth")
def blocks(g: Context, spec: OpSpec) -> Call:
    size, deep = g.pick((2, 1, 3)), spec.op_type == "DepthToSpace"
    n, c, h, w = (g.between(1, 3) for _ in range(4))
    shape = (n, c * size * size, h, w) if deep else (n, c, h * size, w * size)

    def fits(v: Value) -> bool:
        return v.shape[1] % (size * size) == 0 if deep else v.shape[2] % size == 0 and v.shape[3] % size == 0

    x = g.take(allowed(spec, 0), 4, 4, least=1, fits=fits, shape=lambda: shape)
    return Call([x], {"blocksize": size, **g.maybe(mode=["CRD", "DCR"])})


@samples("Shape")
def shape_of(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(allowed(spec, 0))], g.maybe(start=[1, -1, 0, 7, -9], end=[2, -1, 0, 9, -9]))


@samples("Size")
def size_of(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(allowed(spec, 0))])


@samples("ConstantOfShape")
def constant_of_shape(g: Context, spec: OpSpec) -> Call:
    kinds = [d for d in allowed(spec, "T2") if d.bits >= 8]
    shape = np.array(g.dims(0, 3), np.int64)
    value = {"value": g.make(g.dtype(kinds), (1,)).array} if g.below(3) else {}
    return Call([g.given(shape)], value)


@samples("EyeLike")
def eye_like(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 2)
    return Call([x], g.maybe(k=[1, -1, 5], dtype=[d.code for d in allowed(spec, 0) if d.kind != "bool"]))


@samples("Range")
def arange(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    start, limit, delta = g.between(-3, 3), g.between(-5, 8), g.pick((1, 2, -1, 3))
    scale = g.pick((1, 0.5, 0.25)) if kind.is_float else 1
    return Call([g.given(np.array(v * scale), kind) for v in (start, limit, delta)])


@samples("Trilu")
def trilu(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 4)
    return Call([x, g.given(np.array(g.between(-3, 3)))] if g.below(2) else [x], g.maybe(upper=[0, 1]))


@samples("ReverseSequence")
def reverse_sequence(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 4, least=1)
    time = g.pick((0, 1))
    lengths = [g.between(1, x.shape[time]) for _ in range(x.shape[1 - time])]
    return Call([x, g.given(lengths)], {"time_axis": time, "batch_axis": 1 - time})


@samples("TensorScatter")
def tensor_scatter(g: Context, spec: OpSpec) -> Call:
    kinds = [d for d in allowed(spec, 0) if d.bits >= 8]
    x = g.take(kinds, 3, 4, least=1)
    axis = g.pick((-2, *range(1, x.array.ndim)))
    size = x.shape[axis]
    length = g.between(1, size)
    shape = list(x.shape)
    shape[axis] = length
    mode = g.pick(("linear", "circular"))
    starts = [g.between(0, size - 1 if mode == "circular" else size - length) for _ in range(x.shape[0])]
    update = g.make(x.dtype, shape)
    return Call([x, update, g.given(starts)] if g.below(3) else [x, update], {"mode": mode, "axis": axis})
