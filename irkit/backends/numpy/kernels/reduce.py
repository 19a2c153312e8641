"""Reductions, ArgMax and ArgMin, cumulative sums and products.

Conventions:

- ReduceMax and ReduceMin propagate NaN; ArgMax and ArgMin give the index of a NaN where there is one, so that the index
  and the value agree.
- Narrow floats are reduced in float32 and rounded once; the sums and products of integers wrap.
- ReduceMean of integers divides the exact sum, truncating toward zero; ReduceL2 of integers truncates the root.
- Reducing an empty set gives 0 (sums and norms), 1 (ReduceProd), the lowest or highest value of the type (ReduceMax,
  ReduceMin), -inf (ReduceLogSum, ReduceLogSumExp), and NaN for ReduceMean of floats; ReduceMean of no integers,
  ArgMax and ArgMin of nothing are errors.
- With ``noop_with_empty_axes`` and no axes nothing is reduced, and the elementwise part of the op still happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import compute_dtype, normalize_axes, normalize_axis, scalar, widen
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []

Axes = tuple[int, ...]
PLAIN = frozenset({"ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax", "ReduceMin"})
"""Reductions with no elementwise part: over no axes they are the identity."""


def _reduction(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares ``function(x, axes, keepdims)`` on normalized axes as the kernel of a Reduce op.

    The function gets narrow floats as float32; its result is cast to the type of the input.
    """

    def register(function: Callable[[np.ndarray, Axes, bool], Any]) -> Callable[..., Any]:
        def run(
            data: np.ndarray, axes: np.ndarray | None = None, *, keepdims: int, noop_with_empty_axes: int
        ) -> np.ndarray:
            if axes is not None and axes.size:
                normalized = normalize_axes(axes.ravel().tolist(), data.ndim)
            else:
                normalized = () if noop_with_empty_axes else tuple(range(data.ndim))
                if noop_with_empty_axes and name in PLAIN:
                    # NumPy's sum starts at 0.0, which would turn -0.0 into 0.0.
                    return data
            result = np.asarray(function(widen(data), normalized, bool(keepdims)))
            return result.astype(data.dtype, copy=False)

        kernel(name)(run)
        return function

    return register


def _count(x: np.ndarray, axes: Axes) -> int:
    """How many elements each result is made of."""
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


@_reduction("ReduceSum")
def reduce_sum(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


@_reduction("ReduceProd")
def reduce_prod(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return np.multiply.reduce(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


@_reduction("ReduceMean")
def reduce_mean(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    count = _count(x, axes)
    if x.dtype.kind not in "iu":
        return np.add.reduce(x, axis=axes, keepdims=keepdims) / np.asarray(count, x.dtype)
    wide = np.dtype(np.int64 if x.dtype.kind == "i" else np.uint64)
    total = np.asarray(np.add.reduce(x, axis=axes, dtype=wide, keepdims=keepdims))
    if not count and total.size:
        raise KernelError(f"the mean of no {x.dtype.name} elements is undefined")
    if x.dtype.kind == "u":
        return total // wide.type(max(count, 1))
    return np.sign(total) * (np.abs(total) // max(count, 1))


def _extremum(x: np.ndarray, axes: Axes, keepdims: bool, ufunc: np.ufunc, *, lowest: bool) -> Any:
    """``ufunc`` reduced over ``axes``; over nothing, the lowest or the highest value of the type."""
    if _count(x, axes):
        return ufunc.reduce(x, axis=axes, keepdims=keepdims)
    if x.dtype.kind == "b":
        initial: Any = not lowest
    elif x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        initial = info.min if lowest else info.max
    else:
        initial = -np.inf if lowest else np.inf
    return ufunc.reduce(x, axis=axes, keepdims=keepdims, initial=initial)


@_reduction("ReduceMax")
def reduce_max(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return _extremum(x, axes, keepdims, np.maximum, lowest=True)


@_reduction("ReduceMin")
def reduce_min(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return _extremum(x, axes, keepdims, np.minimum, lowest=False)


@_reduction("ReduceL1")
def reduce_l1(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return np.add.reduce(np.abs(x), axis=axes, dtype=x.dtype, keepdims=keepdims)


@_reduction("ReduceL2")
def reduce_l2(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    if x.dtype.kind in "iu":
        x = x.astype(np.float64)
    return np.sqrt(np.add.reduce(np.square(x), axis=axes, keepdims=keepdims))


@_reduction("ReduceSumSquare")
def reduce_sum_square(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return np.add.reduce(np.square(x), axis=axes, dtype=x.dtype, keepdims=keepdims)


@_reduction("ReduceLogSum")
def reduce_log_sum(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    return np.log(np.add.reduce(x, axis=axes, keepdims=keepdims))


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: np.ndarray, axes: Axes, keepdims: bool) -> Any:
    """Shifted by the maximum, where that is finite."""
    shift = np.asarray(_extremum(x, axes, True, np.maximum, lowest=True))
    shift = np.where(np.isfinite(shift), shift, np.zeros((), x.dtype))
    result = np.log(np.add.reduce(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return result if keepdims else np.squeeze(result, axis=axes)


def _arg(name: str, find: Callable[..., Any]) -> None:
    @kernel(name)
    def run(data: np.ndarray, *, axis: int, keepdims: int, select_last_index: int) -> np.ndarray:
        axis = normalize_axis(axis, data.ndim)
        x = widen(data)
        if not x.shape[axis]:
            shape = [*x.shape[:axis], *([1] if keepdims else []), *x.shape[axis + 1 :]]
            if 0 not in shape:
                raise KernelError(f"axis {axis} of a tensor of shape {list(x.shape)} has no element to choose")
            return np.zeros(shape, np.int64)
        if select_last_index:
            last = x.shape[axis] - 1
            result = last - np.asarray(find(np.flip(x, axis), axis=axis, keepdims=bool(keepdims)))
        else:
            result = find(x, axis=axis, keepdims=bool(keepdims))
        return np.asarray(result, np.int64)


_arg("ArgMax", np.argmax)
_arg("ArgMin", np.argmin)


def _cumulative(name: str, ufunc: np.ufunc) -> None:
    @kernel(name)
    def run(x: np.ndarray, axis: np.ndarray, *, exclusive: int, reverse: int) -> np.ndarray:
        along = normalize_axis(scalar(axis, "axis"), x.ndim)
        wide = compute_dtype(x.dtype)
        source = np.flip(x, along) if reverse else x
        result = np.asarray(ufunc.accumulate(source.astype(wide, copy=False), axis=along, dtype=wide))
        if exclusive:
            shifted = np.full(x.shape, ufunc.identity, wide)
            tail, head = [slice(None)] * x.ndim, [slice(None)] * x.ndim
            tail[along], head[along] = slice(1, None), slice(None, -1)
            shifted[tuple(tail)] = result[tuple(head)]
            result = shifted
        if reverse:
            result = np.flip(result, along)
        return result.astype(x.dtype, copy=False)


_cumulative("CumSum", np.add)
_cumulative("CumProd", np.multiply)
