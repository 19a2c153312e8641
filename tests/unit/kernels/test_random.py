"""Random ops: types, reproducibility, moments, and what they refuse."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError
from irkit.ir.dtypes import dtype

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def code(name: str) -> int:
    return dtype(name).code


@pytest.mark.parametrize("name", FLOATS)
def test_normal_and_uniform(op, name):
    normal = op("RandomNormal", shape=(200, 100), dtype=code(name), mean=3.0, scale=2.0)
    assert normal.dtype == dtype(name).numpy
    assert normal.shape == (200, 100)
    values = normal.astype(np.float64)
    assert abs(values.mean() - 3) < 0.06
    assert abs(values.std() - 2) < 0.05
    # The share of a normal distribution within one deviation.
    assert abs(np.mean(np.abs(values - 3) < 2) - 0.6827) < 0.015
    uniform = op("RandomUniform", shape=(20000,), dtype=code(name), low=-1.0, high=3.0).astype(np.float64)
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    assert abs(uniform.mean() - 1) < 0.04
    assert abs(uniform.var() - 16 / 12) < 0.04


def test_runs_repeat_and_seeds_differ(op):
    def draw(**options):
        return op("RandomNormal", shape=(8,), **options).tolist()

    assert draw() == draw() != draw(seed_of_run=1)
    assert draw(seed=5.0) == draw(seed=5.0, seed_of_run=1) != draw(seed=6.0)
    assert draw(seed=0.5) == draw(seed=0.5) != draw(seed=-0.5)


def test_like(op):
    x = np.zeros((2, 0, 3), BF16)
    assert op("RandomNormalLike", x).dtype == BF16
    assert op("RandomUniformLike", x, dtype=code("float64")).dtype == np.float64
    assert op("RandomUniformLike", x).shape == (2, 0, 3)
    assert op("RandomUniformLike", np.array("word", object), dtype=code("float32")).shape == ()
    with pytest.raises(KernelError, match="float type"):
        op("RandomNormalLike", np.zeros(2, np.int32))


def test_memory_is_asked_for_first(op):
    with pytest.raises(MemoryError):
        op("RandomUniform", shape=(2**40, 2**40))
    with pytest.raises(KernelError, match="negative"):
        op("RandomUniform", shape=(2, -1))


@pytest.mark.parametrize("name", [*FLOATS, "int8", "uint64", "bool"])
def test_bernoulli(op, name):
    x = np.array([0.0, 1.0, 0.3])[:, None].repeat(4000, axis=1).astype(np.float32)
    result = op("Bernoulli", x, dtype=code(name))
    assert result.dtype == dtype(name).numpy
    means = result.astype(np.float64).mean(axis=1)
    assert means[0] == 0
    assert means[1] == 1
    assert abs(means[2] - 0.3) < 0.03
    assert op("Bernoulli", x[:, :1].astype(np.float16)).dtype == np.float16


@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan])
def test_bernoulli_refuses_what_is_no_probability(op, bad):
    with pytest.raises(KernelError, match=r"index \[1\]"):
        op("Bernoulli", np.array([0.5, bad]))


def test_multinomial(op):
    shares = [[0.2, 0.0, 0.5, 0.3], [7.0, 0.0, 0.0, 0.0]]
    logits = np.array([[math.log(5 * p) if p else -math.inf for p in row] for row in shares])
    result = op("Multinomial", logits, sample_size=5000)
    assert result.dtype == np.int32
    assert result.shape == (2, 5000)
    found = np.bincount(result[0], minlength=4) / 5000
    np.testing.assert_allclose(found, shares[0], atol=0.03)
    assert found[1] == 0
    assert not result[1].any()
    assert op("Multinomial", np.zeros((0, 3), np.float16), dtype=code("int64")).dtype == np.int64
    assert op("Multinomial", np.array([[1000.0, -1000.0]], np.float32), sample_size=3).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[np.nan, 0]], "log-prob"),
        ([[np.inf, 0]], "log-prob"),
        ([[-np.inf] * 2], "log-prob"),
        ([[]], "class"),
        ([0.0], "shape"),
    ],
)
def test_multinomial_refuses(op, logits, message):
    with pytest.raises(KernelError, match=message):
        op("Multinomial", np.array(logits, np.float64))


@pytest.mark.parametrize("name", [*FLOATS, "float8_e5m2"])
def test_dropout(op, name):
    x = np.ones((100, 100)).astype(dtype(name).numpy)
    true = np.array(True)
    y, mask = op("Dropout", x, np.array(0.5, np.float32), true, n_out=2)
    assert y.dtype == x.dtype
    assert mask.dtype == bool
    np.testing.assert_array_equal(y.astype(float), mask * 2.0)
    assert abs(mask.mean() - 0.5) < 0.03
    y, mask = op("Dropout", x, np.array(0.25, np.float64), n_out=2)
    assert mask.all()
    assert y.tobytes() == x.tobytes()
    y, mask = op("Dropout", x, np.array(0.0, np.float32), true, n_out=2)
    assert mask.all()
    assert y.tobytes() == x.tobytes()


def test_dropout_of_the_seed_attribute(op):
    # The stream that the op's own node tests use.
    state = np.random.RandomState(3)
    expected = (state.uniform(0, 1, (4, 5)) >= 0.5) * 2.0
    result = op("Dropout", np.ones((4, 5), np.float32), None, np.array(True), seed=3)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("ratio", [1.0, -0.5, np.nan])
def test_dropout_refuses(op, ratio):
    with pytest.raises(KernelError, match="ratio"):
        op("Dropout", np.ones(2), np.array(ratio), np.array(True))
