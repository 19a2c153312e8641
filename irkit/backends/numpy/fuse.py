"""Runs of elementwise steps as one step, evaluated tile by tile: what one op writes the next reads from the cache.

A run is a sequence of neighbouring steps on float32 or float64 whose results all have one type. It becomes a small
program of ufunc calls, the same calls that the kernels make, so that the bits are the same. Small operands go through
the program at once. Large ones are cut along an axis into tiles of ``TILE_BYTES``; intermediate values live in a few
buffers of that size. The result is written over an operand where nothing else can see it: one that a step of ``FRESH``
made and that only this run reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.numpy.kernels.elementwise import BINARY, UNARY, UNARY_FLOAT
from irkit.backends.numpy.plan import ABSENT, Plan, Step
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.types import tensor_info

__all__ = ["FRESH", "TILE_BYTES", "fused_steps"]

TILE_BYTES = 128 << 10
"""The size of a tile of one value. Several must fit the second-level cache."""

REMEMBERED = 32
"""For so many combinations of input shapes a run keeps its tiles."""

FRESH = frozenset(
    "Add BatchNormalization Conv ConvTranspose Div Gemm InstanceNormalization LayerNormalization MatMul Mul Relu "
    "Sigmoid Softmax Sub Sum Tanh".split()
)
"""Ops whose kernels always return memory of their own."""

_FLOATS = ("float32", "float64")


@dataclass(slots=True)
class _Instruction:
    """One call of a program: ``result = function(*operands, **options)``; a ufunc writes where it is told."""

    function: Callable[..., Any]
    operands: tuple[int, ...]
    result: int
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_ufunc(self) -> bool:
        return isinstance(self.function, np.ufunc)


class _Program:
    """A program in the making. Values are numbered: first the operands, then what instructions compute."""

    def __init__(self, element: np.dtype[Any]) -> None:
        self.element = element
        self.slots: list[int] = []
        self.bound: list[np.ndarray] = []
        self.sources: list[int] = []
        self.numbers: dict[int, int] = {}
        self.instructions: list[_Instruction] = []
        self.count = 0

    def operand(self, slot: int) -> int:
        """The number of the value in a slot of the plan."""
        found = self.numbers.get(slot)
        if found is None:
            found = self.numbers[slot] = self.count
            self.slots.append(slot)
            self.sources.append(found)
            self.count += 1
        return found

    def constant(self, value: Any) -> int:
        """The number of a value known now."""
        self.bound.append(np.asarray(value, self.element))
        self.sources.append(self.count)
        self.count += 1
        return self.count - 1

    def call(self, function: Callable[..., Any], *operands: int, **options: Any) -> int:
        """Adds an instruction; returns the number of its result."""
        self.instructions.append(_Instruction(function, operands, self.count, options))
        self.count += 1
        return self.count - 1


# Which ops, and as what calls

_Emit = Callable[[_Program, Step, "list[int]"], "int | None"]


def _ufunc(function: np.ufunc) -> _Emit:
    return lambda program, step, operands: program.call(function, *operands)


def _folded(function: np.ufunc) -> _Emit:
    def emit(program: _Program, step: Step, operands: list[int]) -> int | None:
        if len(operands) < 2:
            return None
        total = operands[0]
        for operand in operands[1:]:
            total = program.call(function, total, operand)
        return total

    return emit


def _kernel(program: _Program, step: Step, operands: list[int]) -> int:
    return program.call(step.function, *operands, **step.attributes)


def _relu(program: _Program, step: Step, operands: list[int]) -> int:
    return program.call(np.maximum, operands[0], program.constant(0))


def _sigmoid(program: _Program, step: Step, operands: list[int]) -> int:
    e = program.call(np.exp, program.call(np.negative, operands[0]))
    return program.call(np.reciprocal, program.call(np.add, e, program.constant(1)))


_EMIT: dict[str, _Emit] = {
    **{name: _ufunc(function) for name, function in {**UNARY, **UNARY_FLOAT}.items()},
    **{name: _ufunc(BINARY[name]) for name in ("Add", "Sub", "Mul")},
    "Div": _ufunc(np.divide),
    "Max": _folded(np.maximum),
    "Min": _folded(np.minimum),
    "Sum": _folded(np.add),
    "Relu": _relu,
    "Sigmoid": _sigmoid,
    **dict.fromkeys(
        "Celu Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Softplus Softsign Swish ThresholdedRelu".split(),
        _kernel,
    ),
}
"""How an op on floats is written as calls. The results must be the kernel's own, to the bit."""


def _clip(program: _Program, step: Step, plan: Plan) -> int | None:
    """Clip with constant bounds."""
    bounds = [plan.constants.get(slot) for slot in step.inputs[1:] if slot != ABSENT]
    if any(bound is None or bound.size != 1 for bound in bounds):
        return None
    value = program.operand(step.inputs[0])
    for function, slot in zip((np.maximum, np.minimum), step.inputs[1:], strict=False):
        if slot != ABSENT:
            value = program.call(function, value, program.constant(plan.constants[slot].reshape(())))
    return value


def _batch_normalization(program: _Program, step: Step, plan: Plan) -> int | None:
    """BatchNormalization at inference with constant parameters."""
    parameters = [plan.constants.get(slot) for slot in step.inputs[1:]]
    info = tensor_info(step.op.operands[0].type)
    if step.attributes.get("training_mode") or len(step.op.results) != 1 or info is None or info.shape is None:
        return None
    if len(info.shape) < 2 or any(p is None or p.dtype != program.element or p.ndim != 1 for p in parameters):
        return None
    scale, bias, mean, variance = (p for p in parameters if p is not None)
    if not scale.size == bias.size == mean.size == variance.size:
        return None
    along = (-1,) + (1,) * (len(info.shape) - 2)
    factor = scale / np.sqrt(variance + program.element.type(step.attributes["epsilon"]))
    value = program.operand(step.inputs[0])
    for function, operand in ((np.subtract, mean), (np.multiply, factor), (np.add, bias)):
        value = program.call(function, value, program.constant(operand.reshape(along)))
    return value


_EMIT_WITH_CONSTANTS = {"Clip": _clip, "BatchNormalization": _batch_normalization}


def _key(step: Step) -> Attribute | None:
    """The type that a step shares with the others of its run; None where it is not elementwise on floats."""
    op = step.op
    if not isinstance(op, OnnxOp) or op.domain or not op.current or step.graphs:
        return None
    if op.op_type not in _EMIT and op.op_type not in _EMIT_WITH_CONSTANTS:
        return None
    infos = [tensor_info(value.type) for value in (*op.operands, *op.results) if value.type.name != "none"]
    if any(info is None or info.dtype.name not in _FLOATS or info.dtype is not _dtype(op) for info in infos):
        return None
    return op.results[0].type


def _dtype(op: OnnxOp) -> Any:
    info = tensor_info(op.results[0].type)
    return None if info is None else info.dtype


def _emit(program: _Program, step: Step, plan: Plan) -> bool:
    """Adds a step to a program, if it can be."""
    assert isinstance(step.op, OnnxOp)
    name = step.op.op_type
    if name in _EMIT_WITH_CONSTANTS:
        value = _EMIT_WITH_CONSTANTS[name](program, step, plan)
    elif ABSENT in step.inputs:
        return False
    else:
        value = _EMIT[name](program, step, [program.operand(slot) for slot in step.inputs])
    if value is None:
        return False
    program.numbers[step.outputs[0]] = value
    return True


# Runs


def fused_steps(plan: Plan) -> list[Step]:
    """The steps of a plan with runs of elementwise steps fused, in order."""
    readers: dict[int, int] = dict.fromkeys(plan.outputs, 1)
    fresh: set[int] = set()
    for step in plan.steps:
        for slot in step.reads():
            readers[slot] = readers.get(slot, 0) + 1
        if isinstance(step.op, OnnxOp) and not step.op.domain and step.op.op_type in FRESH:
            fresh.update(step.outputs[:1])
    own = {slot for slot in fresh if readers.get(slot) == 1 and slot not in plan.outputs}
    made: list[Step] = []
    for key, steps in _runs(plan):
        made += steps if key is None else _fuse(steps, plan, own)
    return made


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
    """The steps of a run as few steps: those that no program can hold stand between."""
    made: list[Step] = []
    while steps:
        program, held = _Program(_element(steps[0])), 0
        while held < len(steps) and _emit(program, steps[held], plan):
            held += 1
        if held == 0:
            made.append(steps[0])
        else:
            made.append(_step(program, steps[:held], plan, own))
        steps = steps[max(held, 1) :]
    return made


def _element(step: Step) -> np.dtype[Any]:
    info = tensor_info(step.op.results[0].type)
    assert info is not None
    return info.dtype.numpy


def _step(program: _Program, steps: list[Step], plan: Plan, own: set[int]) -> Step:
    """The step that runs a program; a lone step that could not be written over an operand stays as it is."""
    freed = {slot for step in steps for slot in step.frees}
    inside = {step.outputs[0] for step in steps}
    outputs = tuple(step.outputs[0] for step in steps if step.outputs[0] not in freed)
    reusable = [slot in own for slot in program.slots]
    if len(steps) == 1 and not any(reusable):
        return steps[0]
    run = _Run(program, steps, [program.numbers[slot] for slot in outputs], reusable)
    return Step(
        op=steps[-1].op,
        function=run,
        inputs=tuple(program.slots),
        outputs=outputs,
        many=True,
        frees=tuple(sorted(freed - inside)),
    )


@dataclass(slots=True)
class _Tiles:
    """How operands of certain shapes are cut.

    Attributes:
        shape: of the results.
        operands: per operand the indices of its tiles; None where all tiles take it whole.
        results: the indices of the results' tiles.
        sizes: per tile its extent along the axis that is cut.
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
        results: the numbers of the values that are returned.
        reusable: per slot whether its array may be written over.
    """

    def __init__(self, program: _Program, steps: list[Step], results: list[int], reusable: list[bool]) -> None:
        self.element = program.element
        self.limit = TILE_BYTES // program.element.itemsize
        self.bound = tuple(program.bound)
        self.instructions = program.instructions
        self.steps = steps
        self.slots = program.slots
        self.results = results
        self.sources = program.sources
        given = len(program.slots)
        # Sources are numbered as they came up; arguments are the slots first, then what is bound.
        slot_numbers = [program.numbers[slot] for slot in program.slots]
        self.order = [*slot_numbers, *(n for n in program.sources if n not in set(slot_numbers))]
        self.over = self._written_over(reusable, given)
        self.buffers = 0
        self.whole = self._compile_whole()
        self.tile = self._compile_tile()
        self.remembered: dict[tuple[tuple[int, ...], ...], _Tiles | None] = {}
