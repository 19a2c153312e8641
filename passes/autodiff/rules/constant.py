"""What makes values out of shapes and numbers."""

from __future__ import annotations

from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("ConstantOfShape EyeLike", "only the shape of its operand matters")
proven_zero("HannWindow HammingWindow BlackmanWindow", "a size")
proven_zero("Range", "only the number of elements depends on the limit", [1])


@vjp("Range")
def range_(g: Vjp) -> Gradients:
    """``start + i delta``."""
    b = g.b
    first = b.ReduceSum(g.ct, keepdims=0)
    count = b.Range(g.i64(0), b.Size(g.y()), g.i64(1))
    third = b.ReduceSum(b.Mul(g.ct, g.cast(count, g.ct)), keepdims=0) if g.needs(2) else None
    return first, None, third
