"""Permutations of axes. ``Transpose(x, p)`` has as its axis ``k`` the axis ``p[k]`` of ``x``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

__all__ = ["Axes", "Perm", "compose", "identity", "inverse", "is_identity", "last_to_first", "permuted", "restrict"]

T = TypeVar("T")
Perm = tuple[int, ...]
Axes = tuple[int, ...]


@cache
def identity(rank: int) -> Perm:
    return tuple(range(rank))


def is_identity(perm: Perm) -> bool:
    return perm == identity(len(perm))


def compose(p: Perm, q: Perm) -> Perm:
    """The permutation of two transposes in a row: first by ``p``, then by ``q``."""
    return tuple(map(p.__getitem__, q))


def inverse(perm: Perm) -> Perm:
    """The permutation of the transpose that undoes one; also where each axis stands after it."""
    found = [0] * len(perm)
    for place, axis in enumerate(perm):
        found[axis] = place
    return tuple(found)


def restrict(perm: Perm, axes: Axes) -> Perm:
    """The order in which some axes come, counted among themselves: ``restrict((0, 3, 1, 2), (1, 3))`` is ``(1, 0)``."""
    if len(axes) == len(perm):
        return perm
    number = {axis: i for i, axis in enumerate(axes)}
    return tuple([number[axis] for axis in perm if axis in number])


def permuted(items: Sequence[T], perm: Perm) -> tuple[T, ...]:
    return tuple([items[axis] for axis in perm])


def last_to_first(rank: int) -> Perm:
    """From NHWC to NCHW, or what that is at another rank."""
    return (0, rank - 1, *range(1, rank - 1))
