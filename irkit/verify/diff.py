"""How two models differ: what they take and give, their nodes by name and by role, types, constants, and results.

A node of one is that of the other if it gives a value of the same name, or has the same name; or, where names do not
tell, if it does the same with the same operands, or gives what the same operand of the same op is. What is left is only
in one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.traits import IsTerminator

from irkit.backends.base import spell
from irkit.dialects.onnx import ForeignOp, Function, NoValue
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.errors import IrkitError
from irkit.ir.constants import ConstantData
from irkit.ir.module import Module
from irkit.ir.names import metadata_of, name_of, node_name, out_names
from irkit.ir.op import TensorOp, is_absent
from irkit.verify.report import Report

__all__ = ["Change", "Diff", "diff"]


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        what: ``"model"``, ``"input"``, ``"output"``, ``"node"``, ``"constant"`` or ``"function"``.
        kind: ``"added"`` (only in the second), ``"removed"`` (only in the first) or ``"changed"``.
        name: of the input, value or node.
        op: of a node, its kind.
        details: what changed, a line each.
    """

    what: str
    kind: str
    name: str
    op: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.kind]
        name = f" '{self.name}'" if self.name else ""
        head = f"{sign} {self.what}{f' {self.op}' if self.op else ''}{name}"
        return "\n".join([head, *(f"    {d}" for d in self.details)])


@dataclass
class Diff:
    """All differences.

    Attributes:
        changes: of what the models are.
        matched: how many nodes were found in both.
        values: what running both showed; None where they were not run.
        not_run: why they were not run.
    """

    changes: list[Change] = field(default_factory=list[Change])
    matched: int = 0
    values: Report | None = None
    not_run: str = ""

    @property
    def same(self) -> bool:
        """Whether no difference was found at all."""
        return not self.changes and (self.values is None or self.values.equal)

    def text(self) -> str:
        """The differences for people: a line each, then what the results say."""
        lines = [str(change) for change in self.changes]
        if not self.changes:
            lines.append(f"the same graph ({self.matched} nodes)")
        else:
            counts = Counter((c.what, c.kind) for c in self.changes)
            summed = ", ".join(f"{n} {what}{'s' if n > 1 else ''} {kind}" for (what, kind), n in counts.items())
            lines.append(f"{summed}; {self.matched} nodes are in both")
        if self.values is not None:
            lines.append(f"results: {self.values.text()}")
        elif self.not_run:
            lines.append(f"results: not compared: {self.not_run}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The differences as plain values."""
        return {
            "same": self.same,
            "changes": [asdict(c) for c in self.changes],
            "matched": self.matched,
            "values": None if self.values is None else self.values.to_json(),
            "not_run": self.not_run,
        }

    __str__ = text


def diff(a: Module, b: Module, *, run: bool = True, **options: Any) -> Diff:
    """Compares two modules.

    Args:
        run: whether to run both as well, if they have one signature.
        options: for ``irkit.verify.compare``.
    """
    found = Diff()
    found.changes += _header(a, b)
    signature = [*_signature("input", a.inputs, b.inputs), *_signature("output", a.outputs, b.outputs)]
    found.changes += signature
    matcher = _Matcher(found)
    matcher.same.update(_same_inputs(a, b))
    matcher.graph(a.block, b.block, "")
    functions = [{op.key: op for op in m.op.ops if isinstance(op, Function)} for m in (a, b)]
    for key in sorted({**functions[0], **functions[1]}):
        first, second = functions[0].get(key), functions[1].get(key)
        name = ".".join(part for part in key if part)
        if first is None or second is None:
            found.changes.append(Change("function", "added" if first is None else "removed", name))
        else:
            matcher.graph(first.body, second.body, f"{name}/")
    if not run:
        return found
    if list(a.inputs) != list(b.inputs) or list(a.outputs) != list(b.outputs):
        found.not_run = "they take or give different things"
        return found
    from irkit.verify.compare import compare

    try:
        found.values = compare(a, b, **options)
    except IrkitError as error:
        found.not_run = str(error)
    return found


def _same_inputs(a: Module, b: Module) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Which input is which: by name, and the others in order."""
    ours, theirs = (dict(zip(m.input_names, m.block.args, strict=True)) for m in (a, b))
    for name in ours.keys() & theirs.keys():
        yield ours[name], theirs[name]
    only_ours = [arg for name, arg in ours.items() if name not in theirs]
    only_theirs = [arg for name, arg in theirs.items() if name not in ours]
    yield from zip(only_ours, only_theirs, strict=False)


def _header(a: Module, b: Module) -> Iterator[Change]:
    for label, mine, other in (
        ("opsets", a.opsets, b.opsets),
        ("graph name", a.graph_name, b.graph_name),
        ("IR version", a.ir_version, b.ir_version),
        ("metadata", metadata_of(a.op), metadata_of(b.op)),
    ):
        if mine != other:
            yield Change("model", "changed", label, details=(f"was {mine}, is {other}",))


def _signature(what: str, ours: Any, theirs: Any) -> Iterator[Change]:
    for name, value_type in ours.items():
        if name not in theirs:
            yield Change(what, "removed", name)
        elif theirs[name] != value_type:
            yield Change(what, "changed", name, details=(f"type was {spell(value_type)}, is {spell(theirs[name])}",))
    for name in theirs:
        if name not in ours:
            yield Change(what, "added", name)
    if list(ours) != list(theirs) and sorted(ours) == sorted(theirs):
        yield Change(what, "changed", "", details=(f"the order was {list(ours)}, is {list(theirs)}",))


class _Matcher:
    """Finds which op of one graph is which of the other, and what is not the same about them."""

    def __init__(self, found: Diff) -> None:
        self.found = found
        self.same: dict[SSAValue, SSAValue] = {}

    def graph(self, a: Block, b: Block, path: str) -> None:
        """Compares two graphs; ``path`` stands before the names of what is in them."""
        if path:
            self.same.update(zip(a.args, b.args, strict=False))
        if len(a.args) != len(b.args) and path:
            taken_before = f"takes {len(b.args)} inputs, took {len(a.args)}"
            self.found.changes.append(Change("node", "changed", path.rstrip("/"), "graph", (taken_before,)))
        ours, theirs = list(_ops(a)), list(_ops(b))
        pairs = self.pairs(ours, theirs)
        _follow(pairs, a, b)
        taken = set(pairs.values())
        for op in ours:
            other = pairs.get(op)
            if other is None:
                self.report("removed", op, path)
                continue
            self.same.update(zip(op.results, other.results, strict=False))
            self.op(op, other, path)
        for other in theirs:
            if other not in taken:
                self.report("added", other, path)
        ends = a.last_op, b.last_op
        if ends[0] is not None and ends[1] is not None:
            changed = tuple(self.operands(ends[0], ends[1], "output"))
            if changed:
                self.found.changes.append(Change("node", "changed", path.rstrip("/"), "outputs", changed))

    def pairs(self, ours: Sequence[Operation], theirs: Sequence[Operation]) -> dict[Operation, Operation]:
        """Which op is which: by the names of results, by the node's name, and by what is done with which operands."""
        found: dict[Operation, Operation] = {}
        taken: set[Operation] = set()
        for names in (lambda op: [n for n in out_names(op) if n], lambda op: [node_name(op)] if node_name(op) else []):
            by_name = _unique(theirs, names, taken)
            for op in ours:
                if op in found:
                    continue
                other = next((by_name[n] for n in names(op) if n in by_name), None)
                if other is not None and other not in taken and is_held(op) == is_held(other):
                    found[op] = other
                    taken.add(other)
        # By role: in order, so that what an op uses has been seen.
        left: dict[Hashable, list[Operation]] = defaultdict(list)
        for other in theirs:
            if other not in taken:
                left[self.role(other, None)].append(other)
        values = {r: s for op, other in found.items() for r, s in zip(op.results, other.results, strict=False)}
        for op in ours:
            if op not in found:
                candidates = left.get(self.role(op, {**self.same, **values}) if left else None, [])
                if candidates:
                    found[op] = candidates.pop(0)
            if op in found:
                values.update(zip(op.results, found[op].results, strict=False))
        return found

    def role(self, op: Operation, values: dict[SSAValue, SSAValue] | None) -> Hashable:
        """What an op does with which operands; those of the first graph are named by what they are in the second."""
        operands = tuple(_content(v) if values is None else _content(values.get(v, v)) for v in op.operands)
        return op.name, operands, tuple(sorted((k, _hashed(v)) for k, v in op.properties.items())), len(op.regions)

    def op(self, a: Operation, b: Operation, path: str) -> None:
        """Compares two ops that are one."""
        if is_held(a):
            details = tuple(_constants(a, b))
            if details:
                self.found.changes.append(Change("constant", "changed", path + _name(a), details=details))
            return
        self.found.matched += 1
        found: list[str] = []
        if _kind(a) != _kind(b):
            found.append(f"was {_kind(a)}, is {_kind(b)}")
        else:
            found += _attributes(a, b)
        found += self.operands(a, b, "operand")
        if len(a.results) != len(b.results):
            found.append(f"gave {len(a.results)} results, gives {len(b.results)}")
        found += [
            f"result {i} was {spell(x.type)}, is {spell(y.type)}"
            for i, (x, y) in enumerate(zip(a.results, b.results, strict=False))
            if x.type != y.type
        ]
        if metadata_of(a) != metadata_of(b):
            found.append(f"metadata was {metadata_of(a)}, is {metadata_of(b)}")
        if found:
            self.found.changes.append(Change("node", "changed", path + _name(a), _kind(a), tuple(found)))
        for index, (x, y) in enumerate(zip(a.regions, b.regions, strict=False)):
            if x.blocks and y.blocks:
                label = a.spec.graphs[index] if isinstance(a, TensorOp) and index < len(a.spec.graphs) else str(index)
                self.graph(x.block, y.block, f"{path}{_name(a) or _kind(a)}/{label}/")

    def operands(self, a: Operation, b: Operation, what: str) -> Iterator[str]:
        """Says which operands come from elsewhere."""
        mine = list(a.operands)
        other = list(b.operands)
        for values in (mine, other):
            while values and is_absent(values[-1]):
                values.pop()
        if len(mine) != len(other):
            yield f"had {len(mine)} {what}s, has {len(other)}"
            return
        for index, (x, y) in enumerate(zip(mine, other, strict=True)):
            if self.same.get(x) is y or (is_absent(x) and is_absent(y)):
                continue
            p, q = constant_of(x), constant_of(y)
            if p is not None and p == q:
                continue
            yield f"{what} {index} was {_describe(x)}, is {_describe(y)}"

    def report(self, kind: str, op: Operation, path: str) -> None:
        """Notes an op that only one of the graphs has; a constant without a name shows where it is used."""
        if is_held(op):
            if _name(op):
                data = constant_of(op.results[0])
                details = () if data is None else (f"{data.dtype}{list(data.shape)}",)
                self.found.changes.append(Change("constant", kind, path + _name(op), details=details))
            return
        details = tuple(
            f"{'result' if len(op.results) == 1 else f'result {i}'} {spell(r.type)}" for i, r in enumerate(op.results)
        )
        self.found.changes.append(Change("node", kind, path + _name(op), _kind(op), details))


def _follow(pairs: dict[Operation, Operation], a: Block, b: Block) -> None:
    """Adds ops of one kind that give the same operand of ops that are one, beginning at what the graphs return."""
    taken = set(pairs.values())
    waiting = [*pairs.items()]
    if a.last_op is not None and b.last_op is not None:
        waiting.append((a.last_op, b.last_op))
    while waiting:
        for x, y in zip(*(op.operands for op in waiting.pop()), strict=False):
            p, q = x.owner, y.owner
            if not isinstance(p, Operation) or not isinstance(q, Operation) or p.parent is not a or q.parent is not b:
                continue
            # A constant without a name is part of the op that uses it.
            if is_held(p) and not _name(p):
                continue
            if p.name == q.name and p not in pairs and q not in taken and not isinstance(p, NoValue):
                pairs[p] = q
                taken.add(q)
                waiting.append((p, q))


def is_held(op: Operation) -> bool:
    """Whether an op is a constant or an initializer."""
    return len(op.results) == 1 and is_constant(op.results[0])


def _ops(block: Block) -> Iterator[Operation]:
    for op in block.ops:
        if not isinstance(op, NoValue) and not op.has_trait(IsTerminator):
            yield op


def _unique(ops: Sequence[Operation], names: Any, taken: set[Operation]) -> dict[str, Operation]:
    """Ops by those of their names that no other has."""
    counts = Counter(name for op in ops for name in names(op))
    return {name: op for op in ops if op not in taken for name in names(op) if counts[name] == 1}


def _name(op: Operation) -> str:
    return node_name(op) or next((n for n in out_names(op) if n), "")


def _kind(op: Operation) -> str:
    if isinstance(op, ForeignOp):
        return f"{op.domain}.{op.op_type}"
    return op.name.removeprefix("onnx.")


def _describe(value: SSAValue) -> str:
    if is_absent(value):
        return "absent"
    data = constant_of(value)
    if isinstance(value, BlockArgument):
        return f"input {value.index}{f' ({value.name_hint!r})' if value.name_hint else ''}"
    name = name_of(value)
    if data is not None:
        shown = f" {data.array().reshape(-1).tolist()}" if data.size <= 4 else ""
        return f"the constant {f'{name!r} ' if name else ''}{data.dtype}{list(data.shape)}{shown}"
    owner = value.owner
    assert isinstance(owner, Operation)
    return f"'{name}'" if name else f"a result of {_kind(owner)}{f' {node_name(owner)!r}' if node_name(owner) else ''}"


def _content(value: SSAValue) -> Hashable:
    data = constant_of(value)
    return value if data is None else data


def _hashed(attr: Any) -> Hashable:
    try:
        hash(attr)
    except TypeError:
        return str(attr)
    return attr


def _attributes(a: Operation, b: Operation) -> Iterator[str]:
    if isinstance(a, TensorOp) and isinstance(b, TensorOp):
        mine, other = a.attrs(), b.attrs()
    else:
        mine, other = dict(a.properties), dict(b.properties)
    for name in sorted({**mine, **other}):
        if not _equal(mine.get(name), other.get(name)):
            yield f"{name} was {_short(mine.get(name))}, is {_short(other.get(name))}"


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.dtype == y.dtype and np.array_equal(x, y)
    return bool(x == y)


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _constants(a: Operation, b: Operation) -> Iterator[str]:
    x, y = constant_of(a.results[0]), constant_of(b.results[0])
    if x is None or y is None or x == y:
        return
    if x.dtype is not y.dtype or x.shape != y.shape:
        yield f"was {x.dtype}{list(x.shape)}, is {y.dtype}{list(y.shape)}"
        return
    yield _distance(x, y)


def _distance(x: ConstantData, y: ConstantData) -> str:
    """How far two constants of one type are apart."""
    mine, other = x.array(), y.array()
    if x.dtype.kind in ("string", "bool"):
        return f"{int(np.count_nonzero(mine != other))} of {x.size} elements differ"
    wide = np.complex128 if x.dtype.kind == "complex" else np.float64
    with np.errstate(all="ignore"):
        p, q = mine.astype(wide), other.astype(wide)
        differ = (p != q) & ~(np.isnan(p) & np.isnan(q))
        worst = np.nanmax(np.abs(np.where(differ, p - q, 0)), initial=0.0)
    count = int(np.count_nonzero(differ))
    if not count:
        return "only signs of zeros, or bits of NaN, differ"
    nan = ", NaN among them" if np.isnan(p[differ]).any() or np.isnan(q[differ]).any() else ""
    return f"{count} of {x.size} elements differ, by up to {worst:.3g}{nan}"
