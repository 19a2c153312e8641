"""Arithmetic on symbolic sizes agrees with arithmetic on the numbers that symbols stand for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from irkit.ir import dims
from irkit.ir.types import Dim

SYMBOLS = ("a", "b", "seq len", "3")
RULES: dict[Callable[[Dim, Dim], Dim], Callable[[int, int], int]] = {
    dims.add: operator.add,
    dims.sub: operator.sub,
    dims.mul: operator.mul,
    dims.maximum: max,
    dims.minimum: min,
    dims.floordiv: operator.floordiv,
    dims.mod: operator.mod,
}

Both = tuple[Dim, int]


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Dim, int, dict[str, int]]:
    """An expression, and its value at the sizes that go with it."""
    sizes = {symbol: draw(st.integers(0, 9)) for symbol in SYMBOLS}
    leaves = st.one_of(st.integers(-5, 8), st.sampled_from(SYMBOLS))
    drawn = draw(st.lists(leaves, min_size=2, max_size=5))
    found: list[Both] = [(leaf, sizes[leaf] if isinstance(leaf, str) else leaf) for leaf in drawn]
    for _ in range(draw(st.integers(1, 6))):
        rule = draw(st.sampled_from(list(RULES)))
        (a, x), (b, y) = draw(st.sampled_from(found)), draw(st.sampled_from(found))
        assume(y != 0 or rule not in (dims.floordiv, dims.mod))
        made = rule(a, b)
        assume(made is not None)
        found.append((made, RULES[rule](x, y)))
    return *found[-1], sizes


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_values_agree(drawn: tuple[Dim, int, dict[str, int]]) -> None:
    made, value, sizes = drawn
    found = dims.evaluate(made, sizes)
    # A quotient by what is 0 in part of an expression has no value.
    assert found is None or found == value
    low, high = dims.bounds(made)
    assert low is None or low <= value
    assert high is None or value <= high


@settings(max_examples=150, deadline=None)
@given(expressions())
def test_a_text_is_what_it_is_read_as(drawn: tuple[Dim, int, dict[str, int]]) -> None:
    made, _, _ = drawn
    assert dims.add(made, 0) == made
    assert dims.sub(made, made) == 0
    if isinstance(made, str):
        assert set(dims.symbols_in(made)) <= set(SYMBOLS)
        assert dims.substitute(made, {s: s for s in SYMBOLS}) == made


@settings(max_examples=150, deadline=None)
@given(expressions(), st.sampled_from(SYMBOLS))
def test_division_undoes_multiplication(drawn: tuple[Dim, int, dict[str, int]], symbol: str) -> None:
    made, _, _ = drawn
    product = dims.mul(made, symbol)
    assume(product is not None)
    assert dims.exact_div(product, symbol) == made


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (dims.add("n", 1), "n + 1"),
        (dims.add(dims.mul(2, "seq"), 1), "2*seq + 1"),
        (dims.mul("s", dims.add("b", 2)), "b*s + 2*s"),
        (dims.floordiv(dims.add("n", 1), 2), "(n + 1)//2"),
        (dims.floordiv(dims.add(dims.floordiv(dims.add("n", 1), 2), 1), 2), "(n + 3)//4"),
        (dims.floordiv(dims.mul(dims.mul("b", "s"), 12), "s"), "12*b"),
        (dims.mod(dims.add(dims.mul(4, "n"), "m"), 4), "m%4"),
        (dims.maximum("n", 0), "n"),
        (dims.maximum(dims.sub("n", 1), 0), "max(0, n - 1)"),
        (dims.minimum("n", dims.add("n", 3)), "n"),
        (dims.add("b + a", 0), "a + b"),
        (dims.add("Max(1, s0)", 0), "max(1, s0)"),
        (dims.sub(dims.add("batch size", 1), 1), "batch size"),
        (dims.add("batch size", 1), "'batch size' + 1"),
        (dims.add("'batch size' + 1", 1), "'batch size' + 2"),
        (dims.add("3", 1), "'3' + 1"),
        (dims.sub("n", "n"), 0),
        (dims.mul("n", 0), 0),
        (dims.mul(None, 0), 0),
        (dims.add("n", None), None),
        (dims.floordiv("n", 0), None),
        (dims.exact_div(dims.add("n", 1), 2), None),
        (dims.product(["a", "b", 3]), "3*a*b"),
    ],
)
def test_spelling(made: Dim, text: Any) -> None:
    assert made == text


def test_what_grows_without_end_is_given_up() -> None:
    size: Dim = 1
    for index in range(40):
        size = dims.mul(size, dims.add(f"s{index}", 1))
    assert size is None
    size = "n"
    for index in range(40):
        size = dims.mod(dims.mul(size, "m"), f"s{index}")
    assert size is None
