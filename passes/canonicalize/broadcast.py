"""Rules for elementwise ops on what Expand repeats: broadcasting does that anyway."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.types import shape_of
from irkit.passes.canonicalize.rules import rule
from irkit.passes.rewrite import Rewriter
from irkit.passes.types import same_shape

__all__: list[str] = []

_UNARY = tuple(
    f"onnx.{name}"
    for name in "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Cos Cosh Erf Exp Floor IsNaN Log Neg Not "
    "Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh".split()
)
_BROADCASTING = tuple(
    f"onnx.{name}"
    for name in "Add Sub Mul Div Pow Max Min Sum Mean Mod Where And Or Xor Equal Greater GreaterOrEqual Less "
    "LessOrEqual BitwiseAnd BitwiseOr BitwiseXor".split()
)
_SCALE = "ad.scale"
_MOVES = frozenset(f"onnx.{name}" for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"))


def _expanded(value: SSAValue) -> OnnxOp | None:
    """The Expand that gives a value."""
    op = value.owner
    return op if isinstance(op, OnnxOp) and op.name == "onnx.Expand" else None


@rule(*_BROADCASTING, *_UNARY, _SCALE)
def elementwise_of_expands(op: OnnxOp, rw: Rewriter) -> bool:
    """Add(Expand(x, s), Expand(y, s)) is Expand(Add(x, y), s); a constant of one element may stand for one of them."""
    expands = [*map(_expanded, op.operands)]
    found = [e for e in expands if e is not None]
    if not found or any(e.operands[1] is not found[0].operands[1] for e in found):
        return False
    if any(e is None and not _is_single(value) for e, value in zip(expands, op.operands, strict=True)):
        return False
    operands = [value if e is None else e.operands[0] for e, value in zip(expands, op.operands, strict=True)]
    inner = _copy(op, operands, rw, [*found, op])
    again = rw.make(type(found[0]), [inner.results[0], found[0].operands[1]], [op.results[0].type], before=op)
    rw.replace(op, [again.results[0]])
    return True


@rule(*_BROADCASTING, _SCALE)
def expand_into_broadcast(op: OnnxOp, rw: Rewriter) -> bool:
    """Add(Expand(x), y) where y has the result's shape anyway. One number repeated may be reshaped in between."""
    shape = op.results[0].type
    for place, value in enumerate(op.operands):
        repeated = _repeated(value)
        if repeated is None:
            continue
        if any(same_shape(other.type, shape) for i, other in enumerate(op.operands) if i != place):
            operands = [*op.operands]
            operands[place] = repeated
            rw.replace(op, [_copy(op, operands, rw, [op]).results[0]])
            return True
    return False


def _repeated(value: SSAValue) -> SSAValue | None:
    """What Expand has made a value of."""
    op, is_moved = value.owner, False
    while isinstance(op, OnnxOp) and op.name in _MOVES:
        op, is_moved = op.operands[0].owner, True
    if not isinstance(op, OnnxOp) or op.name != "onnx.Expand":
        return None
    return op.operands[0] if not is_moved or shape_of(op.operands[0].type) == () else None


def _is_single(value: SSAValue) -> bool:
    data = constant_of(value)
    return data is not None and data.size == 1


def _copy(op: OnnxOp, operands: Sequence[SSAValue], rw: Rewriter, sources: Sequence[OnnxOp]) -> OnnxOp:
    """The same op on other operands."""
    properties = dict(op.properties)
    types = type(op).infer_types(operands, properties, [], 1)
    new = type(op).create(operands=operands, result_types=types, properties=properties)
    rw.add(new, op, sources)
    return new
