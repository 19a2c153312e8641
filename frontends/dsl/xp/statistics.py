"""Statistical functions, and the reductions among the utility functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import reduce
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.create import full_like
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp.array import Array, accept, wrap
from irkit.frontends.dsl.xp.dtypes import as_dtype, cast, promoted, refuse_complex
from irkit.frontends.dsl.xp.elementwise import floating
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of
from irkit.ir.dtypes import BY_NAME, DType

__all__ = [
    "all",
    "any",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]


def _summed(name: str, x: Any, dtype: DType | None, function: Callable[[Symbol], Symbol]) -> Array:
    """A sum or product, of integers as int64 or uint64 unless a dtype is given, as the standard asks."""
    value = accept(x)
    refuse_complex(name, value)
    kind: Any = value.dtype
    wide = BY_NAME["uint64" if kind.kind == "uint" else "int64"]
    wanted = as_dtype(dtype) if dtype is not None else kind if kind.kind == "float" else wide
    # Narrow integers have no sums; modulo their range those of wide ones are the same.
    made = function(cast(value, wanted if wanted.kind == "float" else wide))
    return wrap(cast(made, wanted))


def _narrow(op: str, x: Symbol, axis: Axes, keepdims: bool) -> Symbol:
    """A reduction that has no form for integers of 16 bits."""
    kind = x.dtype
    if kind is not None and kind.name in ("int16", "uint16"):
        return operators.cast(reduced(op, operators.cast(x, BY_NAME["int32"]), axis, keepdims), kind)
    return reduced(op, x, axis, keepdims)


def sum(x: Array, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """The sum over all axes, or some; of integers as int64 or uint64."""
    return _summed("sum", x, dtype, lambda value: reduced("ReduceSum", value, axis, keepdims))


def prod(x: Array, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """The product over all axes, or some; of integers as int64 or uint64."""
    return _summed("prod", x, dtype, lambda value: reduced("ReduceProd", value, axis, keepdims))


def max(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The greatest element over all axes, or some."""
    value = accept(x)
    refuse_complex("max", value)
    return wrap(_narrow("ReduceMax", value, axis, keepdims))


def min(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The least element over all axes, or some."""
    value = accept(x)
    refuse_complex("min", value)
    return wrap(_narrow("ReduceMin", value, axis, keepdims))


def mean(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The mean over all axes, or some."""
    return wrap(reduced("ReduceMean", floating("mean", x), axis, keepdims))


def _variance(x: Symbol, axis: Axes, correction: float, keepdims: bool) -> Symbol:
    away = make("Sub", x, reduced("ReduceMean", x, axis, True))
    square = make("Mul", away, away)
    if correction == 0:
        return reduced("ReduceMean", square, axis, keepdims)
    count = reduced("ReduceSum", full_like(x, 1), axis, keepdims)
    return make("Div", reduced("ReduceSum", square, axis, keepdims), operators.subtract(count, float(correction)))


def var(x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance: the sum of the squared distances from the mean by the count less ``correction``."""
    return wrap(_variance(floating("var", x), axis, correction, keepdims))


def std(x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation: the square root of ``var``."""
    return wrap(make("Sqrt", _variance(floating("std", x), axis, correction, keepdims)))


def _running(name: str, op: str, x: Any, axis: int | None, dtype: DType | None, initial: int | None) -> Array:
    value = accept(x)
    if axis is None and value.ndim != 1:
        raise failure(SymbolError, f"xp.{name} of {value!r} without an axis", hint="give axis=")
    at = axes_of(name, value, axis)[0]
    widths = [(int(i == at), 0) for i in range(shapes.rank_of(value, name))]

    def running(value: Symbol) -> Symbol:
        made = make(op, value, shapes.ints(at)[0])
        return made if initial is None else shapes.pad(made, widths, initial)

    return _summed(name, value, dtype, running)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """Running sums along an axis; with a zero in front if ``include_initial``."""
    return _running("cumulative_sum", "CumSum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """Running products along an axis; with a one in front if ``include_initial``."""
    return _running("cumulative_prod", "CumProd", x, axis, dtype, 1 if include_initial else None)


def all(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether all elements are true, that is, not zero."""
    return wrap(reduce.all(accept(x), axis, keepdims))


def any(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether any element is true, that is, not zero."""
    return wrap(reduce.any(accept(x), axis, keepdims))


def diff(
    x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None
) -> Array:
    """The differences of neighbours along an axis, taken n times."""
    value, *around = promoted(x, *(v for v in (prepend, append) if v is not None))
    refuse_complex("diff", value)
    at = axes_of("diff", value, axis)[0]
    before = around[:1] if prepend is not None else []
    after = around[-1:] if append is not None else []
    if around:
        value = shapes.concatenate([*before, value, *after], at)
    for _ in range(n):
        ones, end, axes = shapes.ints(1), shapes.ints(2**63 - 1), shapes.ints(at)
        later, earlier = make("Slice", value, ones, end, axes), make("Slice", value, ones - 1, -ones, axes)
        value = operators.not_equal(later, earlier) if value.dtype is BY_NAME["bool"] else make("Sub", later, earlier)
    return wrap(value)
