"""Normalization and softmax: BatchNormalization, InstanceNormalization, LayerNormalization, RMSNormalization,
GroupNormalization, LRN, LpNormalization, MeanVarianceNormalization, Softmax, LogSoftmax, Hardmax.

Conventions: variances are of the population and taken about the mean, in two passes. Where the spec has two stages
(LayerNormalization, RMSNormalization, GroupNormalization) the first runs in ``stash_type`` and is rounded to the type
of X; the second, scale and shift, runs in the type of the scale. A row of softmax that is all -inf, or holds NaN or
+inf, is NaN, as the formula says; in float16 and bfloat16 the steps of Softmax round one by one, as those of its
function body do. Hardmax marks the first maximum, and NaN counts as the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import (
    compute_dtype,
    log_softmax,
    normalize_axes,
    normalize_axis,
    rounded,
    widen,
)
from irkit.backends.numpy.kernels._nn import broadcastable_to, numeric_type, per_channel, require, results
from irkit.backends.numpy.registry import kernel

__all__: list[str] = []


def _check_channels(x: np.ndarray, channels: int, **vectors: np.ndarray) -> None:
    for name, v in vectors.items():
        require(
            v.shape == (channels,), f"{name} must have shape ({channels},) for X of shape {x.shape}, found {v.shape}"
        )


@kernel("BatchNormalization")
def batch_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    n_out: int,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    require(x.ndim >= 1, "X must have at least one axis")
    require(bool(training_mode) or n_out == 1, "running_mean and running_var are given only with training_mode=1")
    _check_channels(x, x.shape[1] if x.ndim > 1 else 1, scale=scale, B=bias, input_mean=mean, input_var=var)
    dtype = np.result_type(*(compute_dtype(v.dtype) for v in (x, scale, bias, mean, var)))
    data = x.astype(dtype, copy=False)
    mu, sigma2 = mean.astype(dtype, copy=False), var.astype(dtype, copy=False)
    running: tuple[np.ndarray, ...] = ()
    if training_mode:
        axes = tuple(a for a in range(x.ndim) if a != 1)
        current = _mean(data, axes).reshape(-1)
        current_var = _mean(np.square(data - per_channel(current, x.ndim)), axes).reshape(-1)
        keep, add = dtype.type(momentum), dtype.type(1 - momentum)
        running = tuple(
            (old * keep + new * add).astype(given.dtype)
            for old, new, given in ((mu, current, mean), (sigma2, current_var, var))
        )
        mu, sigma2 = current, current_var
    factor = scale.astype(dtype, copy=False) / np.sqrt(sigma2 + dtype.type(epsilon))
    y = data - per_channel(mu, x.ndim)
    y *= per_channel(factor, x.ndim)
    y += per_channel(bias.astype(dtype, copy=False), x.ndim)
    return results((y.astype(x.dtype, copy=False), *running), n_out)


def _mean(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The mean over some axes, which stay as 1. Over no elements it is NaN, of which NumPy's own would warn."""
    return x.sum(axis=axes, keepdims=True) / x.dtype.type(prod(x.shape[axis] for axis in axes))


def _standardize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x less its mean over the axes, over its standard deviation; also the mean and the inverse deviation."""
    mean = _mean(x, axes)
    deviation = x - mean
    inverse = 1 / np.sqrt(_mean(np.square(deviation), axes) + x.dtype.type(epsilon))
    deviation *= inverse
    return deviation, mean, inverse


@kernel("InstanceNormalization")
def instance_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, epsilon: float = 1e-5) -> np.ndarray:
    require(x.ndim >= 3, f"the input of shape {x.shape} must have a batch, a channel and at least one spatial axis")
    _check_channels(x, x.shape[1], scale=scale, B=bias)
    y, _, _ = _standardize(widen(x), tuple(range(2, x.ndim)), epsilon)
    y *= per_channel(widen(scale), x.ndim)
    y += per_channel(widen(bias), x.ndim)
    return y.astype(x.dtype, copy=False)


def _stash(x: np.ndarray, stash_type: int) -> tuple[np.ndarray, np.dtype]:
    """x rounded to the type named by ``stash_type``, in the dtype that type is computed in; and that type."""
    stash = numeric_type(stash_type, "stash_type")
    return widen(x.astype(stash, copy=False)), stash


def _fits(x: np.ndarray, **factors: np.ndarray | None) -> None:
    for name, v in factors.items():
        require(
            v is None or broadcastable_to(v.shape, x.shape),
            f"{name} of shape {v is not None and v.shape} must broadcast to X of shape {x.shape}",
        )


@kernel("LayerNormalization")
def layer_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    n_out: int,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    _fits(x, Scale=scale, B=bias)
    data, stash = _stash(x, stash_type)
    normalized, mean, inverse = _standardize(data, axes, epsilon)
    y = normalized.astype(x.dtype, copy=False) * scale
    if bias is not None:
        y = y + bias
    return results((y, mean.astype(stash, copy=False), inverse.astype(stash, copy=False)), n_out)


@kernel("RMSNormalization")
def rms_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    _fits(x, scale=scale)
    data, _ = _stash(x, stash_type)
    normalized = data / np.sqrt(_mean(np.square(data), axes) + data.dtype.type(epsilon))
    return normalized.astype(x.dtype, copy=False).astype(scale.dtype, copy=False) * scale


@kernel("GroupNormalization")
def group_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    require(x.ndim >= 2, f"X of shape {x.shape} must have a batch and a channel axis")
    require(
        num_groups >= 1 and x.shape[1] % num_groups == 0,
        f"num_groups {num_groups} must divide the {x.shape[1]} channels of X",
    )
    _check_channels(x, x.shape[1], scale=scale, bias=bias)
    data, _ = _stash(x, stash_type)
    group = (x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    normalized, _, _ = _standardize(data.reshape(group), tuple(range(2, len(group))), epsilon)
    y = normalized.reshape(x.shape).astype(x.dtype, copy=False)
    return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@kernel("LRN")
def lrn(x: np.ndarray, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> np.ndarray:
    require(x.ndim >= 2, f"X of shape {x.shape} must have a batch and a channel axis")
    require(size >= 1, f"size {size} must be positive")
    data = widen(x)
    channels = x.shape[1]
    squares = np.square(data)
    total = squares.copy()
    for distance in range(1, min(channels, size // 2 + 1)):
        if distance <= (size - 1) // 2:
            total[:, distance:] += squares[:, :-distance]
        total[:, :-distance] += squares[:, distance:]
    total *= data.dtype.type(alpha / size)
    total += data.dtype.type(bias)
    return (data / total ** data.dtype.type(beta)).astype(x.dtype, copy=False)


@kernel("LpNormalization")
def lp_normalization(x: np.ndarray, *, axis: int = -1, p: int = 2) -> np.ndarray:
    axis = normalize_axis(axis, x.ndim)
    require(p in (1, 2), f"p {p} must be 1 or 2")
    data = widen(x)
    if p == 1:
        norm = np.abs(data).sum(axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(data).sum(axis=axis, keepdims=True))
    zero = norm == 0
    return np.where(zero, norm, data / np.where(zero, norm.dtype.type(1), norm)).astype(x.dtype, copy=False)


@kernel("MeanVarianceNormalization")
def mean_variance_normalization(x: np.ndarray, *, axes: Sequence[int] = (0, 2, 3)) -> np.ndarray:
    """The standard deviation is increased by 1e-9, as in the op's function body, so that a constant input gives 0."""
    data = widen(x)
    over = normalize_axes(axes, x.ndim) or tuple(range(x.ndim))
    deviation = data - _mean(data, over)
    std = np.sqrt(_mean(np.square(deviation), over))
    return np.asarray(deviation / (std + data.dtype.type(1e-9))).astype(x.dtype, copy=False)


@kernel("Softmax")
def softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    axis = normalize_axis(axis, x.ndim)
    if x.size == 0:
        return x.copy()
    data = widen(x)
    y = rounded(data - data.max(axis=axis, keepdims=True), x.dtype)
    y = rounded(np.exp(y, out=y), x.dtype)
    y /= rounded(y.sum(axis=axis, keepdims=True), x.dtype)
    return y.astype(x.dtype, copy=False)


@kernel("LogSoftmax")
def log_of_softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    return log_softmax(widen(x), normalize_axis(axis, x.ndim)).astype(x.dtype, copy=False)


@kernel("Hardmax")
def hardmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    axis = normalize_axis(axis, x.ndim)
    y = np.zeros(x.shape, x.dtype)
    if x.size:
        first = np.expand_dims(widen(x).argmax(axis=axis), axis)
        np.put_along_axis(y, first, x.dtype.type(1), axis)
    return y
