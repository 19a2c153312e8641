"""Ops for what is no node in an ONNX file: initializers, absent inputs, graph outputs, functions, calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr, BytesAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, OpTraits, Region, SSAValue
from xdsl.traits import (
    ConstantLike,
    IsolatedFromAbove,
    IsTerminator,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from irkit.ir.attributes import int_attr, string, strings, text_of, texts_of
from irkit.ir.constants import RefAttr, SparseAttr, TensorAttr
from irkit.ir.op import AttributeSpec, OpSpec, Parameter, TensorOp
from irkit.ir.types import absent_type

__all__ = ["Call", "Custom", "ForeignOp", "Function", "Initializer", "NoValue", "Yield", "absent", "fill_references"]


class NoValue(Operation):
    """Stands for an optional operand that is not given: ``%a = "onnx.NoValue"() : () -> none``. One a block."""

    name = "onnx.NoValue"
    traits = OpTraits(lambda: (Pure(),))


def absent(block: Block) -> SSAValue:
    """The value that stands for "not given" in this block; made at its beginning on first use."""
    first = block.first_op
    if isinstance(first, NoValue):
        return first.results[0]
    op = NoValue.create(result_types=[absent_type])
    if first is None:
        block.add_op(op)
    else:
        block.insert_op_before(op, first)
    return op.results[0]


class Initializer(TensorOp):
    """A named constant of a graph, as ONNX's initializers; dense or sparse.

    ``%w = "onnx.Initializer"() <{value = #onnx.tensor<...>}> {onnx.outs = ["w"]} : () -> tensor<...>``
    """

    name = "onnx.Initializer"
    traits = OpTraits(
        lambda: (
            Pure(),
            ConstantLike(),
        )
    )
    spec: ClassVar[OpSpec] = OpSpec(
        domain="",
        op_type="Initializer",
        since=1,
        inputs=(),
        outputs=(Parameter("output", "T"),),
        attributes={
            "value": AttributeSpec("value", "TENSOR"),
            "sparse_value": AttributeSpec("sparse_value", "SPARSE_TENSOR"),
        },
        min_outputs=1,
        max_outputs=1,
    )

    @property
    def value(self) -> TensorAttr | SparseAttr:
        """The constant."""
        return cast("TensorAttr | SparseAttr", self.properties.get("value") or self.properties["sparse_value"])

    @staticmethod
    def of(value: TensorAttr | SparseAttr) -> Initializer:
        """An initializer that holds this constant."""
        if isinstance(value, TensorAttr):
            return Initializer.create(result_types=[value.type], properties={"value": value})
        return Initializer.create(result_types=[value.dense_type], properties={"sparse_value": value})

    def verify_(self) -> None:
        if len(self.properties) != 1:
            raise VerifyException("onnx.Initializer holds one of 'value' and 'sparse_value'")
        expected = self.value.type if isinstance(self.value, TensorAttr) else self.value.dense_type
        if self.results[0].type != expected:
            raise VerifyException(f"onnx.Initializer holds {expected}, but its result is {self.results[0].type}")


class Yield(Operation):
    """Ends the region of a subgraph or function; its operands are the graph's outputs.

    Its attributes carry what a region has no place for: ``onnx.graph`` (the graph's name), ``onnx.ins`` and
    ``onnx.outs`` (names of inputs and outputs), ``onnx.ins_decl`` and ``onnx.decl`` (declared types), ``onnx.doc``,
    ``onnx.meta``, ``onnx.rest``.
    """

    name = "onnx.Yield"
    traits = OpTraits(
        lambda: (
            IsTerminator(),
            Pure(),
        )
    )


class ForeignOp(Operation):
    """An op known by domain and name only. Attributes are key-value pairs, since their names may be any text.

    Properties: ``domain``, ``op_type``, ``overload`` (optional), ``attrs`` (optional, pairs), ``graphs`` (optional, one
    pair a region: the attribute's name, and the index in it or -1 for a single graph).
    """

    @property
    def domain(self) -> str:
        """The op's domain."""
        return text_of(self.properties["domain"])

    @property
    def op_type(self) -> str:
        """The op's name within its domain."""
        return text_of(self.properties["op_type"])

    @property
    def overload(self) -> str:
        """The overload, or ``""``."""
        found = self.properties.get("overload")
        return "" if found is None else text_of(found)

    @property
    def attrs(self) -> dict[str, Attribute]:
        """The attributes by name, in order."""
        found = self.properties.get("attrs")
        if found is None:
            return {}
        pairs = cast("ArrayAttr[ArrayAttr[Attribute]]", found).data
        return {text_of(pair.data[0]): pair.data[1] for pair in pairs}

    @property
    def graphs(self) -> list[tuple[str, int]]:
        """Per region the name of its attribute, and its index in it (-1: the attribute is a single graph)."""
        found = self.properties.get("graphs")
        if found is None:
            return []
        pairs = cast("ArrayAttr[ArrayAttr[Attribute]]", found).data
        return [(text_of(pair.data[0]), cast(IntegerAttr, pair.data[1]).value.data) for pair in pairs]

    @classmethod
    def of(
        cls,
        domain: str,
        op_type: str,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        overload: str = "",
        graphs: Sequence[tuple[str, int]] = (),
        regions: Sequence[Region] = (),
    ) -> ForeignOp:
        """An op of this domain and name."""
        properties: dict[str, Attribute] = {"domain": string(domain), "op_type": string(op_type)}
        if overload:
            properties["overload"] = string(overload)
        if attrs:
            properties["attrs"] = ArrayAttr([ArrayAttr([string(k), v]) for k, v in attrs.items()])
        if graphs:
            properties["graphs"] = ArrayAttr([ArrayAttr([string(n), int_attr(i)]) for n, i in graphs])
        return cls.create(operands=operands, result_types=result_types, properties=properties, regions=regions)

    def verify_(self) -> None:
        for name in ("domain", "op_type"):
            if not isinstance(self.properties.get(name), StringAttr | BytesAttr):
                raise VerifyException(f"{self.name} needs the text attribute '{name}'")
        if len(self.graphs) != len(self.regions):
            raise VerifyException(f"{self.name} names {len(self.graphs)} graphs, but has {len(self.regions)} regions")


class Custom(ForeignOp):
    """An op of an unknown domain: kept whole, never dropped, nothing assumed about it."""

    name = "onnx.Custom"
    traits = OpTraits(lambda: ())


class Call(ForeignOp):
    """A call of a model-local function, found by domain, name and overload."""

    name = "onnx.Call"
    traits = OpTraits(lambda: ())


class Function(Operation):
    """A model-local function: untyped, with references to the attributes that a caller gives.

    Properties: ``sym_name``, ``domain``, ``fn_name``, ``overload`` (optional), ``inputs``, ``outputs``, ``attributes``
    (names), ``defaults`` (optional, pairs), ``opsets`` (pairs of domain and version).
    """

    name = "onnx.Function"
    traits = OpTraits(
        lambda: (
            IsolatedFromAbove(),
            SymbolOpInterface(),
        )
    )

    @property
    def key(self) -> tuple[str, str, str]:
        """Domain, name and overload."""
        overload = self.properties.get("overload")
        return (
            text_of(self.properties["domain"]),
            text_of(self.properties["fn_name"]),
            "" if overload is None else text_of(overload),
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the formal inputs."""
        return texts_of(self.properties["inputs"])

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return texts_of(self.properties["outputs"])

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The attributes that a caller must give."""
        return texts_of(self.properties["attributes"])

    @property
    def defaults(self) -> dict[str, Attribute]:
        """The attributes that a caller may give, with their defaults."""
        found = self.properties.get("defaults")
        if found is None:
            return {}
        pairs = cast("ArrayAttr[ArrayAttr[Attribute]]", found).data
        return {text_of(pair.data[0]): pair.data[1] for pair in pairs}

    @property
    def body(self) -> Block:
        """The one block."""
        return self.regions[0].block

    @staticmethod
    def of(
        key: tuple[str, str, str],
        symbol: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Sequence[str],
        defaults: Mapping[str, Attribute],
        opsets: Mapping[str, int],
        region: Region,
    ) -> Function:
        """A function with this signature and body."""
        domain, name, overload = key
        properties: dict[str, Attribute] = {
            "sym_name": string(symbol),
            "domain": string(domain),
            "fn_name": string(name),
            "inputs": strings(inputs),
            "outputs": strings(outputs),
            "attributes": strings(attributes),
            "opsets": opsets_attr(opsets),
        }
        if overload:
            properties["overload"] = string(overload)
        if defaults:
            properties["defaults"] = ArrayAttr([ArrayAttr([string(k), v]) for k, v in defaults.items()])
        return Function.create(properties=properties, regions=[region])

    def verify_(self) -> None:
        missing = {"sym_name", "domain", "fn_name", "inputs", "outputs", "attributes", "opsets"} - set(self.properties)
        if missing:
            raise VerifyException(f"onnx.Function needs {', '.join(sorted(missing))}")
        if len(self.regions) != 1 or len(self.regions[0].blocks) != 1:
            raise VerifyException("onnx.Function has one region of one block")
        if len(self.body.args) != len(self.input_names):
            raise VerifyException(f"onnx.Function names {len(self.input_names)} inputs, has {len(self.body.args)}")


def opsets_attr(opsets: Mapping[str, int]) -> ArrayAttr[Attribute]:
    """Opset imports as pairs of domain and version."""
    return ArrayAttr([ArrayAttr([string(d), int_attr(v)]) for d, v in opsets.items()])


def opsets_of(attr: Attribute | None) -> dict[str, int]:
    """The inverse of ``opsets_attr``."""
    if attr is None:
        return {}
    pairs = cast("ArrayAttr[ArrayAttr[Attribute]]", attr).data
    return {text_of(pair.data[0]): cast(IntegerAttr, pair.data[1]).value.data for pair in pairs}


def fill_references(op: Operation, given: Mapping[str, Attribute]) -> None:
    """Puts a caller's attributes in the place of references to them, also among those that a call hands on.

    Args:
        given: what the caller gives, over the function's defaults. What is in neither is unset.
    """
    for name, attr in list(op.properties.items()):
        if isinstance(attr, RefAttr):
            found = given.get(text_of(attr.attribute))
            if found is None:
                del op.properties[name]
            else:
                op.properties[name] = found
    if isinstance(op, ForeignOp) and any(isinstance(attr, RefAttr) for attr in op.attrs.values()):
        filled = {
            name: given.get(text_of(attr.attribute)) if isinstance(attr, RefAttr) else attr
            for name, attr in op.attrs.items()
        }
        pairs = [ArrayAttr([string(name), attr]) for name, attr in filled.items() if attr is not None]
        if pairs:
            op.properties["attrs"] = ArrayAttr(pairs)
        else:
            del op.properties["attrs"]
