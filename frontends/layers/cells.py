"""One step of recurrent layers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from irkit.frontends.layers import activations, initializers
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.regularization import dropped, partial_shape
from irkit.ir.builder import Tensor

__all__ = ["GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"]

Masks = dict[str, Tensor]


def zeros(like: Tensor, size: int, kind: str) -> Tensor:
    """Zeros (batch, size), with the batch of a value."""
    return like.builder.Expand(like.builder.constant(0.0, kind), partial_shape(like, [None, size]))


class Cell(Layer):
    """What the cells of recurrent layers share.

    A cell's ``call`` takes the inputs of a step (batch, features) and the states, and gives the output and the next
    states. What dropout draws (``draw``) is the same for all steps.

    Args:
        units: the size of the output.
        dropout: the share of the inputs that become 0 in training.
        recurrent_dropout: the same of the state.
    """

    kernel: Any
    recurrent_kernel: Any
    gates: ClassVar[int]
    op: ClassVar[str]
    """The ONNX op for a whole sequence."""

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.units, self.use_bias, self.seed = units, use_bias, seed
        self.activation = activations.get(activation)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.initializers = (kernel_initializer, recurrent_initializer, bias_initializer)
        self.regularizers = (kernel_regularizer, recurrent_regularizer, bias_regularizer)
        self.dropout, self.recurrent_dropout = dropout, recurrent_dropout
        self.bias: Any = None

    @property
    def state_size(self) -> list[int]:
        """The size of each state."""
        return [self.units]

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self.units

    def bias_shape(self) -> tuple[int, ...]:
        """Of the bias."""
        return (self.gates * self.units,)

    def build(self, input_shape: Any) -> None:
        wide = self.gates * self.units
        shapes = {"kernel": (input_shape[-1], wide), "recurrent_kernel": (self.units, wide), "bias": self.bias_shape()}
        for (name, shape), start, regularizer in zip(shapes.items(), self.initializers, self.regularizers, strict=True):
            if name != "bias" or self.use_bias:
                setattr(self, name, self.add_weight(shape, start, name=name, regularizer=regularizer))

    def get_initial_state(self, like: Tensor) -> list[Tensor]:
        """Zeros, for the batch of a value."""
        return [zeros(like, size, self.compute_dtype) for size in self.state_size]

    def draw(self, like: Tensor) -> Masks:
        """What dropout multiplies inputs and states by, for the batch of a value."""
        sizes = {"input": (self.kernel.shape[0], self.dropout), "state": (self.units, self.recurrent_dropout)}
        one = like.builder.constant(1.0, self.compute_dtype)
        return {
            name: dropped(one, rate, partial_shape(like, [None, size]), self.seed)
            for name, (size, rate) in sizes.items()
            if rate
        }

    def call(self, inputs: Any, states: Any, training: Any = None, masks: Any = None) -> Any:
        states = list(states) if isinstance(states, list | tuple) else [states]
        if masks is None:
            masks = self.draw(inputs) if training else {}
        inputs = inputs * masks["input"] if "input" in masks else inputs
        dropped_state = states[0] * masks["state"] if "state" in masks else states[0]
        made = self.step(inputs, dropped_state, states)
        return made[0], made

    def step(self, x: Tensor, h: Tensor, states: list[Tensor]) -> list[Tensor]:
        """The next states; the first is the output.

        Args:
            h: the first state, perhaps with a part dropped.
        """
        raise NotImplementedError


def _sum(value: Tensor, bias: Any) -> Tensor:
    return value if bias is None else value + bias


class SimpleRNNCell(Cell):
    """``h = activation(x @ kernel + bias + h @ recurrent_kernel)``."""

    gates = 1
    op = "RNN"

    def __init__(self, units: int, activation: Any = "tanh", use_bias: bool = True, **options: Any) -> None:
        super().__init__(units, activation, None, use_bias, **options)

    def step(self, x: Tensor, h: Tensor, states: list[Tensor]) -> list[Tensor]:
        return [self.activation(_sum(x @ self.kernel, self.bias) + h @ self.recurrent_kernel)]


class LSTMCell(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); gates in the order input, forget, cell, output.

    Args:
        unit_forget_bias: whether the forget gate's bias begins as 1.
    """

    gates = 4
    op = "LSTM"

    def __init__(self, units: int, *args: Any, unit_forget_bias: bool = True, **options: Any) -> None:
        super().__init__(units, *args, **options)
        if unit_forget_bias:
            kernel, recurrent, bias = self.initializers
            self.initializers = (kernel, recurrent, _ForgetBias(units, bias))

    @property
    def state_size(self) -> list[int]:
        return [self.units, self.units]

    def step(self, x: Tensor, h: Tensor, states: list[Tensor]) -> list[Tensor]:
        b = x.builder
        gates = b.Split(_sum(x @ self.kernel + h @ self.recurrent_kernel, self.bias), axis=-1, num_outputs=4, outputs=4)
        i, f, o = (self.recurrent_activation(gates[k]) for k in (0, 1, 3))
        c = f * states[1] + i * self.activation(gates[2])
        return [o * self.activation(c), c]


class _ForgetBias(initializers.Initializer):
    """As another initializer, but for the second quarter, which is 1."""

    def __init__(self, units: int, other: Any) -> None:
        self.units, self.other = units, initializers.get(other)

    def draw(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        u = self.units
        return np.concatenate([self.other((u,)), np.ones(u), self.other((2 * u,))])


class GRUCell(Cell):
    """The gated recurrent unit (Cho et al. 2014); gates in the order update, reset, new.

    Args:
        reset_after: whether the reset gate is applied after the product with the recurrent kernel, as cuDNN does.
    """

    gates = 3
    op = "GRU"

    def __init__(self, units: int, *args: Any, reset_after: bool = True, **options: Any) -> None:
        super().__init__(units, *args, **options)
        self.reset_after = reset_after

    def bias_shape(self) -> tuple[int, ...]:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def step(self, x: Tensor, h: Tensor, states: list[Tensor]) -> list[Tensor]:
        b, u = x.builder, self.units
        thirds = {"axis": -1, "num_outputs": 3, "outputs": 3}
        if not self.reset_after:
            xz, xr, xn = b.Split(_sum(x @ self.kernel, self.bias), **thirds)
            first, last = b.Split(self.recurrent_kernel, [2 * u, u], axis=-1, outputs=2)
            hz, hr = b.Split(h @ first, axis=-1, num_outputs=2, outputs=2)
            z, r = self.recurrent_activation(xz + hz), self.recurrent_activation(xr + hr)
            new = self.activation(xn + (r * h) @ last)
        else:
            of_input, of_state = (None, None) if self.bias is None else b.Split(self.bias, num_outputs=2, outputs=2)
            xz, xr, xn = b.Split(_sum(x @ self.kernel, of_input), **thirds)
            hz, hr, hn = b.Split(_sum(h @ self.recurrent_kernel, of_state), **thirds)
            z, r = self.recurrent_activation(xz + hz), self.recurrent_activation(xr + hr)
            new = self.activation(xn + r * hn)
        return [z * states[0] + (1.0 - z) * new]


class StackedRNNCells(Layer):
    """Cells one above the other: each takes the output of the one before."""

    def __init__(self, cells: Any, **options: Any) -> None:
        super().__init__(**options)
        self.cells = list(cells)

    @property
    def state_size(self) -> list[int]:
        """The sizes of all states, cell after cell."""
        return [size for cell in self.cells for size in _listed(cell.state_size)]

    @property
    def output_size(self) -> int:
        """That of the last cell."""
        return self.cells[-1].output_size

    def build(self, input_shape: Any) -> None:
        for cell in self.cells:
            self.build_inner(cell, input_shape)
            input_shape = (*input_shape[:-1], cell.output_size)

    def get_initial_state(self, like: Tensor) -> list[Tensor]:
        """Zeros, for the batch of a value."""
        return [zeros(like, size, self.compute_dtype) for size in self.state_size]

    def draw(self, like: Tensor) -> list[Masks]:
        """What dropout multiplies by, cell after cell."""
        return [cell.draw(like) if hasattr(cell, "draw") else {} for cell in self.cells]

    def call(self, inputs: Any, states: Any, training: Any = None, masks: Any = None) -> Any:
        found: list[Tensor] = []
        rest = list(states)
        for index, cell in enumerate(self.cells):
            count = len(_listed(cell.state_size))
            own, rest = rest[:count], rest[count:]
            options = {"masks": masks[index]} if masks is not None and hasattr(cell, "draw") else {}
            inputs, made = cell(inputs, own, training=training, **options)
            found += made
        return inputs, found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
