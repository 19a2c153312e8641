"""Keeps what random ops draw: those without a name are told apart by their places, which passes change."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation

from irkit.backends.numpy.random import PLACE, SEED_ID
from irkit.dialects.onnx import Call
from irkit.ir.attributes import int_attr
from irkit.ir.module import Module
from irkit.ir.names import name_of
from irkit.ir.op import Random
from irkit.passes.rewrite import ops_in

__all__ = ["keep_places", "release_places"]


def _places(module: Module) -> Iterator[tuple[Operation, int]]:
    """The ops that draw, and the calls, of which nothing but their places tells what they draw."""
    for root in module.op.ops:
        drawing = 0
        calls: dict[Block | None, int] = {}
        for op in ops_in(root):
            if isinstance(op, Call):
                place = calls.get(op.parent, 0)
                calls[op.parent] = place + 1
            elif op.has_trait(Random):
                place = drawing
                drawing += 1
            else:
                continue
            if SEED_ID not in op.attributes and not (op.results and name_of(op.results[0])):
                yield op, place


def keep_places(module: Module) -> None:
    """Writes their places to ops, in place, where they are not written yet."""
    for op, place in _places(module):
        op.attributes.setdefault(PLACE, int_attr(place))


def release_places(module: Module) -> None:
    """Takes away what ``keep_places`` wrote where the op still has its place."""
    for op, place in _places(module):
        if op.attributes.get(PLACE) == int_attr(place):
            del op.attributes[PLACE]
