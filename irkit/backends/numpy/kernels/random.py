"""Ops that draw random numbers.

Numbers come from the runner's generator, keyed by seed, op and iteration. A node that has a ``seed`` attribute draws
from NumPy's ``RandomState(seed)`` instead, anew at each evaluation: the same numbers every time, and those that ONNX's
own tests expect. All draws are made in float64 and rounded once to the type of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import NARROW_FLOATS, scalar, shape_of
from irkit.backends.numpy.kernels.quant import cast
from irkit.backends.numpy.registry import KernelError, kernel
from irkit.ir.dtypes import dtype as element_type

__all__: list[str] = []

Source = np.random.Generator | np.random.RandomState


def _source(rng: np.random.Generator, seed: float | None) -> Source:
    """The generator to draw from: that of the node's own seed, or else the runner's."""
    if seed is None:
        return rng
    if float(seed).is_integer() and 0 <= seed < 2**32:
        return np.random.RandomState(int(seed))
    return np.random.RandomState(int(np.float32(seed).view(np.uint32)))


def _result_dtype(code: int | None, like: np.ndarray) -> np.dtype:
    return like.dtype if code is None else element_type(code).numpy


def _draw(
    source: Source, shape: Sequence[int], dtype: np.dtype, budget: Any, method: str, offset: float, factor: float
) -> np.ndarray:
    """``offset + factor * source.method()`` in ``dtype``."""
    if dtype.kind != "f" and dtype not in NARROW_FLOATS:
        raise KernelError(f"random numbers of type {dtype.name} can't be drawn: it must be a float type")
    if any(dim < 0 for dim in shape):
        raise KernelError(f"shape {list(shape)} has a negative dimension")
    budget.allocate(8 * int(np.prod(shape, dtype=object)))
    numbers = np.asarray(getattr(source, method)(tuple(shape)), np.float64)
    return cast(np.asarray(numbers * factor + offset), dtype)


@kernel("RandomNormal")
def random_normal(
    *,
    shape: Sequence[int],
    dtype: int,
    mean: float,
    scale: float,
    rng: np.random.Generator,
    budget: Any,
    seed: float | None = None,
) -> np.ndarray:
    """Normally distributed numbers."""
    return _draw(
        _source(rng, seed), shape, element_type(dtype).numpy, budget, "standard_normal", offset=mean, factor=scale
    )


@kernel("RandomNormalLike")
def random_normal_like(
    x: np.ndarray,
    *,
    mean: float,
    scale: float,
    rng: np.random.Generator,
    budget: Any,
    dtype: int | None = None,
    seed: float | None = None,
) -> np.ndarray:
    """Normally distributed numbers in the shape of ``x``."""
    return _draw(
        _source(rng, seed), x.shape, _result_dtype(dtype, x), budget, "standard_normal", offset=mean, factor=scale
    )


@kernel("RandomUniform")
def random_uniform(
    *,
    shape: Sequence[int],
    dtype: int,
    low: float,
    high: float,
    rng: np.random.Generator,
    budget: Any,
    seed: float | None = None,
) -> np.ndarray:
    """Numbers from [low, high)."""
    return _draw(_source(rng, seed), shape, element_type(dtype).numpy, budget, "random", offset=low, factor=high - low)


@kernel("RandomUniformLike")
def random_uniform_like(
    x: np.ndarray,
    *,
    low: float,
    high: float,
    rng: np.random.Generator,
    budget: Any,
    dtype: int | None = None,
    seed: float | None = None,
) -> np.ndarray:
    """Numbers from [low, high) in the shape of ``x``."""
    return _draw(_source(rng, seed), x.shape, _result_dtype(dtype, x), budget, "random", offset=low, factor=high - low)


@kernel("Bernoulli")
def bernoulli(
    x: np.ndarray, *, rng: np.random.Generator, dtype: int | None = None, seed: float | None = None
) -> np.ndarray:
    """1 with the probability that ``x`` gives, else 0."""
    probability = x.astype(np.float64)
    inside = (probability >= 0) & (probability <= 1)
    if not inside.all():
        index = np.argwhere(~inside)[0].tolist()
        raise KernelError(f"a probability must be in [0, 1]; at index {index} it is {probability[tuple(index)]}")
    ones = np.asarray(_source(rng, seed).random(x.shape) < probability)
    return cast(ones, _result_dtype(dtype, x))


@kernel("Multinomial")
def multinomial(
    x: np.ndarray,
    *,
    dtype: int,
    sample_size: int,
    rng: np.random.Generator,
    budget: Any,
    seed: float | None = None,
) -> np.ndarray:
    """``sample_size`` class indices a row, drawn with the unnormalized log-probabilities of the row."""
    if x.ndim != 2 or (x.shape[0] and not x.shape[1]):
        raise KernelError(f"the input must have shape [batch, classes] with at least one class, it is {shape_of(x)}")
    if sample_size < 1:
        raise KernelError(f"sample_size must be positive, it is {sample_size}")
    budget.allocate(16 * x.shape[0] * sample_size)
    logits = x.astype(np.float64)
    if not (np.isfinite(logits) | np.isneginf(logits)).all() or np.isneginf(logits).all(axis=1).any():
        raise KernelError("log-probabilities must be below +inf and not NaN, and not all -inf in a row")
    numbers = _source(rng, seed).random((x.shape[0], sample_size))
    result = np.empty(numbers.shape, element_type(dtype).numpy)
    for row, number, drawn in zip(logits, numbers, result, strict=True):
        cumulative = np.cumsum(np.exp(row - row.max()))
        last_possible = np.flatnonzero(np.diff(cumulative, prepend=0)).max()
        index = np.searchsorted(cumulative, number * cumulative[-1], side="right")
        drawn[:] = np.minimum(index, last_possible)
    return result


@kernel("Dropout")
def dropout(
    data: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    rng: np.random.Generator,
    n_out: int,
    seed: float | None = None,
) -> Any:
    """``data * mask / (1 - ratio)`` in training, else ``data``; the mask is True where an element is kept."""
    probability = 0.5 if ratio is None else float(scalar(ratio, "ratio"))
    training = training_mode is not None and bool(scalar(training_mode, "training_mode"))
    if training and not 0 <= probability < 1:
        raise KernelError(f"ratio must be in [0, 1), it is {probability}")
    if not training or probability == 0:
        return (data, np.ones(data.shape, np.bool_)) if n_out > 1 else data
    mask = np.asarray(_source(rng, seed).random(data.shape) >= probability)
    wide = data.astype(np.float32) if data.dtype in NARROW_FLOATS else data
    output = cast(np.asarray(wide * mask * (1 / (1 - probability))), data.dtype)
    return (output, mask) if n_out > 1 else output
