"""Control flow: functions passed to functions, which become the graphs of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from irkit.backends.base import spell
from irkit.errors import InferenceError
from irkit.frontends.dsl import tree
from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.errors import SymbolError, failure, site_here
from irkit.frontends.dsl.functions.shape import flip
from irkit.frontends.dsl.operators import cast, subtract
from irkit.frontends.dsl.symbol import Effect, Symbol
from irkit.ir.dtypes import BY_NAME
from irkit.ir.types import shape_of

__all__ = ["cond", "fori", "map", "scan", "while_loop"]

INT64, BOOL = BY_NAME["int64"], BY_NAME["bool"]


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def _graph(function: Callable[..., Any], arity: int, name: str) -> Callable[..., Any]:
    """A function of so many values, called as the user's is in messages."""
    function.arity = arity  # type: ignore[attr-defined]
    function.__name__ = name
    return function


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _values(results: Sequence[Any], what: str) -> list[Symbol]:
    for item in results:
        if isinstance(item, Effect):
            raise failure(
                SymbolError,
                f"{what} returns an effect, which a loop cannot carry",
                hint="make a value wait for it: dsl.after(value, [effect])",
            )
    return [convert(r) for r in results]


def cond(condition: Any, true: Callable[..., Any], false: Callable[..., Any], *operands: Any) -> Any:
    """What one of two functions gives, of which only that one runs.

    Args:
        condition: a boolean scalar.
        true: a function of the operands; it may have effects.
        false: the same; it returns values of the same structure and dtypes.
        operands: may be left out, since the functions see what is around them.
    """
    structures: list[Any] = []

    def branch(function: Callable[..., Any]) -> Callable[..., Any]:
        def body() -> list[Any]:
            leaves, structure = tree.flatten(function(*operands))
            if structures and structures[0] != structure:
                raise failure(
                    InferenceError,
                    f"'{_name(true)}' returns {_shown(structures[0])}, but '{_name(false)}' {_shown(structure)}",
                    hint="both must return the same structure of values",
                )
            structures.append(structure)
            if not leaves:
                raise failure(SymbolError, f"'{_name(function)}' returns nothing", hint="return a value or an effect")
            return leaves

        return _graph(body, 0, _name(function))

    for which, function in (("true", true), ("false", false)):
        if not callable(function):
            raise failure(
                SymbolError,
                f"dsl.cond takes functions for its branches; {which}= is {function!r}",
                hint="lambda: x for a branch that only gives a value; dsl.where(c, x, y) chooses between values",
            )
    predicate = convert(condition)
    if predicate.dtype is not None and predicate.dtype is not BOOL:
        raise failure(
            InferenceError, f"a condition is a boolean; this is {predicate!r}", hint="compare: x > 0, or x != 0"
        )
    _check_scalar(predicate, "a condition")
    made = make("If", predicate, then_branch=branch(true), else_branch=branch(false))
    for index, value in enumerate(_listed(made)):
        if isinstance(value, Symbol) and value.dtype is None:
            graphs = value.node.graphs  # type: ignore[attr-defined]
            kinds = [spell(g.results[index].type) for g in graphs]
            if kinds[0] != kinds[1]:
                raise failure(
                    InferenceError,
                    f"result {index} is {kinds[0]} if true and {kinds[1]} if false",
                    hint="cast one of them",
                )
    return tree.rebuild(structures[0], _listed(made))


class _Carried:
    """What a loop carries: flattened, and checked after each iteration."""

    def __init__(self, initial: Any, what: str) -> None:
        leaves, self.structure = tree.flatten(initial)
        if not leaves:
            raise failure(SymbolError, f"{what} carries nothing", hint="give the initial value of what it carries")
        self.values = [convert(leaf) for leaf in leaves]
        self.what = what

    def tree(self, leaves: Sequence[Any]) -> Any:
        return tree.rebuild(self.structure, leaves)

    def checked(self, result: Any, given: Sequence[Symbol]) -> list[Symbol]:
        """The values after an iteration, flat.

        Raises:
            InferenceError: if the structure or a dtype is not that of the initial values.
        """
        leaves, structure = tree.flatten(result)
        if structure != self.structure:
            raise failure(
                InferenceError,
                f"{self.what} was given {_shown(self.structure)} and returns {_shown(structure)}",
                hint="return what is carried in the structure of the initial value",
            )
        values: list[Symbol] = []
        for index, (leaf, old) in enumerate(zip(leaves, given, strict=True)):
            if isinstance(leaf, Effect):
                _values([leaf], self.what)
            new = convert(leaf, old.dtype if type(leaf) in (bool, int, float, complex) else None)
            if new.dtype is not old.dtype and new.dtype is not None and old.dtype is not None:
                raise failure(
                    InferenceError,
                    f"{self.what} makes {spell(old.type)} into {spell(new.type)} (value {index} of what is carried)",
                    hint=f"dsl.cast(x, '{old.dtype}') at the end, or an initial value of {new.dtype}",
                )
            values.append(new)
        return values


def _shown(structure: Any) -> str:
    found = tree.rebuild(structure, ["*"] * str(structure).count("'leaf'")) if structure != "leaf" else "one value"
    return str(found).replace("'*'", "*")


def while_loop(condition: Callable[..., Any], body: Callable[..., Any], initial: Any) -> Any:
    """Repeats ``body`` as long as ``condition`` holds.

    Args:
        condition: a function of what is carried; a boolean scalar.
        body: a function of what is carried, which returns it anew. Sizes may change from iteration to iteration.
        initial: what is carried at first: a value, or a tuple, list or dict of them (passed as one argument).
    """
    state = _Carried(initial, f"'{_name(body)}'")

    def step(_: Symbol, __: Symbol, *values: Symbol) -> list[Symbol]:
        new = state.checked(body(state.tree(values)), values)
        return [_predicate(condition, state.tree(new)), *new]

    first = _predicate(condition, state.tree(state.values))
    made = make("Loop", None, first, *state.values, body=_graph(step, 2 + len(state.values), _name(body)))
    return state.tree(_listed(made))


def _predicate(condition: Callable[..., Any], value: Any) -> Symbol:
    found = convert(condition(value))
    if found.dtype is not BOOL:
        raise failure(
            InferenceError, f"'{_name(condition)}' gives {found!r}, not a boolean", hint="compare: x > 0, or x != 0"
        )
    _check_scalar(found, f"what '{_name(condition)}' gives")
    return make("Squeeze", found) if found.shape not in ((), None) else found


def _check_scalar(found: Symbol, what: str) -> None:
    """Refuses a condition that certainly has another number of elements than one."""
    if any(isinstance(size, int) and size != 1 for size in found.shape or ()):
        raise failure(
            InferenceError,
            f"{what} is one boolean; this is {found!r}",
            hint="dsl.all(x) or dsl.any(x) makes one of many",
        )


def fori(lower: Any, upper: Any, body: Callable[..., Any], initial: Any) -> Any:
    """Repeats ``body(i, carried)`` for i from ``lower`` to ``upper`` - 1; both may be symbols."""
    state = _Carried(initial, f"'{_name(body)}'")
    start = convert(lower)
    first = start if start.dtype is INT64 else cast(start, INT64)
    if isinstance(lower, int) and isinstance(upper, int):
        trips = convert(max(upper - lower, 0))
    else:
        trips = make("Max", subtract(cast(convert(upper), INT64), first), 0)

    def step(i: Symbol, go: Symbol, *values: Symbol) -> list[Symbol]:
        number = i if isinstance(lower, int) and lower == 0 else make("Add", i, first)
        return [go, *state.checked(body(number, state.tree(values)), values)]

    made = make("Loop", trips, None, *state.values, body=_graph(step, 2 + len(state.values), _name(body)))
    return state.tree(_listed(made))


def scan(
    body: Callable[..., Any], initial: Any, xs: Any = None, length: Any = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Goes through values along their first axes: ``carried, y = body(carried, x)``.

    Args:
        body: returns what is carried anew, and what the step gives; either may be a tuple, list or dict, or None.
        initial: what is carried at first.
        xs: what is gone through; None: only counted.
        length: the number of steps where there are no ``xs``; beside them, the size of their first axes.
        reverse: from the last to the first; the results stand in the order of ``xs``.

    Returns:
        What is carried at the end, and the results of the steps, stacked along a new first axis.
    """
    leaves, xs_structure = tree.flatten(xs)
    items = [convert(leaf) for leaf in leaves]
    if any(shape_of(item.type) == () for item in items):
        raise failure(InferenceError, "a scalar has no first axis to scan over", hint="broadcast it, or carry it")
    for item in items if length is not None else []:
        size = (item.shape or (None,))[0]
        if not isinstance(length, int) or size != length:
            raise failure(
                InferenceError,
                f"a scan over {item!r} takes as many steps as its first axis is long, not length={length!r}",
                hint="leave length= out; to go through a part of it, dsl.scan(body, initial, x[:n])",
            )
    if not items and length is None:
        raise failure(SymbolError, "a scan needs xs, or length=", hint="dsl.scan(body, initial, length=10)")
    carried, carry_structure = tree.flatten(initial)
    state = _Carried(initial, f"'{_name(body)}'") if carried else None
    results: Any = None

    def step(*values: Symbol) -> list[Symbol]:
        nonlocal results
        n = len(carried)
        given = body(tree.rebuild(carry_structure, values[:n]), tree.rebuild(xs_structure, values[n:]))
        if not isinstance(given, tuple) or len(given) != 2:
            raise failure(
                SymbolError, f"'{_name(body)}' must return (carried, result); it returned {given!r}", hint="use None"
            )
        new = state.checked(given[0], values[:n]) if state else []
        each, results = tree.flatten(given[1])
        return [*new, *_values(each, f"'{_name(body)}'")]

    start = state.values if state else []
    name = _name(body)
    made = _scan(step, start, items, reverse, name) if items else _counted(step, start, length, name)
    last, stacked = made[: len(carried)], made[len(carried) :]
    if reverse and not items:
        stacked = [flip(y, 0) for y in stacked]
    return tree.rebuild(carry_structure, last), tree.rebuild(results, stacked)


def _scan(
    step: Callable[..., Any], start: Sequence[Symbol], items: Sequence[Symbol], reverse: bool, name: str
) -> list[Symbol]:
    n = len(start)

    def body(*values: Symbol) -> list[Symbol]:
        made = step(*values)
        for old, new in zip(values[:n], made, strict=False):
            _check_shape(old, new, name)
        return made

    if reverse:
        items = [flip(item, 0) for item in items]
    graph = _graph(body, n + len(items), name)
    listed = _listed(make("Scan", *start, *items, num_scan_inputs=len(items), body=graph))
    return [*listed[:n], *(flip(y, 0) for y in listed[n:])] if reverse else listed


def _check_shape(old: Symbol, new: Symbol, name: str) -> None:
    a, b = shape_of(old.type), shape_of(new.type)
    if a is None or b is None:
        return
    differs = len(a) != len(b) or any(
        p != q and isinstance(p, int) and isinstance(q, int) for p, q in zip(a, b, strict=True)
    )
    if differs:
        raise failure(
            InferenceError,
            f"'{name}' makes {spell(old.type)} into {spell(new.type)}; what a scan carries keeps its shape",
            site=site_here(),
            hint="broadcast the initial value, or use dsl.while_loop, where shapes may change",
        )


def _counted(step: Callable[..., Any], start: Sequence[Symbol], length: Any, name: str) -> list[Symbol]:
    def body(_: Symbol, go: Symbol, *values: Symbol) -> list[Symbol]:
        return [go, *step(*values)]

    trips = convert(length)
    return _listed(make("Loop", trips, None, *start, body=_graph(body, 2 + len(start), name)))


def map(body: Callable[..., Any], *xs: Any) -> Any:
    """What a function gives for each slice along the first axes, stacked."""

    def step(_: None, items: tuple[Any, ...]) -> tuple[None, Any]:
        return None, body(*items)

    step.__name__ = _name(body)
    return scan(step, None, tuple(xs))[1]
