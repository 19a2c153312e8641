"""Random graphs in half precision: each converts to a valid module of the same signature that computes about the same.

How much rounding may change, runs tell in which the inputs are moved by some roundings of the half type. Where that
moves a result far, or to another integer, rounding decides on it, and only its type and shape are compared.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import irkit as ik
from irkit.errors import IrkitError
from irkit.ir.types import dtype_of

from .arrays import is_float, off, plain
from .generate import Seeded
from .graph import Built
from .idioms import subject
from .passes import opset_of, signature_difference
from .variants import per_size, with_functions

__all__ = ["Report", "check", "sweep"]

ROUNDINGS = 64
"""So many roundings of the largest value in a graph are allowed."""

FACTOR = 32
"""So many times what moved inputs do to a result is allowed."""

FAR = 0.1
"""A result that moved inputs move by so much of its scale is one that rounding decides."""

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass
class Report:
    """What some graphs showed.

    Attributes:
        graphs, converted: how many there were, and how many have ops in half precision afterwards.
        compared, unsteady: how many results were compared, and how many rounding decides.
        ops: how often each op became half.
        unchecked: what could not be looked at, counted.
        findings: what is wrong, by seed.
    """

    graphs: int = 0
    converted: int = 0
    compared: int = 0
    unsteady: int = 0
    ops: Counter[str] = field(default_factory=Counter[str])
    unchecked: Counter[str] = field(default_factory=Counter[str])
    findings: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"{self.graphs} graphs, {self.converted} converted, {sum(self.ops.values())} ops of {len(self.ops)} kinds; "
            f"{self.compared} results compared, {self.unsteady} that rounding decides; {len(self.findings)} wrong"
        ]
        lines += [f"  {count} unchecked: {reason}" for reason, count in self.unchecked.most_common(20)]
        return "\n".join([*lines, *(f"  seed {seed}: {finding}" for seed, finding in self.findings)])


def check(module: ik.Module, feeds: Mapping[str, Any], kind: str, report: Report, *, keep_io: bool = True) -> str:
    """Converts a graph, and says what is wrong with what came out; ``""`` if nothing is."""
    try:
        exact = ik.compile(module, "numpy", seed=0).run(feeds)
    except IrkitError as error:
        report.unchecked[f"it does not run: {error.message[:60]}"] += 1
        return ""
    try:
        made, found = ik.to_half(module, kind, calibration=feeds, keep_io=keep_io)
    except IrkitError as error:
        if "overflows" in str(error):
            report.unchecked["it overflows and is refused"] += 1
            return ""
        return f"not converted: {error}"
    report.converted += bool(found.converted)
    report.ops.update(op.name for op in made.walk() if any(_is_half(r.type, kind) for r in op.results))
    again, second = ik.to_half(made, kind, calibration=_as_inputs(feeds, made))
    if second.converted or second.casts or again != made:
        return f"converted again, it changes: {second}"
    if keep_io:
        wrong = signature_difference(module, made)
        if wrong:
            return wrong
    wrong = _invalid(module, made, kind)
    if wrong:
        return wrong
    return _differs(module, made, feeds, exact, kind, report)


def _is_half(value_type: Any, kind: str) -> bool:
    found = dtype_of(value_type)
    return found is not None and found.name == kind


def _as_inputs(feeds: Mapping[str, Any], module: ik.Module) -> dict[str, Any]:
    """Feeds in the types that a module takes."""
    made: dict[str, Any] = {}
    for name, value in feeds.items():
        wanted = dtype_of(module.inputs[name])
        made[name] = value
        if wanted is not None and isinstance(value, np.ndarray):
            made[name] = value.astype(wanted.numpy)
    return made


def _invalid(module: ik.Module, made: ik.Module, kind: str) -> str:
    """What the official checker, or onnxruntime, has against a converted module and not against the original."""
    try:
        before = module.to_onnx()
    except IrkitError:
        return ""
    try:
        after = made.to_onnx()
    except IrkitError as error:
        return f"it cannot be written: {error}"
    if not _checked(before) and (wrong := _checked(after)):
        return f"the checker refuses it: {wrong}"
    if kind == "float16" and not _loaded(module) and (wrong := _loaded(made)):
        return f"onnxruntime refuses it: {wrong}"
    return ""


def _checked(model: Any) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return ""


def _loaded(module: ik.Module) -> str:
    try:
        ik.compile(module, "onnxruntime", optimize="none")
    except IrkitError as error:
        return str(error)
    return ""


def _differs(
    module: ik.Module,
    made: ik.Module,
    feeds: Mapping[str, Any],
    exact: Mapping[str, Any],
    kind: str,
    report: Report,
) -> str:
    try:
        found = ik.compile(made, "numpy", seed=0).run(_as_inputs(feeds, made))
    except IrkitError as error:
        return f"it does not run: {error}"
    moved = _moved_runs(module, feeds, kind)
    largest = _largest([*feeds.values(), *exact.values()])
    for name, value in exact.items():
        if not isinstance(value, np.ndarray):
            continue
        other = found[name]
        if not isinstance(other, np.ndarray) or other.shape != value.shape:
            if all(m[name].shape == value.shape for m in moved):
                return f"output '{name}' is of shape {getattr(other, 'shape', None)}, expected {value.shape}"
            report.unsteady += 1
            continue
        if not is_float(value):
            if any(m[name].shape != value.shape or (m[name] != value).any() for m in moved):
                report.unsteady += 1
            elif (other != value).any():
                if _from_floats(module, name):
                    report.unsteady += 1
                else:
                    return f"output '{name}' is {other}, expected {value}"
            continue
        if any(m[name].shape != value.shape for m in moved):
            report.unsteady += 1
            continue
        a, b = plain(value), plain(other)
        finite = np.isfinite(a)
        scale = float(np.abs(a).max(initial=0.0, where=finite))
        spread = max((float(np.abs(plain(m[name]) - a).max(initial=0.0, where=finite)) for m in moved), default=0.0)
        if (
            not np.isfinite(spread)
            or spread > FAR * max(scale, largest)
            or any((np.isfinite(plain(m[name])) != finite).any() for m in moved)
        ):
            report.unsteady += 1
            continue
        with np.errstate(all="ignore"):
            error = float(np.abs(a - b).max(initial=0.0, where=finite))
        allowed = FACTOR * spread + ROUNDINGS * EPS[kind] * max(scale, largest)
        if not error <= allowed:
            return f"output '{name}' is off by {error:.3g}, where {allowed:.3g} is allowed (scale {scale:.3g})"
        if (np.isfinite(b) != finite).any():
            return f"output '{name}' is not finite at other places"
        report.compared += 1
    return ""


def _from_floats(module: ik.Module, name: str) -> bool:
    """Whether rounding may decide on an integer: some float is among what it is computed from."""
    pending, seen = [dict(zip(module.output_names, module.returned, strict=True))[name]], set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if _is_half(value.type, "float32"):
            return True
        owner = value.owner
        pending += getattr(owner, "operands", ())
        for region in getattr(owner, "regions", ()):
            pending += [v for op in region.walk() for v in op.operands]
    return False


def _largest(values: Iterable[Any]) -> float:
    """The largest finite magnitude."""
    found = 0.0
    for value in values:
        if is_float(value):
            found = max(found, float(np.abs(plain(value)).max(initial=0.0, where=np.isfinite(plain(value)))))
    return found


def _moved_runs(module: ik.Module, feeds: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Runs on inputs that are some roundings of the half type off."""
    rng = np.random.default_rng(0)
    by = 4 * EPS[kind] / float(ml_dtypes.finfo(np.float32).eps)
    runs: list[dict[str, Any]] = []
    for sign in (1, -1, 1):
        moved = {
            name: off(value, rng, sign * by, relative=True) if is_float(value) and value.dtype == np.float32 else value
            for name, value in feeds.items()
        }
        try:
            runs.append(ik.compile(module, "numpy", seed=0).run(moved))
        except IrkitError:
            continue
    return runs


def _called(built: Built, seed: int, report: Report) -> Built | None:
    try:
        return with_functions(built, random.Random(seed))
    except IrkitError as error:
        report.unchecked[f"no function: {error.message[:60]}"] += 1
        return None


def sweep(seeds: range, kind: str = "float16", *, steps: int = 6) -> Report:
    """Makes a graph of each seed, and converts it."""
    report = Report()
    for seed in seeds:
        made = subject(Seeded(seed), steps=steps)
        report.graphs += 1
        with np.errstate(all="ignore"):
            built = made.build(per_size) if seed % 3 == 0 else made.build()
            built.module.opsets = {"": opset_of(seed)}
            wrong = check(built.module, built.feeds, kind, report, keep_io=seed % 5 > 0)
            if not wrong and seed % 3 == 1:
                called = _called(built, seed, report)
                wrong = "" if called is None else check(called.module, called.feeds, kind, report)
        if wrong:
            report.findings.append((seed, wrong))
    return report
