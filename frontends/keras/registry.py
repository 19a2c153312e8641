"""Which function converts which operation. The functions stand in ``converters``, by family."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

__all__ = ["converter", "converter_of", "converters"]

Converter = Callable[..., Any]
_TABLE: dict[str, Converter] = {}


def converter(*kinds: str) -> Callable[[Converter], Converter]:
    """Registers a function as the converter of operations, by the names of their classes.

    It is called with the emitter, the operation's attributes, and its arguments: a ``Value`` for a tensor, arrays and
    numbers as they are, a ``Dim`` for a number that depends on sizes. It returns a tensor or value, or a list of them.
    """

    def register(fn: Converter) -> Converter:
        for kind in kinds:
            assert kind not in _TABLE, kind
            _TABLE[kind] = fn
        return fn

    return register


@functools.cache
def _load() -> None:
    from irkit.frontends.keras import converters as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")


def converter_of(kind: str) -> Converter | None:
    """The converter of an operation."""
    _load()
    return _TABLE.get(kind)


def converters() -> dict[str, Converter]:
    """All converters, by the name of the operation's class."""
    _load()
    return dict(_TABLE)
