"""Results as the caller's own: whatever shares memory with something else is copied.

Feeds and constants are read-only within a run, so every view of them is read-only too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["own"]


def own(values: Sequence[Any]) -> list[Any]:
    """The values, arrays copied where they are not writeable, or share their memory with an earlier one."""
    seen: dict[int, Any] = {}
    return [_own(value, seen) for value in values]


def _own(value: Any, seen: dict[int, Any]) -> Any:
    match value:
        case np.ndarray():
            root = value
            while isinstance(root.base, np.ndarray):
                root = root.base
            foreign = not value.flags.writeable or root.base is not None or id(root) in seen
            # A small part would keep the whole alive.
            if foreign or root.nbytes > value.nbytes:
                return value.copy()
            seen[id(root)] = root
            return value
        case np.generic():
            return np.asarray(value)
        case list():
            return [_own(item, seen) for item in value]
        case dict():
            return dict(value)
        case _:
            return value
