"""Where an op came from: a file and node, a user's source line, or the ops that a pass made it from."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    BytesAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation, SSAValue

from irkit.ir.attributes import string, unchecked

__all__ = ["describe", "fused", "node_location", "source_location", "sources", "where"]


@cache
def _file(name: str) -> StringAttr | BytesAttr:
    return string(name)


def node_location(file: str, name: str, index: int) -> LocationAttr:
    """The location of the ``index``-th node of a model file: ``loc("conv1"("model.onnx":12:0))``."""
    place = source_location(file, index, 0)
    return unchecked(NameLoc, desc=string(name), location=place) if name else place


def source_location(file: str, line: int, column: int = 0) -> LocationAttr:
    """A line of source code."""
    numbers = {"line": unchecked(IntAttr, data=line), "column": unchecked(IntAttr, data=column)}
    return unchecked(FileLineColLoc, filename=_file(file), **numbers)


def fused(locations: Iterable[LocationAttr], by: str) -> LocationAttr:
    """The location of an op that a pass or rule made out of others: theirs, fused, and the name of what made it.

    Args:
        locations: of the ops that were replaced. Fused ones by the same rule are flattened, doubles and unknown ones
            dropped.
        by: the pass or rule.
    """
    label = StringAttr(by)
    flat: dict[Attribute, None] = {}
    for location in locations:
        if isinstance(location, FusedLoc) and location.metadata == label:
            flat.update(dict.fromkeys(cast("ArrayAttr[Attribute]", location.locations).data))
        elif not isinstance(location, UnknownLoc):
            flat[location] = None
    return unchecked(FusedLoc, locations=ArrayAttr(list(flat) or [UNKNOWN_LOC]), metadata=label)


def _text(attr: Attribute) -> str:
    data = cast(Any, attr).data
    return data if isinstance(data, str) else data.decode("utf-8", "replace")


def describe(location: Attribute) -> str:
    """A location for people: ``node 'conv1' (#12 of model.onnx)``; ``""`` where it is unknown."""
    match location:
        case NameLoc():
            inner = location.location
            if isinstance(inner, FileLineColLoc) and inner.column.data == 0:
                return f"node '{_text(location.desc)}' (#{inner.line.data} of {_text(inner.filename)})"
            rest = describe(inner)
            return f"'{_text(location.desc)}'" + (f" ({rest})" if rest else "")
        case FileLineColLoc():
            if location.column.data == 0 and not _text(location.filename).endswith(".py"):
                return f"node #{location.line.data} of {_text(location.filename)}"
            return f"{_text(location.filename)}:{location.line.data}"
        case FusedLoc():
            parts = [describe(part) for part in cast("ArrayAttr[Attribute]", location.locations).data]
            known = [part for part in parts if part]
            by = "" if isinstance(location.metadata, NoneAttr) else f"made by {_text(location.metadata)}"
            listed = ", ".join(known[:4]) + (f" and {len(known) - 4} more" if len(known) > 4 else "")
            return f"{by} from {listed}" if by and listed else by or listed
        case CallSiteLoc():
            return f"{describe(location.callee)}, called at {describe(location.caller)}"
        case _:
            return ""


def sources(location: Attribute) -> list[Attribute]:
    """The source locations that a location goes back to, in order, each once."""
    match location:
        case FusedLoc():
            found: dict[Attribute, None] = {}
            for part in cast("ArrayAttr[Attribute]", location.locations).data:
                found.update(dict.fromkeys(sources(part)))
            return list(found)
        case UnknownLoc():
            return []
        case _:
            return [location]


def where(what: Operation | SSAValue) -> str:
    """For messages: the location of an op, or of the op that defines a value."""
    op = what if isinstance(what, Operation) else what.owner
    return describe(op.location) if isinstance(op, Operation) else ""
