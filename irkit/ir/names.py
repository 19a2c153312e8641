"""Names from files: kept exactly, in attributes; SSA names are only hints for the reader.

==================  =====================================================================
``onnx.name``       the name of the node
``onnx.outs``       the names of an op's results; ``""`` for one that the file leaves out
``onnx.doc``        the doc string
``onnx.meta``       ``metadata_props``, as an array of key-value pairs
``onnx.decl``       per result the type that the file declares (unit: the same as inferred; none: not declared)
``onnx.rest``       what the IR does not model, verbatim
==================  =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from irkit.ir.attributes import string, strings, text_of, texts_of

__all__ = [
    "DECL",
    "DOC",
    "META",
    "NAME",
    "OUTS",
    "REST",
    "hint",
    "metadata_of",
    "name_of",
    "node_name",
    "out_names",
    "set_metadata",
    "set_node_name",
    "set_out_names",
]

NAME, OUTS, DOC, META, DECL, REST = "onnx.name", "onnx.outs", "onnx.doc", "onnx.meta", "onnx.decl", "onnx.rest"

_NOT_IDENTIFIER = re.compile(r"[^A-Za-z0-9_$.-]")
_COUNTERS = re.compile(r"(_\d+)+$")


def hint(name: str | bytes) -> str | None:
    """An SSA name that resembles this one: legal in MLIR, and without the counters that xDSL's printer appends.

    Args:
        name: bytes where a file has a name that is not UTF-8.
    """
    plain = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    text = _COUNTERS.sub("", _NOT_IDENTIFIER.sub("_", plain))
    if not text or text == "_":
        return None
    return text if not (text[0].isdigit() or text[0] in ".-") else f"v{text}"


def node_name(op: Operation) -> str:
    """The name that the file gives this node, or ``""``."""
    attr = op.attributes.get(NAME)
    return "" if attr is None else text_of(attr)


def set_node_name(op: Operation, name: str) -> None:
    """Names a node."""
    op.attributes[NAME] = string(name)


def out_names(op: Operation) -> tuple[str, ...]:
    """The names of an op's results, as far as it has any."""
    attr = op.attributes.get(OUTS)
    return () if attr is None else texts_of(attr)


def set_out_names(op: Operation, names: Sequence[str]) -> None:
    """Names an op's results, and gives their SSA values matching hints."""
    op.attributes[OUTS] = strings(names)
    for result, name in zip(op.results, names, strict=False):
        result.name_hint = hint(name)


def name_of(value: SSAValue) -> str:
    """The name of an op's result in the file, or ``""``."""
    if not isinstance(value, OpResult):
        return ""
    names = out_names(value.op)
    return names[value.index] if value.index < len(names) else ""


def metadata_of(op: Operation) -> dict[str, str]:
    """The ``metadata_props`` of a node."""
    attr = op.attributes.get(META)
    if not isinstance(attr, ArrayAttr):
        return {}
    pairs = cast("ArrayAttr[Attribute]", attr).data
    return dict(cast("Iterable[tuple[str, str]]", map(texts_of, pairs)))


def set_metadata(op: Operation, metadata: dict[str, str]) -> None:
    """Sets the ``metadata_props`` of a node."""
    op.attributes[META] = ArrayAttr([strings(pair) for pair in metadata.items()])
