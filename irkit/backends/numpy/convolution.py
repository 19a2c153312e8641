"""A convolution as a fused step: filters made ready once, and the program that follows run on each tile of the output.

What depends on the shape of the input alone is found out once per shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from irkit.backends.numpy import tiles
from irkit.backends.numpy.kernels._convolve import Place, Way, check_bias, conv_window, prepare
from irkit.backends.numpy.kernels._nn import Budget
from irkit.backends.numpy.plan import Step
from irkit.backends.numpy.programs import Program
from irkit.backends.numpy.registry import find_kernel
from irkit.backends.numpy.tiles import TileCode, compile_whole, explain, filled
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.types import tensor_info

__all__ = ["Convolution", "is_convolution"]

_CONV = find_kernel("", "Conv")
_ATTRIBUTES = {
    "group": 1,
    "pads": None,
    "auto_pad": "NOTSET",
    "strides": None,
    "dilations": None,
    "kernel_shape": None,
}


def is_convolution(step: Step) -> bool:
    """Whether a step is a Conv on float32 or float64."""
    assert _CONV is not None
    op = step.op
    if not isinstance(op, OnnxOp) or step.function is not _CONV.function:
        return False
    info = tensor_info(op.results[0].type)
    return info is not None and info.dtype.name in ("float32", "float64")


class Convolution:
    """A kernel that stands for a Conv and the elementwise steps behind it.

    Args:
        steps: all of them, the Conv first.
        filters: made ready; None where they come as an operand.
        loose_bias: whether the bias comes as an operand.
        program: what is run on each tile.
        slot: in which the program finds the output of the convolution.
        held: the values known now, by slot.

    Attributes:
        slots: of the operands: what the Conv reads, and what the program reads besides.
    """

    def __init__(
        self,
        steps: list[Step],
        filters: np.ndarray | None,
        loose_bias: bool,
        program: Program | None,
        slot: int,
        held: Mapping[int, Any],
    ) -> None:
        conv = steps[0]
        self.steps = steps
        self.held = held
        self.filters = filters
        self.loose_bias = loose_bias
        self.attributes = [conv.attributes.get(name, default) for name, default in _ATTRIBUTES.items()]
        self.tile = None if program is None else _OnTiles(program, slot)
        self.slots = (
            *(s for s, loose in zip(conv.inputs, (True, filters is None, loose_bias), strict=False) if loose),
            *(() if program is None else (s for s in program.slots if s != slot)),
        )
        self.shapes: dict[tuple[int, ...], _Shape] = {}

    def __call__(self, x: np.ndarray, *others: np.ndarray, budget: Budget) -> np.ndarray:
        try:
            if self.filters is None or self.loose_bias:
                return self._with_operands(x, list(others), budget)
            found = self.shapes.get(x.shape)
            if found is None:
                if len(self.shapes) >= tiles.REMEMBERED:
                    self.shapes.clear()
                found = self.shapes[x.shape] = self._shape(x, self.filters, budget)
            return self._run(found, x, None, others)
        except Exception:
            explain(self.steps, self.held, self.slots, (x, *others))
            raise

    def _with_operands(self, x: np.ndarray, others: list[np.ndarray], budget: Budget) -> np.ndarray:
        w = others.pop(0) if self.filters is None else self.filters
        bias = others.pop(0) if self.loose_bias else None
        check_bias(bias, w.shape[0])
        return self._run(self._shape(x, w, budget), x, bias, others)

    def _shape(self, x: np.ndarray, w: np.ndarray, budget: Budget) -> _Shape:
        group, *attributes = self.attributes
        return _Shape(prepare(x, w, group, conv_window(x, w, group, *attributes), budget), {})

    def _run(self, shape: _Shape, x: np.ndarray, bias: np.ndarray | None, others: Sequence[np.ndarray]) -> np.ndarray:
        way, tile = shape.way, self.tile
        y = np.empty(way.shape, x.dtype)
        done = way.run(x, y)
        if tile is not None and bias is None:
            key = tuple(other.shape for other in others)
            if key not in shape.parts:
                shape.parts[key] = tile.cut(way.shape, way.places, others)
            parts = shape.parts[key]
            if parts is not None:
                for some, _ in zip(parts, done, strict=True):
                    tile(y, some, others)
                return y
        for _ in done:
            pass
        if bias is not None:
            y += bias.reshape((-1,) + (1,) * (y.ndim - 2))
        return y if tile is None else tile.at_once(y, others)


@dataclass(slots=True)
class _Shape:
    """What is known of a convolution of inputs of one shape.

    Attributes:
        parts: by the shapes of the other operands, how the program is run on each tile; see ``_OnTiles.cut``.
    """

    way: Way
    parts: dict[tuple[tuple[int, ...], ...], list[list[_Part]] | None]


class _OnTiles:
    """A program that is run on tiles of one of its operands, and leaves its result there.

    Args:
        slot: of that operand.
    """

    def __init__(self, program: Program, slot: int) -> None:
        self.home = program.slots.index(slot)
        result = program.calls[-1].result
        self.code = TileCode(program, [result], home=f"i{self.home}")
        self.whole = compile_whole(program, [result])

    def at_once(self, y: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
        """The result for the whole of y, which may be larger."""
        return self.whole(*others[: self.home], y, *others[self.home :])[0]

    def __call__(self, y: np.ndarray, parts: list[_Part], others: Sequence[np.ndarray]) -> None:
        """Runs on the parts of one tile of y."""
        for part in parts:
            tile = y[part.at]
            operands = [x[cut] for x, cut in zip(others, part.cuts, strict=True)]
            operands.insert(self.home, tile)
            buffers = [tiles.aligned(tile.shape, y.dtype) for _ in range(self.code.buffers)]
            self.code.run(*operands, *part.constants, tile, *buffers, *part.filled)

    def cut(
        self, shape: tuple[int, ...], places: Sequence[Place], others: Sequence[np.ndarray]
    ) -> list[list[_Part]] | None:
        """The parts of each tile, which fit the cache; None where the result has not the shape of y."""
        if not all(_broadcasts(x.shape, shape) for x in (*others, *self.code.constants)):
            return None
        return [[] if 0 in shape else list(self._parts(shape, place, others)) for place in places]

    def _parts(self, shape: tuple[int, ...], place: Place, others: Sequence[np.ndarray]) -> Iterator[_Part]:
        rank, item = len(shape), self.code.element.itemsize
        channels, rows = (range(*s.indices(extent)) for s, extent in zip(place[1:], shape[1:3], strict=True))
        limit, rest = tiles.LARGEST * tiles.TILE_BYTES // item, prod(shape[3:])
        height = min(len(rows), max(1, limit // rest))
        many = min(len(channels), max(1, limit // (height * rest)))
        for c, r in product(channels[::many], rows[::height]):
            ends = min(c + many, channels.stop), min(r + height, rows.stop)
            at = place[0], slice(c, ends[0]), slice(r, ends[1])
            size = ends[0] - c, ends[1] - r, *shape[3:]
            yield _Part(
                at=at,
                cuts=[_index(x, at, rank) for x in others],
                constants=[x[_index(x, at, rank)] for x in self.code.constants],
                filled=[filled(value, size) for value in self.code.wanted],
            )


@dataclass(slots=True)
class _Part:
    """A tile on which a program is run.

    Attributes:
        at: its place in the output.
        cuts: the index of each of the other operands.
        constants: the program's, cut.
        filled: the numbers that are wanted as arrays.
    """

    at: Place
    cuts: list[Any]
    constants: list[np.ndarray]
    filled: list[np.ndarray]


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return shape == target or (
        len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape[::-1], target[::-1], strict=False))
    )


def _index(x: np.ndarray, at: Place, rank: int) -> Any:
    """The index of what an array, broadcast to the output of the given rank, has at a place of it."""
    missing = rank - x.ndim
    return tuple(at[a] if x.shape[a - missing] != 1 else slice(None) if a else 0 for a in range(missing, 3))
