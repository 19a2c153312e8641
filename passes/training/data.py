"""Batches: of arrays, shuffled by a seed, or from a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Attribute

from irkit.backends.base import describe_value, spell
from irkit.errors import FeedError
from irkit.ir.types import dtype_of, shape_of
from irkit.passes.training.targets import Labels

__all__ = ["Batches", "Data"]

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any] | Sequence[Any]
Data = Batch | Callable[[int], Iterable[Batch]]
"""Arrays by input name, or in the order of the inputs; or a function of the epoch that gives batches of that kind."""


class Batches:
    """The batches of every epoch.

    Args:
        data: see ``Data``. The first axis of every array is that of the samples.
        inputs: the names and types of the inputs of a batch.
        size: of a batch. The last one of an epoch may be smaller, unless the model's batch size is fixed: then it is
            left out.
        seed: of the order; None to keep it.
        labels: what inputs that hold numbers of classes may hold.

    Raises:
        FeedError: if the arrays are not those of the inputs, differ in length, or hold labels that are no classes.
    """

    def __init__(
        self,
        data: Data,
        inputs: Mapping[str, Attribute],
        size: int,
        seed: int | None,
        labels: Mapping[str, Labels] | None = None,
    ) -> None:
        self.inputs, self.seed, self.labels = dict(inputs), seed, labels or {}
        self.function = data if callable(data) else None
        self.arrays: dict[str, Array] = {} if callable(data) else self._arrays(data)
        self.count = len(next(iter(self.arrays.values()))) if self.arrays else 0
        fixed = {shape[0] for kind in inputs.values() if (shape := shape_of(kind)) and isinstance(shape[0], int)}
        self.size = int(min(fixed)) if fixed else size
        self.whole = bool(fixed)
        if size < 1:
            raise FeedError(f"a batch of {size} samples holds nothing")
        if self.arrays and not len(self):
            raise FeedError(f"there are {self.count} samples, which do not fill a batch of {self.size}")

    def __len__(self) -> int:
        """The number of batches of an epoch; 0 where only the user's function knows."""
        return self.count // self.size if self.whole else -(-self.count // self.size)

    def _by_name(self, data: Batch, hint: str) -> Mapping[str, Any]:
        """Arrays that are given by name or in order, by name."""
        if isinstance(data, Mapping):
            return data
        if not isinstance(cast(object, data), list | tuple):
            raise FeedError(f"{type(data).__name__} is given where arrays are expected", hint=hint)
        if len(data) > len(self.inputs):
            raise FeedError(f"{len(data)} arrays are given, but the inputs are {', '.join(self.inputs)}")
        return dict(zip(self.inputs, data, strict=False))

    def _arrays(self, data: Batch) -> dict[str, Array]:
        order = ", ".join(self.inputs)
        data = self._by_name(
            data, f"give a dict of arrays, ({order}), or a function that takes the epoch and gives batches"
        )
        for name in self.inputs:
            if name not in data:
                raise FeedError(f"the data lacks '{name}' ({spell(self.inputs[name])})", hint="give an array for it")
        for name in data:
            if name not in self.inputs:
                raise FeedError(f"there is no input '{name}'", hint=f"the inputs are: {', '.join(self.inputs)}")
        found = {name: np.asarray(data[name]) for name in self.inputs}
        self._check_labels(found)
        lengths = {name: len(array) if array.ndim else 0 for name, array in found.items()}
        if len(set(lengths.values())) > 1:
            raise FeedError(f"the arrays differ in length: {', '.join(f'{n} {c}' for n, c in lengths.items())}")
        return found

    def of_epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Array]]:
        """The batches of an epoch, from one on.

        The order is a permutation that the seed and the epoch alone determine.
        """
        if self.function is not None:
            for index, given in enumerate(self._asked(self.function, epoch)):
                if index >= start:
                    batch = self._by_name(given, f"a batch is a dict of arrays, or ({', '.join(self.inputs)})")
                    arrays = {name: self._cast(name, value) for name, value in batch.items()}
                    self._check_labels(arrays)
                    yield arrays
            return
        order = np.arange(self.count) if self.seed is None else _permutation(self.count, self.seed, epoch)
        for index in range(start, len(self)):
            chosen = order[index * self.size : (index + 1) * self.size]
            yield {name: self._cast(name, array[chosen]) for name, array in self.arrays.items()}

    def _asked(self, function: Callable[[int], Iterable[Batch]], epoch: int) -> Iterable[Batch]:
        found = function(epoch)
        if not isinstance(cast(object, found), Iterable):
            raise FeedError(f"the data's function gives {type(found).__name__}", hint="it gives batches, by yield say")
        return found

    def _check_labels(self, arrays: Mapping[str, Array]) -> None:
        for name, known in self.labels.items():
            if name in arrays and arrays[name].dtype.kind in "iu":
                known.check(name, arrays[name])

    def _cast(self, name: str, value: Any) -> Array:
        """A batch in the input's dtype, where that holds numbers of its kind."""
        array = np.asarray(value)
        kind = dtype_of(self.inputs[name]) if name in self.inputs else None
        if kind is None or array.dtype == kind.numpy or kind.kind == "string":
            return array
        if not np.can_cast(array.dtype, kind.numpy, "same_kind"):
            raise FeedError(f"'{name}' is {describe_value(array)}, expected {spell(self.inputs[name])}")
        return cast(Array, array.astype(kind.numpy))


def _permutation(count: int, seed: int, epoch: int) -> Array:
    bits = np.random.Philox(key=np.array([seed & (1 << 64) - 1, epoch], np.uint64))
    return np.random.Generator(bits).permutation(count)
