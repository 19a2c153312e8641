"""Which sizes a value made from shapes holds, element by element, where some are known and others are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from xdsl.ir import SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.constants import ConstantData, constant
from irkit.ir.types import Dim, dtype_of, shape_of

__all__ = ["ShapeValues"]

MAX_RANK = 64


class ShapeValues:
    """Follows sizes through Shape, Gather, Slice, Concat and the like; shown the ops in program order."""

    def __init__(self) -> None:
        # A vector of sizes, or a single one as a scalar.
        self._known: dict[SSAValue, tuple[Dim, ...] | Dim] = {}

    def learn(self, op: OnnxOp) -> ConstantData | None:
        """Takes note of what an op's result holds. Returns the result as a constant where every size is known."""
        rule = _RULES.get(op.op_type)
        if rule is None or len(op.results) != 1:
            return None
        found = rule(self, op)
        if found is _NOTHING:
            return None
        self._known[op.results[0]] = found  # type: ignore[assignment]
        sizes: Sequence[Dim] = found if isinstance(found, tuple) else (found,)  # type: ignore[assignment]
        kind = dtype_of(op.results[0].type)
        if kind is None or not all(isinstance(d, int) for d in sizes):
            return None
        limits = np.iinfo(kind.numpy)
        if not all(limits.min <= d <= limits.max for d in sizes if isinstance(d, int)):
            return None
        return constant(np.array(found, kind.numpy), kind).data

    def of(self, value: SSAValue | None) -> object:
        """The sizes in a value: a tuple, a scalar, or the mark for nothing known."""
        if value is None:
            return _NOTHING
        if value in self._known:
            return self._known[value]
        data = constant_of(value)
        if data is None or not data.dtype.is_integer or len(data.shape) > 1 or data.size > MAX_RANK:
            return _NOTHING
        array = data.array()
        return int(array) if array.ndim == 0 else tuple(int(x) for x in array)

    # The ops

    def shape(self, op: OnnxOp) -> object:
        dims = shape_of(op.operands[0].type)
        return _NOTHING if dims is None else dims[slice(*_bounds(op, len(dims)))]

    def size(self, op: OnnxOp) -> object:
        dims = shape_of(op.operands[0].type)
        if dims is None or not all(isinstance(d, int) for d in dims):
            return _NOTHING
        return math.prod(d for d in dims if isinstance(d, int))

    def gather(self, op: OnnxOp) -> object:
        data, at = self._known.get(op.operands[0]), _integers(op.operands[1])
        if not isinstance(data, tuple) or at is None or op.attr("axis") not in (0, -1):
            return _NOTHING
        places = at if isinstance(at, tuple) else (at,)
        if not all(-len(data) <= i < len(data) for i in places):
            return _NOTHING
        return tuple(data[i] for i in at) if isinstance(at, tuple) else data[at]

    def slice(self, op: OnnxOp) -> object:
        data = self._known.get(op.operands[0])
        if not isinstance(data, tuple) or op.since < 10 or len(op.operands) < 3:
            return _NOTHING
        given = [_integers(v) for v in op.operands[1:]]
        if len(given) > 2 and op.operand(3) is None:
            given[2] = (0,)
        if any(not isinstance(g, tuple) or len(g) != 1 for g in given):
            return _NOTHING
        start, stop, axis, step = ([g[0] for g in given if isinstance(g, tuple)] + [0, 1][len(given) - 2 :])[:4]
        if axis not in (0, -1) or step == 0:
            return _NOTHING
        return data[_clamped(start, stop, step, len(data))]

    def concat(self, op: OnnxOp) -> object:
        if op.attr("axis") not in (0, -1) or not any(v in self._known for v in op.operands):
            return _NOTHING
        joined: tuple[Dim, ...] = ()
        for value in op.operands:
            part = self.of(value)
            if not isinstance(part, tuple):
                return _NOTHING
            joined += cast("tuple[Dim, ...]", part)
        return joined if len(joined) <= MAX_RANK else _NOTHING

    def unsqueeze(self, op: OnnxOp) -> object:
        if op.operands[0] not in self._known:
            return _NOTHING
        found, axes = self._known[op.operands[0]], _axes(op)
        return (found,) if not isinstance(found, tuple) and axes in ((0,), (-1,)) else _NOTHING

    def squeeze(self, op: OnnxOp) -> object:
        found = self._known.get(op.operands[0])
        if not isinstance(found, tuple) or len(found) != 1 or _axes(op) not in (None, (0,), (-1,)):
            return _NOTHING
        return found[0]

    def same(self, op: OnnxOp) -> object:
        kind = dtype_of(op.results[0].type)
        if op.operands[0] not in self._known or kind is None or not kind.is_integer or kind.bits < 32:
            return _NOTHING
        return self._known[op.operands[0]]


_NOTHING = object()

_RULES = {
    "Shape": ShapeValues.shape,
    "Size": ShapeValues.size,
    "Gather": ShapeValues.gather,
    "Slice": ShapeValues.slice,
    "Concat": ShapeValues.concat,
    "Unsqueeze": ShapeValues.unsqueeze,
    "Squeeze": ShapeValues.squeeze,
    "Cast": ShapeValues.same,
    "Identity": ShapeValues.same,
}


def _bounds(op: OnnxOp, rank: int) -> tuple[int, int]:
    """What Shape is asked for of a shape, clamped as its specification says."""
    start, end = op.attr("start") or 0, op.attr("end")
    end = rank if end is None else end
    start, end = (max(0, min(rank, i + rank if i < 0 else i)) for i in (start, end))
    return start, max(start, end)


def _clamped(start: int, stop: int, step: int, size: int) -> slice:
    """A slice as ONNX clamps it: out of range means the end, for a negative step the one before the beginning."""
    start, stop = (i + size if i < 0 else i for i in (start, stop))
    if step > 0:
        return slice(max(0, min(size, start)), max(0, min(size, stop)), step)
    start, stop = max(0, min(size - 1, start)), max(-1, min(size - 1, stop))
    return slice(start, None if stop < 0 else stop, step)


def _integers(value: SSAValue) -> tuple[int, ...] | int | None:
    data = constant_of(value)
    if data is None or not data.dtype.is_integer or len(data.shape) > 1 or data.size > MAX_RANK:
        return None
    array = data.array()
    return int(array) if array.ndim == 0 else tuple(int(x) for x in array)


def _axes(op: OnnxOp) -> tuple[int, ...] | None:
    given = op.operand(1)
    if given is not None:
        found = _integers(given)
        return found if isinstance(found, tuple) else ()
    axes = op.attr("axes") if "axes" in op.spec.attributes else None
    return axes if axes is None else tuple(axes)
