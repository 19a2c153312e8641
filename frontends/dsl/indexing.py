"""Indexing with NumPy's meaning: slices, integers, new axes, arrays of integers, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl import build
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.errors import failure, site_here
from irkit.ir.types import Dim

__all__ = ["get_item", "set_item"]

_END = np.iinfo(np.int64).max
_BEGINNING = np.iinfo(np.int64).min


def get_item(x: symbols.Symbol, index: Any) -> symbols.Symbol:
    """``x[index]``, as NumPy has it; indices may be symbols.

    Raises:
        InferenceError: for too many indices, one out of range where the size is known, or one of another kind.
    """
    parts = _parts(x, index)
    made = _sliced(x, [p for p in parts if not isinstance(p, _NewAxis)])
    return _finish(made, parts)


class _NewAxis:
    """Marks where an axis of size 1 is to be."""


@dataclass
class _Array:
    """An index by integers: an array, or one integer."""

    value: symbols.Symbol
    is_scalar: bool


_Part = Any
_ALL = slice(None)


def _parts(x: symbols.Symbol, index: Any) -> list[_Part]:
    """The index as one part per axis of x, and one per new axis; masks as their integers."""
    given = list(index) if isinstance(index, tuple) else [index]
    if sum(item is Ellipsis for item in given) > 1:
        raise _wrong(x, "an index has one ellipsis ('...') at most")
    items = [item for part in given for item in _items(x, part)]
    used = sum(not isinstance(p, _NewAxis) and p is not Ellipsis for p in items)
    rank = x.ndim
    if rank is None:
        if Ellipsis in [p for p in items if isinstance(p, type(Ellipsis))] and items[-1] is not Ellipsis:
            raise _wrong(x, "after '...' the rank must be known", "give the placeholder a shape")
        return [p for p in items if p is not Ellipsis]
    if used > rank:
        raise _wrong(x, f"{used} indices for {rank} axes")
    rest = [_ALL] * (rank - used)
    at = next((i for i, p in enumerate(items) if p is Ellipsis), None)
    return [*items, *rest] if at is None else [*items[:at], *rest, *items[at + 1 :]]


def _items(x: symbols.Symbol, part: Any) -> list[_Part]:
    if part is None:
        return [_NewAxis()]
    if part is Ellipsis or isinstance(part, slice):
        return [part]
    if isinstance(part, bool | np.bool_):
        raise _wrong(x, "a single truth value is no index", "use an array of booleans")
    value = build.convert(part)
    kind = value.dtype.kind if value.dtype is not None else ""
    if kind == "bool":
        return _mask(x, value)
    if kind not in ("int", "uint"):
        raise _wrong(x, f"an index of {value!r}", "index by integers, slices or booleans")
    return [_Array(value, value.ndim == 0)]


def _mask(x: symbols.Symbol, mask: symbols.Symbol) -> list[_Part]:
    """A mask as the places where it is true, an array of integers for each of its axes."""
    if not mask.ndim:
        raise _wrong(x, f"a mask {mask!r} of unknown rank, or of none", "give it a shape")
    places = build.make("NonZero", mask)
    rows = build.make("Split", places, axis=0, num_outputs=mask.ndim) if mask.ndim > 1 else (places,)
    axis = np.array([0], np.int64)
    return [_Array(build.make("Squeeze", row, axis), False) for row in rows]


def _sliced(x: symbols.Symbol, parts: Sequence[_Part]) -> symbols.Symbol:
    """The slices of an index: one op, or two where backward steps have bounds of unknown meaning."""
    forward: list[tuple[int, Any, Any, int]] = []
    backward: list[tuple[int, Any, Any, int]] = []
    for axis, part in enumerate(parts):
        if not isinstance(part, slice) or (part.start is None and part.stop is None and part.step in (None, 1)):
            continue
        step = _step(x, part.step)
        if step > 0:
            forward.append((axis, _or(part.start, 0), _or(part.stop, _END), step))
            continue
        bounded = part.start is not None or part.stop is not None
        size = x.shape[axis] if x.shape is not None else None
        if not bounded:
            backward.append((axis, _END, _BEGINNING, step))
        elif (
            isinstance(size, int)
            and not isinstance(part.start, symbols.Operand)
            and not isinstance(part.stop, symbols.Operand)
        ):
            start, stop, _ = part.indices(size)
            empty = not range(start, stop, step)
            forward.append((axis, 0, 0, 1) if empty else (axis, start, _BEGINNING if stop < 0 else stop, step))
        else:
            # Slice clamps the bounds of backward steps in another way than NumPy: what lies between is cut out first.
            forward.append((axis, _after(part.stop, 0), _after(part.start, _END), 1))
            backward.append((axis, _END, _BEGINNING, step))
    return _slice(_slice(x, forward), backward)


def _step(x: symbols.Symbol, step: Any) -> int:
    if isinstance(step, symbols.Operand):
        raise _wrong(x, "the step of a slice must be a number")
    if step == 0:
        raise _wrong(x, "the step of a slice cannot be 0")
    return 1 if step is None else int(step)


def _or(value: Any, default: int) -> Any:
    return default if value is None else value


def _after(bound: Any, default: int) -> Any:
    """The place after one given by a bound; after the last, -1, there is the end."""
    if bound is None:
        return default
    if isinstance(bound, symbols.Operand):
        value = build.make("Cast", build.convert(bound), to=7)
        return build.make("Where", build.make("Equal", value, -1), _END, build.make("Add", value, 1))
    return _END if int(bound) == -1 else int(bound) + 1


def _slice(x: symbols.Symbol, entries: Sequence[tuple[int, Any, Any, int]]) -> symbols.Symbol:
    if not entries:
        return x
    axes, starts, ends, steps = zip(*entries, strict=True)
    return build.make("Slice", x, _bounds(starts), _bounds(ends), np.array(axes, np.int64), np.array(steps, np.int64))


def _bounds(values: Sequence[Any]) -> Any:
    if not any(isinstance(v, symbols.Operand) for v in values):
        return np.array([int(v) for v in values], np.int64)
    axis = np.array([0], np.int64)
    single = [
        build.make("Unsqueeze", build.make("Cast", build.convert(v), to=7), axis)
        if isinstance(v, symbols.Operand)
        else build.convert(np.array([v], np.int64))
        for v in values
    ]
    return build.make("Concat", *single, axis=0) if len(single) > 1 else single[0]


def _finish(x: symbols.Symbol, parts: Sequence[_Part]) -> symbols.Symbol:
    """Takes what integers ask for, and puts in new axes."""
    arrays = [p for p in parts if isinstance(p, _Array)]
    if not arrays:
        return _new_axes(x, [i for i, p in enumerate(parts) if isinstance(p, _NewAxis)])
    for axis, part in enumerate(p for p in parts if not isinstance(p, _NewAxis)):
        if isinstance(part, _Array):
            _check_range(x, part, axis)
    if all(p.is_scalar for p in arrays):
        return _picked(x, parts)
    if len(arrays) == 1:
        return _gathered(x, parts, arrays[0])
    return _gathered_together(x, parts)


def _picked(x: symbols.Symbol, parts: Sequence[_Part]) -> symbols.Symbol:
    """Integers alone: each takes its axis away."""
    axis = 0
    for part in parts:
        if isinstance(part, _Array):
            x = build.make("Gather", x, part.value, axis=axis)
        elif isinstance(part, slice):
            axis += 1
    return _new_axes(x, _places_of_new(parts, 0))


def _gathered(x: symbols.Symbol, parts: Sequence[_Part], array: _Array) -> symbols.Symbol:
    """One array of integers: its axes stand where that which it indexes stood."""
    at = parts.index(array)
    width = array.value.ndim
    if width is None and any(isinstance(p, _NewAxis) for p in parts[at:]):
        raise _wrong(x, f"new axes after an index {array.value!r} of unknown rank")
    made = build.make("Gather", x, array.value, axis=sum(isinstance(p, slice) for p in parts[:at]))
    return _new_axes(made, _places_of_new(parts, width or 0))


def _places_of_new(parts: Sequence[_Part], width: int) -> list[int]:
    """Where new axes are to be, when the first array of integers has become ``width`` axes and the others none."""
    new: list[int] = []
    out, left = 0, width
    for part in parts:
        if isinstance(part, _NewAxis):
            new.append(out)
            out += 1
        elif isinstance(part, slice):
            out += 1
        else:
            out, left = out + left, 0
    return new


def _gathered_together(x: symbols.Symbol, parts: Sequence[_Part]) -> symbols.Symbol:
    """Several arrays are broadcast together. Their axes stand in the place of theirs where those stand side by side,
    else in front."""
    if x.ndim is None:
        raise _wrong(x, "several arrays of integers need a known rank", "give the placeholder a shape")
    places = [i for i, p in enumerate(parts) if isinstance(p, _Array)]
    together = places == list(range(places[0], places[-1] + 1))
    axes: list[int] = []
    indices: list[symbols.Symbol] = []
    for axis, part in enumerate(p for p in parts if not isinstance(p, _NewAxis)):
        if isinstance(part, _Array):
            axes.append(axis)
            indices.append(build.make("Cast", part.value, to=7) if part.value.dtype is not None else part.value)
    if any(i.ndim is None for i in indices):
        raise _wrong(x, "an array of integers of unknown rank", "give it a shape")
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*axes, *rest]
    moved = x if order == list(range(x.ndim)) else build.make("Transpose", x, perm=order)
    made = build.make("GatherND", moved, _stacked_indices(indices))
    width = max(i.ndim or 0 for i in indices)
    before = sum(isinstance(p, slice) for p in parts[: places[0]]) if together else 0
    if before:
        total = width + len(rest)
        made = build.make(
            "Transpose", made, perm=[*range(width, width + before), *range(width), *range(width + before, total)]
        )
    if together:
        return _new_axes(made, _places_of_new(parts, width))
    return _new_axes(made, [width + place for place in _places_of_new(parts, 0)])


def _stacked_indices(indices: Sequence[symbols.Symbol]) -> symbols.Symbol:
    """Index arrays, broadcast together and stacked along a new last axis."""
    zero = indices[0]
    for other in indices[1:]:
        zero = build.make("Add", zero, other)
    shape = build.make("Shape", zero)
    last = np.array([-1], np.int64)
    spread = [build.make("Unsqueeze", _expanded(i, zero, shape), last) for i in indices]
    return build.make("Concat", *spread, axis=-1)


def _expanded(index: symbols.Symbol, like: symbols.Symbol, shape: symbols.Symbol) -> symbols.Symbol:
    known: list[Dim] | None = None if like.shape is None else list(like.shape)
    if known is not None and index.shape == tuple(known) and all(isinstance(d, int) for d in known):
        return index
    if known is not None and all(isinstance(d, int) for d in known):
        return build.make("Expand", index, np.array(known, np.int64))
    return build.make("Expand", index, shape)


def _new_axes(x: symbols.Symbol, axes: Sequence[int]) -> symbols.Symbol:
    return build.make("Unsqueeze", x, np.array(axes, np.int64)) if axes else x


def _check_range(x: symbols.Symbol, part: _Array, axis: int) -> None:
    """Refuses a constant index that is out of range; slices before it leave the sizes of these axes as they are."""
    from irkit.frontends.dsl.nodes import ConstantNode

    node = part.value.node
    size = x.shape[axis] if x.shape is not None else None
    if isinstance(node, ConstantNode) and isinstance(size, int) and node.value.data.size:
        found = node.value.array()
        if int(found.min()) < -size or int(found.max()) >= size:
            worst = int(found.max()) if int(found.max()) >= size else int(found.min())
            raise _wrong(x, f"index {worst} is out of range on axis {axis} of size {size}")


def _wrong(x: symbols.Symbol, message: str, hint: str = "") -> Exception:
    return failure(InferenceError, f"{message}; indexed is {x!r}", site=site_here(), hint=hint)


def set_item(x: Any, index: Any, value: Any) -> symbols.Symbol:
    """A copy of x in which ``x[index]`` is ``value`` (broadcast): what ``x[index] = value`` is for arrays.

    The sizes of x must be known where the index has slices.
    """
    base = build.convert(x)
    shape = base.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        raise _wrong(base, "set_item needs known sizes", "dsl.where with a mask works for all")
    sizes = [d for d in shape if isinstance(d, int)]
    if 0 in sizes:
        return base
    places = build.convert(np.arange(int(np.prod(sizes, dtype=np.int64)), dtype=np.int64).reshape(sizes))
    chosen = get_item(places, index)
    filler = build.convert(value, base.dtype)
    if chosen.shape is not None and all(isinstance(d, int) for d in chosen.shape):
        target: Any = np.array(chosen.shape, np.int64)
    else:
        target = build.make("Shape", chosen)
    flat = np.array([-1], np.int64)
    updates = build.make("Reshape", build.make("Expand", filler, target), flat)
    made = build.make(
        "ScatterElements", build.make("Reshape", base, flat), build.make("Reshape", chosen, flat), updates, axis=0
    )
    return build.make("Reshape", made, np.array(sizes, np.int64))
