"""``Module``: a thin face over xDSL's ModuleOp and its context. All that it says stands in the op's attributes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, NoneType, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from irkit.errors import VerifyError
from irkit.ir.attributes import int_attr, string, text_of
from irkit.ir.location import describe
from irkit.ir.memory import paused_gc
from irkit.ir.names import NAME

if TYPE_CHECKING:
    import onnx

__all__ = ["Module", "arg_attrs", "arg_entries"]

GRAPH, OPSETS, IR_VERSION, DEFAULT = "onnx.graph", "onnx.opsets", "onnx.ir_version", "onnx.default"


def arg_attrs(entries: Sequence[Mapping[str, Attribute]]) -> ArrayAttr[DictionaryAttr] | None:
    """The attributes of a function's arguments or results; None where there are none, as the text has it."""
    return ArrayAttr([DictionaryAttr(dict(entry)) for entry in entries]) if entries else None


def arg_entries(attrs: ArrayAttr[DictionaryAttr] | None, count: int) -> list[Mapping[str, Attribute]]:
    """Per argument or result its attributes."""
    return [{}] * count if attrs is None else [entry.data for entry in attrs.data]


class Signature(dict[str, Attribute]):
    """Names and types, in order; prints the types as MLIR does."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {value_type}' for name, value_type in self.items())}}}"


class Module:
    """A tensor graph with its functions and metadata.

    Attributes:
        op: the xDSL ``builtin.module``.
        ctx: the context in which its dialects are registered.
    """

    def __init__(self, op: ModuleOp, ctx: Context) -> None:
        self.op = op
        self.ctx = ctx

    # The graph

    @property
    def func(self) -> FuncOp:
        """The function that holds the main graph.

        Raises:
            VerifyError: if there is none.
        """
        for op in self.op.ops:
            if isinstance(op, FuncOp):
                return op
        raise VerifyError("the module has no func.func, so no main graph")

    @property
    def block(self) -> Block:
        """The main graph's block: its arguments are the inputs, its ops the nodes in order."""
        return self.func.body.block

    @property
    def returned(self) -> tuple[SSAValue, ...]:
        """The values of the main graph's outputs."""
        last = self.block.last_op
        return () if last is None else tuple(last.operands)

    @property
    def inputs(self) -> Signature:
        """The inputs' names and types, in order."""
        return Signature(zip(self.input_names, (arg.type for arg in self.block.args), strict=True))

    @property
    def outputs(self) -> Signature:
        """The outputs' names and types, in order."""
        return Signature(zip(self.output_names, (value.type for value in self.returned), strict=True))

    @property
    def input_names(self) -> list[str]:
        """The inputs' names, in order."""
        return _names(self.func.arg_attrs, len(self.block.args), "arg")

    @property
    def output_names(self) -> list[str]:
        """The outputs' names, in order."""
        return _names(self.func.res_attrs, len(self.returned), "out")

    @property
    def defaults(self) -> dict[str, Attribute]:
        """Inputs that need not be fed (ONNX's overridable initializers), with their values."""
        attrs = self.func.arg_attrs
        if attrs is None:
            return {}
        return {
            name: entry.data[DEFAULT]
            for name, entry in zip(self.input_names, attrs.data, strict=True)
            if DEFAULT in entry.data
        }

    def walk(self) -> Iterable[Operation]:
        """All ops, nested ones included, functions too."""
        return self.op.walk()

    # Metadata

    @property
    def graph_name(self) -> str:
        """The main graph's name."""
        attr = self.func.attributes.get(GRAPH)
        return "" if attr is None else text_of(attr)

    @graph_name.setter
    def graph_name(self, name: str) -> None:
        self.func.attributes[GRAPH] = string(name)

    @property
    def ir_version(self) -> int:
        """The version of the ONNX file format that the module came in, or is to be written in."""
        attr = self.op.attributes.get(IR_VERSION)
        return cast("IntegerAttr[Any]", attr).value.data if attr is not None else 10

    @ir_version.setter
    def ir_version(self, version: int) -> None:
        self.op.attributes[IR_VERSION] = int_attr(version)

    @property
    def opsets(self) -> dict[str, int]:
        """The opset per domain that the module is saved at by default."""
        attr = self.op.attributes.get(OPSETS)
        if attr is None:
            return {}
        pairs = cast("ArrayAttr[ArrayAttr[Attribute]]", attr).data
        return {text_of(pair.data[0]): cast("IntegerAttr[Any]", pair.data[1]).value.data for pair in pairs}

    @opsets.setter
    def opsets(self, opsets: Mapping[str, int]) -> None:
        self.op.attributes[OPSETS] = ArrayAttr([ArrayAttr([string(d), int_attr(v)]) for d, v in opsets.items()])

    # Whole modules

    def clone(self) -> Module:
        """A copy that shares types, attributes and constants, and nothing that can change."""
        with paused_gc():
            return Module(cast(ModuleOp, _copy(self.op, {})), self.ctx)

    def verify(self) -> Module:
        """Checks every rule of the IR; returns the module.

        Raises:
            VerifyError: naming the op, where it came from, what was expected and what was found.
        """
        verify(self.op)
        return self

    def text(self, **options: Any) -> str:
        """The module as MLIR text; see ``irkit.ir.text.print_module`` for the options."""
        return cast(str, importlib.import_module("irkit.ir.text").print_module(self, **options))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<irkit.Module '{self.graph_name}': {len(self.inputs)} inputs, {len(self.outputs)} outputs>"

    def __eq__(self, other: object) -> bool:
        """Whether both say the same: ops, order, types, attributes, names and constants; locations aside."""
        if not isinstance(other, Module):
            return NotImplemented
        return cast(bool, importlib.import_module("irkit.ir.compare").same(self.op, other.op))

    __hash__ = object.__hash__

    def to_onnx(self, opset: int | Mapping[str, int] | None = None, **options: Any) -> onnx.ModelProto:
        """The module as an ONNX model; see ``irkit.backends.onnx.export`` for the options."""
        return cast("onnx.ModelProto", importlib.import_module("irkit.backends.onnx").export(self, opset, **options))


def _copy(op: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    """A copy of an op and of all in it; xDSL's own clone takes about twice as long."""
    made = type(op).create(
        operands=[values.get(v, v) for v in op.operands],
        result_types=[r.type for r in op.results],
        properties=op.properties,
        attributes=op.attributes,
        location=op.location,
        regions=[_copy_region(region, values) for region in op.regions],
    )
    for mine, theirs in zip(op.results, made.results, strict=True):
        theirs.name_hint = mine.name_hint
        values[mine] = theirs
    return made


def _copy_region(region: Region, values: dict[SSAValue, SSAValue]) -> Region:
    made = Region()
    for block in region.blocks:
        copy = Block(arg_types=[arg.type for arg in block.args])
        for mine, theirs in zip(block.args, copy.args, strict=True):
            theirs.name_hint = mine.name_hint
            theirs.location = mine.location
            values[mine] = theirs
        for op in block.ops:
            copy.add_op(_copy(op, values))
        made.add_block(copy)
    return made


def _names(attrs: ArrayAttr[DictionaryAttr] | None, count: int, fallback: str) -> list[str]:
    entries = arg_entries(attrs, count)
    return [text_of(entry[NAME]) if NAME in entry else f"{fallback}{i}" for i, entry in enumerate(entries)]


def verify(module: ModuleOp) -> None:
    """Checks every op's own rules, that blocks end in terminators, and that each value is defined before its uses.

    Done by one walk: xDSL's own verifier checks no dominance, and on an error prints the whole module.
    """
    _verify_block_ops(module, set())


def _verify_block_ops(op: Operation, visible: set[SSAValue]) -> None:
    for region in op.regions:
        for block in region.blocks:
            added: list[SSAValue] = list(block.args)
            visible.update(added)
            for inner in block.ops:
                for index, operand in enumerate(inner.operands):
                    if operand not in visible:
                        raise _error(inner, f"operand {index} is used before it is defined, or outside its region")
                try:
                    # A function's own verifier walks all of it once more for what this walk checks anyway.
                    if not isinstance(inner, FuncOp):
                        inner.verify_()
                except VerifyException as error:
                    raise _error(inner, str(error)) from None
                if inner.regions:
                    isolated = inner.has_trait(IsolatedFromAbove)
                    _verify_block_ops(inner, set() if isolated else visible)
                added.extend(inner.results)
                visible.update(inner.results)
            last = block.last_op
            if not isinstance(op, ModuleOp) and (last is None or not last.has_trait(IsTerminator)):
                raise _error(op, "a region of it does not end in onnx.Yield or func.return")
            visible.difference_update(added)
    if isinstance(op, FuncOp):
        _verify_signature(op)


def _verify_signature(func: FuncOp) -> None:
    last = func.body.block.last_op
    if not isinstance(last, ReturnOp):
        raise _error(func, "the main graph does not end in func.return")
    taken, found = func.function_type.inputs.data, tuple(arg.type for arg in func.body.block.args)
    if taken != found:
        raise _error(func, f"it is declared to take {_list(taken)}, but takes {_list(found)}")
    declared, found = func.function_type.outputs.data, tuple(v.type for v in last.operands)
    if declared != found:
        raise _error(func, f"it is declared to return {_list(declared)}, but returns {_list(found)}")
    names = _names(func.arg_attrs, len(func.body.block.args), "arg")
    double = {n for n in names if names.count(n) > 1} if len(set(names)) != len(names) else None
    if double:
        raise _error(func, f"two inputs have the name '{min(double)}'")
    for arg in func.body.block.args:
        if isinstance(arg.type, NoneType):
            raise _error(func, "an input cannot be of type none")


def _list(types: Iterable[Attribute]) -> str:
    return f"({', '.join(str(t) for t in types)})"


def _error(op: Operation, message: str) -> VerifyError:
    name = op.attributes.get(NAME)
    where = describe(op.location) or (f"node '{text_of(name)}'" if isinstance(name, StringAttr) else "")
    return VerifyError(message, op=op.name, where=where)
