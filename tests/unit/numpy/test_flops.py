"""The table of arithmetic operations: known counts, and that it names ops that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import compile
from irkit.backends.numpy.flops import FLOPS
from irkit.backends.numpy.registry import find_kernel

Build = Callable[[ik.Builder, Any], Any]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


COUNTS: dict[str, tuple[tuple[int, ...], Build, int]] = {
    "Add": ((2, 3), lambda b, x: x + x, 6),
    "Exp": ((2, 3), lambda b, x: b.Exp(x), 6),
    "Sum": ((2, 3), lambda b, x: b.Sum(x, x, x), 12),
    "Reshape": ((2, 3), lambda b, x: b.Reshape(x, np.array([6])), 0),
    "MatMul": ((2, 3, 4), lambda b, x: b.MatMul(x, ones(4, 5)), 2 * 2 * 3 * 4 * 5),
    "Gemm": ((3, 2), lambda b, x: b.Gemm(x, ones(3, 4), ones(4), transA=1), 2 * 2 * 3 * 4 + 2 * 4),
    "Einsum": ((2, 3), lambda b, x: b.Einsum(x, ones(3, 4), equation="ij,jk->ik"), 2 * 2 * 3 * 4),
    "Conv": (
        (2, 4, 8, 8),
        lambda b, x: b.Conv(x, ones(6, 2, 3, 3), ones(6), group=2),
        2 * 6 * 6 * 6 * (2 * 2 * 9 + 1),
    ),
    "ConvTranspose": ((1, 4, 5), lambda b, x: b.ConvTranspose(x, ones(4, 3, 2)), 2 * 4 * 5 * 3 * 2),
    "MaxPool": ((1, 2, 6, 6), lambda b, x: b.MaxPool(x, kernel_shape=[2, 3], strides=[2, 3]), 2 * 3 * 2 * 6),
    "GlobalAveragePool": ((1, 2, 6, 6), lambda b, x: b.GlobalAveragePool(x), 72),
    "ReduceSum": ((4, 5), lambda b, x: b.ReduceSum(x, np.array([1])), 20),
    "Softmax": ((4, 5), lambda b, x: b.Softmax(x), 100),
    "Attention": (
        (1, 2, 3, 4),
        lambda b, x: b.Attention(x, ones(1, 2, 5, 4), ones(1, 2, 5, 6), outputs=1),
        2 * 3 * 5 * (2 * (4 + 6) + 5),
    ),
    "LSTM": (
        (7, 2, 3),
        lambda b, x: b.LSTM(x, ones(1, 20, 3), ones(1, 20, 5), hidden_size=5, outputs=3)[0],
        7 * 2 * 5 * 4 * (2 * 8 + 5),
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_known_counts(name: str) -> None:
    shape, build, expected = COUNTS[name]
    b = ik.Builder()
    b.output(build(b, b.input("x", "float32", shape)), "y")
    f = compile(b.module(), profile=True)
    f(ones(*shape))
    f(ones(*shape))
    (entry,) = (p for p in f.profile if p.op == f"onnx.{name}")
    assert (entry.calls, entry.flops) == (2, 2 * expected)


@pytest.mark.parametrize("name", FLOPS)
def test_the_table_names_ops(name: str) -> None:
    assert find_kernel("", name) or find_kernel("ai.onnx.preview", name), f"there is no op {name}"
