"""How two values differ: arrays, sequences and maps, exactly or within a part of the scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.backends.base import describe_value
from irkit.ir.dtypes import BY_NUMPY

__all__ = ["Difference", "Tolerance", "default_tolerance", "difference_of"]


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
        what: ``"signature"``, ``"failure"``, ``"type"``, ``"shape"``, ``"nan"``, ``"infinity"``, ``"zero"`` or
            ``"value"``.
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


@dataclass(frozen=True)
class Tolerance:
    """What counts as equal.

    Attributes:
        rtol: the error allowed, as a part of the scale: the largest finite magnitude of what is right; None: by dtype.
        atol: an absolute error that is allowed besides.
        signed_zeros: whether 0 and -0 are different.
    """

    rtol: float | None = None
    atol: float = 0.0
    signed_zeros: bool = False


def difference_of(a: Any, b: Any, tolerance: Tolerance | None = None) -> Difference | None:
    """How two values differ, if they do: arrays, lists, dicts, or None.

    Args:
        a: what is right.
        b: what was found.
        tolerance: by default that of the dtype.
    """
    tolerance = tolerance or Tolerance()
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _array_difference(a, b, tolerance)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return Difference("shape", f"is a sequence of {len(b)}, expected {len(a)}")
        return _first(
            (f"element {i}", difference_of(x, y, tolerance)) for i, (x, y) in enumerate(zip(a, b, strict=True))
        )
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return Difference("value", f"has the keys {list(b)}, expected {list(a)}")
        return _first((f"key {k!r}", difference_of(a[k], b[k], tolerance)) for k in a)
    if isinstance(a, bool | int | float | complex) and type(a) is type(b):
        return _array_difference(np.asarray(a), np.asarray(b), tolerance)
    if type(a) is type(b) and a == b:
        return None
    return Difference("type", f"is {describe_value(b)}, expected {describe_value(a)}")


def _first(parts: Iterable[tuple[str, Difference | None]]) -> Difference | None:
    for label, difference in parts:
        if difference is not None:
            difference.message = f"({label}) {difference.message}"
            return difference
    return None


def _array_difference(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> Difference | None:
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
        return Difference(
            "value", f"is {b[at]!r} at {list(at)}, expected {a[at]!r} ({count} of {a.size} differ)", index=at
        )
    wide = np.complex128 if kind.kind == "complex" else np.float64
    rtol = default_tolerance(a.dtype) if tolerance.rtol is None else tolerance.rtol
    return _number_difference(a.astype(wide), b.astype(wide), rtol, tolerance)


def _number_difference(a: np.ndarray, b: np.ndarray, rtol: float, tolerance: Tolerance) -> Difference | None:
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    if not np.array_equal(a_nan, b_nan):
        at = _where(a_nan != b_nan)
        count = int(np.count_nonzero(a_nan != b_nan))
        return Difference(
            "nan", f"is {b[at]} at {list(at)}, expected {a[at]} (NaN is at other places: {count})", index=at
        )
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
    if worst <= tolerance.atol + rtol * scale:
        return _zero_difference(a, b) if tolerance.signed_zeros else None
    at = tuple(int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
    relative = worst / scale if scale else np.inf
    message = (
        f"is {b[at]:.9g} at {list(at)}, expected {a[at]:.9g}: an error of {relative:.2g} of its scale, {scale:.3g}"
    )
    return Difference("value", message, index=at, max_abs=worst, max_rel=relative)


def _zero_difference(a: np.ndarray, b: np.ndarray) -> Difference | None:
    if np.iscomplexobj(a):
        return _zero_difference(np.real(a), np.real(b)) or _zero_difference(np.imag(a), np.imag(b))
    wrong = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not wrong.any():
        return None
    at = _where(wrong)
    return Difference("zero", f"is {b[at]} at {list(at)}, expected {a[at]}", index=at)


def _where(mask: np.ndarray) -> tuple[int, ...]:
    """The first place where a mask holds."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
