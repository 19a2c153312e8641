"""Result types: our own rules where they know more or are quicker, ONNX's official inference for everything else.

A rule is declared in ``shapes/<family>.py``; it may decline by returning None. The official inference sees constants
of up to 1024 elements, since shapes may depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import onnx
import onnx.checker
import onnx.shape_inference
from xdsl.ir import Attribute, Region, SSAValue

from irkit.dialects.onnx.protos import attr_to_proto, tensor_to_proto, type_bytes, type_from_bytes
from irkit.dialects.onnx.spec import schema_of
from irkit.dialects.onnx.values import constant_of
from irkit.errors import InferenceError
from irkit.ir.attributes import from_attr
from irkit.ir.constants import ConstantData, RefAttr
from irkit.ir.op import is_absent
from irkit.ir.types import Dim, tensor, tensor_info, unknown

if TYPE_CHECKING:
    from irkit.dialects.onnx.classes import OnnxOp

__all__ = ["REFINEMENTS", "SHAPE_RULES", "Call", "infer_node", "infer_types", "refinement", "shape_rule"]

MAX_DATA = 1024


@dataclass(slots=True)
class Call:
    """An op about to be made, as a shape rule sees it."""

    cls: type[OnnxOp]
    operands: Sequence[SSAValue]
    properties: Mapping[str, Attribute]
    regions: Sequence[Region]
    n_out: int

    def type(self, index: int) -> Attribute | None:
        """The type of an operand; None where it is absent."""
        if index >= len(self.operands) or is_absent(self.operands[index]):
            return None
        return self.operands[index].type

    def constant(self, index: int) -> ConstantData | None:
        """The constant that an operand is, if it is one."""
        return constant_of(self.operands[index]) if index < len(self.operands) else None

    def attr(self, name: str) -> Any:
        """An attribute's value, or its default."""
        found = self.properties.get(name)
        if found is not None:
            return from_attr(found)
        declared = self.cls.spec.attributes.get(name)
        return None if declared is None else declared.default


Rule = Callable[[Call], "Sequence[Attribute] | None"]

SHAPE_RULES: dict[tuple[str, str], Rule] = {}
"""(domain, op type) -> rule. A rule holds for every version of its op, or declines."""


Refinement = Callable[[Call], "Sequence[Sequence[Dim] | None]"]

REFINEMENTS: dict[str, Refinement] = {}
"""Op type of ai.onnx -> what it knows of the shapes of results, tried where inference leaves a size open."""


def refinement(*op_types: str) -> Callable[[Refinement], Refinement]:
    """Declares the decorated function as what fills open sizes of these ops, per result a shape or None."""

    def register(rule: Refinement) -> Refinement:
        REFINEMENTS.update(dict.fromkeys(op_types, rule))
        return rule

    return register


def shape_rule(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Declares the decorated function as the shape rule of these ops."""

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            SHAPE_RULES[domain, op_type] = rule
        return rule

    return register


@cache
def _load_rules() -> None:
    from irkit.dialects.onnx import shapes

    shapes.load_all()


def infer_types(
    cls: type[OnnxOp],
    operands: Sequence[SSAValue],
    properties: Mapping[str, Attribute],
    regions: Sequence[Region],
    n_out: int,
    node: Any = None,
) -> list[Attribute]:
    """The types of an op's results.

    Args:
        n_out: how many results; -1: as many as its graphs give.
        node: the NodeProto that it comes from, where there is one (saves making one up).

    Raises:
        InferenceError: if the operands' types or values don't fit the op.
    """
    _load_rules()
    types = _infer_types(cls, operands, properties, regions, n_out, node)
    refine = None if cls.domain else REFINEMENTS.get(cls.op_type)
    if refine is None or not any(map(_is_open, types)):
        return types
    required = (name for name, attribute in cls.spec.attributes.items() if attribute.required)
    if any(isinstance(attr, RefAttr) for attr in properties.values()) or not all(n in properties for n in required):
        return types
    shapes = refine(Call(cls, operands, properties, regions, len(types)))
    return [_filled(t, shape) for t, shape in zip_longest(types, shapes[: len(types)])]


def _is_open(value_type: Attribute) -> bool:
    info = tensor_info(value_type)
    return info is not None and (info.shape is None or None in info.shape)


def _filled(value_type: Attribute, shape: Sequence[Dim] | None) -> Attribute:
    """A type with sizes in the place of those that it leaves open."""
    info = tensor_info(value_type)
    if info is None or shape is None or (info.shape is not None and len(info.shape) != len(shape)):
        return value_type
    known = info.shape or (None,) * len(shape)
    sizes = [new if old is None else old for old, new in zip(known, shape, strict=True)]
    return tensor(info.dtype, [None if isinstance(d, int) and d < 0 else d for d in sizes])


def _infer_types(
    cls: type[OnnxOp],
    operands: Sequence[SSAValue],
    properties: Mapping[str, Attribute],
    regions: Sequence[Region],
    n_out: int,
    node: Any,
) -> list[Attribute]:
    rule = SHAPE_RULES.get((cls.domain, cls.op_type))
    if rule is not None:
        found = rule(Call(cls, operands, properties, regions, n_out))
        if found is not None:
            types = list(found)
            return types if n_out < 0 else (types + [unknown] * n_out)[:n_out]
    if any(isinstance(attr, RefAttr) for attr in properties.values()):
        return [unknown] * n_out
    if node is None:
        node = _node(cls, operands, properties, n_out)
    return infer_node(cls, node, zip(node.input, operands, strict=False), n_out)


def _node(cls: type[OnnxOp], operands: Sequence[SSAValue], properties: Mapping[str, Attribute], n_out: int) -> Any:
    node = onnx.NodeProto(op_type=cls.op_type, domain=cls.domain)
    seen: dict[SSAValue, str] = {}
    node.input.extend("" if is_absent(v) else seen.setdefault(v, f"i{len(seen)}") for v in operands)
    node.output.extend(f"o{i}" for i in range(n_out))
    node.attribute.extend(attr_to_proto(name, attr) for name, attr in properties.items())
    return node


def infer_node(cls: type[OnnxOp], node: Any, inputs: Iterable[tuple[str, SSAValue]], n_out: int) -> list[Attribute]:
    """The official inference for one node. Where the type of an operand is unknown, so may be those of the results.

    Raises:
        InferenceError: with what it says, unless the type of an operand is unknown.
    """
    if "" in node.output:
        # Results that are left out share this name, under which only the type of the last of them would be found.
        names = [name or f"omitted/{index}" for index, name in enumerate(node.output)]
        node = onnx.NodeProto.FromString(node.SerializeToString())
        del node.output[:]
        node.output.extend(names)
    types: dict[str, bytes] = {}
    data: dict[str, bytes] = {}
    untyped = False
    for name, value in inputs:
        if not name:
            continue
        found = type_bytes(value.type)
        untyped |= found is None
        # A name without any type would count as an operand that is left out: Squeeze, say, would drop all axes of 1.
        types[name] = found or b""
        held = constant_of(value)
        if held is not None and held.size <= MAX_DATA and held.dtype.name in ("int64", "int32", "float32"):
            data[name] = tensor_to_proto(held, name).SerializeToString()
    schema = schema_of(cls.domain, cls.op_type, cls.since)
    # Function bodies of later opsets are inferred as the newest opset has them.
    opsets = {"": onnx.defs.onnx_opset_version() if cls.current or cls.domain else cls.since}
    if cls.domain:
        opsets[cls.domain] = cls.since
    try:
        outputs: dict[str, bytes] = cast(Any, schema)._infer_node_outputs(
            node.SerializeToString(), types, data, {}, opsets, onnx.IR_VERSION
        )
    except onnx.checker.ValidationError:
        # Deprecated ops have no inference.
        return [unknown] * n_out
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, IndexError) as error:
        if untyped:
            # Some of the official rules fail on what they are not told: that contradicts nothing.
            return [unknown] * n_out
        raise InferenceError(_message(str(error)), op=cls.name) from None
    made: list[Attribute] = []
    for index in range(n_out):
        name = node.output[index] if index < len(node.output) else ""
        serialized = outputs.get(name)
        made.append(type_from_bytes(serialized) if serialized else unknown)
    return made


def _message(text: str) -> str:
    """The official message without its decoration."""
    for prefix in ("[ShapeInferenceError] ", "[TypeInferenceError] "):
        text = text.replace(prefix, "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "shape inference failed"
