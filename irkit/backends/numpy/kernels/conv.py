"""Convolutions: Conv, ConvTranspose, ConvInteger, QLinearConv, DeformConv, Col2Im, CausalConvWithState.

All take any number of spatial axes; ``_convolve.py`` says how they are computed.

Conventions: integer convolutions are computed exactly in float64 (every sum stays far below 2**53) and wrap to int32
at the end, as the spec allows. QLinearConv quantizes as QuantizeLinear does, ``saturate(round(x / y_scale) + zero)``,
halves to even. In ConvTranspose an output longer than all windows reach is padded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from irkit.backends.numpy.kernels._common import widen
from irkit.backends.numpy.kernels._convolve import check_bias, conv_window, convolve
from irkit.backends.numpy.kernels._nn import (
    OUT_OF_PROPORTION,
    Budget,
    Window,
    explicit_pads,
    integers,
    per_channel,
    plan_window,
    require,
    spatial_attribute,
    spatial_slices,
    split_padding,
)
from irkit.backends.numpy.registry import kernel

__all__: list[str] = []

Ints = Sequence[int] | None


@kernel("Conv")
def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    budget: Budget,
    group: int = 1,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    kernel_shape: Ints = None,
) -> np.ndarray:
    window = conv_window(x, w, group, pads, auto_pad, strides, dilations, kernel_shape)
    check_bias(b, w.shape[0])
    y = convolve(widen(x), widen(w), None if b is None else widen(b), group, window, budget)
    return y.astype(x.dtype, copy=False)


def _exact(x: np.ndarray, zero_point: np.ndarray | None, channel_axis: bool) -> np.ndarray:
    """An integer tensor less its zero point (a scalar, or one per entry of axis 0), in float64."""
    result = x.astype(np.float64)
    if zero_point is not None:
        if channel_axis and zero_point.size > 1:
            require(
                zero_point.size == x.shape[0],
                f"a zero point of shape {zero_point.shape} must be a scalar or have {x.shape[0]} elements",
            )
            zero_point = zero_point.reshape((-1,) + (1,) * (x.ndim - 1))
        else:
            require(zero_point.size == 1, f"a zero point of shape {zero_point.shape} must be a scalar")
            zero_point = zero_point.reshape(())
        result -= zero_point.astype(np.float64)
    return result


@kernel("ConvInteger")
def conv_integer(
    x: np.ndarray,
    w: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    w_zero_point: np.ndarray | None = None,
    *,
    budget: Budget,
    group: int = 1,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    kernel_shape: Ints = None,
) -> np.ndarray:
    window = conv_window(x, w, group, pads, auto_pad, strides, dilations, kernel_shape)
    y = convolve(_exact(x, x_zero_point, False), _exact(w, w_zero_point, True), None, group, window, budget)
    return y.astype(np.int64).astype(np.int32)


@kernel("QLinearConv")
def qlinear_conv(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    b: np.ndarray | None = None,
    *,
    budget: Budget,
    group: int = 1,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    kernel_shape: Ints = None,
) -> np.ndarray:
    window = conv_window(x, w, group, pads, auto_pad, strides, dilations, kernel_shape)
    check_bias(b, w.shape[0])
    require(x_scale.size == 1 and y_scale.size == 1, "x_scale and y_scale must be scalars")
    require(w_scale.size in (1, w.shape[0]), f"w_scale of shape {w_scale.shape} must have 1 or {w.shape[0]} elements")
    bias = None if b is None else b.astype(np.float64)
    y = convolve(_exact(x, x_zero_point, False), _exact(w, w_zero_point, True), bias, group, window, budget)
    y *= per_channel(x_scale.astype(np.float64).reshape(1) * w_scale.astype(np.float64).reshape(-1), y.ndim)
    y /= y_scale.astype(np.float64).reshape(())
    np.rint(y, out=y)
    y += y_zero_point.astype(np.float64).reshape(())
    limits = np.iinfo(y_zero_point.dtype)
    return np.clip(y, limits.min, limits.max, out=y).astype(y_zero_point.dtype)


@kernel("ConvTranspose")
def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    budget: Budget,
    group: int = 1,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
) -> np.ndarray:
    rank = x.ndim - 2
    require(rank >= 1, f"X of shape {x.shape} must have a batch, a channel and at least one spatial axis")
    require(w.ndim == x.ndim, f"W of shape {w.shape} must have the rank of X of shape {x.shape}")
    require(
        group >= 1 and x.shape[1] == w.shape[0] and x.shape[1] % group == 0,
        f"X of shape {x.shape} and W of shape {w.shape} do not fit group {group}: "
        "X.shape[1] must be W.shape[0], and group must divide it",
    )
    require(not kernel_shape or tuple(kernel_shape) == w.shape[2:], f"kernel_shape {kernel_shape} is not that of W")
    channels = w.shape[1] * group
    check_bias(b, channels)
    steps, spread = spatial_attribute("strides", strides, rank), spatial_attribute("dilations", dilations, rank)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], steps, w.shape[2:], spread, strict=True)]
    begin, out = _transpose_shape(x.shape[2:], full, steps, auto_pad, pads, output_padding, output_shape)
    canvas = [max(f, p + o, 0) for f, p, o in zip(full, begin, out, strict=True)]
    size = channels * prod(canvas)
    if size > OUT_OF_PROPORTION * max(x.size, 1 << 16):
        budget.allocate(size * x.shape[0] * x.itemsize)
    depth = w.shape[0] // group
    filters = widen(w).reshape(group, depth, prod(w.shape[1:])).transpose(0, 2, 1)
    data = widen(x).reshape(x.shape[0], group, depth, prod(x.shape[2:]))
    y = np.empty((x.shape[0], channels, *out), x.dtype)
    window = Window((0,) * rank, w.shape[2:], steps, spread, begin, begin, x.shape[2:])
    crop = (slice(None), *(slice(p, p + o) for p, o in zip(begin, out, strict=True)))
    for n in range(x.shape[0]):
        columns = np.matmul(filters, data[n]).reshape(channels, *w.shape[2:], *x.shape[2:])
        image = np.zeros((channels, *canvas), columns.dtype)
        for offset in np.ndindex(*w.shape[2:]):
            image[(slice(None), *spatial_slices(window, offset))] += columns[(slice(None), *offset)]
        if b is not None:
            image += per_channel(widen(b), image.ndim + 1)[0]
        y[n] = image[crop]
    return y


def _transpose_shape(
    size: Sequence[int],
    full: Sequence[int],
    strides: Sequence[int],
    auto_pad: str,
    pads: Ints,
    output_padding: Ints,
    output_shape: Ints,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding at the start and output extent of each axis (the equations of ConvTranspose)."""
    rank = len(size)
    extra = tuple(output_padding) if output_padding else (0,) * rank
    require(len(extra) == rank and min(extra) >= 0, f"output_padding {extra} must have {rank} entries of at least 0")
    if not output_shape and not auto_pad.startswith("SAME"):
        begin, end = explicit_pads(pads if auto_pad == "NOTSET" else None, rank)
        out = tuple(f + x - p - q for f, x, p, q in zip(full, extra, begin, end, strict=True))
        require(min(out) >= 0 or 0 in size, f"pads {begin + end} leave nothing of an output of {tuple(full)}")
        return begin, tuple(max(o, 0) for o in out)
    out = tuple(output_shape) if output_shape else tuple(n * s for n, s in zip(size, strides, strict=True))
    require(len(out) == rank and min(out) >= 0, f"output_shape {out} must have {rank} entries, one per spatial axis")
    totals = (f + x - o for f, x, o in zip(full, extra, out, strict=True))
    return tuple(split_padding(max(t, 0), auto_pad)[0] for t in totals), out


@kernel("DeformConv")
def deform_conv(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    budget: Budget,
    group: int = 1,
    offset_group: int = 1,
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    kernel_shape: Ints = None,
) -> np.ndarray:
    window = conv_window(x, w, group, pads, "NOTSET", strides, dilations, kernel_shape)
    check_bias(b, w.shape[0])
    batch, channels, rank, taps, out = x.shape[0], x.shape[1], x.ndim - 2, prod(window.kernel), window.out
    require(
        offset_group >= 1 and channels % offset_group == 0,
        f"offset_group {offset_group} must divide the {channels} channels of X",
    )
    expected = (batch, offset_group * taps * rank, *out)
    require(offset.shape == expected, f"offset must have shape {expected}, found {offset.shape}")
    expected = (batch, offset_group * taps, *out)
    require(mask is None or mask.shape == expected, f"mask must have shape {expected}")
    data, filters = widen(x), widen(w).reshape(group, w.shape[0] // group, prod(w.shape[1:]))
    places = prod(out)
    budget.allocate(channels * taps * places * data.itemsize)
    y = np.empty((batch, w.shape[0], *out), x.dtype)
    for n in range(batch):
        shifts = widen(offset[n]).reshape(offset_group, taps, rank, *out)
        weights = 1 if mask is None else widen(mask[n]).reshape(offset_group, 1, taps * places)
        at = []
        for axis in range(rank):
            tap = np.indices(window.kernel)[axis].reshape(taps, *(1,) * rank) * window.dilations[axis]
            place = np.arange(out[axis]) * window.strides[axis] - window.begin[axis]
            place = place.reshape((-1,) + (1,) * (rank - 1 - axis))
            at.append((shifts[:, :, axis] + (tap + place).astype(shifts.dtype)).reshape(offset_group, taps * places))
        split = data[n].reshape(offset_group, channels // offset_group, *x.shape[2:])
        columns = (_sample_linear(split, at) * weights).reshape(group, prod(w.shape[1:]), places)
        image = np.matmul(filters, columns).reshape(y.shape[1:])
        y[n] = image if b is None else image + per_channel(widen(b), y.ndim)[0]
    return y


def _sample_linear(data: np.ndarray, at: Sequence[np.ndarray]) -> np.ndarray:
    """Values of data (G, C, *size), zero outside, at points given per axis as (G, P): (G, C, P), interpolated."""
    size = data.shape[2:]
    flat = data.reshape(*data.shape[:2], prod(size))
    result = np.zeros((*data.shape[:2], at[0].shape[1]), data.dtype)
    if flat.size == 0 or result.size == 0:
        return result
    low = [np.floor(np.clip(np.nan_to_num(a), -2, n + 1)).astype(np.int64) for a, n in zip(at, size, strict=True)]
    inside = [(a > -1) & (a < n) | np.isnan(a) for a, n in zip(at, size, strict=True)]
    for corner in product((0, 1), repeat=len(size)):
        index: np.ndarray | int = 0
        weight: np.ndarray | float = 1.0
        for axis, (bit, n) in enumerate(zip(corner, size, strict=True)):
            place = low[axis] + bit
            fraction = at[axis] - low[axis].astype(data.dtype)
            weight = weight * np.where(
                inside[axis] & (place >= 0) & (place < n) | np.isnan(fraction),
                fraction if bit else 1 - fraction,
                np.zeros((), data.dtype),
            )
            index = index * n + np.clip(place, 0, n - 1)
        picked = np.take_along_axis(flat, np.asarray(index)[:, None, :], axis=2)
        weight = np.asarray(weight)[:, None, :]
        result += np.where(weight == 0, np.zeros((), data.dtype), picked * weight)
    return result


@kernel("Col2Im")
def col2im(
    x: np.ndarray,
    image_shape: np.ndarray,
    block_shape: np.ndarray,
    *,
    budget: Budget,
    pads: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
) -> np.ndarray:
    require(x.ndim == 3, f"the input of shape {x.shape} must be (N, C * product of block_shape, L)")
    image, block = integers(image_shape), integers(block_shape)
    require(len(image) == len(block) >= 1, f"image_shape {image} and block_shape {block} must have the same length")
    window = plan_window(image, block, strides, dilations, pads)
    taps = prod(block)
    require(
        x.shape[1] % taps == 0 and x.shape[2] == prod(window.out),
        f"the input of shape {x.shape} must have a multiple of {taps} rows and {prod(window.out)} columns, "
        f"for image_shape {image}, block_shape {block} and {window.out} blocks",
    )
    channels = x.shape[1] // taps
    canvas = tuple(n + p + q for n, p, q in zip(image, window.begin, window.end, strict=True))
    budget.allocate(x.shape[0] * channels * prod(canvas) * x.itemsize)
    data = widen(x) if x.dtype.kind in "fV" else x
    blocks = data.reshape(x.shape[0], channels, *block, *window.out)
    result = np.full((x.shape[0], channels, *canvas), "" if x.dtype.kind == "O" else 0, data.dtype)
    every = (slice(None), slice(None))
    for offset in np.ndindex(*block):
        result[(*every, *spatial_slices(window, offset))] += blocks[(*every, *offset)]
    crop = tuple(slice(p, p + n) for p, n in zip(window.begin, image, strict=True))
    return result[(*every, *crop)].astype(x.dtype, copy=False)


@kernel("CausalConvWithState")
def causal_conv_with_state(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    past: np.ndarray | None = None,
    *,
    budget: Budget,
    activation: str = "none",
) -> tuple[np.ndarray, np.ndarray]:
    require(x.ndim == 3, f"the input of shape {x.shape} must be (batch_size, channels, length)")
    batch, channels, length = x.shape
    require(
        w.ndim == 3 and w.shape[:2] == (channels, 1) and w.shape[2] >= 1,
        f"weight of shape {w.shape} must be ({channels}, 1, k)",
    )
    require(activation in ("none", "silu", "swish"), f"activation {activation!r} must be 'none', 'silu' or 'swish'")
    check_bias(b, channels)
    carried = w.shape[2] - 1
    if past is None:
        past = np.zeros((batch, channels, carried), x.dtype)
    require(
        past.shape == (batch, channels, carried),
        f"past_state of shape {past.shape} must be {(batch, channels, carried)}",
    )
    sequence = np.concatenate((past, x), axis=2)
    y = np.empty((batch, channels, length), widen(x).dtype)
    if y.size:
        window = plan_window(sequence.shape[2:], w.shape[2:], None, None, None)
        y = convolve(widen(sequence), widen(w), None if b is None else widen(b), w.shape[0], window, budget)
    if activation != "none":
        y /= 1 + np.exp(-y)
    return y.astype(x.dtype, copy=False), sequence[:, :, sequence.shape[2] - carried :]
