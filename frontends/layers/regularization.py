"""Layers that act in training only: what they draw is switched on and seeded by the training step."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers import regularizers
from irkit.frontends.layers.layer import Layer
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = [
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
]


def dropped(x: Tensor, rate: float, shape: Any = None, seed: int | None = None) -> Tensor:
    """A value with a share of its elements 0 and the others larger by as much, in training.

    Args:
        shape: that of the draw, to broadcast against the value; by default the value's own.
    """
    b = x.builder
    kept = {} if seed is None else {"seed": seed}
    on = b.constant(np.asarray(True))
    if shape is None:
        return b.Dropout(x, b.constant(np.float32(rate)), on, **kept)
    ones = b.Expand(b.constant(1.0, x.dtype), shape)
    return x * b.Dropout(ones, b.constant(np.float32(rate)), on, **kept)


def partial_shape(x: Tensor, sizes: Any) -> Tensor:
    """A shape of numbers, with the value's own sizes where one is None."""
    b = x.builder
    parts = [
        b.Shape(x, start=i, end=i + 1) if d is None else b.constant(np.asarray([d], np.int64))
        for i, d in enumerate(sizes)
    ]
    return b.Concat(*parts, axis=0)


def drawn(x: Tensor, seed: int | None) -> Tensor:
    """Standard normal numbers of a value's shape."""
    return x.builder.RandomNormalLike(x, **({} if seed is None else {"seed": float(seed)}))


class _Rate(Layer):
    supports_masking = True

    def __init__(self, rate: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if not 0 <= rate <= 1:
            raise IrkitError(f"layer '{self.name}': rate={rate} is no share between 0 and 1")
        self.rate, self.seed = rate, seed

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.train(inputs) if training and self.rate else inputs

    def train(self, x: Tensor) -> Tensor:
        """What the layer does in training."""
        raise NotImplementedError


class Dropout(_Rate):
    """A share of the inputs becomes 0 in training, and the others grow by as much.

    Args:
        noise_shape: of what is drawn; 1 along axes that share it, None for the input's size.
    """

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(rate, seed, **options)
        self.noise_shape = noise_shape

    def train(self, x: Tensor) -> Tensor:
        shape = None if self.noise_shape is None else partial_shape(x, self.noise_shape)
        return dropped(x, self.rate, shape, self.seed)


class _SpatialDropout(_Rate):
    """Whole channels become 0."""

    rank: ClassVar[int]

    def __init__(self, rate: float, data_format: str | None = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(rate, seed, **options)
        self.data_format = data_format or "channels_last"

    def train(self, x: Tensor) -> Tensor:
        ones = [1] * self.rank
        sizes = [None, None, *ones] if self.data_format == "channels_first" else [None, *ones, None]
        return dropped(x, self.rate, partial_shape(x, sizes), self.seed)


class SpatialDropout1D(_SpatialDropout):
    """Whole channels become 0, along one axis."""

    rank = 1

    def __init__(self, rate: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(rate, None, seed, **options)


class SpatialDropout2D(_SpatialDropout):
    """Whole channels become 0, over two axes."""

    rank = 2


class SpatialDropout3D(_SpatialDropout):
    """Whole channels become 0, over three axes."""

    rank = 3


class GaussianDropout(_Rate):
    """Times normal noise of mean 1 and variance ``rate / (1 - rate)`` in training."""

    def train(self, x: Tensor) -> Tensor:
        return x * (drawn(x, self.seed) * math.sqrt(self.rate / (1 - self.rate)) + 1.0)


class GaussianNoise(_Rate):
    """Plus normal noise in training.

    Args:
        stddev: of the noise.
    """

    def __init__(self, stddev: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(0.0, seed, **options)
        self.stddev = stddev

    def call(self, inputs: Any, training: Any = None) -> Any:
        return inputs + drawn(inputs, self.seed) * self.stddev if training and self.stddev else inputs


class AlphaDropout(Dropout):
    """Dropout to selu's least value, scaled and shifted to keep mean 0 and variance 1 (Klambauer et al. 2017)."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(rate, noise_shape, seed, **options)

    def train(self, x: Tensor) -> Tensor:
        b = x.builder
        least = -1.6732632423543772 * 1.0507009873554805
        shape = b.Shape(x) if self.noise_shape is None else partial_shape(x, self.noise_shape)
        kept = dropped(b.constant(1.0, x.dtype), self.rate, shape, self.seed)
        keep = b.Cast(b.Cast(kept, to=dtype("bool").code), to=x.dtype.code)  # pyright: ignore[reportOptionalMemberAccess]
        scale = ((1 - self.rate) * (1 + self.rate * least**2)) ** -0.5
        return (x * keep + (1.0 - keep) * least) * scale - scale * least * self.rate


class ActivityRegularization(Layer):
    """Adds ``l1 sum |x| + l2 sum x^2`` of its input to the loss."""

    supports_masking = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **options: Any) -> None:
        super().__init__(activity_regularizer=regularizers.L1L2(l1, l2), **options)

    def call(self, inputs: Any) -> Any:
        return inputs.builder.Identity(inputs)
