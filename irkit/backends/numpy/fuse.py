"""The steps of a plan as they are run when nobody watches each op: constants folded, neighbours fused.

Steps whose operands are all known are computed once. Neighbouring steps on float32 or float64 whose results all have
one type become one program, run tile by tile. Behind a convolution with constant filters, scales and shifts per channel
go into the filters, and the program that follows runs on each tile of the output as it is made. A result is written
over an operand where nothing else can see it: one that a step of ``FRESH`` made and that only this step reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.numpy.affine import Affine, affine
from irkit.backends.numpy.control import Budget, Run, run_step
from irkit.backends.numpy.convolution import Convolution, is_convolution
from irkit.backends.numpy.plan import ABSENT, Fused, Plan, Step
from irkit.backends.numpy.programs import Program, emit, run_type
from irkit.backends.numpy.tiles import TiledProgram
from irkit.dialects.onnx.classes import OnnxOp
from irkit.errors import IrkitError
from irkit.ir.types import tensor_info

__all__ = ["FRESH", "fuse"]

FRESH = frozenset(
    "Add BatchNormalization Conv ConvTranspose Div Gemm InstanceNormalization LayerNormalization MatMul Mul Relu "
    "Sigmoid Softmax Sub Tanh".split()
)
"""Ops whose kernels always return memory of their own."""

FOLD_BYTES = 1 << 20
"""Results of constants are kept up to this size, or that of the constants if they are larger."""


def fuse(plan: Plan) -> Fused:
    """The steps of a plan, fused."""
    steps, constants = _fold(plan)
    return Fused(list(_Fuser(plan, steps, constants).fused()), constants)


# Constants


def _fold(plan: Plan) -> tuple[list[Step], dict[int, Any]]:
    """The steps that depend on inputs, and the constants with the results of the others."""
    held = dict(plan.constants)
    kept: list[Step] = []
    for step in plan.steps:
        found = None if step.graphs or "rng" in step.wants else _evaluate(step, held)
        if found is None:
            kept.append(step)
        else:
            held.update((slot, value) for slot, value in zip(step.outputs, found, strict=True) if slot != ABSENT)
    return [_without_frees(step, held) for step in kept], held


def _evaluate(step: Step, held: Mapping[int, Any]) -> list[np.ndarray] | None:
    """The results of a step on constants; None where it must wait for the run, as one that fails must."""
    if not step.inputs or any(slot != ABSENT and slot not in held for slot in step.inputs):
        return None
    operands = [held.get(slot) for slot in step.inputs]
    limit = max(FOLD_BYTES, sum(x.nbytes for x in operands if isinstance(x, np.ndarray)))
    try:
        found = run_step(step, operands, {}, Run(Budget(bytes=limit), 0, lambda *_: ()), 0)
    except IrkitError:
        return None
    if not all(isinstance(value, np.ndarray) and value.nbytes <= limit for value in found):
        return None
    made = [value.view() for value in found]
    for value in made:
        value.flags.writeable = False
    return made


def _without_frees(step: Step, held: Mapping[int, Any]) -> Step:
    """A step that keeps what has become a constant."""
    if not any(slot in held for slot in step.frees):
        return step
    return _changed(step, frees=tuple(slot for slot in step.frees if slot not in held))


def _changed(step: Step, **fields: Any) -> Step:
    return Step(**{name: getattr(step, name) for name in Step.__slots__} | fields)


# Parts


def _apart(step: Step) -> Step:
    """A Slice that is the last to read its operand no longer keeps all of it alive for a small part."""
    op = step.op
    if not isinstance(op, OnnxOp) or op.domain or op.op_type != "Slice" or step.inputs[0] not in step.frees:
        return step

    def part(*operands: np.ndarray) -> np.ndarray:
        found = step.function(*operands)
        small = found.base is not None and found.flags.writeable and 2 * found.nbytes <= operands[0].nbytes
        return found.copy() if small else found

    return _changed(step, function=part)


# Runs


class _Fuser:
    """Fuses the steps of one plan.

    Attributes:
        readers: per slot how many steps read it; a result of the plan counts as read twice.
        own: slots that a step may write over.
    """

    def __init__(self, plan: Plan, steps: list[Step], held: Mapping[int, Any]) -> None:
        self.steps = steps
        self.held = held
        self.readers: dict[int, int] = dict.fromkeys(plan.outputs, 2)
        fresh: set[int] = set()
        for step in steps:
            for slot in step.reads():
                self.readers[slot] = self.readers.get(slot, 0) + 1
            if isinstance(step.op, OnnxOp) and not step.op.domain and step.op.op_type in FRESH:
                fresh.add(step.outputs[0])
        self.own = {slot for slot in fresh if self.readers.get(slot) == 1}

    def fused(self) -> Iterator[Step]:
        """The steps as they are run."""
        before: Step | None = None
        for key, steps in self._runs():
            if before is not None:
                convolution, taken = self._behind(before, key, steps)
                yield convolution
                before, steps = None, steps[taken:]
            if key is None and steps and is_convolution(steps[-1]):
                before = steps.pop()
            yield from map(_apart, steps) if key is None else self._elementwise(steps)
        if before is not None:
            yield self._behind(before, None, [])[0]

    def _runs(self) -> Iterator[tuple[Attribute | None, list[Step]]]:
        """The steps in order, neighbours of one type together; a convolution ends what goes before."""
        run: list[Step] = []
        current: Attribute | None = None
        for step in self.steps:
            key = run_type(step)
            if run and (key != current or is_convolution(run[-1])):
                yield current, run
                run = []
            current = key
            run.append(step)
        if run:
            yield current, run

    def _elementwise(self, steps: list[Step]) -> Iterator[Step]:
        """A run as few steps; one that no program can hold stands for itself."""
        while steps:
            program = self._program(steps[0])
            count = self._emit(program, steps)
            if not self._lean(steps[:count]):
                lean = next(n for n in range(count - 1, 0, -1) if self._lean(steps[:n]))
                program = self._program(steps[0])
                count = self._emit(program, steps[:lean])
            yield self._tiled(program, steps[:count]) if count else steps[0]
            steps = steps[max(count, 1) :]

    def _program(self, step: Step) -> Program:
        info = tensor_info(step.op.results[0].type)
        assert info is not None
        return Program(info.dtype.numpy, self.held)

    def _emit(self, program: Program, steps: list[Step]) -> int:
        """Adds as many steps as can be; returns how many."""
        count = 0
        while count < len(steps):
            by, taken = self._scales(steps[count:], program.element)
            if by is not None and taken > 1:
                value = program.scale_and_shift(program.operand(by.slot), by)
                program.names[steps[count + taken - 1].outputs[0]] = value
                count += taken
            elif emit(program, steps[count]):
                count += 1
            else:
                break
        return count

    def _scales(
        self, steps: list[Step], element: np.dtype[Any], before: int | None = None
    ) -> tuple[Affine | None, int]:
        """The scales and shifts per channel with which steps begin, as one, and how many steps they are.

        Args:
            before: the slot that the first must read; its maker is a normalization already.
        """
        total: Affine | None = None
        for count, step in enumerate(steps):
            by = affine(step, self.held)
            follows = by is not None and (
                (by.slot == before and before is not None) if total is None else by.slot == steps[count - 1].outputs[0]
            )
            first = count == 0 and before is None and by is not None and by.starts
            if by is None or not (follows or first) or (follows and self.readers.get(by.slot) != 1):
                return total, count
            joined = by if total is None else total.then(by)
            if not joined.fits(element):
                return total, count
            total = joined
        return total, len(steps)

    def _lean(self, steps: list[Step]) -> bool:
        """Whether steps hold no more values at once as one than one by one: fused, operands live until the end."""
        made = {step.outputs[0] for step in steps}
        freed = {slot for step in steps for slot in step.frees}
        operands = {slot for step in steps for slot in step.inputs if slot not in made and slot not in self.held}
        results = len(made - freed)
        if results <= 1:
            return True
        most = live = len(operands)
        for step in steps:
            most = max(most, live + 1)
            live += 1 - len(step.frees)
        return len(operands) + results - min(results, len(operands & freed & self.own)) <= most

    def _tiled(self, program: Program, steps: list[Step]) -> Step:
        """The step that runs a program. One op that cannot be written over its operand stays as it is."""
        over = [slot in self.own for slot in program.slots]
        if len(steps) == 1 and not any(over):
            return steps[0]
        freed = {slot for step in steps for slot in step.frees}
        outputs = tuple(step.outputs[0] for step in steps if step.outputs[0] not in freed)
        return self._step(steps, TiledProgram(program, steps, outputs, over), program.slots, many=True)

    # Convolutions

    def _behind(self, step: Step, key: Attribute | None, run: list[Step]) -> tuple[Step, int]:
        """A convolution with what it takes up of the run that follows, and how many steps that is."""
        slot, taken = step.outputs[0], 0
        filters, bias = (self.held.get(s) for s in (*step.inputs[1:], ABSENT)[:2])
        loose = len(step.inputs) > 2 and step.inputs[2] != ABSENT
        if filters is not None and filters.ndim > 2 and (bias is None or bias.shape == filters.shape[:1]):
            loose = loose and bias is None
        else:
            bias = None
        if key != step.op.results[0].type:
            run = []
        if filters is not None and not loose:
            by, count = self._scales(run, filters.dtype, slot)
            ready = None if by is None else by.of_filters(filters, bias)
            if ready is not None:
                filters, bias = ready
                taken, slot = count, run[count - 1].outputs[0]
        program = self._after(step, slot, filters, bias)
        count = self._emit(program, run[taken:])
        chain = [step, *run][taken : taken + count + 1]
        fitting = next(n for n in range(count, -1, -1) if _only_the_last_is_read(chain[: n + 1]))
        if fitting < count:
            program = self._after(step, slot, filters, bias)
            self._emit(program, chain[1 : fitting + 1])
        taken += fitting
        steps = [step, *run[:taken]]
        function = Convolution(steps, filters, loose, program if program.calls else None, slot, self.held)
        return self._step(steps, function, function.slots, wants=frozenset({"budget"})), taken

    def _after(self, step: Step, slot: int, filters: np.ndarray | None, bias: np.ndarray | None) -> Program:
        """A program that adds the bias to the output of a convolution."""
        program = self._program(step)
        value = program.operand(slot)
        if filters is not None and bias is not None:
            vector = program.constant(bias.reshape((-1,) + (1,) * (filters.ndim - 2)))
            program.names[slot] = program.call(np.add, value, vector)
        return program

    def _step(self, steps: list[Step], function: Any, slots: Sequence[int], **fields: Any) -> Step:
        """The step that does what several do."""
        freed = {slot for step in steps for slot in step.frees}
        made = {step.outputs[0] for step in steps}
        outputs = tuple(step.outputs[0] for step in steps if step.outputs[0] not in freed)
        return Step(
            op=steps[-1].op,
            function=function,
            inputs=tuple(slots),
            outputs=outputs,
            frees=tuple(sorted(freed - made)),
            **fields,
        )


def _only_the_last_is_read(steps: list[Step]) -> bool:
    """Whether nothing but these steps reads any of their results except the last."""
    freed = {slot for step in steps for slot in step.frees}
    return all(step.outputs[0] in freed for step in steps[:-1])
