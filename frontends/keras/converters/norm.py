"""Normalizations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irkit.frontends.keras.converters.reduce import moments, reduced
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.values import FIRST, LAST, Value
from irkit.ir.builder import Tensor


@converter("BatchNorm")
def batch_norm(c: Emitter, op: Any, x: Any, mean: Any, variance: Any, offset: Any = None, scale: Any = None) -> Value:
    """One BatchNormalization where the axis is the channels', else its formula."""
    dtype, axis = c.out.dtype, op.axis % x.rank
    channels = x.shape[axis]
    plain = all(v is None or (isinstance(v, Value) and v.rank == 1) for v in (mean, variance, offset, scale))
    if plain and isinstance(channels, int) and axis in (1, x.rank - 1) and x.rank >= 2:
        layout = LAST if axis == 1 else FIRST
        one, zero = np.ones(channels), np.zeros(channels)
        statistics = [
            c.get(given, dtype)
            for given in (one if scale is None else scale, zero if offset is None else offset, mean, variance)
        ]
        made = c.b.BatchNormalization(c.form(x, layout, dtype), *statistics, epsilon=float(op.epsilon))
        return c.value(made, layout)
    line = [-1 if i == axis else 1 for i in range(x.rank)]

    def along(v: Any) -> Value:
        if isinstance(v, Value) and v.rank == x.rank:
            return v
        return Value([channels if i == -1 else 1 for i in line], dtype, c.b.Reshape(c.get(v, dtype), np.array(line)))

    factor = c.spread(lambda v: c.b.Reciprocal(c.b.Sqrt(c.b.Add(v, float(op.epsilon)))), along(variance), dtype=dtype)
    if scale is not None:
        factor = c.spread(c.b.Mul, factor, along(scale))
    made = c.spread(lambda t, m, f: c.b.Mul(c.b.Sub(t, m), f), x, along(mean), factor, dtype=dtype)
    return made if offset is None else c.spread(c.b.Add, made, along(offset))


def trailing(axis: Any, rank: int) -> int | None:
    """Where the axes begin that are normalized, if they are the last ones in order; else None."""
    axes = [a % rank for a in (axis if isinstance(axis, (list, tuple)) else [axis])]
    return axes[0] if axes == list(range(axes[0], rank)) else None


@converter("LayerNorm", "RMSNorm")
def layer_norm(c: Emitter, op: Any, x: Any, *given: Any, gamma: Any = None, beta: Any = None, scale: Any = None) -> Any:
    """One LayerNormalization or RMSNormalization over the last axes; over others they are brought there."""
    gamma, beta = (*given, gamma if scale is None else scale, beta)[:2] if len(given) < 2 else given[:2]
    dtype = c.out.dtype
    epsilon = 1e-7 if op.epsilon is None else float(op.epsilon)
    axes = [a % x.rank for a in (op.axis if isinstance(op.axis, (list, tuple)) else [op.axis])]
    rms = op.kind == "RMSNorm" or op.rms_scaling
    begin = trailing(op.axis, x.rank)
    sizes = [x.shape[a] for a in axes]
    if rms and op.kind == "LayerNorm":
        # Keras's deprecated rms_scaling divides by the deviation about the mean, without taking the mean away.
        return _rms_by_variance(c, op, x, gamma, axes, epsilon, dtype)
    if begin is None or not all(isinstance(s, int) for s in sizes):
        return _by_formula(c, x, gamma, beta, axes, epsilon, rms, dtype)
    weight = np.ones(sizes) if gamma is None else gamma
    if rms:
        return c.b.RMSNormalization(c.get(x, dtype), c.get(weight, dtype), axis=begin, epsilon=epsilon)
    bias = None if beta is None else c.get(beta, dtype)
    made = c.b.LayerNormalization(c.get(x, dtype), c.get(weight, dtype), bias, axis=begin, epsilon=epsilon)
    return made[0] if isinstance(made, tuple) else made


def _along(c: Emitter, v: Any, x: Value, axes: list[int], dtype: str) -> Value:
    """A parameter of the normalized axes' sizes, put where they are."""
    order = sorted(axes)
    made = c.get(v, dtype)
    if order != axes:
        made = c.b.Transpose(made, perm=[axes.index(a) for a in order])
    others = [a for a in range(x.rank) if a not in axes]
    wide = c.b.Unsqueeze(made, np.array(others)) if others else made
    return Value([x.shape[a] if a in axes else 1 for a in range(x.rank)], dtype, wide, depth=c.b.depth)


def _by_formula(
    c: Emitter, x: Any, gamma: Any, beta: Any, axes: list[int], epsilon: float, rms: bool, dtype: str
) -> Value:
    if rms:
        power = reduced(c, "ReduceMean", c.spread(lambda t: c.b.Mul(t, t), x, dtype=dtype), axes, True, dtype)
        off = x
    else:
        mean, power = moments(c, x, axes, True, dtype)
        off = c.spread(c.b.Sub, x, mean, dtype=dtype)
    made = c.spread(lambda t, v: c.b.Div(t, c.b.Sqrt(c.b.Add(v, epsilon))), off, power, dtype=dtype)
    if gamma is not None:
        made = c.spread(c.b.Mul, made, _along(c, gamma, x, axes, dtype))
    return made if beta is None else c.spread(c.b.Add, made, _along(c, beta, x, axes, dtype))


def _rms_by_variance(c: Emitter, op: Any, x: Any, gamma: Any, axes: list[int], epsilon: float, dtype: str) -> Value:
    _, power = moments(c, x, axes, True, dtype)
    made = c.spread(lambda t, v: c.b.Div(t, c.b.Sqrt(c.b.Add(v, epsilon))), x, power, dtype=dtype)
    return made if gamma is None else c.spread(c.b.Mul, made, _along(c, gamma, x, axes, dtype))


@converter("group_norm")
def group_norm(c: Emitter, op: Any, x: Any, gamma: Any, beta: Any) -> Value:
    layout = FIRST if op.last else LAST
    channels = x.shape[-1 if op.last else 1]
    weight = np.ones(channels, np.float32) if gamma is None else gamma
    bias = np.zeros(channels, np.float32) if beta is None else beta
    made = c.b.GroupNormalization(
        c.form(x, layout, op.compute),
        c.get(weight, op.compute),
        c.get(bias, op.compute),
        num_groups=op.groups,
        epsilon=float(op.epsilon),
    )
    return Value(x.shape, op.compute, made, layout=layout, depth=c.b.depth)


@converter("Normalize")
def normalize(c: Emitter, op: Any, x: Any) -> Value:
    """Divided by the norm along an axis, which counts at least epsilon (for order 2 its square root, in the square)."""
    dtype, order = c.out.dtype, op.order
    epsilon = 1e-7 if op.epsilon is None else op.epsilon
    axis = op.axis
    if order == 2:
        square = reduced(c, "ReduceSum", c.spread(lambda t: c.b.Mul(t, t), x, dtype=dtype), axis, True, dtype)
        least = epsilon**2

        def divide(t: Tensor, s: Tensor) -> Tensor:
            return c.b.Mul(t, c.b.Reciprocal(c.b.Sqrt(c.b.Max(s, c.get(np.asarray(least), dtype)))))

        return c.spread(divide, x, square, dtype=dtype)
    size = c.spread(c.b.Abs, x, dtype=dtype)
    if order in (math.inf, "inf"):
        norm = reduced(c, "ReduceMax", size, axis, True, dtype)
    elif order == 1:
        norm = reduced(c, "ReduceSum", size, axis, True, dtype)
    else:
        powers = c.spread(lambda t: c.b.Pow(t, float(order)), size)
        norm = c.spread(lambda t: c.b.Pow(t, 1 / order), reduced(c, "ReduceSum", powers, axis, True, dtype))
    return c.spread(lambda t, n: c.b.Div(t, c.b.Max(n, c.get(np.asarray(epsilon), dtype))), x, norm, dtype=dtype)
