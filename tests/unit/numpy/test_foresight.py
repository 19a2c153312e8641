"""Results in which sizes multiply: they are counted before memory is taken for them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import Budget, compile
from irkit.errors import BudgetError, ExecutionError

N = 3000
COLUMN, ROW = np.ones((N, 1), np.float32), np.ones((1, N), np.float32)
WHOLE = COLUMN.astype(np.int32), ROW.astype(np.int32)
TRUE = COLUMN > 0, ROW > 0
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], int]] = {
    **{
        name: (lambda b, x, y, name=name: getattr(b, name)(x, y), (COLUMN, ROW), 4)
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "MatMul", "Gemm")
    },
    **{
        name: (lambda b, x, y, name=name: getattr(b, name)(x, y), (COLUMN, ROW), 1)
        for name in ("Less", "Greater", "Equal", "LessOrEqual")
    },
    **{name: (lambda b, x, y, name=name: getattr(b, name)(x, y), TRUE, 1) for name in ("And", "Or", "Xor")},
    "Mod": (lambda b, x, y: b.Mod(x, y), WHOLE, 4),
    "BitwiseOr": (lambda b, x, y: b.BitwiseOr(x, y), WHOLE, 4),
    "Where": (lambda b, c, y: b.Where(c, y, np.float32(0)), (TRUE[0], ROW), 4),
    "Gemm, transposed": (lambda b, x, y: b.Gemm(x, y, transA=1, transB=1), (ROW, COLUMN), 4),
    "MatMul of batches": (lambda b, x, y: b.MatMul(x, y), (COLUMN[:, None], ROW[None, :1].swapaxes(0, 1)), 4),
    "MatMulInteger": (lambda b, x, y: b.MatMulInteger(x, y), tuple(a.astype(np.uint8) for a in (COLUMN, ROW)), 4),
    "Einsum": (lambda b, x, y: b.Einsum(x, y, equation="i, j -> ij"), (COLUMN[:, 0], ROW[0]), 4),
    "Gather": (lambda b, x, y: b.Gather(x, y), (ROW, np.zeros(N, np.int64)), 4),
    "Gather along 1": (lambda b, x, y: b.Gather(x, y, axis=-1), (COLUMN, np.zeros(N, np.int64)), 4),
    "GatherND": (lambda b, x, y: b.GatherND(x, y), (ROW, np.zeros((N, 1), np.int64)), 4),
}


def build(name: str) -> tuple[ik.Module, dict[str, np.ndarray]]:
    make, arrays, _ = CASES[name]
    b = ik.Builder(name)
    values = [b.input(f"x{i}", a.dtype, [None] * a.ndim) for i, a in enumerate(arrays)]
    b.output(make(b, *values), "y")
    return b.module(), {f"x{i}": a for i, a in enumerate(arrays)}


@pytest.mark.parametrize("name", CASES)
def test_memory_is_not_taken_before_it_is_asked_for(name: str) -> None:
    module, feeds = build(name)
    nbytes = N * N * CASES[name][2]
    f = compile(module, budget=Budget(bytes=nbytes - 1))
    tracemalloc.start()
    try:
        with pytest.raises(BudgetError, match=f"{nbytes} bytes are needed"):
            f.run(feeds)
        assert tracemalloc.get_traced_memory()[1] < N * N / 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["Add", "MatMul", "Gather", "Less", "Einsum"])
def test_as_much_as_it_takes_is_enough(name: str) -> None:
    module, feeds = build(name)
    # Constants and feeds are not counted.
    found = compile(module, budget=Budget(bytes=N * N * CASES[name][2])).run(feeds)["y"]
    assert found.shape == (N, N)


def test_what_does_not_fit_is_said_by_the_kernel() -> None:
    for name, arrays in (("Add", (COLUMN, ROW[:, 1:].T)), ("MatMul", (COLUMN, COLUMN)), ("Gemm", (COLUMN, COLUMN))):
        b = ik.Builder(name)
        values = [b.input(f"x{i}", a.dtype, [None, None]) for i, a in enumerate(arrays)]
        b.output(getattr(b, name)(*values), "y")
        with pytest.raises(ExecutionError):
            compile(b.module(), budget=Budget())(*arrays)


def test_a_type_that_is_too_large_is_refused_when_compiled() -> None:
    b = ik.Builder("large")
    x, y = b.input("x", "float32", [1 << 20, 1]), b.input("y", "float32", [1, 1 << 20])
    product = b.Mul(x, y)
    b.output(b.ReduceSum(product, keepdims=0), "sum")
    module = b.module()
    with pytest.raises(BudgetError, match="takes 4398046511104 bytes, the budget is 17179869184") as caught:
        compile(module)
    assert caught.value.op == "onnx.Mul"
    compile(module, budget=Budget(bytes=1 << 50))
    # A result that may be a view of its operand is not counted.
    b = ik.Builder("view")
    x = b.input("x", "float32", [1 << 20, 1 << 20])
    b.output(b.Slice(b.Transpose(x), np.array([0]), np.array([1])), "y")
    compile(b.module())
