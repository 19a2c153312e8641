"""The user's line: remembered for every node at little cost, and shown in every message.

A *site* is a code object and the offset of an instruction in it. Which line that is, is found out when it is asked for.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable
from types import CodeType, FrameType

from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr

from irkit.errors import IrkitError
from irkit.ir.location import source_location

__all__ = ["Site", "SymbolError", "UninitializedError", "failure", "location_of", "place_of", "site_here"]

_OURS = ("irkit", "contextlib")
"""What stands between the user's line and ours; ``with`` goes through contextlib."""

Site = tuple[CodeType, int] | None


class SymbolError(IrkitError, TypeError):
    """A symbol used as what it is not: a truth value, a number, an array, a value of another trace."""


class UninitializedError(IrkitError):
    """A variable whose value is needed before it has one."""


def site_here() -> Site:
    """The user's place: the nearest frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _line(site: tuple[CodeType, int]) -> int:
    code, offset = site
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def location_of(site: Site) -> LocationAttr:
    """A site as the location of an op."""
    return UNKNOWN_LOC if site is None else source_location(site[0].co_filename, _line(site))


def place_of(site: Site) -> str:
    """A site for people: ``train.py:12``; ``""`` where it is unknown."""
    return "" if site is None else f"{site[0].co_filename}:{_line(site)}"


def _source(site: Site) -> str:
    return "" if site is None else linecache.getline(site[0].co_filename, _line(site)).strip()


def failure(
    kind: type[IrkitError],
    message: str,
    *,
    op: str = "",
    site: Site = None,
    hint: str = "",
    related: Iterable[tuple[str, Site]] = (),
) -> IrkitError:
    """An error that shows the user's line.

    Args:
        site: the line; by default that which is being run.
        related: other lines that have to do with it, and what each is.
    """
    found = site or site_here()
    shown = [message]
    source = _source(found)
    if source:
        shown.append(f"    {source}")
    for what, other in related:
        if other is not None:
            shown.append(f"  {what}: {place_of(other)}")
            text = _source(other)
            shown += [f"    {text}"] if text else []
    return kind("\n".join(shown), op=op, where=place_of(found), hint=hint)
