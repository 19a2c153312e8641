"""Rules that make one activation of the arithmetic that exporters write for it."""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from irkit.passes.rules import Rule, item, near, scalar, value

__all__ = ["RULES"]

X = value("float")
ROOT = math.sqrt(2 / math.pi)

# Gelu. Half of it stands in three places, x / sqrt(2) is also written as a product, and the cube in three ways.


def half_last(b: Any, x: Any, g: Any) -> Any:
    return x * g * 0.5


def half_of_factor(b: Any, x: Any, g: Any) -> Any:
    return x * (g * 0.5)


def half_of_x(b: Any, x: Any, g: Any) -> Any:
    return (x * 0.5) * g


def erf_of_quotient(b: Any, x: Any) -> Any:
    return b.Erf(x / near(math.sqrt(2))) + 1


def erf_of_product(b: Any, x: Any) -> Any:
    return b.Erf(x * near(math.sqrt(0.5))) + 1


def tanh_of_power(b: Any, x: Any) -> Any:
    return b.Tanh((x + b.Pow(x, 3) * near(0.044715)) * near(ROOT)) + 1


def tanh_of_product(b: Any, x: Any) -> Any:
    return b.Tanh((x + x * x * x * near(0.044715)) * near(ROOT)) + 1


def tanh_of_factored(b: Any, x: Any) -> Any:
    return b.Tanh(x * near(ROOT) * (x * (x * near(0.044715)) + 1)) + 1


def _gelu(halves: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    def pattern(b: Any, x=X):
        return halves(b, x, inner(b, x))

    return pattern


HALVES = (half_last, half_of_factor, half_of_x)
GELU = [
    Rule(
        "gelu",
        _gelu(halves, inner),
        lambda b, x: b.Gelu(x),
        precision="rounding",
        opset=20,
    )
    for halves in HALVES
    for inner in (erf_of_quotient, erf_of_product)
]
# The cube of a large x is infinite; Gelu's function body has the same.
GELU_TANH = [
    Rule(
        "gelu-tanh",
        _gelu(halves, inner),
        lambda b, x: b.Gelu(x, approximate="tanh"),
        precision="rounding",
        opset=20,
    )
    for halves in HALVES
    for inner in (tanh_of_power, tanh_of_product, tanh_of_factored)
]


# Sigmoids


def reciprocal_sigmoid(b: Any, x=X):
    return b.Reciprocal(b.Exp(b.Neg(x)) + 1)


def quotient_sigmoid(b: Any, x=X):
    return 1 / (b.Exp(b.Neg(x)) + 1)


def swish(b: Any, x=X):
    return x * b.Sigmoid(x)


def swish_of_scaled(b: Any, x=X, alpha=scalar()):
    return x * b.Sigmoid(x * alpha)


SINGLE = value(("float16", "bfloat16", "float32"))
"""Element types in which 1 / 6 as an attribute, which is a float32, is as good as the quotient."""


def hard_swish(b: Any, x=SINGLE):
    return x * b.HardSigmoid(x, alpha=1 / 6, beta=0.5)


def hard_swish_by_quotient(b: Any, x=SINGLE):
    return x * b.Clip(x + 3, 0, 6) / 6


def hard_swish_by_product(b: Any, x=SINGLE):
    return x * (b.Clip(x + 3, 0, 6) * near(1 / 6))


def hard_swish_of_quotient(b: Any, x=SINGLE):
    return x * (b.Clip(x + 3, 0, 6) / 6)


def mish(b: Any, x=X):
    return x * b.Tanh(b.Softplus(x))


def softplus(b: Any, x=X):
    return b.Log(b.Exp(x) + 1)


def relu_by_max(b: Any, x=X):
    return b.Max(x, 0)


def relu_by_clip(b: Any, x=X):
    return b.Clip(x, 0)


RULES = [
    *GELU,
    *GELU_TANH,
    *(
        Rule("sigmoid", pattern, lambda b, x: b.Sigmoid(x), precision="rounding")
        for pattern in (reciprocal_sigmoid, quotient_sigmoid)
    ),
    Rule("swish", swish, lambda b, x: b.Swish(x), precision="rounding", opset=24),
    Rule(
        "swish-of-scaled",
        swish_of_scaled,
        lambda b, x, alpha: b.Swish(x, alpha=float(item(alpha))),
        precision="rounding",
        opset=24,
        samples=[{"x": ["N", 3], "alpha": 1.5}, {"x": [], "alpha": -0.25}],
    ),
    Rule("hard-swish", hard_swish, lambda b, x: b.HardSwish(x), precision="rounding", opset=14),
    *(
        Rule(
            "hard-swish",
            pattern,
            lambda b, x: b.HardSwish(x),
            precision="rounding",
            opset=14,
            keeps_gradients=False,
        )
        for pattern in (hard_swish_by_quotient, hard_swish_by_product, hard_swish_of_quotient)
    ),
    Rule("mish", mish, lambda b, x: b.Mish(x), precision="rounding", opset=18),
    Rule("softplus", softplus, lambda b, x: b.Softplus(x), precision="fast-math"),
    *(
        Rule("relu", pattern, lambda b, x: b.Relu(x), precision="rounding", keeps_gradients=False)
        for pattern in (relu_by_max, relu_by_clip)
    ),
]
