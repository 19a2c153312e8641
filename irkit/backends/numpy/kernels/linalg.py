"""Matrix products, Einsum, Det, Trilu.

Conventions:

- Narrow floats are multiplied and accumulated in float32 and rounded once; integers wrap.
- Products of integers go through a float64 GEMM wherever no partial sum can reach 2^53 (the result is then exact),
  else through NumPy's integer loops.
- ``A @ B`` with a matrix B and A of rank over 2 is one GEMM on A flattened to a matrix.
- Gemm computes ``beta * C`` as written: with beta = 0, a NaN in C gives NaN.
"""

from __future__ import annotations

import math

import numpy as np

from irkit.backends.numpy.kernels._common import broadcast_shape, broadcasts_to, scalar, shape_of, widen
from irkit.backends.numpy.kernels.quant import quantize
from irkit.backends.numpy.registry import KernelError, kernel

__all__ = ["matmul"]

_EXACT_IN_FLOAT64 = 2**53

_DIRECT = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
"""What BLAS multiplies as it is."""


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``numpy.matmul`` on arrays of one dtype, which is also the dtype of the result.

    Raises:
        KernelError: if the shapes do not fit.
    """
    if a.ndim >= 2 and b.ndim == 2 and a.shape[-1] == b.shape[0] and a.dtype in _DIRECT:
        return _product(a, b)
    if not a.ndim or not b.ndim:
        raise KernelError(f"operands of rank 0 can't be multiplied: {shape_of(a)} and {shape_of(b)}")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise KernelError(f"the inner dimensions of {shape_of(a)} and {shape_of(b)} differ: {a.shape[-1]} and {inner}")
    broadcast_shape(a.shape[:-2], b.shape[:-2])
    if a.dtype.kind in "iub":
        return _integer_matmul(a, b)
    return _product(widen(a), widen(b)).astype(a.dtype, copy=False)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.ndim > 2 and b.ndim == 2:
        rows = math.prod(a.shape[:-1])
        return np.matmul(a.reshape(rows, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.asarray(np.matmul(a, b))


def _magnitude(x: np.ndarray) -> int:
    """The largest absolute value in ``x``."""
    return max(abs(int(x.max())), abs(int(x.min()))) if x.size else 0


def _integer_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _magnitude(a) * _magnitude(b) * a.shape[-1] >= _EXACT_IN_FLOAT64:
        return np.asarray(np.matmul(a, b))
    exact = _product(a.astype(np.float64), b.astype(np.float64))
    return exact.astype(np.int64).astype(a.dtype, copy=False)


kernel("MatMul")(matmul)


@kernel("Gemm")
def gemm(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> np.ndarray:
    """``alpha A' B' + beta C``, A' and B' being A and B, transposed if asked for."""
    if a.ndim != 2 or b.ndim != 2:
        raise KernelError(f"A and B must be matrices, they are {shape_of(a)} and {shape_of(b)}")
    left = a.T if transA else a
    right = b.T if transB else b
    shape = (left.shape[0], right.shape[1])
    if c is not None and not broadcasts_to(c.shape, shape):
        raise KernelError(f"C {shape_of(c)} must broadcast to the shape of the product {list(shape)}")
    if a.dtype.kind in "iu":
        return _integer_gemm(left, right, c, alpha, beta)
    result = matmul(widen(left), widen(right))
    if alpha != 1:
        result *= alpha
    if c is not None:
        wide = widen(c)
        result += wide if beta == 1 else np.multiply(wide, beta)
    return result.astype(a.dtype, copy=False)


def _integer_gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: float, beta: float) -> np.ndarray:
    """The scalars are floats: a product by one that is no integer is truncated toward zero."""

    def scaled(x: np.ndarray, factor: float) -> np.ndarray:
        if float(factor).is_integer():
            return np.multiply(x, np.array(int(factor)).astype(x.dtype))
        return np.trunc(x * np.float64(factor)).astype(x.dtype)

    result = scaled(matmul(a, b), alpha)
    return np.asarray(result if c is None else result + scaled(c, beta))


@kernel("Einsum")
def einsum(*arrays: np.ndarray, equation: str) -> np.ndarray:
    """The sum of products that ``equation`` describes."""
    wide = [widen(a) for a in arrays]
    try:
        result = np.einsum(equation.replace(" ", ""), *wide, optimize=len(wide) > 1)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        shapes = ", ".join(shape_of(a) for a in arrays)
        raise KernelError(f'equation "{equation}" does not fit operands {shapes}: {error}') from None
    return np.asarray(result).astype(arrays[0].dtype, copy=False)


@kernel("Det")
def det(x: np.ndarray) -> np.ndarray:
    """The determinants of the matrices in the last two dimensions."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise KernelError(f"the last two dimensions must be equal, the input is {shape_of(x)}")
    return np.asarray(np.linalg.det(widen(x))).astype(x.dtype, copy=False)


@kernel("Trilu")
def trilu(x: np.ndarray, k: np.ndarray | None = None, *, upper: int) -> np.ndarray:
    """The part of each matrix on and above (or below) the k-th diagonal; zeros, or empty strings, elsewhere."""
    if x.ndim < 2:
        raise KernelError(f"the input must have rank 2 or more, it is {shape_of(x)}")
    rows, columns = x.shape[-2:]
    diagonal = 0 if k is None else scalar(k, "k")
    diagonal = max(-rows - 1, min(columns + 1, diagonal))
    offset = np.arange(columns) - np.arange(rows)[:, None]
    kept = offset >= diagonal if upper else offset <= diagonal
    blank = np.array("", object) if x.dtype == object else np.zeros((), x.dtype)
    return np.where(kept, x, blank)


# Integer and quantized products ---------------------------------------------------------------------------------------


def _row_zero_point(zero_point: np.ndarray, a: np.ndarray) -> np.ndarray:
    """A zero point or scale of the left operand: a scalar, or one value a row, shaped to broadcast."""
    if zero_point.size == 1:
        return zero_point.reshape(())
    if zero_point.ndim == 1:
        zero_point = zero_point[:, None]
    if a.ndim < 2 or not broadcasts_to(zero_point.shape, a.shape) or zero_point.shape[-1] != 1:
        raise KernelError(f"a zero point or scale {shape_of(zero_point)} has not one value per row of {shape_of(a)}")
    return zero_point


def _column_zero_point(zero_point: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A zero point or scale of the right operand: a scalar, or one value a column, shaped to broadcast."""
    if zero_point.size == 1:
        return zero_point.reshape(())
    one_row = zero_point.ndim == 1 or zero_point.shape[-2] == 1
    if b.ndim < 2 or not broadcasts_to(zero_point.shape, b.shape) or not one_row:
        raise KernelError(f"a zero point or scale {shape_of(zero_point)} has not one value per column of {shape_of(b)}")
    return zero_point


@kernel("MatMulInteger")
def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None, b_zero_point: np.ndarray | None = None
) -> np.ndarray:
    """``(A - a_zero_point) (B - b_zero_point)``, accumulated in int32 (wrapping)."""
    left, right = a.astype(np.int64), b.astype(np.int64)
    if a_zero_point is not None:
        left = np.asarray(left - _row_zero_point(a_zero_point, a))
    if b_zero_point is not None:
        right = np.asarray(right - _column_zero_point(b_zero_point, b))
    return matmul(left, right).astype(np.int32)


@kernel("QLinearMatMul")
def qlinear_matmul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
) -> np.ndarray:
    """The product of two dequantized matrices, quantized by ``y_scale`` and ``y_zero_point``.

    The integers are multiplied exactly; scales apply to the product in float64, one rounding before the last.
    """

    def centered(x: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
        return np.asarray(x.astype(np.float64) - zero_point.astype(np.float64))

    rows, columns = _row_zero_point(a_scale, a), _column_zero_point(b_scale, b)
    product = matmul(centered(a, _row_zero_point(a_zero_point, a)), centered(b, _column_zero_point(b_zero_point, b)))
    if b.ndim == 1 and rows.ndim:
        rows = rows[..., 0]
    if a.ndim == 1 and columns.ndim > 1:
        columns = columns[..., 0, :]
    scale = rows.astype(np.float64) * columns.astype(np.float64)
    divisor = _row_zero_point(y_scale, product).astype(np.float64)
    offset = _row_zero_point(y_zero_point, product)
    return quantize(np.asarray(product * scale / divisor), offset, y_zero_point.dtype)
