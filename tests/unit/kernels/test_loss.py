"""The two losses against plain loops."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)


def plain_loss(log_probability, target, weight, reduction, ignore_index):
    """The formula of the spec, element by element."""
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for index in itertools.product(*(range(d) for d in target.shape)):
        c = int(target[index])
        if c != ignore_index:
            weights[index] = 1 if weight is None else weight[c]
            losses[index] = -float(log_probability[(index[0], c, *index[1:])]) * weights[index]
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]


SCORES = np.random.default_rng(5).normal(size=(3, 4, 2)) * 3
TARGET = np.array([[0, 3], [1, 1], [2, 0]])
WEIGHT = np.array([0.5, 2.0, 1.0, 0.25])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("ignore_index", [None, 1, -7])
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
def test_losses(op, reduction, weight, ignore_index, dtype):
    scores = SCORES.astype(dtype)
    target = np.where(TARGET == 3, ignore_index, TARGET) if ignore_index == -7 else TARGET
    attributes = {"reduction": reduction} | ({} if ignore_index is None else {"ignore_index": ignore_index})
    typed = None if weight is None else weight.astype(dtype)
    tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)
    expected = plain_loss(scores, target, weight, reduction, ignore_index)
    result = op("NegativeLogLikelihoodLoss", scores, target.astype(np.int32), typed, **attributes)
    assert result.dtype == dtype
    assert result.shape == np.shape(expected)
    np.testing.assert_allclose(result.astype(float), expected, rtol=tolerance, atol=tolerance)

    logs = np.zeros(scores.shape)
    for n, c, d in itertools.product(*(range(k) for k in scores.shape)):
        logs[n, c, d] = float(scores[n, c, d]) - math.log(sum(math.exp(float(s)) for s in scores[n, :, d]))
    expected = plain_loss(logs, target, weight, reduction, ignore_index)
    result, log_probability = op("SoftmaxCrossEntropyLoss", scores, target, typed, n_out=2, **attributes)
    assert result.dtype == log_probability.dtype == dtype
    np.testing.assert_allclose(log_probability.astype(float), logs, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(result.astype(float), expected, rtol=tolerance, atol=tolerance)


def test_edges(op):
    x, target = np.array([[1000.0, 0.0], [-1000.0, 0.0]], np.float32), np.array([0, 1])
    assert op("SoftmaxCrossEntropyLoss", x, target).tolist() == 0
    ignored = op("NegativeLogLikelihoodLoss", x, target * 0, ignore_index=0)
    assert math.isnan(ignored.item())
    assert op("NegativeLogLikelihoodLoss", x, target * 0, ignore_index=0, reduction="sum").item() == 0
    assert math.isnan(op("NegativeLogLikelihoodLoss", np.zeros((0, 2)), np.zeros(0, np.int64)).item())
    assert op("NegativeLogLikelihoodLoss", np.zeros((0, 2)), np.zeros(0, np.int64), reduction="none").shape == (0,)
    # A zero weight must not turn an ignored infinity into NaN.
    x = np.array([[-np.inf, -1.0]], np.float64)
    assert op("NegativeLogLikelihoodLoss", x, np.array([0]), ignore_index=0, reduction="none").tolist() == [0]


@pytest.mark.parametrize("name", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_refusals(op, name):
    x = np.zeros((2, 3), np.float32)
    for inputs, attributes, message in (
        ((x, np.array([0, 3])), {}, r"target 3 at index \[1\]"),
        ((x, np.array([-1, 0])), {}, r"target -1 at index \[0\]"),
        ((x, np.array([0])), {}, "must have shape"),
        ((x[0], np.array([0])), {}, "shape"),
        ((x, np.array([0, 1]), np.ones(2, np.float32)), {}, "weight"),
        ((x, np.array([0, 1])), {"reduction": "max"}, "reduction"),
    ):
        with pytest.raises(KernelError, match=message):
            op(name, *inputs, **attributes)
