"""What can be told of an ONNX graph's nodes before any is made: their order, what they capture, who calls whom."""

from __future__ import annotations

import heapq
from typing import Any

from onnx import AttributeProto

from irkit.dialects.onnx.classes import canonical_domain
from irkit.dialects.onnx.protos import text_of_field
from irkit.errors import LoadError

__all__ = ["FunctionKey", "Unsorted", "check_recursion", "function_key", "sorted_nodes"]

Proto = Any
FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


class Unsorted(Exception):
    """A node of the graph stands before the one that makes its input."""


def function_key(proto: Proto) -> FunctionKey:
    """Domain, name and overload of a FunctionProto."""
    domain, name, overload = map(text_of_field, (proto.domain, proto.name, proto.overload))
    return canonical_domain(domain), name, overload


def check_recursion(functions: Any) -> None:
    """Refuses functions that call themselves, directly or through others. Without recursion: chains may be long."""
    keys = {function_key(f): f for f in functions}
    calls: dict[FunctionKey, list[FunctionKey]] = {}
    for key, function in keys.items():
        found: list[FunctionKey] = []
        stack = list(function.node)
        while stack:
            node = stack.pop()
            callee = (canonical_domain(node.domain), node.op_type, node.overload)
            if callee in keys:
                found.append(callee)
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else []:
                    stack.extend(graph.node)
        calls[key] = found
    done: set[FunctionKey] = set()
    for start in keys:
        path: list[tuple[FunctionKey, int]] = [(start, 0)]
        active = {start}
        while path:
            key, position = path.pop()
            if key in done:
                active.discard(key)
                continue
            if position == len(calls[key]):
                done.add(key)
                active.discard(key)
                continue
            path.append((key, position + 1))
            callee = calls[key][position]
            if callee in active:
                raise LoadError(f"function '{callee[0]}.{callee[1]}' calls itself", hint="ONNX has no recursion")
            if callee not in done:
                active.add(callee)
                path.append((callee, 0))


def sorted_nodes(graph: Proto, outer: set[str], *, nested: bool) -> list[Proto]:
    """The nodes so that each comes after those that make its inputs (captured ones included), otherwise in order.

    Raises:
        LoadError: if an input is made nowhere, or nodes depend on each other in a circle.
    """
    maker: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name:
                maker[name] = index
    known = outer | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    known |= {s.values.name for s in graph.sparse_initializer}
    waiting: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        needs: set[int] = set()
        for name in _uses(node):
            if name in maker and (name not in known or name in node.input):
                needs.add(maker[name])
            elif name not in known and name not in maker:
                if nested:
                    # The graph around this one may make it further on.
                    raise Unsorted
                raise LoadError(
                    f"its input '{name}' is made by no node", op=f"onnx.{node.op_type}", where=f"node '{node.name}'"
                )
        waiting.append(len(needs))
        for need in needs:
            users.setdefault(need, []).append(index)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    ordered: list[Proto] = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(graph.node[index])
        for user in users.get(index, []):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(ordered) != len(waiting):
        stuck = next(i for i, count in enumerate(waiting) if count > 0)
        node = graph.node[stuck]
        raise LoadError(
            "it depends on its own result, through other nodes or itself",
            op=f"onnx.{node.op_type}",
            where=f"node '{node.name}' (#{stuck})",
        )
    return ordered


def _uses(node: Proto) -> list[str]:
    """The names that a node reads, those that its graphs capture included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            for graph in [attribute.g, *attribute.graphs]:
                found += _captures(graph)
    return found


def _captures(graph: Proto) -> list[str]:
    inner = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    inner |= {s.values.name for s in graph.sparse_initializer}
    inner |= {name for node in graph.node for name in node.output}
    found = [name for node in graph.node for name in _uses(node) if name not in inner]
    return found + [o.name for o in graph.output if o.name not in inner]
