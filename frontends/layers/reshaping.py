"""Layers that move elements about."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import before_channels, behind_channels, checked, rank_of, tuple_of
from irkit.frontends.layers.regularization import partial_shape

__all__ = [
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]


class Reshape(Layer):
    """The same elements in another shape.

    Args:
        target_shape: without the batch; -1 for a size that follows from the others.
    """

    def __init__(self, target_shape: Any, **options: Any) -> None:
        super().__init__(**options)
        self.target_shape = tuple(target_shape)

    def call(self, inputs: Any) -> Any:
        sizes = [d for d in (inputs.shape or ())[1:] if isinstance(d, int)]
        target = list(self.target_shape)
        if -1 in target and len(sizes) == rank_of(inputs) - 1:
            place = target.index(-1)
            others = int(np.prod([d for d in target if d != -1], dtype=np.int64))
            target[place] = int(np.prod(sizes, dtype=np.int64)) // max(others, 1)
        return inputs.builder.Reshape(inputs, partial_shape(inputs, [None, *target]) if -1 in target else [0, *target])


class Flatten(Layer):
    """All axes but the batch in one."""

    def __init__(self, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.data_format = checked(data_format)

    def call(self, inputs: Any) -> Any:
        b, rank = inputs.builder, rank_of(inputs)
        if self.data_format == "channels_first" and rank > 2:
            inputs = b.Transpose(inputs, perm=[0, *range(2, rank), 1])
        sizes = (inputs.shape or ())[1:]
        if all(isinstance(d, int) for d in sizes):
            return b.Reshape(inputs, [0, int(np.prod(sizes, dtype=np.int64))])
        return b.Flatten(inputs, axis=1)


class Permute(Layer):
    """The axes in another order.

    Args:
        dims: the axes, from 1; the batch stays.
    """

    def __init__(self, dims: Any, **options: Any) -> None:
        super().__init__(**options)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise IrkitError(f"layer '{self.name}': dims={self.dims} is no order of the axes from 1")

    def call(self, inputs: Any) -> Any:
        return inputs.builder.Transpose(inputs, perm=[0, *self.dims])


class RepeatVector(Layer):
    """(batch, features) n times, as (batch, n, features)."""

    def __init__(self, n: int, **options: Any) -> None:
        super().__init__(**options)
        self.n = n

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        return b.Tile(b.Unsqueeze(inputs, [1]), [1, self.n, 1])


class _Spatial(Layer):
    """What works on the axes that are neither batch nor channels."""

    rank: ClassVar[int]

    def __init__(self, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.data_format = checked(data_format)

    def _axes(self) -> list[int]:
        first = 1 if self.data_format == "channels_last" else 2
        return list(range(first, first + self.rank))


def _pairs(value: Any, rank: int, what: str) -> list[tuple[int, int]]:
    """One number for all sides, one an axis, or a pair an axis."""
    if isinstance(value, int):
        return [(value, value)] * rank
    given = list(value)
    if rank == 1 and len(given) == 2 and all(isinstance(v, int) for v in given):
        return [(given[0], given[1])]
    if len(given) != rank:
        raise IrkitError(f"{what}={value!r}: a number, or {rank} numbers or pairs are needed")
    return [(v, v) if isinstance(v, int) else (v[0], v[1]) for v in given]


class _Cropping(_Spatial):
    def __init__(self, cropping: Any = 1, data_format: str | None = None, **options: Any) -> None:
        super().__init__(data_format, **options)
        self.cropping = _pairs(cropping, self.rank, "cropping")

    def call(self, inputs: Any) -> Any:
        starts = [low for low, _ in self.cropping]
        ends = [-high if high else np.iinfo(np.int64).max for _, high in self.cropping]
        return inputs.builder.Slice(inputs, starts, ends, self._axes())


class Cropping1D(_Cropping):
    """Leaves out steps at the beginning and the end."""

    rank = 1


class Cropping2D(_Cropping):
    """Leaves out rows and columns at the edges."""

    rank = 2


class Cropping3D(_Cropping):
    """Leaves out places at the faces."""

    rank = 3


class _ZeroPadding(_Spatial):
    def __init__(self, padding: Any = 1, data_format: str | None = None, **options: Any) -> None:
        super().__init__(data_format, **options)
        self.padding = _pairs(padding, self.rank, "padding")

    def call(self, inputs: Any) -> Any:
        rank, axes = rank_of(inputs), self._axes()
        sides = dict(zip(axes, self.padding, strict=True))
        pads = [sides.get(axis, (0, 0))[side] for side in (0, 1) for axis in range(rank)]
        return inputs.builder.Pad(inputs, pads, mode="constant")


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and behind."""

    rank = 1


class ZeroPadding2D(_ZeroPadding):
    """Zeros around."""

    rank = 2


class ZeroPadding3D(_ZeroPadding):
    """Zeros around."""

    rank = 3


class _UpSampling(_Spatial):
    def __init__(self, size: Any = 2, data_format: str | None = None, **options: Any) -> None:
        super().__init__(data_format, **options)
        self.size = tuple_of(size, self.rank, "size")

    def call(self, inputs: Any) -> Any:
        x = behind_channels(inputs, self.data_format)
        scales = np.asarray([1, 1, *self.size], np.float32)
        made = x.builder.Resize(
            x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        return before_channels(made, self.data_format)


class UpSampling1D(_UpSampling):
    """Each step several times."""

    rank = 1

    def __init__(self, size: Any = 2, **options: Any) -> None:
        super().__init__(size, None, **options)


class UpSampling2D(_UpSampling):
    """Larger images.

    Args:
        size: how many times larger; one number, or two.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
    """

    rank = 2

    def __init__(
        self, size: Any = 2, data_format: str | None = None, interpolation: str = "nearest", **options: Any
    ) -> None:
        super().__init__(size, data_format, **options)
        self.interpolation = interpolation

    def call(self, inputs: Any) -> Any:
        if self.interpolation == "nearest":
            return super().call(inputs)
        from irkit.frontends.layers.preprocessing import resized

        x = behind_channels(inputs, self.data_format)
        scales = np.asarray([1, 1, *self.size], np.float32)
        return before_channels(resized(x, self.interpolation, scales=scales), self.data_format)


class UpSampling3D(_UpSampling):
    """Each place several times."""

    rank = 3
