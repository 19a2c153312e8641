"""Which pass of a pipeline breaks a module: each is applied, and the module compared with what it was before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xdsl.passes import ModulePass

from irkit.errors import IrkitError
from irkit.ir.module import Module
from irkit.verify.compare import Report, compare

__all__ = ["Bisection", "bisect"]


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
    """

    culprit: str | None
    index: int
    error: str
    report: Report
    before: Module
    after: Module | None
    unchecked: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        """The result for people."""
        if self.culprit is None:
            lines = ["no pass breaks the module"]
        elif self.error:
            lines = [f"pass '{self.culprit}' (number {self.index + 1}) fails: {self.error}"]
        else:
            lines = [f"pass '{self.culprit}' (number {self.index + 1}) breaks the module: {self.report.text()}"]
        return "\n".join([*lines, *(f"  unchecked: {reason}" for reason in self.unchecked)])


def bisect(module: Module, pipeline: Iterable[ModulePass], **options: Any) -> Bisection:
    """Finds the first pass that breaks a module; the module is not changed.

    Args:
        pipeline: the passes, in order: irkit's own or any of xDSL's.
        options: for ``compare``.
    """
    before, report, unchecked = module, Report(), list[str]()
    for index, step in enumerate(pipeline):
        after = before.clone()
        try:
            step.apply(after.ctx, after.op)
            after.verify()
        except Exception as error:
            text = str(error) if isinstance(error, IrkitError) else f"{type(error).__name__}: {error}"
            return Bisection(step.name, index, text, report, before, None, unchecked)
        if after == before:
            continue
        report = compare(before, after, **options)
        unchecked += [f"{step.name}: {reason}" for reason in report.unchecked]
        if not report.equal:
            return Bisection(step.name, index, "", report, before, after, unchecked)
        before = after
    return Bisection(None, -1, "", report, before, before, unchecked)
