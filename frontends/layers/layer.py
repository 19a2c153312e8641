"""The base class of layers: weights, calls, and their records.

A layer may be called on three kinds of values. On symbolic tensors the call is recorded as a node, and what comes out
is found by building the layer's graph once aside. On values of a graph that is being built (inside another layer's
``call``) its ops go into that graph. On arrays it runs at once, on the NumPy backend.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self, cast

import numpy as np
from xdsl.dialects.builtin import UNKNOWN_LOC, NameLoc, StringAttr

from irkit.errors import InferenceError, IrkitError
from irkit.frontends.layers import initializers, regularizers
from irkit.frontends.layers.node import Node, flatten, map_structure
from irkit.frontends.layers.node import Tensor as Symbolic
from irkit.frontends.layers.values import Trace, Variable, current_trace, tracing
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype as dtype_
from irkit.ir.types import Dim

__all__ = ["Layer", "reset_names"]

Shape = tuple[int | None, ...]
_COUNTS: Counter[str] = Counter()


def reset_names() -> None:
    """Lets the counters of automatic names begin anew."""
    _COUNTS.clear()


def snake_case(name: str) -> str:
    """A class's name as Keras writes it in names: ``MaxPooling2D`` is ``max_pooling2d``."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().lstrip("_")


def _automatic_name(cls: type) -> str:
    base = snake_case(cls.__name__)
    count = _COUNTS[base]
    _COUNTS[base] += 1
    return f"{base}_{count}" if count else base


class Layer:
    """A thing with weights that can be called.

    Subclasses override ``build`` (makes weights, once the shape of the first input is known), ``call`` (what the layer
    does, on values of a graph) and, where masks matter, ``compute_mask``.

    Args:
        name: by default the class's name in snake case, with a number.
        trainable: whether its weights may be trained.
        dtype: of weights and computation, or ``"mixed_float16"`` and ``"mixed_bfloat16"``: weights in float32.
        activity_regularizer: of the outputs, added to the loss.
    """

    supports_masking = False
    transparent = False
    """Whether its name is no part of the names of the weights within; of models."""
    _given: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        # What the layer was made with is its configuration.
        bound = inspect.signature(cls.__init__).bind(self, *args, **kwargs)
        given = {k: v for k, v in bound.arguments.items() if k != "self"}
        extra = [p.name for p in bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD]
        for key in extra:
            given |= given.pop(key, {})
        object.__setattr__(self, "_given", given)
        return self

    def __init__(
        self,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: str | None = None,
        activity_regularizer: Any = None,
    ) -> None:
        self._sublayers: list[Layer] = []
        self._own: list[Variable] = []
        self._inbound_nodes: list[Node] = []
        self._outbound_nodes: list[Node] = []
        self.name = name or _automatic_name(type(self))
        self.built = False
        self._trainable = trainable
        self.dtype_policy = dtype or "float32"
        self.activity_regularizer = regularizers.get(activity_regularizer)

    # Configuration

    def get_config(self) -> dict[str, Any]:
        """The arguments that make the same layer again, fit for JSON."""
        from irkit.frontends.layers.saving import to_config

        return {"name": self.name, **{key: to_config(value) for key, value in self._given.items() if key != "name"}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The layer of a configuration."""
        from irkit.frontends.layers.saving import from_config

        return cls(**{key: from_config(value) for key, value in config.items()})

    @property
    def variable_dtype(self) -> str:
        """The dtype of weights."""
        return "float32" if self.dtype_policy.startswith("mixed_") else self.dtype_policy

    @property
    def compute_dtype(self) -> str:
        """The dtype that float inputs are cast to."""
        return self.dtype_policy.removeprefix("mixed_")

    # Weights

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name != "name":
            for layer in _layers_in(value):
                if layer not in self._sublayers:
                    self._sublayers.append(layer)
        object.__setattr__(self, name, value)

    def add_weight(
        self,
        shape: Sequence[int] = (),
        initializer: Any = "glorot_uniform",
        *,
        name: str = "",
        dtype: str | None = None,
        trainable: bool = True,
        regularizer: Any = None,
        stateful: str | bool = False,
    ) -> Variable:
        """Makes a weight; to be called in ``build`` or ``__init__``.

        Args:
            initializer: a name, an ``Initializer``, or a function of shape and dtype.
            stateful: whether running the layer changes it, by ``assign``: in training (True), or ``"always"``.
        """
        open_ = [d for d in shape if not isinstance(d, int | np.integer)]
        if open_:
            raise IrkitError(
                f"layer '{self.name}' needs a size that is not known: a weight would have shape {list(shape)}",
                hint="give the size in Input(shape)",
            )
        kind = dtype or self.variable_dtype
        value = initializers.get(initializer)(tuple(map(int, shape)), kind)
        made = Variable(
            value,
            name or f"weight_{len(self._own)}",
            trainable=trainable and not stateful,
            stateful=stateful,
            regularizer=regularizers.get(regularizer),
        )
        trace = current_trace()
        around = f"{trace.weights_path}/" if trace is not None and trace.weights_path else ""
        made.path = f"{around}{self.name}/{made.name}"
        made.cast_to = self.compute_dtype if made.dtype.kind == "float" and trainable else None
        self._own.append(made)
        return made

    @property
    def layers(self) -> list[Layer]:
        """The layers within."""
        return list(self._sublayers)

    def walk(self) -> Iterator[Layer]:
        """This layer and those within, each once."""
        seen: dict[int, Layer] = {}
        waiting: list[Layer] = [self]
        while waiting:
            layer = waiting.pop(0)
            if id(layer) not in seen:
                seen[id(layer)] = layer
                waiting[:0] = layer.layers
        return iter(seen.values())

    @property
    def weights(self) -> list[Variable]:
        """All variables, trained ones first as Keras has them within each layer."""
        return list(dict.fromkeys(v for layer in self.walk() for v in layer._own))

    variables = weights

    @property
    def trainable_weights(self) -> list[Variable]:
        """The variables that an optimizer may change."""
        if not self.trainable:
            return []
        own = [v for v in self._own if v.trainable]
        return list(dict.fromkeys([*own, *(v for layer in self.layers for v in layer.trainable_weights)]))

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """All others."""
        trained = set(self.trainable_weights)
        return [v for v in self.weights if v not in trained]

    @property
    def trainable(self) -> bool:
        """Whether its weights may be trained; setting it sets it within, too."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self.walk():
            layer._trainable = bool(value)

    def get_weights(self) -> list[np.ndarray]:
        """The values of all variables, as copies."""
        return [v.numpy() for v in self.weights]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Gives all variables values, in the order of ``weights``.

        Raises:
            IrkitError: if they are not as many, or of other shapes.
        """
        variables = self.weights
        if len(values) != len(variables):
            raise IrkitError(f"'{self.name}' has {len(variables)} weights, but {len(values)} values are given")
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def count_params(self) -> int:
        """How many numbers its variables hold."""
        return sum(int(np.prod(v.shape)) for v in self.weights)

    # What subclasses say

    def build(self, input_shape: Any) -> None:
        """Makes the weights.

        Args:
            input_shape: the sizes of the first argument (or a structure of them), None where one is symbolic.
        """

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer does. May take ``training`` and ``mask``."""
        raise NotImplementedError(f"{type(self).__name__} has no call()")

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        """The mask of the outputs, given that of the inputs; values of a graph."""
        return mask if self.supports_masking else None

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The sizes of the outputs for those of the first argument, None where one is symbolic."""
        outputs = self(map_shapes(lambda shape: Symbolic(_named(shape), self.compute_dtype), input_shape), record=False)
        return map_structure(lambda t: t.shape, outputs)

    # Calls

    def __call__(self, *args: Any, record: bool = True, **kwargs: Any) -> Any:
        if flatten((args, kwargs)):
            return self._symbolic(args, kwargs, record)
        if current_trace() is not None:
            return self._into_graph(args, kwargs)
        return self._at_once(args, kwargs)

    def add_loss(self, value: Any) -> None:
        """Adds a scalar of the graph to the loss of the model; to be called in ``call``."""
        trace = current_trace()
        if trace is None:
            raise IrkitError(f"layer '{self.name}' adds to the loss outside of its call")
        trace.losses.append(value)

    def _symbolic(self, args: tuple[Any, ...], kwargs: dict[str, Any], record: bool) -> Any:
        trace = Trace(Builder(self.name), bool(kwargs.get("training", False)))
        given: dict[int, Tensor] = {}

        def value(item: Any) -> Any:
            if not isinstance(item, Symbolic):
                return item
            if id(item) not in given:
                given[id(item)] = trace.b.input(f"in{len(given)}", item.dtype, _without_none(item.spec, len(given)))
                if item._keras_mask is not None:
                    trace.masks[given[id(item)].ssa] = value(item._keras_mask)
            return given[id(item)]

        with tracing(trace):
            found = self._into_graph(map_structure(value, args), map_structure(value, kwargs))
            outputs = map_structure(lambda v: _symbol_of(v, trace, self.name), found)
        if record:
            Node.record(cast(Any, self), args, kwargs, outputs)
        return outputs

    def _at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trace = Trace(Builder(self.name), bool(kwargs.get("training", False)))
        feeds: dict[str, Any] = {}

        def value(item: Any) -> Any:
            if not isinstance(item, np.ndarray):
                return item
            feeds[f"in{len(feeds)}"] = item
            return trace.b.input(f"in{len(feeds) - 1}", item.dtype, item.shape)

        with tracing(trace):
            given = map_structure(value, (args, kwargs))
            found = self._into_graph(*given)
        results = iter(run_once(trace, feeds, _tensors(found)))
        return map_structure(lambda item: next(results) if isinstance(item, Tensor) else item, found)

    def _into_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Builds the layer's ops into the graph that is being traced."""
        trace = current_trace()
        assert trace is not None
        before = trace.b.location
        trace.b.location = NameLoc(cast(StringAttr, string(self.path_in(trace))), UNKNOWN_LOC)
        try:
            if not self.built:
                self._build(args)
            args, kwargs = map_structure(self._cast, args), map_structure(self._cast, kwargs)
            masks = map_structure(lambda v: trace.masks.get(v.ssa) if isinstance(v, Tensor) else None, args[:1])
            mask = masks[0] if masks else None
            accepted = inspect.signature(self.call).parameters
            if "training" in accepted:
                kwargs.setdefault("training", trace.training)
            else:
                kwargs.pop("training", None)
            if "mask" in accepted:
                kwargs.setdefault("mask", mask)
            elif "mask" in kwargs:
                mask = kwargs.pop("mask")
            for name, item in _by_parameter(accepted, args, kwargs).items():
                if f"{name}_mask" in accepted and isinstance(item, Tensor) and item.ssa in trace.masks:
                    kwargs.setdefault(f"{name}_mask", trace.masks[item.ssa])
            with trace.within(self):
                outputs = self.call(*args, **kwargs)
                made = self.compute_mask(args[0] if args else None, kwargs.get("mask", mask))
            _attach(trace, outputs, made)
            if self.activity_regularizer is not None:
                trace.losses += [self.activity_regularizer(v.builder, v) for v in _tensors(outputs)]
            return outputs
        except InferenceError as error:
            if getattr(error, "in_layer", False):
                raise
            raised = InferenceError(
                f"in layer '{trace.path}/{self.name}': {error.message}".replace("'/", "'"),
                op=error.op,
                where=error.where,
                hint=error.hint,
            )
            raised.in_layer = True  # pyright: ignore[reportAttributeAccessIssue]
            raise raised from None
        finally:
            trace.b.location = before

    def path_in(self, trace: Trace) -> str:
        """The names of the layers around this call and its own, by slashes."""
        return f"{trace.path}/{self.name}" if trace.path else self.name

    def _build(self, args: tuple[Any, ...]) -> None:
        shapes = map_structure(lambda v: _shape_of(v), args[0]) if args else ()
        self.build(shapes)
        self.built = True

    def build_inner(self, layer: Layer, input_shape: Any) -> None:
        """Makes the weights of a layer within this one, if they are not there."""
        if layer.built:
            return
        trace = current_trace()
        with nullcontext() if trace is None else trace.within(self):
            layer.build(input_shape)
        layer.built = True

    def _cast(self, value: Any) -> Any:
        """A float in the dtype that the layer computes in, with the mask that it had; all else as it is."""
        if not isinstance(value, Tensor) or value.dtype is None or not value.dtype.is_float:
            return value
        if value.dtype.name == self.compute_dtype:
            return value
        made = value.builder.Cast(value, to=dtype_(self.compute_dtype).code)
        trace = current_trace()
        if trace is not None and value.ssa in trace.masks:
            trace.masks[made.ssa] = trace.masks[value.ssa]
        return made


def run_once(trace: Trace, feeds: Mapping[str, Any], results: Sequence[Tensor]) -> list[Any]:
    """Finishes a graph and runs it on the NumPy backend; variables that it changes are changed."""
    from irkit.backends import compile
    from irkit.dialects.state import initial_state, run_stateful, state_signature
    from irkit.passes import optimize

    for index, value in enumerate(results):
        trace.b.output(value, f"out{index}")
    for variable, token in trace.effects.items():
        trace.b.output(token, f"#{variable.path}")
    module = optimize(trace.b.module(), "lift-state")
    found, state = run_stateful(compile(module, backend="numpy"), state_signature(module), feeds, initial_state(module))
    for variable in trace.assigned:
        variable.assign(state[trace.names[variable]])
    return [found[f"out{index}"] for index in range(len(results))]


def _by_parameter(accepted: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(accepted, args, strict=False)), **kwargs}


def _tensors(structure: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_structure(lambda item: found.append(item) if isinstance(item, Tensor) else None, structure)
    return found


def _attach(trace: Trace, outputs: Any, masks: Any) -> None:
    """Notes the masks of outputs."""
    if isinstance(outputs, Tensor):
        if isinstance(masks, Tensor):
            trace.masks[outputs.ssa] = masks
        return
    if isinstance(outputs, list | tuple) and isinstance(masks, list | tuple):
        for output, mask in zip(outputs, masks, strict=False):
            _attach(trace, output, mask)


def _symbol_of(value: Any, trace: Trace, name: str) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.shape is None or value.dtype is None:
        raise IrkitError(f"the rank of what layer '{name}' gives is not known", hint="give the sizes in Input(shape)")
    made = Symbolic(value.shape, value.dtype.name, name)
    mask = trace.masks.get(value.ssa)
    if mask is not None and mask.shape is not None:
        made._keras_mask = Symbolic(mask.shape, "bool", f"{name}/mask")
    return made


def _shape_of(value: Any) -> Shape | None:
    if isinstance(value, Tensor):
        return None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
    return np.shape(value)


def map_shapes(function: Any, shapes: Any) -> Any:
    """The structure of shapes with a function applied to each; a tuple of sizes is a shape."""
    if isinstance(shapes, tuple | list) and all(d is None or isinstance(d, int) for d in shapes):
        return function(tuple(shapes))
    if isinstance(shapes, Mapping):
        return {key: map_shapes(function, value) for key, value in shapes.items()}
    return type(shapes)(map_shapes(function, value) for value in shapes)


def _named(shape: Shape) -> tuple[Dim, ...]:
    return tuple(f"d{axis}" if d is None else d for axis, d in enumerate(shape))


def _without_none(spec: Sequence[Dim], index: int) -> list[Dim]:
    return [f"in{index}_{axis}" if d is None else d for axis, d in enumerate(spec)]


def _layers_in(value: Any) -> list[Layer]:
    match value:
        case Layer():
            return [value]
        case list() | tuple():
            return [layer for item in value for layer in _layers_in(item)]
        case Mapping():
            return [layer for item in value.values() for layer in _layers_in(item)]
        case _:
            return []
