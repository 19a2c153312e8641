"""Two modules run side by side on the same inputs.

They are the same as far as they were compared: equal signatures, and on every sample and backend outputs of equal dtype
and shape, NaN and infinities in the same places, and numbers that differ by no more than a small part of their output's
scale. A sample on which both fail shows nothing and is reported as unchecked, and so is all else that could not be
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from irkit.backends import compile as compile_module
from irkit.backends.base import Executable, spell
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.module import Module
from irkit.ir.op import Random
from irkit.ir.types import TensorInfo, UnknownType, tensor_info
from irkit.verify.generate import random_feeds, symbols
from irkit.verify.values import Difference, Tolerance, difference_of

__all__ = ["Backend", "Report", "compare"]

Backend = str | tuple[str, Mapping[str, Any]]
"""A backend's name, or it and options for ``irkit.compile``. onnxruntime's own rewriting is off unless asked for."""

ATTEMPTS = 6
"""How many sets of generated inputs are tried for one sample, until the first module runs."""


@dataclass
class Report:
    """What a comparison found.

    Attributes:
        differences: none if the modules are equal as far as they were compared.
        unchecked: what could not be compared, and why.
        notes: what weakens the comparison: outputs that are never finite, or always one value.
        runs: how many pairs of runs were compared, by backend.
    """

    differences: list[Difference] = field(default_factory=list["Difference"])
    unchecked: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    runs: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def compared(self) -> int:
        """How many pairs of runs were compared on all backends together."""
        return sum(self.runs.values())

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.equal

    def text(self) -> str:
        """The report for people, a line per finding."""
        runs = f"{self.compared} pair{'' if self.compared == 1 else 's'} of runs compared"
        if self.differences:
            lines = [f"different ({runs}):", *(f"  {difference}" for difference in self.differences)]
        else:
            lines = [f"equal ({runs})" if self.compared else "nothing could be compared"]
        lines += [f"  unchecked: {reason}" for reason in self.unchecked]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"equal": self.equal, **asdict(self)}

    __str__ = text


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
    report = Report()
    report.differences += _signature_differences(a, b)
    if report.differences:
        return report
    pairs = list(_compiled(a, b, backends, seed, report))
    if not pairs:
        return report
    draws = any(op.has_trait(Random) for op in a.walk())
    seen = {name: _Seen() for name in a.output_names}
    first = pairs[0]
    tolerance = Tolerance(rtol, atol or 0.0, signed_zeros)
    for sample, (fed, result) in enumerate(_samples(first, a, feeds, samples, seed, special)):
        for pair in pairs:
            expected = result if pair is first else _attempt(pair.a, fed)
            if isinstance(expected, dict):
                for name, value in expected.items():
                    seen[name].add(value)
            _compare_runs(pair, sample, fed, expected, report, tolerance, draws)
    report.notes += [f"output '{name}' {note}" for name, what in seen.items() if (note := what.note(a)) is not None]
    return report


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


@dataclass
class _Pair:
    label: str
    a: Executable
    b: Executable


def _compiled(a: Module, b: Module, backends: Iterable[Backend], seed: int, report: Report) -> Iterator[_Pair]:
    for backend in backends:
        name, options = (backend, {}) if isinstance(backend, str) else backend
        level: dict[str, Any] = {"optimize": "none"} if name == "onnxruntime" else {}
        settings = {"seed": seed, **level, **options}
        label = name + "".join(f" {key}={value}" for key, value in options.items())
        report.runs[label] = 0
        try:
            first = compile_module(a, name, **settings)
        except IrkitError as error:
            report.unchecked.append(f"{label}: {error}")
            continue
        try:
            second = compile_module(b, name, **settings)
        except IrkitError as error:
            message = f"only the second module cannot be compiled: {error}"
            report.differences.append(Difference("failure", message, backend=label))
            continue
        yield _Pair(label, first, second)


def _attempt(executable: Executable, feeds: Mapping[str, Any]) -> dict[str, Any] | IrkitError:
    try:
        return executable.run(feeds)
    except IrkitError as error:
        return error


_Result = tuple[Mapping[str, Any], "dict[str, Any] | IrkitError"]


def _samples(
    pair: _Pair,
    module: Module,
    feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    samples: int,
    seed: int,
    special: bool,
) -> Iterator[_Result]:
    """Sets of inputs, with what the first module makes of them on the first backend."""
    if feeds is not None:
        for fed in [feeds] if isinstance(feeds, Mapping) else feeds:
            pair.a.check_feeds(fed)
            yield fed, _attempt(pair.a, fed)
        return
    for sample in range(samples if module.inputs else 1):
        yield _first_that_runs(pair, module, sample, seed, special)


def _first_that_runs(pair: _Pair, module: Module, sample: int, seed: int, special: bool) -> _Result:
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
        result = _attempt(pair.a, fed)
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
    pair: _Pair,
    sample: int,
    feeds: Mapping[str, Any],
    expected: dict[str, Any] | IrkitError,
    report: Report,
    tolerance: Tolerance,
    draws: bool,
) -> None:
    if isinstance(expected, UnsupportedError):
        report.unchecked.append(f"{pair.label}, sample {sample}: {expected}")
        return
    found = _attempt(pair.b, feeds)
    if isinstance(expected, IrkitError):
        if isinstance(found, IrkitError):
            report.unchecked.append(f"{pair.label}, sample {sample}: both fail: {expected}")
        else:
            message = f"only the first module fails: {expected}"
            report.differences.append(Difference("failure", message, backend=pair.label, sample=sample))
        return
    if isinstance(found, IrkitError):
        message = f"only the second module fails: {found}"
        report.differences.append(Difference("failure", message, backend=pair.label, sample=sample))
        return
    report.runs[pair.label] += 1
    for name, value in expected.items():
        difference = difference_of(value, found[name], tolerance)
        if difference is None:
            continue
        difference.output, difference.backend, difference.sample = name, pair.label, sample
        if draws and not pair.label.startswith("numpy"):
            reason = f"{pair.label}, sample {sample}: output '{name}' may depend on random numbers, and differs"
            report.unchecked.append(reason)
        else:
            report.differences.append(difference)


class _Seen:
    """What all samples together showed of an output."""

    def __init__(self) -> None:
        self.values: set[Any] = set()
        self.runs = 0
        self.size = 0
        self.finite = 0

    def add(self, value: Any) -> None:
        """Takes in the output of a run."""
        self.runs += 1
        for array in _arrays(value):
            self.size += array.size
            if array.dtype.kind == "O":
                self.finite += array.size
                self.values.update(array.reshape(-1)[:4].tolist())
                continue
            plain = array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
            finite = plain[np.isfinite(plain)]
            self.finite += finite.size
            if finite.size and len(self.values) < 2:
                low, high = (finite.reshape(-1)[0],) * 2 if finite.dtype.kind == "c" else (finite.min(), finite.max())
                self.values.update((low.item(), high.item()))
                if finite.dtype.kind == "c":
                    self.values.update(finite.reshape(-1)[:16].tolist())

    def note(self, module: Module) -> str | None:
        """What weakens the comparison of this output."""
        if not self.runs:
            return None
        if not self.size:
            return "is empty in every sample"
        if not self.finite:
            return "is not finite anywhere in any sample"
        # One run of one number, or a module without inputs, has no chance to vary.
        if len(self.values) == 1 and module.inputs and (self.runs > 1 or self.size > 1):
            return f"is {next(iter(self.values))!r} everywhere in every sample, so a wrong graph may show no difference"
        return None


def _arrays(value: Any) -> Iterator[np.ndarray]:
    match value:
        case np.ndarray():
            yield value
        case list() | tuple():
            for item in value:
                yield from _arrays(item)
        case dict():
            for item in value.values():
                yield from _arrays(item)
        case bool() | int() | float() | complex():
            yield np.asarray(value)
        case _:
            pass
