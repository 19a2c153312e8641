"""What happens to gradients before an update: clipping, and the scale that keeps those of float16 from vanishing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype

__all__ = [
    "Clip",
    "ClipByGlobalNorm",
    "ClipByNorm",
    "ClipByValue",
    "DynamicLossScale",
    "StaticLossScale",
    "all_finite",
    "global_norm",
]


def _check_positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise IrkitError(f"{what}: {value} is given, and it takes a number greater than 0")


@dataclass(frozen=True)
class ClipByValue:
    """Every element to ``-most`` to ``most``."""

    most: float

    def __post_init__(self) -> None:
        _check_positive(type(self).__name__, self.most)

    def __call__(self, b: Builder, grads: Sequence[Tensor]) -> list[Tensor]:
        return [b.Clip(g, -self.most, self.most) for g in grads]


@dataclass(frozen=True)
class ClipByNorm:
    """Each gradient scaled down to the norm ``most`` where its own is greater."""

    most: float

    def __post_init__(self) -> None:
        _check_positive(type(self).__name__, self.most)

    def __call__(self, b: Builder, grads: Sequence[Tensor]) -> list[Tensor]:
        return [_scaled(b, g, b.Sqrt(_square_sum(b, g)), self.most) for g in grads]


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """All gradients scaled down together to the norm ``most`` where that of all of them is greater.

    As Keras's ``global_clipnorm``; torch's ``clip_grad_norm_`` adds 1e-6 to the norm that it divides by.
    """

    most: float

    def __post_init__(self) -> None:
        _check_positive(type(self).__name__, self.most)

    def __call__(self, b: Builder, grads: Sequence[Tensor]) -> list[Tensor]:
        norm = global_norm(b, grads)
        return [_scaled(b, g, norm, self.most) for g in grads]


Clip = ClipByValue | ClipByNorm | ClipByGlobalNorm


def _square_sum(b: Builder, g: Tensor) -> Tensor:
    return b.ReduceSum(g * g, keepdims=0)


def global_norm(b: Builder, grads: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together."""
    parts = [_square_sum(b, g) for g in grads]
    return b.Sqrt(parts[0] if len(parts) == 1 else b.Sum(*parts))


def _scaled(b: Builder, g: Tensor, norm: Tensor, most: float) -> Tensor:
    return g * (most / b.Max(norm, most))


def all_finite(b: Builder, grads: Sequence[Tensor]) -> Tensor:
    """Whether no element of any gradient is infinite or NaN; a boolean scalar."""
    # x - x is 0 for what is finite, and NaN for what is not.
    parts = [b.ReduceSum(g - g, keepdims=0) for g in grads]
    return b.Equal(parts[0] if len(parts) == 1 else b.Sum(*parts), 0.0)


@dataclass(frozen=True)
class StaticLossScale:
    """The loss is multiplied by ``scale`` before it is differentiated, the gradients are divided by it."""

    scale: float

    def __post_init__(self) -> None:
        _check_positive("loss_scale", self.scale)

    @property
    def initial(self) -> float:
        """The scale at the beginning."""
        return self.scale


@dataclass(frozen=True)
class DynamicLossScale:
    """A scale that grows while gradients stay finite; an update by gradients that are not is left out.

    As Keras's ``LossScaleOptimizer`` and torch's ``GradScaler``.

    Attributes:
        initial: the scale at the beginning.
        growth_steps: after so many updates without an infinity it is doubled.
        factor: what it is multiplied by, and after an infinity divided by.
    """

    initial: float = 2.0**15
    growth_steps: int = 2000
    factor: float = 2.0

    def __post_init__(self) -> None:
        _check_positive("DynamicLossScale.initial", self.initial)
        _check_positive("DynamicLossScale.growth_steps", self.growth_steps)
        _check_positive("DynamicLossScale.factor", self.factor)

    def next(self, b: Builder, scale: Tensor, good: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
        """The scale (float32) and the number of good steps (int64) after a step."""
        zero, one = b.constant(np.int64(0)), b.constant(np.int64(1))
        counted = b.Where(finite, good + one, zero)
        due = b.GreaterOrEqual(counted, b.constant(np.int64(self.growth_steps)))
        grown = b.Where(due, scale * self.factor, scale)
        grown = b.Where(b.IsInf(grown), scale, grown)
        lower = b.Max(scale / self.factor, b.constant(1.0, dtype("float32")))
        return b.Where(finite, grown, lower), b.Where(due, zero, counted)
