"""How a rule is declared: one function, decorated with the ops at which it begins."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from irkit.dialects.onnx import OnnxOp
from irkit.passes.rewrite import Rewriter

__all__ = ["RULES", "Rule", "load_all", "rule"]

Apply = Callable[[OnnxOp, Rewriter], bool]


@dataclass(frozen=True)
class Rule:
    """A rewrite that begins at an op and says whether it fired."""

    name: str
    apply: Apply


RULES: dict[str, list[Rule]] = {}
"""Op name, as ``onnx.Transpose`` -> the rules that begin at such an op, in the order in which they are tried."""


def rule(*op_names: str) -> Callable[[Apply], Apply]:
    """Declares the decorated function as a rule for these ops. It is called after the function, with dashes.

    A rule must hold for every input and shape, or check what it needs. It changes the module through the rewriter,
    and only if it returns True. Names are those of the current forms: older forms may mean something else.
    """

    def register(apply: Apply) -> Apply:
        made = Rule(apply.__name__.strip("_").replace("_", "-"), apply)
        for name in op_names:
            RULES.setdefault(name, []).append(made)
        return apply

    return register


@cache
def load_all() -> None:
    """Imports every family of rules."""
    for family in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if family.name != "rules":
            importlib.import_module(f"irkit.passes.canonicalize.{family.name}")
