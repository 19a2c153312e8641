"""What a pass is: a dataclass whose fields are its options and whose ``run`` rewrites a module in place."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from irkit.ir.module import Module
from irkit.passes.rewrite import sync_signature

__all__ = ["Pass"]


@dataclass(frozen=True)
class Pass(ModulePass):
    """A pass over modules. Subclasses are frozen dataclasses; each field is an option of the pipeline's text.

    Attributes:
        name: as xDSL lists it, ``"onnx-cse"``; our own pipelines leave the prefix out.
        requires: what must hold before: ``"types"`` (results have the types that inference gives them).
        keeps: what still holds after: ``"types"``, ``"signature"`` (the inputs and outputs, so that results can be
            compared), and ``"gradients"`` (the derivative is the same everywhere, so the pass may run before
            differentiation).
        error: the part of an output's scale by which it may change results on purpose; 0 for nearly every pass.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[frozenset[str]] = frozenset()
    keeps: ClassVar[frozenset[str]] = frozenset({"types", "signature", "gradients"})
    error: ClassVar[float] = 0.0

    @abstractmethod
    def run(self, module: Module) -> bool:
        """Rewrites the module in place. Returns whether anything changed."""

    def notes(self) -> list[str]:
        """What the last run has to say to a person: what it left alone and why, what contradicts what."""
        return []

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """The entry for xDSL's own pipelines."""
        module = Module(op, ctx)
        self.run(module)
        sync_signature(module)
