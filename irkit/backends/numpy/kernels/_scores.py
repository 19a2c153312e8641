"""What the classifiers and regressors of ai.onnx.ml share: features, class labels, and the transforms of scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import DTypeLike

from irkit.backends.numpy.kernels._common import log_softmax
from irkit.backends.numpy.kernels._indexing import Array, string_array
from irkit.backends.numpy.registry import KernelError

__all__ = ["POST_TRANSFORMS", "class_labels", "features", "post_transform", "two_scores"]

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

_ZERO = 1e-7
"""SOFTMAX_ZERO takes scores no larger than this for zeros."""


def features(x: Array) -> Array:
    """Samples of shape ``[N, F]``, in float64 unless float32 holds their type; ``[F]`` is one sample."""
    if x.ndim not in (1, 2):
        raise KernelError(f"input must have shape [N, F] or [F], not {x.shape}")
    samples = x[np.newaxis] if x.ndim == 1 else x
    return samples.astype(np.float32 if x.dtype in (np.float16, np.float32) else np.float64, copy=False)


def class_labels(ints: Sequence[int] | None, strings: Sequence[str] | None) -> Array:
    """The labels as an int64 array or an object array of strings; exactly one kind must be given."""
    if bool(ints) == bool(strings):
        raise KernelError("class labels must be given either as integers or as strings")
    return string_array(strings, (len(strings),)) if strings else np.array(ints, dtype=np.int64)


def _logistic(x: Array) -> Array:
    positive = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - positive, positive)


def _softmax_zero(x: Array) -> Array:
    """The softmax of what is not zero; zeros stay zero."""
    present = np.abs(x) > _ZERO
    raised = np.where(present, np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf)), 0)
    total = raised.sum(axis=-1, keepdims=True)
    return np.where(present, raised / np.where(total == 0, 1, total), 0)


def _probit(p: float) -> float:
    """The quantile function of the normal distribution: minus infinity at 0, infinity at 1, NaN outside."""
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return -np.inf if p == 0 else np.inf if p == 1 else np.nan


def post_transform(scores: Array, kind: str, dtype: DTypeLike = np.float32) -> Array:
    """Transforms scores of shape ``[N, E]`` and gives them in the dtype asked for."""
    match kind:
        case "NONE":
            out = scores
        case "SOFTMAX":
            out = np.exp(log_softmax(scores, -1))
        case "LOGISTIC":
            out = _logistic(scores)
        case "SOFTMAX_ZERO":
            out = _softmax_zero(scores)
        case "PROBIT":
            out = np.array([_probit(p) for p in scores.ravel().tolist()], dtype=np.float64).reshape(scores.shape)
        case _:
            raise KernelError(f"post_transform {kind!r} is none of {', '.join(POST_TRANSFORMS)}")
    return out.astype(dtype)


def two_scores(score: Array, kind: str, *, complement: bool) -> Array:
    """The scores of both classes from that of the second, shape ``[N]``.

    The specification does not say what the first class's is. Without a transform it is ``1 - score`` if
    ``complement`` is set (the score is like a probability) and ``-score`` if not, as onnxruntime has it; PROBIT, which
    takes probabilities, transforms ``1 - score``, and the other transforms ``-score``.
    """
    first = 1 - score if kind == "PROBIT" or (kind == "NONE" and complement) else -score
    return post_transform(np.stack([first, score], axis=1), kind)
