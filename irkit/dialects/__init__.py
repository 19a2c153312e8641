"""The dialects of irkit, and the context in which all of them are known."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.context import Context
from xdsl.ir import Dialect

__all__ = ["DIALECTS", "context"]


def _builtin() -> Dialect:
    from xdsl.dialects.builtin import Builtin

    return Builtin


def _func() -> Dialect:
    from xdsl.dialects.func import Func

    return Func


def _onnx() -> Dialect:
    from irkit.dialects.onnx import ONNX

    return ONNX


def _state() -> Dialect:
    from irkit.dialects.state import STATE

    return STATE


DIALECTS: dict[str, Callable[[], Dialect]] = {"onnx": _onnx, "state": _state}
"""Our own dialects by name; each is imported when it is first needed."""


def context() -> Context:
    """A fresh context with the builtin, func and all of irkit's dialects."""
    made = Context()
    for name, load in {"builtin": _builtin, "func": _func, **DIALECTS}.items():
        made.register_dialect(name, load)
    made.load_registered_dialect("builtin")
    return made
