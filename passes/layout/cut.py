"""The cheapest cut of a network, by Dinic's algorithm (E. A. Dinic, 1970), without recursion."""

from __future__ import annotations

__all__ = ["INFINITE", "KEEP", "SWITCH", "Network"]

KEEP, SWITCH = 0, 1
"""The two ends: what is cut off from the one is on the side of the other."""

INFINITE = 1 << 200


class Network:
    """A directed network whose nodes are parted into those that keep and those that switch.

    An edge from ``a`` to ``b`` costs its capacity if ``a`` keeps and ``b`` switches. ``KEEP`` keeps, ``SWITCH``
    switches.
    """

    def __init__(self) -> None:
        self.edges: list[list[int]] = [[], []]
        self.ends: list[int] = []
        self.room: list[int] = []

    def node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        for start, end, room in ((a, b, capacity), (b, a, 0)):
            self.edges[start].append(len(self.ends))
            self.ends.append(end)
            self.room.append(room)

    def cut(self, budget: int, *, eager: bool) -> list[bool] | None:
        """Which nodes switch in a cheapest cut: as many as can, if ``eager``, or as few.

        Returns:
            None where that takes more steps than the budget.
        """
        while True:
            levels, steps = self._levels()
            budget -= steps
            if levels[SWITCH] < 0:
                break
            budget -= self._block(levels, budget)
            if budget < 0:
                return None
        if eager:
            return [level < 0 for level in levels]
        return self._reaching()

    def _levels(self) -> tuple[list[int], int]:
        """How far each node is from KEEP along edges with room; -1 where there is no way."""
        levels = [-1] * len(self.edges)
        levels[KEEP] = 0
        queue, steps = [KEEP], 0
        for node in queue:
            steps += len(self.edges[node])
            for edge in self.edges[node]:
                end = self.ends[edge]
                if self.room[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    queue.append(end)
        return levels, steps

    def _block(self, levels: list[int], budget: int) -> int:
        """Fills shortest ways until none is left. Returns how many steps that took."""
        edges, ends, room = self.edges, self.ends, self.room
        tried = [0] * len(edges)
        way: list[int] = []
        node, steps = KEEP, 0
        while steps <= budget:
            steps += 1
            if node == SWITCH:
                least = min(room[edge] for edge in way)
                steps += len(way)
                for edge in way:
                    room[edge] -= least
                    room[edge ^ 1] += least
                full = next(i for i, edge in enumerate(way) if not room[edge])
                node = ends[way[full] ^ 1]
                del way[full:]
                continue
            here = edges[node]
            at, level = tried[node], levels[node] + 1
            while at < len(here) and not (room[here[at]] and levels[ends[here[at]]] == level):
                at += 1
            steps += at - tried[node]
            tried[node] = at
            if at < len(here):
                way.append(here[at])
                node = ends[here[at]]
            elif way:
                levels[node] = -1
                node = ends[way.pop() ^ 1]
            else:
                break
        return steps

    def _reaching(self) -> list[bool]:
        """The nodes from which SWITCH can still be reached."""
        found = [False] * len(self.edges)
        found[SWITCH] = True
        queue = [SWITCH]
        for node in queue:
            for edge in self.edges[node]:
                end = self.ends[edge]
                if self.room[edge ^ 1] and not found[end]:
                    found[end] = True
                    queue.append(end)
        return found
