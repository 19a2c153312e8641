"""Loading a Keras model: how it is called, at which sizes it is traced, and how the graph begins and ends."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irkit.dialects import state
from irkit.errors import IrkitError, LoadError, UnsupportedError
from irkit.frontends.keras import adapter, compose, control, draws, layers, recurrent  # noqa: F401 (they register hooks)
from irkit.frontends.keras.emit import Emitter, NeedsCreations
from irkit.frontends.keras.measures import NeedsTrace
from irkit.frontends.keras.trace import Tracer
from irkit.frontends.keras.values import FIRST, LAST, Value, to_first
from irkit.ir.builder import Builder, Tensor
from irkit.ir.memory import paused_gc
from irkit.ir.module import Module
from irkit.ir.names import set_metadata

__all__ = ["Input", "Signature", "convert", "open_model", "signature_of"]

LAYOUTS = ("as-declared", "nchw")
SPATIAL = {2: ["time"], 3: ["time", "features"], 4: ["height", "width", "channels"], 5: ["depth", "height", "width"]}
"""What the axes after the first are called where their size is open, by rank."""
BATCHES = (3, 5, 4)
"""The sizes of a batch in the first trace, in the one where it differs, and in the one that confirms."""
SCALES = (1, 8, 64)
"""The other sizes are tried small first: a model may need so much to have anything left after its poolings."""


@dataclass(frozen=True)
class Input:
    """An input of a model: its name, shape (None where the size is open) and dtype."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass
class Signature:
    """How a model is called.

    Attributes:
        inputs: in the order in which the graph takes them.
        call: calls the model on tensors, given in that order.
        output_names: what is known of the outputs' names beforehand.
        scale: how large the open sizes had to be for the model to be traced.
        channels_first: whether the graph takes images with their channels first.
    """

    inputs: list[Input]
    call: Callable[..., Any]
    output_names: list[str] | None
    scale: int = 1
    channels_first: bool = False


def open_model(source: Any) -> Any:
    """The model itself, or that of a ``.keras`` (or ``.h5``) file.

    Raises:
        LoadError: if it cannot be read: what Keras says.
    """
    keras = adapter.api()
    if not isinstance(source, str | os.PathLike):
        if not adapter.is_layer(source):
            raise LoadError(
                f"this is no Keras model: {type(source).__name__}", hint="give a keras.Model, a layer or a .keras file"
            )
        return source
    path = Path(source)
    if not path.is_file():
        raise LoadError(f"there is no file '{path}'")
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        text = str(error).strip().split("\n")[0]
        raise LoadError(
            f"Keras cannot read '{path}': {text}",
            hint="classes of your own must be registered (keras.saving.register_keras_serializable) and imported "
            "first; code in the file itself (Lambda layers) runs only after "
            "keras.config.enable_unsafe_deserialization()",
        ) from error


def signature_of(model: Any, inputs: Any = None, training: bool = False) -> Signature:
    """How a model is called.

    Args:
        inputs: where the model does not say it itself: a shape, a ``keras.KerasTensor`` (for a dtype), or a structure
            of them such as the model's call takes as its first argument; for several, a dict by their names.

    Raises:
        UnsupportedError: if neither the model nor ``inputs`` says it.
    """
    structure = adapter.declared_inputs(model) if inputs is None else adapter.as_specs(inputs, model)
    if structure is None:
        raise UnsupportedError(
            "it does not say what its inputs are",
            op=f"keras.{type(model).__name__}",
            where=f"model '{model.name}'",
            hint="pass inputs=, for example inputs=keras.KerasTensor((None, 10), 'float32'), or call it once",
        )
    paths = adapter.named_leaves(structure)
    found = [Input(name, tuple(spec.shape), spec.dtype) for name, spec in paths]
    if inputs is not None and not adapter.is_built(model):
        adapter.build(model, structure)

    def call(*tensors: Any) -> Any:
        return adapter.call_model(model, adapter.pack_like(structure, list(tensors)), training)

    return Signature(found, call, adapter.declared_outputs(model))


def symbols_of(inputs: Sequence[Input], *, shared: bool) -> dict[tuple[int, int], str]:
    """By input and axis, the name of a size that is open.

    Args:
        shared: whether axes of one kind have one size in all inputs.
    """
    found: dict[tuple[int, int], str] = {}
    plain = [(i, a) for i, x in enumerate(inputs) for a, d in enumerate(x.shape) if d is None and a]
    for i, x in enumerate(inputs):
        for axis, size in enumerate(x.shape):
            if size is not None:
                continue
            if axis == 0:
                found[i, axis] = "batch"
                continue
            names = SPATIAL.get(len(x.shape), [])
            name = names[axis - 1] if axis <= len(names) else f"axis{axis}"
            several = len({j for j, a in plain if a == axis}) > 1
            found[i, axis] = f"{x.name}_{name}" if several and not shared else name
    return found


class Plan:
    """The sizes at which a model is traced."""

    def __init__(self, inputs: Sequence[Input], named: dict[tuple[int, int], str], scale: int) -> None:
        self.inputs = inputs
        self.named = named
        self.scale = scale
        self.symbols = list(dict.fromkeys(named.values()))
        base, other, third = ([self._size(s, i, at, scale) for i, s in enumerate(self.symbols)] for at in range(3))
        self.sizes = [base, *([*base[:i], other[i], *base[i + 1 :]] for i in range(len(base)))]
        self.confirming = third

    def _size(self, symbol: str, index: int, at: int, scale: int) -> int:
        if symbol == "batch":
            return BATCHES[at]
        large = any(len(self.inputs[i].shape) >= 4 for (i, _), s in self.named.items() if s == symbol)
        step = 32 if large else 8
        return (step * (2 + 2 * index) + step * (0, 3, 5)[at]) * scale

    def shape(self, index: int, sizes: Sequence[int]) -> list[int]:
        """The shape of an input at given sizes."""
        return [
            sizes[self.symbols.index(self.named[index, a])] if d is None else d
            for a, d in enumerate(self.inputs[index].shape)
        ]

    def declared(self, index: int) -> list[int | str]:
        """The shape of an input with the names of its open sizes."""
        return [self.named[index, a] if d is None else d for a, d in enumerate(self.inputs[index].shape)]


def convert(model: Any, signature: Signature, *, training: bool, layout: str) -> Module:
    """The graph of a model."""
    with paused_gc(), warnings.catch_warnings():
        # What Keras warns about while it is being traced says nothing about the model.
        warnings.simplefilter("ignore")
        return _convert(model, signature, training, layout)


def _convert(model: Any, signature: Signature, training: bool, layout: str) -> Module:
    plans = [
        Plan(signature.inputs, symbols_of(signature.inputs, shared=shared), scale)
        for scale, shared in itertools.product(SCALES, (False, True))
    ]
    plans = list({str(p.sizes) + str(p.symbols): p for p in plans}.values())
    first: IrkitError | None = None
    for plan in plans:
        try:
            tracers = [_trace(signature, plan, at, training, False) for at in plan.sizes]
        except UnsupportedError as error:
            # Of all errors that of the first, smallest and most general plan is told.
            first = first or error
            continue
        signature.scale, signature.channels_first = plan.scale, layout == "nchw"
        return _settled(model, signature, plan, tracers, training, layout)
    assert first is not None
    raise first


def _settled(
    model: Any, signature: Signature, plan: Plan, tracers: list[Tracer], training: bool, layout: str
) -> Module:
    """The graph, after as many more traces as it takes to tell all numbers."""
    sizes, creations = list(plan.sizes), False
    while True:
        try:
            return _emit(model, signature, plan, sizes, tracers, layout)
        except NeedsTrace:
            sizes.append(plan.confirming)
            tracers = [*tracers, _trace(signature, plan, plan.confirming, training, creations)]
        except NeedsCreations:
            creations = True
            tracers = [_trace(signature, plan, at, training, creations) for at in sizes]


def _trace(signature: Signature, plan: Plan, sizes: Sequence[int], training: bool, creations: bool) -> Tracer:
    tracer = Tracer(training, creations)
    symbols = [adapter.symbol(plan.shape(i, sizes), x.dtype) for i, x in enumerate(signature.inputs)]
    tracer.returned = tracer.model(lambda: signature.call(*symbols))
    tracer.tape.inputs = symbols
    tracer.tape.outputs = [*adapter.flatten(tracer.returned), *(value for _, value in tracer.updates.values())]
    return tracer


def _emit(
    model: Any,
    signature: Signature,
    plan: Plan,
    sizes: Sequence[Sequence[int]],
    tracers: Sequence[Tracer],
    layout: str,
) -> Module:
    b = Builder(model.name)
    c = Emitter(tracers, plan.symbols, sizes, b)
    c.names = adapter.unique_names(model)
    inputs: list[Value] = []
    for i, x in enumerate(signature.inputs):
        shape = c.shape_of([t.tape.inputs[i] for t in tracers])
        declared, form = plan.declared(i), LAST
        if layout == "nchw" and len(declared) >= 4:
            declared, form = [declared[a] for a in to_first(len(declared))], FIRST
        inputs.append(Value(shape, x.dtype, b.input(x.name, x.dtype, declared), layout=form))
    at = {name: (inputs[i], axis) for (i, axis), name in reversed(plan.named.items())}
    c.sources = [at[name] for name in plan.symbols]
    updated = [variable for variable, _ in tracers[0].updates.values()]
    reads = {id(v): _declare(c, v) for v in updated}
    results = c.run([t.tape for t in tracers], inputs)
    count = len(results) - len(updated)
    names = output_names(signature, tracers[0].returned, {x.name for x in signature.inputs})
    for name, value in zip(names, results[:count], strict=True):
        b.output(_output(c, value, layout), name)
    tokens = [
        state.assign(b, reads[id(v)][0], c.get(value, str(v._dtype)), [reads[id(v)][1]])
        for v, value in zip(updated, results[count:], strict=True)
    ]
    if tokens:
        b.output(state.group(b, tokens), "state")
    module = b.module()
    trainable = [name for name, v in c.parameters.items() if v.trainable]
    set_metadata(module.op, {"irkit.keras.model": model.name, "irkit.keras.trainable": "\n".join(trainable)})
    return module


def _declare(c: Emitter, variable: Any) -> tuple[Any, Tensor]:
    """A variable that the call assigns to: state of the module."""
    made = state.variable(c.b, c.name_of(variable), adapter.to_numpy(variable), trainable=variable.trainable)
    value, token = state.read(c.b, made)
    c.known_variable(variable, Value(variable.shape, str(value.dtype), value))
    return made, token


def _output(c: Emitter, value: Any, layout: str) -> Tensor:
    images = layout == "nchw" and isinstance(value, Value) and value.rank >= 4
    made = c.first(value) if images else c.get(value)
    # What goes straight through keeps both of its names.
    return c.b.Identity(made) if c.is_boundary(made) else made


def output_names(signature: Signature, returned: Any, taken: set[str]) -> list[str]:
    """A name for each output: as the model has it, made different from all others."""
    leaves = adapter.named_leaves(returned, "output")
    names = signature.output_names
    if names is None or len(names) != len(leaves) or isinstance(returned, dict):
        names = [name for name, _ in leaves]
    found: list[str] = []
    for name in names:
        unique, count = name, 0
        while unique in taken or unique in found:
            count += 1
            unique = f"{name}_{count}"
        found.append(unique)
    return found
