"""Layers of general use: Dense, Embedding, functions and single ops as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers import activations, initializers
from irkit.frontends.layers.layer import Layer
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = ["Dense", "EinsumDense", "Embedding", "Identity", "Lambda", "Masking", "Operation"]


class Operation(Layer):
    """One ONNX op as a layer; Python's operators on symbolic tensors make these.

    Args:
        op: its name, such as ``"Add"``.
        attributes: of the op.
    """

    supports_masking = True

    def __init__(self, op: str, *, attributes: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.op, self.attributes = op, attributes or {}

    def call(self, *operands: Any) -> Any:
        builder = next(v.builder for v in operands if isinstance(v, Tensor))
        return builder.op(self.op, *operands, **self.attributes)


class Lambda(Layer):
    """A function of values of a graph as a layer.

    Args:
        function: takes the inputs (and ``mask``, ``training``, if it names them).
        mask: the mask of what it gives, or a function of inputs and mask.
        arguments: given to the function by name.
    """

    def __init__(
        self, function: Callable[..., Any], mask: Any = None, arguments: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.function, self._mask, self.arguments = function, mask, arguments or {}

    def call(self, inputs: Any) -> Any:
        return self.function(inputs, **self.arguments)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return self._mask(inputs, mask) if callable(self._mask) else self._mask


class Identity(Layer):
    """What goes in comes out."""

    supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs.builder.Identity(inputs)


class Dense(Layer):
    """``activation(x @ kernel + bias)`` along the last axis.

    Args:
        units: the size of the last axis of the output.
    """

    supports_masking = True

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **options)
        self.units, self.use_bias = units, use_bias
        self.activation = activations.get(activation)
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.bias = None

    def build(self, input_shape: Any) -> None:
        shape = (input_shape[-1], self.units)
        self.kernel = self.add_weight(
            shape, self.kernel_initializer, name="kernel", regularizer=self.kernel_regularizer
        )
        if self.use_bias:
            self.bias = self.add_weight(
                (self.units,), self.bias_initializer, name="bias", regularizer=self.bias_regularizer
            )

    def call(self, inputs: Any) -> Any:
        made = inputs @ self.kernel
        return self.activation(made if self.bias is None else made + self.bias)


class EinsumDense(Layer):
    """``activation(einsum(equation, x, kernel) + bias)``.

    Args:
        equation: such as ``"ab,bc->ac"`` or ``"...x,xy->...y"``.
        output_shape: the sizes of the output without the batch; None for those that are the input's.
        bias_axes: the letters of the output that the bias has.
    """

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **options)
        self.equation = equation.replace(" ", "")
        self.sizes = (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
        self.activation, self.bias_axes = activations.get(activation), bias_axes
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.bias = None

    def build(self, input_shape: Any) -> None:
        terms, _, output = self.equation.partition("->")
        first, _, kernel = terms.partition(",")
        known = dict(_aligned(output, (None, *self.sizes)))
        known |= {letter: size for letter, size in _aligned(first, input_shape) if size is not None}
        shape: list[Any] = [known.get(letter) for letter in kernel]
        self.kernel = self.add_weight(
            shape, self.kernel_initializer, name="kernel", regularizer=self.kernel_regularizer
        )
        if self.bias_axes is not None:
            letters = output.replace("...", "")
            begin = min(letters.index(axis) for axis in self.bias_axes)
            bias: list[Any] = [known[axis] if axis in self.bias_axes else 1 for axis in letters[begin:]]
            self.bias = self.add_weight(bias, self.bias_initializer, name="bias", regularizer=self.bias_regularizer)

    def call(self, inputs: Any) -> Any:
        made = inputs.builder.Einsum(inputs, self.kernel, equation=self.equation)
        return self.activation(made if self.bias is None else made + self.bias)


def _aligned(term: str, shape: Sequence[int | None]) -> list[tuple[str, int | None]]:
    """The letters of a term with their sizes; an ellipsis stands for those in between."""
    left, dots, right = term.partition("...")
    if not dots:
        return list(zip(left, shape, strict=False))
    after = shape[len(shape) - len(right) :]
    return [*zip(left, shape, strict=False), *zip(right, after, strict=True)]


class Embedding(Layer):
    """Rows of a matrix by their numbers.

    Args:
        input_dim: how many rows.
        output_dim: the size of one.
        mask_zero: whether 0 stands for nothing: the mask is ``x != 0``.
        weights: the matrix's initial value.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.input_dim, self.output_dim, self.mask_zero = input_dim, output_dim, mask_zero
        self.supports_masking = mask_zero
        start = embeddings_initializer if weights is None else initializers.Constant(np.asarray(weights))
        self.embeddings = self.add_weight(
            (input_dim, output_dim), start, name="embeddings", regularizer=embeddings_regularizer
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        return b.Gather(self.embeddings, _integers(inputs), axis=0)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        if not self.mask_zero:
            return None
        zero = inputs.builder.constant(0, inputs.dtype)
        return inputs.builder.Not(inputs.builder.Equal(inputs, zero))


def _integers(value: Tensor) -> Tensor:
    if value.dtype is not None and value.dtype.name in ("int32", "int64"):
        return value
    return value.builder.Cast(value, to=dtype("int64").code)


class Masking(Layer):
    """Masks the time steps all of whose features are one value, and makes them 0."""

    supports_masking = True

    def __init__(self, mask_value: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.mask_value = mask_value

    def _differs(self, inputs: Any, keepdims: int) -> Any:
        b = inputs.builder
        differs = b.Not(b.Equal(inputs, b.constant(self.mask_value, inputs.dtype)))
        any_ = b.ReduceMax(b.Cast(differs, to=dtype("float32").code), [-1], keepdims=keepdims)
        return b.Cast(any_, to=dtype("bool").code)

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        if inputs.dtype is None or not inputs.dtype.is_float:
            raise IrkitError(f"layer '{self.name}' masks floats, not {inputs.dtype}")
        return b.Where(self._differs(inputs, 1), inputs, b.constant(0.0, inputs.dtype))

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return self._differs(inputs, 0)
