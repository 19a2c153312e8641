"""A table of a model's layers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

__all__ = ["rows", "show"]


def _sizes(shapes: Any) -> str:
    text = [f"({', '.join('?' if d is None else str(d) for d in shape)})" for shape in shapes]
    return ", ".join(text)


def _sources(node: Any) -> str:
    """Where a node's inputs come from: layer, node and tensor, numbers that are 0 left out."""
    found: list[str] = []
    for layer, index, tensor in zip(node.inbound_layers, node.node_indices, node.tensor_indices, strict=True):
        if layer is not None:
            found.append(layer.name + (f"[{index}][{tensor}]" if index or tensor else ""))
    return ", ".join(found)


def rows(model: Any, nodes: bool = False) -> list[tuple[str, str, str, str]]:
    """Per layer, or per node, of a model: its name and class, the sizes that it gives, its weights, its inputs."""
    found: list[tuple[str, str, str, str]] = []
    counted: set[int] = set()
    inputs = [layer._inbound_nodes[0] for layer in model.input_layers] if model.is_functional else []
    of_layers: dict[int, list[Any]] = {}
    for node in [*inputs, *model._nodes]:
        of_layers.setdefault(id(node.outbound_layer), []).append(node)
    layers = {id(node.outbound_layer): node.outbound_layer for node in [*inputs, *model._nodes]}
    for layer in layers.values() if layers else model.layers:
        calls = of_layers.get(id(layer), [])
        shown = calls if nodes else calls[:1]
        title = f"{layer.name} ({type(layer).__name__})"
        for node in shown or [None]:
            count = 0 if id(layer) in counted else layer.count_params()
            counted.add(id(layer))
            where = f"{title} node {node.index}" if nodes and node is not None and len(calls) > 1 else title
            sizes = _sizes(node.output_shapes) if node is not None else "?"
            sources = " | ".join(filter(None, map(_sources, [node] if nodes else calls))) if node is not None else ""
            found.append((where, sizes, f"{count:,}", sources))
    return found


def show(model: Any, print_fn: Any = None, nodes: bool = False) -> None:
    """Prints the table: by rich on a terminal, else as plain text, or line by line to a function."""
    table = rows(model, nodes)
    titles = ("layer", "output", "weights", "connected to")
    trained = sum(v.numpy().size for v in model.trainable_weights)
    total = model.count_params()
    end = f"weights: {total:,}, of which trainable: {trained:,}"
    if print_fn is None and sys.stdout.isatty() and find_spec("rich") is not None:
        from rich.console import Console
        from rich.table import Table

        made = Table(*titles, title=model.name, caption=end)
        for row in table:
            made.add_row(*row)
        Console().print(made)
        return
    write = print_fn or print
    widths = [max(len(row[i]) for row in [titles, *table]) for i in range(len(titles))]
    write(f"model '{model.name}'")
    for row in [titles, tuple("-" * w for w in widths), *table]:
        write("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    write(end)
