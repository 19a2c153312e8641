"""Tracing: a model is called on tensors without values, and everything that is done to them is taken down on a tape.

A trace is made at fixed sizes. That of a second one at other sizes tells which numbers depend on them; see ``sizes``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from irkit.errors import IrkitError, UnsupportedError
from irkit.frontends.keras import adapter

__all__ = ["Entry", "Primitive", "Tape", "Tracer"]


class Primitive:
    """An operation that Keras has no class for (recurrence, random numbers, arrays made of sizes): name, attributes."""

    def __init__(self, name: str, **attributes: Any) -> None:
        self.name = name
        self.__dict__.update(attributes)


@dataclass
class Entry:
    """One operation on the tape.

    Attributes:
        op: Keras's operation object, or a ``Primitive``.
        args, kwargs: what it was called on: symbolic tensors, arrays, numbers.
        outputs: symbolic tensors, in the structure that the operation returns.
        path: the layers around it, ``encoder/attention``.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    path: str

    @property
    def kind(self) -> str:
        """The name of the operation's class, or of the primitive."""
        return self.op.name if isinstance(self.op, Primitive) else type(self.op).__name__


@dataclass
class Tape:
    """What was done between some inputs and outputs.

    Attributes:
        inputs: symbolic tensors.
        entries: in order.
        outputs: symbolic tensors, arrays or numbers.
    """

    inputs: list[Any] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


LayerHook = Callable[["Tracer", Any, tuple[Any, ...], dict[str, Any]], Any]
FunctionHook = Callable[["Tracer", tuple[Any, ...], dict[str, Any], Any], Any]
OperationHook = Callable[["Tracer", Any, tuple[Any, ...], dict[str, Any]], Any]
SpecHook = Callable[..., Any]

LAYERS: dict[str, LayerHook] = {}
"""Layers that are traced otherwise than by running their ``call``, by the name of their class."""
FUNCTIONS: dict[str, FunctionHook] = {}
"""Functions of Keras's backend that no operation stands for, by name."""
OPERATIONS: dict[str, OperationHook] = {}
"""Operations that call functions of the user (loops, branches), by the name of their class."""
SPECS: dict[str, SpecHook] = {}
"""What Keras's own specification of results gets wrong, by the name of the operation's class."""


class Tracer:
    """Takes down what is done to symbolic tensors.

    Args:
        training: the phase in which the model is called.
        creations: whether arrays that are made out of sizes alone (``ones``, ``arange``) are taken down too. Otherwise
            they are constants.

    Attributes:
        variables: by the id of the symbol that stands for its value at the start, each variable that was read.
        updates: by id, variables assigned to, with their last value.
    """

    def __init__(self, training: bool = False, creations: bool = False) -> None:
        self.training = training
        self.creations = creations
        self.paused = False
        self.tape = Tape()
        self.returned: Any = None
        self.depth = 0
        self.layers: list[Any] = []
        self.variables: dict[int, Any] = {}
        self.updates: dict[int, tuple[Any, Any]] = {}
        self._current: dict[int, Any] = {}
        self._kept: list[Any] = []

    @property
    def path(self) -> str:
        """The layers that are being called, outermost model left out."""
        return "/".join(layer.name for layer in self.layers[1:])

    @property
    def place(self) -> str:
        """The same, for messages."""
        return f"layer '{self.path}'" if self.path else "the model"

    # What the adapter tells

    def operation(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation is called on symbolic tensors."""
        args, kwargs = self.values(args), self.values(kwargs)
        hook = OPERATIONS.get(type(op).__name__)
        if hook is not None:
            return hook(self, op, args, kwargs)
        self.paused = True
        try:
            special = SPECS.get(type(op).__name__)
            outputs = special(op, *args, **kwargs) if special else adapter.specification(op, args, kwargs)
        finally:
            self.paused = False
        return self.add(op, args, kwargs, outputs)

    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer is called: its body is traced in its place."""
        self.layers.append(layer)
        try:
            hook = LAYERS.get(type(layer).__name__) if type(layer).__module__.startswith("keras.") else None
            if hook is not None:
                return hook(self, layer, args, kwargs)
            return adapter.run_layer(layer, args, kwargs)
        except (IrkitError, NotImplementedError):
            raise
        except Exception as error:
            raise self.refusal(error) from error
        finally:
            self.layers.pop()

    def refusal(self, error: Exception) -> UnsupportedError:
        """What to say of an error within a layer's body."""
        text = str(error).strip().split("\n")[0]
        hint = "write its call with keras.ops and layers"
        if (isinstance(error, TypeError) and "boolean" in text) or "value is asked for" in text:
            text = f"what it does next depends on values that are only known when the model runs ({text})"
            hint = "use keras.ops.cond, keras.ops.while_loop or keras.ops.where in place of Python's if and while"
        elif isinstance(error, ImportError) or "tensorflow" in text.lower():
            text = f"it needs another framework ({text})"
            hint = "leave the layer out of the model that is converted, and do its work before"
        kind = type(self.layers[-1]).__name__ if self.layers else "model"
        return UnsupportedError(
            f"this {kind} cannot be traced: {text}", op=f"keras.{kind}", where=self.place, hint=hint
        )

    def read(self, variable: Any) -> Any:
        """The value of a variable is asked for."""
        if self.paused:
            return None
        found = self._current.get(id(variable))
        if found is None:
            found = adapter.symbol(variable.shape, variable._dtype)
            self._current[id(variable)] = found
            self.variables[id(found)] = variable
            self._kept.append(found)
        return found

    def write(self, variable: Any, value: Any) -> None:
        """A variable is assigned to."""
        if self.paused:
            return
        if self.depth:
            raise UnsupportedError(
                f"the variable '{variable.path}' is assigned to in the body of a loop or branch",
                where=self.place,
                hint="assign to it after the loop",
            )
        self._current[id(variable)] = value
        self.updates[id(variable)] = (variable, value)

    def function(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
        """A function of the backend is called on symbolic tensors, or one that is always taken down."""
        args, kwargs = self.values(args), self.values(kwargs)
        hook = FUNCTIONS.get(name)
        if hook is not None:
            return hook(self, args, kwargs, original)
        if name in adapter.CREATION and not any(map(adapter.is_symbolic, adapter.flatten((args, kwargs)))):
            return self.created(name, args, kwargs, original)
        return adapter.run_function(name, args, kwargs)

    # Taking down

    def values(self, what: Any) -> Any:
        """Arguments with the values of variables in their place."""
        if type(what) is tuple or type(what) is list:
            if any(adapter.is_variable(v) or isinstance(v, (tuple, list, dict)) for v in what):
                return type(what)(self.values(v) for v in what)
            return what
        if isinstance(what, dict):
            return {key: self.values(v) for key, v in what.items()}
        return what.value if adapter.is_variable(what) else what

    def add(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
        """Takes down one operation and returns its outputs."""
        self.tape.entries.append(Entry(op, args, kwargs, outputs, self.path))
        return outputs

    def primitive(self, name: str, args: tuple[Any, ...], outputs: Any, **attributes: Any) -> Any:
        """Takes down an operation of our own."""
        return self.add(Primitive(name, **attributes), args, {}, outputs)

    def created(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
        """An array made out of sizes, as an operation."""
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        self.paused = True
        try:
            made = original(*args, **kwargs)
        finally:
            self.paused = False
        if isinstance(made, tuple):
            return made
        return self.primitive(name, (), like(made), **bound.arguments)

    def body(self, function: Callable[..., Any], symbols: Sequence[Any]) -> tuple[Tape, Any]:
        """Traces a function that is run in a loop or branch: its tape, and what it returned in its own structure."""
        outer, self.tape = self.tape, Tape(list(symbols))
        self.depth += 1
        try:
            returned = function(*symbols)
            inner = self.tape
        finally:
            self.tape = outer
            self.depth -= 1
        inner.outputs = adapter.flatten(returned)
        return inner, returned

    def model(self, call: Callable[[], Any]) -> Any:
        """Runs a call of the model while everything is caught."""
        with adapter.caught(self):
            return call()


def like(value: Any) -> Any:
    """A symbol of the shape and dtype of an array or tensor."""
    return adapter.symbol(value.shape, adapter.dtype_name(value.dtype))


def symbols_like(values: Iterable[Any]) -> list[Any]:
    """Symbols of the shapes and dtypes of tensors."""
    return [like(value) for value in values]


def _used(entry: Entry) -> Iterable[Any]:
    """The symbols that an operation takes, those that its bodies take from outside among them."""
    for leaf in adapter.flatten((entry.args, list(entry.kwargs.values()))):
        if adapter.is_symbolic(leaf):
            yield leaf
    for key, value in vars(entry.op).items():
        if key[0] == "_" or isinstance(value, (bool, int, float, str)):
            continue
        for held in adapter.flatten(value):
            if adapter.is_symbolic(held):
                yield held
            elif isinstance(held, Tape):
                yield from (leaf for leaf in held.outputs if adapter.is_symbolic(leaf))
                for inner in held.entries:
                    yield from _used(inner)


def needed(tape: Tape) -> list[Entry]:
    """The operations that the outputs depend on."""
    wanted = {id(leaf) for leaf in tape.outputs if adapter.is_symbolic(leaf)}
    kept: list[Entry] = []
    for entry in reversed(tape.entries):
        if any(id(leaf) in wanted for leaf in adapter.flatten(entry.outputs)):
            kept.append(entry)
            wanted.update(id(leaf) for leaf in _used(entry))
    return kept[::-1]
