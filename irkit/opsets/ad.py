"""What the ops of the ``ad`` dialect mean in standard ones."""

from __future__ import annotations

import numpy as np

from irkit.dialects.ad import DOMAIN, is_finite
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.opsets.registry import decompose


@decompose("scale", 1, domain=DOMAIN)
def scale(b: Builder, op: OnnxOp) -> Tensor:
    ct, factor = b.wrap(op.operands[0]), b.wrap(op.operands[1])
    product = b.Mul(ct, factor)
    if is_finite(factor.ssa):
        return product
    zero = b.constant(np.zeros((), ct.dtype.numpy)) if ct.dtype else b.Sub(ct, ct)
    # A NaN in the cotangent is no zero, and goes on.
    return b.Where(b.Equal(ct, zero), zero, product)


@decompose("stop_gradient barrier", 1, domain=DOMAIN)
def same(b: Builder, op: OnnxOp) -> list[Tensor]:
    return [b.Identity(value) for value in op.operands]
