"""Functions: Python functions over symbols, traced once per signature.

A call of a traced function is one node, whatever the function does. So a recursion whose depth is a static argument is
linear: each level is traced once, and equal calls are laid out once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import IrkitError
from irkit.frontends.dsl import tree
from irkit.frontends.dsl.build import convert, tensor_type, trace_graph
from irkit.frontends.dsl.errors import Site, SymbolError, failure, site_here
from irkit.frontends.dsl.modules import to_module
from irkit.frontends.dsl.nodes import CONTEXT, CallNode, Graph, PlaceholderNode, Scope
from irkit.frontends.dsl.symbol import Effect, Operand, Symbol
from irkit.ir.module import Module

__all__ = ["Function", "Spec", "constant", "function", "placeholder", "spec"]


class Spec(NamedTuple):
    """The type of an argument to come: dtype, and shape (None: any; else sizes, names of sizes, or None)."""

    dtype: Any = "float32"
    shape: Sequence[int | str | None] | None = None


def spec(dtype: Any = "float32", shape: Sequence[int | str | None] | None = None) -> Spec:
    """What stands for an argument when a function is traced without one."""
    return Spec(dtype, shape)


def placeholder(name: str, dtype: Any = "float32", shape: Sequence[int | str | None] | None = None) -> Symbol:
    """A slot to feed.

    Args:
        name: of the input.
        dtype: of the values.
        shape: per axis a size, the name of a symbolic size (the same for all placeholders), or None. Without a shape a
            value of any rank may be fed, a number too; then less is known when the expression is written.
    """
    return Symbol(PlaceholderNode(name, tensor_type(dtype, shape)))


def constant(value: Any, dtype: Any = None, name: str = "") -> Symbol:
    """A constant: an array, a number or a list. Python's floats are float32, its ints int64. With a name it is an
    initializer of the model."""
    if dtype is not None and isinstance(value, np.ndarray | np.generic):
        from irkit.ir.dtypes import dtype as as_dtype

        value = value.astype(as_dtype(dtype).numpy)
    return convert(value, dtype, name)


class _Traced(NamedTuple):
    graph: Graph
    structure: Any


class Function:
    """A traced function; see ``function``."""

    def __init__(self, python: Callable[..., Any], inline: bool) -> None:
        self.python = python
        self.inline = inline
        self.traces: dict[Any, _Traced | None] = {}
        functools.update_wrapper(self, python)
        code = getattr(python, "__code__", None)
        self.site: Site = None if code is None else (code, 0)
        self._signature = inspect.signature(python)
        self.arity = len(self._signature.parameters)

    def __repr__(self) -> str:
        return f"<dsl.function {self.__name__}>"  # type: ignore[attr-defined]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The expression that stands for the call: symbols, however the function builds them up."""
        arguments = self._arguments(args, kwargs)
        leaves, structure = tree.flatten(arguments)
        dynamic = [convert(leaf) for leaf in leaves if _is_dynamic(leaf)]
        try:
            traced = self._trace(leaves, structure, [s.type for s in dynamic])
        except RecursionError:
            if CONTEXT.scope is not None:
                raise
            raise failure(
                IrkitError,
                f"'{self.python.__name__}' calls itself more deeply than Python allows",
                related=[("it is defined at", self.site)],
                hint="raise sys.setrecursionlimit, or use dsl.fori or dsl.while_loop",
            ) from None
        if not traced.graph.results:
            return tree.rebuild(traced.structure, [])
        node = CallNode(traced.graph, dynamic, self.__name__, self.inline)  # type: ignore[attr-defined]
        results = [
            Effect(node, i) if isinstance(r, Effect) else Symbol(node, i) for i, r in enumerate(traced.graph.results)
        ]
        return tree.rebuild(traced.structure, results)

    def __irkit_module__(self, _: Any = None) -> Module:
        """Refused: a function has a module per signature."""
        name = self.python.__name__
        raise failure(
            SymbolError,
            f"'{name}' has no graph before the types of its arguments are known",
            related=[("it is defined at", self.site)],
            hint=f"compile a call of it, or {name}.module(dsl.spec(dtype, shape), ...)",
        )

    def module(self, *specs: Any, **kwargs: Any) -> Module:
        """The module of the function for arguments of these specs (or arrays, or static values).

        Inputs are called as the parameters; those within lists and dicts have numbers appended. Outputs are called
        ``out``, or ``out0``, ``out1``... in order.
        """
        arguments = self._arguments(specs, kwargs)
        inputs: list[Symbol] = []

        def fresh(name: str, value: Any) -> Any:
            if isinstance(value, np.ndarray | np.generic):
                value = Spec(value.dtype, value.shape)
            if isinstance(value, Spec):
                inputs.append(placeholder(name, *value))
                return inputs[-1]
            if isinstance(value, dict):
                return {k: fresh(f"{name}.{k}", v) for k, v in value.items()}
            if isinstance(value, list | tuple):
                return type(value)(fresh(f"{name}.{i}", v) for i, v in enumerate(value))
            return value

        given = {name: fresh(name, value) for name, value in arguments.items()}
        leaves, _ = tree.flatten(self._call(given))
        name = self.__name__  # type: ignore[attr-defined]
        return to_module(leaves[0] if len(leaves) == 1 else leaves, inputs, name)

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        bound = self._bind(arguments)
        return self(*bound.args, **bound.kwargs)

    def _bind(self, arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        return inspect.BoundArguments(self._signature, dict(arguments))  # type: ignore[arg-type]

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise failure(
                SymbolError,
                f"'{self.python.__name__}' cannot be called so: {error}",
                related=[("it is defined at", self.site)],
                hint=f"its signature is {self.python.__name__}{self._signature}",
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _trace(self, leaves: Sequence[Any], structure: Any, types: Sequence[Attribute]) -> _Traced:
        static = tuple(_Static(leaf) for leaf in leaves if not _is_dynamic(leaf))
        places = tuple(_is_dynamic(leaf) for leaf in leaves)
        key = (structure, places, tuple(map(id, types)), static)
        try:
            found = self.traces.get(key, ...)
        except TypeError:
            wrong = next(s.value for s in static if not _hashable(s.value))
            raise failure(
                SymbolError,
                f"the static argument {wrong!r} of '{self.python.__name__}' cannot be hashed",
                hint="what is no symbol or array is static, and part of the signature: give a tuple, a number...",
            ) from None
        if found is None:
            raise failure(
                IrkitError,
                f"'{self.python.__name__}' calls itself with arguments of the same types, so its graph never ends",
                related=[("it is defined at", self.site)],
                hint="let a static argument (a Python number) become smaller, or use dsl.while_loop",
            )
        if found is ... or not _is_alive(found.graph):
            self.traces[key] = None
            try:
                self.traces[key] = found = self._traced(leaves, structure, types)
            finally:
                if self.traces[key] is None:
                    del self.traces[key]
        return found

    def _traced(self, leaves: Sequence[Any], structure: Any, types: Sequence[Attribute]) -> _Traced:
        result_structure: Any = None

        def run(*params: Symbol) -> list[Any]:
            nonlocal result_structure
            given = iter(params)
            full = [next(given) if _is_dynamic(leaf) else leaf for leaf in leaves]
            bound = self._bind(tree.rebuild(structure, full))
            results, result_structure = tree.flatten(self.python(*bound.args, **bound.kwargs))
            return results

        outer = CONTEXT.control, CONTEXT.device
        # The trace serves all callers: what theirs wait for, and run on, is added when a call is laid out.
        CONTEXT.control, CONTEXT.device = (), ""
        try:
            named = tree.rebuild(structure, leaves).items()
            names = [name for name, value in named for leaf in tree.flatten(value)[0] if _is_dynamic(leaf)]
            graph = trace_graph(run, types, f"'{self.python.__name__}'", self.site, names)
        finally:
            CONTEXT.control, CONTEXT.device = outer
        return _Traced(graph, result_structure)


class _Static(NamedTuple):
    """A static argument as part of a signature: 1, 1.0 and True are different ones."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_dynamic(leaf: Any) -> bool:
    return isinstance(leaf, Operand | np.ndarray | np.generic)


def _is_alive(graph: Graph) -> bool:
    """Whether all that a trace captured from the traces around it is still there."""
    scopes: set[Scope | None] = {node.scope for node in graph.captures}
    return all(scope is None or scope.is_open for scope in scopes)


def function(python: Callable[..., Any] | None = None, *, inline: bool = True) -> Any:
    """Makes a Python function one over symbols, traced once per signature.

    Symbols, variables and arrays among the arguments (in lists, tuples and dicts, too) are values of the graph; all
    others are static: they are part of the signature, and Python may branch on them. Variables that are arguments stand
    for their values. The function returns symbols and effects, in lists, tuples and dicts if it likes.

    Args:
        inline: whether the ops are put in place of a call (the default: shapes, gradients and other passes see through
            it, and equal calls are made once). False: it becomes a function of the ONNX model, and a call is one op.

    >>> from irkit.frontends import dsl
    >>> @dsl.function
    ... def fibonacci(n: int):
    ...     return dsl.constant(n) if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
    >>> import irkit as ik
    >>> int(ik.compile(fibonacci(90))())
    2880067194370816120
    """
    if python is None:
        return lambda f: Function(f, inline)
    if not callable(python):
        raise failure(SymbolError, f"{python!r} is no function", site=site_here())
    return Function(python, inline)
