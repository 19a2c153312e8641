"""Rules as pairs of functions: what patterns match and leave alone, what is made, and that applying them ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

import irkit as ik
from irkit.dialects.onnx import CURRENT
from irkit.errors import PassError
from irkit.ir.location import describe
from irkit.ir.names import metadata_of, node_name, set_metadata, set_node_name
from irkit.passes.rules import (
    HandRule,
    Rule,
    apply_rules,
    attributes,
    constant,
    item,
    near,
    rule_pass,
    scalar,
    value,
    why_not,
)
from irkit.passes.rules.pattern import trace

Build = Callable[..., Any]


def graph(build: Build, opset: int = 21, **inputs: Any) -> ik.Module:
    """A module of one function of inputs, which are ``(dtype, shape)``; results are outputs in order."""
    b = ik.Builder("g", opsets={"": opset})
    made = build(b, *(b.input(name, *given) for name, given in inputs.items()))
    for index, result in enumerate(made if isinstance(made, tuple) else (made,)):
        b.output(result, f"y{index}")
    return b.module()


def ops(module: ik.Module) -> list[str]:
    """The ops of the main graph without constants."""
    skipped = ("onnx.Constant", "onnx.Initializer", "onnx.NoValue", "func.return")
    return [op.name.removeprefix("onnx.") for op in module.block.ops if op.name not in skipped]


def rewritten(module: ik.Module, *rules: Any) -> list[str]:
    made = module.clone()
    apply_rules(made, *rules)
    made.verify()
    return ops(made)


F = ("float32", ["N", 4])


def double_exp(b: Any, x: Any, y: Any) -> Any:
    return b.Exp(x) * b.Abs(b.Neg(y))


ABS = Rule("abs", double_exp, lambda b, x, y: b.Sub(x, y))


def test_a_pattern_matches_whatever_the_order_of_commutative_operands() -> None:
    assert rewritten(graph(lambda b, x, y: b.Exp(x) * b.Abs(-y), x=F, y=F), ABS) == ["Sub"]
    assert rewritten(graph(lambda b, x, y: b.Abs(-y) * b.Exp(x), x=F, y=F), ABS) == ["Sub"]
    # Of a quotient the order counts.
    quotient = Rule("q", lambda b, x, y: b.Exp(x) / b.Abs(y), lambda b, x, y: x)
    assert rewritten(graph(lambda b, x, y: b.Abs(x) / b.Exp(y), x=F, y=F), quotient) == ["Abs", "Exp", "Div"]


def test_variables_that_occur_twice_are_one_value() -> None:
    square = Rule("square", lambda b, x: b.Exp(x) * b.Exp(x), lambda b, x: b.Exp(x + x))
    assert rewritten(graph(lambda b, x, y: b.Exp(x) * b.Exp(x), x=F, y=F), square) == ["Add", "Exp"]
    assert len(rewritten(graph(lambda b, x, y: b.Exp(x) * b.Exp(y), x=F, y=F), square)) == 3
    # The first order of operands fails for the variable only, not for the ops: then the second is tried.
    both = Rule("both", lambda b, x, y: b.Add(b.Add(x, y), x), lambda b, x, y: b.Neg(x))
    assert rewritten(graph(lambda b, x, y: (y + x) + x, x=F, y=F), both) == ["Neg"]
    assert rewritten(graph(lambda b, x, y: y + (x + y), x=F, y=F), both) == ["Neg"]


def test_deep_commutative_patterns_cost_no_more_than_their_size() -> None:
    depth = 24

    def pattern(b: Any, x: Any) -> Any:
        for _ in range(depth):
            x = b.Add(b.Exp(x), b.Exp(x))
        return b.Neg(x)

    def tower(b: Any, x: Any) -> Any:
        # Wrong at the bottom, so that every order of every Add would have to be tried.
        x = b.Abs(x)
        for _ in range(depth):
            x = b.Exp(x) + b.Exp(x)
        return b.Neg(x)

    module = graph(tower, x=F)
    calls = 0

    def profiler(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    rule = Rule("tower", lambda b, x: pattern(b, b.Sin(x)), lambda b, x: x)
    rule.traced  # noqa: B018 - traced once, outside of what is measured
    sys.setprofile(profiler)
    try:
        fired = apply_rules(module, rule)
    finally:
        sys.setprofile(None)
    assert not fired
    assert calls < 20_000


def test_optional_operands_and_attributes() -> None:
    w = ("float32", [2, 4, 1])
    rule = Rule(
        "relu-conv",
        lambda b, x, w, c=value(optional=True), *, attrs=attributes(): b.Relu(b.Conv(x, w, c, **attrs)),
        lambda b, x, w, c, attrs: b.Conv(x, w, c if c is not None else None, **attrs),
    )
    x = ("float32", ["N", 4, 5])
    module = graph(lambda b, x, w: b.Relu(b.Conv(x, w, pads=[1, 0])), x=x, w=w)
    apply_rules(module, rule)
    (conv,) = (op for op in module.block.ops if op.name == "onnx.Conv")
    assert conv.attr("pads") == (1, 0)
    with_bias = graph(lambda b, x, w, c: b.Relu(b.Conv(x, w, c)), x=x, w=w, c=("float32", [2]))
    assert rewritten(with_bias, rule) == ["Conv"]


def test_an_attribute_that_the_pattern_does_not_name_has_its_default() -> None:
    rule = Rule("softmax", lambda b, x: b.Softmax(x), lambda b, x: b.Hardmax(x))
    assert rewritten(graph(lambda b, x: b.Softmax(x, axis=-1), x=F), rule) == ["Hardmax"]
    assert rewritten(graph(lambda b, x: b.Softmax(x, axis=0), x=F), rule) == ["Softmax"]
    named = Rule("named", lambda b, x: b.Softmax(x, axis=0), lambda b, x: b.Hardmax(x, axis=0))
    assert rewritten(graph(lambda b, x: b.Softmax(x), x=F), named) == ["Softmax"]
    bound = Rule(
        "bound", lambda b, x, *, axis: b.Log(b.Softmax(x, axis=axis)), lambda b, x, axis: b.LogSoftmax(x, axis=axis)
    )
    module = graph(lambda b, x: b.Log(b.Softmax(x, axis=0)), x=F)
    apply_rules(module, bound)
    (op,) = (op for op in module.block.ops if op.name == "onnx.LogSoftmax")
    assert op.attr("axis") == 0


def test_variadic_operands() -> None:
    rule = Rule("sum", lambda b, x, *xs: b.Neg(b.Sum(b.Abs(x), *xs)), lambda b, *xs: b.Max(*xs))
    module = graph(lambda b, x, y: b.Neg(b.Sum(b.Abs(x), y, x, y)), x=F, y=F)
    made = module.clone()
    apply_rules(made, rule)
    (op,) = (op for op in made.block.ops if op.name == "onnx.Max")
    x, y = made.block.args
    assert tuple(op.operands) == (y, x, y)
    assert rewritten(graph(lambda b, x, y: b.Neg(b.Sum(y, b.Abs(x))), x=F, y=F), rule) == ["Abs", "Sum", "Neg"]


def test_constants_by_number_by_kind_and_by_shape() -> None:
    half = Rule("half", lambda b, x=value("float"): x * 0.5, lambda b, x: b.Neg(x))
    assert rewritten(graph(lambda b, x: x * 0.5, x=F), half) == ["Neg"]
    assert rewritten(graph(lambda b, x: x * np.full((4,), 0.5, np.float32), x=F), half) == ["Neg"]
    assert rewritten(graph(lambda b, x: x * 0.25, x=F), half) == ["Mul"]
    # A constant that widens the result is more than a number.
    assert rewritten(graph(lambda b, x: x * np.full((3, 1, 1), 0.5, np.float32), x=F), half) == ["Mul"]
    assert rewritten(graph(lambda b, x: x * np.full((1, 1, 1), 0.5, np.float32), x=F), half) == ["Mul"]
    zero = Rule("zero", lambda b, x=value("float"): x + -0.0, lambda b, x: x)
    assert rewritten(graph(lambda b, x: x + np.float32(-0.0), x=F), zero) == []
    assert rewritten(graph(lambda b, x: x + np.float32(0.0), x=F), zero) == ["Add"]
    root = Rule("root", lambda b, x=value("float"): x * near(2**0.5), lambda b, x: b.Sqrt(x))
    assert rewritten(graph(lambda b, x: x * np.float32(1.4142137), x=F), root) == ["Sqrt"]
    assert rewritten(graph(lambda b, x: x * np.float32(1.4143), x=F), root) == ["Mul"]
    bound = Rule(
        "bound", lambda b, x, alpha=scalar("float"): x * alpha, lambda b, x, alpha: b.Elu(x, alpha=item(alpha))
    )
    module = graph(lambda b, x: x * np.float32(0.75), x=F)
    apply_rules(module, bound)
    assert next(op for op in module.block.ops if op.name == "onnx.Elu").attr("alpha") == 0.75
    any_ = Rule("any", lambda b, x, w=constant(): x @ w, lambda b, x, w: x)
    assert rewritten(graph(lambda b, x: x @ np.eye(4, dtype=np.float32), x=F), any_) == []
    assert rewritten(graph(lambda b, x, w: x @ w, x=F, w=("float32", [4, 4])), any_) == ["MatMul"]


def test_an_overridable_initializer_is_no_constant() -> None:
    from tests.corpus.build import from_text

    text = """g (float[4] x, float[4] w) => (float[4] y)
    <float[4] w = {1, 1, 1, 1}> { y = Mul(x, w) }"""
    rule = Rule("one", lambda b, x: x * 1.0, lambda b, x: x)
    assert rewritten(ik.load(from_text(text)), rule) == ["Mul"]


def test_an_inner_value_that_is_used_elsewhere_stays() -> None:
    rule = Rule("neg", lambda b, x: b.Neg(b.Abs(x)), lambda b, x: b.Sign(x))

    def used(b: Any, x: Any) -> Any:
        inner = b.Abs(x)
        return b.Neg(inner), b.Exp(inner)

    def returned(b: Any, x: Any) -> Any:
        inner = b.Abs(x)
        return b.Neg(inner), inner

    def captured(b: Any, x: Any, c: Any) -> Any:
        inner = b.Abs(x)
        branch = b.If(c, then_branch=lambda b: b.Exp(inner), else_branch=lambda b: b.Sin(x))
        return b.Neg(inner), branch

    assert rewritten(graph(used, x=F), rule) == ["Abs", "Neg", "Exp"]
    assert rewritten(graph(returned, x=F), rule) == ["Abs", "Neg"]
    assert rewritten(graph(captured, x=F, c=("bool", [])), rule) == ["Abs", "If", "Neg"]
    assert rewritten(graph(lambda b, x: b.Neg(b.Abs(x)), x=F), rule) == ["Sign"]


def test_several_outputs() -> None:
    def pattern(b: Any, x: Any) -> Any:
        e = b.Exp(x)
        return b.Neg(e), e

    rule = Rule("both", pattern, lambda b, x: (b.Sin(x), b.Cos(x)))
    module = graph(lambda b, x: (b.Neg(b.Exp(x)),), x=F)
    assert rewritten(module, rule) == ["Sin", "Cos"]

    def shared(b: Any, x: Any) -> Any:
        e = b.Exp(x)
        n = b.Neg(e)
        return n, b.Abs(e)

    made = graph(shared, x=F)
    apply_rules(made, rule)
    made.verify()
    assert ops(made) == ["Sin", "Cos", "Abs"]

    def too_early(b: Any, x: Any) -> Any:
        e = b.Exp(x)
        a = b.Abs(e)
        return b.Neg(e), a

    # Abs uses the exponential before the place where the replacement stands.
    assert rewritten(graph(too_early, x=F), rule) == ["Exp", "Abs", "Neg"]


def test_outputs_that_only_share_an_operand() -> None:
    rule = Rule(
        "two-products",
        lambda b, x, v=value(rank=2), w=value(rank=2): (b.MatMul(x, v), b.MatMul(x, w)),
        lambda b, x, v, w: b.Split(b.MatMul(x, b.Concat(v, w, axis=1)), axis=1, num_outputs=2),
    )
    w = ("float32", [4, 3])

    def build(b: Any, x: Any, v: Any, w: Any) -> Any:
        first, second = x @ v, x @ w
        return b.Exp(first), b.Abs(second)

    module = graph(build, x=F, v=w, w=w)
    made = module.clone()
    apply_rules(made, rule)
    made.verify()
    assert sorted(ops(made)) == ["Abs", "Concat", "Exp", "MatMul", "Split"]
    from irkit.verify import compare

    assert compare(module, made).equal


def test_a_rule_of_a_later_opset_needs_a_target_that_has_it() -> None:
    gelu = rule_pass("gelu", Rule("gelu", lambda b, x: b.Exp(b.Neg(x)), lambda b, x: b.Gelu(x), opset=20))
    module = graph(lambda b, x: b.Exp(-x), opset=17, x=F)
    assert ops(ik.optimize(module, [gelu()])) == ["Neg", "Exp"]
    assert ops(ik.optimize(module, [gelu()], target_opset=20)) == ["Gelu"]
    # A rule that does not say which opset it needs is still held to the target.
    silent = Rule("silent", lambda b, x: b.Exp(b.Neg(x)), lambda b, x: b.Gelu(x))
    assert rewritten(module, silent) == ["Neg", "Exp"]


def test_options_of_a_pass_choose_by_precision_and_gradients() -> None:
    exact = Rule("exact", lambda b, x: b.Neg(b.Neg(x)), lambda b, x: x)
    rough = Rule("rough", lambda b, x: b.Log(b.Exp(x)), lambda b, x: x, precision="fast-math")
    kinked = Rule("kinked", lambda b, x: b.Max(x, 0.0), lambda b, x: b.Relu(x), keeps_gradients=False)
    close = Rule("close", lambda b, x: b.Reciprocal(x), lambda b, x: 1.0 / x, precision="rounding")
    chosen = rule_pass("chosen", exact, rough, kinked, close)
    module = graph(lambda b, x: b.Reciprocal(b.Max(b.Log(b.Exp(b.Neg(b.Neg(x)))), 0.0)), x=F)
    assert ops(ik.optimize(module, [chosen(exact=True)])) == ["Exp", "Log", "Max", "Reciprocal"]
    assert ops(ik.optimize(module, [chosen()])) == ["Exp", "Log", "Max", "Div"]
    assert ops(ik.optimize(module, [chosen(fast_math=True)])) == ["Max", "Div"]
    assert ops(ik.optimize(module, [chosen(fast_math=True, gradients=False)])) == ["Relu", "Div"]


def test_what_is_made_says_where_it_came_from_and_keeps_names_and_metadata() -> None:
    module = graph(lambda b, x: b.Neg(b.Abs(x)), x=F)
    first, second = (op for op in module.block.ops if op.name in ("onnx.Abs", "onnx.Neg"))
    set_node_name(first, "inner")
    set_node_name(second, "outer")
    set_metadata(first, {"a": "1", "b": "1"})
    set_metadata(second, {"b": "2"})
    rule = Rule("sign", lambda b, x: b.Neg(b.Abs(x)), lambda b, x: b.Sign(b.Exp(x)))
    apply_rules(module, rule)
    made = {op.name: op for op in module.block.ops}
    assert node_name(made["onnx.Sign"]) == "outer"
    assert metadata_of(made["onnx.Sign"]) == {"a": "1", "b": "2"}
    for name in ("onnx.Sign", "onnx.Exp"):
        assert "made by rules:sign from" in describe(made[name].location)
        assert describe(made[name].location).count("test_rules.py") >= 1


def test_a_replacement_of_another_type_or_shape_does_not_take_place() -> None:
    module = graph(lambda b, x: b.Neg(x), x=("float32", [2, 3]))
    for wrong in (
        lambda b, x: b.Cast(x, to=11),
        lambda b, x: b.Transpose(x),
        lambda b, x: b.MatMul(x, x),
        lambda b, x: None,
    ):
        assert rewritten(module, Rule("wrong", lambda b, x: b.Neg(x), wrong)) == ["Neg"]


def test_rules_work_in_subgraphs_and_functions_and_leave_references_alone() -> None:
    from tests.corpus.build import from_text

    rule = Rule("neg", lambda b, x: b.Neg(b.Neg(x)), lambda b, x: x)
    branches = graph(
        lambda b, c, x: b.If(c, then_branch=lambda b: b.Neg(b.Neg(b.Exp(x))), else_branch=lambda b: b.Abs(x)),
        c=("bool", []),
        x=F,
    )
    apply_rules(branches, rule)
    assert not any(op.name == "onnx.Neg" for op in branches.walk())
    text = """g (float[4] x) => (float[4] y) { y = local.F <alpha = 0.5> (x) }
    <domain: "local", opset_import: ["" : 21]>
    F <alpha> (a) => (r) { t = Elu <alpha: float = @alpha> (a) u = Neg (t) r = Neg (u) }"""
    module = ik.load(from_text(text, imports={"local": 1}))
    elu = Rule("elu", lambda b, x, *, alpha: b.Elu(x, alpha=alpha), lambda b, x, alpha: b.Selu(x))
    apply_rules(module, rule, elu)
    names = [op.name for op in module.walk()]
    assert "onnx.Neg" not in names
    assert "onnx.Elu" in names


def test_a_value_of_a_graph_around_is_no_part_of_a_match() -> None:
    rule = Rule("neg", lambda b, x: b.Neg(b.Exp(x)), lambda b, x: b.Abs(x))

    def build(b: Any, x: Any, c: Any) -> Any:
        e = b.Exp(x)
        return b.If(c, then_branch=lambda b: b.Neg(e), else_branch=lambda b: b.Sin(x))

    module = graph(build, x=F, c=("bool", []))
    assert not apply_rules(module, rule)


def test_a_rule_without_end_is_stopped_and_named() -> None:
    def swapped(b: Any, x: Any, y: Any) -> Any:
        return b.Sub(x, y)

    rule = Rule("for-ever", swapped, lambda b, x, y: b.Sub(y, x))
    module = graph(lambda b, x, y: x - y, x=F, y=F)
    with pytest.raises(PassError, match=r"rules does not come to an end: rule 'for-ever' fired \d+ times"):
        apply_rules(module, rule)


def test_a_rule_that_raises_is_named() -> None:
    def broken(b: Any, x: Any) -> Any:
        raise ZeroDivisionError("oh")

    with pytest.raises(PassError, match="rule 'broken' failed: ZeroDivisionError: oh"):
        apply_rules(graph(lambda b, x: -x, x=F), Rule("broken", lambda b, x: b.Neg(x), broken))


class NegOfNeg(RewritePattern):
    """As xDSL has it."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        owner = op.operands[0].owner
        if isinstance(owner, CURRENT["", "Neg"]):
            new = CURRENT["", "Abs"].create(operands=[owner.operands[0]], result_types=[op.results[0].type])
            rewriter.replace(op, new)


def test_a_rewrite_pattern_of_xdsl_is_a_rule() -> None:
    rule = HandRule("neg-of-neg", ["onnx.Neg"], NegOfNeg())
    module = graph(lambda b, x: b.Neg(b.Neg(x)), x=F)
    assert apply_rules(module, rule) == {"neg-of-neg": 1}
    (made,) = (op for op in module.block.ops if op.name == "onnx.Abs")
    assert "made by rules:neg-of-neg from" in describe(made.location)


def test_only_ops_at_which_a_rule_begins_are_looked_at() -> None:
    looked: list[str] = []

    def look(op: Any, rw: Any) -> bool:
        looked.append(op.name)
        return False

    module = graph(lambda b, x: b.Exp(b.Neg(b.Exp(x))), x=F)
    apply_rules(module, HandRule("look", ["onnx.Exp"], look))
    assert looked == ["onnx.Exp", "onnx.Exp"]
    looked.clear()
    apply_rules(module, HandRule("look", ["onnx.Exp"], look, over=["onnx.Neg"]))
    assert looked == ["onnx.Exp"]


def test_why_a_rule_does_not_fire() -> None:
    def gelu(b: Any, x: Any = value("float")) -> Any:
        return x * (b.Erf(x / near(2**0.5)) + 1) * 0.5

    def small(x: ik.Tensor) -> bool:
        return x.rank == 1

    rule = Rule("gelu", gelu, lambda b, x: b.Gelu(x), when=small, opset=20)

    def nearest(build: Build, opset: int = 21, shape: Any = F) -> str:
        return str(why_not(rule, graph(build, opset, x=shape))[0])

    one = ("float32", ["N"])
    # Where it fires nothing is said; the product within is no Gelu.
    (inner,) = why_not(rule, graph(lambda b, x: gelu(b, x), x=one))
    assert inner.matched == 1
    assert "5 of 5 ops fit; its condition 'small' does not hold" in nearest(lambda b, x: gelu(b, x))
    assert "needs opset 20, and the module is to be saved at 17" in nearest(lambda b, x: gelu(b, x), 17)
    other = nearest(lambda b, x: x * (b.Tanh(x / 2**0.5) + 1) * 0.5)
    assert "3 of 5 ops fit; there is onnx.Tanh where the pattern has onnx.Erf" in other
    number = nearest(lambda b, x: x * (b.Erf(x / 1.5) + 1) * 0.5)
    assert "operand 1 of onnx.Div is not the constant 1.414" in number

    def shared(b: Any, x: Any) -> Any:
        e = b.Erf(x / 2**0.5)
        return x * (e + 1) * 0.5, e

    assert "is used elsewhere as well" in nearest(shared)
    soft = Rule("soft", lambda b, x: b.Log(b.Softmax(x)), lambda b, x: x)
    (miss,) = why_not(soft, graph(lambda b, x: b.Log(b.Softmax(x, axis=0)), x=F))
    assert (miss.matched, miss.of) == (1, 2)
    assert "axis of onnx.Softmax is 0, which the pattern does not name" in miss.reason


def test_rules_that_find_nothing_cost_next_to_nothing() -> None:
    from irkit.passes import parse_pipeline

    def chain(b: Any, x: Any) -> Any:
        for index in range(1000):
            x = (b.Sin, b.Tanh)[index % 2](x * 0.3 if index % 3 else x + 0.1)
        return x

    module = graph(chain, opset=24, x=F)
    (fuse,) = parse_pipeline("fuse")
    fuse.apply(module.ctx, module.clone().op)
    calls = 0

    def profiler(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profiler)
    try:
        assert not fuse.run(module)  # type: ignore[attr-defined]
    finally:
        sys.setprofile(None)
    # Of about a hundred rules, half of which begin at a Mul or an Add.
    assert calls < 40 * len(ops(module))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (lambda b, x: x, "a pattern returns the results of the ops"),
        (lambda b, x, y: b.Neg(x), "does not use its parameter 'y'"),
        (lambda b, x: (b.Exp(x), b.Neg(x))[1], "makes onnx.Exp, but no output depends on it"),
        (lambda b, x: b.Negg(x), "there is no op 'Negg'"),
        (lambda b, x: b.Softmax(x, axes=1), "has no attribute 'axes'"),
        (lambda b, x: b.If(x), "has graphs, which a pattern cannot hold"),
        (lambda b, x: b.input("y"), "cannot use 'input'"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: Build, message: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=message):
        trace(pattern)


def test_a_name_that_a_function_asks_for_must_be_a_variable() -> None:
    rule = Rule("odd", lambda b, x: b.Neg(x), lambda b, y: y)
    with pytest.raises(PassError, match="asks for 'y', which is no parameter of the pattern"):
        apply_rules(graph(lambda b, x: -x, x=F), rule)
