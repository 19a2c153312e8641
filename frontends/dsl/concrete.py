"""Values of symbols that depend on no placeholder, variable or random number: computed op by op, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from xdsl.ir import Block

from irkit.backends.numpy.evaluate import prepared
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.build import convert
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.nodes import ConstantNode, Node, OpNode, ParamNode, PlaceholderNode
from irkit.ir.types import absent_type, dtype_of, intern, tensor

__all__ = ["evaluate", "is_concrete", "settle"]

_VALUES: WeakKeyDictionary[Node, tuple[Any, ...]] = WeakKeyDictionary()
_CONCRETE: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()
_PROGRAMS: dict[Any, Callable[..., tuple[Any, ...]]] = {}
_MOST_PROGRAMS = 10_000


def evaluate(x: Any) -> np.ndarray:
    """The value of a symbol on the numpy backend; it is computed once, and remembered as long as the symbol lives.

    Args:
        x: a symbol, or whatever converts to one; or an array of complex numbers, which is two.

    Returns:
        A read-only array.

    Raises:
        SymbolError: if it depends on a placeholder, an argument of a trace, a variable, or random numbers.
        ExecutionError: if an op fails.
    """
    if len(getattr(x, "parts", ())) > 1:
        return x.evaluated()
    symbol = convert(x)
    if not is_concrete(symbol):
        raise failure(
            SymbolError,
            f"{symbol!r} has no value yet: it depends on a placeholder, an argument, a variable or random numbers",
            related=[("it was made at", symbol.node.site)],
            hint="run it: ik.compile(x)(...), or dsl.Session for expressions with variables",
        )
    return _values(symbol.node)[symbol.index]


def is_concrete(x: symbols.Symbol) -> bool:
    """Whether ``evaluate`` gives its value."""
    stack = [x.node]
    while stack:
        node = stack[-1]
        if node not in _CONCRETE:
            waiting = [n for n in node.deps if n not in _CONCRETE] if _may_be(node) else []
            if waiting:
                stack += waiting
                continue
            _CONCRETE[node] = _may_be(node) and all(_CONCRETE[n] for n in node.deps)
        stack.pop()
    return _CONCRETE[x.node]


def _may_be(node: Node) -> bool:
    return node.is_pure and node.scope is None and not isinstance(node, PlaceholderNode | ParamNode)


def settle(x: symbols.Symbol) -> symbols.Symbol:
    """The symbol; if its sizes are unknown but it is concrete, they become those of its value."""
    shape = x.shape
    if (shape is None or not all(type(d) is int for d in shape)) and x.dtype is not None and is_concrete(x):
        node = x.node
        node.types = tuple(
            intern(tensor(kind, value.shape)) if kind is not None and isinstance(value, np.ndarray) else known
            for known, kind, value in zip(node.types, map(dtype_of, node.types), _values(node), strict=True)
        )
    return x


def _values(wanted: Node) -> tuple[Any, ...]:
    stack = [wanted]
    while stack:
        node = stack[-1]
        waiting = [] if node in _VALUES else [n for n in node.deps if n not in _VALUES]
        if waiting:
            stack += waiting
            continue
        if node not in _VALUES:
            _VALUES[node] = tuple(_locked(value) for value in _computed(node))
        stack.pop()
    return _VALUES[wanted]


def _locked(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def _computed(node: Node) -> tuple[Any, ...]:
    match node:
        case ConstantNode():
            return (node.value.array(),)
        case OpNode() if not any(node.graphs):
            inputs = [None if x is None else _VALUES[x.node][x.index] for x in node.operands]
            return _program(node)(inputs)
        case _:
            from irkit.api import compile as compile_module

            results = {str(i): symbols.Symbol(node, i) for i in range(len(node.types))}
            given = compile_module(cast(Any, results), backend="numpy").run({})
            return tuple(np.array(given[name]) for name in results)


def _program(node: OpNode) -> Callable[..., tuple[Any, ...]]:
    """The op made ready to run; the same few ops of the same types are met again and again."""
    types = [absent_type if x is None else x.type for x in node.operands]
    key = (node.cls, *map(id, types), None, *map(id, node.types), *node.properties.items())
    found = _PROGRAMS.get(key)
    if found is None:
        if len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.clear()
        block = Block(arg_types=types)
        op = node.cls.create(operands=list(block.args), result_types=list(node.types), properties=dict(node.properties))
        block.add_op(op)
        found = _PROGRAMS[key] = prepared(op)
    return found
