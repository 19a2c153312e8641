"""Layers around layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import rank_of
from irkit.frontends.layers.node import map_structure
from irkit.frontends.layers.rnn import listed, reversed_in_time
from irkit.frontends.layers.saving import to_config
from irkit.frontends.layers.values import current_trace
from irkit.ir.builder import Tensor

__all__ = ["Bidirectional", "TimeDistributed", "Wrapper"]


class Wrapper(Layer):
    """A layer around another."""

    def __init__(self, layer: Layer, **options: Any) -> None:
        super().__init__(**options)
        self.layer = layer


_MERGED = {"sum": "Add", "mul": "Mul", "ave": "Add"}


class Bidirectional(Wrapper):
    """A recurrent layer forwards and another one backwards.

    Args:
        layer: the one forwards.
        merge_mode: ``"concat"``, ``"sum"``, ``"mul"``, ``"ave"``, or None to give both.
        backward_layer: by default like the one forwards.
    """

    supports_masking = True

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(layer, **options)
        if merge_mode is not None and merge_mode != "concat" and merge_mode not in _MERGED:
            raise IrkitError(f"merge_mode={merge_mode!r} is not known", hint=f"concat, {', '.join(_MERGED)} or None")
        self.merge_mode = merge_mode
        base = layer.name
        self.forward_layer = _copy(layer, name=f"forward_{base}")
        if backward_layer is None:
            backward_layer = _copy(layer, name=f"backward_{base}", go_backwards=not layer.go_backwards)
        if backward_layer.go_backwards == layer.go_backwards:
            raise IrkitError(f"layer '{self.name}': both layers go the same way", hint="give one go_backwards=True")
        self.backward_layer = backward_layer
        self._sublayers = [self.forward_layer, self.backward_layer]
        for one in self._sublayers:
            # What is merged must not hold what a step before gave.
            one.zero_output_for_mask = one.zero_output_for_mask or layer.return_sequences  # pyright: ignore[reportAttributeAccessIssue]
        self._start = weights
        self.return_sequences, self.return_state = layer.return_sequences, layer.return_state

    def call(self, inputs: Any, initial_state: Any = None, training: Any = None, mask: Any = None) -> Any:
        if isinstance(inputs, list | tuple):
            inputs, initial_state = inputs[0], list(inputs[1:]) or initial_state
            mask = mask[0] if isinstance(mask, list | tuple) else mask
        states = [None, None]
        if initial_state is not None:
            half = len(initial_state) // 2
            states = [list(initial_state[:half]), list(initial_state[half:])]
        found = [
            listed(layer(inputs, initial_state=state, training=training, mask=mask))
            for layer, state in zip((self.forward_layer, self.backward_layer), states, strict=True)
        ]
        (first, *forward), (second, *backward) = found
        if self.return_sequences:
            second = reversed_in_time(second)
        outputs = self._merged(first, second)
        if not self.return_state:
            return outputs
        return [*listed(outputs), *forward, *backward]

    def _merged(self, first: Tensor, second: Tensor) -> Any:
        b = first.builder
        if self.merge_mode is None:
            return [first, second]
        if self.merge_mode == "concat":
            return b.Concat(first, second, axis=-1)
        made = b.op(_MERGED[self.merge_mode], first, second)
        return made * 0.5 if self.merge_mode == "ave" else made

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        kept = mask if self.return_sequences else None
        outputs = [kept, kept] if self.merge_mode is None else [kept]
        if not self.return_state:
            return outputs if self.merge_mode is None else kept
        return [*outputs, *(None for _ in range(2 * len(self.forward_layer.state_size)))]


def _copy(layer: Layer, **changes: Any) -> Any:
    """A layer of the same configuration, with changes."""
    config = {key: value for key, value in to_config(layer)["config"].items() if key != "name"}
    return type(layer).from_config({**config, **{key: to_config(value) for key, value in changes.items()}})


class TimeDistributed(Wrapper):
    """A layer on every step of (batch, time, ...): batch and time are one axis meanwhile."""

    supports_masking = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        b, rank = inputs.builder, rank_of(inputs)
        if rank < 3:
            raise IrkitError(f"layer '{self.name}' takes (batch, time, ...), not {rank} axes")
        steps = b.Reshape(inputs, b.Concat(b.constant(np.asarray([-1], np.int64)), b.Shape(inputs, start=2), axis=0))
        trace = current_trace()
        if mask is not None and trace is not None:
            trace.masks[steps.ssa] = b.Reshape(mask, [-1])
        found = self.layer(steps, training=training)
        first = b.Shape(inputs, start=0, end=2)

        def back(value: Any) -> Any:
            return (
                b.Reshape(value, b.Concat(first, b.Shape(value, start=1), axis=0))
                if isinstance(value, Tensor)
                else value
            )

        return map_structure(back, found)
