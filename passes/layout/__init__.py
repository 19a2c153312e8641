"""Moves transposes until as little as possible is transposed: what NHWC frameworks write around each Conv goes.

ONNX's Conv, pooling and normalization take NCHW alone, so exporters of models that are NHWC put a Transpose before and
after each. Nearly all that stands between them works on any order of axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from xdsl.ir import Block

from irkit.errors import PassError
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.layout.choice import solve
from irkit.passes.layout.emit import apply
from irkit.passes.layout.graph import Explorer, perm_of
from irkit.passes.layout.perms import is_identity
from irkit.passes.layout.signature import change_signature
from irkit.passes.rewrite import Rewriter, body_blocks, enclosing_function, ops_in, sync_signature, target_opset

__all__ = ["Layout"]

LEAST_OPSET = 7
"""Below it elementwise ops align their operands otherwise."""


@dataclass(frozen=True)
class Layout(Pass):
    """Chooses for each op the order of axes with which the transposes of the graph move the fewest elements.

    What is the same for every order of axes, or can be told another one, may get another: elementwise ops, Concat,
    Split, Slice, Pad, reductions, Softmax, Resize and so on. What stands in one layout keeps it: inputs and outputs,
    Conv, MatMul, other Reshapes, graphs of control flow. Transposes are then needed where two layouts meet, and are
    put where that costs least: first by elements, then by their width, then by number. Sizes that are no numbers count
    as 64. They never cost more than before.

    It keeps every bit, but that of sums over axes which come to lie in another order in memory.

    Args:
        to: ``"nchw"`` or ``"nhwc"``: in which layout ops on images should work where it makes no difference.
        exact: leave alone what rounds otherwise in another order: sums, means, Softmax, normalizations, interpolation.
        inputs: ``"nchw"`` or ``"nhwc"``: changes the signature, so that inputs which are images have this layout.
        outputs: the same for outputs.
        only: the names of the inputs and outputs that this is about; by default all images.
    """

    name: ClassVar[str] = "onnx-layout"
    requires: ClassVar[frozenset[str]] = frozenset({"types"})

    to: str = "nchw"
    exact: bool = False
    inputs: str = ""
    outputs: str = ""
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option, allowed in (("to", ("nchw", "nhwc")), ("inputs", LAYOUTS), ("outputs", LAYOUTS)):
            if getattr(self, option) not in allowed:
                raise PassError(f"option '{option}' of pass 'layout' is {getattr(self, option)!r}", hint=HINT)
        if self.inputs or self.outputs:
            object.__setattr__(self, "keeps", Pass.keeps - {"signature"})

    @cached_property
    def _said(self) -> list[str]:
        return []

    def notes(self) -> list[str]:
        return list(self._said)

    def run(self, module: Module) -> bool:
        self._said.clear()
        rewriter = Rewriter(module, "layout")
        opset, before = target_opset(module), _count(module)
        if self.inputs or self.outputs:
            self._said.extend(
                change_signature(module, rewriter, opset, inputs=self.inputs, outputs=self.outputs, only=self.only)
            )
        changed = bool(self._said)
        for block in body_blocks(module):
            opset = target_opset(module, enclosing_function(block))
            if opset >= LEAST_OPSET:
                changed |= self._block(block, rewriter, opset)
        sync_signature(module)
        if changed:
            self._said.append(f"transposes: {before} before, {_count(module)} after")
        return changed

    def _block(self, block: Block, rewriter: Rewriter, opset: int) -> bool:
        """Moves the transposes of a block, and of the graphs in it."""
        changed = False
        for op in block.ops:
            for region in op.regions:
                for inner in region.blocks:
                    changed |= self._block(inner, rewriter, opset)
        explorer = Explorer(block, opset, exact=self.exact)
        for cluster in explorer.clusters():
            if not solve(cluster, self.to):
                self._said.append(f"of {len(cluster.nodes)} ops, not all orders were tried")
            planned = sum(source.cost() for source in cluster.sources.values())
            moved = any(not is_identity(node.order) for node in cluster.nodes.values())
            if (planned < cluster.spent() or moved) and rewriter.take(cluster.transposes[0].op):
                apply(cluster, explorer, rewriter)
                changed = True
        return changed


def _count(module: Module) -> int:
    return sum(perm_of(op) is not None for op in ops_in(module.op))


LAYOUTS = ("", "nchw", "nhwc")
HINT = "it is nchw or nhwc"
