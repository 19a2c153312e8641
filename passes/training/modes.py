"""Ops that do something else in training than in inference: Dropout, BatchNormalization, and all that draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from xdsl.ir import Block, Operation, OpResult, SSAValue

from irkit.backends.numpy.random import op_key
from irkit.dialects.onnx import Call, Initializer, OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.errors import UnsupportedError
from irkit.ir.attributes import to_attr
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import TensorAttr
from irkit.ir.dtypes import dtype
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of
from irkit.ir.op import Random
from irkit.ir.types import tensor
from irkit.opsets import decompose_op, upgrade_op
from irkit.passes.rewrite import Rewriter, ops_in
from irkit.passes.training.random import Stream, draw
from irkit.passes.training.values import cast as cast_to

__all__ = ["draws", "lower_batch_norms", "lower_random", "modernize", "train_batch_norms"]

BY = "training-step"
MODED = ("Dropout", "BatchNormalization")
"""The ops whose forms say whether they are in training."""


_REFUSED = "what it draws would not change from step to step"


def draws(op: Operation) -> bool:
    """Whether an op draws random numbers in a training step; a Dropout of inference counts."""
    return op.has_trait(Random) or (isinstance(op, OnnxOp) and op.op_type == "Dropout")


def modernize(module: Module) -> None:
    """Brings the ops that have modes to their current form.

    Raises:
        UnsupportedError: for one that has none.
    """
    moded = [op for op in ops_in(module.func) if isinstance(op, OnnxOp) and op.op_type in MODED and not op.current]
    for op in moded:
        if not (upgrade_op(op, module.ctx) or decompose_op(op, module.ctx)):
            raise UnsupportedError("it has no current form, and so none for training", op=op.name, where=where(op))


def lower_random(module: Module, stream: Stream) -> None:
    """Makes everything that draws draw from a stream, and turns Dropout on.

    Raises:
        UnsupportedError: for what draws in a function that is not inlined or in a SequenceMap, or is not known here.
    """
    counter = [0]
    _lower_block(Rewriter(module, BY), module.block, stream, counter)
    # Functions that are inlined everywhere still stand there.
    called = any(isinstance(op, Call) for op in ops_in(module.func))
    stray = next((op for op in ops_in(module.op if called else module.func) if op.has_trait(Random)), None)
    if stray is not None:
        hint = "inline the function, or compute what is drawn outside"
        raise UnsupportedError(_REFUSED, op=stray.name, where=where(stray), hint=hint)


def _lower_block(rewriter: Rewriter, block: Block, stream: Stream, counter: list[int]) -> None:
    for op in list(block.ops):
        if op.regions and any(draws(inner) for inner in ops_in(op)):
            _lower_regions(rewriter, op, stream, counter)
        if not draws(op) or not isinstance(op, OnnxOp):
            continue
        counter[0] += 1
        b = Builder.before(op, rewriter.ctx, by=BY)
        key = op_key(op, counter[0])
        made = _dropout(b, stream, op, key) if op.op_type == "Dropout" else draw(b, stream, op, key)
        if made is None:
            raise UnsupportedError(f"{_REFUSED}: it has no form in standard ops", op=op.name, where=where(op))
        rewriter.replace(op, [value.ssa for value in made])


def _lower_regions(rewriter: Rewriter, op: Operation, stream: Stream, counter: list[int]) -> None:
    # The first form of Scan, with its axis of batches, has no place for one number an iteration.
    known = isinstance(op, OnnxOp) and (op.op_type != "Scan" or op.since > 8)
    kind = op.op_type if isinstance(op, OnnxOp) and known else ""
    if kind not in ("If", "Loop", "Scan"):
        raise UnsupportedError(
            f"its body draws random numbers, and {_REFUSED.removeprefix('what it draws ')}",
            op=op.name,
            where=where(op),
            hint="draw them outside, or write it as a Loop or Scan",
        )
    if kind == "Scan":
        op = _numbered(rewriter, cast(OnnxOp, op))
    for region in op.regions:
        for inner in region.blocks:
            own = stream
            if kind != "If":
                first = inner.first_op
                assert first is not None
                b = Builder.before(first, rewriter.ctx, by=BY)
                number = inner.args[0 if kind == "Loop" else -1]
                own = stream.mixed(b, b.Cast(number, to=dtype("uint64").code))
            _lower_block(rewriter, inner, own, counter)


def _numbered(rewriter: Rewriter, op: OnnxOp) -> Operation:
    """A Scan whose body gets the number of its iteration as its last input, in place of one that does not."""
    count = int(op.attr("num_scan_inputs"))
    b = Builder.before(op, rewriter.ctx, by=BY)
    axis = int((op.attr("scan_input_axes") or [0])[0])
    scanned = b.wrap(op.operands[len(op.operands) - count])
    length = b.Squeeze(b.Shape(scanned, start=axis) if axis == -1 else b.Shape(scanned, start=axis, end=axis + 1))
    numbers = b.Range(b.constant(np.int64(0)), length, b.constant(np.int64(1)))
    properties = dict(op.properties)
    properties["num_scan_inputs"] = to_attr("INT", count + 1)
    for name in ("scan_input_axes", "scan_input_directions"):
        given = op.attr(name)
        if given:
            properties[name] = to_attr("INTS", [*given, 0])
    made = type(op).create(
        operands=[*op.operands, numbers.ssa],
        result_types=[r.type for r in op.results],
        properties=properties,
        attributes=op.attributes,
        location=rewriter.location([op]),
        regions=[op.detach_region(region) for region in tuple(op.regions)],
    )
    body = made.regions[0].block
    body.insert_arg(tensor("int64", ()), len(body.args))
    cast(Block, op.parent).insert_op_before(made, op)
    rewriter.replace(op, list(made.results))
    return made


def _dropout(b: Builder, stream: Stream, op: OnnxOp, key: int) -> list[Tensor]:
    """``x mask / (1 - ratio)`` and the mask; a mode that is known only when it runs is kept."""
    x, ratio, mode = (op.operand(i) for i in range(3))
    known = None if mode is None else constant_of(mode)
    data, shape = b.wrap(cast(SSAValue, x)), b.Shape(b.wrap(cast(SSAValue, x)))
    share = constant_of(ratio)
    if ratio is not None and share is None:
        chance = b.Cast(b.wrap(ratio), to=dtype("float32").code)
        mask = b.GreaterOrEqual(stream.uniform(b, key, shape), chance)
        factor = b.Reciprocal(1.0 - chance)
    else:
        p = 0.5 if share is None else float(share.array().reshape(()))
        mask = b.Not(stream.below(b, key, shape, p))
        factor = b.constant(np.float32(0 if p >= 1 else 1 / (1 - p)))
    if mode is not None and known is None:
        mask = b.Or(mask, b.Not(b.wrap(mode)))
        factor = b.Where(b.wrap(mode), factor, 1.0)
    return [data * (cast_to(b, mask, data) * cast_to(b, factor, data)), mask][: len(op.results)]


KeepStatistic = Callable[[OpResult, SSAValue], None]
"""Called with the initializer that a running statistic is, and what it becomes."""


def train_batch_norms(module: Module, wanted: Callable[[str], bool], keep: KeepStatistic) -> None:
    """Makes BatchNormalization of the main graph normalize by the batch and give its running statistics.

    One whose statistics are no initializers is left as it is.

    Args:
        wanted: whether one is to be in training, by the name of its running mean.
        keep: takes the statistics.
    """
    for op in list(module.block.ops):
        if not (isinstance(op, OnnxOp) and op.op_type == "BatchNormalization" and op.current):
            continue
        held = [_initializer(op.operands[i]) for i in (3, 4)]
        if op.attr("training_mode") or None in held or not wanted(name_of(op.operands[3])):
            continue
        b = Builder.before(op, module.ctx, by=BY)
        kept = {name: op.attr(name) for name in ("epsilon", "momentum")}
        made = b.BatchNormalization(*op.operands, training_mode=1, outputs=3, **kept)
        Rewriter(module, BY).replace(op, [made[0].ssa])
        for found, new in zip(held, made[1:], strict=True):
            assert found is not None
            keep(found.results[0], new.ssa)


def _initializer(value: SSAValue) -> Initializer | None:
    owner = value.op if isinstance(value, OpResult) else None
    return owner if isinstance(owner, Initializer) and isinstance(owner.value, TensorAttr) else None


def lower_batch_norms(module: Module) -> None:
    """Writes BatchNormalization in training in other ops, after differentiation.

    The gradient computes the mean and the deviation anyway, in just these ops, and merging common subexpressions
    shares them. onnxruntime's CUDA provider does not take the op in training.
    """
    for op in [op for op in ops_in(module.op) if isinstance(op, OnnxOp) and op.op_type == "BatchNormalization"]:
        x = op.operand(0)
        rank = None if x is None else Builder.before(op, module.ctx).wrap(x).rank
        if not op.attr("training_mode") or rank is None:
            continue
        b = Builder.before(op, module.ctx, by=BY)
        made = _normalized(b, op, rank)
        Rewriter(module, BY).replace(op, [value.ssa for value in made[: len(op.results)]])


def _normalized(b: Builder, op: OnnxOp, rank: int) -> list[Tensor]:
    x, scale, bias, mean, variance = (b.wrap(v) for v in op.operands)
    wide = max((v.dtype for v in (x, scale, mean) if v.dtype is not None), key=lambda kind: kind.bits)
    wide = wide if wide.bits >= 32 else dtype("float32")

    def channels(value: Tensor) -> Tensor:
        made = cast_to(b, value, wide.name)
        return b.Reshape(made, [1, -1, *[1] * (rank - 2)]) if rank > 1 else made

    axes = np.asarray([axis for axis in range(rank) if axis != 1], np.int64)
    data = cast_to(b, x, wide.name)
    centre = b.ReduceMean(data, axes, keepdims=1)
    apart = b.Sub(data, centre)
    spread = b.ReduceMean(b.Mul(apart, apart), axes, keepdims=1)
    inverse = b.Reciprocal(b.Sqrt(b.Add(spread, b.constant(np.asarray(op.attr("epsilon")).astype(wide.numpy)))))
    y = b.Add(b.Mul(b.Mul(apart, inverse), channels(scale)), channels(bias))
    momentum = float(op.attr("momentum"))
    made = [cast_to(b, y, x)]
    for old, new in ((mean, centre), (variance, spread)):
        fresh = cast_to(b, b.Reshape(new, [-1]), old)
        made.append(b.Add(b.Mul(old, momentum), b.Mul(fresh, 1 - momentum)))
    return made
