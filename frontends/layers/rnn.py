"""Recurrent layers: one ONNX op where it means the same, else a Scan over the cell."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers import activations
from irkit.frontends.layers.cells import Cell, GRUCell, LSTMCell, SimpleRNNCell, StackedRNNCells, zeros
from irkit.frontends.layers.layer import Layer, snake_case
from irkit.ir.builder import Builder, Tensor

__all__ = ["GRU", "LSTM", "RNN", "SimpleRNN", "reversed_in_time"]


def reversed_in_time(x: Tensor) -> Tensor:
    """The steps (axis 1) from the last to the first."""
    return x.builder.Slice(x, [-1], [np.iinfo(np.int64).min], [1], [-1])


def listed(value: Any) -> list[Any]:
    """A list as it is, something else as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


class RNN(Layer):
    """Calls a cell for every step of (batch, time, ...).

    Args:
        cell: has ``state_size``, ``output_size`` and ``call(inputs, states)``; a list of cells is stacked.
        return_sequences: whether all outputs are given, or the last only.
        return_state: whether the last states are given besides.
        go_backwards: whether it begins at the last step; outputs come in the order in which they are made.
        stateful: whether a batch begins with the states that the one before ended with; needs a fixed batch size.
        unroll: says nothing here.
        zero_output_for_mask: whether masked steps give 0, rather than the output of the step before.
    """

    supports_masking = True

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.cell = StackedRNNCells(cell, dtype=self.dtype_policy) if isinstance(cell, list | tuple) else cell
        self.return_sequences, self.return_state = return_sequences, return_state
        self.go_backwards, self.stateful = go_backwards, stateful
        self.zero_output_for_mask = zero_output_for_mask
        self._states: list[Any] = []

    @property
    def state_size(self) -> list[int]:
        """The size of each state."""
        return listed(self.cell.state_size)

    def build(self, input_shape: Any) -> None:
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        self.build_inner(self.cell, (shape[0], *shape[2:]))
        if self.stateful:
            if shape[0] is None:
                raise IrkitError(
                    f"layer '{self.name}' is stateful, so the batch size must be fixed", hint="Input(..., batch_size=8)"
                )
            self._states = [
                self.add_weight((shape[0], size), "zeros", name=f"state_{i}", trainable=False, stateful="always")
                for i, size in enumerate(self.state_size)
            ]

    def reset_states(self) -> None:
        """Makes the states of a stateful layer zero."""
        for state in self._states:
            state.assign(np.zeros(state.shape))

    def call(self, inputs: Any, initial_state: Any = None, training: Any = None, mask: Any = None) -> Any:
        if isinstance(inputs, list | tuple):
            inputs, initial_state = inputs[0], list(inputs[1:]) or initial_state
            mask = mask[0] if isinstance(mask, list | tuple) else mask
        b = inputs.builder
        if initial_state is not None:
            states = [self._cast(v) for v in listed(initial_state)]
        elif self.stateful:
            states = [b.wrap(b.tensor(v)) for v in self._states]
        else:
            states = [zeros(inputs, size, self.compute_dtype) for size in self.state_size]
        masks = self.cell.draw(inputs) if training and hasattr(self.cell, "draw") else None
        if mask is None and _has_op(self.cell) and not (masks and "state" in masks):
            sequence, last = _one_op(self.cell, inputs, states, masks, self.go_backwards)
        else:
            sequence, last = self._scan(inputs, states, mask, masks, training)
        if self.stateful:
            for variable, value in zip(self._states, last, strict=True):
                variable.assign(b.Reshape(value, list(variable.shape)))
        output = sequence if self.return_sequences else self._last(sequence, last, mask)
        return [output, *last] if self.return_state else output

    def _last(self, sequence: Tensor, last: list[Tensor], mask: Any) -> Tensor:
        if isinstance(self.cell, Cell) and mask is None:
            return last[0]
        return sequence.builder.Gather(sequence, np.asarray(-1, np.int64), axis=1)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        kept = mask if self.return_sequences else None
        return [kept, *(None for _ in self.state_size)] if self.return_state else kept

    def _scan(
        self, x: Tensor, states: list[Tensor], mask: Any, masks: Any, training: Any
    ) -> tuple[Tensor, list[Tensor]]:
        """A Scan over the cell. A masked step keeps the states, and gives the output of the step before."""
        b, count = x.builder, len(states)
        options = {} if masks is None else {"masks": masks}
        carried = list(states)
        keeps_output = mask is not None and not self.zero_output_for_mask
        if keeps_output:
            carried.append(zeros(x, self.cell.output_size, self.compute_dtype))
        scanned = [x] if mask is None else [x, mask]

        def step(carried: list[Tensor], now: list[Tensor]) -> list[Tensor]:
            given = carried[:count]
            output, made = self.cell(now[0], given, training=training, **options)
            made = listed(made)
            if mask is None:
                return [*made, output]
            inner = now[0].builder
            valid = inner.Unsqueeze(now[1], [1])
            made = [inner.Where(valid, new, old) for new, old in zip(made, given, strict=True)]
            if self.zero_output_for_mask:
                return [*made, inner.Where(valid, output, inner.constant(0.0, output.dtype))]
            output = inner.Where(valid, output, carried[count])
            return [*made, output, output]

        def body(inner: Builder, *values: Tensor) -> list[Tensor]:
            return step(list(values[: len(carried)]), list(values[len(carried) :]))

        _with_arity(body, len(carried) + len(scanned))
        found = b.Scan(
            *carried,
            *scanned,
            body=body,
            num_scan_inputs=len(scanned),
            scan_input_axes=[1] * len(scanned),
            scan_output_axes=[1],
            scan_input_directions=[int(self.go_backwards)] * len(scanned),
            outputs=len(carried) + 1,
        )
        return found[-1], list(found[:count])


def _with_arity(function: Any, count: int) -> None:
    """Tells the builder how many values the body of a Scan takes besides the builder."""
    names = ["b", *(f"v{i}" for i in range(count))]
    kind = inspect.Parameter.POSITIONAL_ONLY
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _has_op(cell: Any) -> bool:
    """Whether the cell is one of those whose sequence is an ONNX op."""
    if type(cell) not in (SimpleRNNCell, LSTMCell, GRUCell):
        return False
    used = [cell.activation] if isinstance(cell, SimpleRNNCell) else [cell.activation, cell.recurrent_activation]
    return all(activations.name_of(f) in activations.ONNX for f in used)


_ORDER = {"RNN": (0,), "LSTM": (0, 3, 1, 2), "GRU": (0, 1, 2)}
"""Where ONNX's gates stand among Keras's: LSTM has input, output, forget, cell."""


def _one_op(cell: Any, x: Tensor, states: list[Tensor], masks: Any, backwards: bool) -> tuple[Tensor, list[Tensor]]:
    """One RNN, LSTM or GRU op over the sequence; the outputs in the order in which they are made."""
    b = x.builder
    if masks and "input" in masks:
        x = x * b.Unsqueeze(masks["input"], [1])

    def gates(weight: Any, axis: int) -> Any:
        if cell.gates == 1:
            return weight
        parts = b.Split(weight, axis=axis, num_outputs=cell.gates, outputs=cell.gates)
        order = _ORDER[cell.op]
        return b.Concat(*(parts[i] for i in order), axis=axis) if order != tuple(range(cell.gates)) else weight

    w, r = (b.Unsqueeze(b.Transpose(gates(v, 1)), [0]) for v in (cell.kernel, cell.recurrent_kernel))
    bias = None
    if cell.bias is not None:
        flat = b.Reshape(gates(cell.bias, -1), [-1])
        if len(cell.bias.shape) == 1:
            flat = b.Concat(flat, b.constant(np.zeros(cell.bias.shape, flat.dtype.numpy)), axis=0)
        bias = b.Unsqueeze(flat, [0])
    act, rec = (activations.ONNX[activations.name_of(f)] for f in (cell.activation, _recurrent(cell)))
    named = {"RNN": [act], "LSTM": [rec, act, act], "GRU": [rec, act]}[cell.op]
    options: dict[str, Any] = {"linear_before_reset": int(cell.reset_after)} if cell.op == "GRU" else {}
    starts = [b.Unsqueeze(s, [0]) for s in states]
    found = b.op(
        cell.op,
        b.Transpose(x, perm=[1, 0, 2]),
        w,
        r,
        bias,
        None,
        *starts,
        hidden_size=cell.units,
        activations=named,
        direction="reverse" if backwards else "forward",
        outputs=1 + len(states),
        **options,
    )
    sequence = b.Transpose(b.Squeeze(found[0], [1]), perm=[1, 0, 2])
    last = [b.Squeeze(v, [0]) for v in found[1:]]
    return (reversed_in_time(sequence) if backwards else sequence), last


def _recurrent(cell: Any) -> Any:
    return cell.activation if isinstance(cell, SimpleRNNCell) else cell.recurrent_activation


_OF_SEQUENCE = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll", "zero_output_for_mask")
_OF_LAYER = ("name", "trainable", "dtype", "activity_regularizer")


class _Recurrent(RNN):
    """A recurrent layer over a cell of its own; takes the cell's arguments and those of ``RNN``."""

    cell_class: ClassVar[type[Cell]]

    def __init__(self, units: int, *args: Any, **options: Any) -> None:
        options.pop("use_cudnn", None)
        options.pop("implementation", None)
        kept = {key: options.pop(key) for key in (*_OF_SEQUENCE, *_OF_LAYER) if key in options}
        kind = {"dtype": kept["dtype"]} if kept.get("dtype") else {}
        name = snake_case(self.cell_class.__name__)
        super().__init__(self.cell_class(units, *args, **options, **kind, name=name), **kept)

    @property
    def units(self) -> int:
        """The size of the output."""
        return self.cell.output_size


class SimpleRNN(_Recurrent):
    """``h = activation(x @ kernel + bias + h @ recurrent_kernel)`` over a sequence; see ``RNN``, ``SimpleRNNCell``."""

    cell_class = SimpleRNNCell


class LSTM(_Recurrent):
    """Long short-term memory over a sequence; see ``RNN`` and ``LSTMCell``."""

    cell_class = LSTMCell


class GRU(_Recurrent):
    """Gated recurrent units over a sequence; see ``RNN`` and ``GRUCell``."""

    cell_class = GRUCell
