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
    with pytest.raises(FeedError, match=r"'p \+ s' is 5 in input 'mask', expected 4\n  hint: 'p' is 3 in input 'past'"):
        run(one[3], one[1], one[5])


def test_generated_feeds_fit() -> None:
    feeds = random_feeds(attention_mask(), sizes={"p": 4, "s": 2})
    assert feeds["mask"].shape == (1, 6)
    assert ik.compile(attention_mask()).run(feeds)["y"].shape == (1, 6)
