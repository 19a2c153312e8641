"""Which values are finite, not negative, or positive whenever the graph's inputs are finite: told from the ops.

Overflow of sums and products aside. Used to lower ``ad.scale`` to a plain product where its factor allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from irkit.dialects.onnx.structural import Function
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.ir.constants import ConstantData
from irkit.ir.op import TensorOp, is_absent
from irkit.ir.types import dtype_of

__all__ = ["Facts", "facts_of", "is_finite"]


class Facts(NamedTuple):
    """What is known of every element of a value."""

    finite: bool = False
    nonnegative: bool = False
    positive: bool = False


MAX_READ = 1 << 22
"""Larger constants are taken for finite weights, unread."""

MAX_VISITED = 2000
"""A single question gives up after so many values."""

# Finite operands may give infinities or NaN, whatever else is known of them.
_SINGULAR = frozenset(
    "Log Reciprocal Exp Sinh Cosh Tan Acos Acosh Asin Atanh Mod Det BitCast ReduceLogSum Multinomial Pow Div Sqrt "
    "Cast CastLike CumProd ReduceProd ConstantOfShape LpNormalization".split()
)
_NONNEGATIVE = frozenset(
    "Abs Relu Exp Sigmoid HardSigmoid Softmax Softplus Sqrt Cosh Acos Acosh ReduceSumSquare ReduceL2 ReduceL1 "
    "Bernoulli OneHot".split()
)
# Give the signs of their first operand, or of all.
_KEEP_SIGN = frozenset(
    "Identity Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile Slice Gather GatherND GatherElements Split "
    "ReduceMax ReduceMin ReduceMean ReduceSum DepthToSpace SpaceToDepth Cast CastLike Dropout GlobalAveragePool "
    "GlobalMaxPool MaxPool ReverseSequence stop_gradient barrier Floor Ceil Round".split()
)
_KEEP_SIGNS = frozenset("Add Mul Div Sum Mean Max Min Concat".split())
_SUMS = frozenset("Add Sum".split())


def is_finite(value: SSAValue) -> bool:
    """Whether a value is finite whenever the graph's inputs are, as far as the ops tell."""
    return facts_of(value).finite


def facts_of(value: SSAValue, memo: dict[SSAValue, Facts] | None = None) -> Facts:
    """What is known of a value.

    Args:
        memo: answers found so far, for several questions about a graph that does not change.
    """
    known: dict[SSAValue, Facts] = {} if memo is None else memo
    pending = [value]
    while pending:
        if memo is None and len(known) > MAX_VISITED:
            return Facts()
        current = pending[-1]
        if current in known:
            pending.pop()
            continue
        sources = _sources(current)
        missing = [v for v in sources if v not in known]
        if missing:
            pending += missing
            continue
        pending.pop()
        known[current] = _facts(current, known)
    return known[value]


def _sources(value: SSAValue) -> list[SSAValue]:
    if not isinstance(value, OpResult) or is_constant(value) or value.op.regions:
        return []
    return [v for v in value.op.operands if not is_absent(v)]


def _facts(value: SSAValue, known: dict[SSAValue, Facts]) -> Facts:
    kind = dtype_of(value.type)
    if kind is not None and kind.kind in ("bool", "uint"):
        return Facts(finite=True, nonnegative=True)
    if isinstance(value, BlockArgument):
        owner = value.block.parent_op()
        return Facts(finite=isinstance(owner, FuncOp | Function))
    assert isinstance(value, OpResult)
    op = value.op
    constant = constant_of(value)
    if constant is not None:
        return _of_constant(constant)
    name = getattr(type(op), "op_type", "")
    if not isinstance(op, TensorOp) or op.regions or not name:
        return Facts()
    operands = [known[v] if not is_absent(v) else None for v in op.operands]
    given = [f for f in operands if f is not None]
    nonnegative, positive = _signs(name, op, operands, given)
    integral = kind is not None and kind.kind == "int"
    finite = integral or (all(f.finite for f in given) and _stays_finite(name, op, operands))
    return Facts(finite, nonnegative, positive)


def _of_constant(constant: ConstantData) -> Facts:
    if not (constant.dtype.is_float or constant.dtype.is_integer):
        return Facts(finite=constant.dtype.kind == "bool")
    if constant.size > MAX_READ and not constant.is_splat:
        return Facts(finite=True)
    array = np.asarray(constant.element if constant.is_splat else constant.array()).astype(np.float64)
    return Facts(bool(np.isfinite(array).all()), bool((array >= 0).all()), bool((array > 0).all()))


def _signs(name: str, op: Operation, operands: list[Facts | None], given: list[Facts]) -> tuple[bool, bool]:
    first = given[0] if given else Facts()
    if name in ("Shape", "Size"):
        return True, True
    if name in _KEEP_SIGN:
        return first.nonnegative, first.positive and name not in ("Floor", "Round")
    if name in ("Sqrt", "ReduceLogSumExp") and first.positive:
        return name == "Sqrt", name == "Sqrt"
    if name in _NONNEGATIVE:
        return True, False
    if name == "Mul" and op.operands[0] is op.operands[1]:
        return True, first.positive
    if name in _KEEP_SIGNS:
        every = all(f.nonnegative for f in given)
        some = any(f.positive for f in given)
        if name == "Max":
            return any(f.nonnegative for f in given), some
        positive = every and some if name in _SUMS else all(f.positive for f in given)
        return every, positive
    if name == "Pow":
        exponent = constant_of(op.operands[1])
        even = exponent is not None and exponent.size == 1 and float(exponent.array().item()) % 2 == 0
        return even or first.nonnegative, first.positive
    if name == "Reciprocal":
        return first.nonnegative, first.positive
    if name == "Clip":
        low = operands[1] if len(operands) > 1 else None
        return low is not None and low.nonnegative, low is not None and low.positive
    if name == "Where":
        return all(f.nonnegative for f in given[1:]), all(f.positive for f in given[1:])
    return False, False


def _stays_finite(name: str, op: TensorOp, operands: list[Facts | None]) -> bool:
    rule = _EXCEPTIONS.get(name)
    if rule is not None:
        return rule(op, [f or Facts() for f in operands])
    return name not in _SINGULAR


def _pow_finite(op: TensorOp, operands: list[Facts]) -> bool:
    if operands[0].positive:
        return True
    exponent = constant_of(op.operands[1])
    if exponent is None or exponent.size != 1:
        return False
    power = float(exponent.array().item())
    return power >= 0 and (power == int(power) or operands[0].nonnegative)


def _cast_finite(op: TensorOp, operands: list[Facts]) -> bool:
    source, target = dtype_of(op.operands[0].type), dtype_of(op.results[0].type)
    return source is not None and target is not None and (target.bits >= source.bits or not source.is_float)


def _exp_finite(op: TensorOp, operands: list[Facts]) -> bool:
    # Of logarithms of probabilities: at most 1.
    source = op.operands[0]
    if not isinstance(source, OpResult):
        return False
    return source.op.name == "onnx.LogSoftmax" or (
        source.op.name == "onnx.SoftmaxCrossEntropyLoss" and source is not source.op.results[0]
    )


def _constant_fill(op: TensorOp, operands: list[Facts]) -> bool:
    value = op.attr("value")
    return value is None or bool(np.isfinite(np.asarray(value.data.array()).astype(np.float64)).all())


_EXCEPTIONS: dict[str, Callable[[TensorOp, list[Facts]], bool]] = {
    "Div": lambda op, facts: facts[1].positive,
    "Reciprocal": lambda op, facts: facts[0].positive,
    "Log": lambda op, facts: facts[0].positive,
    "ReduceLogSum": lambda op, facts: facts[0].positive,
    "Sqrt": lambda op, facts: facts[0].nonnegative,
    "Pow": _pow_finite,
    "Exp": _exp_finite,
    "Cast": _cast_finite,
    "CastLike": _cast_finite,
    "ConstantOfShape": _constant_fill,
}
