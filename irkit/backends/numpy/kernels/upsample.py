"""The deprecated Upsample, in the forms of opsets 7, 9 and 10.

Output dimensions are ``floor(dimension * scale)``. Position ``i`` of an axis reads from ``i / scale``: nearest takes
the floor of it, linear interpolates between the two neighbours and repeats the last element beyond the end. Scales are
at least 1. Linear works on every axis whose scale is not 1; integers are interpolated in float64 and truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, prod
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._indexing import Array
from irkit.backends.numpy.registry import KernelError, kernel


def _linear(data: Array, axis: int, places: Array) -> Array:
    """Interpolates along an axis at fractional places in ``[0, dimension)``."""
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, data.shape[axis] - 1)
    weight = (places - low).astype(data.dtype).reshape((-1,) + (1,) * (data.ndim - 1 - axis))
    return data.take(low, axis=axis) * (1 - weight) + data.take(high, axis=axis) * weight


@kernel("Upsample", since=7)
def upsample_7(data: Array, *, scales: Sequence[float], mode: str = "nearest", budget: Any) -> Array:
    if len(scales) != data.ndim or any(not 1 <= scale < inf for scale in scales):
        raise KernelError(f"scales {list(scales)} must hold one number of at least 1 for each axis of {data.shape}")
    if mode not in ("nearest", "linear"):
        raise KernelError(f"mode {mode!r} is neither nearest nor linear")
    if mode == "linear" and data.dtype.kind in "OSUbc":
        raise KernelError(f"mode linear is not defined on {data.dtype}")
    sizes = [floor(dim * scale) for dim, scale in zip(data.shape, scales, strict=True)]
    budget.allocate(prod(sizes) * max(data.itemsize, 8))
    out: Array = data
    if mode == "linear":
        wide = np.float32 if data.dtype.itemsize <= 4 and data.dtype.kind == "f" else np.float64
        out = data.astype(wide)
    for axis, (dim, size, scale) in enumerate(zip(data.shape, sizes, scales, strict=True)):
        if scale == 1 or dim == 0:
            continue
        places = np.arange(size) / scale
        out = _linear(out, axis, places) if mode == "linear" else out.take(np.floor(places).astype(np.int64), axis=axis)
    return out.astype(data.dtype, copy=False)


@kernel("Upsample", since=9)
@kernel("Upsample", since=10)
def upsample(data: Array, scales: Array, *, mode: str = "nearest", budget: Any) -> Array:
    return upsample_7(data, scales=[float(scale) for scale in scales.reshape(-1)], mode=mode, budget=budget)
