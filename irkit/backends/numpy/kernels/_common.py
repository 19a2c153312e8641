"""Helpers shared by the families of kernels: precision of narrow types, axes, shapes, scalars.

Narrow floats (float16, bfloat16, and everything of 8 bits and less) are computed in float32 and rounded once to the
type of the result; this also keeps Python scalars weak, which they are not for the types of ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from irkit.backends.numpy.registry import KernelError

__all__ = [
    "FLOAT8",
    "NARROW_FLOATS",
    "SMALL_INTS",
    "broadcast_error",
    "broadcast_shape",
    "broadcasts_to",
    "compute_dtype",
    "log_softmax",
    "normalize_axes",
    "normalize_axis",
    "rounded",
    "scalar",
    "shape_of",
    "widen",
]

FLOAT8 = frozenset(
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
)
"""The float8 types with a sign; float8_e8m0fnu is a scale and behaves differently."""

NARROW_FLOATS = FLOAT8 | frozenset(
    np.dtype(t)
    for t in (
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.float6_e2m3fn,
        ml_dtypes.float6_e3m2fn,
    )
)
"""The floating types that are computed in float32: each embeds in it exactly."""

SMALL_INTS = frozenset(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
"""The integer types that NumPy does not have; int8 or uint8 hold their values exactly."""

_FLOAT32 = np.dtype(np.float32)


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that arithmetic on ``dtype`` is carried out in: float32 for narrow floats, else itself."""
    return _FLOAT32 if dtype in NARROW_FLOATS else dtype


def widen(x: np.ndarray) -> np.ndarray:
    """``x`` in the dtype it is computed in (see ``compute_dtype``); ``x`` itself where that is its own."""
    return x.astype(_FLOAT32) if x.dtype in NARROW_FLOATS else x


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``x`` rounded to ``dtype``, in the dtype that is computed in: for ops whose steps round one by one."""
    return widen(x.astype(dtype, copy=False))


def normalize_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front.

    Raises:
        KernelError: if it is outside [-rank, rank - 1].
    """
    if not -rank <= axis < rank:
        raise KernelError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return int(axis) % rank


def normalize_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """``axes`` counted from the front, in the order given.

    Raises:
        KernelError: if one is outside [-rank, rank - 1] or occurs twice.
    """
    result = tuple(normalize_axis(int(axis), rank) for axis in axes)
    if len(set(result)) != len(result):
        raise KernelError(f"an axis occurs twice in {list(result)}")
    return result


def shape_of(x: np.ndarray) -> str:
    """The dtype and shape of ``x`` for messages, as ``float32[2, 3]``."""
    return f"{x.dtype.name}{list(x.shape)}"


def broadcast_error(*arrays: np.ndarray) -> KernelError:
    """The error for shapes that do not broadcast together."""
    shapes = " and ".join(str(list(a.shape)) for a in arrays)
    return KernelError(f"the shapes {shapes} do not broadcast together")


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that ``shapes`` broadcast to.

    Raises:
        KernelError: if they do not.
    """
    try:
        return np.broadcast_shapes(*(tuple(s) for s in shapes))
    except ValueError:
        names = " and ".join(str(list(s)) for s in shapes)
        raise KernelError(f"the shapes {names} do not broadcast together") from None


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether ``shape`` broadcasts to exactly ``target`` (unidirectional broadcasting)."""
    missing = len(target) - len(shape)
    return missing >= 0 and all(dim in (1, wanted) for dim, wanted in zip(shape, target[missing:], strict=True))


def scalar(x: np.ndarray, name: str) -> Any:
    """The only element of ``x`` as a Python value; ``name`` is what messages call it.

    Raises:
        KernelError: if ``x`` does not have exactly one element.
    """
    if x.size != 1:
        raise KernelError(f"{name} must have exactly one element, its shape is {list(x.shape)}")
    return x.item()


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """``x - log(sum(exp(x)))`` along ``axis``, shifted by the maximum; ``x`` is float32 or float64."""
    if x.size == 0:
        return x.copy()
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
