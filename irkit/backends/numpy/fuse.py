"""Runs of elementwise steps as one step, evaluated tile by tile: what one op writes the next reads from the cache.

A run is a sequence of neighbouring steps on float32 or float64 whose results all have one type. It becomes a small
program of ufunc calls, the same calls that the kernels make, so that the bits are the same. Small operands go through
the program at once. Large ones are cut along an axis into tiles of ``TILE_BYTES``; intermediate values live in a few
buffers of that size. A result is written over an operand where nothing else can see it: one that a step of ``FRESH``
made and that only this run reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from types import CodeType
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.numpy.control import Budget, Run, run_step
from irkit.backends.numpy.kernels.elementwise import BINARY, UNARY, UNARY_FLOAT
from irkit.backends.numpy.plan import ABSENT, Plan, Step
from irkit.backends.numpy.registry import find_kernel
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.op import is_absent
from irkit.ir.types import tensor_info

__all__ = ["FRESH", "TILE_BYTES", "fused_steps"]

TILE_BYTES = 256 << 10
"""The size of a tile of one value. Several must fit the second-level cache."""

REMEMBERED = 32
"""For so many combinations of operands' shapes a run keeps its tiles."""

FRESH = frozenset(
    "Add BatchNormalization Conv ConvTranspose Div Gemm InstanceNormalization LayerNormalization MatMul Mul Relu "
    "Sigmoid Softmax Sub Tanh".split()
)
"""Ops whose kernels always return memory of their own."""

_FLOATS = ("float32", "float64")


# Programs


@dataclass(slots=True)
class _Call:
    """``result = function(*operands, **options)``; a ufunc writes where it is told."""

    function: Callable[..., Any]
    operands: tuple[str, ...]
    result: str
    options: dict[str, Any]


class _Program:
    """Calls in order. Values have names: ``i0`` an operand, ``c0`` a constant, ``v0`` what a call computes."""

    def __init__(self, element: np.dtype[Any]) -> None:
        self.element = element
        self.slots: list[int] = []
        self.constants: list[np.ndarray] = []
        self.calls: list[_Call] = []
        self.names: dict[int, str] = {}

    def operand(self, slot: int) -> str:
        """The value in a slot of the plan."""
        found = self.names.get(slot)
        if found is None:
            found = self.names[slot] = f"i{len(self.slots)}"
            self.slots.append(slot)
        return found

    def constant(self, value: Any) -> str:
        """A value known now."""
        self.constants.append(np.asarray(value, self.element))
        return f"c{len(self.constants) - 1}"

    def call(self, function: Callable[..., Any], *operands: str, **options: Any) -> str:
        """Adds a call; returns the name of its result."""
        self.calls.append(_Call(function, operands, f"v{len(self.calls)}", options))
        return self.calls[-1].result


_Emit = Callable[[_Program, Step, Plan], "str | None"]
"""Adds the calls of a step to a program; None, and nothing added, where it cannot be done."""


def _operands(program: _Program, step: Step) -> list[str]:
    return [program.operand(slot) for slot in step.inputs]


def _ufunc(function: np.ufunc) -> _Emit:
    return lambda program, step, plan: program.call(function, *_operands(program, step))


def _folded(function: np.ufunc) -> _Emit:
    def emit(program: _Program, step: Step, plan: Plan) -> str | None:
        if len(step.inputs) < 2:
            return None
        total, *others = _operands(program, step)
        for operand in others:
            total = program.call(function, total, operand)
        return total

    return emit


def _kernel(program: _Program, step: Step, plan: Plan) -> str:
    return program.call(step.function, *_operands(program, step), **step.attributes)


def _relu(program: _Program, step: Step, plan: Plan) -> str:
    return program.call(np.maximum, *_operands(program, step), program.constant(0))


def _sigmoid(program: _Program, step: Step, plan: Plan) -> str:
    e = program.call(np.exp, program.call(np.negative, *_operands(program, step)))
    return program.call(np.reciprocal, program.call(np.add, e, program.constant(1)))


def _clip(program: _Program, step: Step, plan: Plan) -> str | None:
    """Clip with constant bounds."""
    bounds = [(f, s) for f, s in zip((np.maximum, np.minimum), step.inputs[1:], strict=False) if s != ABSENT]
    if not bounds or any(s not in plan.constants or plan.constants[s].size != 1 for _, s in bounds):
        return None
    value = program.operand(step.inputs[0])
    for function, slot in bounds:
        value = program.call(function, value, program.constant(plan.constants[slot].reshape(())))
    return value


def _batch_normalization(program: _Program, step: Step, plan: Plan) -> str | None:
    """BatchNormalization at inference with constant parameters."""
    info = tensor_info(step.op.operands[0].type)
    if step.attributes.get("training_mode") or len(step.op.results) != 1 or info is None or len(info.shape or ()) < 2:
        return None
    if any(slot not in plan.constants for slot in step.inputs[1:]):
        return None
    scale, bias, mean, variance = (plan.constants[slot] for slot in step.inputs[1:])
    if scale.ndim != 1 or not scale.shape == bias.shape == mean.shape == variance.shape:
        return None
    factor = scale / np.sqrt(variance + program.element.type(step.attributes["epsilon"]))
    along = (-1,) + (1,) * (len(info.shape or ()) - 2)
    value = program.operand(step.inputs[0])
    for function, parameter in ((np.subtract, mean), (np.multiply, factor), (np.add, bias)):
        value = program.call(function, value, program.constant(parameter.reshape(along)))
    return value


_EMIT: dict[str, _Emit] = {
    **{name: _ufunc(function) for name, function in {**UNARY, **UNARY_FLOAT}.items()},
    **{name: _ufunc(BINARY[name]) for name in ("Add", "Sub", "Mul")},
    "Div": _ufunc(np.divide),
    "Max": _folded(np.maximum),
    "Min": _folded(np.minimum),
    "Sum": _folded(np.add),
    "Relu": _relu,
    "Sigmoid": _sigmoid,
    "Clip": _clip,
    "BatchNormalization": _batch_normalization,
    **dict.fromkeys(
        "Celu Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Softplus Softsign Swish ThresholdedRelu".split(),
        _kernel,
    ),
}
"""How an op on floats is written as calls. The results are the kernel's own, to the bit."""

_KERNELS = {name: find_kernel("", name) for name in _EMIT}


# Runs


def fused_steps(plan: Plan) -> list[Step]:
    """The steps of a plan with runs of elementwise steps fused, in order."""
    readers: dict[int, int] = dict.fromkeys(plan.outputs, 2)
    fresh: set[int] = set()
    for step in plan.steps:
        for slot in step.reads():
            readers[slot] = readers.get(slot, 0) + 1
        if isinstance(step.op, OnnxOp) and not step.op.domain and step.op.op_type in FRESH:
            fresh.add(step.outputs[0])
    own = {slot for slot in fresh if readers.get(slot) == 1}
    made: list[Step] = []
    for key, steps in _runs(plan):
        made += steps if key is None else _fuse(steps, plan, own)
    return made


def _key(step: Step) -> Attribute | None:
    """The type that a step shares with the others of its run; None where it is not elementwise on floats."""
    op = step.op
    if not isinstance(op, OnnxOp) or op.domain or not op.current or op.op_type not in _EMIT:
        return None
    kernel = _KERNELS[op.op_type]
    if kernel is None or step.function is not kernel.function:
        return None
    infos = [tensor_info(value.type) for value in (*op.operands, *op.results) if not is_absent(value)]
    elements = {None if info is None else info.dtype.name for info in infos}
    return op.results[0].type if len(elements) == 1 and elements <= set(_FLOATS) else None


def _runs(plan: Plan) -> Iterator[tuple[Attribute | None, list[Step]]]:
    """The steps in order, neighbours of one key together."""
    run: list[Step] = []
    current: Attribute | None = None
    for step in plan.steps:
        key = _key(step)
        if run and key != current:
            yield current, run
            run = []
        current = key
        run.append(step)
    if run:
        yield current, run


def _fuse(steps: list[Step], plan: Plan, own: set[int]) -> list[Step]:
    """A run as few steps; one that no program can hold stands for itself."""
    info = tensor_info(steps[0].op.results[0].type)
    assert info is not None
    made: list[Step] = []
    while steps:
        program, count = _Program(info.dtype.numpy), 0
        for step in steps:
            assert isinstance(step.op, OnnxOp)
            value = _EMIT[step.op.op_type](program, step, plan)
            if value is None:
                break
            program.names[step.outputs[0]] = value
            count += 1
        made.append(_step(program, steps[:count], plan, own) if count else steps[0])
        steps = steps[max(count, 1) :]
    return made


def _step(program: _Program, steps: list[Step], plan: Plan, own: set[int]) -> Step:
    """The step that runs a program. One op that cannot be written over its operand stays as it is."""
    over = [slot in own for slot in program.slots]
    if len(steps) == 1 and not any(over):
        return steps[0]
    freed = {slot for step in steps for slot in step.frees}
    outputs = tuple(step.outputs[0] for step in steps if step.outputs[0] not in freed)
    return Step(
        op=steps[-1].op,
        function=_Run(program, steps, plan.constants, outputs, over),
        inputs=tuple(program.slots),
        outputs=outputs,
        many=True,
        frees=tuple(sorted(freed - {step.outputs[0] for step in steps})),
    )


# Running


@dataclass(slots=True)
class _Tiles:
    """How operands of certain shapes are cut.

    Attributes:
        shape: of every result.
        operands: per operand the index of each tile; None where every tile takes it whole.
        results: the index of each tile.
        sizes: the extent of each tile along the axis that is cut.
        buffer: the shape of a buffer.
    """

    shape: tuple[int, ...]
    operands: list[list[Any] | None]
    results: list[Any]
    sizes: list[int]
    buffer: tuple[int, ...]


class _Run:
    """A program as a kernel: takes the operands, returns the tuple of results.

    Args:
        steps: what it stands for; they are run one by one where it fails, to say which of them did.
        constants: of the plan.
        outputs: the slots of the results.
        over: per operand whether it may be written over.
    """

    def __init__(
        self,
        program: _Program,
        steps: list[Step],
        constants: Mapping[int, Any],
        outputs: tuple[int, ...],
        over: list[bool],
    ) -> None:
        self.program = program
        self.steps = steps
        self.plan_constants = constants
        self.results = [program.names[slot] for slot in outputs]
        self.limit = TILE_BYTES // program.element.itemsize
        self.remembered: dict[tuple[tuple[int, ...], ...], _Tiles | None] = {}
        self.last_use = {name: n for n, call in enumerate(program.calls) for name in call.operands}
        self.over = self._candidates(over)
        self.whole = self._compile_whole()
        self.tile: Callable[..., None] | None = None
        self.buffers = 0

    def __call__(self, *operands: np.ndarray) -> tuple[Any, ...]:
        try:
            for operand in operands:
                if operand.size > self.limit:
                    return self._by_tiles(operands)
            return self.whole(*operands)
        except Exception:
            self._explain(operands)
            raise

    def _explain(self, operands: Sequence[np.ndarray]) -> None:
        """Runs the steps one by one, so that the one that fails says so."""
        values: dict[int, Any] = {**self.plan_constants, **dict(zip(self.program.slots, operands, strict=True))}
        run = Run(Budget(), 0, lambda *_: ())
        for step in self.steps:
            (values[step.outputs[0]],) = run_step(step, [values.get(slot) for slot in step.inputs], {}, run, 0)

    def _candidates(self, over: list[bool]) -> list[list[int]]:
        """Per result the operands that it may be written over: none of them is read after the result is written."""
        computed = {call.result: n for n, call in enumerate(self.program.calls)}
        return [
            [i for i, allowed in enumerate(over) if allowed and self.last_use[f"i{i}"] <= computed[result]]
            for result in self.results
        ]

    def _by_tiles(self, operands: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
        program = self.program
        given = (*operands, *program.constants)
        shapes = tuple(x.shape for x in given)
        if shapes not in self.remembered:
            if len(self.remembered) >= REMEMBERED:
                self.remembered.clear()
            self.remembered[shapes] = self._cut(shapes)
        tiles = self.remembered[shapes]
        if tiles is None or any(x.dtype != program.element for x in operands):
            return self.whole(*operands)
        if self.tile is None:
            # Set last: another thread may look at the same time.
            tile, self.buffers = self._compile_tile()
            self.tile = tile
        taken: set[int] = set()
        results = tuple(self._target(operands, candidates, tiles.shape, taken) for candidates in self.over)
        buffers = [np.empty(tiles.buffer, program.element) for _ in range(self.buffers)]
        for n, (where, size) in enumerate(zip(tiles.results, tiles.sizes, strict=True)):
            self.tile(
                *(x if cuts is None else x[cuts[n]] for x, cuts in zip(given, tiles.operands, strict=True)),
                *(result[where] for result in results),
                *(buffer[:size] for buffer in buffers),
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

    def _cut(self, shapes: tuple[tuple[int, ...], ...]) -> _Tiles | None:
        """The tiles for operands and constants of these shapes; None where not all values have the results' shape."""
        names = [f"i{n}" for n in range(len(self.program.slots))]
        names += [f"c{n}" for n in range(len(self.program.constants))]
        found = dict(zip(names, shapes, strict=True))
        for call in self.program.calls:
            found[call.result] = np.broadcast_shapes(*(found[name] for name in call.operands))
        shape = found[self.program.calls[-1].result]
        if any(found[call.result] != shape for call in self.program.calls):
            return None
        axis = next(a for a in range(len(shape)) if prod(shape[a + 1 :]) <= self.limit)
        extent, rest = shape[axis], prod(shape[axis + 1 :])
        rows = min(extent, self.limit // max(rest, 1))
        parts = [slice(start, min(start + rows, extent)) for start in range(0, extent, rows)]
        places = [(*lead, part) for lead in product(*map(range, shape[:axis])) for part in parts]
        return _Tiles(
            shape=shape,
            operands=[_cuts(s, places, len(shape)) for s in shapes],
            results=places,
            sizes=[place[-1].stop - place[-1].start for place in places],
            buffer=(rows, *shape[axis + 1 :]),
        )

    # Code

    def _names(self) -> dict[str, Any]:
        program = self.program
        names: dict[str, Any] = {f"c{n}": value for n, value in enumerate(program.constants)}
        for n, call in enumerate(program.calls):
            names[f"f{n}"] = call.function
            names.update((f"a{n}_{name}", value) for name, value in call.options.items())
        return {**names, "asarray": np.asarray}

    def _text(self, n: int, spell: Callable[[str], str]) -> str:
        call = self.program.calls[n]
        parts = [*map(spell, call.operands), *(f"{name}=a{n}_{name}" for name in call.options)]
        return f"f{n}({', '.join(parts)}"

    def _compile_whole(self) -> Callable[..., tuple[Any, ...]]:
        """The program on whole operands."""
        parameters = ", ".join(f"i{n}" for n in range(len(self.program.slots)))
        lines = [f"def whole({parameters}):"]
        lines += [f" {call.result} = {self._text(n, str)})" for n, call in enumerate(self.program.calls)]
        lines.append(f" return ({''.join(f'asarray({name}), ' for name in self.results)})")
        return _function("whole", lines, self._names())

    def _compile_tile(self) -> tuple[Callable[..., None], int]:
        """The program on tiles of operands and constants, results and buffers; and the number of buffers."""
        places = {name: f"o{n}" for n, name in enumerate(self.results)}
        free: list[str] = []
        count = 0
        lines: list[str] = []
        for n, call in enumerate(self.program.calls):
            text = self._text(n, lambda name: places.get(name, name))
            # A buffer whose value is read here for the last time may take the result: calls work element by element.
            free += {
                places[name]
                for name in call.operands
                if self.last_use[name] == n and places.get(name, "").startswith("b")
            }
            if isinstance(call.function, np.ufunc):
                if call.result not in places:
                    if not free:
                        free.append(f"b{count}")
                        count += 1
                    places[call.result] = free.pop()
                lines.append(f" {text}, out={places[call.result]})")
            elif call.result in places:
                lines.append(f" {places[call.result]}[...] = {text})")
            else:
                lines.append(f" {call.result} = {text})")
        parameters = [f"i{n}" for n in range(len(self.program.slots))]
        parameters += [f"c{n}" for n in range(len(self.program.constants))]
        parameters += [f"o{n}" for n in range(len(self.results))] + [f"b{n}" for n in range(count)]
        return _function("tile", [f"def tile({', '.join(parameters)}):", *lines], self._names()), count


def _function(name: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    exec(_code("\n".join(lines)), names)
    return names[name]


@lru_cache(4096)
def _code(source: str) -> CodeType:
    """Graphs repeat themselves: many runs have the same source, and differ in what its names stand for."""
    return compile(source, "<elementwise>", "exec")


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
