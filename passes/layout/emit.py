"""Makes the ops of a cluster anew, in the orders that were chosen for them, and the transposes that these need."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, value_of
from irkit.ir.constants import ConstantData
from irkit.ir.names import name_of
from irkit.ir.types import Shape, shape_of
from irkit.passes.layout.forms import Moving
from irkit.passes.layout.graph import TRANSPOSE, Cluster, Demand, Explorer, Node, Source, Transposed
from irkit.passes.layout.perms import Perm, compose, identity, inverse, is_identity
from irkit.passes.rewrite import Rewriter, erase, set_name
from irkit.passes.types import refine

__all__ = ["apply"]


def apply(cluster: Cluster, explorer: Explorer, rw: Rewriter) -> None:
    """Rewrites the cluster's part of a block."""
    _Application(cluster, explorer, rw).run()


class _Application:
    """One cluster.

    Attributes:
        made: by source, its value as it is made now, and in which order.
        ready: values by source and order.
    """

    def __init__(self, cluster: Cluster, explorer: Explorer, rw: Rewriter) -> None:
        self.cluster, self.explorer, self.rw = cluster, explorer, rw
        self.made: dict[Source, tuple[SSAValue, Perm]] = {}
        self.ready: dict[Source, dict[Perm, SSAValue]] = {}
        self.constants: dict[tuple[SSAValue, Perm], SSAValue] = {}
        self.demands: dict[Operation, list[tuple[Source, Demand]]] = {}
        self.transposes: dict[Operation, Transposed] = {}
        self.old: dict[tuple[Source, Perm], list[SSAValue]] = {}

    def run(self) -> None:
        for source in self.cluster.sources.values():
            start = identity(source.rank)
            self.old[source, start] = [source.value]
            self.ready[source] = {}
            if source.maker is None or is_identity(source.made()):
                self.made[source] = source.value, start
                self.ready[source][start] = source.value
            for demand in source.demands:
                self.demands.setdefault(demand.anchor, []).append((source, demand))
        for t in self.cluster.transposes:
            self.old.setdefault((t.source, t.chain), []).append(t.op.results[0])
            self.transposes[t.op] = t
        stale: list[Operation] = []
        for op in self._in_order():
            node = self.cluster.nodes.get(op)  # pyright: ignore[reportArgumentType]
            if op in self.transposes:
                self._keep(self.transposes[op])
                stale.append(op)
            elif node is not None and not is_identity(node.order):
                self._rebuild(node)
                stale.append(op)
            else:
                for source, demand in self.demands.get(op, ()):
                    value = self._in(source, demand.chain, op)
                    if demand.op.operands[demand.index] is not value:
                        demand.op.operands[demand.index] = value
        for op in reversed(stale):
            if all(result.first_use is None for result in op.results):
                erase(op)

    def _in_order(self) -> Iterable[Operation]:
        """The ops that the cluster is about, in the order of the block."""
        concerned = {*self.demands, *self.transposes, *self.cluster.nodes}
        places = self.explorer.places()
        return sorted(concerned, key=places.__getitem__)

    def _keep(self, t: Transposed) -> None:
        """A Transpose of a value that is made as ever gives it in another order as ever."""
        source = t.source
        if t.direct and not source.single and source in self.made and self.made[source][0] is source.value:
            self.ready[source].setdefault(t.chain, t.op.results[0])

    def _in(self, source: Source, order: Perm, before: Operation) -> SSAValue:
        """A source's value in an order, made in front of an op if need be."""
        found = self.ready[source].get(order)
        if found is not None:
            return found
        value, made = self.made[source]
        if source.single:
            return value
        # Where axes of size 1 alone stand elsewhere, nothing is moved.
        near = [q for q in self.ready[source] if source.layout(q) == source.layout(order)]
        if near and source.layout(made) != source.layout(order):
            value, made = self.ready[source][near[0]], near[0]
        perm = compose(inverse(made), order)
        sources = [t.op for t in self.cluster.transposes if t.source is source] or [source.value.owner]
        located = [op for op in sources if isinstance(op, Operation)] or [before]
        b = Builder.before(before, self.rw.ctx, by=self.rw.by, sources=located)
        sizes = None if source.layout(made) != source.layout(order) else _sizes(value, perm)
        if sizes is not None:
            found = value_of(b.Reshape(b.wrap(value), np.array(sizes, np.int64)))
        else:
            made_type = Moving.type_of(value, perm)
            found = self.rw.make(TRANSPOSE, [value], [made_type], {"perm": perm}, before=before, sources=located)
            found = found.results[0]
        self._name(source, order, found)
        return found

    def _name(self, source: Source, order: Perm, value: SSAValue) -> None:
        """A value in an order takes over the name and the type of what was the same before."""
        self.ready[source][order] = value
        for old in self.old.get((source, order), ()):
            if old is value:
                continue
            refine(value, old.type)
            name = name_of(old)
            if name and isinstance(value, OpResult) and not name_of(value):
                set_name(value, name)

    def _rebuild(self, node: Node) -> None:
        """Makes an op in its new order."""
        op, form = node.op, node.form
        operands = list(op.operands)
        wanted = {d.index: (s, d) for s, d in self.demands.get(op, ()) if d.op is op}
        moving = Moving(op, form, node.order, self.rw)
        for index, axes in enumerate(form.operands):
            if index in wanted:
                source, demand = wanted[index]
                operands[index] = self._in(source, demand.wanted(), op)
            elif axes is not None and len(axes) > 1:
                operands[index] = self._constant(operands[index], node.at(axes), moving)
        for old, new, axes in zip(op.results, form.build(moving, operands), form.results, strict=True):
            source = self.cluster.sources.get(old)
            if axes is None or source is None:
                self.rw.replace_value(old, new)
            else:
                order = node.at(axes)
                self.made[source] = new, order
                self._name(source, order, new)

    def _constant(self, value: SSAValue, order: Perm, moving: Moving) -> SSAValue:
        """A constant, or a Transpose of one, in another order."""
        source, chain = self.explorer.resolve(value)
        whole = compose(chain, order)
        if is_identity(whole):
            return source
        found = self.constants.get((source, whole))
        if found is None:
            data = constant_of(source)
            assert data is not None
            array = data.stored()
            shape = tuple(data.shape[a] for a in whole)
            made = ConstantData(data.dtype, shape, array if data.is_splat else np.transpose(array, whole))
            found = self.constants[source, whole] = moving.constant(made)
        return found


def _sizes(value: SSAValue, perm: Perm) -> list[int] | None:
    """The sizes of a value after its axes of size 1 are moved, as Reshape takes them; None if that can't say it."""
    shape: Shape | None = shape_of(value.type)
    if shape is None or 0 in shape:
        return None
    moved = [shape[a] for a in perm]
    unknown = [place for place, size in enumerate(moved) if not isinstance(size, int)]
    if len(unknown) > 1:
        return None
    return [size if isinstance(size, int) else -1 for size in moved]
