"""A module in float64: what its results would be with next to no rounding, to tell how much error they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.errors import IrkitError
from irkit.ir.attributes import int_attr
from irkit.ir.constants import ConstantData, RefAttr, TensorAttr
from irkit.ir.dtypes import BY_CODE, BY_NUMPY, DType, dtype
from irkit.ir.module import Module
from irkit.ir.types import OptType, SeqType, intern, tensor, tensor_info

__all__ = ["widen", "widen_feeds"]

NARROW = ("float16", "bfloat16", "float32")
WIDE = "float64"
TYPE_CODES = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that hold the code of an element type."""


def _narrow(kind: DType | None) -> bool:
    return kind is not None and kind.name in NARROW


def widen(module: Module) -> Module | None:
    """A copy of a module in which every float is a float64; None where some op does not take that."""
    made = module.clone()
    for op in made.walk():
        for result in op.results:
            _retype(result)
        for region in op.regions:
            for block in region.blocks:
                for arg in block.args:
                    _retype(arg)
        for table in (op.properties, op.attributes):
            for name, attr in list(table.items()):
                table[name] = _attribute(attr)
        if isinstance(op, OnnxOp):
            for name in TYPE_CODES:
                code = op.properties.get(name)
                if isinstance(code, RefAttr):
                    # Which type it is depends on the call.
                    return None
                found = BY_CODE.get(cast(Any, code).value.data) if code is not None else None
                if _narrow(found):
                    op.properties[name] = int_attr(dtype(WIDE).code)
    for op in made.op.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            last = op.body.block.last_op
            outputs = [] if last is None else [v.type for v in last.operands]
            op.properties["function_type"] = FunctionType.from_lists([a.type for a in op.body.block.args], outputs)
    try:
        return made.verify()
    except IrkitError:
        return None


def _retype(value: SSAValue) -> None:
    cast(Any, value)._type = _type(value.type)


def _type(value_type: Attribute) -> Attribute:
    info = tensor_info(value_type)
    if info is not None:
        return tensor(WIDE, info.shape) if _narrow(info.dtype) else value_type
    if isinstance(value_type, SeqType | OptType):
        return intern(type(value_type)(_type(value_type.element)))
    return value_type


def _attribute(attr: Attribute) -> Attribute:
    match attr:
        case TensorAttr() if _narrow(attr.data.dtype):
            data = attr.data
            return TensorAttr.of(ConstantData(dtype(WIDE), data.shape, data.stored().astype(np.float64)))
        case ArrayAttr():
            return ArrayAttr([_attribute(item) for item in cast("ArrayAttr[Attribute]", attr).data])
        case DictionaryAttr():
            return DictionaryAttr({name: _attribute(item) for name, item in attr.data.items()})
        case _:
            return attr


def widen_feeds(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds for a widened module."""
    return {name: _value(value) for name, value in feeds.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in cast("list[Any]", value)]
    if isinstance(value, np.ndarray) and _narrow(BY_NUMPY.get(value.dtype)):
        return value.astype(np.float64)
    return value
