"""Einsum: labels of size 1 broadcast, which the official inference overlooks."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.dialects.onnx.shapes.elementwise import broadcast
from irkit.errors import InferenceError
from irkit.ir.types import Dim, Shape, tensor, tensor_info


@shape_rule("Einsum")
def einsum(call: Call) -> list[Attribute] | None:
    """Declines what is not well-formed, so that the official inference says what is wrong."""
    equation = call.attr("equation")
    infos = [tensor_info(v.type) for v in call.operands]
    if not isinstance(equation, str) or any(i is None or i.shape is None for i in infos):
        return None
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    shapes = [i.shape for i in infos if i is not None and i.shape is not None]
    if len(terms) != len(shapes) or infos[0] is None:
        return None
    sizes: dict[str, list[Dim]] = {}
    hidden: list[Shape] = []
    for term, shape in zip(terms, shapes, strict=True):
        found = _axes(term, shape)
        if found is None:
            return None
        labelled, middle = found
        hidden += [middle] if "..." in term else []
        for label, size in labelled:
            sizes.setdefault(label, []).append(size)
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        output = ("..." if hidden else "") + "".join(once)
    if len({len(s) for s in hidden}) > 1 or any(c not in sizes for c in output.replace("...", "")):
        return None
    try:
        spread = broadcast(hidden) if hidden else ()
        known = {label: _one(found) for label, found in sizes.items()}
    except InferenceError:
        return None
    before, dots, after = output.partition("...")
    dims = [*(known[c] for c in before), *((spread or ()) if dots else ()), *(known[c] for c in after)]
    return [tensor(infos[0].dtype, dims)]


def _one(found: Sequence[Dim]) -> Dim:
    shape = broadcast([(size,) for size in found])
    return None if shape is None else shape[0]


def _axes(term: str, shape: Shape) -> tuple[list[tuple[str, Dim]], Shape] | None:
    """The labels of a term with their sizes, and the sizes that its ellipsis stands for."""
    before, dots, after = term.partition("...")
    named = len(before) + len(after)
    if len(shape) < named or (not dots and len(shape) != named):
        return None
    end = len(shape) - len(after)
    labelled = [*zip(before, shape, strict=False), *zip(after, shape[end:], strict=True)]
    return labelled, shape[len(before) : end]
