"""Folds the updates of gradient descent into the backward ops that give the gradients.

A gradient is linear in the cotangent of the loss, so what scales every gradient may scale that cotangent instead: one
number instead of a pass over each parameter. What is left, ``w + dw``, is the third operand of the ``Gemm`` that gives
``dw``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.ir import Block, Operation, OpResult, SSAValue, Use

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, Tensor
from irkit.ir.module import Module
from irkit.ir.op import TensorOp, is_absent
from irkit.ir.types import shape_of
from irkit.passes.base import Pass
from irkit.passes.effects import Effects
from irkit.passes.rewrite import Rewriter, erase, sync_signature
from irkit.passes.types import same_type

__all__ = ["FoldUpdate"]

BY = "fold-update"

ANY: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("onnx.MatMul", "onnx.Gemm", "onnx.Conv", "onnx.ConvTranspose", "onnx.Mul", "ad.scale"), (0, 1)),
    **dict.fromkeys(
        [
            f"onnx.{name}"
            for name in "Div MaxUnpool ReduceSum ReduceMean Reshape Flatten Transpose Squeeze Unsqueeze Expand Slice "
            "Gather Tile Neg Identity AveragePool GlobalAveragePool Col2Im DepthToSpace SpaceToDepth CumSum".split()
        ],
        (0,),
    ),
    "onnx.Einsum": (0, 1),
}
"""Ops that are linear in each of these operands (those with a third, the bias, only without it)."""

ALL = frozenset({"onnx.Add", "onnx.Sub", "onnx.Sum", "onnx.Concat"})
"""Ops that are linear in all operands together."""

FAR = 1 << 60
"""More elements than anything has."""

MOST_MOVED = 200
"""Of how many ops a scale may be computed, since they are moved to the front."""

Scale = tuple[SSAValue | float, bool]
"""By what a value is scaled: a number or a scalar; and whether by its negative."""


@dataclass(frozen=True)
class FoldUpdate(Pass):
    """Makes ``w - rate * dw`` one ``Gemm``, and scales the cotangent of the loss instead of the gradients.

    For gradients that nothing else uses (one that is an output, clipped or squared stays), in the main graph. Products
    and sums are taken in another order, so results may differ in their last bits. Runs after differentiation and
    after constants are folded: ``O2,fold-update,O2``.
    """

    name: ClassVar[str] = "onnx-fold-update"
    requires: ClassVar[frozenset[str]] = frozenset({"types"})

    def run(self, module: Module) -> bool:
        effects = Effects(module)
        rewriter = Rewriter(module, BY)
        changed = False
        for scale, updates in _updates(module).items():
            sinking = _Sinking(module, scale, updates)
            ops = _computed_by(module.block, scale[0], effects)
            done = sinking.updates if ops is not None and sinking.run(ops) else []
            by_alpha = [_scaled_by_alpha(update, scale, rewriter) for update in updates if update not in done]
            changed |= bool(done) or any(by_alpha)
        sync_signature(module)
        return changed


@dataclass(frozen=True)
class _Update:
    """``op = kept + sign * scale * gradient``: an Add or Sub, and the Mul before it.

    Attributes:
        at: which operand of the op the product is.
        of: which operand of the product the gradient is.
    """

    op: OnnxOp
    product: OnnxOp
    at: int
    of: int

    @property
    def kept(self) -> SSAValue:
        return self.op.operands[1 - self.at]

    @property
    def gradient(self) -> SSAValue:
        return self.product.operands[self.of]


def _updates(module: Module) -> dict[Scale, list[_Update]]:
    """The updates of the main graph, by what the gradients are scaled with."""
    found: dict[Scale, list[_Update]] = {}
    for op in module.block.ops:
        if not isinstance(op, OnnxOp) or op.name not in ("onnx.Add", "onnx.Sub"):
            continue
        for at in (1,) if op.name == "onnx.Sub" else (1, 0):
            product, kept = op.operands[at].owner, op.operands[1 - at]
            if not isinstance(product, OnnxOp) or product.name != "onnx.Mul" or not _is_used_once(product.results[0]):
                continue
            match = _scaled(product)
            if match is not None and same_type(kept.type, product.results[0].type):
                of, scale = match
                found.setdefault((scale, op.name == "onnx.Sub"), []).append(_Update(op, product, at, of))
                break
    return found


def _is_used_once(value: SSAValue) -> bool:
    return len(list(value.uses)) == 1


def _scaled(product: OnnxOp) -> tuple[int, SSAValue | float] | None:
    """Which operand of a Mul a scalar scales, and the scalar: a number where it is constant."""
    for place, (value, scale) in enumerate((product.operands, product.operands[::-1])):
        if not same_type(value.type, product.results[0].type) or constant_of(value) is not None:
            continue
        data = constant_of(scale)
        if data is not None and data.size == 1:
            return place, float(data.array().item())
        if data is None and shape_of(scale.type) == ():
            return place, scale
    return None


def _computed_by(block: Block, scale: SSAValue | float, effects: Effects) -> list[Operation] | None:
    """The ops of a block that a scale is computed by, in order; None where they cannot be moved."""
    found: set[Operation] = set()
    waiting = [scale]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, OpResult) or value.op in found:
            continue
        if (
            value.op.parent is not block
            or value.op.regions
            or not effects.mergeable(value.op)
            or len(found) == MOST_MOVED
        ):
            return None
        found.add(value.op)
        waiting += value.op.operands
    return [op for op in block.ops if op in found]


def _to_front(block: Block, ops: list[Operation]) -> None:
    for op in reversed(ops):
        first = block.first_op
        if first is not None and first is not op:
            op.detach()
            block.insert_op_before(op, first)


def _places(op: Operation) -> Sequence[int]:
    """The operands in which an op is linear: in each by itself, or, for ``ALL``, together."""
    if not isinstance(op, TensorOp):
        return ()
    if op.name in ALL:
        return range(len(op.operands))
    if op.name == "onnx.Where":
        return [i for i in (1, 2) if _is_zero(op.operands[3 - i])]
    places = ANY.get(op.name, ())
    has_bias = len(places) == 2 and len(op.operands) > 2 and not is_absent(op.operands[2])
    return () if has_bias else places


def _is_zero(value: SSAValue) -> bool:
    return _number(value) == 0


def _elements(value: SSAValue) -> int:
    """How many elements a value has; an unknown size counts as 64."""
    shape = shape_of(value.type)
    return FAR if shape is None else prod(d if isinstance(d, int) else 64 for d in shape)


def _number(value: SSAValue) -> float | None:
    """The one element of a constant."""
    data = constant_of(value)
    return float(data.array().item()) if data is not None and data.size == 1 else None


class _Sinking:
    """Moves one scale from updates up to where the fewest elements are multiplied.

    Attributes:
        fits: values all of whose uses lead to the updates, by linear ops.
        cost: per such value how many elements must be multiplied for it to be scaled.
        wants: per value the uses that are to see it scaled.
        roots: the values that are multiplied.
    """

    def __init__(self, module: Module, scale: Scale, updates: Sequence[_Update]) -> None:
        self.module = module
        self.scale, self.negative = scale
        self.rewriter = Rewriter(module, BY)
        self.rewriter.in_step = True
        self.fits: set[SSAValue] = set()
        self.cost: dict[SSAValue, int] = {}
        self.wants: dict[SSAValue, list[Use]] = {}
        self.roots: list[SSAValue] = []
        ops = list(module.block.ops)
        products = {update.product for update in updates}
        for op in reversed(ops):
            self.fits.update(r for r in op.results if self._fits(r, products))
        for op in ops:
            for result in op.results:
                if result in self.fits:
                    above = [self._cost_of(op.operands[place]) for place in self._above(result)]
                    self.cost[result] = sum(above) if above else _elements(result)
        self.updates = [u for u in updates if u.gradient in self.fits]
        for update in self.updates:
            self._want(update.product, update.of)
        for op in reversed(ops):
            for result in op.results:
                if result in self.wants:
                    self._plan(result)
        self.roots += [value for value in self.wants if not isinstance(value, OpResult)]

    def _fits(self, value: SSAValue, products: set[OnnxOp]) -> bool:
        uses = list(value.uses)
        return bool(uses) and all(
            use.operation in products
            or (use.index in _places(use.operation) and all(r in self.fits for r in use.operation.results))
            for use in uses
        )

    def _cost_of(self, value: SSAValue) -> int:
        return 0 if _number(value) is not None else self.cost.get(value, _elements(value))

    def _above(self, value: OpResult) -> list[int]:
        """The operands of a value's op that are to be scaled in its place; none where it is multiplied itself."""
        op = value.op
        usable = [i for i in _places(op) if op.operands[i] in self.fits or _number(op.operands[i]) is not None]
        if op.name in ALL and usable:
            return list(_places(op))
        return [min(usable, key=lambda place: self._cost_of(op.operands[place]))] if usable else []

    def _want(self, op: Operation, place: int) -> None:
        self.wants.setdefault(op.operands[place], []).append(Use(op, place))

    def _plan(self, value: OpResult) -> None:
        """Lets what wants a value scaled have it through its op's operands, or by a product of its own."""
        wanted_by_all = value in self.fits and len(self.wants[value]) == len(list(value.uses))
        above = self._above(value) if wanted_by_all else []
        for place in above:
            self._want(value.op, place)
        if not above:
            self.roots.append(value)

    def run(self, scaled_by: list[Operation]) -> bool:
        """Rewrites the graph; returns whether there was anything to gain.

        Args:
            scaled_by: the ops that compute the scale, which is needed earlier than it was.
        """
        after = sum(_elements(root) for root in self.roots if _number(root) is None)
        if after >= sum(_elements(update.gradient) for update in self.updates):
            return False
        if not self.rewriter.take(self.updates[0].op):
            return False
        _to_front(self.module.block, scaled_by)
        for root in self.roots:
            self._multiply(root)
        for update in self.updates:
            self._join(update)
        return True

    def _multiply(self, value: SSAValue) -> None:
        """Puts the product of a value and the scale in front of the first op that wants it."""
        wanting = {use.operation for use in self.wants[value]}
        first = next(op for op in self.module.block.ops if op in wanting)
        product = self._product(Builder.before(first, self.module.ctx, by=BY), value)
        for use in self.wants[value]:
            use.operation.operands[use.index] = product.ssa

    def _product(self, b: Builder, value: SSAValue) -> Tensor:
        x, number = b.wrap(value), _number(value)
        assert x.dtype is not None
        if isinstance(self.scale, float):
            factor = np.asarray(-self.scale if self.negative else self.scale, x.dtype.numpy)
            return b.Mul(x, b.constant(factor)) if number is None else b.constant(_array(value) * factor)
        factor = b.wrap(cast(SSAValue, self.scale))
        factor = b.Neg(factor) if self.negative else factor
        return factor if number == 1 and x.rank == 0 else b.Mul(x, factor)

    def _join(self, update: _Update) -> None:
        """``kept + gradient``, now that the gradient is scaled; one Gemm where that is what gives it."""
        made = _in_gemm(update, 1.0, self.rewriter)
        if made is None:
            b = Builder.before(update.op, self.module.ctx, by=BY)
            made = b.Add(b.wrap(update.kept), b.wrap(update.gradient))
        self.rewriter.replace(update.op, [made.ssa])
        erase(update.product)


def _in_gemm(update: _Update, factor: float, rewriter: Rewriter) -> Tensor | None:
    """``kept + factor * gradient`` as one Gemm, where a Gemm that nothing else uses gives the gradient."""
    maker = update.gradient.owner
    if not isinstance(maker, OnnxOp) or not _is_bare_gemm(maker) or not _is_used_once(update.gradient):
        return None
    alpha = maker.attr("alpha") * factor
    if float(np.float32(alpha)) != alpha:
        # Attributes are float32: a number of float64 may not be one.
        return None
    b = Builder.before(update.op, rewriter.ctx, by=BY, sources=[maker, update.op])
    options = {name: maker.attr(name) for name in ("transA", "transB") if name in maker.properties}
    values = [b.wrap(v) for v in (*maker.operands[:2], update.kept)]
    return b.Gemm(*values, **options, **({} if alpha == 1 else {"alpha": alpha}))


def _scaled_by_alpha(update: _Update, scale: Scale, rewriter: Rewriter) -> bool:
    """Lets the Gemm scale where the cotangent cannot: by a number that is constant."""
    number, negative = scale
    made = _in_gemm(update, -number if negative else number, rewriter) if isinstance(number, float) else None
    if made is None:
        return False
    rewriter.replace(update.op, [made.ssa])
    return update.op.parent is None


def _is_bare_gemm(op: OnnxOp) -> bool:
    return op.name == "onnx.Gemm" and op.operand(2) is None


def _array(value: SSAValue) -> np.ndarray[Any, Any]:
    data = constant_of(value)
    assert data is not None
    return data.array()
