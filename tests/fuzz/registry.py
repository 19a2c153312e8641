"""The table of samplers, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.op import OpSpec

from .graph import Value

if TYPE_CHECKING:
    from .generate import Call, Context

    Sampler = Callable[[Context, OpSpec], Call]

__all__ = [
    "BOOL",
    "EXACT",
    "F32",
    "I32",
    "I64",
    "RANDOM",
    "ROUNDING",
    "SAMPLERS",
    "SCALES",
    "STRING",
    "UNSAMPLED",
    "axis_of",
    "exact",
    "largest",
    "partner",
    "samples",
    "scale",
]

SAMPLERS: dict[str, Sampler] = {}

EXACT: set[str] = set()
"""Ops whose results have the same bits in every right implementation, if their operands have."""

ROUNDING: set[str] = set()
"""Exact ops that round. In float16 and bfloat16 a runtime may leave that out between two of them."""

SCALES: dict[str, Callable[[list[Value]], float]] = {}
"""Ops whose rounding errors may be in proportion to something that is larger than their results."""

UNSAMPLED = {
    "Constant": "what operands are made of",
    "ImageDecoder": "needs files",
    "ml.CastMap": "maps are no values of these graphs",
    "ml.DictVectorizer": "maps are no values of these graphs",
    "ml.ZipMap": "maps are no values of these graphs",
    "preview.FlexAttention": "onnxruntime has none",
    "preview.training.Adagrad": "onnxruntime has none",
    "preview.training.Adam": "onnxruntime has none",
    "preview.training.Gradient": "is expanded by a pass",
    "preview.training.Momentum": "onnxruntime has none",
}
"""Ops without a sampler, and why."""

RANDOM: set[str] = set()
"""Ops that draw random numbers."""

F32, I32, I64, BOOL, STRING = ([BY_NAME[n]] for n in ("float32", "int32", "int64", "bool", "string"))


def samples(names: str, *, exactly: bool = False, random: bool = False) -> Callable[[Sampler], Sampler]:
    """Declares the sampler of some ops, names separated by spaces.

    Args:
        exactly: see ``EXACT``.
        random: see ``RANDOM``.
    """

    def register(function: Sampler) -> Sampler:
        for name in names.split():
            assert name not in SAMPLERS, name
            SAMPLERS[name] = function
            if exactly:
                EXACT.add(name)
            if random:
                RANDOM.add(name)
        return function

    return register


def scale(names: str, of: Callable[[list[Value]], float]) -> None:
    """Declares what the errors of some ops are in proportion to."""
    SCALES.update(dict.fromkeys(names.split(), of))


def largest(operands: list[Value]) -> float:
    """The largest magnitude among the elements of the first operand."""
    array = operands[0].array
    return float(np.abs(array.astype(np.float64)).max()) if array.size else 0.0


def exact(names: str, *, rounding: bool = False) -> None:
    """Declares some ops exact.

    Args:
        rounding: see ``ROUNDING``.
    """
    EXACT.update(names.split())
    if rounding:
        ROUNDING.update(names.split())


def axis_of(g: Context, rank: int) -> int:
    """An axis, counted from either end."""
    return g.pick([*range(rank), *range(-1, -rank - 1, -1)])


def partner(
    g: Context, x: Value, types: Sequence[DType] | None = None, span: tuple[float, float] | None = None
) -> Value:
    """An operand that can be broadcast with another, of the same dtype or of one of these; at times the same value."""

    def fits(value: Value) -> bool:
        try:
            np.broadcast_shapes(value.shape, x.shape)
        except ValueError:
            return False
        return True

    def shape() -> tuple[int, ...]:
        sizes = [size if g.below(4) else 1 for size in x.shape]
        if g.chance(4):
            sizes = [size if size != 1 else g.between(1, 3) for size in sizes]
        return tuple(sizes[g.below(len(sizes) + 1) :] if g.below(2) else sizes)

    return g.take([x.dtype] if types is None else types, 0, 4, span=span, fits=fits, shape=shape)
