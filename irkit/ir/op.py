"""The base class of tensor ops, and the tables that describe them.

Op classes are plain subclasses of xDSL's ``Operation``: operands and results are flat lists, with the result of
``onnx.NoValue`` standing for an absent optional operand; what an ONNX node calls attributes are properties, graphs are
regions. What is legal is said by the ``OpSpec`` of the class, which ``verify_`` checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from xdsl.dialects.builtin import NoneType
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

from irkit.ir.attributes import from_attr, kind_of, to_attr
from irkit.ir.dtypes import DType
from irkit.ir.types import MapType, OptType, SeqType, SparseType, UnknownType, dtype_of, unknown

__all__ = [
    "AttributeSpec",
    "Elementwise",
    "OpSpec",
    "Parameter",
    "Random",
    "TensorOp",
    "is_absent",
    "type_string",
    "verify_spec",
]


class Elementwise(OpTrait):
    """Each element of the result depends on the elements of the (broadcast) operands at the same place."""


class Random(OpTrait):
    """Draws random numbers: never merged with another, folded, or moved across an iteration."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A formal operand or result.

    Attributes:
        name: as in the schema.
        type: the name of a type variable of the spec, or a concrete type string of ONNX.
        optional, variadic, homogeneous: as in the schema.
        min_arity: of a variadic one.
    """

    name: str
    type: str
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    min_arity: int = 1


@dataclass(frozen=True, eq=False)
class AttributeSpec:
    """An attribute of an op: its kind (``"INT"``...), whether it must be given, and its default as a Python value."""

    name: str
    kind: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, eq=False)
class OpSpec:
    """What is legal for an op, from its schema.

    Attributes:
        domain: ``""`` for ai.onnx.
        op_type: as in a NodeProto.
        since: the opset version of the domain in which this form appeared.
        inputs, outputs: the formal parameters; only the last may be variadic.
        attributes: by name, graphs left out.
        graphs: the names of the graph attributes, in the order of the op's regions.
        required_graphs: those of them that must be there.
        variables: the type strings that each type variable may stand for.
        deprecated: whether the schema says so.
    """

    domain: str
    op_type: str
    since: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, AttributeSpec]
    graphs: tuple[str, ...] = ()
    required_graphs: frozenset[str] = frozenset()
    variables: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    deprecated: bool = False
    min_inputs: int = 0
    max_inputs: int = 0
    min_outputs: int = 0
    max_outputs: int = 0


def is_absent(value: SSAValue) -> bool:
    """Whether this operand stands for an optional input that is not given."""
    return isinstance(value.type, NoneType)


class TensorOp(Operation):
    """An op on tensors (and sequences, optionals, maps)."""

    spec: ClassVar[OpSpec]

    @classmethod
    def infer_types(
        cls,
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute],
        regions: Sequence[Region],
        n_out: int,
    ) -> list[Attribute]:
        """The types of the results. Unknown ones unless a dialect knows better.

        Raises:
            InferenceError: if the operands' types don't fit.
        """
        return [unknown] * n_out

    @classmethod
    def body_types(
        cls, graph: str, operands: Sequence[SSAValue], properties: Mapping[str, Attribute], count: int
    ) -> list[Attribute]:
        """The types of the ``count`` inputs of a graph attribute. Unknown ones unless a dialect knows better.

        Raises:
            InferenceError: if the graph does not take so many.
        """
        return [unknown] * count

    @classmethod
    def widened(cls, region: Region, operands: Sequence[SSAValue]) -> list[Attribute] | None:
        """The argument types with which a graph has to be made again, since it does not keep those it was made for."""
        return None

    def operand(self, index: int) -> SSAValue | None:
        """The operand at this place, or None where it is absent."""
        if index >= len(self._operands):
            return None
        value = self._operands[index]
        return None if is_absent(value) else value

    def attr(self, name: str) -> Any:
        """The value of an attribute, or the schema's default, or None. A reference to a caller's attribute: itself."""
        found = self.properties.get(name)
        if found is not None:
            return from_attr(found)
        declared = self.spec.attributes.get(name)
        return None if declared is None else declared.default

    def attrs(self) -> dict[str, Any]:
        """All attributes that are set or have a default, as Python values."""
        values = {s.name: s.default for s in self.spec.attributes.values() if s.default is not None}
        values.update((name, from_attr(attr)) for name, attr in self.properties.items())
        return values

    def graph(self, name: str) -> Region | None:
        """The region of a graph attribute, or None where it is not given."""
        if name not in self.spec.graphs:
            return None
        region = self.regions[self.spec.graphs.index(name)]
        return region if region.blocks else None

    @classmethod
    def properties_from(cls, attributes: Mapping[str, Any]) -> dict[str, Attribute]:
        """Properties from Python values, by the kinds that the spec declares. None means unset.

        Raises:
            TypeError: for an unknown attribute or a value of the wrong kind.
        """
        made: dict[str, Attribute] = {}
        for name, value in attributes.items():
            declared = cls.spec.attributes.get(name)
            if declared is None:
                known = ", ".join(cls.spec.attributes) or "none"
                raise TypeError(f"{cls.name} has no attribute '{name}' (it has: {known})")
            if value is not None:
                made[name] = to_attr(declared.kind, value)
        return made

    @classmethod
    def make(
        cls,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Region] = (),
    ) -> Self:
        """An op from operands, result types, and attributes as Python values."""
        properties = cls.properties_from(attributes) if attributes else {}
        return cls.create(operands=operands, result_types=result_types, properties=properties, regions=regions)

    def verify_(self) -> None:
        verify_spec(self)


def verify_spec(op: TensorOp) -> None:
    """Checks arity, attributes, and the operands' and results' element types against the spec.

    Raises:
        VerifyException: that says what was expected and what was found.
    """
    spec = op.spec
    n_in, n_out = len(op.operands), len(op.results)
    if not spec.min_inputs <= n_in <= spec.max_inputs:
        raise VerifyException(f"{op.name} takes {_span(spec.min_inputs, spec.max_inputs)} operands, but has {n_in}")
    if not spec.min_outputs <= n_out <= spec.max_outputs:
        raise VerifyException(f"{op.name} gives {_span(spec.min_outputs, spec.max_outputs)} results, but has {n_out}")
    for name, attr in op.properties.items():
        declared = spec.attributes.get(name)
        if declared is None:
            raise VerifyException(f"{op.name} has no attribute '{name}'")
        kind = kind_of(attr)
        # An empty list of strings and a list of nothing else look alike; a StringAttr may hold any text.
        if kind != declared.kind:
            raise VerifyException(f"attribute '{name}' of {op.name} is {kind}, expected {declared.kind}")
    for declared in spec.attributes.values():
        if declared.required and declared.name not in op.properties:
            raise VerifyException(f"{op.name} needs the attribute '{declared.name}' ({declared.kind})")
    if len(op.regions) != len(spec.graphs):
        raise VerifyException(f"{op.name} has {len(op.regions)} regions, expected {len(spec.graphs)} {spec.graphs}")
    for name, region in zip(spec.graphs, op.regions, strict=True):
        if name in spec.required_graphs and not region.blocks:
            raise VerifyException(f"{op.name} needs the graph '{name}'")
    key = (type(op), *(id(v.type) for v in op.operands), *(id(r.type) for r in op.results))
    if key in _CHECKED:
        return
    _verify_types(op)
    if all(getattr(v.type, "_interned", False) for v in (*op.operands, *op.results)):
        _CHECKED.add(key)


# Combinations of (interned, hence immortal) types already found right.
_CHECKED: set[tuple[Any, ...]] = set()


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"at least {low}" if high > 1 << 20 else f"{low} to {high}"


def _verify_types(op: TensorOp) -> None:
    bound: dict[str, tuple[DType, str]] = {}
    for values, formals, what in (
        (op.operands, op.spec.inputs, "operand"),
        (op.results, op.spec.outputs, "result"),
    ):
        for index, value in enumerate(values):
            formal = formals[min(index, len(formals) - 1)]
            label = f"{what} {index} ('{formal.name}')"
            if is_absent(value):
                if not (formal.optional or formal.variadic) and what == "operand":
                    raise VerifyException(f"{label} of {op.name} is absent, but not optional")
                continue
            if isinstance(value.type, UnknownType):
                continue
            allowed = op.spec.variables.get(formal.type, frozenset((formal.type,)))
            found = type_string(value.type)
            if found is None:
                continue
            if found not in allowed:
                listed = ", ".join(sorted(allowed)[:8]) + (", ..." if len(allowed) > 8 else "")
                raise VerifyException(f"{label} of {op.name} is {value.type}, expected one of: {listed}")
            element = dtype_of(value.type)
            if element is None or formal.type not in op.spec.variables or not formal.homogeneous:
                continue
            first = bound.setdefault(formal.type, (element, label))
            if first[0] is not element:
                raise VerifyException(
                    f"{op.name}: {first[1]} is {first[0]}, but {label} is {element}; both must be of one type"
                )


_WORDS = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
    "float6_e2m3fn": "float6e2m3",
    "float6_e3m2fn": "float6e3m2",
}


def type_string(value_type: Attribute) -> str | None:
    """A type as schemas spell it, ``tensor(float)``; None where a part of it is unknown or foreign."""
    element = dtype_of(value_type)
    if element is not None:
        return f"tensor({_WORDS.get(element.name, element.name)})"
    match value_type:
        case SeqType():
            inner = type_string(value_type.element)
            return inner and f"seq({inner})"
        case OptType():
            inner = type_string(value_type.element)
            return inner and f"optional({inner})"
        case MapType():
            inner = type_string(value_type.value)
            # Keys and values are scalar tensors in the IR; schemas spell them without the word.
            key = type_string(value_type.key)
            if inner is None or key is None:
                return None
            return f"map({key}, {inner})".replace("tensor(", "").replace("))", ")").replace("),", ",")
        case SparseType():
            inner = type_string(value_type.tensor)
            return inner and f"sparse_{inner}"
        case _:
            return None


def spec_of(op: Operation) -> OpSpec | None:
    """The spec of a tensor op; None for other ops."""
    return cast("OpSpec | None", getattr(type(op), "spec", None))
