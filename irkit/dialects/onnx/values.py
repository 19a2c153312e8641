"""What is known of values: the constant behind one, if any."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
from xdsl.ir import Attribute, OpResult, SSAValue

from irkit.ir.attributes import from_attr, kind_of, text_of
from irkit.ir.constants import ConstantData, FloatsAttr, RefAttr, SparseAttr, TensorAttr, constant

__all__ = ["constant_attr", "constant_of", "is_constant"]


def is_constant(value: SSAValue) -> bool:
    """Whether an initializer or a Constant gives this value."""
    if not isinstance(value, OpResult):
        return False
    op = value.op
    # Every version of Constant counts.
    return op.name == "onnx.Initializer" or getattr(type(op), "op_type", None) == "Constant"


def constant_of(value: SSAValue | None) -> ConstantData | None:
    """The constant behind a value, or None. A sparse one is made dense."""
    if value is None or not is_constant(value):
        return None
    for name, attr in cast(OpResult, value).op.properties.items():
        return constant_attr(name, attr)
    return None


def constant_attr(name: str, attr: Attribute) -> ConstantData | None:
    """The constant that an attribute of ``Constant`` stands for; None for a caller's attribute."""
    if isinstance(attr, RefAttr):
        return None
    if isinstance(attr, TensorAttr):
        return attr.data
    if isinstance(attr, SparseAttr):
        return constant(attr.array(), attr.values.data.dtype).data
    if name in ("value_string", "value_strings"):
        raw = text_of(attr) if name == "value_string" else list(from_attr(attr))
        return constant(np.array(raw, object), "string").data
    return _scalars(kind_of(attr), attr)


@cache
def _scalars(kind: str, attr: Attribute) -> ConstantData:
    element = "float32" if kind.startswith("FLOAT") else "int64"
    value: Any = attr.data if isinstance(attr, FloatsAttr) else from_attr(attr)
    return constant(np.array(value, element), element).data
