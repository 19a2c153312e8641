"""Gradients of convolutions: every pad, stride, dilation and group, sizes known and unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irkit.ir.builder import Builder, Tensor
from tests.unit.autodiff.checks import check
from tests.unit.autodiff.support import same_gradients

RNG = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape)


CONVS = {
    "plain": ((2, 3, 6), (4, 3, 3), {}),
    "remainder": ((2, 2, 8, 7), (3, 2, 3, 2), {"strides": [3, 2]}),
    "remainder-of-a-tap": ((1, 2, 9), (2, 2, 2), {"strides": [4]}),
    "asymmetric": ((1, 2, 6, 5), (2, 2, 3, 3), {"pads": [0, 2, 1, 0], "strides": [2, 1]}),
    "dilated": ((1, 2, 9, 8), (2, 2, 3, 2), {"dilations": [2, 3], "strides": [2, 2], "pads": [1, 0, 2, 1]}),
    "grouped": ((2, 4, 7), (6, 2, 3), {"group": 2, "strides": [2], "pads": [1, 1]}),
    "depthwise": ((2, 3, 5, 5), (6, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "same-upper": ((1, 2, 7, 6), (2, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
    "same-lower": ((1, 2, 7, 6), (2, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 1], "dilations": [1, 2]}),
    "same-kernel-below-stride": ((1, 1, 7), (1, 1, 2), {"auto_pad": "SAME_UPPER", "strides": [4]}),
    "valid": ((1, 2, 7), (2, 2, 3), {"auto_pad": "VALID", "strides": [2]}),
    "cube": ((1, 1, 4, 3, 4), (2, 1, 2, 2, 3), {"pads": [1, 0, 0, 0, 1, 1]}),
    "pointwise": ((2, 3, 4, 4), (2, 3, 1, 1), {}),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CONVS)
def test_conv(name: str, symbolic: bool) -> None:
    x, w, attributes = CONVS[name]
    check(lambda b, *v: b.Conv(*v, **attributes), draw(*x), draw(*w), draw(w[0]), symbolic=symbolic)


TRANSPOSES = {
    "plain": ((2, 3, 4), (3, 2, 3), {}),
    "strided": ((1, 2, 3, 4), (2, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
    "output-padding": ((1, 2, 3), (2, 2, 3), {"strides": [3], "output_padding": [2], "pads": [1, 1]}),
    "more-padding-than-stride": ((1, 2, 3), (2, 2, 2), {"dilations": [3], "output_padding": [2]}),
    "grouped": ((2, 4, 3), (4, 2, 3), {"group": 2, "strides": [2]}),
    "depthwise": ((1, 3, 3, 3), (3, 1, 2, 2), {"group": 3, "dilations": [2, 1]}),
    "same-upper": ((1, 1, 3, 4), (1, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
    "same-lower": ((1, 1, 3, 4), (1, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [1, 2], "output_padding": [0, 1]}),
    "output-shape": ((1, 2, 3, 3), (2, 1, 3, 3), {"output_shape": [6, 8], "strides": [2, 3]}),
    "output-shape-beyond": ((1, 1, 3), (1, 1, 2), {"output_shape": [7], "strides": [2], "output_padding": [1]}),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", TRANSPOSES)
def test_conv_transpose(name: str, symbolic: bool) -> None:
    x, w, attributes = TRANSPOSES[name]
    bias = draw(w[1] * attributes.get("group", 1))
    check(lambda b, *v: b.ConvTranspose(*v, **attributes), draw(*x), draw(*w), bias, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_col2im(symbolic: bool) -> None:
    attributes: dict[str, Any] = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    x = draw(2, 2 * 6, 2 * 2)
    check(lambda b, v: b.Col2Im(v, [4, 5], [2, 3], **attributes), x, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_deform_conv(symbolic: bool) -> None:
    x, w = draw(1, 4, 5, 4), draw(2, 2, 2, 3)
    out = (3, 2)
    offset = RNG.uniform(0.15, 0.85, (1, 2 * 6 * 2, *out)) + RNG.integers(-1, 1, (1, 24, *out))
    mask = draw(1, 2 * 6, *out)
    attributes: dict[str, Any] = {"group": 2, "offset_group": 2, "strides": [2, 2], "pads": [1, 0, 0, 1]}
    check(
        lambda b, *v: b.DeformConv(*v, **attributes),
        x,
        w,
        offset,
        draw(2),
        mask,
        symbolic=symbolic,
    )


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_conv_with_state(activation: str) -> None:
    """The op is not defined for float64: its gradients are those of a depthwise Conv, in float32."""
    arrays = draw(2, 3, 5), draw(3, 1, 3), draw(3), draw(2, 3, 2)

    def depthwise(b: Builder, x: Tensor, w: Tensor, bias: Tensor, past: Tensor) -> Tensor:
        y = b.Conv(b.Concat(past, x, axis=2), w, bias, group=3)
        return y if activation == "none" else b.Mul(y, b.Sigmoid(y))

    same_gradients(lambda b, *v: b.CausalConvWithState(*v, activation=activation), depthwise, *arrays)
