"""Values and numbers in the dtype of others."""

from __future__ import annotations

from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype

__all__ = ["cast", "number", "widened"]


def cast(b: Builder, value: Tensor, like: Tensor | str) -> Tensor:
    """A value in the dtype of another, or of this name; itself where it has it."""
    kind = dtype(like) if isinstance(like, str) else like.dtype
    if kind is None:
        return b.CastLike(value, like)
    return value if value.dtype is kind else b.Cast(value, to=kind.code)


def number(b: Builder, value: float, like: Tensor) -> Tensor:
    """A scalar constant in the dtype of a value."""
    return b.constant(value, like.dtype) if like.dtype is not None else b.CastLike(b.constant(value, "float32"), like)


def widened(b: Builder, value: Tensor) -> Tensor:
    """A value in float32 at least: cast where it is of 16 bits, or no float."""
    kind = value.dtype
    return value if kind is not None and kind.is_float and kind.bits >= 32 else cast(b, value, "float32")
