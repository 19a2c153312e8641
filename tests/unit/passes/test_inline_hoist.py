"""Functions put in the place of their calls, and what is the same in every iteration moved out of a loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.ir.location import describe
from irkit.ir.names import node_name
from irkit.passes import Instrumentation, optimize
from irkit.verify import compare
from tests.corpus.build import from_text


def load(text: str, opset: int = 21) -> ik.Module:
    return ik.load(from_text(text, opset=opset, imports={"local": 1}))


def counts(module: ik.Module) -> Counter[str]:
    return Counter(op.name.removeprefix("onnx.") for op in module.walk())


def checked(module: ik.Module, pipeline: str) -> ik.Module:
    before = module.clone()
    made = optimize(module, pipeline, check="each", verify_each=True)
    assert module == before
    report = compare(module, made)
    assert report.equal
    assert report.compared >= 1
    return made


TWO_CALLS = """g (float[N, 3] x) => (float[N, 3] y) { a = local.F <alpha = 0.5> (x)  y = local.F (a) }
<domain: "local", opset_import: ["" : 21]>
F <alpha: float = 0.25> (v) => (r) { [inner] t = Elu <alpha: float = @alpha> (v)  r = Neg (t) }"""


def test_each_call_gets_its_own_attributes_and_names() -> None:
    made = checked(load(TWO_CALLS), "inline,dce")
    assert counts(made)["Call"] == counts(made)["Function"] == 0
    first, second = (op for op in made.block.ops if op.name == "onnx.Elu")
    assert first.attr("alpha") == 0.5
    assert second.attr("alpha") == 0.25
    assert "made by inline from" in describe(first.location)
    assert list(made.outputs) == ["y"]
    assert node_name(first) in ("", "inner")


def test_functions_within_functions_and_branches() -> None:
    text = """g (float[3] x, bool c) => (float[3] y)
    { y = If (c) <then_branch = p () => (p0) { p0 = local.Outer (x) }, else_branch = q () => (q0) { q0 = Neg (x) }> }
    <domain: "local", opset_import: ["" : 21, "local" : 1]> Outer (v) => (r) { t = local.Inner (v)  r = Exp (t) }
    <domain: "local", opset_import: ["" : 21]> Inner (v) => (r) { r = Abs (v) }"""
    made = checked(load(text), "inline,dce")
    assert counts(made)["Call"] == counts(made)["Function"] == 0
    assert counts(made)["Abs"] == 1


def test_an_attribute_that_a_function_hands_on() -> None:
    text = """g (float[N, 3] x) => (float[N, 3] y) { a = local.Outer <axis = 0> (x)  y = local.Outer <axis = 1> (a) }
    <domain: "local", opset_import: ["" : 21, "local" : 1]>
    Outer <axis> (v) => (r) { t = local.Inner <along: int = @axis> (v)  r = local.Inner (t) }
    <domain: "local", opset_import: ["" : 21]>
    Inner <along: int = -1> (v) => (r) { r = Softmax <axis: int = @along> (v) }"""
    made = checked(load(text), "inline,dce")
    assert counts(made)["Call"] == 0
    assert [op.attr("axis") for op in made.block.ops if op.name == "onnx.Softmax"] == [0, -1, 1, -1]


def test_optional_inputs_that_are_not_given() -> None:
    text = """g (float[3] x) => (float[3] y) { y = local.F (x) }
    <domain: "local", opset_import: ["" : 21]> F (v, low) => (r) { r = Clip (v, low) }"""
    made = checked(load(text), "inline,dce")
    (clip,) = (op for op in made.block.ops if op.name == "onnx.Clip")
    assert clip.operand(1) is None


def test_a_result_that_is_an_input() -> None:
    text = """g (float[3] x) => (float[3] y, float[3] z) { y, z = local.F (x) }
    <domain: "local", opset_import: ["" : 21]> F (v) => (v, r) { r = Neg (v) }"""
    assert counts(checked(load(text), "inline,dce"))["Call"] == 0


def test_a_body_that_the_module_s_opset_cannot_express_stays() -> None:
    text = """g (float[3] x) => (float[3] y) { y = local.F (x) }
    <domain: "local", opset_import: ["" : 18]> F (v) => (r) { r = CenterCropPad (v, v) }"""
    module = load(text, opset=11)
    seen = Instrumentation()
    assert counts(optimize(module, "inline", instrumentation=seen))["Call"] == 1
    assert any("cannot be written at opset 11" in note for note in seen.records[0].notes)


def test_a_limit_on_the_size_of_bodies() -> None:
    seen = Instrumentation()
    made = optimize(load(TWO_CALLS), "inline{max-ops=1}", instrumentation=seen)
    assert counts(made)["Call"] == 2
    assert any("its body has 2 ops" in note for note in seen.records[0].notes)


# Loops


def loop(body: Any, trips: Any = 3) -> ik.Module:
    b = ik.Builder("g")
    x, y = b.input("x", "float32", ["N", 3]), b.input("y", "float32", [3])
    made = b.Loop(np.int64(trips), None, x, body=lambda b, i, c, s: (c, body(b, s, y, i)))
    b.output(made, "z")
    return b.module()


def in_body(module: ik.Module) -> Counter[str]:
    (op,) = (op for op in module.walk() if op.name == "onnx.Loop")
    return Counter(inner.name.removeprefix("onnx.") for inner in op.regions[0].block.ops)


def test_what_does_not_depend_on_the_iteration_moves_out() -> None:
    made = checked(loop(lambda b, s, y, i: s + b.Exp(b.Neg(b.wrap(y.ssa)) * 2.0)), "hoist")
    left = in_body(made)
    assert (left["Exp"], left["Neg"], left["Mul"], left["Add"]) == (0, 0, 0, 1)
    assert counts(made)["Exp"] == 1
    (exp,) = (op for op in made.block.ops if op.name == "onnx.Exp")
    assert "made by hoist from" in describe(exp.location)


@pytest.mark.parametrize(
    ("why", "body", "kept"),
    [
        ("it depends on what is carried", lambda b, s, y, i: s + b.Exp(s), "Exp"),
        ("it depends on the iteration", lambda b, s, y, i: s + b.Exp(b.Cast(i, to=1)), "Exp"),
        ("it draws", lambda b, s, y, i: s + b.RandomNormalLike(y), "RandomNormalLike"),
        ("it may fail", lambda b, s, y, i: s + b.Cast(b.Div(b.Cast(y, to=7), np.int64([1, 0, 1])), to=1), "Div"),
        ("it may not fit", lambda b, s, y, i: s + b.Gather(y, np.int64([7, 0, 0])), "Gather"),
    ],
    ids=lambda w: w if isinstance(w, str) else "",
)
def test_what_must_stay_stays(why: str, body: Any, kept: str) -> None:
    module = loop(body)
    made = optimize(module, "hoist", verify_each=True)
    assert in_body(made)[kept] == in_body(module)[kept] == 1


def test_out_of_nested_loops_and_of_scans() -> None:
    def body(b: Any, s: Any, y: Any, i: Any) -> Any:
        return b.Loop(np.int64(2), None, s, body=lambda b, j, c, t: (c, t + b.Exp(b.wrap(y.ssa)) + b.Sin(s)))

    made = checked(loop(body), "hoist")
    outer = in_body_of_first(made)
    assert counts(made)["Exp"] == 1
    assert any(op.name == "onnx.Exp" for op in made.block.ops)
    assert "onnx.Sin" in outer


def test_an_initializer_does_not_leave_its_loop_in_a_function() -> None:
    text = """g (float[3] x) => (float[3] y) { y = local.F (x) }
    <domain: "local", opset_import: ["" : 21]> F (v) => (r) {
      n = Constant <value = int64 {3}> ()
      r = Loop (n, , v) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t)
        <float[3] w = {1, 2, 3}> { d = Identity (c)  e = Exp (w)  t = Add (s, e) }>
    }"""
    made = checked(load(text), "hoist")
    made.to_onnx()
    assert counts(made)["Initializer"] == counts(load(text))["Initializer"]


def in_body_of_first(module: ik.Module) -> list[str]:
    op = next(op for op in module.block.ops if op.name == "onnx.Loop")
    return [inner.name for inner in op.regions[0].block.ops]


def test_a_loop_that_never_runs_fails_no_more_than_before() -> None:
    for trips in (0, 1):
        made = checked(loop(lambda b, s, y, i: s * b.Exp(b.wrap(y.ssa)), trips), "hoist")
        assert counts(made)["Exp"] == 1
