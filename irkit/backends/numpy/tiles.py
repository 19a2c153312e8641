"""Programs run tile by tile: what one call writes the next reads from the cache.

Small operands go through a program at once. Large ones are cut along an axis into tiles of ``TILE_BYTES``; intermediate
values live in a few buffers of that size. A result is written over an operand where the caller says that nothing else
can see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from types import CodeType
from typing import Any

import numpy as np

from irkit.backends.numpy.control import Budget, Run, run_step
from irkit.backends.numpy.plan import Step
from irkit.backends.numpy.programs import Program

__all__ = ["TILE_BYTES", "TiledProgram", "aligned", "explain", "filled"]

TILE_BYTES = 160 << 10
"""The size of a tile of one value. Several must fit the second-level cache."""

LARGEST = 4
"""A program of few calls is run on tiles so many times as large: each costs some microseconds of Python."""

CACHE_LINE = 64
"""Bytes."""

HOT = 16
"""An operand that is read so often is worth a copy that begins at a cache line."""

REMEMBERED = 32
"""For so many combinations of operands' shapes a program keeps its tiles."""

_COMPARE = (np.maximum, np.minimum)
"""Ufuncs whose loops are quick on two arrays of one shape, and several times slower on an array and a number."""


@lru_cache(16)
def _filled(value: bytes, element: np.dtype[Any], size: int) -> np.ndarray:
    made = np.full(size, np.frombuffer(value, element)[0], element)
    made.flags.writeable = False
    return made


def aligned(shape: tuple[int, ...], element: np.dtype[Any]) -> np.ndarray:
    """An array for intermediate values that begins at a cache line, so that no vector lies across two: NumPy's begin 16
    bytes behind one, and calls on them take a tenth longer."""
    size = prod(shape) * element.itemsize
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(element).reshape(shape)


def filled(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A number as an array of a tile's shape; the number itself where that is larger than any tile."""
    size, limit = prod(shape), LARGEST * TILE_BYTES // value.itemsize
    return value if size > limit else _filled(value.tobytes(), value.dtype, limit)[:size].reshape(shape)


def explain(steps: Sequence[Step], held: Mapping[int, Any], slots: Sequence[int], operands: Sequence[Any]) -> None:
    """Runs fused steps one by one, so that the one that fails says so.

    Args:
        held: the values known beforehand, by slot.
        slots: of the operands.

    Raises:
        ExecutionError: naming the step.
    """
    values: dict[int, Any] = {**held, **dict(zip(slots, operands, strict=True))}
    run = Run(Budget(), 0, lambda *_: ())
    for step in steps:
        values[step.outputs[0]] = run_step(step, [values.get(slot) for slot in step.inputs], {}, run, 0)[0]


@dataclass(slots=True)
class _Tiles:
    """How operands of certain shapes are cut.

    Attributes:
        shape: of every result.
        operands: per operand the index of each tile; None where every tile takes it whole.
        results: the index of each tile.
        sizes: the extent of each tile along the axis that is cut.
        buffer: the shape of a buffer.
        filled: the constants that are wanted as arrays.
    """

    shape: tuple[int, ...]
    operands: list[list[Any] | None]
    results: list[Any]
    sizes: list[int]
    buffer: tuple[int, ...]
    filled: list[np.ndarray]


class TiledProgram:
    """A program as a kernel: takes the operands, returns the tuple of results.

    Args:
        steps: what it stands for; they are run one by one where it fails, to say which of them did.
        outputs: the slots of the results.
        over: per operand whether it may be written over.
    """

    def __init__(self, program: Program, steps: list[Step], outputs: tuple[int, ...], over: list[bool]) -> None:
        self.program = program
        self.steps = steps
        self.results = [program.names[slot] for slot in outputs]
        self.limit = TILE_BYTES // program.element.itemsize
        self.remembered: dict[tuple[tuple[int, ...], ...], _Tiles | None] = {}
        self.over = self._candidates(over)
        self.whole = compile_whole(program, self.results)
        self.tile: TileCode | None = None

    def __call__(self, *operands: np.ndarray) -> tuple[Any, ...]:
        try:
            for operand in operands:
                if operand.size > self.limit:
                    return self._by_tiles(operands)
            return self.whole(*operands)
        except Exception:
            explain(self.steps, self.program.held, self.program.slots, operands)
            raise

    def _candidates(self, over: list[bool]) -> list[list[int]]:
        """Per result the operands that it may be written over: none of them is read after the result is written."""
        computed = {call.result: n for n, call in enumerate(self.program.calls)}
        last_use = last_uses(self.program)
        return [
            [i for i, allowed in enumerate(over) if allowed and last_use[f"i{i}"] <= computed[result]]
            for result in self.results
        ]

    def _by_tiles(self, operands: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
        program = self.program
        if self.tile is None:
            self.tile = TileCode(program, self.results)
        given = (*operands, *self.tile.constants)
        shapes = tuple(x.shape for x in given)
        if shapes not in self.remembered:
            if len(self.remembered) >= REMEMBERED:
                self.remembered.clear()
            self.remembered[shapes] = self._cut(operands, given, self.tile.wanted)
        tiles = self.remembered[shapes]
        if tiles is None or any(x.dtype != program.element for x in operands):
            return self.whole(*operands)
        taken: set[int] = set()
        results = tuple(self._target(operands, candidates, tiles.shape, taken) for candidates in self.over)
        buffers = [aligned(tiles.buffer, program.element) for _ in range(self.tile.buffers)]
        moved = {
            i: aligned(tiles.buffer, program.element)
            for i in self.tile.hot
            if given[i].shape == tiles.shape and given[i].ctypes.data % CACHE_LINE
        }
        for n, (where, size) in enumerate(zip(tiles.results, tiles.sizes, strict=True)):
            parts = [x if cuts is None else x[cuts[n]] for x, cuts in zip(given, tiles.operands, strict=True)]
            for i, buffer in moved.items():
                buffer[:size] = parts[i]
                parts[i] = buffer[:size]
            self.tile.run(
                *parts,
                *(result[where] for result in results),
                *(buffer[:size] for buffer in buffers),
                *(array if array.ndim == 0 else array[:size] for array in tiles.filled),
            )
        return results

    def _target(
        self, operands: tuple[np.ndarray, ...], candidates: list[int], shape: tuple[int, ...], taken: set[int]
    ) -> np.ndarray:
        """The array that a result is written to: an operand's, or a new one."""
        for i in candidates:
            x = operands[i]
            if i not in taken and x.shape == shape and x.flags.writeable and x.flags.c_contiguous:
                taken.add(i)
                return x
        return np.empty(shape, self.program.element)

    def _cut(
        self, operands: Sequence[np.ndarray], given: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
    ) -> _Tiles | None:
        """The tiles for what is given to them; None where not all values have the results' shape."""
        program = self.program
        found = {f"i{n}": x.shape for n, x in enumerate(operands)}
        found.update((f"c{n}", x.shape) for n, x in enumerate(program.constants))
        for call in program.calls:
            found[call.result] = np.broadcast_shapes(*(found[name] for name in call.operands))
        shape = found[program.calls[-1].result]
        if any(found[call.result] != shape for call in program.calls):
            return None
        axis = next(a for a in range(len(shape)) if prod(shape[a + 1 :]) <= self.limit)
        extent, rest = shape[axis], prod(shape[axis + 1 :])
        rows = min(extent, self.limit // max(rest, 1))
        parts = [slice(start, min(start + rows, extent)) for start in range(0, extent, rows)]
        places = [(*lead, part) for lead in product(*map(range, shape[:axis])) for part in parts]
        buffer = (rows, *shape[axis + 1 :])
        return _Tiles(
            shape=shape,
            operands=[_cuts(x.shape, places, len(shape)) for x in given],
            results=places,
            sizes=[place[-1].stop - place[-1].start for place in places],
            buffer=buffer,
            filled=[filled(value, buffer) for value in wanted],
        )


def _cuts(shape: tuple[int, ...], places: Sequence[tuple[Any, ...]], rank: int) -> list[Any] | None:
    """Per place the index of an operand that is broadcast to the place's array; None where it is all of it always."""
    missing = rank - len(shape)
    depth = len(places[0])
    sized = [axis for axis in range(missing, depth) if shape[axis - missing] != 1]
    if not sized:
        # Leading axes of size 1 are dropped with those of the place.
        surplus = max(depth - 1 - missing, 0)
        return [(0,) * surplus] * len(places) if surplus else None
    axes = range(missing, depth)
    return [tuple((place[a] if a in sized else slice(None) if a == depth - 1 else 0) for a in axes) for place in places]


# Code


def last_uses(program: Program) -> dict[str, int]:
    """Per value the last call that reads it."""
    return {name: n for n, call in enumerate(program.calls) for name in call.operands}


def compile_whole(program: Program, results: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """The program on whole operands, as a function of them."""
    parameters = ", ".join(f"i{n}" for n in range(len(program.slots)))
    lines = [f"def whole({parameters}):"]
    lines += [f" {call.result} = {_text(program, n, str)})" for n, call in enumerate(program.calls)]
    lines.append(f" return ({''.join(f'asarray({name}), ' for name in results)})")
    return _function("whole", lines, _names(program))


class TileCode:
    """A program on tiles.

    Args:
        home: the operand whose memory is that of the only result, too.

    Attributes:
        run: takes tiles of operands and of ``constants``, of results, the buffers, and ``wanted`` as arrays of the
            tile's shape.
        constants: those that are no numbers.
        buffers: how many.
        element: the dtype of all.
        hot: the operands that many calls read.
        wanted: the numbers that are taken as arrays.
    """

    def __init__(self, program: Program, results: Sequence[str], home: str | None = None) -> None:
        wanted: list[int] = []
        places = {name: f"o{n}" for n, name in enumerate(results)}
        free: list[str] = []
        self.buffers = 0
        self.element = program.element
        lines: list[str] = []
        last_use = last_uses(program)
        if home is not None:
            places[home] = "o0"
        for n, call in enumerate(program.calls):
            text = _text(program, n, _spell(program, n, places, wanted))
            # Memory whose value is read here for the last time may take the result: calls work element by element.
            dying = {places[name] for name in call.operands if last_use[name] == n and name in places}
            free += sorted(place for place in dying if place.startswith("b") or (place == "o0" and home is not None))
            if call.into:
                if call.result not in places:
                    if not free:
                        free.append(f"b{self.buffers}")
                        self.buffers += 1
                    places[call.result] = free.pop()
                lines.append(f" {text}, out={places[call.result]})")
            elif call.result in places:
                lines.append(f" {places[call.result]}[...] = {text})")
            else:
                lines.append(f" {call.result} = {text})")
        arrays = [n for n, value in enumerate(program.constants) if value.ndim]
        reads = Counter(name for call in program.calls for name in call.operands)
        self.hot = [n for n in range(len(program.slots)) if reads[f"i{n}"] >= HOT]
        self.constants = [program.constants[n] for n in arrays]
        self.wanted = [program.constants[n].reshape(()) for n in wanted]
        parameters = [f"i{n}" for n in range(len(program.slots))] + [f"c{n}" for n in arrays]
        parameters += [f"o{n}" for n in range(len(results))] + [f"b{n}" for n in range(self.buffers)]
        parameters += [f"z{n}" for n in wanted]
        self.run = _function("tile", [f"def tile({', '.join(parameters)}):", *lines], _names(program))


def _spell(program: Program, n: int, places: Mapping[str, str], wanted: list[int]) -> Callable[[str], str]:
    """How a call spells its operands; numbers that it is quicker on as arrays are added to ``wanted``."""

    def spell(name: str) -> str:
        if name.startswith("c") and program.calls[n].function in _COMPARE:
            index = int(name[1:])
            if program.constants[index].size == 1:
                if index not in wanted:
                    wanted.append(index)
                return f"z{index}"
        return places.get(name, name)

    return spell


def _names(program: Program) -> dict[str, Any]:
    names: dict[str, Any] = {f"c{n}": value for n, value in enumerate(program.constants)}
    for n, call in enumerate(program.calls):
        names[f"f{n}"] = call.function
        names.update((f"a{n}_{name}", value) for name, value in call.options.items())
    return {**names, "asarray": np.asarray}


def _text(program: Program, n: int, spell: Callable[[str], str]) -> str:
    call = program.calls[n]
    parts = [*map(spell, call.operands), *(f"{name}=a{n}_{name}" for name in call.options)]
    return f"f{n}({', '.join(parts)}"


def _function(name: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    exec(_code("\n".join(lines)), names)
    return names[name]


@lru_cache(4096)
def _code(source: str) -> CodeType:
    """Graphs repeat themselves: many programs have the same source, and differ in what its names stand for."""
    return compile(source, "<elementwise>", "exec")
