"""The arrays of random graphs: how they are made up, and how two of them are compared."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from irkit.ir.dtypes import DType

from .graph import dtype_of_array

__all__ = [
    "close",
    "eps_of",
    "has_floats",
    "is_float",
    "is_narrow",
    "off",
    "plain",
    "random_array",
    "useless",
    "within",
]

LARGEST_SIZE = 4096
"""No tensor has more elements."""

LARGEST = {"float16": 2.0**12, "float8_e4m3fn": 256.0, "float8_e4m3fnuz": 128.0, "float4_e2m1fn": 6.0}
"""By dtype, the largest magnitude that a value may have; 2**20 for the rest."""

WORDS = ("a", "", "b", "hello world", "bé", "日本", "-1.5", "A b", "c,d", "a,b,,c d  e")


def random_array(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], span: tuple[float, float] | None, style: int
) -> np.ndarray:
    """A random array.

    Args:
        span: of its elements.
        style: 0 for few different numbers, so that there are ties; 1 and 2 for others.
    """
    if dtype.kind == "string":
        return np.array(rng.choice(np.array(WORDS, object), shape), object)
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if dtype.is_integer:
        bits = dtype.bits - (dtype.kind == "int")
        low, high = -(1 << bits) if dtype.kind == "int" else 0, (1 << bits) - 1
        wide = dtype.bits <= 8 or style == 2
        least, most = span if span is not None else ((low, high) if wide else (-5, 9))
        kind = np.uint64 if dtype.name == "uint64" else np.int64
        made = rng.integers(max(int(least), low), min(int(most), high), shape, endpoint=True, dtype=kind)
        return np.asarray(made).astype(dtype.numpy)
    if dtype.kind == "complex":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    if span is not None:
        made = np.asarray(rng.uniform(*span, shape))
        if style == 0:
            made = np.clip(np.round(made * 2) / 2, *span)
    else:
        made = np.asarray(rng.standard_normal(shape)) * (3 if style == 2 else 1)
        if style == 0:
            made = np.round(made * 2) / 2
    if dtype.name == "float8_e8m0fnu":
        made = np.exp2(np.round(made))
    return np.asarray(made, dtype.numpy)


def plain(array: np.ndarray) -> np.ndarray:
    """A float array in float64, a complex one as it is."""
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def is_float(array: Any) -> bool:
    """Whether it is an array of real or complex floats."""
    return isinstance(array, np.ndarray) and dtype_of_array(array).kind in ("float", "complex")


def is_narrow(array: Any) -> bool:
    """Whether it is an array of 16-bit floats."""
    return isinstance(array, np.ndarray) and array.dtype.name in ("float16", "bfloat16")


def has_floats(value: Any) -> bool:
    """Whether it is an array of floats, or a list that holds one."""
    return any(map(has_floats, value)) if isinstance(value, list) else is_float(value)


def within(array: np.ndarray, span: tuple[float, float]) -> bool:
    """Whether all elements lie in a span."""
    if array.dtype == object or array.size == 0:
        return array.size == 0
    wide = array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
    return bool((wide >= span[0]).all() and (wide <= span[1]).all())


def eps_of(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number."""
    name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return float(ml_dtypes.finfo(name).eps)


def off(value: Any, rng: np.random.Generator, by: float, relative: bool, least: float = 0.0, start: Any = None) -> Any:
    """A value half to all of ``by`` roundings off, of each element, or of the largest of them, or of ``least``.

    Args:
        start: what the value is when nothing is rounded; it goes further away from that.
    """
    if isinstance(value, list):
        starts = [None] * len(value) if start is None else start
        return [off(item, rng, by, relative, least, s) for item, s in zip(value, starts, strict=True)]
    if not is_float(value) or not value.size:
        return value
    wide = plain(value)
    # Never nearly nothing: a value of one element has but one draw to show what it may be off by.
    drawn = rng.uniform(0.5, 1, value.shape) * rng.choice((-1, 1), value.shape)
    error = by * eps_of(value.dtype) * drawn * (wide if relative else max(np.abs(wide).max(), least))
    if start is not None:
        apart = np.asarray(wide - plain(start))
        error = np.where(apart == 0, error, np.copysign(error, apart)) if apart.dtype.kind == "f" else error
    return np.asarray(wide + error).astype(value.dtype)


def close(value: Any, shadow: Any) -> bool:
    """Whether a shadow is so near that the value can be compared at all."""
    if isinstance(value, list):
        return len(value) == len(shadow) and all(map(close, value, shadow))
    if not isinstance(value, np.ndarray):
        return type(value) is type(shadow) and value == shadow
    if value.shape != shadow.shape:
        return False
    if not is_float(value):
        return bool(np.array_equal(value, shadow))
    if not value.size:
        return True
    error = np.abs(plain(value) - plain(shadow)).max()
    return bool(error <= math.sqrt(eps_of(value.dtype)) * np.abs(plain(value)).max())


def useless(value: Any) -> str:
    """Why a value must not stand in a graph, if so."""
    if isinstance(value, list):
        return next((reason for item in value if (reason := useless(item))), "")
    if not isinstance(value, np.ndarray):
        return ""
    if value.size > LARGEST_SIZE:
        return "too many elements"
    if is_float(value) and value.size:
        magnitude = np.abs(plain(value))
        if not np.isfinite(magnitude).all():
            return "not finite"
        if magnitude.max() > LARGEST.get(value.dtype.name, 2.0**20):
            return "too large"
    return ""
