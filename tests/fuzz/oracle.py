"""The NumPy backend against onnxruntime on random graphs.

Every value of a graph is an output, so that each op is compared and the first one that differs is named. Only what
onnxruntime can run is generated: each combination of op, dtypes and kind of call is tried on it once by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import irkit as ik
from irkit.backends.onnxruntime.runtime import runtime
from irkit.errors import IrkitError
from irkit.ir.dtypes import BY_NAME
from irkit.ir.types import OptType, SeqType, dtype_of

from .arrays import eps_of, is_float, plain
from .disagreements import known
from .generate import Choices, Judge, Seeded, random_graph
from .graph import Built, Graph, Step, Value, WrongType

__all__ = ["Finding", "Report", "RuntimeJudge", "check", "difference", "sweep"]

SHADOW_FACTOR = 3.0
"""An error may be so many times as large as the difference between a value and its shadows."""

ROUNDINGS = 8.0
"""By how many units in the last place of its largest element an inexact result may be off besides."""

_UNCARRIED = frozenset(
    BY_NAME[n]
    for n in "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn".split()
) | {BY_NAME[n] for n in "int4 uint4 int2 uint2".split()}


class RuntimeJudge(Judge):
    """Takes the steps that onnxruntime runs, and on which it is not known to differ.

    What it found out is kept: the first call of a kind decides for all. A judge that has seen other graphs before may
    therefore rarely make another graph of a seed.

    Attributes:
        runs: by the kind of call, whether onnxruntime takes it.
        why: why it does not.
        excluded: how many calls fell under a known disagreement, by its title.
    """

    def __init__(self) -> None:
        self.runs: dict[Any, bool] = {}
        self.excluded: Counter[str] = Counter()
        self.why: dict[Any, str] = {}
        # What it warns of concerns its kernels, not the graphs.
        runtime().set_default_logger_severity(3)

    def before(self, step: Step) -> bool:
        return self.runs.get(_kind(step), True)

    def after(self, step: Step, built: Built) -> bool:
        rule = known(step)
        if rule is not None:
            self.excluded[rule.title] += 1
            return False
        # Sequences of dtypes that onnxruntime's Python interface does not have cannot be compared.
        if any(
            isinstance(v.type, SeqType | OptType) and dtype_of(_element(v.type)) in _UNCARRIED for v in step.results
        ):
            return False
        key = _kind(step)
        if key not in self.runs:
            try:
                on_runtime(built.module).run(built.feeds)
                self.runs[key] = True
            except IrkitError as error:
                self.runs[key] = False
                self.why[key] = error.message
        return self.runs[key]


def _element(kind: Any) -> Any:
    while isinstance(kind, SeqType | OptType):
        kind = kind.element
    return kind


def _kind(step: Step) -> Any:
    """What decides whether onnxruntime has a kernel."""
    operands = tuple(None if v is None else str(dtype_of(_element(v.type))) for v in step.operands)
    words = tuple(
        sorted(
            (n, str(v.dtype if isinstance(v, np.ndarray) else v))
            for n, v in step.attributes.items()
            if isinstance(v, str | np.ndarray) or n in _DECIDING
        )
    )
    ranks = tuple(v.array.ndim for v in step.operands if v is not None and v.is_tensor) if step.op in _BY_RANK else ()
    return step.op, operands, words, ranks, step.outputs, _sequences(step)


_DECIDING = frozenset(
    "to dtype output_dtype output_datatype layout onesided inverse stopwords is_case_sensitive block_size size".split()
)
_BY_RANK = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv MaxPool AveragePool LpPool LRN Resize GridSample MaxUnpool".split()
)


def _sequences(step: Step) -> tuple[bool, ...]:
    return tuple(isinstance(v.type, SeqType) for v in step.operands if v is not None)


def on_runtime(module: ik.Module, optimize: str = "none") -> Any:
    """The module on onnxruntime, with one thread."""
    return ik.compile(module, "onnxruntime", optimize=optimize, threads=1)


# Comparing


@dataclass
class Finding:
    """A difference.

    Attributes:
        step: the first one that differs.
        message: how.
        label: in which run.
    """

    label: str
    step: Step
    message: str

    def __str__(self) -> str:
        return f"{self.label}: {self.message}\n    {self.step}"


@dataclass
class Report:
    """What comparing some graphs showed.

    Attributes:
        graphs: how many there were.
        compared: how many ran on both, with results that vary.
        unchecked: why the others were not compared, counted.
        findings: by seed.
        ops: how often each op was there, in bodies too.
    """

    graphs: int = 0
    compared: int = 0
    unchecked: Counter[str] = field(default_factory=Counter[str])
    findings: list[tuple[Any, Finding]] = field(default_factory=list[tuple[Any, Finding]])
    ops: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Report) -> None:
        """Takes in what comparing further graphs showed."""
        self.graphs += other.graphs
        self.compared += other.compared
        self.unchecked += other.unchecked
        self.findings += other.findings
        self.ops += other.ops

    def text(self) -> str:
        """The report for people."""
        rare = ", ".join(f"{name} {count}" for name, count in self.ops.most_common()[:-6:-1])
        lines = [
            f"{self.graphs} graphs, {sum(self.ops.values())} ops of {len(self.ops)} kinds; the rarest: {rare}",
            f"{self.compared} compared ({self.compared / max(self.graphs, 1):.1%}); {len(self.findings)} differ",
        ]
        lines += [f"  {count} unchecked: {reason}" for reason, count in self.unchecked.most_common(20)]
        lines += [f"  seed {seed}: {finding}" for seed, finding in self.findings]
        return "\n".join(lines)


def count_ops(steps: list[Step], into: Counter[str]) -> None:
    """Counts the ops of some steps, those in bodies too."""
    for step in steps:
        into[step.op] += 1
        for body in step.bodies.values():
            count_ops(body.steps, into)


def tolerance(value: np.ndarray, shadows: tuple[np.ndarray, ...]) -> float:
    """The error that is allowed; 0 for what is exact."""
    if not shadows or not value.size:
        return 0.0
    wide = plain(value)
    apart = max(float(np.abs(wide - plain(shadow)).max()) for shadow in shadows)
    return SHADOW_FACTOR * apart + ROUNDINGS * eps_of(value.dtype) * float(np.abs(wide).max())


def difference(value: Any, found: Any, shadows: tuple[Any, ...]) -> str:
    """How a result differs from what it should be; nothing if it does not."""
    if isinstance(value, list):
        if not isinstance(found, list) or len(value) != len(found):
            return f"{found!r}, expected a list of {len(value)}"
        parts = [tuple(s[i] for s in shadows) for i in range(len(value))]
        return next((d for v, f, s in zip(value, found, parts, strict=True) if (d := difference(v, f, s))), "")
    if not isinstance(value, np.ndarray):
        return "" if type(value) is type(found) and value == found else f"{found!r}, expected {value!r}"
    if not isinstance(found, np.ndarray) or found.dtype != value.dtype or found.shape != value.shape:
        return f"{_spelled(found)}, expected {_spelled(value)}"
    if not is_float(value):
        wrong = np.asarray(value != found, bool)
    else:
        a, b = plain(value), plain(found)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= tolerance(value, shadows)
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{found[at]!r} at {list(at)}, expected {value[at]!r} ({int(wrong.sum())} of {value.size} differ)"


def _spelled(found: Any) -> str:
    return f"{found.dtype}{list(found.shape)}" if isinstance(found, np.ndarray) else repr(found)[:100]


def _carried(value: Value) -> bool:
    """Whether onnxruntime's Python interface can return it."""
    return not isinstance(value.type, SeqType | OptType) or dtype_of(_element(value.type)) not in _UNCARRIED


def check(graph: Graph, *, optimize: tuple[str, ...] = ("none",)) -> tuple[list[Finding], str]:
    """Compares a graph; returns what differs, and why it could not be compared, if so.

    The NumPy backend runs the whole graph, and must give what its ops gave one by one; onnxruntime runs it at each
    level of its own optimizations.
    """
    values = [v for step in graph.steps for v in step.results]
    try:
        built = graph.build([v for v in values if _carried(v)])
    except WrongType as error:
        return [Finding("types", error.step, str(error))], ""
    found: list[Finding] = []
    ours = ik.compile(built.module, "numpy", seed=0).run(built.feeds)
    found += _compare("numpy, the whole graph", graph, built, ours)
    for level in optimize:
        # With only the last results as outputs, there is something to rewrite.
        shown = built if level == "none" else graph.build([v for v in graph.leaves() if _carried(v)])
        try:
            theirs = on_runtime(shown.module, level).run(shown.feeds)
        except IrkitError as error:
            return found, f"{error.op} {error.message[:400]}"
        found += _compare(f"onnxruntime, {level}", graph, shown, theirs)
    return found, "" if any(map(_varies, built.outputs.values())) else "no result varies"


def _compare(label: str, graph: Graph, built: Built, results: dict[str, Any]) -> list[Finding]:
    names = {value: name for name, value in built.outputs.items()}
    for step in graph.steps:
        for value in step.results:
            if value not in names:
                continue
            message = difference(value.array, results[names[value]], value.shadows)
            if message:
                return [Finding(label, step, message)]
    return []


def _varies(value: Value) -> bool:
    array = value.array
    return (
        isinstance(array, np.ndarray) and array.size > 1 and bool((array.reshape(-1)[1:] != array.reshape(-1)[0]).any())
    )


def sweep(
    seeds: range,
    judge: RuntimeJudge,
    *,
    names: list[str] | None = None,
    steps: int = 12,
    source: Callable[[int], Choices] = Seeded,
    optimize: tuple[str, ...] = ("none",),
) -> Report:
    """Makes a graph of each seed and compares it."""
    report = Report()
    for seed in seeds:
        graph = random_graph(source(seed), judge=judge, names=names, steps=steps)
        report.graphs += 1
        count_ops(graph.steps, report.ops)
        found, why = check(graph, optimize=optimize)
        report.findings += [(seed, finding) for finding in found]
        if why:
            report.unchecked[why] += 1
        else:
            report.compared += 1
    return report
