"""Random programs against plain Python: pure ones with functions and control flow, and ones that change state."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import irkit as ik
from irkit.frontends import dsl

# State: a list of statements, each ordered after the one before.

NAMES = "abc"
name = st.sampled_from(NAMES)
term = st.one_of(name, st.integers(-3, 3), st.just("x"))
simple = st.tuples(st.sampled_from(["set", "add", "sub", "see"]), name, term, term)
statement = st.one_of(
    simple,
    st.tuples(st.just("if"), term, st.lists(simple, min_size=1, max_size=3), st.lists(simple, min_size=1, max_size=3)),
    st.tuples(st.just("repeat"), st.integers(0, 3), st.lists(simple, min_size=1, max_size=3), st.none()),
)


def run_plain(statements: list[Any], state: dict[str, int], x: int, seen: list[int]) -> None:
    def of(t: Any) -> int:
        return x if t == "x" else state[t] if isinstance(t, str) else t

    for kind, first, second, third in statements:
        if kind == "if":
            run_plain(second if of(first) > 0 else third, state, x, [])
        elif kind == "repeat":
            for _ in range(first):
                run_plain(second, state, x, [])
        else:
            value = of(second) * 2 - of(third)
            if kind == "see":
                seen.append(state[first] + value)
            else:
                state[first] = value if kind == "set" else state[first] + (value if kind == "add" else -value)


class Writer:
    """Writes the same program as expressions; ``last`` is the effect of all statements so far."""

    def __init__(self, variables: dict[str, dsl.Variable], x: Any) -> None:
        self.variables = variables
        self.x = x

    def of(self, t: Any) -> Any:
        return self.x if t == "x" else self.variables[t].read() if isinstance(t, str) else dsl.constant(t)

    def all(self, statements: list[Any], last: dsl.Effect | None, seen: list[Any]) -> dsl.Effect:
        effect = last or dsl.group()
        for item in statements:
            with dsl.control_dependencies([effect]):
                effect = self.one(item, seen)
        return effect

    def one(self, item: Any, seen: list[Any]) -> dsl.Effect:
        kind, first, second, third = item
        if kind == "if":
            return dsl.cond(self.of(first) > 0, lambda: self.all(second, None, []), lambda: self.all(third, None, []))
        if kind == "repeat":

            def body(_: Any, token: Any) -> Any:
                return dsl.after(token, [self.all(second, None, [])])

            return dsl.group(dsl.fori(0, first, body, 0))
        value = self.of(second) * 2 - self.of(third)
        variable = self.variables[first]
        if kind == "see":
            old = variable.read()
            seen.append(old + value)
            return dsl.group(seen[-1])
        if kind == "set":
            return variable.assign(value)
        old = variable.read()
        return variable.assign(old + value if kind == "add" else old - value)


@settings(max_examples=25)
@given(st.lists(statement, min_size=1, max_size=6), st.integers(-2, 2))
def test_state(statements: list[Any], x: int) -> None:
    wanted = dict.fromkeys(NAMES, 1)
    variables = {n: dsl.variable(1, n) for n in NAMES}
    place = dsl.placeholder("x", "int64", [])
    seen: list[Any] = []
    effect = Writer(variables, place).all(statements, None, seen)
    session = dsl.Session()
    for _ in range(2):
        expected: list[int] = []
        run_plain(statements, wanted, x, expected)
        found = session.run([effect, *seen], {place: x})[1:]
        assert [int(v) for v in found] == expected
        for n in NAMES:
            assert session.run(variables[n]) == wanted[n]


# Pure programs: a tree of calls over a vector, evaluated by NumPy and as an expression.

UNARY = ["tanh", "negative", "square", "sin"]
BINARY = ["add", "multiply", "maximum", "subtract"]
tree = st.recursive(
    st.one_of(st.just("x"), st.floats(-2, 2, width=32)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(UNARY), inner),
        st.tuples(st.sampled_from(BINARY), inner, inner),
        st.tuples(st.just("function"), inner),
        st.tuples(st.just("cond"), inner, inner, inner),
        st.tuples(st.just("map"), inner),
        st.tuples(st.just("loop"), inner, st.integers(0, 3)),
    ),
    max_leaves=8,
)


def evaluate(node: Any, x: Any, np_like: Any) -> Any:
    """A tree over ``x``; ``np_like`` is numpy or dsl."""
    if isinstance(node, float):
        return np.float32(node) + 0 * x
    if node == "x":
        return x
    kind, *parts = node
    plain = np_like is np
    if kind in UNARY or kind in BINARY:
        return getattr(np_like, kind)(*(evaluate(p, x, np_like) for p in parts))
    if kind == "function":
        f = (lambda v: evaluate(parts[0], v * np.float32(0.5), np_like)) if plain else None
        if f is not None:
            return f(x)
        return dsl.function(lambda v: evaluate(parts[0], v * np.float32(0.5), dsl))(x)
    if kind == "cond":
        condition = np_like.sum(evaluate(parts[0], x, np_like)) > 0
        if plain:
            return evaluate(parts[1] if condition else parts[2], x, np)
        return dsl.cond(condition, lambda: evaluate(parts[1], x, dsl), lambda: evaluate(parts[2], x, dsl))
    if kind == "map":
        if plain:
            return np.stack([evaluate(parts[0], v, np) for v in x]) if x.ndim else evaluate(parts[0], x, np)
        return dsl.map(lambda v: evaluate(parts[0], v, dsl), x) if x.ndim else evaluate(parts[0], x, dsl)
    inner, count = parts
    step = lambda v: np_like.tanh(v + evaluate(inner, x, np_like))  # noqa: E731
    if plain:
        value = x
        for _ in range(count):
            value = step(value)
        return value
    return dsl.fori(0, count, lambda _, v: step(v), x)


@settings(max_examples=15)
@given(tree)
def test_both_backends_agree(node: Any) -> None:
    values = np.float32([0.5, -1.25, 2.0])
    place = dsl.placeholder("x", "float32", ["n"])
    made = dsl.identity(evaluate(node, place, dsl)) + place * 0.0
    found, again = (ik.compile(made, backend=backend)(values) for backend in ("numpy", "onnxruntime"))
    scale = max(1.0, float(np.abs(found[np.isfinite(found)]).max(initial=0)))
    np.testing.assert_allclose(again, found, rtol=1e-3, atol=1e-4 * scale)


@settings(max_examples=15)
@given(tree)
def test_gradients_within_and_of_the_module_agree(node: Any) -> None:
    """Within the expression, against the module's own gradient."""
    place = dsl.placeholder("x", "float32", [3])
    made = dsl.sum(evaluate(node, place, dsl) + place * 0.0)
    values = np.float32([0.5, -1.25, 2.0])
    inside = ik.compile(dsl.gradients(made, place, allow_unused=True))(values)
    outside = ik.compile(ik.grad(dsl.to_module({"y": made}), "y", "x", allow_unused=True)).run({"x": values})["grad/x"]
    np.testing.assert_allclose(inside, outside, rtol=1e-4, atol=1e-5)
    assert ik.compile(dsl.hessian(made, place))(values).shape == (3, 3)


@settings(max_examples=25)
@given(tree, st.booleans())
def test_pure(node: Any, symbolic: bool) -> None:
    values = np.float32([0.5, -1.25, 2.0])
    place = dsl.placeholder("x", "float32", ["n"] if symbolic else [3])
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(evaluate(node, values, np), 3)
    made = evaluate(node, place, dsl)
    found = ik.compile(dsl.identity(made) + place * 0.0)(values)
    scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)
