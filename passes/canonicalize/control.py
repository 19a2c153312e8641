"""Rules for control flow of which the way is known."""

from __future__ import annotations

from typing import cast

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from irkit.dialects.onnx import CURRENT, Initializer, NoValue, OnnxOp, absent
from irkit.dialects.onnx.values import constant_of
from irkit.ir.constants import ConstantData, constant
from irkit.ir.location import fused
from irkit.ir.op import Random
from irkit.ir.types import scalar_dims, tensor_info
from irkit.passes.canonicalize.rules import rule
from irkit.passes.rewrite import Rewriter, enclosing_function

__all__: list[str] = []


def _truth(value: SSAValue | None) -> bool | None:
    """The one boolean in a constant, or None."""
    data = constant_of(value)
    if data is None or data.size != 1 or data.dtype.kind != "bool":
        return None
    return bool(data.stored().reshape(-1)[0])


@rule("onnx.If")
def if_of_constant(op: OnnxOp, rw: Rewriter) -> bool:
    """The branch that is taken stands in the place of the If."""
    condition = _truth(op.operands[0])
    if condition is None:
        return False
    branch = op.regions[0 if condition else 1].block
    rw.replace(op, inline(branch, op, rw))
    return True


def inline(block: Block, op: Operation, rw: Rewriter) -> list[SSAValue | None]:
    """Moves the ops of a graph without inputs in front of an op. Returns the graph's outputs."""
    outer = cast(Block, op.parent)
    in_function = enclosing_function(outer) is not None
    end = cast(Operation, block.last_op)
    for inner in list(block.ops):
        if isinstance(inner, NoValue):
            inner.results[0].replace_all_uses_with(absent(outer))
            continue
        if inner is end:
            break
        inner.detach()
        if isinstance(inner, Initializer) and in_function:
            inner = _as_constant(inner)
        inner.location = fused([inner.location, op.location], rw.by)
        outer.insert_op_before(inner, op)
        rw.touched.append(inner)
    return list(end.operands)


def _as_constant(op: Initializer) -> Operation:
    """The same value as a node: a function owns no initializers."""
    new = CURRENT["", "Constant"].create(
        result_types=[op.results[0].type],
        properties=op.properties,
        attributes=op.attributes,
        location=op.location,
    )
    new.results[0].name_hint = op.results[0].name_hint
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
    return new


@rule("onnx.Loop")
def loop_of_no_trips(op: OnnxOp, rw: Rewriter) -> bool:
    """A Loop that ends before it begins: what it carries comes out, what it collects is empty."""
    trips = constant_of(op.operand(0))
    never = trips is not None and trips.size == 1 and int(trips.array().reshape(-1)[0]) <= 0
    if not never and _truth(op.operand(1)) is not False:
        return False
    states = list(op.operands)[2:]
    empty: list[ConstantData | None] = []
    for result in op.results[len(states) :]:
        if result.first_use is None:
            empty.append(None)
            continue
        info, element = tensor_info(result.type), _element_dims(op, result.index)
        if info is None or info.dtype.kind == "string" or element is None:
            return False
        shape = (0, *element)
        empty.append(ConstantData(info.dtype, shape, np.zeros(shape, info.dtype.numpy)))
    if enclosing_function(op.parent) is not None and any(empty):
        return False
    collected = [None if data is None else rw.constant(data, before=op) for data in empty]
    rw.replace(op, [*states, *collected])
    return True


@rule("onnx.Loop")
def loop_of_one_trip(op: OnnxOp, rw: Rewriter) -> bool:
    """A Loop that runs once: its body stands in its place, and what it collects is what the one iteration gave."""
    trips = constant_of(op.operand(0))
    if trips is None or trips.size != 1 or int(trips.array().reshape(-1)[0]) != 1:
        return False
    if op.operand(1) is not None and _truth(op.operand(1)) is not True:
        return False
    body = op.regions[0].block
    states = list(op.operands)[2:]
    collected = op.results[len(states) :]
    # What draws random numbers draws by the number of the iteration.
    if (
        len(body.args) != 2 + len(states)
        or any(inner.has_trait(Random) for inner in body.walk())
        or any(tensor_info(r.type) is None for r in collected)
    ):
        return False
    first = [rw.constant(constant(*number).data, before=op) for number in ((0, "int64"), (True, "bool"))]
    for arg, value in zip(body.args, [*first, *states], strict=True):
        arg.replace_all_uses_with(cast(SSAValue, value))
    results = inline(body, op, rw)[1:]
    for index in range(len(states), len(results)):
        value = results[index]
        if value is not None and op.results[index].first_use:
            axes = cast(SSAValue, rw.constant(constant(np.zeros(1, np.int64)).data, before=op))
            made = rw.make(CURRENT["", "Unsqueeze"], [value, axes], [op.results[index].type], before=op)
            results[index] = made.results[0]
    rw.replace(op, results)
    return True


def _element_dims(op: OnnxOp, index: int) -> tuple[int, ...] | None:
    """The sizes of what the body yields for a result, where all are known."""
    end = op.regions[0].block.last_op
    return None if end is None else scalar_dims(end.operands[1 + index].type)
