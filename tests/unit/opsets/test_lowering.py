"""Upgrades that decline, lowerings that refuse, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from irkit.backends.onnx import export
from irkit.dialects.onnx import CLASSES, OnnxOp, op_class
from irkit.dialects.onnx.classes import DOMAINS
from irkit.errors import LoweringError
from irkit.frontends.onnx import load
from irkit.ir.builder import Builder
from irkit.ir.module import Module
from irkit.opsets import decomposition, is_compatible, is_trivial, lower_module, upgrade
from irkit.opsets.registry import DECOMPOSITIONS, LOWERINGS, SEMANTIC_CHANGES, UPGRADES
from tests.unit.opsets.support import differences, one_op, run


def f32(*shape: int | str) -> tuple[str, Any]:
    return ("float32", list(shape))


def main_op(module: Module) -> OnnxOp:
    return next(op for op in module.block.ops if "onnx.name" in op.attributes)  # type: ignore[return-value]


def attributes(module: Module, opset: int) -> dict[str, Any]:
    """Those of the named node, written at this opset."""
    model = export(module, opset=opset)
    node = next(n for n in model.graph.node if n.name == "node")
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


# The tables


def test_every_older_form_can_be_told_in_current_ops() -> None:
    b = Builder()
    for versions in CLASSES.values():
        for cls in versions.values():
            if not cls.current:
                assert decomposition(cls.create()) is not None, cls.name
    assert b.block.first_op is None


def test_every_upgrade_has_a_lowering() -> None:
    missing = [key for key in UPGRADES if key not in LOWERINGS]
    assert not [key for key in missing if not is_compatible(CLASSES[key[:2]][key[2]], op_class(*key[:2]))]


def test_rules_stand_for_forms_that_renaming_does_not_cover() -> None:
    for domain, op_type, since in (*UPGRADES, *LOWERINGS):
        assert not CLASSES[domain, op_type][since].current
    for domain, op_type, since in DECOMPOSITIONS:
        cls = CLASSES[domain, op_type][since]
        # Ops of other domains have no other form; the recurrent ones are also told as a Scan (opsets/recurrent.py).
        recurrent = op_type in ("RNN", "LSTM", "GRU")
        assert not cls.current or cls.spec.deprecated or domain not in DOMAINS or recurrent


def test_semantic_changes_are_of_versions_that_exist() -> None:
    for domain, op_type, since in SEMANTIC_CHANGES:
        assert since in CLASSES[domain, op_type]
        assert since != min(CLASSES[domain, op_type])


@pytest.mark.parametrize(
    ("op_type", "older", "newer", "trivial", "compatible"),
    [
        ("Relu", 6, 14, True, True),
        ("Relu", 1, 14, False, True),  # consumed_inputs
        ("Concat", 4, 13, False, True),  # negative axes
        ("Concat", 11, 13, True, True),
        ("Gemm", 9, 13, False, True),  # C may be left out
        ("Pad", 18, 25, False, True),  # mode wrap
        ("Selu", 1, 22, False, True),  # defaults
        ("TopK", 10, 24, True, True),
        ("Mod", 13, 28, False, True),  # floats with fmod=0
        ("Split", 13, 18, False, False),
        ("Softmax", 1, 11, True, True),
        ("Softmax", 11, 13, False, False),
        ("Max", 6, 8, False, False),
        ("Max", 8, 13, True, True),
        ("Scatter", 9, 11, False, False),
        ("ReduceSum", 11, 13, False, False),
    ],
)
def test_how_versions_relate(op_type: str, older: int, newer: int, trivial: bool, compatible: bool) -> None:
    a, b = op_class("", op_type, older), op_class("", op_type, newer)
    assert a is not None
    assert b is not None
    assert (is_trivial(a, b), is_compatible(a, b)) == (trivial, compatible)


# Upgrades


@pytest.mark.parametrize(
    ("module", "becomes"),
    [
        (one_op("ReduceSum", 11, f32(2, 3), axes=[1]), "onnx.ReduceSum"),
        (one_op("ReduceSum", 1, ("float32", None), axes=[-1]), "onnx.ReduceSumV1"),
        (one_op("Concat", 4, ("float32", None), axis=-1), "onnx.ConcatV4"),
        (one_op("Concat", 1, f32(2, 3)), "onnx.ConcatV1"),
        (one_op("Add", 6, f32(2, 3), f32(2, 3)), "onnx.Add"),
        (one_op("Add", 6, f32("N", 3), f32("N", 3)), "onnx.Add"),
        (one_op("Add", 6, f32(2, 3), f32(3), broadcast=1), "onnx.Add"),
        (one_op("Add", 6, f32(2, 3), f32(2), broadcast=1, axis=0), "onnx.AddV6"),
        (one_op("Add", 6, f32(2, 3), f32(2, 3), broadcast=1), "onnx.AddV6"),
        (one_op("Add", 6, ("float32", None), f32(3), broadcast=1), "onnx.AddV6"),
        (one_op("Max", 6, f32(2), f32(2)), "onnx.Max"),
        (one_op("Max", 6, ("float32", None), f32(2)), "onnx.MaxV6"),
        (one_op("PRelu", 6, f32(2, 3, 4), f32(1)), "onnx.PRelu"),
        (one_op("PRelu", 6, f32(2, 3), f32(3)), "onnx.PRelu"),
        (one_op("PRelu", 6, f32(2, 3, 4), f32(3)), "onnx.PReluV6"),
        (one_op("Split", 11, f32(6), outs=2), "onnx.Split"),
        (one_op("Split", 11, f32("N"), outs=2), "onnx.SplitV11"),
        (one_op("Cast", 1, f32(2), to="INT32"), "onnx.Cast"),
        (one_op("Slice", 1, f32(4, 5), starts=[1], ends=[2]), "onnx.SliceV1"),
        (one_op("Slice", 1, f32(4, 5), starts=[1, 0], ends=[2, 2]), "onnx.Slice"),
        (one_op("Gemm", 6, f32(2, 3), f32(3, 4), f32(4), broadcast=1), "onnx.Gemm"),
        (one_op("Gemm", 6, f32(2, 3), f32(3, 4), f32(2, 4), broadcast=1), "onnx.GemmV6"),
        (one_op("LpPool", 1, f32(1, 1, 4), kernel_shape=[2], p=3.0), "onnx.LpPool"),
        (one_op("LpPool", 1, f32(1, 1, 4), kernel_shape=[2], p=2.5), "onnx.LpPoolV1"),
        (one_op("OneHot", 9, ("uint8", [2]), np.array(3), np.array([0.0, 1.0])), "onnx.OneHot"),
        (one_op("Clip", 6, ("float16", [2]), max=0.1), "onnx.ClipV6"),
        (one_op("Clip", 6, ("float16", [2]), max=0.5), "onnx.Clip"),
    ],
)
def test_what_is_upgraded_and_what_keeps_its_form(module: Module, becomes: str) -> None:
    source = module.opsets[""]
    before = attributes(module, source)
    upgrade(module)
    module.verify()
    assert main_op(module).name == becomes
    # Defaults that the older form has may be stated or not.
    defaults = {n: s.default for n, s in op_class("", main_op(module).op_type, source).spec.attributes.items()}
    found = attributes(module, source)
    assert {**defaults, **found} == {**defaults, **before}


def test_a_hint_of_opset_1_survives() -> None:
    module = one_op("Relu", 1, f32(2), consumed_inputs=[1])
    upgrade(module)
    assert main_op(module).name == "onnx.Relu"
    assert attributes(module, 1) == {"consumed_inputs": [1]}
    assert attributes(module, 13) == {}


@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_the_bounds_of_clip_at_opset_6_are_finite(element: str) -> None:
    module = one_op("Clip", 6, (element, [3]))
    x = np.array([-np.inf, 1.0, np.inf], element)
    limit = np.finfo(np.float32).max
    upgrade(module)
    assert main_op(module).name == "onnx.Clip"
    with np.errstate(over="ignore"):
        expected = np.array([-limit, 1.0, limit]).astype(element)
    assert not differences([expected], run(module, x))
    assert attributes(module, 6) == {}


def test_attribute_references_keep_the_older_form() -> None:
    text_of_axes = helper.make_node("ReduceSum", ["x"], ["y"])
    reference = text_of_axes.attribute.add()
    reference.name, reference.type, reference.ref_attr_name = "axes", 7, "over"
    opsets = [helper.make_opsetid("", 11), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Total", ["x"], ["y"], [text_of_axes], opsets[:1], ["over"])
    graph = helper.make_graph(
        [helper.make_node("Total", ["x"], ["y"], domain="local", over=[1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1])],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    module = load(model)
    assert "onnx.ReduceSumV11" in {op.name for op in module.walk()}
    assert export(module).functions[0].node[0] == function.node[0]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert not differences([x.sum(1, keepdims=True)], run(module, x))


def test_functions_keep_their_opsets_where_the_module_does() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    old = [helper.make_opsetid("", 13)]
    function = helper.make_function("local", "F", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], old)
    graph = helper.make_graph(
        [helper.make_node("F", ["x"], ["y"], domain="local")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    module = load(helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)).clone()
    other = module.clone()
    lower_module(module, {"": 18})
    lower_module(other, {"": 12})
    assert {o.domain: o.version for o in export(module).functions[0].opset_import} == {"": 13}
    assert {o.domain: o.version for o in export(other, opset=12).functions[0].opset_import} == {"": 12}


# Lowerings


def refusal(module: Module, opset: int) -> LoweringError:
    with pytest.raises(LoweringError) as caught:
        export(module, opset=opset)
    return caught.value


@pytest.mark.parametrize(
    ("module", "opset", "reason", "lowest"),
    [
        (one_op("ReduceSum", 13, f32(2, 3), ("int64", [1])), 11, "its axes are not constant", 13),
        (one_op("Slice", 13, f32(4), *[("int64", [1])] * 2), 9, "not all constant", 10),
        (one_op("Slice", 13, f32(4), *[np.array([v]) for v in (0, 4, 0, 2)]), 9, "knows no steps", 10),
        (one_op("IsInf", 20, ("float16", [2])), 19, "tensor<2xf16>", 20),
        (one_op("Add", 14, f32(2, 3), f32(2, 1)), 6, "broadcasts the second to the end", 7),
        (one_op("Pad", 19, f32(3), np.array([1, 1]), mode="wrap"), 18, "mode='wrap'", 19),
        (one_op("Reshape", 14, f32("N"), ("int64", [2]), allowzero=1), 13, "allowzero", 14),
        (one_op("TopK", 11, f32(4), np.array([2]), outs=2, largest=0), 10, "largest elements", 11),
        (one_op("Resize", 13, f32(1, 1, 4), None, np.array([1, 1, 2.0], np.float32)), 10, "asymmetric", 11),
        (one_op("RoiAlign", 16, f32(1, 1, 4, 4), f32(1, 4), ("int64", [1])), 15, "output_half_pixel", 16),
        (one_op("Dropout", 13, f32(4), None, np.array(True)), 10, "training_mode", 12),
        (one_op("MaxPool", 12, f32(1, 1, 4), outs=2, kernel_shape=[2]), 7, "more are used", 8),
        (one_op("Mod", 28, f32(2), f32(2)), 13, "fmod=1", 28),
        (one_op("BitwiseAnd", 18, ("int8", [2]), ("int8", [2])), 17, "came with opset 18", 18),
        (one_op("ScatterND", 18, f32(2), ("int64", [1, 1]), f32(1), reduction="max"), 17, "reduction='max'", 18),
        (one_op("Concat", 13, ("float32", None), axis=-1), 9, "the rank is not known", 11),
        (one_op("Equal", 19, ("string", [2]), ("string", [2])), 18, "String", 19),
    ],
)
def test_refusals_say_why_and_what_would_do(module: Module, opset: int, reason: str, lowest: int) -> None:
    error = refusal(module, opset)
    assert error.op.partition("V")[0] == main_op(module).name.partition("V")[0]
    assert reason in str(error)
    assert f"needs opset {lowest} of ai.onnx" in str(error)
    assert f"save at opset {lowest} of ai.onnx or above" in error.hint
    assert export(module, opset=lowest).graph.node


def test_one_error_names_every_op() -> None:
    b = Builder(opsets={"": 21})
    x = b.input("x", "float32", [2, 3])
    axes = b.input("axes", "int64", [1])
    b.output(b.ReduceSum(b.CumSum(x, np.array(0)), axes), "y")
    text = str(refusal(b.module(), 10))
    assert "2 ops cannot be written at opset 10 of ai.onnx" in text
    assert "onnx.CumSum" in text
    assert "onnx.ReduceSum" in text
    assert "save at opset 13 of ai.onnx or above" in text


def test_a_refused_export_leaves_the_module_alone() -> None:
    module = one_op("IsInf", 20, ("float16", [2]))
    before = module.clone()
    refusal(module, 19)
    assert module == before


@pytest.mark.parametrize(
    ("module", "opset", "expected"),
    [
        (one_op("ReduceMean", 18, f32(2, 3), np.array([-1]), keepdims=0), 10, {"axes": [1], "keepdims": 0}),
        (one_op("Concat", 13, f32(2, 3), axis=-1), 9, {"axis": 1}),
        (one_op("Unsqueeze", 13, f32(2, 3), np.array([-1])), 10, {"axes": [2]}),
        (one_op("Clip", 13, f32(3)), 6, {"min": -np.inf, "max": np.inf}),
        (one_op("Split", 18, f32(7), outs=4, num_outputs=4), 11, {"axis": 0, "split": [2, 2, 2, 1]}),
        (
            one_op("Pad", 18, f32(2, 3), np.array([1, 2]), np.float32(1.5), np.array([-1])),
            2,
            {"pads": [0, 1, 0, 2], "value": 1.5},
        ),
        (one_op("BatchNormalization", 15, f32(1, 2, 3), *[f32(2)] * 4), 6, {"is_test": 1}),
        (one_op("Cast", 13, f32(3), to=7), 1, {"to": b"INT64"}),
        (one_op("TopK", 11, f32(4), np.array([2]), outs=2, sorted=0), 1, {"k": 2}),
        (one_op("GridSample", 20, f32(1, 1, 4, 4), f32(1, 2, 2, 2), mode="cubic"), 16, {"mode": b"bicubic"}),
        (one_op("DFT", 20, f32(1, 8, 4, 1)), 17, {"axis": 2}),
        (one_op("Selu", 6, f32(2)), 1, {"alpha": pytest.approx(1.6732632), "gamma": pytest.approx(1.050701)}),
    ],
)
def test_operands_become_attributes(module: Module, opset: int, expected: dict[str, Any]) -> None:
    assert attributes(module, opset) == expected
    model = export(module, opset=opset)
    assert not [n for n in model.graph.node if n.op_type == "Constant"]


@pytest.mark.parametrize(
    ("module", "opset", "ops"),
    [
        (one_op("Softmax", 13, f32(2, 3, 4), axis=1), 11, ["Transpose", "Softmax", "Transpose"]),
        (one_op("Gelu", 20, f32(2)), 19, None),
        (one_op("ReduceSum", 13, f32(2, 3), noop_with_empty_axes=1), 11, ["Identity"]),
        (one_op("ReduceSumSquare", 18, f32(2, 3), noop_with_empty_axes=1), 13, ["Mul"]),
        (one_op("Shape", 15, f32(2, 3, 4), start=1), 13, None),
        (one_op("Tile", 13, f32(2, 3), np.array([2, 3])), 5, None),
        (one_op("RNN", 14, f32(2, 5, 3), f32(1, 4, 3), f32(1, 4, 4), outs=2, hidden_size=4, layout=1), 7, None),
        (one_op("Clip", 13, ("int32", [4]), np.int32(1), np.int32(3)), 11, None),
        (one_op("Gemm", 11, f32(2, 3), f32(3, 4)), 6, None),
        (one_op("Less", 13, f32(3), f32(2, 3)), 6, ["Greater"]),
        (one_op("Resize", 18, f32(1, 2, 4), None, np.array([2.0], np.float32), axes=[-1]), 11, None),
        (one_op("Resize", 18, f32(1, 2, 4), None, None, np.array([7]), axes=[2]), 13, None),
    ],
)
def test_several_ops_in_the_place_of_one(module: Module, opset: int, ops: list[str] | None) -> None:
    model = export(module, opset=opset)
    found = [n.op_type for n in model.graph.node]
    assert ops is None or found == ops
    assert [o.name for o in model.graph.output] == module.output_names
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=value_type.get_shape(), scale=3).astype(np.int32 if "i32" in str(value_type) else np.float32)
        for value_type in module.inputs.values()
    ]
    assert not differences(run(module, *arrays), run(load(model), *arrays))


def test_ops_inside_graphs_are_lowered_once() -> None:
    b = Builder(opsets={"": 21})
    x = b.input("x", "float32", [2, 3])
    y = b.If(
        b.input("c", "bool", []),
        then_branch=lambda inner: inner.ReduceSum(x, np.array([1])),
        else_branch=lambda inner: inner.ReduceMax(x, np.array([1])),
    )
    b.output(y, "y")
    model = export(b.module(), opset=11)
    graphs = {a.name: [n.op_type for n in a.g.node] for a in model.graph.node[-1].attribute}
    assert graphs == {"then_branch": ["ReduceSum"], "else_branch": ["ReduceMax"]}


def test_sequence_map_below_its_birth_is_a_loop() -> None:
    b = Builder(opsets={"": 21})
    x, k = b.input("x", "float32", [2]), b.input("k", "float32", [2])
    made = b.SequenceMap(b.SequenceConstruct(x, x), body=lambda inner, item: inner.Mul(item, k))
    b.output(b.ConcatFromSequence(made, axis=0), "y")
    module = b.module()
    model = export(module, opset=15)
    assert {"Loop", "SequenceInsert"} & {n.op_type for n in model.graph.node}
    assert "SequenceMap" not in str(model)
    feeds = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    assert not differences([np.array([3, 8, 3, 8], np.float32)], run(load(model), *feeds))
