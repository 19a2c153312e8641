"""Losses and their gradients against Keras and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.passes.training import losses
from irkit.passes.training.losses import Loss
from tests.unit.training.cases import LOSSES
from tests.unit.training.support import goldens, module_of, run_both


def gradient_of(build: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The sum of a loss, and its gradient in the prediction, on both backends."""
    module = module_of(lambda b, **x: {"loss": b.ReduceSum(build(b, **x), keepdims=0)}, **arrays)
    return run_both(ik.value_and_grad(module, of="loss", wrt="prediction"), arrays)


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients(name: str) -> None:
    case = LOSSES[name]
    loss = losses.get(case.name, **case.options)
    arrays = {"target": case.target, "prediction": case.prediction}
    if case.weight is not None:
        arrays["weight"] = case.weight

    def build(b: Any, target: Any, prediction: Any, weight: Any = None) -> Any:
        return loss(b, target, prediction, weight)

    value = run_both(module_of(lambda b, **x: {"loss": build(b, **x)}, **arrays), arrays)["loss"]
    np.testing.assert_allclose(value, goldens()[f"loss/{name}"], rtol=1e-5, atol=1e-6)
    found = gradient_of(build, arrays)["grad/prediction"]
    np.testing.assert_allclose(found, goldens()[f"loss/{name}/gradient"], rtol=1e-4, atol=1e-6)
    assert np.isfinite(found).all()


def test_what_is_not_known_is_refused() -> None:
    for call, message in (
        (lambda: Loss("huberr"), "did you mean 'huber'"),
        (lambda: Loss("huber", delt=1.0), "loss 'huber' has no option 'delt'"),
        (lambda: Loss("mse", reduction="average"), "no reduction 'average'"),
        (lambda: Loss("softmax-cross-entropy", from_logit=True), "has no option 'from_logit'"),
        (lambda: Loss(lambda b, t, p: p, delta=1.0), "the loss function has no option 'delta'"),
    ):
        with pytest.raises(IrkitError, match=message):
            call()


def test_one_more_by_name() -> None:
    @losses.declare("cubed")
    def mean_cubed_error(b: Any, target: Any, prediction: Any, *, factor: float = 1.0) -> Any:
        error = b.Abs(prediction - target)
        return b.ReduceMean(error * error * error, [-1], keepdims=0) * factor

    arrays = {"target": np.zeros((2, 2), np.float32), "prediction": np.full((2, 2), 2, np.float32)}
    for name in ("cubed", "MeanCubedError", "mean_cubed_error"):
        loss = losses.get(name, factor=0.5)
        module = module_of(lambda b, target, prediction, loss=loss: {"loss": loss(b, target, prediction)}, **arrays)
        assert run_both(module, arrays)["loss"] == 4


@pytest.mark.parametrize("name", ["mse", "binary-crossentropy", "huber", "poisson", "kl-divergence"])
def test_float16_is_computed_in_float32(name: str) -> None:
    rng = np.random.default_rng(0)
    wide = {key: rng.random((6, 3)).astype(np.float16).astype(np.float32) for key in ("target", "prediction")}
    narrow = {key: value.astype(np.float16) for key, value in wide.items()}
    found = []
    for arrays in (wide, narrow):
        module = module_of(lambda b, **x: {"loss": losses.get(name)(b, **x)}, **arrays)
        assert module.outputs["loss"] == module_of(lambda b: {"x": b.constant(np.float32(0))}).outputs["x"]
        found.append(run_both(module, arrays)["loss"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_nothing_that_counts_is_a_loss_of_zero() -> None:
    loss = Loss("softmax-cross-entropy", ignore_index=-1)
    arrays = {"target": np.asarray([-1, -1]), "prediction": np.ones((2, 3), np.float32)}
    found = gradient_of(loss, arrays)
    assert found["loss"] == 0
    np.testing.assert_array_equal(found["grad/prediction"], np.zeros((2, 3)))


@pytest.mark.parametrize("name", ["cosine-similarity", "huber", "mae", "categorical-hinge", "poisson", "kl-divergence"])
def test_gradients_are_finite_at_the_edges(name: str) -> None:
    zeros = np.zeros((3, 4), np.float32)
    for target in (zeros, np.ones_like(zeros)):
        found = gradient_of(losses.get(name), {"target": target, "prediction": zeros})
        assert np.isfinite(found["loss"])
        assert np.isfinite(found["grad/prediction"]).all()


@pytest.mark.parametrize("extreme", [0.0, 1.0])
@pytest.mark.parametrize("name", ["binary-crossentropy", "categorical-crossentropy"])
def test_probabilities_of_zero_and_one(name: str, extreme: float) -> None:
    p = np.asarray([[extreme, 1 - extreme]], np.float32)
    for target in (p, 1 - p):
        found = gradient_of(losses.get(name), {"target": target, "prediction": p})
        assert np.isfinite(found["loss"])
        assert np.isfinite(found["grad/prediction"]).all()


@pytest.mark.parametrize("name", ["categorical-crossentropy", "softmax-cross-entropy"])
def test_one_class_alone_is_refused(name: str) -> None:
    arrays = {"target": np.zeros((2, 3), np.int64), "prediction": np.ones((2, 3, 1), np.float32)}
    with pytest.raises(IrkitError, match="one class along axis -1"):
        module_of(lambda b, **x: {"loss": losses.get(name)(b, **x)}, **arrays)


@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 5)])
def test_classes_that_are_masked_out(shape: tuple[int, ...]) -> None:
    scores = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    scores[..., 3:] = -np.inf
    arrays = {"target": np.full(shape[:-1], 1), "prediction": scores}
    found = gradient_of(Loss("softmax-cross-entropy"), arrays)
    kept = {"target": arrays["target"], "prediction": scores[..., :3].copy()}
    expected = gradient_of(Loss("softmax-cross-entropy"), kept)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(found["grad/prediction"][..., :3], expected["grad/prediction"], rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(found["grad/prediction"][..., 3:], 0)
