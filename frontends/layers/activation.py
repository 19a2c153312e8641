"""Activations as layers."""

from __future__ import annotations

from typing import Any

from irkit.frontends.layers import activations
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import elementwise

__all__ = ["ELU", "Activation", "LeakyReLU", "PReLU", "ReLU", "Softmax"]


class Activation(Layer):
    """An activation by its name, or any function of a value."""

    supports_masking = True

    def __init__(self, activation: Any, **options: Any) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Any:
        if activations.name_of(self.activation) in activations.ELEMENTWISE:
            return elementwise(self.activation, inputs)
        return self.activation(inputs)


class ReLU(Layer):
    """``x`` where it is at least the threshold, at most ``max_value``; below, ``negative_slope (x - threshold)``."""

    supports_masking = True

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self.options = {"max_value": max_value, "negative_slope": negative_slope, "threshold": threshold}

    def call(self, inputs: Any) -> Any:
        return elementwise(lambda x: activations.relu(x, **self.options), inputs)


class LeakyReLU(Layer):
    """``x`` where it is positive, else ``negative_slope x``."""

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **options: Any) -> None:
        super().__init__(**options)
        self.negative_slope = negative_slope

    def call(self, inputs: Any) -> Any:
        return elementwise(lambda x: x.builder.LeakyRelu(x, alpha=self.negative_slope), inputs)


class PReLU(Layer):
    """``x`` where it is positive, else ``alpha x``, with ``alpha`` learned (He et al. 2015).

    Args:
        shared_axes: along which alpha is the same.
    """

    supports_masking = True

    def __init__(
        self, alpha_initializer: Any = "zeros", alpha_regularizer: Any = None, shared_axes: Any = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.alpha_initializer, self.alpha_regularizer = alpha_initializer, alpha_regularizer
        self.shared_axes = [shared_axes] if isinstance(shared_axes, int) else list(shared_axes or ())

    def build(self, input_shape: Any) -> None:
        shape = [1 if axis in self.shared_axes else size for axis, size in enumerate(input_shape) if axis]
        self.alpha = self.add_weight(shape, self.alpha_initializer, name="alpha", regularizer=self.alpha_regularizer)

    def call(self, inputs: Any) -> Any:
        return inputs.builder.PRelu(inputs, self.alpha)


class ELU(Layer):
    """``x`` where it is positive, else ``alpha (exp(x) - 1)``."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = alpha

    def call(self, inputs: Any) -> Any:
        return elementwise(lambda x: x.builder.Elu(x, alpha=self.alpha), inputs)


class Softmax(Layer):
    """Positive numbers that sum to 1 along an axis or several; places where the mask is false get (almost) none."""

    supports_masking = True

    def __init__(self, axis: Any = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Any, mask: Any = None) -> Any:
        b = inputs.builder
        if mask is not None:
            least = -3e4 if inputs.dtype.bits == 16 else -1e9
            inputs = inputs + (1.0 - b.Cast(mask, to=inputs.dtype.code)) * least
        if isinstance(self.axis, int):
            return b.Softmax(inputs, axis=self.axis)
        axes = list(self.axis)
        powers = b.Exp(inputs - b.ReduceMax(inputs, axes, keepdims=1))
        return powers / b.ReduceSum(powers, axes, keepdims=1)
