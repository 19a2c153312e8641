"""`check_rule`: wrong rules are caught, each for what is wrong with it, and right ones pass with something compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import PassError
from irkit.passes.rules import HandRule, Rule, attributes, constant, value
from irkit.testing import check_rule

X = value("float")
FLOAT = 1
"""float32, as the attribute of a Cast in a pattern has it."""

WRONG: dict[str, tuple[Rule, str]] = {
    "special values": (
        Rule("times-zero", lambda b, x=X: x - x, lambda b, x: x * 0.0),
        "expected",
    ),
    "the sign of zero": (Rule("plus-zero", lambda b, x=X: x + 0.0, lambda b, x: x), "expected 0.0"),
    "broadcasting": (
        Rule("where", lambda b, c=value("bool"), x=X: b.Where(c, x, x), lambda b, c, x: x),
        "has the shape",
    ),
    "the order of operands": (Rule("sub", lambda b, x=X, y=X: b.Neg(x - y), lambda b, x, y: x - y), "expected"),
    "one dtype of several": (
        Rule("cast", lambda b, x: b.CastLike(b.Cast(x, to=FLOAT), x), lambda b, x: b.Identity(x)),
        r"\(float64\)",
    ),
    "rounding": (Rule("gelu", lambda b, x=X: b.Gelu(x), lambda b, x: b.Gelu(x, approximate="tanh"), opset=20), "error"),
    "overflow": (
        Rule("halves", lambda b, x=value("float32"): (x * 2.0) / 2.0, lambda b, x: x),
        r"large and tiny magnitudes(.|\n)*expected -?inf",
    ),
    "overflow in float16": (
        Rule("quotient", lambda b, x=value("float16"): (x * 256.0) / 256.0, lambda b, x: x),
        "large and tiny magnitudes",
    ),
    "overflow where rounding is allowed": (
        Rule("scaled", lambda b, x=value("float32"): (x * 1e30) * 1e-30, lambda b, x: x, precision="rounding"),
        r"large and tiny magnitudes(.|\n)*expected -?inf",
    ),
    "overflow of Exp": (
        Rule("log-of-exp", lambda b, x=X: b.Log(b.Exp(x)), lambda b, x: x, precision="rounding"),
        "large and tiny magnitudes",
    ),
    "underflow": (
        Rule("scale", lambda b, x=value("float32"): b.Neg(x), lambda b, x: x * 1e-30 * -1e30, precision="rounding"),
        "large and tiny magnitudes",
    ),
    "gradients": (
        Rule("relu", lambda b, x=X: b.Max(x, 0), lambda b, x: b.Relu(x), precision="rounding"),
        "gradients: different",
    ),
    "attributes": (
        Rule(
            "softmax",
            lambda b, x=X, *, attrs=attributes(): b.Softmax(b.Identity(x), **attrs),
            lambda b, x, attrs: b.Softmax(x),
            samples=[{"x": ["N", 3], "attrs": {"axis": 0}}],
        ),
        "error",
    ),
    "never": (
        Rule("never", lambda b, x=X: b.Neg(x), lambda b, x: x, when=lambda x: False),
        "fired on none of",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_caught(name: str) -> None:
    rule, message = WRONG[name]
    with pytest.raises(AssertionError, match=message) as caught:
        check_rule(rule)
    assert f"rule '{rule.name}'" in str(caught.value)


def test_an_unknown_precision_is_refused_at_once() -> None:
    with pytest.raises(PassError, match=r"rule 'neg': there is no precision 'fastmath'.*\n.*did you mean 'fast-math'"):
        Rule("neg", lambda b, x: b.Neg(b.Neg(x)), lambda b, x: x, precision="fastmath")  # type: ignore[arg-type]
    with pytest.raises(PassError, match="known precisions: exact, rounding, fast-math"):
        HandRule("neg", ["onnx.Neg"], lambda op, rw: False, precision="aprox")  # type: ignore[arg-type]


def test_a_rule_that_makes_what_it_looks_for_is_stopped() -> None:
    rule = Rule("first", lambda b, x=X: b.Add(b.Exp(x), x), lambda b, x: b.Add(b.Exp(x), x))
    with pytest.raises(PassError, match="does not come to an end: rule 'first'"):
        check_rule(rule)


@pytest.mark.parametrize(
    "rule",
    [
        Rule("neg-of-neg", lambda b, x: b.Neg(b.Neg(x)), lambda b, x: x),
        Rule("transposes", lambda b, x: b.Transpose(b.Transpose(x)), lambda b, x: x),
        Rule("sums", lambda b, *xs: b.Sum(b.Sum(*xs)), lambda b, *xs: b.Sum(*xs)),
        Rule("names", lambda b, x=value("string"): b.Identity(b.Identity(x)), lambda b, x: b.Identity(x)),
    ],
    ids=lambda r: r.name,
)
def test_a_right_rule_passes_on_many_graphs(rule: Rule) -> None:
    report = check_rule(rule)
    assert report.fired >= 4
    assert report.compared >= 4 * report.fired - 8


def test_a_rule_is_run_on_both_backends_if_asked() -> None:
    rule = Rule("abs", lambda b, x=value("float32"): b.Abs(b.Neg(x)), lambda b, x: b.Abs(x))
    alone, both = check_rule(rule), check_rule(rule, backends=("numpy", "onnxruntime"))
    assert both.compared == 2 * alone.compared


def test_samples_say_what_variables_are() -> None:
    rule = Rule(
        "matmul",
        lambda b, x=X, w=constant(), k=constant(): (x @ w) @ k,
        lambda b, x, w, k: x @ (w @ k),
        # Of an infinite x another order of operations may make NaN or not.
        precision="fast-math",
    )
    report = check_rule(rule, samples=[{"x": ["N", 3], "w": [3, 4], "k": [4, 2]}], dtypes=["float32"])
    # Plain, swapped, inner values used, in a branch; constants that may be overridden, where it must not fire.
    assert report.graphs >= 4
    with pytest.raises(TypeError, match="has no variable 'v'"):
        check_rule(rule, samples=[{"v": [1]}])
    with pytest.raises(TypeError, match="leaves the attribute 'axis' open: give samples"):
        check_rule(Rule("s", lambda b, x, *, axis: b.Softmax(x, axis=axis), lambda b, x, axis: x))


def test_a_hand_written_rule_is_tested_on_graphs() -> None:
    def drop(op: Any, rw: Any) -> bool:
        rw.replace(op, [op.operands[0]])
        return True

    b = ik.Builder("g")
    b.output(b.Identity(b.input("x", "float32", ["N"])), "y")
    fine = b.module()
    assert check_rule(HandRule("identity", ["onnx.Identity"], drop), graphs=[fine]).fired == 1
    b = ik.Builder("g")
    b.output(b.Neg(b.input("x", "float32", ["N"])), "y")
    with pytest.raises(AssertionError, match="rule 'neg' on graph 0"):
        check_rule(HandRule("neg", ["onnx.Neg"], drop), graphs=[b.module()])


def test_constants_may_be_arrays() -> None:
    rule = Rule("pad", lambda b, x=X, p=constant("int64"): b.Pad(x, p), lambda b, x, p: x)
    assert check_rule(rule, samples=[{"x": ["N", 3], "p": np.zeros(4, np.int64)}], dtypes=["float32"]).fired >= 2


def test_axes_are_matched_as_a_list_in_a_pattern() -> None:
    rule = Rule(
        "sum-of-neg",
        lambda b, x=value("float32"): b.ReduceSum(b.Neg(x), [1], keepdims=0),
        lambda b, x: b.Neg(b.ReduceSum(x, np.array([1]), keepdims=0)),
        precision="rounding",
    )
    assert check_rule(rule, samples=[{"x": ["N", 3]}]).fired >= 3
    b = ik.Builder("g")
    x = b.input("x", "float32", ["N", 3])
    b.output(b.ReduceSum(b.Neg(x), np.array([0]), keepdims=0), "y")
    with pytest.raises(AssertionError, match="fired on none of 1 graphs"):
        check_rule(rule, samples=[], graphs=[b.module()], dtypes=[])


def test_an_operand_that_no_pattern_can_have_is_refused() -> None:
    rule = Rule("text", lambda b, x: b.Add(b.Neg(x), "one"), lambda b, x: x)
    with pytest.raises(TypeError, match="numbers and arrays of numbers as operands, not 'one'"):
        check_rule(rule)


def test_a_sample_that_cannot_be_built_says_why() -> None:
    rule = Rule("product", lambda b, x=X, y=X: b.MatMul(b.Neg(x), y), lambda b, x, y: b.Neg(b.MatMul(x, y)))
    with pytest.raises(AssertionError, match=r"none of 0 graphs\n.*cannot be built with float32: .*MatMul"):
        check_rule(rule, samples=[{"x": ["N", 3], "y": [4, 4]}], dtypes=["float32"])
