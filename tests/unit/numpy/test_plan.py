"""Plans and executors: order, liveness, aliasing, budgets, errors, threads, profile and hook."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

import irkit as ik
from irkit.backends.numpy import Budget, compile
from irkit.backends.numpy.plan import ABSENT
from irkit.backends.numpy.registry import KERNELS, kernel
from irkit.errors import BudgetError, ExecutionError, UnsupportedError
from irkit.ir.module import Module

EXECUTORS: list[dict[str, Any]] = [{}, {"profile": True}, {"threads": 3}, {"threads": 2, "budget": Budget()}]


def diamond() -> Module:
    """E = (A + B) * (C - D)."""
    b = ik.Builder()
    a, c = b.input("A", "float32", ["N"]), b.input("C", "float32", ["N"])
    b.output((a + 2) * (c - 1), "E")
    return b.module()


def counting(n: int = 5) -> Module:
    """A loop that adds a captured vector, collects the squares, and stops early at 4."""
    b = ik.Builder()
    x = b.input("x", "float32", [2])
    limit = b.input("limit", "int64", [])
    total, squares = b.Loop(
        n, True, b.constant(np.zeros(2, np.float32)), body=lambda b, i, c, s: (b.Less(i, limit), s + x, s * s)
    )
    b.output(total, "total")
    b.output(squares, "squares")
    return b.module()


@pytest.mark.parametrize("options", EXECUTORS)
def test_executors_agree(options: dict[str, Any]) -> None:
    f = compile(diamond(), **options)
    for _ in range(3):
        np.testing.assert_array_equal(f([3, 0], [2, 1]), np.array([5, 0], np.float32))
    g = compile(counting(), **options)
    total, squares = g([1, 2], 3)
    np.testing.assert_array_equal(total, np.array([4, 8], np.float32))
    np.testing.assert_array_equal(squares, np.array([[0, 0], [1, 4], [4, 16], [9, 36]], np.float32))
    total, squares = g([1, 2], -1)
    np.testing.assert_array_equal(total, np.array([1, 2], np.float32))


@pytest.mark.parametrize("options", EXECUTORS)
def test_loop_without_iterations(options: dict[str, Any]) -> None:
    b = ik.Builder()
    x = b.input("x", "float16", [2])
    state, collected = b.Loop(0, None, x, body=lambda b, i, c, s: (c, s, b.Exp(x)))
    b.output(state, "state")
    b.output(collected, "collected")
    state, collected = compile(b.module(), **options)([1, 2])
    assert state.tolist() == [1, 2]
    assert collected.shape == (0, 2)
    assert collected.dtype == np.float16


@pytest.mark.parametrize("options", EXECUTORS)
def test_nested_captures(options: dict[str, Any]) -> None:
    b = ik.Builder()
    x, flag = b.input("x", "int64", []), b.input("flag", "bool", [])

    def body(b: Any, i: Any, c: Any, s: Any) -> Any:
        picked = b.If(flag, then_branch=lambda b: b.Add(x, i), else_branch=lambda b: b.Mul(x, i))
        return c, s + picked

    b.output(b.Loop(4, None, 0, body=body), "y")
    f = compile(b.module(), **options)
    assert f(10, True) == 46
    assert f(10, False) == 60


def test_results_own_their_memory() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2, 3])
    w = b.initializer(np.arange(3, dtype=np.float32), "w")
    y = x + 1
    for index, value in enumerate((x, b.Identity(x), b.Transpose(x, perm=[1, 0]), w, y, b.Identity(y), b.Flatten(y))):
        b.output(value, f"o{index}")
    for part in b.Split(y, axis=1, num_outputs=3, outputs=3):
        b.output(part, f"part{id(part)}")
    b.output(b.Expand(w, b.constant([4, 3])), "expanded")
    f = compile(b.module())
    feed = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = feed.copy()
    first = list(f.run({"x": feed}).values())
    expected = [value.copy() for value in first]
    for value in first:
        value[...] = -1
        value += 1
    for value in first:
        assert not np.shares_memory(value, feed)
    assert not any(np.shares_memory(p, q) for i, p in enumerate(first) for q in first[:i])
    np.testing.assert_array_equal(feed, before)
    for again, value in zip(f.run({"x": feed}).values(), expected, strict=True):
        np.testing.assert_array_equal(again, value)


def test_sequence_results_own_their_memory() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2])
    b.output(b.SequenceConstruct(x, x), "s")
    feed = np.ones(2, np.float32)
    first, second = compile(b.module())(feed)
    first += 1
    assert feed.tolist() == second.tolist() == [1, 1]


def test_feeds_are_protected_from_kernels() -> None:
    @kernel("WriteToInput", domain="test.plan")
    def write(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    try:
        feed = np.ones(2, np.float32)
        with pytest.raises(ExecutionError, match="read-only"):
            compile(custom("test.plan", "WriteToInput"))(feed)
        assert feed.tolist() == [1, 1]
    finally:
        del KERNELS["test.plan", "WriteToInput", 0]


def custom(domain: str, op_type: str) -> Module:
    from irkit.dialects.onnx import Custom
    from irkit.ir.types import tensor

    b = ik.Builder()
    x = b.input("x", "float32", [2])
    op = Custom.of(domain, op_type, [x.ssa], [tensor("float32", [2])])
    b.insert(op)
    b.output(op.results[0], "y")
    return b.module()


def test_unknown_op_is_refused_when_compiled() -> None:
    with pytest.raises(UnsupportedError, match=r"foreign\.Unheard.*no kernel"):
        compile(custom("foreign", "Unheard"))


def test_dead_ops_are_left_out_and_values_freed() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", ["N"])
    b.Exp(x)
    y = b.Relu(b.Neg(b.Abs(x)))
    b.output(y, "y")
    f = compile(b.module())
    (plan,) = f._plans.values()
    assert [step.op.name for step in plan.steps] == ["onnx.Abs", "onnx.Neg", "onnx.Relu"]
    assert [step.frees for step in plan.steps] == [(0,), (1,), (2,)]


def test_unused_results_get_no_slot() -> None:
    b = ik.Builder()
    first, _ = b.TopK(b.input("x", "float32", [5]), b.constant([2]))
    b.output(first, "y")
    f = compile(b.module())
    (plan,) = f._plans.values()
    assert plan.steps[0].outputs[1] == ABSENT
    np.testing.assert_array_equal(f([3, 1, 2, 5, 4]), np.array([5, 4], np.float32))


@pytest.mark.parametrize("options", EXECUTORS)
def test_errors_name_op_place_and_operands(options: dict[str, Any]) -> None:
    b = ik.Builder()
    x, y = b.input("x", "int32", [2]), b.input("y", "int32", [2])
    b.output(b.Neg(x / y), "z")
    f = compile(b.module(), **options)
    with pytest.raises(ExecutionError) as caught:
        f([1, 2], [1, 0])
    assert caught.value.op == "onnx.Div"
    assert "test_plan.py" in caught.value.where
    assert "int32[2], int32[2]" in caught.value.message
    np.testing.assert_array_equal(f([1, 2], [1, 1]), [-1, -2])


@pytest.mark.parametrize("options", EXECUTORS)
def test_errors_within_graphs_name_the_inner_op(options: dict[str, Any]) -> None:
    b = ik.Builder()
    x = b.input("x", "int32", [])
    b.output(b.Loop(3, None, x, body=lambda b, i, c, s: (c, s / (s - s))), "y")
    with pytest.raises(ExecutionError, match="Div"):
        compile(b.module(), **options)(4)


def test_budget_of_steps() -> None:
    with pytest.raises(BudgetError, match="more than 3 iterations") as caught:
        compile(counting(), budget=Budget(steps=3))([1, 2], 9)
    assert caught.value.op == "onnx.Loop"
    compile(counting(), budget=Budget(steps=5))([1, 2], 9)


def test_budget_of_bytes() -> None:
    b = ik.Builder()
    x, n = b.input("x", "float32", [1]), b.input("n", "int64", [1])
    b.output(b.Tile(x, n), "y")
    module = b.module()
    f = compile(module, budget=Budget(bytes=1000))
    assert f([1], [250]).shape == (250,)
    with pytest.raises(BudgetError, match="Tile"):
        f([1], [251])
    # Asked for before it is taken: this could not be had.
    with pytest.raises(BudgetError):
        compile(module)([1], [1 << 50])


def test_budget_counts_what_is_live() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [100])
    y = x
    for _ in range(10):
        y = b.Exp(y)
    b.output(y, "y")
    feed = np.zeros(100, np.float32)
    module = b.module()
    f = compile(module, budget=Budget(bytes=800))
    f(feed)
    assert f.peak_bytes == 800
    with pytest.raises(BudgetError, match="800"):
        compile(module, budget=Budget(bytes=799))(feed)


def test_budget_of_time() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [])
    b.output(b.Loop(None, True, x, body=lambda b, i, c, s: (c, s + 1)), "y")
    with pytest.raises(BudgetError, match=r"took more than 0\.05 s"):
        compile(b.module(), budget=Budget(seconds=0.05))(0)


def test_profile() -> None:
    f = compile(counting(), profile=True)
    f([1, 2], 9)
    f([1, 2], 9)
    calls = {p.op: (p.calls, p.bytes) for p in f.profile}
    assert calls["onnx.Loop"] == (2, 2 * (8 + 40))
    assert calls["onnx.Add"] == (10, 80)
    assert f.profile == sorted(f.profile, key=lambda p: -p.seconds)
    assert all(p.seconds > 0 for p in f.profile)
    assert compile(counting()).profile == []


@pytest.mark.parametrize("threads", [1, 3])
def test_hook(threads: int) -> None:
    seen: list[tuple[str, list[Any], list[Any]]] = []

    def hook(op: Operation, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        seen.append((op.name, [x.tolist() for x in inputs], [y.tolist() for y in outputs]))

    compile(diamond(), hook=hook, threads=threads)([3], [2])
    assert sorted(seen) == [
        ("onnx.Add", [[3.0], 2.0], [[5.0]]),
        ("onnx.Mul", [[5.0], [1.0]], [[5.0]]),
        ("onnx.Sub", [[2.0], 1.0], [[1.0]]),
    ]


def test_independent_ops_run_at_once() -> None:
    barrier = threading.Barrier(2, timeout=10)

    @kernel("Meet", domain="test.plan")
    def meet(x: np.ndarray) -> np.ndarray:
        barrier.wait()
        return x + 1

    try:
        b = ik.Builder()
        x = b.input("x", "float32", [2])
        from irkit.dialects.onnx import Custom

        made = [Custom.of("test.plan", "Meet", [x.ssa], [x.type]) for _ in range(2)]
        for op in made:
            b.insert(op)
        b.output(b.Add(made[0].results[0], made[1].results[0]), "y")
        # One thread would wait for itself forever.
        assert compile(b.module(), threads=2)([0, 1]).tolist() == [2, 4]
    finally:
        del KERNELS["test.plan", "Meet", 0]


def test_runs_in_several_threads() -> None:
    f = compile(counting(), threads=2)
    results: list[Any] = []

    def work(k: int) -> None:
        results.extend((k, f([k, k], 9)[0].tolist()) for _ in range(20))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 80
    assert all(found == [5 * k, 5 * k] for k, found in results)


def test_module_is_not_changed() -> None:
    module = counting()
    copy = module.clone()
    compile(module)([1, 2], 3)
    assert module == copy
