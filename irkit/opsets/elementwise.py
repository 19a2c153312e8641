"""Elementwise ops: broadcasting by attribute (opsets 1 to 6), bounds by attribute, casts by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype
from irkit.ir.types import dtype_of, shape_of
from irkit.opsets.common import (
    attribute,
    dynamic_rank,
    holds,
    impossible,
    int64,
    narrowed,
    rank_of,
    same_shape,
    scalar_float,
    sizes_of,
)
from irkit.opsets.registry import HINT, Results, decompose, lower, upgrade
from irkit.opsets.rewrite import HINT_KEPT

ARITHMETIC = "Add Sub Mul Div"
LOGICAL = "And Or Xor Greater Less Equal Pow"
SWAPPED = {op: op for op in "Add Mul And Or Xor Equal".split()} | {"Greater": "Less", "Less": "Greater"}
N_ARY = "Max Mean Min Sum"


def _broadcast(op: OnnxOp, a: Any, b: Any) -> int | None:
    """What ``broadcast`` is to be for these operands; None where their shapes do not tell, or it takes more.

    Without ``axis`` the second operand is one element, or its shape is the end of the first one's.
    """
    if same_shape(a, b):
        return 0
    first, second = sizes_of(a), sizes_of(b)
    if first is None or second is None or None in second or len(second) > len(first):
        return None
    if all(d == 1 for d in second):
        # [1] and [1] were the same shape above; [N] and [1] may be.
        return 1 if len(second) < len(first) or all(isinstance(d, int) for d in first) else None
    return 1 if len(second) < len(first) and first[len(first) - len(second) :] == second else None


def _keep_hint(op: OnnxOp, made: Tensor) -> Tensor:
    if HINT in op.properties:
        made.ssa.owner.attributes[HINT_KEPT] = op.properties[HINT]  # type: ignore[union-attr]
    return made


def _restored_hint(op: OnnxOp, cls: type[OnnxOp]) -> dict[str, Any]:
    return {HINT: op.attributes[HINT_KEPT]} if HINT_KEPT in op.attributes and HINT in cls.spec.attributes else {}


@upgrade(ARITHMETIC, 1, 6)
@upgrade(LOGICAL, 1)
def broadcast_by_shape(b: Builder, op: OnnxOp) -> Results | None:
    x, y = op.operands
    if "axis" in op.properties or _broadcast(op, x, y) != op.attr("broadcast"):
        return None
    return _keep_hint(op, b.op(op.op_type, x, y))


@lower(ARITHMETIC, 1, 6)
@lower(LOGICAL, 1)
def broadcast_by_attribute(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, y = op.operands
    found = _broadcast(op, x, y)
    if found is None and op.op_type in SWAPPED and _broadcast(op, y, x) is not None:
        found = _broadcast(op, y, x)
        name = SWAPPED[op.op_type]
        return b.op(name, y, x) if name != op.op_type else b.op(to, y, x, broadcast=found or None)
    if found is None:
        raise impossible(op, f"the older form broadcasts the second to the end of the first alone, not {_shapes(op)}")
    return b.op(to, x, y, broadcast=found or None, **_restored_hint(op, to))


def _shapes(op: OnnxOp) -> str:
    return " and ".join(str(v.type) for v in op.operands)


@decompose(ARITHMETIC, 1, 6)
@decompose(LOGICAL, 1)
def broadcast_from_axis(b: Builder, op: OnnxOp) -> Results | None:
    x, y = op.operands
    axis = op.attr("axis")
    if not op.attr("broadcast") or axis is None or all(d == 1 for d in sizes_of(y) or (None,)):
        return b.op(op.op_type, x, y)
    rank, inner = rank_of(x), rank_of(y)
    if rank is not None and inner is not None:
        missing = rank - (axis + rank if axis < 0 else axis) - inner
        return b.op(op.op_type, x, b.Unsqueeze(y, int64(b, range(inner, inner + missing))) if missing else y)
    start = int64(b, [axis]) if axis >= 0 else b.Add(dynamic_rank(b, x), int64(b, [axis]))
    missing = b.Max(b.Sub(b.Sub(dynamic_rank(b, x), start), dynamic_rank(b, y)), int64(b, [0]))
    ones = b.ConstantOfShape(missing, value=np.ones(1, np.int64))
    return b.op(op.op_type, x, b.Reshape(y, b.Concat(b.Shape(y), ones, axis=0), allowzero=1))


@upgrade(N_ARY, 1, 6)
def n_ary_of_one_shape(b: Builder, op: OnnxOp) -> Results | None:
    if not _of_one_shape(op):
        return None
    return _keep_hint(op, b.op(op.op_type, *op.operands))


@lower(N_ARY, 1, 6)
def n_ary_without_broadcast(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if not _of_one_shape(op):
        raise impossible(op, f"the older form does not broadcast, and its operands are {_shapes(op)}")
    return b.op(to, *op.operands, **_restored_hint(op, to))


@decompose(N_ARY, 1, 6)
def n_ary(b: Builder, op: OnnxOp) -> Results:
    return b.op(op.op_type, *op.operands)


def _of_one_shape(op: OnnxOp) -> bool:
    return all(same_shape(op.operands[0], v) for v in op.operands[1:])


# Clip

_LIMITS = {"min": float(np.finfo(np.float32).min), "max": float(np.finfo(np.float32).max)}


@upgrade("Clip", 1, 6)
def clip_operands(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    given = [op.attr(name) for name in ("min", "max") if name in op.properties]
    return clip(b, op) if kind is not None and all(holds(v, kind) for v in given) else None


@decompose("Clip", 1, 6)
def clip(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    if kind is None:
        return None
    low, high = (None if v is None else narrowed(v, kind) for v in (op.attr("min"), op.attr("max")))
    return _keep_hint(op, b.Clip(op.operands[0], low, high))


@lower("Clip", 1, 6)
def clip_by_attributes(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    bounds: dict[str, float | None] = {}
    for index, name in ((1, "min"), (2, "max")):
        value = op.operand(index)
        if value is None:
            # Version 1 has no bounds by default; those of version 6 would cut infinities.
            bounds[name] = None if to.since == 1 else {"min": -np.inf, "max": np.inf}[name]
            continue
        found = scalar_float(value)
        if found is None:
            raise impossible(op, f"its '{name}' is not a constant that float32 can hold")
        bounds[name] = None if to.since == 6 and _is_limit(value, name, found) else found
    return b.op(to, op.operands[0], min=bounds["min"], max=bounds["max"], **_restored_hint(op, to))


def _is_limit(value: Any, name: str, found: float) -> bool:
    kind = dtype_of(value.type)
    narrow = kind is not None and kind.numpy.itemsize < 4
    return found == _LIMITS[name] or (narrow and found == {"min": -np.inf, "max": np.inf}[name])


# PRelu


@upgrade("PRelu", 1, 6)
def prelu_per_channel(b: Builder, op: OnnxOp) -> Results | None:
    x, slope = op.operands
    if not _slope_alike(x, slope):
        return None
    return _keep_hint(op, b.PRelu(x, slope))


@lower("PRelu", 1, 6)
def prelu_by_channel(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, slope = op.operands
    if _slope_alike(x, slope):
        return b.op(to, x, slope, **_restored_hint(op, to))
    shape, rank = sizes_of(slope), rank_of(x)
    if shape is not None and rank is not None and len(shape) == rank - 1 and all(d == 1 for d in shape[1:]):
        return b.op(to, x, b.Reshape(slope, int64(b, [-1])))
    raise impossible(op, f"the older form takes one slope, or one a channel, not {slope.type} for {x.type}")


@decompose("PRelu", 1, 6)
def prelu(b: Builder, op: OnnxOp) -> Results | None:
    x, slope = op.operands
    shape, rank = sizes_of(slope), rank_of(x)
    if _slope_alike(x, slope) or (shape is not None and len(shape) != 1):
        return b.PRelu(x, slope)
    if rank is None or shape is None:
        trailing = b.Max(b.Sub(dynamic_rank(b, x), int64(b, [2])), int64(b, [0]))
        ones = b.ConstantOfShape(trailing, value=np.ones(1, np.int64))
        return b.PRelu(x, b.Reshape(slope, b.Concat(int64(b, [-1]), ones, axis=0)))
    return b.PRelu(x, b.Unsqueeze(slope, int64(b, range(1, rank - 1))))


def _slope_alike(x: Any, slope: Any) -> bool:
    """Whether one slope, or one per channel, is what broadcasting makes of it."""
    shape, rank = shape_of(slope.type), rank_of(x)
    if shape is None or (rank is None and len(shape) > 0) or (rank is not None and len(shape) > rank):
        return False
    return all(d == 1 for d in shape) or (rank == 2 and len(shape) == 1)


# Selu's defaults and the others' changed types are told from the schemas. Casts to a type by name:


@upgrade("Cast", 1)
def cast_by_number(b: Builder, op: OnnxOp) -> Results | None:
    name = str(op.attr("to"))
    code = _CODES.get(name)
    return None if code is None else b.Cast(op.operands[0], to=code)


@lower("Cast", 1)
def cast_by_name(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    name = _NAMES.get(attribute(op, "to"))
    if name is None or any(n not in ("to", "saturate") for n in op.properties) or op.attr("saturate") != 1:
        raise impossible(op, f"the older form does not cast to {dtype(op.attr('to'))}")
    return b.op(to, op.operands[0], to=name)


@decompose("Cast", 1)
def cast_by_any_name(b: Builder, op: OnnxOp) -> Results | None:
    code = _CODES.get(str(op.attr("to")).upper())
    return None if code is None else b.Cast(op.operands[0], to=code)


_CODES = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
    "UINT64": 13,
}
_NAMES = {code: name for name, code in _CODES.items()}


@decompose("Erf", 9)
def erf_of_integers(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    if kind is None or not kind.is_integer:
        return b.Erf(op.operands[0])
    return b.Cast(b.Erf(b.Cast(op.operands[0], to=11)), to=kind.code)


@upgrade("Erf", 9)
def erf(b: Builder, op: OnnxOp) -> Results | None:
    kind = dtype_of(op.operands[0].type)
    return None if kind is None or not kind.is_float else b.Erf(op.operands[0])


@lower("Erf", 9)
def erf_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    return b.op(to, op.operands[0])
