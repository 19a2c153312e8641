"""Random ops: the same seed gives the same numbers, whatever else the graph does."""

from __future__ import annotations

from typing import Any

import numpy as np

import irkit as ik
from irkit.backends.numpy import compile
from irkit.ir.attributes import int_attr
from irkit.ir.module import Module
from irkit.ir.names import set_out_names


def named(value: Any, name: str) -> Any:
    set_out_names(value.ssa.op, [name])
    return value


def noise(*names: str) -> Module:
    b = ik.Builder()
    for name in names:
        b.output(named(b.RandomNormal(shape=[1000]), name), name)
    return b.module()


def test_one_seed_one_sequence() -> None:
    first, again, other = (compile(noise("a"), seed=seed)() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    f = compile(noise("a"), seed=1)
    np.testing.assert_array_equal(f(), f())
    np.testing.assert_array_equal(f(), compile(noise("a"), seed=1, threads=2, profile=True)())


def test_without_a_seed_every_run_draws_anew() -> None:
    f = compile(noise("a"))
    assert not np.array_equal(f(), f())


def test_ops_are_independent() -> None:
    a, b = compile(noise("a", "b"), seed=1)()
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.1
    assert abs(float(a.mean())) < 0.15
    assert abs(float(a.std()) - 1) < 0.1


def test_numbers_do_not_depend_on_other_ops() -> None:
    alone = compile(noise("b"), seed=1)()
    among = compile(noise("a", "b", "c"), seed=1).run({})["b"]
    np.testing.assert_array_equal(alone, among)


def test_seed_id_outlives_renaming() -> None:
    found = []
    for name in ("before", "after"):
        module = noise(name)
        for op in module.block.ops:
            if op.name == "onnx.RandomNormal":
                op.attributes["onnx.seed_id"] = int_attr(7)
        found.append(compile(module, seed=1)())
    np.testing.assert_array_equal(*found)


def test_node_seed_wins() -> None:
    b = ik.Builder()
    b.output(b.RandomUniform(shape=[8], seed=3.0), "y")
    module = b.module()
    np.testing.assert_array_equal(compile(module, seed=1)(), compile(module)())


def loop(trips: int) -> Module:
    b = ik.Builder()
    _, drawn = b.Loop(trips, None, 0, body=lambda b, i, c, s: (c, s, named(b.RandomUniform(shape=[100]), "draw")))
    b.output(drawn, "y")
    return b.module()


def test_iterations_differ_and_are_kept() -> None:
    three, five = compile(loop(3), seed=1)(), compile(loop(5), seed=1)()
    np.testing.assert_array_equal(three, five[:3])
    assert len(np.unique(five)) == five.size
    np.testing.assert_array_equal(three, compile(loop(3), seed=1)())


def test_a_branch_draws_what_its_ops_would_draw_outside() -> None:
    b = ik.Builder()
    flag = b.input("flag", "bool", [])
    y = b.If(
        flag,
        then_branch=lambda b: named(b.RandomNormal(shape=[1000]), "a"),
        else_branch=lambda b: b.constant(np.zeros(1000, np.float32)),
    )
    b.output(y, "y")
    np.testing.assert_array_equal(compile(b.module(), seed=1)(True), compile(noise("a"), seed=1)())


def test_unnamed_ops_differ() -> None:
    b = ik.Builder()
    for index in range(2):
        b.output(b.RandomUniform(shape=[100]), f"y{index}")
    first, second = compile(b.module(), seed=1)()
    assert not np.array_equal(first, second)
