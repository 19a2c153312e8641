"""Bisection: the first wrong pass, and the single rewrite in it, are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time
from typing import ClassVar

import pytest

import irkit as ik
from examples.light_models import light_model
from irkit.dialects.onnx import OnnxOp
from irkit.ir.fuel import rationed
from irkit.ir.names import name_of, set_out_names
from irkit.passes import Pass, parse_pipeline
from irkit.passes.canonicalize.rules import RULES, Rule, load_all
from irkit.passes.rewrite import Rewriter, ops_in
from irkit.passes.rules import Rule as PatternRule
from irkit.passes.rules import rule_pass, value
from irkit.verify import Reference, Tolerance, bisect, random_feeds
from irkit.verify.widen import widen, widen_feeds
from tests.corpus.build import from_text


def chain(length: int = 40) -> ik.Module:
    """Relu and Tanh in turns, each result named."""
    b = ik.Builder("chain")
    y = b.input("x", "float32", ["N", 4])
    for index in range(length):
        y = b.Tanh(y) if index % 2 else b.Relu(y + 0.1)
        set_out_names(y.ssa.owner, [f"v{index}"])
    b.output(y, "y")
    return b.module()


@dataclass(frozen=True)
class DropsOne(Pass):
    """Puts an Identity behind every Tanh; before one of them the Tanh is lost."""

    name: ClassVar[str] = "drops-one"
    which: str = "v21"

    def run(self, module: ik.Module) -> bool:
        rewriter = Rewriter(module, "drops-one")
        for op in [op for op in ops_in(module.op) if op.name == "onnx.Tanh"]:
            b = ik.Builder.before(op, module.ctx, by="drops-one")
            kept = op.operands[0] if name_of(op.results[0]) == self.which else b.Tanh(op.operands[0]).ssa
            rewriter.replace(op, [kept])
        return True


@pytest.mark.parametrize("which", ["v1", "v21", "v39"])
def test_the_wrong_rewrite_of_a_planted_pass_is_found(which: str) -> None:
    module = chain()
    before = module.clone()
    found = bisect(module, [*parse_pipeline("canonicalize,cse"), DropsOne(which), *parse_pipeline("dce")])
    assert (found.culprit or "").partition("{")[0] == "drops-one"
    assert found.index == 2
    assert found.rewrite is not None
    assert found.rewrite.step.name == which
    assert found.rewrite.of == 20
    assert found.rewrite.number == (int(which[1:]) + 1) // 2
    assert f"rewrite {found.rewrite.number} of 20, 'drops-one' at onnx.Tanh" in found.text()
    assert found.feeds
    assert module == before


def test_the_wrong_rewrite_of_a_planted_rule_is_found() -> None:
    good = PatternRule("good", lambda b, x=value("float"): b.Tanh(x), lambda b, x: b.Identity(b.Tanh(b.Identity(x))))
    assert good.roots == ["onnx.Tanh"]
    wrong = PatternRule("wrong", lambda b, x=value("float"): b.Relu(b.Add(x, 0.1)), lambda b, x: b.Relu(b.Sub(x, 0.1)))
    right = PatternRule("right", lambda b, x=value("float"): b.Relu(b.Sub(x, 0.1)), lambda b, x: b.Neg(b.Neg(x)))
    steps = [rule_pass("mine", wrong)(), rule_pass("other", right)()]
    found = bisect(chain(), steps)
    assert (found.culprit, found.index) == ("mine", 0)
    assert found.rewrite is not None
    assert (found.rewrite.number, found.rewrite.of, found.rewrite.step.by) == (1, 20, "mine:wrong")


def test_a_pass_that_fails_is_told_with_the_last_rewrite() -> None:
    def raises(op: OnnxOp, rw: Rewriter) -> bool:
        if name_of(op.results[0]) == "v31":
            raise RuntimeError("no luck")
        return False

    from irkit.passes.rules import HandRule

    found = bisect(chain(), [rule_pass("mine", HandRule("raises", ["onnx.Tanh"], raises))()])
    assert found.culprit == "mine"
    assert "rule 'raises' failed: RuntimeError: no luck" in found.error


def test_nothing_wrong_is_said() -> None:
    found = bisect(chain(), parse_pipeline("O3"))
    assert found.culprit is None
    assert found.rewrite is None
    assert found.changed
    assert found.compared >= 3
    assert found.text().startswith("no pass breaks the module")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A canonicalization rule that loses one Relu of densenet."""
    load_all()
    target = "r456"

    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        if name_of(op.results[0]) != target:
            return False
        rw.replace(op, [op.operands[0]])
        return True

    monkeypatch.setitem(RULES, "onnx.Relu", [Rule("planted", wrong), *RULES.get("onnx.Relu", [])])
    return target


def test_densenet_is_bisected_in_a_minute(planted: str) -> None:
    module = ik.load(light_model("densenet121"))
    start = process_time()
    found = bisect(module, parse_pipeline("O2"), samples=2)
    assert process_time() - start < 60
    assert (found.culprit, found.index) == ("canonicalize", 2)
    assert found.rewrite is not None
    assert found.rewrite.step.by == "canonicalize:planted"
    assert "#456" in str(found.rewrite)


# Fuel


@pytest.mark.parametrize("name", ["canonicalize", "cse", "dce", "constant-fold", "fuse"])
def test_passes_stop_after_as_many_rewrites_as_they_are_given(name: str) -> None:
    def module() -> ik.Module:
        b = ik.Builder("g", opsets={"": 24})
        x = b.input("x", "float32", [4])
        for _ in range(5):
            # Something for each pass: a double negation, equal ops, an unused one, constants, and a Swish.
            b.Cos(x)
            x = b.Neg(b.Neg(x)) + b.Exp(x) - b.Exp(x) * (b.constant(2.0, "float32") + 3.0)
            x = x * b.Sigmoid(x)
        b.output(x, "y")
        return b.module()

    (step,) = parse_pipeline(name)
    with rationed() as fuel:
        step.apply(module().ctx, (whole := module()).op)
    assert fuel.count == fuel.made.total() >= 5
    for limit in (0, 1, 3):
        made = module()
        with rationed(limit) as fuel:
            step.apply(made.ctx, made.op)
        made.verify()
        assert fuel.count == limit
        assert made != whole
    reference = Reference(module())
    for limit in range(fuel.count):
        made = module()
        with rationed(limit):
            step.apply(made.ctx, made.op)
        assert reference.check(made).equal


# Tolerance


def test_the_error_of_the_right_side_sets_the_tolerance() -> None:
    def module(divisor: float) -> ik.Module:
        b = ik.Builder("g")
        x = b.input("x", "float32", ["N", 8])
        # Cancellation: what is left of a sum after a large number went in and out again.
        b.output((x + divisor) - divisor, "y")
        return b.module()

    narrow, wide = Reference(module(1000.0)), Reference(module(1000.0), wide=True)
    b = ik.Builder("g")
    b.output(b.input("x", "float32", ["N", 8]) * 1.0, "y")
    other = b.module()
    # Without rounding both are x.
    assert not narrow.check(other).equal
    assert wide.check(other).equal
    # And what has next to no error is held to more than the default.
    b = ik.Builder("g")
    b.output(b.input("x", "float32", ["N", 8]) * 1.000005, "y")
    off = b.module()
    assert Reference(other).check(off).equal
    assert not Reference(other, wide=True).check(off).equal
    assert Reference(other, wide=True).check(off, Tolerance(rtol=1e-4)).equal


def test_a_module_in_float64() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", ["N", 4])
    w = b.initializer([[1.0], [2.0], [3.0], [4.0]], "w", "float32")
    b.output(b.Cast(b.Softmax(x @ w + 1.0), to=1), "y")
    module = b.module()
    made = widen(module)
    assert made is not None
    assert str(made.outputs["y"]).startswith("tensor<?x1xf64")
    fed = widen_feeds(random_feeds(module))
    assert ik.compile(made).run(fed)["y"].dtype == "float64"
    # The type that a function's caller asks for is not known in the function.
    text = """g (float[3] x) => (y) { y = local.F <to = 10> (x) }
    <domain: "local", opset_import: ["" : 21]> F <to> (v) => (r) { r = Cast <to: int = @to> (v) }"""
    assert widen(ik.load(from_text(text, imports={"local": 1}))) is None
    # A scale of quantization is a float32 and nothing else.
    b = ik.Builder("g", opsets={"": 21})
    b.output(b.Resize(b.input("x", "float32", [1, 1, 4, 4]), None, b.constant([1.0, 1.0, 2.0, 2.0], "float32")), "y")
    assert widen(b.module()) is None
