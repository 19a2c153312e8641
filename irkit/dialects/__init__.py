"""The dialects of irkit, and the context in which all of them are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import entry_points

from xdsl.context import Context
from xdsl.ir import Dialect

from irkit.errors import IrkitError

__all__ = ["DIALECTS", "context", "plugins"]


def _builtin() -> Dialect:
    from xdsl.dialects.builtin import Builtin

    return Builtin


def _func() -> Dialect:
    from xdsl.dialects.func import Func

    return Func


def _onnx() -> Dialect:
    from irkit.dialects.onnx import ONNX

    return ONNX


def _ad() -> Dialect:
    from irkit.dialects.ad import AD

    return AD


def _state() -> Dialect:
    from irkit.dialects.state import STATE

    return STATE


DIALECTS: dict[str, Callable[[], Dialect]] = {"onnx": _onnx, "state": _state, "ad": _ad}
"""Our own dialects by name; each is imported when it is first needed."""


GROUP = "irkit.dialects"
"""The entry points by which a package adds dialects: name -> function that returns the Dialect."""


@cache
def plugins() -> dict[str, Callable[[], Dialect]]:
    """The dialects of others, loaded, so that the ops of their domains are known.

    Raises:
        IrkitError: if two packages, or one and irkit itself, claim a name.
    """
    found: dict[str, Callable[[], Dialect]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        if point.name in found or point.name in ("builtin", "func", *DIALECTS):
            raise IrkitError(f"two packages define a dialect '{point.name}'", hint=f"'{point.value}' is one of them")
        found[point.name] = partial(_loaded, point.load()())
    return found


def _loaded(dialect: Dialect) -> Dialect:
    return dialect


def context() -> Context:
    """A fresh context with the builtin, func and all of irkit's dialects, and those of plug-ins."""
    made = Context()
    for name, load in {"builtin": _builtin, "func": _func, **DIALECTS, **plugins()}.items():
        made.register_dialect(name, load)
    made.load_registered_dialect("builtin")
    return made
