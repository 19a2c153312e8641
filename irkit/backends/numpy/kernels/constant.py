"""Constant, ConstantOfShape, Range, EyeLike.

Range computes ``start + i * delta`` as ONNX writes it: in the type of its inputs, in float32 for float16 and bfloat16
(``stash_type`` 1). The number of elements comes from exact integers, or from float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import NARROW_FLOATS, scalar, shape_of
from irkit.backends.numpy.registry import KernelError, kernel
from irkit.ir.dtypes import dtype as element_type

__all__: list[str] = []


@kernel("Constant")
def constant(
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> np.ndarray:
    """The value of the one attribute that is given; a sparse value comes as a dense array."""
    candidates: list[np.ndarray] = [v for v in (value, sparse_value) if v is not None]
    for given, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, np.object_),
        (value_strings, np.object_),
    ):
        if given is not None:
            candidates.append(np.array(given, dtype))
    if len(candidates) != 1:
        raise KernelError(f"exactly one value must be given, there are {len(candidates)}")
    return candidates[0]


@kernel("ConstantOfShape")
def constant_of_shape(shape: np.ndarray, *, budget: Any, value: np.ndarray | None = None) -> np.ndarray:
    """A tensor of the given shape filled with the one element of ``value``, by default float32 0."""
    if shape.ndim != 1:
        raise KernelError(f"the shape must be a 1-D tensor, it is {shape_of(shape)}")
    dims: list[int] = shape.tolist()
    if any(dim < 0 for dim in dims):
        raise KernelError(f"shape {dims} has a negative dimension")
    fill = np.zeros((), np.float32) if value is None else value
    if fill.size != 1:
        raise KernelError(f"value must have exactly one element, its shape is {list(fill.shape)}")
    budget.allocate(math.prod(dims) * fill.dtype.itemsize)
    return np.full(dims, fill.reshape(()), fill.dtype)


@kernel("Range")
def arange(start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, budget: Any, stash_type: int) -> np.ndarray:
    """The numbers from ``start`` by steps of ``delta``, below (above, if delta is negative) ``limit``."""
    dtype = start.dtype
    first, last, step = (scalar(x, name) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta")))
    if step == 0:
        raise KernelError("delta must not be 0")
    if dtype.kind in "iu":
        count = max(-((first - last) // step), 0)
        budget.allocate(count * dtype.itemsize)
        return first + np.arange(count, dtype=dtype) * dtype.type(step)
    first, last, step = float(first), float(last), float(step)
    if not all(map(math.isfinite, (first, last, step))):
        raise KernelError(f"start, limit and delta must be finite, they are {first}, {last} and {step}")
    quotient = (last - first) / step
    if not math.isfinite(quotient):
        raise KernelError(f"from {first} to {last} by {step} there are too many steps")
    count = max(math.ceil(quotient), 0)
    budget.allocate(count * dtype.itemsize)
    work = element_type(stash_type).numpy if dtype in NARROW_FLOATS else dtype
    indices = np.arange(count).astype(work)
    numbers = np.asarray(first, work) + indices * np.asarray(step, work)
    return np.asarray(numbers).astype(dtype, copy=False)


@kernel("EyeLike")
def eye_like(x: np.ndarray, *, budget: Any, k: int, dtype: int | None = None) -> np.ndarray:
    """Ones on the k-th diagonal, in the shape of ``x``."""
    if x.ndim != 2:
        raise KernelError(f"the input must have rank 2, it is {shape_of(x)}")
    target = x.dtype if dtype is None else element_type(dtype).numpy
    budget.allocate(x.size * target.itemsize)
    rows, columns = x.shape
    result = np.zeros(x.shape, target)
    count = min(rows + min(k, 0), columns - max(k, 0))
    if count > 0:
        i = np.arange(count)
        result[i - min(k, 0), i + max(k, 0)] = 1
    return result
