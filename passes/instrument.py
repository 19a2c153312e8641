"""What goes on around each pass: time, printing, verification, comparison of what the module computes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from xdsl.passes import ModulePass

from irkit.errors import CheckError, IrkitError, PassError, VerifyError
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.rewrite import ops_in, sync_signature

if TYPE_CHECKING:
    from irkit.verify import Report

__all__ = ["Instrumentation", "PassRecord", "Timing"]


@dataclass
class PassRecord:
    """What one pass of a pipeline did.

    Attributes:
        name: with its options, as in a pipeline.
        changed: whether it changed anything.
        seconds: its own time; what is done around it has times of its own.
        ops_before, ops_after: how many ops the module has.
        notes: what the pass has to say.
        unchecked: what a comparison of before and after could not compare.
        compared: how many pairs of runs it compared; None where there was nothing to compare (nothing changed, or
            nobody asked).
    """

    name: str
    changed: bool = False
    seconds: float = 0.0
    ops_before: int = 0
    ops_after: int = 0
    notes: list[str] = field(default_factory=list[str])
    unchecked: list[str] = field(default_factory=list[str])
    compared: int | None = None


@dataclass
class Timing:
    """A node of the tree of times."""

    name: str
    seconds: float = 0.0
    children: list[Timing] = field(default_factory=list["Timing"])

    def text(self, depth: int = 0, total: float | None = None) -> str:
        """The tree, a line a node, with shares of the whole."""
        whole = total or self.seconds or 1e-12
        line = f"{self.seconds:9.4f} s {100 * self.seconds / whole:5.1f} %  {'  ' * depth}{self.name}"
        return "\n".join([line, *(child.text(depth + 1, whole) for child in self.children)])


@dataclass
class Instrumentation:
    """Runs passes one by one and keeps what happened. Give one to ``optimize`` to read it afterwards.

    Attributes:
        verify_each: verify the module after each pass.
        print_after: ``"all"``, ``"changed"`` or the name of a pass: print the module after it.
        check_each: compare what the module computes before and after each pass.
        backends: on which to compare.
        stream: where to print; standard error by default.
        compare: replaces ``irkit.verify.compare``.
        records: one a pass, in order.
        timing: the tree of times.
        compared_at_end: how many pairs of runs the comparison after the whole pipeline made; None without one.
    """

    verify_each: bool = False
    print_after: str | None = None
    check_each: bool = False
    backends: Sequence[str] = ("numpy",)
    stream: TextIO | None = None
    compare: Callable[..., Any] | None = None
    records: list[PassRecord] = field(default_factory=list[PassRecord])
    timing: Timing = field(default_factory=lambda: Timing("pipeline"))
    compared_at_end: int | None = None

    def say(self, text: str) -> None:
        """Prints a line to the stream."""
        print(text, file=self.stream or sys.stderr)

    def run_pass(self, step: ModulePass, module: Module) -> bool:
        """Runs one pass on a module, in place. Returns whether it changed anything.

        Raises:
            PassError: naming the pass, if it raises, or breaks the module.
            CheckError: naming the pass, if the module computes something else afterwards.
        """
        text = str(step.spec()).removeprefix("onnx-")
        record = PassRecord(text, ops_before=_count(module))
        self.records.append(record)
        before = module.clone() if self.check_each else None
        with self.timed(text) as timing:
            try:
                record.changed = _run(step, module)
                sync_signature(module)
            except Exception as error:
                message = error.message if isinstance(error, IrkitError) else f"{type(error).__name__}: {error}"
                raise PassError(
                    f"pass '{text}' failed: {message}",
                    op=getattr(error, "op", ""),
                    where=getattr(error, "where", ""),
                    hint=getattr(error, "hint", ""),
                ) from error
        record.seconds = timing.seconds
        record.ops_after = _count(module) if record.changed else record.ops_before
        if isinstance(step, Pass):
            record.notes = list(step.notes())
        if self.verify_each:
            with self.timed("verify"):
                self._verify(text, module)
        if before is not None and before != module:
            with self.timed("check"):
                report = self.check(before, module, f"pass '{text}'")
            record.unchecked, record.compared = list(report.unchecked), report.compared
        if self._prints(step, record):
            self.say(f"// after {text}{'' if record.changed else ' (no change)'}\n{module}")
        return record.changed

    def check(self, before: Module, after: Module, what: str) -> Report:
        """Compares what two modules compute. Returns what was compared, and what could not be.

        Raises:
            CheckError: if they differ.
        """
        compare = self.compare or importlib.import_module("irkit.verify").compare
        report = compare(before, after, backends=tuple(self.backends))
        if not report.equal:
            raise CheckError(f"{what} changed what the module computes\n{report.text()}")
        return report

    @contextmanager
    def timed(self, name: str) -> Generator[Timing]:
        """Times a block as a child of the node in force."""
        node, outer = Timing(name), self.timing
        outer.children.append(node)
        self.timing = node
        start = perf_counter()
        try:
            yield node
        finally:
            node.seconds = perf_counter() - start
            self.timing = outer

    @staticmethod
    def _verify(text: str, module: Module) -> None:
        try:
            module.verify()
        except VerifyError as error:
            raise PassError(
                f"pass '{text}' left an invalid module: {error.message}", op=error.op, where=error.where
            ) from error

    def _prints(self, step: ModulePass, record: PassRecord) -> bool:
        if self.print_after in (None, "all"):
            return self.print_after == "all"
        if self.print_after == "changed":
            return record.changed
        return self.print_after in (step.name, step.name.removeprefix("onnx-"))


def _run(step: ModulePass, module: Module) -> bool:
    """Runs a pass. One of xDSL's own does not say whether it changed anything: then the module is compared."""
    if isinstance(step, Pass):
        return step.run(module)
    before = module.clone()
    step.apply(module.ctx, module.op)
    return before != module


def _count(module: Module) -> int:
    return sum(1 for _ in ops_in(module.op))
