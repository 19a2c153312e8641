"""Metrics as graphs with state: what is added up over the batches of an epoch, and what follows from it.

A metric says which sums it keeps, how a batch changes them and what they come to. In a training step they are
variables, which whoever runs the step sets back to zero at the beginning of an epoch.

>>> import irkit as ik
>>> metric = ik.metrics.get("accuracy", classes=True)
>>> metric.name, {name: tuple(array.shape) for name, array in metric.states().items()}
('accuracy', {'total': (), 'count': ()})

As in Keras (``keras.metrics``): thresholds are exceeded by what is greater, and what divides by zero is zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.types import tensor
from irkit.passes.registry import suggestion
from irkit.passes.training import losses
from irkit.passes.training.losses import as_weights
from irkit.passes.training.values import cast, number, widened

__all__ = [
    "AUC",
    "ConfusionMatrix",
    "Counts",
    "F1Score",
    "Mean",
    "Metric",
    "Precision",
    "Recall",
    "RootMeanSquaredError",
    "get",
    "names",
]

Sums = Mapping[str, Tensor]
"""What a metric keeps, by name: float32."""


class Metric(ABC):
    """A metric over the batches of an epoch.

    Attributes:
        name: of the output that gives it.
        classes: whether targets are numbers of classes.
    """

    name: str
    classes: bool = False

    @abstractmethod
    def states(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is kept, with its value at the beginning of an epoch."""

    @abstractmethod
    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What is kept after a batch."""

    @abstractmethod
    def result(self, b: Builder, state: Sums) -> Tensor:
        """What the sums come to: a float32 scalar, or a matrix of counts."""

    def target_type(self, prediction: Tensor) -> Attribute:
        """The type of the target of a prediction."""
        if not self.classes:
            return tensor(prediction.dtype or "float32", prediction.shape)
        return tensor("int64", None if prediction.shape is None else prediction.shape[:-1])


def _zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def _divide(b: Builder, top: Tensor, bottom: Tensor) -> Tensor:
    """A quotient, 0 where it would be by zero."""
    none = b.Equal(bottom, 0.0)
    return b.Where(none, b.constant(np.float32(0)), top / b.Where(none, b.constant(np.float32(1)), bottom))


def _f32(b: Builder, value: Tensor) -> Tensor:
    return cast(b, value, "float32")


Values = Callable[[Builder, Tensor, Tensor], Tensor]
"""Takes a builder, the target and the prediction; gives one value per sample."""


@dataclass(frozen=True)
class Mean(Metric):
    """The weighted mean over all samples of a value per sample: of any loss, or of whether it was right."""

    name: str
    values: Values
    classes: bool = False

    def states(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"total": _zeros(), "count": _zeros()}

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        values = _f32(b, self.values(b, target, widened(b, prediction)))
        if sample_weight is None:
            count = _f32(b, b.Size(values))
        else:
            weight = as_weights(b, sample_weight, values)
            weight = b.Expand(weight, b.Shape(values)) if (values.rank or 0) > 1 else weight
            values, count = values * weight, b.ReduceSum(weight, keepdims=0)
        return {"total": state["total"] + b.ReduceSum(values, keepdims=0), "count": state["count"] + count}

    def result(self, b: Builder, state: Sums) -> Tensor:
        return _divide(b, state["total"], state["count"])


@dataclass(frozen=True)
class RootMeanSquaredError(Mean):
    """The root of the mean squared error."""

    name: str = "root-mean-squared-error"
    values: Values = losses.mean_squared_error

    def result(self, b: Builder, state: Sums) -> Tensor:
        return b.Sqrt(super().result(b, state))


def binary_accuracy(threshold: float = 0.5) -> Values:
    """Whether a probability lies on the right side of a threshold; the mean over the last axis."""

    def values(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
        right = b.Equal(_f32(b, prediction > threshold), _f32(b, target))
        found = _f32(b, right)
        return found if found.rank == 1 else b.ReduceMean(found, [-1], keepdims=0)

    return values


def categorical_accuracy(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """Whether the greatest prediction is that of the class whose target is greatest."""
    return _f32(b, b.Equal(b.ArgMax(target, axis=-1, keepdims=0), b.ArgMax(prediction, axis=-1, keepdims=0)))


def sparse_categorical_accuracy(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """Whether the greatest prediction is that of the target's class."""
    return _f32(b, b.Equal(cast(b, target, "int64"), b.ArgMax(prediction, axis=-1, keepdims=0)))


def top_k(k: int = 5, *, sparse: bool = True) -> Values:
    """Whether fewer than k predictions are greater than that of the right class, which is finite."""

    def values(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
        classes = cast(b, target, "int64") if sparse else b.ArgMax(target, axis=-1, keepdims=0)
        right = b.GatherElements(prediction, b.Unsqueeze(classes, [-1]), axis=-1)
        greater = b.ReduceSum(_f32(b, prediction > right), [-1], keepdims=0)
        finite = b.Equal(right - right, number(b, 0.0, right))
        return _f32(b, b.And(greater < float(k), b.Squeeze(finite, [-1])))

    return values


# Counts of what was said against what was right


@dataclass(frozen=True)
class Counts(Metric):
    """Counts of right and wrong decisions at a threshold, over all elements: one of them, or what follows from them."""

    name: str
    threshold: float = 0.5
    kept: ClassVar[tuple[str, ...]] = ("true_positives", "false_positives", "true_negatives", "false_negatives")

    def states(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: _zeros() for name in self.kept}

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        said = _f32(b, widened(b, prediction) > self.threshold)
        right = _f32(b, cast(b, target, "bool"))
        weight = None if sample_weight is None else as_weights(b, sample_weight, said)
        made: dict[str, Tensor] = {}
        for name in self.kept:
            positive = name.endswith("positives")
            a = said if positive else 1.0 - said
            hit = right if name in ("true_positives", "false_negatives") else 1.0 - right
            product = a * hit if weight is None else a * hit * weight
            made[name] = state[name] + b.ReduceSum(product, keepdims=0)
        return made

    def result(self, b: Builder, state: Sums) -> Tensor:
        return state[self.name.replace("-", "_")]


@dataclass(frozen=True)
class Precision(Counts):
    """Right positives among all that were said to be positive."""

    name: str = "precision"
    kept: ClassVar[tuple[str, ...]] = ("true_positives", "false_positives")

    def result(self, b: Builder, state: Sums) -> Tensor:
        return _divide(b, state["true_positives"], state["true_positives"] + state["false_positives"])


@dataclass(frozen=True)
class Recall(Counts):
    """Right positives among all that are positive."""

    name: str = "recall"
    kept: ClassVar[tuple[str, ...]] = ("true_positives", "false_negatives")

    def result(self, b: Builder, state: Sums) -> Tensor:
        return _divide(b, state["true_positives"], state["true_positives"] + state["false_negatives"])


@dataclass(frozen=True)
class F1Score(Counts):
    """The harmonic mean of precision and recall, of one kind of positive."""

    name: str = "f1-score"
    kept: ClassVar[tuple[str, ...]] = ("true_positives", "false_positives", "false_negatives")

    def result(self, b: Builder, state: Sums) -> Tensor:
        twice = state["true_positives"] * 2.0
        return _divide(b, twice, twice + state["false_positives"] + state["false_negatives"])


@dataclass(frozen=True)
class AUC(Metric):
    """The area under the ROC curve, from the counts at ``thresholds`` evenly spaced thresholds, by trapezoids.

    Predictions are probabilities. As Keras's with ``num_thresholds=200`` and ``summation_method="interpolation"``.
    """

    name: str = "auc"
    thresholds: int = 200

    def states(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"positives": _zeros(self.thresholds), "negatives": _zeros(self.thresholds)}

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        edges = np.linspace(0, 1, self.thresholds, dtype=np.float32)
        edges[0], edges[-1] = -1e-7, 1 + 1e-7
        prediction = widened(b, prediction)
        right = _f32(b, cast(b, target, "bool"))
        weight = _f32(b, b.ConstantOfShape(b.Shape(prediction), value=np.ones(1, np.float32)))
        if sample_weight is not None:
            weight = weight * as_weights(b, sample_weight, prediction)
        flat, right, weight = (b.Reshape(v, [1, -1]) for v in (_f32(b, prediction), right, weight))
        said = _f32(b, b.Greater(flat, b.constant(edges.reshape(-1, 1))))
        hits = b.ReduceSum(said * (right * weight), [1], keepdims=0)
        misses = b.ReduceSum(said * ((1.0 - right) * weight), [1], keepdims=0)
        return {"positives": state["positives"] + hits, "negatives": state["negatives"] + misses}

    def result(self, b: Builder, state: Sums) -> Tensor:
        rates = [_divide(b, v, b.ReduceMax(v, keepdims=0)) for v in (state["positives"], state["negatives"])]
        high, low = ([b.Slice(r, [0], [-1], [0]) for r in rates], [b.Slice(r, [1], [1 << 30], [0]) for r in rates])
        heights, widths = (high[0] + low[0]) * 0.5, high[1] - low[1]
        return b.ReduceSum(heights * widths, keepdims=0)


@dataclass(frozen=True)
class ConfusionMatrix(Metric):
    """Counts per right class (rows) and predicted class (columns); targets are numbers of classes."""

    size: int
    name: str = "confusion-matrix"
    classes: bool = True

    def states(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"counts": _zeros(self.size, self.size)}

    def update(
        self, b: Builder, state: Sums, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        numbers = b.constant(np.arange(self.size, dtype=np.int64).reshape(1, -1))
        right, said = (
            _f32(b, b.Equal(b.Reshape(cast(b, v, "int64"), [-1, 1]), numbers))
            for v in (target, b.ArgMax(prediction, axis=-1, keepdims=0))
        )
        if sample_weight is not None:
            classes = cast(b, target, "float32")
            weight = b.Expand(as_weights(b, sample_weight, classes), b.Shape(classes))
            right = right * b.Reshape(weight, [-1, 1])
        return {"counts": state["counts"] + b.Transpose(right) @ said}

    def result(self, b: Builder, state: Sums) -> Tensor:
        return b.Identity(state["counts"])


# By name


def _means() -> dict[str, Mean]:
    regression = {"mse": "mean-squared-error", "mae": "mean-absolute-error", "mape": "mean-absolute-percentage-error"}
    found: dict[str, Mean] = {}
    for name in (*regression.values(), "log-cosh", "kl-divergence", "poisson", "hinge"):
        found[name] = Mean(name, _cast_target(losses.get(name).function))
    found.update({short: Mean(short, found[name].values) for short, name in regression.items()})
    found["cosine-similarity"] = Mean("cosine-similarity", _cast_target(_cosine))
    found["binary-accuracy"] = Mean("binary-accuracy", binary_accuracy())
    found["categorical-accuracy"] = Mean("categorical-accuracy", categorical_accuracy)
    found["sparse-categorical-accuracy"] = Mean("sparse-categorical-accuracy", sparse_categorical_accuracy, True)
    found["top-k-categorical-accuracy"] = Mean("top-k-categorical-accuracy", top_k(sparse=False))
    found["sparse-top-k-categorical-accuracy"] = Mean("sparse-top-k-categorical-accuracy", top_k(), True)
    return found


def _cosine(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    return b.Neg(losses.cosine_similarity(b, target, prediction))


def _cast_target(function: Any) -> Values:
    def values(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
        return function(b, cast(b, target, prediction), prediction)

    return values


_BY_NAME: dict[str, Metric] = {
    **_means(),
    "root-mean-squared-error": RootMeanSquaredError(),
    "rmse": RootMeanSquaredError("rmse"),
    "precision": Precision(),
    "recall": Recall(),
    "f1-score": F1Score(),
    "auc": AUC(),
    **{name.replace("_", "-"): Counts(name.replace("_", "-")) for name in Counts.kept},
}


def names() -> list[str]:
    """The names of all metrics; ``"accuracy"`` stands for the one that suits the loss."""
    return sorted([*_BY_NAME, "accuracy"])


def get(metric: str | Metric, *, classes: bool = False, binary: bool = False, threshold: float = 0.5) -> Metric:
    """A metric by its name; a metric as it is.

    Args:
        classes: for ``"accuracy"``: targets are numbers of classes.
        binary: for ``"accuracy"``: predictions are probabilities of one class each.
        threshold: of that.

    Raises:
        IrkitError: for an unknown name.
    """
    if isinstance(metric, Metric):
        return metric
    name = metric.replace("_", "-").lower()
    if name in ("accuracy", "acc"):
        values = (
            sparse_categorical_accuracy if classes else binary_accuracy(threshold) if binary else categorical_accuracy
        )
        return Mean(metric, values, classes)
    found = _BY_NAME.get(name)
    if found is None:
        raise IrkitError(f"there is no metric '{metric}'", hint=suggestion(name, names(), "metrics"))
    return found
