"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "classes", [1])


class _Targets:
    """How much the score of every class counts in the loss.

    Attributes:
        chosen: [N, C, d1, ...]: 1 at the class of each target that counts, else 0.
        factor: [N, 1, d1, ...]: the weight of each target's class; 0 for one that is ignored.
        total: what reduction ``"mean"`` divides by, 1 where that is 0; None for the other reductions.
        share: [N, 1, d1, ...]: the cotangent of each target's part of the loss, for a factor of 1.
    """

    def __init__(self, g: Vjp, ct: Tensor) -> None:
        b, scores, target, weight = g.b, g.x(0), g.x(1), g.x(2)
        rank = g.rank(scores)
        target = b.Unsqueeze(target, [1])
        zero, one = g.i64(0), g.i64(1)
        classes = b.Range(zero, b.Squeeze(g.size(scores, 1)), one)
        classes = b.Reshape(g.cast(classes, target), [1, -1, *[1] * (rank - 2)])
        hit = b.Equal(target, classes)
        ignored = g.attr("ignore_index")
        if ignored is not None:
            hit = b.And(hit, b.Not(b.Equal(target, g.const(ignored, target))))
        self.chosen = g.cast(hit, scores)
        weighted = self.chosen
        if weight is not None:
            weighted = b.Mul(weighted, b.Reshape(weight, [1, -1, *[1] * (rank - 2)]))
        self.factor = b.ReduceSum(weighted, [1], keepdims=1)
        self.total: Tensor | None = None
        reduction = g.attr("reduction")
        self.share = b.Unsqueeze(ct, [1]) if reduction == "none" else ct
        if reduction == "mean":
            total = b.ReduceSum(self.factor, keepdims=0)
            nothing = b.Equal(total, g.const(0.0, total))
            self.total = b.Where(nothing, g.const(1.0, total), total)
            self.share = b.Div(ct, self.total)


def _of_weights(g: Vjp, targets: _Targets, log_probability: Tensor) -> Tensor:
    """The cotangent of the weights of the classes."""
    b = g.b
    each = b.Neg(log_probability)
    if targets.total is not None:
        loss = b.Div(b.ReduceSum(b.Mul(b.Mul(each, targets.chosen), targets.factor), keepdims=0), targets.total)
        each = b.Sub(each, loss)
    part = b.Mul(b.Mul(targets.chosen, each), targets.share)
    return g.reduce_sum(part, [axis for axis in range(g.rank(log_probability)) if axis != 1])


@vjp("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(g: Vjp) -> Gradients:
    b = g.b
    targets = _Targets(g, g.ct)
    dx = b.Neg(b.Mul(targets.chosen, b.Mul(targets.factor, targets.share))) if g.needs(0) else None
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
            each = b.Mul(targets.factor, targets.share)
            scores = b.Mul(each, b.Sub(p, targets.chosen))
        weights = _of_weights(g, targets, log_probability) if g.needs(2) else None
    if of_log is not None and g.needs(0):
        more = b.Sub(of_log, b.Mul(p, b.ReduceSum(of_log, [1], keepdims=1)))
        scores = more if scores is None else b.Add(scores, more)
    return scores, None, weights
