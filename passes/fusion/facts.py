"""What the conditions of fusion rules ask of values: ranks, sizes, the numbers in small constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, Tensor, value_of
from irkit.ir.constants import ConstantData
from irkit.ir.types import Dim

__all__ = [
    "all_equal",
    "array_of",
    "axis_of",
    "ints_of",
    "is_per_channel",
    "precisely",
    "same_dims",
    "size",
    "used_once",
]


Value = Tensor | SSAValue | None


def _constant(value: Value) -> ConstantData | None:
    return None if value is None else constant_of(value_of(value))


def array_of(value: Value) -> np.ndarray[Any, Any] | None:
    """The elements of a constant, or None."""
    data = _constant(value)
    return None if data is None else data.array()


def ints_of(value: Value) -> list[int] | None:
    """The numbers in a small constant of integers, flat; None for anything else."""
    data = _constant(value)
    if data is None or not data.dtype.is_integer or data.size > 64:
        return None
    return [int(x) for x in data.array().reshape(-1)]


def all_equal(value: Value, number: float) -> bool:
    """Whether a constant holds this number everywhere."""
    data = _constant(value)
    if data is None or data.dtype.kind not in ("float", "int", "uint") or data.size > 1 << 16:
        return False
    return bool(np.all(data.stored().astype(np.float64) == number))


def axis_of(value: Value, rank: int | None) -> int | None:
    """The one axis in a constant, counted from the front of a tensor of this rank; None where it holds none or more."""
    found = ints_of(value)
    if found is None or len(found) != 1 or rank is None:
        return None
    return found[0] + rank if found[0] < 0 else found[0]


def same_dims(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> bool:
    """Whether two parts of shapes are certainly equal."""
    return a is not None and a == b and None not in a


def size(value: Tensor | None, axis: int) -> int | None:
    """The size of an axis, where it is a number."""
    shape = None if value is None else value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    dim = shape[axis]
    return dim if isinstance(dim, int) else None


def is_per_channel(value: Tensor, rank: int, channels: int) -> bool:
    """Whether a constant, added to a tensor of this rank, is one number per channel (axis 1) or one for all."""
    data = _constant(value)
    if data is None or len(data.shape) > rank:
        return False
    padded = (1,) * (rank - len(data.shape)) + data.shape
    return all(d == 1 or (axis == 1 and d == channels) for axis, d in enumerate(padded))


def used_once(value: Tensor | None) -> bool:
    """Whether no other op uses a value: what is computed of it then takes its place, and the model does not grow."""
    return value is None or value.ssa.has_one_use()


def precisely(b: Builder, compute: Callable[..., Any], *values: Tensor | None) -> tuple[Tensor, ...]:
    """Computes on weights, in float32 where they are of less; results come back in the type of the first."""
    kind = next(v.dtype for v in values if v is not None)
    assert kind is not None
    if kind.bits >= 32:
        return compute(b, *values)
    wide = [None if v is None else b.Cast(v, to=1) for v in values]
    return tuple(b.Cast(v, to=kind.code) for v in compute(b, *wide))
