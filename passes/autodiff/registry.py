"""Gradient rules: the tables, the decorators that fill them, and what a rule is given.

A rule says how the cotangent of an op's result becomes those of its operands, in ops of the IR:

>>> from irkit.passes.autodiff.registry import Vjp, vjp
>>> @vjp("Mul")  # doctest: +SKIP
... def mul(g: Vjp):
...     return g.unbroadcast(g.ct * g.x(1), 0), g.unbroadcast(g.ct * g.x(0), 1)

It must be linear in its cotangents, hold for every float dtype and for shapes known only at run time, and is written
for the current form of its op. What has no rule is looked up in ``PROVEN_ZERO`` and ``REFUSED``, or is differentiated
through its function body.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue, SSAValues

from irkit.dialects.onnx.structural import ForeignOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import ConstantData
from irkit.ir.dtypes import DType, dtype
from irkit.ir.names import OUTS, out_names, set_out_names
from irkit.ir.op import TensorOp, is_absent
from irkit.ir.types import OptType, SeqType, Shape, shape_of

__all__ = [
    "PROVEN_ZERO",
    "REFUSED",
    "RULES",
    "Gradients",
    "Rule",
    "Vjp",
    "add_results",
    "differentiable",
    "key_of",
    "proven_zero",
    "refused",
    "vjp",
    "zero_value",
]

Gradients = Sequence[Tensor | None]
"""Per operand its cotangent; None for a zero. Missing ones at the end are zeros."""

Rule = Callable[["Vjp"], "Gradients | Tensor | None"]
RuleT = TypeVar("RuleT", bound=Rule)
Key = tuple[str, str]

RULES: dict[Key, Rule] = {}
"""(domain, op type) -> rule."""

PROVEN_ZERO: dict[tuple[str, str, int | str], str] = {}
"""(domain, op type, operand or ``"*"`` for all) -> why the gradient is zero."""

REFUSED: dict[Key, str] = {}
"""(domain, op type) -> why no gradient is offered."""


def vjp(*op_types: str, domain: str = "") -> Callable[[RuleT], RuleT]:
    """Declares the decorated function as the gradient rule of these ops, in their current form.

    A rule returns one entry per operand: its cotangent, or None where that is zero or not needed. The rule of an op
    with one operand may return it bare.
    """

    def register(rule: RuleT) -> RuleT:
        for op_type in op_types:
            RULES[domain, op_type] = rule
        return rule

    return register


def proven_zero(op_types: str, reason: str, operands: Sequence[int] | None = None, *, domain: str = "") -> None:
    """Declares that the gradient of these ops (names separated by spaces) is zero, in some operands or in all."""
    for op_type in op_types.split():
        for operand in ("*",) if operands is None else operands:
            PROVEN_ZERO[domain, op_type, operand] = reason


def refused(op_types: str, reason: str, *, domain: str = "") -> None:
    """Declares why these ops (names separated by spaces) have no gradient."""
    for op_type in op_types.split():
        REFUSED[domain, op_type] = reason


def key_of(op: Operation) -> Key | None:
    """The domain and name by which an op's rule is looked up: its class's, or those of the function that it calls."""
    if isinstance(op, ForeignOp):
        return op.domain, op.op_type
    spec = cast("Any", getattr(type(op), "spec", None))
    return None if spec is None else (spec.domain, spec.op_type)


def differentiable(kind: DType | None) -> bool:
    """Whether values of this dtype have gradients: floats, and complex ones as pairs of them."""
    return kind is not None and kind.kind in ("float", "complex")


_FOLDS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Max": max,
    "Min": min,
}


class Vjp:
    """An op whose cotangents are known, as its rule sees it.

    Attributes:
        b: builds where the backward code stands.
        op: the op; in its current form.
        cts: per result its cotangent; None where it is zero.
        wanted: per operand whether its gradient is asked for.
        live: whether the gradient of any value is asked for: of one that the op's graphs capture, say.
        captured: the cotangents of captured values, which a rule of an op with graphs adds here.
    """

    def __init__(
        self,
        b: Builder,
        op: Operation,
        cts: Sequence[Tensor | None],
        wanted: Sequence[bool],
        live: Callable[[SSAValue], bool] = lambda value: False,
    ) -> None:
        self.b = b
        self.op = op
        self.cts = list(cts)
        self.wanted = wanted
        self.live = live
        self.captured: list[tuple[SSAValue, Tensor]] = []

    # The op

    def attr(self, name: str) -> Any:
        """An attribute's value, or its default."""
        return cast(TensorOp, self.op).attr(name)

    @property
    def n_operands(self) -> int:
        """How many operands there are, absent ones included."""
        return len(self.op.operands)

    def x(self, index: int) -> Any:
        """An operand; None where it is absent. (Typed loosely: a rule knows which operands its op must have.)"""
        if index >= len(self.op.operands) or is_absent(self.op.operands[index]):
            return None
        return self.b.wrap(self.op.operands[index])

    def y(self, index: int = 0) -> Tensor:
        """A result. One that the op does not give so far is added to it."""
        if index >= len(self.op.results) or is_absent(self.op.results[index]):
            add_results(cast(TensorOp, self.op), index + 1)
        return self.b.wrap(self.op.results[index])

    @property
    def ct(self) -> Tensor:
        """The cotangent of the first result; zeros where it is a symbolic zero."""
        return self.ct_of(0)

    def ct_of(self, index: int) -> Tensor:
        """The cotangent of a result; zeros where it is a symbolic zero."""
        found = self.cts[index] if index < len(self.cts) else None
        return self.zeros_like(self.y(index)) if found is None else found

    def needs(self, index: int) -> bool:
        """Whether the gradient of an operand is asked for."""
        return index < len(self.wanted) and self.wanted[index]

    def constant(self, index: int) -> ConstantData | None:
        """The constant that an operand is, if it is one."""
        return constant_of(self.op.operands[index]) if index < len(self.op.operands) else None

    def ints(self, index: int) -> list[int] | None:
        """The integers that a constant operand holds, flat; None where it is absent or no constant."""
        found = self.constant(index)
        return None if found is None else [int(v) for v in found.array().reshape(-1)]

    def ints_of(self, value: Tensor) -> list[int] | None:
        """The integers that a constant value holds, flat; None where it is none."""
        found = constant_of(value.ssa)
        return None if found is None else [int(v) for v in found.array().reshape(-1)]

    # Values

    def const(self, value: object, like: Tensor | None = None) -> Tensor:
        """A constant in the dtype of ``like`` (default: of the first cotangent, or result)."""
        if like is None:
            like = next((ct for ct in self.cts if ct is not None), None)
        if like is None:
            like = self.y()
        if like.dtype is not None:
            return self.b.constant(np.asarray(value).astype(like.dtype.numpy))
        return self.b.CastLike(self.b.constant(np.asarray(value, np.float32)), like)

    def i64(self, values: int | Sequence[int]) -> Tensor:
        """An int64 constant: a scalar, or a vector."""
        return self.b.constant(np.asarray(values, np.int64))

    def static_shape(self, value: Tensor | SSAValue) -> tuple[int, ...] | None:
        """The shape where every size is a known number."""
        shape = shape_of(value.type)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        return cast("tuple[int, ...]", shape)

    def shape_of(self, value: Tensor) -> Tensor:
        """The shape as an int64 vector: a constant where it is known, else a ``Shape``."""
        known = self.static_shape(value)
        return self.b.Shape(value) if known is None else self.b.constant(np.asarray(known, np.int64))

    def reshape_like(self, value: Tensor, like: Tensor) -> Tensor:
        """A value of as many elements in the shape of another tensor."""
        shape = shape_of(like.type)
        known = None if shape is None else [d if isinstance(d, int) else -1 for d in shape]
        if known is None or known.count(-1) > 1 or (-1 in known and 0 in known):
            return self.b.Reshape(value, self.b.Shape(like), allowzero=1)
        return self.b.Reshape(value, self.i64(known), **({"allowzero": 1} if 0 in known else {}))

    def size(self, value: Tensor, axis: int) -> Tensor:
        """The size of one axis as an int64 vector of one element."""
        shape = value.shape
        if shape is not None and isinstance(found := shape[axis], int):
            return self.i64([found])
        if axis == -1:
            return self.b.Shape(value, start=-1)
        return self.b.Shape(value, start=axis, end=axis + 1)

    def count(self, value: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        """The number of elements along some axes (default: all), as an int64 vector of one element."""
        if axes is None:
            known = self.static_shape(value)
            if known is not None:
                return self.i64([int(np.prod(known, dtype=np.int64))])
            return self.b.Reshape(self.b.Size(value), self.i64([1]))
        found = self.i64([1])
        total = 1
        for axis in axes:
            size = value.shape[axis] if value.shape is not None else None
            if isinstance(size, int):
                total *= size
            else:
                found = self.b.Mul(found, self.size(value, axis))
        return self.b.Mul(found, total) if total != 1 else found

    def fold(self, op_type: str, x: Tensor, y: Tensor) -> Tensor:
        """``Add``, ``Sub``, ``Mul``, ``Max`` or ``Min`` of vectors of one integer; a constant where both are known."""
        known = self.ints_of(x), self.ints_of(y)
        if known[0] is None or known[1] is None:
            return self.b.op(op_type, x, y)
        return self.i64([_FOLDS[op_type](known[0][0], known[1][0])])

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Vectors of integers end to end; a constant where all are."""
        known = [self.ints_of(p) for p in parts]
        if all(k is not None for k in known):
            return self.i64([v for k in known if k is not None for v in k])
        return self.b.Concat(*parts, axis=0)

    def zeros(self, shape: Tensor, kind: DType) -> Tensor:
        """Zeros of a shape given as an int64 vector."""
        return self.b.Expand(self.b.constant(np.zeros((), kind.numpy)), shape)

    def zeros_like(self, value: Tensor) -> Tensor:
        """Zeros of the shape and dtype of a tensor."""
        return zeros_like(self.b, value)

    def rank(self, value: Tensor) -> int:
        """The number of axes.

        Raises:
            UnsupportedError: if it is not known.
        """
        found = value.rank
        if found is None:
            from irkit.errors import UnsupportedError
            from irkit.ir.location import where

            raise UnsupportedError(
                "its gradient needs the rank of an operand, which is not known",
                op=self.op.name,
                where=where(self.op),
                hint="declare the shapes of the inputs, or run the pass infer-shapes first",
            )
        return found

    # Cotangents

    def unbroadcast(self, value: Tensor, index: int) -> Tensor:
        """The sum over the axes that broadcasting added or stretched, down to the shape of an operand."""
        return unbroadcast(self.b, value, self.x(index))

    def unbroadcast_to(self, value: Tensor, like: Tensor) -> Tensor:
        """The same, down to the shape of any tensor."""
        return unbroadcast(self.b, value, like)

    def scale(self, ct: Tensor, factor: Tensor) -> Tensor:
        """``ct * factor``, but 0 where either is 0, even if the other is infinite or NaN; with broadcasting.

        For factors that may be non-finite where the forward value does not matter. Linear in the cotangent.
        """
        return self.b.op("ad.scale", ct, factor)

    def reduce_sum(self, value: Tensor, axes: Sequence[int], *, keepdims: bool = False) -> Tensor:
        """The sum over fixed axes; the value itself where there are none."""
        return self.b.ReduceSum(value, self.i64(list(axes)), keepdims=int(keepdims)) if axes else value

    def float_of(self, condition: Tensor, like: Tensor) -> Tensor:
        """1 where a condition holds, else 0, in the dtype of ``like``."""
        if like.dtype is None:
            return self.b.CastLike(condition, like)
        return self.b.Cast(condition, to=like.dtype.code)

    def cast(self, value: Tensor, like: Tensor | DType | str) -> Tensor:
        """A cast to the dtype of ``like``; the value itself where it has it."""
        if isinstance(like, Tensor):
            if like.dtype is None:
                return self.b.CastLike(value, like)
            like = like.dtype
        kind = dtype(like)
        return value if value.dtype is kind else self.b.Cast(value, to=kind.code)


def add_results(op: TensorOp, count: int) -> None:
    """Gives an op the optional results that it lacks, in place, so that it has ``count`` of them."""
    old = len(op.results)
    if old >= count:
        return
    types = type(op).infer_types(list(op.operands), op.properties, list(op.regions), count)
    op.results = SSAValues([*op.results, *(OpResult(types[i], op, i) for i in range(old, count))])
    if OUTS in op.attributes:
        set_out_names(op, [*out_names(op), *[""] * (count - len(out_names(op)))])


def zeros_like(b: Builder, value: Tensor) -> Tensor:
    """Zeros of the shape and dtype of a tensor; static where the shape is."""
    shape = shape_of(value.type)
    if value.dtype is None:
        return b.Sub(value, value)
    if shape is not None and all(isinstance(d, int) for d in shape):
        sizes = b.constant(np.asarray(shape, np.int64))
        return b.constant(np.zeros((), value.dtype.numpy)) if not shape else b.Expand(_zero(b, value), sizes)
    return b.Expand(_zero(b, value), b.Shape(value))


def zero_value(b: Builder, value: Tensor) -> Tensor:
    """The zero of a value's tangent space: zeros for a tensor, a sequence or an optional of them."""
    if isinstance(value.type, SeqType):
        return b.SequenceMap(value, body=zeros_like)
    if isinstance(value.type, OptType):
        return b.Optional(zero_value(b, b.OptionalGetElement(value)))
    return zeros_like(b, value)


def _zero(b: Builder, value: Tensor) -> Tensor:
    kind = value.dtype
    assert kind is not None
    return b.constant(np.zeros((), kind.numpy))


def unbroadcast(b: Builder, value: Tensor, like: Tensor) -> Tensor:
    """The sum of a value over the axes along which a tensor was broadcast to its shape.

    Which axes those are is told from the types where they say so; where a size may or may not be 1, at run time.
    """
    source, target = shape_of(value.type), shape_of(like.type)
    if source is not None and source == target and None not in source:
        return value
    if source is None or target is None:
        return _unbroadcast_unranked(b, value, like)
    added = len(source) - len(target)
    leading = list(range(added))
    stretched = [added + i for i, (s, t) in enumerate(zip(source[added:], target, strict=True)) if t == 1 and s != 1]
    unsure = [i for i, (s, t) in enumerate(zip(source[added:], target, strict=True)) if _unsure(s, t)]
    if unsure:
        if leading:
            value = b.ReduceSum(value, b.constant(np.asarray(leading, np.int64)), keepdims=0)
        return _unbroadcast_at_run_time(b, value, like)
    if not leading and not stretched:
        return value
    kept = bool(stretched and not leading)
    value = b.ReduceSum(value, b.constant(np.asarray([*leading, *stretched], np.int64)), keepdims=int(kept))
    if not stretched or kept:
        return value
    return b.Unsqueeze(value, b.constant(np.asarray([i - added for i in stretched], np.int64)))


def _unsure(source: int | str | None, target: int | str | None) -> bool:
    """Whether an axis may have been stretched: its size is not known, and not known to be the same."""
    return not isinstance(target, int) and (target is None or source != target) and source != 1


def _unbroadcast_at_run_time(b: Builder, value: Tensor, like: Tensor) -> Tensor:
    """Of equal ranks: sums over the axes whose sizes differ."""
    differ = b.Not(b.Equal(b.Shape(value), b.Shape(like)))
    axes = b.Reshape(b.NonZero(differ), b.constant(np.asarray([-1], np.int64)))
    return b.ReduceSum(value, axes, keepdims=1, noop_with_empty_axes=1)


def _unbroadcast_unranked(b: Builder, value: Tensor, like: Tensor) -> Tensor:
    target = b.Shape(like)
    sizes = b.Shape(value)
    missing = b.Sub(b.Shape(sizes), b.Shape(target))
    ones = b.Expand(b.constant(np.asarray([1], np.int64)), missing)
    differ = b.Not(b.Equal(sizes, b.Concat(ones, target, axis=0)))
    axes = b.Reshape(b.NonZero(differ), b.constant(np.asarray([-1], np.int64)))
    return b.Reshape(b.ReduceSum(value, axes, keepdims=1, noop_with_empty_axes=1), target, allowzero=1)


def known_shape(value: Tensor) -> Shape:
    """The shape of a tensor of known rank."""
    shape = value.shape
    assert shape is not None
    return shape
