"""Variables, what changes them, and what orders the changes: the ``state`` dialect as expressions.

A variable in an expression stands for its value as the control edges around the line have it: one read for all uses
under the same edges. Without any, that is its value before the run. An assignment is an effect. It happens in a run
that fetches it, or fetches something that comes after it. Two accesses that nothing orders, one of which writes, are
an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.base import spell
from irkit.dialects.state.ops import TokenType, can_start, fits
from irkit.errors import InferenceError, IrkitError, LoadError, ParseError, SaveError
from irkit.frontends.dsl import build
from irkit.frontends.dsl.concrete import evaluate, is_concrete
from irkit.frontends.dsl.errors import SymbolError, UninitializedError, failure, site_here
from irkit.frontends.dsl.nodes import CONTEXT, AssignNode, GroupNode, Node, ReadNode, cone
from irkit.frontends.dsl.symbol import Effect, Operand, Symbol
from irkit.ir.constants import ConstantData, TensorAttr, constant, from_raw
from irkit.ir.dtypes import dtype as as_dtype
from irkit.ir.files import write_atomically
from irkit.ir.types import tensor_info

__all__ = ["State", "Variable", "after", "control_dependencies", "group", "variable"]

_UNNAMED = count()


class Variable(Operand):
    """A value that outlives a run; see ``variable``.

    Attributes:
        name: under which it is saved.
        type: of all its values.
        trainable: whether optimizers change it by default.
        initial: its value before the first run, an expression that gives it, or None.
        optimizers: how many of those without a name change it, so that what they keep gets names of its own.
    """

    __slots__ = ("initial", "name", "optimizers", "serial", "site", "trainable", "type")
    __hash__ = object.__hash__

    def __init__(self, name: str, value_type: Attribute, initial: TensorAttr | Symbol | None, trainable: bool) -> None:
        self.name = name
        self.type = value_type
        self.initial = initial
        self.trainable = trainable
        self.site = site_here()
        self.optimizers = 0
        self.serial = next(_UNNAMED)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {spell(self.type)}>"

    @property
    def value(self) -> Symbol:
        """Its value as the control edges around this line have it: what it stands for in an expression."""
        return Symbol(ReadNode(self, here=False), 0)

    def read(self) -> Symbol:
        """Its value at this place: within a loop, in each iteration anew."""
        return Symbol(ReadNode(self, here=True), 0)

    def start(self) -> TensorAttr:
        """What a module declares as its first value: the initial value; zeros where there is none.

        Raises:
            IrkitError: if it is drawn at random, so that only a session has it.
        """
        if isinstance(self.initial, Symbol):
            if is_concrete(self.initial):
                return build.constant_attr(evaluate(self.initial), self.initial.dtype)
            raise failure(
                IrkitError,
                f"variable '{self.name}' begins with random numbers, which are drawn by a session",
                related=[("it is declared at", self.site)],
                hint="run it in a dsl.Session, whose module(fetches) is the pure module with its values; or "
                "declare it with an array",
            )
        return self.stand_in()

    def stand_in(self) -> TensorAttr:
        """A value of its type, for modules that are fed the true one: the initial array, else zeros (or empty strings);
        sizes that are not known are 0."""
        if isinstance(self.initial, TensorAttr):
            return self.initial
        info = tensor_info(self.type)
        assert info is not None
        sizes = tuple(d if isinstance(d, int) else 0 for d in info.shape or ())
        return constant("" if info.dtype.kind == "string" else np.zeros((), info.dtype.numpy), info.dtype, sizes)

    def assign(self, value: Any) -> Effect:
        """Gives it a new value.

        Raises:
            InferenceError: if its type does not admit the value.
        """
        return self._write(value, "")

    def assign_add(self, delta: Any) -> Effect:
        """Adds to its value. Outside of loops the old value is that which the variable stands for on this line."""
        return self._write(delta, "Add")

    def assign_sub(self, delta: Any) -> Effect:
        """Subtracts from its value; see ``assign_add``."""
        return self._write(delta, "Sub")

    def _write(self, value: Any, op: str) -> Effect:
        given = build.convert(value, self.dtype if type(value) in (bool, int, float, complex, list, tuple) else None)
        new = build.make(op, self.value, given) if op else given
        if not fits(new.type, self.type):
            hint = (
                "cast the value" if new.dtype is not self.dtype else "reshape it, or declare the variable with shape="
            )
            raise failure(
                InferenceError,
                f"variable '{self.name}' is {spell(self.type)}, and what is assigned is {spell(new.type)}",
                related=[("it is declared at", self.site)],
                hint=hint,
            )
        return Effect(AssignNode(self, given, op))


def variable(
    initial: Any = None,
    name: str = "",
    *,
    dtype: Any = None,
    shape: Any = None,
    trainable: bool = True,
) -> Variable:
    """A variable.

    Args:
        initial: its first value: an array, a number, a list, an expression of constants and random numbers that a
            session evaluates once, or None, if it is to be assigned or loaded before it is read.
        name: under which it is saved; by default ``variable``, ``variable_1``...
        dtype: of all its values; by default that of ``initial``.
        shape: likewise. A size of None may change from run to run.
        trainable: whether optimizers change it by default. Variables that are not of a float dtype never are.
    """
    start: TensorAttr | Symbol | None
    if initial is None or isinstance(initial, Operand):
        start = None if initial is None else build.convert(initial)
    else:
        start = build.constant_attr(initial, dtype)
    if start is None and (dtype is None or shape is None):
        raise failure(
            InferenceError, "a variable without an initial value needs dtype= and shape=", hint="or give it a value"
        )
    value_type = build.tensor_type(dtype or "float32", shape) if start is None else start.type
    if start is not None and shape is not None:
        found = tensor_info(start.type)
        value_type = build.tensor_type(found.dtype if found else "float32", shape)
        if not can_start(start.type, value_type):
            raise failure(
                InferenceError, f"the initial value is {spell(start.type)}, and the variable {spell(value_type)}"
            )
    info = tensor_info(value_type)
    made = Variable(name, value_type, start, trainable and info is not None and info.dtype.is_float)
    if not name:
        made.name = f"variable_{made.serial}" if made.serial else "variable"
    return made


# Order


def effects_of(what: Any) -> list[Effect]:
    """What has to have happened when this is there: an effect itself, or the accesses of state behind a value."""
    if isinstance(what, Effect):
        return [what]
    if isinstance(what, Variable):
        what = what.value
    if not isinstance(what, Symbol):
        raise failure(SymbolError, f"a control edge comes from an effect or a symbol, not from {type(what).__name__}")
    return _nearest(what)


def _nearest(value: Symbol) -> list[Effect]:
    """The nearest accesses of state on which a value depends, as effects."""
    found: dict[Effect, None] = {}
    seen: set[Node] = set()
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ReadNode):
            found[Effect(node, 1)] = None
        elif any(isinstance(n, ReadNode | AssignNode) for n in _inside(node)):
            found[_happened(node)] = None
        else:
            found.update(dict.fromkeys(node.control))
            ordered = {effect.node for effect in node.control}
            stack += [dep for dep in reversed(node.deps) if dep not in ordered]
    return list(found)


def _inside(node: Node) -> Iterator[Node]:
    """The nodes in the graphs of a node."""
    nested = [n for n in node.reads if n not in node.deps]
    yield from cone(nested) if nested else ()


def _happened(node: Node) -> Effect:
    """The effect of a loop, branch or call that accesses state having run: a token that it gives, or a choice between
    nothing and nothing that depends on a value that it gives."""
    given = next((i for i, t in enumerate(node.types) if isinstance(t, TokenType)), None)
    if given is not None:
        return Effect(node, given)
    is_empty = build.make("Equal", build.make("Size", Symbol(node)), 0)
    return build.make("If", is_empty, then_branch=_nothing, else_branch=_nothing)


def _nothing() -> Effect:
    return Effect(GroupNode([]))


@contextmanager
def control_dependencies(first: Iterable[Any]) -> Generator[None]:
    """What is written within comes after these effects and values; contexts within each other add up.

    Assignments within happen later, variables show what they hold then, and every other node makes them happen.
    """
    if isinstance(first, Effect | Operand):
        raise failure(SymbolError, "control_dependencies takes a list", hint="with dsl.control_dependencies([a]): ...")
    found = [effect for what in first for effect in effects_of(what)]
    outer = CONTEXT.control
    CONTEXT.control = tuple(dict.fromkeys((*outer, *found)))
    try:
        yield
    finally:
        CONTEXT.control = outer


def group(*effects: Any) -> Effect:
    """All of these having happened, as one effect."""
    flat = [e for what in effects for e in (what if isinstance(what, list | tuple) else [what])]
    return Effect(GroupNode([e for what in flat for e in effects_of(what)]))


def after(value: Any, effects: Iterable[Any]) -> Symbol:
    """The value, there once these have happened: who fetches it makes them happen."""
    with control_dependencies(effects):
        return build.make("Identity", build.convert(value))


# Kept between runs


class State(Mapping[str, np.ndarray[Any, Any]]):
    """The values of variables by name: what a session keeps, saves and loads."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, np.ndarray[Any, Any]] = {k: np.asarray(v) for k, v in (values or {}).items()}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._values:
            raise UninitializedError(
                f"there is no value of a variable '{name}'", hint=f"there are: {', '.join(self._values) or 'none'}"
            )
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def with_values(self, values: Mapping[str, Any]) -> State:
        """A state with some values replaced or added."""
        return State({**self._values, **values})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the values as safetensors, whole or not at all.

        Dtypes that NumPy's side of safetensors lacks are written as their bytes, and named in the metadata.

        Raises:
            SaveError: if the file cannot be written, or a variable holds strings.
        """
        from safetensors.numpy import save

        arrays: dict[str, np.ndarray[Any, Any]] = {}
        others: dict[str, str] = {}
        for name, value in self._values.items():
            kind = as_dtype(value.dtype if value.dtype != object else "string")
            if kind.kind == "string":
                raise SaveError(f"variable '{name}' holds strings, which safetensors has no place for")
            if kind.name in _STORED:
                arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
            else:
                arrays[name] = np.frombuffer(ConstantData(kind, value.shape, value).raw(), np.uint8)
                others[name] = json.dumps([kind.name, list(value.shape)])
        write_atomically(path, [save(arrays, others or None)])

    @staticmethod
    def load(path: str | os.PathLike[str]) -> State:
        """Reads what ``save`` wrote, or any safetensors file of NumPy's dtypes.

        Raises:
            LoadError: if the file is not there, or is no such file.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                others = file.metadata() or {}
                values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            for name in others.keys() & values.keys():
                kind, shape = json.loads(others[name])
                values[name] = np.array(from_raw(values[name].tobytes(), as_dtype(kind), tuple(shape)).array())
        except (OSError, SafetensorError, ValueError, TypeError, AttributeError, ParseError) as error:
            raise LoadError(f"'{os.fspath(path)}' cannot be read as state: {error}") from None
        return State(values)


_STORED = frozenset("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split())
