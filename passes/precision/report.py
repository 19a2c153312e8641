"""What a conversion to half precision did, for people and programs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Kept", "Report"]

LISTED = 5


@dataclass(frozen=True)
class Kept:
    """An op that kept its precision.

    Attributes:
        op: as ``"onnx.Exp"``.
        name: of the node or its first result; ``""`` where it has none.
        where: where it came from.
        reason: why.
    """

    op: str
    name: str
    where: str
    reason: str

    def __str__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        place = f" ({self.where})" if self.where and self.name not in self.where else ""
        return f"{self.op}{name}{place}"


@dataclass
class Report:
    """What happened.

    Attributes:
        dtype: the half type.
        converted: how many ops compute in it now.
        kept: the ops that do not, though they compute with floats.
        casts: how many were added.
        constants: how many constants were converted.
        bytes_before, bytes_after: the size of all constants.
        samples: how many sets of inputs were run, before and after, to find what overflows.
        unchecked: why none were, if so.
    """

    dtype: str
    converted: int = 0
    kept: list[Kept] = field(default_factory=list[Kept])
    casts: int = 0
    constants: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    samples: int = 0
    unchecked: str = ""

    def notes(self) -> list[str]:
        """The report as lines, the ops kept by reason."""
        lines = [
            f"{self.converted} ops in {self.dtype}, {len(self.kept)} as they were, {self.casts} casts; constants "
            f"{self.bytes_before / 1e6:.4g} MB -> {self.bytes_after / 1e6:.4g} MB"
        ]
        reasons: dict[str, list[Kept]] = defaultdict(list)
        for kept in self.kept:
            reasons[kept.reason].append(kept)
        for reason, listed in sorted(reasons.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(map(str, listed[:LISTED]))
            more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            lines.append(f"as it was, since {reason}: {shown}{more}")
        if self.unchecked:
            lines.append(f"overflow was not looked for: {self.unchecked}")
        elif self.samples:
            lines.append(f"no overflow in runs on {self.samples} sets of inputs")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.notes())
