"""Linear algebra: the functions of the main namespace, and the extension ``linalg``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.functions import elementwise
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp import spectral
from irkit.frontends.dsl.xp.array import Array, accept, as_array, each, wrap
from irkit.frontends.dsl.xp.creation import triu
from irkit.frontends.dsl.xp.dtypes import of_parts, promoted_arrays, to
from irkit.frontends.dsl.xp.elementwise import FUNCTIONS, floating_array
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of
from irkit.frontends.dsl.xp.searching import where
from irkit.frontends.dsl.xp.spectral import EighResult, SVDResult, adjoint, at, expanded, phases
from irkit.frontends.dsl.xp.statistics import sum
from irkit.ir.dtypes import BY_NAME, DType

absolute, conj, log, real, sign, sqrt = (FUNCTIONS[name] for name in "abs conj log real sign sqrt".split())

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


def _matmul(a: Symbol, b: Symbol) -> Symbol:
    """MatMul, which has no form for integers of fewer than 32 bits; modulo their range the result is the same."""
    kind = a.dtype
    if kind is not None and kind.is_integer and kind.bits < 32:
        wide = BY_NAME["int32"]
        return operators.cast(make("MatMul", operators.cast(a, wide), operators.cast(b, wide)), kind)
    return make("MatMul", a, b)


def _product(a: Array, b: Array, function: Callable[[Symbol, Symbol], Symbol] = _matmul) -> Array:
    """A function that is linear in both operands; of complex ones, of all pairs of their parts."""
    made = [[function(x, y) for y in b.parts] for x in a.parts]
    if len(made) == 1:
        return wrap(made[0][0])
    (rr, ri), (ir, ii) = made
    return Array(make("Sub", rr, ii), make("Add", ri, ir))


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product, with broadcasting of the axes before the last two; an array of one axis is a vector."""
    a, b = promoted_arrays(x1, x2)
    return _product(a, b)


@of_parts("x")
def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    return wrap(shapes.matrix_transpose(accept(x)))


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """The sums of products over pairs of axes: the last of x1 and the first of x2, or those given."""
    a, b = promoted_arrays(x1, x2)
    rank_a, rank_b = (shapes.rank_of(v.parts[0], "tensordot") for v in (a, b))
    if isinstance(axes, int):
        axes = list(range(rank_a - axes, rank_a)), list(range(axes))
    of_a, of_b = axes_of("tensordot", a, tuple(axes[0])), axes_of("tensordot", b, tuple(axes[1]))
    rest_a, rest_b = ([i for i in range(r) if i not in used] for r, used in ((rank_a, of_a), (rank_b, of_b)))
    if a.shape is None or b.shape is None or not all(isinstance(d, int) for d in (*a.shape, *b.shape)):
        return _product(a, b, lambda x, y: _einsum(x, y, of_a, of_b))
    sizes_a, sizes_b = [int(a.shape[i]) for i in rest_a], [int(b.shape[i]) for i in rest_b]  # type: ignore[arg-type]
    inner = math.prod(int(a.shape[i]) for i in of_a)  # type: ignore[arg-type]
    if [a.shape[i] for i in of_a] != [b.shape[i] for i in of_b]:
        raise failure(InferenceError, f"xp.tensordot of {a!r} and {b!r} over {axes}: the sizes differ")

    def contracted(x: Symbol, y: Symbol) -> Symbol:
        left = shapes.reshape(_ordered(x, [*rest_a, *of_a]), [math.prod(sizes_a), inner])
        right = shapes.reshape(_ordered(y, [*of_b, *rest_b]), [inner, math.prod(sizes_b)])
        return shapes.reshape(_matmul(left, right), [*sizes_a, *sizes_b])

    return _product(a, b, contracted)


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
    """The sums of products along one axis of both, counted from the last, of the conjugates of x1 with x2."""
    a, b = promoted_arrays(x1, x2)
    a, b = (_to_the_end("vecdot", v, axes_of("vecdot", v, axis)[0]) for v in (conj(a), b))
    if a.shape is not None and b.shape is not None and a.shape[-1] != b.shape[-1]:
        raise failure(InferenceError, f"xp.vecdot of {a!r} and {b!r}: the sizes of axis {axis} differ")
    return _squeezed(_product(expanded(a, -2), expanded(b, -1)), -1, -2)


def _to_the_end(name: str, x: Array, axis: int) -> Array:
    return each(lambda part: shapes.moveaxis(part, axis, shapes.rank_of(part, name) - 1), x)


def _squeezed(x: Array, *axes: int) -> Array:
    return each(lambda part: make("Squeeze", part, shapes.ints(*axes)), x)


# The extension


def _square(name: str, x: Any) -> tuple[Array, int]:
    """The operand, of square matrices whose size is known, and that size."""
    value = floating_array(x)
    rows, columns = (value.shape or (None, None))[-2:] if value.ndim is None or value.ndim > 1 else (None, None)
    if not isinstance(rows, int) or rows != columns:
        raise failure(InferenceError, f"xp.linalg.{name} of {value!r}", hint="square matrices of a known size")
    return value, rows


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of all pairs of elements of two vectors."""
    a, b = promoted_arrays(x1, x2)
    return expanded(a, 1) * expanded(b, 0)


@of_parts("x")
def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """A diagonal of the last two axes, whose sizes must be known."""
    value = accept(x)
    shape = value.shape or ()
    if len(shape) < 2 or not isinstance(shape[-2], int) or not isinstance(shape[-1], int):
        raise failure(InferenceError, f"xp.linalg.diagonal of {value!r}", hint="matrices of known sizes")
    rows, columns = shape[-2], shape[-1]
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(rows - down, columns - right), 0)
    places = (np.arange(count, dtype=np.int64) + down) * columns + np.arange(count, dtype=np.int64) + right
    flat = make("Reshape", value, _sizes(value, shape[:-2], rows * columns), allowzero=1)
    return wrap(make("Gather", flat, places, axis=-1))


def _sizes(value: Symbol, before: Sequence[Any], last: int) -> Any:
    if all(isinstance(d, int) for d in before):
        return shapes.ints(*before, last)
    return make("Concat", make("Shape", value, end=len(before)), shapes.ints(last), axis=0)


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sum of a diagonal of the last two axes; of integers as int64 or uint64."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product along an axis of size 3; the others are broadcast."""
    a, b = promoted_arrays(x1, x2)
    places = [axes_of("linalg.cross", v, axis)[0] for v in (a, b)]
    if any(v.shape is not None and v.shape[i] != 3 for v, i in zip((a, b), places, strict=True)):
        raise failure(InferenceError, f"xp.linalg.cross of {a!r} and {b!r}: axis {axis} is not of size 3")
    a, b = (_to_the_end("cross", v, i) for v, i in zip((a, b), places, strict=True))
    (a1, b1), (a2, b2) = ([at(v, np.roll(np.arange(3), -by), -1) for v in (a, b)] for by in (1, 2))
    return each(lambda part: shapes.moveaxis(part, -1, axis % shapes.rank_of(part, "cross")), a1 * b2 - a2 * b1)


def det(x: Array, /) -> Array:
    """The determinant of square matrices; of complex ones by elimination, see ``inv``."""
    value, n = _square("det", x)
    if n == 0:
        # Det has no form for matrices of no rows, whose determinant is the empty product.
        return to(wrap(reduced("ReduceProd", value.parts[0], (-2, -1), False)), value.dtype)  # type: ignore[arg-type]
    if len(value.parts) == 1:
        return wrap(make("Det", value.parts[0]))
    found = _eliminated(value, value, n)[1]
    return _squeezed(found, -1, -2)


def slogdet(x: Array, /) -> SlogdetResult:
    """The sign of the determinant, complex of complex numbers, and the logarithm of its absolute value."""
    found = det(x)
    return SlogdetResult(sign(found), log(absolute(found)))


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


def _eliminated(a: Array, b: Array, n: int) -> tuple[Array, Array]:
    """``A^-1 B`` by Gauss-Jordan elimination with partial pivoting, written out for the n columns of A; and ``det A``.

    Golub and Van Loan, Matrix Computations, 3.4.
    """
    columns = np.arange(n, dtype=np.int64)
    determinant = as_array(np.ones((1, 1), a.dtype.numpy))  # type: ignore[union-attr]
    for k in range(n):
        size = where(columns >= k, absolute(at(a, k, -1)), -1.0)
        pivot = make("ArgMax", accept(size), axis=-1, keepdims=1)
        # Rows k and pivot are exchanged: an order for each matrix.
        order = elementwise.where(operators.equal(columns, pivot), np.array(k), columns)
        order = elementwise.where(columns == k, pivot, order)
        chosen = make("Unsqueeze", order, shapes.ints(-1))
        a, b = _rows(a, chosen), _rows(b, chosen)
        row_a, row_b = at(a, [k], -2), at(b, [k], -2)
        head = at(row_a, [k], -1)
        stays = expanded(wrap(operators.equal(pivot, np.array(k))), -1)
        determinant = determinant * where(stays, head, -head)
        row_a, row_b = row_a / head, row_b / head
        factor, is_k = at(a, [k], -1), (columns == k)[:, None]
        a, b = where(is_k, row_a, a - factor * row_a), where(is_k, row_b, b - factor * row_b)
    return b, determinant


def _rows(x: Array, order: Symbol) -> Array:
    return each(lambda part: make("GatherElements", part, make("Expand", order, make("Shape", part)), axis=-2), x)


def inv(x: Array, /) -> Array:
    """The inverse of square matrices whose size is known: a graph of some 20 ops for each row.

    Of a singular matrix, infinities and NaN.
    """
    value, n = _square("inv", x)
    return _eliminated(value, spectral.identities(value, n), n)[0] if n else value


def solve(x1: Array, x2: Array, /) -> Array:
    """The solution of ``x1 @ x = x2``, by elimination, see ``inv``; x2 of one axis is a vector, else matrices."""
    a, b = promoted_arrays(x1, x2)
    a, n = _square("solve", a)
    b = floating_array(b)
    is_vector = b.ndim == 1
    if is_vector:
        b = expanded(b, -1)
    if b.shape is not None and b.shape[-2] != n:
        raise failure(InferenceError, f"xp.linalg.solve of {a!r} and {b!r}: the sizes differ")
    batch_a, batch_b = (make("Shape", v.parts[0], end=-2) for v in (a, b))
    size_a, size_b = (make("Shape", v.parts[0], start=-2) for v in (a, b))
    b = _expanded_to(b, make("Concat", batch_a, size_b, axis=0))
    a = _expanded_to(a, make("Concat", batch_b, size_a, axis=0))
    made = _eliminated(a, b, n)[0] if n else b
    return _squeezed(made, -1) if is_vector else made


def _expanded_to(x: Array, shape: Symbol) -> Array:
    return each(lambda part: make("Expand", part, shape), x)


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices multiplied with themselves n times, by repeated squaring; of a negative n, of the inverse."""
    value, size = _square("matrix_power", x)
    if n == 0:
        return spectral.identities(value, size)
    base = inv(value) if n < 0 else value
    n, made = abs(n), None
    while n:
        if n & 1:
            made = base if made is None else made @ base
        n >>= 1
        base = base @ base if n else base
    assert made is not None
    return made


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The factor L of ``x = L L^H`` for Hermitian positive definite matrices of a known size, column by column.

    Golub and Van Loan, Matrix Computations, 4.2.
    """
    value, n = _square("cholesky", x)
    columns: list[Array] = []
    for j in range(n):
        rest = at(value, j, -1)
        for done in columns:
            rest = rest - done * conj(at(done, [j], -1))
        column = rest / sqrt(real(at(rest, [j], -1)))
        columns.append(where(np.arange(n) >= j, column, 0.0))
    if not columns:
        return value
    lower = each(lambda *parts: shapes.stack(parts, -1), *columns)
    return adjoint(lower) if upper else lower


def vector_norm(x: Array, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm over all axes, or some: ``sum(|x|^ord)^(1/ord)``; of 0 the number of elements that are not zero."""
    return wrap(_norm(accept(absolute(floating_array(x))), axis, keepdims, ord))


def _norm(size: Symbol, axis: Axes, keepdims: bool, ord: float) -> Symbol:
    if ord == math.inf:
        return reduced("ReduceMax", size, axis, keepdims)
    if ord == -math.inf:
        return reduced("ReduceMin", size, axis, keepdims)
    if ord == 0:
        return reduced("ReduceSum", operators.cast(operators.not_equal(size, 0), size.dtype), axis, keepdims)  # type: ignore[arg-type]
    if ord in (1, 2):
        return reduced("ReduceL1" if ord == 1 else "ReduceL2", size, axis, keepdims)
    return operators.power(reduced("ReduceSum", operators.power(size, float(ord)), axis, keepdims), 1 / ord)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices.

    Args:
        ord: ``"fro"``, of all elements; 1, -1, inf or -inf, the greatest or least sum of a column or row; 2, -2 or
            ``"nuc"``, the greatest or least singular value or the sum of them.
    """
    value = floating_array(x)
    if ord in (2, -2, "nuc"):
        values = accept(svdvals(value))
        op = {2: "ReduceMax", -2: "ReduceMin", "nuc": "ReduceSum"}[ord]
        found = make("Unsqueeze", reduced(op, values, -1, False), shapes.ints(-2, -1))
        return wrap(found if keepdims else make("Squeeze", found, shapes.ints(-2, -1)))
    size = accept(absolute(value))
    if ord == "fro":
        return wrap(reduced("ReduceL2", size, (-2, -1), keepdims))
    across, along = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = reduced("ReduceSum", size, across, True)
    found = reduced("ReduceMax" if ord > 0 else "ReduceMin", sums, along, True)
    return wrap(found if keepdims else make("Squeeze", found, shapes.ints(-2, -1)))


def _greatest(x: Array, axis: Axes) -> Array:
    """The size of the greatest part of a number, and 1 where all are 0: what is divided by it has squares."""
    sizes = [operators.absolute(part) for part in x.parts]
    found = reduced("ReduceMax", make("Max", *sizes) if len(sizes) > 1 else sizes[0], axis, True)
    return wrap(elementwise.where(operators.equal(found, 0), 1.0, found))


def qr(x: Array, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """``x = Q R`` for matrices of known sizes, by Householder reflections, one after the other.

    Golub and Van Loan, Matrix Computations, 5.2.
    """
    value = floating_array(x)
    m, n = spectral.sizes_of("qr", value)
    size = _greatest(value, (-2, -1)) if m and n else 1.0
    value = value / size
    q, r = spectral.identities(value, m), value
    for k in range(min(m, n)):
        column = where((np.arange(m) >= k)[:, None], at(r, [k], -1), 0.0)
        column = column / _greatest(column, -2)  # The length of v is of no account.
        length = wrap(reduced("ReduceL2", accept(absolute(column)), -2, True))
        first = where((np.arange(m) == k)[:, None], phases(at(column, [k], -2)) * length, 0.0)
        v = column + first
        square = wrap(reduced("ReduceSumSquare", accept(absolute(v)), -2, True))
        scale = 2.0 / where(square == 0, 1.0, square)
        r = r - v * scale @ (adjoint(v) @ r)
        q = q - q @ (v * scale) @ adjoint(v)
    k = m if mode == "complete" else min(m, n)
    return QRResult(q[..., :k], triu(r[..., :k, :] * size))


class QRResult(NamedTuple):
    """An orthogonal matrix, and an upper triangular one."""

    Q: Array
    R: Array


def eigh(x: Array, /) -> EighResult:
    """The eigenvalues of Hermitian matrices in ascending order, and the eigenvectors as columns."""
    return EighResult(*spectral.eigen(*_square("eigh", x)))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues of Hermitian matrices in ascending order."""
    return spectral.eigen(*_square("eigvalsh", x))[0]


class _Singular(NamedTuple):
    """Of matrices, divided by ``size`` and transposed if they are wide, the columns of U S, S and V."""

    is_wide: bool
    size: Any
    scaled: Array
    values: Array
    right: Array

    @property
    def singular_values(self) -> Array:
        """Those of the matrices themselves."""
        return self.values * (1.0 if isinstance(self.size, float) else _squeezed(self.size, -1))


def _singular(name: str, x: Any) -> _Singular:
    value = floating_array(x)
    rows, columns = spectral.sizes_of(name, value)
    size = _greatest(value, (-2, -1)) if rows and columns else 1.0
    is_wide, value = rows < columns, value / size
    tall = adjoint(value) if is_wide else value
    return _Singular(is_wide, size, *spectral.singular(tall, max(rows, columns), min(rows, columns)))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """``x = U @ diag(S) @ Vh`` with S in descending order; without ``full_matrices``, U and Vh as far as S reaches."""
    found = _singular("svd", x)
    q, r = qr(found.scaled, mode="complete" if full_matrices else "reduced")
    left = spectral.unit_columns(q, r, spectral.sizes_of("svd", found.scaled)[1])
    u, v = (found.right, left) if found.is_wide else (left, found.right)
    return SVDResult(u, found.singular_values, adjoint(v))


def svdvals(x: Array, /) -> Array:
    """The singular values in descending order."""
    return _singular("svdvals", x).singular_values


def _counted(name: str, x: Any, values: Array, rtol: Any) -> Array:
    """Which singular values are greater than ``rtol`` times the greatest; the others count as zero."""
    kind: Any = values.dtype
    given = float(np.finfo(kind.numpy).eps) * max(spectral.sizes_of(name, as_array(x))) if rtol is None else rtol
    factor = to(given if isinstance(given, int | float) else as_array(given), kind)
    return values > values[..., :1] * (expanded(factor, -1) if factor.ndim else factor)


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are greater than ``rtol`` times the greatest; by default eps times the greater size."""
    counted = _counted("matrix_rank", x, _singular("matrix_rank", x).values, rtol)
    return sum(to(counted, shapes.INT64), axis=-1)


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The pseudoinverse; singular values up to ``rtol`` times the greatest count as zero, see ``matrix_rank``."""
    found = _singular("pinv", x)
    counted = _counted("pinv", x, found.values, rtol)
    weights = where(counted, 1.0 / where(counted, found.values * found.values, 1.0), 0.0)
    made = found.right * expanded(weights, -2) @ adjoint(found.scaled) / found.size
    return adjoint(made) if found.is_wide else made
