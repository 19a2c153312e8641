"""Layers of several inputs that give one."""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import elementwise, rank_of
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = ["Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"]


class _Merge(Layer):
    """One op on a list of inputs; those of fewer axes get axes of size 1 behind the batch."""

    op: ClassVar[str]
    supports_masking = True

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, list | tuple) or len(inputs) < 1:
            raise IrkitError(f"layer '{self.name}' takes a list of inputs")
        return self.merge([_widened(x, max(map(rank_of, inputs))) for x in inputs])

    def merge(self, inputs: list[Tensor]) -> Tensor:
        """What the layer gives for inputs of one rank."""
        if len({v.shape for v in inputs}) > 1:
            return reduce(lambda a, c: a.builder.op(self.op, a, c), inputs)
        return elementwise(lambda *values: reduce(lambda a, c: a.builder.op(self.op, a, c), values), *inputs)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        masks = [m for m in mask or () if m is not None]
        return reduce(lambda a, c: a.builder.Or(a, c), masks) if masks else None


def _widened(x: Tensor, rank: int) -> Tensor:
    missing = rank - rank_of(x)
    return x.builder.Unsqueeze(x, list(range(1, 1 + missing))) if missing else x


class Add(_Merge):
    """The sum of all inputs."""

    op = "Add"


class Subtract(_Merge):
    """The first input minus the second."""

    op = "Sub"

    def call(self, inputs: Any) -> Any:
        if len(inputs) != 2:
            raise IrkitError(f"layer '{self.name}' takes two inputs, and {len(inputs)} are given")
        return super().call(inputs)


class Multiply(_Merge):
    """The product of all inputs."""

    op = "Mul"


class Average(_Merge):
    """The mean of all inputs."""

    op = "Add"

    def merge(self, inputs: list[Tensor]) -> Tensor:
        return super().merge(inputs) * (1.0 / len(inputs))


class Maximum(_Merge):
    """The greatest of all inputs, elementwise."""

    op = "Max"


class Minimum(_Merge):
    """The least of all inputs, elementwise."""

    op = "Min"


class Concatenate(_Merge):
    """All inputs in a row along an axis."""

    def __init__(self, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, list | tuple) or not inputs:
            raise IrkitError(f"layer '{self.name}' takes a list of inputs")
        return inputs[0].builder.Concat(*inputs, axis=self.axis)

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        if not any(m is not None for m in mask or ()):
            return None
        b = inputs[0].builder
        rank, kind = rank_of(inputs[0]), dtype("bool").code
        parts: list[Tensor] = []
        for value, given in zip(inputs, mask, strict=True):
            full = b.Expand(b.constant(True), b.Shape(value))
            if given is not None:
                full = b.And(full, b.Unsqueeze(given, list(range(rank_of(given), rank))))
            parts.append(b.Cast(full, to=dtype("int32").code))
        return b.Cast(b.ReduceMin(b.Concat(*parts, axis=self.axis), [-1], keepdims=0), to=kind)


class Dot(_Merge):
    """The product of two inputs along an axis of each.

    Args:
        axes: one for both, or one each.
        normalize: whether both are brought to length 1 along it first: then it is the cosine.
    """

    def __init__(self, axes: Any, normalize: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.axes, self.normalize = axes, normalize

    def call(self, inputs: Any) -> Any:
        first, second = inputs
        b = first.builder
        of_first, of_second = [self.axes] * 2 if isinstance(self.axes, int) else self.axes
        ranks = rank_of(first), rank_of(second)
        axes = of_first % ranks[0], of_second % ranks[1]
        if 0 in axes:
            raise IrkitError(f"layer '{self.name}' cannot multiply along the batch")
        if self.normalize:
            first, second = (_unit(x, axis) for x, axis in zip((first, second), axes, strict=True))
        names = iter("bcdefgh")
        left = ["a", *(next(names) for _ in range(ranks[0] - 1))]
        right = ["a", *(next(names) for _ in range(ranks[1] - 1))]
        right[axes[1]] = left[axes[0]]
        result = [n for n in left if n != left[axes[0]]] + [n for n in right[1:] if n != left[axes[0]]]
        made = b.Einsum(first, second, equation=f"{''.join(left)},{''.join(right)}->{''.join(result)}")
        return b.Unsqueeze(made, [1]) if ranks == (2, 2) else made

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return None


def _unit(x: Tensor, axis: int) -> Tensor:
    b = x.builder
    return x / b.Sqrt(b.Max(b.ReduceSum(x * x, [axis], keepdims=1), 1e-12))
