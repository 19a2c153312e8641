"""What the families share: reading constants and shapes, copying attributes, saying why something cannot be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, SSAValue

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.errors import LoweringError
from irkit.ir.attributes import from_attr
from irkit.ir.builder import Builder, Tensor, Values
from irkit.ir.constants import RefAttr
from irkit.ir.dtypes import DType
from irkit.ir.location import where
from irkit.ir.types import Shape, dtype_of, shape_of

__all__ = [
    "array_of",
    "attribute",
    "carried",
    "dynamic_rank",
    "holds",
    "impossible",
    "int64",
    "ints_of",
    "narrowed",
    "nonnegative",
    "rank_of",
    "restated",
    "same_shape",
    "scalar_float",
    "shape_tensor",
    "sizes_of",
]

INT64_MAX = np.iinfo(np.int64).max


def impossible(op: OnnxOp, reason: str) -> LoweringError:
    """The error for an op that has no form at the target."""
    return LoweringError(reason, op=op.name, where=where(op))


def attribute(op: OnnxOp, name: str) -> Any:
    """An attribute's value.

    Raises:
        LoweringError: if it is a reference to an attribute of the calling function.
    """
    found = op.attr(name)
    if isinstance(found, RefAttr):
        raise impossible(op, f"its attribute '{name}' is given by the caller of the function it stands in")
    return found


def carried(op: OnnxOp, *without: str, **changed: Any) -> dict[str, Any]:
    """An op's attributes as they are set, without some, with some changed; for ``Builder.op``."""
    kept: dict[str, Any] = {name: attr for name, attr in op.properties.items() if name not in without}
    return {**kept, **changed}


def array_of(value: SSAValue | None) -> np.ndarray[Any, Any] | None:
    """The array of a constant value, or None."""
    found = constant_of(value)
    return None if found is None else found.array()


def ints_of(value: SSAValue | None) -> list[int] | None:
    """The elements of a constant value of integers, or None."""
    found = array_of(value)
    return None if found is None else [int(v) for v in found.reshape(-1)]


def scalar_float(value: SSAValue | None) -> float | None:
    """The one element of a constant, where float32 has it exactly; None otherwise."""
    found = array_of(value)
    if found is None or found.size != 1:
        return None
    exact = float(found.reshape(-1)[0])
    rounded = float(np.float32(exact))
    return exact if rounded == exact or np.isnan(exact) else None


def int64(b: Builder, values: Sequence[int] | int) -> Tensor:
    """An int64 constant: 1-D of a sequence, 0-D of a number."""
    return b.constant(np.array(values, np.int64))


def narrowed(value: float, kind: DType) -> np.ndarray[Any, Any]:
    """A float attribute as a scalar of an operand's dtype; beyond its range an infinity."""
    with np.errstate(over="ignore"):
        return np.array(value, np.float32).astype(kind.numpy)


def holds(value: float, kind: DType) -> bool:
    """Whether a dtype has a float attribute's value exactly, so that the attribute can be told from it."""
    exact = np.float32(value)
    return bool(narrowed(value, kind).astype(np.float32) == exact) or bool(np.isnan(exact))


def rank_of(value: SSAValue | None) -> int | None:
    """The rank of a tensor, where it is known."""
    shape = None if value is None else shape_of(value.type)
    return None if shape is None else len(shape)


def sizes_of(value: SSAValue | None) -> Shape | None:
    """The shape of a tensor, where its rank is known."""
    return None if value is None else shape_of(value.type)


def same_shape(a: SSAValue | None, b: SSAValue | None) -> bool:
    """Whether two tensors certainly have one shape; the same symbol is the same size."""
    first, second = sizes_of(a), sizes_of(b)
    return first is not None and first == second and None not in first


def nonnegative(op: OnnxOp, axis: int, rank: int | None) -> int:
    """An axis counted from the front.

    Raises:
        LoweringError: if that takes a rank which is not known.
    """
    if axis >= 0:
        return axis
    if rank is None:
        raise impossible(op, f"its axis is {axis}, the older form counts from the front, and the rank is not known")
    return axis + rank


def restated(op: OnnxOp, defaults: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The attributes as they are set, less those that only state the older form's defaults."""
    kept = carried(op, *without)
    return {name: v for name, v in kept.items() if name not in defaults or _value(v) != defaults[name]}


def _value(attr: Any) -> Any:
    return from_attr(attr) if isinstance(attr, Attribute) else attr


def shape_tensor(b: Builder, value: Values) -> Tensor:
    """The shape of a value as an int64 tensor."""
    return b.Shape(value)


def dynamic_rank(b: Builder, value: Values) -> Tensor:
    """The rank of a value as an int64 tensor of one element."""
    return b.Shape(b.Shape(value))


def element(op: OnnxOp, index: int) -> Any:
    """The dtype of an operand, or None."""
    value = op.operand(index)
    return None if value is None else dtype_of(value.type)
