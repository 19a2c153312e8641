"""Searching, sorting and set functions."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import elementwise, reduce
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.xp.array import Array, accept, as_array, from_pairs, to_pairs, wrap
from irkit.frontends.dsl.xp.dtypes import of_parts, promoted
from irkit.frontends.dsl.xp.elementwise import truth
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "nonzero",
    "searchsorted",
    "sort",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]


def _extreme(name: str, op: str, x: Any, axis: int | None, keepdims: bool) -> Array:
    value = accept(x, name)
    if axis is not None:
        return wrap(make(op, value, axis=axes_of(name, value, axis)[0], keepdims=int(keepdims)))
    found = make(op, shapes.ravel(value), axis=0, keepdims=0)
    return wrap(shapes.reshape(found, [1] * shapes.rank_of(value, name)) if keepdims else found)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the greatest element stands (int64), the first of several; without an axis in the flattened array."""
    return _extreme("argmax", "ArgMax", x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the least element stands (int64), the first of several; without an axis in the flattened array."""
    return _extreme("argmin", "ArgMin", x, axis, keepdims)


def count_nonzero(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """How many elements are not zero (int64)."""
    return wrap(reduced("ReduceSum", operators.cast(truth(x), shapes.INT64), axis, keepdims))


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, an array of int64 for each axis.

    Raises:
        SymbolError: for an array of no axes.
    """
    value = truth(x)
    if value.ndim == 0:
        raise failure(SymbolError, f"xp.nonzero of {value!r}, which has no axes", hint="use x != 0")
    return tuple(wrap(row) for row in shapes.nonzero(value))


def searchsorted(
    x1: Array, x2: Array, /, *, side: Literal["left", "right"] = "left", sorter: Array | None = None
) -> Array:
    """Where the elements of x2 are to be put into the sorted x1 (int64): behind as many as are less, or not greater."""
    line, values = promoted("searchsorted", x1, x2)
    if sorter is not None:
        line = make("Gather", line, accept(sorter), axis=0)
    before = make("Less" if side == "left" else "LessOrEqual", line, make("Unsqueeze", values, shapes.ints(-1)))
    return wrap(reduced("ReduceSum", operators.cast(before, shapes.INT64), -1, False))


@of_parts("x1", "x2")
def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """Elements of x1 where the condition holds, of x2 elsewhere."""
    return wrap(elementwise.where(accept(condition), *promoted("where", x1, x2)))


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements along an axis in order."""
    value = accept(x, "sort")
    return wrap(reduce.sort(value, axes_of("sort", value, axis)[0], descending))


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places (int64) of the elements along an axis in order; of equal ones the first comes first."""
    value = accept(x, "argsort")
    return wrap(reduce.argsort(value, axes_of("argsort", value, axis)[0], descending))


class UniqueAll(NamedTuple):
    """The different elements; where each stands first; where those of x stand among them; how often each occurs."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different elements, and how often each occurs."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different elements, and where those of x stand among them."""

    values: Array
    inverse_indices: Array


def _unique(x: Any) -> tuple[Array, Array, Array, Array]:
    value = as_array(x)
    if len(value.parts) == 1:
        found, *others = make("Unique", shapes.ravel(value), sorted=1, outputs=4)
        values = wrap(found)
    else:
        flat = to_pairs(Array(*map(shapes.ravel, value.parts))).value
        found, *others = make("Unique", flat, axis=0, sorted=1, outputs=4)
        values = from_pairs(found)
    indices, inverse, counts = others
    inverse = make("Reshape", inverse, make("Shape", value.parts[0]), allowzero=1)
    return values, wrap(indices), wrap(inverse), wrap(counts)


def unique_all(x: Array, /) -> UniqueAll:
    """The different elements in order, their first places, their inverse, and their counts."""
    return UniqueAll(*_unique(x))


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements in order, and how often each occurs."""
    values, _, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements in order, and where those of x stand among them."""
    values, _, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Array, /) -> Array:
    """The different elements in order."""
    return _unique(x)[0]
