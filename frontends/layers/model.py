"""Models: graphs of layers, walked back from the outputs to the inputs by the tensors' history."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer, map_shapes
from irkit.frontends.layers.node import Node, flatten, map_structure
from irkit.frontends.layers.node import Tensor as Symbolic
from irkit.frontends.layers.objective import per_output
from irkit.frontends.layers.saving import to_config
from irkit.frontends.layers.training import Trainable
from irkit.frontends.layers.values import Trace, Variable, current_trace, tracing
from irkit.ir.builder import Builder, Tensor
from irkit.ir.files import write_atomically
from irkit.ir.module import Module
from irkit.ir.types import Dim
from irkit.passes.training import losses

__all__ = ["Input", "InputLayer", "Model", "Sequential"]


class InputLayer(Layer):
    """Where data comes in; its node has no inbound layers, and its only tensor's history is itself.

    Args:
        shape: the sizes without the batch; None, or a name, for a symbolic one.
        batch_size: a number, where it is fixed.
    """

    def __init__(
        self,
        shape: Sequence[Dim] = (),
        *,
        dtype: str = "float32",
        batch_size: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.built = True
        named = [f"{self.name}_{axis}" if d is None else d for axis, d in enumerate(shape, 1)]
        tensor = Symbolic(("batch" if batch_size is None else batch_size, *named), dtype, self.name)
        Node.record(self, (), {}, tensor)

    @property
    def output(self) -> Symbolic:
        """The tensor that comes in."""
        return self._inbound_nodes[0].output_tensors[0]


def Input(
    shape: Sequence[Dim] = (),
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    name: str | None = None,
) -> Symbolic:
    """A symbolic tensor of shape ``(batch, *shape)`` to call layers on.

    Args:
        shape: None for a size that is open; a name for one that is the same wherever the name stands.
    """
    return InputLayer(shape, dtype=dtype, batch_size=batch_size, name=name).output


@dataclass
class Traced:
    """A graph that a model was built into.

    Attributes:
        outputs: by name.
    """

    trace: Trace
    outputs: list[tuple[str, Tensor]]

    def finish(self) -> Module:
        """The graph as a module, once all outputs are said but those that stand for assigns."""
        for variable, token in self.trace.effects.items():
            self.trace.b.output(token, f"#{self.trace.names[variable]}")
        return self.trace.b.module()

    def module(self) -> Module:
        """The graph as a module with the model's outputs."""
        for name, value in self.outputs:
            self.trace.b.output(value, name)
        return self.finish()


class Model(Trainable):
    """Layers between inputs and outputs.

    ``Model(inputs, outputs)`` with symbolic tensors, lists or dicts of them; or a subclass with ``call``.
    """

    transparent = True

    def __init__(self, inputs: Any = None, outputs: Any = None, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        self.inputs, self.outputs = inputs, outputs
        self._nodes: list[Node] = []
        self._symbols: Any = None
        self._form: Any = None
        self._outgoing: dict[str, Symbolic] | None = None
        if inputs is not None:
            self._nodes = _nodes_between(flatten(inputs), flatten(outputs))
            for layer in [*self.input_layers, *(node.outbound_layer for node in self._nodes)]:
                if layer not in self._sublayers:
                    self._sublayers.append(layer)
            self.built = True

    @property
    def is_functional(self) -> bool:
        """Whether it is made of symbolic tensors rather than by a ``call`` of its own."""
        return self.inputs is not None

    @property
    def input_layers(self) -> list[Layer]:
        """The layers of those inputs that are ``Input``s; a model may begin in the middle of another as well."""
        past = [t._keras_history for t in flatten(self.inputs)]
        return [p[0] for p in past if p is not None and isinstance(p[0], InputLayer)]

    def get_layer(self, name: str) -> Layer:
        """The layer of a name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise IrkitError(f"there is no layer '{name}'", hint=f"there are: {', '.join(x.name for x in self.layers)}")

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Runs the layers in the order in which they need each other."""
        given = _values_in(inputs, self.inputs)
        known: dict[int, Tensor] = dict(zip(map(id, flatten(self.inputs)), given, strict=True))

        def value(item: Any) -> Any:
            return known[id(item)] if isinstance(item, Symbolic) else item

        for node in self._nodes:
            if all(id(t) in known for t in node.output_tensors):
                continue
            args, kwargs = map_structure(value, node.structure)
            found = node.outbound_layer(*args, **kwargs)
            for symbol, made in zip(node.output_tensors, _values_in(found, node.outputs), strict=True):
                known[id(symbol)] = made
        return map_structure(value, self.outputs)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        """Masks are carried by the values within."""
        return None

    def to_module(self, *, training: bool = False) -> Module:
        """The model's graph: weights as initializers named by their paths, sizes that are open as symbols.

        A layer that changes variables (moving statistics in training, the states of a stateful layer) does so in the
        state dialect; ``ik.optimize(module, "lift-state")`` makes them inputs and outputs.

        Args:
            training: whether layers behave as in training.

        Raises:
            InferenceError: if a layer does not fit what comes in: which one.
        """
        return self.traced(training).module()

    def traced(self, training: bool, state: Collection[Variable] = ()) -> Traced:
        """The model built into a new graph.

        Args:
            state: variables that are to be state, whether or not the graph changes them.

        Raises:
            IrkitError: if it is not known what the model takes.
        """
        trace = Trace(Builder(self.name), training, state)
        symbols = self.symbols
        named = dict(zip(map(id, flatten(symbols)), self.input_names, strict=True))
        values = map_structure(lambda t: trace.b.input(named[id(t)], t.dtype, t.spec), symbols)
        with tracing(trace):
            outputs = self._main(values)
        self._form = map_structure(lambda v: None, outputs)
        return Traced(trace, _outputs(outputs, self))

    def _main(self, values: Any) -> Any:
        """Calls the model as the outermost one, whose name is in no path."""
        if not self.built:
            self._build((values,))
        trace = current_trace()
        assert trace is not None
        accepted = inspect.signature(self.call).parameters
        return self.call(values, **({"training": trace.training} if "training" in accepted else {}))

    # What goes in and comes out

    @property
    def symbols(self) -> Any:
        """Symbolic tensors for what the model takes.

        Raises:
            IrkitError: if it is not known.
        """
        found = self._symbols if self.inputs is None else self.inputs
        if found is None:
            raise IrkitError(
                f"the model '{self.name}' does not say what it takes",
                hint="begin with an Input, call it on data, or build it: model.build((None, 4))",
            )
        return found

    @property
    def input_names(self) -> list[str]:
        """The names of the graph's inputs."""
        return _names(self.symbols)

    @property
    def output_symbols(self) -> dict[str, Symbolic]:
        """What comes out, by the names of the graph's outputs."""
        if self._outgoing is None:
            found = self.traced(False).outputs
            self._outgoing = {
                name: Symbolic(value.shape or (), value.dtype.name if value.dtype else "float32", name)
                for name, value in found
            }
        return self._outgoing

    @property
    def output_names(self) -> list[str]:
        """The names of the graph's outputs."""
        return list(self.output_symbols)

    @property
    def loss_outputs(self) -> list[str]:
        """The outputs that have a loss."""
        names = self.output_names
        return [name for name in names if name in per_output(self.compiled.loss, names, "loss")]

    def fitted_target(self, output: str, target: Any) -> Any:
        """A target with the axes that the loss of an output takes: one of size 1 goes, or comes."""
        array = np.asarray(target)
        rank = self.output_symbols[output].ndim
        loss = losses.get(per_output(self.compiled.loss, self.output_names, "loss")[output])
        wanted = rank - 1 if loss.classes else rank
        if array.ndim == wanted + 1 and array.shape[-1] == 1:
            array = array[..., 0]
        elif array.ndim == wanted - 1 and not loss.classes and self.output_symbols[output].shape[-1] == 1:
            array = array[..., None]
        return array

    def structured(self, values: Sequence[Any]) -> Any:
        """Outputs as the model gives them: one, or a list or dict."""
        rest = iter(values)
        return map_structure(lambda _: next(rest), self._form)

    def ensure_built(self, x: Any) -> None:
        """Makes the weights for such data, if they are not there."""
        if self.inputs is None and self._symbols is None:
            self._take(map_structure(lambda v: _Spec((np.shape(v)[1:], np.asarray(v).dtype.name)), x))
        if not self.weights and not self.built:
            self.traced(False)

    def build(self, input_shape: Any) -> None:
        """Says what the model takes, for one that does not begin with an ``Input``; makes the weights.

        Args:
            input_shape: with the batch, None for what is open; or a structure of shapes.
        """
        if current_trace() is None and self.inputs is None:
            self._take(map_shapes(lambda shape: _Spec((tuple(shape[1:]), "float32")), input_shape))
            self.traced(False)

    def take(self, symbols: Any) -> None:
        """Says by symbolic tensors what a model takes that does not begin with an ``Input``; makes the weights."""
        self._symbols = symbols
        self.traced(False)

    def _take(self, specs: Any) -> None:
        """Makes the symbols; a structure of pairs of shape and dtype."""
        count = iter(range(10**6))

        def symbol(shape: Any, kind: str) -> Symbolic:
            index = next(count)
            kind = "float32" if kind == "float64" else kind
            return Input(shape, dtype=kind, name=f"input_{index}" if index else "input")

        self._symbols = _map_specs(symbol, specs)

    def _build(self, args: tuple[Any, ...]) -> None:
        if self.inputs is None and self._symbols is None and args:
            self._take(map_structure(lambda v: _Spec(((v.shape or ())[1:], v.dtype.name)), args[0]))
        super()._build(args)

    # Configurations, files and pictures

    def get_config(self) -> dict[str, Any]:
        """The layers and how they were called; of a subclass, the arguments that it was made with."""
        from irkit.frontends.layers.saving import functional_config

        return functional_config(self) if type(self) is Model and self.is_functional else super().get_config()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """The model of a configuration, with new weights."""
        from irkit.frontends.layers.saving import functional_model

        return functional_model(config) if "nodes" in config else super().from_config(config)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes configuration and weights as one zip file, which ``layers.load_model`` reads."""
        from irkit.frontends.layers.saving import save_model

        save_model(self, path)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights as a safetensors file."""
        from irkit.frontends.layers.saving import save_weights

        save_weights(self, path)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads weights that ``save_weights`` wrote.

        Raises:
            LoadError: if they are those of another model.
        """
        from irkit.frontends.layers.saving import load_weights

        load_weights(self, path)

    def summary(self, print_fn: Any = None, *, nodes: bool = False) -> None:
        """Prints a table of the layers.

        Args:
            print_fn: takes the lines instead; by default it is a table of rich on a terminal, else plain text.
            nodes: one row a node, with where its inputs come from, rather than one a layer.
        """
        from irkit.frontends.layers.summary import show

        show(self, print_fn, nodes)

    def plot(self, path: str | os.PathLike[str], *, nodes: bool = False, shapes: bool = True) -> None:
        """Draws the model as an SVG file.

        Args:
            nodes: draws every layer with its nodes in it and the tensors between, rather than one box a layer.
            shapes: whether sizes are written beside.
        """
        from irkit.frontends.layers.draw import draw

        write_atomically(path, [draw(self, nodes=nodes, shapes=shapes).encode()])


class _Spec(tuple[Any, ...]):
    """A pair of shape and dtype, which is no structure to go into."""


def _map_specs(function: Any, specs: Any) -> Any:
    if isinstance(specs, Mapping):
        return {key: _map_specs(function, value) for key, value in specs.items()}
    if isinstance(specs, _Spec):
        return function(*specs)
    return type(specs)(_map_specs(function, value) for value in specs)


def _values_in(values: Any, like: Any) -> list[Any]:
    """The values of a structure in the order of the symbols of another of the same form."""
    if isinstance(like, Symbolic):
        return [values[0] if isinstance(values, list | tuple) and len(values) == 1 else values]
    if isinstance(like, Mapping):
        if not isinstance(values, Mapping):
            values = dict(zip(like, values if isinstance(values, list | tuple) else [values], strict=True))
        return [v for key, item in like.items() for v in _values_in(values[key], item)]
    if isinstance(like, list | tuple):
        values = values if isinstance(values, list | tuple) else [values]
        return [v for value, item in zip(values, like, strict=True) for v in _values_in(value, item)]
    return []


def _names(symbols: Any) -> list[str]:
    if isinstance(symbols, Mapping):
        return [
            name if len(flatten(item)) == 1 else f"{name}/{i}"
            for name, item in symbols.items()
            for i, _ in enumerate(flatten(item))
        ]
    return [t.name for t in flatten(symbols)]


def _outputs(outputs: Any, model: Model) -> list[tuple[str, Tensor]]:
    """The outputs by name: their key in a dict, else the name of the layer that gives them."""
    if isinstance(outputs, Mapping):
        return list(outputs.items())
    values = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    symbols = flatten(model.outputs) if model.outputs is not None else []
    names = [t._keras_history[0].name if t._keras_history else f"output_{i}" for i, t in enumerate(symbols)]
    names = names or [f"output_{i}" for i in range(len(values))]
    found: dict[str, Tensor] = {}
    for name, value in zip(names, values, strict=True):
        unique, count = name, 0
        while unique in found:
            count += 1
            unique = f"{name}_{count}"
        found[unique] = value
    return list(found.items())


def _nodes_between(inputs: Sequence[Symbolic], outputs: Sequence[Symbolic]) -> list[Node]:
    """The nodes on the way from the inputs to the outputs, each after those that it needs."""
    ends = {id(t) for t in inputs}
    found: dict[int, Node] = {}
    state: dict[int, bool] = {}
    waiting: list[tuple[Node, bool]] = []

    def push(tensor: Symbolic) -> None:
        if id(tensor) in ends:
            return
        if tensor._keras_history is None or isinstance(tensor._keras_history[0], InputLayer):
            raise IrkitError(
                f"the outputs depend on the tensor '{tensor.name}', which is not among the inputs",
                hint="add it to the inputs of the model",
            )
        layer, index, _ = tensor._keras_history
        node = layer._inbound_nodes[index]
        if id(node) not in state:
            waiting.append((node, False))

    for tensor in reversed(outputs):
        push(tensor)
    while waiting:
        node, ready = waiting.pop()
        if ready:
            found[id(node)] = node
        elif id(node) not in state:
            state[id(node)] = True
            waiting.append((node, True))
            for tensor in reversed(node.input_tensors):
                push(tensor)
    return list(found.values())


class Sequential(Model):
    """Layers one after the other.

    Args:
        layers: an ``Input`` first makes the model at once; without one it is made when it is first called.
    """

    def __init__(self, layers: Sequence[Any] = (), *, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        self._given = {"layers": list(layers), **({"name": name} if name else {}), **options}
        self._stack: list[Layer] = []
        for layer in layers:
            self.add(layer)

    def get_config(self) -> dict[str, Any]:
        """The layers."""
        first = [] if self.inputs is None else self.input_layers
        return {"name": self.name, "layers": [to_config(layer) for layer in [*first, *self._stack]]}

    def add(self, layer: Any) -> None:
        """Appends a layer, or begins with an ``Input``."""
        if isinstance(layer, InputLayer):
            layer = layer.output
        if isinstance(layer, Symbolic):
            if self.inputs is not None or self._stack:
                raise IrkitError("an Input comes first in a Sequential model, and once")
            self.inputs = self.outputs = layer
            return
        self._stack.append(layer)
        self._sublayers.append(layer)
        self._outgoing = None
        if self.inputs is not None:
            self.outputs = layer(self.outputs)
            self._nodes = _nodes_between(flatten(self.inputs), flatten(self.outputs))
            self.built = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Runs the layers in order."""
        for layer in self._stack:
            inputs = layer(inputs)
        return inputs
