"""Rules that lower float32 in another way than float64: the same gradients, and the same derivatives of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.ir.module import Module
from irkit.passes import optimize

RNG = np.random.default_rng(0)
BACKENDS = ("numpy", "onnxruntime")


def pooled(kind: str, size: tuple[Any, ...], **attributes: Any) -> Module:
    """The sum of cubes of what a MaxPool gives."""
    b = ik.Builder("pool")
    x = b.input("x", kind, ["N", 2, *size])
    y = b.MaxPool(x, **attributes)
    b.output(b.ReduceSum(y * y * y, keepdims=0), "loss")
    return b.module()


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], bool]] = {
    "plain": ((6, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}, True),
    "line": ((9,), {"kernel_shape": [3], "strides": [3]}, True),
    "padded": ((7, 6), {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 0, 1, 0]}, True),
    "apart": ((6, 5), {"kernel_shape": [2, 1], "strides": [4, 2]}, True),
    "cube": ((4, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}, True),
    "remainder": ((7, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}, False),
    "overlapping": ((6, 8), {"kernel_shape": [3, 2], "strides": [1, 2]}, False),
    "dilated": ((6, 8), {"kernel_shape": [2, 2], "strides": [3, 2], "dilations": [2, 1]}, False),
    "beyond": ((5, 8), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, False),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_max_pool(name: str, backend: str) -> None:
    size, attributes, by_unpool = CASES[name]
    # Few values, so that most windows tie.
    x = RNG.integers(-2, 3, (3, 2, *size))
    made = {kind: optimize(ik.grad(pooled(kind, size, **attributes)), "O2") for kind in ("float32", "float64")}
    assert any(op.name == "onnx.MaxUnpool" for op in made["float32"].block.ops) is by_unpool
    assert any(op.name == "onnx.ScatterElements" for op in made["float64"].block.ops)
    found = ik.compile(made["float32"], backend=backend)(x.astype(np.float32))
    expected = ik.compile(made["float64"])(x.astype(np.float64))
    np.testing.assert_array_equal(found, expected)
    assert np.count_nonzero(expected) > 3


@pytest.mark.parametrize("name", ["plain", "padded", "remainder"])
def test_derivatives_of_a_max_pools_gradient(name: str) -> None:
    size, attributes, _ = CASES[name]
    x = RNG.permutation(3 * 2 * int(np.prod(size))).reshape(3, 2, *size) / 50
    v = RNG.standard_normal(x.shape)
    found = [
        ik.compile(optimize(ik.hvp(pooled(kind, size, **attributes)), "O2")).run(
            {"x": x.astype(kind), "tangent/x": v.astype(kind)}
        )["hvp/x"]
        for kind in ("float32", "float64")
    ]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ignored", [None, 2, -1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "backend"), [("float16", "numpy"), ("float32", "numpy"), ("float32", "onnxruntime")])
def test_cross_entropy(kind: str, weighted: bool, ignored: int | None, backend: str) -> None:
    labels = np.array([[0, 2, 1], [3, 3, -1 if ignored == -1 else 0]])

    def module(kind: str) -> Module:
        b = ik.Builder("loss")
        x = b.input("x", kind, [None, 4, None])
        weights = [b.constant(np.array([0.5, 1, 2, 0.25], kind))] * weighted
        b.output(b.SoftmaxCrossEntropyLoss(x, labels, *weights, ignore_index=ignored), "loss")
        return optimize(ik.grad(b.module()), "O2")

    x = RNG.standard_normal((2, 4, 3)).astype(kind)
    found = ik.compile(module(kind), backend=backend)(x)
    expected = ik.compile(module("float64"))(x.astype(np.float64))
    np.testing.assert_allclose(
        found, expected, rtol=1e-2 if kind == "float16" else 1e-5, atol=1e-3 if kind == "float16" else 1e-7
    )


def test_a_count_beyond_float16() -> None:
    # 70,000 targets: their number is no float16, its inverse is.
    b = ik.Builder("many")
    x = b.input("x", "float16", ["N", 2])
    t = b.input("t", "int64", ["N"])
    b.output(b.SoftmaxCrossEntropyLoss(x, t), "loss")
    found = ik.compile(ik.grad(b.module(), wrt="x"))(np.zeros((70_000, 2), np.float16), np.zeros(70_000, np.int64))
    np.testing.assert_allclose(found[:, 1], 0.5 / 70_000, rtol=0.1)
