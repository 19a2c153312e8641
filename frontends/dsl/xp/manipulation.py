"""Manipulation functions, and indexing functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.operators import cast
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.frontends.dsl.xp.array import Array, accept, as_array, each, wrap
from irkit.frontends.dsl.xp.dtypes import of_parts, promoted

__all__ = [
    "axes_of",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "tile",
    "unstack",
]

Axes = int | Sequence[int] | None


def axes_of(name: str, x: Operand, axis: Axes, extra: int = 0) -> list[int]:
    """The axes as numbers from 0; all of them for None.

    Args:
        extra: how many axes the function adds.

    Raises:
        SymbolError: for one that is out of range, or given twice.
    """
    rank = shapes.rank_of(x, name) + extra
    given = range(rank) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    found = [int(a) + rank if a < 0 else int(a) for a in given]
    if any(not 0 <= a < rank for a in found) or len(set(found)) != len(found):
        raise failure(SymbolError, f"xp.{name}: axis {axis} of {x!r}", hint=f"axes are -{rank} to {rank - 1}")
    return found


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """The arrays, broadcast to one shape."""
    values = [as_array(x) for x in arrays]
    known = [v.shape for v in values]
    if all(s is not None and all(isinstance(d, int) for d in s) for s in known):
        try:
            target = np.broadcast_shapes(*known)  # type: ignore[arg-type]
        except ValueError:
            raise failure(InferenceError, f"xp.broadcast_arrays: {values} have no common shape") from None
        return [v if v.shape == target else each(lambda x: shapes.broadcast_to(x, target), v) for v in values]
    sizes = [make("Shape", v.parts[0]) for v in values]
    return [each(lambda x, i=i: _spread(x, sizes[:i] + sizes[i + 1 :]), v) for i, v in enumerate(values)]


def _spread(x: Symbol, sizes: Sequence[Symbol]) -> Symbol:
    for shape in sizes:
        x = make("Expand", x, shape)
    return x


@of_parts("x")
def broadcast_to(x: Array, /, shape: Any) -> Array:
    """Repeated along axes of size 1 and new axes in front, to this shape."""
    value = accept(x)
    made = wrap(shapes.broadcast_to(value, shape))
    if not isinstance(shape, Operand) and all(isinstance(d, int) for d in shape) and made.shape != tuple(shape):
        raise failure(InferenceError, f"{value!r} cannot be broadcast to {tuple(shape)}")
    return made


@of_parts("arrays")
def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """One after the other along an axis; flattened if it is None."""
    values = promoted("concat", *arrays)
    if axis is None:
        values, axis = [shapes.ravel(v) for v in values], 0
    return wrap(shapes.concatenate(values, axes_of("concat", values[0], axis)[0]))


@of_parts("arrays")
def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """One after the other along a new axis."""
    values = promoted("stack", *arrays)
    return wrap(shapes.stack(values, axes_of("stack", values[0], axis, 1)[0]))


@of_parts("x")
def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, whose size must be known."""
    value = accept(x)
    at = axes_of("unstack", value, axis)[0]
    if value.shape is not None and value.shape[at] == 0:
        return ()
    return tuple(wrap(part) for part in shapes.unstack(value, at))


@of_parts("x")
def expand_dims(x: Array, /, axis: int | Sequence[int] = 0) -> Array:
    """A new axis of size 1 at this place.

    Raises:
        IndexError: if there is no such place.
    """
    value = accept(x)
    rank = shapes.rank_of(value, "expand_dims") + (1 if isinstance(axis, int) else len(axis))
    if any(not -rank <= a < rank for a in ([axis] if isinstance(axis, int) else axis)):
        raise IndexError(f"xp.expand_dims: no place {axis} for a new axis of {value!r}")
    return wrap(shapes.expand_dims(value, axis))


@of_parts("x")
def squeeze(x: Array, /, axis: int | Sequence[int]) -> Array:
    """Without these axes, which are of size 1.

    Raises:
        ValueError: if one is not.
    """
    value = accept(x)
    axes = axes_of("squeeze", value, axis)
    if value.shape is not None and any(isinstance(value.shape[a], int) and value.shape[a] != 1 for a in axes):
        raise ValueError(f"xp.squeeze: axis {axis} of {value!r} is not of size 1")
    return wrap(shapes.squeeze(value, axes) if axes else value)


@of_parts("x")
def flip(x: Array, /, *, axis: Axes = None) -> Array:
    """The order along axes reversed; along all by default."""
    value = accept(x)
    axes = axes_of("flip", value, axis)
    return wrap(shapes.flip(value, axes) if axes else value)


@of_parts("x")
def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """The axes in another order."""
    value = accept(x)
    return wrap(make("Transpose", value, perm=axes_of("permute_dims", value, tuple(axes))))


@of_parts("x")
def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """Axes moved to other places."""
    value = accept(x)
    come, go = axes_of("moveaxis", value, source), axes_of("moveaxis", value, destination)
    order = [axis for axis in range(shapes.rank_of(value, "moveaxis")) if axis not in come]
    for place, axis in sorted(zip(go, come, strict=True)):
        order.insert(place, axis)
    return wrap(make("Transpose", value, perm=order))


@of_parts("x")
def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """The elements in another shape; one size may be -1. Symbols never change, so there is never a need to copy."""
    return wrap(shapes.reshape(accept(x), shape))


@of_parts("x")
def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Every element repeated along an axis: as often as the number, or as its own number, tells."""
    value = accept(x)
    if axis is None:
        value, axis = shapes.ravel(value), 0
    at = axes_of("repeat", value, axis)[0]
    if isinstance(repeats, Operand):
        return wrap(_repeat_each(value, cast(accept(repeats), shapes.INT64), at))
    size = value.shape[at] if value.shape is not None else None
    if isinstance(size, int):
        return wrap(make("Gather", value, np.repeat(np.arange(size), int(repeats)), axis=at))
    return wrap(shapes.repeat(value, int(repeats), at))


def _repeat_each(value: Symbol, counts: Symbol, axis: int) -> Symbol:
    """Element i of the result is that behind as many running sums of the counts as are not greater than i."""
    size = make("Gather", make("Shape", value), np.array(axis), axis=0)
    counts = make("Expand", counts, make("Unsqueeze", size, shapes.ints(0)))
    ends = make("CumSum", counts, np.int64(0))
    total = make("ReduceSum", counts, keepdims=0)
    places = make("Range", convert(np.int64(0)), total, convert(np.int64(1)))
    past = make("LessOrEqual", ends, make("Unsqueeze", places, shapes.ints(1)))
    index = make("ReduceSum", cast(past, shapes.INT64), shapes.ints(1), keepdims=0)
    return make("Gather", value, index, axis=axis)


@of_parts("x")
def roll(x: Array, /, shift: int | Sequence[int], *, axis: Axes = None) -> Array:
    """Moved along axes; what leaves at one end comes in at the other. Without an axis, of the flattened array."""
    value = accept(x)
    if axis is None:
        flat = shapes.roll(shapes.ravel(value), _total(shift), 0) if value.ndim else value
        return wrap(make("Reshape", flat, make("Shape", value), allowzero=1))
    axes = [axis] if isinstance(axis, int) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    for by, at in zip(shifts, axes, strict=True):
        value = shapes.roll(value, by, axes_of("roll", value, at)[0])
    return wrap(value)


def _total(shift: int | Sequence[int]) -> int:
    return shift if isinstance(shift, int) else sum(shift)


@of_parts("x")
def tile(x: Array, repetitions: Sequence[int], /) -> Array:
    """The whole repeated along its axes; the shorter of shape and repetitions has ones in front."""
    value = accept(x)
    rank = shapes.rank_of(value, "tile")
    counts = [1] * (rank - len(repetitions)) + list(repetitions)
    if len(counts) > rank:
        value = shapes.expand_dims(value, list(range(len(counts) - rank)))
    return wrap(shapes.tile(value, counts) if counts else value)


@of_parts("x")
def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices at these indices along an axis; without one, x has one axis only."""
    value = accept(x)
    if axis is None and value.ndim != 1:
        raise failure(SymbolError, f"xp.take of {value!r} without an axis", hint="give axis=")
    return wrap(make("Gather", value, accept(indices), axis=axes_of("take", value, axis)[0]))


@of_parts("x")
def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements at indices of their own along an axis; the other axes are broadcast together."""
    value, index = accept(x), accept(indices)
    at = axes_of("take_along_axis", value, axis)[0]
    if value.shape is not None and index.shape is not None and _others(value, at) != _others(index, at):
        rest = np.broadcast_shapes(_others(value, at), _others(index, at))
        value, index = (shapes.broadcast_to(v, [*rest[:at], v.shape[at], *rest[at:]]) for v in (value, index))  # type: ignore[index]
    return wrap(shapes.take_along_axis(value, index, at))


def _others(x: Symbol, axis: int) -> Any:
    shape = x.shape or ()
    return (*shape[:axis], *shape[axis + 1 :])
