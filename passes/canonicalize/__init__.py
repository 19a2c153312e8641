"""Rewrites ops into simpler ones that compute the same, to the bit, for every input: NaN, infinities, -0.0, empty."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from irkit.dialects.onnx import OnnxOp
from irkit.errors import PassError
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.canonicalize.rules import RULES, load_all
from irkit.passes.rewrite import Rewriter, has_reference, ops_in, sync_signature

__all__ = ["Canonicalize"]


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Applies the rules of this folder until none fires. A rule is looked up by the op it begins at.

    Attributes:
        fired: how often each rule did, after a run.
    """

    name: ClassVar[str] = "onnx-canonicalize"
    requires: ClassVar[frozenset[str]] = frozenset({"types"})

    @cached_property
    def fired(self) -> Counter[str]:
        return Counter()

    def notes(self) -> list[str]:
        return [f"{name}: {count}" for name, count in self.fired.most_common()]

    def run(self, module: Module) -> bool:
        load_all()
        self.fired.clear()
        rewriter = Rewriter(module, "canonicalize")
        waiting = deque(op for op in ops_in(module.op) if op.name in RULES)
        # Each rule makes the graph smaller or simpler, so a rewrite for every op a few times over is plenty.
        limit = 10 * len(waiting) + 1000
        queued = set(waiting)
        while waiting:
            op = waiting.popleft()
            queued.discard(op)
            if op.parent is None or not isinstance(op, OnnxOp) or has_reference(op) or not self._rewrite(op, rewriter):
                continue
            if self.fired.total() > limit:
                culprit, count = self.fired.most_common(1)[0]
                raise PassError(
                    f"canonicalize does not come to an end: rule '{culprit}' fired {count} times",
                    op=op.name,
                    where=where(op),
                )
            for other in (op, *rewriter.touched):
                if other.parent is not None and other.name in RULES and other not in queued:
                    queued.add(other)
                    waiting.append(other)
            rewriter.touched.clear()
        sync_signature(module)
        return bool(self.fired)

    def _rewrite(self, op: OnnxOp, rewriter: Rewriter) -> bool:
        for rule in RULES[op.name]:
            rewriter.by = f"canonicalize:{rule.name}"
            if rule.apply(op, rewriter):
                self.fired[rule.name] += 1
                return True
        return False
