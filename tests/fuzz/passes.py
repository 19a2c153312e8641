"""Random graphs through every pass and every level: what they compute must stay what it was.

The NumPy backend runs each graph as it is, and after each pass and level, on the inputs it was made with, on special
values, and, where its sizes are symbols, on other sizes. What must be the same: names, order and dtypes of inputs and
outputs (types may become better known); that the graph can be written at its opset, an older one at times; dtypes and
shapes of results; the places of NaN; integers, bools and strings; and
of floats every bit, the signs of zeros included, where the pass claims that (``docs/reference/passes.md``: all but
``fuse``, ``fold-batch-norm`` and ``O3``), or else what rounding allows. How much that is, runs on inputs that are a few
roundings off tell. What an inexact op gives, such as MatMul, may always be rounded otherwise: the backend's sums depend
on how an operand lies in memory, as a folded Transpose lies otherwise than one that is computed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import irkit as ik
from irkit.dialects.onnx import ONNX_OPSET
from irkit.errors import IrkitError
from irkit.ir.types import UnknownType, dtype_of, tensor_info
from irkit.passes import LEVELS, Instrumentation

from .arrays import eps_of, is_float, off, plain
from .generate import Seeded
from .graph import Built, Step, Value
from .idioms import Subject, subject
from .oracle import ROUNDINGS, SHADOW_FACTOR, count_ops
from .variants import forgetful, per_axis, per_size, resized, special, symbols, with_functions

__all__ = ["EVERY", "ROUNDED", "Finding", "Report", "check", "main", "opset_of", "signature_difference", "sweep"]

ROUNDED = ("fuse", "fold-batch-norm", "O3")
"""What keeps results up to rounding only; every other pass and level keeps every bit."""

SINGLE = (
    *("canonicalize", "constant-fold", "cse", "dce", "fold-batch-norm", "fuse", "hoist", "infer-shapes", "inline"),
    "layout",
)
"""The passes for inference. The others are for gradients and state: these graphs have nothing for them to do."""

IDLE = ("expand-gradient", "fold-update", "lift-state", "lower-ad", "simplify-gradient")
"""The passes that must leave these graphs alone."""

NARROWING = ("to-half",)
"""What changes values on purpose, by more than rounding of their own type: ``halves.py`` looks at it."""

FAST = "fuse{fast-math=true gradients=false}"
"""For finite values only."""

PART = 50

EVERY = (*SINGLE, *(name for name in LEVELS if name != "O0"))


@dataclass
class Finding:
    """A difference.

    Attributes:
        kind: of the graph: ``"plain"``, ``"symbolic"``, ``"functions"``, ``"forgetful"``.
        pipeline: after which it was found.
        feeds: which inputs: ``"own"``, ``"special"``, ``"larger"``, ``"empty"``; ``""`` where nothing was run.
        message: how it differs.
    """

    kind: str
    pipeline: str
    feeds: str
    message: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same while the graph is reduced."""
        return self.kind, self.pipeline, self.feeds

    def __str__(self) -> str:
        return f"{self.kind} graph, {self.pipeline}, {self.feeds or 'no'} inputs: {self.message}"


@dataclass
class Report:
    """What some graphs showed.

    Attributes:
        graphs: how many there were.
        compared: how many of them gave results that vary, or NaN, and were compared after a pass that changed them.
        runs: how often results were compared.
        unchecked: what could not be compared and why, counted.
        changed: by pass or level, how many graphs it changed.
        rewrites: how often each rule, or pass without rules, fired, alone or in a pipeline.
        ops: how often each op was there.
        findings: by seed.
    """

    graphs: int = 0
    compared: int = 0
    runs: int = 0
    unchecked: Counter[str] = field(default_factory=Counter[str])
    changed: Counter[str] = field(default_factory=Counter[str])
    rewrites: Counter[str] = field(default_factory=Counter[str])
    ops: Counter[str] = field(default_factory=Counter[str])
    findings: list[tuple[int, Finding]] = field(default_factory=list[tuple[int, Finding]])

    def add(self, other: Report) -> None:
        """Takes in what further graphs showed."""
        self.graphs += other.graphs
        self.compared += other.compared
        self.runs += other.runs
        for mine, theirs in (
            (self.unchecked, other.unchecked),
            (self.changed, other.changed),
            (self.rewrites, other.rewrites),
            (self.ops, other.ops),
        ):
            mine.update(theirs)
        self.findings += other.findings

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"{self.graphs} graphs, {sum(self.ops.values())} ops of {len(self.ops)} kinds",
            f"{self.compared} compared ({self.compared / max(self.graphs, 1):.1%}) in {self.runs} pairs of runs; "
            f"{len(self.findings)} differ",
            "graphs changed: " + ", ".join(f"{name} {count}" for name, count in self.changed.most_common()),
            "rewrites: " + ", ".join(f"{name} {count}" for name, count in self.rewrites.most_common()),
        ]
        lines += [f"  {count} unchecked: {reason}" for reason, count in self.unchecked.most_common(20)]
        lines += [f"  seed {seed}: {finding}" for seed, finding in self.findings]
        return "\n".join(lines)


# Comparing


def signature_difference(before: ik.Module, after: ik.Module) -> str:
    """How the inputs or outputs differ by more than that types are better known; nothing if they do not."""
    if dict(before.inputs) != dict(after.inputs):
        return f"the inputs are {_listed(after.inputs)}, expected {_listed(before.inputs)}"
    if list(before.outputs) != list(after.outputs):
        return f"the outputs are {list(after.outputs)}, expected {list(before.outputs)}"
    for name, old in before.outputs.items():
        new = after.outputs[name]
        ours, theirs = tensor_info(old), tensor_info(new)
        if isinstance(old, UnknownType):
            same = True
        elif ours is None or theirs is None:
            same = type(old) is type(new) and dtype_of(old) is dtype_of(new)
        else:
            same = ours.dtype is theirs.dtype and _knows_no_less(ours.shape, theirs.shape)
        if not same:
            return f"output '{name}' is {new}, expected {old}"
    return ""


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in values.items())


def _knows_no_less(ours: Sequence[Any] | None, theirs: Sequence[Any] | None) -> bool:
    if ours is None or theirs is None:
        return ours is None
    return len(ours) == len(theirs) and all(
        a is None or a == b or (isinstance(a, str) and b is not None) for a, b in zip(ours, theirs, strict=True)
    )


def _difference(expected: Any, found: Any, shadows: Sequence[Any] | None, least: float, zeros: bool = False) -> str:
    """How a result differs; see the module.

    Args:
        shadows: what it is on inputs a few roundings off; None where every bit must be the same.
        least: an error that is allowed besides.
        zeros: whether zeros must have the same sign, where both are.
    """
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{found!r}, expected a list of {len(expected)}"
        parts = [None if shadows is None else [s[i] for s in shadows] for i in range(len(expected))]
        each = zip(expected, found, parts, strict=True)
        return next((d for e, f, s in each if (d := _difference(e, f, s, least, zeros))), "")
    if not isinstance(expected, np.ndarray):
        return "" if type(expected) is type(found) and expected == found else f"{found!r}, expected {expected!r}"
    if not isinstance(found, np.ndarray) or found.dtype != expected.dtype or found.shape != expected.shape:
        spelled = f"{found.dtype}{list(found.shape)}" if isinstance(found, np.ndarray) else repr(found)[:100]
        return f"{spelled}, expected {expected.dtype}{list(expected.shape)}"
    if not is_float(expected):
        wrong = np.asarray(expected != found, bool)
    else:
        a, b = plain(expected), plain(found)
        nan = np.isnan(a)
        same = a == b
        if shadows is None or zeros:
            same = same & (_sign(a) == _sign(b))
        if shadows is not None:
            same = same | ((a != b) & _near(a, b, expected, shadows, least)) | ((a == b) & (not zeros))
        wrong = ~np.where(nan, np.isnan(b), same)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{found[at]!r} at {list(at)}, expected {expected[at]!r} ({int(wrong.sum())} of {expected.size} differ)"


def _sign(x: Any) -> Any:
    return np.signbit(x.real) + 2 * np.signbit(x.imag) if x.dtype.kind == "c" else np.signbit(x)


def _near(
    a: np.ndarray, b: np.ndarray, expected: np.ndarray, shadows: Sequence[np.ndarray], least: float
) -> np.ndarray:
    finite = np.isfinite(a)
    with np.errstate(all="ignore"):
        scale = float(np.abs(a).max(initial=0.0, where=finite))
        apart = max(float(np.abs(a - plain(s)).max(initial=0.0, where=finite)) for s in shadows)
        error = SHADOW_FACTOR * apart + ROUNDINGS * eps_of(expected.dtype) * scale + least
        return np.abs(a - b) <= error


def _steady(expected: Any, shadow: Any) -> bool:
    """Whether a few roundings change nothing but the last digits: no NaN, infinity, integer or size."""
    if isinstance(expected, list):
        return len(expected) == len(shadow) and all(map(_steady, expected, shadow))
    if not isinstance(expected, np.ndarray):
        return type(expected) is type(shadow) and expected == shadow
    if expected.shape != shadow.shape:
        return False
    if not is_float(expected):
        return bool(np.array_equal(expected, shadow))
    a, b = plain(expected), plain(shadow)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    scale = float(np.abs(a).max(initial=0.0, where=finite))
    apart = float(np.abs(a - b).max(initial=0.0, where=finite)) if finite.all() else _apart(a, b, finite)
    return apart <= np.sqrt(eps_of(expected.dtype)) * scale


def _apart(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> float:
    return float(np.abs(a[where] - b[where]).max(initial=0.0))


@dataclass
class Sample:
    """Inputs, what a graph makes of them, and by output what it makes of them a few roundings off.

    Attributes:
        least: by output, the error that the graph's own shadows allow.
        unsteady: the outputs on which rounding decides.
        exact: the outputs that are not rounded at all.
    """

    label: str
    feeds: dict[str, Any]
    results: dict[str, Any]
    shadows: dict[str, list[Any]]
    least: dict[str, float]
    unsteady: set[str]
    exact: set[str]

    @classmethod
    def of(cls, label: str, built: Built, feeds: dict[str, Any], exact: set[Value]) -> Sample | None:
        """Runs a graph; None if it does not take these inputs."""
        run = ik.compile(built.module, "numpy", seed=0)
        try:
            results = run.run(feeds)
            rng = np.random.default_rng(1)
            moved = [run.run({n: _moved(v, rng, by) for n, v in feeds.items()}) for by in (2.0, -2.0)]
        except IrkitError:
            return None
        shadows = {name: [m[name] for m in moved] for name in results}
        unsteady = {name for name, v in results.items() if not all(_steady(v, s) for s in shadows[name])}
        least = {name: _least(value) for name, value in built.outputs.items()}
        bits = {name for name, value in built.outputs.items() if value in exact}
        return cls(label, feeds, results, shadows, least, unsteady, bits)


def _least(value: Value) -> float:
    """How far the shadows of a value are from it, as far as that tells what rounding does to it."""
    if not is_float(value.array) or not value.shadows or not value.array.size:
        return 0.0
    return SHADOW_FACTOR * max(float(np.abs(plain(value.array) - plain(s)).max()) for s in value.shadows)


def _moved(value: Any, rng: np.random.Generator, by: float) -> Any:
    """A value a few roundings off; what is not finite stays."""
    if isinstance(value, list):
        return [_moved(v, rng, by) for v in value]
    if not is_float(value):
        return value
    finite = np.isfinite(plain(value))
    return np.where(finite, off(np.where(finite, value, np.zeros((), value.dtype)), rng, by, relative=True), value)


# Checking


def check(made: Subject, seed: int, report: Report, only: Finding | None = None) -> list[Finding]:
    """Puts a graph through the passes. Returns what differs.

    Args:
        seed: of what is chosen besides: special values, sizes, pipelines, which kind of graph is looked at.
        report: takes in what happened.
        only: looks for this again and nothing else.
    """
    findings: list[Finding] = []
    for kind, built, samples in _kinds(made, seed, report):
        if only is not None and only.kind != kind:
            continue
        wanted = _pipelines(kind, seed) if only is None else [only.pipeline]
        before = report.runs
        writes = opset_of(seed) < ONNX_OPSET and not _unwritable(built.module)
        idle = _loops_over_nothing(made.graph.steps)
        for pipeline in wanted:
            findings += _after(kind, built, samples, pipeline, report, writes, idle)
        if kind == "plain" and report.runs > before and any(map(_tells, samples[0].results.values())):
            report.compared += 1
    return [f for f in findings if only is None or f.key == only.key]


def _tells(value: Any) -> bool:
    """Whether a result varies, or has NaN: what is the same all over may be right by chance."""
    if isinstance(value, list):
        return any(map(_tells, value))
    if not isinstance(value, np.ndarray) or value.size < 2:
        return False
    flat = value.reshape(-1)
    return bool((flat[1:] != flat[0]).any())


def _pipelines(kind: str, seed: int) -> list[str]:
    chosen = random.Random(seed)
    mixed = ",".join(chosen.choice(SINGLE) for _ in range(4))
    match kind:
        case "plain":
            return [*EVERY, FAST, mixed, IDLE[seed % len(IDLE)]]
        case "symbolic":
            return ["canonicalize", "constant-fold", "infer-shapes", "fuse", "layout", "O2", "O3"]
        case "forgetful":
            return ["infer-shapes", "canonicalize", "fuse", "cse", "layout", "O1", "O3", mixed]
        case _:
            return ["inline", "inline,dce", "canonicalize,constant-fold,cse", "dce", "O3", mixed]


def _kinds(made: Subject, seed: int, report: Report) -> Iterator[tuple[str, Built, list[Sample]]]:
    """The graph as it is; and with symbols for sizes, with a function, or with fewer types known."""
    built, exact = made.build(), made.exact()
    built.module.opsets = {"": opset_of(seed)}
    own = Sample.of("own", built, built.feeds, exact)
    if own is None:
        report.unchecked["it does not take its inputs a rounding off"] += 1
        return
    odd = Sample.of("special", built, special(built, seed), exact) if built.feeds else None
    report.unchecked["special values are refused"] += odd is None and bool(built.feeds)
    yield "plain", built, [s for s in (own, odd) if s is not None]
    if seed % 3 == 0:
        yield from _symbolic(made, seed, report)
    elif _loops_over_nothing(made.graph.steps):
        report.unchecked["what a loop without iterations gives depends on what types are known"] += 1
    elif seed % 3 == 1:
        try:
            called = with_functions(built, random.Random(seed))
        except IrkitError as error:
            report.unchecked[f"no function: {error.message[:60]}"] += 1
            return
        sample = None if called is None else Sample.of("own", called, called.feeds, exact)
        if called is not None and sample is not None:
            yield "functions", called, [sample]
    else:
        fewer = forgetful(built, random.Random(seed))
        yield "forgetful", fewer, [s for s in (own, odd) if s is not None]


def _loops_over_nothing(steps: Sequence[Step]) -> bool:
    """Whether a Loop or Scan collects nothing: only types tell the shape of that."""
    return any(
        (
            step.op in ("Loop", "Scan", "SequenceMap")
            and any(0 in np.shape(v.array) for v in step.results if v.is_tensor)
        )
        or any(_loops_over_nothing(body.steps) for body in step.bodies.values())
        for step in steps
    )


def opset_of(seed: int) -> int:
    """The opset that what passes make must be expressible in: mostly the newest, which most rules need."""
    return ONNX_OPSET if seed % 4 else random.Random(seed).randint(7, ONNX_OPSET)


def _symbolic(made: Subject, seed: int, report: Report) -> Iterator[tuple[str, Built, list[Sample]]]:
    try:
        built = made.build(per_size if seed % 2 else per_axis)
        built.module.opsets = {"": opset_of(seed)}
    except IrkitError as error:
        report.unchecked[f"no symbols: {error.message[:60]}"] += 1
        return
    sizes, exact = symbols(built), made.exact()
    if not sizes:
        return
    larger = {name: size + 1 for name, size in sizes.items()}
    empty = {**sizes, random.Random(seed).choice(sorted(sizes)): 0}
    own = Sample.of("own", built, built.feeds, exact)
    feeds = {"larger": resized(built, larger), "empty": resized(built, empty)}
    others = [Sample.of(label, built, fed, exact) for label, fed in feeds.items()]
    report.unchecked["other sizes are refused"] += sum(s is None for s in others)
    yield "symbolic", built, [s for s in (own, *others) if s is not None]


def _unwritable(module: ik.Module) -> str:
    """Why a module cannot be written at its own opset, if so."""
    try:
        module.to_onnx()
    except IrkitError as error:
        return error.message
    return ""


def _after(
    kind: str, built: Built, samples: Sequence[Sample], pipeline: str, report: Report, writes: bool, idle: bool
) -> list[Finding]:
    """What differs after a pipeline.

    Args:
        idle: whether a loop has no iterations. What it stacks has the sizes that types tell, or 0, and passes come to
            know more types.
        writes: whether the graph can be written at its opset, and must be so afterwards.
    """
    run = Instrumentation()
    try:
        after = ik.optimize(built.module, pipeline, instrumentation=run)
        after.verify()
    except IrkitError as error:
        return [Finding(kind, pipeline, "", str(error))]
    for record in run.records:
        report.rewrites += record.rewrites
    wrong = signature_difference(built.module, after)
    # What stood in a type that is forgotten can't be known from the types around it.
    if wrong and (kind != "forgetful" or list(after.outputs) != list(built.module.outputs)):
        return [Finding(kind, pipeline, "", wrong)]
    if after == built.module:
        return []
    if pipeline in (*EVERY, FAST):
        report.changed[pipeline] += 1
    unwritable = _unwritable(after) if writes else ""
    if unwritable:
        return [Finding(kind, pipeline, "", unwritable)]
    rounded = any(name in pipeline for name in ROUNDED)
    # What types are known decides what the backend computes together, and that the sign of a zero that is rounded.
    zeros = not rounded and kind != "forgetful"
    findings: list[Finding] = []
    for sample in samples:
        if pipeline == FAST and sample.label != "own":
            continue
        report.runs += 1
        wrong = _differs(after, sample, rounded, zeros, idle, report)
        if wrong:
            findings.append(Finding(kind, pipeline, sample.label, wrong))
    return findings


def _differs(after: ik.Module, sample: Sample, rounded: bool, zeros: bool, idle: bool, report: Report) -> str:
    try:
        found = ik.compile(after, "numpy", seed=0).run(sample.feeds)
    except IrkitError as error:
        return str(error)
    for name, expected in sample.results.items():
        wrong = _difference(expected, found[name], None, 0.0)
        if wrong and idle and _both_empty(expected, found[name]):
            report.unchecked["the sizes of what a loop without iterations stacks"] += 1
            continue
        bits = not rounded and name in sample.exact
        if wrong and not bits:
            if name in sample.unsteady:
                report.unchecked[f"rounding decides on an output that differs, {sample.label} inputs"] += 1
                continue
            wrong = _difference(expected, found[name], sample.shadows[name], sample.least[name], zeros=zeros)
        if wrong:
            return f"output '{name}' is {wrong}"
    return ""


def _both_empty(a: Any, b: Any) -> bool:
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return arrays and a.dtype == b.dtype and a.ndim == b.ndim and a.size == b.size == 0


def sweep(seeds: range, *, steps: int = 6) -> Report:
    """Makes a graph of each seed and puts it through the passes."""
    report = Report()
    for seed in seeds:
        made = subject(Seeded(seed), steps=steps)
        report.graphs += 1
        count_ops(made.graph.steps, report.ops)
        with np.errstate(all="ignore"):
            report.findings += [(seed, finding) for finding in check(made, seed, report)]
    return report


def main(arguments: Sequence[str]) -> int:
    """``python -m tests.fuzz passes``: as many graphs as one likes; what differs is printed as small as it gets."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz passes", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--steps", type=int, default=6, help="ops and idioms a graph, at most (default: 6)")
    options = parser.parse_args(arguments)
    report, end = Report(), options.first + options.graphs
    for first in range(options.first, end, PART):
        part = sweep(range(first, min(first + PART, end)), steps=options.steps)
        report.add(part)
        print(f"{report.graphs} graphs, {len(report.findings)} differ", file=sys.stderr)
        for seed, finding in part.findings:
            print(f"  seed {seed}: {finding}", file=sys.stderr)
    print(report.text())
    for seed, finding in dict(reversed(report.findings)).items():
        made = subject(Seeded(seed), steps=options.steps)
        with np.errstate(all="ignore"):
            small = made.reduced(lambda s, seed=seed, f=finding: bool(check(s, seed, Report(), only=f)))
        print(f"seed {seed}, {finding}\n{small.graph}", file=sys.stderr)
    return 1 if report.findings else 0
