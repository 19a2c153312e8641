"""Layers that prepare data."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers.layer import Layer
from irkit.frontends.layers.layout import before_channels, behind_channels, checked, rank_of
from irkit.ir.builder import Tensor
from irkit.ir.dtypes import dtype

__all__ = ["CategoryEncoding", "CenterCrop", "Rescaling", "Resizing"]

_MODES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


def resized(x: Tensor, interpolation: str, *, sizes: Any = None, scales: Any = None) -> Tensor:
    """A value (batch, channels, height, width) in another size, by pixel centres.

    Args:
        sizes: of height and width, or
        scales: of all four axes.
    """
    b = x.builder
    if interpolation not in _MODES:
        raise IrkitError(f"interpolation={interpolation!r} is not known", hint=f"it is {' or '.join(_MODES)}")
    options: dict[str, Any] = {"mode": _MODES[interpolation], "coordinate_transformation_mode": "half_pixel"}
    if interpolation == "nearest":
        options["nearest_mode"] = "floor" if scales is not None else "round_prefer_ceil"
    if interpolation == "bicubic":
        options |= {"cubic_coeff_a": -0.5, "exclude_outside": 1}
    if scales is not None:
        return b.Resize(x, None, scales, **options)
    whole = b.Concat(b.Shape(x, start=0, end=2), b.constant(np.asarray(sizes, np.int64)), axis=0)
    return b.Resize(x, None, None, whole, **options)


class Rescaling(Layer):
    """``x * scale + offset``."""

    def __init__(self, scale: Any, offset: Any = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.scale, self.offset = scale, offset

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        if not inputs.dtype.is_float:
            inputs = b.Cast(inputs, to=dtype(self.compute_dtype).code)
        scale, offset = (b.constant(np.asarray(v, inputs.dtype.numpy)) for v in (self.scale, self.offset))
        return inputs * scale + offset


class Resizing(Layer):
    """Images in another size.

    Args:
        interpolation: ``"bilinear"``, ``"nearest"`` or ``"bicubic"``.
        crop_to_aspect_ratio: whether the image is cropped in the middle first so that nothing is distorted.
    """

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        data_format: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.height, self.width, self.interpolation = height, width, interpolation
        self.crop_to_aspect_ratio, self.data_format = crop_to_aspect_ratio, checked(data_format)

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        if not inputs.dtype.is_float:
            inputs = b.Cast(inputs, to=dtype(self.compute_dtype).code)
        single = rank_of(inputs) == 3
        x = behind_channels(b.Unsqueeze(inputs, [0]) if single else inputs, self.data_format)
        if self.crop_to_aspect_ratio:
            height, width = _known(x, self.name)
            crop = max(int(width * self.height / self.width), 1), max(int(height * self.width / self.height), 1)
            x = _centre(x, min(height, crop[0]), min(width, crop[1]), height, width)
        made = before_channels(resized(x, self.interpolation, sizes=(self.height, self.width)), self.data_format)
        return b.Squeeze(made, [0]) if single else made


def _known(x: Tensor, name: str) -> tuple[int, int]:
    height, width = list(x.shape or ())[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        raise IrkitError(f"layer '{name}' needs to know height and width")
    return height, width


def _centre(x: Tensor, height: int, width: int, of_height: int, of_width: int) -> Tensor:
    top, left = int((of_height - height) / 2), int((of_width - width) / 2)
    return x.builder.Slice(x, [top, left], [top + height, left + width], [2, 3])


class CenterCrop(Layer):
    """The middle of images; smaller ones are resized with as little loss as can be."""

    def __init__(self, height: int, width: int, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.height, self.width, self.data_format = height, width, checked(data_format)

    def call(self, inputs: Any) -> Any:
        b = inputs.builder
        if not inputs.dtype.is_float:
            inputs = b.Cast(inputs, to=dtype(self.compute_dtype).code)
        single = rank_of(inputs) == 3
        x = behind_channels(b.Unsqueeze(inputs, [0]) if single else inputs, self.data_format)
        height, width = _known(x, self.name)
        if height >= self.height and width >= self.width:
            x = _centre(x, self.height, self.width, height, width)
        else:
            crop = max(int(width * self.height / self.width), 1), max(int(height * self.width / self.height), 1)
            x = _centre(x, min(height, crop[0]), min(width, crop[1]), height, width)
            x = resized(x, "bilinear", sizes=(self.height, self.width))
        made = before_channels(x, self.data_format)
        return b.Squeeze(made, [0]) if single else made


class CategoryEncoding(Layer):
    """Numbers of classes as vectors.

    Args:
        num_tokens: how many classes there are.
        output_mode: ``"multi_hot"``, ``"one_hot"`` or ``"count"``.
    """

    def __init__(self, num_tokens: int, output_mode: str = "multi_hot", **options: Any) -> None:
        super().__init__(**options)
        if output_mode not in ("multi_hot", "one_hot", "count"):
            raise IrkitError(f"output_mode={output_mode!r} is not known", hint="multi_hot, one_hot or count")
        self.num_tokens, self.output_mode = num_tokens, output_mode

    def call(self, inputs: Any, count_weights: Any = None) -> Any:
        b = inputs.builder
        inputs = b.Cast(inputs, to=dtype("int64").code)
        rank, kind = rank_of(inputs), dtype(self.compute_dtype)
        if self.output_mode == "one_hot":
            inputs = b.Squeeze(inputs, [-1]) if rank and list(inputs.shape or ())[-1] == 1 else inputs
        classes = b.constant(np.arange(self.num_tokens, dtype=np.int64))
        hot = b.Cast(b.Equal(b.Unsqueeze(inputs, [-1]), classes), to=kind.code)
        if self.output_mode == "one_hot":
            return hot
        axis = [-2] if rank else []
        if self.output_mode == "multi_hot":
            return b.ReduceMax(hot, axis, keepdims=0) if rank else hot
        if count_weights is not None:
            hot = hot * b.Unsqueeze(b.Cast(count_weights, to=kind.code), [-1])
        return b.ReduceSum(hot, axis, keepdims=0) if rank else hot
