"""Pooling."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.conv import padding_of
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import before_channels, behind_channels, checked, rank_of, sized, tuple_of
from irkit.ir.builder import Tensor

__all__: list[str] = []


class _Pooling(Layer):
    """A window that moves over the axes that are neither batch nor channels.

    Args:
        pool_size: of the window; one number, or one an axis.
        strides: the window's own size by default.
        padding: ``"valid"`` or ``"same"``; padded places do not count.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
    """

    rank: ClassVar[int]
    op: ClassVar[str]

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.pool_size = tuple_of(pool_size, self.rank, "pool_size")
        self.strides = self.pool_size if strides is None else tuple_of(strides, self.rank, "strides")
        self.padding, self.data_format = padding.lower(), checked(data_format)
        if self.padding not in ("valid", "same"):
            raise IrkitError(f"layer '{self.name}': padding={padding!r} is not known", hint="valid or same")

    def call(self, inputs: Any) -> Any:
        x = behind_channels(inputs, self.data_format)
        sizes = [d if isinstance(d, int) else None for d in (x.shape or ())[2:]]
        pads = padding_of(self.padding, sizes, self.pool_size, self.strides, [1] * self.rank)
        made = x.builder.op(self.op, x, kernel_shape=list(self.pool_size), strides=list(self.strides), **pads)
        return before_channels(made, self.data_format)


class _GlobalPooling(Layer):
    """The greatest value, or the mean, over all places of each channel.

    Args:
        keepdims: whether the reduced axes stay, with size 1.
    """

    rank: ClassVar[int]
    op: ClassVar[str]

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.data_format, self.keepdims = checked(data_format), keepdims

    def _axes(self, rank: int) -> list[int]:
        return list(range(1, rank - 1) if self.data_format == "channels_last" else range(2, rank))

    def call(self, inputs: Any) -> Any:
        return inputs.builder.op(self.op, inputs, self._axes(rank_of(inputs)), keepdims=int(self.keepdims))


class GlobalAveragePooling1D(_GlobalPooling):
    """The mean over all steps; masked ones do not count."""

    rank = 1
    op = "ReduceMean"
    supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return super().call(inputs)
        b, axes = inputs.builder, self._axes(3)
        weight = b.Unsqueeze(b.Cast(mask, to=inputs.dtype.code), [2 if axes == [1] else 1])
        total = b.ReduceSum(inputs * weight, axes, keepdims=int(self.keepdims))
        return total / b.ReduceSum(weight, axes, keepdims=int(self.keepdims))

    def compute_mask(self, inputs: Any, mask: Any) -> Any:
        return None


class _AdaptivePooling(Layer):
    """Windows of about the same size, as many as are asked for (as torch has it): from ``floor(i n / m)`` on.

    Args:
        output_size: how many places the output has; one number, or one an axis.
    """

    rank: ClassVar[int]
    mean: ClassVar[bool]

    def __init__(self, output_size: Any, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.output_size = tuple_of(output_size, self.rank, "output_size")
        self.data_format = checked(data_format)

    def call(self, inputs: Any) -> Any:
        first = 1 if self.data_format == "channels_last" else 2
        sizes = sized(inputs.shape, self.data_format)
        for axis, (size, wanted) in enumerate(zip(sizes, self.output_size, strict=True), first):
            if not isinstance(size, int):
                raise IrkitError(f"layer '{self.name}' needs to know the sizes of its input")
            inputs = self._along(inputs, axis, size, wanted)
        return inputs

    def _along(self, x: Tensor, axis: int, size: int, wanted: int) -> Tensor:
        b = x.builder
        reduce = "ReduceMean" if self.mean else "ReduceMax"
        if size % wanted == 0:
            parts = b.Reshape(x, _shape_like(x, axis, wanted, size // wanted))
            return b.op(reduce, parts, [axis + 1], keepdims=0)
        edges = [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]
        pieces = [b.op(reduce, b.Slice(x, [low], [high], [axis]), [axis], keepdims=1) for low, high in edges]
        return b.Concat(*pieces, axis=axis)


def _shape_like(x: Tensor, axis: int, *sizes: int) -> Tensor:
    """The shape of a value with one axis replaced by others."""
    b, rank = x.builder, rank_of(x)
    parts = [b.constant(np.asarray(sizes, np.int64))]
    if axis:
        parts.insert(0, b.Shape(x, start=0, end=axis))
    if axis + 1 < rank:
        parts.append(b.Shape(x, start=axis + 1))
    return b.Concat(*parts, axis=0)


def _define(name: str, base: type[Layer], doc: str, **members: Any) -> None:
    globals()[name] = type(name, (base,), {"__doc__": doc, "__module__": __name__, "__qualname__": name, **members})
    __all__.append(name)


for _rank, _axes in ((1, "one axis"), (2, "two axes"), (3, "three axes")):
    _define(f"MaxPooling{_rank}D", _Pooling, f"The greatest value in a window over {_axes}.", rank=_rank, op="MaxPool")
    _define(f"AveragePooling{_rank}D", _Pooling, f"The mean in a window over {_axes}.", rank=_rank, op="AveragePool")
    _define(f"GlobalMaxPooling{_rank}D", _GlobalPooling, f"The greatest of {_axes}.", rank=_rank, op="ReduceMax")
    if _rank > 1:
        _define(f"GlobalAveragePooling{_rank}D", _GlobalPooling, f"The mean over {_axes}.", rank=_rank, op="ReduceMean")
    _define(f"AdaptiveMaxPooling{_rank}D", _AdaptivePooling, f"Greatest values over {_axes}.", rank=_rank, mean=False)
    _define(f"AdaptiveAveragePooling{_rank}D", _AdaptivePooling, f"Means over {_axes}.", rank=_rank, mean=True)
__all__.append("GlobalAveragePooling1D")
