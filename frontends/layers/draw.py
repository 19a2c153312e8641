"""Pictures of models as SVG: boxes for layers, or layers with their nodes in them and the tensors between."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["draw"]

FONT = 'font-family="Helvetica, Arial, sans-serif"'
CHAR, LINE, GAP, MARGIN = 7.0, 16.0, 44.0, 24.0
FILLS = {"layer": "#e8eef7", "input": "#e6f4e6", "node": "#f3c9a5", "tensor": "#ffffff"}


@dataclass
class _Box:
    """A rectangle with lines of text; ``row`` is how far from the inputs it stands."""

    lines: list[str]
    row: int
    kind: str
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


def _shape(shape: Any) -> str:
    return f"({', '.join('?' if d is None else str(d) for d in shape)})"


def draw(model: Any, *, nodes: bool = False, shapes: bool = True) -> str:
    """A model as SVG.

    Args:
        nodes: whether layers are drawn with their nodes in them, one a call, and the tensors between them.
        shapes: whether sizes are written beside.

    Raises:
        IrkitError: if the model does not begin with inputs.
    """
    every = [layer._inbound_nodes[0] for layer in model.input_layers] + list(model._nodes)
    return _with_nodes(every, shapes) if nodes else _by_layers(every, shapes)


def _rows(every: list[Any]) -> dict[int, int]:
    """Per node how many nodes stand between it and the inputs at most."""
    rows: dict[int, int] = {}
    made = {id(t): node for node in every for t in node.output_tensors}
    for node in every:
        before = [rows[id(made[id(t)])] for t in node.input_tensors if id(t) in made]
        rows[id(node)] = 1 + max(before, default=-1)
    return rows


def _by_layers(every: list[Any], shapes: bool) -> str:
    rows = _rows(every)
    boxes: dict[int, _Box] = {}
    for node in every:
        layer = node.outbound_layer
        if id(layer) in boxes:
            boxes[id(layer)].row = max(boxes[id(layer)].row, rows[id(node)])
            continue
        lines = [f"{layer.name}: {type(layer).__name__}"]
        if shapes:
            sizes = ", ".join(map(_shape, node.output_shapes))
            came = ", ".join(map(_shape, node.input_shapes))
            lines.append(f"{came} → {sizes}" if came else sizes)
        boxes[id(layer)] = _Box(lines, rows[id(node)], "layer" if node.input_tensors else "input")
    edges: list[tuple[_Box, _Box]] = []
    known = {id(node) for node in every}
    for node in every:
        for layer, index in zip(node.inbound_layers, node.node_indices, strict=True):
            if layer is not None and id(layer._inbound_nodes[index]) in known:
                edges.append((boxes[id(layer)], boxes[id(node.outbound_layer)]))
    _place(list(boxes.values()), edges)
    parts = [_arrow(a, c, list(boxes.values())) for a, c in edges] + [_rectangle(box) for box in boxes.values()]
    return _svg(list(boxes.values()), parts)


def _with_nodes(every: list[Any], shapes: bool) -> str:
    """Tensors as ovals, nodes as boxes; what belongs to one layer stands side by side in that layer's bun."""
    rows = _rows(every)
    layers: dict[int, list[Any]] = {}
    for node in every:
        layers.setdefault(id(node.outbound_layer), []).append(node)
    # The nodes of a layer share a row, so that one bun holds them.
    row_of = {key: max(rows[id(node)] for node in calls) for key, calls in layers.items()}
    boxes: dict[int, _Box] = {}
    ovals: dict[int, _Box] = {}
    edges: list[tuple[_Box, _Box]] = []
    for key, calls in layers.items():
        for node in calls:
            boxes[id(node)] = _Box([f"node {node.index}"], 2 * row_of[key], "node")
            for number, tensor in enumerate(node.output_tensors):
                lines = [f"{node.outbound_layer.name}[{node.index}][{number}]"]
                lines += [_shape(tensor.shape)] if shapes else []
                ovals[id(tensor)] = _Box(lines, 2 * row_of[key] + 1, "tensor")
                edges.append((boxes[id(node)], ovals[id(tensor)]))
            edges += [(ovals[id(t)], boxes[id(node)]) for t in node.input_tensors if id(t) in ovals]
    titles = {key: calls[0].outbound_layer for key, calls in layers.items()}
    groups = {key: [boxes[id(node)] for node in calls] for key, calls in layers.items()}
    for key, members in groups.items():
        title = f"{titles[key].name}: {type(titles[key]).__name__}"
        for box in members:
            # The bun is as wide as its title, and higher than the sausage by a line above and a margin below.
            box.width = max(len(title) * CHAR / len(members), 64.0)
    everything = [*boxes.values(), *ovals.values()]
    _place(everything, edges, bun=LINE + 8)
    parts = [_bun(members) for members in groups.values()]
    parts += [_arrow(a, c, everything) for a, c in edges]
    parts += [_title(titles[key], members) for key, members in groups.items()]
    parts += [_rectangle(box) for box in boxes.values()] + [_oval(box) for box in ovals.values()]
    return _svg(everything, parts)


def _place(boxes: list[_Box], edges: list[tuple[_Box, _Box]], bun: float = 0.0) -> None:
    """Gives boxes their places: row by row, each as near as can be to the mean of what leads to it."""
    for box in boxes:
        box.width = max(box.width, max(len(line) for line in box.lines) * CHAR + 20)
        box.height = len(box.lines) * LINE + 12
    rows: dict[int, list[_Box]] = {}
    for box in boxes:
        rows.setdefault(box.row, []).append(box)
    sources: dict[int, list[_Box]] = {}
    for first, second in edges:
        sources.setdefault(id(second), []).append(first)
    y = MARGIN + bun
    for row in sorted(rows):
        members = rows[row]

        def wanted(box: _Box) -> float:
            found = [s.centre for s in sources.get(id(box), []) if s.row < box.row]
            return sum(found) / len(found) if found else 0.0

        kinds = {id(box): index for index, box in enumerate(members)}
        if not bun or members[0].kind == "tensor":
            members.sort(key=lambda box: (wanted(box), kinds[id(box)]))
        edge = -1e9
        for box in members:
            box.x = max(edge, wanted(box) - box.width / 2)
            box.y = y
            edge = box.x + box.width + 28
        spare = sum(wanted(b) - b.centre for b in members) / len(members)
        for box in members:
            box.x += spare
        y += max(box.height for box in members) + GAP + (bun if members[0].kind == "tensor" else 0)
    left = min(box.x for box in boxes)
    for box in boxes:
        box.x += MARGIN + bun - left


def _text(box: _Box) -> str:
    top = box.y + box.height / 2 - (len(box.lines) - 1) * LINE / 2 + 4
    return "".join(
        f'<text x="{box.centre:.1f}" y="{top + i * LINE:.1f}" text-anchor="middle" font-size="12" {FONT}>'
        f"{escape(line)}</text>"
        for i, line in enumerate(box.lines)
    )


def _rectangle(box: _Box) -> str:
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
        f'fill="{FILLS[box.kind]}" stroke="#445"/>{_text(box)}'
    )


def _oval(box: _Box) -> str:
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{box.height / 2:.1f}" fill="{FILLS["tensor"]}" stroke="#778" stroke-dasharray="4 2"/>{_text(box)}'
    )


def _bun(members: list[_Box]) -> str:
    """What holds the nodes of a layer, as a bun holds sausages."""
    left, right = min(b.x for b in members) - 12, max(b.x + b.width for b in members) + 12
    top, bottom = members[0].y - LINE - 8, members[0].y + members[0].height + 10
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" rx="18" '
        f'fill="#fbeecb" stroke="#b98"/>'
    )


def _title(layer: Any, members: list[_Box]) -> str:
    """The layer's name, with a rim that keeps arrows off."""
    middle = (min(b.x for b in members) + max(b.x + b.width for b in members)) / 2
    return (
        f'<text x="{middle:.1f}" y="{members[0].y - 8:.1f}" text-anchor="middle" font-size="12" font-weight="bold" '
        f'stroke="#fbeecb" stroke-width="5" paint-order="stroke" {FONT}>{escape(layer.name)}: '
        f"{type(layer).__name__}</text>"
    )


def _arrow(first: _Box, second: _Box, boxes: list[_Box]) -> str:
    """From the bottom of one box to the top of another; around the right side where others stand between."""
    x1, y1, x2, y2 = first.centre, first.y + first.height, second.centre, second.y
    low, high = sorted((x1, x2))
    between = [b for b in boxes if min(first.row, second.row) < b.row < max(first.row, second.row)]
    if second.row <= first.row or any(b.x <= high and b.x + b.width >= low for b in between):
        side = max(b.x + b.width for b in (*between, first, second)) + 16
        x1, y1, x2, y2 = (
            first.x + first.width,
            first.y + first.height / 2,
            second.x + second.width,
            second.y + second.height / 2,
        )
        path = f"M{x1:.1f} {y1:.1f} C{side:.1f} {y1:.1f} {side:.1f} {y1:.1f} {side:.1f} {(y1 + y2) / 2:.1f} "
        path += f"C{side:.1f} {y2:.1f} {side:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    else:
        half = (y1 + y2) / 2
        path = f"M{x1:.1f} {y1:.1f} C{x1:.1f} {half:.1f} {x2:.1f} {half:.1f} {x2:.1f} {y2:.1f}"
    return f'<path d="{path}" fill="none" stroke="#445" marker-end="url(#end)"/>'


def _svg(boxes: list[_Box], parts: list[str]) -> str:
    width = max(box.x + box.width for box in boxes) + 2 * MARGIN
    height = max(box.y + box.height for box in boxes) + 2 * MARGIN
    marker = (
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#445"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{marker}<rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )
