"""Two modules run side by side on the same inputs.

They are the same as far as they were compared: equal signatures, and on every sample and backend outputs of equal dtype
and shape, NaN and infinities in the same places, and numbers that differ by no more than a small part of their output's
scale. A sample on which both fail shows nothing and is reported as unchecked, and so is all else that could not be
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irkit.backends import compile as compile_module
from irkit.backends.base import Executable, spell
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.module import Module
from irkit.ir.op import Random
from irkit.ir.types import TensorInfo, UnknownType, tensor_info
from irkit.verify.generate import random_feeds, symbols
from irkit.verify.report import Report, Seen
from irkit.verify.values import Difference, Tolerance, default_tolerance, difference_of
from irkit.verify.widen import widen, widen_feeds

__all__ = ["Backend", "Reference", "Report", "compare"]

Backend = str | tuple[str, Mapping[str, Any]]
"""A backend's name, or it and options for ``irkit.compile``. onnxruntime's own rewriting is off unless asked for."""

MARGIN = 8
"""Another order of operations may have so many times the error of the right side; or, where that has next to none, so
many times less than is allowed by default."""
ATTEMPTS = 6
"""How many sets of generated inputs are tried for one sample, until the first module runs."""


def compare(
    a: Module,
    b: Module,
    *,
    backends: Iterable[Backend] = ("numpy",),
    samples: int = 3,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    special: bool = True,
    signed_zeros: bool = False,
) -> Report:
    """Runs two modules on the same inputs and says where they differ.

    Each backend runs both, so backends are not compared with each other. Both get one seed: ops that draw random
    numbers draw the same on the numpy backend as long as their results keep their names; on others a difference in a
    module that draws counts as unchecked.

    Args:
        a: what is right.
        b: what is to be checked.
        backends: on which to run.
        samples: how many sets of inputs to generate. The first has small sizes that differ from symbol to symbol, the
            second a size of 1 for every symbolic dim, the third special values, the fourth a size of 0; further ones
            have random sizes. Every second one feeds overridable initializers too.
        rtol: the error allowed, as a part of the largest finite magnitude in the output of ``a``; default: by dtype
            (float32: 1e-5). Integers, bools and strings are exact either way.
        atol: an absolute error that is allowed besides; default 0.
        feeds: inputs, one set or several, in place of generated ones.
        special: whether the third sample has NaN, infinities, signed zeros and denormals among its floats.
        signed_zeros: whether 0 and -0 are different.

    Raises:
        FeedError: if ``feeds`` do not fit the inputs.
    """
    reference = Reference(a, backends=backends, samples=samples, seed=seed, feeds=feeds, special=special)
    return reference.check(b, Tolerance(rtol, atol or 0.0, signed_zeros))


class Reference:
    """What is right: a module, inputs for it, and what it makes of them. Others are held against it, each run once.

    Args:
        module: what is right.
        backends: on which to run.
        samples: how many sets of inputs.
        seed: of what is drawn.
        feeds: inputs in place of generated ones.
        special: whether a sample has NaN and the like.
        wide: where nothing else is asked for, allow each output an error in proportion to that of ``module`` itself,
            which a run in float64 tells, where its ops take that.

    Raises:
        FeedError: if ``feeds`` do not fit the inputs.
    """

    def __init__(
        self,
        module: Module,
        *,
        backends: Iterable[Backend] = ("numpy",),
        samples: int = 3,
        seed: int = 0,
        feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        special: bool = True,
        wide: bool = False,
    ) -> None:
        self.module = module
        self.backends = [_backend(backend, seed) for backend in backends]
        self.draws = any(op.has_trait(Random) for op in module.walk())
        self._feeds, self._samples, self._seed, self._special, self._wide = feeds, samples, seed, special, wide
        self._runs: list[_Run] | None = None
        self._unchecked: list[str] = []
        self._notes: list[str] = []

    @property
    def feeds(self) -> list[Mapping[str, Any]]:
        """The inputs, by sample."""
        return [run.feeds for run in self.runs]

    @property
    def runs(self) -> list[_Run]:
        """What the module makes of each sample; it runs when this is first asked for."""
        if self._runs is None:
            self._runs = self._run()
        return self._runs

    def _run(self) -> list[_Run]:
        seen = {name: Seen() for name in self.module.output_names}
        executables: dict[str, Executable] = {}
        for label, name, settings in self.backends:
            try:
                executables[label] = compile_module(self.module, name, **settings)
            except IrkitError as error:
                self._unchecked.append(f"{label}: {error}")
        if not executables:
            return []
        first, *others = executables
        runs: list[_Run] = []
        for fed, result in _samples(
            executables[first], self.module, self._feeds, self._samples, self._seed, self._special
        ):
            results = {first: result, **{label: _attempt(executables[label], fed) for label in others}}
            for found in results.values():
                if isinstance(found, dict):
                    for name, value in found.items():
                        seen[name].add(value)
            runs.append(_Run(fed, results))
        if self._wide:
            self._measure(runs)
        self._notes = [
            f"output '{name}' {note}" for name, what in seen.items() if (note := what.note(self.module)) is not None
        ]
        return runs

    def _measure(self, runs: Sequence[_Run]) -> None:
        """Notes how far each result is from what float64 gives."""
        wide = widen(self.module)
        if wide is None:
            return
        try:
            executable = compile_module(wide, "numpy", seed=self._seed)
        except IrkitError:
            return
        for run in runs:
            exact = _attempt(executable, widen_feeds(run.feeds))
            if not isinstance(exact, dict):
                continue
            for result in run.results.values():
                if isinstance(result, dict):
                    for name, value in result.items():
                        error = _own_error(value, exact.get(name))
                        if error is not None:
                            run.errors[name] = max(run.errors.get(name, 0.0), error)

    def check(
        self, other: Module, tolerance: Tolerance | None = None, *, only: tuple[str, int] | None = None
    ) -> Report:
        """Runs another module on the same inputs, and says where it differs.

        Args:
            tolerance: what counts as equal.
            only: a backend's label and a sample, if no other is to be run.
        """
        report = Report()
        report.differences += _signature_differences(self.module, other)
        if report.differences:
            return report
        tolerance = tolerance or Tolerance()
        runs = self.runs
        report.unchecked += self._unchecked
        for label, name, settings in self.backends:
            report.runs[label] = 0
            if not runs or label not in runs[0].results or (only is not None and only[0] != label):
                continue
            try:
                executable = compile_module(other, name, **settings)
            except IrkitError as error:
                message = f"only the second module cannot be compiled: {error}"
                report.differences.append(Difference("failure", message, backend=label))
                continue
            for sample, run in enumerate(runs):
                if only is None or only[1] == sample:
                    _compare_runs(label, executable, sample, run, report, tolerance, self.draws)
        report.notes += self._notes
        return report


@dataclass
class _Run:
    """One set of inputs, what each backend makes of them, and by output the error of that as a part of its scale."""

    feeds: Mapping[str, Any]
    results: dict[str, dict[str, Any] | IrkitError]
    errors: dict[str, float] = field(default_factory=dict[str, float])


def _own_error(value: Any, exact: Any) -> float | None:
    """How far an array is from what float64 gives, as a part of its scale."""
    if not isinstance(value, np.ndarray) or not isinstance(exact, np.ndarray) or value.shape != exact.shape:
        return None
    if not default_tolerance(value.dtype) or exact.dtype != np.float64:
        return None
    with np.errstate(all="ignore"):
        found = value.astype(np.float64)
        finite = np.isfinite(found) & np.isfinite(exact)
        scale = float(np.max(np.abs(found), where=finite, initial=0.0))
        worst = float(np.max(np.abs(np.where(finite, found - exact, 0.0)), initial=0.0))
    return worst / scale if scale else None


# Signatures


def _signature_differences(a: Module, b: Module) -> Iterator[Difference]:
    for label, ours, theirs in (("inputs", a.inputs, b.inputs), ("outputs", a.outputs, b.outputs)):
        if list(ours) != list(theirs):
            yield Difference("signature", f"the {label} are {_listed(theirs)}, expected {_listed(ours)}")
            continue
        for name, value_type in ours.items():
            if not _fits(tensor_info(value_type), tensor_info(theirs[name]), label == "inputs") or (
                tensor_info(value_type) is None
                and not isinstance(value_type, UnknownType)
                and type(value_type) is not type(theirs[name])
            ):
                message = f"{label[:-1]} '{name}' is {spell(theirs[name])}, expected {spell(value_type)}"
                yield Difference("signature", message)
    if set(a.defaults) != set(b.defaults):
        yield Difference(
            "signature", f"the inputs with defaults are {_listed(b.defaults)}, expected {_listed(a.defaults)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _fits(ours: TensorInfo | None, theirs: TensorInfo | None, exactly: bool) -> bool:
    """Whether a type is the same or, where that is allowed, says more about the shape."""
    if ours is None or theirs is None:
        return ours is None or not exactly
    if ours.dtype is not theirs.dtype:
        return False
    if ours.shape is None or theirs.shape is None:
        return not exactly or theirs.shape is None
    if len(ours.shape) != len(theirs.shape):
        return False
    for mine, other in zip(ours.shape, theirs.shape, strict=True):
        if isinstance(mine, int) and isinstance(other, int) and mine != other:
            return False
        # A size baked into an input would refuse what the first module takes.
        if exactly and isinstance(other, int) and not isinstance(mine, int):
            return False
    return True


# Running


def _backend(backend: Backend, seed: int) -> tuple[str, str, dict[str, Any]]:
    """A label for people, the backend's name, and the options to compile with."""
    name, options = (backend, {}) if isinstance(backend, str) else backend
    level: dict[str, Any] = {"optimize": "none"} if name == "onnxruntime" else {}
    label = name + "".join(f" {key}={value}" for key, value in options.items())
    return label, name, {"seed": seed, **level, **options}


def _attempt(executable: Executable, feeds: Mapping[str, Any]) -> dict[str, Any] | IrkitError:
    try:
        return executable.run(feeds)
    except IrkitError as error:
        return error


_Result = tuple[Mapping[str, Any], "dict[str, Any] | IrkitError"]


def _samples(
    executable: Executable,
    module: Module,
    feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    samples: int,
    seed: int,
    special: bool,
) -> Iterator[_Result]:
    """Sets of inputs, with what the first module makes of them on the first backend."""
    if feeds is not None:
        for fed in [feeds] if isinstance(feeds, Mapping) else feeds:
            executable.check_feeds(fed)
            yield fed, _attempt(executable, fed)
        return
    for sample in range(samples if module.inputs else 1):
        yield _first_that_runs(executable, module, sample, seed, special)


def _first_that_runs(executable: Executable, module: Module, sample: int, seed: int, special: bool) -> _Result:
    """Generated inputs that the first module takes, or else the first ones tried, with the error."""
    failed: _Result | None = None
    for attempt in range(ATTEMPTS):
        sizes = _sizes(module, sample, attempt, seed)
        odd = special and sample == 2 and attempt < 2
        try:
            fed = random_feeds(
                module, seed + sample + 1000 * attempt, sizes, odd, defaults=sample % 2 == 1 and attempt < 2
            )
        except UnsupportedError as error:
            return failed or ({}, error)
        result = _attempt(executable, fed)
        if isinstance(result, dict):
            return fed, result
        failed = failed or (fed, result)
    assert failed is not None
    return failed


def _sizes(module: Module, sample: int, attempt: int, seed: int) -> dict[str, int]:
    """The sizes of the symbolic dims in a sample."""
    rng = np.random.default_rng([seed, sample, attempt])
    return {name: _size(index, sample, attempt, rng) for index, name in enumerate(symbols(module))}


def _size(index: int, sample: int, attempt: int, rng: np.random.Generator) -> int:
    if attempt >= 2:
        # Larger ones, which windows and groups may need; all equal, as some models only take one size for two symbols.
        return (8 + index, 8, 32, 224)[attempt - 2]
    if sample == 1:
        return 1 + attempt
    if sample == 3 and attempt == 0:
        return 0
    if sample < 3:
        return 2 + (index + sample + attempt) % 4
    return int(rng.integers(1, 8))


# Comparing


def _compare_runs(
    label: str,
    executable: Executable,
    sample: int,
    run: _Run,
    report: Report,
    tolerance: Tolerance,
    draws: bool,
) -> None:
    expected = run.results[label]
    if isinstance(expected, UnsupportedError):
        report.unchecked.append(f"{label}, sample {sample}: {expected}")
        return
    found = _attempt(executable, run.feeds)
    if isinstance(expected, IrkitError):
        if isinstance(found, IrkitError):
            report.unchecked.append(f"{label}, sample {sample}: both fail: {expected}")
        else:
            message = f"only the first module fails: {expected}"
            report.differences.append(Difference("failure", message, backend=label, sample=sample))
        return
    if isinstance(found, IrkitError):
        message = f"only the second module fails: {found}"
        report.differences.append(Difference("failure", message, backend=label, sample=sample))
        return
    report.runs[label] += 1
    for name, value in expected.items():
        difference = difference_of(value, found[name], _allowed(tolerance, value, run.errors.get(name)))
        if difference is None:
            continue
        difference.output, difference.backend, difference.sample = name, label, sample
        if draws and not label.startswith("numpy"):
            reason = f"{label}, sample {sample}: output '{name}' may depend on random numbers, and differs"
            report.unchecked.append(reason)
        else:
            report.differences.append(difference)


def _allowed(tolerance: Tolerance, value: Any, error: float | None) -> Tolerance:
    """The tolerance for an output of which the error of the right side is known."""
    if error is None or tolerance.rtol is not None:
        return tolerance
    rtol = max(default_tolerance(value.dtype) / MARGIN, MARGIN * error)
    return Tolerance(rtol, tolerance.atol, tolerance.signed_zeros)
