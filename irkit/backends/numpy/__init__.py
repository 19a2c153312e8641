"""The NumPy backend: the interpreter that decides what a module means.

``compile`` makes a plan once; running it checks the feeds, executes the plan and hands out results that share no memory
with the feeds, the module's constants or each other. Floating-point exceptions are silent, as ONNX has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from irkit.backends.base import Executable
from irkit.backends.numpy.control import Budget, Run
from irkit.backends.numpy.evaluate import can_evaluate, evaluate
from irkit.backends.numpy.executor import Hook, Observed, OpProfile, ReadyQueue, straight
from irkit.backends.numpy.foresight import check_plan
from irkit.backends.numpy.fuse import fuse
from irkit.backends.numpy.legalize import functions_of, legalize, unrunnable
from irkit.backends.numpy.memory import Memory, measure
from irkit.backends.numpy.plan import Plan, Planner
from irkit.backends.numpy.random import fresh_seed
from irkit.backends.numpy.results import own
from irkit.ir.module import Module
from irkit.ir.names import name_of

__all__ = ["Budget", "Hook", "Memory", "NumpyExecutable", "OpProfile", "can_evaluate", "compile", "evaluate"]


def compile(
    module: Module,
    *,
    threads: int = 1,
    seed: int | None = None,
    budget: Budget | None = None,
    profile: bool = False,
    hook: Hook | None = None,
) -> NumpyExecutable:
    """Makes a module ready to run on NumPy; the module is not changed.

    Args:
        threads: above 1, independent ops run at once. BLAS has threads of its own, which ``OPENBLAS_NUM_THREADS`` sets.
        seed: of ops that draw random numbers without a seed of their own; every run then draws the same. None: each
            run draws anew.
        budget: bounds on a run, checked after every op; see ``Budget``.
        profile: whether to measure each op; see ``NumpyExecutable.profile``.
        hook: called after each op, nested ones too, with the op, its operands and its results. It must not change them.

    Raises:
        UnsupportedError: if an op cannot be run, naming it.
        BudgetError: if the type of a result says that it takes more memory than all that is allowed, naming the op.
    """
    return NumpyExecutable(module, threads=threads, seed=seed, budget=budget, profile=profile, hook=hook)


class NumpyExecutable(Executable):
    """A module compiled to a plan. Runs may go on in several threads at once.

    Attributes:
        seed: of the next runs; None: drawn for each.
        peak_bytes: with ``profile`` or a budget, the most memory that live values took in a run, feeds and constants
            left out.
    """

    def __init__(
        self,
        module: Module,
        *,
        threads: int = 1,
        seed: int | None = None,
        budget: Budget | None = None,
        profile: bool = False,
        hook: Hook | None = None,
    ) -> None:
        super().__init__(module)
        if threads < 1:
            raise ValueError(f"threads={threads}: at least 1 is needed")
        if unrunnable(module.func):
            module = module.clone()
            legalize(module.func, module.ctx)
        self.seed = seed
        self.peak_bytes = 0
        self._budget = budget or Budget()
        self._observed = Observed(hook, profile, bounded=budget is not None or profile)
        self._execute = self._observed if self._observed.watches else straight
        self._queue = ReadyQueue(threads, self._observed) if threads > 1 else None
        self._module = module
        self._planner = Planner(functions_of(module.op), module.ctx)
        self._values: dict[str, SSAValue] = {}
        self._plans: dict[tuple[str, ...], Plan] = {}
        # Compiled now, so that what cannot be run is said now.
        self._plan(tuple(self.outputs))

    @property
    def profile(self) -> list[OpProfile]:
        """What each op took, over all runs so far, the longest first; empty unless asked for at ``compile``."""
        found = self._observed.profile or {}
        return sorted(found.values(), key=lambda p: -p.seconds)

    def memory(self, feeds: Mapping[str, Any]) -> Memory:
        """How much memory the activations of a run on these feeds take at most, and how much they must take.

        It runs the module twice, on one thread; see ``Memory``.
        """
        values = self.check_feeds(feeds)
        plan = self._plan(tuple(self.outputs))
        run = Run(self._budget, fresh_seed() if self.seed is None else self.seed, straight)
        with np.errstate(all="ignore"):
            return measure(plan, fuse(plan), run, [_read_only(values.get(name)) for name in self.inputs])

    def can_fetch(self, name: str) -> bool:
        return name in self.outputs or name in self._named()

    def needed_inputs(self, fetches: tuple[str, ...]) -> set[str]:
        plan = self._plan(fetches)
        read = {slot for step in plan.steps for slot in step.reads()}.union(plan.outputs)
        return {name for slot, name in enumerate(self.inputs) if slot in read}

    def execute(self, values: dict[str, Any], fetches: tuple[str, ...]) -> Sequence[Any]:
        plan = self._plan(fetches)
        # Entropy is asked of the system only where something draws.
        seed = self.seed if self.seed is not None else fresh_seed() if plan.draws else 0
        run = Run(self._budget, seed, self._execute)
        inputs = [_read_only(values.get(name)) for name in self.inputs]
        with np.errstate(all="ignore"):
            found = (self._queue or self._execute)(plan, run, 0, inputs)
        self.peak_bytes = max(self.peak_bytes, run.peak)
        return own(found)

    def _named(self) -> dict[str, SSAValue]:
        """The values of the main graph by name: inputs, results of ops, and outputs, which win."""
        if not self._values:
            block = self._module.block
            self._values.update((name_of(r), r) for op in block.ops for r in op.results)
            self._values.pop("", None)
            self._values.update(zip(self.inputs, block.args, strict=True))
            self._values.update(zip(self.outputs, self._module.returned, strict=True))
        return self._values

    def _plan(self, fetches: tuple[str, ...]) -> Plan:
        found = self._plans.get(fetches)
        if found is None:
            block, named = self._module.block, self._named()
            found = self._planner.plan(block, list(block.args), [named[name] for name in fetches])
            check_plan(found, self._budget.bytes)
            self._plans[fetches] = found
        return found


def _read_only(value: Any) -> Any:
    """A view that cannot be written to: what shares its memory shows by its own flag."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.setflags(write=False)
        return view
    return [_read_only(item) for item in value] if isinstance(value, list) else value
