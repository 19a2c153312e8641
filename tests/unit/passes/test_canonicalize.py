"""Each rule where it applies, and beside it the nearest case where it must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects.onnx import OnnxOp
from irkit.errors import PassError
from irkit.ir.location import describe
from irkit.passes import optimize
from irkit.passes.canonicalize import Canonicalize
from irkit.passes.canonicalize.rules import RULES, Rule
from irkit.verify import compare

X = ("x", "float32", [2, 3])
I8 = ("x", "int8", [2, 3])
B = ("x", "bool", [2, 3])
N = ("x", "float32", ["N", 3])
U = ("x", "float32", None)
Make = Callable[[ik.Builder, ik.Tensor], ik.Tensor]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def total(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.ReduceSum(x, keepdims=0)


# (rule, input, graph, op types left besides constants)
FIRES: list[tuple[str, tuple[Any, ...], Make, Sequence[str]]] = [
    ("neutral-operand", X, lambda b, x: x * 1, []),
    ("neutral-operand", X, lambda b, x: 1 * x, []),
    ("neutral-operand", N, lambda b, x: x * np.ones((1, 3), np.float32), []),
    ("neutral-operand", X, lambda b, x: x / 1, []),
    ("neutral-operand", X, lambda b, x: x + f32(-0.0), []),
    ("neutral-operand", X, lambda b, x: x - 0.0, []),
    ("neutral-operand", I8, lambda b, x: x + 0, []),
    ("neutral-operand", B, lambda b, x: x & True, []),
    ("neutral-operand", B, lambda b, x: x | False, []),
    ("neutral-operand", B, lambda b, x: x ^ False, []),
    ("neutral-operand", I8, lambda b, x: b.BitwiseAnd(x, -1), []),
    ("neutral-operand", I8, lambda b, x: b.BitwiseXor(x, 0), []),
    ("involution-twice", X, lambda b, x: b.Neg(b.Neg(x)), []),
    ("involution-twice", B, lambda b, x: b.Not(b.Not(x)), []),
    ("idempotent-twice", X, lambda b, x: b.Relu(b.Relu(x)), ["Relu"]),
    ("identity", U, lambda b, x: b.Identity(b.Exp(b.Identity(x))), ["Exp"]),
    ("one-operand", X, lambda b, x: b.Sum(x), []),
    ("one-operand", X, lambda b, x: b.Concat(x, axis=1), []),
    ("cast-to-own-type", U, lambda b, x: b.Cast(x, to=1), []),
    ("cast-to-own-type", X, lambda b, x: b.CastLike(x, b.Exp(x)), []),
    ("clip-without-bounds", X, lambda b, x: b.Clip(x), []),
    ("where-of-one-side", X, lambda b, x: b.Where(np.array(True), x, b.Exp(x)), []),
    ("where-of-one-side", X, lambda b, x: b.Where(np.zeros((2, 3), bool), 1.5, x), []),
    ("dropout-in-inference", U, lambda b, x: b.Dropout(x), []),
    ("dropout-in-inference", X, lambda b, x: b.Dropout(x, 0.5, np.array(False)), []),
    ("element-of-optional", X, lambda b, x: b.OptionalGetElement(b.Optional(x)), []),
    ("identity-transpose", X, lambda b, x: b.Transpose(x, perm=[0, 1]), []),
    ("double-transpose", X, lambda b, x: b.Transpose(b.Transpose(x)), []),
    ("double-transpose", U, lambda b, x: b.Transpose(b.Transpose(x)), []),
    (
        "double-transpose",
        ("x", "float32", ["a", "b", "c"]),
        lambda b, x: b.Transpose(b.Transpose(x, perm=[1, 2, 0]), perm=[1, 2, 0]),
        ["Transpose"],
    ),
    ("reshape-to-own-shape", X, lambda b, x: b.Reshape(x, ints(2, 3)), []),
    ("reshape-to-own-shape", X, lambda b, x: b.Expand(x, ints(1, 3)), []),
    ("double-reshape", N, lambda b, x: b.Reshape(b.Reshape(x, ints(3, -1)), ints(-1)), ["Reshape"]),
    ("double-reshape", N, lambda b, x: b.Reshape(b.Unsqueeze(x, ints(0)), ints(-1)), ["Reshape"]),
    ("reshape-back", N, lambda b, x: b.Reshape(b.Reshape(x, ints(3, -1)), b.Shape(x)), []),
    ("reshape-back", ("x", "float32", ["N", 12]), lambda b, x: b.Flatten(b.Reshape(x, ints(-1, 3, 4))), []),
    ("flatten-of-matrix", ("x", "float32", [None, None]), lambda b, x: b.Flatten(x, axis=-1), []),
    ("squeeze-of-unsqueeze", U, lambda b, x: b.Squeeze(b.Unsqueeze(x, ints(0, 2)), ints(2, 0)), []),
    ("squeeze-of-unsqueeze", N, lambda b, x: b.Squeeze(b.Unsqueeze(x, ints(-1)), ints(2)), []),
    (
        "unsqueeze-of-squeeze",
        ("x", "float32", ["N", 1, 3]),
        lambda b, x: b.Unsqueeze(b.Squeeze(x, ints(1)), ints(-2)),
        [],
    ),
    ("tile-once", U, lambda b, x: b.Tile(x, ints(1, 1)), []),
    ("pad-by-nothing", U, lambda b, x: b.Pad(x, ints(0, 0, 0, 0), mode="reflect"), []),
    ("slice-of-everything", U, lambda b, x: b.Slice(x, ints(0), ints(2**63 - 1), ints(0)), []),
    ("slice-of-everything", X, lambda b, x: b.Slice(x, ints(0, -3), ints(2, 9)), []),
    ("split-into-one", X, lambda b, x: b.Split(x, num_outputs=1, outputs=1), []),
    ("reduce-over-no-axes", U, lambda b, x: b.ReduceSum(x, noop_with_empty_axes=1), []),
    (
        "if-of-constant",
        X,
        lambda b, x: b.If(np.array(True), then_branch=lambda b: b.Neg(x), else_branch=lambda b: b.Exp(x)),
        ["Neg"],
    ),
    ("loop-of-no-trips", X, lambda b, x: b.Loop(ints(0), None, x, body=lambda b, i, c, s: (c, b.Neg(s))), []),
    ("loop-of-one-trip", X, lambda b, x: b.Loop(ints(1), None, x, body=lambda b, i, c, s: (c, b.Neg(s))), ["Neg"]),
    (
        "loop-of-one-trip",
        X,
        lambda b, x: b.Loop(ints(1), np.array(True), x, body=lambda b, i, c, s: (b.Not(c), s, b.Neg(s)))[1],
        ["Neg", "Unsqueeze"],
    ),
    ("loop-of-no-trips", X, lambda b, x: b.Loop(None, np.array(False), x, body=lambda b, i, c, s: (c, b.Neg(s))), []),
    ("expand-into-broadcast", N, lambda b, x: b.Mul(b.Expand(total(b, x), b.Shape(x)), x), ["ReduceSum", "Mul"]),
    (
        "expand-into-broadcast",
        N,
        lambda b, x: b.Sub(x, b.Unsqueeze(b.Expand(total(b, x), b.Shape(x, end=1)), ints(1))),
        ["ReduceSum", "Sub"],
    ),
    (
        "elementwise-of-expands",
        X,
        lambda b, x: b.Mul(b.Neg(b.Expand(x, ints(4, 2, 3))), 2.0),
        ["Neg", "Mul", "Expand"],
    ),
]

STAYS: list[tuple[str, tuple[Any, ...], Make]] = [
    ("x + 0.0 turns -0.0 into 0.0", X, lambda b, x: x + 0.0),
    ("x - -0.0 turns -0.0 into 0.0", X, lambda b, x: x - f32(-0.0)),
    ("0 - x negates", X, lambda b, x: 0.0 - x),
    ("1 / x inverts", X, lambda b, x: 1 / x),
    ("ones of another shape broadcast", X, lambda b, x: x * np.ones((4, 1, 1), np.float32)),
    ("an unknown size may broadcast", ("x", "float32", [None, 3]), lambda b, x: x * np.ones((2, 3), np.float32)),
    ("one element is no 1", X, lambda b, x: x * f32(1, 1, 2)),
    ("x * 0 is NaN for infinities", X, lambda b, x: x * 0),
    ("Exp twice", X, lambda b, x: b.Exp(b.Exp(x))),
    ("another dtype", X, lambda b, x: b.Cast(x, to=10)),
    ("a clip with one bound", X, lambda b, x: b.Clip(x, None, 1.0)),
    ("a condition of both kinds", X, lambda b, x: b.Where(np.array([True, False, True]), x, b.Exp(x))),
    ("a side that broadcasts", ("x", "float32", [3]), lambda b, x: b.Where(np.ones((2, 3), bool), x, 0.5)),
    ("a dropout that trains", X, lambda b, x: b.Dropout(x, 0.5, np.array(True))),
    ("a mask that is used", X, lambda b, x: b.Cast(b.Dropout(x, outputs=2)[1], to=1)),
    ("a transpose of equal sizes", ("x", "float32", [3, 3]), lambda b, x: b.Transpose(x)),
    (
        "transposes that do not cancel",
        ("x", "float32", [3, 3, 3]),
        lambda b, x: b.Exp(b.Transpose(b.Exp(b.Transpose(x, perm=[1, 2, 0])), perm=[1, 2, 0])),
    ),
    ("a reshape of unknown sizes", ("x", "float32", [None, 3]), lambda b, x: b.Reshape(x, ints(3, -1))),
    (
        "a 0 that copies a size from between",
        ("x", "float32", ["N", 6]),
        lambda b, x: b.Reshape(b.Reshape(x, ints(-1, 3)), ints(0, 3, 1)),
    ),
    ("a flatten of three axes", ("x", "float32", [2, 3, 4]), lambda b, x: b.Flatten(x)),
    ("a flatten into one row", X, lambda b, x: b.Flatten(x, axis=0)),
    ("other axes", ("x", "float32", [2, 1, 3]), lambda b, x: b.Unsqueeze(b.Squeeze(x, ints(1)), ints(0))),
    ("two repeats", X, lambda b, x: b.Tile(x, ints(1, 2))),
    ("some padding", X, lambda b, x: b.Pad(x, ints(0, 0, 0, 1))),
    ("a reversed slice", X, lambda b, x: b.Slice(x, ints(-1), ints(-(2**62)), ints(0), ints(-1))),
    ("an end that may be too near", U, lambda b, x: b.Slice(x, ints(0), ints(2), ints(0))),
    ("a reduction over all axes", X, lambda b, x: b.ReduceSum(x)),
    ("an expand that gives the shape", X, lambda b, x: b.Add(b.Expand(x, ints(4, 2, 3)), x)),
    ("an expand to unknown sizes", ("x", "float32", [None, 3]), lambda b, x: b.Mul(b.Expand(f32(1), b.Shape(x)), x)),
    (
        "a row that is moved",
        ("x", "float32", [1, 3]),
        lambda b, x: b.Mul(b.Transpose(b.Expand(x, ints(4, 3))), np.full((3, 4), 2, np.float32)),
    ),
]


def left(module: ik.Module) -> list[str]:
    ignored = ("onnx.Constant", "onnx.NoValue", "func.return")
    return [op.name.removeprefix("onnx.") for op in module.block.ops if op.name not in ignored]


def graph(source: tuple[Any, ...], make: Make) -> ik.Module:
    b = ik.Builder()
    y = make(b, b.input(*source))
    b.output(y[0] if isinstance(y, tuple) else y, "y")
    return b.module()


@pytest.mark.parametrize(("name", "source", "make", "expected"), FIRES)
def test_a_rule_fires(name: str, source: tuple[Any, ...], make: Make, expected: Sequence[str]) -> None:
    module = graph(source, make)
    step = Canonicalize()
    changed = module.clone()
    assert step.run(changed)
    assert name in step.fired
    made = optimize(module, [Canonicalize()], verify_each=True)
    assert left(optimize(made, "dce")) == expected
    report = compare(module, made, signed_zeros=True)
    assert report.equal, report.text()
    assert report.compared >= 2, report.text()


@pytest.mark.parametrize(("why", "source", "make"), STAYS, ids=[why for why, _, _ in STAYS])
def test_what_only_looks_alike_stays(why: str, source: tuple[Any, ...], make: Make) -> None:
    module = graph(source, make)
    step = Canonicalize()
    changed = module.clone()
    assert not step.run(changed), step.fired
    assert changed == module


def test_every_rule_is_tested() -> None:
    known = {rule.name for rules in RULES.values() for rule in rules}
    assert known == {name for name, *_ in FIRES}


def test_new_ops_say_where_they_come_from() -> None:
    def make(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
        return b.Transpose(b.Transpose(x, perm=[1, 2, 0]), perm=[1, 2, 0])

    made = optimize(graph(("x", "float32", [2, 3, 4]), make), "canonicalize,dce")
    (new,) = (op for op in made.block.ops if op.name == "onnx.Transpose")
    assert "canonicalize:double-transpose" in describe(new.location)
    assert "test_canonicalize.py" in describe(new.location)


def test_a_rule_that_always_fires_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(op: OnnxOp, rw: Any) -> bool:
        rw.touched.append(op)
        return True

    monkeypatch.setitem(RULES, "onnx.Erf", [Rule("spin", spin)])
    with pytest.raises(PassError, match="'spin' fired"):
        optimize(graph(X, lambda b, x: b.Erf(x)), "canonicalize")


def test_a_branch_in_a_function_brings_its_initializer_as_a_constant() -> None:
    from irkit.backends.onnx import export
    from irkit.frontends.onnx import load
    from tests.corpus.build import from_text

    model = from_text(
        """
        g (float[2] x) => (float[2] y) { y = local.F (x) }
        <domain: "local", opset_import: ["" : 21]>
        F (v) => (w) {
            yes = Constant <value = bool {1}> ()
            w = If (yes) <
                then_branch = a () => (p) <float[2] k = {1.0, 2.0}> { p = Mul (v, k) },
                else_branch = b () => (q) { q = Neg (v) }
            >
        }
        """,
        imports={"local": 1},
    )
    made = optimize(load(model), "canonicalize", verify_each=True)
    names = {op.name for op in made.walk()}
    assert "onnx.If" not in names
    assert "onnx.Initializer" not in names
    report = compare(load(model), load(export(made)))
    assert report.equal, report.text()
    assert report.compared
