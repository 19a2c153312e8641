"""What a run carries along: its budget, its seed, graphs as functions that kernels call; and how one step is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from irkit.backends.base import describe_value
from irkit.backends.numpy.foresight import foreseen
from irkit.backends.numpy.plan import Graph, OutputType, Plan, Step
from irkit.backends.numpy.random import Draws, mix
from irkit.errors import BudgetError, ExecutionError, IrkitError
from irkit.ir.location import where

__all__ = ["Budget", "GraphFunction", "Run", "failure", "run_step"]


@dataclass(frozen=True)
class Budget:
    """Bounds on one run.

    Without a budget of the caller's own, only iterations and the allocations of ops that can grow out of proportion
    to their inputs are held to these defaults. With one, live memory and time are checked after every op as well.

    Attributes:
        bytes: memory of all live values together, constants and inputs left out.
        steps: iterations of loops and scans, all together.
        seconds: of wall-clock time; None for no bound.
    """

    bytes: int = 16 << 30
    steps: int = 10_000_000
    seconds: float | None = None


class Run:
    """The state of one run; also the ``budget`` that kernels see.

    Args:
        execute: runs a plan, as ``execute(plan, run, path, inputs)``.
    """

    def __init__(
        self,
        budget: Budget,
        seed: int,
        execute: Callable[[Plan, Run, int, Sequence[Any]], tuple[Any, ...]],
    ) -> None:
        self.budget = budget
        self.seed = seed
        self.execute = execute
        self.steps = 0
        self.live = 0
        self.peak = 0
        self._deadline = None if budget.seconds is None else monotonic() + budget.seconds

    def step(self) -> None:
        """Counts an iteration.

        Raises:
            BudgetError: if there were too many, or time is up.
        """
        self.steps += 1
        if self.steps > self.budget.steps:
            raise BudgetError(
                f"more than {self.budget.steps} iterations", hint="allow more: compile(..., budget=Budget(steps=...))"
            )
        self.check_time()

    def allocate(self, nbytes: int) -> None:
        """Asks for memory before it is taken.

        Raises:
            BudgetError: if that is more than there is left.
        """
        if nbytes + self.live > self.budget.bytes:
            held = f" beside the {self.live} of live values" if self.live else ""
            raise self._out_of_memory(f"{nbytes} bytes are needed{held}")

    def hold(self, nbytes: int) -> None:
        """Counts memory that is now live (negative: that is live no more).

        Raises:
            BudgetError: if it is more than the budget.
        """
        self.live += nbytes
        if self.live > self.peak:
            self.peak = self.live
            if self.live > self.budget.bytes:
                raise self._out_of_memory(f"live values take {self.live} bytes")

    def _out_of_memory(self, message: str) -> BudgetError:
        return BudgetError(
            f"{message}, the budget is {self.budget.bytes}", hint="allow more: compile(..., budget=Budget(bytes=...))"
        )

    def check_time(self) -> None:
        """Raises ``BudgetError`` once time is up."""
        if self._deadline is not None and monotonic() > self._deadline:
            raise BudgetError(
                f"the run took more than {self.budget.seconds} s",
                hint="allow more: compile(..., budget=Budget(seconds=...))",
            )

    def rng(self, key: int, path: int) -> Draws:
        """The generator of an op.

        Args:
            path: of the iterations that the op stands in.
        """
        return Draws(self.seed, key, path)

    def graph(self, graph: Graph, path: int, captured: tuple[Any, ...]) -> GraphFunction:
        """A graph attribute as a kernel calls it."""
        return GraphFunction(graph, self, path, captured)


class GraphFunction:
    """A graph as a function from its inputs to the tuple of its outputs, the captured values bound."""

    __slots__ = ("_calls", "_captured", "_graph", "_path", "_run")

    def __init__(self, graph: Graph, run: Run, path: int, captured: tuple[Any, ...]) -> None:
        self._graph = graph
        self._run = run
        self._path = path
        self._captured = captured
        self._calls = 0

    @property
    def output_types(self) -> list[OutputType]:
        """Per output its element type and shape, or None."""
        return self._graph.plan.output_types

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        graph, run, path = self._graph, self._run, self._path
        if graph.repeats and graph.plan.draws:
            path = mix(path, self._calls)
            self._calls += 1
        return run.execute(graph.plan, run, path, (*self._captured, *inputs))


# Steps


def run_step(step: Step, operands: Sequence[Any], captured: dict[str, tuple[Any, ...]], run: Run, path: int) -> Any:
    """Runs one step; returns the tuple of its results.

    Args:
        captured: per graph the values that it captures.

    Raises:
        ExecutionError: if the step fails.
    """
    options = dict(step.attributes)
    for name, graph in step.graphs.items():
        options[name] = run.graph(graph, path, captured[name])
    n_out = len(step.outputs)
    if "n_out" in step.wants:
        options["n_out"] = n_out
    if "budget" in step.wants:
        options["budget"] = run
    if "rng" in step.wants:
        options["rng"] = run.rng(step.key, path)
    try:
        if nbytes := foreseen(step.op, operands, step.attributes):
            run.allocate(nbytes)
        found = step.function(*operands, **options)
    except Exception as error:
        raise failure(step, error, operands) from error
    if not (step.many and isinstance(found, tuple)):
        found = (found,)
    if len(found) < n_out:
        raise failure(step, ValueError(f"it gave {len(found)} results for {n_out}"), operands)
    return found[:n_out]


def failure(step: Step, error: Exception, operands: Sequence[Any]) -> Exception:
    """The error that a failing step raises: it names the op, where it came from, and its operands."""
    if isinstance(error, BudgetError) and not error.op:
        return BudgetError(error.message, op=step.op.name, where=where(step.op), hint=error.hint)
    if isinstance(error, IrkitError):
        return error
    text = str(error) or type(error).__name__
    if not isinstance(error, ValueError | IndexError) and type(error).__name__ != "KernelError":
        text = f"{type(error).__name__}: {text}" if str(error) else text
    shown = ", ".join(describe_value(value) for value in operands) or "none"
    return ExecutionError(f"{text} (operands: {shown})", op=step.op.name, where=where(step.op))
