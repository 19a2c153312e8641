"""The pass ``lower-ad``: the ``ad`` dialect's ops in standard ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import SSAValue

from irkit.dialects.ad import Barrier, Facts, Scale, StopGradient, facts_of
from irkit.ir.builder import Builder
from irkit.ir.module import Module
from irkit.opsets.ad import product
from irkit.passes.base import Pass
from irkit.passes.rewrite import Rewriter, ops_in, sync_signature

__all__ = ["LowerAd"]


@dataclass(frozen=True)
class LowerAd(Pass):
    """Makes ``ad.scale`` a product, guarded only where an operand may be infinite or NaN for finite inputs.

    Differentiating afterwards would give wrong tangents where a guard stands. ``ad.stop_gradient`` and ``ad.barrier``
    go.
    """

    name: ClassVar[str] = "onnx-lower-ad"
    keeps: ClassVar[frozenset[str]] = frozenset({"types", "signature"})

    def run(self, module: Module) -> bool:
        rewriter = Rewriter(module, "lower-ad")
        known: dict[SSAValue, Facts] = {}
        found = [op for op in ops_in(module.op) if isinstance(op, Scale | StopGradient | Barrier)]
        for op in found:
            if not isinstance(op, Scale):
                rewriter.replace(op, list(op.operands))
                continue
            b = Builder.before(op, module.ctx, by="lower-ad")
            ct, factor = (b.wrap(v) for v in op.operands)
            finite = [facts_of(v, known).finite for v in op.operands]
            rewriter.replace(op, [product(b, ct, factor, *finite).ssa])
        sync_signature(module)
        return bool(found)
