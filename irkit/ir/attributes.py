"""Python values and MLIR attributes: one form per kind of ONNX attribute, empty lists included.

=========  ==========================  =============================
kind       attribute                   Python value
=========  ==========================  =============================
INT        ``3 : i64``                 int
FLOAT      ``0.5 : f32``               float
STRING     ``"text"``                  str
TENSOR     ``#onnx.tensor<...>``       ``numpy.ndarray`` (read-only)
INTS       ``array<i64: 1, 2>``        tuple of int
FLOATS     ``#onnx.floats<[...]>``     tuple of float
STRINGS    ``["a", "b"]``              tuple of str
TYPE_PROTO the type itself             the type
others     ``#onnx.sparse/list/...``   the attribute itself
=========  ==========================  =============================
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    f32,
    i64,
)
from xdsl.ir import Attribute, TypeAttribute

from irkit.ir.constants import FloatsAttr, ListAttr, ProtoAttr, RefAttr, SparseAttr, TensorAttr, constant

__all__ = ["from_attr", "int_attr", "kind_of", "string", "strings", "text_of", "texts_of", "to_attr", "unchecked"]


def unchecked(cls: type[Attribute], **fields: Any) -> Any:
    """An attribute with these fields, unchecked.

    xDSL's constructors take microseconds to check them, those of locations tens, and refuse names that aren't ASCII.
    """
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


@cache
def int_attr(value: int) -> IntegerAttr:
    """The ``i64`` attribute; shared, since a graph has few different ones."""
    return IntegerAttr(value, i64)


@cache
def _float_attr(bits: bytes) -> FloatAttr:
    return FloatAttr(float(np.frombuffer(bits, np.float32)[0]), f32)


def string(text: str | bytes) -> StringAttr | BytesAttr:
    """The attribute for a text. ASCII gives a ``StringAttr``, else a ``BytesAttr``, which reads back as itself."""
    if isinstance(text, str):
        if text.isascii():
            return StringAttr(text)
        return BytesAttr(text.encode("utf-8", "surrogateescape"))
    return StringAttr(text.decode("ascii")) if text.isascii() else BytesAttr(text)


def text_of(attr: Attribute) -> str:
    """The text of what ``string`` made (bad UTF-8 as surrogates)."""
    if isinstance(attr, StringAttr):
        return attr.data
    return cast(BytesAttr, attr).data.decode("utf-8", "surrogateescape")


def strings(texts: Iterable[str | bytes]) -> ArrayAttr[Attribute]:
    """An array of texts."""
    return unchecked(ArrayAttr, data=tuple(string(text) for text in texts))


def texts_of(attr: Attribute) -> tuple[str, ...]:
    """The texts of what ``strings`` made."""
    return tuple(text_of(item) for item in cast("ArrayAttr[Attribute]", attr).data)


def to_attr(kind: str, value: Any) -> Attribute:
    """The attribute of this kind (``"INT"``, ``"FLOATS"``...) for a Python value.

    Raises:
        TypeError: if the value is not of that kind.
    """
    if isinstance(value, Attribute):
        return value
    match kind:
        case "INT":
            return int_attr(int(value))
        case "FLOAT":
            return _float_attr(np.float32(value).tobytes())
        case "STRING":
            return string(value)
        case "INTS":
            return DenseArrayBase.from_list(i64, [int(v) for v in value])
        case "FLOATS":
            return FloatsAttr.of(list(value))
        case "STRINGS":
            return strings(value)
        case "TENSOR":
            return constant(value)
        case _:
            raise TypeError(f"an attribute of kind {kind} cannot be made from {type(value).__name__}")


def kind_of(attr: Attribute) -> str:
    """The ONNX kind that an attribute stands for.

    Raises:
        TypeError: if it stands for none.
    """
    for kinds, name in _KINDS:
        if isinstance(attr, kinds):
            return name
    if isinstance(attr, RefAttr | ListAttr):
        return attr.kind.data
    raise TypeError(f"{attr} stands for no attribute of ONNX")


_KINDS: tuple[tuple[Any, str], ...] = (
    (IntegerAttr, "INT"),
    (FloatAttr, "FLOAT"),
    (StringAttr | BytesAttr, "STRING"),
    (TensorAttr, "TENSOR"),
    (DenseArrayBase, "INTS"),
    (FloatsAttr, "FLOATS"),
    (ArrayAttr, "STRINGS"),
    (SparseAttr, "SPARSE_TENSOR"),
    (TypeAttribute, "TYPE_PROTO"),
)


def from_attr(attr: Attribute) -> Any:
    """The Python value of an attribute (see the table above)."""
    match attr:
        case IntegerAttr():
            return attr.value.data
        case FloatAttr():
            return attr.value.data
        case StringAttr() | BytesAttr():
            return text_of(attr)
        case TensorAttr():
            return attr.array()
        case DenseArrayBase():
            return tuple(cast(Any, attr).get_values())
        case FloatsAttr():
            return attr.data
        case ArrayAttr():
            return texts_of(attr)
        case ListAttr():
            return tuple(from_attr(item) for item in attr.items.data)
        case SparseAttr() | RefAttr() | ProtoAttr() | TypeAttribute():
            return attr
        case _:
            raise TypeError(f"{attr} stands for no attribute of ONNX")
