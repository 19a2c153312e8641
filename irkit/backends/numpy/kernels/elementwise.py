"""Elementwise arithmetic, comparison, logic and bit operations, with NumPy-style broadcasting.

Conventions:

- Integer arithmetic wraps (two's complement). Integer Div truncates toward zero, and so does the quotient of
  ``Mod(fmod=1)``; a zero divisor is an error; the most negative integer divided by -1 wraps.
- Max, Min and Clip propagate NaN.
- Sum and Mean of narrow floats accumulate in float32 and round once.
- Transcendental functions of narrow floats are computed in float32.
- Pow computes in the type of the base where the exponent has the same type; integer powers are exact modulo 2^bits, a
  negative integer exponent truncates the reciprocal toward zero, and zero to a negative exponent is an error for
  integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, reduce

import numpy as np

from irkit.backends.numpy.kernels._common import NARROW_FLOATS, broadcast_error, broadcast_shape, scalar, widen
from irkit.backends.numpy.registry import KernelError, kernel

__all__ = ["BINARY", "UNARY", "UNARY_FLOAT", "erf"]

UNARY: dict[str, np.ufunc] = {
    "Abs": np.absolute,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
}
"""Ops that are one ufunc in every type they allow."""

UNARY_FLOAT: dict[str, np.ufunc] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Log": np.log,
    "Reciprocal": np.reciprocal,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
"""Ops on floats that are one ufunc, computed in float32 where the type is narrow."""

BINARY: dict[str, np.ufunc] = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
"""Ops on two operands that are one ufunc in every type they allow."""


def _unary(ufunc: np.ufunc) -> Callable[[np.ndarray], np.ndarray]:
    def run(x: np.ndarray) -> np.ndarray:
        return np.asarray(ufunc(x))

    return run


def _unary_float(ufunc: np.ufunc) -> Callable[[np.ndarray], np.ndarray]:
    def run(x: np.ndarray) -> np.ndarray:
        if x.dtype in NARROW_FLOATS:
            return np.asarray(ufunc(x.astype(np.float32))).astype(x.dtype)
        return np.asarray(ufunc(x))

    return run


def _binary(ufunc: np.ufunc) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(ufunc(a, b))
        except ValueError:
            raise broadcast_error(a, b) from None

    return run


for _table, _make in ((UNARY, _unary), (UNARY_FLOAT, _unary_float), (BINARY, _binary)):
    for _name, _ufunc in _table.items():
        kernel(_name)(_make(_ufunc))


@kernel("IsInf")
def is_inf(x: np.ndarray, *, detect_negative: int, detect_positive: int) -> np.ndarray:
    """Where ``x`` is an infinity of the signs asked for."""
    infinite = np.isinf(x)
    if not detect_negative:
        infinite = infinite & (x > np.zeros((), x.dtype))
    if not detect_positive:
        infinite = infinite & (x < np.zeros((), x.dtype))
    return np.asarray(infinite)


# Division and powers ------------------------------------------------------------------------------------------------


def _check_divisor(a: np.ndarray, b: np.ndarray) -> None:
    """Raises KernelError if an integer would be divided by zero."""
    shape = broadcast_shape(a.shape, b.shape)
    if not b.all() and 0 not in shape:
        index = tuple(int(i) for i in np.argwhere(b == 0)[0])
        raise KernelError(f"integer division by zero: the divisor is 0 at index {list(index)}")


@kernel("Div")
def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a / b``; for integers, truncated toward zero."""
    if a.dtype.kind not in "iu":
        try:
            return np.asarray(np.divide(a, b))
        except ValueError:
            raise broadcast_error(a, b) from None
    _check_divisor(a, b)
    quotient = np.asarray(np.floor_divide(a, b))
    if a.dtype.kind == "i":
        inexact = np.multiply(quotient, b) != a
        quotient += (inexact & ((a < 0) != (b < 0))).astype(quotient.dtype)
    return quotient


@kernel("Mod")
def mod(a: np.ndarray, b: np.ndarray, *, fmod: int) -> np.ndarray:
    """The remainder with the sign of ``b`` (fmod=0) or of ``a`` (fmod=1)."""
    if a.dtype.kind in "iu":
        _check_divisor(a, b)
    ufunc = np.fmod if fmod else np.remainder
    try:
        return np.asarray(ufunc(widen(a), widen(b))).astype(a.dtype, copy=False)
    except ValueError:
        raise broadcast_error(a, b) from None


@kernel("Pow")
def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x ** y`` in the type of ``x``."""
    broadcast_shape(x.shape, y.shape)
    if x.dtype.kind in "iu":
        return _integer_power(x, y) if y.dtype.kind in "iu" else _float_power(x, y).astype(x.dtype)
    base = widen(x)
    if y.size == 1 and y.ndim <= x.ndim and (exponent := y.item()) in (2, 3):
        square = np.multiply(base, base)
        result = square if exponent == 2 else np.multiply(square, base)
    elif x.dtype == y.dtype:
        result = np.power(base, widen(y))
    else:
        result = _float_power(base, y)
    return np.asarray(result).astype(x.dtype, copy=False)


def _float_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x ** y`` in float64, which holds the exponents that occur exactly, whatever their type."""
    return np.asarray(np.power(x.astype(np.float64), y.astype(np.float64)))


def _integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Integer ``x ** y`` by repeated squaring, wrapping; the reciprocal is truncated where ``y`` is negative."""
    negative = y < 0
    shape = broadcast_shape(x.shape, y.shape)
    base = np.array(np.broadcast_to(x, shape))
    exponent = np.array(np.broadcast_to(np.where(negative, 0, y), shape)).astype(np.uint64)
    result = np.ones(shape, x.dtype)
    while exponent.any():
        np.multiply(result, base, out=result, where=(exponent & np.uint64(1)).astype(bool))
        exponent >>= np.uint64(1)
        np.multiply(base, base, out=base)
    if negative.any():
        x = np.broadcast_to(x, shape)
        negative = np.broadcast_to(negative, shape)
        if (negative & (x == 0)).any():
            raise KernelError("zero to a negative integer exponent")
        sign = np.where((x == -1) & (y % 2 != 0), -1, 1)
        result = np.where(negative, np.where(abs(x) == 1, sign, 0), result).astype(result.dtype)
    return result


@kernel("BitShift")
def bit_shift(x: np.ndarray, y: np.ndarray, *, direction: str) -> np.ndarray:
    """``x`` shifted by ``y`` bits; past the width (or by a negative amount) only the sign's extension is left."""
    if direction not in ("LEFT", "RIGHT"):
        raise KernelError(f'direction must be "LEFT" or "RIGHT", not "{direction}"')
    broadcast_shape(x.shape, y.shape)
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    if direction == "LEFT":
        shifted = np.left_shift(x, np.where(inside, y, 0).astype(x.dtype))
        return np.asarray(np.where(inside, shifted, np.zeros((), x.dtype)))
    if x.dtype.kind == "i":
        return np.asarray(np.right_shift(x, np.where(inside, y, bits - 1).astype(x.dtype)))
    shifted = np.right_shift(x, np.where(inside, y, 0).astype(x.dtype))
    return np.asarray(np.where(inside, shifted, np.zeros((), x.dtype)))


# Several operands -----------------------------------------------------------------------------------------------------


def _fold(ufunc: np.ufunc, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    try:
        return np.asarray(reduce(ufunc, arrays))
    except ValueError:
        raise broadcast_error(*arrays) from None


@kernel("Max")
def maximum(*arrays: np.ndarray) -> np.ndarray:
    """The largest of the operands; NaN where one is NaN."""
    return _fold(np.maximum, arrays)


@kernel("Min")
def minimum(*arrays: np.ndarray) -> np.ndarray:
    """The smallest of the operands; NaN where one is NaN."""
    return _fold(np.minimum, arrays)


@kernel("Sum")
def add_all(*arrays: np.ndarray) -> np.ndarray:
    """The sum of the operands."""
    return _fold(np.add, tuple(widen(a) for a in arrays)).astype(arrays[0].dtype, copy=False)


@kernel("Mean")
def mean(*arrays: np.ndarray) -> np.ndarray:
    """The arithmetic mean of the operands."""
    total = _fold(np.add, tuple(widen(a) for a in arrays))
    return np.asarray(total / len(arrays)).astype(arrays[0].dtype, copy=False)


@kernel("Clip")
def clip(x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """``Min(high, Max(x, low))``; an absent bound does not bound."""
    for bound, name in ((low, "min"), (high, "max")):
        if bound is not None:
            scalar(bound, name)
    if low is not None:
        x = np.maximum(x, low.reshape(()))
    if high is not None:
        x = np.minimum(x, high.reshape(()))
    return np.asarray(x)


@kernel("Where")
def where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x`` where ``condition`` is true, else ``y``."""
    try:
        return np.where(condition, x, y)
    except ValueError:
        raise broadcast_error(condition, x, y) from None


# Erf ------------------------------------------------------------------------------------------------------------------

# erf(x) = tanh(x q(x^2)), where q(t) = artanh(erf(sqrt t)) / sqrt t is smooth and even. These are the coefficients of
# the polynomial of degree 8 that approximates q on [0, 16], fitted by iteratively reweighted least squares to 600
# Chebyshev nodes so that the largest relative error of erf is least: 3.2e-8, below half a unit of float32 (beyond
# x = 4 erf is 1 in float32).
_Q = (
    1.1283792023199322,
    0.10277131490230494,
    -0.00020215140500069663,
    -0.0006036818382420773,
    7.649028335015207e-05,
    -1.86133493542762e-06,
    -5.150407415790567e-07,
    5.391146956666379e-08,
    -1.6405779943331237e-09,
)

_STEP = 1 / 16
_TAYLOR_ORDER = 10
_ERF_LIMIT = 6.0


@cache
def _erf_taylor() -> np.ndarray:
    """The Taylor coefficients of erf about the points k/16 of [0, 6], one row per order.

    The n-th derivative of erf is ``(-1)^(n-1) H_(n-1)(x) 2/sqrt(pi) exp(-x^2)`` with the physicists' Hermite
    polynomials. On a cell, half a step each side, order 10 leaves less than 1e-17.
    """
    rows: list[list[float]] = []
    for k in range(int(_ERF_LIMIT / _STEP) + 1):
        x = k * _STEP
        hermite = [1.0, 2 * x]
        for n in range(1, _TAYLOR_ORDER):
            hermite.append(2 * x * hermite[n] - 2 * n * hermite[n - 1])
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        row = [math.erf(x)]
        row += [(-1) ** (n - 1) * hermite[n - 1] * slope / math.factorial(n) for n in range(1, _TAYLOR_ORDER + 1)]
        rows.append(row)
    return np.ascontiguousarray(np.array(rows).T)


def _erf64(x: np.ndarray) -> np.ndarray:
    magnitude = np.fmin(np.abs(x), _ERF_LIMIT)
    cell = np.rint(magnitude / _STEP).astype(np.intp)
    h = magnitude - cell * _STEP
    coefficients = _erf_taylor()
    result = np.take(coefficients[-1], cell)
    gathered = np.empty_like(result)
    for row in coefficients[-2::-1]:
        result *= h
        result += np.take(row, cell, out=gathered, mode="clip")
    return np.where(np.isnan(x), x, np.copysign(result, x))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of a float32 array (to about 2e-7, relative) or a float64 one (to about 2e-16)."""
    if x.dtype == np.float64:
        return _erf64(x)
    # Clipping from both sides is several times quicker than the minimum of an array and a number.
    square = np.multiply(x, x, out=np.empty_like(x))
    np.clip(square, np.float32(0), np.float32(16), out=square)
    q = np.multiply(square, np.float32(_Q[-1]), out=np.empty_like(x))
    q += _Q[-2]
    for coefficient in _Q[-3::-1]:
        q *= square
        q += coefficient
    q *= x
    return np.tanh(q, out=q)


@kernel("Erf")
def erf_kernel(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return erf(widen(x)).astype(x.dtype, copy=False)
