"""What users give as data, as arrays by the names of a training step's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from irkit.errors import FeedError

__all__ = ["Fed", "batches_of", "listed"]

Array = np.ndarray[Any, Any]


def listed(value: Any) -> list[Any]:
    """A list or tuple as a list, None as an empty one, all else as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


@dataclass
class Fed:
    """Data by the names of inputs.

    Attributes:
        data: arrays by name, or a function of the epoch that gives batches.
        weights: by output, how many axes the weights of its samples have.
        names: of the inputs that hold such weights, by output.
    """

    data: Any
    weights: dict[str, int]
    names: dict[str, str]

    def split(self, share: float) -> tuple[Fed, Fed]:
        """All but the last samples, and a share that these are."""
        if callable(self.data):
            raise FeedError("validation_split needs arrays", hint="give validation_data instead")
        count = len(next(iter(self.data.values())))
        cut = int(count * (1 - share))
        if not 0 < cut < count:
            raise FeedError(f"validation_split={share} of {count} samples leaves nothing on one side")
        parts = ({k: v[:cut] for k, v in self.data.items()}, {k: v[cut:] for k, v in self.data.items()})
        return Fed(parts[0], self.weights, self.names), Fed(parts[1], self.weights, self.names)

    def weighted(self, like: Mapping[str, int]) -> Fed:
        """The same with weights of 1 where training has weights."""
        missing = {output: rank for output, rank in like.items() if output not in self.weights}
        data = dict(self.data)
        shapes = {name: np.shape(v) for name, v in self.data.items()}
        for output, rank in missing.items():
            target = shapes.get("target", shapes.get(f"target/{output}", ()))
            data[self.names[output]] = np.ones(target[:rank], np.float32)
        return Fed(data, dict(like), self.names)


def batches_of(
    model: Any, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Mapping[int, float] | None = None
) -> Fed:
    """Data for a model.

    Raises:
        FeedError: if there are more or fewer arrays than inputs or targets.
    """
    if callable(x):
        return _function(model, cast("Callable[[int], Iterable[Any]]", x), class_weight)
    data = _named(x, model.input_names, "input")
    outputs = model.loss_outputs if y is not None else []
    targets = {o: "target" if len(outputs) == 1 else f"target/{o}" for o in outputs}
    names = {o: "sample_weight" if len(outputs) == 1 else f"sample_weight/{o}" for o in outputs}
    given = _named(y, outputs, "target") if y is not None else {}
    for output, value in given.items():
        data[targets[output]] = model.fitted_target(output, value)
    weights = _weights(sample_weight, outputs)
    if class_weight is not None:
        if len(outputs) != 1:
            raise FeedError("class_weight is for models of one output", hint="give sample_weight for each output")
        of_class = _of_classes(np.asarray(given[outputs[0]]), class_weight)
        weights[outputs[0]] = of_class * weights.get(outputs[0], np.float32(1))
    for output, value in weights.items():
        data[names[output]] = value
    return Fed(data, {output: value.ndim for output, value in weights.items()}, names)


def _function(model: Any, x: Callable[[int], Iterable[Any]], class_weight: Any) -> Fed:
    first = batches_of(model, *next(iter(x(0))), class_weight=class_weight)

    def batches(epoch: int) -> Iterable[dict[str, Any]]:
        for batch in x(epoch):
            yield batches_of(model, *batch, class_weight=class_weight).data

    return Fed(batches, first.weights, first.names)


def _named(value: Any, names: Sequence[str], what: str) -> dict[str, Array]:
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in names]
        if unknown or len(value) != len(names):
            raise FeedError(f"the {what}s are {', '.join(names)}, and {', '.join(map(str, value))} are given")
        return {name: np.asarray(value[name]) for name in names}
    if len(names) == 1 and not (isinstance(value, list | tuple) and len(value) == 1 and hasattr(value[0], "shape")):
        return {names[0]: np.asarray(value)}
    values = listed(value)
    if len(values) != len(names):
        raise FeedError(f"there are {len(names)} {what}s ({', '.join(names)}), and {len(values)} arrays are given")
    return {name: np.asarray(v) for name, v in zip(names, values, strict=True)}


def _weights(sample_weight: Any, outputs: Sequence[str]) -> dict[str, Array]:
    if sample_weight is None:
        return {}
    if isinstance(sample_weight, Mapping):
        given = dict(sample_weight)
    elif isinstance(sample_weight, list | tuple) and len(outputs) > 1:
        given = dict(zip(outputs, sample_weight, strict=True))
    else:
        given = dict.fromkeys(outputs, sample_weight)
    return {output: np.asarray(v, np.float32) for output, v in given.items() if v is not None}


def _of_classes(target: Array, class_weight: Mapping[int, float]) -> Array:
    """What each sample counts, by its class; one that is not named counts 1."""
    classes = target.argmax(-1) if target.ndim > 1 and target.shape[-1] > 1 else target.reshape(len(target))
    found = np.ones(classes.shape, np.float32)
    for number, weight in class_weight.items():
        found[classes == number] = weight
    return found
