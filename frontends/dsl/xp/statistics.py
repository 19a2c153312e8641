"""Statistical functions, and the reductions among the utility functions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from irkit.errors import InferenceError
from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import reduce
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.create import full_like
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp.array import Array, accept, as_array, each, wrap
from irkit.frontends.dsl.xp.complexes import multiply
from irkit.frontends.dsl.xp.dtypes import as_dtype, of_parts, promoted, to
from irkit.frontends.dsl.xp.elementwise import floating, floating_array, truth
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


def _summed(x: Any, dtype: DType | None, function: Callable[[Array], Array]) -> Array:
    """A sum or product, of integers as int64 or uint64 unless a dtype is given, as the standard asks."""
    value = as_array(x)
    kind: Any = value.dtype
    wide = BY_NAME["uint64" if kind.kind == "uint" else "int64"]
    wanted = as_dtype(dtype) if dtype is not None else kind if kind.kind in ("float", "complex") else wide
    # Narrow integers have no sums; modulo their range those of wide ones are the same.
    made = function(to(value, wanted if wanted.kind in ("float", "complex") else wide))
    return to(made, wanted)


def _narrow(op: str, x: Symbol, axis: Axes, keepdims: bool) -> Symbol:
    """A reduction that has no form for integers of 16 bits."""
    kind = x.dtype
    if kind is not None and kind.name in ("int16", "uint16"):
        return operators.cast(reduced(op, operators.cast(x, BY_NAME["int32"]), axis, keepdims), kind)
    return reduced(op, x, axis, keepdims)


def sum(x: Array, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """The sum over all axes, or some; of integers as int64 or uint64."""
    return _summed(x, dtype, lambda value: each(lambda part: reduced("ReduceSum", part, axis, keepdims), value))


def prod(x: Array, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """The product over all axes, or some; of integers as int64 or uint64."""

    def product(value: Array) -> Array:
        if len(value.parts) == 1:
            return wrap(reduced("ReduceProd", value.parts[0], axis, keepdims))
        return _product(value, axes_of("prod", value, axis), keepdims)

    return _summed(x, dtype, product)


_ONE = (1.0, 0.0)


def _product(x: Array, axes: list[int], keepdims: bool) -> Array:
    """The product of complex numbers: of the two halves of the elements, again and again."""
    sizes = _known("prod", x)
    rest = [i for i in range(len(sizes)) if i not in axes]
    count = math.prod(sizes[i] for i in axes)
    one_axis = [*(sizes[i] for i in rest), count]
    x = each(lambda part: shapes.reshape(make("Transpose", part, perm=[*rest, *axes]), one_axis), x)
    if count == 0:
        widths = [*[(0, 0)] * len(rest), (0, 1)]
        x = Array(*(shapes.pad(part, widths, v) for part, v in zip(x.parts, _ONE, strict=True)))
    while count > 1:
        half = count // 2
        left, right, odd = (_cut(x, *ends, -1) for ends in ((0, half), (half, 2 * half), (2 * half, count)))
        made = multiply(left, right)
        x = Array(*(shapes.concatenate(pair, -1) for pair in zip(made, odd, strict=True)) if count % 2 else made)
        count -= half
    target = [1 if i in axes else size for i, size in enumerate(sizes) if keepdims or i not in axes]
    return each(lambda part: shapes.reshape(part, target), x)


def _cut(x: Array, start: int, end: int, axis: int) -> Any:
    """The parts between two places of an axis."""
    return each(lambda part: make("Slice", part, *map(shapes.ints, (start, end, axis))), x).parts


def _known(name: str, x: Array) -> list[int]:
    sizes = x.shape
    if sizes is None or not builtins.all(isinstance(d, int) for d in sizes):
        raise failure(InferenceError, f"xp.{name} of {x!r}", hint="products of complex numbers need known sizes")
    return [d for d in sizes if isinstance(d, int)]


def max(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The greatest element over all axes, or some."""
    value = accept(x, "max")
    return wrap(_narrow("ReduceMax", value, axis, keepdims))


def min(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The least element over all axes, or some."""
    value = accept(x, "min")
    return wrap(_narrow("ReduceMin", value, axis, keepdims))


def mean(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """The mean over all axes, or some."""
    return each(lambda part: reduced("ReduceMean", part, axis, keepdims), floating_array(x))


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
    value = as_array(x)
    if axis is None and value.ndim != 1:
        raise failure(SymbolError, f"xp.{name} of {value!r} without an axis", hint="give axis=")
    at = axes_of(name, value, axis)[0]
    widths = [(int(i == at), 0) for i in range(shapes.rank_of(value.parts[0], name))]

    def running(value: Array) -> Array:
        if len(value.parts) > 1 and op == "CumProd":
            made = _products(value, at)
        else:
            made = each(lambda part: make(op, part, shapes.ints(at)[0]), value)
        if initial is None:
            return made
        first = to(initial, made.dtype)  # type: ignore[arg-type]
        return each(lambda part, filler: shapes.pad(part, widths, filler), made, first)

    return _summed(value, dtype, running)


def _products(x: Array, axis: int) -> Array:
    """Running products of complex numbers: those of 2, 4, 8... neighbours."""
    sizes, step = _known("cumulative_prod", x), 1
    while step < sizes[axis]:
        widths = [(step * (i == axis), 0) for i in range(len(sizes))]
        ahead = zip(_cut(x, 0, sizes[axis] - step, axis), _ONE, strict=True)
        x = Array(*multiply(x.parts, tuple(shapes.pad(part, widths, v) for part, v in ahead)))  # type: ignore[arg-type]
        step *= 2
    return x


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
    return wrap(reduce.all(truth(x), axis, keepdims))


def any(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether any element is true, that is, not zero."""
    return wrap(reduce.any(truth(x), axis, keepdims))


@of_parts("x", "prepend", "append")
def diff(
    x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None, append: Array | None = None
) -> Array:
    """The differences of neighbours along an axis, taken n times."""
    value, *around = promoted("diff", x, *(v for v in (prepend, append) if v is not None))
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
