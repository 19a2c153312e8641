"""Moves out of loops what is the same in every iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Block, Operation

from irkit.dialects.onnx import Initializer, NoValue, OnnxOp, absent
from irkit.dialects.onnx.values import is_constant
from irkit.ir.location import fused
from irkit.ir.module import Module
from irkit.ir.op import Elementwise, is_absent
from irkit.ir.types import shape_of, tensor_info
from irkit.passes.base import Pass
from irkit.passes.effects import Effects
from irkit.passes.rewrite import Rewriter, body_blocks, enclosing_function, has_reference

__all__ = ["Hoist"]

SAFE = frozenset("Shape Size Transpose Softmax LogSoftmax ReduceSum ReduceMean MatMul Gemm LayerNormalization".split())
"""Ops besides the elementwise ones that cannot fail on operands whose types fit: a loop may have no iteration."""
FAILS = frozenset("Div Mod BitShift Cast CastLike".split())
"""Elementwise ops that can, for some element types."""


@dataclass(frozen=True)
class Hoist(Pass):
    """Moves ops of a Loop's or Scan's body that depend on nothing inside it in front of the loop.

    Only what cannot fail is moved, since the body may never run: elementwise ops on floats, products, reductions and
    the like. Random ops, which draw anew in every iteration, ops of unknown effect and graphs stay.
    """

    name: ClassVar[str] = "onnx-hoist"

    def run(self, module: Module) -> bool:
        rewriter = Rewriter(module, "hoist")
        effects = Effects(module)
        changed = False
        for block in body_blocks(module):
            changed |= _block(block, rewriter, effects)
        return changed


def _block(block: Block, rewriter: Rewriter, effects: Effects) -> bool:
    """Moves what can be moved out of the loops of a block, those within first."""
    changed = False
    op = block.first_op
    while op is not None:
        for region in op.regions:
            for inner in region.blocks:
                changed |= _block(inner, rewriter, effects)
                if isinstance(op, OnnxOp) and op.op_type in ("Loop", "Scan"):
                    changed |= _body(inner, op, rewriter, effects)
        op = op.next_op
    return changed


def _body(body: Block, loop: OnnxOp, rewriter: Rewriter, effects: Effects) -> bool:
    outer = cast(Block, loop.parent)
    in_function = enclosing_function(outer) is not None
    changed = False
    for op in list(body.ops):
        if not _is_movable(op, body, effects):
            continue
        # A function owns no initializers.
        if in_function and any(isinstance(v.owner, Initializer) and v.owner.parent is body for v in op.operands):
            continue
        if not rewriter.take(op):
            break
        # Constants that it uses go with it; others in the loop may use them as well.
        for index, value in enumerate(op.operands):
            if is_absent(value):
                op.operands[index] = absent(outer)
            elif value.owner is not body and isinstance(value.owner, Operation) and value.owner.parent is body:
                _move(value.owner, loop, outer)
        _move(op, loop, outer)
        op.location = fused([op.location], "hoist")
        changed = True
    return changed


def _move(op: Operation, loop: Operation, outer: Block) -> None:
    op.detach()
    outer.insert_op_before(op, loop)


def _is_movable(op: Operation, body: Block, effects: Effects) -> bool:
    if not isinstance(op, OnnxOp) or op.regions or isinstance(op, NoValue | Initializer) or has_reference(op):
        return False
    if not op.operands or is_constant(op.results[0]) or not effects.mergeable(op) or not _cannot_fail(op):
        return False
    return all(_is_outside(v.owner, body) or is_absent(v) or is_constant(v) for v in op.operands)


def _is_outside(owner: Operation | Block, body: Block) -> bool:
    """Whether what defines a value stands outside a block (nothing in a nested graph can be an operand here)."""
    return owner is not body and not (isinstance(owner, Operation) and owner.parent is body)


def _cannot_fail(op: OnnxOp) -> bool:
    if not op.has_trait(Elementwise) and op.op_type not in SAFE:
        return False
    if op.op_type in FAILS:
        infos = [tensor_info(v.type) for v in (*op.operands, *op.results)]
        if any(i is None or not i.dtype.is_float for i in infos):
            return False
    # Shapes that are not known might not fit; then it is for the loop to fail, if it runs.
    known = all(shape_of(v.type) is not None for v in op.operands if not is_absent(v))
    return known and (_broadcasts(op) if op.has_trait(Elementwise) else True)


def _broadcasts(op: OnnxOp) -> bool:
    """Whether the operands' shapes certainly fit each other."""
    shapes = [i.shape for v in op.operands if not is_absent(v) and (i := tensor_info(v.type)) is not None]
    rank = max((len(s) for s in shapes if s is not None), default=0)
    for axis in range(rank):
        sizes = {s[len(s) - rank + axis] for s in shapes if s is not None and len(s) - rank + axis >= 0} - {1}
        if len(sizes) > 1 or (None in sizes and len(shapes) > 1):
            return False
    return True
