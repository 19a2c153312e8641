"""Parsing modules: our own line layout by one regular expression a line, everything else by xDSL's parser.

The layout is what ``print_module`` prints. Texts of types, signatures and attributes are looked up in tables, so that
each is parsed once. A text in any other layout (aliases, ``%0:2`` results, forward references, custom forms of other
dialects) is read from its beginning by xDSL's parser; both give equal modules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    BytesAttr,
    FileLineColLoc,
    FloatAttr,
    FunctionType,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnitAttr,
    UnregisteredOp,
    f32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, ParserState
from xdsl.utils.exceptions import ParseError as XdslParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from irkit.errors import ParseError, VerifyError
from irkit.ir.attributes import int_attr, unchecked
from irkit.ir.constants import ConstantData, TensorAttr, decode_base64, resolve_digest, resolving
from irkit.ir.location import node_location
from irkit.ir.memory import paused_gc
from irkit.ir.module import Module
from irkit.ir.names import hint
from irkit.ir.types import intern, scalar_dims, tensor_info

__all__ = ["MAX_DEPTH", "parse_module"]

MAX_DEPTH = 100
"""Regions nested more deeply than this are refused."""

MAX_BRACKETS = 200
"""Texts that xDSL's parser is to read may have brackets nested this deeply: it takes the call stack for each."""

_Found = TypeVar("_Found")


def parse_module(
    text: str,
    ctx: Context,
    *,
    file: str = "",
    constants: Mapping[str, ConstantData] | None = None,
) -> Module:
    """The module that a text says.

    Args:
        file: the file's name, for messages.
        constants: those that the text names by their digests; others are looked for in this process.

    Raises:
        ParseError: with the place and what was expected there.
    """
    with paused_gc(), resolving(constants or {}):
        try:
            try:
                op = _LineParser(text, ctx, file).parse()
            except _OtherLayout:
                op = _parse_any(text, ctx, file)
        except VerifyError as error:
            # A type that no tensor can have.
            raise ParseError(error.message, where=file, hint=error.hint) from None
    return Module(op, ctx)


# Any layout, by xDSL's parser


class _OtherLayout(Exception):
    """The text is not as we print it; it may be right all the same."""


class _Lexer(MLIRLexer):
    """xDSL's lexer, whose own pattern takes exponential time on a string that never ends."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class _AnyParser(Parser):
    """xDSL's parser, which also reads the spellings of locations that xDSL prints but does not read."""

    def __init__(self, ctx: Context, text: str) -> None:
        super().__init__(ctx, "")
        self._parser_state = ParserState(_Lexer(Input(text, "<unknown>")))

    def _parse_location(self) -> LocationAttr:
        found = self.parse_optional_attribute() if self._current_token.kind in _STRINGS else None
        if isinstance(found, StringAttr | BytesAttr):
            if self.parse_optional_punctuation(":") is not None:
                line = self.parse_integer(False, False)
                self.parse_punctuation(":")
                column = self.parse_integer(False, False)
                return unchecked(FileLineColLoc, filename=found, line=IntAttr(line), column=IntAttr(column))
            place: Attribute = NoneAttr()
            if self.parse_optional_punctuation("(") is not None:
                place = self._parse_location()
                self.parse_punctuation(")")
            return unchecked(NameLoc, desc=found, location=place)
        if self.parse_optional_keyword("fused") is not None:
            metadata: Attribute = NoneAttr()
            if self.parse_optional_punctuation("<") is not None:
                metadata = self.parse_attribute()
                self.parse_punctuation(">")
            places = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
            return unchecked(FusedLoc, locations=ArrayAttr(places), metadata=metadata)
        return super()._parse_location()

    def expect_end(self) -> None:
        """Raises an error unless everything has been read."""
        if self._current_token.kind != MLIRTokenKind.EOF:
            self.raise_error("expected the end here")


_MESSAGES = {
    "in block definition": "expected an operation, a block or the end of the region",
    "Could not parse entire input!": "expected an operation",
}
"""What some messages of xDSL's mean."""

_STRINGS = (MLIRTokenKind.STRING_LIT, MLIRTokenKind.BYTES_LIT)


def _read(text: str, ctx: Context, what: Callable[[_AnyParser], _Found], where: Callable[[int], str]) -> _Found:
    """What xDSL's parser finds in the text, all of which it must read; whatever it raises comes as one error of ours.

    Args:
        where: turns an offset in the text into a place to name.
    """
    parser: _AnyParser | None = None
    try:
        parser = _AnyParser(ctx, text)
        found = what(parser)
        parser.expect_end()
        return found
    except XdslParseError as error:
        message = _MESSAGES.get(error.msg.strip(), error.msg.strip())
        raise ParseError(message, where=where(error.span.start)) from None
    except ParseError as error:
        raise ParseError(error.message, where=where(parser.pos if parser else 0), hint=error.hint) from None
    except RecursionError:
        raise ParseError("brackets are nested too deeply", where=where(parser.pos if parser else 0)) from None
    except Exception as error:  # The constructors of attributes raise what they like.
        message = str(error).partition("\n")[0] or type(error).__name__
        raise ParseError(message, where=where(parser.pos if parser else 0)) from None


def _parse_any(text: str, ctx: Context, file: str) -> ModuleOp:
    def where(offset: int) -> str:
        start = text.rfind("\n", 0, offset) + 1
        return _place(file, text.count("\n", 0, start) + 1, offset - start + 1)

    depth = 0
    for token in _BRACKETS.finditer(text):
        if token[1]:
            depth += 1
            if depth > MAX_BRACKETS:
                message = f"brackets are nested more than {MAX_BRACKETS} deep, or {MAX_DEPTH} regions"
                raise ParseError(message, where=where(token.start()))
        elif token[2]:
            depth -= 1
    module = _read(text, ctx, lambda parser: parser.parse_module(), where)
    for op in module.walk():
        for value in op.results:
            _settle(value)
        for region in op.regions:
            for block in region.blocks:
                for value in block.args:
                    _settle(value)
    return module


def _place(file: str, line: int, column: int) -> str:
    return f"{file or '<text>'}:{line}:{column}"


def _settle(value: SSAValue) -> None:
    """Gives a value that xDSL's parser made the interned type, and a hint without counters."""
    value._type = _interned(value.type)  # pyright: ignore[reportPrivateUsage]
    if value.name_hint is not None:
        value.name_hint = hint(value.name_hint)


def _interned(value_type: Attribute) -> Attribute:
    made = intern(value_type)
    # Interning keeps what the type says in irkit; someone else's encoding may say more.
    return made if made == value_type else value_type


# Our own layout, by lines

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN = r"[^-\"\[\](){}<>]++|->?+"


def _nested(depth: int) -> str:
    inside = rf"|[\[(<{{]{_nested(depth - 1)}[\])>}}]" if depth else ""
    return rf"(?:{_PLAIN}|{_STRING}{inside})*+"


_INSIDE = _nested(5)
_ATTRIBUTE = rf"(?:[^-\"\[\](){{}}<>,]++|->?+|{_STRING}|[\[(<{{]{_INSIDE}[\])>}}])++"
_TYPE = rf"(?:[^\"\[\](){{}}<>, ]++|<{_INSIDE}>)++"
_TYPES = rf"{_TYPE}(?:, {_TYPE})*+"
_KEY = rf"(?:[A-Za-z_][\w$.]*+|{_STRING})"
_ENTRY = rf"{_KEY}(?: = {_ATTRIBUTE})?+"
_ENTRIES = rf"{_ENTRY}(?:, {_ENTRY})*+"
_VALUE = r"%(?:\d++|[A-Za-z$._-][\w$.-]*+)"
_VALUES = rf"{_VALUE}(?:, {_VALUE})*+"

_OP = re.compile(
    rf' *+(?:({_VALUES}) = )?+"([^"\\]++)"\(({_VALUES})?+\)(?: <\{{({_ENTRIES})\}}>)?+'
    rf"(?: (\(\{{)$|(?: \{{({_ENTRIES})\}})?+ : (.*))",
    re.ASCII,
).match
_CLOSE_OP = re.compile(rf" *+\}}\)(?: \{{({_ENTRIES})\}})?+ : (.*)", re.ASCII).match
_RETURN = re.compile(rf" *+func\.return(?: ({_VALUES}) : ({_TYPES}))?+( loc\(.*)?", re.ASCII).fullmatch
_LABEL = re.compile(r" *+\^bb0(?:\((.*)\))?:").fullmatch
_CLOSE = re.compile(r" *+\}( loc\(.*)?").fullmatch
_LABEL_ARG = re.compile(rf"({_VALUE}): ({_TYPE})(?: (loc\({_INSIDE}\)))?+(?:, |$)", re.ASCII).match
_SIGNATURE = re.compile(rf"(\((?:{_TYPES})?+\) -> (?:{_TYPE}|\((?:{_TYPES})?+\)))(?: (loc\(.*))?").fullmatch
_ARG_NAMES = re.compile(rf"{_STRING}|({_VALUE}): ", re.ASCII).finditer
_EACH_ENTRY = re.compile(rf"({_KEY})(?: = ({_ATTRIBUTE}))?+(?:, |$)", re.ASCII).findall
_EACH_TYPE = re.compile(rf"({_TYPE})(?:, |$)").findall
_BRACKETS = re.compile(rf"{_STRING}|//[^\n]*+|->|([\[({{<])|([\])}}>])")

_STRING_LIST = re.compile(r'\["[^"\\]*+"(?:, "[^"\\]*+")*+\]').fullmatch
_NUMBER = re.compile(r"(-?\d{1,20}(\.\d+(?:[eE][-+]?\d+)?)?) : (?(2)f32|i64)", re.ASCII).fullmatch
_TENSOR = re.compile(
    r"#onnx\.tensor<(tensor<[^<>]*>), (?:\[([-+.\dex, ]+)\]|digest \"([^\"\\]*)\"|\"([^\"\\]*)\")>", re.ASCII
).fullmatch
_NODE = re.compile(r'loc\("([^"\\]*)"\("([^"\\]*)":(\d+):0\)\)', re.ASCII).fullmatch

MEMOISED = 200
"""Longer texts of attributes are parsed each time: they hardly come twice."""


class _Frame:
    """A module, function or op whose regions are being read."""

    __slots__ = ("block", "defined", "head", "line", "op", "region", "regions")

    def __init__(self, op: Operation | None, region: Region, line: int, head: tuple[Any, ...] = ()) -> None:
        self.op = op
        self.head = head
        self.line = line
        self.region = region
        self.regions: list[Region] = []
        self.block: Block | None = region.first_block
        self.defined: list[str] = []


class _LineParser:
    """Reads text in our own layout; raises ``_OtherLayout`` where it is not."""

    def __init__(self, text: str, ctx: Context, file: str) -> None:
        self.lines = text.split("\n")
        self.ctx = ctx
        self.file = file
        self.line = 0
        self.module: ModuleOp | None = None
        self.frames: list[_Frame] = []
        self.scope: dict[str, SSAValue] = {}
        self.classes: dict[str, tuple[type[Operation], tuple[str, ...]]] = {}
        self.types: dict[str, Attribute] = {}
        self.type_lists: dict[str, tuple[Attribute, ...]] = {}
        self.signatures: dict[str, tuple[tuple[Attribute, ...], tuple[Attribute, ...]]] = {}
        self.attributes: dict[str, Attribute] = {}
        self.dictionaries: dict[str, dict[str, Attribute]] = {}

    def parse(self) -> ModuleOp:
        """The module.

        Raises:
            ParseError: where a line is as we print it, but wrong.
            _OtherLayout: where it is not.
        """
        for number, line in enumerate(self.lines, 1):
            self.line = number
            found = _OP(line)
            if found is None:
                self._structure(line)
                continue
            if not self.frames:
                raise _OtherLayout
            results, name, operands, properties, opens, attributes, rest = found.groups()
            cls = self.classes.get(name) or self._class(name)
            values = self._operands(operands) if operands else ()
            made = self._dictionary(properties) if properties else {}
            if opens:
                self._open(_Frame(None, Region(), self.line, (cls, results, values, made)))
            else:
                self._add(cls, results, values, made, attributes, rest, ())
        if self.frames or self.module is None:
            raise _OtherLayout
        return self.module

    # Lines

    def _structure(self, line: str) -> None:
        text = line.strip(" ")
        frames = self.frames
        if text == "}, {" and frames and frames[-1].op is None:
            frame = self._leave()
            frame.regions.append(frame.region)
            frame.region, frame.block = Region(), None
        elif text.startswith("})") and frames and frames[-1].op is None:
            self._close_op(line)
        elif text.startswith("^") and frames and frames[-1].block is None:
            self._label(line)
        elif text.startswith("func.return") and frames:
            self._return(line)
        elif text.startswith("}") and frames and frames[-1].op is not None:
            self._close(line)
        elif text.startswith("func.func ") and text.endswith("{") and frames:
            self._open_function(line, text)
        elif text.startswith("builtin.module ") and text.endswith("{") and not frames and self.module is None:
            self.module = cast(ModuleOp, self._header(line, text))
            self._open(_Frame(self.module, self.module.body, self.line))
        elif text or frames:
            raise _OtherLayout

    def _open(self, frame: _Frame) -> None:
        self.frames.append(frame)
        if len(self.frames) > MAX_DEPTH:
            raise ParseError(f"regions are nested more than {MAX_DEPTH} deep", where=_place(self.file, self.line, 1))

    def _leave(self) -> _Frame:
        """Ends the region that is being read: its values are known no longer."""
        frame = self.frames[-1]
        for name in frame.defined:
            del self.scope[name]
        frame.defined = []
        return frame

    def _close_op(self, line: str) -> None:
        found = _CLOSE_OP(line)
        if found is None:
            raise _OtherLayout
        frame = self._leave()
        self.frames.pop()
        cls, results, values, properties = frame.head
        self._add(cls, results, values, properties, found[1], found[2], (*frame.regions, frame.region))

    def _close(self, line: str) -> None:
        found = _CLOSE(line)
        if found is None:
            raise _OtherLayout
        op = cast(Operation, self._leave().op)
        self.frames.pop()
        if found[1]:
            op.location = self._location(found[1][1:])

    def _header(self, line: str, text: str) -> Operation:
        """The op that this line opens, read by xDSL's parser as if nothing stood in it."""
        column = line.index(text)
        return _read(
            f"{text}\n}}",
            self.ctx,
            lambda parser: parser.parse_operation(),
            lambda offset: _place(self.file, self.line, column + min(offset, len(text)) + 1),
        )

    def _open_function(self, line: str, text: str) -> None:
        op = self._header(line, text)
        if not isinstance(op, FuncOp):
            raise _OtherLayout
        self._block().add_op(op)
        frame = _Frame(op, op.body, self.line)
        self._open(frame)
        if frame.block is None:
            return
        names = [found[1] for found in _ARG_NAMES(text) if found[1]]
        if len(names) != len(frame.block.args):
            raise _OtherLayout
        for name, value in zip(names, frame.block.args, strict=True):
            value._type = _interned(value.type)  # pyright: ignore[reportPrivateUsage]
            self._define(name, value)
        outputs = [_interned(output) for output in op.function_type.outputs.data]
        op.properties["function_type"] = FunctionType.from_lists([arg.type for arg in frame.block.args], outputs)

    def _label(self, line: str) -> None:
        found = _LABEL(line)
        if found is None:
            raise _OtherLayout
        block = self._block()
        text, position = found[1] or "", 0
        while position < len(text):
            arg = _LABEL_ARG(text, position)
            if arg is None:
                raise _OtherLayout
            value = block.insert_arg(self._type(arg[2]), len(block.args))
            if arg[3]:
                value.location = self._location(arg[3])
            self._define(arg[1], value)
            position = arg.end()

    def _return(self, line: str) -> None:
        found = _RETURN(line)
        if found is None:
            raise _OtherLayout
        values: Sequence[SSAValue] = ()
        if found[1]:
            values = self._operands(found[1])
            self._check("func.return", values, self._types(found[2]))
        location = self._location(found[3][1:]) if found[3] else None
        self._block().add_op(ReturnOp.create(operands=values, location=location))

    # Ops and values

    def _block(self) -> Block:
        """The block that is being read; a region that has none yet gets it."""
        frame = self.frames[-1]
        block = frame.block
        if block is None:
            block = frame.block = Block()
            frame.region.add_block(block)
        return block

    def _add(
        self,
        cls: tuple[type[Operation], tuple[str, ...]],
        results: str | None,
        operands: Sequence[SSAValue],
        properties: dict[str, Attribute],
        attributes: str | None,
        rest: str,
        regions: Sequence[Region],
    ) -> None:
        place = ""
        signature = self.signatures.get(rest)
        if signature is None:
            head, _, tail = rest.partition(" loc(")
            signature = self.signatures.get(head)
            if signature is None:
                found = _SIGNATURE(rest)
                if found is None:
                    raise _OtherLayout
                signature, place = self._signature(found[1]), found[2]
            else:
                place = f"loc({tail}"
        op_class, own = cls
        others = self._dictionary(attributes) if attributes else {}
        for name in own:
            # As xDSL reads the attributes of an op made by IRDL.
            if name in others and name not in properties:
                others = others.copy()
                properties = {**properties, name: others.pop(name)}
        self._check(op_class.name, operands, signature[0])
        op = op_class.create(
            operands=operands,
            result_types=signature[1],
            properties=properties,
            attributes=others,
            location=self._location(place) if place else UNKNOWN_LOC,
            regions=regions,
        )
        self._block().add_op(op)
        if results:
            names = results.split(", ")
            if len(names) != len(op.results):
                self._error(f"{op.name} has {len(op.results)} results, but {len(names)} are named", results)
            for name, value in zip(names, op.results, strict=True):
                self._define(name, value)

    def _check(self, name: str, operands: Sequence[SSAValue], types: tuple[Attribute, ...]) -> None:
        found = tuple([value.type for value in operands])
        if found == types:
            return
        if len(found) != len(types):
            self._error(f"{name} has {len(found)} operands, but {len(types)} types")
        index = next(i for i, pair in enumerate(zip(found, types, strict=True)) if pair[0] != pair[1])
        self._error(f"operand {index} of {name} is {found[index]}, but is used as {types[index]}")

    def _define(self, name: str, value: SSAValue) -> None:
        if name in self.scope:
            self._error(f"{name} is defined already", name)
        self.scope[name] = value
        self.frames[-1].defined.append(name)
        if not name[-1].isdigit():
            value._name = name[1:]  # pyright: ignore[reportPrivateUsage]
        else:
            # All counters go: xDSL drops one of them, so that a second print would differ from the first.
            value._name = None if name[1].isdigit() else hint(name[1:])  # pyright: ignore[reportPrivateUsage]

    def _operands(self, text: str) -> list[SSAValue]:
        scope = self.scope
        try:
            return [scope[name] for name in text.split(", ")]
        except KeyError:
            # Perhaps it is defined further below.
            raise _OtherLayout from None

    def _class(self, name: str) -> tuple[type[Operation], tuple[str, ...]]:
        cls = self.ctx.get_optional_op(name)
        if cls is None:
            self._error(f"there is no op '{name}'", f'"{name}"')
        if issubclass(cls, UnregisteredOp):
            raise _OtherLayout
        own = tuple(cls.get_irdl_definition().properties) if issubclass(cls, IRDLOperation) else ()
        found = self.classes[name] = (cls, own)
        return found

    # Types and attributes

    def _error(self, message: str, at: str = "", advice: str = "") -> NoReturn:
        column = max(self.lines[self.line - 1].find(at), 0) + 1
        raise ParseError(message, where=_place(self.file, self.line, column), hint=advice)

    def _snippet(self, text: str, what: Callable[[_AnyParser], _Found]) -> _Found:
        column = max(self.lines[self.line - 1].find(text), 0) + 1
        return _read(text, self.ctx, what, lambda offset: _place(self.file, self.line, column + offset))

    def _type(self, text: str) -> Attribute:
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = _interned(self._snippet(text, lambda parser: parser.parse_type()))
        return found

    def _types(self, text: str) -> tuple[Attribute, ...]:
        found = self.type_lists.get(text)
        if found is None:
            found = self.type_lists[text] = tuple([self._type(part) for part in _EACH_TYPE(text)])
        return found

    def _signature(self, text: str) -> tuple[tuple[Attribute, ...], tuple[Attribute, ...]]:
        made = self._snippet(text, lambda parser: parser.parse_function_type())
        inputs, outputs = ([_interned(t) for t in types.data] for types in (made.inputs, made.outputs))
        found = self.signatures[text] = (tuple(inputs), tuple(outputs))
        return found

    def _dictionary(self, text: str) -> dict[str, Attribute]:
        found = self.dictionaries.get(text)
        if found is None:
            found = dict[str, Attribute]()
            for key, value in _EACH_ENTRY(text):
                name = key if key[0] != '"' else self._snippet(key, lambda parser: parser.parse_str_literal())
                if name in found:
                    self._error(f"the attribute '{name}' stands there twice", key)
                found[name] = (self.attributes.get(value) or self._attribute(value)) if value else UnitAttr()
            if len(text) <= MEMOISED:
                self.dictionaries[text] = found
        return found

    def _attribute(self, text: str) -> Attribute:
        first = text[0]
        found: Attribute | None = None
        if first == '"':
            if "\\" not in text and text.isascii() and text.count('"') == 2:
                return unchecked(StringAttr, data=text[1:-1])
        elif first == "[":
            if _STRING_LIST(text) and text.isascii():
                items = [unchecked(StringAttr, data=item) for item in text[2:-2].split('", "')]
                return unchecked(ArrayAttr, data=tuple(items))
        elif first == "#":
            read = _TENSOR(text)
            if read is not None:
                found = self._tensor(*read.groups())
        else:
            read = _NUMBER(text)
            if read is not None:
                if read[2]:
                    found = FloatAttr(float(read[1]), f32)
                elif -(1 << 63) <= int(read[1]) < 1 << 63:
                    found = int_attr(int(read[1]))
        if found is None:
            found = self._snippet(text, lambda parser: parser.parse_attribute())
        if len(text) <= MEMOISED:
            self.attributes[text] = found
        return found

    def _tensor(self, type_text: str, literals: str | None, digest: str | None, base64: str | None) -> Attribute | None:
        """A constant in one of the usual forms; None where the general way must look at it."""
        value_type = self._type(type_text)
        info, shape = tensor_info(value_type), scalar_dims(value_type)
        if info is None or shape is None:
            return None
        kind = info.dtype
        try:
            if digest is not None:
                return TensorAttr.of(resolve_digest(digest, kind, shape))
            if base64 is not None:
                return TensorAttr.of(decode_base64(base64, kind, shape)) if kind.kind != "string" else None
        except ParseError as error:
            self._error(error.message, type_text, error.hint)
        items = cast(str, literals).split(", ")
        if len(items) != math.prod(shape):
            return None
        try:
            if kind.is_integer:
                low, high = (-(1 << kind.bits - 1), 1 << kind.bits - 1) if kind.kind == "int" else (0, 1 << kind.bits)
                integers = [int(item) for item in items]
                if low <= min(integers) and max(integers) < high:
                    wide = np.array(integers, np.int64 if kind.kind == "int" else np.uint64)
                    return TensorAttr.of(ConstantData(kind, shape, wide.astype(kind.numpy).reshape(shape)))
            elif kind.is_float:
                floats = np.array([float(item) for item in items], np.float64)
                return TensorAttr.of(ConstantData(kind, shape, floats.astype(kind.numpy).reshape(shape)))
        except ValueError:
            pass  # Hexadecimal ones, or something that the general way has a message for.
        return None

    def _location(self, text: str) -> LocationAttr:
        read = _NODE(text)
        if read is not None and read[1] and text.isascii() and len(read[3]) < 19:
            return node_location(read[2], read[1], int(read[3]))
        found = self.attributes.get(text)
        if found is None:
            found = self.attributes[text] = cast(
                Attribute, self._snippet(text, lambda parser: parser.parse_optional_location())
            )
        return cast(LocationAttr, found)
