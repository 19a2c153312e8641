"""Op specs from the official schemas."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import onnx.defs
from onnx.defs import OpSchema

from irkit.ir.attributes import to_attr
from irkit.ir.op import AttributeSpec, OpSpec, Parameter

__all__ = ["GRAPH_ORDER", "schema_of", "spec_of_schema"]

GRAPH_ORDER = {"If": ("then_branch", "else_branch"), "FlexAttention": ("score_mod", "prob_mod")}
"""The order of regions where an op has several."""

_OPTIONAL = OpSchema.FormalParameterOption.Optional
_VARIADIC = OpSchema.FormalParameterOption.Variadic


@cache
def schema_of(domain: str, op_type: str, since: int) -> OpSchema:
    """The schema of this exact version."""
    return onnx.defs.get_schema(op_type, since, domain)


def _parameter(formal: Any) -> Parameter:
    return Parameter(
        name=formal.name,
        type=formal.type_str,
        optional=formal.option == _OPTIONAL,
        variadic=formal.option == _VARIADIC,
        homogeneous=formal.is_homogeneous,
        min_arity=formal.min_arity,
    )


def _default(proto: onnx.AttributeProto) -> Any:
    match proto.type:
        case onnx.AttributeProto.UNDEFINED:
            return None
        case onnx.AttributeProto.FLOAT:
            return proto.f
        case onnx.AttributeProto.INT:
            return proto.i
        case onnx.AttributeProto.STRING:
            return proto.s.decode()
        case onnx.AttributeProto.FLOATS:
            return tuple(proto.floats)
        case onnx.AttributeProto.INTS:
            return tuple(proto.ints)
        case onnx.AttributeProto.STRINGS:
            return tuple(s.decode() for s in proto.strings)
        case onnx.AttributeProto.TENSOR:
            # An empty tensor of undefined type is how schemas say "none given" (TreeEnsemble).
            return None
        case _:
            raise TypeError(f"a default of kind {proto.type} is not expected in a schema")


def spec_of_schema(schema: OpSchema) -> OpSpec:
    """The spec that says what the schema says."""
    graphs: list[str] = []
    required: set[str] = set()
    attributes: dict[str, AttributeSpec] = {}
    for name, attribute in sorted(schema.attributes.items()):
        kind: str = cast(Any, attribute.type).name
        if kind == "GRAPH":
            graphs.append(name)
            if attribute.required:
                required.add(name)
        else:
            attributes[name] = AttributeSpec(name, kind, attribute.required, _default(attribute.default_value))
    return OpSpec(
        domain=schema.domain,
        op_type=schema.name,
        since=schema.since_version,
        inputs=tuple(_parameter(p) for p in schema.inputs),
        outputs=tuple(_parameter(p) for p in schema.outputs),
        attributes=attributes,
        graphs=GRAPH_ORDER.get(schema.name, tuple(graphs)),
        required_graphs=frozenset(required),
        variables={c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
        deprecated=schema.deprecated,
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
    )


def default_attr(spec: AttributeSpec) -> Any:
    """The default as an attribute, or None."""
    return None if spec.default is None else to_attr(spec.kind, spec.default)
