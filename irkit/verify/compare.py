"""Two modules run side by side on the same inputs.

They are the same as far as they were compared: equal signatures, and on every sample and backend outputs of equal dtype and
shape, NaN and infinities in the same places, and numbers that differ by no more than a small part of their output's scale.
A sample on which both fail shows nothing and is reported as unchecked, and so is all else that could not be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from irkit.backends import compile as compile_module
from irkit.backends.base import Executable, describe_value, spell
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.dtypes import BY_NUMPY
from irkit.ir.module import Module
from irkit.ir.op import Random
from irkit.ir.types import TensorInfo, UnknownType, tensor_info
from irkit.verify.generate import random_feeds

__all__ = ["Backend", "Difference", "Report", "compare", "default_tolerance", "difference_of"]

Backend = str | tuple[str, Mapping[str, Any]]
"""A backend's name, or the name and options for ``irkit.compile``. onnxruntime's own rewriting is off unless asked for."""

ATTEMPTS = 6
"""How many sets of generated inputs are tried for one sample, until the first module runs."""

_RELATIVE = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float8_e4m3fn": 0.13,
    "float8_e4m3fnuz": 0.13,
    "float8_e5m2": 0.26,
    "float8_e5m2fnuz": 0.26,
    "float8_e8m0fnu": 0.5,
    "float4_e2m1fn": 0.26,
}


def default_tolerance(kind: np.dtype[Any]) -> float:
    """The error allowed by default, as a part of the output's scale (its largest finite magnitude); 0 means exact."""
    found = BY_NUMPY.get(kind)
    return _RELATIVE.get(found.name, 0.0) if found is not None else 0.0


@dataclass
class Difference:
    """One way in which two modules differ.

    Attributes:
        what: ``"signature"``, ``"failure"``, ``"type"``, ``"shape"``, ``"nan"``, ``"infinity"`` or ``"value"``.
        message: for people.
        output: its name; ``""`` where no single one is concerned.
        backend: ``""`` where nothing was run.
        sample: which set of inputs, from 0; -1 where nothing was run.
        index: where the error is largest; None unless values differ.
        max_abs: the largest error.
        max_rel: the same as a part of the output's scale.
    """

    what: str
    message: str
    output: str = ""
    backend: str = ""
    sample: int = -1
    index: tuple[int, ...] | None = None
    max_abs: float | None = None
    max_rel: float | None = None

    def __str__(self) -> str:
        place = f"{self.backend}, sample {self.sample}: " if self.backend else ""
        name = f"output '{self.output}' " if self.output else ""
        return f"{place}{name}{self.message}"


@dataclass
class Report:
    """What a comparison found.

    Attributes:
        differences: none if the modules are equal as far as they were compared.
        unchecked: what could not be compared, and why.
        notes: what weakens the comparison: outputs that are never finite, or always one value.
        compared: how many pairs of runs were compared.
    """

    differences: list[Difference] = field(default_factory=list["Difference"])
    unchecked: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    compared: int = 0

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
) -> Report:
    """Runs two modules on the same inputs and says where they differ.

    Each backend runs both, so backends are not compared with each other. Both get one seed: ops that draw random numbers
    draw the same on the numpy backend as long as their results keep their names; on others a difference in a module that
    draws counts as unchecked.

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
    for sample, results in enumerate(_samples(first, a, feeds, samples, seed, special)):
        fed, expected = results
        for pair in pairs:
            if pair is not first:
                expected = _attempt(pair.a, fed)
            for name, value in expected.items() if isinstance(expected, dict) else ():
                seen[name].add(value)
            _compare_runs(pair, sample, fed, expected, report, rtol, atol, draws)
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
        try:
            first = compile_module(a, name, **settings)
        except IrkitError as error:
            report.unchecked.append(f"{label}: {error}")
            continue
        try:
            second = first if a is b else compile_module(b, name, **settings)
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
    """Sizes of the symbolic dims: after the first attempts larger ones, which windows and groups may need."""
    rng = np.random.default_rng([seed, sample, attempt])
    choose: Callable[[int], int]
    if attempt >= 2:
        # At last all equal: some models only take one size for two symbols.
        choose = [lambda i: 8 + i, lambda i: 8, lambda i: 32, lambda i: 224][attempt - 2]
    elif sample == 1:
        choose = lambda i: 1 if attempt == 0 else 2  # noqa: E731
    elif sample == 3 and attempt == 0:
        choose = lambda i: 0  # noqa: E731
    elif sample < 3:
        choose = lambda i: 2 + (i + sample + attempt) % 4  # noqa: E731
    else:
        choose = lambda i: int(rng.integers(1, 8))  # noqa: E731
    return {name: choose(i) for i, name in enumerate(_symbols(module))}


def _symbols(module: Module) -> list[str]:
    """The names of symbolic sizes in the inputs, in order; expressions are left to be worked out."""
    infos = (tensor_info(value_type) for value_type in module.inputs.values())
    dims = (dim for info in infos if info is not None and info.shape is not None for dim in info.shape)
    return list(dict.fromkeys("?" if dim is None else dim for dim in dims if dim is None or _is_name(dim)))


def _is_name(dim: int | str) -> bool:
    return isinstance(dim, str) and dim.isidentifier()


# Comparing


def _compare_runs(
    pair: _Pair,
    sample: int,
    feeds: Mapping[str, Any],
    expected: dict[str, Any] | IrkitError,
    report: Report,
    rtol: float | None,
    atol: float | None,
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
    report.compared += 1
    for name, value in expected.items():
        difference = difference_of(value, found[name], rtol, atol)
        if difference is None:
            continue
        difference.output, difference.backend, difference.sample = name, pair.label, sample
        if draws and not pair.label.startswith("numpy"):
            reason = f"{pair.label}, sample {sample}: output '{name}' may depend on random numbers, and differs"
            report.unchecked.append(reason)
        else:
            report.differences.append(difference)


def difference_of(a: Any, b: Any, rtol: float | None = None, atol: float | None = None) -> Difference | None:
    """How two values differ, if they do: arrays, lists, dicts, or None.

    Args:
        a: what is right.
        b: what was found.
        rtol, atol: see ``compare``.
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _array_difference(a, b, rtol, atol)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return Difference("shape", f"is a sequence of {len(b)}, expected {len(a)}")
        return _first((f"element {i}", difference_of(x, y, rtol, atol)) for i, (x, y) in enumerate(zip(a, b)))
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return Difference("value", f"has the keys {list(b)}, expected {list(a)}")
        return _first((f"key {k!r}", difference_of(a[k], b[k], rtol, atol)) for k in a)
    if isinstance(a, bool | int | float | complex) and type(a) is type(b):
        return _array_difference(np.asarray(a), np.asarray(b), rtol, atol)
    if type(a) is type(b) and a == b:
        return None
    return Difference("type", f"is {describe_value(b)}, expected {describe_value(a)}")


def _first(parts: Iterable[tuple[str, Difference | None]]) -> Difference | None:
    for label, difference in parts:
        if difference is not None:
            difference.message = f"({label}) {difference.message}"
            return difference
    return None


def _array_difference(a: np.ndarray, b: np.ndarray, rtol: float | None, atol: float | None) -> Difference | None:
    if a.dtype != b.dtype:
        return Difference("type", f"is {describe_value(b)}, expected {describe_value(a)}")
    if a.shape != b.shape:
        return Difference("shape", f"has the shape {list(b.shape)}, expected {list(a.shape)}")
    kind = BY_NUMPY.get(a.dtype)
    if kind is None or kind.kind not in ("float", "complex"):
        wrong = np.asarray(a != b, bool)
        if not wrong.any():
            return None
        at = _where(wrong)
        count = int(np.count_nonzero(wrong))
        return Difference("value", f"is {b[at]!r} at {list(at)}, expected {a[at]!r} ({count} of {a.size} differ)", index=at)
    wide = np.complex128 if kind.kind == "complex" else np.float64
    return _number_difference(
        a.astype(wide), b.astype(wide), default_tolerance(a.dtype) if rtol is None else rtol, atol or 0.0
    )


def _number_difference(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> Difference | None:
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    if not np.array_equal(a_nan, b_nan):
        at = _where(a_nan != b_nan)
        count = int(np.count_nonzero(a_nan != b_nan))
        return Difference("nan", f"is {b[at]} at {list(at)}, expected {a[at]} (NaN is at other places: {count})", index=at)
    finite = np.isfinite(a) & np.isfinite(b)
    odd = ~finite & ~a_nan & (a != b)
    if odd.any():
        at = _where(odd)
        return Difference("infinity", f"is {b[at]} at {list(at)}, expected {a[at]}", index=at)
    # Empty, or nothing finite: all has been compared.
    if not finite.any():
        return None
    errors = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    scale = float(np.max(np.abs(a), where=finite, initial=0.0))
    worst = float(errors.max())
    if worst <= atol + rtol * scale:
        return None
    at = tuple(int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
    relative = worst / scale if scale else np.inf
    message = f"is {b[at]:.9g} at {list(at)}, expected {a[at]:.9g}: an error of {relative:.2g} of its scale, {scale:.3g}"
    return Difference("value", message, index=at, max_abs=worst, max_rel=relative)


def _where(mask: np.ndarray) -> tuple[int, ...]:
    """The first place where a mask holds."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


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
