"""The ``onnx`` dialect: all ops of ONNX's own domains, made from the official schemas."""

from __future__ import annotations

from xdsl.ir import Dialect

from irkit.dialects.onnx.classes import CLASSES, CURRENT, ONNX_OPSET, OnnxOp, op_class, versions
from irkit.dialects.onnx.structural import Call, Custom, ForeignOp, Function, Initializer, NoValue, Yield, absent
from irkit.ir.constants import FloatsAttr, ListAttr, ProtoAttr, RefAttr, SparseAttr, TensorAttr
from irkit.ir.types import (
    DimsAttr,
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    StringType,
    UnknownType,
)

__all__ = [
    "CLASSES",
    "CURRENT",
    "ONNX",
    "ONNX_OPSET",
    "Call",
    "Custom",
    "ForeignOp",
    "Function",
    "Initializer",
    "NoValue",
    "OnnxOp",
    "Yield",
    "absent",
    "op_class",
    "versions",
]

ONNX = Dialect(
    "onnx",
    [
        *(cls for made in CLASSES.values() for cls in made.values()),
        *(NoValue, Initializer, Yield, Custom, Call, Function),
    ],
    [
        *(DimsAttr, StringType, UnknownType, SeqType, OptType, MapType, SparseType, OpaqueType),
        *(TensorAttr, FloatsAttr, SparseAttr, RefAttr, ProtoAttr, ListAttr),
    ],
)
