"""Functions: traced once per signature, called as one node, inlined or kept as functions of the model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import executor
from irkit.dialects.onnx import Call, Function
from irkit.frontends import dsl
from irkit.testing import assert_equivalent
from tests.unit.dsl.support import BACKENDS, evaluate


def ops(module: ik.Module) -> list[str]:
    return [op.name.removeprefix("onnx.") for op in module.block.ops]


def test_the_running_example() -> None:
    A, B, C, D = (dsl.placeholder(n, "float32") for n in "ABCD")
    E = (A + B) * (C - D)
    for backend in BACKENDS:
        run = ik.compile(E, backend=backend)
        assert run(A=3, B=2, C=1, D=2) == -5.0
        assert run(3, 2, 1, 2) == -5.0
        assert run(np.float32([3, 0]), 2, C=1, D=2).tolist() == [-5, -2]


def test_fetches_run_only_what_they_need() -> None:
    A, B, C, D = (dsl.placeholder(n, "float32") for n in "ABCD")
    ran: list[str] = []
    run = ik.compile({"sum": A + B, "all": (A + B) * (C - D)}, hook=lambda op, *_: ran.append(op.name))
    assert run.run({"A": 1.0, "B": 2.0}, ["sum"]) == {"sum": 3.0}
    assert ran == ["onnx.Add"]


def test_independent_ops_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ops that wait for each other, on the ready queue: they only end if they run at the same time."""
    together = threading.Barrier(2, timeout=20)
    met: list[str] = []
    plain = executor.run_step

    def waiting(step: Any, *rest: Any) -> Any:
        if step.op.name in ("onnx.Add", "onnx.Sub"):
            together.wait()
            met.append(step.op.name)
        return plain(step, *rest)

    monkeypatch.setattr(executor, "run_step", waiting)
    A, B, C, D = (dsl.placeholder(n, "float32") for n in "ABCD")
    # The hook keeps the steps apart, which would be fused otherwise.
    run = ik.compile((A + B) * (C - D), threads=2, hook=lambda *_: None)
    assert run(3, 2, 1, 2) == -5.0
    assert sorted(met) == ["onnx.Add", "onnx.Sub"]


def test_common_subexpressions_are_merged() -> None:
    x = dsl.placeholder("x", "float32", ["n"])
    module = dsl.exp(x + 1.0) * dsl.exp(x + 1.0)
    assert ops(dsl.to_module(module)).count("Exp") == 2
    assert ops(module.__irkit_module__()).count("Exp") == 1


def test_expressions_are_shared_between_graphs() -> None:
    x = dsl.placeholder("x", "float32", ["n"])
    shared = dsl.exp(x)
    assert ik.compile(shared + 1.0)(np.zeros(1, np.float32)) == 2
    assert ik.compile([shared, -shared])(np.zeros(1, np.float32))[1] == -1


def test_recursion_is_linear() -> None:
    traced: list[int] = []

    @dsl.function
    def fibonacci(n: int) -> Any:
        traced.append(n)
        return dsl.constant(n) if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @dsl.function
    def of(n: int, x: Any) -> Any:
        return x if n < 2 else of(n - 1, x) + of(n - 2, x)

    assert int(ik.compile(fibonacci(80))()) == 23416728348467685
    assert sorted(traced) == list(range(81))
    assert len(ops(dsl.to_module(fibonacci(80)))) <= 80 + 3
    x = dsl.placeholder("x", "int64", [])
    assert ops(dsl.to_module(of(50, x))).count("Add") == 49
    assert ik.compile(of(50, x))(2) == 2 * 20365011074


def test_one_trace_per_signature() -> None:
    traced: list[str] = []

    @dsl.function
    def f(x: Any, scale: Any = 1.0, *, flag: bool = False) -> Any:
        traced.append(f"{x.type} {scale} {flag}")
        return x * scale if flag else x + scale

    a, b = dsl.placeholder("a", "float32", ["n"]), dsl.placeholder("b", "float32", ["n"])
    c, d = dsl.placeholder("c", "float32", [3]), dsl.placeholder("d", "float64", ["n"])
    f(a), f(b), f(a + 1.0), f(x=b)
    assert len(traced) == 1
    f(c), f(d), f(a, 2.0), f(a, 1), f(a, flag=True), f(a, np.float32(1))
    assert len(traced) == 7
    np.testing.assert_array_equal(evaluate(lambda x: f(x, 3.0, flag=True), np.float32([1, 2])), [3, 6])


def test_structures_of_arguments_and_results() -> None:
    @dsl.function
    def f(pair: Any, named: Any) -> Any:
        return {"sum": pair[0] + pair[1], "all": [named["k"], None, (pair[0],)]}

    x, y = dsl.placeholder("x", "float32", []), dsl.placeholder("y", "float32", [])
    made = f((x, y), {"k": y})
    assert list(made) == ["sum", "all"]
    assert made["all"][1] is None
    assert ik.compile([made["sum"], made["all"][0], made["all"][2][0]])(1, 2) == (3, 2, 1)


def test_functions_passed_to_functions() -> None:
    @dsl.function
    def twice(f: Any, x: Any) -> Any:
        return f(f(x))

    @dsl.function
    def inc(x: Any) -> Any:
        return x + 1.0

    x = dsl.placeholder("x", "float32", [])
    assert ik.compile(twice(inc, twice(dsl.exp, x)))(0) == pytest.approx(np.e + 2)
    xs = dsl.placeholder("xs", "float32", ["n"])
    assert ik.compile(dsl.map(inc, xs))(np.float32([1, 2])).tolist() == [2, 3]


def test_methods_and_closures() -> None:
    class Layer:
        def __init__(self, n: float) -> None:
            self.n = n

        @dsl.function
        def __call__(self, x: Any) -> Any:
            return x * self.n

    assert evaluate(Layer(2.0), np.float32(3)) == 6

    def outer(x: Any) -> Any:
        @dsl.function
        def inner(y: Any) -> Any:
            return x + y

        return inner(x) * inner(x * 2.0)

    assert evaluate(outer, np.float32(3)) == 6 * 9
    assert evaluate(lambda x: dsl.function(outer)(x), np.float32(3)) == 54
    assert evaluate(lambda x: dsl.map(outer, x), np.float32([3, 1])).tolist() == [54, 6]


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_of_the_model(backend: str) -> None:
    @dsl.function(inline=False)
    def inner(x: Any) -> Any:
        return dsl.tanh(x) * np.float32([1, 2])

    @dsl.function(inline=False)
    def layer(x: Any, y: Any) -> Any:
        return inner(x) + dsl.cond(dsl.sum(y) > 0.0, lambda: y, lambda: -y), x - 1.0

    x, y = dsl.placeholder("x", "float32", [2]), dsl.placeholder("y", "float32", [2])
    a, b = layer(x, y)
    c, _ = layer(b, a)
    module = dsl.to_module({"a": a, "c": c})
    assert sum(isinstance(op, Function) for op in module.op.ops) == 2
    assert sum(isinstance(op, Call) for op in module.block.ops) == 2
    X, Y = np.float32([0.5, -1]), np.float32([-2, 1])
    wanted = np.tanh(X) * [1, 2] + abs(-Y) * np.sign(-Y)
    found = ik.compile(module, backend=backend).run({"x": X, "y": Y})
    np.testing.assert_allclose(found["a"], wanted, rtol=1e-6)
    assert ik.parse(str(module)) == module
    assert_equivalent(module, ik.load(module.to_onnx()), backends=[backend])
    grads = ik.compile(dsl.gradients(dsl.sum(a), x), backend=backend)
    np.testing.assert_allclose(grads(X, Y), (1 - np.tanh(X) ** 2) * [1, 2], rtol=1e-5)


def test_the_module_of_a_function() -> None:
    @dsl.function
    def affine(x: Any, params: Any, scale: float) -> Any:
        return x @ params["w"] * scale, params["b"]

    params = {"w": dsl.spec("float32", [3, 2]), "b": np.zeros(2, np.float32)}
    module = affine.module(dsl.spec("float32", ["n", 3]), params, 2.0)
    assert list(module.inputs) == ["x", "params.w", "params.b"]
    assert module.graph_name == "affine"
    assert (
        ik.compile(module)(np.ones((1, 3), np.float32), np.ones((3, 2), np.float32), np.zeros(2, np.float32))[0][0, 0]
        == 6
    )


def test_random_numbers_of_a_function_are_drawn_for_each_call() -> None:
    @dsl.function
    def noisy(x: Any) -> Any:
        return x + dsl.random_normal((4,))

    found = evaluate(lambda x: (noisy(x), noisy(x)), np.zeros(4, np.float32))
    assert not np.array_equal(found[0], found[1])


def test_a_long_chain_needs_no_deep_recursion() -> None:
    x = dsl.placeholder("x", "float32", [])
    y = x
    for _ in range(5_000):
        y = y + 1.0
    assert ops(dsl.to_module(y)).count("Add") == 5_000


def test_writing_an_expression_takes_no_longer_than_building_its_ops() -> None:
    def seconds(function: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            function()
            best = min(best, time.process_time() - start)
        return best

    def expression() -> None:
        h = x = dsl.placeholder("x", "float32", [10])
        for _ in range(500):
            h = dsl.tanh(h * x)

    def ops_of_a_builder() -> None:
        b = ik.Builder()
        h = x = b.input("x", "float32", [10])
        for _ in range(500):
            h = b.Tanh(h * x)

    assert seconds(expression) < 1.5 * seconds(ops_of_a_builder)


def test_nothing_keeps_expressions_alive() -> None:
    import gc
    import weakref

    x = dsl.placeholder("x", "float32", [])
    node = weakref.ref((x + 1.0).node)
    gc.collect()
    assert node() is None


def test_the_opset_is_the_lowest_that_can_say_it() -> None:
    x = dsl.placeholder("x", "float32", ["n"])
    assert dsl.to_module(dsl.swish(x) + 1.0).opsets == {"": 21}
    module = dsl.to_module(dsl.cumprod(x))
    assert module.opsets[""] == 26
    assert module.to_onnx().opset_import[0].version == 26


def test_locations_are_the_users_lines() -> None:
    x = dsl.placeholder("x", "float32", [])
    y = dsl.exp(x) + 1.0
    text = dsl.to_module(y).text(locations=True)
    assert text.count("test_tracing.py") >= 2


def test_names_of_outputs_and_initializers() -> None:
    x = dsl.placeholder("x", "float32", [2])
    w = dsl.constant(np.float32([1, 2]), name="w")
    module = dsl.to_module([x * w, x])
    assert list(module.outputs) == ["out0", "out1"]
    assert "onnx.Initializer" in str(module)
    assert '"w"' in str(module)
