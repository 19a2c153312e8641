"""Variables, control edges, sessions, optimizers: against plain Python and NumPy, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from xdsl.dialects.builtin import FileLineColLoc, FusedLoc

import irkit as ik
from irkit.dialects import state
from irkit.dialects.state import state_signature
from irkit.errors import FeedError, LoadError, SaveError
from irkit.frontends import dsl
from irkit.frontends.dsl.errors import place_of
from irkit.ir.dtypes import dtype as as_dtype
from irkit.ir.location import sources
from irkit.passes import optimize
from tests.unit.dsl.support import BACKENDS

backends = pytest.mark.parametrize("backend", BACKENDS)


@backends
def test_state_lasts_from_run_to_run(backend: str) -> None:
    count = dsl.variable(0, "count")
    step = count.assign_add(2)
    session = dsl.Session(backend)
    assert [session.run([count, step])[0] for _ in range(3)] == [0, 2, 4]
    assert session.run(count) == 6
    assert session.run({"c": count, "steps": (step, None)}) == {"c": 6, "steps": (None, None)}
    assert session.state["count"] == 8
    assert dsl.Session(backend).run(count) == 0


@backends
def test_reads_see_what_control_edges_order_before_them(backend: str) -> None:
    v = dsl.variable(np.float32(1), "v")
    before = v * 10.0
    first = v.assign(before + 1.0)
    with dsl.control_dependencies([first]):
        between = v * 1.0
        second = v.assign_add(v * 2.0)
        with dsl.control_dependencies([second]):
            at_end = v.value
    found = dsl.Session(backend).run([before, between, at_end])
    assert [float(x) for x in found] == [10.0, 11.0, 33.0]


@backends
def test_effects_that_nothing_reaches_do_not_happen(backend: str) -> None:
    a, b = dsl.variable(0, "a"), dsl.variable(0, "b")
    add_a, add_b = a.assign_add(1), b.assign_add(1)
    with dsl.control_dependencies([add_b]):
        value = dsl.identity(dsl.constant(5))
    session = dsl.Session(backend)
    assert session.run(value) == 5
    assert (session.run(a), session.run(b)) == (0, 1)
    session.run(dsl.group(add_a, [add_b]))
    assert (session.run(a), session.run(b)) == (1, 2)
    session.run(dsl.after(1.0, [add_a]))
    assert session.run(a) == 2


def test_a_value_orders_by_what_it_reads() -> None:
    v = dsl.variable(1, "v")
    doubled = v * 2
    with dsl.control_dependencies([doubled]):
        reset = v.assign(0)
    session = dsl.Session()
    assert session.run([doubled, reset])[0] == 2
    assert session.run(v) == 0


@backends
def test_state_within_branches_and_loops(backend: str) -> None:
    total = dsl.variable(0, "total")
    n = dsl.placeholder("n", "int64", [])

    def body(i: Any, seen: Any) -> Any:
        with dsl.control_dependencies([total.assign_add(i)]):
            return seen + total.read()

    loop = dsl.fori(0, n, body, 0)
    branch = dsl.cond(n > 2, lambda: total.assign_add(100), lambda: total.assign_sub(1))
    session = dsl.Session(backend)
    assert session.run(loop, {n: 4}) == 0 + 1 + 3 + 6
    assert session.run(total) == 6
    session.run(branch, {n: 3})
    session.run(branch, {n: 0})
    assert session.run(total) == 105


@backends
def test_a_function_accesses_state_where_it_is_called(backend: str) -> None:
    v = dsl.variable(1, "v")

    @dsl.function
    def bumped(by: Any) -> Any:
        with dsl.control_dependencies([v.assign_add(by)]):
            return v.value

    first = bumped(dsl.constant(2))
    with dsl.control_dependencies([v.assign(0)]):
        after_reset = bumped(dsl.constant(2))
    session = dsl.Session(backend)
    assert session.run(first) == 3
    assert session.run(first) == 5
    assert session.run(after_reset) == 2


def test_initial_values() -> None:
    drawn = dsl.variable(dsl.random_normal((1000,)), "drawn")
    empty = dsl.variable(name="empty", dtype="float32", shape=[2])
    grows = dsl.variable(np.zeros(0, np.float32), "grows", shape=[None])
    session = dsl.Session(seed=1)
    values = session.run(drawn)
    assert abs(values.std() - 1) < 0.1
    np.testing.assert_array_equal(session.run(drawn), values)
    np.testing.assert_array_equal(dsl.Session(seed=1).run(drawn), values)
    with pytest.raises(dsl.UninitializedError):
        session.run(empty)
    session.run(empty.assign([1.0, 2.0]))
    assert session.run(empty).tolist() == [1, 2]
    for _ in range(3):
        session.run(grows.assign(dsl.concatenate([grows, [7.0]])))
    assert session.run(grows).tolist() == [7, 7, 7]
    session.initialize(grows)
    assert session.run(grows).size == 0


def test_state_is_saved_and_loaded(tmp_path: Path) -> None:
    w = dsl.variable(np.float32([1, 2]), "w")
    n = dsl.variable(np.int64(3), "n")
    session = dsl.Session()
    session.run([w.assign(w * 2.0), n.assign_add(1)])
    session.save(tmp_path / "state.safetensors")
    other = dsl.Session("onnxruntime")
    other.load(tmp_path / "state.safetensors")
    assert other.run(w).tolist() == [2, 4]
    assert other.run(n) == 4
    assert {k: v.tolist() for k, v in dsl.State.load(tmp_path / "state.safetensors").items()} == {"w": [2, 4], "n": 4}
    (tmp_path / "broken").write_bytes(b"no")
    with pytest.raises(LoadError, match="cannot be read as state"):
        session.load(tmp_path / "broken")
    with pytest.raises(LoadError):
        session.load(tmp_path / "missing")


@pytest.mark.parametrize("dtype", ["bool", "uint64", "float16", "bfloat16", "complex64", "float8_e4m3fn", "int4"])
def test_every_dtype_is_saved(dtype: str, tmp_path: Path) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(as_dtype(dtype).numpy)
    v = dsl.variable(values, "v")
    session = dsl.Session()
    session.run(v)
    session.save(tmp_path / "state.safetensors")
    found = dsl.State.load(tmp_path / "state.safetensors")["v"]
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()
    text = dsl.variable(["a"], "text")
    session.run(text)
    with pytest.raises(SaveError, match="'text' holds strings"):
        session.save(tmp_path / "state.safetensors")


def test_feeds_that_are_not_needed() -> None:
    x, y = dsl.placeholder("x", "float32", []), dsl.placeholder("y", "float32", [])
    session = dsl.Session()
    assert session.run(x + 1.0, {x: 1.0, y: 2.0}) == 2
    with pytest.raises(FeedError, match="no input 'y'"):
        session.run(x + 1.0, {x: 1.0, "y": 2.0})


def test_two_optimizers_in_one_session() -> None:
    loss, (w, b), feeds = regression()
    first = dsl.minimize("adam", loss, [w], name="first")
    second = dsl.minimize("nadam", loss, [b], name="second")
    session = dsl.Session()
    session.run([first, second], feeds)
    session.run(first, feeds)
    assert {"first/step", "w/first/m", "second/step", "second/product", "b/second/v"} <= set(session.state)
    assert (session.state["first/step"], session.state["second/step"]) == (2, 1)


def test_any_symbol_can_be_fed() -> None:
    x = dsl.placeholder("x", "float32", [2])
    hidden = dsl.exp(x)
    y = hidden * 2.0
    session = dsl.Session()
    assert session.run(y, {hidden: np.float32([1, 2])}).tolist() == [2, 4]
    with pytest.raises(FeedError, match="'x'"):
        session.run([y, x], {hidden: np.float32([1, 2])})


def test_the_module_of_a_session_is_pure_and_exported(tmp_path: Path) -> None:
    w = dsl.variable(np.float32([1, 2]), "w")
    step = w.assign_sub([0.5, 0.5])
    module = dsl.Session().module({"before": w, "step": step})
    assert list(module.outputs) == ["before", "next/w"]
    ik.save(module, tmp_path / "step.onnx")
    loaded = ik.load(tmp_path / "step.onnx")
    (entry,) = state_signature(loaded)
    assert (entry.name, entry.trainable) == ("w", True)
    assert ik.compile(loaded, backend="onnxruntime").run({})[entry.output].tolist() == [0.5, 1.5]


def test_a_variable_that_is_only_read_can_be_compiled() -> None:
    w = dsl.variable(np.float32([1, 2]), "w")
    x = dsl.placeholder("x", "float32", [2])
    run = ik.compile(w * x)
    assert run(x=np.float32([3, 4])).tolist() == [3, 8]
    assert run(x=np.float32([3, 4]), w=np.float32([0, 1])).tolist() == [0, 4]


# Training


def regression() -> tuple[Any, list[dsl.Variable], dict[str, Any]]:
    x, t = dsl.placeholder("x", "float32", ["n", 3]), dsl.placeholder("t", "float32", ["n"])
    w, b = dsl.variable(np.zeros(3, np.float32), "w"), dsl.variable(np.float32(0), "b")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 3)).astype(np.float32)
    feeds = {"x": points, "t": points @ np.float32([1, 2, 3]) + 1}
    return dsl.mean(dsl.square(x @ w + b - t)), [w, b], feeds


@backends
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Nadam", "RMSprop", "Adagrad", "Lion", "Adafactor"])
def test_minimize_does_what_the_optimizer_says(name: str, backend: str) -> None:
    """Step by step against the same optimizer, run on plain gradients."""
    from irkit.ir.builder import Builder
    from irkit.passes.training.optimizers import Context

    loss, variables, feeds = regression()
    rule = getattr(ik.optimizers, name)(0.05)
    step = dsl.minimize(rule, loss)
    grads = dsl.gradients(loss, variables)
    session, plain = dsl.Session(backend), dsl.Session()

    def update(shape: tuple[int, ...]) -> Any:
        b = Builder()
        w, g, n = b.input("w", "float32", shape), b.input("g", "float32", shape), b.input("n", "int64", [])
        slots = {k: b.input(k, "float32", s.initial(shape, np.dtype("f")).shape) for k, s in rule.slots(shape).items()}
        shared = {k: b.input(f"shared/{k}", "float32", []) for k in rule.scalars}
        after = rule.advance(Context.of(b, rule, n), shared)
        new, changed = rule.update(Context.of(b, rule, n, after), w, g, slots)
        b.output(new, "new/w")
        for k, value in changed.items():
            b.output(value, f"new/{k}")
        for k, value in after.items():
            b.output(value, f"new/shared/{k}")
        return ik.compile(b.module())

    runs = {v: update(v.shape) for v in variables}
    held = {v: {k: s.initial(v.shape, np.dtype("f")) for k, s in rule.slots(v.shape).items()} for v in variables}
    shared = {v: {f"shared/{k}": np.float32(s) for k, s in rule.scalars.items()} for v in variables}
    values = {v.name: session.run(v) for v in variables}
    for count in range(3):
        plain.state = dsl.State(values)
        found = plain.run(list(grads), feeds)
        for v, g in zip(variables, found, strict=True):
            given = {"w": values[v.name], "g": g, "n": count, **held[v], **shared[v]}
            made = {k.removeprefix("new/"): x for k, x in runs[v].run(given).items()}
            values[v.name] = made.pop("w")
            shared[v] = {k: made.pop(k) for k in shared[v]}
            held[v] = made
        session.run(step, feeds)
        for v in variables:
            np.testing.assert_allclose(session.state[v.name], values[v.name], rtol=1e-4, atol=1e-6)


def test_minimize_some_variables_with_other_gradients() -> None:
    loss, (w, b), feeds = regression()
    clipped = dsl.clip(dsl.gradients(loss, w), -0.5, 0.5)
    step = dsl.minimize(ik.optimizers.SGD(1.0), loss, [w], gradients_of={w: clipped})
    session = dsl.Session()
    session.run(step, feeds)
    assert np.abs(session.state["w"]).max() == pytest.approx(0.5)
    assert session.run(b) == 0
    assert dsl.trainable_variables(loss) == [w, b] or {v.name for v in dsl.trainable_variables(loss)} == {"w", "b"}


def test_backward_ops_answer_forward_ops_one_to_one() -> None:
    """Every op on the way from a parameter to the loss has backward ops that say it is where they come from; each
    parameter has one gradient and one assignment."""
    x, t = dsl.placeholder("x", "float32", ["n", 3]), dsl.placeholder("t", "float32", ["n", 1])
    w, b = dsl.variable(np.ones((3, 1), np.float32), "w"), dsl.variable(np.float32(0), "b")
    unrelated = dsl.exp(x)
    product = x @ w
    shifted = product + b
    hidden = dsl.tanh(shifted)
    scaled = hidden * 3.0
    squared = dsl.square(scaled - t)
    loss = dsl.mean(squared)
    step = dsl.minimize(ik.optimizers.SGD(0.1), loss)
    module = dsl.to_module({"loss": loss, "step": step, "unrelated": unrelated})

    def lines(by_gradient: bool) -> set[int]:
        return {
            cast(FileLineColLoc, place).line.data
            for op in module.block.ops
            if (isinstance(op.location, FusedLoc) and "gradient" in str(op.location.metadata)) == by_gradient
            for place in sources(op.location)
        }

    def line(symbol: dsl.Symbol) -> int:
        return int(place_of(symbol.node.site).rpartition(":")[2])

    on_the_way = {line(s) for s in (product, shifted, hidden, scaled, squared, loss)}
    assert lines(by_gradient=True) == on_the_way
    assert on_the_way < lines(by_gradient=False)
    assigned = [op.symbol for op in module.block.ops if isinstance(op, state.Assign)]
    assert sorted(assigned) == ["b", "w", "w/step"]
    assert {"next/w", "next/b", "next/w/step"} <= set(optimize(module, "lift-state").outputs)


# What begins a variable


@backends
def test_a_compiled_variable_begins_with_its_expression(backend: str) -> None:
    w = dsl.variable(dsl.constant(5.0) * 2.0, "w")
    assert ik.compile(w + 0.0, backend=backend)() == 10
    assert ik.compile(optimize(dsl.to_module(w + 0.0), "lift-state"), backend=backend).run({})["out"] == 10
    assert dsl.Session(backend).run(w + 0.0) == 10


def test_a_random_variable_belongs_to_a_session() -> None:
    w = dsl.variable(dsl.random_normal((4,)), "w")
    for refused in (ik.compile, dsl.to_module):
        with pytest.raises(ik.IrkitError, match="'w' begins with random numbers"):
            refused(w + 0.0)
    session = dsl.Session(seed=3)
    module = session.module({"y": w + 0.0})
    np.testing.assert_array_equal(ik.compile(module).run({})["y"], session.run(w))


def test_a_variable_without_a_value_is_not_compiled() -> None:
    w = dsl.variable(None, "w", dtype="float32", shape=[2])
    with pytest.raises(dsl.UninitializedError, match="'w' has no initial value"):
        ik.compile(w + 0.0)


def test_the_module_of_a_session_begins_with_its_values() -> None:
    w = dsl.variable(np.float32(1), "w")
    session = dsl.Session()
    session.run(w.assign(7.0))
    assert ik.compile(session.module({"y": w * 2.0})).run({})["y"] == 14


# Optimizers beside each other


def test_optimizers_without_names_share_a_session() -> None:
    """As of a generative adversarial network, where a variable of the user's is called 'step' besides."""
    v, w = dsl.variable(np.float32(1), "v"), dsl.variable(np.float32(2), "w")
    step = dsl.variable(0, "step")
    first, second = dsl.minimize("adam", v * w, [v]), dsl.minimize("adam", -v * w, [w])
    again = dsl.minimize("sgd", dsl.square(v) * w)
    session = dsl.Session()
    session.run(first)
    session.run(second)
    session.run([again, step.assign_add(5)])
    counts = {k: int(x) for k, x in session.state.items() if k.endswith("step")}
    assert counts == {"v/step": 1, "w/step": 1, "v/1/step": 1, "step": 5}


def test_minimize_takes_one_variable() -> None:
    w = dsl.variable(np.float32(1), "w")
    session = dsl.Session()
    session.run(dsl.minimize(ik.optimizers.SGD(0.25), dsl.square(w), w))
    assert session.run(w) == 0.5
