"""Sequences and optionals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irkit.ir.op import OpSpec
from irkit.ir.types import OptType, SeqType, dtype_of

from ..generate import Call, Context, Reject, allowed
from ..graph import Value
from ..registry import axis_of, exact, samples

exact("SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength ConcatFromSequence")
exact("SplitToSequence Optional OptionalGetElement OptionalHasElement")


def sequence(g: Context, fits: Callable[[Value], bool] = lambda v: True) -> Value:
    """A sequence of tensors: one in scope, or a new one, made of tensors in scope."""
    found = [v for v in g.pool if isinstance(v.type, SeqType) and isinstance(v.array, list) and fits(v)]
    if found and g.below(3):
        return found[-1 - g.below(len(found))]
    x = g.take(_kinds(), 1, 3)
    others = [
        g.take([x.dtype], 1, 3, fits=lambda v: v.shape == x.shape, shape=lambda: x.shape) for _ in range(g.below(3))
    ]
    step = g.add("SequenceConstruct", Call([x, *others]))
    made = step.results[0]
    if not fits(made):
        raise Reject("no such sequence")
    return made


def _kinds() -> list:
    from ..generate import spec_of

    return [d for d in allowed(spec_of("SequenceConstruct"), 0) if d.kind != "complex"]


@samples("SequenceConstruct")
def construct(g: Context, spec: OpSpec) -> Call:
    x = g.take(_kinds())
    return Call([x, *(g.take([x.dtype], x.array.ndim, x.array.ndim) for _ in range(g.below(3)))])


@samples("SequenceEmpty")
def empty(g: Context, spec: OpSpec) -> Call:
    return Call([], g.maybe(dtype=[d.code for d in _kinds()]))


@samples("SequenceLength")
def length(g: Context, spec: OpSpec) -> Call:
    return Call([sequence(g)])


def _position(g: Context, count: int) -> Value:
    return g.given(np.array(g.between(-count, count - 1)), g.pick(("int64", "int32")))


@samples("SequenceAt")
def at(g: Context, spec: OpSpec) -> Call:
    s = sequence(g, lambda v: len(v.array) > 0)
    return Call([s, _position(g, len(s.array))])


@samples("SequenceErase")
def erase(g: Context, spec: OpSpec) -> Call:
    s = sequence(g, lambda v: len(v.array) > 0)
    return Call([s, _position(g, len(s.array))] if g.below(2) else [s])


@samples("SequenceInsert")
def insert(g: Context, spec: OpSpec) -> Call:
    s = sequence(g)
    kind = dtype_of(s.type.element)
    x = g.take([kind] if kind else [], 0, 3)
    return Call([s, x, _position(g, len(s.array))] if s.array and g.below(2) else [s, x])


@samples("ConcatFromSequence")
def concat_from_sequence(g: Context, spec: OpSpec) -> Call:
    def alike(v: Value) -> bool:
        return len({a.shape for a in v.array}) == 1 and v.array[0].ndim > 0

    s = sequence(g, alike)
    rank, new = s.array[0].ndim, g.below(2)
    return Call([s], {"axis": axis_of(g, rank + new)} | ({"new_axis": 1} if new else {}))


@samples("SplitToSequence")
def split_to_sequence(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, least=1)
    axis = axis_of(g, x.array.ndim)
    size = x.shape[axis]
    kind = g.below(3)
    if kind == 0:
        return Call([x], {"axis": axis} | g.maybe(keepdims=0))
    first = g.between(1, size)
    parts = np.array(first) if kind == 1 else np.array([first, size - first])
    return Call([x, g.given(parts, g.pick(("int64", "int32")))], {"axis": axis})


@samples("Optional")
def optional(g: Context, spec: OpSpec) -> Call:
    return Call([sequence(g) if g.chance(3) else g.take(_kinds())])


def _optional(g: Context) -> Value:
    found = [v for v in g.pool if isinstance(v.type, OptType)]
    if found and g.below(2):
        return found[-1 - g.below(len(found))]
    return g.add("Optional", Call([sequence(g) if g.chance(3) else g.take(_kinds())])).results[0]


@samples("OptionalGetElement")
def get_element(g: Context, spec: OpSpec) -> Call:
    return Call([_optional(g)])


@samples("OptionalHasElement")
def has_element(g: Context, spec: OpSpec) -> Call:
    return Call([_optional(g)])


__all__ = ["sequence"]
