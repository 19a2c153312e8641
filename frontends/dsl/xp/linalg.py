"""Linear algebra: the functions of the main namespace, and the extension ``linalg``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make, number
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.functions import elementwise
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp import spectral
from irkit.frontends.dsl.xp.array import Array, accept, wrap
from irkit.frontends.dsl.xp.dtypes import promoted, refuse_complex
from irkit.frontends.dsl.xp.elementwise import floating
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of
from irkit.frontends.dsl.xp.spectral import EighResult, SVDResult
from irkit.frontends.dsl.xp.statistics import sum
from irkit.ir.dtypes import BY_NAME, DType

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def _product(a: Symbol, b: Symbol) -> Symbol:
    """MatMul, which has no form for integers of fewer than 32 bits; modulo their range the result is the same."""
    kind = a.dtype
    if kind is not None and kind.is_integer and kind.bits < 32:
        wide = BY_NAME["int32"]
        return operators.cast(make("MatMul", operators.cast(a, wide), operators.cast(b, wide)), kind)
    return make("MatMul", a, b)


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product, with broadcasting of the axes before the last two; an array of one axis is a vector."""
    a, b = promoted(x1, x2)
    refuse_complex("matmul", a)
    return wrap(_product(a, b))


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    return wrap(shapes.matrix_transpose(accept(x)))


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """The sums of products over pairs of axes: the last of x1 and the first of x2, or those given."""
    a, b = promoted(x1, x2)
    refuse_complex("tensordot", a)
    rank_a, rank_b = shapes.rank_of(a, "tensordot"), shapes.rank_of(b, "tensordot")
    if isinstance(axes, int):
        axes = list(range(rank_a - axes, rank_a)), list(range(axes))
    of_a, of_b = axes_of("tensordot", a, tuple(axes[0])), axes_of("tensordot", b, tuple(axes[1]))
    rest_a, rest_b = ([i for i in range(r) if i not in used] for r, used in ((rank_a, of_a), (rank_b, of_b)))
    if a.shape is None or b.shape is None or not all(isinstance(d, int) for d in (*a.shape, *b.shape)):
        return wrap(_einsum(a, b, of_a, of_b))
    sizes_a, sizes_b = [int(a.shape[i]) for i in rest_a], [int(b.shape[i]) for i in rest_b]  # type: ignore[arg-type]
    inner = math.prod(int(a.shape[i]) for i in of_a)  # type: ignore[arg-type]
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise failure(InferenceError, f"xp.tensordot of {a!r} and {b!r} over {axes}: the sizes differ")
    left = shapes.reshape(_ordered(a, [*rest_a, *of_a]), [math.prod(sizes_a), inner])
    right = shapes.reshape(_ordered(b, [*of_b, *rest_b]), [inner, math.prod(sizes_b)])
    return wrap(shapes.reshape(_product(left, right), [*sizes_a, *sizes_b]))


def _ordered(x: Symbol, order: list[int]) -> Symbol:
    return x if order == list(range(len(order))) else make("Transpose", x, perm=order)


def _einsum(a: Symbol, b: Symbol, of_a: list[int], of_b: list[int]) -> Symbol:
    letters_a = [chr(ord("a") + i) for i in range(shapes.rank_of(a, "tensordot"))]
    letters_b = [chr(ord("A") + i) for i in range(shapes.rank_of(b, "tensordot"))]
    for i, j in zip(of_a, of_b, strict=True):
        letters_b[j] = letters_a[i]
    shared = {letters_a[i] for i in of_a}
    rest = [c for c in (*letters_a, *letters_b) if c not in shared]
    return make("Einsum", a, b, equation=f"{''.join(letters_a)},{''.join(letters_b)}->{''.join(rest)}")


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sums of products along one axis of both, counted from the last; the others are broadcast."""
    a, b = promoted(x1, x2)
    refuse_complex("vecdot", a)
    a, b = (shapes.moveaxis(v, axes_of("vecdot", v, axis)[0], -1 % shapes.rank_of(v, "vecdot")) for v in (a, b))
    if a.shape is not None and b.shape is not None and a.shape[-1] != b.shape[-1]:
        raise failure(InferenceError, f"xp.vecdot of {a!r} and {b!r}: the sizes of axis {axis} differ")
    left, right = make("Unsqueeze", a, shapes.ints(-2)), make("Unsqueeze", b, shapes.ints(-1))
    return wrap(make("Squeeze", _product(left, right), shapes.ints(-1, -2)))


# The extension


def _square(name: str, x: Any) -> tuple[Symbol, int]:
    """The operand, of square matrices whose size is known, and that size."""
    value = floating(name, x)
    rows, columns = (value.shape or (None, None))[-2:] if value.ndim is None or value.ndim > 1 else (None, None)
    if not isinstance(rows, int) or rows != columns:
        raise failure(InferenceError, f"xp.linalg.{name} of {value!r}", hint="square matrices of a known size")
    return value, rows


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of all pairs of elements of two vectors."""
    a, b = promoted(x1, x2)
    refuse_complex("linalg.outer", a)
    return wrap(make("Mul", make("Unsqueeze", a, shapes.ints(1)), make("Unsqueeze", b, shapes.ints(0))))


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """A diagonal of the last two axes, whose sizes must be known."""
    return wrap(_diagonal("linalg.diagonal", accept(x), offset))


def _diagonal(name: str, value: Symbol, offset: int) -> Symbol:
    shape = value.shape or ()
    if len(shape) < 2 or not isinstance(shape[-2], int) or not isinstance(shape[-1], int):
        raise failure(InferenceError, f"xp.{name} of {value!r}", hint="matrices of known sizes")
    rows, columns = shape[-2], shape[-1]
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(rows - down, columns - right), 0)
    places = (np.arange(count, dtype=np.int64) + down) * columns + np.arange(count, dtype=np.int64) + right
    flat = make("Reshape", value, _sizes(value, shape[:-2], rows * columns), allowzero=1)
    return make("Gather", flat, places, axis=-1)


def _sizes(value: Symbol, before: Sequence[Any], last: int) -> Any:
    if all(isinstance(d, int) for d in before):
        return shapes.ints(*before, last)
    return make("Concat", make("Shape", value, end=len(before)), shapes.ints(last), axis=0)


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sum of a diagonal of the last two axes; of integers as int64 or uint64."""
    value = accept(x)
    refuse_complex("linalg.trace", value)
    return sum(wrap(_diagonal("linalg.trace", value, offset)), axis=-1, dtype=dtype)


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product along an axis of size 3; the others are broadcast."""
    a, b = promoted(x1, x2)
    refuse_complex("linalg.cross", a)
    at = [axes_of("linalg.cross", v, axis)[0] for v in (a, b)]
    if any(v.shape is not None and v.shape[i] != 3 for v, i in zip((a, b), at, strict=True)):
        raise failure(InferenceError, f"xp.linalg.cross of {a!r} and {b!r}: axis {axis} is not of size 3")
    a, b = (shapes.moveaxis(v, i, shapes.rank_of(v, "cross") - 1) for v, i in zip((a, b), at, strict=True))

    def turned(x: Symbol, by: int) -> Symbol:
        return make("Gather", x, np.roll(np.arange(3), -by), axis=-1)

    made = make("Sub", make("Mul", turned(a, 1), turned(b, 2)), make("Mul", turned(a, 2), turned(b, 1)))
    return wrap(shapes.moveaxis(made, -1, axis % shapes.rank_of(made, "cross")))


def det(x: Array, /) -> Array:
    """The determinant of square matrices."""
    value, n = _square("det", x)
    # Det has no form for matrices of no rows, whose determinant is the empty product.
    return wrap(make("Det", value) if n else reduced("ReduceProd", value, (-2, -1), False))


def slogdet(x: Array, /) -> SlogdetResult:
    """The sign of the determinant, and the logarithm of its absolute value."""
    found = accept(det(x))
    return SlogdetResult(wrap(make("Sign", found)), wrap(make("Log", make("Abs", found))))


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


def _solved(a: Symbol, b: Symbol, n: int) -> Symbol:
    """``A^-1 B`` by Gauss-Jordan elimination with partial pivoting, written out for the n columns of A.

    Golub and Van Loan, Matrix Computations, 3.4.
    """
    columns = np.arange(n, dtype=np.int64)
    kind: Any = a.dtype
    for k in range(n):
        column = make("Gather", a, np.array(k), axis=-1)
        size = operators.absolute(column)
        open_rows = np.arange(n) >= k
        size = elementwise.where(open_rows, size, number(-1.0, kind))
        pivot = make("ArgMax", size, axis=-1, keepdims=1)
        # Rows k and pivot are exchanged: an order for each matrix.
        order = elementwise.where(operators.equal(columns, pivot), np.array(k), columns)
        order = elementwise.where(np.arange(n) == k, pivot, order)
        chosen = make("Unsqueeze", order, shapes.ints(-1))
        a, b = _rows(a, chosen), _rows(b, chosen)
        row_a, row_b = (make("Gather", v, np.array([k]), axis=-2) for v in (a, b))
        head = make("Gather", row_a, np.array([k]), axis=-1)
        row_a, row_b = make("Div", row_a, head), make("Div", row_b, head)
        factor = make("Gather", a, np.array([k]), axis=-1)
        is_k = (np.arange(n) == k)[:, None]
        a = elementwise.where(is_k, row_a, make("Sub", a, make("Mul", factor, row_a)))
        b = elementwise.where(is_k, row_b, make("Sub", b, make("Mul", factor, row_b)))
    return b


def _rows(x: Symbol, order: Symbol) -> Symbol:
    return make("GatherElements", x, make("Expand", order, make("Shape", x)), axis=-2)


def inv(x: Array, /) -> Array:
    """The inverse of square matrices whose size is known: a graph of some 20 ops for each row.

    Of a singular matrix, infinities and NaN.
    """
    value, n = _square("inv", x)
    return wrap(_solved(value, spectral.identities(value, n), n) if n else value)


def solve(x1: Array, x2: Array, /) -> Array:
    """The solution of ``x1 @ x = x2``, by elimination, see ``inv``; x2 of one axis is a vector, else matrices."""
    a, b = promoted(x1, x2)
    a, n = _square("solve", a)
    b = floating("linalg.solve", b)
    is_vector = b.ndim == 1
    if is_vector:
        b = make("Unsqueeze", b, shapes.ints(-1))
    if b.shape is not None and b.shape[-2] != n:
        raise failure(InferenceError, f"xp.linalg.solve of {a!r} and {b!r}: the sizes differ")
    batch_a, batch_b = make("Shape", a, end=-2), make("Shape", b, end=-2)
    size_a, size_b = make("Shape", a, start=-2), make("Shape", b, start=-2)
    b = make("Expand", b, make("Concat", batch_a, size_b, axis=0))
    a = make("Expand", a, make("Concat", batch_b, size_a, axis=0))
    made = _solved(a, b, n) if n else b
    return wrap(make("Squeeze", made, shapes.ints(-1)) if is_vector else made)


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices multiplied with themselves n times, by repeated squaring; of a negative n, of the inverse."""
    value, size = _square("matrix_power", x)
    if n == 0:
        return wrap(spectral.identities(value, size))
    base = accept(inv(wrap(value))) if n < 0 else value
    n, made = abs(n), None
    while n:
        if n & 1:
            made = base if made is None else make("MatMul", made, base)
        n >>= 1
        base = make("MatMul", base, base) if n else base
    assert made is not None
    return wrap(made)


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The factor L of ``x = L L^T`` for symmetric positive definite matrices of a known size, column by column.

    Golub and Van Loan, Matrix Computations, 4.2.
    """
    value, n = _square("cholesky", x)
    columns: list[Symbol] = []
    for j in range(n):
        rest = make("Gather", value, np.array(j), axis=-1)
        for done in columns:
            rest = make("Sub", rest, make("Mul", done, make("Gather", done, np.array([j]), axis=-1)))
        column = make("Div", rest, make("Sqrt", make("Gather", rest, np.array([j]), axis=-1)))
        columns.append(elementwise.where(np.arange(n) >= j, column, number(0.0, value.dtype)))
    if not columns:
        return wrap(value)
    return wrap(
        make(
            "Concat",
            *(make("Unsqueeze", c, shapes.ints(-2 if upper else -1)) for c in columns),
            axis=-2 if upper else -1,
        )
    )


def vector_norm(x: Array, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm over all axes, or some: ``sum(|x|^ord)^(1/ord)``; of 0 the number of elements that are not zero."""
    return wrap(_norm(floating("linalg.vector_norm", x), axis, keepdims, ord))


def _norm(x: Symbol, axis: Axes, keepdims: bool, ord: float) -> Symbol:
    size = operators.absolute(x)
    if ord == math.inf:
        return reduced("ReduceMax", size, axis, keepdims)
    if ord == -math.inf:
        return reduced("ReduceMin", size, axis, keepdims)
    if ord == 0:
        return reduced("ReduceSum", operators.cast(operators.not_equal(x, 0), x.dtype), axis, keepdims)  # type: ignore[arg-type]
    if ord in (1, 2):
        return reduced("ReduceL1" if ord == 1 else "ReduceL2", x, axis, keepdims)
    return operators.power(reduced("ReduceSum", operators.power(size, float(ord)), axis, keepdims), 1 / ord)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices.

    Args:
        ord: ``"fro"``, of all elements; 1, -1, inf or -inf, the greatest or least sum of a column or row; 2, -2 or
            ``"nuc"``, the greatest or least singular value or the sum of them.
    """
    value = floating("linalg.matrix_norm", x)
    if ord == "fro":
        return wrap(reduced("ReduceL2", value, (-2, -1), keepdims))
    if ord in (2, -2, "nuc"):
        values = _singular("matrix_norm", value)[2]
        op = {2: "ReduceMax", -2: "ReduceMin", "nuc": "ReduceSum"}[ord]
        found = make("Unsqueeze", reduced(op, values, -1, False), shapes.ints(-2, -1))
        return wrap(found if keepdims else make("Squeeze", found, shapes.ints(-2, -1)))
    across, along = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = reduced("ReduceL1", value, across, True)
    found = reduced("ReduceMax" if ord > 0 else "ReduceMin", sums, along, True)
    return wrap(found if keepdims else make("Squeeze", found, shapes.ints(-2, -1)))


def qr(x: Array, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """``x = Q R`` for matrices of known sizes, by Householder reflections, one after the other.

    Golub and Van Loan, Matrix Computations, 5.2.
    """
    value = floating("linalg.qr", x)
    m, n = spectral.sizes_of("qr", value)
    kind: Any = value.dtype
    q, r = spectral.identities(value, m), value
    for k in range(min(m, n)):
        column = elementwise.where((np.arange(m) >= k)[:, None], make("Gather", r, np.array([k]), axis=-1), 0.0)
        length = reduced("ReduceL2", column, -2, True)
        head = make("Gather", column, np.array([k]), axis=-2)
        signed = elementwise.where(operators.less(head, 0), make("Neg", length), length)
        v = operators.add(column, make("Mul", signed, (np.arange(m) == k)[:, None].astype(kind.numpy)))
        square = reduced("ReduceSumSquare", v, -2, True)
        scale = make("Div", number(2.0, kind), elementwise.where(operators.equal(square, 0), 1.0, square))
        r = make("Sub", r, make("Mul", scale, make("MatMul", v, make("MatMul", shapes.matrix_transpose(v), r))))
        q = make("Sub", q, make("Mul", scale, make("MatMul", make("MatMul", q, v), shapes.matrix_transpose(v))))
    k = m if mode == "complete" else min(m, n)
    q = make("Slice", q, shapes.ints(0), shapes.ints(k), shapes.ints(-1))
    r = shapes.triu(make("Slice", r, shapes.ints(0), shapes.ints(k), shapes.ints(-2)))
    return QRResult(wrap(q), wrap(r))


class QRResult(NamedTuple):
    """An orthogonal matrix, and an upper triangular one."""

    Q: Array
    R: Array


def eigh(x: Array, /) -> EighResult:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns."""
    return EighResult(*map(wrap, spectral.eigen(*_square("eigh", x))))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues of symmetric matrices in ascending order."""
    return wrap(spectral.eigen(*_square("eigvalsh", x))[0])


def _singular(name: str, x: Any) -> tuple[bool, Symbol, Symbol, Symbol]:
    """Whether the matrices were transposed to have no fewer rows than columns; then ``U S``, S and V of these."""
    value = floating(f"linalg.{name}", x)
    rows, columns = spectral.sizes_of(name, value)
    is_wide = rows < columns
    tall = shapes.matrix_transpose(value) if is_wide else value
    return is_wide, *spectral.singular(tall, max(rows, columns), min(rows, columns))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """``x = U @ diag(S) @ Vh`` with S in descending order; without ``full_matrices``, U and Vh as far as S reaches."""
    is_wide, scaled, values, right = _singular("svd", x)
    q, r = map(accept, qr(wrap(scaled), mode="complete" if full_matrices else "reduced"))
    left = spectral.unit_columns(scaled, q, r, spectral.sizes_of("svd", scaled)[1])
    u, v = (right, left) if is_wide else (left, right)
    return SVDResult(wrap(u), wrap(values), wrap(shapes.matrix_transpose(v)))


def svdvals(x: Array, /) -> Array:
    """The singular values in descending order."""
    return wrap(_singular("svdvals", x)[2])


def _threshold(name: str, x: Any, values: Symbol, rtol: Any) -> Symbol:
    """The singular values up to which they count as zero: ``rtol`` times the greatest."""
    kind: Any = values.dtype
    size = max(spectral.sizes_of(name, accept(x)))
    given = float(np.finfo(kind.numpy).eps) * size if rtol is None else rtol
    factor = number(float(given), kind) if isinstance(given, int | float) else operators.cast(accept(given), kind)
    return make("Mul", make("Slice", values, shapes.ints(0), shapes.ints(1), shapes.ints(-1)), _last_axis(factor))


def _last_axis(x: Symbol) -> Symbol:
    return make("Unsqueeze", x, shapes.ints(-1)) if x.ndim else x


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are greater than ``rtol`` times the greatest; by default eps times the greater size."""
    values = _singular("matrix_rank", x)[2]
    counted = operators.greater(values, _threshold("matrix_rank", x, values, rtol))
    return wrap(reduced("ReduceSum", operators.cast(counted, shapes.INT64), -1, False))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The pseudoinverse; singular values up to ``rtol`` times the greatest count as zero, see ``matrix_rank``."""
    is_wide, scaled, values, right = _singular("pinv", x)
    counted = operators.greater(values, _threshold("pinv", x, values, rtol))
    square = elementwise.where(counted, make("Mul", values, values), 1.0)
    weights = make("Unsqueeze", elementwise.where(counted, make("Reciprocal", square), 0.0), shapes.ints(-2))
    made = make("MatMul", make("Mul", right, weights), shapes.matrix_transpose(scaled))
    return wrap(shapes.matrix_transpose(made) if is_wide else made)
