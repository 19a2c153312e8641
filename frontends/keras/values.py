"""Tensors on their way from Keras to the graph: each in the layouts that are at hand.

Keras's convolutions have their channels last, ONNX's first. A value remembers in which order its axes are really
stored, and is only transposed where an op needs it otherwise: a chain of convolutions, normalizations, additions and
concatenations stays channels-first from end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from irkit.frontends.keras.sizes import Dim
from irkit.ir.builder import Builder, Tensor

__all__ = ["FIRST", "LAST", "Value", "place", "to_first", "to_last"]

LAST, FIRST = "channels-last", "channels-first"
"""Layouts: axes as Keras has them (it need not be an image), or the last axis moved to place 1."""


def to_first(rank: int) -> list[int]:
    """The permutation that moves the last axis to place 1."""
    return [0, rank - 1, *range(1, rank - 1)]


def to_last(rank: int) -> list[int]:
    """The permutation that moves axis 1 to the end."""
    return [0, *range(2, rank), 1]


def place(axis: int, rank: int, layout: str) -> int:
    """Where an axis of Keras's is found in a layout."""
    axis %= rank
    return axis if layout == LAST else to_first(rank).index(axis)


class Value:
    """A tensor in one layout or in several.

    Attributes:
        shape: as Keras has it; sizes that depend on those of the inputs are a ``Dim``.
        dtype: by name.
        depth: of the graph that it was made in; 0 is the main graph.
        fill: the number that is everywhere in it, where that is known.
    """

    __slots__ = ("_forms", "_makers", "depth", "dtype", "fill", "shape")

    def __init__(
        self,
        shape: Sequence[int | Dim],
        dtype: str,
        form: Tensor | None = None,
        *,
        layout: str = LAST,
        depth: int = 0,
        makers: dict[str, Callable[[], Tensor]] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.depth = depth
        self.fill: float | None = None
        self._forms: dict[str, Tensor] = {} if form is None else {layout: form}
        self._makers = makers or {}

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements in the first trace."""
        return math.prod(d.values[0] if isinstance(d, Dim) else d for d in self.shape)

    @property
    def flat(self) -> bool:
        """Whether the axes between the first and the last are all of size 1, so that both layouts are one."""
        return all(d == 1 for d in self.shape[1:-1])

    def has(self, layout: str) -> bool:
        """Whether the tensor can be had in a layout without transposing it."""
        return layout in self._forms or layout in self._makers

    def any(self) -> Tensor:
        """The tensor in whichever layout it is at hand."""
        return next(iter(self._forms.values())) if self._forms else self.get(LAST, None)

    def get(self, layout: str, b: Builder | None) -> Tensor:
        """The tensor in a layout."""
        if layout in self._forms:
            return self._forms[layout]
        if layout in self._makers:
            made = self._makers[layout]()
        else:
            source = next(iter(self._forms or self._makers))
            assert b is not None
            made = b.Transpose(self.get(source, b), perm=to_first(self.rank) if layout == FIRST else to_last(self.rank))
        if b is None or b.depth == self.depth:
            self._forms[layout] = made
        return made
