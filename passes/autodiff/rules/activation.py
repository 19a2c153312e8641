"""Activations: the conventions at their corners are torch's."""

from __future__ import annotations

import math

import numpy as np

from irkit.dialects.ad.finite import is_finite
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import BY_NAME
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules.elementwise import bounded

proven_zero("Hardmax", "piecewise constant")


def _positive(g: Vjp, x: Tensor) -> Tensor:
    return g.b.Greater(x, g.const(0, x))


@bounded("Relu")
def relu(g: Vjp) -> Tensor:
    # 1 or 0, and 0 at 0. Two casts take a third of the time of a Sign on onnxruntime, and a tenth of a selection's.
    return g.float_of(g.b.Cast(g.y(), to=BY_NAME["bool"].code), g.ct)


@bounded("LeakyRelu")
def leaky_relu(g: Vjp) -> Tensor:
    return g.b.Where(_positive(g, g.x(0)), g.const(1), g.const(g.attr("alpha")))


@vjp("PRelu")
def prelu(g: Vjp) -> Gradients:
    b, x, slope = g.b, g.x(0), g.x(1)
    positive = _positive(g, x)
    return (
        b.Mul(g.ct, b.Where(positive, g.const(1), slope)) if g.needs(0) else None,
        g.unbroadcast(b.Mul(g.ct, b.Where(positive, g.const(0), x)), 1) if g.needs(1) else None,
    )


@bounded("ThresholdedRelu")
def thresholded_relu(g: Vjp) -> Tensor:
    return g.float_of(g.b.Greater(g.x(0), g.const(g.attr("alpha"))), g.ct)


@bounded("Shrink")
def shrink(g: Vjp) -> Tensor:
    return g.float_of(g.b.Greater(g.b.Abs(g.x(0)), g.const(g.attr("lambd"))), g.ct)


@bounded("Elu")
def elu(g: Vjp) -> Tensor:
    return g.b.Where(_positive(g, g.x(0)), g.const(1), g.b.Add(g.y(), g.const(g.attr("alpha"))))


@bounded("Celu")
def celu(g: Vjp) -> Tensor:
    low = g.b.Add(g.b.Mul(g.y(), g.const(1 / g.attr("alpha"))), g.const(1))
    return g.b.Where(_positive(g, g.x(0)), g.const(1), low)


@bounded("Selu")
def selu(g: Vjp) -> Tensor:
    alpha, gamma = g.attr("alpha"), g.attr("gamma")
    return g.b.Where(_positive(g, g.x(0)), g.const(gamma), g.b.Add(g.y(), g.const(gamma * alpha)))


@bounded("Sigmoid")
def sigmoid(g: Vjp) -> Tensor:
    return g.b.Mul(g.y(), g.b.Sub(g.const(1), g.y()))


@bounded("HardSigmoid")
def hard_sigmoid(g: Vjp) -> Tensor:
    b, y = g.b, g.y()
    inside = b.And(b.Greater(y, g.const(0)), b.Less(y, g.const(1)))
    return b.Mul(g.float_of(inside, g.ct), g.const(g.attr("alpha")))


@bounded("HardSwish")
def hard_swish(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    middle = b.Add(b.Mul(x, g.const(1 / 3)), g.const(0.5))
    upper = b.GreaterOrEqual(x, g.const(3))
    return b.Where(upper, g.const(1), b.Where(b.LessOrEqual(x, g.const(-3)), g.const(0), middle))


@bounded("Softplus")
def softplus(g: Vjp) -> Tensor:
    return g.b.Sigmoid(g.x(0))


@bounded("Softsign")
def softsign(g: Vjp) -> Tensor:
    root = g.b.Reciprocal(g.b.Add(g.b.Abs(g.x(0)), g.const(1)))
    return g.b.Mul(root, root)


@bounded("Mish")
def mish(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    t = b.Tanh(b.Softplus(x))
    return b.Add(t, b.Mul(b.Mul(x, b.Sub(g.const(1), b.Mul(t, t))), b.Sigmoid(x)))


@bounded("Gelu")
def gelu(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    if g.attr("approximate") == "tanh":
        c, cubic = math.sqrt(2 / math.pi), 0.044715
        square = b.Mul(x, x)
        t = b.Tanh(b.Mul(b.Mul(x, b.Add(b.Mul(square, g.const(cubic)), g.const(1))), g.const(c)))
        inner = b.Mul(b.Add(b.Mul(square, g.const(3 * cubic)), g.const(1)), g.const(0.5 * c))
        steep = b.Mul(b.Mul(x, b.Sub(g.const(1), b.Mul(t, t))), inner)
        return b.Add(b.Mul(b.Add(t, g.const(1)), g.const(0.5)), steep)
    below = b.Mul(b.Add(b.Erf(b.Mul(x, g.const(math.sqrt(0.5)))), g.const(1)), g.const(0.5))
    density = b.Mul(b.Exp(b.Mul(b.Mul(x, x), g.const(-0.5))), g.const(1 / math.sqrt(2 * math.pi)))
    return b.Add(below, b.Mul(x, density))


def _swish(g: Vjp, x: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """``x sigmoid(alpha x)`` and its derivative."""
    b = g.b
    scaled = x if alpha == 1 else b.Mul(x, g.const(alpha, x))
    s = b.Sigmoid(scaled)
    return b.Mul(x, s), b.Add(s, b.Mul(scaled, b.Mul(s, b.Sub(g.const(1, x), s))))


@bounded("Swish")
def swish(g: Vjp) -> Tensor:
    return _swish(g, g.x(0), g.attr("alpha"))[1]


@vjp("SwiGLU")
def swiglu(g: Vjp) -> Gradients:
    b = g.b
    value, slope = _swish(g, g.x(0), g.attr("alpha"))
    return (
        b.Mul(b.Mul(g.ct, g.x(1)), slope) if g.needs(0) else None,
        b.Mul(g.ct, value) if g.needs(1) else None,
    )


def _without_dead_rows(g: Vjp, weights: Tensor, axis: int) -> Tensor:
    """Weights of a softmax, 0 where all of its operands are -inf: the softmax itself is NaN there."""
    if is_finite(g.op.operands[0]):
        return weights
    b, x = g.b, g.x(0)
    dead = b.Equal(b.ReduceMax(x, g.i64([axis]), keepdims=1), g.const(-np.inf, x))
    return b.Where(dead, g.const(0, x), weights)


@vjp("Softmax")
def softmax(g: Vjp) -> Tensor:
    b, axis = g.b, g.attr("axis")
    y = _without_dead_rows(g, g.y(), axis)
    weighted = b.Mul(g.ct, y)
    return b.Sub(weighted, b.Mul(y, b.ReduceSum(weighted, g.i64([axis]), keepdims=1)))


@vjp("LogSoftmax")
def log_softmax(g: Vjp) -> Tensor:
    b, axis = g.b, g.attr("axis")
    total = b.ReduceSum(g.ct, g.i64([axis]), keepdims=1)
    weights = b.Exp(g.y())
    if is_finite(g.op.operands[0]):
        return b.Sub(g.ct, b.Mul(weights, total))
    # A row of -inf alone is NaN, whatever its operands: nothing depends on them.
    x = g.x(0)
    dead = b.Equal(b.ReduceMax(x, g.i64([axis]), keepdims=1), g.const(-np.inf, x))
    return b.Where(dead, g.const(0), b.Sub(g.ct, b.Mul(b.Where(dead, g.const(0), weights), total)))
