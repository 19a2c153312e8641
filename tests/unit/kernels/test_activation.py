"""Activations against their formulas in plain Python floats, and at the edges."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


FORMULAS = {
    "Relu": ({}, lambda x: max(x, 0)),
    "Sigmoid": ({}, sigmoid),
    "Softplus": ({}, lambda x: math.log1p(math.exp(x))),
    "Softsign": ({}, lambda x: x / (1 + abs(x))),
    "HardSigmoid": ({"alpha": 0.25, "beta": 0.5}, lambda x: max(0, min(1, 0.25 * x + 0.5))),
    "HardSwish": ({}, lambda x: x * max(0, min(1, x / 6 + 0.5))),
    "Elu": ({"alpha": 1.5}, lambda x: 1.5 * math.expm1(x) if x < 0 else x),
    "Selu": ({"alpha": 1.5, "gamma": 2.0}, lambda x: 2 * (1.5 * math.expm1(x) if x <= 0 else x)),
    "Celu": ({"alpha": 0.5}, lambda x: max(0, x) + min(0, 0.5 * math.expm1(x / 0.5))),
    "LeakyRelu": ({"alpha": 0.25}, lambda x: 0.25 * x if x < 0 else x),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x: x if x > 1 else 0),
    "Mish": ({}, lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    "Gelu": ({}, lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    "Swish": ({"alpha": 2.0}, lambda x: x * sigmoid(2 * x)),
}


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(op, name, dtype):
    attributes, formula = FORMULAS[name]
    for x in (np.linspace(-9, 9, 37).reshape(37, 1), np.array(-1.25), np.zeros((0, 2)), np.array([1e-6, -1e-6, 30.0])):
        x = x.astype(dtype)
        result = op(name, x, **attributes)
        assert result.dtype == dtype
        assert result.shape == x.shape
        expected = np.array([formula(float(v)) for v in x.ravel()]).reshape(x.shape)
        eps = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(result.astype(np.float64), expected, rtol=8 * eps, atol=2 * eps)


def test_gelu_tanh(op):
    x = np.linspace(-4, 4, 17)
    expected = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x]
    np.testing.assert_allclose(op("Gelu", x, approximate="tanh"), expected, rtol=1e-13, atol=1e-15)
    with pytest.raises(KernelError, match="approximate"):
        op("Gelu", x, approximate="quick")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Relu", [NAN, INF, 0]),
        ("Sigmoid", [NAN, 1, 0]),
        ("Softplus", [NAN, INF, 0]),
        ("HardSigmoid", [NAN, 1, 0]),
        ("Elu", [NAN, INF, -1]),
        ("LeakyRelu", [NAN, INF, -INF]),
        ("ThresholdedRelu", [0, INF, 0]),
        ("Gelu", [NAN, INF, NAN]),
        ("Swish", [NAN, INF, NAN]),
        ("Shrink", [0, INF, -INF]),
    ],
)
def test_nan_and_infinities(op, name, expected):
    np.testing.assert_array_equal(op(name, np.array([NAN, INF, -INF], np.float32)), np.array(expected, np.float32))


def test_large_values_do_not_overflow(op):
    x = np.array([1e4, -1e4], np.float32)
    np.testing.assert_array_equal(op("Sigmoid", x), [1, 0])
    np.testing.assert_array_equal(op("Softplus", x), [1e4, 0])
    np.testing.assert_array_equal(op("Mish", x), [1e4, 0])
    assert op("Elu", np.array(1e-30, np.float32)).item() == np.float32(1e-30)
    np.testing.assert_allclose(op("Elu", np.array(-1e-10)), math.expm1(-1e-10), rtol=1e-15)


def test_integer_relu_and_prelu(op):
    result = op("Relu", np.array([-128, 5], np.int8))
    assert result.dtype == np.int8
    assert result.tolist() == [0, 5]
    result = op("PRelu", np.array([[-3, 4], [-5, 6]], np.int32), np.array([2, 10], np.int32))
    assert result.dtype == np.int32
    assert result.tolist() == [[-6, 4], [-10, 6]]
    result = op("PRelu", np.array([-3, 4], BF16), np.array(0.5, BF16))
    assert result.dtype == BF16
    assert result.astype(float).tolist() == [-1.5, 4]


def test_prelu_slope_broadcasts_one_way(op):
    with pytest.raises(KernelError, match="slope"):
        op("PRelu", np.ones(3, np.float32), np.ones((2, 3), np.float32))


def test_swiglu(op):
    a, b = np.array([1.0, -2.0]), np.array([3.0, 0.5])
    expected = [1 * sigmoid(2.0) * 3, -2 * sigmoid(-4.0) * 0.5]
    np.testing.assert_allclose(op("SwiGLU", a, b, alpha=2.0), expected, rtol=1e-15)
    with pytest.raises(KernelError, match="same shape"):
        op("SwiGLU", a, np.array(1.0), alpha=1.0)


def test_shrink(op):
    x = np.array([-2, -1, 0, 1, 2])
    for dtype in (np.int8, np.int64, np.float16, np.float32):
        result = op("Shrink", x.astype(dtype), lambd=1.0, bias=1.0)
        assert result.dtype == dtype
        assert result.tolist() == [-1, 0, 0, 0, 1]
    assert op("Shrink", np.array([0, 1, 3], np.uint8), lambd=0.5, bias=2.0).tolist() == [0, 255, 1]


def test_celu_refuses_alpha_zero(op):
    with pytest.raises(KernelError, match="alpha"):
        op("Celu", np.ones(1, np.float32), alpha=0.0)
