"""Normalizations, Dropout."""

from __future__ import annotations

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import OpSpec

from ..generate import Call, Context, Reject, allowed
from ..registry import exact, samples
from .nn import image

exact("Dropout")


def _spread(x: np.ndarray, axes: tuple[int, ...]) -> None:
    """Sees to it that no variance is little more than the rounding of squares."""
    wide = x.astype(np.float64)
    if (wide.var(axes) < 0.02 * (wide * wide).mean(axes)).any() or not wide.any(axes).all():
        raise Reject("elements nearly the same")


@samples("BatchNormalization")
def batch_normalization(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 5, least=1, span=(-20, 20))
    channels, other = x.shape[1:2], g.dtype([x.dtype, *allowed(spec, 1)])
    train = g.chance(4) and x.array.size > x.shape[1]
    scale, bias = (g.make(other, channels) for _ in range(2))
    mean, var = g.make(other, channels), g.make(other, channels, (0.25, 3))
    attributes = g.maybe(epsilon=[0.01, 1e-3]) | ({"training_mode": 1} | g.maybe(momentum=[0.5]) if train else {})
    return Call([x, scale, bias, mean, var], attributes, outputs=3 if train else 1)


@samples("InstanceNormalization")
def instance_normalization(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    _spread(x.array, tuple(range(2, x.array.ndim)))
    return Call([x, *(g.make(x.dtype, x.shape[1:2]) for _ in range(2))], g.maybe(epsilon=[0.01, 1.0]))


@samples("GroupNormalization")
def group_normalization(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    channels = x.shape[1]
    groups = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
    _spread(x.array.reshape(x.shape[0], groups, -1), (2,))
    return Call(
        [x, *(g.make(x.dtype, (channels,)) for _ in range(2))], {"num_groups": groups} | g.maybe(epsilon=[0.01, 1.0])
    )


@samples("LayerNormalization RMSNormalization")
def layer_normalization(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 1, 4, least=1, span=(-20, 20))
    axis = g.between(-x.array.ndim, x.array.ndim - 1)
    attributes = ({} if axis == -1 and g.below(2) else {"axis": axis}) | g.maybe(epsilon=[0.01, 1.0])
    if spec.op_type == "LayerNormalization":
        _spread(x.array, tuple(range(axis % x.array.ndim, x.array.ndim)))
    scale = g.make(x.dtype, x.shape[axis:])
    if spec.op_type == "RMSNormalization":
        return Call([x, scale], attributes)
    bias = g.make(x.dtype, x.shape[axis:]) if g.below(2) else None
    return Call([x, scale, bias], attributes, outputs=g.pick((1, 3, 2)))


@samples("LRN")
def lrn(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 3, 5, least=1, span=(-9, 9))
    return Call([x], {"size": g.pick((3, 1, 5, 2))} | g.maybe(alpha=[0.5], beta=[0.5], bias=[2.0]))


@samples("Dropout")
def dropout(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    ratio = g.make(BY_NAME["float32"], (), (0.1, 0.9)) if g.below(2) else None
    return Call([x, ratio], outputs=g.pick((1, 2)))
