"""Rules that move transposes towards each other, where they cancel: through elementwise ops and Concat.

Each makes the graph smaller by one Transpose, or leaves as many and one fewer in the way of the next.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from irkit.dialects.onnx import CURRENT, OnnxOp
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.ir.builder import Builder, value_of
from irkit.ir.op import Elementwise, is_absent
from irkit.ir.types import Shape, dtype_of, shape_of, tensor
from irkit.passes.rewrite import Rewriter, has_reference
from irkit.passes.rules import HandRule

__all__ = ["RULES"]

TRANSPOSE = CURRENT["", "Transpose"]
Perm = tuple[int, ...]
MAX_STEPS = 16
"""How many elementwise ops a Transpose is moved through to meet another."""


def perm_of(value: SSAValue) -> Perm | None:
    """By which permutation a value was transposed, if a Transpose gives it."""
    op = value.op if isinstance(value, OpResult) else None
    if not isinstance(op, TRANSPOSE) or has_reference(op):
        return None
    perm = op.attr("perm")
    if perm is not None:
        return cast(Perm, perm)
    shape = shape_of(op.operands[0].type)
    return None if shape is None else tuple(reversed(range(len(shape))))


def source_of(value: SSAValue) -> SSAValue:
    """What a Transpose was given."""
    return cast(Operation, value.owner).operands[0]


def pushes_through(op: OnnxOp) -> bool:
    """Whether an op works element by element on operands of one shape or of none: then a Transpose may pass it."""
    return (
        op.has_trait(Elementwise) and len(op.results) == 1 and op.current and not op.regions and op.op_type != "PRelu"
    )


def permuted(shape: Shape | None, perm: Perm) -> Shape | None:
    return None if shape is None else tuple(shape[p] for p in perm)


def elementwise_of_transposed(op: OnnxOp, rw: Rewriter) -> bool:
    """f(Transpose(x), Transpose(y), c) is Transpose(f(x, y, c)): of several transposes one is left.

    Of one operand alone only where a Transpose follows, which this one then meets.
    """
    if not pushes_through(op) or op.parent is None:
        return False
    rank = len(shape_of(op.results[0].type) or ())
    perms = {perm_of(v) for v in op.operands if not is_absent(v) and not _is_small(v, rank)}
    perm = perms.pop() if len(perms) == 1 else None
    if perm is None or len(perm) != rank or perm == tuple(range(rank)):
        return False
    moved = [v for v in dict.fromkeys(op.operands) if perm_of(v) == perm and not is_constant(v)]
    if not all(_only_user(v, op) for v in moved):
        return False
    if len(moved) < 2 and not _meets_transpose(op):
        return False
    back = tuple(perm.index(i) for i in range(rank))
    sources = [cast(Operation, v.owner) for v in moved]
    b = Builder.before(op, rw.ctx, by=rw.by, sources=[*sources, op])
    operands = [source_of(v) if v in moved else _permuted_constant(b, v, back, rank) for v in op.operands]
    info = dtype_of(op.results[0].type)
    if info is None:
        return False
    shape = permuted(shape_of(op.results[0].type), back)
    new = type(op).create(
        operands=operands, result_types=[tensor(info, shape)], properties=op.properties, attributes={}
    )
    rw.add(new, op, [*sources, op])
    last = rw.make(TRANSPOSE, [new.results[0]], [op.results[0].type], {"perm": perm}, before=op, sources=[*sources, op])
    rw.replace(op, [last.results[0]])
    for source in sources:
        if not source.results[0].first_use:
            source.detach()
            source.erase()
    return True


def _is_small(value: SSAValue, rank: int) -> bool:
    """A constant that needs no data moved: of one element, or one that is cheap to transpose."""
    data = constant_of(value)
    return data is not None and len(data.shape) <= rank


def _permuted_constant(b: Builder, value: SSAValue, back: Perm, rank: int) -> SSAValue:
    """A constant operand as the op takes it in front of the Transpose."""
    data = constant_of(value)
    if data is None or (data.size == 1 and len(data.shape) == 0) or is_absent(value):
        return value
    whole = (1,) * (rank - len(data.shape)) + data.shape
    made = b.wrap(value)
    if whole != data.shape:
        made = b.Reshape(made, np.array(whole, np.int64))
    return value_of(b.Transpose(made, perm=list(back)))


def _meets_transpose(op: Operation) -> bool:
    """Whether what comes after an op, through elementwise ops of one user each, ends in a Transpose."""
    for _ in range(MAX_STEPS):
        users = {use.operation for use, _ in zip(op.results[0].uses, range(2), strict=False)}
        if len(users) != 1:
            return False
        op = users.pop()
        if isinstance(op, TRANSPOSE):
            return True
        if not isinstance(op, OnnxOp) or not pushes_through(op):
            return False
    return False


def _only_user(value: SSAValue, op: Operation) -> bool:
    return all(use.operation is op for use in value.uses) and cast(Operation, value.owner).parent is op.parent


def concat_of_transposed(op: OnnxOp, rw: Rewriter) -> bool:
    """Concat(Transpose(x, p), Transpose(y, p)) is Transpose(Concat(x, y), p) along the axis that p takes there."""
    perms = {perm_of(v) for v in op.operands}
    perm = perms.pop() if len(perms) == 1 else None
    if perm is None or len(op.operands) < 2 or not all(_only_user(v, op) for v in op.operands):
        return False
    back = tuple(perm.index(i) for i in range(len(perm)))
    info = dtype_of(op.results[0].type)
    if info is None:
        return False
    axis = perm[cast(int, op.attr("axis"))]
    sources = [cast(Operation, v.owner) for v in dict.fromkeys(op.operands)]
    joined = rw.make(
        CURRENT["", "Concat"],
        [source_of(v) for v in op.operands],
        [tensor(info, permuted(shape_of(op.results[0].type), back))],
        {"axis": axis},
        before=op,
        sources=[*sources, op],
    )
    last = rw.make(
        TRANSPOSE, [joined.results[0]], [op.results[0].type], {"perm": perm}, before=op, sources=[*sources, op]
    )
    rw.replace(op, [last.results[0]])
    for source in sources:
        source.detach()
        source.erase()
    return True


_ELEMENTWISE = sorted(
    cls.name
    for (domain, _), cls in CURRENT.items()
    if domain == "" and any(isinstance(t, Elementwise) for t in cls.traits.traits) and cls.op_type != "Identity"
)

RULES = [
    HandRule("elementwise-of-transposed", _ELEMENTWISE, elementwise_of_transposed, over=["onnx.Transpose"]),
    HandRule("concat-of-transposed", ["onnx.Concat"], concat_of_transposed, over=["onnx.Transpose"]),
]
