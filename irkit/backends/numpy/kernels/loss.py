"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

Narrow floats are computed in float32 and rounded once. With reduction "mean" the divisor is the sum of the weights of
the targets that count (their number, without weights): if there are none, the loss is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import log_softmax, shape_of, widen
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []


def _nll(
    log_probability: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    reduction: str,
    ignore_index: int | None,
) -> np.ndarray:
    """The negative log likelihood loss in the type of ``log_probability``, float32 or float64.

    Args:
        log_probability: shape [N, C, d1, ...].
        target: classes, of shape [N, d1, ...].
        weight: one factor a class, shape [C].
        reduction: ``"none"``, ``"sum"`` or ``"mean"``.
        ignore_index: a target that contributes nothing.

    Raises:
        KernelError: if shapes do not fit or a target is no class.
    """
    shape = log_probability.shape
    if len(shape) < 2 or target.shape != (shape[0], *shape[2:]):
        raise KernelError(
            f"for scores {shape_of(log_probability)} of shape [N, C, d1, ...] "
            f"the targets must have shape [N, d1, ...], they are {shape_of(target)}"
        )
    classes = shape[1]
    if weight is not None and weight.shape != (classes,):
        raise KernelError(f"weight must have shape [{classes}], it is {shape_of(weight)}")
    counts = np.ones(target.shape, np.bool_) if ignore_index is None else np.asarray(target != ignore_index)
    invalid = counts & ((target < 0) | (target >= classes))
    if invalid.any():
        index = np.argwhere(invalid)[0].tolist()
        raise KernelError(f"target {target[tuple(index)]} at index {index} is no class: there are {classes}")
    zero = np.zeros((), log_probability.dtype)
    if not classes:
        loss = factor = np.zeros(target.shape, log_probability.dtype)
    else:
        index = np.where(counts, target, 0)
        picked = np.take_along_axis(log_probability, np.expand_dims(index, 1), axis=1).squeeze(1)
        weights = np.ones(classes, log_probability.dtype) if weight is None else widen(weight)
        factor = np.where(counts, weights[index], zero)
        loss = np.where(counts, -picked * factor, zero)
    if reduction == "none":
        return np.asarray(loss)
    if reduction == "sum":
        return np.asarray(np.sum(loss))
    if reduction == "mean":
        return np.asarray(np.sum(loss) / np.sum(factor))
    raise KernelError(f'reduction must be "none", "sum" or "mean", not "{reduction}"')


@kernel("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    x: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    reduction: str,
    ignore_index: int | None = None,
) -> np.ndarray:
    """The loss of log-probabilities ``x`` against class indices."""
    return _nll(widen(x), target, weight, reduction, ignore_index).astype(x.dtype, copy=False)


@kernel("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    n_out: int,
    reduction: str,
    ignore_index: int | None = None,
) -> Any:
    """The loss of the log-softmax of ``scores`` along axis 1; as second output, that log-softmax."""
    if scores.ndim < 2:
        raise KernelError(f"scores must have shape [N, C, d1, ...], they are {shape_of(scores)}")
    log_probability = log_softmax(widen(scores), axis=1)
    loss = _nll(log_probability, labels, weights, reduction, ignore_index).astype(scores.dtype, copy=False)
    return (loss, log_probability.astype(scores.dtype, copy=False)) if n_out > 1 else loss
