"""How much memory the values of a run take: what a plan holds at its peak, against what it must hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.backends.numpy.control import Run, run_step
from irkit.backends.numpy.plan import ABSENT, Fused, Plan, Step

__all__ = ["Memory", "measure"]


@dataclass(frozen=True)
class Memory:
    """Bytes of activations in one run: values of the main graph, without feeds and constants.

    Attributes:
        peak: the most that was held at once as the plan is run.
        bound: the liveness bound: the bytes of the values that are live at once, each for itself, at the most of the
            ops run one by one. A plan that fuses ops, or returns views, may stay below it.
    """

    peak: int
    bound: int

    @property
    def ratio(self) -> float:
        """The peak as a multiple of the bound; 1 where there is nothing to hold."""
        return self.peak / self.bound if self.bound else 1.0


def measure(plan: Plan, fused: Fused, run: Run, inputs: Sequence[Any]) -> Memory:
    """Runs a plan twice, as it is run and op by op, and takes the peak of either."""
    return Memory(
        peak=_peak(plan, fused.steps, fused.constants, run, inputs, _storage),
        bound=_peak(plan, plan.steps, plan.constants, run, inputs, _values),
    )


def _peak(plan: Plan, steps: list[Step], constants: dict[int, Any], run: Run, inputs: Sequence[Any], size: Any) -> int:
    slots = plan.fresh_slots(inputs, constants)
    given = {id(_root(x)) for x in _arrays(slots)}
    most = 0
    for step in steps:
        operands = [None if slot == ABSENT else slots[slot] for slot in step.inputs]
        captured = {name: tuple(slots[s] for s in graph.captured) for name, graph in step.graphs.items()}
        for slot, value in zip(step.outputs, run_step(step, operands, captured, run, 0), strict=True):
            if slot != ABSENT:
                slots[slot] = value
        most = max(most, size(_arrays(slots), given))
        for slot in step.frees:
            slots[slot] = None
    return most


def _arrays(values: Iterable[Any]) -> Iterable[np.ndarray]:
    """The arrays among values, those in sequences and maps included."""
    for value in values:
        match value:
            case np.ndarray():
                yield value
            case list():
                yield from _arrays(value)
            case dict():
                yield from _arrays(value.values())
            case _:
                pass


def _root(x: np.ndarray) -> np.ndarray:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def _storage(arrays: Iterable[np.ndarray], given: set[int]) -> int:
    """The memory behind arrays: that of a view is all of what it is a view of."""
    roots = {id(root): root.nbytes for root in map(_root, arrays)}
    return sum(nbytes for key, nbytes in roots.items() if key not in given)


def _values(arrays: Iterable[np.ndarray], given: set[int]) -> int:
    """The elements of arrays, each for itself; what only shows a feed or a constant takes nothing."""
    return sum(x.nbytes for x in arrays if id(_root(x)) not in given)
