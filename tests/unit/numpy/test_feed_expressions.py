"""Sizes of inputs that are declared as expressions of other sizes."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.errors import FeedError
from irkit.verify import random_feeds


def attention_mask() -> ik.Module:
    b = ik.Builder()
    past, new = b.input("past", "float32", [1, "p"]), b.input("new", "float32", [1, "s"])
    b.output(b.Concat(past, new, axis=1) * b.input("mask", "float32", [1, "p + s"]), "y")
    return b.module()


def test_they_are_checked() -> None:
    run = ik.compile(attention_mask())
    one = {n: np.ones((1, n), np.float32) for n in range(6)}
    assert run(one[3], one[1], one[4]).shape == (1, 4)
    with pytest.raises(FeedError, match=r"input 'mask': 'p \+ s' is 5, expected 4\n  hint: 'p' is 3, 's' is 1"):
        run(one[3], one[1], one[5])


def test_generated_feeds_fit() -> None:
    feeds = random_feeds(attention_mask(), sizes={"p": 4, "s": 2})
    assert feeds["mask"].shape == (1, 6)
    assert ik.compile(attention_mask()).run(feeds)["y"].shape == (1, 6)


def lone(*sizes: str) -> ik.Module:
    b = ik.Builder()
    for index, size in enumerate(sizes):
        b.output(b.Relu(b.input(f"x{index}", "float32", [size])), f"y{index}")
    return b.module()


@pytest.mark.parametrize(
    ("size", "good", "bad"), [("2*n", 4, 3), ("n + 3", 3, 2), ("n//2 + 1", 1, 0), ("5 - n", 5, 6), ("a*b + 1", 1, 0)]
)
def test_a_size_that_no_symbol_makes_is_refused(size: str, good: int, bad: int) -> None:
    run = ik.compile(lone(size))
    assert run(np.ones(good, np.float32)).shape == (good,)
    with pytest.raises(FeedError, match=rf"'{size.replace('*', '.').replace('+', '.')}' cannot be {bad}"):
        run(np.ones(bad, np.float32))


def test_symbols_are_found_from_expressions() -> None:
    run = ik.compile(lone("n + m", "2*n", "m"))
    ones = [np.ones(n, np.float32) for n in range(9)]
    assert [y.shape for y in run(ones[5], ones[4], ones[3])] == [(5,), (4,), (3,)]
    with pytest.raises(FeedError, match=r"'2\*n' is 6, expected 4"):
        run(ones[5], ones[6], ones[3])
