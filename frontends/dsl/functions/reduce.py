"""Reductions, orders, and sums along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.frontends.dsl.build import convert, make, number
from irkit.frontends.dsl.operators import cast as cast_to
from irkit.frontends.dsl.operators import divide, multiply, subtract
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.ir.dtypes import BY_NAME

Axis = int | Sequence[int] | Operand | None

REDUCTIONS = {
    "max": "ReduceMax",
    "min": "ReduceMin",
    "norm1": "ReduceL1",
    "norm2": "ReduceL2",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "sum_square": "ReduceSumSquare",
}
"""Function -> the op that it is."""


def _axes(axis: Axis) -> Any:
    if axis is None or isinstance(axis, Operand):
        return axis
    return np.array([axis] if isinstance(axis, int) else list(axis), np.int64)


def reduced(op: str, x: Symbol, axis: Axis, keepdims: bool) -> Symbol:
    """A reduction op over all axes (None), one, or some; over none if the list is empty."""
    axes = _axes(axis)
    empty = isinstance(axes, np.ndarray) and axes.size == 0
    return make(op, x, axes, keepdims=int(keepdims), noop_with_empty_axes=int(empty))


def _reduction(name: str, op: str) -> Callable[..., Symbol]:
    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Symbol:
        return reduced(op, convert(x), axis, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{op}`` over all axes, or those given."
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {name: _reduction(name, op) for name, op in REDUCTIONS.items()}


def _floating(x: Any) -> Symbol:
    value = convert(x)
    return cast_to(value, BY_NAME["float32"]) if value.dtype and value.dtype.kind in ("int", "uint", "bool") else value


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Symbol:
    """The sum; of booleans the number of those that are true."""
    value = convert(x)
    if value.dtype is BY_NAME["bool"]:
        value = cast_to(value, BY_NAME["int64"])
    return reduced("ReduceSum", value, axis, keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Symbol:
    """The mean; of integers as float32."""
    return reduced("ReduceMean", _floating(x), axis, keepdims)


def var(x: Any, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Symbol:
    """The variance: the mean square of the distances from the mean; ``ddof`` is taken off the count."""
    value = _floating(x)
    away = subtract(value, mean(value, axis, keepdims=True))
    square = multiply(away, away)
    if ddof == 0:
        return mean(square, axis, keepdims)
    count = sum(make("Add", multiply(square, 0), 1), axis, keepdims)
    return divide(sum(square, axis, keepdims), subtract(count, ddof))


def std(x: Any, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Symbol:
    """The standard deviation."""
    return make("Sqrt", var(x, axis, keepdims, ddof))


def _truth(op: str, x: Any, axis: Axis, keepdims: bool) -> Symbol:
    value = cast_to(convert(x), BY_NAME["bool"])
    # Of bytes, which every runtime reduces.
    found = reduced(op, cast_to(value, BY_NAME["uint8"]), axis, keepdims)
    return cast_to(found, BY_NAME["bool"])


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Symbol:
    """Whether all elements are true."""
    return _truth("ReduceMin", x, axis, keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Symbol:
    """Whether any element is true."""
    return _truth("ReduceMax", x, axis, keepdims)


def _arg(op: str, x: Any, axis: int | None, keepdims: bool) -> Symbol:
    value = convert(x)
    if axis is None:
        value, axis = make("Reshape", value, np.array([-1], np.int64)), 0
    return make(op, value, axis=axis, keepdims=int(keepdims))


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Symbol:
    """Where the greatest element stands (int64), the first of several; without an axis in the flattened value."""
    return _arg("ArgMax", x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Symbol:
    """Where the least element stands; see ``argmax``."""
    return _arg("ArgMin", x, axis, keepdims)


def cumsum(x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Symbol:
    """Running sums along an axis."""
    return make("CumSum", convert(x), np.int64(axis), exclusive=int(exclusive), reverse=int(reverse))


def cumprod(x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Symbol:
    """Running products along an axis."""
    return make("CumProd", convert(x), np.int64(axis), exclusive=int(exclusive), reverse=int(reverse))


def topk(x: Any, k: Any, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Symbol, Symbol]:
    """The k greatest (or least) elements along an axis, and where they stand (int64)."""
    count = make("Reshape", cast_to(convert(k), BY_NAME["int64"]), np.array([1], np.int64))
    if isinstance(k, int):
        count = convert(np.array([k], np.int64))
    return make("TopK", convert(x), count, axis=axis, largest=int(largest), sorted=int(sorted))


def _ordered(x: Any, axis: int, descending: bool) -> tuple[Symbol, Symbol]:
    value = convert(x)
    size = value.shape[axis] if value.shape is not None else None
    if isinstance(size, int):
        return topk(value, size, axis, largest=descending)
    count = make("Gather", make("Shape", value), number(axis, BY_NAME["int64"]), axis=0)
    return topk(value, count, axis, largest=descending)


def sort(x: Any, axis: int = -1, descending: bool = False) -> Symbol:
    """The elements along an axis in order."""
    return _ordered(x, axis, descending)[0]


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Symbol:
    """The places of the elements along an axis in order; of equal ones the first comes first."""
    return _ordered(x, axis, descending)[1]


FUNCTIONS |= {
    f.__name__: f for f in (sum, mean, var, std, all, any, argmax, argmin, cumsum, cumprod, topk, sort, argsort)
}
