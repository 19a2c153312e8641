"""What a comparison found, and what it was worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from irkit.ir.module import Module
from irkit.verify.values import Difference

__all__ = ["Report", "Seen"]


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


class Seen:
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
