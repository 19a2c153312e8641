"""Dropout: its mode left the node with opset 7 and came back as an operand with 12."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.types import dtype_of
from irkit.opsets.common import array_of, impossible, scalar_float
from irkit.opsets.registry import HINT, Results, decompose, lower, upgrade
from irkit.opsets.rewrite import HINT_KEPT


@upgrade("Dropout", 1, 6, 7, 10)
def inference_dropout(b: Builder, op: OnnxOp) -> Results | None:
    # Before 10 the mask was of the data's type.
    if (op.since < 7 and not op.attr("is_test")) or (op.since < 10 and len(op.results) > 1):
        return None
    made = b.Dropout(op.operands[0], _ratio(b, op), outputs=len(op.results))
    if HINT in op.properties:
        made.ssa.owner.attributes[HINT_KEPT] = op.properties[HINT]
    return made


def _ratio(b: Builder, op: OnnxOp) -> Any:
    return None if "ratio" not in op.properties else b.constant(np.float32(op.attr("ratio")))


@decompose("Dropout", 1, 6, 7, 10)
def dropout(b: Builder, op: OnnxOp) -> Results | None:
    training = b.constant(np.array(True)) if op.since < 7 and not op.attr("is_test") else None
    made = b.Dropout(op.operands[0], _ratio(b, op), training, outputs=len(op.results))
    if len(op.results) == 1 or op.since >= 10:
        return made
    kind = dtype_of(op.operands[0].type)
    return None if kind is None else [made[0], b.Cast(made[1], to=kind.code)]


@lower("Dropout", 1, 6, 7, 10)
def dropout_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    training = op.operand(2)
    mode = array_of(training)
    if training is not None and (mode is None or bool(mode.any())):
        raise impossible(op, "the older form has no training_mode, and it may be true")
    ratio = op.operand(1)
    value = None if ratio is None else scalar_float(ratio)
    if ratio is not None and value is None:
        raise impossible(op, "its ratio is not a constant that float32 can hold")
    count = len(op.results)
    if count > 1 and to.since < 10:
        if any(True for _ in op.results[1].uses):
            raise impossible(op, "the older form has no boolean mask")
        count = 1
    kept: dict[str, Any] = {"is_test": 1} if to.since < 7 else {}
    if to.since == 1 and HINT_KEPT in op.attributes:
        kept[HINT] = op.attributes[HINT_KEPT]
    return b.op(to, op.operands[0], ratio=value, outputs=count, **kept)
