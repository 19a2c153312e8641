"""Penalties on weights and outputs, by Keras's names; those of ``irkit.regularizers``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from irkit.errors import IrkitError
from irkit.passes.training.regularizers import L1, L1L2, L2, Regularizer

__all__ = ["L1", "L1L2", "L2", "get", "names"]

_NAMED: dict[str, Callable[[], Regularizer]] = {
    "l1": L1,
    "l2": L2,
    "l1_l2": lambda: L1L2(0.01, 0.01),
    "L1": L1,
    "L2": L2,
    "L1L2": lambda: L1L2(0.01, 0.01),
}


def names() -> list[str]:
    """The names that ``get`` knows."""
    return sorted(_NAMED)


def get(what: Any) -> Regularizer | None:
    """The regularizer of a name; None, or what is given itself, if it can be called.

    Raises:
        IrkitError: if there is none of that name.
    """
    if isinstance(what, str):
        found = _NAMED.get(what)
        if found is None:
            raise IrkitError(f"there is no regularizer '{what}'", hint=f"there are: {', '.join(names())}")
        return found()
    if what is not None and not callable(what):
        raise IrkitError(f"{what!r} is no regularizer", hint="give a name, or a function of a builder and a weight")
    return cast("Regularizer | None", what)
