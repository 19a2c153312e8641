"""Removing what nothing uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import irkit as ik
from irkit.backends.onnx import export
from irkit.dialects.onnx import Custom
from irkit.frontends.onnx import load
from irkit.ir.types import tensor
from irkit.passes import optimize
from tests.corpus.build import from_text

from .conftest import assert_same_outcome, run_numpy

Count = Callable[..., int]


def swept(b: ik.Builder) -> ik.Module:
    return optimize(b.module(), "dce", verify_each=True)


def test_chains_of_unused_ops_go_with_their_constants(count: Count) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.Exp(b.Neg(x + b.initializer(np.ones(4, np.float32), "w")))
    b.output(b.Abs(x), "y")
    assert [op.name for op in swept(b).block.ops] == ["onnx.Abs", "func.return"]


def test_inputs_and_outputs_stay() -> None:
    b = ik.Builder()
    b.input("unused", "float32", [4])
    b.output(b.initializer(np.ones(4, np.float32), "w"), "y")
    made = swept(b)
    assert list(made.inputs) == ["unused"]
    assert list(made.outputs) == ["y"]


def test_unused_draws_go_and_unknown_ops_stay(count: Count) -> None:
    b = ik.Builder(opsets={"": 21, "other": 1})
    x = b.input("x", "float32", [4])
    b.RandomNormalLike(x)
    b.insert(Custom.of("other", "Thing", [b.Neg(x).ssa], [tensor("float32", (4,))]))
    b.output(b.Abs(x), "y")
    made = swept(b)
    assert (count(made, "RandomNormalLike"), count(made, "Custom"), count(made, "Neg")) == (0, 1, 1)


def test_an_if_around_an_unknown_op_stays(count: Count) -> None:
    b = ik.Builder(opsets={"": 21, "other": 1})
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])

    def then(inner: ik.Builder) -> ik.Tensor:
        inner.insert(Custom.of("other", "Thing", [x.ssa], [tensor("float32", (4,))]))
        return inner.Neg(x)

    b.If(c, then_branch=then, else_branch=lambda b: b.Abs(x))
    b.If(c, then_branch=lambda b: b.Exp(x), else_branch=lambda b: b.Abs(x))
    b.output(b.Abs(x), "y")
    made = swept(b)
    assert (count(made, "If"), count(made, "Custom"), count(made, "Exp")) == (1, 1, 0)


def test_unused_results_of_an_if_go_with_what_computes_them(count: Count) -> None:
    b = ik.Builder()
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])
    _, y = b.If(c, then_branch=lambda b: (b.Exp(x), b.Neg(x)), else_branch=lambda b: (b.Exp(x), b.Abs(x)))
    b.output(y, "y")
    made = swept(b)
    assert count(made, "Exp") == 0
    feeds = {"x": np.float32([-1, 2, 3, 4]), "c": np.array(True)}
    assert_same_outcome({"y": -feeds["x"]}, run_numpy(made, feeds), "If")


LOOP = """
g (float[2] x, int64 n) => (float[2] y) <bool yes = {1}, float[2] one = {1.0, 1.0}> {
    y, _a, _b, _s, _t = Loop (n, yes, x, one, x) <
        body = b (int64 i, bool going, float[2] v, float[2] used, float[2] own)
            => (bool go, float[2] w, float[2] used2, float[2] own2, float[2] s, float[2] t) {
            go = Identity (going)
            w = Add (v, used)
            used2 = Add (used, one)
            own2 = Exp (own)
            s = Sin (v)
            t = Cos (own)
        }
    >
}
"""


def test_carried_values_that_matter_only_to_themselves_go(count: Count) -> None:
    module = load(from_text(LOOP))
    made = optimize(module, "dce", verify_each=True)
    (loop,) = (op for op in made.walk() if op.name == "onnx.Loop")
    assert (len(loop.results), len(loop.operands), len(loop.regions[0].block.args)) == (2, 4, 4)
    assert count(made, "Exp", "Sin", "Cos") == 0
    for trips in (0, 1, 3):
        feeds = {"x": np.float32([1, 2]), "n": np.array(trips)}
        expected = run_numpy(module, feeds)
        assert_same_outcome(expected, run_numpy(made, feeds), f"{trips} trips")
        assert_same_outcome(expected, run_numpy(load(export(made)), feeds), f"{trips} trips, exported")


SCAN = """
g (float[2] x, float[3,2] xs) => (float[3,2] y) {
    _v, _u, _s, y = Scan <num_scan_inputs = 1, scan_output_axes = [1, 0], body = b (float[2] v, float[2] u, float[2] e)
        => (float[2] w, float[2] u2, float[2] s, float[2] t) {
        w = Add (v, e)
        u2 = Exp (u)
        s = Sin (u)
        t = Mul (w, e)
    }> (x, x, xs)
}
"""


def test_scan_keeps_the_axes_of_the_outputs_that_stay(count: Count) -> None:
    module = load(from_text(SCAN))
    made = optimize(module, "dce", verify_each=True)
    (scan,) = (op for op in made.walk() if op.name == "onnx.Scan")
    assert (len(scan.results), len(scan.operands)) == (2, 2)
    assert count(made, "Exp", "Sin") == 0
    feeds = {"x": np.float32([1, 2]), "xs": np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert_same_outcome(run_numpy(module, feeds), run_numpy(made, feeds), "Scan")


def test_unused_functions_go() -> None:
    model = from_text(
        """
        g (float[2] x) => (float[2] y) { y = local.Used (x) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]> Used (v) => (w) { w = local.Inner (v) }
        <domain: "local", opset_import: ["" : 21]> Inner (v) => (w) { w = Neg (v)  dead = Exp (v) }
        <domain: "local", opset_import: ["" : 21]> Unused (v) => (w) { w = Neg (v) }
        """,
        imports={"local": 1},
    )
    made = optimize(load(model), "dce", verify_each=True)
    assert [op.key[1] for op in made.op.ops if op.name == "onnx.Function"] == ["Used", "Inner"]
    assert not any(op.name == "onnx.Exp" for op in made.walk())


def test_initializers_of_annotations_stay() -> None:
    model = from_text("g (float[2] x) => (float[2] y) <float s = {0.5}, float dead = {1.0}> { y = Neg (x) }")
    annotation = model.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    written = export(optimize(load(model), "O3"))
    assert [t.name for t in written.graph.initializer] == ["s"]


@pytest.mark.parametrize("n", [20_000])
def test_a_long_dead_chain_takes_no_recursion(n: int) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    y = x
    for _ in range(n):
        y = b.Neg(y)
    b.output(b.Abs(x), "y")
    assert len(list(swept(b).block.ops)) == 2
