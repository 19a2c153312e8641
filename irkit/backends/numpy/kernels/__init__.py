"""Kernels by family of ops, one module each; see ``irkit.backends.numpy.registry`` for what a kernel is."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load_all() -> None:
    """Imports every family, so that all kernels are registered."""
    for family in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{family.name}")
