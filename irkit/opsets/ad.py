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
    return product(b, ct, factor, is_finite(ct.ssa), is_finite(factor.ssa))


def product(b: Builder, x: Tensor, y: Tensor, x_finite: bool, y_finite: bool) -> Tensor:
    """What ``ad.scale`` gives, guarded where a zero meets what may be infinite or NaN."""
    made = b.Mul(x, y)
    # A complex zero cannot be told by Equal.
    if (x_finite and y_finite) or (x.dtype is not None and x.dtype.kind == "complex"):
        return made
    zero = b.CastLike(b.constant(np.float32(0)), x) if x.dtype is None else b.constant(np.zeros((), x.dtype.numpy))
    if y_finite:
        none = b.Equal(y, zero)
    elif x_finite:
        none = b.Equal(x, zero)
    else:
        none = b.Or(b.Equal(x, zero), b.Equal(y, zero))
    return b.Where(none, zero, made)


@decompose("stop_gradient barrier", 1, domain=DOMAIN)
def same(b: Builder, op: OnnxOp) -> list[Tensor]:
    return [b.Identity(value) for value in op.operands]
