# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

"""Rules that work a factor and a summand per channel into the BatchNormalization before them (Caffe's Scale layer)."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.builder import Tensor
from irkit.passes.fusion.facts import is_per_channel, size
from irkit.passes.rules import Rule, attributes, constant, value

__all__ = ["RULES"]

X = value("float")


def normalized_and(op: str):
    """A BatchNormalization and a constant as the operands of another op: a pattern."""

    def pattern(
        b: Any, x=X, scale=value(), bias=value(), mean=value(), var=value(), k=constant(), *, attrs=attributes()
    ):
        return getattr(b, op)(b.BatchNormalization(x, scale, bias, mean, var, **attrs), k)

    return pattern


def factor_taken_up(b, x, scale, bias, mean, var, k, attrs):
    each = b.Reshape(k, np.array([-1]))
    return b.BatchNormalization(x, scale * each, bias * each, mean, var, **attrs)


def summand_taken_up(b, x, scale, bias, mean, var, k, attrs):
    return b.BatchNormalization(x, scale, bias + b.Reshape(k, np.array([-1])), mean, var, **attrs)


def fits(x: Tensor, scale: Tensor, bias: Tensor, k: Tensor, attrs: dict[str, Any]) -> bool:
    channels = size(scale, 0)
    return (
        x.rank is not None
        and channels is not None
        and size(bias, 0) == channels
        and scale.dtype is bias.dtype is k.dtype
        and is_per_channel(k, x.rank, channels)
        and not attrs.get("training_mode")
    )


_SAMPLES = [
    {"x": ["N", 4, 5, 6], "scale": [4], "bias": [4], "mean": [4], "var": np.array([0.5, 1.0, 2.0, 4.0]), "k": k}
    for k in ([1, 4, 1, 1], [4, 1, 1], [])
]

RULES = [
    Rule(name, normalized_and(op), taken_up, when=fits, precision="rounding", opset=9, samples=_SAMPLES)
    for name, op, taken_up in (
        ("factor-into-batch-norm", "Mul", factor_taken_up),
        ("summand-into-batch-norm", "Add", summand_taken_up),
    )
]
