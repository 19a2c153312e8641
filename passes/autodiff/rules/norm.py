"""Normalization and softmax.

What has a statistic of its operand in it is differentiated through that, too. A norm or deviation of 0 has the gradient
0, and so has a row of Softmax and LogSoftmax that is -infinity throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irkit.dialects.ad.finite import is_finite
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import DType, dtype
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("Hardmax", "constant but where it jumps")


class _Rows:
    """Sets of elements that are normalized each by its own mean and variance, in one dtype.

    Args:
        x: the elements.
        axes: those that a set extends over.
        mean, inverse: the statistics, where they are there already; ``inverse`` is ``1 / sqrt(variance + epsilon)``.
    """

    def __init__(
        self,
        g: Vjp,
        x: Tensor,
        axes: Sequence[int],
        epsilon: float,
        *,
        centred: bool = True,
        mean: Tensor | None = None,
        inverse: Tensor | None = None,
    ) -> None:
        b = g.b
        self.g, self.axes, self.x = g, list(axes), x
        self.centre = self.mean(x) if centred and mean is None else mean
        self.apart = x if self.centre is None else b.Sub(x, self.centre)
        if inverse is None:
            variance = self.mean(b.Mul(self.apart, self.apart))
            inverse = b.Reciprocal(b.Sqrt(b.Add(variance, g.const(epsilon, x))))
        self.inverse = inverse
        self.normal = b.Mul(self.apart, self.inverse)

    def mean(self, value: Tensor) -> Tensor:
        return self.g.b.ReduceMean(value, self.g.i64(self.axes), keepdims=1)

    def gradient(self, ct: Tensor | None, of_mean: Tensor | None = None, of_inverse: Tensor | None = None) -> Tensor:
        """The cotangent of the elements from those of the normalized ones, and of the mean and the inverse deviation.

        With ``m`` a mean over the set: ``inverse * (ct - m(ct) - normal * m(ct * normal))``.
        """
        b, g = self.g.b, self.g
        inner: Tensor | None = None
        if ct is not None:
            inner = b.Sub(ct, b.Mul(self.normal, self.mean(b.Mul(ct, self.normal))))
            if self.centre is not None:
                inner = b.Sub(inner, self.mean(ct))
            inner = b.Mul(inner, self.inverse)
        if of_inverse is not None or of_mean is not None:
            count = g.cast(b.Div(b.Size(self.x), b.Size(self.inverse)), self.x)
            for part in (
                None if of_mean is None else b.Div(of_mean, count),
                None
                if of_inverse is None
                else b.Neg(b.Mul(b.Div(b.Mul(of_inverse, b.Mul(self.inverse, self.inverse)), count), self.normal)),
            ):
                if part is not None:
                    part = b.Expand(part, g.shape_of(self.x))
                    inner = part if inner is None else b.Add(inner, part)
        assert inner is not None
        return inner


def _channels(g: Vjp, value: Tensor, rank: int) -> Tensor:
    """A vector with one value a channel, to broadcast along axis 1."""
    return g.b.Reshape(value, [1, -1, *[1] * (rank - 2)]) if rank > 1 else value


def _widest(*values: Tensor) -> DType:
    """The dtype that BatchNormalization computes in: at least float32."""
    found = [v.dtype for v in values if v.dtype is not None]
    return max([*found, dtype("float32")], key=lambda kind: kind.bits)


@vjp("BatchNormalization")
def batch_normalization(g: Vjp) -> Gradients:
    b = g.b
    x, scale, bias, mean, variance = (g.x(i) for i in range(5))
    wide, rank = _widest(x, scale, mean), g.rank(x)
    axes = [axis for axis in range(rank) if axis != 1]
    data, factor, ct = g.cast(x, wide), _channels(g, g.cast(scale, wide), rank), g.cast(g.ct, wide)
    training = bool(g.attr("training_mode"))
    if training:
        rows = _Rows(g, data, axes, g.attr("epsilon"))
    else:
        inverse = b.Reciprocal(b.Sqrt(b.Add(g.cast(variance, wide), g.const(g.attr("epsilon"), data))))
        given, inverse = _channels(g, g.cast(mean, wide), rank), _channels(g, inverse, rank)
        rows = _Rows(g, data, axes, 0.0, mean=given, inverse=inverse)
    found: list[Tensor | None] = [None] * 5
    if g.needs(1):
        found[1] = g.cast(g.reduce_sum(b.Mul(ct, rows.normal), axes), scale)
    if g.needs(2):
        found[2] = g.cast(g.reduce_sum(ct, axes), bias)
    if not training:
        of_data = b.Mul(b.Mul(ct, factor), rows.inverse)
        found[0] = g.cast(of_data, x) if g.needs(0) else None
        if g.needs(3):
            found[3] = g.cast(b.Neg(g.reduce_sum(of_data, axes)), mean)
        if g.needs(4):
            half = b.Mul(g.reduce_sum(b.Mul(of_data, rows.normal), axes), b.Reshape(rows.inverse, [-1]))
            found[4] = g.cast(b.Mul(half, g.const(-0.5, half)), variance)
        return found
    of_x = rows.gradient(b.Mul(ct, factor))
    momentum = g.attr("momentum")
    for index, kept in ((1, mean), (2, variance)):
        of_running = g.cts[index] if index < len(g.cts) else None
        if of_running is None:
            continue
        if g.needs(index + 2):
            found[index + 2] = g.cast(b.Mul(of_running, g.const(momentum, of_running)), kept)
        new = _channels(g, g.cast(b.Mul(of_running, g.const(1 - momentum, of_running)), wide), rank)
        if rows.centre is None:
            continue
        count = g.cast(b.Div(b.Size(data), b.Size(rows.inverse)), data)
        each = b.Div(new, count)
        part = b.Expand(each, g.shape_of(x)) if index == 1 else b.Mul(each, b.Mul(rows.apart, g.const(2.0, data)))
        of_x = b.Add(of_x, part)
    found[0] = g.cast(of_x, x) if g.needs(0) else None
    return found


@vjp("InstanceNormalization")
def instance_normalization(g: Vjp) -> Gradients:
    b, x, scale = g.b, g.x(0), g.x(1)
    rank = g.rank(x)
    rows = _Rows(g, x, range(2, rank), g.attr("epsilon"))
    axes = [axis for axis in range(rank) if axis != 1]
    return (
        rows.gradient(b.Mul(g.ct, _channels(g, scale, rank))) if g.needs(0) else None,
        g.reduce_sum(b.Mul(g.ct, rows.normal), axes) if g.needs(1) else None,
        g.reduce_sum(g.ct, axes) if g.needs(2) else None,
    )


def _axes_from(g: Vjp) -> list[int]:
    """The axes from the attribute ``axis`` on."""
    rank = g.rank(g.x(0))
    return list(range(g.attr("axis") % rank, rank))


def _stashed(g: Vjp, value: Tensor) -> Tensor:
    """A value in the dtype that the statistics are computed in."""
    return g.b.Cast(value, to=g.attr("stash_type")) if _stash(g) is not value.dtype else value


def _stash(g: Vjp) -> DType:
    return dtype(int(g.attr("stash_type")))


@vjp("LayerNormalization")
def layer_normalization(g: Vjp) -> Gradients:
    b, x, scale = g.b, g.x(0), g.x(1)
    ct, of_mean, of_inverse = (*g.cts, None, None)[:3]
    # The op gives its statistics too, but only in certain dtypes.
    given = _stash(g).name in ("float32", "bfloat16")
    mean, inverse = (g.y(1), g.y(2)) if given else (None, None)
    rows = _Rows(g, _stashed(g, x), _axes_from(g), g.attr("epsilon"), mean=mean, inverse=inverse)
    of_x = None
    if g.needs(0):
        normal = None if ct is None else _stashed(g, b.Mul(ct, scale))
        of_x = g.cast(rows.gradient(normal, of_mean, of_inverse), x)
    if ct is None:
        return (of_x,)
    return (
        of_x,
        g.unbroadcast(b.Mul(ct, g.cast(rows.normal, x)), 1) if g.needs(1) else None,
        g.unbroadcast(ct, 2) if g.needs(2) else None,
    )


@vjp("RMSNormalization")
def rms_normalization(g: Vjp) -> Gradients:
    b, x, scale, ct = g.b, g.x(0), g.x(1), g.ct
    rows = _Rows(g, _stashed(g, x), _axes_from(g), g.attr("epsilon"), centred=False)
    return (
        g.cast(rows.gradient(_stashed(g, b.Mul(ct, scale))), x) if g.needs(0) else None,
        g.unbroadcast(b.Mul(ct, g.cast(g.cast(rows.normal, x), scale)), 1) if g.needs(1) else None,
    )


@vjp("GroupNormalization")
def group_normalization(g: Vjp) -> Gradients:
    b, x, scale, ct = g.b, g.x(0), g.x(1), g.ct
    rank, grouped = g.rank(x), g.i64([0, g.attr("num_groups"), -1])
    rows = _Rows(g, b.Reshape(_stashed(g, x), grouped), [2], g.attr("epsilon"))
    axes = [axis for axis in range(rank) if axis != 1]
    shape = g.shape_of(x)

    def ungrouped(value: Tensor) -> Tensor:
        return g.cast(b.Reshape(value, shape), x)

    of_normal = b.Mul(ct, _channels(g, scale, rank))
    return (
        ungrouped(rows.gradient(b.Reshape(_stashed(g, of_normal), grouped))) if g.needs(0) else None,
        g.reduce_sum(b.Mul(ct, ungrouped(rows.normal)), axes) if g.needs(1) else None,
        g.reduce_sum(ct, axes) if g.needs(2) else None,
    )


@vjp("LRN")
def lrn(g: Vjp) -> Tensor:
    """``ct * S^-beta - 2 beta alpha / size * x * window'(ct * x * S^(-beta - 1))``, with the windows' transpose.

    ``S = bias + alpha / size * window(x * x)`` is what the op divides by, to the power of beta.
    """
    b, x, ct, size, beta = g.b, g.x(0), g.ct, g.attr("size"), g.attr("beta")
    before, after = (size - 1) // 2, size // 2
    share = g.attr("alpha") / size

    def window(value: Tensor, low: int, high: int) -> Tensor:
        rows = b.Unsqueeze(b.Reshape(value, [0, 0, -1]), [1])
        total = b.AveragePool(rows, kernel_shape=[size, 1], pads=[low, 0, high, 0], count_include_pad=1)
        return g.reshape_like(b.Mul(total, g.const(float(size), value)), value)

    total = b.Add(b.Mul(window(b.Mul(x, x), before, after), g.const(share, x)), g.const(g.attr("bias"), x))
    factor = b.Pow(total, g.const(-beta, x))
    inner = window(b.Mul(b.Mul(ct, x), b.Div(factor, total)), after, before)
    return b.Sub(b.Mul(ct, factor), b.Mul(b.Mul(x, inner), g.const(2 * beta * share, x)))


@vjp("LpNormalization")
def lp_normalization(g: Vjp) -> Tensor:
    b, x, y, ct = g.b, g.x(0), g.y(), g.ct
    axis, p = g.i64([g.attr("axis")]), g.attr("p")
    norm = b.ReduceL1(x, axis, keepdims=1) if p == 1 else b.ReduceL2(x, axis, keepdims=1)
    zero = b.Equal(norm, g.const(0.0, norm))
    inverse = b.Mul(b.Reciprocal(b.Where(zero, g.const(1.0, norm), norm)), g.cast(b.Not(zero), norm))
    along = b.ReduceSum(b.Mul(ct, y), axis, keepdims=1)
    return b.Mul(b.Sub(ct, b.Mul(b.Sign(x) if p == 1 else y, along)), inverse)


@vjp("MeanVarianceNormalization")
def mean_variance_normalization(g: Vjp) -> Tensor:
    b, x, ct = g.b, g.x(0), g.ct
    axes = g.i64(g.attr("axes") or range(g.rank(x)))
    apart = b.Sub(x, b.ReduceMean(x, axes, keepdims=1))
    std = b.Sqrt(b.ReduceMean(b.Mul(apart, apart), axes, keepdims=1))
    zero = b.Equal(std, g.const(0.0, std))
    inverse = b.Reciprocal(b.Add(std, g.const(1e-9, std)))
    slope = b.Div(b.Mul(inverse, inverse), b.Where(zero, g.const(1.0, std), std))
    along = b.ReduceMean(b.Mul(ct, apart), axes, keepdims=1)
    middle = b.Sub(ct, b.ReduceMean(ct, axes, keepdims=1))
    return b.Sub(b.Mul(middle, inverse), b.Mul(apart, b.Mul(along, slope)))


def _empty(g: Vjp) -> Tensor | None:
    """Which rows of a softmax are -infinity throughout; None where there is certainly none."""
    b, x = g.b, g.x(0)
    if is_finite(x.ssa):
        return None
    top = b.ReduceMax(x, g.i64([g.attr("axis")]), keepdims=1)
    return b.Equal(top, g.const(-np.inf, top))


@vjp("Softmax")
def softmax(g: Vjp) -> Tensor:
    b, ct, empty = g.b, g.ct, _empty(g)
    y = g.y() if empty is None else b.Where(empty, g.const(0.0, ct), g.y())
    return b.Mul(y, b.Sub(ct, b.ReduceSum(b.Mul(ct, y), [g.attr("axis")], keepdims=1)))


@vjp("LogSoftmax")
def log_softmax(g: Vjp) -> Tensor:
    b, ct, empty = g.b, g.ct, _empty(g)
    y = g.y() if empty is None else b.Where(empty, g.const(0.0, ct), g.y())
    found = b.Sub(ct, b.Mul(b.Exp(y), b.ReduceSum(ct, [g.attr("axis")], keepdims=1)))
    return found if empty is None else b.Where(empty, g.const(0.0, ct), found)
