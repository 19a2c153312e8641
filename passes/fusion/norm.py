"""Rules that make one normalization of the arithmetic that exporters write for it."""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from irkit.dialects.onnx import OnnxOp
from irkit.ir.builder import Tensor
from irkit.passes.fusion.facts import all_equal, ints_of, same_dims
from irkit.passes.rules import Rule, constant, item, scalar, value

__all__ = ["RULES"]

# A normalization computes in float32 whatever its operands are, which float64 would notice.
X = value(("float32",))
HALF = value(("float16", "bfloat16"))
AXES = constant("int64")


def square_by_power(b: Any, d: Any) -> Any:
    return b.Pow(d, 2)


def square_by_product(b: Any, d: Any) -> Any:
    return d * d


def over_root(b: Any, d: Any, variance: Any, eps: Any) -> Any:
    return d / b.Sqrt(variance + eps)


def times_reciprocal(b: Any, d: Any, variance: Any, eps: Any) -> Any:
    return d * b.Reciprocal(b.Sqrt(variance + eps))


def times_inverse(b: Any, d: Any, variance: Any, eps: Any) -> Any:
    return d * (1 / b.Sqrt(variance + eps))


def times_power(b: Any, d: Any, variance: Any, eps: Any) -> Any:
    return d * b.Pow(variance + eps, -0.5)


SQUARES = (square_by_power, square_by_product)
SCALINGS = (over_root, times_reciprocal, times_inverse, times_power)


def last_axes(x: Tensor, axes: Tensor) -> int | None:
    """The first of the axes that a reduction takes, if they are the last ones of ``x``; counted from the end."""
    found = ints_of(axes)
    if x.rank is None or not found:
        return None
    places = sorted(a - x.rank if a >= 0 else a for a in found)
    return places[0] if places == list(range(-len(places), 0)) else None


def fits_last_axes(x: Tensor, axes: Tensor, *parameters: Tensor) -> bool:
    """Whether parameters have the very shape of the axes that are normalized: anything else would broadcast."""
    first = last_axes(x, axes)
    if first is None or x.shape is None:
        return False
    return all(same_dims(x.shape[first:], p.shape) for p in parameters)


# LayerNormalization


def _layer_norm(square: Callable[..., Any], scaling: Callable[..., Any]) -> Callable[..., Any]:
    def pattern(b: Any, x=X, axes=AXES, eps=scalar(), gamma=value(), beta=value()):
        d = x - b.ReduceMean(x, axes)
        return scaling(b, d, b.ReduceMean(square(b, d), axes), eps) * gamma + beta

    return pattern


def _layer_norm_without_beta(square: Callable[..., Any], scaling: Callable[..., Any]) -> Callable[..., Any]:
    def pattern(b: Any, x=X, axes=AXES, eps=scalar(), gamma=value()):
        d = x - b.ReduceMean(x, axes)
        return scaling(b, d, b.ReduceMean(square(b, d), axes), eps) * gamma

    return pattern


def folded_layer_norm(b: Any, x=X, axes=AXES, eps=scalar(), gamma=constant(), beta=constant()):
    """As Keras and TensorFlow write it: x * factor + (beta - mean * factor); an infinite factor would show."""
    mean = b.ReduceMean(x, axes)
    d = x - mean
    factor = b.Reciprocal(b.Sqrt(b.ReduceMean(d * d, axes) + eps)) * gamma
    return x * factor + (beta - mean * factor)


def layer_norm(b, x, axes, eps, gamma, beta):
    return b.LayerNormalization(x, gamma, beta, axis=last_axes(x, axes), epsilon=float(item(eps)))


def layer_norm_without_beta(b, x, axes, eps, gamma):
    return b.LayerNormalization(x, gamma, axis=last_axes(x, axes), epsilon=float(item(eps)))


_LAST = np.array([-1])
_WITH_BETA = [
    {"x": ["N", 3, 4], "axes": _LAST, "eps": 1e-5, "gamma": [4], "beta": [4]},
    {"x": ["N", 3, 4], "axes": np.array([1, 2]), "eps": 1e-3, "gamma": [3, 4], "beta": [3, 4]},
    {"x": ["N", 5], "axes": np.array([1]), "eps": 1e-5, "gamma": [5], "beta": [5]},
]
_WITHOUT_BETA = [{k: v for k, v in sample.items() if k != "beta"} for sample in _WITH_BETA]


def _plain_layer_norm(square: Callable[..., Any], scaling: Callable[..., Any]) -> Callable[..., Any]:
    def pattern(b: Any, x=X, axes=AXES, eps=scalar()):
        d = x - b.ReduceMean(x, axes)
        return scaling(b, d, b.ReduceMean(square(b, d), axes), eps)

    return pattern


def layer_norm_of_ones(b, x, axes, eps):
    sizes = x.shape[last_axes(x, axes) :]
    ones = b.constant(1.0, "float32", shape=sizes)
    return b.LayerNormalization(x, ones, axis=-len(sizes), epsilon=float(item(eps)))


def has_known_sizes(x: Tensor, axes: Tensor) -> bool:
    first = last_axes(x, axes)
    return first is not None and x.shape is not None and all(isinstance(d, int) for d in x.shape[first:])


def layer_norm_times(b: Any, x=X, ones=constant(), gamma=value(), *, axis, epsilon):
    return b.LayerNormalization(x, ones, axis=axis, epsilon=epsilon) * gamma


def layer_norm_plus(b: Any, x=X, gamma=value(), beta=value(), *, axis, epsilon):
    return b.LayerNormalization(x, gamma, axis=axis, epsilon=epsilon) + beta


# RMSNormalization


def _rms_norm(square: Callable[..., Any], scaling: Callable[..., Any]) -> Callable[..., Any]:
    def pattern(b: Any, x=X, axes=AXES, eps=scalar(), gamma=value()):
        return scaling(b, x, b.ReduceMean(square(b, x), axes), eps) * gamma

    return pattern


def _rms_norm_of_half(square: Callable[..., Any], scaling: Callable[..., Any]) -> Callable[..., Any]:
    """As Hugging Face writes it for halves: computed in float32, rounded, and then scaled."""

    def pattern(b: Any, x=HALF, axes=AXES, eps=scalar("float32"), gamma=HALF, *, to):
        wide = b.Cast(x, to=1)
        return b.Cast(scaling(b, wide, b.ReduceMean(square(b, wide), axes), eps), to=to) * gamma

    return pattern


def rms_norm(b, x, axes, eps, gamma):
    return b.RMSNormalization(x, gamma, axis=last_axes(x, axes), epsilon=float(item(eps)))


# GroupNormalization


def group_norm_of_instance(
    b: Any,
    x=X,
    split=value(),
    ones=constant(),
    zeros=constant(),
    joined=value(),
    gamma=value(),
    beta=value(),
    *,
    epsilon,
):
    """As PyTorch writes it: an instance normalization of groups, then a scale and bias per channel."""
    y = b.InstanceNormalization(b.Reshape(x, split), ones, zeros, epsilon=epsilon)
    return b.Reshape(y, joined) * gamma + beta


def is_group_norm(
    x: Tensor, split: Tensor, ones: Tensor, zeros: Tensor, gamma: Tensor, beta: Tensor, match: Any
) -> bool:
    shape, parts = x.shape, ints_of(split)
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int) or parts is None or len(parts) != 3:
        return False
    groups = parts[1]
    if parts[0] != 0 or parts[2] != -1 or groups < 1 or shape[1] % groups:
        return False
    # What comes out of the second Reshape has the shape of x again.
    restored = next(op.results[0] for op in match.matched if op.name == "onnx.Reshape")
    if not same_dims(shape, x.builder.wrap(restored).shape) and not is_shape_of(match.values["joined"], x):
        return False
    per_channel = (shape[1], *(1,) * (len(shape) - 2))
    return (
        all_equal(ones, 1)
        and all_equal(zeros, 0)
        and gamma.shape in (per_channel, (1, *per_channel))
        and beta.shape in (per_channel, (1, *per_channel))
    )


def is_shape_of(value: Any, x: Tensor) -> bool:
    """Whether this is the shape of ``x``, as the op Shape gives it."""
    owner = value.owner
    return (
        isinstance(owner, OnnxOp)
        and owner.op_type == "Shape"
        and owner.operands[0] is x.ssa
        and not owner.attr("start")
        and owner.attr("end") is None
    )


def group_norm(b, x, split, gamma, beta, epsilon):
    _, groups, _ = ints_of(split) or [0, 1, -1]
    flat = [b.Reshape(p, np.array([-1])) for p in (gamma, beta)]
    return b.GroupNormalization(x, *flat, num_groups=groups, epsilon=epsilon)


RULES = [
    *(
        Rule(
            "layer-norm",
            _layer_norm(square, scaling),
            layer_norm,
            when=lambda x, axes, gamma, beta: fits_last_axes(x, axes, gamma, beta),
            precision="rounding",
            opset=17,
            samples=_WITH_BETA,
        )
        for square, scaling in product(SQUARES, SCALINGS)
    ),
    Rule(
        "layer-norm",
        folded_layer_norm,
        layer_norm,
        when=lambda x, axes, gamma, beta: fits_last_axes(x, axes, gamma, beta),
        precision="rounding",
        opset=17,
        samples=_WITH_BETA,
    ),
    *(
        Rule(
            "layer-norm-without-bias",
            _layer_norm_without_beta(square, scaling),
            layer_norm_without_beta,
            when=lambda x, axes, gamma: fits_last_axes(x, axes, gamma),
            precision="rounding",
            opset=17,
            samples=_WITHOUT_BETA,
        )
        for square, scaling in product(SQUARES, SCALINGS)
    ),
    *(
        Rule(
            "layer-norm-without-scale",
            _plain_layer_norm(square, scaling),
            layer_norm_of_ones,
            when=has_known_sizes,
            precision="rounding",
            opset=17,
            samples=[{k: v for k, v in sample.items() if k != "gamma"} for sample in _WITHOUT_BETA],
        )
        for square, scaling in product(SQUARES, SCALINGS)
    ),
    Rule(
        "scale-into-layer-norm",
        layer_norm_times,
        lambda b, x, gamma, axis, epsilon: b.LayerNormalization(x, gamma, axis=axis, epsilon=epsilon),
        when=lambda ones, gamma: same_dims(ones.shape, gamma.shape) and all_equal(ones, 1),
        precision="rounding",
        opset=17,
        samples=[{"x": ["N", 3, 4], "ones": np.ones((3, 4)), "gamma": [3, 4], "axis": -2, "epsilon": 1e-3}],
    ),
    Rule(
        "bias-into-layer-norm",
        layer_norm_plus,
        lambda b, x, gamma, beta, axis, epsilon: b.LayerNormalization(x, gamma, beta, axis=axis, epsilon=epsilon),
        when=lambda gamma, beta: same_dims(gamma.shape, beta.shape),
        precision="rounding",
        opset=17,
        samples=[{"x": ["N", 3, 4], "gamma": [3, 4], "beta": [3, 4], "axis": -2, "epsilon": 1e-3}],
    ),
    *(
        Rule(
            "rms-norm",
            _rms_norm(square, scaling),
            rms_norm,
            when=lambda x, axes, gamma: fits_last_axes(x, axes, gamma),
            precision="rounding",
            opset=23,
            samples=_WITHOUT_BETA,
        )
        for square, scaling in product(SQUARES, SCALINGS)
    ),
    *(
        Rule(
            "rms-norm-of-half",
            _rms_norm_of_half(square, scaling),
            lambda b, x, axes, eps, gamma, to: rms_norm(b, x, axes, eps, gamma) if x.dtype.code == to else None,
            when=lambda x, axes, gamma: fits_last_axes(x, axes, gamma),
            precision="rounding",
            opset=23,
            samples=[{"x": ["N", 3, 4], "axes": _LAST, "eps": 1e-5, "gamma": [4], "to": 10}],
        )
        for square, scaling in product(SQUARES, SCALINGS)
    ),
    Rule(
        "group-norm",
        group_norm_of_instance,
        group_norm,
        when=is_group_norm,
        precision="rounding",
        opset=21,
        samples=[
            {
                "x": ["N", 4, 3, 5],
                "split": np.array([0, 2, -1]),
                "ones": np.ones(2),
                "zeros": np.zeros(2),
                "joined": np.array([-1, 4, 3, 5]),
                "gamma": [4, 1, 1],
                "beta": [4, 1, 1],
                "epsilon": 1e-5,
            }
        ],
    ),
]
