"""Where the order of axes can be chosen: values, and ops with a form, that hang together through transposes.

A ``Cluster`` is all that a Transpose reaches. Its *sources* are the values that no Transpose gives; what a Transpose
gives of one is a *demand* for it in another order. Items (sources and ops) whose order of axes decides each other's
form a *group*: the order of its first item says that of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from xdsl.ir import Block, Operation, OpResult, SSAValue

from irkit.dialects.onnx import CURRENT, OnnxOp
from irkit.dialects.onnx.values import is_constant
from irkit.ir import dims
from irkit.ir.types import TensorInfo, shape_of, tensor_info
from irkit.passes.layout.forms import Form, form_of, rank_of
from irkit.passes.layout.perms import Axes, Perm, compose, identity, inverse, restrict
from irkit.passes.rewrite import has_reference

__all__ = ["Cluster", "Demand", "Explorer", "Item", "Node", "Source", "Transposed", "cost_of", "perm_of"]

TRANSPOSE = CURRENT["", "Transpose"]
NOMINAL = 64
"""What a size that is no number counts for."""


def perm_of(op: Operation | Block | None) -> Perm | None:
    """By which permutation a Transpose transposes; None for other ops, and where that is not known."""
    if not isinstance(op, TRANSPOSE) or has_reference(op):
        return None
    rank, perm = rank_of(op.operands[0]), op.attr("perm")
    if perm is None:
        return None if rank is None else tuple(reversed(range(rank)))
    return perm if rank in (None, len(perm)) and sorted(perm) == list(range(len(perm))) else None


@dataclass(eq=False)
class Item:
    """What has an order of axes.

    Attributes:
        rank: how many axes.
        parent, shift: a group is a tree; the order of an item is ``compose(shift, order of the parent)``.
    """

    rank: int
    parent: Item | None = None
    shift: Perm = ()

    def root(self) -> tuple[Item, Perm]:
        """The first item of the group, and what to compose with its order to get this item's."""
        path: list[Item] = []
        item = self
        while item.parent is not None:
            path.append(item)
            item = item.parent
        shift = identity(self.rank)
        for inner in reversed(path):
            shift = compose(inner.shift, shift)
            inner.parent, inner.shift = item, shift
        return item, shift

    def tie(self, other: Item, chain: Perm) -> bool:
        """Makes this item's order ``compose(chain, other's order)``. Returns whether that contradicts nothing."""
        (mine, a), (theirs, b) = self.root(), other.root()
        if mine is theirs:
            return a == compose(chain, b)
        mine.parent, mine.shift = theirs, compose(inverse(a), compose(chain, b))
        return True


@dataclass(eq=False)
class Node(Item):
    """An op with a form.

    Attributes:
        order: in which its axes are stored.
        free: whether another order may be chosen.
    """

    op: OnnxOp = field(kw_only=True)
    form: Form = field(kw_only=True)
    order: Perm = ()
    free: bool = True

    def __post_init__(self) -> None:
        self.order = identity(self.rank)

    def at(self, axes: Axes, order: Perm | None = None) -> Perm:
        """The order of an operand or result that has these axes."""
        return restrict(self.order if order is None else order, axes)


@dataclass(eq=False)
class Demand:
    """A use of a value, or of what transposes make of it.

    Attributes:
        op, index: the operand.
        anchor: the op, or what it stands in, in the cluster's block.
        chain: how the value is transposed for it.
        node, axes: the op, if it has a form, and which of its axes the operand has.
    """

    op: Operation
    index: int
    anchor: Operation
    chain: Perm
    node: Node | None = None
    axes: Axes = ()

    def wanted(self, order: Perm | None = None) -> Perm:
        """In which order the value is wanted, if the op's axes are stored in this one (default: in its own)."""
        return self.chain if self.node is None else compose(self.chain, self.node.at(self.axes, order))


@dataclass(eq=False)
class Transposed:
    """A Transpose in a cluster: of which source, by which permutation in all, whether directly, and whether for use."""

    op: OnnxOp
    source: Source
    chain: Perm
    direct: bool
    used: bool = True


@dataclass(eq=False)
class Source(Item):
    """A value that no Transpose gives.

    Attributes:
        maker, axes: the op with a form that gives it, and which of its axes the value has.
        weight: what it costs to move its elements; 0 where no order is another in memory.
        wide: the axes that are longer than 1, or may be.
        single: whether it has no more than one element.
    """

    value: SSAValue = field(kw_only=True)
    maker: Node | None = None
    axes: Axes = ()
    demands: list[Demand] = field(default_factory=list[Demand])
    weight: int = 0
    wide: frozenset[int] = frozenset()
    single: bool = False

    def made(self, order: Perm | None = None) -> Perm:
        """In which order the value is made, if its maker's axes are stored in this one (default: in its own)."""
        return identity(self.rank) if self.maker is None else self.maker.at(self.axes, order)

    def layout(self, order: Perm) -> Perm:
        """What an order means for how the elements lie: axes of size 1 are nowhere."""
        return order if len(self.wide) == self.rank else tuple([a for a in order if a in self.wide])

    def cost(self) -> int:
        """What the transposes cost that the demands need."""
        made = self.made()
        wanted = {d.wanted() for d in self.demands} - {made}
        if not wanted or self.single:
            return 0
        return self.weight * len({self.layout(w) for w in wanted} - {self.layout(made)}) + len(wanted)


@cache
def cost_of(info: TensorInfo | None) -> int:
    """What it costs to move a tensor: its elements first of all, then their width; a Transpose itself costs 1."""
    count = 1
    for size in (None if info is None else info.shape) or (None,) * 4:
        known = size if isinstance(size, int) else dims.evaluate(size, dict.fromkeys(dims.symbols_in(size), NOMINAL))
        count *= NOMINAL if known is None else max(known, 0)
    bits = 64 if info is None or not info.dtype.bits else info.dtype.bits
    return (count << 96) + (count * bits << 32)


@dataclass(eq=False)
class Cluster:
    """Sources, ops and transposes that hang together. Everything is in the order in which it was found."""

    sources: dict[SSAValue, Source] = field(default_factory=dict[SSAValue, Source])
    nodes: dict[OnnxOp, Node] = field(default_factory=dict[OnnxOp, Node])
    transposes: list[Transposed] = field(default_factory=list[Transposed])
    links: list[tuple[Node, Source, Axes, Perm]] = field(default_factory=list[tuple[Node, Source, Axes, Perm]])

    def spent(self) -> int:
        """What the transposes cost that are there."""
        found = 0
        for t in self.transposes:
            if not t.used:
                continue
            before = compose(t.chain, inverse(perm_of(t.op) or t.chain))
            moved = t.source.layout(before) != t.source.layout(t.chain)
            found += 1 + (t.source.weight if moved else 0)
        return found


class Explorer:
    """Finds the clusters of a block."""

    def __init__(self, block: Block, opset: int, *, exact: bool) -> None:
        self.block, self.opset, self.exact = block, opset, exact
        self.seen: set[SSAValue] = set()
        self._places: dict[Operation, int] = {}

    def places(self) -> dict[Operation, int]:
        """Where each op stands that was in the block when this was first asked for."""
        if not self._places:
            self._places = {op: place for place, op in enumerate(self.block.ops)}
        return self._places

    def clusters(self) -> list[Cluster]:
        """The clusters in which there is a Transpose, in the order of the block."""
        op = self.block.first_op
        found: list[Cluster] = []
        while op is not None:
            perm = perm_of(op)
            # What has fewer than two axes has no order, and belongs to no cluster.
            if perm is not None and len(perm) > 1:
                value, _ = self.resolve(op.results[0])
                if value not in self.seen and not is_constant(value):
                    found.append(self.explore(value))
            op = op.next_op
        return found

    def resolve(self, value: SSAValue) -> tuple[SSAValue, Perm]:
        """The source behind a value, and how transposes in this block made the value of it."""
        chain: Perm | None = None
        while isinstance(value, OpResult) and value.op.parent is self.block:
            perm = perm_of(value.op)
            if perm is None:
                break
            chain = perm if chain is None else compose(perm, chain)
            value = value.op.operands[0]
        return value, identity(rank_of(value) or 0) if chain is None else chain

    def explore(self, value: SSAValue) -> Cluster:
        """The cluster around a source."""
        made = Cluster()
        waiting = [value]
        while waiting:
            start = waiting.pop()
            if start in self.seen:
                continue
            self.seen.add(start)
            source = self._source(start, made)
            maker = start.owner if isinstance(start, OpResult) else None
            if isinstance(maker, OnnxOp) and maker.parent is self.block:
                self._visit(maker, made, waiting)
            for demand in source.demands:
                self._visit(demand.anchor, made, waiting)
        self._connect(made)
        return made

    def _source(self, value: SSAValue, cluster: Cluster) -> Source:
        shape = shape_of(value.type)
        users = [use.operation for use in value.uses]
        rank = len(shape) if shape is not None else next(len(p) for u in users if (p := perm_of(u)) is not None)
        wide = frozenset(range(rank)) if shape is None else frozenset(a for a in range(rank) if shape[a] != 1)
        made = Source(rank, value=value, wide=wide, single=not wide)
        made.weight = cost_of(tensor_info(value.type)) if len(wide) > 1 else 0
        cluster.sources[value] = made
        waiting = [(value, identity(rank))]
        found: list[Transposed] = []
        used: set[Operation] = set()
        while waiting:
            at, chain = waiting.pop()
            for use in at.uses:
                perm = perm_of(use.operation) if use.operation.parent is self.block else None
                if perm is None:
                    anchor = self._anchor(use.operation)
                    if anchor is not None:
                        made.demands.append(Demand(use.operation, use.index, anchor, chain))
                        used.update([at.op] if isinstance(at, OpResult) else [])
                else:
                    op, whole = use.operation, compose(chain, perm)
                    assert isinstance(op, OnnxOp)
                    found.append(Transposed(op, made, whole, at is value))
                    waiting.append((op.results[0], whole))
        for t in reversed(found):
            before = t.op.operands[0]
            t.used = t.op in used
            if t.used and isinstance(before, OpResult):
                used.add(before.op)
        cluster.transposes += found
        return made

    def _anchor(self, op: Operation) -> Operation | None:
        """The op of this block in which an op stands; None for one that stands around this block."""
        found: Operation | None = op
        while found is not None and found.parent is not self.block:
            found = found.parent_op()
        return found

    def _visit(self, op: Operation, cluster: Cluster, waiting: list[SSAValue]) -> None:
        """Takes in an op, if it has a form, and what it takes and gives."""
        if op in cluster.nodes:
            return
        found = form_of(op, self.opset)
        if found is None or (self.exact and not found.exact) or not isinstance(op, OnnxOp):
            return
        if found.rank < 2:
            return
        cluster.nodes[op] = Node(found.rank, op=op, form=found)
        for value, axes in (
            *zip(op.operands, found.operands, strict=True),
            *zip(op.results, found.results, strict=True),
        ):
            if axes is not None and len(axes) > 1:
                start, _ = self.resolve(value)
                if not is_constant(start):
                    waiting.append(start)

    def _connect(self, cluster: Cluster) -> None:
        """Ties what decides each other's order; what contradicts the rest is not free."""
        for source in cluster.sources.values():
            for demand in source.demands:
                node = cluster.nodes.get(demand.op) if isinstance(demand.op, OnnxOp) else None
                axes = None if node is None else node.form.operands[demand.index]
                if node is not None and axes is not None:
                    demand.node, demand.axes = node, axes
        for node in cluster.nodes.values():
            for value, axes in zip(node.op.results, node.form.results, strict=True):
                source = cluster.sources.get(value)
                if source is not None and axes is not None:
                    source.maker, source.axes = node, axes
                    self._relate(cluster, node, source, axes, identity(source.rank))
        for source in cluster.sources.values():
            for demand in source.demands:
                if demand.node is not None:
                    self._relate(cluster, demand.node, source, demand.axes, demand.chain)

    @staticmethod
    def _relate(cluster: Cluster, node: Node, source: Source, axes: Axes, chain: Perm) -> None:
        if len(axes) != source.rank:
            node.free = False
        elif len(axes) == node.rank:
            node.free &= source.tie(node, chain)
        else:
            cluster.links.append((node, source, axes, chain))
