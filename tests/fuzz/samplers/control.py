"""Graphs in ops: If, Loop, Scan, SequenceMap. What their bodies use from outside, they capture."""

from __future__ import annotations

import numpy as np

from irkit.ir.dtypes import DType
from irkit.ir.op import OpSpec
from irkit.ir.types import dtype_of, tensor

from ..generate import Call, Context, Reject, allowed
from ..graph import Body, Value
from ..registry import BOOL, exact, samples
from .sequence import sequence

# They add no rounding of their own.
exact("If Loop Scan SequenceMap")

DEPTH = 2


def _inside(g: Context) -> None:
    if g.depth >= DEPTH:
        raise Reject("deep enough")


def _new(g: Context, kinds: list[DType], like: Value | None = None) -> Value:
    """A tensor made by a step of the body; of the same dtype and shape as another, if asked."""
    made = [v for s in g.steps for v in s.results if v.is_tensor and (like is None or _same(v, like))]
    if made and g.below(3):
        return made[-1 - g.below(len(made))]
    if like is None:
        return g.add("Identity", Call([g.take(kinds)])).results[0]
    return g.add(
        "Identity", Call([g.take([like.dtype], 0, 5, fits=lambda v: _same(v, like), shape=lambda: like.shape)])
    ).results[0]


def _same(a: Value, b: Value) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape


def _kinds() -> list[DType]:
    from ..generate import spec_of

    return [d for d in allowed(spec_of("SequenceConstruct"), 0) if d.kind != "complex"]


@samples("If")
def branches(g: Context, spec: OpSpec) -> Call:
    _inside(g)
    condition = g.take(BOOL, 0, 0)
    count = g.between(1, 2)
    bodies: dict[str, Body] = {"then_branch": g.body([], lambda g: [_new(g, _kinds()) for _ in range(count)])}
    first = bodies["then_branch"].results
    # The other branch gives the same dtypes; the shapes may differ.
    same = g.below(4)
    bodies["else_branch"] = g.body([], lambda g: [_new(g, [], v) if same else _new_of(g, v.dtype) for v in first])
    return Call([condition], bodies=bodies)


def _new_of(g: Context, kind: DType) -> Value:
    return g.add("Identity", Call([g.take([kind])])).results[0]


def _argument(array: np.ndarray) -> Value:
    return Value.of(np.asarray(array), "argument")


def _first(array: np.ndarray, axis: int) -> np.ndarray:
    """The first slice along an axis, an array even where it is one string."""
    return np.take(array, [0], axis).reshape([size for at, size in enumerate(array.shape) if at != axis])


def _like(values: list[Value]) -> list[Value]:
    """Arguments that are first what these values are."""
    return [Value(v.array, tensor(v.dtype, v.shape), "argument", shadows=v.shadows) for v in values]


@samples("Loop")
def loop(g: Context, spec: OpSpec) -> Call:
    _inside(g)
    carried = [g.take(_kinds(), 0, 3) for _ in range(g.between(1, 2))]
    stacked = g.below(2)
    # What nothing is stacked to has sizes that only type inference knows.
    trips = g.given(np.array(g.pick((2, 3, 1) if stacked else (2, 3, 1, 0)))) if g.below(6) else None
    condition = g.given(np.array(True), "bool") if trips is None or g.below(2) else None
    i, going, states = _argument(np.array(0)), _argument(np.array(True)), _like(carried)

    def results(g: Context) -> list[Value]:
        if trips is None or g.chance(3):
            limit = Value.of(np.array(g.below(3)), "constant")
            going_on = g.add("Less", Call([i, limit])).results[0]
        else:
            going_on = g.add("Identity", Call([going])).results[0]
        kept = [_new(g, [], state) for state in states]
        return [going_on, *kept, *(_new(g, _kinds()) for _ in range(stacked))]

    return Call([trips, condition, *carried], bodies={"body": g.body([i, going, *states], results, most=3)})


@samples("Scan")
def scan(g: Context, spec: OpSpec) -> Call:
    _inside(g)
    length = g.between(1, 3)
    carried = [g.take(_kinds(), 0, 2) for _ in range(g.below(2))]
    axis = g.below(2)

    def fits(v: Value) -> bool:
        return v.shape[axis] == length

    inputs = [
        g.take(_kinds(), 1 + axis, 3, fits=fits, shape=lambda: (*g.dims(axis, axis, 1), length, *g.dims(0, 1, 1)))
        for _ in range(g.between(1, 2))
    ]
    states = _like(carried)
    items = [_argument(_first(v.array, axis)) for v in inputs]
    for item, v in zip(items, inputs, strict=True):
        item.shadows = tuple(_first(s, axis) for s in v.shadows)
    stacked = g.between(0 if carried else 1, 2)

    def results(g: Context) -> list[Value]:
        return [*(_new(g, [], s) for s in states), *(_new(g, _kinds()) for _ in range(stacked))]

    attributes: dict = {"num_scan_inputs": len(inputs)}
    if axis or g.chance(4):
        attributes["scan_input_axes"] = [axis] * len(inputs)
    attributes |= g.maybe(scan_input_directions=[[1] * len(inputs)])
    if stacked:
        attributes |= g.maybe(scan_output_directions=[[1] * stacked])
    body = g.body([*states, *items], results, most=3)
    return Call([*carried, *inputs], attributes, bodies={"body": body})


@samples("SequenceMap")
def sequence_map(g: Context, spec: OpSpec) -> Call:
    _inside(g)
    s = sequence(g, lambda v: len(v.array) > 0)
    item = Value(s.array[0], tensor(dtype_of(s.type.element), s.array[0].shape), "argument")
    item.shadows = tuple(shadow[0] for shadow in s.shadows)
    other = [g.take(_kinds())] if g.below(2) else []

    def results(g: Context) -> list[Value]:
        return [_new(g, _kinds())]

    return Call([s, *other], bodies={"body": g.body([item, *_like(other)], results, most=3)})
