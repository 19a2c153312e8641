"""The forms of the ops that are not elementwise, by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from xdsl.ir import SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import value_of
from irkit.ir.constants import ConstantData
from irkit.ir.types import Shape, dtype_of, shape_of
from irkit.passes.layout.forms import Form, Moving, form, integers, plain, rank_of, whole
from irkit.passes.layout.perms import Axes, Perm, identity, inverse, is_identity

__all__ = ["CHANNELS_FIRST"]

CHANNELS_FIRST = frozenset(
    f"onnx.{name}"
    for name in "Conv ConvTranspose ConvInteger QLinearConv DeformConv MaxPool AveragePool LpPool GlobalMaxPool "
    "GlobalAveragePool GlobalLpPool MaxUnpool MaxRoiPool RoiAlign BatchNormalization InstanceNormalization "
    "GroupNormalization LRN DepthToSpace SpaceToDepth GridSample Col2Im".split()
)
"""Ops whose first operand and first result are NCHW, whatever else they are."""


def _axis(op: OnnxOp, rank: int, name: str = "axis") -> int | None:
    axis = op.attr(name)
    return axis + rank * (axis < 0) if isinstance(axis, int) and -rank <= axis < rank else None


def _is_float(op: OnnxOp) -> bool:
    info = dtype_of(op.operands[0].type)
    return info is None or info.kind in ("float", "complex")


# Along an axis


def _along(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
    axis = cast(int, _axis(m.op, m.form.rank))
    return m.make(operands, axis=m.place[axis])


def _along_axis(op: OnnxOp, *others: int, rank: int | None = None) -> Form | None:
    rank = rank_of(op.operands[0]) if rank is None else rank
    if rank is None or _axis(op, rank) is None or any(rank_of(r) != rank for r in op.results):
        return None
    if any(i not in others and rank_of(v) != rank for i, v in enumerate(op.operands)):
        return None
    return Form(rank, whole(op, rank, *others), (identity(rank),) * len(op.results), _along)


@form("Concat", "Split", "TopK", "GatherElements", "ScatterElements", "Compress")
def along_an_axis(op: OnnxOp, opset: int) -> Form | None:
    others = {"Split": (1,), "TopK": (1,), "Compress": (1,)}.get(op.op_type, ())
    return _along_axis(op, *others)


@form("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def normalized_along_an_axis(op: OnnxOp, opset: int) -> Form | None:
    """Below opset 13 Softmax flattens all axes from one on: only along the last is it what it is now."""
    found = _along_axis(op)
    if found is None:
        return None
    axis, last = _axis(op, found.rank), found.rank - 1
    anywhere = opset >= 13 or op.op_type == "LpNormalization"

    def fits(order: Perm) -> bool:
        return anywhere or order[last] == axis

    return Form(found.rank, found.operands, found.results, _along, fits, exact=op.op_type == "Hardmax")


@form("CumSum")
def cumulative(op: OnnxOp, opset: int) -> Form | None:
    rank, axis = rank_of(op.operands[0]), integers(op.operands[1])
    if rank is None or axis is None or len(axis) != 1:
        return None

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        data = constant_of(op.operands[1])
        assert data is not None
        place = np.full(data.shape, m.place[axis[0]], data.dtype.numpy)
        return m.make([operands[0], m.constant(ConstantData(data.dtype, data.shape, place))])

    return Form(rank, whole(op, rank, 1), (identity(rank),), build)


@form("Gather")
def gather(op: OnnxOp, opset: int) -> Form | None:
    """Indices that are a vector keep the axis, a single one takes it away."""
    rank, indices = rank_of(op.operands[0]), rank_of(op.operands[1])
    axis = None if rank is None else _axis(op, rank)
    if rank is None or axis is None or indices not in (0, 1):
        return None
    left = identity(rank) if indices else tuple(a for a in identity(rank) if a != axis)
    return Form(rank, (identity(rank), None), (left,), _along)


# Reductions

_ANY_ORDER = ("ReduceMax", "ReduceMin")


@form(
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)
def reduction(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    given = None if op.operand(1) is None else integers(op.operands[1])
    if rank is None or (given is None and op.operand(1) is not None):
        return None
    axes = [a % rank for a in given or ()] if rank else []
    taken = axes or ([] if op.attr("noop_with_empty_axes") else list(range(rank)))
    left = identity(rank) if op.attr("keepdims") else tuple(a for a in range(rank) if a not in taken)

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        return m.make([operands[0], m.axes(axes)] if axes else operands)

    exact = op.op_type in _ANY_ORDER or not _is_float(op)
    return Form(rank, whole(op, rank, 1), (left,), build, exact=exact)


@form("ArgMax", "ArgMin")
def arg_reduction(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    axis = None if rank is None else _axis(op, rank)
    if rank is None or axis is None:
        return None
    left = identity(rank) if op.attr("keepdims") else tuple(a for a in range(rank) if a != axis)
    return Form(rank, (identity(rank),), (left,), _along)


# Normalizations


@form("LayerNormalization", "RMSNormalization")
def layer_normalization(op: OnnxOp, opset: int) -> Form | None:
    """The axes normalized stay the last ones, of which scale and bias have all."""
    rank = rank_of(op.operands[0])
    axis = None if rank is None else _axis(op, rank)
    if rank is None or axis is None or any(rank_of(r) != rank for r in op.results):
        return None
    last = identity(rank)[axis:]
    if any(op.operand(i) is not None and rank_of(op.operands[i]) != len(last) for i in range(1, len(op.operands))):
        return None
    operands = tuple(None if op.operand(i) is None else last if i else identity(rank) for i in range(len(op.operands)))
    results = (identity(rank),) * len(op.results)
    return Form(rank, operands, results, plain, lambda order: set(order[axis:]) == set(last), exact=False)


# Quantization


@form("QuantizeLinear", "DequantizeLinear")
def quantization(op: OnnxOp, opset: int) -> Form | None:
    """One scale, one along an axis, or one for each block of as many axes."""
    rank = rank_of(op.operands[0])
    ranks = {rank_of(op.operands[i]) for i in range(1, len(op.operands)) if op.operand(i) is not None}
    if rank is None or len(ranks) != 1 or not ranks <= {0, 1, rank}:
        return None
    kind = ranks.pop()
    along = kind != 0 and shape_of(op.operands[1].type) != (1,)
    if along and _axis(op, rank) is None:
        return None
    others = () if kind == rank and rank > 1 else (1, 2)
    return Form(rank, whole(op, rank, *others), (identity(rank),), _along if along else plain)


@form("DynamicQuantizeLinear")
def dynamic_quantization(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    return None if rank is None else Form(rank, (identity(rank),), (identity(rank), None, None), plain)


# Shapes


@form("Slice")
def slicing(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    counts = shape_of(op.operands[1].type)
    if rank is None or counts is None or not isinstance(counts[0], int):
        return None
    axes = list(range(counts[0])) if op.operand(3) is None else integers(op.operands[3])
    if axes is None:
        return None

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        info = dtype_of(op.operands[1].type)
        places = m.numbers([m.place[a] for a in axes], info.name if info else "int64")
        return m.make([*operands[:3], places, *operands[4:]])

    return Form(rank, whole(op, rank, 1, 2, 3, 4), (identity(rank),), build)


@form("Pad")
def padding(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    axes = None if op.operand(3) is None else integers(op.operands[3])
    if rank is None or (axes is None and op.operand(3) is not None):
        return None

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        if axes is None:
            both = [*m.order, *(rank + a for a in m.order)]
            return m.make([operands[0], m.reordered(operands[1], both), *operands[2:]])
        info = dtype_of(op.operands[3].type)
        places = m.numbers([m.place[a] for a in axes], info.name if info else "int64")
        return m.make([*operands[:3], places])

    return Form(rank, whole(op, rank, 1, 2, 3), (identity(rank),), build)


@form("Tile")
def tiling(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    if rank is None:
        return None

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        return m.make([operands[0], m.reordered(operands[1], m.order)])

    return Form(rank, whole(op, rank, 1), (identity(rank),), build)


@form("Expand")
def expansion(op: OnnxOp, opset: int) -> Form | None:
    """Broadcasting to a shape, which may have fewer axes than what is broadcast."""
    rank, count = rank_of(op.results[0]), shape_of(op.operands[1].type)
    own = rank_of(op.operands[0])
    if rank is None or own is None or count is None or not isinstance(count[0], int):
        return None
    sizes = integers(op.operands[1])
    if count[0] != rank and sizes is None:
        return None

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        x = m.broadcast(operands[0], m.form.operands[0])
        if sizes is None:
            return m.make([x, m.reordered(operands[1], m.order)])
        every = [1] * (rank - len(sizes)) + sizes
        return m.make([x, m.numbers([every[a] for a in m.order])])

    return Form(rank, (identity(rank)[rank - own :], None), (identity(rank),), build)


@form("Shape")
def shape(op: OnnxOp, opset: int) -> Form | None:
    """The sizes are put back into their order."""
    rank = rank_of(op.operands[0])
    if rank is None:
        return None
    start, end = op.attr("start") or 0, op.attr("end")
    wanted = range(rank)[slice(start, end)]

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        sizes = m.b.Shape(m.b.wrap(operands[0]))
        return [value_of(m.b.Gather(sizes, np.array([m.place[a] for a in wanted], np.int64), axis=0))]

    return Form(rank, (identity(rank),), (None,), build)


@form("Size")
def size(op: OnnxOp, opset: int) -> Form | None:
    rank = rank_of(op.operands[0])
    return None if rank is None else Form(rank, (identity(rank),), (None,), plain)


# Ops that only add or drop axes of size 1


def _regrouping(before: Axes, after: Axes, rank: int) -> Form:
    """An op that drops the axes which only the operand has, and adds those which only the result has."""

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        old, new = [a for a in m.order if a in before], [a for a in m.order if a in after]
        x = m.squeezed(operands[0], [i for i, a in enumerate(old) if a not in after])
        return [m.unsqueezed(x, [i for i, a in enumerate(new) if a not in before])]

    return Form(rank, (before, None), (after,), build)


@form("Squeeze", "Unsqueeze")
def axes_in_or_out(op: OnnxOp, opset: int) -> Form | None:
    wide = op.operands[0] if op.op_type == "Squeeze" else op.results[0]
    dims = shape_of(wide.type)
    axes = integers(op.operands[1]) if op.operand(1) is not None else None
    if dims is None or (axes is None and (op.operand(1) is not None or not all(isinstance(d, int) for d in dims))):
        return None
    rank = len(dims)
    moved = [a for a in range(rank) if dims[a] == 1] if axes is None else [a % rank for a in axes]
    narrow = tuple(a for a in range(rank) if a not in moved)
    first, last = (identity(rank), narrow) if op.op_type == "Squeeze" else (narrow, identity(rank))
    found = _regrouping(first, last, rank)
    return Form(rank, found.operands[: len(op.operands)], found.results, found.build)


@form("Reshape", "Flatten")
def reshaping(op: OnnxOp, opset: int) -> Form | None:
    """A Reshape that moves no other axis than such of size 1."""
    before, after = shape_of(op.operands[0].type), shape_of(op.results[0].type)
    axes = None if before is None or after is None else _matched(before, after)
    if axes is None:
        return None
    old, new, rank = axes
    found = _regrouping(old, new, rank)
    return Form(rank, found.operands[: len(op.operands)], found.results, found.build)


def _matched(before: Shape, after: Shape) -> tuple[Axes, Axes, int] | None:
    """The axes of an operand and a result among those of both; None where they differ in more than axes of size 1."""
    if [d for d in before if d != 1] != [d for d in after if d != 1] or None in before:
        return None
    old: list[int] = []
    new: list[int] = []
    i = j = rank = 0
    while i < len(before) or j < len(after):
        left = before[i] if i < len(before) else None
        right = after[j] if j < len(after) else None
        # Axes that both have, of whatever size; else one of size 1 that only one of them has.
        if left == right or left == 1:
            old.append(rank)
            i += 1
        if left == right or left != 1:
            new.append(rank)
            j += 1
        rank += 1
    return tuple(old), tuple(new), rank


# Images


@form("Resize")
def resizing(op: OnnxOp, opset: int) -> Form | None:
    """Interpolation goes axis by axis, in their order, and cubic only along the last ones."""
    rank = rank_of(op.operands[0])
    if rank is None:
        return None
    given = cast("Sequence[int] | None", op.attr("axes"))
    axes = None if given is None else [a % rank for a in given]
    resized = _resized(op, rank, axes)
    mode = cast(object, op.attr("mode"))

    def fits(order: Perm) -> bool:
        if mode in ("nearest", b"nearest") or is_identity(order):
            return True
        if resized is None:
            return False
        places = [inverse(order)[a] for a in resized]
        in_order = places == sorted(places)
        return in_order and (mode in ("linear", b"linear") or not places or places[0] == rank - len(places))

    def build(m: Moving, operands: list[SSAValue]) -> list[SSAValue]:
        if axes is not None:
            return m.make(operands, axes=tuple(m.place[a] for a in axes))
        moved = [operands[0]]
        for index, value in enumerate(operands[1:], 1):
            data = constant_of(value)
            if op.operand(index) is None or (data is not None and data.size == 0):
                moved.append(value)
            else:
                both = [*m.order, *(rank + a for a in m.order)]
                moved.append(m.reordered(value, both if index == 1 else m.order))
        return m.make(moved)

    return Form(rank, whole(op, rank, 1, 2, 3), (identity(rank),), build, fits, exact=mode in ("nearest", b"nearest"))


def _resized(op: OnnxOp, rank: int, axes: Sequence[int] | None) -> list[int] | None:
    """The axes of which the size changes, if that is known."""
    if axes is not None:
        return sorted(axes)
    scales = constant_of(op.operand(2))
    if scales is not None and scales.size == rank:
        return [a for a, scale in enumerate(scales.array().reshape(-1)) if scale != 1]
    before, after = shape_of(op.operands[0].type), shape_of(op.results[0].type)
    if before is None or after is None:
        return None
    return [a for a in range(rank) if before[a] is None or before[a] != after[a]]
