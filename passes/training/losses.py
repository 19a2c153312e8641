"""Losses as builder functions on values, usable by themselves and by name.

A loss function takes a builder, the target and the prediction, and gives one value per sample (or per place: the last
axis, or the axis of classes, is gone). ``Loss`` names one with its options, weighs the samples and reduces them. As in
Keras (``keras.losses``) where Keras has it; ``ignore_index``, ``class_weight`` and the axis of classes are those of
torch's ``cross_entropy``. Everything is computed in float32 at least.

>>> import irkit as ik
>>> b = ik.Builder("loss")
>>> target, scores = b.input("target", "int64", ["N"]), b.input("scores", "float32", ["N", 3])
>>> b.output(ik.losses.Loss("sparse-categorical-crossentropy", from_logits=True)(b, target, scores), "loss")
>>> round(float(ik.compile(b.module())([0, 1], [[2, 0, 0], [0, 2, 0]])), 4)
0.2395

Names may be written in any of three ways: ``mean-squared-error``, ``mean_squared_error``, ``MeanSquaredError``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from typing import cast as cast_type

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.ir.types import tensor
from irkit.passes.registry import suggestion
from irkit.passes.training.values import cast, number, widened

__all__ = [
    "REDUCTIONS",
    "Counted",
    "Loss",
    "LossFunction",
    "as_weights",
    "binary_crossentropy",
    "categorical_crossentropy",
    "categorical_hinge",
    "cosine_similarity",
    "declare",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "names",
    "poisson",
    "softmax_cross_entropy",
    "sparse_categorical_crossentropy",
    "squared_hinge",
]

EPSILON = 1e-7
"""Keras's: what probabilities are kept away from 0 and 1 by."""


@dataclass(frozen=True)
class Counted:
    """What a loss function returns where samples do not all count alike.

    Attributes:
        values: per sample.
        counts: how much each counts in the mean, of the same shape: 0 for one that is ignored.
    """

    values: Tensor
    counts: Tensor


LossFunction = Callable[..., "Tensor | Counted"]
FunctionT = TypeVar("FunctionT", bound=LossFunction)

_FUNCTIONS: dict[str, LossFunction] = {}
_CLASSES: set[str] = set()


def declare(*names: str, classes: bool = False) -> Callable[[FunctionT], FunctionT]:
    """Makes the decorated function the loss of these names.

    Args:
        names: in kebab-case; the function's own name is one as well.
        classes: the target holds numbers of classes (int64), not one value per element of the prediction.
    """

    def register(function: FunctionT) -> FunctionT:
        for name in (_kebab(function.__name__), *names):
            _FUNCTIONS[name] = function
            if classes:
                _CLASSES.add(name)
        return function

    return register


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()


def names() -> list[str]:
    """The names of all losses."""
    return sorted(_FUNCTIONS)


# Errors


def _mean(b: Builder, value: Tensor) -> Tensor:
    """The mean over the last axis; a vector is one value a sample already."""
    return value if value.rank == 1 else b.ReduceMean(value, [-1], keepdims=0)


def _sum(b: Builder, value: Tensor, axis: int = -1) -> Tensor:
    return b.ReduceSum(value, [axis], keepdims=0)


@declare("mse")
def mean_squared_error(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``(p - t)^2``."""
    error = prediction - target
    return _mean(b, error * error)


@declare("mae")
def mean_absolute_error(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``|p - t|``."""
    return _mean(b, b.Abs(prediction - target))


@declare("mape")
def mean_absolute_percentage_error(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``100 |t - p| / |t|``, with 1e-7 for a smaller ``|t|``."""
    return _mean(b, b.Abs(target - prediction) / b.Max(b.Abs(target), EPSILON)) * 100.0


@declare("msle")
def mean_squared_logarithmic_error(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``(log(1 + p) - log(1 + t))^2``; what is less than 1e-7 counts as that."""
    error = b.Log(b.Max(prediction, EPSILON) + 1.0) - b.Log(b.Max(target, EPSILON) + 1.0)
    return _mean(b, error * error)


@declare()
def huber(b: Builder, target: Tensor, prediction: Tensor, *, delta: float = 1.0) -> Tensor:
    """The mean of ``e^2 / 2`` where ``|e| <= delta``, else ``delta |e| - delta^2 / 2`` (Huber, 1964)."""
    size = b.Abs(prediction - target)
    near = b.Min(size, delta)
    # near (size - near / 2) is both: without a branch, and smooth where they meet.
    return _mean(b, near * (size - near * 0.5))


@declare("logcosh")
def log_cosh(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``log(cosh(p - t))``, which overflows for no p."""
    error = b.Abs(prediction - target)
    return _mean(b, error + b.Softplus(error * -2.0) - float(np.log(2.0)))


@declare("kld", "kullback-leibler-divergence")
def kl_divergence(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """``sum t log(t / p)`` over the last axis, both clipped to 1e-7 to 1."""
    target, prediction = b.Clip(target, EPSILON, 1.0), b.Clip(prediction, EPSILON, 1.0)
    return _sum(b, target * b.Log(target / prediction))


@declare()
def poisson(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``p - t log(p + 1e-7)``."""
    return _mean(b, prediction - target * b.Log(prediction + EPSILON))


@declare()
def cosine_similarity(b: Builder, target: Tensor, prediction: Tensor, *, axis: int = -1) -> Tensor:
    """Minus the cosine of the angle between them; 0 where either is 0."""
    return b.Neg(_sum(b, _unit(b, target, axis) * _unit(b, prediction, axis), axis))


def _unit(b: Builder, value: Tensor, axis: int) -> Tensor:
    return value / b.Sqrt(b.Max(b.ReduceSum(value * value, [axis], keepdims=1), 1e-12))


# Margins


def _signs(b: Builder, target: Tensor) -> Tensor:
    """Labels -1 and 1; those that are all 0 or 1 are taken for them."""
    zeros_and_ones = b.Equal(target * target, target)
    binary = b.ReduceMin(cast(b, zeros_and_ones, "int32"), keepdims=0)
    return b.Where(cast(b, binary, "bool"), target * 2.0 - 1.0, target)


@declare()
def hinge(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``max(1 - t p, 0)``; labels are -1 and 1, or 0 and 1."""
    return _mean(b, b.Relu(1.0 - _signs(b, target) * prediction))


@declare()
def squared_hinge(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """The mean of ``max(1 - t p, 0)^2``."""
    margin = b.Relu(1.0 - _signs(b, target) * prediction)
    return _mean(b, margin * margin)


@declare()
def categorical_hinge(b: Builder, target: Tensor, prediction: Tensor) -> Tensor:
    """``max(best wrong score - right score + 1, 0)``, targets one-hot along the last axis."""
    right = _sum(b, target * prediction)
    wrong = b.ReduceMax((1.0 - target) * prediction, [-1], keepdims=0)
    return b.Relu(wrong - right + 1.0)


# Cross-entropies


@declare("binary-cross-entropy", "bce")
def binary_crossentropy(
    b: Builder, target: Tensor, prediction: Tensor, *, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """The mean of ``-t log(p) - (1 - t) log(1 - p)``.

    Args:
        from_logits: the prediction is the logarithm of the odds; then nothing overflows.
        label_smoothing: how far targets are moved towards 1/2.
    """
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        return _mean(b, b.Softplus(prediction) - target * prediction)
    prediction = b.Clip(prediction, EPSILON, 1.0 - EPSILON)
    return _mean(b, b.Neg(target * b.Log(prediction) + (1.0 - target) * b.Log(1.0 - prediction)))


@declare("sigmoid-cross-entropy")
def sigmoid_crossentropy(b: Builder, target: Tensor, prediction: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """``binary_crossentropy`` from logits."""
    return binary_crossentropy(b, target, prediction, from_logits=True, label_smoothing=label_smoothing)


@declare("categorical-cross-entropy", "cce")
def categorical_crossentropy(
    b: Builder,
    target: Tensor,
    prediction: Tensor,
    *,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
    class_weight: Sequence[float] | None = None,
) -> Tensor:
    """``-sum t log(p)`` along the axis of classes; targets are probabilities, or one-hot.

    Args:
        from_logits: the prediction is the logarithm of something in proportion to p; then nothing overflows.
        label_smoothing: how far targets are moved towards the same for every class.
        axis: of the classes.
        class_weight: what each class's part counts.
    """
    _check_classes(prediction, axis)
    if label_smoothing:
        size = cast(b, b.Shape(prediction, **_one_axis(axis)), prediction)
        target = target * (1.0 - label_smoothing) + label_smoothing / b.Squeeze(size)
    logs = _log_probabilities(b, prediction, from_logits, axis)
    if class_weight is not None:
        target = target * _along(b, class_weight, prediction, axis)
    return b.Neg(_sum(b, target * logs, axis))


@declare("sparse-categorical-cross-entropy", "scce", classes=True)
def sparse_categorical_crossentropy(
    b: Builder,
    target: Tensor,
    prediction: Tensor,
    *,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
    ignore_index: int | None = None,
    class_weight: Sequence[float] | None = None,
) -> Tensor | Counted:
    """``-log(p)`` of the right class; targets are numbers of classes.

    Args:
        from_logits: see ``categorical_crossentropy``, as for the rest.
        label_smoothing: how far targets are moved towards the same for every class.
        axis: of the classes.
        ignore_index: a target that counts for nothing; the mean is over the others.
        class_weight: what each class counts; the mean divides by the sum of the weights, as torch's does.
    """
    _check_classes(prediction, axis)
    target = target if target.dtype is not None and target.dtype.name == "int32" else cast(b, target, "int64")
    counts, valid = _counts_of(b, target, prediction, ignore_index, class_weight)
    last = _rank(prediction) - 1
    if from_logits and not label_smoothing and axis % (last + 1) in (1, last):
        # One op, whose gradient is a few; it keeps clear of 0 * -inf, too. It wants the classes along axis 1.
        apart = axis % (last + 1) != 1
        scores, labels = (b.Flatten(prediction, axis=last), b.Reshape(target, [-1])) if apart else (prediction, target)
        weights = None if class_weight is None else _along(b, class_weight, prediction, -1)
        values = b.SoftmaxCrossEntropyLoss(scores, labels, weights, ignore_index=ignore_index, reduction="none")
        values = b.Reshape(values, b.Shape(target), allowzero=1) if apart else values
    else:
        values = categorical_crossentropy(
            b,
            _one_hot(b, target, prediction, axis),
            prediction,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
            class_weight=class_weight,
        )
        values = values if valid is None else b.Where(valid, values, number(b, 0.0, values))
    return values if counts is None else Counted(values, counts)


def _one_hot(b: Builder, target: Tensor, prediction: Tensor, axis: int) -> Tensor:
    """1 at the class of each target, 0 elsewhere, along the axis of classes."""
    last = _rank(prediction) - 1
    start, step = (cast(b, b.constant(np.int64(i)), target) for i in (0, 1))
    classes = b.Range(start, cast(b, b.Squeeze(b.Shape(prediction, **_one_axis(axis))), target), step)
    if axis % (last + 1) != last:
        classes = b.Reshape(classes, [-1, *[1] * (last - axis % (last + 1))])
    return cast(b, b.Equal(b.Unsqueeze(target, [axis]), classes), prediction)


def _counts_of(
    b: Builder, target: Tensor, prediction: Tensor, ignore_index: int | None, class_weight: Sequence[float] | None
) -> tuple[Tensor | None, Tensor | None]:
    """How much each target counts, where they do not all count alike; and which are not ignored."""
    valid: Tensor | None = None
    if ignore_index is not None:
        valid = b.Not(b.Equal(target, cast(b, b.constant(np.int64(ignore_index)), target)))
    if class_weight is None:
        return None if valid is None else cast(b, valid, prediction), valid
    weights = _along(b, class_weight, prediction, -1)
    if valid is None:
        return b.Gather(weights, target), None
    first = cast(b, b.constant(np.int64(0)), target)
    return b.Gather(weights, b.Where(valid, target, first)) * cast(b, valid, prediction), valid


@declare("softmax-crossentropy", "cross-entropy", classes=True)
def softmax_cross_entropy(b: Builder, target: Tensor, prediction: Tensor, **options: Any) -> Tensor | Counted:
    """``sparse_categorical_crossentropy`` from logits."""
    return sparse_categorical_crossentropy(b, target, prediction, from_logits=True, **options)


def _check_classes(prediction: Tensor, axis: int) -> None:
    """Refuses a single class, of which the loss would always be zero."""
    shape = prediction.shape
    if shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 1:
        raise IrkitError(
            f"the prediction is {prediction.type}, with one class along axis {axis}, and the loss of that is always 0",
            where=where(prediction.ssa),
            hint="say where the classes are, axis=1 perhaps; for one probability there is binary-crossentropy",
        )


def _one_axis(axis: int) -> dict[str, int]:
    return {"start": axis} if axis == -1 else {"start": axis, "end": axis + 1}


def _rank(value: Tensor) -> int:
    if value.rank is None:
        raise IrkitError("the rank of the prediction is not known", hint="declare its shape, or run infer-shapes")
    return value.rank


def _along(b: Builder, weights: Sequence[float], prediction: Tensor, axis: int) -> Tensor:
    """One number a class, to broadcast along the axis of classes."""
    after = _rank(prediction) - 1 - axis % _rank(prediction)
    made = b.constant(np.asarray(weights, np.float32).reshape([-1, *[1] * after]))
    return cast(b, made, prediction)


def _log_probabilities(b: Builder, prediction: Tensor, from_logits: bool, axis: int) -> Tensor:
    if from_logits:
        return b.LogSoftmax(prediction, axis=axis)
    total = b.ReduceSum(prediction, [axis], keepdims=1)
    return b.Log(b.Clip(prediction / total, EPSILON, 1.0 - EPSILON))


# With weights and reductions

REDUCTIONS = ("mean", "sum_over_batch_size", "sum", "none", "mean_with_sample_weight")
"""``"mean"`` and ``"sum_over_batch_size"`` are one: weights change the sum, not what it is divided by."""


@dataclass(frozen=True, init=False)
class Loss:
    """A loss with its options.

    Attributes:
        function: gives one value per sample.
        options: what it is called with.
        reduction: one of ``REDUCTIONS``. ``"mean_with_sample_weight"`` divides by the sum of the weights.
        classes: whether targets are numbers of classes.
    """

    function: LossFunction
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    reduction: str = "mean"
    classes: bool = False

    def __init__(
        self, function: str | LossFunction, *, reduction: str = "mean", classes: bool | None = None, **options: Any
    ) -> None:
        """
        Args:
            function: a name, or a function of a builder, the target and the prediction.
            reduction: see the class.
            classes: of a function of one's own, whether targets are numbers of classes.
            options: of the function.

        Raises:
            IrkitError: for an unknown name, reduction or option.
        """
        made = _named(function) if isinstance(function, str) else function
        if not callable(cast_type(object, made)):
            raise IrkitError(f"{made!r} is no loss", hint="give a name, 'mse' say, a Loss, or a function")
        known = next((name for name, found in _FUNCTIONS.items() if found is made), "")
        if reduction not in REDUCTIONS:
            hint = suggestion(reduction, list(REDUCTIONS), "reductions")
            raise IrkitError(f"there is no reduction '{reduction}'", hint=hint)
        _check_options(made, known, options)
        if known:
            _check_values(options)
        for name, value in (
            ("function", made),
            ("options", options),
            ("reduction", reduction),
            ("classes", known in _CLASSES if classes is None else classes),
        ):
            object.__setattr__(self, name, value)

    def __call__(self, b: Builder, target: Tensor, prediction: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The reduced loss, or with the reduction ``"none"`` the weighted values.

        Args:
            target: of the prediction's shape, or without its axis of classes.
            prediction: what the model gives.
            sample_weight: of the values' shape, or with fewer axes at the end.
        """
        prediction = widened(b, prediction)
        if not self.classes:
            target = cast(b, target, prediction)
        found = self.function(b, target, prediction, **self.options)
        values, counts = (found.values, found.counts) if isinstance(found, Counted) else (found, None)
        weight = None if sample_weight is None else as_weights(b, sample_weight, values)
        if weight is not None:
            values = values * weight
        if self.reduction == "none":
            return values
        total = b.ReduceSum(values, keepdims=0)
        if self.reduction == "sum":
            return total
        if self.reduction == "mean_with_sample_weight" and weight is not None:
            counts = b.Expand(weight, b.Shape(values)) if counts is None else counts * weight
        if counts is None:
            return b.ReduceMean(values, keepdims=0)
        count = b.ReduceSum(counts, keepdims=0)
        return total / b.Where(b.Equal(count, number(b, 0.0, count)), number(b, 1.0, count), count)

    @property
    def name(self) -> str:
        """The first name of its function, or what that is called in Python."""
        names = (name for name, found in _FUNCTIONS.items() if found is self.function)
        return next(names, getattr(self.function, "__qualname__", type(self.function).__qualname__))

    @property
    def declared(self) -> bool:
        """Whether its function is one of those by name, of which is known what targets they take."""
        return self.function in _FUNCTIONS.values()

    @property
    def binary(self) -> bool:
        """Whether predictions are each about one class alone."""
        return self.function in (binary_crossentropy, sigmoid_crossentropy)

    @property
    def from_logits(self) -> bool:
        """Whether predictions are no probabilities yet."""
        return bool(self.options.get("from_logits")) or self.function in (sigmoid_crossentropy, softmax_cross_entropy)

    def target_type(self, prediction: Tensor) -> Attribute:
        """The type of the target of a prediction."""
        if not self.classes:
            return tensor(prediction.dtype or "float32", prediction.shape)
        shape = list(prediction.shape) if prediction.shape is not None else None
        if shape:
            del shape[self.options.get("axis", -1)]
        return tensor("int64", shape)


def as_weights(b: Builder, weight: Tensor, values: Tensor) -> Tensor:
    """Weights of samples in the dtype of values, with axes appended to broadcast."""
    made = cast(b, weight, values)
    missing = (values.rank or 0) - (made.rank or 0)
    return b.Unsqueeze(made, [(made.rank or 0) + i for i in range(missing)]) if missing > 0 else made


def _named(name: str) -> LossFunction:
    found = _FUNCTIONS.get(_kebab(name))
    if found is None:
        raise IrkitError(f"there is no loss '{name}'", hint=suggestion(_kebab(name), names(), "losses"))
    return found


def _check_options(function: LossFunction, name: str, options: dict[str, Any]) -> None:
    target = sparse_categorical_crossentropy if function is softmax_cross_entropy else function
    parameters = inspect.signature(target).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    for option in options:
        if option not in known:
            title = f"loss '{name}'" if name else "the loss function"
            raise IrkitError(f"{title} has no option '{option}'", hint=suggestion(option, known, "options"))


def _check_values(options: dict[str, Any]) -> None:
    """Refuses values of the declared losses' options that mean nothing."""
    weights, smoothing = options.get("class_weight"), options.get("label_smoothing", 0.0)
    if isinstance(weights, Mapping):
        raise IrkitError("class_weight is a mapping", hint="give a list with one number for each class, in their order")
    if not 0 <= smoothing <= 1:
        raise IrkitError(f"label_smoothing={smoothing}: it is from 0 to 1")


def get(loss: str | Loss | LossFunction, **options: Any) -> Loss:
    """A loss by its name, with options; a function of builder values made one; a loss as it is."""
    return loss if isinstance(loss, Loss) else Loss(loss, **options)
