"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._window import scalar

proven_zero("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "classes", [1])


class _Targets:
    """How much the score of every class counts in the loss.

    Attributes:
        chosen: [N, C, d1, ...]: 1 at the class of each target that counts, else 0.
        factor: [N, 1, d1, ...]: the weight of each target's class; 0 for one that is ignored; None where all are 1.
        each: [N, 1, d1, ...] or a scalar: the cotangent of each target's part of the loss, times the factor.
        share: the same without the factor.
        total: the sum of the factors, by which reduction ``"mean"`` divides, 1 where that is 0; None for the others.
    """

    def __init__(self, g: Vjp, ct: Tensor) -> None:
        b, scores, target, weight = g.b, g.x(0), g.x(1), g.x(2)
        depth = g.cast(scalar(b, g.size(scores, 1)), target)
        # onnxruntime has OneHot of float32 only; and a count may be no number of float16.
        wide = "float64" if scores.dtype is not None and scores.dtype.name == "float64" else "float32"
        chosen = g.cast(b.OneHot(target, depth, b.constant(np.asarray([0, 1], np.float32)), axis=1), wide)
        ignored = g.attr("ignore_index")
        kept: Tensor | None = None
        if ignored is not None:
            counts = b.Not(b.Equal(b.Unsqueeze(target, [1]), g.const(ignored, target)))
            kept = g.cast(counts, wide)
            chosen = b.Mul(chosen, kept)
        if weight is None:
            self.factor = kept
        else:
            each = b.Reshape(g.cast(weight, wide), [1, -1, *[1] * (g.rank(scores) - 2)])
            self.factor = b.ReduceSum(b.Mul(chosen, each), [1], keepdims=1)
        self.chosen = g.cast(chosen, scores)
        self.total: Tensor | None = None
        self.share = b.Unsqueeze(ct, [1]) if g.attr("reduction") == "none" else ct
        if g.attr("reduction") == "mean":
            total = b.ReduceSum(chosen if self.factor is None else self.factor, keepdims=0)
            if self.factor is not None:
                total = b.Where(b.Equal(total, g.const(0.0, total)), g.const(1.0, total), total)
            self.share = b.Div(ct, total) if total.dtype is ct.dtype else b.Mul(ct, g.cast(b.Reciprocal(total), ct))
            self.total = g.cast(total, scores)
        if self.factor is not None:
            self.factor = g.cast(self.factor, scores)
        self.each = self.share if self.factor is None else b.Mul(self.factor, self.share)


def _of_weights(g: Vjp, targets: _Targets, log_probability: Tensor) -> Tensor:
    """The cotangent of the weights of the classes."""
    b = g.b
    each = b.Neg(log_probability)
    if targets.total is not None:
        assert targets.factor is not None
        loss = b.Div(b.ReduceSum(b.Mul(b.Mul(each, targets.chosen), targets.factor), keepdims=0), targets.total)
        each = b.Sub(each, loss)
    part = b.Mul(b.Mul(targets.chosen, each), targets.share)
    return g.reduce_sum(part, [axis for axis in range(g.rank(log_probability)) if axis != 1])


@vjp("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(g: Vjp) -> Gradients:
    b = g.b
    targets = _Targets(g, g.ct)
    dx = b.Mul(targets.chosen, b.Neg(targets.each)) if g.needs(0) else None
    return dx, None, _of_weights(g, targets, g.x(0)) if g.needs(2) else None


@vjp("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(g: Vjp) -> Gradients:
    b, log_probability = g.b, g.y(1)
    of_loss, of_log = g.cts[0], g.cts[1] if len(g.cts) > 1 else None
    scores = weights = None
    p = b.Exp(log_probability)
    if of_loss is not None:
        targets = _Targets(g, of_loss)
        if g.needs(0):
            scores = b.Mul(b.Sub(p, targets.chosen), targets.each)
        weights = _of_weights(g, targets, log_probability) if g.needs(2) else None
    if of_log is not None and g.needs(0):
        more = b.Sub(of_log, b.Mul(p, b.ReduceSum(of_log, [1], keepdims=1)))
        scores = more if scores is None else b.Add(scores, more)
    return scores, None, weights
