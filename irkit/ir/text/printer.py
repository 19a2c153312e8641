"""Printing modules: xDSL's printer, with each attribute's text made once and each op's text built as one string."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from typing import Any, Literal

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
        if type(attribute) is StringAttr and _PLAIN(attribute.data):
            # Nearly always the name of one node: not worth keeping.
            return f'"{attribute.data}"'
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
        texts, keys = self._texts, self._keys
        return ", ".join(
            [
                keys.get(name) or self._key(name)
                if type(attribute) is UnitAttr
                else f"{keys.get(name) or self._key(name)} = {texts.get(id(attribute)) or self.text(attribute)}"
                for name, attribute in entries.items()
            ]
        )

    def _key(self, name: str) -> str:
        found = self._keys[name] = name if _IDENTIFIER(name) else str(StringAttr(name))
        return found

    def _types(self, values: Iterable[SSAValue]) -> str:
        texts = self._texts
        return ", ".join([texts.get(id(t := v.type)) or self.text(t) for v in values])

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
        names, values, results = self._names, tuple(op.operands), op.results
        # Results are named first, as xDSL does, since their names come first in the text.
        left = ", ".join([names.get(id(v)) or self._name(v) for v in results])
        operands = ", ".join([names.get(id(v)) or self._name(v) for v in values])
        text = f'{left} = "{op.name}"({operands})' if left else f'"{op.name}"({operands})'
        if op.properties:
            text += f" <{{{self._entries(op.properties)}}}>"
        if op.regions:
            self.stream.write(text)
            self.print_regions(op.regions)
            text = ""
        if op.attributes:
            text += f" {{{self._entries(op.attributes)}}}"
        outputs = self._types(results)
        if len(results) != 1 or type(results[0].type) is FunctionType:
            outputs = f"({outputs})"
        text += f" : ({self._types(values)}) -> {outputs}"
        if self.print_debuginfo:
            text += f" {self.text(op.location)}"
        self.stream.write(text)


def _is_plain(cls: type[Operation]) -> bool:
    """Whether ops of this class print in generic form and open no scope of names."""
    return (
        cls.print is Operation.print
        and not issubclass(cls, UnregisteredOp)
        and not cls.has_trait(IsolatedFromAbove, value_if_unregistered=False)
    )


def _integer(printer: ModulePrinter, attribute: IntegerAttr[Any]) -> str:
    return f"{attribute.value.data} : i64" if attribute.type is i64 or attribute.type == i64 else str(attribute)


def _array(printer: ModulePrinter, attribute: ArrayAttr[Attribute]) -> str:
    return f"[{', '.join(map(printer.text, attribute.data))}]"


def _dense_array(printer: ModulePrinter, attribute: DenseArrayBase[Any]) -> str:
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
    IntegerAttr: _integer,
    ArrayAttr: _array,
    DenseArrayBase: _dense_array,
    TensorAttr: _tensor,
    NameLoc: _location,
    FileLineColLoc: _location,
}
