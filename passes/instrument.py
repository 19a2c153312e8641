"""What goes on around each pass: time, printing, verification, comparison of what the module computes."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from xdsl.passes import ModulePass

from irkit.errors import CheckError, IrkitError, PassError, VerifyError
from irkit.ir.fuel import Fuel, rationed
from irkit.ir.memory import resident_bytes
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.reproduce import Reproducer, write_reproducer
from irkit.passes.rewrite import ops_in, sync_signature

if TYPE_CHECKING:
    from irkit.verify import Reference, Report
    from irkit.verify.bisect import Culprit

__all__ = ["Instrumentation", "PassRecord", "Timing"]


@dataclass
class PassRecord:
    """What one pass of a pipeline did.

    Attributes:
        name: with its options, as in a pipeline.
        changed: whether it changed anything.
        seconds: its own time; what is done around it has times of its own.
        ops_before, ops_after: how many ops the module has.
        rewrites: how often each of its rules fired; the pass itself counts where it has no rules.
        memory: by how many bytes the resident memory of the process grew; None where the system does not tell.
        notes: what the pass has to say.
        unchecked: what a comparison of before and after could not compare.
        compared: how many pairs of runs it compared; None where there was nothing to compare (nothing changed, or
            nobody asked).
        failed: why the pass was undone; ``""`` if it was not.
        error: the part of an output's scale by which it may change results on purpose.
    """

    name: str
    changed: bool = False
    seconds: float = 0.0
    ops_before: int = 0
    ops_after: int = 0
    rewrites: Counter[str] = field(default_factory=Counter[str])
    memory: int | None = None
    notes: list[str] = field(default_factory=list[str])
    unchecked: list[str] = field(default_factory=list[str])
    compared: int | None = None
    failed: str = ""
    error: float = 0.0


@dataclass
class Timing:
    """A node of the tree of times."""

    name: str
    seconds: float = 0.0
    children: list[Timing] = field(default_factory=list["Timing"])
    start: float = 0.0

    def text(self, depth: int = 0, total: float | None = None) -> str:
        """The tree, a line a node, with shares of the whole."""
        whole = total or self.seconds or 1e-12
        line = f"{self.seconds:9.4f} s {100 * self.seconds / whole:5.1f} %  {'  ' * depth}{self.name}"
        return "\n".join([line, *(child.text(depth + 1, whole) for child in self.children)])

    def events(self) -> list[dict[str, Any]]:
        """The tree as complete events of the Chrome trace format; times in microseconds."""
        own = {"name": self.name, "ph": "X", "ts": 1e6 * self.start, "dur": 1e6 * self.seconds, "pid": 1, "tid": 1}
        return [own, *(event for child in self.children for event in child.events())]


@dataclass
class Instrumentation:
    """Runs passes one by one and keeps what happened. Give one to ``optimize`` to read it afterwards.

    Attributes:
        verify_each: verify the module after each pass.
        print_before, print_after: ``"all"``, ``"changed"`` or the name of a pass: print the module there.
        check_each: compare what the module computes after each pass with what it computed at first.
        backends: on which to compare.
        options: further ones of ``irkit.verify.Reference`` (``samples``, ``seed``, ``feeds``, ``special``) and of
            ``Tolerance`` (``rtol``, ``atol``).
        reproducer: the file that is written when a pass fails: the module, the pass and the inputs.
        keep_going: go on without a pass that failed, rather than raise.
        stream: where to print; standard error by default.
        records: one a pass, in order.
        timing: the tree of times.
        compared_at_end: how many pairs of runs the comparison after the whole pipeline made; None without one.
    """

    verify_each: bool = False
    print_before: str | None = None
    print_after: str | None = None
    check_each: bool = False
    backends: Sequence[str] = ("numpy",)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reproducer: str | os.PathLike[str] | None = None
    keep_going: bool = False
    stream: TextIO | None = None
    records: list[PassRecord] = field(default_factory=list[PassRecord])
    timing: Timing = field(default_factory=lambda: Timing("pipeline"))
    compared_at_end: int | None = None
    _reference: Reference | None = None
    _feeds: list[Mapping[str, Any]] = field(default_factory=list["Mapping[str, Any]"])
    _error: float = 0.0

    def say(self, text: str) -> None:
        """Prints a line to the stream."""
        print(text, file=self.stream or sys.stderr)

    def run_pass(self, step: ModulePass, module: Module) -> bool:
        """Runs one pass on a module, in place. Returns whether it changed anything.

        A pass that fails is undone: the module is as it was.

        Raises:
            PassError: naming the pass, if it raises, or breaks the module.
            CheckError: naming the pass and the rewrite, if the module computes something else afterwards.
        """
        from irkit.verify.bisect import short_name

        text = short_name(step)
        record = PassRecord(text, ops_before=_count(module))
        self.records.append(record)
        self._print("before", step, module)
        may_undo = self.check_each or self.keep_going or self.reproducer is not None or self.print_before == "changed"
        before = module.clone() if may_undo else None
        try:
            fuel = self._run(step, module, record)
            if self.verify_each:
                with self.timed("verify"):
                    self._verify(text, module)
            if self.check_each and before is not None and before != module:
                with self.timed("check"):
                    self._check(step, before, module, record, fuel)
        except (PassError, CheckError) as error:
            record.failed, record.changed, record.ops_after = error.message, False, record.ops_before
            if before is not None:
                module.op = before.op
                self._reproduce(step, before, error)
            if not self.keep_going:
                raise
            self.say(f"undone: {error}")
            return False
        if self.print_before == "changed" and record.changed and before is not None:
            self.say(f"// before {text}\n{before}")
        self._print("after", step, module, record)
        return record.changed

    def _run(self, step: ModulePass, module: Module, record: PassRecord) -> Fuel:
        memory = resident_bytes()
        with self.timed(record.name) as timing, rationed() as fuel:
            try:
                record.changed = _run(step, module)
                sync_signature(module)
            except Exception as error:
                message = error.message if isinstance(error, IrkitError) else f"{type(error).__name__}: {error}"
                done = f" (after {fuel.last})" if fuel.last is not None else ""
                raise PassError(
                    f"pass '{record.name}' failed: {message}{done}",
                    op=getattr(error, "op", ""),
                    where=getattr(error, "where", ""),
                    hint=getattr(error, "hint", ""),
                ) from error
        grown = resident_bytes()
        record.memory = None if memory is None or grown is None else grown - memory
        record.rewrites = fuel.made
        record.seconds = timing.seconds
        record.ops_after = _count(module) if record.changed else record.ops_before
        if isinstance(step, Pass):
            record.notes = list(step.notes())
            record.error = step.error
        return fuel

    # Comparing

    def reference(self, module: Module) -> Reference:
        """A module as what others are compared with."""
        from irkit.verify import Reference

        known: dict[str, Any] = {"backends": tuple(self.backends), "wide": True, "special": not self._error}
        known.update((k, v) for k, v in self.options.items() if k not in ("rtol", "atol", "signed_zeros"))
        return Reference(module, **known)

    def _tolerance(self) -> Any:
        from irkit.verify import Tolerance

        options = self.options
        allowed = options.get("rtol") or self._error or None
        return Tolerance(allowed, options.get("atol") or 0.0, options.get("signed_zeros", False))

    def _check(self, step: ModulePass, before: Module, module: Module, record: PassRecord, fuel: Fuel) -> None:
        if isinstance(step, Pass) and "signature" not in step.keeps:
            record.unchecked.append("it changes the signature on purpose")
            self._reference = None
            return
        self._error = step.error if isinstance(step, Pass) else 0.0
        if self._reference is None or self._error:
            self._reference = self.reference(before)
        report = self._decided(self._reference.check(module, self._tolerance()))
        record.unchecked, record.compared = list(report.unchecked), report.compared
        if report.equal:
            # What follows a pass that rounds is held against what that made.
            self._reference = None if self._error else self._reference
            return
        from irkit.verify.bisect import differs_like, find_rewrite

        differs = differs_like(self._reference, report, self._tolerance())
        culprit = find_rewrite(step, before, fuel.count, differs)
        self._feeds = [self._reference.feeds[i] for i in sorted({d.sample for d in report.differences}) if i >= 0]
        raise CheckError(_blame(f"pass '{record.name}'", report, culprit))

    def check(self, before: Module, after: Module, what: str) -> Report:
        """Compares what two modules compute. Returns what was compared, and what could not be.

        Raises:
            CheckError: if they differ.
        """
        rounding = [record.error for record in self.records if record.changed]
        self._error = sum(rounding)
        report = self._decided(self.reference(before).check(after, self._tolerance()))
        if not report.equal:
            raise CheckError(_blame(what, report, None), hint="check='each' tells which pass")
        return report

    def _decided(self, report: Report) -> Report:
        """After a pass that rounds, integers that come out otherwise show nothing: rounding may decide on them."""
        if self._error:
            for difference in [d for d in report.differences if d.what == "value" and d.max_abs is None]:
                report.differences.remove(difference)
                report.unchecked.append(f"rounding may decide: {difference}")
        return report

    def _reproduce(self, step: ModulePass, before: Module, error: IrkitError) -> None:
        """Writes the reproducer, where one is wanted, and says in the error what to do with it."""
        if self.reproducer is None:
            return
        from irkit.verify.bisect import short_name

        found = Reproducer(before, short_name(step), tuple(self.backends), self._feeds, error.message)
        error.hint = f"irkit opt --reproduce {write_reproducer(found, self.reproducer)} does it again"

    # Printing

    @contextmanager
    def timed(self, name: str) -> Generator[Timing]:
        """Times a block as a child of the node in force."""
        node, outer = Timing(name, start=perf_counter()), self.timing
        outer.children.append(node)
        self.timing = node
        try:
            yield node
        finally:
            node.seconds = perf_counter() - node.start
            self.timing = outer

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the times as a Chrome trace (chrome://tracing, Perfetto), with what each pass did beside its time."""
        events = self.timing.events()
        origin = min((e["ts"] for e in events[1:]), default=0.0)
        waiting = list(self.records)
        for event in events:
            event["ts"] = max(0.0, event["ts"] - origin)
            if waiting and event["name"] == waiting[0].name:
                record = waiting.pop(0)
                event["args"] = {
                    "changed": record.changed,
                    "ops_before": record.ops_before,
                    "ops_after": record.ops_after,
                    "rewrites": dict(record.rewrites),
                    "memory": record.memory,
                }
        Path(path).write_text(json.dumps({"traceEvents": events[1:], "displayTimeUnit": "ms"}), "utf-8")

    def statistics(self) -> str:
        """How often each rule of each pass fired, and by how much memory grew, for people."""
        lines: list[str] = []
        for record in self.records:
            grown = "" if record.memory is None else f", {record.memory / 1e6:+.1f} MB"
            lines.append(f"{record.name}: {record.ops_before} -> {record.ops_after} ops{grown}")
            lines += [f"  {count:7d}  {name}" for name, count in record.rewrites.most_common()]
        return "\n".join(lines)

    @staticmethod
    def _verify(text: str, module: Module) -> None:
        try:
            module.verify()
        except VerifyError as error:
            raise PassError(
                f"pass '{text}' left an invalid module: {error.message}", op=error.op, where=error.where
            ) from error

    def _print(self, when: str, step: ModulePass, module: Module, record: PassRecord | None = None) -> None:
        wanted = self.print_before if when == "before" else self.print_after
        changed = record is None or record.changed
        if (
            wanted == "all"
            or (wanted == "changed" and record is not None and changed)
            or wanted in (step.name, step.name.removeprefix("onnx-"))
        ):
            name = self.records[-1].name
            self.say(f"// {when} {name}{'' if changed else ' (no change)'}\n{module}")


def _blame(what: str, report: Report, culprit: Culprit | None) -> str:
    by = f": {culprit}" if culprit is not None else ""
    return f"{what} changed what the module computes{by}\n{report.text()}"


def _run(step: ModulePass, module: Module) -> bool:
    """Runs a pass. One of xDSL's own does not say whether it changed anything: then the module is compared."""
    if isinstance(step, Pass):
        return step.run(module)
    before = module.clone()
    step.apply(module.ctx, module.op)
    return before != module


def _count(module: Module) -> int:
    return sum(1 for _ in ops_in(module.op))
