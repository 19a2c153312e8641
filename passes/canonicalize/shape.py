"""Rules for ops that move elements about: Reshape, Transpose, Squeeze, Expand, Slice, Pad, Split, Flatten, Tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import BlockArgument, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.types import shape_of
from irkit.passes.canonicalize.rules import rule
from irkit.passes.rewrite import Rewriter
from irkit.passes.types import meet, same_type

__all__: list[str] = []

MAX_LISTED = 256
FAR = 1 << 40
"""No axis is so long: an end from here on stands for the end of the axis."""


def _integers(value: SSAValue | None) -> list[int] | None:
    """The numbers in a small constant of integers, flat; None for anything else."""
    data = constant_of(value)
    if data is None or not data.dtype.is_integer or data.size > MAX_LISTED:
        return None
    return [int(x) for x in data.array().reshape(-1)]


def _maker(value: SSAValue, op_type: str) -> OnnxOp | None:
    """The op that gives a value, if it is of this type and in its current form."""
    op = value.owner
    return op if isinstance(op, OnnxOp) and op.name == f"onnx.{op_type}" else None


def _rank(value: SSAValue) -> int | None:
    shape = shape_of(value.type)
    return None if shape is None else len(shape)


# Transpose


def _permutation(op: OnnxOp) -> tuple[int, ...] | None:
    given = op.attr("perm")
    if isinstance(given, tuple):
        return cast("tuple[int, ...]", given)
    rank = _rank(op.operands[0])
    return None if rank is None or given is not None else tuple(reversed(range(rank)))


@rule("onnx.Transpose")
def identity_transpose(op: OnnxOp, rw: Rewriter) -> bool:
    """Transpose that leaves every axis where it is."""
    perm = _permutation(op)
    if perm is None or perm != tuple(range(len(perm))):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Transpose")
def double_transpose(op: OnnxOp, rw: Rewriter) -> bool:
    """Transpose(Transpose(x, p), q) is one Transpose by p[q]."""
    inner = _maker(op.operands[0], "Transpose")
    if inner is None:
        return False
    first, second = _permutation(inner), _permutation(op)
    if first is None or second is None:
        # Of unknown rank: reversing the axes twice restores them.
        if inner.attr("perm") is not None or op.attr("perm") is not None:
            return False
        rw.replace(op, [inner.operands[0]])
        return True
    if len(first) != len(second):
        return False
    both = tuple(first[i] for i in second)
    if both == tuple(range(len(both))):
        rw.replace(op, [inner.operands[0]])
        return True
    new = rw.make(type(op), [inner.operands[0]], [op.results[0].type], {"perm": both}, before=op, sources=[inner, op])
    rw.replace(op, [new.results[0]])
    return True


# Reshape

_RESHAPES = ("onnx.Reshape", "onnx.Flatten", "onnx.Squeeze", "onnx.Unsqueeze")
"""Ops that keep the elements and their order."""


@rule("onnx.Reshape", "onnx.Expand", "onnx.Flatten", "onnx.Squeeze", "onnx.Unsqueeze")
def reshape_to_own_shape(op: OnnxOp, rw: Rewriter) -> bool:
    """A Reshape or Expand to the shape that the operand has anyway."""
    if not same_type(op.operands[0].type, op.results[0].type):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Reshape", "onnx.Flatten")
def reshape_back(op: OnnxOp, rw: Rewriter) -> bool:
    """Reshapes in a row that end with the shape that they began with."""
    source = op.operands[0]
    while isinstance(maker := source.owner, OnnxOp) and maker.name in _RESHAPES:
        source = maker.operands[0]
        if same_type(source.type, op.results[0].type):
            rw.replace(op, [source])
            return True
    return False


@rule("onnx.Reshape")
def double_reshape(op: OnnxOp, rw: Rewriter) -> bool:
    """Reshape(Reshape(x, s), t) is Reshape(x, t), unless a 0 in t copies a size from between."""
    inner = op.operands[0].owner
    if not isinstance(inner, OnnxOp) or inner.name not in _RESHAPES:
        return False
    if not op.attr("allowzero"):
        target = _integers(op.operands[1])
        if target is None or 0 in target:
            return False
    new = rw.make(
        type(op),
        [inner.operands[0], op.operands[1]],
        [op.results[0].type],
        {"allowzero": op.attr("allowzero")} if "allowzero" in op.properties else None,
        before=op,
        sources=[inner, op],
    )
    rw.replace(op, [new.results[0]])
    return True


@rule("onnx.Flatten")
def flatten_of_matrix(op: OnnxOp, rw: Rewriter) -> bool:
    """Flatten of a matrix into the rows and columns that it has."""
    if _rank(op.operands[0]) != 2 or op.attr("axis") not in (1, -1):
        return False
    rw.replace(op, [op.operands[0]])
    return True


def _axes(op: OnnxOp, rank: int | None) -> list[int] | None:
    """The axes operand, counted from the front of a tensor of this rank."""
    axes = _integers(op.operand(1))
    if axes is None or (any(a < 0 for a in axes) and rank is None):
        return None
    return sorted(a + cast(int, rank) if a < 0 else a for a in axes)


@rule("onnx.Squeeze")
def squeeze_of_unsqueeze(op: OnnxOp, rw: Rewriter) -> bool:
    """Squeeze takes away the axes that Unsqueeze has put in."""
    inner = _maker(op.operands[0], "Unsqueeze")
    if inner is None:
        return False
    rank = _rank(inner.results[0])
    axes = _axes(op, rank)
    if axes is None or axes != _axes(inner, rank):
        return False
    rw.replace(op, [inner.operands[0]])
    return True


@rule("onnx.Unsqueeze")
def unsqueeze_of_squeeze(op: OnnxOp, rw: Rewriter) -> bool:
    """Unsqueeze puts in the axes that Squeeze has taken away."""
    inner = _maker(op.operands[0], "Squeeze")
    if inner is None:
        return False
    axes = _axes(op, _rank(op.results[0]))
    if axes is None or axes != _axes(inner, _rank(inner.operands[0])):
        return False
    source = inner.operands[0]
    # That the sizes are 1 is known of the result alone, where they are open in the type of an input.
    if isinstance(source, BlockArgument) and meet(source.type, op.results[0].type) != source.type:
        return False
    rw.replace(op, [source])
    return True


# Ops that can leave everything as it is


@rule("onnx.Tile")
def tile_once(op: OnnxOp, rw: Rewriter) -> bool:
    """Tile with one repeat along every axis."""
    repeats = _integers(op.operands[1])
    if repeats is None or any(r != 1 for r in repeats):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Pad")
def pad_by_nothing(op: OnnxOp, rw: Rewriter) -> bool:
    """Pad by zero elements everywhere."""
    pads = _integers(op.operands[1])
    if pads is None or any(pads):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Slice")
def slice_of_everything(op: OnnxOp, rw: Rewriter) -> bool:
    """Slice from the beginning to the end in steps of one."""
    starts, ends = _integers(op.operands[1]), _integers(op.operands[2])
    steps = [1] if op.operand(4) is None else _integers(op.operand(4))
    if starts is None or ends is None or steps is None or any(s != 1 for s in steps):
        return False
    is_whole = not any(starts) and all(e >= FAR for e in ends)
    # In steps of one, a slice that is as long as the axis is the axis.
    if not is_whole and not same_type(op.operands[0].type, op.results[0].type):
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.Split")
def split_into_one(op: OnnxOp, rw: Rewriter) -> bool:
    """Split into a single part."""
    if len(op.results) != 1:
        return False
    rw.replace(op, [op.operands[0]])
    return True


@rule("onnx.ReduceSum", "onnx.ReduceMean", "onnx.ReduceMax", "onnx.ReduceMin", "onnx.ReduceProd")
def reduce_over_no_axes(op: OnnxOp, rw: Rewriter) -> bool:
    """A reduction that is told to do nothing where no axes are given, and is given none."""
    axes: Sequence[int] | None = [] if op.operand(1) is None else _integers(op.operand(1))
    if not op.attr("noop_with_empty_axes") or axes is None or len(axes) > 0:
        return False
    rw.replace(op, [op.operands[0]])
    return True
