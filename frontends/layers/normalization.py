"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import rank_of
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = [
    "BatchNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "Normalization",
    "RMSNormalization",
    "UnitNormalization",
]


def along(x: Tensor, value: Any, axes: list[int]) -> Any:
    """A weight over some axes of a value, shaped to broadcast against it."""
    rank = rank_of(x)
    if value is None or axes == list(range(rank - len(axes), rank)):
        return value
    sizes = iter(value.shape)
    return x.builder.Reshape(value, [next(sizes) if axis in axes else 1 for axis in range(rank)])


def wide(x: Tensor) -> Tensor:
    """A value in float32 at least; statistics of 16 bits lose too much."""
    kind = x.dtype
    return x.builder.Cast(x, to=dtype("float32").code) if kind is not None and kind.bits < 32 else x


class BatchNormalization(Layer):
    """Each channel with mean 0 and variance 1 over the batch, in inference by moving averages; then scaled.

    Moving averages are ``moving * momentum + batch * (1 - momentum)``. A layer that is not trainable works as in
    inference. Time steps that are masked do not count.
    """

    supports_masking = True

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.axis, self.momentum, self.epsilon = axis, momentum, epsilon
        self.center, self.scale = center, scale
        self.initializers = (gamma_initializer, beta_initializer, moving_mean_initializer, moving_variance_initializer)
        self.regularizers = (gamma_regularizer, beta_regularizer)
        self.gamma = self.beta = None

    def build(self, input_shape: Any) -> None:
        shape = (input_shape[self.axis],)
        gamma, beta, mean, variance = self.initializers
        if self.scale:
            self.gamma = self.add_weight(shape, gamma, name="gamma", regularizer=self.regularizers[0])
        if self.center:
            self.beta = self.add_weight(shape, beta, name="beta", regularizer=self.regularizers[1])
        self.moving_mean = self.add_weight(shape, mean, name="moving_mean", trainable=False, stateful=True)
        self.moving_variance = self.add_weight(shape, variance, name="moving_variance", trainable=False, stateful=True)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        training = bool(training) and self.trainable
        b, rank = inputs.builder, rank_of(inputs)
        axis, x = self.axis % rank, wide(inputs)
        if training and mask is not None:
            return self._masked(x, axis, mask)
        perm = [0, axis, *(i for i in range(1, rank) if i != axis)] if rank > 2 else list(range(rank))
        moved = perm != list(range(rank))
        x = b.Transpose(x, perm=perm) if moved else x
        size = self.moving_mean.shape
        gamma = np.ones(size, np.float32) if self.gamma is None else self.gamma
        beta = np.zeros(size, np.float32) if self.beta is None else self.beta
        operands = (
            x,
            wide(b.wrap(b.tensor(gamma))),
            wide(b.wrap(b.tensor(beta))),
            self.moving_mean,
            self.moving_variance,
        )
        options = {"epsilon": self.epsilon, "momentum": self.momentum}
        if training:
            y, mean, variance = b.BatchNormalization(*operands, training_mode=1, outputs=3, **options)
            self.moving_mean.assign(mean)
            self.moving_variance.assign(variance)
        else:
            y = b.BatchNormalization(*operands, **options)
        back = [perm.index(i) for i in range(rank)]
        return self._cast(b.Transpose(y, perm=back) if moved else y)

    def _masked(self, x: Tensor, axis: int, mask: Tensor) -> Tensor:
        """In training, with the masked places left out of the statistics."""
        b, rank = x.builder, rank_of(x)
        weight = b.Cast(mask, to=dtype("float32").code)
        axes = [i for i in range(rank) if i != axis]
        weight = b.Unsqueeze(weight, list(range(rank_of(mask), rank)))
        total = b.ReduceSum(weight, axes, keepdims=1) + 1e-7
        mean = b.ReduceSum(x * weight, axes, keepdims=1) / total
        apart = x - mean
        variance = b.ReduceSum(apart * apart * weight, axes, keepdims=1) / total
        for moving, found in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(b.Mul(moving, self.momentum) + b.Reshape(found, [-1]) * (1 - self.momentum))
        y = apart / b.Sqrt(variance + self.epsilon)
        y = y if self.gamma is None else y * along(x, self.gamma, [axis])
        return self._cast(y if self.beta is None else y + along(x, self.beta, [axis]))


class LayerNormalization(Layer):
    """Mean 0 and variance 1 over some axes of each sample, then scaled; one op where the axes are the last ones."""

    supports_masking = True

    def __init__(
        self,
        axis: Any = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.axis, self.epsilon, self.center, self.scale = axis, epsilon, center, scale
        self.initializers = (gamma_initializer, beta_initializer)
        self.regularizers = (gamma_regularizer, beta_regularizer)
        self.gamma = self.beta = None

    def _axes(self, rank: int) -> list[int]:
        given = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return sorted(axis % rank for axis in given)

    def build(self, input_shape: Any) -> None:
        shape = [input_shape[axis] for axis in self._axes(len(input_shape))]
        if self.scale:
            self.gamma = self.add_weight(shape, self.initializers[0], name="gamma", regularizer=self.regularizers[0])
        if self.center:
            self.beta = self.add_weight(shape, self.initializers[1], name="beta", regularizer=self.regularizers[1])

    def call(self, inputs: Any) -> Any:
        b, rank = inputs.builder, rank_of(inputs)
        axes, x = self._axes(rank), wide(inputs)
        if axes == list(range(axes[0], rank)):
            sizes = [int(d) for d in (x.shape or ())[axes[0] :] if isinstance(d, int)]
            gamma = np.ones(sizes, np.float32) if self.gamma is None else wide(b.wrap(b.tensor(self.gamma)))
            beta = None if self.beta is None else wide(b.wrap(b.tensor(self.beta)))
            return self._cast(b.LayerNormalization(x, gamma, beta, axis=axes[0] - rank, epsilon=self.epsilon))
        apart = x - b.ReduceMean(x, axes, keepdims=1)
        y = apart / b.Sqrt(b.ReduceMean(apart * apart, axes, keepdims=1) + self.epsilon)
        y = y if self.gamma is None else y * along(x, self.gamma, axes)
        return self._cast(y if self.beta is None else y + along(x, self.beta, axes))


class RMSNormalization(Layer):
    """``x / sqrt(mean(x^2) + epsilon) * scale`` over some axes (Zhang and Sennrich 2019)."""

    supports_masking = True

    def __init__(self, axis: Any = -1, epsilon: float = 1e-6, **options: Any) -> None:
        super().__init__(**options)
        self.axis, self.epsilon = axis, epsilon

    def _axes(self, rank: int) -> list[int]:
        given = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return sorted(axis % rank for axis in given)

    def build(self, input_shape: Any) -> None:
        shape = [input_shape[axis] for axis in self._axes(len(input_shape))]
        self.scale = self.add_weight(shape, "ones", name="scale")

    def call(self, inputs: Any) -> Any:
        b, axes, x = inputs.builder, self._axes(rank_of(inputs)), wide(inputs)
        y = x / b.Sqrt(b.ReduceMean(x * x, axes, keepdims=1) + self.epsilon)
        return self._cast(y * along(x, self.scale, axes))


class GroupNormalization(Layer):
    """Mean 0 and variance 1 over groups of channels of each sample, then scaled (Wu and He 2018).

    Args:
        groups: how many; -1 for one a channel.
    """

    supports_masking = True

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.groups, self.axis, self.epsilon, self.center, self.scale = groups, axis, epsilon, center, scale
        self.initializers = (gamma_initializer, beta_initializer)
        self.regularizers = (gamma_regularizer, beta_regularizer)
        self.gamma = self.beta = None

    def build(self, input_shape: Any) -> None:
        size = input_shape[self.axis]
        if size is None or size % (size if self.groups == -1 else self.groups):
            raise IrkitError(f"layer '{self.name}': {size} channels are to be in {self.groups} groups")
        if self.scale:
            self.gamma = self.add_weight((size,), self.initializers[0], name="gamma", regularizer=self.regularizers[0])
        if self.center:
            self.beta = self.add_weight((size,), self.initializers[1], name="beta", regularizer=self.regularizers[1])

    def call(self, inputs: Any) -> Any:
        b, rank, x = inputs.builder, rank_of(inputs), wide(inputs)
        axis = self.axis % rank
        size = int((inputs.shape or ())[axis])
        groups = size if self.groups == -1 else self.groups
        perm = [0, axis, *(i for i in range(1, rank) if i != axis)]
        moved = x if axis == 1 else b.Transpose(x, perm=perm)
        parted = b.Reshape(moved, [0, groups, -1])
        apart = parted - b.ReduceMean(parted, [-1], keepdims=1)
        parted = apart / b.Sqrt(b.ReduceMean(apart * apart, [-1], keepdims=1) + self.epsilon)
        y = b.Reshape(parted, b.Shape(moved))
        y = y if axis == 1 else b.Transpose(y, perm=[perm.index(i) for i in range(rank)])
        y = y if self.gamma is None else y * along(x, self.gamma, [axis])
        return self._cast(y if self.beta is None else y + along(x, self.beta, [axis]))


class UnitNormalization(Layer):
    """Length 1 along some axes: ``x / sqrt(max(sum(x^2), 1e-12))``."""

    supports_masking = True

    def __init__(self, axis: Any = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return inputs / b.Sqrt(b.Max(b.ReduceSum(inputs * inputs, axes, keepdims=1), 1e-12))


class Normalization(Layer):
    """``(x - mean) / sqrt(variance)``, of numbers that are given or found by ``adapt``.

    Args:
        axis: what is normalized by itself: one mean for each place along these; None for one mean in all.
        invert: computes ``mean + x * sqrt(variance)`` instead.
    """

    def __init__(
        self, axis: Any = -1, mean: Any = None, variance: Any = None, invert: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        if (mean is None) != (variance is None):
            raise IrkitError(f"layer '{self.name}' takes mean and variance, or neither")
        self.axis, self.invert = axis, invert
        self._mean, self._variance = mean, variance

    def _axes(self, rank: int) -> list[int]:
        given = [] if self.axis is None else [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return sorted(axis % rank for axis in given)

    def build(self, input_shape: Any) -> None:
        axes = self._axes(len(input_shape))
        shape = [input_shape[axis] for axis in axes]
        if self._mean is None:
            self.mean = self.add_weight(shape, "zeros", name="mean", trainable=False)
            self.variance = self.add_weight(shape, "ones", name="variance", trainable=False)
        else:
            kind = self.variable_dtype
            given = (np.asarray(v, kind) for v in (self._mean, self._variance))
            self.mean, self.variance = (np.broadcast_to(v, shape) for v in given)

    mean: Any
    variance: Any

    def adapt(self, data: Any) -> None:
        """Finds mean and variance of data."""
        array = np.asarray(data)
        array = array[:, None] if array.ndim == 1 else array
        if self._mean is not None:
            raise IrkitError(f"layer '{self.name}' was given its mean and variance")
        axes = self._axes(array.ndim)
        over = tuple(i for i in range(array.ndim) if i not in axes)
        if not self.built:
            self.build(array.shape)
            self.built = True
        self.mean.assign(array.mean(over, dtype=np.float64))
        self.variance.assign(array.var(over, dtype=np.float64))

    def call(self, inputs: Any) -> Any:
        b, axes = inputs.builder, self._axes(rank_of(inputs))
        mean, deviation = along(inputs, self.mean, axes), b.Max(b.Sqrt(along(inputs, self.variance, axes)), 1e-7)
        return inputs * deviation + mean if self.invert else (inputs - mean) / deviation
