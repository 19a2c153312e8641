"""Metrics over several batches, against Keras's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.passes.training import metrics
from irkit.passes.training.metrics import Metric
from tests.unit.training.cases import METRICS, metric_batches
from tests.unit.training.support import BACKENDS, goldens


def metric_module(metric: Metric, target: Any, prediction: Any, weighted: bool) -> ik.Module:
    """A module that takes the sums and a batch, and gives the new sums and what they come to."""
    b = ik.Builder("metric")
    state = {name: b.input(name, array.dtype, list(array.shape)) for name, array in metric.states().items()}
    t = b.input("target", target.dtype, ["N", *target.shape[1:]])
    p = b.input("prediction", prediction.dtype, ["N", *prediction.shape[1:]])
    w = b.input("weight", "float32", ["N"]) if weighted else None
    after = metric.update(b, state, t, p, w)
    for name, value in after.items():
        b.output(value, f"next/{name}")
    b.output(metric.result(b, after), "result")
    return b.module()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", METRICS)
def test_results_over_batches(name: str, backend: str) -> None:
    case = METRICS[name]
    metric = metrics.get(case.name)
    batches = list(metric_batches(case))
    module = metric_module(metric, batches[0][0], batches[0][1], case.weighted)
    f = ik.compile(module, backend=backend)
    state: dict[str, Any] = dict(metric.states())
    found = []
    for target, prediction, weight in batches:
        feeds = {**state, "target": target, "prediction": prediction}
        out = f.run({**feeds, "weight": weight} if case.weighted else feeds)
        state = {key.removeprefix("next/"): value for key, value in out.items() if key != "result"}
        found.append(float(out["result"]))
    np.testing.assert_allclose(found, goldens()[f"metric/{name}"], rtol=1e-4, atol=1e-6)


def test_a_confusion_matrix() -> None:
    metric = metrics.ConfusionMatrix(3)
    target, scores = np.asarray([0, 1, 2, 2]), np.eye(3, dtype=np.float32)[[0, 2, 2, 1]]
    f = ik.compile(metric_module(metric, target, scores, True))
    weight = np.asarray([1, 2, 3, 4], np.float32)
    found = f.run({**metric.states(), "target": target, "prediction": scores, "weight": weight})
    np.testing.assert_array_equal(found["result"], [[1, 0, 0], [0, 0, 2], [0, 4, 3]])


@pytest.mark.parametrize(
    ("loss", "columns", "target", "expected"),
    [
        ("binary-crossentropy", 2, [[1, 0], [0, 1], [1, 1], [0, 1]], 0.875),
        (ik.losses.Loss("binary-crossentropy", from_logits=True), 2, [[1, 0], [0, 1], [1, 1], [0, 1]], 0.625),
        ("categorical-crossentropy", 2, [[1, 0], [0, 1], [0, 1], [0, 1]], 0.5),
        ("softmax-cross-entropy", 2, [0, 1, 1, 1], 0.5),
        ("mse", 1, [[1], [0], [1], [1]], 0.75),
    ],
    ids=["binary", "binary-logits", "categorical", "sparse", "one-column"],
)
def test_accuracy_is_the_one_that_suits(loss: Any, columns: int, target: Any, expected: float) -> None:
    x = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.7, 0.6], [0.4, 0.3]], np.float32)[:, :columns]
    b = ik.Builder("same")
    b.output(b.input("x", "float32", ["N", columns]) * b.initializer(np.ones(columns, np.float32), "w"), "y")
    step = ik.training_step(b.module(), loss, "sgd", metrics=["accuracy"])
    kind = step.module.inputs["target"]
    dtype = np.int64 if "i64" in str(kind) else np.float32
    found = ik.compile(step.module).run({"x": x, "target": np.asarray(target, dtype)})
    assert found["accuracy"] == expected


def test_unknown_metrics_are_refused() -> None:
    with pytest.raises(IrkitError, match="did you mean 'precision'"):
        metrics.get("precison")
