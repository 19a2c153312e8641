"""Whether targets fit: their shapes when a step is made, the numbers of classes in them when it is fed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.base import spell
from irkit.errors import FeedError, IrkitError
from irkit.ir.builder import Tensor
from irkit.ir.types import shape_of

__all__ = ["Labels", "check_target"]

OF_CLASSES = "accuracy, sparse-categorical-accuracy, sparse-top-k-categorical-accuracy and ConfusionMatrix"
OF_SHARES = "accuracy, categorical-accuracy and top-k-categorical-accuracy"


@dataclass(frozen=True)
class Labels:
    """The numbers that a target of classes may hold.

    Attributes:
        classes: how many there are.
        ignored: one more number, which counts for nothing.
    """

    classes: int
    ignored: int | None = None

    def check(self, name: str, labels: np.ndarray[Any, Any]) -> None:
        """Refuses labels that are no classes; some backends would count such ones from the end.

        Raises:
            FeedError: naming the first one.
        """
        wrong = (labels < 0) | (labels >= self.classes)
        if self.ignored is not None:
            wrong &= labels != self.ignored
        if wrong.any():
            raise FeedError(
                f"'{name}' holds {labels[wrong][0]}, but the {self.classes} classes have the numbers 0 to "
                f"{self.classes - 1}",
                hint="count classes from 0; the loss's ignore_index= names a label that is to count for nothing",
            )


def check_target(what: str, target: Tensor, prediction: Tensor, wanted: Attribute, classes: Attribute) -> None:
    """Refuses a target of another shape than a loss or a metric compares with a prediction.

    Args:
        what: the loss or the metric.
        wanted: the type of target that it takes.
        classes: the type of a target that holds numbers of classes.

    Raises:
        IrkitError: naming the shapes, and what takes such a target.
    """
    if _fits(target.type, wanted):
        return
    if _fits(target.type, classes):
        hint = f"for targets that are numbers of classes there are {OF_CLASSES}; for others give one-hot targets"
        hint = hint if what.startswith("metric") else "for numbers of classes there is softmax-cross-entropy"
    elif _fits(target.type, prediction.type):
        hint = f"for targets of the prediction's shape, one-hot say, there are {OF_SHARES}"
        hint = hint if what.startswith("metric") else "for one-hot targets there is categorical-crossentropy"
    else:
        hint = f"give the target the shape of {spell(wanted)}"
    raise IrkitError(
        f"{what} compares the prediction {spell(prediction.type)} with a target {spell(wanted)}, "
        f"but the target is {spell(target.type)}",
        hint=hint,
    )


def _fits(found: Attribute, wanted: Attribute) -> bool:
    a, b = shape_of(found), shape_of(wanted)
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        i == j or not (isinstance(i, int) and isinstance(j, int)) for i, j in zip(a, b, strict=True)
    )
