"""The nodes of expressions: immutable, without a home until they are lowered into a module.

A node knows its operands, the types of its results, the user's line, the trace in which it was made, and what the
``with`` blocks around it asked for (control edges, a device). Nothing refers from operands to those that use them, so
an expression that is dropped is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute

from irkit.dialects.state.ops import token
from irkit.errors import IrkitError
from irkit.frontends.dsl.errors import Site, SymbolError, failure, site_here
from irkit.ir.constants import TensorAttr
from irkit.ir.op import Random, TensorOp
from irkit.ir.types import intern

if TYPE_CHECKING:
    from irkit.frontends.dsl.state import Variable
    from irkit.frontends.dsl.symbol import Effect, Symbol

__all__ = [
    "CONTEXT",
    "AssignNode",
    "BuiltNode",
    "CallNode",
    "ConstantNode",
    "GradientNode",
    "Graph",
    "GroupNode",
    "Node",
    "OpNode",
    "ParamNode",
    "PlaceholderNode",
    "ReadNode",
    "Scope",
    "cone",
]


class Scope:
    """One trace: of a function, or of the graph of an If, Loop or Scan.

    Attributes:
        what: for messages.
        site: of what is traced.
        is_open: whether the trace is going on; its symbols mean nothing elsewhere.
    """

    __slots__ = ("is_open", "site", "what")

    def __init__(self, what: str, site: Site) -> None:
        self.what = what
        self.site = site
        self.is_open = True


class _Context(threading.local):
    """What the ``with`` blocks and traces around the current line ask for, per thread."""

    scope: Scope | None = None
    control: tuple[Effect, ...] = ()
    device: str = ""


CONTEXT = _Context()


class Node:
    """The base of all nodes.

    Attributes:
        types: of the results; a token's is ``!state.token``.
        deps: the nodes that are there before this one, in order.
        scope: the trace in which it was made; None outside all.
        control: what happens before.
        device: where it is to run, or ``""``.
        site: the user's line.
    """

    __slots__ = ("__weakref__", "control", "deps", "device", "scope", "site", "types")
    deps: tuple[Any, ...]

    def __init__(self, types: Sequence[Attribute], operands: Iterable[Any] = (), site: Site = None) -> None:
        # Interned, so that their identity may stand for them.
        self.types = tuple(map(intern, types))
        self.site = site or site_here()
        self.scope = CONTEXT.scope
        self.control = CONTEXT.control
        self.device = CONTEXT.device
        self.deps = tuple(operand.node for operand in operands if operand is not None)
        if self.control:
            self.deps += tuple(effect.node for effect in self.control)
        for dep in self.deps:
            if dep.scope is not None and not dep.scope.is_open:
                raise leaked(dep, self.site)

    @property
    def reads(self) -> Iterator[Any]:
        """All nodes that it depends on directly, those within its graphs included."""
        return iter(self.deps)

    @property
    def is_pure(self) -> bool:
        """Whether it neither draws random numbers nor accesses state."""
        return True


def leaked(node: Node, site: Site) -> IrkitError:
    """The error for a symbol that is used after its trace has ended."""
    what = "" if node.scope is None else node.scope.what
    return failure(
        SymbolError,
        f"a symbol of the trace of {what} is used outside of it",
        site=site,
        related=[("it was made at", node.site)],
        hint=f"return it from {what} and use what the call gives",
    )


class PlaceholderNode(Node):
    """A slot to feed. Not tied to the trace in which it was made."""

    __slots__ = ("name", "serial")
    _serials = count()

    def __init__(self, name: str, value_type: Attribute) -> None:
        super().__init__((value_type,))
        self.scope, self.control, self.deps = None, (), ()
        self.name = name
        self.serial = next(self._serials)


class ParamNode(Node):
    """An argument of a trace."""

    __slots__ = ("name",)

    def __init__(self, value_type: Attribute, name: str = "") -> None:
        super().__init__((value_type,))
        self.control, self.deps = (), ()
        self.name = name


class ConstantNode(Node):
    """A constant; with a name, an initializer of the graph."""

    __slots__ = ("name", "value")

    def __init__(self, value: TensorAttr, name: str = "") -> None:
        super().__init__((value.type,))
        # Constants are the same everywhere.
        self.scope, self.control, self.deps = None, (), ()
        self.value = value
        self.name = name


class OpNode(Node):
    """An op of the IR."""

    __slots__ = ("cls", "graphs", "name", "operands", "properties")

    def __init__(
        self,
        cls: type[TensorOp],
        operands: Sequence[Symbol | None],
        properties: Mapping[str, Attribute],
        graphs: Sequence[Graph | None],
        types: Sequence[Attribute],
        name: str,
        site: Site,
    ) -> None:
        super().__init__(types, operands, site)
        self.cls = cls
        self.operands = tuple(operands)
        self.properties = properties
        self.graphs = tuple(graphs)
        self.name = name
        for graph in graphs:
            if graph is not None:
                self.deps += graph.captures

    @property
    def reads(self) -> Iterator[Any]:
        yield from self.deps
        for graph in self.graphs:
            if graph is not None:
                yield from (result.node for result in graph.results)

    @property
    def is_pure(self) -> bool:
        return not self.cls.has_trait(Random) and all(g is None or g.is_pure for g in self.graphs)


class Graph:
    """What a trace gave: parameters, and the results computed from them.

    Attributes:
        scope: of the trace.
        params: the symbols of its arguments.
        results: symbols and effects.
        captures: the nodes from outside that it uses, in the order of their first use.
        is_pure: whether it neither draws random numbers nor accesses state.
    """

    def __init__(self, scope: Scope, params: Sequence[Symbol], results: Sequence[Symbol | Effect]) -> None:
        self.scope = scope
        self.params = tuple(params)
        self.results = tuple(results)
        inside = cone([r.node for r in results], within=scope)
        own = {scope, *(g.scope for n in inside for g in _graphs(n))}
        self.captures: tuple[Node, ...] = tuple(n for n in inside if n.scope not in own)
        self.is_pure = all(n.is_pure for n in inside if n.scope in own)


def _graphs(node: Node) -> Iterator[Graph]:
    match node:
        case OpNode():
            yield from (graph for graph in node.graphs if graph is not None)
        case CallNode():
            yield node.graph
        case _:
            pass


class CallNode(Node):
    """A call of a traced function.

    Attributes:
        graph: the function's, for the types of these arguments.
        args: the arguments.
        name: the function's.
        inline: whether its ops are put in place of the call; otherwise it becomes a function of the model.
    """

    __slots__ = ("args", "graph", "inline", "name")

    def __init__(self, graph: Graph, args: Sequence[Symbol], name: str, inline: bool) -> None:
        super().__init__([result.type for result in graph.results], args)
        self.graph = graph
        self.args = tuple(args)
        self.name = name
        self.inline = inline
        self.deps += graph.captures
        for dep in graph.captures:
            if dep.scope is not None and not dep.scope.is_open:
                raise leaked(dep, self.site)

    @property
    def reads(self) -> Iterator[Any]:
        yield from self.deps
        yield from (result.node for result in self.graph.results)

    @property
    def is_pure(self) -> bool:
        return self.graph.is_pure


class ReadNode(Node):
    """The value of a variable. Its results: the value, and the token of having read it.

    Attributes:
        here: whether it reads where it stands. Otherwise it reads where its control edges put it, outside of loops
            that none of them comes from.
    """

    __slots__ = ("here", "variable")

    def __init__(self, variable: Any, *, here: bool) -> None:
        super().__init__((variable.type, token))
        self.variable: Variable = variable
        self.here = here

    @property
    def is_pure(self) -> bool:
        return False


class AssignNode(Node):
    """A new value for a variable: the one given (``op`` is ``""``), or the old one with it added or subtracted."""

    __slots__ = ("op", "value", "variable")

    def __init__(self, variable: Any, value: Symbol, op: str) -> None:
        super().__init__((token,), [value])
        self.variable: Variable = variable
        self.value = value
        self.op = op

    @property
    def is_pure(self) -> bool:
        return False


class GroupNode(Node):
    """All of these having happened."""

    __slots__ = ("effects",)

    def __init__(self, effects: Sequence[Effect]) -> None:
        super().__init__((token,), effects)
        self.effects = tuple(effects)


class GradientNode(Node):
    """The cotangents of ``xs``, given those of ``ys``. For a variable, of what is read of it on the way to ``ys``."""

    __slots__ = ("allow_unused", "cotangents", "xs", "ys")

    def __init__(
        self,
        ys: Sequence[Symbol],
        xs: Sequence[Symbol | Variable],
        cotangents: Sequence[Symbol],
        allow_unused: bool,
    ) -> None:
        symbols = [x for x in xs if hasattr(x, "node")]
        super().__init__([x.type for x in xs], [*ys, *symbols, *cotangents])
        self.ys = tuple(ys)
        self.xs = tuple(xs)
        self.cotangents = tuple(cotangents)
        self.allow_unused = allow_unused


class BuiltNode(Node):
    """What a function over a ``Builder`` and tensors makes of these operands."""

    __slots__ = ("function", "operands")

    def __init__(self, function: Callable[..., Sequence[Any]], operands: Sequence[Symbol], types: Sequence[Attribute]):
        super().__init__(types, operands)
        self.function = function
        self.operands = tuple(operands)


def cone(nodes: Iterable[Any], within: Any = None) -> list[Node]:
    """All nodes that these depend on, themselves included, operands first; those in graphs too.

    Args:
        within: a trace: nodes from outside of it are listed, but not what they depend on.
    """
    seen: set[Node] = set()
    done: list[Node] = []
    inner = {within}
    stack: list[tuple[Node, Iterator[Node] | None]] = [(n, None) for n in reversed(list(nodes))]
    while stack:
        node, rest = stack.pop()
        if rest is None:
            if node in seen:
                continue
            seen.add(node)
            if within is not None:
                if node.scope not in inner:
                    done.append(node)
                    continue
                inner.update(graph.scope for graph in _graphs(node))
            rest = node.reads
        following = next((n for n in rest if n not in seen), None)
        if following is None:
            done.append(node)
        else:
            stack += [(node, rest), (following, None)]
    return done
