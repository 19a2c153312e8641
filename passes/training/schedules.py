"""Learning rates as functions of the step, built into the graph.

A schedule is a small dataclass; called with a builder and the number of updates done before (a float32 scalar, 0 at the
first update), it gives the rate as a float32 scalar. What Keras has is as in Keras (``keras.optimizers.schedules``);
``OneCycle`` is torch's ``OneCycleLR`` with ``cycle_momentum=False``.

>>> import irkit as ik
>>> b = ik.Builder("rate")
>>> step = b.input("step", "float32", [])
>>> b.output(ik.schedules.Cosine(0.1, decay_steps=100)(b, step), "rate")
>>> ik.compile(b.module())(50.0)
array(0.05, dtype=float32)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor

__all__ = [
    "Adjustable",
    "Constant",
    "Cosine",
    "CosineRestarts",
    "Exponential",
    "InverseTime",
    "OneCycle",
    "Piecewise",
    "Polynomial",
    "Rate",
    "Schedule",
    "rate_of",
]


class Schedule(ABC):
    """A learning rate that is a function of the step."""

    @abstractmethod
    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        """The rate (float32 scalar) of the update before which ``step`` (float32 scalar) others were done."""


Rate = float | Schedule


def rate_of(b: Builder, rate: Rate, step: Tensor) -> Tensor:
    """A learning rate, given as a number or a schedule, as a float32 scalar."""
    return rate(b, step) if isinstance(rate, Schedule) else b.constant(float(rate), "float32")


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate at every step."""

    rate: float

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        return b.constant(self.rate, "float32")


@dataclass(frozen=True)
class Adjustable(Schedule):
    """A rate that is part of the state (variable ``learning_rate``), so that whoever runs the step may change it."""

    initial: float

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        return b.constant(self.initial, "float32")


@dataclass(frozen=True)
class Exponential(Schedule):
    """``initial * decay_rate ** (step / decay_steps)``; with ``staircase`` the exponent is a whole number."""

    initial: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        exponent = step / float(self.decay_steps)
        return b.Pow(float(self.decay_rate), b.Floor(exponent) if self.staircase else exponent) * self.initial


@dataclass(frozen=True)
class InverseTime(Schedule):
    """``initial / (1 + decay_rate * step / decay_steps)``."""

    initial: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        time = step / float(self.decay_steps)
        return self.initial / ((b.Floor(time) if self.staircase else time) * float(self.decay_rate) + 1.0)


@dataclass(frozen=True)
class Polynomial(Schedule):
    """From ``initial`` to ``end`` in ``decay_steps``, as ``(1 - step / decay_steps) ** power``; with ``cycle`` anew."""

    initial: float
    decay_steps: float
    end: float = 1e-4
    power: float = 1.0
    cycle: bool = False

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        steps = float(self.decay_steps)
        end = b.Max(b.Ceil(step / steps), 1.0) * steps if self.cycle else b.constant(steps, "float32")
        share = b.Min(step, end) / end
        return b.Pow(1.0 - share, float(self.power)) * (self.initial - self.end) + self.end


@dataclass(frozen=True)
class Piecewise(Schedule):
    """``values[i]`` up to and including step ``boundaries[i]``, the last value afterwards.

    Raises:
        IrkitError: when called, unless there is one value more than boundaries, and these rise.
    """

    boundaries: Sequence[float]
    values: Sequence[float]

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        if len(self.values) != len(self.boundaries) + 1 or list(self.boundaries) != sorted(self.boundaries):
            raise IrkitError("a piecewise schedule takes boundaries that rise, and one value more than boundaries")
        rate = b.constant(self.values[-1], "float32")
        for boundary, value in zip(reversed(self.boundaries), reversed(self.values[:-1]), strict=True):
            rate = b.Where(step <= float(boundary), b.constant(value, "float32"), rate)
        return rate


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from ``initial`` down to ``alpha * initial`` (Loshchilov and Hutter, 2016), after a warm-up.

    With ``warmup_steps`` the rate first rises in a line from ``initial`` to ``warmup_target``, from which the cosine
    then falls to ``alpha * warmup_target``.
    """

    initial: float
    decay_steps: float
    alpha: float = 0.0
    warmup_target: float | None = None
    warmup_steps: float = 0

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        warm, top = float(self.warmup_steps), self.initial if self.warmup_target is None else self.warmup_target
        share = b.Clip((step - warm) / float(self.decay_steps), 0.0, 1.0)
        rate = ((b.Cos(share * math.pi) * 0.5 + 0.5) * (1 - self.alpha) + self.alpha) * top
        if not warm:
            return rate
        return b.Where(step < warm, step * ((top - self.initial) / warm) + self.initial, rate)


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """``Cosine`` again and again: each period ``t_mul`` times as long and starting ``m_mul`` times as high."""

    initial: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        done = step / float(self.first_decay_steps)
        if self.t_mul == 1:
            period = b.Floor(done)
            share = done - period
        else:
            growth = self.t_mul
            # A step that starts a period must not fall into the one before by rounding.
            period = b.Floor(b.Log(done * (growth - 1) + 1.0) / math.log(growth) + 1e-5)
            length = b.Pow(float(growth), period)
            share = b.Clip((done - (length - 1.0) / (growth - 1)) / length, 0.0, 1.0)
        height = b.Pow(float(self.m_mul), period) * 0.5
        return (height * (b.Cos(share * math.pi) + 1.0) * (1 - self.alpha) + self.alpha) * self.initial


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up to ``peak`` by half a cosine in the first ``warm`` part of ``total_steps``, then down to next to nothing.

    It starts at ``peak / divide`` and ends at ``peak / (divide * divide_end)`` (Smith and Topin, 2018).
    """

    peak: float
    total_steps: float
    warm: float = 0.3
    divide: float = 25.0
    divide_end: float = 1e4

    def __call__(self, b: Builder, step: Tensor) -> Tensor:
        first, end = self.peak / self.divide, self.peak / (self.divide * self.divide_end)
        turn, last = self.warm * self.total_steps - 1, float(self.total_steps - 1)
        up = _between(b, first, self.peak, b.Clip(step / turn, 0.0, 1.0))
        down = _between(b, self.peak, end, b.Clip((step - turn) / (last - turn), 0.0, 1.0))
        return b.Where(step <= turn, up, down)


def _between(b: Builder, start: float, end: float, share: Tensor) -> Tensor:
    """From one rate to another along half a cosine."""
    return (b.Cos(share * math.pi) + 1.0) * ((start - end) / 2) + end
