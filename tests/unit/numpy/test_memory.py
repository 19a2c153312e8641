"""Memory of runs: never much above what must be live, on real networks and on random graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import compile
from tests.corpus.light import light_feeds, light_model

MOST = 1.3


def test_a_chain() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [1000])
    y: Any = x
    for _ in range(5):
        y = b.Sqrt(b.Abs(y))
    b.output(y, "y")
    memory = compile(b.module()).memory({"x": np.ones(1000, np.float32)})
    # One by one, an op's operand and its result are there at once.
    assert memory.bound == 8000
    assert memory.peak == 4000
    assert memory.ratio == 0.5


def test_views_and_feeds_take_nothing() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [10, 10])
    b.output(b.Transpose(b.Reshape(x, np.array([4, 25]))), "y")
    memory = compile(b.module()).memory({"x": np.ones((10, 10), np.float32)})
    assert (memory.peak, memory.bound, memory.ratio) == (0, 0, 1.0)


def test_a_part_does_not_keep_the_whole() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [1000])
    part = b.Slice(b.MatMul(x, np.ones((1000, 500), np.float32)), np.array([0]), np.array([10]))
    b.output(b.Concat(part, b.Add(x, x), axis=0), "y")
    memory = compile(b.module()).memory({"x": np.ones(1000, np.float32)})
    # At the end there are the slice of 10, the sum of 1000 and their concatenation.
    assert memory.peak == memory.bound == 4 * (10 + 1000 + 1010)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_light_models(name: str) -> None:
    model = light_model(name)
    memory = compile(ik.load(model)).memory(light_feeds(model))
    assert memory.bound > 1 << 20
    assert memory.ratio <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "resnet50", "inception_v1", "inception_v2"])
def test_large_light_models(name: str) -> None:
    model = light_model(name)
    assert compile(ik.load(model)).memory(light_feeds(model)).ratio <= MOST


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    """Graphs of elementwise ops, products, convolutions and views, with values that are read late and again."""
    rng = np.random.default_rng(seed)
    b = ik.Builder()
    values: list[Any] = [b.input("x", "float32", [1, 8, 8, 8])]
    filters = b.initializer(rng.standard_normal((8, 8, 3, 3), np.float32), "w")
    matrix = b.initializer(rng.standard_normal((8, 8), np.float32), "m")

    def pick() -> Any:
        return values[-1 - min(int(rng.geometric(0.5)) - 1, len(values) - 1)]

    for _ in range(25):
        match int(rng.integers(8)):
            case 0:
                made = b.Conv(pick(), filters, pads=[1, 1, 1, 1])
            case 1:
                made = b.MatMul(pick(), matrix)
            case 2 | 3:
                made = b.Tanh(pick())
            case 4 | 5:
                made = pick() + pick()
            case 6:
                made = b.Reshape(b.Transpose(pick(), perm=[0, 2, 1, 3]), np.array([1, 8, 8, 8]))
            case _:
                made = b.Slice(b.Concat(pick(), pick(), axis=1), np.array([4]), np.array([12]), np.array([1]))
        values.append(made)
    b.output(b.Tanh(values[-1]), "y")
    f = compile(b.module())
    memory = f.memory({"x": rng.standard_normal((1, 8, 8, 8), np.float32)})
    assert memory.ratio <= MOST
