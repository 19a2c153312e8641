"""Which pass of a pipeline breaks a module, and which single rewrite of that pass.

The passes are applied one by one, and what the module computes is compared with what it computed at first. The rewrites
of the first pass that makes a difference are then halved: the pass runs with fuel for so many of them (see
``irkit.ir.fuel``), until one is found with which the module is wrong and without which it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.passes import ModulePass

from irkit.errors import IrkitError
from irkit.ir.fuel import Fuel, Step, rationed
from irkit.ir.memory import paused_gc
from irkit.ir.module import Module
from irkit.verify.compare import Reference
from irkit.verify.report import Report
from irkit.verify.values import Tolerance

__all__ = ["Bisection", "Culprit", "bisect", "find_rewrite", "short_name"]


@dataclass(frozen=True)
class Culprit:
    """The single rewrite that makes a pass wrong.

    Attributes:
        step: the rewrite.
        number: which it is of those that the pass makes, from 1.
        of: how many the pass makes.
    """

    step: Step
    number: int
    of: int

    def __str__(self) -> str:
        return f"rewrite {self.number} of {self.of}, {self.step}"


@dataclass
class Bisection:
    """What was found.

    Attributes:
        culprit: the name of the first pass that breaks the module, or None if none does.
        index: its place in the pipeline, from 0; -1 if none does.
        error: set if the pass failed, or left a module that is not valid.
        report: of the comparison that showed a difference; or else of the last one.
        before, after: the module around that pass; ``after`` is None if the pass failed.
        unchecked: by pass, what could not be compared.
        rewrite: the single rewrite that is to blame; None where the pass does not count its rewrites.
        feeds: the inputs that showed the difference.
        changed: whether any pass changed anything.
        compared: how many pairs of runs were compared.
    """

    culprit: str | None
    index: int
    error: str
    report: Report
    before: Module
    after: Module | None
    unchecked: list[str] = field(default_factory=list[str])
    rewrite: Culprit | None = None
    feeds: list[Mapping[str, Any]] = field(default_factory=list["Mapping[str, Any]"])
    changed: bool = False
    compared: int = 0

    def text(self) -> str:
        """The result for people."""
        if self.culprit is None:
            lines = ["no pass breaks the module"]
        elif self.error:
            lines = [f"pass '{self.culprit}' (number {self.index + 1}) fails: {self.error}"]
        else:
            lines = [f"pass '{self.culprit}' (number {self.index + 1}) breaks the module: {self.report.text()}"]
        if self.rewrite is not None:
            lines.append(f"  {self.rewrite}")
        return "\n".join([*lines, *(f"  unchecked: {reason}" for reason in self.unchecked)])


def short_name(step: ModulePass) -> str:
    """A pass as our own pipelines have it: with its options, without the prefix that xDSL's need."""
    try:
        text = str(step.spec())
    except TypeError:  # an option that has no text
        text = step.name
    return text.removeprefix("onnx-")


def bisect(
    module: Module,
    pipeline: Iterable[ModulePass],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    signed_zeros: bool = False,
    **options: Any,
) -> Bisection:
    """Finds the first pass that breaks a module, and the rewrite in it; the module is not changed.

    Args:
        pipeline: the passes, in order: irkit's own or any of xDSL's.
        rtol: what counts as equal, as ``compare`` takes it.
        atol: likewise.
        signed_zeros: likewise.
        options: for ``Reference``: ``backends``, ``samples``, ``seed``, ``feeds``, ``special``.
    """
    reference = Reference(module, **{"wide": True, **options})
    tolerance = Tolerance(rtol, atol or 0.0, signed_zeros)
    found = Bisection(None, -1, "", Report(), module, module)
    for index, step in enumerate(pipeline):
        name, before = short_name(step), found.before
        after = before.clone()
        fuel = Fuel()
        try:
            with paused_gc(), rationed() as fuel:
                step.apply(after.ctx, after.op)
            after.verify()
        except Exception as error:
            found.error = str(error) if isinstance(error, IrkitError) else f"{type(error).__name__}: {error}"
            found.culprit, found.index, found.after = name, index, None
            found.rewrite = find_rewrite(step, before, fuel.count, lambda m: not _is_valid(m))
            return found
        if after == before:
            continue
        found.changed, found.after = True, after
        found.report = report = reference.check(after, tolerance)
        found.compared += report.compared
        found.unchecked += [f"{name}: {reason}" for reason in report.unchecked]
        if not report.equal:
            found.culprit, found.index = name, index
            found.feeds = [reference.feeds[i] for i in sorted({d.sample for d in report.differences}) if i >= 0]
            found.rewrite = find_rewrite(step, before, fuel.count, differs_like(reference, report, tolerance))
            return found
        found.before = after
    return found


def differs_like(reference: Reference, report: Report, tolerance: Tolerance) -> Callable[[Module], bool]:
    """A test whether a module is wrong, which runs no more than the sample that has shown a difference."""
    first = report.differences[0]
    only = (first.backend, first.sample) if first.backend and first.sample >= 0 else None

    def differs(module: Module) -> bool:
        return not _is_valid(module) or not reference.check(module, tolerance, only=only).equal

    return differs


def _is_valid(module: Module) -> bool:
    try:
        module.verify()
    except IrkitError:
        return False
    return True


def find_rewrite(step: ModulePass, before: Module, count: int, fails: Callable[[Module], bool]) -> Culprit | None:
    """The rewrite of a pass after which a module fails a test, and before which it does not.

    Args:
        before: the module that the pass is run on; not changed.
        count: how many rewrites the pass makes, all of which together fail.
        fails: the test.

    Returns:
        None where the pass counts none of its rewrites, or fails without any of them.
    """

    def fails_after(limit: int) -> Step | None:
        """The last of so many rewrites, if the module fails then."""
        made = before.clone()
        with paused_gc(), rationed(limit) as fuel:
            try:
                step.apply(made.ctx, made.op)
            except Exception:
                return fuel.last
        return fuel.last if fails(made) else None

    good, bad = 0, count
    last: Step | None = None
    while bad - good > 1:
        middle = (good + bad) // 2
        found = fails_after(middle)
        if found is None:
            good = middle
        else:
            bad, last = middle, found
    if bad and last is None:
        last = fails_after(bad)
    return None if last is None else Culprit(last, bad, count)
