"""Operations that move elements about: reshapes, transposes, concatenation, padding, repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import FIRST, LAST, Value, place, to_first
from irkit.ir.builder import Tensor


def target(c: Emitter, shape: Sequence[int | Dim], source: Sequence[int | Dim] = ()) -> Tensor:
    """A shape to reshape to. Sizes that depend on the input's are copied from ``source``, where they stand at the same
    place, and one is left for the op to find.
    """
    if 0 in shape or 0 in source:
        return c.vector(shape)
    found = [
        0 if isinstance(d, Dim) and i < len(source) and source[i] == d else -1 if isinstance(d, Dim) else d
        for i, d in enumerate(shape)
    ]
    return c.b.constant(np.array(found, np.int64)) if found.count(-1) <= 1 else c.vector(shape)


def reshaped(c: Emitter, x: Any, shape: Sequence[int | Dim]) -> Value:
    """A value with other axes, its elements in the same order."""
    if isinstance(x, Value) and x.shape == tuple(shape):
        return x
    b, rank, old = c.b, len(shape), x.shape if isinstance(x, Value) else np.shape(x)
    if isinstance(x, Value) and x.flat and x.rank >= 3 and not x.has(LAST):
        # With nothing between the first axis and the last, the layouts are the same in memory.
        source, old = c.first(x), [old[a] for a in to_first(x.rank)]
    else:
        source = c.get(x)

    def maker(order: Sequence[int]) -> Any:
        return lambda: b.Reshape(source, target(c, [shape[i] for i in order], old))

    makers = {LAST: maker(range(rank))}
    if rank >= 3 and all(d == 1 for d in shape[1:-1]):
        makers[FIRST] = maker(to_first(rank))
        return Value(shape, str(source.dtype), depth=b.depth, makers=makers)
    return Value(shape, str(source.dtype), makers[LAST](), depth=b.depth)


@converter("Reshape", "Ravel", "ExpandDims", "Squeeze")
def reshape(c: Emitter, op: Any, x: Any) -> Any:
    if op.kind in ("ExpandDims", "Squeeze") and x.has(LAST):
        axes = op.axis if isinstance(op.axis, (list, tuple)) else [op.axis]
        if op.kind == "Squeeze":
            axes = [i for i, d in enumerate(x.shape) if d == 1] if op.axis is None else axes
            return c.b.Squeeze(c.get(x), np.array([a % x.rank for a in axes], np.int64))
        if sum(isinstance(d, Dim) for d in c.out.shape) > 1:
            full = len(c.out.shape)
            return c.b.Unsqueeze(c.get(x), np.array(sorted(a % full for a in axes), np.int64))
    return reshaped(c, x, c.out.shape)


@converter("Transpose", "Swapaxes", "Moveaxis")
def transpose(c: Emitter, op: Any, x: Any) -> Value:
    order = list(range(x.rank))
    if op.kind == "Transpose":
        order = order[::-1] if op.axes is None else [a % x.rank for a in op.axes]
    elif op.kind == "Swapaxes":
        i, j = op.axis1 % x.rank, op.axis2 % x.rank
        order[i], order[j] = j, i
    else:
        pairs = [op.source], [op.destination]
        if not isinstance(op.source, int):
            pairs = list(op.source), list(op.destination)
        taken = [a % x.rank for a in pairs[0]]
        order = [a for a in order if a not in taken]
        for at, axis in sorted(zip((d % x.rank for d in pairs[1]), taken, strict=True)):
            order.insert(at, axis)
    return permuted(c, x, order)


def permuted(c: Emitter, x: Any, order: Sequence[int]) -> Value:
    """A value with its axes in another order; one that only changes the layout costs nothing."""
    order = list(order)
    if order == list(range(x.rank)):
        return x
    if x.rank >= 3 and x.has(FIRST) and order == to_first(x.rank):
        return c.value(c.first(x))
    layout = c.layout(x)
    perm = [place(a, x.rank, layout) for a in order]
    made = c.form(x, layout)
    return c.value(made if perm == list(range(x.rank)) else c.b.Transpose(made, perm=perm))


@converter("Concatenate", "Hstack", "Vstack", "Dstack", "Append", "Stack")
def concatenate(c: Emitter, op: Any, *args: Any) -> Any:
    xs = list(args) if op.kind == "Append" else list(args[0])
    dtype, rank = c.out.dtype, len(c.out.shape)
    if op.kind == "Append" and op.axis is None:
        return c.b.Concat(*(c.b.Reshape(c.get(x, dtype), np.array([-1])) for x in xs), axis=0)
    if op.kind == "Stack":
        axis = op.axis % rank
        return c.b.Concat(*(c.b.Unsqueeze(c.get(x, dtype), np.array([axis])) for x in xs), axis=axis)
    if op.kind in ("Hstack", "Vstack", "Dstack"):
        axis = {"Hstack": 0 if rank == 1 else 1, "Vstack": 0, "Dstack": 2}[op.kind]
        shapes = [x.shape if isinstance(x, Value) else np.shape(x) for x in xs]
        tensors = [
            c.b.Reshape(c.get(x, dtype), c.vector(_at_least(s, rank, op.kind))) for x, s in zip(xs, shapes, strict=True)
        ]
        return c.b.Concat(*tensors, axis=axis)
    layout = c.layout(*xs)
    made = c.b.Concat(*(c.form(x, layout, dtype) for x in xs), axis=place(op.axis, rank, layout))
    return c.value(made, layout)


def _at_least(shape: Sequence[Any], rank: int, kind: str) -> list[Any]:
    """A shape with the axes of size 1 that stacking adds: in front, for Dstack at the end too."""
    if kind == "Dstack":
        shape = [1, *shape] if len(shape) < 2 else list(shape)
        return [*shape, *[1] * (rank - len(shape))]
    return [*[1] * (rank - len(shape)), *shape]


PADDING = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap", "symmetric": "symmetric"}


@converter("Pad")
def pad(c: Emitter, op: Any, x: Any, constant_values: Any = None) -> Value:
    widths = list(op.pad_width)
    if len(widths) == 1:
        widths = widths * x.rank
    if op.mode not in PADDING:
        raise c.refusal(f"padding of mode '{op.mode}' has no form in ONNX")
    return padded(c, x, widths, op.mode, 0 if constant_values is None else constant_values)


def padded(c: Emitter, x: Any, widths: Sequence[Any], mode: str = "constant", value: Any = 0) -> Value:
    """A value padded by (before, after) on each axis."""
    if mode == "symmetric":
        return _symmetric(c, x, widths)
    axes = [i for i, pair in enumerate(widths) if any(not (isinstance(p, int) and p == 0) for p in pair)]
    if not axes:
        return x
    layout = c.layout(x)
    at = sorted((place(a, x.rank, layout), a) for a in axes)
    pads = c.vector([widths[a][0] for _, a in at] + [widths[a][1] for _, a in at])
    fill = c.get(value if isinstance(value, Value) else np.asarray(value), x.dtype) if mode == "constant" else None
    made = c.b.Pad(c.form(x, layout), pads, fill, np.array([p for p, _ in at], np.int64), mode=mode)
    return c.value(made, layout)


def _symmetric(c: Emitter, x: Any, widths: Sequence[Any]) -> Value:
    """Reflection with the edge repeated: by an index of each axis, since ONNX reflects without it."""
    made = c.get(x)
    for axis, pair in enumerate(c.static(list(widths), "the padding")):
        if any(pair):
            size = c.static(x.shape[axis], "a size that is reflected")
            index = np.pad(np.arange(size), pair, mode="symmetric")
            made = c.b.Gather(made, index.astype(np.int64), axis=axis)
    return c.value(made)


@converter("Tile")
def tile(c: Emitter, op: Any, x: Any) -> Tensor:
    repeats = [op.repeats] if isinstance(op.repeats, (int, Dim)) else list(op.repeats)
    rank = max(x.rank, len(repeats))
    made = c.get(x)
    if rank > x.rank:
        made = c.b.Unsqueeze(made, np.arange(rank - x.rank))
    return c.b.Tile(made, c.vector([*[1] * (rank - len(repeats)), *repeats]))


@converter("Repeat")
def repeat(c: Emitter, op: Any, x: Any) -> Tensor:
    """Each element several times in a row: by an axis behind, tiled; or by an index where the numbers differ."""
    axis, made = op.axis, c.get(x)
    shape = list(x.shape)
    if axis is None:
        made, axis, shape = c.b.Reshape(made, np.array([-1])), 0, [math.prod(shape)]
    axis %= len(shape)
    counts = op.repeats if isinstance(op.repeats, (list, tuple, np.ndarray)) else [op.repeats]
    if len(counts) > 1:
        index = np.repeat(np.arange(len(counts)), c.static(list(counts), "the number of repetitions"))
        return c.b.Gather(made, index.astype(np.int64), axis=axis)
    wide = c.b.Unsqueeze(made, np.array([axis + 1]))
    tiled = c.b.Tile(wide, c.vector([*[1] * (axis + 1), *counts, *[1] * (len(shape) - axis - 1)]))
    return c.b.Reshape(tiled, target(c, c.out.shape))


@converter("BroadcastTo")
def broadcast_to(c: Emitter, op: Any, x: Any) -> Tensor:
    return c.b.Expand(c.get(x), c.vector(c.out.shape))


@converter("Split", "ArraySplit", "Hsplit", "Vsplit", "Dsplit")
def split(c: Emitter, op: Any, x: Any) -> list[Value]:
    axis = {"Hsplit": 0 if x.rank == 1 else 1, "Vsplit": 0, "Dsplit": 2}.get(op.kind)
    axis = op.axis if axis is None else axis
    layout = c.layout(x)
    sizes = [out.shape[axis] for out in c.outs]
    if len(sizes) == 1:
        return [x]
    made = c.b.Split(c.form(x, layout), c.vector(sizes), axis=place(axis, x.rank, layout), outputs=len(sizes))
    return [c.value(part, layout, index=i) for i, part in enumerate(made)]


@converter("Unstack")
def unstack(c: Emitter, op: Any, x: Any) -> list[Tensor]:
    return [c.b.Gather(c.get(x), np.asarray(i, np.int64), axis=op.axis) for i in range(len(c.outs))]


@converter("Flip", "Fliplr", "Flipud")
def flip(c: Emitter, op: Any, x: Any) -> Value:
    axes = {"Fliplr": [1], "Flipud": [0]}.get(op.kind)
    if axes is None:
        axes = range(x.rank) if op.axis is None else [op.axis] if isinstance(op.axis, int) else op.axis
    return flipped(c, x, [a % x.rank for a in axes])


def flipped(c: Emitter, x: Any, axes: Sequence[int]) -> Value:
    """A value with the order of its elements reversed along some axes."""
    layout = c.layout(x)
    at = np.array(sorted(place(a, x.rank, layout) for a in axes), np.int64)
    far = np.iinfo(np.int64)
    ends, steps = np.full(len(at), far.min), np.full(len(at), -1)
    return Value(
        x.shape,
        x.dtype,
        c.b.Slice(c.form(x, layout), np.full(len(at), -1), ends, at, steps),
        layout=layout,
        depth=c.b.depth,
    )


@converter("Roll")
def roll(c: Emitter, op: Any, x: Any) -> Tensor:
    """Each axis cut in two at the shift and put together the other way round."""
    made = c.get(x)
    if op.axis is None:
        made, axes, sizes = c.b.Reshape(made, np.array([-1])), [0], [math.prod(x.shape)]
        shifts = [op.shift]
    else:
        axes = [op.axis] if isinstance(op.axis, int) else list(op.axis)
        shifts = [op.shift] * len(axes) if isinstance(op.shift, (int, Dim)) else list(op.shift)
        sizes = [x.shape[a] for a in axes]
    for axis, shift, size in zip(axes, shifts, sizes, strict=True):
        cut = size - shift % size if not isinstance(size, Dim) or isinstance(shift, Dim) else -shift
        if isinstance(cut, int) and cut == size:
            continue
        at, far = c.vector([cut]), np.array([1 << 62])
        head = c.b.Slice(made, np.array([0]), at, np.array([axis]))
        tail = c.b.Slice(made, at, far, np.array([axis]))
        made = c.b.Concat(tail, head, axis=axis)
    return made if op.axis is not None else c.b.Reshape(made, target(c, c.out.shape))


@converter("Rot90")
def rot90(c: Emitter, op: Any, x: Any) -> Value:
    i, j = (a % x.rank for a in op.axes)
    turns = op.k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flipped(c, x, [i, j])
    order = list(range(x.rank))
    order[i], order[j] = j, i
    if turns == 1:
        return permuted(c, flipped(c, x, [j]), order)
    return flipped(c, permuted(c, x, order), [j])


@converter("Meshgrid")
def meshgrid(c: Emitter, op: Any, *xs: Any) -> list[Tensor]:
    made: list[Tensor] = []
    for i, x in enumerate(xs):
        shape: list[Any] = [1] * len(xs)
        at = i if op.indexing != "xy" or len(xs) < 2 or i > 1 else 1 - i
        shape[at] = -1
        made.append(c.b.Expand(c.b.Reshape(c.get(x), np.array(shape)), c.vector(c.outs[i].shape)))
    return made


def channels(op: Any) -> bool:
    """Whether the channels come last."""
    return op.data_format == "channels_last"


@converter("DepthToSpace", "SpaceToDepth")
def depth_to_space(c: Emitter, op: Any, x: Any) -> Value:
    """Blocks of pixels to channels and back; a block's pixels are the slower part of the channels, as in DCR."""
    layout = FIRST if channels(op) else LAST
    made = c.form(x, layout)
    if op.kind == "DepthToSpace":
        return c.value(c.b.DepthToSpace(made, blocksize=op.block_size, mode="DCR"), layout)
    return c.value(c.b.SpaceToDepth(made, blocksize=op.block_size), layout)
