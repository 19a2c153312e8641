"""Patterns: what a function over a builder makes, recorded rather than built.

The function of a pattern is an ordinary one: given a real ``Builder`` it makes a graph that the pattern matches, which
is how ``irkit.testing.check_rule`` gets its graphs. Its parameters are the pattern's variables:

=====================================  ==========================================================================
``x``                                  any value
``x=value("float", rank=4)``           a value of these element types, of this rank
``w=constant()``                       a constant that no caller can override
``eps=scalar()``                       a constant of one element everywhere, which broadcasts without effect
``c=value(optional=True)``             a value, or an optional operand that is not given: then None
``*xs``                                the rest of a variadic op's operands
``*, axis``                            the value of an attribute (or its default, or None)
``*, attrs=attributes()``              all attributes of one op that the pattern does not name, for ``**attrs``
=====================================  ==========================================================================

A number stands for a constant that holds it everywhere; ``near(1.702)`` for one that holds it to a few roundings; a
list or array for a constant of this shape and these elements. An
attribute that a pattern does not name must have its default. An operand given as None must be absent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from irkit.dialects.onnx import CURRENT
from irkit.ir.builder import Builder, Tensor, result_count
from irkit.ir.dtypes import DType, dtype
from irkit.ir.op import TensorOp

__all__ = [
    "Attribute",
    "Attributes",
    "Literal",
    "Node",
    "Out",
    "Pattern",
    "Rest",
    "Variable",
    "attributes",
    "constant",
    "near",
    "scalar",
    "trace",
    "value",
]

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Variable:
    """A value that a pattern leaves open.

    Attributes:
        dtypes: the element types that it may have; None: any, known or not.
        rank: how many axes it must be known to have.
        kind: ``"value"``, ``"constant"`` or ``"scalar"``.
        optional: whether it may be an operand that is not given.
        name: of the parameter.
    """

    dtypes: tuple[DType, ...] | None = None
    rank: int | None = None
    kind: str = "value"
    optional: bool = False
    name: str = ""


def _variable(kind: str, element: str | Sequence[str] | None, rank: int | None, optional: bool = False) -> Any:
    names = FLOATS if element == "float" else (element,) if isinstance(element, str) else element
    return Variable(None if names is None else tuple(dtype(n) for n in names), rank, kind, optional)


def value(element: str | Sequence[str] | None = None, *, rank: int | None = None, optional: bool = False) -> Any:
    """The default of a parameter that stands for any value of these element types (``"float"``: the float ones)."""
    return _variable("value", element, rank, optional)


def constant(element: str | Sequence[str] | None = None, *, rank: int | None = None, optional: bool = False) -> Any:
    """The default of a parameter that stands for a constant."""
    return _variable("constant", element, rank, optional)


def scalar(element: str | Sequence[str] | None = None) -> Any:
    """The default of a parameter that stands for a constant of one repeated element that broadcasts without effect."""
    return _variable("scalar", element, None)


@dataclass(frozen=True, eq=False)
class Attribute:
    """The value of an attribute that a pattern leaves open."""

    name: str


class Attributes(Mapping[str, Any]):
    """All attributes of an op that a pattern does not name; used as ``**attrs``."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, key: str) -> Any:
        if key != "*":
            raise KeyError(key)
        return self

    def __iter__(self) -> Iterator[str]:
        return iter("*")

    def __len__(self) -> int:
        return 1


def attributes() -> Any:
    """The default of a keyword parameter that stands for all attributes that the pattern does not name."""
    return Attributes()


class near(float):
    """A number that a constant of a pattern may miss by a few roundings of its element type."""


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant in a pattern: a number that it holds everywhere, or an array that it equals."""

    value: Any

    @property
    def is_number(self) -> bool:
        """Whether its shape is left open."""
        return not isinstance(self.value, np.ndarray)


@dataclass(frozen=True, eq=False)
class Rest:
    """The operands of a variadic op from some place on."""

    name: str


@dataclass(eq=False, repr=False)
class Node:
    """An op in a pattern.

    Attributes:
        cls: the class, always a current form.
        operands: what each must be; None: absent.
        attributes: by name, what each must be; the key ``"*"`` takes up all others.
        index: how many nodes come before it.
    """

    cls: type[TensorOp]
    operands: tuple[Variable | Out | Literal | Rest | None, ...]
    attributes: dict[str, Any]
    index: int
    is_commutative: bool = field(init=False)

    def __repr__(self) -> str:
        return f"{self.cls.name}#{self.index}"

    def __post_init__(self) -> None:
        from xdsl.traits import Commutative

        self.is_commutative = (
            len(self.operands) == 2
            and not isinstance(self.operands[1], Rest)
            and any(isinstance(t, Commutative) for t in self.cls.traits.traits)
        )


@dataclass(frozen=True, eq=False)
class Out:
    """One result of an op in a pattern."""

    node: Node
    index: int


class _Tracer:
    """Stands for a builder, and notes what it is asked for."""

    depth = 0

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name[:1].isupper():
            return lambda *operands, **options: self.op(name, *operands, **options)
        raise AttributeError(f"a pattern cannot use '{name}' of the builder: it holds ops and constants only")

    def constant(self, value: object, element: object = None) -> Tensor:
        return self._tensor(Literal(np.asarray(value, None if element is None else dtype(element).numpy)))

    def binary(self, name: str, a: Any, b: Any) -> Tensor:
        return cast(Tensor, self.op(name, a, b))

    def op(self, op_name: str | type[TensorOp], *operands: Any, outputs: int | None = None, **options: Any) -> Any:
        options.pop("name", None)
        cls = op_name if isinstance(op_name, type) else _class(op_name)
        if cls.spec.graphs:
            raise TypeError(f"{cls.name} has graphs, which a pattern cannot hold: write an xDSL RewritePattern")
        unknown = [k for k in options if k != "*" and k not in cls.spec.attributes]
        if unknown:
            raise TypeError(f"{cls.name} has no attribute '{unknown[0]}'")
        node = Node(cls, tuple(map(self._operand, operands)), options, len(self.nodes))
        self.nodes.append(node)
        results = tuple(self._tensor(Out(node, i)) for i in range(result_count(cls, outputs, {})))
        return results[0] if len(results) == 1 else results

    def _operand(self, given: Any) -> Any:
        if given is None:
            return None
        if isinstance(given, Tensor):
            return given.ssa
        array: np.ndarray[Any, Any] = np.asarray(given)
        if array.dtype.kind in "USOc":
            raise TypeError(f"a pattern takes values, numbers and arrays of numbers as operands, not {given!r}")
        # A number stays what it is: one with any shape, or a near one.
        return Literal(array if isinstance(given, list | tuple) else given)

    def _tensor(self, what: Any) -> Tensor:
        return Tensor(what, cast(Builder, self))


def _class(name: str) -> type[TensorOp]:
    domain, _, op_type = name.removeprefix("onnx.").rpartition(".")
    found = CURRENT.get((f"ai.onnx.{domain}" if domain else "", op_type))
    if found is None:
        raise TypeError(f"there is no op '{name}'")
    return found


@dataclass(frozen=True, eq=False)
class Pattern:
    """What a rule looks for.

    Attributes:
        variables: the parameters of the function, by name.
        nodes: in the order in which the function makes them: operands before users.
        outputs: what is replaced. The op of the first is the root, where matching begins.
    """

    variables: dict[str, Variable | Rest | Attribute | Attributes]
    nodes: list[Node]
    outputs: tuple[Out, ...]

    @property
    def root(self) -> Node:
        """The node at which matching begins."""
        return self.outputs[0].node

    @cached_property
    def makers(self) -> frozenset[str]:
        """What must be among the makers of the root's operands: names of ops, or ``"constant"``."""
        found: set[str] = set()
        for operand in self.root.operands:
            if isinstance(operand, Out):
                found.add(operand.node.cls.name)
            elif isinstance(operand, Literal) or (
                isinstance(operand, Variable) and operand.kind != "value" and not operand.optional
            ):
                found.add("constant")
        return frozenset(found)

    @cached_property
    def others(self) -> list[Node]:
        """Nodes of outputs that the root does not depend on, so that they are found through what both use."""
        seen: set[Node] = set()
        _collect(self.root, seen)
        found: list[Node] = []
        for out in self.outputs:
            if out.node not in seen:
                found.append(out.node)
                _collect(out.node, seen)
        return found


def _collect(node: Node, seen: set[Node]) -> None:
    seen.add(node)
    for operand in node.operands:
        if isinstance(operand, Out) and operand.node not in seen:
            _collect(operand.node, seen)


def trace(function: Callable[..., Any]) -> Pattern:
    """The pattern that a function stands for.

    Raises:
        TypeError: if it stands for none, saying why.
    """
    tracer = _Tracer()
    variables: dict[str, Any] = {}
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        name, default = parameter.name, parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            variables[name] = Rest(name)
            positional.append(Tensor(variables[name], cast(Builder, tracer)))
        elif parameter.kind is parameter.KEYWORD_ONLY:
            variables[name] = Attributes(name) if isinstance(default, Attributes) else Attribute(name)
            named[name] = variables[name]
        else:
            given = default if isinstance(default, Variable) else Variable()
            variables[name] = Variable(given.dtypes, given.rank, given.kind, given.optional, name)
            positional.append(Tensor(variables[name], cast(Builder, tracer)))
    made: Any = function(tracer, *positional, **named)
    results: list[Any] = list(cast("list[Any]", made)) if isinstance(made, list | tuple) else [made]
    outputs: list[Any] = [r.ssa if isinstance(r, Tensor) else r for r in results]
    if not outputs or not all(isinstance(o, Out) for o in outputs):
        raise TypeError("a pattern returns the results of the ops that are replaced")
    pattern = Pattern(variables, tracer.nodes, tuple(outputs))
    _check_used(pattern)
    return pattern


def _check_used(pattern: Pattern) -> None:
    used: set[Any] = set()
    reached: set[Node] = set()
    for node in [pattern.root, *pattern.others]:
        _collect(node, reached)
    for node in reached:
        used.update(o for o in node.operands if isinstance(o, Variable | Rest))
        used.update(a for a in node.attributes.values() if isinstance(a, Attribute | Attributes))
    unused = [name for name, variable in pattern.variables.items() if variable not in used]
    if unused:
        raise TypeError(f"the pattern does not use its parameter '{unused[0]}'")
    if len(reached) < len(pattern.nodes):
        left = next(node for node in pattern.nodes if node not in reached)
        raise TypeError(f"the pattern makes {left.cls.name}, but no output depends on it")
