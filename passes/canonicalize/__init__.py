"""Rewrites ops into simpler ones that compute the same, to the bit, for every input: NaN, infinities, -0.0, empty."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.canonicalize.rules import RULES, load_all
from irkit.passes.rules.driver import drive

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
        self.fired.update(drive(module, RULES, "canonicalize"))
        return bool(self.fired)
