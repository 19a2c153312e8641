"""Recurrent networks: ``output_sequence`` of the first versions; batch-first layouts written by transposing."""

from __future__ import annotations

from typing import Any

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.ir.names import out_names
from irkit.opsets.common import attribute, carried, impossible
from irkit.opsets.registry import Results, decompose, lower, upgrade
from irkit.opsets.rewrite import renamed_back


def _has_sequence(op: OnnxOp) -> bool:
    """Whether the sequence of hidden states, the first result, is asked for."""
    if not op.results:
        return False
    names = out_names(op)
    return any(True for _ in op.results[0].uses) or not names or names[0] != ""


def _directed(op: OnnxOp, *without: str) -> dict[str, Any]:
    """The attributes, with the direction that version 1 of GRU misspells by default."""
    kept = carried(op, *without)
    if op.attr("direction") == "foward":
        kept["direction"] = string("forward")
    return kept


@upgrade("RNN LSTM", 1)
@upgrade("GRU", 1, 3)
def sequence_by_use(b: Builder, op: OnnxOp) -> Results | None:
    if bool(op.attr("output_sequence")) != _has_sequence(op) or op.properties.get("direction") == string("foward"):
        return None
    return b.op(op.op_type, *op.operands, outputs=len(op.results), **carried(op, "output_sequence"))


@decompose("RNN LSTM", 1)
@decompose("GRU", 1, 3)
def recurrent(b: Builder, op: OnnxOp) -> Results:
    return b.op(op.op_type, *op.operands, outputs=len(op.results), **_directed(op, "output_sequence"))


@lower("RNN LSTM", 1, 7)
@lower("GRU", 1, 3, 7)
def recurrent_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if attribute(op, "layout"):
        return _sequence_first(b, op)
    if to.since == 7:
        return renamed_back(b, op, to)
    written: dict[str, Any] = {"output_sequence": 1} if _has_sequence(op) else {}
    if (op.op_type, to.since) == ("GRU", 1):
        if attribute(op, "linear_before_reset"):
            raise impossible(op, "the older form knows no linear_before_reset")
        return b.op(
            to, *op.operands, outputs=len(op.results), **carried(op, "layout", "linear_before_reset", **written)
        )
    return b.op(to, *op.operands, outputs=len(op.results), **carried(op, "layout", **written))


def _sequence_first(b: Builder, op: OnnxOp) -> Results:
    """The same with axes in the order [sequence, batch, ...] around it."""
    swapped = (1, 0, 2)
    operands: list[Any] = [op.operand(i) for i in range(len(op.operands))]
    for index in (0, 5, 6):
        if index < len(operands) and operands[index] is not None:
            operands[index] = b.Transpose(operands[index], perm=swapped)
    found = b.op(op.op_type, *operands, outputs=len(op.results), **carried(op, "layout"))
    results: list[Tensor] = [found] if isinstance(found, Tensor) else list(found)
    return [b.Transpose(r, perm=(2, 0, 1, 3) if i == 0 else swapped) for i, r in enumerate(results)]
