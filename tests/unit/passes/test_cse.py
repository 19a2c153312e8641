"""Merging equal ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects.onnx import Custom, op_class
from irkit.ir.names import metadata_of, node_name, set_metadata, set_node_name
from irkit.ir.types import tensor
from irkit.passes import optimize
from irkit.passes.cse import CommonSubexpressionElimination

Count = Callable[..., int]


def merged(b: ik.Builder) -> ik.Module:
    return optimize(b.module(), "cse", verify_each=True)


def test_equal_ops_are_merged_transitively(count: Count) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.output(b.Exp(b.Neg(x)) + b.Exp(b.Neg(x)), "y")
    made = merged(b)
    assert (count(made, "Exp"), count(made, "Neg")) == (1, 1)


def test_the_pass_says_whether_it_changed_anything() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.output(b.Exp(x) + b.Exp(x), "y")
    module = b.module()
    assert CommonSubexpressionElimination().run(module)
    assert not CommonSubexpressionElimination().run(module)


@pytest.mark.parametrize(
    ("kind", "op", "n"),
    [("float32", "Add", 1), ("float32", "Sub", 2), ("int64", "Max", 1), ("float32", "Max", 2), ("float32", "Div", 2)],
)
def test_operands_in_another_order(count: Count, kind: str, op: str, n: int) -> None:
    """Of 0.0 and -0.0 Max may give either, by the order: floats stay as they are."""
    b = ik.Builder()
    x, y = b.input("x", kind, [4]), b.input("y", kind, [4])
    b.output(b.op(op, x, y), "p")
    b.output(b.op(op, y, x), "q")
    assert count(merged(b), op) == n


def test_only_the_first_two_terms_of_a_sum_of_floats_change_places(count: Count) -> None:
    b = ik.Builder()
    x, y, z = (b.input(n, "float32", [4]) for n in "xyz")
    b.output(b.Sum(x, y, z), "p")
    b.output(b.Sum(y, x, z), "q")
    b.output(b.Sum(x, z, y), "r")
    assert count(merged(b), "Sum") == 2


def test_an_old_add_broadcasts_one_side_only(count: Count) -> None:
    b = ik.Builder()
    x, y = b.input("x", "float32", [4]), b.input("y", "float32", [4])
    old = op_class("", "Add", 6)
    assert old is not None
    for name, operands in (("p", (x, y)), ("q", (y, x))):
        b.output(b.op(old, *operands), name)
    assert count(merged(b), "AddV6") == 2


def test_attributes_compare_by_bits(count: Count) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    for index, alpha in enumerate((0.0, -0.0, 0.0, float("nan"), float("nan"))):
        b.output(b.LeakyRelu(x, alpha=alpha), f"y{index}")
    assert count(merged(b), "LeakyRelu") == 3


def test_a_default_that_is_written_out_is_the_default(count: Count) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.output(b.LeakyRelu(x), "p")
    b.output(b.LeakyRelu(x, alpha=0.01), "q")
    assert count(merged(b), "LeakyRelu") == 1


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), 1),
        (np.float32([0.0]), np.float32([-0.0]), 2),
        (np.float32([np.nan]), np.float32([np.nan]), 1),
        (np.zeros(2, np.float32), np.zeros(2, np.int32), 2),
        (np.zeros((2, 1), np.float32), np.zeros((1, 2), np.float32), 2),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 1),
        (np.array("é", object), np.array("é", object), 1),
        (np.array("é", object), np.array("e", object), 2),
        (np.arange(100_000), np.arange(100_000), 1),
    ],
)
def test_constants_are_merged_by_content(count: Count, a: Any, b: Any, n: int) -> None:
    builder = ik.Builder()
    for index, value in enumerate((a, b)):
        builder.output(builder.initializer(value, f"w{index}"), f"y{index}")
    assert count(merged(builder), "Initializer") == n


def test_large_constants_that_differ_in_one_element_stay_apart(count: Count) -> None:
    a = np.zeros(100_000, np.float32)
    other = a.copy()
    other[12_345] = 1
    b = ik.Builder()
    b.output(b.initializer(a, "v"), "p")
    b.output(b.initializer(other, "w"), "q")
    assert count(merged(b), "Initializer") == 2


def test_a_splat_equals_the_array_of_its_elements(count: Count) -> None:
    b = ik.Builder()
    b.output(b.constant(2.5, "float32", shape=(3, 4)), "p")
    b.output(b.constant(np.full((3, 4), 2.5, np.float32)), "q")
    assert count(merged(b), "Constant") == 1


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_draws_are_never_merged(count: Count, op: str) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.output(b.op(op, x), "p")
    b.output(b.op(op, x), "q")
    assert count(merged(b), op) == 2


def test_unknown_ops_are_never_merged(count: Count) -> None:
    b = ik.Builder(opsets={"": 21, "other": 1})
    x = b.input("x", "float32", [4])
    for name in "pq":
        op = Custom.of("other", "Thing", [x.ssa], [tensor("float32", (4,))])
        b.insert(op)
        b.output(op.results[0], name)
    assert count(merged(b), "Custom") == 2


def test_graphs_are_compared(count: Count) -> None:
    b = ik.Builder()
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])

    def exp(b: ik.Builder) -> ik.Tensor:
        return b.Exp(x)

    def neg(b: ik.Builder) -> ik.Tensor:
        return b.Neg(x)

    for name, then in (("p", exp), ("q", exp), ("r", neg)):
        b.output(b.If(c, then_branch=then, else_branch=lambda b: b.Abs(x)), name)
    assert count(merged(b), "If") == 2


def test_graphs_that_draw_are_not_merged(count: Count) -> None:
    b = ik.Builder()
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])
    for name in "pq":
        b.output(b.If(c, then_branch=lambda b: b.RandomNormalLike(x), else_branch=lambda b: b.Abs(x)), name)
    assert count(merged(b), "If") == 2


def test_what_a_branch_computes_is_not_visible_outside(count: Count) -> None:
    b = ik.Builder()
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])
    y = b.If(c, then_branch=lambda b: b.Exp(x), else_branch=lambda b: b.Exp(x))
    b.output(y + b.Exp(x), "y")
    assert count(merged(b), "Exp") == 3


def test_the_first_keeps_its_name_and_gains_metadata() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    p, q = b.Exp(x, name="first"), b.Exp(x, name="second")
    set_metadata(p.ssa.owner, {"a": "1"})
    set_metadata(q.ssa.owner, {"a": "2", "b": "3"})
    b.output(p + q, "y")
    (exp,) = (op for op in merged(b).walk() if op.name == "onnx.Exp")
    assert node_name(exp) == "first"
    assert metadata_of(exp) == {"b": "3", "a": "1"}


def test_a_name_is_taken_over_where_there_is_none() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    p, q = b.Exp(x), b.Exp(x)
    set_node_name(q.ssa.owner, "second")
    b.output(p + q, "y")
    (exp,) = (op for op in merged(b).walk() if op.name == "onnx.Exp")
    assert node_name(exp) == "second"


# Initializers


def initializers(model: Any) -> list[Any]:
    """All initializers of a model, those of its subgraphs included."""
    found, graphs = [], [model.graph]
    while graphs:
        graph = graphs.pop()
        found += graph.initializer
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def test_large_initializers_are_written_once(count: Count) -> None:
    weights = np.random.default_rng(0).random((50 << 20) // 4, np.float32)
    b = ik.Builder()
    x = b.input("x", "float32", [weights.size])
    b.output(x * b.initializer(weights, "v") + b.initializer(weights.copy(), "w"), "y")
    module = b.module()
    made = optimize(module, "cse")
    assert [t.name for t in made.to_onnx().graph.initializer] == ["v"]
    assert module.to_onnx().ByteSize() > 2 * made.to_onnx().ByteSize() - 1000
    assert count(module, "Initializer") == 2


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_payloads_of_nan_and_other_types_stay_apart(count: Count, kind: type) -> None:
    bits = np.dtype(f"u{np.dtype(kind).itemsize}")
    quiet = np.full(40, np.nan, kind)
    other = quiet.copy()
    other.view(bits)[17] ^= 1
    b = ik.Builder()
    for index, value in enumerate((quiet, other, quiet.copy(), quiet.view(bits), quiet.reshape(8, 5))):
        b.output(b.initializer(value, f"w{index}"), f"y{index}")
    assert count(merged(b), "Initializer") == 4


def test_initializers_that_are_outputs_keep_the_outputs_names() -> None:
    value = np.arange(100, dtype=np.float32)
    b = ik.Builder()
    b.output(b.initializer(value, "p"), "p")
    b.output(b.initializer(value.copy(), "q"), "q")
    made = merged(b)
    assert list(made.outputs) == ["p", "q"]
    for backend in ("numpy", "onnxruntime"):
        found = ik.compile(made, backend).run({})
        assert all(np.array_equal(found[name], value) for name in "pq")


def test_defaults_of_inputs_are_never_merged() -> None:
    from tests.corpus.build import from_text

    text = "g (float[2] x, float[2] d) => (float[2] y) <float[2] d = {1, 2}, float[2] w = {1, 2}> "
    module = ik.load(from_text(text + "{ a = Add (x, d)  y = Mul (a, w) }"))
    made = optimize(module, "cse")
    assert made == module
    one = np.float32([1, 1])
    assert ik.compile(made, "numpy").run({"x": one, "d": one})["y"].tolist() == [2, 4]


def branching(names: str) -> ik.Module:
    from tests.corpus.build import from_text

    value = "<float[4] {} = {{1, 2, 3, 4}}>"
    held = [value.format(name) for name in names]
    text = f"""g (float[4] x, bool c, float[4] m) => (float[4] y) {held[2] if len(held) > 2 else ""} {{
        y = If (c) <then_branch = a () => (float[4] p) {held[0]} {{ p = Add (x, {names[0]}) }},
                    else_branch = b () => (float[4] q) {held[1]} {{ q = Mul (x, {names[1]}) }}> }}"""
    return ik.load(from_text(text))


@pytest.mark.parametrize("names", ["vw", "vwz"])
def test_initializers_of_sibling_graphs_become_one_of_the_main_graph(names: str) -> None:
    module = branching(names)
    made = optimize(module, "cse", check="each", verify_each=True)
    assert len(initializers(module.to_onnx())) == len(names)
    assert len(initializers(made.to_onnx())) == len(made.to_onnx().graph.initializer) == 1
    feeds = {"x": np.float32([1, 1, 1, 1]), "m": np.zeros(4, np.float32)}
    for c, expected in ((True, [2, 3, 4, 5]), (False, [1, 2, 3, 4])):
        for backend in ("numpy", "onnxruntime"):
            assert ik.compile(made, backend).run({**feeds, "c": np.array(c)})["y"].tolist() == expected
    assert optimize(made, "cse") == made


def test_constants_of_functions_stay_with_them() -> None:
    from tests.corpus.build import from_text

    text = """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul (x, w)  y = local.F (a) }
    <domain: "local", opset_import: ["" : 21]>
    F (v) => (r) { c = Constant <value = float[2] {1, 2}> ()  d = Constant <value = float[2] {1, 2}> ()
        s = Add (v, c)  r = Mul (s, d) }"""
    made = optimize(ik.load(from_text(text, imports={"local": 1})), "cse", check="each")
    (function,) = made.to_onnx().functions
    assert [node.op_type for node in function.node].count("Constant") == 1
    assert len(initializers(made.to_onnx())) == 1
