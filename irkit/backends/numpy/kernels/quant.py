"""Conversions of element types: Cast, CastLike, BitCast, and (de)quantization.

Conventions where ONNX leaves a choice:

- A float out of the range of an integer type is cast as the CPU does it (undefined in ONNX); integers wrap, those of 2
  and 4 bits included. NaN to bool is True.
- Types narrower than float32 are rounded once, to the nearest, ties to even, from the exact value.
- float4 and float6 saturate, and NaN becomes 0: they have no infinity and no NaN.
- float8_e8m0fnu: the rounded value is clamped to 2^-127 .. 2^127 (0 included) with ``saturate``, else a value out of
  range gives NaN; negative values give NaN.
- Numbers become strings in plain notation with the fewest digits that read back the same (bfloat16 and smaller: as
  float32), whole floats without a fraction (``"1"``); ``"NaN"``, ``"INF"``, ``"-INF"``; bool as ``"1"`` and ``"0"``.
- A string that is no number is an error; one with a fraction is truncated when cast to an integer type.
- QuantizeLinear of NaN gives the zero point for integers.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from irkit.backends.numpy.kernels._common import FLOAT8, NARROW_FLOATS, SMALL_INTS, normalize_axis, shape_of, widen
from irkit.backends.numpy.registry import KernelError, kernel
from irkit.ir.dtypes import BY_CODE, BY_NUMPY

__all__ = ["cast", "quantize"]

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_NO_NAN = frozenset(np.dtype(t) for t in (ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn))


def _dtype(code: int) -> np.dtype:
    """The NumPy dtype of an element type given by its ONNX code."""
    if code not in BY_CODE:
        raise KernelError(f"{code} is no element type")
    return BY_CODE[code].numpy


# Cast -----------------------------------------------------------------------------------------------------------------


def cast(x: np.ndarray, dtype: np.dtype, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """``x`` in another element type, by the rules of ONNX's Cast.

    Args:
        x: any array; strings are ``object`` arrays of ``str``.
        dtype: the type to convert to; ``object`` for strings.
        saturate: for float8 targets, whether values out of range become the largest finite value.
        round_mode: for float8_e8m0fnu, ``"up"``, ``"down"`` or ``"nearest"``.

    Raises:
        KernelError: if a string is no number of the target type.
    """
    if x.dtype == dtype:
        return x
    if dtype.kind == "O":
        return _to_strings(x)
    if x.dtype.kind == "O":
        return _from_strings(x, dtype, saturate, round_mode)
    x = widen(x)
    if x.dtype in SMALL_INTS:
        x = x.astype(np.int8)
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if dtype == _E8M0:
        return _to_e8m0(x, saturate, round_mode)
    if dtype in NARROW_FLOATS:
        return _to_narrow_float(x, dtype, saturate)
    if dtype in SMALL_INTS:
        return _to_small_int(x, dtype)
    return x.astype(dtype)


def _to_narrow_float(x: np.ndarray, dtype: np.dtype, saturate: bool) -> np.ndarray:
    if dtype == np.float16:
        return x.astype(dtype)
    x = _to_odd_float32(x)
    if dtype in _NO_NAN:
        x = np.where(np.isnan(x), np.float32(0), x)
    if dtype in _NO_NAN or (dtype in FLOAT8 and saturate):
        largest = np.float32(ml_dtypes.finfo(dtype).max)
        x = np.clip(x, -largest, largest)
    return np.asarray(x).astype(dtype)


def _to_odd_float32(x: np.ndarray) -> np.ndarray:
    """``x`` in float32 rounded to odd: rounding that to 22 bits or fewer gives what rounding ``x`` itself would.

    An inexact result has its last bit set (Boldo and Melquiond, "When double rounding is odd", 2005), so it can't fall
    on a tie of a narrower format.
    """
    if x.dtype == np.float32 or (x.dtype.itemsize < 4 and x.dtype.kind in "iub"):
        return x.astype(np.float32)
    x = np.asarray(x, np.float64)
    nearest = np.asarray(x.astype(np.float32))
    back = nearest.astype(np.float64)
    bits = nearest.view(np.int32)
    even = (back != x) & (bits & 1 == 0) & np.isfinite(nearest) & np.isfinite(x)
    step = np.where(np.abs(back) > np.abs(x), -1, 1).astype(np.int32)
    return np.asarray(np.where(even, bits + step, bits)).astype(np.int32).view(np.float32)


def _to_small_int(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats are truncated toward zero first; the low bits of an integer are kept, and read with the sign."""
    if x.dtype.kind == "f":
        x = x.astype(np.int32)
    bits = BY_NUMPY[dtype].bits
    low = np.asarray(x.astype(np.int64) & (2**bits - 1))
    if BY_NUMPY[dtype].kind == "int":
        half = 2 ** (bits - 1)
        low = np.asarray((low ^ half) - half)
    return low.astype(np.int8).astype(dtype)


def _to_e8m0(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """Powers of two 2^(code - 127), code 255 being NaN."""
    if round_mode not in ("up", "down", "nearest"):
        raise KernelError(f'round_mode must be "up", "down" or "nearest", not "{round_mode}"')
    value = x.astype(np.float64)
    mantissa, exponent = np.frexp(value)
    above = {"up": mantissa > 0.5, "down": False, "nearest": mantissa >= 0.75}[round_mode]
    code = exponent.astype(np.int64) - 1 + 127 + above
    code = np.where(value == 0, -1, np.where(np.isposinf(value), 255, code))
    if saturate:
        code = np.clip(code, 0, 254)
    invalid = np.isnan(value) | (value < 0) | (code < 0) | (code > 254)
    return np.asarray(np.where(invalid, 255, code)).astype(np.uint8).view(_E8M0)


def _number_to_string(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return np.format_float_positional(value, unique=True, trim="-")


def _to_strings(x: np.ndarray) -> np.ndarray:
    if x.dtype in SMALL_INTS:
        x = x.astype(np.int8)
    elif x.dtype in NARROW_FLOATS and x.dtype != np.float16:
        x = x.astype(np.float32)
    # Integers and bools as Python values, floats as NumPy scalars, which know how many digits they need.
    values = x.ravel().tolist() if x.dtype.kind in "iub" else list(x.ravel())
    result = np.empty(x.size, object)
    result[:] = [_number_to_string(value) for value in values]
    return result.reshape(x.shape)


def _parse(text: Any, dtype: np.dtype) -> Any:
    """The number that ``text`` spells: an int for integer types, else a float.

    Raises:
        KernelError: if it is none, or does not fit an integer type.
    """
    stripped = str(text).strip()
    integer = dtype.kind in "iu" or dtype in SMALL_INTS
    try:
        if "_" in stripped:
            raise ValueError
        try:
            value: int | float = int(stripped) if integer else float(stripped)
        except ValueError:
            value = int(float(stripped)) if integer else float(stripped)
    except (ValueError, OverflowError):
        raise KernelError(f"the string {text!r} can't be cast to {dtype.name}") from None
    if integer:
        info = ml_dtypes.iinfo(dtype)
        if not int(info.min) <= value <= int(info.max):
            raise KernelError(f"the string {text!r} is out of the range of {dtype.name}")
    return value


def _from_strings(x: np.ndarray, dtype: np.dtype, saturate: bool, round_mode: str) -> np.ndarray:
    values = [_parse(text, dtype) for text in x.ravel()]
    if dtype.kind in "iu":
        return np.array(values, dtype).reshape(x.shape)
    wide = np.array(values, np.int8 if dtype in SMALL_INTS else np.float64).reshape(x.shape)
    return cast(wide, dtype, saturate=saturate, round_mode=round_mode)


@kernel("Cast")
def cast_kernel(x: np.ndarray, *, to: int, saturate: int, round_mode: str) -> np.ndarray:
    """``x`` converted to the element type ``to``."""
    return cast(x, _dtype(to), saturate=bool(saturate), round_mode=round_mode)


@kernel("CastLike")
def cast_like(x: np.ndarray, target: np.ndarray, *, saturate: int, round_mode: str) -> np.ndarray:
    """``x`` converted to the element type of ``target``."""
    return cast(x, target.dtype, saturate=bool(saturate), round_mode=round_mode)


@kernel("BitCast")
def bit_cast(x: np.ndarray, *, to: int) -> np.ndarray:
    """The bits of ``x`` read as another type of the same width; a byte read as bool is True unless 0."""
    dtype = _dtype(to)
    source, target = BY_NUMPY[x.dtype], BY_NUMPY[dtype]
    if source.bits != target.bits or not source.bits:
        raise KernelError(f"the widths of {source} ({source.bits} bits) and {target} ({target.bits} bits) differ")
    if dtype.kind == "b":
        return np.asarray(x.view(np.uint8) != 0)
    if not source.packed:
        return x.view(dtype)
    bits = np.asarray(x.view(np.uint8) & np.uint8(2**source.bits - 1))
    return _to_small_int(bits, dtype) if dtype in SMALL_INTS else bits.view(dtype)


# Quantization ---------------------------------------------------------------------------------------------------------


def _expand(parameter: np.ndarray, x: np.ndarray, axis: int, block_size: int, name: str) -> np.ndarray:
    """A scale or zero point shaped to broadcast against ``x``: per tensor, per axis, or by blocks along an axis.

    Raises:
        KernelError: if its shape is none of these.
    """
    if parameter.size == 1 and not block_size:
        return parameter.reshape(())
    axis = normalize_axis(axis, x.ndim)
    if not block_size:
        if parameter.shape != (x.shape[axis],):
            raise KernelError(
                f"{name} {shape_of(parameter)} must be a scalar or have one value for each of the {x.shape[axis]} "
                f"entries of axis {axis} of {shape_of(x)}"
            )
        return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    if block_size < 0:
        raise KernelError(f"block_size must be positive, it is {block_size}")
    expected = list(x.shape)
    expected[axis] = -(-x.shape[axis] // block_size)
    if list(parameter.shape) != expected:
        raise KernelError(
            f"{name} {shape_of(parameter)} must have shape {expected} for blocks of {block_size} along axis {axis} of "
            f"{shape_of(x)}"
        )
    blocks = np.arange(x.shape[axis]) // block_size
    return np.take(parameter, blocks, axis=axis)


def _check_zero_point(zero_point: np.ndarray, scale: np.ndarray) -> None:
    """Raises KernelError unless the two have one shape, or one element each."""
    if zero_point.shape != scale.shape and (zero_point.size != 1 or scale.size != 1):
        raise KernelError(f"the zero point {shape_of(zero_point)} must have the shape of the scale {shape_of(scale)}")


def quantize(
    quotient: np.ndarray, zero_point: np.ndarray | None, dtype: np.dtype, *, saturate: bool = True
) -> np.ndarray:
    """``saturate(round(quotient) + zero_point)`` in ``dtype``; only integer types round before the zero point is added.

    Args:
        quotient: float32 or float64.
        zero_point: broadcasts to ``quotient``; None is 0.
        saturate: whether float8 types saturate.
    """
    offset = None if zero_point is None else zero_point.astype(quotient.dtype)
    if dtype not in SMALL_INTS and dtype.kind not in "iu":
        return cast(quotient if offset is None else np.asarray(quotient + offset), dtype, saturate=saturate)
    result = np.rint(quotient, out=np.empty_like(quotient))
    result[np.isnan(result)] = 0
    if offset is not None:
        result += offset
    info = ml_dtypes.iinfo(dtype)
    np.clip(result, float(info.min), float(info.max), out=result)
    return result.astype(np.int32).astype(dtype) if dtype in SMALL_INTS else result.astype(dtype)


@kernel("QuantizeLinear")
def quantize_linear(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
    precision: int,
    saturate: int,
) -> np.ndarray:
    """``saturate(round(x / scale) + zero_point)``, dividing in ``precision``, else in the type of the scale.

    An int32 or float8_e8m0fnu scale divides in float32.
    """
    if zero_point is not None:
        _check_zero_point(zero_point, scale)
        if output_dtype and _dtype(output_dtype) != zero_point.dtype:
            raise KernelError(f"output_dtype is {BY_CODE[output_dtype]}, the zero point is {zero_point.dtype.name}")
        dtype = zero_point.dtype
        zero_point = _expand(zero_point, x, axis, block_size, "the zero point")
    else:
        dtype = _dtype(output_dtype) if output_dtype else np.dtype(np.uint8)
    divide_in = _dtype(precision) if precision else scale.dtype
    if divide_in == _E8M0 or divide_in.kind in "iu":
        divide_in = np.dtype(np.float32)
    divisor = _expand(scale, x, axis, block_size, "the scale")
    numerator = widen(cast(x, divide_in))
    quotient = np.asarray(np.divide(numerator, widen(cast(divisor, divide_in))))
    return quantize(widen(quotient.astype(divide_in, copy=False)), zero_point, dtype, saturate=bool(saturate))


@kernel("DequantizeLinear")
def dequantize_linear(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
) -> np.ndarray:
    """``(x - zero_point) scale`` in ``output_dtype``, else in the type of the scale."""
    dtype = _dtype(output_dtype) if output_dtype else scale.dtype
    if dtype == _E8M0:
        raise KernelError("output_dtype must be given with a scale of type float8_e8m0fnu")
    if zero_point is not None:
        _check_zero_point(zero_point, scale)
        if zero_point.dtype != x.dtype:
            raise KernelError(f"the zero point is {zero_point.dtype.name}, x is {x.dtype.name}")
    # float32 holds every 16-bit integer and narrow float, and the differences of two of a type, exactly.
    exact = np.dtype(np.float64 if x.dtype == np.int32 else np.float32)
    value = x.astype(exact)
    if zero_point is not None:
        value = np.asarray(value - _expand(zero_point, x, axis, block_size, "the zero point").astype(exact))
    factor = _expand(scale, x, axis, block_size, "the scale")
    return np.asarray(value.astype(np.float32, copy=False) * factor.astype(np.float32)).astype(dtype, copy=False)


@kernel("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``x`` quantized to uint8 over its own range, with the scale and the zero point; the range includes 0.

    Where ``x`` is 0 everywhere, or empty, the scale is 0 by the formula, and so are the zero point and the result.
    """
    low = np.min(x, initial=np.float32(0))
    high = np.max(x, initial=np.float32(0))
    scale = np.asarray(np.subtract(high, low) / np.float32(255))
    offset = np.clip(np.divide(-low, scale), 0, 255)
    zero_point = np.asarray(0 if np.isnan(offset) else np.rint(offset)).astype(np.uint8)
    return quantize(np.asarray(np.divide(x, scale)), zero_point, zero_point.dtype), scale, zero_point
