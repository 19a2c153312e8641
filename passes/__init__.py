"""Passes over the graph IR, one per file or small folder; imported as ``irkit.passes``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from irkit.backends import EXPANSIONS

if TYPE_CHECKING:
    from irkit.ir.module import Module
    from irkit.passes.base import Pass
    from irkit.passes.instrument import Instrumentation
    from irkit.passes.pipeline import LEVELS, optimize, parse_pipeline
    from irkit.passes.registry import pass_names, xdsl_passes

# Imported under a second name, every class here would exist twice and no isinstance check could be trusted.
assert __name__ == "irkit.passes", f"import this package as irkit.passes, not as {__name__}"

GRADIENT = "onnx.preview.training.Gradient"
"""The op that names values of the graph around it, and so is expanded before anything else is done."""

_LAZY = {
    "Instrumentation": "irkit.passes.instrument",
    "LEVELS": "irkit.passes.pipeline",
    "Pass": "irkit.passes.base",
    "optimize": "irkit.passes.pipeline",
    "parse_pipeline": "irkit.passes.pipeline",
    "pass_names": "irkit.passes.registry",
    "xdsl_passes": "irkit.passes.registry",
}
"""Public name -> the module that has it, loaded on first use."""

__all__ = ["LEVELS", "Instrumentation", "Pass", "optimize", "parse_pipeline", "pass_names", "xdsl_passes"]


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'irkit.passes' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _expand_gradient(module: Module) -> Module:
    from irkit.passes.pipeline import optimize

    return optimize(module, "expand-gradient")


EXPANSIONS[GRADIENT] = _expand_gradient
