"""Lifted modules against the same programs in plain Python, on both backends, run for run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest

from irkit import backends
from irkit.dialects import state
from irkit.errors import VerifyError
from irkit.frontends.onnx import load
from irkit.ir.builder import Builder, Tensor
from irkit.ir.module import Module
from irkit.ir.names import set_out_names
from irkit.ir.types import tensor
from irkit.passes import optimize
from irkit.passes.lift_state import LiftState
from tests.unit.state.reference import is_pure

State = dict[str, Any]
Feeds = Mapping[str, Any]
Step = Callable[[State, Feeds], dict[str, Any]]


def lift(module: Module) -> Module:
    pure = module.clone()
    assert LiftState().run(pure)
    assert is_pure(pure)
    return pure.verify()


def check(
    module: Module, step: Step, *feeds: Feeds, pipelines: tuple[str, ...] = ("lift-state", "lift-state,O2")
) -> None:
    """Runs a module and ``step``, which changes the state that it is given and returns the outputs, side by side."""
    for pipeline in pipelines:
        pure = optimize(module, pipeline)
        assert is_pure(pure)
        signature = state.state_signature(pure)
        for backend in ("numpy", "onnxruntime"):
            runner = backends.compile(pure, backend)
            expected: State = {name: value.copy() for name, value in state.initial_state(module).items()}
            found = state.initial_state(pure)
            for feed in feeds:
                wanted = step(expected, feed)
                outputs, found = state.run_stateful(runner, signature, feed, found)
                assert outputs.keys() == wanted.keys()
                for name, value in wanted.items():
                    np.testing.assert_array_equal(outputs[name], value)
                assert found.keys() == expected.keys()
                for name, value in expected.items():
                    np.testing.assert_array_equal(found[name], value)
                    assert found[name].dtype == state.initial_state(module)[name].dtype


X = [{"x": np.float32(v)} for v in (3, -1, 0.5)]


def scalar_program() -> tuple[Builder, Tensor, state.Variable]:
    b = Builder("g")
    return b, b.input("x", "float32", []), state.variable(b, "v", np.float32(10))


# Straight lines


def test_read_assign_read() -> None:
    b, x, v = scalar_program()
    before, t = state.read(b, v)
    t = state.assign(b, v, before * 2 + x, [t])
    after, _ = state.read(b, v, [t])
    b.output(before, "before")
    b.output(after, "after")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        before = s["v"]
        s["v"] = before * 2 + f["x"]
        return {"before": before, "after": s["v"]}

    check(b.module(), step, *X)


def test_the_last_of_several_assigns_stays() -> None:
    b, x, v = scalar_program()
    t = state.assign(b, v, x)
    first, t = state.read(b, v, [t])
    t = state.assign(b, v, x + 1, [t])
    t = state.assign(b, v, x + 2, [t])
    last, _ = state.read(b, v, [t])
    b.output(first - last, "d")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = f["x"] + np.float32(2)
        return {"d": np.float32(-2)}

    check(b.module(), step, *X)


def test_a_diamond() -> None:
    b, x, v = scalar_program()
    t = state.assign(b, v, x)
    left, l_done = state.read(b, v, [t])
    right, r_done = state.read(b, v, [t])
    end = state.assign_add(b, v, 1, [state.group(b, [l_done, r_done])])
    b.output(left * right, "y")
    b.output(end, "end")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = f["x"] + np.float32(1)
        return {"y": f["x"] * f["x"]}

    check(b.module(), step, *X)


def test_several_variables_that_feed_each_other() -> None:
    b = Builder("fibonacci")
    p, q = state.variable(b, "p", 0), state.variable(b, "q", 1)
    (a, t1), (c, t2) = state.read(b, p), state.read(b, q)
    b.output(a, "y")
    b.output(state.assign(b, p, c, [t1]), "t1")
    b.output(state.assign(b, q, a + c, [t2]), "t2")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        y = s["p"]
        s["p"], s["q"] = s["q"], s["p"] + s["q"]
        return {"y": y}

    check(b.module(), step, *[{}] * 8)


def test_control_contexts_add_up_and_reach_into_graphs() -> None:
    b, x, v = scalar_program()
    w = state.variable(b, "w", np.float32(1))
    with state.control(b, [state.assign(b, v, x)]):
        a, _ = state.read(b, v)
        with state.control(b, [state.assign(b, w, x + 1)]):
            y = b.If(
                x > 0,
                then_branch=lambda b: state.read(b, v)[0] + state.read(b, w)[0],
                else_branch=lambda b: state.read(b, v)[0],
            )
    assert b.control == ()
    b.output(a, "a")
    b.output(y, "y")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"], s["w"] = f["x"], f["x"] + np.float32(1)
        return {"a": s["v"], "y": s["v"] + s["w"] if f["x"] > 0 else s["v"]}

    check(b.module(), step, *X)


def test_after_makes_a_value_wait() -> None:
    b, x, v = scalar_program()
    b.output(state.after(b, x, [state.assign_sub(b, v, x)]), "y")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = s["v"] - f["x"]
        return {"y": f["x"]}

    check(b.module(), step, *X)


# What runs


def test_an_assign_that_no_output_needs_does_not_run() -> None:
    b, x, v = scalar_program()
    value, t = state.read(b, v)
    state.assign(b, v, x, [t])
    b.output(value, "y")
    module = b.module()
    pure = lift(module)
    assert list(pure.outputs) == ["y"]
    assert state.state_signature(pure)[0].output is None
    check(module, lambda s, f: {"y": s["v"]}, *X)


def test_an_if_that_no_output_needs_does_not_run() -> None:
    b, x, v = scalar_program()
    value, t = state.read(b, v)
    b.If(
        x > 0,
        then_branch=lambda b: state.assign(b, v, x, [t]),
        else_branch=lambda b: state.assign(b, v, -x, [t]),
    )
    b.output(value, "y")
    check(b.module(), lambda s, f: {"y": s["v"]}, *X)


def test_what_stands_in_a_graph_runs_with_its_op() -> None:
    b, x, v = scalar_program()

    def branch(b: Builder) -> Tensor:
        state.assign(b, v, x)
        return x * 2

    b.output(b.If(x > 0, then_branch=branch, else_branch=lambda b: b.Identity(x)), "y")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        if f["x"] > 0:
            s["v"] = f["x"]
            return {"y": f["x"] * 2}
        return {"y": f["x"]}

    check(b.module(), step, *X)


# If


def test_an_assign_in_one_branch() -> None:
    b, x, v = scalar_program()
    done = b.If(
        x > 0,
        then_branch=lambda b: state.assign_add(b, v, x),
        else_branch=lambda b: state.group(b, []),
    )
    value, _ = state.read(b, v, [done])
    b.output(value, "y")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = s["v"] + f["x"] if f["x"] > 0 else s["v"]
        return {"y": s["v"]}

    check(b.module(), step, *X)


def test_different_variables_in_the_branches() -> None:
    b, x, v = scalar_program()
    w = state.variable(b, "w", np.float32(0))
    y, done = b.If(
        x > 0,
        then_branch=lambda b: (state.read(b, w)[0], state.assign(b, v, x)),
        else_branch=lambda b: (state.read(b, v)[0], state.assign(b, w, x)),
    )
    b.output(y, "y")
    b.output(done, "done")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        read, write = ("w", "v") if f["x"] > 0 else ("v", "w")
        y = s[read]
        s[write] = f["x"]
        return {"y": y}

    check(b.module(), step, *X, *X)


def test_ifs_in_ifs() -> None:
    b, x, v = scalar_program()
    done = b.If(
        x > 0,
        then_branch=lambda b: b.If(
            x > 1,
            then_branch=lambda b: state.assign_add(b, v, 100),
            else_branch=lambda b: state.assign_add(b, v, 1),
        ),
        else_branch=lambda b: state.read(b, v)[1],
    )
    b.output(state.read(b, v, [done])[0], "y")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = s["v"] + np.float32(0 if f["x"] <= 0 else 100 if f["x"] > 1 else 1)
        return {"y": s["v"]}

    check(b.module(), step, *X)


# Loop


N = [{"n": np.array(n)} for n in (3, 0, 1, 4)]


def loop_program() -> tuple[Builder, Tensor, state.Variable]:
    b = Builder("g")
    return b, b.input("n", "int64", []), state.variable(b, "v", 1)


def test_an_assign_in_each_iteration() -> None:
    b, n, v = loop_program()

    def body(b: Builder, i: Tensor, c: Tensor, total: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        value, t = state.read(b, v, [t])
        return c, total + value, state.assign(b, v, value * 2 + i, [t]), value

    total, t, seen = b.Loop(n, True, 0, state.group(b, []), body=body)
    b.output(total, "total")
    b.output(seen, "seen")
    b.output(state.read(b, v, [t])[0], "last")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        total, seen = 0, []
        for i in range(int(f["n"])):
            seen.append(s["v"])
            total += s["v"]
            s["v"] = s["v"] * 2 + i
        return {"total": total, "seen": np.array(seen, np.int64), "last": s["v"]}

    check(b.module(), step, *N)


def test_an_if_in_a_loop_and_a_condition_that_reads() -> None:
    b, n, v = loop_program()

    def body(b: Builder, i: Tensor, c: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        t = b.If(
            b.Equal(b.Mod(i, 2), 0),
            then_branch=lambda b: state.assign_add(b, v, 3, [t]),
            else_branch=lambda b: state.group(b, [t]),
        )
        value, t = state.read(b, v, [t])
        return value < 12, t

    b.output(b.Loop(n, True, state.group(b, []), body=body), "done")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        for i in range(int(f["n"])):
            s["v"] = s["v"] + (3 if i % 2 == 0 else 0)
            if s["v"] >= 12:
                break
        return {}

    check(b.module(), step, *N, *N)


def test_a_loop_in_a_loop() -> None:
    b, n, v = loop_program()
    w = state.variable(b, "w", 5)

    def inner(b: Builder, j: Tensor, c: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        step, _ = state.read(b, w)
        return c, state.assign_add(b, v, step + j, [t])

    def outer(b: Builder, i: Tensor, c: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t = b.Loop(i, True, t, body=inner)
        value, t = state.read(b, v, [t])
        return c, t, value

    t, seen = b.Loop(n, True, state.group(b, []), body=outer)
    b.output(seen, "seen")
    b.output(t, "t")
    module = b.module()
    assert [e.output for e in state.state_signature(lift(module))] == ["next/v", None]

    def step(s: State, f: Feeds) -> dict[str, Any]:
        seen = []
        for i in range(int(f["n"])):
            for j in range(i):
                s["v"] = s["v"] + s["w"] + j
            seen.append(s["v"])
        return {"seen": np.array(seen, np.int64)}

    check(module, step, *N)


def test_what_a_loop_only_reads_is_captured() -> None:
    b, n, v = loop_program()
    y = b.Loop(n, True, 0, body=lambda b, i, c, y: (c, y + state.read(b, v)[0]))
    b.output(y, "y")
    module = b.module()
    pure = lift(module)
    (loop,) = (op for op in pure.block.ops if op.name == "onnx.Loop")
    assert len(loop.operands) == 3
    assert pure.block.args[1].get_user_of_unique_use() in set(loop.walk())
    check(module, lambda s, f: {"y": f["n"] * s["v"]}, *N)


def test_a_loop_without_a_trip_count() -> None:
    b, _, v = loop_program()

    def body(b: Builder, i: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return state.after(b, i < 2, [state.assign_add(b, v, 1)]), b.Identity(i)

    b.output(b.Loop(None, True, body=body), "i")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = s["v"] + 3
        return {"i": np.arange(3)}

    check(b.module(), step, *N[:2])


def test_a_loop_without_a_condition() -> None:
    b, n, v = loop_program()

    def body(b: Builder, i: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        state.assign_add(b, v, i)
        return c, b.Identity(i)

    b.output(b.Loop(n, None, body=body), "i")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = s["v"] + np.arange(int(f["n"])).sum()
        return {"i": np.arange(int(f["n"]))}

    check(b.module(), step, *N)


def test_tokens_between_carried_values() -> None:
    b, n, v = loop_program()

    def body(b: Builder, i: Tensor, c: Tensor, p: Tensor, t: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        return c, q, state.assign_add(b, v, p, [t, u]), p + 1, state.group(b, [u]), b.Identity(q)

    start = state.group(b, [])
    p, t, q, _, seen = b.Loop(n, True, 1, start, 2, start, body=body)
    b.output(p, "p")
    b.output(t, "t")
    b.output(q, "q")
    b.output(seen, "seen")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        p, q, seen = 1, 2, []
        for _ in range(int(f["n"])):
            s["v"] = s["v"] + p
            seen.append(q)
            p, q = q, p + 1
        return {"p": p, "q": q, "seen": np.array(seen, np.int64)}

    check(b.module(), step, *N)


# Scan


def test_a_scan_carries_what_it_assigns() -> None:
    b = Builder("g")
    xs = b.input("xs", "float32", [4, 2])
    total = state.variable(b, "total", np.zeros(2, np.float32))
    scale = state.variable(b, "scale", np.float32(2))

    def body(b: Builder, product: Tensor, t: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        factor, _ = state.read(b, scale)
        t = state.assign_add(b, total, row * factor, [t])
        now, t = state.read(b, total, [t])
        return product + 1, t, now

    count, t, sums = b.Scan(np.float32(0), state.group(b, []), xs, num_scan_inputs=1, scan_output_axes=[1], body=body)
    b.output(count, "count")
    b.output(sums, "sums")
    b.output(t, "t")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        columns = []
        for row in f["xs"]:
            s["total"] = s["total"] + row * s["scale"]
            columns.append(s["total"])
        return {"count": np.float32(4), "sums": np.stack(columns, 1)}

    feeds = [{"xs": np.arange(8, dtype=np.float32).reshape(4, 2) * k} for k in (1, -3)]
    check(b.module(), step, *feeds)


# Shapes


def test_a_variable_that_grows() -> None:
    b = Builder("g")
    x = b.input("x", "float32", ["n", 2])
    log = state.variable(b, "log", np.zeros((0, 2), np.float32), type=tensor("float32", [None, 2]))
    value, t = state.read(b, log)
    t = state.assign(b, log, b.Concat(value, x, axis=0), [t])
    b.output(b.Shape(state.read(b, log, [t])[0]), "size")
    module = b.module()
    assert lift(module).outputs["next/log"] == tensor("float32", [None, 2])

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["log"] = np.concatenate([s["log"], f["x"]])
        return {"size": np.array(s["log"].shape)}

    rows = [{"x": np.full((k, 2), k, np.float32)} for k in (2, 0, 3)]
    check(module, step, *rows)


def test_a_variable_that_grows_in_a_loop() -> None:
    b = Builder("g")
    n = b.input("n", "int64", [])
    log = state.variable(b, "log", np.zeros(0, np.int64), type=tensor("int64", [None]))

    def body(b: Builder, i: Tensor, c: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        value, t = state.read(b, log, [t])
        return c, state.assign(b, log, b.Concat(value, b.Reshape(i, [1]), axis=0), [t])

    b.output(b.Loop(n, True, state.group(b, []), body=body), "done")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["log"] = np.concatenate([s["log"], np.arange(int(f["n"]))])
        return {}

    check(b.module(), step, *N)


def test_branches_of_different_shapes() -> None:
    b = Builder("g")
    x = b.input("x", "float32", [])
    v = state.variable(b, "v", np.zeros(1, np.float32), type=tensor("float32", [None]))
    done = b.If(
        x > 0,
        then_branch=lambda b: state.assign(b, v, np.ones(2, np.float32)),
        else_branch=lambda b: state.assign(b, v, np.ones(3, np.float32)),
    )
    b.output(done, "done")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        s["v"] = np.ones(2 if f["x"] > 0 else 3, np.float32)
        return {}

    check(b.module(), step, *X)


@pytest.mark.parametrize("dtype", ["float16", "bool", "int8", "uint64", "float64"])
def test_dtypes(dtype: str) -> None:
    b = Builder("g")
    x = b.input("x", dtype, [2])
    v = state.variable(b, "v", np.array([1, 0], dtype))
    before, t = state.read(b, v)
    b.output(before, "before")
    b.output(state.assign(b, v, x, [t]), "done")

    def step(s: State, f: Feeds) -> dict[str, Any]:
        before, s["v"] = s["v"], f["x"]
        return {"before": before}

    check(b.module(), step, {"x": np.array([0, 1], dtype)}, {"x": np.array([1, 1], dtype)})


# Names


def test_names_give_way_to_the_users() -> None:
    b = Builder("g")
    x = b.input("w", "float32", [])
    w = state.variable(b, "w", np.float32(1))
    y = b.Add(x, 1)
    set_out_names(y.ssa.owner, ["w_1"])  # type: ignore[arg-type]
    b.output(y, "next/w")
    b.output(state.assign_add(b, w, y), "done")
    module = b.module()
    pure = lift(module)
    (entry,) = state.state_signature(pure)
    assert (entry.name, entry.input, entry.output) == ("w", "w_2", "next/w_1")
    assert list(pure.inputs) == ["w", "w_2"]
    assert list(pure.outputs) == ["next/w", "next/w_1"]

    def step(s: State, f: Feeds) -> dict[str, Any]:
        y = f["w"] + np.float32(1)
        s["w"] = s["w"] + y
        return {"next/w": y}

    check(module, step, {"w": np.float32(2)}, {"w": np.float32(3)})


def test_a_read_hands_its_name_on() -> None:
    b, x, v = scalar_program()
    t = state.assign(b, v, b.Neg(x))
    value, _ = state.read(b, v, [t])
    set_out_names(value.ssa.owner, ["negated", ""])  # type: ignore[arg-type]
    b.output(b.Exp(value), "y")
    assert '"negated"' in str(lift(b.module()))


def test_outputs_that_are_tokens_go_and_the_others_keep_their_places() -> None:
    b, x, v = scalar_program()
    b.output(b.Neg(x), "a")
    b.output(state.assign(b, v, x), "t")
    b.output(b.Exp(x), "b")
    module = b.module()
    assert list(module.outputs) == ["a", "t", "b"]
    assert list(lift(module).outputs) == ["a", "b", "next/v"]


def test_lifting_twice_changes_nothing_more() -> None:
    b, x, v = scalar_program()
    b.output(state.assign(b, v, x), "t")
    pure = lift(b.module())
    text = str(pure)
    assert not LiftState().run(pure)
    assert str(pure) == text


def test_a_conflict_is_an_error_of_the_pass_too() -> None:
    b, x, v = scalar_program()
    t = state.assign(b, v, x)
    b.output(t, "t")
    module = b.module()
    second = t.ssa.owner.clone()  # type: ignore[union-attr]
    module.block.insert_op_before(second, module.block.last_op)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="nothing orders two accesses of variable 'v'"):
        LiftState().run(module)


LOADED = """
<ir_version: 10, opset_import: ["" : 21]>
g (int64 n, float[2] x) => (float[2] last, float[N, 2] all) {
  go = Constant <value = bool {1}> ()
  last, all = Loop <body = b (int64 i, bool c, float[2] given) => (bool c_out, float[2] made, float[2] seen) {
    c_out = Identity (c)
    made = Add (given, given)
    seen = Neg (made)
  }> (n, go, x)
}
"""


def test_names_and_declarations_of_a_file_keep_their_places() -> None:
    proto = onnx.parser.parse_model(LOADED)
    module = load(proto)
    (loop,) = (op for op in module.block.ops if op.name == "onnx.Loop")
    body = loop.regions[0].block
    made = next(op for op in body.ops if op.name == "onnx.Add").results[0]
    outer = Builder.before(loop, module.ctx)
    total = state.variable(outer, "total", np.zeros(2, np.float32))
    assert body.last_op is not None
    state.assign_add(Builder.before(body.last_op, module.ctx), total, made)
    pure = lift(module)

    written = pure.to_onnx()
    (node,) = (n for n in written.graph.node if n.op_type == "Loop")
    assert (node.output[0], node.output[2]) == ("last", "all")
    graph = node.attribute[0].g
    assert [v.name for v in graph.input][:3] == ["i", "c", "given"]
    assert [v.name for v in graph.output][:2] == ["c_out", "made"]
    assert graph.output[3].name == "seen"
    assert all(v.type.tensor_type.elem_type for v in (*graph.input, *graph.output))

    signature, values = state.state_signature(pure), state.initial_state(pure)
    feeds = {"n": np.array(2), "x": np.array([1, -1], np.float32)}
    for backend in ("numpy", "onnxruntime"):
        outputs, after = state.run_stateful(backends.compile(pure, backend), signature, feeds, values)
        np.testing.assert_array_equal(outputs["last"], [4, -4])
        np.testing.assert_array_equal(outputs["all"], [[-2, 2], [-4, 4]])
        np.testing.assert_array_equal(after["total"], [6, -6])
