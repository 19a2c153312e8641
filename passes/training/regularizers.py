"""Penalties on parameters, added to the loss. As in Keras: ``L2(r)`` is ``r`` times the sum of squares.

>>> import irkit as ik
>>> ik.regularizers.L1L2(l1=0.1).l1
0.1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irkit.ir.builder import Builder, Tensor
from irkit.passes.training.values import number, widened

__all__ = ["L1", "L1L2", "L2", "Regularizer"]

Regularizer = Callable[[Builder, Tensor], Tensor]
"""Takes a builder and a parameter; gives a scalar that is added to the loss."""


@dataclass(frozen=True)
class L1L2:
    """``l1 * sum |w| + l2 * sum w^2``."""

    l1: float = 0.0
    l2: float = 0.0

    def __call__(self, b: Builder, w: Tensor) -> Tensor:
        w = widened(b, w)
        parts: list[Tensor] = []
        if self.l1:
            parts.append(b.ReduceSum(b.Abs(w), keepdims=0) * self.l1)
        if self.l2:
            parts.append(b.ReduceSum(w * w, keepdims=0) * self.l2)
        if not parts:
            return number(b, 0.0, w)
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def L1(l1: float = 0.01) -> L1L2:
    """``l1 * sum |w|``."""
    return L1L2(l1=l1)


def L2(l2: float = 0.01) -> L1L2:
    """``l2 * sum w^2``."""
    return L1L2(l2=l2)
