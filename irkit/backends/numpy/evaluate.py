"""Single ops on arrays: for constant folding, for shape rules that need values, and for tests of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.ir import Block, Operation, Region

from irkit.backends.numpy.control import Budget, Run
from irkit.backends.numpy.executor import straight
from irkit.backends.numpy.legalize import kernel_of, legalize
from irkit.backends.numpy.plan import Plan, Planner, captures
from irkit.backends.numpy.results import own
from irkit.dialects.onnx.structural import Function, Yield
from irkit.errors import IrkitError
from irkit.ir.constants import RefAttr
from irkit.ir.op import Random, TensorOp

__all__ = ["can_evaluate", "evaluate", "prepared"]


def can_evaluate(op: Operation) -> bool:
    """Whether ``evaluate`` gives an op's results: it is a tensor op, complete, deterministic, and has a kernel.

    Ops that draw random numbers cannot be evaluated, nor ops whose graphs capture values, nor those in a function's
    body that refer to attributes of its caller.
    """
    if not isinstance(op, TensorOp) or op.has_trait(Random) or not op.results:
        return False
    if any(isinstance(attr, RefAttr) for attr in op.properties.values()):
        return False
    if not op.regions:
        return kernel_of(op) is not None or op.name == "onnx.Constant" or _plannable(op)
    return not captures(op) and not any(inner.has_trait(Random) for inner in op.walk()) and _plannable(op)


def _plannable(op: Operation) -> bool:
    try:
        _plan(op)
    except IrkitError:
        return False
    return True


def evaluate(op: Operation, inputs: Sequence[np.ndarray | None], *, budget: Budget | None = None) -> tuple[Any, ...]:
    """The results of an op on these inputs.

    Args:
        inputs: one for each operand, None where it is absent. They are not changed, nor shared with the results.
        budget: bounds, see ``Budget``.

    Raises:
        ExecutionError: if the inputs are invalid for the op.
        UnsupportedError: if it has no kernel.
    """
    return prepared(op)(inputs, budget)


def prepared(op: Operation) -> Callable[[Sequence[Any], Budget | None], tuple[Any, ...]]:
    """The function behind ``evaluate`` for one op, for callers that evaluate it many times: of inputs and a budget."""
    plan = _plan(op)

    def run(inputs: Sequence[Any], budget: Budget | None = None) -> tuple[Any, ...]:
        shown = [x if x is None or isinstance(x, list | dict) else _read_only(x) for x in inputs]
        with np.errstate(all="ignore"):
            return tuple(own(straight(plan, Run(budget or Budget(), 0, straight), 0, shown)))

    return run


def _read_only(array: np.ndarray) -> np.ndarray:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _plan(op: Operation) -> Plan:
    """The plan of a copy of the op, alone in a block that takes its operands."""
    block = Block(arg_types=[v.type for v in op.operands])
    copy = op.clone(dict(zip(op.operands, block.args, strict=True)))
    for index, arg in enumerate(block.args):
        copy.operands[index] = arg
    copy.location = op.location
    block.add_op(copy)
    end = Yield.create(operands=list(copy.results))
    block.add_op(end)
    holder = Function.of(("", "evaluate", ""), "evaluate", (), (), (), {}, {}, Region(block))
    ctx = _context()
    legalize(holder, ctx)
    return Planner({}, ctx).plan(block, list(block.args), list(end.operands))


def _context() -> Context:
    from irkit.dialects import context

    return context()
