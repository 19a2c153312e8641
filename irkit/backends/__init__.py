"""What runs modules: one ``compile`` for the NumPy interpreter, onnxruntime and the backends of plug-ins."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from irkit.errors import IrkitError, UnsupportedError

if TYPE_CHECKING:
    from irkit.backends.base import Executable
    from irkit.ir.module import Module

__all__ = ["ENTRY_POINTS", "EXPANSIONS", "backend_names", "compile"]

ENTRY_POINTS = "irkit.backends"
"""The entry point group of plug-in backends: each names a function like ``compile`` of the two backends here."""

EXPANSIONS: dict[str, Callable[[Module], Module]] = {}
"""Op name -> what gives a copy of a module without such ops, for ops that are transformations of the graph around them
and that no backend runs. Passes stand above backends, so they declare it here rather than being called by name."""

_OWN = {"numpy": "irkit.backends.numpy", "onnxruntime": "irkit.backends.onnxruntime"}


def backend_names() -> list[str]:
    """The backends that there are, ours first. Whether their libraries are installed shows on use."""
    return [*_OWN, *sorted(point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _OWN)]


def compile(module: Any, backend: str = "numpy", **options: Any) -> Executable:
    """Makes a module ready to run; the module is not changed.

    Args:
        module: a Module, or what stands for one: an expression of ``irkit.frontends.dsl``, a list or dict of them.
        backend: ``"numpy"``, ``"onnxruntime"``, or the name of a plug-in's.
        options: of the backend: ``threads=``, ``seed=``, ``profile=``; onnxruntime has ``device=`` and ``optimize=``
            too.

    Raises:
        UnsupportedError: if there is no such backend or option, or the backend cannot run the module, and why.
    """
    return compiler(backend, options)(_expanded(module_of(module)), **options)


def compiler(backend: str, options: Iterable[str] = ()) -> Callable[..., Executable]:
    """The function of a backend that makes a module ready to run; it takes these options.

    Raises:
        UnsupportedError: if there is no such backend or option.
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
    return function


def module_of(what: Any) -> Module:
    """The module that is to be run: ``what`` itself, or what it stands for.

    Frontends stand above backends, so their expressions say it themselves: ``what.__irkit_module__(group)`` gives the
    module whose outputs are ``what``, or all of the list or dict ``group`` in which it stands.

    Raises:
        IrkitError: if it stands for none.
    """
    group = what if isinstance(what, list | tuple | dict) else None
    members: Any = [what] if group is None else group.values() if isinstance(group, dict) else group
    for member in members:
        if hasattr(member, "__irkit_module__"):
            return member.__irkit_module__(group)
    if not hasattr(what, "func"):
        found = f"a {type(what).__name__} of {len(what)}" if group is not None else repr(what)
        raise IrkitError(
            f"there is nothing to run in {found}",
            hint="give a Module (ik.load reads one from a file), an expression of the DSL, or a list or dict of them",
        )
    return cast("Module", what)


def _expanded(module: Module) -> Module:
    """The module itself, or a copy without the ops that are expanded first."""
    for name, expand in EXPANSIONS.items():
        if any(op.name == name for op in module.walk()):
            module = expand(module)
    return module


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
