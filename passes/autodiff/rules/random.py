"""Random ops. A mask that was drawn is a result of the forward op: it is never drawn again."""

from __future__ import annotations

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Vjp, proven_zero, vjp

proven_zero("RandomNormalLike RandomUniformLike Bernoulli Multinomial", "what is drawn does not vary with its operand")
proven_zero("Dropout", "a probability and a mode", [1, 2])


@vjp("Dropout")
def dropout(g: Vjp) -> Tensor:
    """``ct mask / (1 - ratio)`` in training, ``ct`` otherwise."""
    b, mode, ratio = g.b, g.x(2), g.x(1)
    training = g.constant(2)
    if mode is None or (training is not None and not training.array().any()):
        return g.ct
    one, zero = g.const(1), g.const(0)
    kept = b.Sub(one, g.const(0.5) if ratio is None else g.cast(ratio, g.ct))
    factor = b.Where(b.Equal(kept, zero), zero, b.Div(one, kept))
    if training is None:
        factor = b.Where(mode, factor, one)
    return b.Mul(g.ct, b.Mul(g.float_of(g.y(1), g.ct), factor))

