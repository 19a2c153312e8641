"""The pass ``simplify-gradient``: backward ops that compute the same from less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import OpResult, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.dtypes import BY_NAME
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.rewrite import Rewriter, erase, ops_in, sync_signature

__all__ = ["SimplifyGradient"]

BY = "simplify-gradient"


@dataclass(frozen=True)
class SimplifyGradient(Pass):
    """Applies the mask of a Relu before a MaxPool to the pooled gradient, which has fewer elements.

    A window's gradient goes to its greatest element, and what the Relu let through of that is what the pool gave.
    Values are the same but for NaN, of which the mask spreads none to elements that are not chosen. Runs after
    differentiation. (The Relu stays before the pool: onnxruntime makes it a part of a convolution there, and finds the
    greatest of zeros faster than that of what they were.)
    """

    name: ClassVar[str] = "onnx-simplify-gradient"
    requires: ClassVar[frozenset[str]] = frozenset({"types"})
    keeps: ClassVar[frozenset[str]] = frozenset({"types"})

    def run(self, module: Module) -> bool:
        rewriter = Rewriter(module, BY)
        masks = [op for op in ops_in(module.op) if isinstance(op, OnnxOp) and op.name == "onnx.Mul"]
        changed = [_mask_pooled(op, rewriter) for op in masks]
        sync_signature(module)
        return any(changed)


def _maker(value: SSAValue, op_type: str) -> OnnxOp | None:
    """The op that gives a value as its first result, if it is of this type."""
    op = value.owner
    is_first = isinstance(value, OpResult) and value.index == 0
    return op if is_first and isinstance(op, OnnxOp) and op.name == f"onnx.{op_type}" else None


def _mask_pooled(mask: OnnxOp, rewriter: Rewriter) -> bool:
    """``MaxUnpool(d, i) * mask(r)`` is ``MaxUnpool(d * Sign(y), i)``, where ``y, i = MaxPool(r)`` and r is a Relu.

    The masks are the same number for number; one op serves for the few elements that are left.
    """
    for first, second in (mask.operands, mask.operands[::-1]):
        unpool, floats = _maker(first, "MaxUnpool"), _maker(second, "Cast")
        bools = _maker(floats.operands[0], "Cast") if floats is not None else None
        if unpool is None or floats is None or bools is None or not _is_relu_to_bool(bools):
            continue
        chosen = unpool.operands[1]
        pool = chosen.owner
        if not isinstance(pool, OnnxOp) or pool.name != "onnx.MaxPool" or pool.operands[0] is not bools.operands[0]:
            continue
        if len(list(unpool.results[0].uses)) > 1 or not _each_window_holds_an_element(pool):
            continue
        b = Builder.before(mask, rewriter.ctx, by=BY, sources=[unpool, mask])
        masked = b.Mul(b.wrap(unpool.operands[0]), b.Sign(b.wrap(pool.results[0])))
        spread = rewriter.make(
            type(unpool),
            [masked.ssa, *unpool.operands[1:]],
            [mask.results[0].type],
            {name: unpool.attr(name) for name in unpool.properties},
            before=mask,
            sources=[unpool, mask],
        )
        rewriter.replace(mask, [spread.results[0]])
        for op in (unpool, floats, bools):
            if not any(True for _ in op.results[0].uses):
                erase(op)
        return mask.parent is None
    return False


def _is_relu_to_bool(cast: OnnxOp) -> bool:
    return cast.attr("to") == BY_NAME["bool"].code and _maker(cast.operands[0], "Relu") is not None


def _each_window_holds_an_element(pool: OnnxOp) -> bool:
    """Whether no window lies in the padding alone."""
    kernel: Sequence[int] = pool.attr("kernel_shape")
    pads: Sequence[int] = pool.attr("pads") or ()
    if pool.attr("auto_pad") not in (None, "NOTSET", "VALID"):
        return False
    return all(p < k for p, k in zip(pads, [*kernel, *kernel], strict=False))
