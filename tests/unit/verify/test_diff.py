"""The difference of two models: by name, by role, of types, constants, graphs, functions, and of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.verify.diff import diff
from tests.corpus.build import from_text

MODEL = """g (float[N, 3] x, bool c) => (float[N, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}>
{ t = MatMul (x, w)  u = Add (t, b)  s = Softmax <axis = 1> (u)
  y = If (c) <then_branch = p () => (p0) { p0 = Relu (s) }, else_branch = q () => (q0) { q0 = Neg (s) }> }"""
UNNAMED = """g (float[N, 3] x) => (float[N, 3] y) { %s }"""


def load(text: str, **options: Any) -> ik.Module:
    return ik.load(from_text(text, **options))


def changes(a: str, b: str, **options: Any) -> list[str]:
    return [str(change) for change in diff(load(a, **options), load(b, **options), run=False).changes]


def test_a_model_does_not_differ_from_itself() -> None:
    found = diff(load(MODEL), load(MODEL))
    assert found.same
    assert found.matched == 6
    assert found.values is not None
    assert found.values.compared == 3
    assert found.text().startswith("the same graph (6 nodes)\nresults: equal")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("axis = 1", "axis = 0", ["~ node Softmax 's'\n    axis was 1, is 0"]),
        ("{1, -1}", "{1, -1.5}", ["~ constant 'b'\n    1 of 2 elements differ, by up to 0.5"]),
        ("Relu (s)", "Exp (s)", ["~ node If 'y'/then_branch/p0"]),
        ("Add (t, b)", "Sub (t, b)", ["~ node Add 'u'\n    was Add, is Sub"]),
        ("Add (t, b)", "Add (b, t)", ["~ node Add 'u'"]),
        ("float[N, 3] x", "float[4, 3] x", ["~ input 'x'\n    type was"]),
        ("bool c", "bool d", ["- input 'c'", "+ input 'd'"]),
    ],
)
def test_what_changed_is_named(old: str, new: str, expected: list[str]) -> None:
    text = MODEL.replace(old, new)
    if new == "bool d":
        text = text.replace("If (c)", "If (d)")
    found = changes(MODEL, text)
    for line in expected:
        start = line.replace("If 'y'/then_branch/p0", "Relu 'y/then_branch/p0'")
        assert any(change.startswith(start) for change in found), found


def test_nodes_are_found_by_role_where_names_do_not_tell() -> None:
    a = UNNAMED % "t = Exp (x)  u = Neg (t)  y = Add (t, u)"
    b = UNNAMED % "t1 = Exp (x)  u1 = Neg (t1)  y = Add (t1, u1)"
    assert diff(load(a), load(b)).same
    c = UNNAMED % "t1 = Exp (x)  v = Abs (t1)  u1 = Neg (v)  y = Add (t1, u1)"
    found = changes(a, c)
    assert "+ node Abs 'v'" in found[-1] or any(f.startswith("+ node Abs 'v'") for f in found)
    assert not any("Exp" in f.splitlines()[0] for f in found)


def test_constants_beside_nodes_and_their_distance() -> None:
    a = load(MODEL)
    made = ik.optimize(a, "O2")
    found = diff(a, made)
    assert found.values is not None
    assert found.values.equal
    b = ik.Builder("g")
    b.output(b.input("x", "float32", [2]) * np.array([1.0, np.nan], np.float32), "y")
    c = ik.Builder("g")
    c.output(c.input("x", "float32", [2]) * np.array([1.0, 2.0], np.float32), "y")
    (change,) = diff(b.module(), c.module(), run=False).changes
    assert change.details == (
        "operand 1 was the constant float32[2] [1.0, nan], is the constant float32[2] [1.0, 2.0]",
    )


def test_functions_opsets_and_metadata() -> None:
    text = """g (float[4] x) => (float[4] y) { y = local.F (x) }
    <domain: "local", opset_import: ["" : 21]> F (a) => (r) { r = Neg (a) }"""
    other = text.replace("Neg (a)", "Exp (a)")
    found = diff(load(text, imports={"local": 1}), load(other, imports={"local": 1}))
    assert [(c.what, c.kind, c.name) for c in found.changes] == [("node", "changed", "local.F/r")]
    assert not found.same
    assert found.values is not None
    assert not found.values.equal
    found = diff(load(MODEL), load(MODEL, opset=18))
    assert [(c.what, c.name) for c in found.changes] == [("model", "opsets")]
    gone = load(text.partition("<domain")[0].replace("local.F", "Neg"))
    assert any(
        c.what == "function" and c.kind == "removed" for c in diff(load(text, imports={"local": 1}), gone).changes
    )


def test_results_are_compared_where_both_take_and_give_the_same() -> None:
    assert diff(load(MODEL), load(MODEL.replace("bool c", "bool d").replace("(c)", "(d)"))).not_run
    same_graph_other_values = diff(load(MODEL), load(MODEL.replace("{1, -1}", "{1, -1.5}")))
    assert same_graph_other_values.values is not None
    assert not same_graph_other_values.values.equal
    data = same_graph_other_values.to_json()
    assert data["same"] is False
    assert data["changes"][0]["what"] == "constant"
    assert data["values"]["equal"] is False
