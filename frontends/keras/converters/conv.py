"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import FIRST, LAST, Value
from irkit.ir.builder import Tensor


def each(value: Any, rank: int) -> list[int]:
    """One number for every spatial axis."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * rank


def image(op: Any) -> str:
    """The layout in which an operation on images finds its channels at place 1."""
    return FIRST if adapter.channels_last(op.data_format) else LAST


def spatial(op: Any, x: Value) -> list[int | Dim]:
    """The sizes of the axes that are neither batch nor channels."""
    return list(x.shape[1:-1] if adapter.channels_last(op.data_format) else x.shape[2:])


def window_padding(
    padding: str, sizes: Sequence[int | Dim], reach: Sequence[int], strides: Sequence[int]
) -> dict[str, Any]:
    """ONNX's attributes for Keras's padding.

    ``same`` gives ceil(size / stride) results and puts the odd one of the padding after. Where the size is known it is
    written out, else left to SAME_UPPER, which means the same.
    """
    if padding.lower() != "same":
        return {}
    if any(isinstance(size, Dim) and stride > 1 for size, stride in zip(sizes, strides, strict=True)):
        return {"auto_pad": "SAME_UPPER"}
    totals = [
        k - 1 if isinstance(n, Dim) else max((math.ceil(n / s) - 1) * s + k - n, 0)
        for n, k, s in zip(sizes, reach, strides, strict=True)
    ]
    if not any(totals):
        return {}
    return {"pads": [t // 2 for t in totals] + [t - t // 2 for t in totals]}


@converter("Conv", "DepthwiseConv")
def conv(c: Emitter, op: Any, x: Any, kernel: Any) -> Value:
    return convolved(c, op, x, kernel, op.kind == "DepthwiseConv", c.out.dtype)


def convolved(c: Emitter, op: Any, x: Any, kernel: Any, depthwise: bool, dtype: str, pointwise: bool = False) -> Value:
    """A convolution; Keras's kernels have their spatial axes in front, then input and output channels."""
    rank = x.rank - 2
    layout = image(op)
    shape = kernel.shape if isinstance(kernel, Value) else np.shape(kernel)
    sizes = [1] * rank if pointwise else list(shape[:rank])
    strides = [1] * rank if pointwise else each(op.strides, rank)
    dilations = each(op.dilation_rate, rank)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    channels = x.shape[-1 if layout == FIRST else 1]
    order = [rank, rank + 1] if depthwise else [rank + 1, rank]
    weights = c.b.Transpose(c.get(kernel, dtype), perm=[*order, *range(rank)])
    if depthwise:
        weights = c.b.Reshape(weights, np.array([shape[rank] * shape[rank + 1], 1, *sizes]))
    options: dict[str, Any] = {} if pointwise else window_padding(op.padding, spatial(op, x), reach, strides)
    if any(d > 1 for d in dilations):
        options["dilations"] = dilations
    made = c.b.Conv(
        c.form(x, layout, dtype),
        weights,
        kernel_shape=sizes,
        strides=strides,
        group=channels if depthwise else channels // shape[rank],
        **options,
    )
    return Value(c.out.shape, dtype, made, layout=layout, depth=c.b.depth)


@converter("SeparableConv")
def separable_conv(c: Emitter, op: Any, x: Any, depthwise_kernel: Any, pointwise_kernel: Any) -> Value:
    middle = convolved(c, op, x, depthwise_kernel, True, c.out.dtype)
    middle.shape = (*c.out.shape[:-1], depthwise_kernel.shape[-1] * depthwise_kernel.shape[-2])
    if image(op) == LAST:
        middle.shape = (c.out.shape[0], middle.shape[-1], *c.out.shape[2:])
    return convolved(c, op, middle, pointwise_kernel, False, c.out.dtype, pointwise=True)


@converter("ConvTranspose")
def conv_transpose(c: Emitter, op: Any, x: Any, kernel: Any) -> Value:
    """The transpose of a convolution. Keras's kernel has output channels before input channels.

    ``valid`` gives (n - 1) * stride + max(kernel, stride) results and ``same`` n * stride, unless an output padding is
    given. What is left over of the padding is cut off at the end, or grows there.
    """
    rank, dtype, layout = x.rank - 2, c.out.dtype, image(op)
    sizes = list((kernel.shape if isinstance(kernel, Value) else np.shape(kernel))[:rank])
    strides, dilations = each(op.strides, rank), each(op.dilation_rate, rank)
    grow = each(op.output_padding, rank)
    begins, ends, extra = [], [], []
    for k, s, d, g in zip(sizes, strides, dilations, grow, strict=True):
        reach = (k - 1) * d + 1
        if op.padding.lower() == "valid":
            left, right = reach - 1, reach - 1 + (max(reach, s) - reach if g is None else g)
        else:
            both = s + reach - 2 if g is None else reach + reach % 2 - 2 + g
            left = min(both // 2 + both % 2, reach - 1)
            right = both - left
        begins.append(reach - 1 - left)
        ends.append(max(reach - 1 - right, 0))
        extra.append(max(right - reach + 1, 0))
    options: dict[str, Any] = {"pads": begins + ends} if any(begins + ends) else {}
    if any(d > 1 for d in dilations):
        options["dilations"] = dilations
    over = any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    if any(extra) and not over:
        options["output_padding"] = extra
    weights = c.b.Transpose(c.get(kernel, dtype), perm=[rank + 1, rank, *range(rank)])
    made: Tensor = c.b.ConvTranspose(c.form(x, layout, dtype), weights, kernel_shape=sizes, strides=strides, **options)
    if over:
        # ONNX bounds output_padding by the stride: what lies beyond is zero anyway.
        made = c.b.Pad(made, np.array([0] * (rank + 4) + extra), None)
    return c.value(made, layout)


@converter("Unfold", "ExtractPatches")
def patches(c: Emitter, op: Any, x: Any) -> Any:
    """Patches of an image side by side as channels: a convolution with a kernel of ones and zeros."""
    if op.kind == "Unfold":
        return _unfold(c, op, x)
    layout = image(op)
    rank = x.rank - 2
    if x.rank == 3:
        raise c.refusal("patches of a single image have no form here", "add a batch axis")
    sizes, dilations = each(op.size, rank), each(op.dilation_rate, rank)
    strides = sizes if not op.strides else each(op.strides, rank)
    channels = x.shape[-1 if layout == FIRST else 1]
    area = math.prod(sizes)
    kernel = np.eye(area * channels).reshape(area * channels, area, channels)
    kernel = np.moveaxis(kernel, 2, 1).reshape(area * channels, channels, *sizes)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    made = c.b.Conv(
        c.form(x, layout),
        c.get(kernel.astype(np.float32), x.dtype),
        kernel_shape=sizes,
        strides=strides,
        dilations=dilations,
        **window_padding(op.padding, spatial(op, x), reach, strides),
    )
    return c.value(made, layout)


def _unfold(c: Emitter, op: Any, x: Any) -> Tensor:
    sizes, dilations, pads, strides = (each(v, 2) for v in (op.kernel_size, op.dilation, op.padding, op.stride))
    channels, area = x.shape[1], math.prod(sizes)
    kernel = np.eye(channels * area, dtype=np.float32).reshape(channels * area, channels, *sizes)
    made = c.b.Conv(
        c.get(x),
        c.get(kernel, x.dtype),
        kernel_shape=sizes,
        strides=strides,
        dilations=dilations,
        pads=[*pads, *pads],
    )
    return c.b.Reshape(made, np.array([0, channels * area, -1]))


@converter("Fold")
def fold(c: Emitter, op: Any, x: Any) -> Tensor:
    """Patches summed into an image: ONNX's Col2Im."""
    size, sizes, dilations, pads, strides = (
        each(v, 2) for v in (op.output_size, op.kernel_size, op.dilation, op.padding, op.stride)
    )
    return c.b.Col2Im(
        c.get(x), np.array(size), np.array(sizes), dilations=dilations, pads=[*pads, *pads], strides=strides
    )
