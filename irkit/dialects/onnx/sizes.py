"""Which sizes a value computed from shapes holds, element by element, symbolic ones included.

Models compute shapes with ops: ``Shape``, ``Gather``, ``Mul``, ``Concat``, and then ``Reshape``. What such a value
holds is followed here through the ops that make it, as sizes of ``irkit.ir.dims``. Values of at most one axis and 64
elements count; a rule is one small function per op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.ir import OpResult, SSAValue

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir import dims
from irkit.ir.constants import ConstantData, TensorAttr, constant
from irkit.ir.types import Dim, dtype_of, shape_of

__all__ = ["Held", "SizeValues", "slice_places"]

MAX_SIZE = 64
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Held:
    """What a value holds: its elements, of which some may not be known, and whether it is 0-d. Booleans are 0 and 1."""

    sizes: tuple[Dim, ...]
    is_scalar: bool = False

    @property
    def one(self) -> Dim:
        """The only element; None where there are others."""
        return self.sizes[0] if len(self.sizes) == 1 else None


class SizeValues:
    """Answers what values hold. What it has found it keeps, so it is made anew when types may have changed."""

    def __init__(self) -> None:
        self._known: dict[SSAValue, Held | None] = {}
        self._depth = 0

    def of(self, value: SSAValue | None) -> Held | None:
        """What a value holds; None where nothing is known of it."""
        if value is None:
            return None
        if value in self._known:
            return self._known[value]
        if self._depth >= MAX_DEPTH:
            return None
        self._depth += 1
        found = self._known[value] = self._find(value)
        self._depth -= 1
        return found

    def _find(self, value: SSAValue) -> Held | None:
        data = constant_of(value)
        if data is not None:
            return _held(data)
        if not isinstance(value, OpResult) or not isinstance(value.op, OnnxOp):
            return None
        rule = _RULES.get(value.op.op_type)
        if rule is None or value.op.domain:
            return None
        found = rule(self, value.op, value.index)
        return None if found is None or len(found.sizes) > MAX_SIZE else found

    def constants(self, op: OnnxOp) -> list[ConstantData] | None:
        """An op's results as constants, where every element is a number; for ops that compute sizes only."""
        if op.op_type not in _RULES or op.domain:
            return None
        made: list[ConstantData] = []
        for result in op.results:
            found, kind = self.of(result), dtype_of(result.type)
            if found is None or kind is None or not all(isinstance(d, int) for d in found.sizes):
                return None
            if kind.kind != "bool":
                limits = np.iinfo(kind.numpy)
                if not all(limits.min <= d <= limits.max for d in found.sizes if isinstance(d, int)):
                    return None
            array = np.array(found.sizes, kind.numpy)
            made.append(constant(array.reshape(()) if found.is_scalar else array, kind).data)
        return made


def _held(data: ConstantData) -> Held | None:
    if not (data.dtype.is_integer or data.dtype.kind == "bool") or len(data.shape) > 1 or data.size > MAX_SIZE:
        return None
    return Held(tuple(int(x) for x in data.array().reshape(-1)), not data.shape)


def slice_places(start: int, stop: int, step: int, size: int) -> slice:
    """A slice as ONNX clamps it: out of range means the end, for a negative step the one before the beginning."""
    start, stop = (i + size if i < 0 else i for i in (start, stop))
    if step > 0:
        return slice(max(0, min(size, start)), max(0, min(size, stop)), step)
    start, stop = max(0, min(size - 1, start)), max(-1, min(size - 1, stop))
    return slice(start, None if stop < 0 else stop, step)


# The rules

Rule = Callable[[SizeValues, OnnxOp, int], "Held | None"]
_RULES: dict[str, Rule] = {}


def _rule(*op_types: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(op_types, rule))
        return rule

    return register


@_rule("Shape")
def _shape(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    shape = shape_of(op.operands[0].type)
    if shape is None:
        return None
    start, end = op.attr("start") or 0, op.attr("end")
    return Held(shape[slice_places(start, len(shape) if end is None else end, 1, len(shape))])


@_rule("Size")
def _size(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    shape = shape_of(op.operands[0].type)
    return None if shape is None else Held((dims.product(shape),), True)


@_rule("Gather")
def _gather(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    data, at = known.of(op.operands[0]), known.of(op.operands[1])
    if data is None or data.is_scalar or at is None or op.attr("axis") not in (0, -1):
        return None
    places = [i for i in at.sizes if isinstance(i, int) and -len(data.sizes) <= i < len(data.sizes)]
    return Held(tuple(data.sizes[i] for i in places), at.is_scalar) if len(places) == len(at.sizes) else None


@_rule("Slice")
def _slice(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    data = known.of(op.operands[0])
    if data is None or data.is_scalar or op.since < 10 or len(op.operands) < 3:
        return None
    numbers: list[int] = []
    for place, default in ((1, None), (2, None), (3, 0), (4, 1)):
        given = op.operand(place)
        found = default if given is None else _one(known.of(given))
        if not isinstance(found, int):
            return None
        numbers.append(found)
    start, stop, axis, step = numbers
    if axis not in (0, -1) or step == 0:
        return None
    return Held(data.sizes[slice_places(start, stop, step, len(data.sizes))])


@_rule("Split")
def _split(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    data = known.of(op.operands[0])
    shapes = [shape_of(r.type) for r in op.results]
    if data is None or data.is_scalar or any(s is None or len(s) != 1 or not isinstance(s[0], int) for s in shapes):
        return None
    sizes = [s[0] for s in shapes if s is not None and isinstance(s[0], int)]
    first = sum(sizes[:index])
    return Held(data.sizes[first : first + sizes[index]]) if sum(sizes) == len(data.sizes) else None


@_rule("Concat")
def _concat(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    joined: tuple[Dim, ...] = ()
    for value in op.operands:
        part, shape = known.of(value), shape_of(value.type)
        if part is not None and not part.is_scalar:
            joined += part.sizes
        elif shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= MAX_SIZE:
            joined += (None,) * shape[0]
        else:
            return None
    return Held(joined)


@_rule("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape")
def _same(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    """The same elements, of another integer dtype or with another rank."""
    data, kind, shape = known.of(op.operands[0]), dtype_of(op.results[0].type), shape_of(op.results[0].type)
    if data is None or kind is None or not kind.is_integer or kind.bits < 32 or shape is None or len(shape) > 1:
        return None
    return Held(data.sizes, not shape) if shape or len(data.sizes) == 1 else None


@_rule("ConstantOfShape")
def _filled(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    shape, value = known.of(op.operands[0]), op.properties.get("value")
    if shape is None or len(shape.sizes) > 1 or not isinstance(value, TensorAttr):
        return None
    element = _held(value.data)
    length = shape.sizes[0] if shape.sizes else 1
    if element is None or len(element.sizes) != 1 or not isinstance(length, int) or not 0 <= length <= MAX_SIZE:
        return None
    return Held(element.sizes * length, not shape.sizes)


@_rule("Range")
def _range(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    found = [_one(known.of(value)) for value in op.operands]
    numbers = [n for n in found if isinstance(n, int)]
    if len(numbers) < 3 or not numbers[2] or len(range(*numbers)) > MAX_SIZE:
        return None
    return Held(tuple(range(*numbers)))


def _one(held: Held | None) -> Dim:
    return None if held is None else held.one


# Arithmetic, element by element


def _quotient(a: Dim, b: Dim) -> Dim:
    """ONNX divides integers towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return dims.floordiv(a, b) if dims.is_at_least(a, 0) and dims.is_at_least(b, 0) else None


def _truth(least: int, most: int) -> Callable[[Dim, Dim], Dim]:
    """1 where ``least <= a - b <= most`` is certain, 0 where it can't be; the limits are -1, 0 or 1 as signs."""

    def compare(a: Dim, b: Dim) -> Dim:
        low, high = dims.bounds(dims.sub(a, b))
        smallest = -1 if low is None or low < 0 else min(low, 1)
        largest = 1 if high is None or high > 0 else max(high, -1)
        if least <= smallest and largest <= most:
            return 1
        return 0 if largest < least or smallest > most else None

    return compare


def _and(a: Dim, b: Dim) -> Dim:
    return 0 if 0 in (a, b) else 1 if a == 1 and b == 1 else None


def _or(a: Dim, b: Dim) -> Dim:
    return 1 if 1 in (a, b) else 0 if a == 0 and b == 0 else None


_BINARY: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": dims.add,
    "Sub": dims.sub,
    "Mul": dims.mul,
    "Div": _quotient,
    "Max": dims.maximum,
    "Min": dims.minimum,
    "Sum": dims.add,
    "Equal": _truth(0, 0),
    "Less": _truth(-1, -1),
    "LessOrEqual": _truth(-1, 0),
    "Greater": _truth(1, 1),
    "GreaterOrEqual": _truth(0, 1),
    "And": _and,
    "Or": _or,
}


@_rule(*_BINARY)
def _binary(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    parts = _together(known, op)
    if parts is None:
        return None
    rows, is_scalar = parts
    return Held(tuple(reduce(_BINARY[op.op_type], row) for row in rows), is_scalar)


@_rule("Mod")
def _mod(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    parts = _together(known, op)
    if parts is None:
        return None
    rule = dims.mod if not op.attr("fmod") else _remainder
    return Held(tuple(rule(*row) for row in parts[0]), parts[1])


def _remainder(a: Dim, b: Dim) -> Dim:
    """Of a division towards zero."""
    return dims.mod(a, b) if dims.is_at_least(a, 0) and dims.is_at_least(b, 0) else None


@_rule("Where")
def _where(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    parts = _together(known, op)
    if parts is None:
        return None
    rows, is_scalar = parts
    return Held(tuple(_chosen(*row) for row in rows), is_scalar)


def _chosen(condition: Dim, a: Dim, b: Dim) -> Dim:
    return a if condition == 1 or a == b else b if condition == 0 else None


def _negative(a: Dim) -> Dim:
    return dims.sub(0, a)


def _magnitude(a: Dim) -> Dim:
    return abs(a) if isinstance(a, int) else a if dims.is_at_least(a, 0) else None


def _not(a: Dim) -> Dim:
    return None if a is None else 1 if a == 0 else 0


_UNARY: dict[str, Callable[[Dim], Dim]] = {"Neg": _negative, "Abs": _magnitude, "Not": _not}


@_rule(*_UNARY)
def _unary(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    data = known.of(op.operands[0])
    return None if data is None else Held(tuple(map(_UNARY[op.op_type], data.sizes)), data.is_scalar)


def _together(known: SizeValues, op: OnnxOp) -> tuple[list[tuple[Dim, ...]], bool] | None:
    """The elements of all operands at each place, broadcast; integers of less than 32 bits might overflow."""
    parts: list[Held] = []
    for value in op.operands:
        part, kind = known.of(value), dtype_of(value.type)
        if part is None or kind is None or (kind.kind != "bool" and kind.bits < 32) or kind.kind == "uint":
            return None
        parts.append(part)
    lengths = {len(p.sizes) for p in parts} - {1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    rows = zip(*(p.sizes * length if len(p.sizes) == 1 else p.sizes for p in parts), strict=True)
    return list(rows), all(p.is_scalar for p in parts)


_FOLDS: dict[str, tuple[Callable[[Dim, Dim], Dim], Dim]] = {
    "ReduceSum": (dims.add, 0),
    "ReduceProd": (dims.mul, 1),
    "ReduceMax": (dims.maximum, None),
    "ReduceMin": (dims.minimum, None),
}


@_rule(*_FOLDS)
def _reduced(known: SizeValues, op: OnnxOp, index: int) -> Held | None:
    data, shape = known.of(op.operands[0]), shape_of(op.results[0].type)
    if data is None or data.is_scalar or not data.sizes or shape is None or len(shape) > 1:
        return None
    rule, start = _FOLDS[op.op_type]
    # An op told to reduce no axes gives its operand: then the result has one element only if that has.
    if shape and shape[0] != 1:
        return None
    found = reduce(rule, data.sizes) if start is None else reduce(rule, data.sizes, start)
    return Held((found,), not shape)
