"""Devices: marks that survive, modules in parts with explicit transfers, run on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.frontends import dsl
from irkit.frontends.dsl.device import device_of
from tests.unit.dsl.support import BACKENDS

X = np.float32([[1, 2], [3, 4]])


def program() -> dict[str, Any]:
    x = dsl.placeholder("x", "float32", ["n", 2])
    weights = dsl.constant(np.float32([[1, 2], [3, 4]]), name="weights")
    with dsl.device("cpu:0"):
        left = dsl.tanh(x @ weights)
    with dsl.device("cpu:1"):
        right = dsl.exp(-x) @ weights
        with dsl.device("cpu:0"):
            inner = right + left
        scaled = dsl.cond(dsl.sum(inner) > 0.0, lambda: inner * right, lambda: right)
    return {"scaled": scaled, "inner": inner, "free": dsl.sin(scaled), "x": x}


def test_marks_survive_text_and_files() -> None:
    module = dsl.to_module(program())
    marks = sorted(device_of(op) for op in module.block.ops)
    assert marks.count("cpu:0") == 3
    for again in (ik.parse(str(module)), ik.load(module.to_onnx()), ik.optimize(module, "cse,dce")):
        assert sorted(m for op in again.block.ops if (m := device_of(op))) == [m for m in marks if m]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_partition_computes_the_same(backend: str) -> None:
    module = dsl.to_module(program())
    plan = dsl.partition(module)
    assert {part.device for part in plan.parts} == {"cpu:0", "cpu:1"}
    for part in plan.parts:
        assert all(device_of(op) in ("", part.device) for op in part.module.block.ops)
    # right and left cross once each: right to cpu:0, inner to cpu:1.
    assert [(t.source, t.target) for t in plan.transfers] == [("cpu:1", "cpu:0"), ("cpu:0", "cpu:1")]
    wanted = ik.compile(module).run({"x": X})
    run = plan.compile(backend)
    for name, value in run.run({"x": X}).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5)
    only = run.run({"x": X}, ["inner"])
    np.testing.assert_allclose(only["inner"], wanted["inner"], rtol=1e-5)
    assert "transfer" in str(plan)


def test_only_needed_parts_run() -> None:
    x = dsl.placeholder("x", "float32", [2])
    with dsl.device("cpu:0"):
        a = dsl.exp(x)
    with dsl.device("cpu:1"):
        b = dsl.sin(x)
    ran: list[str] = []
    run = dsl.partition(dsl.to_module({"a": a, "b": b})).compile(hook=lambda op, *_: ran.append(op.name))
    run.run({"x": X[0]}, ["b"])
    assert ran == ["onnx.Sin"]


def test_independent_parts_are_of_one_stage() -> None:
    x = dsl.placeholder("x", "float32", [2])
    with dsl.device("cpu:0"):
        a = dsl.exp(x)
    with dsl.device("cpu:1"):
        b = dsl.sin(x)
    with dsl.device("cpu:0"):
        c = a + b
    plan = dsl.partition(dsl.to_module({"c": c}))
    assert [(p.device, p.stage) for p in plan.parts] == [("cpu:0", 0), ("cpu:1", 0), ("cpu:0", 1)]


def test_calls_functions_and_constants() -> None:
    @dsl.function(inline=False)
    def f(v: Any) -> Any:
        return dsl.exp(v) + 1.0

    @dsl.function
    def g(v: Any) -> Any:
        return dsl.sin(v)

    x = dsl.placeholder("x", "float32", [2])
    with dsl.device("cpu:1"):
        y = f(g(x))
    module = dsl.to_module({"y": y * 2.0, "k": dsl.constant(3.0), "again": y})
    assert [device_of(op) for op in module.block.ops if op.name in ("onnx.Sin", "onnx.Call")] == ["cpu:1", "cpu:1"]
    plan = dsl.partition(module)
    for backend in BACKENDS:
        found = plan.compile(backend).run({"x": X[0]})
        np.testing.assert_allclose(found["y"], (np.exp(np.sin(X[0])) + 1) * 2, rtol=1e-6)
        assert found["k"] == 3


def test_a_function_runs_where_it_is_called() -> None:
    @dsl.function
    def g(v: Any) -> Any:
        return dsl.clip(dsl.sin(v), high=0.5)

    x = dsl.placeholder("x", "float32", [2])
    with dsl.device("cpu:1"):
        first = g(x)
    with dsl.device("cpu:2"):
        second = g(first)
    module = dsl.to_module({"y": g(second), "first": first})
    assert [device_of(op) for op in module.block.ops if op.name == "onnx.Sin"] == ["cpu:1", "cpu:2", ""]
    wanted = ik.compile(module).run({"x": X[0]})
    for backend in BACKENDS:
        found = dsl.partition(module).compile(backend).run({"x": X[0]})
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_session_over_two_devices_trains_the_same(backend: str) -> None:
    x = dsl.placeholder("x", "float32", ["n", 2])
    with dsl.device("cpu:0"):
        w = dsl.variable(np.float32([1, -1]), "w")
        hidden = dsl.tanh(x @ w)
    with dsl.device("cpu:1"):
        loss = dsl.mean(dsl.square(hidden - 0.5))
    step = dsl.minimize("sgd", loss)
    apart, whole = dsl.Session(backend, devices=True), dsl.Session()
    for _ in range(3):
        found, wanted = (s.run([loss, step], {x: X})[0] for s in (apart, whole))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(apart.state["w"], whole.state["w"], rtol=1e-5)
    assert {p.device for p in dsl.partition(whole.module([loss, step])).parts} == {"cpu:0", "cpu:1"}


def test_state_is_lifted_first() -> None:
    v = dsl.variable(1.0, "v")
    with pytest.raises(IrkitError, match="lift-state"):
        dsl.partition(dsl.to_module({"v": v * 2.0}))
    with dsl.device("cpu:1"):
        step = v.assign_add(1.0)
    plan = dsl.partition(dsl.Session().module([v, step]))
    assert plan.compile().run({})["next/v"] == 2
