"""Ops on shapes and layouts: what became operands (axes, pads, starts, sizes), and defaults written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.dtypes import DType
from irkit.ir.types import dtype_of
from irkit.opsets.common import (
    INT64_MAX,
    attribute,
    carried,
    dynamic_rank,
    holds,
    impossible,
    int64,
    ints_of,
    narrowed,
    nonnegative,
    rank_of,
    scalar_float,
    sizes_of,
)
from irkit.opsets.registry import HINT, NEGATIVE_AXIS_SINCE, Results, decompose, lower, upgrade
from irkit.opsets.rewrite import HINT_KEPT

# Reshape


@upgrade("Reshape", 1)
def reshape_operand(b: Builder, op: OnnxOp) -> Results | None:
    shape = op.attr("shape")
    if not shape:
        return None
    made = b.Reshape(op.operands[0], int64(b, shape))
    if HINT in op.properties:
        made.ssa.owner.attributes[HINT_KEPT] = op.properties[HINT]
    return made


@decompose("Reshape", 1)
def reshape(b: Builder, op: OnnxOp) -> Results:
    return b.Reshape(op.operands[0], int64(b, op.attr("shape") or ()))


@lower("Reshape", 1, 5, 13)
def reshape_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, shape = op.operands
    sizes = ints_of(shape)
    if attribute(op, "allowzero") and (sizes is None or 0 in sizes):
        raise impossible(op, "the older form copies a size where the new one is 0 (allowzero=1 is not known)")
    if to.since > 1:
        return b.op(to, x, shape)
    if not sizes:
        raise impossible(op, "its shape is not constant" if sizes is None else "its new shape has no axes")
    hint: dict[str, Any] = {HINT: op.attributes[HINT_KEPT]} if HINT_KEPT in op.attributes else {}
    return b.op(to, x, shape=sizes, **hint)


# Squeeze and Unsqueeze


@upgrade("Squeeze", 1, 11)
def squeeze_operand(b: Builder, op: OnnxOp) -> Results | None:
    axes = op.attr("axes")
    if axes is not None and (not axes or _backwards(op, axes, rank_of(op.operands[0]))):
        return None
    return squeeze(b, op)


@decompose("Squeeze", 1, 11)
def squeeze(b: Builder, op: OnnxOp) -> Results:
    axes = op.attr("axes")
    return b.Squeeze(op.operands[0], None if axes is None else int64(b, axes))


@upgrade("Unsqueeze", 1, 11)
def unsqueeze_operand(b: Builder, op: OnnxOp) -> Results | None:
    axes = op.attr("axes")
    return None if _backwards(op, axes, rank_of(op.operands[0])) else unsqueeze(b, op)


@decompose("Unsqueeze", 1, 11)
def unsqueeze(b: Builder, op: OnnxOp) -> Results:
    return b.Unsqueeze(op.operands[0], int64(b, op.attr("axes")))


def _backwards(op: OnnxOp, axes: Any, rank: int | None) -> bool:
    """Whether axes count from the end where the older form does not, and can't be counted from the front."""
    return op.since < NEGATIVE_AXIS_SINCE and rank is None and any(a < 0 for a in axes)


@lower("Squeeze Unsqueeze", 1, 11)
def squeeze_attribute(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, given = op.operands[0], op.operand(1)
    axes = ints_of(given)
    if given is not None and axes is None:
        raise impossible(op, "its axes are not constant")
    if axes and to.since < NEGATIVE_AXIS_SINCE:
        rank = rank_of(x)
        if rank is not None and op.op_type == "Unsqueeze":
            rank += len(axes)
        axes = [nonnegative(op, axis, rank) for axis in axes]
    return b.op(to, x, axes=axes)


# Concat


@upgrade("Concat", 1)
def concat_axis(b: Builder, op: OnnxOp) -> Results | None:
    axis = op.attr("axis")
    if axis is None or (axis < 0 and rank_of(op.operands[0]) is None):
        return None
    return b.Concat(*op.operands, axis=axis)


@decompose("Concat", 1)
def concat(b: Builder, op: OnnxOp) -> Results:
    axis = op.attr("axis")
    return b.Concat(*op.operands, axis=1 if axis is None else axis)


@lower("Concat", 1)
def concat_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    return b.op(to, *op.operands, axis=nonnegative(op, attribute(op, "axis"), rank_of(op.operands[0])))


# Split


def _divisible(op: OnnxOp, axis: int, parts: int) -> bool | None:
    """Whether an axis falls into equal parts; None where its size is not known."""
    shape = sizes_of(op.operands[0])
    size = None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
    return size % parts == 0 if isinstance(size, int) else None


@upgrade("Split", 1, 2, 11, 13)
def split_sizes(b: Builder, op: OnnxOp) -> Results | None:
    axis, sizes, given = op.attr("axis"), op.attr("split"), op.operand(1)
    old = op.since < NEGATIVE_AXIS_SINCE
    if axis is None or (old and axis < 0 and rank_of(op.operands[0]) is None) or (op.since == 1 and given is not None):
        return None
    if sizes is None and given is None and not _divisible(op, axis, len(op.results)):
        return None
    return split(b, op) if sizes is None or len(sizes) == len(op.results) else None


@decompose("Split", 1, 2, 11, 13)
def split(b: Builder, op: OnnxOp) -> Results:
    axis, sizes, given, n = op.attr("axis") or 0, op.attr("split"), op.operand(1), len(op.results)
    made: Any
    if given is not None:
        made = b.Split(op.operands[0], b.Cast(given, to=7) if op.since == 1 else given, axis=axis, outputs=n)
    elif sizes is not None:
        made = b.Split(op.operands[0], int64(b, sizes), axis=axis, outputs=n)
    else:
        made = b.Split(op.operands[0], axis=axis, num_outputs=n, outputs=n)
    return made


@lower("Split", 1, 2, 11, 13)
def split_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, given, axis, n = op.operands[0], op.operand(1), attribute(op, "axis"), len(op.results)
    sizes = ints_of(given)
    if given is not None and sizes is None and to.since < 13:
        raise impossible(op, "its sizes are not constant")
    if given is None and not (equal := _divisible(op, axis, n)):
        shape = sizes_of(x)
        if equal is None or shape is None:
            raise impossible(op, "the older form makes equal parts alone, and the size of the axis is not known")
        size = shape[axis]
        assert isinstance(size, int)
        part = -(-size // n)
        sizes = [max(0, min(part, size - i * part)) for i in range(n)]
    if to.since == 13:
        return b.op(to, x, given if sizes is None or given is not None else int64(b, sizes), axis=axis, outputs=n)
    if to.since < NEGATIVE_AXIS_SINCE:
        axis = nonnegative(op, axis, rank_of(x))
    return b.op(to, x, axis=axis, split=sizes, outputs=n)


# Slice


@upgrade("Slice", 1)
def slice_operands(b: Builder, op: OnnxOp) -> Results | None:
    axes, rank = op.attr("axes"), rank_of(op.operands[0])
    # From opset 13 on no axes means all of them.
    if rank is None and (axes is None or min(axes, default=0) < 0):
        return None
    if axes is None and len(op.attr("starts")) != rank:
        return None
    x, starts, ends = op.operands[0], int64(b, op.attr("starts")), int64(b, op.attr("ends"))
    return b.Slice(x, starts, ends, None if axes is None else int64(b, axes))


@decompose("Slice", 1)
def slice_(b: Builder, op: OnnxOp) -> Results:
    starts, ends, axes = op.attr("starts"), op.attr("ends"), op.attr("axes")
    axes = range(len(starts)) if axes is None else axes
    return b.Slice(op.operands[0], int64(b, starts), int64(b, ends), int64(b, axes))


@lower("Slice", 1)
def slice_attributes(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, steps, rank = op.operands[0], op.operand(4), rank_of(op.operands[0])
    starts, ends, axes = (ints_of(op.operand(i)) for i in (1, 2, 3))
    if starts is None or ends is None or (op.operand(3) is not None and axes is None):
        raise impossible(op, "its starts, ends and axes are not all constant")
    if steps is not None and any(step != 1 for step in ints_of(steps) or [0]):
        raise impossible(op, "the older form knows no steps")
    axes = None if axes is None else [nonnegative(op, axis, rank) for axis in axes]
    return b.op(to, x, starts=starts, ends=ends, axes=axes)


@lower("Slice", 10)
def slice_from_front(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    axes = ints_of(op.operand(3))
    if axes is None or min(axes, default=0) >= 0:
        return b.op(to, *op.operands)
    kind = dtype_of(op.operands[3].type)
    assert kind is not None
    counted = np.array([nonnegative(op, axis, rank_of(op.operands[0])) for axis in axes], kind.numpy)
    return b.op(to, *op.operands[:3], b.constant(counted), *op.operands[4:])


# Pad


@upgrade("Pad", 1, 2)
def pads_operand(b: Builder, op: OnnxOp) -> Results | None:
    kind, value = dtype_of(op.operands[0].type), op.attr("value") or 0.0
    return pad(b, op) if value == 0 or (kind is not None and holds(value, kind)) else None


@decompose("Pad", 1, 2)
def pad(b: Builder, op: OnnxOp) -> Results | None:
    pads = int64(b, op.attr("paddings" if op.since == 1 else "pads"))
    kind, value = dtype_of(op.operands[0].type), op.attr("value") or 0.0
    if np.float32(value).tobytes() == bytes(4):
        return b.Pad(op.operands[0], pads, mode=op.properties.get("mode"))
    return None if kind is None else b.Pad(op.operands[0], pads, narrowed(value, kind), mode=op.properties.get("mode"))


@lower("Pad", 1, 2, 11, 13)
def pad_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, pads, fill = op.operands[0], op.operands[1], op.operand(2)
    mode = attribute(op, "mode")
    if mode not in ("constant", "reflect", "edge"):
        raise impossible(op, f"the older form knows no mode='{mode}'")
    amounts = ints_of(pads)
    if op.operand(3) is not None:
        amounts = _on_all_axes(op, amounts)
        pads = int64(b, amounts).ssa if to.since >= 11 else pads
    if to.since >= 11:
        return b.op(to, x, pads, fill, **carried(op))
    if amounts is None:
        raise impossible(op, "its pads are not constant")
    value = None if fill is None else scalar_float(fill)
    if fill is not None and value is None:
        raise impossible(op, "the value it pads with is not a constant that float32 can hold")
    name = "paddings" if to.since == 1 else "pads"
    return b.op(to, x, value=value, **{name: amounts}, **carried(op))


def _on_all_axes(op: OnnxOp, amounts: list[int] | None) -> list[int]:
    axes, rank = ints_of(op.operand(3)), rank_of(op.operands[0])
    if axes is None or amounts is None or rank is None:
        raise impossible(op, "the older form pads all axes, and its axes, pads or rank are not known")
    spread = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        spread[axis % rank] = amounts[index]
        spread[axis % rank + rank] = amounts[index + len(axes)]
    return spread


# Tile


@decompose("Tile", 1)
def tile_axis(b: Builder, op: OnnxOp) -> Results:
    x, tiles, axis = op.operands
    one = int64(b, [1])
    place = b.Reshape(b.Cast(axis, to=7), one)
    count = b.Reshape(b.Cast(tiles, to=7), one)
    ones = b.ConstantOfShape(dynamic_rank(b, x), value=np.ones(1, np.int64))
    return b.Tile(x, b.ScatterElements(ones, place, count, axis=0))


@lower("Tile", 1)
def tile_by_axis(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, repeats, kind = op.operands[0], ints_of(op.operands[1]), dtype_of(op.operands[0].type)
    if repeats is None or kind is None:
        raise impossible(op, "its repeats are not constant, or its dtype is not known")
    made: Any = x
    for axis, count in enumerate(repeats):
        if count != 1:
            made = b.op(to, made, _scalar(b, count, kind), _scalar(b, axis, kind))
    return b.Identity(x) if made is x else made


def _scalar(b: Builder, value: int, kind: DType) -> Any:
    return b.constant(np.array(value, kind.numpy))


# Shape


@lower("Shape", 1, 13)
def shape_of_all(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    start, end = attribute(op, "start"), attribute(op, "end")
    whole = b.op(to, op.operands[0])
    if start == 0 and end is None:
        return whole
    # Slice clamps as Shape does, but for an end before the start, which gives an empty shape in both.
    return b.Slice(whole, int64(b, [start]), int64(b, [INT64_MAX if end is None else end]), int64(b, [0]))
