"""ai.onnx.ml: linear models and support vector machines.

float32 samples are computed in float32, all others in float64; scores are float32. A transform applies to one target
as to several. A classifier with one score for two labels is binary: the score is the second label's (see
``_scores.two_scores``). Support vector classifiers vote one against one, ties to the class listed first; probabilities
are LIBSVM's: Platt's sigmoid, then the pairwise coupling of Wu, Lin and Weng (2004), second method.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from irkit.backends.numpy.kernels._indexing import Array
from irkit.backends.numpy.kernels._scores import class_labels, features, post_transform, two_scores
from irkit.backends.numpy.registry import KernelError, kernel

DOMAIN = "ai.onnx.ml"

_transform = post_transform
"""The function, where an attribute has its name."""


def _affine(x: Array, coefficients: Sequence[float], rows: int, intercepts: Sequence[float] | None) -> Array:
    """``x @ coefficients.T + intercepts`` with one row of coefficients for each score."""
    if rows < 1 or len(coefficients) != rows * x.shape[1]:
        raise KernelError(f"{len(coefficients)} coefficients do not give {rows} scores of {x.shape[1]} features")
    scores = x @ np.array(coefficients, dtype=x.dtype).reshape(rows, x.shape[1]).T
    if intercepts:
        if len(intercepts) not in (1, rows):
            raise KernelError(f"there are {len(intercepts)} intercepts for {rows} scores")
        scores = scores + np.array(intercepts, dtype=x.dtype)
    return scores


@kernel("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] | None = None,
    targets: int = 1,
    post_transform: str = "NONE",
) -> Array:
    return _transform(_affine(features(x), coefficients, targets, intercepts), post_transform)


@kernel("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    x: Array,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    labels = class_labels(classlabels_ints, classlabels_strings)
    samples = features(x)
    binary = len(labels) == 2 and len(coefficients) == samples.shape[1]
    scores = _affine(samples, coefficients, 1 if binary else len(labels), intercepts)
    if binary:
        return labels[(scores[:, 0] > 0).astype(np.int64)], two_scores(scores[:, 0], post_transform, complement=True)
    return labels[scores.argmax(axis=1)], _transform(scores, post_transform)


def _kernel_matrix(x: Array, vectors: Array, kind: str, params: Sequence[float]) -> Array:
    """The kernel of each sample with each support vector, shape ``[N, V]``."""
    gamma, coef0, degree = (*params, 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        norms = np.square(x).sum(axis=1)[:, np.newaxis] + np.square(vectors).sum(axis=1)
        return np.exp(-gamma * np.maximum(norms - 2 * (x @ vectors.T), 0))
    product = x @ vectors.T
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return (gamma * product + coef0) ** degree
        case "SIGMOID":
            return np.tanh(gamma * product + coef0)
    raise KernelError(f"kernel_type {kind!r} is none of LINEAR, POLY, RBF, SIGMOID")


def _support_vectors(values: Sequence[float], count: int, x: Array) -> Array:
    if len(values) != count * x.shape[1]:
        raise KernelError(f"{len(values)} numbers are not {count} support vectors of {x.shape[1]} features")
    return np.array(values, dtype=np.float64).reshape(count, x.shape[1])


@kernel("SVMRegressor", domain=DOMAIN)
def svm_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    n_supports: int = 0,
    rho: Sequence[float] = (0.0,),
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (),
    one_class: int = 0,
    post_transform: str = "NONE",
) -> Array:
    samples = features(x).astype(np.float64)
    weighted = samples
    if n_supports > 0:
        vectors = _support_vectors(support_vectors, n_supports, samples)
        weighted = _kernel_matrix(samples, vectors, kernel_type, kernel_params)
    scores = _affine(weighted, coefficients, 1, rho[:1])
    if one_class:
        scores = np.where(scores > 0, 1.0, -1.0)
    return _transform(scores, post_transform)


def _couple(pairwise: Array) -> Array:
    """Class probabilities from those of pairs.

    Args:
        pairwise: ``[N, k, k]``, the probability of class i when it is i or j, at ``[:, i, j]``; 0 on the diagonal.
    """
    n, k, _ = pairwise.shape
    # LIBSVM's iteration, which minimizes p'Qp over distributions p, on all samples at once.
    q = -pairwise * pairwise.swapaxes(1, 2)
    diagonal = np.arange(k)
    q[:, diagonal, diagonal] = np.square(pairwise).sum(axis=1)
    p = np.full((n, k), 1 / k)
    active = np.arange(n)
    for _ in range(max(100, k)):
        qp = np.einsum("nij,nj->ni", q[active], p[active])
        pqp = (p[active] * qp).sum(axis=1)
        unfinished = np.abs(qp - pqp[:, np.newaxis]).max(axis=1) >= 0.005 / k
        active, qp, pqp = active[unfinished], qp[unfinished], pqp[unfinished]
        if len(active) == 0:
            break
        current, matrix = p[active], q[active]
        for t in range(k):
            step = (pqp - qp[:, t]) / matrix[:, t, t]
            current[:, t] += step
            pqp = (pqp + step * (step * matrix[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, np.newaxis] * matrix[:, t]) / (1 + step)[:, np.newaxis]
            current /= (1 + step)[:, np.newaxis]
        p[active] = current
    return p


def _probabilities(decisions: Array, classes: int, prob_a: Sequence[float], prob_b: Sequence[float]) -> Array:
    """Class probabilities from the decision values of all pairs of classes, in lexicographic order."""
    if not len(prob_a) == len(prob_b) == decisions.shape[1]:
        raise KernelError(f"prob_a and prob_b hold {len(prob_a)} and {len(prob_b)} values, not {decisions.shape[1]}")
    sigmoid = 1 / (1 + np.exp(decisions * np.array(prob_a) + np.array(prob_b)))
    first = np.clip(sigmoid, 1e-7, 1 - 1e-7)
    pairwise = np.zeros((len(decisions), classes, classes))
    for pair, (i, j) in enumerate(combinations(range(classes), 2)):
        pairwise[:, i, j] = first[:, pair]
        pairwise[:, j, i] = 1 - first[:, pair]
    return _couple(pairwise)


@kernel("SVMClassifier", domain=DOMAIN)
def svm_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
    rho: Sequence[float] = (),
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (),
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    labels = class_labels(classlabels_ints, classlabels_strings)
    classes = len(labels)
    samples = features(x).astype(np.float64)
    count = sum(vectors_per_class)
    if count == 0:
        scores = _affine(samples, coefficients, classes, rho[:1])
        return labels[scores.argmax(axis=1)], _transform(scores, post_transform)
    pairs = list(combinations(range(classes), 2))
    if classes < 2 or len(vectors_per_class) != classes or len(rho) != len(pairs):
        raise KernelError(
            f"{classes} classes take as many vectors_per_class and {len(pairs)} values of rho, not "
            f"{len(vectors_per_class)} and {len(rho)}"
        )
    if len(coefficients) != (classes - 1) * count:
        raise KernelError(f"{len(coefficients)} coefficients are not {classes - 1} for each of {count} support vectors")
    similar = _kernel_matrix(samples, _support_vectors(support_vectors, count, samples), kernel_type, kernel_params)
    alpha = np.array(coefficients, dtype=np.float64).reshape(classes - 1, count)
    ends = np.cumsum(vectors_per_class)
    own = [slice(end - size, end) for end, size in zip(ends, vectors_per_class, strict=True)]
    decisions = np.stack(
        [
            similar[:, own[i]] @ alpha[j - 1, own[i]] + similar[:, own[j]] @ alpha[i, own[j]] + rho[pair]
            for pair, (i, j) in enumerate(pairs)
        ],
        axis=1,
    )
    votes = np.zeros((len(samples), classes), dtype=np.int64)
    for pair, (i, j) in enumerate(pairs):
        votes[:, i] += decisions[:, pair] > 0
        votes[:, j] += decisions[:, pair] <= 0
    chosen = labels[votes.argmax(axis=1)]
    if prob_a:
        return chosen, _transform(_probabilities(decisions, classes, prob_a, prob_b), post_transform)
    if classes == 2:
        return chosen, two_scores(decisions[:, 0], post_transform, complement=False)
    return chosen, _transform(decisions, post_transform)
