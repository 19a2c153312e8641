"""Constants: other attributes than ``value`` came with opsets 11 (sparse) and 12."""

from __future__ import annotations

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder
from irkit.ir.constants import TensorAttr
from irkit.opsets.common import carried, impossible
from irkit.opsets.registry import Results, lower


@lower("Constant", 1, 9, 11)
def constant_value(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    name = next(iter(op.properties))
    if name in to.spec.attributes:
        return b.op(to, **carried(op))
    data = constant_of(op.results[0])
    if data is None:
        raise impossible(op, f"the older form has no attribute '{name}'")
    return b.op(to, value=TensorAttr.of(data))
