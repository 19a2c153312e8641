"""Where an op came from: the nodes of the file, and the passes and rules that made it out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc, NoneAttr, UnknownLoc
from xdsl.ir import Attribute, Operation

from irkit.errors import IrkitError
from irkit.ir.attributes import text_of
from irkit.ir.location import describe, sources
from irkit.ir.module import Module
from irkit.ir.names import node_name, out_names
from irkit.ir.op import TensorOp
from irkit.ir.types import tensor_info

__all__ = ["Explanation", "Origin", "explain"]


@dataclass(frozen=True)
class Origin:
    """One step back: what made an op, out of what; or a place in a file or program, where ``by`` is ``""``.

    Attributes:
        by: the pass, or the pass and rule, as ``"canonicalize:identity"``.
        place: for people; ``""`` for a step.
        parts: what it was made from.
    """

    by: str = ""
    place: str = ""
    parts: tuple[Origin, ...] = ()

    def sources(self) -> list[str]:
        """The places that it goes back to, in order, each once."""
        found = [self.place] if self.place else []
        return list(dict.fromkeys([*found, *(s for part in self.parts for s in part.sources())]))

    def steps(self) -> list[str]:
        """The passes and rules that it came through, the earliest first, each once."""
        found = [s for part in self.parts for s in part.steps()]
        return list(dict.fromkeys([*found, self.by] if self.by else found))

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The tree, a line each."""
        pad = "  " * depth
        if self.by:
            yield f"{pad}made by {self.by}" + ("" if self.parts else ", from nothing in the file")
        else:
            yield f"{pad}{self.place}"
        for part in self.parts:
            yield from part.lines(depth + 1)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"by": self.by, "from": [p.to_json() for p in self.parts]} if self.by else {"place": self.place}


@dataclass
class Explanation:
    """What is known of a name.

    Attributes:
        name: what was asked for.
        ops: ops of the module that bear the name, or came from a node of that name.
        is_source: whether the name is that of a node or value that passes have replaced.
        note: what else there is to say; ``""`` where ``ops`` say it all.
    """

    name: str
    ops: list[tuple[Operation, Origin]] = field(default_factory=list["tuple[Operation, Origin]"])
    is_source: bool = False
    note: str = ""

    def text(self) -> str:
        """The answer for people."""
        lines = [self.note] if self.note else []
        if self.is_source:
            lines.append(f"'{self.name}' is a node of the source; {len(self.ops)} op(s) came from it")
        for op, origin in self.ops:
            known = origin.lines() if origin != Origin() else [_unplaced(op)]
            lines += [describe_op(op), *(f"  {line}" for line in known)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {
            "name": self.name,
            "is_source": self.is_source,
            "note": self.note,
            "ops": [
                {
                    "op": op.name,
                    "name": node_name(op),
                    "outputs": list(out_names(op)),
                    "sources": origin.sources(),
                    "steps": origin.steps(),
                    "origin": origin.to_json(),
                }
                for op, origin in self.ops
            ],
        }

    __str__ = text


def _unplaced(op: Operation) -> str:
    """For people: of an op without a location."""
    return "an initializer of the graph" if op.name == "onnx.Initializer" else "its origin is not known"


def describe_op(op: Operation) -> str:
    """An op for people: its kind, its name, what it gives."""
    name = node_name(op)
    types = [info for r in op.results if (info := tensor_info(r.type)) is not None]
    shapes = ", ".join(
        f"{t.dtype}[{'?' if t.shape is None else ', '.join(str(d or '?') for d in t.shape)}]" for t in types
    )
    outs = ", ".join(f"'{n}'" for n in out_names(op) if n)
    return f"{op.name}{f' {name!r}' if name else ''}{f' -> {outs}' if outs else ''}{f' ({shapes})' if shapes else ''}"


def origin_of(location: Attribute) -> Origin:
    """A location as a tree of steps."""
    match location:
        case FusedLoc():
            parts = tuple(
                origin
                for part in cast("ArrayAttr[Attribute]", location.locations).data
                if (origin := origin_of(part)) != Origin()
            )
            if isinstance(location.metadata, NoneAttr):
                return parts[0] if len(parts) == 1 else Origin("fusion", "", parts)
            return Origin(text_of(location.metadata), "", parts)
        case UnknownLoc():
            return Origin()
        case _:
            return Origin("", describe(location))


def source_names(location: Attribute) -> Iterator[str]:
    """The names and numbers (``#3``) of the nodes that a location goes back to."""
    match location:
        case FusedLoc():
            for part in cast("ArrayAttr[Attribute]", location.locations).data:
                yield from source_names(part)
        case NameLoc():
            yield text_of(location.desc)
            yield from source_names(location.location)
        case FileLineColLoc() if location.column.data == 0:
            yield f"#{location.line.data}"
        case CallSiteLoc():
            yield from source_names(location.callee)
        case _:
            pass


def explain(module: Module, what: str | Operation, *, source: Module | None = None) -> Explanation:
    """Says where an op came from, or what became of a node of the source.

    Args:
        what: an op; or the name of a node, of a value, or of a node of the file that passes have replaced, by its name
            or its number (``"#12"``).
        source: the module before the passes, where that is known: then names of values that passes have done away
            with are found as well, and what was removed is told from what never was.

    Raises:
        IrkitError: if there is nothing of that name, with names that are close; or nothing is left of it.
    """
    if isinstance(what, Operation):
        return Explanation(node_name(what) or what.name, [(what, origin_of(what.location))])
    here = _Names(module)
    before = here if source is None else _Names(source)
    made = here.made.get(what) or here.from_any(before.named.get(what, ()))
    found = here.named.get(what) or made
    if found:
        return Explanation(what, [(op, origin_of(op.location)) for op in found], is_source=what not in here.named)
    if what in module.inputs:
        return Explanation(what, note=f"'{what}' is an input of the graph: no op makes it")
    if what in before.named or what in before.made:
        raise IrkitError(f"nothing is left of '{what}'", hint="the passes removed it or folded it into a constant")
    known = {*here.names, *before.names, *module.inputs}
    advice = "" if source is not None else "if passes may have removed it, give source=, the module before them"
    raise IrkitError(
        f"nothing in the module is called '{what}', and nothing in it came from such a node",
        hint=_meant(what, known) or advice,
    )


def _meant(what: str, known: set[str]) -> str:
    """For errors: the names or numbers that there are."""
    numbers = sorted(int(name[1:]) for name in known if name[:1] == "#" and name[1:].isdecimal())
    if what.startswith("#") and numbers:
        return f"the nodes of the file are #{numbers[0]} to #{numbers[-1]}"
    close = get_close_matches(what, sorted(known), n=3)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


class _Names:
    """The ops of a module, by their own names and by those of the nodes that they came from."""

    def __init__(self, module: Module) -> None:
        self.named: dict[str, list[Operation]] = {}
        self.made: dict[str, list[Operation]] = {}
        self.ops: list[Operation] = []
        for op in module.walk():
            if not isinstance(op, TensorOp) and not out_names(op):
                continue
            self.ops.append(op)
            for name in {node_name(op), *out_names(op)} - {""}:
                self.named.setdefault(name, []).append(op)
            for name in set(source_names(op.location)):
                self.made.setdefault(name, []).append(op)

    @property
    def names(self) -> set[str]:
        """All that can be asked for."""
        return {*self.named, *self.made}

    def from_any(self, ops: Iterable[Operation]) -> list[Operation]:
        """The ops that came from the same places as one of these."""
        places = {place for op in ops for place in sources(op.location)}
        return [op for op in self.ops if not places.isdisjoint(sources(op.location))]
