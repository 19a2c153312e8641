"""Random ops. A mask that was drawn is a result of the forward op: it is never drawn again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import Vjp, proven_zero, vjp

proven_zero("RandomNormalLike RandomUniformLike Bernoulli Multinomial", "what is drawn does not vary with its operand")
proven_zero("Dropout", "a probability and a mode", [1, 2])


@vjp("Dropout")
def dropout(g: Vjp) -> Tensor:
    given = [g.ct, *(g.x(i) for i in range(1, g.n_operands))]
    return g.ct if _is_off(given) else masked(g.b, given, g.y(1))


def _is_off(operands: Sequence[Tensor | None]) -> bool:
    """Whether Dropout with these operands does nothing: it is not in training."""
    mode = operands[2] if len(operands) > 2 else None
    training = None if mode is None else constant_of(mode.ssa)
    return mode is None or (training is not None and not training.array().any())


def masked(b: Builder, operands: Sequence[Tensor | None], mask: Tensor) -> Tensor:
    """What Dropout with these operands gives, with a mask that was drawn: ``x mask / (1 - ratio)`` in training."""
    x = operands[0]
    assert x is not None
    if _is_off(operands):
        return b.Identity(x)
    ratio = operands[1]
    one, zero = (b.CastLike(b.constant(np.float32(v)), x) for v in (1, 0))
    kept = b.Sub(one, b.CastLike(b.constant(np.float32(0.5)) if ratio is None else ratio, x))
    factor = b.Where(b.Equal(kept, zero), zero, b.Div(one, kept))
    mode = operands[2]
    if mode is not None and constant_of(mode.ssa) is None:
        factor = b.Where(mode, factor, one)
    return b.Mul(x, b.Mul(b.CastLike(mask, x), factor))
