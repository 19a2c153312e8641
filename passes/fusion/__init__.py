"""Rules that make one standard op of several, or work one into another's weights; by family, a list ``RULES`` each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from irkit.passes.rules import Rewrite, RulePass

__all__ = ["FoldBatchNorm", "Fuse", "all_rules"]


@cache
def all_rules() -> tuple[Rewrite, ...]:
    """The rules of every family, in the order in which they are tried at one op."""
    found: list[Rewrite] = []
    for family in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])):
        found += getattr(importlib.import_module(f"irkit.passes.fusion.{family}"), "RULES", ())
    return tuple(found)


@dataclass(frozen=True)
class Fuse(RulePass):
    """Makes one op of several: normalizations, activations, Softmax, Attention, Gemm; and weights of what is constant.

    What is made must be expressible at the opset that the module is to be saved at (``target_opset`` allows more).
    Results stay the same up to rounding; with ``fast-math`` only for finite values, with ``exact`` to the bit.
    """

    name: ClassVar[str] = "onnx-fuse"

    @classmethod
    def all_rules(cls) -> Sequence[Rewrite]:
        return all_rules()


@dataclass(frozen=True)
class FoldBatchNorm(RulePass):
    """Works BatchNormalization into the Conv, ConvTranspose, Gemm or MatMul before it, where its inputs are constant.

    What is computed of the weights is left to ``constant-fold``.
    """

    name: ClassVar[str] = "onnx-fold-batch-norm"

    @classmethod
    def all_rules(cls) -> Sequence[Rewrite]:
        from irkit.passes.fusion.conv import BATCH_NORM

        return BATCH_NORM
