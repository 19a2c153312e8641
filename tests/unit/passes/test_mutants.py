"""Mistakes planted in the passes, each of which `check="each"` must catch and pin on its pass.

Each is a mistake that some optimizer has made. Beside it stands a model on which it shows; on the same model the right
passes go through the same check, which must really have compared something.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.sizes import _RULES as SIZE_RULES
from irkit.dialects.onnx.sizes import Held, SizeValues
from irkit.errors import CheckError
from irkit.ir.constants import ConstantData, constant
from irkit.ir.types import shape_of
from irkit.passes import constant_fold, cse, dce, fusion, hoist, infer_shapes, inline, optimize
from irkit.passes.canonicalize import control, elementwise
from irkit.passes.canonicalize.rules import RULES, Rule, load_all
from irkit.passes.effects import Effects
from irkit.passes.fusion import conv, norm
from irkit.passes.rewrite import Rewriter
from irkit.passes.rules import Rewrite, match, near
from irkit.passes.rules import Rule as PatternRule
from irkit.passes.rules import constant as constant_operand
from irkit.verify import Report, compare

Patch = pytest.MonkeyPatch
Build = Callable[[ik.Builder], ik.Tensor]


@dataclass(frozen=True)
class Mutant:
    """A mistake, the pass that it sits in, and a model on which it shows."""

    name: str
    culprit: str
    plant: Callable[[Patch], None]
    build: Build | Callable[[], ik.Module]
    pipeline: str = ""
    target: int | None = None


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def only_rule(patch: Patch, name: str, apply: Callable[[OnnxOp, Rewriter], bool]) -> None:
    load_all()
    patch.setitem(RULES, name, [Rule("mutant", apply)])


# CSE


def two_draws(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [16])
    return b.RandomNormalLike(x) - b.RandomNormalLike(x)


def merges_draws(patch: Patch) -> None:
    patch.setattr(Effects, "mergeable", Effects.droppable)


def two_axes(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [3, 4])
    return b.Softmax(x, axis=0) - b.Softmax(x, axis=1)


def ignores_attributes(patch: Patch) -> None:
    patch.setattr(cse._Merger, "properties", lambda self, op: ())


def two_zeros(b: ik.Builder) -> ik.Tensor:
    x = b.Abs(b.input("x", "float32", [4])) + 1
    return b.Greater(x / np.float32([0.0]), x / np.float32([-0.0]))


def merges_zeros(patch: Patch) -> None:
    patch.setattr(cse._ConstantKey, "__hash__", lambda self: hash(self.data.shape))
    patch.setattr(cse._ConstantKey, "__eq__", lambda self, other: np.array_equal(self.data.array(), other.data.array()))


def two_differences(b: ik.Builder) -> ik.Tensor:
    x, y = b.input("x", "float32", [4]), b.input("y", "float32", [4])
    return b.Exp(x - y) - b.Exp(y - x)


def swaps_any_operands(patch: Patch) -> None:
    patch.setattr(cse, "_interchangeable", lambda op: len(op.operands))


def two_branches(b: ik.Builder) -> ik.Tensor:
    x, c = b.input("x", "float32", [4]), b.input("c", "bool", [])
    p = b.If(c, then_branch=lambda b: b.Exp(x), else_branch=lambda b: b.Abs(x))
    q = b.If(c, then_branch=lambda b: b.Sin(x), else_branch=lambda b: b.Abs(x))
    return p - q


def ignores_graphs(patch: Patch) -> None:
    patch.setattr(cse._Merger, "region", lambda self, blocks, local: ())


# Constant folding


def a_sum_of_constants(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [3])
    return x * b.Add(np.float32([0.1, 0.2, 0.3]), np.float32([1, 2, 3]))


def folds_in_half_precision(patch: Patch) -> None:
    right = constant_fold._Folder.checked

    def wrong(self: Any, result: Any, array: Any) -> ConstantData:
        found = right(self, result, array)
        return constant(found.array().astype(np.float16).astype(np.float32)).data

    patch.setattr(constant_fold._Folder, "checked", wrong)


def a_flattened_batch(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["batch", 2, 3])
    return b.Reshape(x, b.Concat(b.Gather(b.Shape(x), ints(0)), ints(-1), axis=0))


def takes_symbols_for_one(patch: Patch) -> None:
    def wrong(known: SizeValues, op: OnnxOp, index: int) -> Held:
        dims = shape_of(op.operands[0].type)
        assert dims is not None
        return Held(tuple(d if isinstance(d, int) else 1 for d in dims))

    patch.setitem(SIZE_RULES, "Shape", wrong)


def a_remainder(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "int64", [2])
    return x + b.Div(ints(-7, 7), ints(2, 2))


def divides_towards_minus_infinity(patch: Patch) -> None:
    right = constant_fold._Folder.evaluate

    def wrong(self: Any, op: OnnxOp, inputs: Any) -> Any:
        return [inputs[0] // inputs[1]] if op.op_type == "Div" else right(self, op, inputs)

    patch.setattr(constant_fold._Folder, "evaluate", wrong)


# DCE


def a_loop_that_needs_its_state(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [2])
    results = b.Loop(ints(3), None, x, x, body=lambda b, i, c, s, t: (c, s + t, t * 3))
    return results[0]


def drops_a_state_that_is_read(patch: Patch) -> None:
    def wrong(self: Any, body: Any, n_states: int, wanted: Any, first_arg: int, first_yield: int) -> set[int]:
        for arg in body.args[first_arg:]:
            if arg.index - first_arg not in wanted:
                arg.replace_all_uses_with(body.args[first_arg])
        return {i for i in wanted if i < n_states}

    patch.setattr(dce._Sweeper, "_needed_states", wrong)


def an_if_of_two_results(b: ik.Builder) -> ik.Tensor:
    x, c = b.input("x", "float32", [2]), b.input("c", "bool", [])
    return b.If(c, then_branch=lambda b: (b.Exp(x), b.Neg(x)), else_branch=lambda b: (b.Sin(x), b.Abs(x)))[1]


def keeps_the_wrong_yield(patch: Patch) -> None:
    right = dce._select_yields
    patch.setattr(dce, "_select_yields", lambda block, kept: right(block, [0 for _ in kept]))


# Canonicalization


def plus_zero(b: ik.Builder) -> ik.Tensor:
    return 1 / (b.input("x", "float32", [64]) + 0.0)


def drops_plus_zero(patch: Patch) -> None:
    patch.setitem(elementwise._NEUTRAL, "onnx.Add", (True, elementwise._is_zero))


def times_zero(b: ik.Builder) -> ik.Tensor:
    return b.input("x", "float32", [64]) * 0


def folds_times_zero(patch: Patch) -> None:
    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        rw.replace(op, [rw.constant(constant(0, "float32", (64,)).data, before=op)])
        return True

    only_rule(patch, "onnx.Mul", wrong)


def ones_that_broadcast(b: ik.Builder) -> ik.Tensor:
    return b.input("x", "float32", [3]) * np.ones((2, 1), np.float32)


def ignores_broadcasting(patch: Patch) -> None:
    patch.setattr(elementwise, "same_type", lambda a, b: True)


def two_transposes(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [3, 3, 3])
    return b.Transpose(b.Transpose(x, perm=[1, 2, 0]), perm=[1, 2, 0])


def cancels_any_transposes(patch: Patch) -> None:
    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        inner = op.operands[0].owner
        if not isinstance(inner, OnnxOp) or inner.op_type != "Transpose":
            return False
        rw.replace(op, [inner.operands[0]])
        return True

    only_rule(patch, "onnx.Transpose", wrong)


def a_reversed_slice(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [4])
    return b.Slice(x, ints(-1), ints(-(2**62)), ints(0), ints(-1))


def ignores_steps(patch: Patch) -> None:
    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        if op.operands[0].type != op.results[0].type:
            return False
        rw.replace(op, [op.operands[0]])
        return True

    only_rule(patch, "onnx.Slice", wrong)


def a_dropout_that_trains(b: ik.Builder) -> ik.Tensor:
    return b.Dropout(b.input("x", "float32", [64]), 0.5, np.array(True))


def drops_any_dropout(patch: Patch) -> None:
    patch.setattr(elementwise, "_is_off", lambda training: True)


def a_known_branch(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [4])
    return b.If(np.array(False), then_branch=lambda b: b.Neg(x), else_branch=lambda b: b.Exp(x))


def takes_the_other_branch(patch: Patch) -> None:
    right = control._truth
    patch.setattr(control, "_truth", lambda value: not right(value))


def a_zero_that_copies(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 6])
    return b.Reshape(b.Reshape(x, ints(-1, 3)), ints(0, 3, 1))


def merges_any_reshapes(patch: Patch) -> None:
    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        inner = op.operands[0].owner
        if not isinstance(inner, OnnxOp) or inner.op_type != "Reshape":
            return False
        operands = [inner.operands[0], op.operands[1]]
        rw.replace(op, [rw.make(type(op), operands, [op.results[0].type], before=op).results[0]])
        return True

    only_rule(patch, "onnx.Reshape", wrong)


# Shape inference


def a_growing_loop_of_sizes(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "int64", [2])
    return b.Loop(ints(3), None, x, body=lambda b, i, c, s: (c, b.Concat(s, b.Shape(s), axis=0)))


def believes_the_first_iteration(patch: Patch) -> None:
    patch.setattr(infer_shapes, "join", lambda a, b: a)


# Rules and fusions


def only_fusion(patch: Patch, *rules: Rewrite) -> None:
    patch.setattr(fusion, "all_rules", lambda: rules)


def a_gelu(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 4])
    return x * (b.Erf(x / np.float32(2**0.5)) + 1) * 0.5


def takes_one_gelu_for_the_other(patch: Patch) -> None:
    def wrong(b: Any, x: Any) -> Any:
        return b.Gelu(x, approximate="tanh")

    only_fusion(patch, PatternRule("gelu", lambda b, x: x * (b.Erf(x / near(2**0.5)) + 1) * 0.5, wrong))


def a_gelu_of_another_width(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 4])
    return x * (b.Erf(x / np.float32(1.5)) + 1) * 0.5


def takes_any_number_for_near(patch: Patch) -> None:
    patch.setattr(match, "ROUNDINGS", 1 << 22)


def statistics(b: ik.Builder, count: int) -> list[ik.Tensor]:
    rng = np.random.default_rng(0)
    return [b.initializer(0.01 + np.abs(rng.standard_normal(count, np.float32)), f"s{i}") for i in range(4)]


def a_normalized_conv(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 2, 5])
    w = b.initializer(np.random.default_rng(1).standard_normal((4, 2, 3), np.float32), "w")
    return b.BatchNormalization(b.Conv(x, w), *statistics(b, 4), epsilon=0.5)


def forgets_epsilon(patch: Patch) -> None:
    right = conv._normalization
    patch.setattr(conv, "_normalization", lambda b, like, given, epsilon: right(b, like, given, 0.0))


def scales_by_the_variance(patch: Patch) -> None:
    right = conv._normalization

    def wrong(b: Any, like: Any, given: Any, epsilon: float) -> Any:
        scale, bias, mean, var = given
        return right(b, like, (scale, bias, var, mean), epsilon)

    patch.setattr(conv, "_normalization", wrong)


def a_grouped_transpose(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 4, 5])
    w = b.initializer(np.random.default_rng(1).standard_normal((4, 2, 3), np.float32), "w")
    return b.BatchNormalization(b.ConvTranspose(x, w, group=2), *statistics(b, 4))


def forgets_groups(patch: Patch) -> None:
    right = conv.conv_transpose_of_normalized

    def wrong(
        b: Any, x: Any, w: Any, c: Any, scale: Any, bias: Any, mean: Any, var: Any, attrs: Any, epsilon: Any
    ) -> Any:
        order = np.array([2, 3, 0, 1])
        scale = b.Gather(scale, order)
        return right(b, x, w, c, scale, bias, mean, var, attrs, epsilon)

    only_fusion(patch, PatternRule("wrong", conv.normalized("ConvTranspose", constant_operand()), wrong))


def a_layer_norm_with_a_wide_scale(b: ik.Builder) -> ik.Tensor:
    x, gamma = b.input("x", "float32", [3, 4, 4]), b.input("gamma", "float32", [4, 1])
    d = x - b.ReduceMean(x, ints(-1))
    return d / b.Sqrt(b.ReduceMean(d * d, ints(-1)) + 1e-5) * gamma


def ignores_the_shape_of_gamma(patch: Patch) -> None:
    def wrong(b: Any, x: Any, axes: Any, eps: Any, gamma: Any) -> Any:
        return b.LayerNormalization(x, b.Reshape(gamma, ints(4)), axis=-1, epsilon=1e-5)

    only_fusion(
        patch, PatternRule("wrong", norm._layer_norm_without_beta(norm.square_by_product, norm.over_root), wrong)
    )


def a_padded_conv(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 2, 5])
    w = b.initializer(np.random.default_rng(1).standard_normal((4, 2, 3), np.float32), "w")
    return b.Conv(b.Pad(x, ints(0, 0, 2, 0, 0, 0), np.float32(3.0)), w)


def ignores_what_is_filled_in(patch: Patch) -> None:
    patch.setattr(conv, "_filled_with", lambda fill, number: True)


def a_conv_padded_on_one_side(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", ["N", 2, 5])
    w = b.initializer(np.random.default_rng(1).standard_normal((4, 2, 3), np.float32), "w")
    return b.Conv(b.Pad(x, ints(0, 0, 2, 0, 0, 0)), w)


def pads_the_other_side(patch: Patch) -> None:
    right = conv._joined
    patch.setattr(conv, "_joined", lambda attrs, pads, rank: right(attrs, pads, rank)[::-1])


def a_loss_along_the_other_axis(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [3, 3])
    return b.NegativeLogLikelihoodLoss(b.LogSoftmax(x, axis=0), ints(0, 2, 1))


def ignores_attributes_of_patterns(patch: Patch) -> None:
    patch.setattr(match, "_fits_attributes", lambda node, op: True)


def a_quotient_the_other_way(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [4])
    return b.Div(b.Exp(-x) + 1, np.float32(1))


def swaps_operands_of_any_pattern(patch: Patch) -> None:
    rule = PatternRule("sigmoid", lambda b, x: 1 / (b.Exp(-x) + 1), lambda b, x: b.Sigmoid(x))
    for node in rule.traced.nodes:
        node.is_commutative = len(node.operands) == 2
    only_fusion(patch, rule)


# Loops and functions


def a_loop_that_draws(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [4])
    return b.Loop(ints(3)[0], None, x, body=lambda b, i, c, s: (c, s + b.RandomNormalLike(x)))


def hoists_draws(patch: Patch) -> None:
    patch.setattr(Effects, "mergeable", Effects.droppable)
    patch.setattr(hoist, "_cannot_fail", lambda op: True)


def a_loop_of_powers(b: ik.Builder) -> ik.Tensor:
    x = b.input("x", "float32", [4])
    return b.Loop(ints(3)[0], None, x, body=lambda b, i, c, s: (c, b.Exp(-s)))


def hoists_what_is_carried(patch: Patch) -> None:
    def wrong(body: Any, loop: Any, rewriter: Any, effects: Any) -> bool:
        (op,) = (op for op in body.ops if op.name == "onnx.Neg")
        op.operands[0] = loop.operands[2]
        hoist._move(op, loop, loop.parent)
        return True

    patch.setattr(hoist, "_body", wrong)


def runs_a_loop_once(patch: Patch) -> None:
    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        rw.replace(op, list(op.operands)[2:])
        return True

    only_rule(patch, "onnx.Loop", wrong)


def called_with_two_slopes() -> ik.Module:
    from tests.corpus.build import from_text

    text = """g (float[N, 3] x) => (float[N, 3] y) { a = local.F <alpha = 0.5> (x)  y = local.F (a) }
    <domain: "local", opset_import: ["" : 21]>
    F <alpha: float = 0.25> (v) => (r) { r = Elu <alpha: float = @alpha> (v) }"""
    return ik.load(from_text(text, imports={"local": 1}))


def forgets_what_a_call_gives(patch: Patch) -> None:
    right = inline.fill_references
    patch.setattr(inline, "fill_references", lambda op, given: right(op, {}))


MUTANTS = [
    Mutant("CSE merges random draws", "cse", merges_draws, two_draws),
    Mutant("CSE ignores attributes", "cse", ignores_attributes, two_axes),
    Mutant("CSE merges 0.0 and -0.0", "cse", merges_zeros, two_zeros),
    Mutant("CSE swaps the operands of Sub", "cse", swaps_any_operands, two_differences),
    Mutant("CSE ignores graphs", "cse", ignores_graphs, two_branches),
    Mutant("folding rounds to half precision", "constant-fold", folds_in_half_precision, a_sum_of_constants),
    Mutant("folding takes a symbolic batch for 1", "constant-fold", takes_symbols_for_one, a_flattened_batch),
    Mutant("folding floors integer division", "constant-fold", divides_towards_minus_infinity, a_remainder),
    Mutant("DCE drops a carried value that is read", "dce", drops_a_state_that_is_read, a_loop_that_needs_its_state),
    Mutant("DCE keeps the wrong result of an If", "dce", keeps_the_wrong_yield, an_if_of_two_results),
    Mutant("x + 0.0 becomes x", "canonicalize", drops_plus_zero, plus_zero),
    Mutant("x * 0 becomes 0", "canonicalize", folds_times_zero, times_zero),
    Mutant("x * ones ignores broadcasting", "canonicalize", ignores_broadcasting, ones_that_broadcast),
    Mutant("transposes cancel unseen", "canonicalize", cancels_any_transposes, two_transposes),
    Mutant("a slice ignores its steps", "canonicalize", ignores_steps, a_reversed_slice),
    Mutant("a dropout that trains is dropped", "canonicalize", drops_any_dropout, a_dropout_that_trains),
    Mutant("the other branch is taken", "canonicalize", takes_the_other_branch, a_known_branch),
    Mutant("a 0 in a merged reshape copies another size", "canonicalize", merges_any_reshapes, a_zero_that_copies),
    Mutant(
        "a loop keeps the shape of its first iteration",
        "constant-fold",
        believes_the_first_iteration,
        a_growing_loop_of_sizes,
        "infer-shapes,constant-fold",
    ),
    Mutant("one Gelu is taken for the other", "fuse", takes_one_gelu_for_the_other, a_gelu, target=20),
    Mutant("any number is near", "fuse", takes_any_number_for_near, a_gelu_of_another_width, target=20),
    Mutant("BatchNormalization loses its epsilon", "fold-batch-norm", forgets_epsilon, a_normalized_conv),
    Mutant("mean and variance are swapped", "fold-batch-norm", scales_by_the_variance, a_normalized_conv),
    Mutant("ConvTranspose's groups are mixed up", "fuse", forgets_groups, a_grouped_transpose),
    Mutant("the shape of gamma is ignored", "fuse", ignores_the_shape_of_gamma, a_layer_norm_with_a_wide_scale),
    Mutant("what Pad fills in is ignored", "fuse", ignores_what_is_filled_in, a_padded_conv),
    Mutant("the other side is padded", "fuse", pads_the_other_side, a_conv_padded_on_one_side),
    Mutant("patterns ignore attributes", "fuse", ignores_attributes_of_patterns, a_loss_along_the_other_axis),
    Mutant("patterns swap operands of Div", "fuse", swaps_operands_of_any_pattern, a_quotient_the_other_way),
    Mutant("a draw leaves its loop", "hoist", hoists_draws, a_loop_that_draws),
    Mutant("what is carried leaves its loop", "hoist", hoists_what_is_carried, a_loop_of_powers),
    Mutant("a loop is not run", "canonicalize", runs_a_loop_once, a_loop_of_powers),
    Mutant("inlined ops get their own defaults", "inline", forgets_what_a_call_gives, called_with_two_slopes),
]


def module_of(mutant: Mutant) -> ik.Module:
    if not inspect.signature(mutant.build).parameters:
        return mutant.build()  # type: ignore[call-arg, return-value]
    b = ik.Builder()
    b.output(mutant.build(b), "result")  # type: ignore[call-arg, arg-type]
    return b.module()


def test_there_are_thirty_of_them() -> None:
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: Patch) -> None:
    module = module_of(mutant)
    before = module.clone()
    mutant.plant(monkeypatch)
    with pytest.raises(CheckError, match=f"pass '{mutant.culprit}' changed what the module computes"):
        optimize(
            module,
            mutant.pipeline or mutant.culprit,
            check="each",
            stream=io.StringIO(),
            target_opset=mutant.target,
        )
    assert module == before


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_right_pass_goes_through_the_same_check(mutant: Mutant) -> None:
    module = module_of(mutant)
    made = optimize(
        module,
        mutant.pipeline or mutant.culprit,
        check="each",
        stream=io.StringIO(),
        target_opset=mutant.target,
    )
    report: Report = compare(module, made)
    assert report.equal, report.text()
    assert report.compared >= 3, report.text()
