"""Every version of every op: read into the current form, written back as it was, and lowered to its older versions."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from irkit.backends.numpy import compile as compile_numpy
from irkit.backends.onnx import export
from irkit.dialects.onnx import OnnxOp, versions
from irkit.errors import LoweringError
from irkit.frontends.onnx import load
from irkit.ir.module import Module
from irkit.opsets import expand_function_body, has_function_body
from tests.corpus.schemas import feeds_for, schema_models
from tests.unit.opsets.support import differences, run_onnxruntime

MODELS = dict(schema_models())
GRAPHS = {"then_branch", "else_branch", "body", "score_mod", "prob_mod"}
RANDOM = ("RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "Gradient")
"""Ops whose outputs no two runs share (and Gradient, which a pass expands)."""

DIFFERENT = {
    "ai.onnx-Dropout-7": "the mask of inference is not specified below opset 12: onnxruntime gives zeros",
    "ai.onnx-Dropout-10": "the mask of inference is not specified below opset 12: onnxruntime gives zeros",
}


def node_of(model: ModelProto) -> NodeProto:
    return next(n for n in model.graph.node if n.name.startswith("the "))


def described(model: ModelProto) -> dict[str, Any]:
    """The node that the model is about: its operands, results and attributes, defaults filled in."""
    node = node_of(model)
    opset = next(o.version for o in model.opset_import if o.domain == node.domain)
    declared = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
    defaults = {n: a.default_value for n, a in declared.items() if a.default_value.type}
    attributes = {**defaults, **{a.name: a for a in node.attribute}}
    values = {n: readable(helper.get_attribute_value(a)) for n, a in attributes.items() if n not in GRAPHS}
    return {
        "op": (node.domain, node.op_type, node.name),
        "in": list(node.input),
        "out": list(node.output),
        "attributes": values,
        "nodes": sorted(n.op_type for n in model.graph.node),
    }


def readable(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return (value.data_type, numpy_helper.to_array(value).tolist() if value.data_type else None)
    return list(value) if hasattr(value, "__len__") and not isinstance(value, bytes) else value


def outputs(module: Module, feeds: dict[str, Any]) -> list[Any]:
    return list(compile_numpy(module, seed=0).run(feeds).values())


def without_shapes(model: ModelProto, *, rank: bool) -> ModelProto:
    """A copy whose inputs and outputs have unknown sizes, or not even a known rank."""
    copy = ModelProto.FromString(model.SerializeToString())
    for info in [*copy.graph.input, *copy.graph.output]:
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
            if rank:
                for dim in info.type.tensor_type.shape.dim:
                    dim.Clear()
            else:
                info.type.tensor_type.ClearField("shape")
    return copy


@pytest.mark.parametrize("name", MODELS)
def test_upgrade_then_lower_gives_the_node_back(name: str) -> None:
    model = MODELS[name]
    assert described(export(load(model))) == described(model)


def known_versions(name: str) -> list[int]:
    node = node_of(MODELS[name])
    return versions(node.domain, node.op_type)


OLDER = [name for name in MODELS if int(name.rsplit("-", 1)[1]) < known_versions(name)[-1]]


@pytest.mark.parametrize("rank", [True, False])
@pytest.mark.parametrize("name", OLDER)
def test_the_same_where_shapes_are_unknown(name: str, rank: bool) -> None:
    model = without_shapes(MODELS[name], rank=rank)
    assert described(export(load(model))) == described(model)
    if not any(op in name for op in RANDOM):
        feeds = feeds_for(MODELS[name], 0)
        found = outputs(load(model), feeds)
        assert not differences(outputs(load(MODELS[name]), feeds), found)


@pytest.mark.parametrize("name", [name for name in OLDER if not any(op in name for op in RANDOM)])
def test_old_forms_mean_what_onnxruntime_says(name: str) -> None:
    model = MODELS[name]
    feeds = feeds_for(model, 0)
    module = load(model)
    found = outputs(module, feeds)
    again = run_onnxruntime(export(module, opset=21), feeds)
    try:
        expected = run_onnxruntime(model, feeds)
    except Exception:
        # onnxruntime does not run opsets 1 to 6 for many ops; then the newer form is compared with NumPy.
        expected = found
    if name in DIFFERENT:
        assert differences(expected, found), "no longer different: remove it from the list"
        return
    assert not differences(expected, found)
    assert not differences(expected, again)


def lower_versions(name: str) -> list[int]:
    """The older versions of the op, and the opset below the first one."""
    known = known_versions(name)
    return [v for v in (known[0] - 1, *known[:-1]) if v > 0]


LATEST = [
    name
    for name in MODELS
    if name not in OLDER and lower_versions(name) and not any(op in name for op in (*RANDOM, "Dropout"))
]


@pytest.mark.parametrize("name", LATEST)
def test_lowering_keeps_the_meaning_or_refuses(name: str) -> None:
    domain = node_of(MODELS[name]).domain
    module, feeds = load(MODELS[name]), feeds_for(MODELS[name], 0)
    expected = outputs(module, feeds)
    for version in lower_versions(name):
        found = lowered(module, {domain: version})
        if isinstance(found, ModelProto):
            check(found)
            assert not differences(expected, outputs(load(found), feeds)), version
        else:
            # The error's claim of what would do is true.
            assert isinstance(lowered(module, {domain: found}), ModelProto)


def lowered(module: Module, opsets: dict[str, int]) -> ModelProto | int:
    """The model at these opsets, or the opset that the refusal says is needed."""
    try:
        return export(module, opset=opsets)
    except LoweringError as error:
        return int(str(error).rsplit("needs opset ", 1)[1].split()[0])


def check(model: ModelProto) -> None:
    opsets = {o.domain: o.version for o in model.opset_import}
    # The checker refuses deprecated ops, and the integer constants that every exporter wrote below opset 9.
    old_constants = opsets[""] < 9 and any(n.op_type == "Constant" for n in model.graph.node)
    schemas = [onnx.defs.get_schema(n.op_type, opsets[n.domain], n.domain) for n in model.graph.node]
    if not any(schema.deprecated for schema in schemas):
        onnx.checker.check_model(model, full_check=not old_constants)


def with_body(name: str) -> list[OnnxOp]:
    ops = load(MODELS[name], upgrade=False).walk()
    return [op for op in ops if isinstance(op, OnnxOp) and has_function_body(type(op))]


WITH_BODY = [name for name in MODELS if "Bernoulli" not in name and with_body(name)]


@pytest.mark.parametrize("name", WITH_BODY)
def test_function_bodies_agree_with_the_kernels(name: str) -> None:
    module = load(MODELS[name], upgrade=False)
    feeds = feeds_for(MODELS[name], 0)
    expected = outputs(load(MODELS[name]), feeds)
    ops = [op for op in module.walk() if isinstance(op, OnnxOp) and has_function_body(type(op))]
    assert all(expand_function_body(op, module.ctx) for op in ops)
    module.verify()
    assert not any(op in list(module.walk()) for op in ops)
    assert not differences(expected, outputs(module, feeds))
