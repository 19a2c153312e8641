"""Rules that make one Softmax, LogSoftmax or loss of its parts."""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.builder import Tensor
from irkit.passes.fusion.facts import axis_of
from irkit.passes.rules import Precision, Rule, constant, value

__all__ = ["RULES"]

X = value("float")
AXES = constant("int64")


def softmax_of_parts(b: Any, x=X, axes=AXES):
    e = b.Exp(x - b.ReduceMax(x, axes))
    return e / b.ReduceSum(e, axes)


def softmax_unshifted(b: Any, x=X, axes=AXES):
    e = b.Exp(x)
    return e / b.ReduceSum(e, axes)


def log_softmax_of_parts(b: Any, x=X, axes=AXES):
    d = x - b.ReduceMax(x, axes)
    return d - b.Log(b.ReduceSum(b.Exp(d), axes))


def log_softmax_of_sum(b: Any, x=X, axes=AXES):
    return x - b.ReduceLogSumExp(x, axes)


def softmax(b: Any, x, axes):
    return b.Softmax(x, axis=axis_of(axes, x.rank))


def log_softmax(b: Any, x, axes):
    return b.LogSoftmax(x, axis=axis_of(axes, x.rank))


def log_of_softmax(b: Any, x=X, *, axis):
    return b.Log(b.Softmax(x, axis=axis))


def one_axis(x: Tensor, axes: Tensor) -> bool:
    return axis_of(axes, x.rank) is not None


def cross_entropy(b: Any, x=X, labels=value(), weights=value(optional=True), *, reduction, ignore_index):
    return b.NegativeLogLikelihoodLoss(
        b.LogSoftmax(x, axis=1), labels, weights, reduction=reduction, ignore_index=ignore_index
    )


_AXES = [{"x": ["N", 3, 4], "axes": np.array([-1])}, {"x": ["N", 3], "axes": np.array([0])}]

_PARTS: list[tuple[str, Any, Any, Precision]] = [
    ("softmax", softmax_of_parts, softmax, "rounding"),
    ("softmax-unshifted", softmax_unshifted, softmax, "fast-math"),
    ("log-softmax", log_softmax_of_parts, log_softmax, "rounding"),
    ("log-softmax-of-sum", log_softmax_of_sum, log_softmax, "fast-math"),
]

RULES = [
    *(
        Rule(name, parts, whole, when=one_axis, precision=precision, opset=13, samples=_AXES)
        for name, parts, whole, precision in _PARTS
    ),
    Rule(
        "log-of-softmax",
        log_of_softmax,
        lambda b, x, axis: b.LogSoftmax(x, axis=axis),
        precision="fast-math",
        opset=13,
        samples=[{"x": ["N", 3, 4], "axis": 1}],
    ),
    Rule(
        "cross-entropy",
        cross_entropy,
        lambda b, x, labels, weights, reduction, ignore_index: b.SoftmaxCrossEntropyLoss(
            x, labels, weights, reduction=reduction, ignore_index=ignore_index
        ),
        precision="rounding",
        opset=13,
        samples=[
            {"x": [3, 4], "labels": np.array([0, 3, 1]), "reduction": "mean"},
            {"x": [3, 4], "labels": np.array([0, 3, 1]), "reduction": "sum", "weights": [4]},
            {"x": [2, 4, 3], "labels": np.array([[0, 3, 1], [2, 2, 0]]), "reduction": "none", "ignore_index": 2},
        ],
    ),
]
