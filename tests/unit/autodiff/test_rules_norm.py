"""Gradients of normalizations, softmax and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from tests.unit.autodiff.checks import check
from tests.unit.autodiff.support import gradients, same_gradients

RNG = np.random.default_rng(7)
DOUBLE = 11


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 2, 2)])
def test_batch_normalization(shape: tuple[int, ...], symbolic: bool) -> None:
    channels = shape[1]
    vectors = draw(channels), draw(channels), draw(channels), RNG.uniform(0.5, 1.5, channels)
    check(lambda b, *v: b.BatchNormalization(*v, epsilon=0.01), draw(*shape), *vectors, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("shape", [(4, 2), (2, 3, 2, 2)])
def test_batch_normalization_in_training(shape: tuple[int, ...], outputs: int, symbolic: bool) -> None:
    channels = shape[1]
    vectors = draw(channels), draw(channels), draw(channels), RNG.uniform(0.5, 1.5, channels)
    check(
        lambda b, *v: b.BatchNormalization(*v, training_mode=1, momentum=0.7, outputs=3, epsilon=0.01)[:outputs],
        draw(*shape),
        *vectors,
        wrt=[0, 1, 2, 3, 4] if outputs == 3 else [0, 1, 2],
        symbolic=symbolic,
    )


@pytest.mark.parametrize("symbolic", [False, True])
def test_instance_normalization(symbolic: bool) -> None:
    check(lambda b, *v: b.InstanceNormalization(*v), draw(2, 3, 2, 4), draw(3), draw(3), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("axis", "shape"), [(-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (2, ())])
def test_layer_normalization(axis: int, shape: tuple[int, ...], symbolic: bool) -> None:
    arrays = draw(2, 3, 4), draw(*shape), draw(*shape)
    check(lambda b, *v: b.LayerNormalization(*v, axis=axis, stash_type=DOUBLE), *arrays, symbolic=symbolic)


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_layer_normalization_with_its_statistics(chosen: int) -> None:
    """The statistics are never of float64: gradients are those of the formula, in float32."""
    arrays = draw(2, 3, 4), draw(4), draw(4)

    def build(b: Any, *v: Any) -> Any:
        y, mean, inverse = b.LayerNormalization(*v, axis=1, outputs=3)
        return b.Add(b.Mul(y, [1.0, 0.5, 0.5][chosen]), b.Mul(b.Mul(mean, inverse), [0.0, 1.0, 2.0][chosen]))

    def meant(b: Any, x: Any, scale: Any, bias: Any) -> Any:
        mean = b.ReduceMean(x, [1, 2], keepdims=1)
        apart = b.Sub(x, mean)
        inverse = b.Reciprocal(b.Sqrt(b.Add(b.ReduceMean(b.Mul(apart, apart), [1, 2], keepdims=1), 1e-5)))
        y = b.Add(b.Mul(b.Mul(apart, inverse), scale), bias)
        return b.Add(b.Mul(y, [1.0, 0.5, 0.5][chosen]), b.Mul(b.Mul(mean, inverse), [0.0, 1.0, 2.0][chosen]))

    same_gradients(build, meant, *arrays)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("axis", "shape"), [(-1, (4,)), (1, (3, 1))])
def test_rms_normalization(axis: int, shape: tuple[int, ...], symbolic: bool) -> None:
    arrays = draw(2, 3, 4), draw(*shape)
    check(lambda b, *v: b.RMSNormalization(*v, axis=axis, stash_type=DOUBLE), *arrays, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_group_normalization(symbolic: bool) -> None:
    check(
        lambda b, *v: b.GroupNormalization(*v, num_groups=2, stash_type=DOUBLE),
        draw(2, 4, 2, 3),
        draw(4),
        draw(4),
        symbolic=symbolic,
    )


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_lrn(size: int, symbolic: bool) -> None:
    check(lambda b, x: b.LRN(x, size=size, alpha=0.8, beta=0.6, bias=1.5), draw(2, 5, 2, 2), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int, symbolic: bool) -> None:
    x = draw(2, 3, 4)
    check(lambda b, x: b.LpNormalization(x, p=p, axis=1), np.sign(x) * (np.abs(x) + 0.1), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", [[0, 2, 3], [-1]])
def test_mean_variance_normalization(axes: list[int], symbolic: bool) -> None:
    check(lambda b, x: b.MeanVarianceNormalization(x, axes=axes), draw(2, 3, 2, 4), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax(name: str, axis: int, symbolic: bool) -> None:
    check(lambda b, x: b.op(name, x, axis=axis), draw(2, 3, 4), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_of_masked_elements(name: str, symbolic: bool) -> None:
    mask = np.array([[True, False, True], [True, True, False]])

    def build(b: Any, x: Any) -> Any:
        y = b.op(name, b.Where(mask, x, np.array(-np.inf)))
        return b.Where(mask, y, np.array(0.0))

    check(build, draw(2, 3), symbolic=symbolic)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_row_that_is_masked_throughout_has_no_gradient(name: str) -> None:
    mask = np.array([[False, False], [True, True]])
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    (found,) = gradients(lambda b, x: b.op(name, b.Where(mask, x, np.array(-np.inf))), x)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[0], 0)
    assert found[1].any()


@pytest.mark.parametrize("p", [1, 2])
def test_a_norm_of_zero_has_no_gradient(p: int) -> None:
    (found,) = gradients(lambda b, x: b.LpNormalization(x, p=p), np.zeros((2, 3)))
    np.testing.assert_array_equal(found, 0)


def test_a_constant_image_has_no_gradient_through_its_deviation() -> None:
    (found,) = gradients(lambda b, x: b.MeanVarianceNormalization(x), np.full((1, 2, 2, 2), 3.0))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_statistics_of_narrow_floats_are_wide(kind: str) -> None:
    narrow = ik.Builder("probe").input("x", kind, [1]).dtype
    assert narrow is not None
    # Squares of these are beyond the range of float16.
    x = (RNG.uniform(-1, 1, (2, 512)) * 1000).astype(narrow.numpy)
    scale = np.full(512, 100, narrow.numpy)
    (found,) = gradients(lambda b, x: b.LayerNormalization(x, scale), x)
    (wide,) = gradients(lambda b, x: b.LayerNormalization(x, scale.astype(np.float32)), x.astype(np.float32))
    assert found.dtype == narrow.numpy
    np.testing.assert_allclose(found.astype(np.float32), wide, atol=np.abs(wide).max() * 0.02)


# Losses

LABELS = np.array([[1, 2, 0], [3, 1, 1]])
LOSSES = [
    (reduction, weighted, ignored)
    for reduction in ("none", "sum", "mean")
    for weighted in (False, True)
    for ignored in (None, 1, -100)
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("reduction", "weighted", "ignored"), LOSSES)
@pytest.mark.parametrize("name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_loss(name: str, reduction: str, weighted: bool, ignored: int | None, symbolic: bool) -> None:
    labels = np.where(LABELS == 0, ignored, LABELS) if ignored == -100 else LABELS
    weights = [RNG.uniform(0.5, 1.5, 4)] if weighted else []
    check(
        lambda b, x, *w: b.op(name, x, labels, *w, reduction=reduction, ignore_index=ignored),
        draw(2, 4, 3),
        *weights,
        symbolic=symbolic,
    )


def test_loss_with_its_log_probability() -> None:
    check(lambda b, x: b.SoftmaxCrossEntropyLoss(x, np.array([1, 0]), outputs=2), draw(2, 3))


def test_a_loss_that_ignores_every_target_has_no_gradient() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    (found,) = gradients(lambda b, x: b.SoftmaxCrossEntropyLoss(x, np.array([1, 1]), ignore_index=1), x)
    np.testing.assert_array_equal(found, 0)
