"""Scan of opset 8, which runs over a batch: a Scan over the batch around one over the sequence."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute, Region, SSAValue

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.ir.types import tensor, tensor_info, unknown
from irkit.opsets.common import int64
from irkit.opsets.registry import Results, decompose


@decompose("Scan", 8)
def scan_batches(b: Builder, op: OnnxOp) -> Results | None:
    lengths, given = op.operand(0), list(op.operands[1:])
    body = op.graph("body")
    if body is None:
        return None
    scans = op.attr("num_scan_inputs")
    states = len(given) - scans
    directions = op.attr("directions") or (0,) * scans
    operands: list[Any] = [*given] if lengths is None else [*given, lengths]
    # Each element of the batch: the states' and inputs' rows, and its length.
    with b.nested([_row(v) for v in operands]) as (inner, rows):
        values: list[Any] = rows[: len(given)]
        start = int64(inner, [0])
        axis = int64(inner, [0])
        if lengths is not None:
            end = inner.Reshape(inner.Cast(rows[-1], to=7), int64(inner, [1]))
            values[states:] = [inner.Slice(v, start, end, axis) for v in values[states:]]
        region: Region = body.clone()
        made = inner.Scan(
            *values, body=region, num_scan_inputs=scans, scan_input_directions=directions, outputs=len(op.results)
        )
        results: list[Any] = [made] if isinstance(made, Tensor) else list(made)
        if lengths is not None:
            whole = inner.Shape(rows[states], start=0, end=1)
            results[states:] = [_padded(inner, r, whole) for r in results[states:]]
        inner.block.add_op(b.ctx.get_op("onnx.Yield").create(operands=[r.ssa for r in results]))
    return b.Scan(*operands, body=Region(inner.block), num_scan_inputs=len(operands), outputs=len(op.results))


def _row(value: SSAValue) -> Attribute:
    """The type of one element of a batch."""
    info = tensor_info(value.type)
    if info is None:
        return unknown
    return tensor(info.dtype, None if info.shape is None else info.shape[1:])


def _padded(b: Builder, value: Tensor, whole: Tensor) -> Tensor:
    """A shorter sequence with zeros up to the full length; what stands there is undefined."""
    missing = b.Sub(whole, b.Shape(value, start=0, end=1))
    return b.Pad(value, b.Concat(int64(b, [0]), missing, axis=0), None, int64(b, [0]))
