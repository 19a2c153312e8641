"""Fuel: rewrites are counted, and after so many no more are made. What bisection finds a single wrong rewrite with.

Passes need not know: the rewriter that they all go through (``irkit.passes.rewrite``) asks before each change.

>>> with rationed(0) as fuel:
...     fuel.exhausted
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, Operation

from irkit.ir.attributes import text_of, texts_of
from irkit.ir.location import describe
from irkit.ir.names import NAME, OUTS

__all__ = ["FUEL", "Fuel", "Step", "rationed", "take"]


@dataclass(frozen=True)
class Step:
    """One rewrite.

    Attributes:
        by: the pass or rule, as in the locations of what it makes: ``"canonicalize:identity"``.
        op: the op at which it began, as ``"onnx.Identity"``.
        location: of that op, before the rewrite.
        attributes: of that op.
    """

    by: str
    op: str
    location: LocationAttr
    attributes: Mapping[str, Attribute]

    @property
    def name(self) -> str:
        """The name of the node, or of its first result; ``""`` where it has none."""
        named, outs = self.attributes.get(NAME), self.attributes.get(OUTS)
        return text_of(named) if named is not None else next(iter(() if outs is None else texts_of(outs)), "")

    def __str__(self) -> str:
        place = describe(self.location)
        name = f" '{self.name}'" if self.name and f"'{self.name}'" not in place else ""
        return f"'{self.by}' at {self.op}{name}{f' ({place})' if place else ''}"


@dataclass
class Fuel:
    """How many rewrites may still be made.

    Attributes:
        limit: how many in all; None: any number, but they are counted.
        made: how many were made by each pass or rule.
        count: how many were made in all.
        last: the last one.
    """

    limit: int | None = None
    made: Counter[str] = field(default_factory=Counter[str])
    count: int = 0
    last: Step | None = None

    @property
    def exhausted(self) -> bool:
        """Whether no more may be made."""
        return self.limit is not None and self.count >= self.limit

    def take(self, by: str, op: Operation) -> bool:
        """Counts a rewrite that begins at an op, if there is fuel for it. Returns whether there was."""
        if self.exhausted:
            return False
        self.count += 1
        self.made[by] += 1
        self.last = Step(by, op.name, op.location, op.attributes)
        return True


FUEL: ContextVar[Fuel | None] = ContextVar("FUEL", default=None)
"""The fuel in force; None where nobody counts."""


@contextmanager
def rationed(limit: int | None = None) -> Generator[Fuel]:
    """Counts the rewrites made in a block, and lets no more than ``limit`` happen."""
    fuel = Fuel(limit)
    token = FUEL.set(fuel)
    try:
        yield fuel
    finally:
        FUEL.reset(token)


def take(by: str, op: Operation) -> bool:
    """Whether a rewrite that begins at this op may be made; it is counted if so."""
    fuel = FUEL.get()
    return fuel is None or fuel.take(by, op)
