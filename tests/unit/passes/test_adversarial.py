"""Models on which graph optimizers go wrong: through every pass and level, by the name of each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from xdsl.ir import Operation

from irkit.backends.onnx import export
from irkit.dialects.onnx import Call, Function
from irkit.frontends.onnx import load
from irkit.ir.module import Module
from irkit.ir.names import metadata_of
from irkit.passes import Instrumentation, optimize, pass_names
from irkit.passes.registry import find_pass
from tests.corpus.adversarial import CRASHES_ORT, FAILS_AT_RUN, RANDOM, adversarial_models
from tests.corpus.build import feeds_from_types

from .conftest import assert_same_outcome, run_numpy, run_ort

CASES: dict[str, ModelProto] = dict(adversarial_models())
# What rounds on purpose is held to its own bounds elsewhere.
PIPELINES = (*(name for name in pass_names() if not getattr(find_pass(name)(), "error", 0)), "O1", "O2", "O3")
RANDOM_OPS = {f"onnx.{t}" for t in "RandomUniform RandomNormal Bernoulli Multinomial Dropout".split()} | {
    "onnx.RandomUniformLike",
    "onnx.RandomNormalLike",
}


# onnxruntime's ReduceMax passes over NaN, the numpy backend (as NumPy) hands it on; folding does as the latter.
ORT_DIFFERS = {"reduce_max_of_nan"}


def case(name: str) -> Module:
    return load(CASES[name])


def draws_in(module: Module) -> Counter[str]:
    """How many random ops a run meets (once per loop), those of a function at each of its calls."""
    functions = {op.key: op for op in module.op.ops if isinstance(op, Function)}

    def count(root: Operation) -> Counter[str]:
        found: Counter[str] = Counter()
        for op in root.walk():
            if op.name in RANDOM_OPS:
                found[op.name] += 1
            elif isinstance(op, Call):
                found += count(functions[op.domain, op.op_type, op.overload])
        return found

    return count(module.func)


@pytest.mark.parametrize("name", CASES)
def test_every_pass_keeps_the_outputs(name: str) -> None:
    model = CASES[name]
    module = load(model)
    with_ort = name not in CRASHES_ORT and name not in RANDOM and name not in ORT_DIFFERS
    feeds = [feeds_from_types(model, seed, special=seed == 1 and name not in RANDOM) for seed in range(2)]
    by_numpy = [run_numpy(module, f) for f in feeds]
    by_ort = [run_ort(model, f) for f in feeds] if with_ort else []
    if name not in FAILS_AT_RUN and name != "dead_branch_divides_by_zero":
        assert not any(isinstance(outcome, str) for outcome in by_numpy), by_numpy
    draws = draws_in(module)
    seen: set[bytes] = set()
    for pipeline in PIPELINES:
        before = module.clone()
        made = optimize(module, pipeline, verify_each=True)
        assert module == before, f"{pipeline} changed its input"
        assert list(made.inputs) == list(module.inputs)
        assert made.defaults == module.defaults
        assert list(made.outputs) == list(module.outputs)
        if name in RANDOM:
            assert draws_in(made) == draws
        written = export(made)
        if name != "wrong_output_shape":
            onnx.checker.check_model(written, full_check=name not in ("wrong_intermediate_type",))
        serialized = written.SerializeToString(deterministic=True)
        if serialized in seen:
            continue
        seen.add(serialized)
        again = load(written)
        for index, fed in enumerate(feeds):
            what = f"{name} after {pipeline}, feeds {index}"
            assert_same_outcome(by_numpy[index], run_numpy(made, fed), f"{what}, numpy")
            # A file has no place for the ids by which calls that were inlined keep their random numbers.
            if name != "random_in_a_function_called_twice" or any(isinstance(op, Call) for op in made.walk()):
                assert_same_outcome(by_numpy[index], run_numpy(again, fed), f"{what}, exported, numpy")
            if with_ort and not isinstance(by_ort[index], str):
                assert_same_outcome(by_ort[index], run_ort(written, fed), f"{what}, onnxruntime")


# What each case is about, seen in the result


def test_two_random_uniform_subtracted() -> None:
    outputs = run_numpy(optimize(case("two_random_uniform_subtracted"), "O3"), {})
    assert isinstance(outputs, dict)
    assert np.all(outputs["y"] != 0)


def test_random_in_a_loop_body(count: Callable[..., int]) -> None:
    made = optimize(case("random_in_a_loop_body"), "O3")
    (loop,) = (op for op in made.block.ops if op.name == "onnx.Loop")
    assert any(op.name == "onnx.RandomUniform" for op in loop.regions[0].block.ops)


def test_dead_random(count: Callable[..., int]) -> None:
    assert count(optimize(case("dead_random"), "O1"), "RandomNormalLike", "Neg") == 0


def test_signed_zero_constants(count: Callable[..., int]) -> None:
    assert count(optimize(case("signed_zero_constants"), "O3"), "Constant") == 2


def test_nan_constants(count: Callable[..., int]) -> None:
    assert count(optimize(case("nan_constants"), "cse,dce"), "Constant") == 1


def test_plus_zero(count: Callable[..., int]) -> None:
    made = optimize(case("plus_zero"), "O2")
    assert count(made, "Add", "Sub") == 1


def test_identity_of_input_to_output() -> None:
    made = optimize(case("identity_of_input_to_output"), "O2")
    assert made.returned == tuple(made.block.args)
    written = export(made)
    assert [(n.op_type, *n.input, *n.output) for n in written.graph.node] == [("Identity", "x", "y")]


def test_identity_captured_by_if(count: Callable[..., int]) -> None:
    assert count(optimize(case("identity_captured_by_if"), "canonicalize"), "Identity") == 0


def test_folded_value_is_output() -> None:
    written = export(optimize(case("folded_value_is_output"), "O2"))
    made = [name for n in written.graph.node for name in n.output]
    assert sorted(made) == ["s", "y"]
    assert [o.name for o in written.graph.output] == ["s", "y"]


def test_attributes_differ(count: Callable[..., int]) -> None:
    assert count(optimize(case("attributes_differ"), "O1"), "Softmax") == 2


def test_operands_swapped(count: Callable[..., int]) -> None:
    made = optimize(case("operands_swapped"), "O1")
    assert (count(made, "Add"), count(made, "Sub")) == (1, 3)


def test_equal_nodes_in_sibling_branches(count: Callable[..., int]) -> None:
    made = optimize(case("equal_nodes_in_sibling_branches"), "O3")
    assert count(made, "Exp") == 2
    assert [op.name for op in made.block.ops] == ["onnx.If", "func.return"]


def test_equal_node_outside_and_inside(count: Callable[..., int]) -> None:
    assert count(optimize(case("equal_node_outside_and_inside"), "cse"), "Exp") == 1


def test_merged_nodes_have_metadata() -> None:
    made = optimize(case("merged_nodes_have_metadata"), "O2")
    (exp,) = (op for op in made.walk() if op.name == "onnx.Exp")
    assert metadata_of(exp) == {"origin": "first.py:1"}
    assert "node 'node first.py:1'" in str(describe_all(made)["onnx.Exp"])
    assert "node 'node second.py:2'" in str(describe_all(made)["onnx.Exp"])


def describe_all(module: Module) -> dict[str, str]:
    from irkit.ir.location import describe

    return {op.name: describe(op.location) for op in module.walk()}


def test_overridable_initializer(count: Callable[..., int]) -> None:
    made = optimize(case("overridable_initializer"), "O3")
    assert count(made, "Constant", "Initializer") == 0
    assert list(made.defaults) == ["w", "v"]


def test_if_branch_initializer(count: Callable[..., int]) -> None:
    made = optimize(case("if_branch_initializer"), "O2")
    assert count(made, "If") == 0
    assert count(made, "Initializer") == 1


def test_if_with_one_output_unused(count: Callable[..., int]) -> None:
    made = optimize(case("if_with_one_output_unused"), "dce")
    (branch,) = (op for op in made.walk() if op.name == "onnx.If")
    assert len(branch.results) == 1
    assert count(made, "Constant") == 0


def test_initializer_only_in_branch(count: Callable[..., int]) -> None:
    assert count(optimize(case("initializer_only_in_branch"), "O3"), "Initializer") == 1


def test_loop_with_captured_value(count: Callable[..., int]) -> None:
    assert count(optimize(case("loop_with_captured_value"), "O3"), "Loop") == 1


def test_loop_of_constants(count: Callable[..., int]) -> None:
    assert count(optimize(case("loop_of_constants"), "O2"), "Loop") == 0


def test_loop_of_no_trips(count: Callable[..., int]) -> None:
    assert count(optimize(case("loop_of_no_trips"), "O2"), "Loop") == 0


def test_loop_with_unused_results() -> None:
    made = optimize(case("loop_with_unused_results"), "dce")
    (loop,) = (op for op in made.walk() if op.name == "onnx.Loop")
    # The counter steers the loop; only what it collects goes.
    assert len(loop.results) == 2
    assert not any(op.name == "onnx.Exp" for op in loop.walk())


def test_function_with_constants_inside(count: Callable[..., int]) -> None:
    made = optimize(case("function_with_constants_inside"), "O2")
    assert count(made, "Add", "Initializer") == 0
    assert count(made, "Constant") == 1


def test_function_attribute_is_no_constant(count: Callable[..., int]) -> None:
    assert count(optimize(case("function_attribute_is_no_constant"), "O3"), "Mul") == 2


@pytest.mark.parametrize("name", ["tile_bomb", "expand_bomb", "constant_of_shape_bomb", "growth_in_small_steps"])
def test_bombs_stay_small(name: str) -> None:
    made = optimize(case(name), "O3")
    assert len(export(made).SerializeToString()) < len(CASES[name].SerializeToString()) + (17 << 20)
    if name != "growth_in_small_steps":
        assert len(export(made).SerializeToString()) < 2000


@pytest.mark.parametrize(("name", "budget"), [("tile_bomb", "max-bytes"), ("growth_in_small_steps", "max-growth")])
def test_what_was_skipped_says_why(name: str, budget: str) -> None:
    seen = Instrumentation()
    optimize(case(name), "constant-fold{max-growth=65536}", instrumentation=seen)
    assert any(budget in note for note in seen.records[0].notes)


def test_dequantized_weights(count: Callable[..., int]) -> None:
    assert count(optimize(case("dequantized_weights"), "O3"), "DequantizeLinear") == 1
    asked = optimize(case("dequantized_weights"), "constant-fold{quantization=true}")
    assert count(asked, "DequantizeLinear") == 0


def test_quantize_and_dequantize(count: Callable[..., int]) -> None:
    made = optimize(case("quantize_and_dequantize"), "O3")
    assert count(made, "QuantizeLinear", "DequantizeLinear") == 2


def test_shape_chain(count: Callable[..., int]) -> None:
    made = optimize(case("shape_chain"), "O2")
    # The known 3 * 4 folds; the batch is still read from the input.
    assert count(made, "Mul") == 0
    assert (count(made, "Shape"), count(made, "Gather")) == (1, 1)


def test_static_shape_chain_beside_large_weights(count: Callable[..., int]) -> None:
    made = optimize(case("static_shape_chain_beside_large_weights"), "infer-shapes,constant-fold{max-growth=0},dce")
    assert count(made, "Shape", "Slice", "Concat") == 0


@pytest.mark.parametrize("name", ["wrong_output_shape", "wrong_intermediate_type"])
def test_wrong_declarations_are_reported(name: str) -> None:
    seen = Instrumentation()
    optimize(case(name), "infer-shapes", instrumentation=seen)
    (note,) = seen.records[0].notes
    assert "is declared as" in note


def test_reshape_zero_copies_the_dim() -> None:
    made = optimize(case("reshape_zero_copies_the_dim"), "O3")
    for size in (0, 1, 5):
        outputs = run_numpy(made, {"x": np.ones((size, 6), np.float32), "e": np.ones((0, 6), np.float32)})
        assert isinstance(outputs, dict)
        assert outputs["y"].shape == (size, 3, 2)


def test_batch_of_one_declared_inside() -> None:
    made = optimize(case("batch_of_one_declared_inside"), "O3")
    outputs = run_numpy(made, {"x": np.ones((4, 2, 3), np.float32)})
    assert isinstance(outputs, dict)
    assert outputs["y"].shape == (4, 6)


def test_reshape_at_opset_12() -> None:
    written = export(optimize(case("reshape_at_opset_12"), "O3"))
    assert [o.version for o in written.opset_import] == [12]
    assert [n.op_type for n in written.graph.node] == ["Reshape"]
    assert len(written.graph.node[0].attribute) == 0


def test_omitted_output_differs(count: Callable[..., int]) -> None:
    assert count(optimize(case("omitted_output_differs"), "O1"), "TopK") == 1


def test_many_equal_inputs() -> None:
    made = optimize(case("many_equal_inputs"), "O3")
    (concat,) = (op for op in made.walk() if op.name == "onnx.Concat")
    b, a = made.block.args
    assert tuple(concat.operands) == (b, a, b, a)


def test_unused_inputs() -> None:
    assert list(optimize(case("unused_inputs"), "O3").inputs) == ["before", "x", "w"]
