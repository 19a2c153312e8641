"""Shapes: taking apart, putting together, moving axes, gathering."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.indexing import set_item
from irkit.frontends.dsl.operators import cast as cast_to
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.ir.dtypes import BY_NAME

INT64 = BY_NAME["int64"]


def ints(*values: int) -> Any:
    """A constant of int64."""
    return np.array(values, np.int64)


def rank_of(x: Operand, what: str) -> int:
    """The rank, which has to be known.

    Raises:
        InferenceError: if it is not.
    """
    if x.ndim is None:
        raise failure(
            InferenceError, f"'{what}' needs a known rank; {x!r} has none", hint="give the placeholder a shape"
        )
    return x.ndim


def sizes(shape: Any) -> Any:
    """A shape as a 1-d int64 value: from ints, symbols of one element among them, or a symbol of all."""
    if isinstance(shape, Operand):
        return cast_to(convert(shape), INT64)
    if isinstance(shape, int):
        shape = [shape]
    listed = list(shape)
    if not any(isinstance(item, Operand) for item in listed):
        return ints(*(int(item) for item in listed))
    parts = [
        make("Reshape", cast_to(convert(item), INT64), ints(1)) if isinstance(item, Operand) else convert(ints(item))
        for item in listed
    ]
    return make("Concat", *parts, axis=0)


def shape(x: Any) -> Symbol:
    """The sizes, as a symbol of int64; ``x.shape`` has what is known of them now."""
    return make("Shape", convert(x))


def size(x: Any) -> Symbol:
    """The number of elements, as a symbol of int64."""
    return make("Size", convert(x))


def reshape(x: Any, shape: Any) -> Symbol:
    """The elements in another shape; one size may be -1. Sizes may be symbols. 0 is the size 0."""
    value, target = convert(x), sizes(shape)
    count = elements(value)
    if count is not None and isinstance(target, np.ndarray):
        wanted = math.prod(int(d) for d in target if d != -1)
        if (count != wanted) if -1 not in target else (wanted == 0 or count % wanted):
            raise failure(
                InferenceError,
                f"{value!r} of {count} elements cannot be reshaped to {target.tolist()}",
                hint="the product of the sizes must stay the same; one may be -1",
            )
    return make("Reshape", value, target, allowzero=1)


def ravel(x: Any) -> Symbol:
    """All elements along one axis."""
    return make("Reshape", convert(x), ints(-1))


def flatten(x: Any, axis: int = 1) -> Symbol:
    """A matrix: the axes before ``axis`` as rows, the others as columns."""
    return make("Flatten", convert(x), axis=axis)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Symbol:
    """The axes in another order; reversed by default."""
    value = convert(x)
    if axes is None:
        return make("Transpose", value)
    count = len(axes)
    return make("Transpose", value, perm=[axis % count for axis in axes])


def swapaxes(x: Any, a: int, b: int) -> Symbol:
    """Two axes exchanged."""
    value = convert(x)
    order = list(range(rank_of(value, "swapaxes")))
    order[a], order[b] = order[b], order[a]
    return make("Transpose", value, perm=order)


def moveaxis(x: Any, source: int, destination: int) -> Symbol:
    """One axis moved to another place."""
    value = convert(x)
    rank = rank_of(value, "moveaxis")
    order = [axis for axis in range(rank) if axis != source % rank]
    order.insert(destination % rank, source % rank)
    return make("Transpose", value, perm=order)


def matrix_transpose(x: Any) -> Symbol:
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


def expand_dims(x: Any, axis: int | Sequence[int]) -> Symbol:
    """New axes of size 1 at these places of the result."""
    return make("Unsqueeze", convert(x), ints(axis) if isinstance(axis, int) else ints(*axis))


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Symbol:
    """Without axes of size 1: these, or all."""
    value = convert(x)
    if axis is None:
        return make("Squeeze", value)
    return make("Squeeze", value, ints(axis) if isinstance(axis, int) else ints(*axis))


def broadcast_to(x: Any, shape: Any) -> Symbol:
    """Repeated along axes of size 1 and new axes in front, to this shape."""
    return make("Expand", convert(x), sizes(shape))


def concatenate(values: Sequence[Any], axis: int = 0) -> Symbol:
    """One after the other along an axis."""
    listed = [convert(v) for v in values]
    return make("Concat", *listed, axis=axis) if len(listed) > 1 else listed[0]


def stack(values: Sequence[Any], axis: int = 0) -> Symbol:
    """One after the other along a new axis. Numbers take the dtype of the first symbol."""
    kind = next((convert(v).dtype for v in values if not isinstance(v, int | float | complex)), None)
    listed = [make("Unsqueeze", convert(v, kind), ints(axis)) for v in values]
    return make("Concat", *listed, axis=axis) if len(listed) > 1 else listed[0]


def split(x: Any, parts: int | Sequence[int], axis: int = 0) -> tuple[Symbol, ...]:
    """In so many equal parts, or in parts of these sizes, along an axis.

    Raises:
        InferenceError: if the axis is known not to divide so, as in NumPy. One of unknown size is looked at in the run.
    """
    value = convert(x)
    count = parts if isinstance(parts, int) else len(parts)
    if count < 1:
        raise failure(InferenceError, f"'split' makes one part or more, not {count}")
    size = None if value.shape is None or not -len(value.shape) <= axis < len(value.shape) else value.shape[axis]
    if isinstance(size, int) and (size % count if isinstance(parts, int) else builtins.sum(parts) != size):
        raise failure(
            InferenceError,
            f"axis {axis} of {value!r} does not divide into "
            + (f"{count} equal parts" if isinstance(parts, int) else f"parts of the sizes {list(parts)}"),
            hint=f"give sizes that add up to {size}: dsl.split(x, [size, ...], axis)",
        )
    if count == 1:
        return (value,)
    if isinstance(parts, int) and not isinstance(size, int):
        whole = make("Gather", make("Shape", value), ints(axis), axis=0)
        each = make("Expand", make("Div", whole, ints(count)), ints(count))
        return make("Split", value, each, axis=axis, outputs=count)
    if isinstance(parts, int):
        return make("Split", value, None, axis=axis, num_outputs=parts)
    return make("Split", value, ints(*parts), axis=axis, outputs=count)


def unstack(x: Any, axis: int = 0) -> tuple[Symbol, ...]:
    """The slices along an axis, whose size must be known."""
    value = convert(x)
    size = None if value.shape is None else value.shape[axis]
    if not isinstance(size, int):
        raise failure(
            InferenceError,
            f"'unstack' needs to know the size of axis {axis}; {value!r}",
            hint="use dsl.map or dsl.scan, whose number of steps may be unknown",
        )
    return tuple(make("Squeeze", part, ints(axis)) for part in split(value, size, axis))


def tile(x: Any, repeats: Any) -> Symbol:
    """The whole repeated along its axes."""
    return make("Tile", convert(x), sizes(repeats))


def repeat(x: Any, repeats: int, axis: int) -> Symbol:
    """Every element repeated along an axis."""
    value = convert(x)
    rank = rank_of(value, "repeat")
    at = axis % rank
    spread = make("Unsqueeze", value, ints(at + 1))
    tiled = make("Tile", spread, ints(*(repeats if i == at + 1 else 1 for i in range(rank + 1))))
    before, after = [0] * at, [0] * (rank - at - 1)
    if at == 0 and rank == 1:
        return make("Reshape", tiled, ints(-1))
    # 0 in a Reshape copies the size that stands there; behind the axis the sizes are read off.
    if not after:
        return make("Reshape", tiled, ints(*before, -1))
    rest = make("Shape", value, start=at + 1)
    return make("Reshape", tiled, make("Concat", ints(*before, -1), rest, axis=0))


def flip(x: Any, axis: int | Sequence[int]) -> Symbol:
    """The order along axes reversed."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    n = len(axes)
    low = int(np.iinfo(np.int64).min)
    return make("Slice", convert(x), ints(*[-1] * n), ints(*[low] * n), ints(*axes), ints(*[-1] * n))


def roll(x: Any, shift: int, axis: int) -> Symbol:
    """Moved along an axis; what leaves at one end comes in at the other."""
    value = convert(x)
    size = None if value.shape is None else value.shape[axis]
    if not isinstance(size, int):
        raise failure(InferenceError, f"'roll' needs to know the size of axis {axis}; {value!r}")
    order = np.roll(np.arange(size, dtype=np.int64), shift)
    return make("Gather", value, order, axis=axis)


def pad(
    x: Any, widths: int | Sequence[int] | Sequence[Sequence[int]], value: Any = None, mode: str = "constant"
) -> Symbol:
    """Padded by ``(before, after)`` per axis, or one pair or number for all; mode: constant, reflect, edge or wrap.

    Raises:
        InferenceError: if ``widths`` are none for the axes that there are.
    """
    base = convert(x)
    try:
        given = np.asarray(widths)
    except ValueError:  # of rows that are not equally long
        given = np.empty(0, object)
    # A pair per axis says what the rank is.
    rank = len(given) if base.ndim is None and given.ndim == 2 else rank_of(base, "pad")
    if given.shape not in ((), (2,), (1, 2), (rank, 2)) or given.dtype.kind not in "iu":
        raise failure(
            InferenceError,
            f"{widths!r} does not say how to pad the {rank} axes of {base!r}",
            hint="give [(before, after), ...], a pair per axis; or one pair, or one number, for all",
        )
    flat = np.broadcast_to(given, (rank, 2)).T.reshape(-1).astype(np.int64)
    filler = None if value is None else convert(value, base.dtype)
    return make("Pad", base, flat, filler, mode=mode)


def take(x: Any, indices: Any, axis: int | None = None) -> Symbol:
    """The slices at these indices along an axis; without one, elements of the flattened value."""
    value = convert(x)
    if axis is None:
        value, axis = ravel(value), 0
    return make("Gather", value, convert(indices), axis=axis)


def take_along_axis(x: Any, indices: Any, axis: int) -> Symbol:
    """Elements at indices of their own along an axis, as ``argsort`` gives them."""
    return make("GatherElements", convert(x), convert(indices), axis=axis)


def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Symbol:
    """The slices at these tuples of indices."""
    return make("GatherND", convert(x), convert(indices), batch_dims=batch_dims)


def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str = "none") -> Symbol:
    """A copy with the slices at tuples of indices replaced, or combined by add, mul, max or min."""
    return make("ScatterND", convert(x), convert(indices), convert(updates), reduction=reduction)


def put_along_axis(x: Any, indices: Any, updates: Any, axis: int, reduction: str = "none") -> Symbol:
    """A copy with elements replaced, or combined, at indices of their own along an axis."""
    return make("ScatterElements", convert(x), convert(indices), convert(updates), axis=axis, reduction=reduction)


def compress(mask: Any, x: Any, axis: int | None = None) -> Symbol:
    """The slices along an axis for which the mask is true; without an axis, of the flattened value."""
    options: dict[str, Any] = {} if axis is None else {"axis": axis}
    return make("Compress", convert(x), convert(mask), **options)


def nonzero(x: Any) -> tuple[Symbol, ...]:
    """The indices of elements that are not zero, one value per axis."""
    value = convert(x)
    rank = rank_of(value, "nonzero")
    return tuple(make("Squeeze", row, ints(0)) for row in split(make("NonZero", value), rank, 0))


def unique(x: Any) -> Symbol:
    """The different elements, in order."""
    return make("Unique", convert(x), sorted=1, outputs=1)


def tril(x: Any, k: int = 0) -> Symbol:
    """Zeros above the k-th diagonal."""
    return make("Trilu", convert(x), np.int64(k), upper=0)


def triu(x: Any, k: int = 0) -> Symbol:
    """Zeros below the k-th diagonal."""
    return make("Trilu", convert(x), np.int64(k), upper=1)


def diagonal(x: Any) -> Symbol:
    """The diagonal of the last two axes, whose sizes must be known."""
    value = convert(x)
    rows, columns = (value.shape or (None, None))[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise failure(InferenceError, f"'diagonal' needs to know the last two sizes; {value!r}")
    n = min(rows, columns)
    flat = make("Reshape", value, ints(*[0] * (rank_of(value, "diagonal") - 2), rows * columns))
    return make("Gather", flat, np.arange(n, dtype=np.int64) * (columns + 1), axis=-1)


def elements(x: Symbol) -> int | None:
    """The number of elements, where it is known."""
    known = x.shape
    if known is None or not all(isinstance(d, int) for d in known):
        return None
    return math.prod(d for d in known if isinstance(d, int))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(shape, size, reshape, ravel, flatten, transpose, swapaxes, moveaxis, matrix_transpose, expand_dims, squeeze),
        *(broadcast_to, concatenate, stack, split, unstack, tile, repeat, flip, roll, pad, take, take_along_axis),
        *(gather_nd, scatter_nd, put_along_axis, compress, nonzero, unique, tril, triu, diagonal, set_item),
    )
}
