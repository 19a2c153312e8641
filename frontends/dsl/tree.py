"""Nested tuples, lists and dicts of values: flattened, and built up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["flatten", "mapped", "rebuild"]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree, in order, and its structure, which can be hashed. None is a tree without leaves."""
    leaves: list[Any] = []
    return leaves, _structure(tree, leaves)


def _structure(tree: Any, leaves: list[Any]) -> Any:
    if tree is None:
        return None
    if isinstance(tree, dict):
        return dict, tuple((key, _structure(value, leaves)) for key, value in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), tuple(_structure(item, leaves) for item in tree)
    leaves.append(tree)
    return "leaf"


def rebuild(structure: Any, leaves: Sequence[Any]) -> Any:
    """The tree of this structure with these leaves."""
    return _rebuilt(structure, iter(leaves))


def _rebuilt(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return None
    if structure == "leaf":
        return next(leaves)
    kind, parts = structure
    if kind is dict:
        return {key: _rebuilt(part, leaves) for key, part in parts}
    items = [_rebuilt(part, leaves) for part in parts]
    # A named tuple takes its fields one by one.
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with a function applied to each leaf."""
    leaves, structure = flatten(tree)
    return rebuild(structure, [function(leaf) for leaf in leaves])
