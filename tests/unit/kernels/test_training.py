"""The optimizers of ai.onnx.preview.training against scalar pseudo-code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

DOMAIN = "ai.onnx.preview.training"


def adagrad(r, t, x, g, h, a):
    g = a["norm_coefficient"] * x + g
    h = h + g * g
    return x - r / (1 + t * a["decay_factor"]) * g / (math.sqrt(h) + a["epsilon"]), h


def adam(r, t, x, g, v, h, a):
    g = a["norm_coefficient"] * x + g
    v = a["alpha"] * v + (1 - a["alpha"]) * g
    h = a["beta"] * h + (1 - a["beta"]) * g * g
    if t > 0:
        r = r * math.sqrt(1 - a["beta"] ** t) / (1 - a["alpha"] ** t)
    x = x - r * v / (math.sqrt(h) + a["epsilon"])
    return (1 - a["norm_coefficient_post"]) * x, v, h


def momentum(r, t, x, g, v, a):
    g = a["norm_coefficient"] * x + g
    v = a["alpha"] * v + (a["beta"] if t > 0 else 1) * g
    return x - r * (g + a["alpha"] * v if a["mode"] == "nesterov" else v), v


CASES = [
    ("Adagrad", adagrad, 1, {"norm_coefficient": 0.1, "decay_factor": 0.5, "epsilon": 1e-3}),
    (
        "Adam",
        adam,
        2,
        {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2, "alpha": 0.8, "beta": 0.9, "epsilon": 1e-3},
    ),
    ("Momentum", momentum, 1, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "standard"}),
    ("Momentum", momentum, 1, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"}),
]


@pytest.mark.parametrize(
    ("name", "plain", "states", "attributes"), CASES, ids=["adagrad", "adam", "standard", "nesterov"]
)
@pytest.mark.parametrize("t", [0, 1, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_tensors(op, name, plain, states, attributes, t, dtype):
    rng = np.random.default_rng(9)
    shapes = [(2, 3), ()]
    groups = [[rng.random(shape) + 0.5 for shape in shapes] for _ in range(states + 2)]
    inputs = [x.astype(dtype) for group in groups for x in group]
    # A learning rate in float64 must not change the type of the tensors.
    result = op(name, np.array(0.1), np.array(t), *inputs, domain=DOMAIN, **attributes)
    assert len(result) == len(shapes) * (states + 1)
    for i, shape in enumerate(shapes):
        expected = [np.zeros(shape) for _ in range(states + 1)]
        for index in np.ndindex(*shape):
            values = plain(0.1, t, *(float(group[i][index]) for group in groups), attributes)
            for array, value in zip(expected, values, strict=True):
                array[index] = value
        for k, array in enumerate(expected):
            got = result[k * len(shapes) + i]
            assert got.dtype == dtype
            assert got.shape == shape
            np.testing.assert_allclose(got, array, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_refusals(op):
    one, zero = np.array(1.0), np.array(0)
    x = np.ones(2)
    for name, inputs, attributes, message in (
        ("Adagrad", (one, zero, x, x), {}, "multiple of 3"),
        ("Adam", (one, zero), {}, "multiple of 4"),
        ("Adagrad", (one, zero, x, x, np.ones(3)), {}, r"float64\[3\]"),
        ("Adagrad", (x, zero, x, x, x), {}, "R must have exactly one element"),
        (
            "Momentum",
            (one, zero, x, x, x),
            {"mode": "other", "alpha": 0.1, "beta": 0.1, "norm_coefficient": 0.0},
            "mode",
        ),
    ):
        with pytest.raises(KernelError, match=message):
            op(name, *inputs, domain=DOMAIN, **attributes)
