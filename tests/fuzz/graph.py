"""A random graph as plain data, from which modules are built: all of it, one step, or without some of its steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.ir import Attribute

import irkit as ik
from irkit.ir.dtypes import BY_NUMPY, DType
from irkit.ir.types import tensor, tensor_info

__all__ = [
    "Body",
    "Built",
    "Graph",
    "Naming",
    "Step",
    "Value",
    "WrongType",
    "build",
    "context",
    "dtype_of_array",
    "needed",
]


Naming = Callable[[str, "Value"], Sequence[int | str]]
"""From the name of an input and its value to its shape in the type: numbers and symbols."""


def dtype_of_array(array: np.ndarray) -> DType:
    """The element type of an array; objects are strings."""
    return BY_NUMPY[array.dtype]


@dataclass(eq=False)
class Value:
    """A value of a graph, with what it is when the graph runs.

    Attributes:
        array: the value: an array, a list for a sequence, None for an empty optional.
        type: its type; the shape is the true one.
        origin: ``"input"``, ``"constant"``, ``"initializer"``, ``"argument"`` of a body, or ``"result"``.
        symbolic: of an input: whether its sizes are left open in its type.
        shadows: what the value becomes when everything inexact before it is a few roundings off; none if it is exact.
    """

    array: Any
    type: Attribute
    origin: str = "result"
    symbolic: bool = False
    shadows: tuple[Any, ...] = ()

    @classmethod
    def of(cls, array: np.ndarray, origin: str, symbolic: bool = False) -> Value:
        """A leaf of the graph."""
        return cls(array, tensor(dtype_of_array(array), array.shape), origin, symbolic)

    @property
    def dtype(self) -> DType:
        """The element type of a tensor."""
        return dtype_of_array(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.array.shape

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return tensor_info(self.type) is not None


@dataclass(eq=False)
class Body:
    """A graph attribute: arguments, steps and results. What else the steps use is captured."""

    args: list[Value]
    steps: list[Step]
    results: list[Value]


@dataclass(eq=False)
class Step:
    """An op of a graph.

    Attributes:
        op: its name, as ``"Add"`` or ``"ml.Scaler"``.
        outputs: how many results to ask for; None where the builder tells.
        exact: whether every right implementation gives the same bits.
    """

    op: str
    operands: list[Value | None]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    outputs: int | None = None
    exact: bool = False
    results: list[Value] = field(default_factory=list[Value])

    def reads(self) -> Iterator[Value]:
        """The values that the step uses, those that its bodies capture included."""
        yield from (v for v in self.operands if v is not None)
        for body in self.bodies.values():
            own = set(body.args)
            for step in body.steps:
                yield from (v for v in step.reads() if v not in own)
                own.update(step.results)
            yield from (v for v in body.results if v not in own)

    def __str__(self) -> str:
        operands = ", ".join("-" if v is None else _spell(v) for v in self.operands)
        attributes = "".join(f" {name}={value!r}" for name, value in self.attributes.items())
        bodies = "".join(f" {name}={[str(s) for s in body.steps]}" for name, body in self.bodies.items())
        return f"{self.op}({operands}){attributes}{bodies} -> {', '.join(map(_spell, self.results))}"


def _spell(value: Value) -> str:
    if not isinstance(value.array, np.ndarray):
        return str(value.type)
    shape = ",".join(map(str, value.shape))
    shown = f"={value.array.tolist()}" if value.array.size <= 4 else ""
    return f"{value.dtype}[{shape}]{shown}{'' if value.origin == 'result' else ':' + value.origin}"


@dataclass
class Graph:
    """A random graph: its steps in order, each of whose results is known."""

    steps: list[Step]

    def without(self, step: Step) -> Graph | None:
        """The graph without a step and all that needs it; None if nothing is left."""
        gone = {*step.results}
        kept: list[Step] = []
        for other in self.steps:
            if other is step or any(v in gone for v in other.reads()):
                gone.update(other.results)
            else:
                kept.append(other)
        return Graph(kept) if kept else None

    def reduced(self, fails: Callable[[Graph], bool]) -> Graph:
        """A smaller graph that still fails: steps are left out, last ones first, as long as it does."""
        graph = self
        for step in reversed(self.steps):
            smaller = graph.without(step) if step in graph.steps else None
            if smaller is not None and fails(smaller):
                graph = smaller
        return graph

    def leaves(self) -> list[Value]:
        """The results that no later step uses."""
        used = {v for step in self.steps for v in step.reads()}
        return [v for step in self.steps for v in step.results if v not in used]

    def build(self, outputs: Iterable[Value] | None = None, sizes: Naming | None = None) -> Built:
        """The module whose outputs are these values: by default the results that no later step uses."""
        return build(self.steps, list(self.leaves() if outputs is None else outputs), sizes=sizes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


@dataclass
class Built:
    """A module made from a graph.

    Attributes:
        feeds: for its inputs.
        inputs: the values behind them.
        outputs: the values that its outputs should have, by name.
    """

    module: ik.Module
    feeds: dict[str, Any]
    inputs: dict[str, Value]
    outputs: dict[str, Value]

    def feeds_of(self, look: Callable[[Value], Any]) -> dict[str, Any]:
        """Feeds made from the values of the inputs."""
        return {name: look(value) for name, value in self.inputs.items()}


@cache
def context() -> Context:
    """The dialects, loaded once for all graphs."""
    return ik.Builder().ctx


def needed(steps: Sequence[Step]) -> list[Value]:
    """The values that steps use and do not make, in order of first use."""
    made = {v for step in steps for v in step.results}
    return list(dict.fromkeys(v for step in steps for v in step.reads() if v not in made))


def build(
    steps: Sequence[Step],
    outputs: Sequence[Value] | None = None,
    opened: Collection[Value] = (),
    sizes: Naming | None = None,
) -> Built:
    """The module of some steps; values that they do not make are inputs, unless they are constants.

    Args:
        opened: constants that become inputs too.
        outputs: values to return; None for the results of the last step. A step that has none yet gets its results,
            whose arrays are still unknown.
        sizes: gives the sizes of the inputs, in place of those that they have; by default those of ``symbolic`` values
            are open.

    Raises:
        InferenceError: if a step is not valid.
        WrongType: if the type of a result contradicts its value.
    """
    b = ik.Builder("fuzz", ctx=context())
    env: dict[Value, ik.Tensor] = {}
    inputs: dict[str, Value] = {}
    for value in needed(steps):
        if value.origin in ("constant", "initializer") and value not in opened:
            continue
        name = f"x{len(inputs)}"
        info = tensor_info(value.type)
        if sizes is not None and info is not None:
            env[value] = b.input(name, info.dtype, sizes(name, value))
        elif value.symbolic and info is not None:
            env[value] = b.input(name, info.dtype, [f"{name}_{axis}" for axis in range(len(value.shape))])
        else:
            env[value] = b.input(name, value.type)
        inputs[name] = value
    _emit(b, steps, env)
    if outputs is None:
        outputs = steps[-1].results
    named = {f"y{index}": value for index, value in enumerate(dict.fromkeys(outputs))}
    for name, value in named.items():
        b.output(env[value], name)
    return Built(b.module(), {name: v.array for name, v in inputs.items()}, inputs, named)


class WrongType(AssertionError):
    """What was inferred of a result of a step contradicts what it is."""

    def __init__(self, step: Step, inferred: Attribute, value: Value) -> None:
        super().__init__(f"inferred {inferred}, but it is {value.dtype}{list(value.shape)}")
        self.step = step


def _emit(b: ik.Builder, steps: Sequence[Step], env: dict[Value, ik.Tensor]) -> None:
    for step in steps:
        operands = [None if v is None else _tensor(b, v, env) for v in step.operands]
        graphs = {name: _function(body, env) for name, body in step.bodies.items()}
        found = b.op(f"onnx.{step.op}", *operands, outputs=step.outputs, **step.attributes, **graphs)
        made = found if isinstance(found, tuple) else (found,)
        if not step.results:
            step.results = [Value(None, result.type) for result in made]
        for value, result in zip(step.results, made, strict=True):
            _check_type(step, value, result.type)
            env[value] = result


def _check_type(step: Step, value: Value, inferred: Attribute) -> None:
    info = tensor_info(inferred)
    if info is None or not isinstance(value.array, np.ndarray) or not value.is_tensor:
        return
    dims = info.shape
    fits = dims is None or (
        len(dims) == value.array.ndim
        and all(not isinstance(d, int) or d == size for d, size in zip(dims, value.shape, strict=True))
    )
    if not fits or info.dtype is not value.dtype:
        raise WrongType(step, inferred, value)


def _tensor(b: ik.Builder, value: Value, env: dict[Value, ik.Tensor]) -> ik.Tensor:
    found = env.get(value)
    if found is None:
        # Made where it is first used: in a body, constants of its own and captured ones are both there.
        if value.origin == "initializer" and b.depth == 0:
            found = b.initializer(value.array, f"w{len(env)}", value.dtype)
        else:
            found = b.constant(value.array, value.dtype)
        env[value] = found
    return found


def _function(body: Body, env: Mapping[Value, ik.Tensor]) -> Callable[..., Any]:
    def make(b: ik.Builder, *args: ik.Tensor) -> Any:
        inner = {**env, **dict(zip(body.args, args, strict=True))}
        _emit(b, body.steps, inner)
        return [_tensor(b, v, inner) for v in body.results]

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = ["b", *(f"a{i}" for i in range(len(body.args)))]
    # The builder counts the parameters.
    make.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return make
