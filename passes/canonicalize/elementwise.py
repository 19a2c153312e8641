"""Rules for elementwise ops, casts and Dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import OpResult, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.constants import ConstantData
from irkit.ir.types import dtype_of
from irkit.passes.canonicalize.rules import rule
from irkit.passes.rewrite import Rewriter
from irkit.passes.types import same_type

__all__: list[str] = []


def _all_are(data: ConstantData | None, test: Callable[[Any], Any]) -> bool:
    """Whether every element of a constant passes; a large one is not looked at."""
    if data is None or data.dtype.kind == "string" or (not data.is_splat and data.size > 4096):
        return False
    return bool(np.all(test(data.stored())))


def _is_one(x: Any) -> Any:
    return x == np.ones((), x.dtype)


def _is_zero(x: Any) -> Any:
    return x == np.zeros((), x.dtype)


def _is_float(x: Any) -> bool:
    return x.dtype.kind not in "iub" and x.dtype.name not in ("int4", "uint4", "int2", "uint2")


def _is_zero_to_add(x: Any) -> Any:
    """-0.0 is what changes no float when added: -0.0 + 0.0 is 0.0."""
    return _is_zero(x) & np.signbit(x.astype(np.float64)) if _is_float(x) else _is_zero(x)


def _is_zero_to_subtract(x: Any) -> Any:
    return _is_zero(x) & ~np.signbit(x.astype(np.float64)) if _is_float(x) else _is_zero(x)


def _has_all_bits(x: Any) -> Any:
    return ~x == np.zeros((), x.dtype)


def _is_true(x: Any) -> Any:
    return x


def _is_false(x: Any) -> Any:
    return ~x


_NEUTRAL: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "onnx.Add": (True, _is_zero_to_add),
    "onnx.Sub": (False, _is_zero_to_subtract),
    "onnx.Mul": (True, _is_one),
    "onnx.Div": (False, _is_one),
    "onnx.And": (True, _is_true),
    "onnx.Or": (True, _is_false),
    "onnx.Xor": (True, _is_false),
    "onnx.BitwiseAnd": (True, _has_all_bits),
    "onnx.BitwiseOr": (True, _is_zero),
    "onnx.BitwiseXor": (True, _is_zero),
    "onnx.BitShift": (False, _is_zero),
}
"""Op -> whether the neutral operand may also be the first, and what it is."""


@rule(*_NEUTRAL)
def neutral_operand(op: OnnxOp, rw: Rewriter) -> bool:
    """x * 1, x + -0.0, x - 0.0, x / 1, x & true... where broadcasting leaves the shape of x as it is."""
    either_side, test = _NEUTRAL[op.name]
    x, y = op.operands
    for kept, other in ((x, y), (y, x)) if either_side else ((x, y),):
        if same_type(kept.type, op.results[0].type) and _all_are(constant_of(other), test):
            rw.replace(op, [kept])
            return True
    return False


@rule("onnx.Not", "onnx.Neg", "onnx.BitwiseNot")
def involution_twice(op: OnnxOp, rw: Rewriter) -> bool:
    """Not(Not(x)), Neg(Neg(x))."""
    inner = op.operands[0].owner
    if not isinstance(inner, OnnxOp) or inner.name != op.name:
        return False
    rw.replace(op, [inner.operands[0]])
    return True


@rule("onnx.Abs", "onnx.Relu", "onnx.Ceil", "onnx.Floor", "onnx.Round", "onnx.Sign")
def idempotent_twice(op: OnnxOp, rw: Rewriter) -> bool:
    """Relu(Relu(x)), Abs(Abs(x)), Floor(Floor(x))."""
    if type(op.operands[0].owner) is not type(op):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Identity")
def identity(op: OnnxOp, rw: Rewriter) -> bool:
    """Identity(x). An output keeps its name: that belongs to the graph, not to the op."""
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Min", "onnx.Max", "onnx.Sum", "onnx.Mean", "onnx.Concat")
def one_operand(op: OnnxOp, rw: Rewriter) -> bool:
    """Sum(x), Concat(x)."""
    if len(op.operands) != 1:
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Cast", "onnx.CastLike")
def cast_to_own_type(op: OnnxOp, rw: Rewriter) -> bool:
    """Cast of a float32 to float32."""
    own = dtype_of(op.operands[0].type)
    if own is None or own is not dtype_of(op.results[0].type):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Clip")
def clip_without_bounds(op: OnnxOp, rw: Rewriter) -> bool:
    """Clip(x) with neither a minimum nor a maximum."""
    if op.operand(1) is not None or op.operand(2) is not None:
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Where")
def where_of_one_side(op: OnnxOp, rw: Rewriter) -> bool:
    """Where(true, x, y), if broadcasting leaves the shape of x as it is; the same for false and y."""
    condition, x, y = op.operands
    data = constant_of(condition)
    for kept, test in ((x, _is_true), (y, _is_false)):
        if _all_are(data, test) and same_type(kept.type, op.results[0].type):
            rw.replace(op, [kept])
            return True
    return False


@rule("onnx.Dropout", "onnx.DropoutV12", "onnx.DropoutV13", "onnx.DropoutV10", "onnx.DropoutV7")
def dropout_in_inference(op: OnnxOp, rw: Rewriter) -> bool:
    """Dropout that does not train hands its input on; opsets 7 to 11 have no training mode at all."""
    if op.since >= 12 and not _is_off(op.operand(2)):
        return False
    if len(op.results) > 1 and op.results[1].first_use is not None:
        return False
    rw.replace(op, [op.operands[0], *(None for _ in op.results[1:])])
    return True


def _is_off(training: SSAValue | None) -> bool:
    return training is None or _all_are(constant_of(training), _is_false)


@rule("onnx.OptionalGetElement")
def element_of_optional(op: OnnxOp, rw: Rewriter) -> bool:
    """OptionalGetElement(Optional(x)), or of what is no optional at all."""
    value = op.operands[0]
    maker = value.owner if isinstance(value, OpResult) else None
    if isinstance(maker, OnnxOp) and maker.op_type == "Optional" and maker.operand(0) is not None:
        rw.replace(op, [maker.operands[0]])
        return True
    if dtype_of(value.type) is None:
        return False
    rw.replace(op, [value])
    return True
