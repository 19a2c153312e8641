"""Modules made fit for onnxruntime: casts at the boundary, nodes that can be told apart, large weights kept outside.

onnxruntime computes in dtypes that its Python interface cannot carry. Inputs and outputs of these dtypes go in and come
out in one that holds each of their values exactly, with a ``Cast`` inside the model and its inverse outside:

==============================================  ===========
dtype                                           carried by
==============================================  ===========
bfloat16, the float8s, float4_e2m1fn            float32
int4, int2                                      int8
uint4, uint2                                    uint8
==============================================  ===========

NaN stays NaN; its payload is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation

from irkit.backends.onnx import export
from irkit.dialects.onnx.classes import DOMAINS, OnnxOp
from irkit.dialects.onnx.protos import tensor_to_proto
from irkit.dialects.onnx.structural import ForeignOp, Initializer
from irkit.ir.builder import Builder, value_of
from irkit.ir.constants import ConstantData, TensorAttr, constant
from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.module import DEFAULT, Module
from irkit.ir.names import DECL, node_name, out_names, set_node_name, set_out_names
from irkit.ir.types import tensor, tensor_info
from irkit.opsets import decompose_op

__all__ = ["CARRIERS", "Prepared", "prepare"]

_TABLE = {
    "float32": "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn",
    "int8": "int4 int2",
    "uint8": "uint4 uint2",
}
CARRIERS: dict[DType, DType] = {
    BY_NAME[name]: BY_NAME[carrier] for carrier, names in _TABLE.items() for name in names.split()
}
"""Dtype -> the dtype that carries it in and out."""

LARGE_MODEL = 1 << 28
"""With more bytes of weights than this, large initializers are handed over beside the model, uncopied."""

LARGE_TENSOR = 1 << 16
"""An initializer of at least so many bytes is a large one."""

_MEMORY = "held in memory by irkit"


@dataclass
class Prepared:
    """A module made fit, which is a changed copy.

    Attributes:
        module: the copy.
        nodes: its ops by the names of their nodes, which are unique.
        inputs, outputs: the dtypes of those that are carried in another.
        weights: what the last export left out of the model: arrays with their dtypes, by the initializer's name.
    """

    module: Module
    nodes: dict[str, Operation]
    inputs: dict[str, DType]
    outputs: dict[str, DType]
    large: bool
    weights: dict[str, tuple[np.ndarray, DType]] = field(default_factory=dict[str, "tuple[np.ndarray, DType]"])

    def model(self, opsets: dict[str, int], ir_version: int) -> Any:
        """The ONNX model at these opsets; its file format is no newer than ``ir_version``.

        Raises:
            LoweringError: if an op has no form there.
        """
        held: dict[str, ConstantData] = {}

        def writer(data: ConstantData, name: str) -> Any:
            if not self.large or data.nbytes < LARGE_TENSOR or data.dtype.kind == "string" or data.dtype.packed:
                return tensor_to_proto(data, name)
            held[name] = data
            return _outside(data, name)

        model = export(self.module, opsets, tensor_writer=writer, value_info="none")
        model.ir_version = min(model.ir_version, ir_version)
        # Only the main graph's initializers can be handed over beside the model.
        for graph in _subgraphs(model.graph):
            for proto in graph.initializer:
                if proto.data_location == TensorProto.EXTERNAL:
                    proto.CopyFrom(tensor_to_proto(held[proto.name], proto.name))
        names = [p.name for p in model.graph.initializer if p.data_location == TensorProto.EXTERNAL]
        self.weights = {name: (np.ascontiguousarray(held[name].array()), held[name].dtype) for name in names}
        return model


def _outside(data: ConstantData, name: str) -> Any:
    proto = TensorProto(name=name, data_type=data.dtype.code, dims=data.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", _MEMORY), ("offset", "0"), ("length", str(data.nbytes))):
        proto.external_data.add(key=key, value=value)
    return proto


def _subgraphs(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if isinstance(inner, onnx.GraphProto) and (inner.node or inner.initializer):
                    yield inner
                    yield from _subgraphs(inner)


def prepare(module: Module) -> Prepared:
    """A copy of the module that onnxruntime can be given."""
    copy = module.clone()
    _expand_foreign(copy)
    large = _weight_bytes(copy) > LARGE_MODEL
    if large:
        _constants_to_initializers(copy)
    nodes = _name_nodes(copy)
    return Prepared(copy, nodes, _cast_inputs(copy), _cast_outputs(copy), large)


def _expand_foreign(module: Module) -> None:
    """Writes ops of plug-in domains by what they mean in standard ops, where that is declared."""
    for op in list(module.walk()):
        if isinstance(op, OnnxOp) and op.domain not in DOMAINS:
            decompose_op(op, module.ctx)


def _weight_bytes(module: Module) -> int:
    attrs = (attr for op in module.walk() for attr in op.properties.values())
    return sum(attr.data.nbytes for attr in attrs if isinstance(attr, TensorAttr))


def _constants_to_initializers(module: Module) -> None:
    """The large constants among the nodes of the main graph, made initializers."""
    for op in list(module.block.ops):
        value = op.properties.get("value")
        if op.name == "onnx.Constant" and isinstance(value, TensorAttr) and value.data.nbytes >= LARGE_TENSOR:
            made = Initializer.of(value)
            set_out_names(made, out_names(op))
            module.block.insert_op_before(made, op)
            op.results[0].replace_all_uses_with(made.results[0])
            op.detach()
            op.erase()


def _name_nodes(module: Module) -> dict[str, Operation]:
    """Gives every node a name that no other has; those that have one keep it."""
    nodes: dict[str, Operation] = {}
    rest: list[Operation] = []
    for op in module.walk():
        if not isinstance(op, OnnxOp | ForeignOp):
            continue
        name = node_name(op)
        if name and name not in nodes:
            nodes[name] = op
        else:
            rest.append(op)
    for op in rest:
        base = node_name(op) or op.name
        number = len(nodes)
        while (name := f"{base}_{number}") in nodes:
            number += 1
        nodes[name] = op
        set_node_name(op, name)
    return nodes


def _cast_inputs(module: Module) -> dict[str, DType]:
    block, first = module.block, module.block.first_op
    assert first is not None
    found: dict[str, DType] = {}
    for index, (name, value_type) in enumerate(module.inputs.items()):
        info = tensor_info(value_type)
        if info is None or info.dtype not in CARRIERS:
            continue
        found[name] = info.dtype
        old = block.args[index]
        new = block.insert_arg(tensor(CARRIERS[info.dtype], info.shape), index)
        old.replace_all_uses_with(value_of(_cast(Builder.before(first, module.ctx).wrap(new), info.dtype)))
        block.erase_arg(old)
    module.func.arg_attrs = _without_declarations(module.func.arg_attrs, list(module.inputs), found)
    return found


def _cast_outputs(module: Module) -> dict[str, DType]:
    end = module.block.last_op
    assert isinstance(end, ReturnOp)
    found: dict[str, DType] = {}
    for index, (name, value_type) in enumerate(module.outputs.items()):
        info = tensor_info(value_type)
        if info is not None and info.dtype in CARRIERS:
            found[name] = info.dtype
            builder = Builder.before(end, module.ctx)
            end.operands[index] = value_of(_cast(builder.wrap(end.operands[index]), CARRIERS[info.dtype]))
    module.func.res_attrs = _without_declarations(module.func.res_attrs, list(module.outputs), found)
    return found


def _cast(value: Any, element: DType) -> Any:
    # Saturating would turn infinity into the largest number.
    narrow = {"saturate": 0} if element.name.startswith("float8") else {}
    return value.builder.Cast(value, to=element.code, **narrow)


def _without_declarations(
    attrs: ArrayAttr[DictionaryAttr] | None, names: list[str], carried: dict[str, DType]
) -> ArrayAttr[DictionaryAttr] | None:
    """Drops what the source declared of carried values, and casts their defaults."""
    if attrs is None or not carried:
        return attrs
    made: list[DictionaryAttr] = []
    for name, entry in zip(names, attrs.data, strict=True):
        fields = dict(entry.data)
        if name in carried:
            fields.pop(DECL, None)
            default = fields.get(DEFAULT)
            if isinstance(default, TensorAttr):
                carrier = CARRIERS[carried[name]]
                fields[DEFAULT] = constant(default.array().astype(carrier.numpy), carrier)
        made.append(DictionaryAttr(fields))
    return ArrayAttr(made)
