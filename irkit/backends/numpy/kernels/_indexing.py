"""Indices and lists of integers, checked: what the families that move elements around share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from irkit.backends.numpy.registry import KernelError

Array = np.ndarray[Any, Any]

__all__ = [
    "Array",
    "check_indices",
    "integers",
    "string_array",
]


def integers(value: Array, what: str) -> list[int]:
    """The elements of a tensor of rank 0 or 1 as Python integers, which can't overflow."""
    if value.ndim > 1:
        raise KernelError(f"{what} must be a 1-D tensor, not one of shape {value.shape}")
    return [int(v) for v in value.ravel().tolist()]


def check_indices(indices: Array, dim: int, axis: int) -> Array:
    """Indices in ``[-dim, dim)`` as non-negative int64; others raise ``KernelError``."""
    if indices.size == 0:
        return indices.astype(np.int64)
    low, high = int(indices.min()), int(indices.max())
    if low < -dim or high >= dim:
        wrong = low if low < -dim else high
        raise KernelError(f"index {wrong} is out of range for axis {axis} of dimension {dim}")
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + dim, indices) if low < 0 else indices


def string_array(values: Iterable[str], shape: tuple[int, ...]) -> Array:
    """Strings in row-major order as an object array of the shape given."""
    out = np.empty(shape, dtype=object)
    out.reshape(-1)[:] = list(values)
    return out
