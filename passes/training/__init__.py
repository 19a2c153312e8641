"""Training as graphs: losses, optimizers, schedules and metrics over builder values, and the step that they make up."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Callback": "irkit.passes.training.loop",
    "ClipByGlobalNorm": "irkit.passes.training.gradients",
    "ClipByNorm": "irkit.passes.training.gradients",
    "ClipByValue": "irkit.passes.training.gradients",
    "DynamicLossScale": "irkit.passes.training.gradients",
    "Loss": "irkit.passes.training.losses",
    "Metric": "irkit.passes.training.metrics",
    "Optimizer": "irkit.passes.training.optimizers",
    "Run": "irkit.passes.training.loop",
    "StaticLossScale": "irkit.passes.training.gradients",
    "TrainingStep": "irkit.passes.training.step",
    "dense": "irkit.passes.training.heads",
    "replace_head": "irkit.passes.training.heads",
    "runner": "irkit.passes.training.runner",
    "train": "irkit.passes.training.loop",
    "training_step": "irkit.passes.training.step",
}
"""Public name -> the module that has it, loaded on first use."""

_MODULES = ("losses", "metrics", "optimizers", "regularizers", "schedules")

__all__ = [*_LAZY, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"irkit.passes.training.{name}")
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'irkit.passes.training' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
