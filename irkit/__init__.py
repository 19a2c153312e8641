"""irkit: a toolkit for tensor-graph IR. See the documentation of the names below, all of which load on first use."""

from __future__ import annotations

import importlib
from typing import Any

from irkit.errors import IrkitError

__version__ = "0.1.0"

_LAZY = {
    "load": "irkit.api",
    "parse": "irkit.api",
    "save": "irkit.api",
    "optimize": "irkit.passes",
    "bisect": "irkit.verify",
    "diff": "irkit.verify",
    "explain": "irkit.passes.explain",
    "compile": "irkit.api",
    "Builder": "irkit.ir.builder",
    "Tensor": "irkit.ir.builder",
    "Module": "irkit.ir.module",
    "checkpoint": "irkit.passes.autodiff.api",
    "differentiate": "irkit.passes.autodiff.api",
    "generalize": "irkit.passes.specialize",
    "grad": "irkit.passes.autodiff.api",
    "hessian": "irkit.passes.autodiff.api",
    "hvp": "irkit.passes.autodiff.api",
    "jacobian": "irkit.passes.autodiff.api",
    "jvp": "irkit.passes.autodiff.api",
    "specialize": "irkit.passes.specialize",
    "to_half": "irkit.passes.precision",
    "stop_gradient": "irkit.passes.autodiff.api",
    "value_and_grad": "irkit.passes.autodiff.api",
    "vjp": "irkit.passes.autodiff.api",
    "vjp_for": "irkit.passes.autodiff.api",
    "NodeSpec": "irkit.passes.autodiff.tape",
    "from_tables": "irkit.passes.autodiff.tape",
    "tape": "irkit.passes.autodiff.tape",
    "losses": "irkit.passes.training",
    "metrics": "irkit.passes.training",
    "optimizers": "irkit.passes.training",
    "regularizers": "irkit.passes.training",
    "replace_head": "irkit.passes.training",
    "schedules": "irkit.passes.training",
    "train": "irkit.passes.training",
    "training_step": "irkit.passes.training",
}
"""Public name -> the module that has it."""

__all__ = ["IrkitError", "__version__", *_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'irkit' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
