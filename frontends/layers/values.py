"""What weights are, and what they stand for while a graph is built from a layer's ``call``.

A ``Variable`` holds a NumPy array between runs. While a layer is traced into a graph (``Trace``), it stands for a value
of that graph: an initializer, or, where runs change it, a variable of the state dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import irkit.dialects.state as state
from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor, Values
from irkit.ir.dtypes import DType, dtype

__all__ = ["Trace", "Variable", "current_trace", "tracing"]

Array = np.ndarray[Any, Any]


class Variable:
    """A weight, or a state, of a layer.

    Args:
        value: its initial value.
        name: within its layer.
        trainable: whether an optimizer may change it.
        stateful: whether running the layer changes it: in training, ``"always"``, or never (False).
        regularizer: of the loss, or None.

    Attributes:
        path: ``layer/name``, under which it stands in graphs and files.
        cast_to: the dtype that it has in graphs, if another than its own.
    """

    def __init__(
        self,
        value: Array,
        name: str,
        *,
        trainable: bool = True,
        stateful: str | bool = False,
        regularizer: Any = None,
    ) -> None:
        self._value = np.asarray(value)
        self.name = name
        self.path = name
        self.trainable = trainable
        self.stateful = stateful
        self.regularizer = regularizer
        self.cast_to: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self._value.shape

    @property
    def dtype(self) -> DType:
        """Its element type."""
        return dtype(self._value.dtype)

    def numpy(self) -> Array:
        """The value that it has between runs, as a copy."""
        return self._value.copy()

    def assign(self, value: Any) -> None:
        """Changes the value: at once, or, while a layer is traced, with every run of the graph.

        Raises:
            IrkitError: if the shape is another, or if it is traced and not ``stateful``.
        """
        trace = current_trace()
        if trace is not None and isinstance(value, Tensor):
            trace.assign(self, value)
            return
        array = np.asarray(value, self._value.dtype)
        if array.shape != self.shape:
            raise IrkitError(f"the variable '{self.path}' has shape {list(self.shape)}, not {list(array.shape)}")
        self._value = array.copy()

    def __repr__(self) -> str:
        return f"<Variable {self.path}: {self.dtype}{list(self.shape)}>"

    # In graphs

    def __irkit_value__(self, b: Builder) -> Tensor:
        """What a builder takes it for."""
        trace = current_trace()
        if trace is None:
            return b.constant(self._value)
        return trace.value(self)

    def __getitem__(self, key: Any) -> Array:
        return self._value[key]


def _operator(name: str) -> Callable[[Variable, Any], Tensor]:
    def apply(self: Variable, other: Values) -> Tensor:
        return getattr(_here(self), name)(other)

    return apply


def _here(variable: Variable) -> Tensor:
    trace = current_trace()
    if trace is None:
        raise IrkitError(
            f"arithmetic on the variable '{variable.path}' outside of a layer's call",
            hint="take its value: variable.numpy()",
        )
    return trace.value(variable)


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(Variable, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(Variable, f"__r{_name}__", _operator(f"__r{_name}__"))


class Trace:
    """A graph that is being built from layers' calls.

    Attributes:
        b: the builder of the main graph.
        training: whether layers behave as in training.
        masks: per value (``Tensor.ssa``) its mask, for values that have one.
        losses: scalars that layers add to the loss.
        names: of the variables that the graph uses.
        assigned: the variables that the graph changes.

    Args:
        state: variables that are to be state, whether or not the graph changes them.
    """

    def __init__(self, b: Builder, training: bool = False, state: Collection[Variable] = ()) -> None:
        self.b = b
        self.training = training
        self.masks: dict[Any, Tensor] = {}
        self.losses: list[Tensor] = []
        self.names: dict[Variable, str] = {}
        self._state = set(state)
        self._values: dict[Variable, Tensor] = {}
        self._held: dict[Variable, tuple[Any, list[Any]]] = {}
        self.assigned: set[Variable] = set()
        self._around: list[Any] = []

    @property
    def path(self) -> str:
        """The names of the layers whose calls are being built, by slashes."""
        return "/".join(layer.name for layer in self._around)

    @property
    def weights_path(self) -> str:
        """The same without models, which give their layers' weights no names."""
        return "/".join(layer.name for layer in self._around if not layer.transparent)

    @contextmanager
    def within(self, layer: Any) -> Generator[None]:
        """What is built meanwhile belongs to a layer's call."""
        self._around.append(layer)
        try:
            yield
        finally:
            self._around.pop()

    def value(self, variable: Variable) -> Tensor:
        """What a variable is at this place of the graph."""
        found = self._values.get(variable)
        if found is None:
            self.names[variable] = self._name(variable)
            found = self._values[variable] = self._declare(variable, self.names[variable])
        if variable.cast_to is not None and variable.cast_to != variable.dtype.name:
            return found.builder.Cast(found, to=dtype(variable.cast_to).code)
        return found

    def _name(self, variable: Variable) -> str:
        """Its path; one that another variable has is made longer by the names of the models around, or a number."""
        taken = set(self.names.values())
        name, count = variable.path, 0
        if name in taken and self.path:
            name = f"{self.path}/{variable.name}"
        while name in taken:
            count += 1
            name = f"{variable.path}_{count}"
        return name

    def _declare(self, variable: Variable, name: str) -> Tensor:
        # The array itself, not a copy: a constant is never written to, and an assign replaces the array.
        value = variable._value  # pyright: ignore[reportPrivateUsage]
        changes = variable.stateful == "always" or (bool(variable.stateful) and self.training)
        if not changes and variable not in self._state:
            return self.b.initializer(value, name)
        made = state.variable(self.b, name, value)
        read, done = state.read(self.b, made)
        self._held[variable] = (made, [done])
        return read

    def assign(self, variable: Variable, value: Tensor) -> None:
        """Makes a variable another value from here on."""
        if not variable.stateful:
            raise IrkitError(
                f"the variable '{variable.path}' is assigned in a call, but is not stateful",
                hint='declare it so: self.add_weight(..., stateful="always")',
            )
        self.value(variable)
        if variable not in self._held:
            raise IrkitError(f"the variable '{variable.path}' changes in training only", hint="assign it if training")
        made, done = self._held[variable]
        self._held[variable] = (made, [state.assign(self.b, made, value, after=done)])
        self.assigned.add(variable)
        self._values[variable] = value

    @property
    def effects(self) -> dict[Variable, Any]:
        """The tokens of what was assigned, by variable, which the graph must give so that it happens."""
        return {v: tokens[0] for v, (_, tokens) in self._held.items() if v in self.assigned}


_CURRENT: ContextVar[Trace | None] = ContextVar("irkit_layers_trace", default=None)


def current_trace() -> Trace | None:
    """The graph that is being built from a layer's call, if one is."""
    return _CURRENT.get()


@contextmanager
def tracing(trace: Trace) -> Generator[Trace]:
    """Layers called meanwhile build into this graph."""
    token = _CURRENT.set(trace)
    try:
        yield trace
    finally:
        _CURRENT.reset(token)
