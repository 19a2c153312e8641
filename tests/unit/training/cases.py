"""Cases of optimizers, losses, metrics and schedules: for irkit, and how torch or Keras spells them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Optimizers


@dataclass(frozen=True)
class OptimizerCase:
    """An optimizer by irkit's name and options; ``keras`` and ``torch`` name the class there, torch's with its options.

    Keras has the same options, under the same names.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    keras: str = ""
    torch: str = ""
    torch_options: dict[str, Any] = field(default_factory=dict)

    @property
    def keras_options(self) -> dict[str, Any]:
        """Those besides the rate."""
        return {name: value for name, value in self.options.items() if name != "learning_rate"}


_RATE, _LR, _DECAY = {"learning_rate": 0.1}, {"lr": 0.1}, {"weight_decay": 0.1}
_PAPER = {"epsilon": 1e-8, "epsilon_hat": False}
_MOMENTUM = {"momentum": 0.9}
_NESTEROV = {**_MOMENTUM, "nesterov": True}
OPTIMIZERS = {
    "sgd": OptimizerCase("sgd", _RATE, "SGD", "SGD", _LR),
    "momentum": OptimizerCase("sgd", _RATE | _MOMENTUM, "SGD", "SGD", _LR | _MOMENTUM),
    "nesterov": OptimizerCase("sgd", _RATE | _NESTEROV, "SGD", "SGD", _LR | _NESTEROV),
    "sgd-decay": OptimizerCase("sgd", _RATE | _DECAY, "SGD"),
    "adagrad": OptimizerCase("adagrad", _RATE, "Adagrad"),
    "adadelta": OptimizerCase(
        "adadelta", {"learning_rate": 1.0}, "Adadelta", "Adadelta", {"lr": 1.0, "rho": 0.95, "eps": 1e-7}
    ),
    "rmsprop": OptimizerCase("rmsprop", _RATE, "RMSprop"),
    "rmsprop-centered": OptimizerCase("rmsprop", {**_RATE, "centered": True, "momentum": 0.5}, "RMSprop"),
    "adam": OptimizerCase("adam", _RATE, "Adam"),
    "adam-paper": OptimizerCase("adam", _RATE | _PAPER, torch="Adam", torch_options=_LR),
    "amsgrad": OptimizerCase(
        "adam", {**_RATE, "amsgrad": True, **_PAPER}, torch="Adam", torch_options={**_LR, "amsgrad": True}
    ),
    "amsgrad-keras": OptimizerCase("adam", {**_RATE, "amsgrad": True}, "Adam"),
    "adamw": OptimizerCase("adamw", _RATE, "AdamW"),
    "adamw-paper": OptimizerCase("adamw", _RATE | _DECAY | _PAPER, torch="AdamW", torch_options=_LR | _DECAY),
    "adamax": OptimizerCase("adamax", _RATE, "Adamax"),
    "nadam": OptimizerCase("nadam", _RATE, "Nadam"),
    "lion": OptimizerCase("lion", _RATE, "Lion"),
    "lamb": OptimizerCase("lamb", _RATE, "Lamb"),
    "adafactor": OptimizerCase("adafactor", _RATE, "Adafactor"),
    "adafactor-decay": OptimizerCase("adafactor", {"learning_rate": 0.5, **_DECAY}, "Adafactor"),
    "muon": OptimizerCase("muon", _RATE),
}
SHAPES = ((3, 4), (4,), (2, 3, 2))
UPDATES = 6


def start() -> list[Array]:
    """The parameters before the first update."""
    rng = np.random.default_rng(11)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def gradients() -> Iterator[list[Array]]:
    """The gradients of each update; some are small, some zero, so that the place of epsilon shows."""
    rng = np.random.default_rng(12)
    for i in range(UPDATES):
        found = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
        found[0][0] *= 1e-5
        found[1][i % 4] = 0.0
        yield found


# Losses


@dataclass(frozen=True)
class LossCase:
    """A loss on some values: irkit's name and options; the class of ``keras``, or the function of ``torch``."""

    name: str
    target: Array
    prediction: Array
    options: dict[str, Any] = field(default_factory=dict)
    weight: Array | None = None
    keras: str = ""
    keras_options: dict[str, Any] = field(default_factory=dict)
    torch: str = ""
    torch_options: dict[str, Any] = field(default_factory=dict)


_RNG = np.random.default_rng(21)


def _normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return (e / e.sum(axis, keepdims=True)).astype(np.float32)


_A, _B, _SCORES = _normal(5, 4), _normal(5, 4), _normal(5, 4) * 3
_POSITIVE, _PROBABILITIES = np.abs(_A) + 0.1, _softmax(_SCORES)
_BITS = (_RNG.random((5, 4)) < 0.5).astype(np.float32)
_LABELS = _RNG.integers(0, 4, 5)
_ONE_HOT = np.eye(4, dtype=np.float32)[_LABELS]
_WEIGHT = _RNG.random(5).astype(np.float32)
_IMAGE, _MAP = _normal(2, 3, 4, 4), _RNG.integers(0, 3, (2, 4, 4))
_CLASS_WEIGHT = np.asarray([0.5, 1.0, 2.0, 3.0], np.float32)
_EXTREME = np.asarray([[300.0, -300.0, 0.0, 1.0]], np.float32)


def _keras(
    name: str, cls: str, target: Array, prediction: Array, weight: Array | None = None, **options: Any
) -> LossCase:
    ours = dict(options)
    reduction = ours.pop("reduction", None)
    given = {**ours, **({"reduction": reduction} if reduction else {})}
    if "ignore_class" in given:
        given["ignore_index"] = given.pop("ignore_class")
    return LossCase(name, target, prediction, given, weight, cls, options)


LOSSES = {
    "mse": _keras("mean-squared-error", "MeanSquaredError", _A, _B),
    "mse-weighted": _keras("mse", "MeanSquaredError", _A, _B, _WEIGHT),
    "mse-sum": _keras("mse", "MeanSquaredError", _A, _B, _WEIGHT, reduction="sum"),
    "mse-none": _keras("mse", "MeanSquaredError", _A, _B, _WEIGHT, reduction="none"),
    "mse-mean-with-weight": _keras("mse", "MeanSquaredError", _A, _B, _WEIGHT, reduction="mean_with_sample_weight"),
    "mae": _keras("mean_absolute_error", "MeanAbsoluteError", _A, _B),
    "mape": _keras("MeanAbsolutePercentageError", "MeanAbsolutePercentageError", _A, _B),
    "msle": _keras("mean-squared-logarithmic-error", "MeanSquaredLogarithmicError", _POSITIVE, np.abs(_B)),
    "huber": _keras("huber", "Huber", _A, _B, delta=0.7),
    "log-cosh": _keras("log_cosh", "LogCosh", _A, _B),
    "kl-divergence": _keras("kl-divergence", "KLDivergence", _softmax(_A), _PROBABILITIES),
    "poisson": _keras("poisson", "Poisson", _POSITIVE, np.abs(_B)),
    "cosine-similarity": _keras("cosine-similarity", "CosineSimilarity", _A, _B),
    "hinge": _keras("hinge", "Hinge", 2 * _BITS - 1, _B),
    "hinge-bits": _keras("hinge", "Hinge", _BITS, _B),
    "squared-hinge": _keras("squared-hinge", "SquaredHinge", _BITS, _B),
    "categorical-hinge": _keras("categorical-hinge", "CategoricalHinge", _ONE_HOT, _B),
    "bce": _keras("binary-crossentropy", "BinaryCrossentropy", _BITS, _PROBABILITIES),
    "bce-smooth": _keras("binary-crossentropy", "BinaryCrossentropy", _BITS, _PROBABILITIES, label_smoothing=0.2),
    "bce-logits": _keras("binary-crossentropy", "BinaryCrossentropy", _BITS, _SCORES, _WEIGHT, from_logits=True),
    "bce-logits-extreme": LossCase(
        "sigmoid-cross-entropy",
        np.asarray([[0.0, 0.0, 1.0, 0.0]], np.float32),
        _EXTREME,
        torch="binary_cross_entropy_with_logits",
    ),
    "cce": _keras("categorical-crossentropy", "CategoricalCrossentropy", _ONE_HOT, _PROBABILITIES),
    "cce-logits": _keras(
        "categorical-crossentropy",
        "CategoricalCrossentropy",
        _ONE_HOT,
        _SCORES,
        from_logits=True,
        label_smoothing=0.1,
    ),
    "cce-axis": _keras(
        "categorical-crossentropy", "CategoricalCrossentropy", _softmax(_IMAGE, 1), _IMAGE, from_logits=True, axis=1
    ),
    "scce": _keras("sparse-categorical-crossentropy", "SparseCategoricalCrossentropy", _LABELS, _PROBABILITIES),
    "scce-logits": _keras(
        "sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy",
        _LABELS,
        _SCORES,
        _WEIGHT,
        from_logits=True,
    ),
    "scce-ignore": _keras(
        "sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy",
        np.asarray([0, 2, 3, 2, 1]),
        _SCORES,
        from_logits=True,
        ignore_class=2,
    ),
    "scce-sequence": _keras(
        "sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy",
        _MAP[:, 0],
        np.moveaxis(_IMAGE[:, :, 0], 1, -1).copy(),
        from_logits=True,
    ),
    "ce-extreme": LossCase("softmax-cross-entropy", np.asarray([1]), _EXTREME, torch="cross_entropy"),
    "ce-image": LossCase("softmax-cross-entropy", _MAP, _IMAGE, {"axis": 1}, torch="cross_entropy"),
    "ce-image-ignore": LossCase(
        "softmax-cross-entropy",
        _MAP,
        _IMAGE,
        {"axis": 1, "ignore_index": 1, "class_weight": _CLASS_WEIGHT[:3].tolist()},
        torch="cross_entropy",
        torch_options={"ignore_index": 1, "weight": _CLASS_WEIGHT[:3]},
    ),
    "ce-smooth": LossCase(
        "cross-entropy",
        _LABELS,
        _SCORES,
        {"label_smoothing": 0.1, "class_weight": _CLASS_WEIGHT.tolist()},
        torch="cross_entropy",
        torch_options={"label_smoothing": 0.1, "weight": _CLASS_WEIGHT},
    ),
}


# Metrics


@dataclass(frozen=True)
class MetricCase:
    """A metric: irkit's name, Keras's class and options, and what its targets are."""

    name: str
    keras: str
    kind: str
    keras_options: dict[str, Any] = field(default_factory=dict)
    weighted: bool = False


METRICS = {
    "mse": MetricCase("mse", "MeanSquaredError", "numbers"),
    "mae-weighted": MetricCase("mean-absolute-error", "MeanAbsoluteError", "numbers", weighted=True),
    "rmse": MetricCase("root-mean-squared-error", "RootMeanSquaredError", "numbers"),
    "cosine": MetricCase("cosine-similarity", "CosineSimilarity", "numbers"),
    "binary-accuracy": MetricCase("binary-accuracy", "BinaryAccuracy", "bits"),
    "categorical-accuracy": MetricCase("categorical-accuracy", "CategoricalAccuracy", "one-hot", weighted=True),
    "sparse-accuracy": MetricCase("sparse-categorical-accuracy", "SparseCategoricalAccuracy", "classes"),
    "top-k": MetricCase("top-k-categorical-accuracy", "TopKCategoricalAccuracy", "one-hot"),
    "sparse-top-k": MetricCase("sparse-top-k-categorical-accuracy", "SparseTopKCategoricalAccuracy", "classes"),
    "precision": MetricCase("precision", "Precision", "bits", weighted=True),
    "recall": MetricCase("recall", "Recall", "bits"),
    "f1": MetricCase("f1-score", "F1Score", "column", {"threshold": 0.5}),
    "auc": MetricCase("auc", "AUC", "bits"),
    "auc-weighted": MetricCase("auc", "AUC", "bits", weighted=True),
    "true-positives": MetricCase("true-positives", "TruePositives", "bits"),
    "false-positives": MetricCase("false-positives", "FalsePositives", "bits"),
    "true-negatives": MetricCase("true-negatives", "TrueNegatives", "bits"),
    "false-negatives": MetricCase("false-negatives", "FalseNegatives", "bits", weighted=True),
}


def metric_batches(case: MetricCase) -> Iterator[tuple[Array, Array, Array | None]]:
    """Three batches of targets, predictions and weights; the last is smaller."""
    rng = np.random.default_rng(31)
    for size in (9, 9, 5):
        scores = rng.standard_normal((size, 1 if case.kind == "column" else 7)).astype(np.float32)
        classes = rng.integers(0, 7, size)
        target, prediction = {
            "numbers": (rng.standard_normal(scores.shape).astype(np.float32), scores),
            "bits": ((rng.random(scores.shape) < 0.4).astype(np.float32), (1 / (1 + np.exp(-scores)))),
            "column": ((rng.random(scores.shape) < 0.4).astype(np.float32), (1 / (1 + np.exp(-scores)))),
            "one-hot": (np.eye(7, dtype=np.float32)[classes], _softmax(scores)),
            "classes": (classes, _softmax(scores)),
        }[case.kind]
        weight = rng.random(size).astype(np.float32) if case.weighted else None
        yield target, prediction, weight


# Schedules


@dataclass(frozen=True)
class ScheduleCase:
    """A schedule: irkit's class and its arguments; Keras's class (none: torch's OneCycleLR)."""

    name: str
    options: dict[str, Any]
    keras: str

    @property
    def keras_options(self) -> dict[str, Any]:
        """The arguments by the names that they have there."""
        theirs = {"initial": "initial_learning_rate", "end": "end_learning_rate", "peak": "max_lr"}
        return {theirs.get(name, name): value for name, value in self.options.items()}


SCHEDULE_STEPS = (0, 1, 4, 9, 10, 11, 19, 20, 25, 30, 39, 40, 55, 69, 70, 71, 99)
_HALVED = {"initial": 0.1, "decay_steps": 10, "decay_rate": 0.5}
SCHEDULES = {
    "exponential": ScheduleCase("Exponential", _HALVED, "ExponentialDecay"),
    "exponential-staircase": ScheduleCase("Exponential", {**_HALVED, "staircase": True}, "ExponentialDecay"),
    "inverse-time": ScheduleCase("InverseTime", _HALVED, "InverseTimeDecay"),
    "polynomial": ScheduleCase(
        "Polynomial", {"initial": 0.1, "decay_steps": 40, "end": 0.01, "power": 2.0}, "PolynomialDecay"
    ),
    "polynomial-cycle": ScheduleCase(
        "Polynomial", {"initial": 0.1, "decay_steps": 15, "end": 0.01, "cycle": True}, "PolynomialDecay"
    ),
    "piecewise": ScheduleCase(
        "Piecewise", {"boundaries": (10, 40), "values": (0.1, 0.01, 0.001)}, "PiecewiseConstantDecay"
    ),
    "cosine": ScheduleCase("Cosine", {"initial": 0.1, "decay_steps": 70, "alpha": 0.1}, "CosineDecay"),
    "cosine-warmup": ScheduleCase(
        "Cosine", {"initial": 0.01, "decay_steps": 50, "warmup_target": 0.1, "warmup_steps": 20}, "CosineDecay"
    ),
    "cosine-restarts": ScheduleCase(
        "CosineRestarts",
        {"initial": 0.1, "first_decay_steps": 10, "m_mul": 0.8, "alpha": 0.05},
        "CosineDecayRestarts",
    ),
    "one-cycle": ScheduleCase("OneCycle", {"peak": 0.1, "total_steps": 100}, ""),
}
