"""Elementwise steps as programs: sequences of calls on named values, which ``tiles`` runs tile by tile.

The calls are those that the kernels make, so that the bits are the same. The exception is a scale and a shift per
channel with constant parameters, which are folded in float64: BatchNormalization with what scales and shifts its
result, and all of that behind a convolution, whose filters take it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.numpy.affine import Affine, affine
from irkit.backends.numpy.kernels.elementwise import BINARY, UNARY, UNARY_FLOAT
from irkit.backends.numpy.plan import ABSENT, Step
from irkit.backends.numpy.registry import find_kernel
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.op import is_absent
from irkit.ir.types import tensor_info

__all__ = ["Call", "Program", "emit", "run_type"]

_FLOATS = ("float32", "float64")


@dataclass(slots=True)
class Call:
    """``result = function(*operands, **options)``; with ``into`` the function writes where its ``out`` says."""

    function: Callable[..., Any]
    operands: tuple[str, ...]
    result: str
    options: dict[str, Any]
    into: bool


class Program:
    """Calls in order. Values have names: ``i0`` an operand, ``c0`` a constant, ``v0`` what a call computes.

    Args:
        element: the dtype of every value.
        held: the values of the plan that are known now, by slot.
    """

    def __init__(self, element: np.dtype[Any], held: Mapping[int, Any]) -> None:
        self.element = element
        self.held = held
        self.slots: list[int] = []
        self.constants: list[np.ndarray] = []
        self.calls: list[Call] = []
        self.names: dict[int, str] = {}

    def operand(self, slot: int) -> str:
        """The value in a slot of the plan."""
        found = self.names.get(slot)
        if found is None:
            held = self.held.get(slot)
            if held is not None and held.size == 1:
                found = self.constant(held)
            else:
                found = f"i{len(self.slots)}"
                self.slots.append(slot)
            self.names[slot] = found
        return found

    def constant(self, value: Any) -> str:
        """A value known now."""
        self.constants.append(np.asarray(value, self.element))
        return f"c{len(self.constants) - 1}"

    def call(self, function: Callable[..., Any], *operands: str, into: bool = False, **options: Any) -> str:
        """Adds a call; returns the name of its result."""
        into = into or isinstance(function, np.ufunc)
        self.calls.append(Call(function, operands, f"v{len(self.calls)}", options, into))
        return self.calls[-1].result

    def scale_and_shift(self, value: str, by: Affine) -> str:
        """Adds the calls of a scale and a shift per channel; leaves out what changes nothing."""
        along = (-1,) + (1,) * by.spatial
        for function, parameter, neutral in ((np.multiply, by.scale, 1), (np.add, by.shift, 0)):
            if (parameter != neutral).any():
                value = self.call(function, value, self.constant(parameter.reshape(along)))
        return value


# What steps are as calls

_Emit = Callable[[Program, Step], "str | None"]
"""Adds the calls of a step to a program; None, and nothing added, where it cannot be done."""


def _operands(program: Program, step: Step) -> list[str]:
    return [program.operand(slot) for slot in step.inputs]


def _ufunc(function: np.ufunc) -> _Emit:
    return lambda program, step: program.call(function, *_operands(program, step))


def _folded(function: np.ufunc) -> _Emit:
    def emit(program: Program, step: Step) -> str | None:
        if len(step.inputs) < 2:
            return None
        total, *others = _operands(program, step)
        for operand in others:
            total = program.call(function, total, operand)
        return total

    return emit


def _kernel(program: Program, step: Step) -> str:
    return program.call(step.function, *_operands(program, step), **step.attributes)


def _relu(program: Program, step: Step) -> str:
    return program.call(np.maximum, *_operands(program, step), program.constant(0))


def _sigmoid(program: Program, step: Step) -> str:
    e = program.call(np.exp, program.call(np.negative, *_operands(program, step)))
    return program.call(np.reciprocal, program.call(np.add, e, program.constant(1)))


def _clip(program: Program, step: Step) -> str | None:
    """Clip with constant bounds."""
    bounds = [(f, s) for f, s in zip((np.maximum, np.minimum), step.inputs[1:], strict=False) if s != ABSENT]
    if not bounds or any(s not in program.held or program.held[s].size != 1 for _, s in bounds):
        return None
    value = program.operand(step.inputs[0])
    limits = [program.constant(program.held[slot].reshape(())) for _, slot in bounds]
    if len(limits) == 2:
        return program.call(np.clip, value, *limits, into=True)
    return program.call(bounds[0][0], value, *limits)


def _batch_normalization(program: Program, step: Step) -> str | None:
    """BatchNormalization at inference with constant parameters."""
    by = affine(step, program.held)
    if by is None or not by.fits(program.element):
        return None
    return program.scale_and_shift(program.operand(by.slot), by)


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
"""How an op on floats is written as calls."""

_KERNELS = {name: find_kernel("", name) for name in _EMIT}


def run_type(step: Step) -> Attribute | None:
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


def emit(program: Program, step: Step) -> bool:
    """Adds the calls of an elementwise step to a program, if that can be done."""
    assert isinstance(step.op, OnnxOp)
    value = _EMIT[step.op.op_type](program, step)
    if value is not None:
        program.names[step.outputs[0]] = value
    return value is not None
