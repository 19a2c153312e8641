"""What the commands print: tables, sizes, JSON. Colour only on a terminal, and nothing that could steer it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

__all__ = ["clean", "duration", "facts", "heading", "print_json", "size", "status", "table"]

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _PLAIN = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 0))
STATUS_COLOURS = {"ok": _GREEN, "failed": _RED, "unchecked": _YELLOW}


def clean(text: str) -> str:
    """Text with control characters as escapes: names from a file must not steer the terminal."""
    plain = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return plain.encode("utf-8", "backslashreplace").decode()


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, colour: str, stream: TextIO) -> str:
    return f"{colour}{text}{_PLAIN}" if _coloured(stream) else text


def heading(text: str, *, stream: TextIO | None = None) -> None:
    """A line above a table or list."""
    out = stream or sys.stdout
    print(_paint(clean(text), _BOLD, out), file=out)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 2, stream: TextIO | None = None
) -> None:
    """A table with its columns aligned: numbers to the right, everything else to the left.

    Args:
        columns: their headings; one that starts with ``>`` is of numbers.
    """
    out = stream or sys.stdout
    names = [name.removeprefix(">") for name in columns]
    right = [name.startswith(">") for name in columns]
    cells = [[clean(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return " " * indent + "  ".join(parts).rstrip()

    print(_paint(line(names), _DIM, out), file=out)
    for row in cells:
        print(line(row), file=out)


def facts(pairs: Iterable[tuple[str, str]], *, stream: TextIO | None = None) -> None:
    """Names and values, a line each; those without a value are left out."""
    out = stream or sys.stdout
    kept = [(name, clean(value).replace("\n", "\\n")) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        print(f"{_paint(name.ljust(width), _DIM, out)}  {value}", file=out)


def status(state: str, name: str, details: Sequence[str]) -> None:
    """How a check went, its name, and what there is to say: a line, and one for each further detail."""
    first, *more = details or [""]
    status = _paint(state.ljust(9), STATUS_COLOURS[state], sys.stdout)
    print(f"{status}  {clean(name)}{': ' if first else ''}{clean(first)}")
    for text in more:
        print(f"{'':11}{clean(text)}")


def size(count: int) -> str:
    """A number of bytes for people: ``1.2 MB``."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """A time for people: ``1.23 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def print_json(value: Any) -> None:
    """JSON on standard output: keys in the order given, NaN and infinities as strings, ASCII only."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case _:
            return value
