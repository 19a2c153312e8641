"""Which order of axes each op of a cluster should have, so that transposes cost least.

A *proposal* gives every group of a cluster an order, such that ops that are linked agree. To what ops it should be
applied is a cheapest cut: each op keeps its order or switches to the proposed one, and a value costs what the
transposes cost that its users then need. That is repeated, over the orders in which anything around the cluster stands,
until no proposal makes it cheaper.

It starts from the graph as it is, so that the cost never grows. Where all that is around stands in two orders, as NCHW
and NHWC, and ops keep the number of axes, the result is the cheapest there is: the cost is submodular in the set of ops
that stand in the one order; a set that no larger and no smaller set betters is no worse than any other. For more orders
this is the expansion algorithm of Boykov, Veksler and Zabih (2001), which is within a factor of two for costs between
pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from irkit.passes.layout.cut import INFINITE, KEEP, SWITCH, Network
from irkit.passes.layout.graph import Cluster, Item, Node, Source
from irkit.passes.layout.ops import CHANNELS_FIRST
from irkit.passes.layout.perms import Axes, Perm, compose, inverse, last_to_first, restrict

__all__ = ["Groups", "solve"]

MAX_ORDERS = 8
"""So many orders are tried for one group, those that most around it have."""
MAX_ROUNDS = 8
EFFORT = 200
"""How many steps all proposals of a cluster, and one cut, may take for each op and use in it."""


class Groups:
    """The groups of a cluster, and in which orders their first items could stand.

    Attributes:
        orders: by group, the orders in which something around it needs it, the most frequent first.
        first: by group of which a channels-first op tells the layout: the order that makes it NCHW.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.orders: dict[Item, list[Perm]] = {}
        self.first: dict[Item, Perm] = {}
        self.nodes: dict[Item, list[Node]] = {}
        self.links: dict[Item, list[tuple[Node, Source, Axes, Perm]]] = {}
        self.shifts: dict[Item, tuple[Item, Perm]] = {}
        wanted: dict[Item, Counter[Perm]] = {}
        images: dict[Item, Counter[Perm]] = {}
        for item in (*cluster.nodes.values(), *cluster.sources.values()):
            root, shift = self.shifts[item] = item.root()
            wanted.setdefault(root, Counter())
            if isinstance(item, Node):
                self.nodes.setdefault(root, []).append(item)
                if not item.free:
                    wanted[root][inverse(shift)] += 1
                continue
            assert isinstance(item, Source)
            back = inverse(shift)
            if item.maker is None:
                wanted[root][back] += 1
                if item.rank > 2 and getattr(item.value.owner, "name", "") in CHANNELS_FIRST:
                    images.setdefault(root, Counter())[back] += 1
            for demand in item.demands:
                if demand.node is None:
                    order = compose(back, demand.chain)
                    wanted[root][order] += 1
                    if item.rank > 2 and demand.index == 0 and demand.op.name in CHANNELS_FIRST:
                        images.setdefault(root, Counter())[order] += 1
        for root, found in wanted.items():
            self.orders[root] = [order for order, _ in found.most_common(MAX_ORDERS)]
        self.first = {root: found.most_common(1)[0][0] for root, found in images.items()}
        for link in cluster.links:
            for item in link[:2]:
                self.links.setdefault(self.shifts[item][0], []).append(link)

    def order_of(self, item: Item, orders: dict[Item, Perm]) -> Perm | None:
        """The order of an item, if that of its group is given."""
        root, shift = self.shifts[item]
        order = orders.get(root)
        return None if order is None else compose(shift, order)

    def proposals(self, to: str) -> Iterator[Proposal]:
        """What to try; the preferred ones last, since they win where nothing else decides."""
        seen: set[tuple[Item, Perm]] = set()
        for preferred in (False, True):
            for root, orders in self.orders.items():
                best = self.preferred(root, to)
                for order in orders:
                    if (order == best) is preferred and (root, order) not in seen:
                        made = self._propose(root, order, preferred)
                        seen.update(made.orders.items())
                        yield made

    def preferred(self, root: Item, to: str) -> Perm | None:
        """The order of a group that makes it NCHW or NHWC, if it is known which."""
        first = self.first.get(root)
        if first is None or to == "nchw":
            return first
        return compose(first, inverse(last_to_first(root.rank)))

    def _propose(self, root: Item, order: Perm, preferred: bool) -> Proposal:
        """Gives a group an order, and those that are linked to it the ones that fit."""
        made = Proposal({root: order}, preferred)
        waiting = [root]
        while waiting:
            for node, source, axes, chain in self.links.get(waiting.pop(), ()):
                made.effort += 1
                mine, theirs = self.order_of(node, made.orders), self.order_of(source, made.orders)
                if mine is not None:
                    fitting = compose(chain, restrict(mine, axes))
                    if theirs is None:
                        self._assign(source, fitting, made, waiting)
                    elif theirs != fitting:
                        made.excluded.add(node)
                elif theirs is not None:
                    self._assign(node, self._widened(node, axes, compose(inverse(chain), theirs)), made, waiting)
        return made

    def _assign(self, item: Item, order: Perm, made: Proposal, waiting: list[Item]) -> None:
        root, shift = self.shifts[item]
        made.orders[root] = compose(inverse(shift), order)
        waiting.append(root)

    def _widened(self, node: Node, axes: Axes, narrow: Perm) -> Perm:
        """An order of all axes in which some have a given order: one that is wanted, or the others stay in place."""
        root, shift = self.shifts[node]
        for order in self.orders[root]:
            if restrict(compose(shift, order), axes) == narrow:
                return compose(shift, order)
        given = iter([axes[i] for i in narrow])
        return tuple([next(given) if axis in axes else axis for axis in range(node.rank)])


@dataclass
class Proposal:
    """An order for some groups of a cluster.

    Attributes:
        orders: by group.
        preferred: whether ops switch where it makes no difference.
        excluded: ops whose operands and results do not fit together in it.
        effort: how much work it was.
    """

    orders: dict[Item, Perm]
    preferred: bool
    excluded: set[Node] = field(default_factory=set[Node])
    effort: int = 0


def solve(cluster: Cluster, to: str) -> bool:
    """Chooses an order for each op of a cluster. Returns whether the search came to its end."""
    groups = Groups(cluster)
    proposals = list(groups.proposals(to)) if cluster.nodes else []
    size = len(cluster.nodes) + sum(len(s.demands) + 1 for s in cluster.sources.values())
    effort = EFFORT * size
    for _ in range(MAX_ROUNDS):
        better = False
        for proposal in proposals:
            effort -= size
            if effort < 0:
                return False
            switched = _apply(groups, proposal, EFFORT * size)
            if switched is None:
                return False
            better |= switched
        if not better:
            return True
    return False


def _apply(groups: Groups, proposal: Proposal, effort: int) -> bool | None:
    """Switches the ops for which that is cheaper. Returns whether it is; None if that was too much work."""
    cluster = groups.cluster
    changed: dict[Node, Perm] = {}
    for root in proposal.orders:
        for node in groups.nodes.get(root, ()):
            order = groups.order_of(node, proposal.orders)
            if order is None or order == node.order or not node.free or node in proposal.excluded:
                continue
            if node.form.fits(order):
                changed[node] = order
    if not changed:
        return False
    network = Network()
    numbers = {node: network.node() for node in changed}
    touched: list[Source] = []
    for source in cluster.sources.values():
        if source.maker in changed or any(d.node in changed for d in source.demands):
            touched.append(source)
            if not source.single:
                _Costs(source, changed, numbers, network).add()
    sides = network.cut(effort, eager=proposal.preferred)
    if sides is None:
        return None
    before, kept = sum(s.cost() for s in touched), {node: node.order for node in changed}
    for node, order in changed.items():
        if sides[numbers[node]]:
            node.order = order
    if all(node.order == old for node, old in kept.items()):
        return False
    after = sum(s.cost() for s in touched)
    if after > before or (after == before and not proposal.preferred):
        for node, order in kept.items():
            node.order = order
    return after < before


def _itself(order: Perm) -> Perm:
    return order


class _Costs:
    """What the transposes of one value cost, as edges of a network.

    The value is made in one order or the proposed one; users want it in one order each or in the proposed one. It costs
    one transpose for each order that is wanted and not made.
    """

    def __init__(self, source: Source, changed: dict[Node, Perm], numbers: dict[Node, int], network: Network) -> None:
        self.source, self.changed, self.numbers, self.network = source, changed, numbers, network
        maker = source.maker
        self.maker = KEEP if maker is None or maker not in changed else numbers[maker]
        proposed = [source.made(changed[maker])] if maker is not None and maker in changed else []
        proposed += [d.wanted(changed[d.node]) for d in source.demands if d.node is not None and d.node in changed]
        assert len(set(proposed)) == 1, "a proposal wants a value in two orders"
        self.proposed = proposed[0]

    def add(self) -> None:
        source = self.source
        if source.weight and len(source.wide) < source.rank:
            self._add(source.weight, by_layout=True)
            self._add(1, by_layout=False)
        else:
            self._add(source.weight + 1, by_layout=False)

    def _add(self, weight: int, *, by_layout: bool) -> None:
        """Adds the cost, where orders that lie alike in memory count as one, or not."""
        source = self.source
        kind = source.layout if by_layout else _itself
        made, proposed = kind(source.made()), kind(self.proposed)
        wanting: dict[Perm, set[int]] = {}
        for demand in source.demands:
            number = KEEP if demand.node is None or demand.node not in self.changed else self.numbers[demand.node]
            wanting.setdefault(kind(demand.wanted()), set()).add(number)
        edge = self.network.edge
        for wanted, users in wanting.items():
            if wanted == proposed:
                continue
            if wanted != made:
                # Costs unless all of these users switch.
                if KEEP not in users:
                    self._any_keeps(users, SWITCH, weight)
            elif made != proposed and self.maker != KEEP:
                # Costs if the value is made in the proposed order and one of these users keeps its own.
                if KEEP in users:
                    edge(KEEP, self.maker, weight)
                else:
                    self._any_keeps(users, self.maker, weight)
        if made == proposed:
            return
        # Costs if the value keeps its order and anybody wants the proposed one.
        if proposed in wanting:
            if self.maker != KEEP:
                edge(self.maker, SWITCH, weight)
            return
        users = {n for found in wanting.values() for n in found if n != KEEP}
        if users:
            self._any_switches(users, self.maker, weight)

    def _any_keeps(self, users: set[int], maker: int, weight: int) -> None:
        """Costs the weight if the maker switches and any of the users keeps."""
        if len(users) == 1:
            self._pair(next(iter(users)), maker, weight)
            return
        middle = self.network.node()
        for user in sorted(users):
            self.network.edge(user, middle, INFINITE)
        self._pair(middle, maker, weight)

    def _any_switches(self, users: set[int], maker: int, weight: int) -> None:
        """Costs the weight if the maker keeps and any of the users switches."""
        if len(users) == 1:
            self._pair(maker, next(iter(users)), weight)
            return
        middle = self.network.node()
        for user in sorted(users):
            self.network.edge(middle, user, INFINITE)
        self._pair(maker, middle, weight)

    def _pair(self, keeps: int, switches: int, weight: int) -> None:
        if keeps != switches:
            self.network.edge(keeps, switches, weight)
