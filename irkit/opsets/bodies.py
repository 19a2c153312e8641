"""Function bodies: what the official schemas say an op means, made into ops in its place.

A body that depends on attributes or types is asked for with the op's own. Graphs that an op carries (``SequenceMap``,
``FlexAttention``) stand in that question as one marker node each, in whose places copies of the regions are put.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from irkit.dialects.onnx.classes import OnnxOp, canonical_domain, op_class
from irkit.dialects.onnx.protos import attr_from_proto, attr_to_proto, type_bytes, type_to_proto
from irkit.dialects.onnx.spec import default_attr, schema_of
from irkit.errors import InferenceError, UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import RefAttr
from irkit.ir.location import where
from irkit.ir.op import is_absent

__all__ = ["has_function_body", "instantiate"]

Proto = Any
_REGION = "irkit.region"


def has_function_body(cls: type[OnnxOp]) -> bool:
    """Whether the schema defines the op by others."""
    schema: Any = schema_of(cls.domain, cls.op_type, cls.since)
    return bool(schema.has_function or schema.has_context_dependent_function)


def instantiate(b: Builder, op: OnnxOp) -> list[Tensor] | None:
    """The ops of an op's function body, made where ``b`` builds.

    Returns:
        The values in the place of the op's results; None where there is no body, or none for these types.
    """
    if any(isinstance(attr, RefAttr) for attr in op.properties.values()):
        return None
    proto = _body(op)
    if proto is None:
        return None
    names = list(proto.input)
    given: list[Tensor | None] = [None if is_absent(v) else b.wrap(v) for v in op.operands]
    scope: dict[str, Tensor | None] = dict(zip(names, given + [None] * (len(names) - len(given)), strict=False))
    maker = _Maker(op, {e.domain: e.version for e in proto.opset_import}, _attributes(op))
    maker.nodes(b, proto.node, scope)
    results = [scope[name] for name in list(proto.output)[: len(op.results)]]
    if any(r is None for r in results):
        return None
    return [_own(b, r, op) for r in results if r is not None]


def _own(b: Builder, value: Tensor, op: OnnxOp) -> Tensor:
    """A value that may carry a name of its own: not one of the op's operands."""
    return b.Identity(value) if value.ssa in op.operands else value


def _attributes(op: OnnxOp) -> dict[str, Attribute]:
    """All attributes, defaults filled in."""
    found = {name: default_attr(spec) for name, spec in op.spec.attributes.items() if spec.default is not None}
    return {**found, **op.properties}


def _body(op: OnnxOp) -> Proto | None:
    schema: Any = schema_of(op.domain, op.op_type, op.since)
    if schema.has_function:
        version = max(schema.function_opset_versions)
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        version = max(schema.context_dependent_function_opset_versions)
        types = [b"" if is_absent(v) else type_bytes(v.type) or b"" for v in op.operands]
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                version, _node(op).SerializeToString(), types
            )
        except (RuntimeError, ValueError, onnx.shape_inference.InferenceError):
            return None
        return onnx.FunctionProto.FromString(data) if data else None
    return None


def _node(op: OnnxOp) -> Proto:
    """The op as a node, with a marker in each graph."""
    node = onnx.NodeProto(op_type=op.op_type, domain=op.domain)
    node.input.extend("" if is_absent(v) else f"in{i}" for i, v in enumerate(op.operands))
    node.output.extend(f"out{i}" for i in range(len(op.results)))
    node.attribute.extend(attr_to_proto(name, attr) for name, attr in op.properties.items())
    for name, region in zip(op.spec.graphs, op.regions, strict=True):
        if region.blocks:
            node.attribute.append(AttributeProto(name=name, type=AttributeProto.GRAPH, g=_marker(name, region.block)))
    return node


def _marker(name: str, block: Block) -> Proto:
    last = block.last_op
    results = [] if last is None else list(last.operands)
    graph = onnx.GraphProto(name=name)
    graph.input.extend(_info(f"{name}_in{i}", arg) for i, arg in enumerate(block.args))
    graph.output.extend(_info(f"{name}_out{i}", value) for i, value in enumerate(results))
    graph.node.append(
        onnx.NodeProto(
            domain=_REGION, op_type=name, input=[i.name for i in graph.input], output=[o.name for o in graph.output]
        )
    )
    return graph


def _info(name: str, value: SSAValue) -> Proto:
    return onnx.ValueInfoProto(name=name, type=type_to_proto(value.type))


class _Maker:
    """Makes ops of the nodes of a function body."""

    def __init__(self, op: OnnxOp, opsets: Mapping[str, int], attributes: Mapping[str, Attribute]) -> None:
        self.op = op
        self.opsets = {canonical_domain(d): v for d, v in opsets.items()}
        self.given = attributes

    def nodes(self, b: Builder, nodes: Sequence[Proto], scope: dict[str, Tensor | None]) -> None:
        for node in nodes:
            operands = [scope[name] if name else None for name in node.input]
            made = self._inline(b, node, operands) if node.domain == _REGION else self._make(b, node, operands, scope)
            scope.update({name: value for name, value in zip(node.output, made, strict=False) if name})

    def _inline(self, b: Builder, node: Proto, operands: Sequence[Tensor | None]) -> list[Tensor]:
        region = self.op.graph(node.op_type)
        if region is None:
            raise UnsupportedError(f"it has no graph '{node.op_type}'", op=self.op.name, where=where(self.op))
        block = region.block
        values: dict[SSAValue, SSAValue] = {
            arg: b.absent() if value is None else value.ssa for arg, value in zip(block.args, operands, strict=False)
        }
        results: list[Tensor] = []
        for inner in block.ops:
            if inner is block.last_op:
                results = [b.wrap(values.get(v, v)) for v in inner.operands]
                continue
            copy = inner.clone(values)
            _same_places(inner, copy)
            b.insert(copy)
        return results

    def _make(
        self, b: Builder, node: Proto, operands: Sequence[Tensor | None], scope: dict[str, Tensor | None]
    ) -> list[Tensor]:
        cls = op_class(canonical_domain(node.domain), node.op_type, self.opsets.get(canonical_domain(node.domain)))
        if cls is None:
            raise UnsupportedError(
                f"its body calls the unknown '{node.domain}.{node.op_type}'",
                op=self.op.name,
                where=where(self.op),
            )
        attributes: dict[str, Any] = {}
        graphs: dict[str, Proto] = {}
        for proto in node.attribute:
            if proto.ref_attr_name:
                found = self.given.get(proto.ref_attr_name)
                if found is not None:
                    attributes[proto.name] = found
            elif proto.type == AttributeProto.GRAPH:
                graphs[proto.name] = proto.g
            else:
                attributes[proto.name] = attr_from_proto(proto)
        values = [b.absent() if v is None else v.ssa for v in operands]
        properties = cls.properties_from(attributes)
        for name, graph in graphs.items():
            attributes[name] = self._region(b, cls, name, graph, values, properties, scope)
        made = b.op(cls, *operands, outputs=len(node.output), **attributes)
        return self._current(b, [made] if isinstance(made, Tensor) else list(made))

    def _region(
        self,
        b: Builder,
        cls: type[OnnxOp],
        name: str,
        graph: Proto,
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute],
        scope: Mapping[str, Tensor | None],
    ) -> Region:
        types = cls.body_types(name, operands, properties, len(graph.input))
        with b.nested(types) as (inner, args):
            local: dict[str, Tensor | None] = {**scope, **dict(zip((i.name for i in graph.input), args, strict=True))}
            self.nodes(inner, graph.node, local)
            results = [inner.tensor(local[o.name]) for o in graph.output]
            inner.block.add_op(b.ctx.get_op("onnx.Yield").create(operands=results))
        return Region(inner.block)

    @staticmethod
    def _current(b: Builder, made: list[Tensor]) -> list[Tensor]:
        """Bodies are written at the opset that brought the op: their nodes may be older forms."""
        from irkit.opsets.upgrading import upgraded

        op = made[0].ssa.owner if made else None
        if not isinstance(op, OnnxOp) or op.current:
            return made
        try:
            found = upgraded(op, b.ctx)
        except InferenceError:
            found = None
        return made if found is None else [b.wrap(v) for v in found]


def _same_places(old: Operation, new: Operation) -> None:
    for mine, theirs in zip(old.walk(), new.walk(), strict=True):
        theirs.location = mine.location
