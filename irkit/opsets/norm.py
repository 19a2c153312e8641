"""Normalization: the modes of BatchNormalization through its versions, GroupNormalization by group."""

from __future__ import annotations

from typing import Any

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.names import out_names
from irkit.ir.types import dtype_of
from irkit.opsets.common import attribute, carried, dynamic_rank, impossible, int64, rank_of
from irkit.opsets.registry import HINT, Results, decompose, lower, upgrade
from irkit.opsets.rewrite import HINT_KEPT

_MODES = ("is_test", "spatial", "consumed_inputs")


def _trains(op: OnnxOp) -> bool:
    """Whether an older form normalizes by the batch: until 6 by ``is_test``, then by its number of outputs."""
    if op.since < 7:
        return not op.attr("is_test")
    return any(_wanted(op, i) for i in range(1, len(op.results)))


def _wanted(op: OnnxOp, index: int) -> bool:
    names, result = out_names(op), op.results[index]
    return any(True for _ in result.uses) or index >= len(names) or names[index] != ""


@upgrade("BatchNormalization", 1, 6, 7, 9)
def normalize_by_estimates(b: Builder, op: OnnxOp) -> Results | None:
    if len(op.results) > 1 or _trains(op) or op.attr("spatial") == 0:
        return None
    made = b.BatchNormalization(*op.operands, **carried(op, *_MODES))
    if HINT in op.properties:
        made.ssa.owner.attributes[HINT_KEPT] = op.properties[HINT]
    return made


@lower("BatchNormalization", 1, 6, 7, 9)
def batch_normalization_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if attribute(op, "training_mode"):
        raise impossible(op, "the older form tells training by other outputs (saved_mean, saved_var)")
    extra: dict[str, Any] = {} if to.since > 6 else {"is_test": 1}
    if to.since == 1:
        if rank_of(op.operands[0]) != 4:
            raise impossible(op, "the older form takes images of rank 4 alone")
        extra[HINT] = op.attributes.get(HINT_KEPT, (0, 0, 0, 0, 0))
    return b.op(to, *op.operands, **carried(op, "training_mode"), **extra)


@decompose("BatchNormalization", 1, 6, 7, 9)
def batch_normalization(b: Builder, op: OnnxOp) -> Results | None:
    x, scale, bias, mean, variance = op.operands
    kept, training = carried(op, *_MODES), _trains(op)
    flat = op.attr("spatial") == 0
    data: Any = x
    if flat:
        # One channel a feature: statistics over the batch alone.
        data = b.Flatten(x, axis=1)
        minus = int64(b, [-1])
        scale, bias, mean, variance = (b.Reshape(v, minus) for v in (scale, bias, mean, variance))
    outputs: list[Any]
    if training and len(op.results) > 1:
        outputs = list(b.BatchNormalization(data, scale, bias, mean, variance, training_mode=1, outputs=3, **kept))
    else:
        outputs = [b.BatchNormalization(data, scale, bias, mean, variance, training_mode=int(training), **kept)]
    if len(op.results) > 3:
        rank = 2 if flat else rank_of(x)
        one = int64(b, 1)
        axes: Any = (
            int64(b, [i for i in range(rank) if i != 1])
            if rank is not None
            else b.Concat(int64(b, [0]), b.Range(int64(b, 2), b.Squeeze(dynamic_rank(b, x)), one), axis=0)
        )
        batch = b.ReduceMean(data, axes, keepdims=1)
        spread = b.Sub(data, batch)
        outputs += [b.Reshape(batch, int64(b, [-1])), b.ReduceMean(b.Mul(spread, spread), axes, keepdims=0)]
    if flat:
        outputs[0] = b.Reshape(outputs[0], b.Shape(x), allowzero=1)
        shapes = [op.operands[3], op.operands[4], op.operands[3], op.operands[4]]
        outputs[1:] = [b.Reshape(v, b.Shape(s)) for v, s in zip(outputs[1:], shapes, strict=False)]
    return outputs[: len(op.results)]


# GroupNormalization: version 18 has a scale and a bias a group, and computes in the operand's own precision.


@decompose("GroupNormalization", 18)
def group_normalization(b: Builder, op: OnnxOp) -> Results | None:
    x, scale, bias = op.operands
    kind, groups = dtype_of(x.type), op.attr("num_groups")
    if kind is None:
        return None
    channels = b.Shape(x, start=1, end=2)
    shape = b.Concat(int64(b, [groups]), b.Div(channels, int64(b, [groups])), axis=0)
    column, flat = int64(b, [groups, 1]), int64(b, [-1])
    scale, bias = (b.Reshape(b.Expand(b.Reshape(v, column), shape), flat) for v in (scale, bias))
    return b.GroupNormalization(x, scale, bias, stash_type=kind.code, **carried(op))
