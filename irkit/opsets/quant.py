"""Quantization: scales for a whole tensor (opset 10), output types by zero point (below 21 and 23)."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.dtypes import dtype
from irkit.ir.types import dtype_of, shape_of
from irkit.opsets.common import attribute, carried, impossible
from irkit.opsets.registry import Results, lower


@lower("QuantizeLinear", 10, 13, 19, 21)
@lower("DequantizeLinear", 10, 13, 19, 21)
def linear_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    x, scale, zero = op.operands[0], op.operands[1], op.operand(2)
    known = to.spec.attributes
    shape = shape_of(scale.type)
    if to.since == 10 and shape != ():
        raise impossible(op, f"the older form takes one scale for the whole tensor, not {scale.type}")
    given: Any = zero
    code = attribute(op, "output_dtype")
    if code and "output_dtype" not in known:
        given = _typed(b, op, dtype(code).code, shape)
    for name in ("block_size", "precision", "saturate"):
        if name in op.properties and name not in known and attribute(op, name) != op.spec.attributes[name].default:
            raise impossible(op, f"the older form has no attribute '{name}', which is {op.attr(name)!r}")
    unknown = [name for name in op.properties if name not in known]
    return b.op(to, x, scale, given, **carried(op, *unknown))


def _typed(b: Builder, op: OnnxOp, code: int, shape: Any) -> Any:
    """A zero point that gives the output type which the older form has no attribute for."""
    zero = op.operand(2)
    if op.op_type == "DequantizeLinear":
        kind = dtype_of(op.operands[1].type)
        if kind is None or kind.code != code:
            raise impossible(op, "the older form gives the type of its scale, and output_dtype is another")
        return zero
    if zero is not None:
        return zero
    if shape is None or not all(isinstance(d, int) for d in shape):
        raise impossible(op, "the older form tells the output type by a zero point, whose shape is not known")
    return b.constant(np.zeros(shape, np.int64).astype(dtype(code).numpy))
