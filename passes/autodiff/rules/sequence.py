"""Sequences and optionals: the cotangent of one is one of the same length, of cotangents of its elements."""

from __future__ import annotations

import numpy as np

from irkit.ir.builder import Tensor
from irkit.ir.types import OptType
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp, zero_value

proven_zero("SequenceLength OptionalHasElement", "gives integers or booleans")
proven_zero("SequenceAt SequenceErase", "a place", [1])
proven_zero("SequenceInsert", "a place", [2])
proven_zero("SplitToSequence", "sizes", [1])


def _place(g: Vjp, index: int, length: Tensor, default: Tensor) -> Tensor:
    """A place counted from the front: one below zero counts from the end, one not given is ``default``."""
    b, given = g.b, g.x(index)
    if given is None:
        return default
    place = g.cast(given, "int64")
    return b.Where(b.Less(place, g.i64(0)), b.Add(place, length), place)


@vjp("SequenceConstruct")
def construct(g: Vjp) -> Gradients:
    return [g.b.SequenceAt(g.ct_of(0), g.i64(i)) if g.needs(i) else None for i in range(g.n_operands)]


@vjp("SequenceAt")
def at(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    place = _place(g, 1, b.SequenceLength(x), g.i64(0))
    return b.SequenceInsert(b.SequenceErase(zero_value(b, x), place), g.ct, place)


@vjp("SequenceInsert")
def insert(g: Vjp) -> Gradients:
    b, ct = g.b, g.cts[0]
    if g.x(2) is None:
        # At the end, whatever the length: so a loop that collects values need not keep what it had before.
        place: Tensor | None = None
        last = g.i64(-1)
    else:
        length = b.SequenceLength(g.x(0))
        place = last = _place(g, 2, length, length)
    return (
        b.SequenceErase(ct, place) if g.needs(0) else None,
        b.SequenceAt(ct, last) if g.needs(1) else None,
    )


@vjp("SequenceErase")
def erase(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    length = b.SequenceLength(x)
    place = _place(g, 1, length, b.Sub(length, g.i64(1)))
    ct = g.cts[0]
    assert ct is not None
    return b.SequenceInsert(ct, g.zeros_like(b.SequenceAt(x, place)), place)


@vjp("SplitToSequence")
def split_to_sequence(g: Vjp) -> Tensor:
    new_axis = g.x(1) is None and not g.attr("keepdims")
    return g.b.ConcatFromSequence(g.cts[0], axis=g.attr("axis"), new_axis=int(new_axis))


@vjp("ConcatFromSequence")
def concat_from_sequence(g: Vjp) -> Tensor:
    b, axis = g.b, g.attr("axis")
    if g.attr("new_axis"):
        return b.SplitToSequence(g.ct, None, axis=axis, keepdims=0)

    def size(b: object, x: Tensor) -> Tensor:
        return x.builder.Gather(x.builder.Shape(x), np.asarray([axis], np.int64))

    lengths = b.ConcatFromSequence(b.SequenceMap(g.x(0), body=size), axis=0)
    return b.SplitToSequence(g.ct, lengths, axis=axis)


@vjp("Optional")
def optional(g: Vjp) -> Tensor:
    return g.b.OptionalGetElement(g.cts[0])


@vjp("OptionalGetElement")
def get_element(g: Vjp) -> Tensor | None:
    ct = g.cts[0]
    return g.b.Optional(ct) if isinstance(g.x(0).type, OptType) else ct
