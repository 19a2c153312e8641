"""Executors over one plan: straight-line code, an observed loop, and a ready queue on threads.

``straight`` compiles a plan to the source of one Python function, a line a step, and runs that; values are its local
variables. ``Observed`` goes through the steps one by one, to measure them, show them to a hook and hold the run to its
budget after each. ``ReadyQueue`` keeps a table of in-degrees and a queue of steps at zero, which several threads empty.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from xdsl.ir import Operation

from irkit.backends.numpy.control import Run, failure, run_step
from irkit.backends.numpy.flops import flops
from irkit.backends.numpy.fuse import fuse
from irkit.backends.numpy.plan import ABSENT, Fused, Plan, Step
from irkit.dialects.onnx.classes import OnnxOp
from irkit.errors import BudgetError
from irkit.ir.location import where
from irkit.ir.names import name_of

__all__ = ["Hook", "Observed", "OpProfile", "ReadyQueue", "straight"]

Hook = Callable[[Operation, tuple[Any, ...], tuple[Any, ...]], None]
"""Called after each op with the op, its operands (None where absent) and its results."""


# Straight-line code


def straight(plan: Plan, run: Run, path: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Runs a plan as straight-line code.

    Raises:
        ExecutionError: if a step fails.
    """
    code = plan.code
    if code is None:
        plan.fused = fuse(plan)
        code = plan.code = _compile(plan, plan.fused)
    try:
        return code(run, path, *inputs)
    except Exception as error:
        step, operands = _failed(plan, code, error)
        if step is None:
            raise
        raise failure(step, error, operands) from error


def _failed(plan: Plan, code: Callable[..., Any], error: Exception) -> tuple[Step | None, list[Any]]:
    """The step at which the plan's code failed (line n is step n - 2), and its operands."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code.__code__:
            assert plan.fused is not None
            step = plan.fused.steps[trace.tb_lineno - 2]
            values = {**{f"v{slot}": v for slot, v in plan.fused.constants.items()}, **trace.tb_frame.f_locals}
            return step, [values.get(f"v{slot}") for slot in step.inputs]
        trace = trace.tb_next
    return None, []


def _compile(plan: Plan, fused: Fused) -> Callable[..., tuple[Any, ...]]:
    names: dict[str, Any] = {f"v{slot}": value for slot, value in fused.constants.items()}
    lines = [f"def plan(run, path{''.join(f', v{i}' for i in range(plan.inputs))}):"]
    for index, step in enumerate(fused.steps):
        names[f"k{index}"] = step.function
        lines.append(f" {_call(step, index, names)}")
    lines.append(f" return ({''.join(f'{_operand(slot)}, ' for slot in plan.outputs)})")
    exec(compile("\n".join(lines), "<plan>", "exec"), names)
    return names["plan"]


def _operand(slot: int) -> str:
    return "None" if slot == ABSENT else f"v{slot}"


def _call(step: Step, index: int, names: dict[str, Any]) -> str:
    """The line of a step: the call, what it binds, and the variables that it lets go."""
    arguments = [_operand(slot) for slot in step.inputs]
    for position, (name, value) in enumerate(step.attributes.items()):
        names[f"a{index}_{position}"] = value
        arguments.append(f"{name}=a{index}_{position}")
    for position, (name, graph) in enumerate(step.graphs.items()):
        names[f"g{index}_{position}"] = graph
        captured = "".join(f"v{slot}, " for slot in graph.captured)
        arguments.append(f"{name}=run.graph(g{index}_{position}, path, ({captured}))")
    if "n_out" in step.wants:
        arguments.append(f"n_out={len(step.outputs)}")
    if "budget" in step.wants:
        arguments.append("budget=run")
    if "rng" in step.wants:
        arguments.append(f"rng=run.rng({step.key}, path)")
    call = f"k{index}({', '.join(arguments)})"
    freed = "".join(f"v{slot} = " for slot in step.frees)
    tail = f"; {freed}None" if freed else ""
    if not step.many:
        return f"v{step.outputs[0]} = {call}{tail}"
    if len(step.outputs) == 1:
        return f"t = {call}; v{step.outputs[0]} = t[0] if type(t) is tuple else t; t = None{tail}"
    bound = "; ".join(f"v{slot} = t[{i}]" for i, slot in enumerate(step.outputs) if slot != ABSENT)
    return f"t = {call}; {bound}; t = None{tail}"


# Step by step


def _gather(step: Step, slots: list[Any]) -> tuple[tuple[Any, ...], dict[str, tuple[Any, ...]]]:
    operands = tuple(None if slot == ABSENT else slots[slot] for slot in step.inputs)
    return operands, {name: tuple(slots[s] for s in graph.captured) for name, graph in step.graphs.items()}


@dataclass
class OpProfile:
    """What one op took over all runs so far.

    Attributes:
        op: the op, as ``onnx.Conv``.
        name: of its first result, or ``""``.
        where: its location.
        calls: how often it ran.
        seconds: of wall-clock time, graphs included.
        bytes: of its results, all calls together.
        flops: arithmetic operations by the formulas of ``flops``, all calls together.
    """

    op: str
    name: str
    where: str
    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0
    flops: int = 0


def size_of(value: Any) -> int:
    """The bytes of a value: strings by their references, sequences and maps by their elements."""
    match value:
        case np.ndarray():
            return value.nbytes
        case list():
            return sum(map(size_of, value))
        case dict():
            return sum(map(size_of, value.values()))
        case _:
            return 0


def _new_bytes(results: Sequence[Any], operands: Sequence[Any]) -> list[int]:
    """Per result the memory that it adds: none for a view of an operand."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    return [
        0 if isinstance(r, np.ndarray) and any(np.may_share_memory(r, x) for x in arrays) else size_of(r)
        for r in results
    ]


class Observed:
    """Runs plans step by step, nested ones too.

    Args:
        hook: called after each step.
        profile: whether to measure.
        bounded: whether to hold the run to its budget after each step.
    """

    def __init__(self, hook: Hook | None = None, profile: bool = False, bounded: bool = False) -> None:
        self.hook = hook
        self.bounded = bounded
        self.profile: dict[Step, OpProfile] | None = {} if profile else None
        self._lock = threading.Lock()

    @property
    def watches(self) -> bool:
        """Whether there is anything to do after a step."""
        return self.hook is not None or self.bounded or self.profile is not None

    def __call__(self, plan: Plan, run: Run, path: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        slots = plan.fresh_slots(inputs)
        held: dict[int, int] = {}
        for step in plan.steps:
            sizes = self.step(step, slots, run, path)
            held.update(zip(step.outputs, sizes, strict=True))
            if self.bounded:
                run.hold(-sum(held.pop(slot, 0) for slot in (*step.frees, ABSENT)))
            for slot in step.frees:
                slots[slot] = None
        if self.bounded:
            # What the graph returns is counted again as a result of the op whose graph it is.
            run.hold(-sum(held.values()))
        return tuple(None if slot == ABSENT else slots[slot] for slot in plan.outputs)

    def step(self, step: Step, slots: list[Any], run: Run, path: int) -> list[int]:
        """Runs one step over the slots; returns the bytes that each result adds."""
        operands, captured = _gather(step, slots)
        start = perf_counter()
        results = run_step(step, operands, captured, run, path)
        seconds = perf_counter() - start
        for slot, value in zip(step.outputs, results, strict=True):
            if slot != ABSENT:
                slots[slot] = value
        if not self.watches:
            return [0] * len(results)
        sizes = _new_bytes(results, operands)
        if self.bounded:
            self._check(step, run, sum(sizes))
        if self.profile is not None:
            self._measure(step, seconds, operands, results)
        if self.hook is not None:
            with self._lock:
                self.hook(step.op, operands, results)
        return sizes

    def _check(self, step: Step, run: Run, nbytes: int) -> None:
        try:
            with self._lock:
                run.hold(nbytes)
            run.check_time()
        except BudgetError as error:
            raise failure(step, error, ()) from None

    def _measure(self, step: Step, seconds: float, operands: Sequence[Any], results: Sequence[Any]) -> None:
        assert self.profile is not None
        op = step.op
        named = op.op_type if isinstance(op, OnnxOp) and op.domain in ("", "ai.onnx.preview") else ""
        # Of an op with graphs, and of a call, the ops within count.
        counted = 0 if step.graphs else flops(named, step.attributes, operands, results)
        with self._lock:
            found = self.profile.get(step)
            if found is None:
                name = name_of(step.op.results[0]) if step.op.results else ""
                found = self.profile[step] = OpProfile(step.op.name, name, where(step.op))
            found.calls += 1
            found.seconds += seconds
            found.bytes += sum(map(size_of, results))
            found.flops += counted


# The ready queue


@dataclass
class _Dependencies:
    """The dataflow of a plan.

    Attributes:
        steps, constants: fused where nobody watches each step.
        degrees: per step the number of steps that it waits for.
        successors: per step those that wait for it.
        readers: per slot how many steps read it; kept slots count one more.
    """

    steps: list[Step]
    constants: dict[int, Any]
    degrees: list[int]
    successors: list[list[int]]
    readers: list[int]


def _dependencies(plan: Plan, fused: Fused) -> _Dependencies:
    steps, constants = fused.steps, fused.constants
    producer: dict[int, int] = {}
    degrees: list[int] = []
    successors: list[list[int]] = [[] for _ in steps]
    readers = [0] * plan.slots
    for slot in (*range(plan.inputs), *constants, *plan.outputs):
        if slot != ABSENT:
            readers[slot] += 1
    for index, step in enumerate(steps):
        reads = step.reads()
        before = {producer[slot] for slot in reads if slot in producer}
        degrees.append(len(before))
        for other in before:
            successors[other].append(index)
        for slot in reads:
            readers[slot] += 1
        producer.update((slot, index) for slot in step.outputs if slot != ABSENT)
    return _Dependencies(steps, constants, degrees, successors, readers)


class ReadyQueue:
    """Runs the main plan on several threads: a step is queued once all that it waits for has run.

    Nested plans run on the thread of their step. NumPy lets go of the interpreter within its loops and BLAS calls, so
    that large independent ops really run at once.

    Args:
        threads: how many; the caller's own is one of them.
        nested: the executor of the steps and of nested plans.
    """

    def __init__(self, threads: int, nested: Observed) -> None:
        self.threads = threads
        self.nested = nested
        self._tables: dict[Plan, _Dependencies] = {}
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="irkit")

    def __call__(self, plan: Plan, run: Run, path: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        table = self._tables.get(plan)
        if table is None:
            fused = Fused(plan.steps, plan.constants) if self.nested.watches else fuse(plan)
            table = self._tables[plan] = _dependencies(plan, fused)
        work = _Work(plan, table, self.nested, run, path, inputs)
        helpers = [self._pool.submit(work.serve) for _ in range(min(self.threads, len(table.steps)) - 1)]
        try:
            work.serve()
        finally:
            work.stop()
            for helper in helpers:
                helper.result()
        if work.error is not None:
            raise work.error
        return tuple(None if slot == ABSENT else work.slots[slot] for slot in plan.outputs)


class _Work:
    """One run of a plan by several threads."""

    def __init__(
        self, plan: Plan, table: _Dependencies, nested: Observed, run: Run, path: int, inputs: Sequence[Any]
    ) -> None:
        self.steps, self.nested, self.run, self.path = table.steps, nested, run, path
        self.slots = plan.fresh_slots(inputs, table.constants)
        self.successors = table.successors
        self.degrees = list(table.degrees)
        self.readers = list(table.readers)
        self.held: dict[int, int] = {}
        self.ready = deque(i for i, degree in enumerate(self.degrees) if degree == 0)
        self.left = len(table.steps)
        self.error: BaseException | None = None
        self.changed = threading.Condition()

    def serve(self) -> None:
        """Runs ready steps until all are done, or one has failed."""
        # The error state of NumPy is a thread's own.
        with np.errstate(all="ignore"):
            while (index := self.take()) is not None:
                try:
                    sizes = self.nested.step(self.steps[index], self.slots, self.run, self.path)
                    self.finish(index, sizes)
                except BaseException as error:
                    self.stop(error)

    def take(self) -> int | None:
        """A ready step, waited for; None when there is nothing more to do."""
        with self.changed:
            while not self.ready and self.left:
                self.changed.wait()
            return self.ready.popleft() if self.left else None

    def finish(self, index: int, sizes: list[int]) -> None:
        """Lets go of what only this step still needed, and queues the steps that waited for it alone."""
        step = self.steps[index]
        with self.changed:
            self.held.update(zip(step.outputs, sizes, strict=True))
            freed = self.held.pop(ABSENT, 0)
            for slot in step.reads():
                self.readers[slot] -= 1
                if self.readers[slot] == 0:
                    self.slots[slot] = None
                    freed += self.held.pop(slot, 0)
            self.run.hold(-freed)
            self.left = max(self.left - 1, 0)
            before = len(self.ready)
            for other in self.successors[index]:
                self.degrees[other] -= 1
                if self.degrees[other] == 0:
                    self.ready.append(other)
            if self.left == 0:
                self.changed.notify_all()
            else:
                # This thread takes one itself.
                self.changed.notify(max(len(self.ready) - before - 1, 0))

    def stop(self, error: BaseException | None = None) -> None:
        """Makes all threads come to an end."""
        with self.changed:
            if error is not None and self.error is None:
                self.error = error
            self.left = 0
            self.ready.clear()
            self.changed.notify_all()
