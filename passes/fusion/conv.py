"""Rules that work what follows or precedes a convolution, a Gemm or a pooling into its weights or attributes.

What is computed of weights alone is left to constant folding. A bias need be no constant: it may be what another rule
has just made of constants.
"""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.ir.builder import Tensor
from irkit.passes.fusion.facts import array_of, ints_of, is_per_channel, precisely, size, used_once
from irkit.passes.rules import Rule, attributes, constant, value

__all__ = ["BATCH_NORM", "RULES"]

X = value("float")
STATISTICS = {
    "scale": np.array([1.5, -0.5, 0.25, 2.0]),
    "bias": np.array([0.5, 0.0, -1.0, 2.0]),
    "mean": np.array([0.5, -0.25, 0.0, 1.0]),
    "var": np.array([0.5, 1.0, 2.0, 4.0]),
    "epsilon": 1e-3,
    "momentum": 0.9,
}


def _normalization(b: Any, like: Tensor, statistics: Sequence[Tensor], epsilon: float) -> tuple[Any, Any]:
    """BatchNormalization as a factor and a summand per channel, in the element type of the weights."""
    scale, bias, mean, var = (v if v.dtype is like.dtype else b.CastLike(v, like) for v in statistics)
    factor = scale / b.Sqrt(var + epsilon)
    return factor, bias - mean * factor


# BatchNormalization


def normalized(op: str, w):
    """BatchNormalization of an op of weights ``w``: a pattern."""

    def pattern(
        b: Any,
        x=X,
        w=w,
        c=value(optional=True),
        scale=constant(),
        bias=constant(),
        mean=constant(),
        var=constant(),
        *,
        attrs=attributes(),
        epsilon,
        momentum,
    ):
        y = getattr(b, op)(x, w, c, **attrs)
        return b.BatchNormalization(y, scale, bias, mean, var, epsilon=epsilon, momentum=momentum)

    return pattern


def conv_of_normalized(b, x, w, c, scale, bias, mean, var, attrs, epsilon):
    def weights(b, w, c, *statistics):
        factor, summand = _normalization(b, w, statistics, epsilon)
        filters = w * b.Reshape(factor, np.array([-1] + [1] * (w.rank - 1)))
        return filters, summand if c is None else summand + c * factor

    filters, offset = precisely(b, weights, w, c, scale, bias, mean, var)
    return b.Conv(x, filters, offset, **attrs)


def conv_transpose_of_normalized(b, x, w, c, scale, bias, mean, var, attrs, epsilon):
    group = attrs.get("group", 1)
    given, each, *kernel = w.shape

    def weights(b, w, c, *statistics):
        factor, summand = _normalization(b, w, statistics, epsilon)
        # The channels that come out are numbered group by group; the weights have those of one group.
        per_group = b.Reshape(factor, np.array([group, 1, each] + [1] * len(kernel)))
        grouped = b.Reshape(w, np.array([group, given // group, each, *kernel]))
        filters = b.Reshape(grouped * per_group, np.array([given, each, *kernel]))
        return filters, summand if c is None else summand + c * factor

    filters, offset = precisely(b, weights, w, c, scale, bias, mean, var)
    return b.ConvTranspose(x, filters, offset, **attrs)


def gemm_of_normalized(b, x, w, c, scale, bias, mean, var, attrs, epsilon):
    def weights(b, w, c, *statistics):
        factor, summand = _normalization(b, w, statistics, epsilon)
        columns = b.Reshape(factor, np.array([-1, 1] if attrs.get("transB") else [1, -1]))
        if c is not None:
            c = c * attrs.get("beta", 1.0)
        return w * columns, summand if c is None else summand + c * factor

    matrix, offset = precisely(b, weights, w, c, scale, bias, mean, var)
    return b.Gemm(x, matrix, offset, **{k: v for k, v in attrs.items() if k != "beta"})


def matmul_batch_norm(
    b: Any,
    x=value("float", rank=2),
    w=constant(rank=2),
    scale=constant(),
    bias=constant(),
    mean=constant(),
    var=constant(),
    *,
    epsilon,
    momentum,
):
    return b.BatchNormalization(b.MatMul(x, w), scale, bias, mean, var, epsilon=epsilon, momentum=momentum)


def gemm_of_normalized_matmul(b, x, w, scale, bias, mean, var, epsilon):
    return gemm_of_normalized(b, x, w, None, scale, bias, mean, var, {}, epsilon)


BATCH_NORM = [
    Rule(
        "batch-norm-into-conv",
        normalized("Conv", constant()),
        conv_of_normalized,
        when=lambda w, c: used_once(w),
        precision="rounding",
        opset=7,
        samples=[
            {"x": ["N", 3, 5, 6], "w": [4, 3, 3, 3], "attrs": {"pads": [1, 1, 1, 1]}, **STATISTICS},
            {"x": ["N", 4, 7], "w": [4, 2, 3], "c": [4], "attrs": {"group": 2, "strides": [2]}, **STATISTICS},
        ],
    ),
    Rule(
        "batch-norm-into-conv-transpose",
        normalized("ConvTranspose", constant()),
        conv_transpose_of_normalized,
        when=lambda w, c: used_once(w),
        precision="rounding",
        opset=7,
        samples=[
            {"x": ["N", 3, 5, 6], "w": [3, 4, 3, 3], **STATISTICS},
            {"x": ["N", 4, 5], "w": [4, 2, 3], "c": [4], "attrs": {"group": 2, "strides": [2]}, **STATISTICS},
        ],
    ),
    Rule(
        "batch-norm-into-gemm",
        normalized("Gemm", constant(rank=2)),
        gemm_of_normalized,
        when=lambda w, c: used_once(w),
        precision="rounding",
        opset=9,
        samples=[
            {"x": ["N", 3], "w": [3, 4], "c": [4], **STATISTICS},
            {"x": [3, "N"], "w": [4, 3], "c": [1, 1], **STATISTICS, "attrs": {"transA": 1, "transB": 1, "beta": 0.5}},
            {"x": ["N", 3], "w": [3, 4], "attrs": {"alpha": 2.0}, **STATISTICS},
        ],
    ),
    Rule(
        "batch-norm-into-matmul",
        matmul_batch_norm,
        gemm_of_normalized_matmul,
        when=lambda w: used_once(w),
        precision="rounding",
        opset=9,
        samples=[{"x": ["N", 3], "w": [3, 4], **STATISTICS}],
    ),
]


# A factor or summand per channel


def conv_and(op: str):
    """A Conv and a constant as the operands of another op: a pattern."""

    def pattern(b: Any, x=X, w=constant(), c=value(optional=True), k=constant(), *, attrs=attributes()):
        return getattr(b, op)(b.Conv(x, w, c, **attrs), k)

    return pattern


def conv_of_product(b, x, w, c, k, attrs):
    def weights(b, w, c, k):
        filters = w * b.Reshape(k, np.array([-1] + [1] * (w.rank - 1)))
        return (filters,) if c is None else (filters, c * b.Reshape(k, np.array([-1])))

    return b.Conv(x, *precisely(b, weights, w, c, k), **attrs)


def conv_of_sum(b, x, w, c, k, attrs):
    each = b.Expand(b.Reshape(k, np.array([-1])), np.array([w.shape[0]]))
    return b.Conv(x, w, each if c is None else c + each, **attrs)


def per_channel(w, k):
    return is_per_channel(k, w.rank, size(w, 0) or 0)


_CONVS = [
    {"x": ["N", 3, 5, 6], "w": [4, 3, 3, 3], "k": [1, 4, 1, 1], "attrs": {"dilations": [1, 2]}},
    {"x": ["N", 4, 7], "w": [4, 2, 3], "c": [4], "k": [4, 1], "attrs": {"group": 2}},
    {"x": ["N", 3, 5, 6], "w": [4, 3, 1, 1], "c": [4], "k": []},
]


# Pad


def _pads(pads: Tensor, rank: int) -> tuple[list[int], list[int]] | None:
    """What a Pad adds before and after each axis from the third on; None if it does more, or is not known."""
    found = ints_of(pads)
    if found is None or len(found) != 2 * rank or min(found, default=-1) < 0:
        return None
    first, last = found[:rank], found[rank:]
    if any(first[:2] + last[:2]):
        return None
    return first[2:], last[2:]


def _joined(attrs: dict[str, Any], pads: Tensor, rank: int) -> list[int]:
    """The padding of an op and of the Pad before it together."""
    added = _pads(pads, rank)
    assert added is not None
    own = attrs.get("pads", (0,) * 2 * (rank - 2))
    return [a + b for a, b in zip(own, [*added[0], *added[1]], strict=True)]


def _filled_with(fill: Tensor | None, number: float) -> bool:
    if fill is None:
        return number == 0
    found = array_of(fill)
    return found is not None and found.size == 1 and float(found.reshape(-1)[0]) == number


def padded_conv(
    b: Any,
    x=X,
    pads=constant("int64"),
    fill=constant(optional=True),
    w=value(),
    c=value(optional=True),
    *,
    attrs=attributes(),
):
    return b.Conv(b.Pad(x, pads, fill), w, c, **attrs)


def conv_of_padded(b, x, pads, w, c, attrs):
    joined = _joined(attrs, pads, x.rank)
    return b.Conv(x, w, c, **{**{k: v for k, v in attrs.items() if k != "auto_pad"}, "pads": joined})


def can_join(x, pads, fill, attrs):
    if x.rank is None or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    return _pads(pads, x.rank) is not None and _filled_with(fill, 0)


def padded_max_pool(b: Any, x=X, pads=constant("int64"), fill=constant(), *, attrs=attributes()):
    return b.MaxPool(b.Pad(x, pads, fill), **attrs)


def max_pool_of_padded(b, x, pads, attrs):
    joined = _joined(attrs, pads, x.rank)
    return b.MaxPool(x, **{**{k: v for k, v in attrs.items() if k != "auto_pad"}, "pads": joined})


def can_join_max_pool(x, pads, fill, attrs):
    if x.rank is None or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attrs.get("ceil_mode"):
        return False
    # A window that is padding alone would give the lowest number rather than what was filled in.
    kernel = attrs.get("kernel_shape", ())
    return (
        _pads(pads, x.rank) is not None
        and _filled_with(fill, -np.inf)
        and all(p < k for p, k in zip(_joined(attrs, pads, x.rank), (*kernel, *kernel), strict=True))
    )


def padded_average_pool(b: Any, x=X, pads=constant("int64"), fill=constant(optional=True), *, attrs=attributes()):
    return b.AveragePool(b.Pad(x, pads, fill), **attrs)


def average_pool_of_padded(b, x, pads, attrs):
    kept = {k: v for k, v in attrs.items() if k not in ("auto_pad", "count_include_pad")}
    return b.AveragePool(x, **{**kept, "pads": _joined(attrs, pads, x.rank), "count_include_pad": 1})


def can_join_average_pool(x, pads, fill, attrs):
    if attrs.get("ceil_mode") or not can_join(x, pads, fill, attrs):
        return False
    own = any(attrs.get("pads", ()))
    kernel = attrs.get("kernel_shape", ())
    return (not own or bool(attrs.get("count_include_pad"))) and all(
        p < k for p, k in zip(_joined(attrs, pads, x.rank), (*kernel, *kernel), strict=True)
    )


_PADDED = np.array([0, 0, 1, 0, 0, 0, 2, 1])


RULES = [
    *BATCH_NORM,
    Rule(
        "factor-into-conv",
        conv_and("Mul"),
        conv_of_product,
        when=lambda w, c, k: per_channel(w, k) and used_once(w),
        precision="rounding",
        samples=_CONVS,
    ),
    Rule(
        "summand-into-conv",
        conv_and("Add"),
        conv_of_sum,
        when=per_channel,
        precision="rounding",
        opset=8,
        samples=_CONVS,
    ),
    Rule(
        "subtrahend-into-conv",
        conv_and("Sub"),
        lambda b, x, w, c, k, attrs: conv_of_sum(b, x, w, c, b.Neg(k), attrs),
        when=per_channel,
        precision="rounding",
        opset=8,
        samples=_CONVS,
    ),
    Rule(
        "pad-into-conv",
        padded_conv,
        conv_of_padded,
        when=can_join,
        precision="rounding",
        samples=[
            {"x": ["N", 3, 5, 6], "pads": _PADDED, "w": [4, 3, 3, 3], "attrs": {"pads": [1, 0, 0, 1]}},
            {"x": ["N", 3, 5, 6], "pads": _PADDED, "fill": np.array(0.0), "w": [4, 3, 3, 3], "c": [4]},
        ],
    ),
    Rule(
        "pad-into-max-pool",
        padded_max_pool,
        max_pool_of_padded,
        when=can_join_max_pool,
        samples=[
            {
                "x": ["N", 3, 5, 6],
                "pads": _PADDED,
                "fill": np.array(-np.inf),
                "attrs": {"kernel_shape": [4, 2], "strides": [2, 1]},
            }
        ],
    ),
    Rule(
        "pad-into-average-pool",
        padded_average_pool,
        average_pool_of_padded,
        when=can_join_average_pool,
        precision="rounding",
        opset=7,
        samples=[
            {"x": ["N", 3, 5, 6], "pads": _PADDED, "attrs": {"kernel_shape": [3, 2]}},
            {
                "x": ["N", 3, 5, 6],
                "pads": _PADDED,
                "fill": np.array(0.0),
                "attrs": {"kernel_shape": [4, 4], "pads": [1, 1, 1, 1], "count_include_pad": 1},
            },
        ],
    ),
]
