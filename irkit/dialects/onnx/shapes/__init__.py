"""Shape rules by family of ops, one module each; see ``irkit.dialects.onnx.infer`` for what a rule is."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load_all() -> None:
    """Imports every family, so that all rules are registered."""
    for family in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{family.name}")
