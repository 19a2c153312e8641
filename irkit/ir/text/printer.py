"""Printing modules: xDSL's printer, with each attribute's text made once and each op's text built as one string."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any, Literal, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FileLineColLoc,
    FunctionType,
    IntegerAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnitAttr,
    UnknownLoc,
    UnregisteredOp,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove

from irkit.errors import IrkitError
from irkit.ir.constants import ConstantData, TensorAttr, TextOptions, payload_text, text_options
from irkit.ir.module import Module
from irkit.ir.names import hint

__all__ = ["ModulePrinter", "print_module"]

_PLAIN = re.compile(r"[ !#-\[\]-~]*").fullmatch
_IDENTIFIER = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII).fullmatch


def print_module(
    module: Module,
    *,
    constants: Literal["digest", "inline", "elide"] = "digest",
    inline_bytes: int = 1024,
    literals: int = 16,
    locations: bool = False,
    sidecar: Callable[[ConstantData], None] | None = None,
) -> str:
    """The module as MLIR text.

    Args:
        constants: how those are written that are neither splats nor small: by digest, in full, or not at all.
        inline_bytes: constants of at most so many bytes count as small.
        literals: constants of at most so many elements are written element by element.
        locations: whether to write where each op came from.
        sidecar: called with each constant that is written by its digest.

    Raises:
        IrkitError: if regions or attributes are nested too deeply to print.
    """
    stream = StringIO()
    with text_options(TextOptions(literals, inline_bytes, constants, sidecar)):
        try:
            ModulePrinter(stream, print_debuginfo=locations).print_op(module.op)
        except RecursionError:
            raise IrkitError("the module is nested too deeply to be printed", hint="inline its subgraphs") from None
    return stream.getvalue()


class ModulePrinter(Printer):
    """Prints what xDSL's printer prints. One printer is for one print: it goes by the identity of what it has seen.

    The one difference: where xDSL would give two values one name (hints ``a``, ``a`` and ``a_1``), the second gets
    another counter; a hint that MLIR's lexer would refuse is made to fit.
    """

    def __init__(self, stream: StringIO, print_debuginfo: bool = False) -> None:
        super().__init__(stream, print_debuginfo=print_debuginfo)
        self._names: dict[int, str] = {}
        self._taken: list[set[str]] = [set()]
        self._texts: dict[int, str] = {}
        self._kept: list[Attribute] = []
        self._keys: dict[str, str] = {}
        self._generic: dict[type[Operation], bool] = {}

    # Attributes

    def text(self, attribute: Attribute) -> str:
        """The text of an attribute or type."""
        found = self._texts.get(id(attribute))
        if found is None:
            write = _WRITERS.get(type(attribute))
            found = str(attribute) if write is None else write(self, attribute)
            self._texts[id(attribute)] = found
            # An id stands for one object only as long as the object lives.
            self._kept.append(attribute)
        return found

    def print_attribute(self, attribute: Attribute) -> None:
        self.print_string(self.text(attribute))

    def _entries(self, entries: Mapping[str, Attribute]) -> str:
        texts, parts = self._texts, list[str]()
        for name, attribute in entries.items():
            key = self._keys.get(name) or self._key(name)
            if isinstance(attribute, UnitAttr):
                parts.append(key)
            else:
                parts.append(f"{key} = {texts.get(id(attribute)) or self.text(attribute)}")
        return ", ".join(parts)

    def _key(self, name: str) -> str:
        found = self._keys[name] = name if _IDENTIFIER(name) else str(StringAttr(name))
        return found

    def _types(self, values: Sequence[SSAValue]) -> str:
        texts = self._texts
        return ", ".join([texts.get(id(v.type)) or self.text(v.type) for v in values])

    # Names

    def enter_scope(self) -> None:
        super().enter_scope()
        self._taken.append(self._taken[-1].copy())

    def exit_scope(self) -> None:
        super().exit_scope()
        self._taken.pop()

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self._names.get(id(value)) or self._name(value)
        self.print_string(name)
        return name[1:]

    def _name(self, value: SSAValue) -> str:
        wanted = value.name_hint
        if wanted and not wanted.isascii():
            wanted = hint(wanted)
        if wanted:
            taken, counters = self._taken[-1], self.ssa_names
            count = counters.get(wanted, 0)
            name = f"%{wanted}_{count}" if count else f"%{wanted}"
            while name in taken:
                count += 1
                name = f"%{wanted}_{count}"
            counters[wanted] = count + 1
            taken.add(name)
        else:
            name = f"%{self._get_new_valid_name_id()}"
        self._names[id(value)] = name
        return name

    # Ops

    def print_op(self, op: Operation) -> None:
        generic = self._generic.get(type(op))
        if generic is None:
            generic = self._generic[type(op)] = _is_plain(type(op))
        if not generic or op.successors:
            super().print_op(op)
            return
        names = self._names
        operands = ", ".join([names.get(id(v)) or self._name(v) for v in op.operands])
        results = op.results
        if results:
            # In this order, as xDSL does: results are named before operands that come later in the text.
            left = ", ".join([names.get(id(v)) or self._name(v) for v in results])
            text = f'{left} = "{op.name}"({operands})'
        else:
            text = f'"{op.name}"({operands})'
        if op.properties:
            text += f" <{{{self._entries(op.properties)}}}>"
        if op.regions:
            self.print_string(text)
            self.print_regions(op.regions)
            text = ""
        if op.attributes:
            text += f" {{{self._entries(op.attributes)}}}"
        text += f" : ({self._types(op.operands)}) -> "
        if len(results) == 1 and not isinstance(results[0].type, FunctionType):
            text += self._types(results)
        else:
            text += f"({self._types(results)})"
        if self.print_debuginfo:
            text += f" {self.text(op.location)}"
        self.print_string(text)


def _is_plain(cls: type[Operation]) -> bool:
    """Whether ops of this class print in generic form and open no scope of names."""
    return (
        cls.print is Operation.print
        and not issubclass(cls, UnregisteredOp)
        and not cls.has_trait(IsolatedFromAbove, value_if_unregistered=False)
    )


def _string(printer: ModulePrinter, attribute: StringAttr) -> str:
    return f'"{attribute.data}"' if _PLAIN(attribute.data) else str(attribute)


def _integer(printer: ModulePrinter, attribute: IntegerAttr[Any]) -> str:
    return f"{attribute.value.data} : i64" if attribute.type == i64 else str(attribute)


def _array(printer: ModulePrinter, attribute: ArrayAttr[Attribute]) -> str:
    return f"[{', '.join([printer.text(item) for item in attribute.data])}]"


def _dense_array(printer: ModulePrinter, attribute: DenseArrayBase) -> str:
    if attribute.elt_type != i64 or not len(attribute):
        return str(attribute)
    return f"array<i64: {', '.join(map(str, attribute.get_values()))}>"


def _tensor(printer: ModulePrinter, attribute: TensorAttr) -> str:
    return f"#onnx.tensor<{printer.text(attribute.type)}, {payload_text(attribute.data)}>"


def _location(printer: ModulePrinter, location: Attribute) -> str:
    return f"loc({_place(printer, location)})"


def _place(printer: ModulePrinter, location: Attribute) -> str:
    match location:
        case NameLoc():
            inside = "" if isinstance(location.location, NoneAttr) else f"({_place(printer, location.location)})"
            return printer.text(location.desc) + inside
        case FileLineColLoc():
            return f"{printer.text(location.filename)}:{location.line.data}:{location.column.data}"
        case UnknownLoc():
            return "unknown"
        case _:
            return str(location).removeprefix("loc(").removesuffix(")")


_WRITERS: dict[type[Attribute], Callable[[ModulePrinter, Any], str]] = {
    StringAttr: _string,
    IntegerAttr: _integer,
    ArrayAttr: _array,
    DenseArrayBase: _dense_array,
    TensorAttr: _tensor,
    NameLoc: _location,
    FileLineColLoc: _location,
}
