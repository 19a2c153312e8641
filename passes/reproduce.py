"""Reproducers: a file that holds a module, the passes that go wrong on it, and the inputs that show it.

The file is MLIR text like any other module's; what is to be done with it stands in the attribute ``irkit.reproducer``
of the module. ``irkit opt --reproduce FILE`` does it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from irkit.errors import LoadError
from irkit.ir.attributes import string, text_of
from irkit.ir.constants import TensorAttr, constant
from irkit.ir.module import Module

__all__ = ["ATTRIBUTE", "Reproducer", "read_reproducer", "write_reproducer"]

ATTRIBUTE = "irkit.reproducer"


@dataclass
class Reproducer:
    """What a reproducer holds.

    Attributes:
        module: before the pass that went wrong.
        pipeline: the passes, as text.
        backends: on which it showed.
        feeds: the inputs that showed it; empty where they could not be kept, so that generated ones are to be used.
        message: what was found.
    """

    module: Module
    pipeline: str
    backends: tuple[str, ...] = ("numpy",)
    feeds: list[Mapping[str, Any]] = field(default_factory=list["Mapping[str, Any]"])
    message: str = ""


def write_reproducer(found: Reproducer, path: str | os.PathLike[str]) -> Path:
    """Writes a reproducer; weights stand in it as well, so that it is one file.

    Returns:
        Where it was written.

    Raises:
        SaveError: if it cannot be written.
    """
    from irkit.ir.text import save_text

    target = Path(path)
    kept = found.module.clone()
    feeds = [_feeds(fed) for fed in found.feeds]
    kept.op.attributes[ATTRIBUTE] = DictionaryAttr(
        {
            "pipeline": string(found.pipeline),
            "backends": ArrayAttr([string(name) for name in found.backends]),
            "feeds": ArrayAttr([ArrayAttr(fed) for fed in feeds if fed is not None]),
            "message": string(found.message),
        }
    )
    save_text(kept, target, constants="inline", locations=True)
    return target


def _feeds(feeds: Mapping[str, Any]) -> list[Attribute] | None:
    """Pairs of a name and a value; None where a value is no tensor or sequence of such."""
    made: list[Attribute] = []
    for name, value in feeds.items():
        attr = _value(value)
        if attr is None:
            return None
        made.append(ArrayAttr([string(name), attr]))
    return made


def _value(value: Any) -> Attribute | None:
    if isinstance(value, list):
        items = [_value(item) for item in cast("list[Any]", value)]
        return None if None in items else ArrayAttr(cast("list[Attribute]", items))
    if isinstance(value, np.ndarray | np.generic | int | float | bool):
        return constant(np.asarray(cast(Any, value)))
    return None


def read_reproducer(path: str | os.PathLike[str]) -> Reproducer:
    """Reads a reproducer.

    Raises:
        LoadError: if the file is none.
    """
    from irkit.dialects import context
    from irkit.ir.text import load_text

    if Path(path).suffix != ".mlir":
        raise LoadError(f"'{path}' is no reproducer", hint="a reproducer is an .mlir file")
    module = load_text(Path(path), context())
    attr = module.op.attributes.pop(ATTRIBUTE, None)
    if not isinstance(attr, DictionaryAttr) or not isinstance(attr.data.get("pipeline"), StringAttr):
        raise LoadError(f"'{path}' is no reproducer", hint="irkit opt --check each writes one when a pass fails")
    entries = attr.data
    return Reproducer(
        module.verify(),
        text_of(entries["pipeline"]),
        tuple(text_of(name) for name in _items(entries["backends"])),
        [_read_feeds(fed) for fed in _items(entries["feeds"])],
        text_of(entries["message"]),
    )


def _items(attr: Attribute) -> Sequence[Attribute]:
    return cast("ArrayAttr[Attribute]", attr).data


def _read_feeds(attr: Attribute) -> dict[str, Any]:
    return {text_of(_items(pair)[0]): _read_value(_items(pair)[1]) for pair in _items(attr)}


def _read_value(attr: Attribute) -> Any:
    return attr.data.array() if isinstance(attr, TensorAttr) else [_read_value(item) for item in _items(attr)]
