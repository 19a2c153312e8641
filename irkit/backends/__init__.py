"""What runs modules: one ``compile`` for the NumPy interpreter, onnxruntime and the backends of plug-ins."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from irkit.errors import UnsupportedError

if TYPE_CHECKING:
    from irkit.backends.base import Executable
    from irkit.ir.module import Module

__all__ = ["ENTRY_POINTS", "backend_names", "compile"]

ENTRY_POINTS = "irkit.backends"
"""The entry point group of plug-in backends: each names a function like ``compile`` of the two backends here."""

_OWN = {"numpy": "irkit.backends.numpy", "onnxruntime": "irkit.backends.onnxruntime"}


def backend_names() -> list[str]:
    """The backends that there are, ours first. Whether their libraries are installed shows on use."""
    return [*_OWN, *sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _OWN)]


def compile(module: Module, backend: str = "numpy", **options: Any) -> Executable:
    """Makes a module ready to run; the module is not changed.

    Args:
        backend: ``"numpy"``, ``"onnxruntime"``, or the name of a plug-in's.
        options: of the backend: ``threads=``, ``seed=``, ``profile=``; onnxruntime has ``device=`` and ``optimize=``
            too.

    Raises:
        UnsupportedError: if there is no such backend or option, or the backend cannot run the module, and why.
    """
    function = _find(backend)
    parameters = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        known = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
        for name in options:
            if name not in known:
                raise UnsupportedError(
                    f"the backend '{backend}' has no option '{name}'", hint=_known("its options are", name, known)
                )
    return function(module, **options)


def _find(backend: str) -> Callable[..., Executable]:
    if backend in _OWN:
        return importlib.import_module(_OWN[backend]).compile
    for point in entry_points(group=ENTRY_POINTS, name=backend):
        return point.load()
    names = backend_names()
    raise UnsupportedError(f"there is no backend '{backend}'", hint=_known("there are", backend, names))


def _known(what: str, name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"{what} {', '.join(names)}" + (f"; did you mean '{close[0]}'?" if close else "")
