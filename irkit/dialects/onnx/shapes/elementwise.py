"""Elementwise ops: the shape of the operands, broadcast; symbolic sizes kept where both sides agree."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.errors import InferenceError
from irkit.ir.types import Shape, intern, shape_of, tensor, tensor_info

__all__ = ["broadcast"]

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
    "HardSwish Hardmax Identity LeakyRelu Log LogSoftmax LRN LpNormalization Mish Neg Not Reciprocal Relu Round Selu "
    "Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
).split()
ARITHMETIC = "Add Sub Mul Div Mod Pow BitShift BitwiseAnd BitwiseOr BitwiseXor".split()
VARIADIC = "Max Min Mean Sum".split()
PREDICATES = "Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor".split()


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape that these broadcast to; None where a rank is unknown. A size that cannot be told is None.

    Raises:
        InferenceError: if two known sizes differ and neither is 1.
    """
    if any(s is None for s in shapes):
        return None
    known = [s for s in shapes if s is not None]
    rank = max((len(s) for s in known), default=0)
    out: list[int | str | None] = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in known if axis - rank + len(s) >= 0]
        fixed = {d for d in sizes if isinstance(d, int) and d != 1}
        if len(fixed) > 1:
            raise InferenceError(f"shapes {' and '.join(str(list(s)) for s in known)} do not broadcast")
        open_sizes = {d for d in sizes if not isinstance(d, int)}
        if fixed:
            out.append(fixed.pop())
        elif not open_sizes:
            out.append(1)
        elif len(open_sizes) == 1:
            out.append(open_sizes.pop())
        else:
            out.append(None)
    return tuple(out)


@shape_rule(*UNARY)
def unary(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    if found is None:
        return None
    axis, shape = call.attr("axis"), shape_of(found)
    # Of a version below 13 it is where the axes are split in two.
    if isinstance(axis, int) and shape is not None and call.cls.since >= 13 and not -len(shape) <= axis < len(shape):
        raise InferenceError(f"axis {axis} of a tensor of rank {len(shape)}")
    return [intern(found)]


@shape_rule(*ARITHMETIC, *VARIADIC)
def arithmetic(call: Call) -> list[Attribute] | None:
    return _broadcast(call, None)


@shape_rule(*PREDICATES)
def predicate(call: Call) -> list[Attribute] | None:
    return _broadcast(call, "bool")


@shape_rule("IsNaN", "IsInf")
def classification(call: Call) -> list[Attribute] | None:
    info = None if (found := call.type(0)) is None else tensor_info(found)
    return None if info is None else [tensor("bool", info.shape)]


@shape_rule("PRelu")
def prelu(call: Call) -> Sequence[Attribute] | None:
    return unary(call)


@shape_rule("Where")
def where(call: Call) -> list[Attribute] | None:
    if len(call.operands) != 3:
        return None
    infos = [tensor_info(v.type) for v in call.operands]
    if any(i is None for i in infos):
        return None
    return [tensor(infos[1].dtype, broadcast([i.shape for i in infos if i]))]  # type: ignore[union-attr]


@shape_rule("Cast")
def cast(call: Call) -> list[Attribute] | None:
    info = None if (found := call.type(0)) is None else tensor_info(found)
    to = call.properties.get("to")
    return (
        None
        if info is None or not isinstance(call.attr("to"), int) or to is None
        else [tensor(call.attr("to"), info.shape)]
    )


def _broadcast(call: Call, element: str | None) -> list[Attribute] | None:
    # Before opset 7, and in Sum and Mean before 8, broadcasting was asked for by attribute, or not done at all.
    if call.cls.since < 7 or not call.operands:
        return None
    infos = [tensor_info(v.type) for v in call.operands]
    if any(i is None for i in infos):
        return None
    known = [i for i in infos if i is not None]
    return [tensor(element or known[0].dtype, broadcast([i.shape for i in known]))]
