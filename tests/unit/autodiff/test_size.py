"""How many ops a gradient and a training step take: no more than a person would write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from benchmarks.training import NETS, made, nodes
from irkit.ir.dtypes import BY_NAME
from irkit.ir.module import Module
from irkit.ir.types import dtype_of
from irkit.passes import optimize

LARGEST = 4
"""Times the forward graph."""

PER_PARAMETER, PER_STEP = 11, 13
"""Ops of AdamW: those for each parameter, and the scalars that they share."""


def ops(module: Module) -> Counter[str]:
    ignored = ("onnx.Constant", "onnx.Initializer", "onnx.NoValue", "func.return")
    return Counter(op.name.partition(".")[2] for op in module.block.ops if op.name not in ignored)


def gradient(build: Callable[..., Any], *shapes: list[Any], kinds: Any = "float32") -> Counter[str]:
    """The ops of the value and gradient of a function of inputs of these shapes."""
    kinds = [kinds] * len(shapes) if isinstance(kinds, str) else kinds
    b = ik.Builder("gradient")
    b.output(build(b, *(b.input(f"x{i}", k, s) for i, (k, s) in enumerate(zip(kinds, shapes, strict=True)))), "loss")
    return ops(optimize(ik.value_and_grad(b.module()), "O2"))


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("net", NETS)
def test_a_training_step(net: str, name: str) -> None:
    module, weights = NETS[net]()
    step = made(module, name)
    forward, size = nodes(optimize(step.evaluation, "O2")), nodes(step.module)
    slots = len(weights) * PER_PARAMETER + PER_STEP if name == "AdamW" else 0
    assert size <= LARGEST * forward + slots, (size, forward)
    assert nodes(optimize(step.module, "cse,dce")) == size
    assert "Where" not in ops(step.module)


def test_a_step_of_sgd_updates_weights_in_the_product_that_gives_their_gradient() -> None:
    found = ops(made(NETS["MLP"]()[0], "SGD").module)
    # Three for the weights, two for what goes on to the layer below; the forward products are MatMul.
    assert found["Gemm"] == 5
    assert found["Add"] == 3 + 3 + 1
    assert not {"Transpose", "Shape", "Expand"} & {*found}


def test_a_pool_after_a_relu_is_masked_where_it_is_small() -> None:
    step = made(NETS["CNN"]()[0], "SGD").module
    masks = [op.results[0].type.get_shape()[2:] for op in step.block.ops if op.name == "onnx.Sign"]
    assert masks == [(7, 7), (14, 14)]
    assert not any(dtype_of(v.type) is BY_NAME["bool"] for op in step.block.ops for v in op.results)


@pytest.mark.parametrize(
    ("build", "shapes", "most"),
    [
        (lambda b, x, w: b.ReduceSum(x @ w, keepdims=0), [["N", 4], [4, 3]], 6),
        (lambda b, x, c: b.ReduceSum(b.Relu(x + c), keepdims=0), [["N", 4], [4]], 6),
        (lambda b, x, y: b.ReduceMean(b.Pow(x - y, np.float32(2)), keepdims=0), [["N", 4], ["N", 4]], 9),
        (lambda b, x: b.ReduceSum(b.Reshape(x, [-1, 12]) * 2, keepdims=0), [["N", 3, 4]], 7),
        (lambda b, x, c: b.ReduceSum(b.Tanh(x + c), keepdims=0), [["N", 5, 4], [1, 4]], 8),
    ],
    ids=["product", "relu", "squares", "reshape", "broadcast"],
)
def test_a_gradient(build: Callable[..., Any], shapes: list[list[Any]], most: int) -> None:
    found = gradient(build, *shapes)
    assert sum(found.values()) <= most, found


def test_a_broadcast_over_two_kinds_of_axes_is_summed_at_once() -> None:
    found = gradient(lambda b, x, c: b.ReduceSum(b.Exp(x + c), keepdims=0), ["N", 5, 4], [1, 4])
    assert found["ReduceSum"] == 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_cross_entropy(reduction: str) -> None:
    def loss(b: ik.Builder, x: ik.Tensor, t: ik.Tensor) -> ik.Tensor:
        return b.SoftmaxCrossEntropyLoss(x, t, reduction=reduction)

    found = gradient(loss, ["N", 10], ["N"], kinds=["float32", "int64"])
    expected = {"SoftmaxCrossEntropyLoss": 1, "Exp": 1, "OneHot": 1, "Sub": 1}
    assert found == (expected if reduction == "sum" else {**expected, "ReduceSum": 1, "Div": 1, "Mul": 1})


def convolution(group: int = 1, size: Any = 12, kernel: int = 3, channels: int = 4) -> Counter[str]:
    def loss(b: ik.Builder, x: ik.Tensor, w: ik.Tensor) -> ik.Tensor:
        return b.ReduceSum(b.Conv(x, w, group=group, pads=[1, 1, 1, 1]), keepdims=0)

    return gradient(loss, ["N", channels, size, size], [6, channels // group, kernel, kernel])


def test_the_way_to_a_convolutions_weights_depends_on_the_shapes() -> None:
    assert convolution()["Einsum"] == convolution(channels=3)["Einsum"] == 1
    assert convolution(channels=3)["ReduceSum"] == convolution()["ReduceSum"] + 1
    assert convolution(group=2)["MatMul"] == 1
    assert not {"Einsum", "MatMul"} & {*convolution(kernel=5)}
    assert not {"Einsum", "MatMul"} & {*convolution(size="H")}
    assert not {"Einsum", "MatMul"} & {*convolution(size=1000)}
