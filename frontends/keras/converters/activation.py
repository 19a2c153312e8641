"""Activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.frontends.keras.converters.elementwise import formula
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.values import Value, place
from irkit.ir.builder import Builder, Tensor

formula("Relu")(lambda b, op, x: b.Relu(x))
formula("Relu6")(lambda b, op, x: b.Clip(x, _like(b, x, 0), _like(b, x, 6)))
formula("Softplus")(lambda b, op, x: b.Softplus(x))
formula("Softsign")(lambda b, op, x: b.Softsign(x))
formula("Mish")(lambda b, op, x: b.Mish(x))
formula("Silu")(lambda b, op, x: b.Mul(x, b.Sigmoid(x)))
formula("LogSigmoid")(lambda b, op, x: b.Neg(b.Softplus(b.Neg(x))))
formula("LeakyRelu")(lambda b, op, x: b.LeakyRelu(x, alpha=float(op.negative_slope)))
formula("HardSigmoid")(lambda b, op, x: b.HardSigmoid(x, alpha=1 / 6, beta=0.5))
formula("HardSilu")(lambda b, op, x: b.HardSwish(x))
formula("Elu")(lambda b, op, x: b.Elu(x, alpha=float(op.alpha)))
formula("Selu")(lambda b, op, x: b.Selu(x))
formula("Celu")(lambda b, op, x: b.Celu(x, alpha=float(op.alpha)))
formula("Gelu")(lambda b, op, x: b.Gelu(x, approximate="tanh" if op.approximate else "none"))
formula("TanhShrink")(lambda b, op, x: b.Sub(x, b.Tanh(x)))
formula("HardTanh")(lambda b, op, x: b.Clip(x, _like(b, x, -1), _like(b, x, 1)))
formula("HardShrink")(lambda b, op, x: b.Where(b.Greater(b.Abs(x), float(op.threshold)), x, _like(b, x, 0)))
formula("SoftShrink")(lambda b, op, x: b.Shrink(x, lambd=float(op.threshold), bias=float(op.threshold)))
formula("Threshold")(lambda b, op, x: b.Where(b.Greater(x, float(op.threshold)), x, _like(b, x, op.default_value)))
formula("SparseSigmoid")(lambda b, op, x: b.HardSigmoid(x, alpha=0.5, beta=0.5))
formula("Squareplus")(lambda b, op, x: b.Mul(b.Add(x, b.Sqrt(b.Add(b.Mul(x, x), float(op.b)))), 0.5))


def _like(b: Builder, x: Tensor, value: float) -> Tensor:
    return b.CastLike(value, x) if x.dtype is None else b.constant(np.asarray(value, x.dtype.numpy))


@formula("SparsePlus")
def sparse_plus(b: Builder, op: Any, x: Tensor) -> Tensor:
    """0 up to -1, x from 1 on, and (x + 1)^2 / 4 between them."""
    near = b.Add(x, 1.0)
    middle = b.Mul(b.Mul(near, near), 0.25)
    return b.Where(b.LessOrEqual(x, -1.0), _like(b, x, 0), b.Where(b.Less(x, 1.0), middle, x))


@converter("ReLU")
def relu_with_bounds(c: Emitter, op: Any, x: Any) -> Value:
    """The operation that ``keras.activations.relu`` makes, with slope, threshold and maximum."""
    slope, threshold, highest = op.negative_slope or 0.0, op.threshold or 0.0, op.max_value

    def make(t: Tensor) -> Tensor:
        b = c.b
        if threshold == 0 and slope == 0:
            return b.Relu(t) if highest is None else b.Clip(t, _like(b, t, 0), _like(b, t, highest))
        if threshold == 0 and highest is None:
            return b.LeakyRelu(t, alpha=float(slope))
        above = t if highest is None else b.Min(t, _like(b, t, highest))
        below = b.Mul(b.Sub(t, _like(b, t, threshold)), float(slope)) if slope else _like(b, t, 0)
        keeps = b.GreaterOrEqual(t, _like(b, t, threshold)) if slope else b.Greater(t, _like(b, t, threshold))
        return b.Where(keeps, above, below)

    return c.spread(make, x, dtype=c.out.dtype)


@converter("Softmax", "LogSoftmax")
def softmax(c: Emitter, op: Any, x: Any) -> Any:
    """Softmax over an axis; over several they are made one, at the end."""
    if op.axis is None:
        flat = c.b.op(op.kind, c.b.Reshape(c.get(x), np.array([-1])), axis=0)
        return c.b.Reshape(flat, c.vector(x.shape))
    if isinstance(op.axis, int):
        layout = c.layout(x)
        made = c.b.op(op.kind, c.form(x, layout), axis=place(op.axis, x.rank, layout))
        return c.value(made, layout)
    axes = [a % x.rank for a in op.axis]
    order = [a for a in range(x.rank) if a not in axes] + axes
    moved = c.b.Transpose(c.get(x), perm=order)
    outer = [x.shape[a] for a in order[: x.rank - len(axes)]]
    flat = c.b.op(op.kind, c.b.Reshape(moved, c.vector([*outer, -1])), axis=-1)
    back = c.b.Reshape(flat, c.vector([x.shape[a] for a in order]))
    return c.b.Transpose(back, perm=[int(i) for i in np.argsort(order)])


@converter("Glu")
def glu(c: Emitter, op: Any, x: Any) -> Value:
    layout = c.layout(x)
    left, right = c.b.Split(c.form(x, layout), axis=place(op.axis, x.rank, layout), num_outputs=2)
    return c.value(c.b.Mul(left, c.b.Sigmoid(right)), layout)


@converter("Sparsemax")
def sparsemax(c: Emitter, op: Any, x: Any) -> Tensor:
    """The projection onto the probability simplex (Martins and Astudillo, 2016, algorithm 1), as Keras has it.

    Keras adds up the running totals of the support where the paper adds up its numbers; the difference is kept.
    """
    b, axis = c.b, op.axis % x.rank
    z = c.get(x)
    count = b.Shape(z, start=axis, end=axis + 1)
    ordered, _ = b.TopK(z, count, axis=axis, largest=1, sorted=1)
    total = b.CumSum(ordered, b.constant(np.asarray(axis, np.int64)))
    k = c.cast(b.Range(1, b.Add(b.Squeeze(count, [0]), 1), 1), x.dtype)
    k = b.Unsqueeze(k, np.arange(1, x.rank - axis)) if axis < x.rank - 1 else k
    inside = b.Greater(b.Add(b.Mul(k, ordered), 1.0), total)
    size = b.ReduceSum(c.cast(inside, x.dtype), [axis], keepdims=1)
    summed = b.ReduceSum(b.Where(inside, total, _like(b, ordered, 0)), [axis], keepdims=1)
    return b.Relu(b.Sub(z, b.Div(b.Sub(summed, 1.0), size)))


@converter("PRelu")
def prelu(c: Emitter, op: Any, x: Any, slope: Any) -> Value:
    return c.spread(c.b.PRelu, x, slope, dtype=c.out.dtype)
