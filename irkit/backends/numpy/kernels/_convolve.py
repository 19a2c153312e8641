"""Convolution of float32 and float64 tensors in tiles, each of which is handed out while it is in the cache.

What depends on shapes alone is worked out beforehand. ``prepare`` picks between four ways. A kernel of one element is
one GEMM on the input as it lies. Groups of few channels (depthwise above all) copy their windows to columns from padded
planes, rows of which are kept whole so that a copy is one long run. Few filters are multiplied with the input for each
element of the kernel by itself, and the products summed. Anything else copies its windows to columns (im2col) tile by
tile, and multiplies each tile straight into the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from irkit.backends.numpy.kernels._nn import (
    Budget,
    Window,
    ask_for,
    plan_window,
    require,
    spatial_slices,
)

__all__ = ["Place", "Way", "check_bias", "conv_window", "convolve", "prepare"]

COLUMN_BYTES = 2 << 20
"""Size of the buffer of columns of one tile: it should stay in the cache between the copy and the GEMM."""

NARROW_BYTES = 1 << 20
"""The same for groups of few channels, whose columns are read once."""

NARROW = 16
"""A group is of few channels up to so many products of an input and an output channel."""

FEW = 2
"""Filters are few where there are so many times as many channels."""

SUM_BYTES = 8 << 20
"""Size of the products of filters with one tile, for all elements of the kernel."""

LEAST_ROWS = 8
"""A tile of such products has so many times the rows that it shares with its neighbours."""

SHORT_ROW = 32
"""Rows of the output shorter than this, or at strides, are put together before they are copied to columns."""

ALL = slice(None)

Place = tuple[int, slice, slice]
"""A tile of the output: which image, which channels, which part of the first spatial axis."""

Ints = Sequence[int] | None


def conv_window(
    x: np.ndarray, w: np.ndarray, group: int, pads: Ints, auto_pad: str, strides: Ints, dilations: Ints, kernel: Ints
) -> Window:
    """Checks the shapes of a convolution's input (N, C, *size) and filters (M, C / group, *kernel), plans its windows.

    Raises:
        KernelError: if they do not fit.
    """
    pads, strides, dilations, kernel = (None if v is None else tuple(v) for v in (pads, strides, dilations, kernel))
    return _conv_window(x.shape, w.shape, group, pads, auto_pad, strides, dilations, kernel)


@lru_cache(1024)
def _conv_window(
    x: tuple[int, ...],
    w: tuple[int, ...],
    group: int,
    pads: Ints,
    auto_pad: str,
    strides: Ints,
    dilations: Ints,
    kernel: Ints,
) -> Window:
    require(len(x) >= 3, f"X of shape {x} must have a batch, a channel and at least one spatial axis")
    require(len(w) == len(x), f"W of shape {w} must have the rank of X of shape {x}")
    require(group >= 1, f"group {group} must be positive")
    require(
        x[1] == w[1] * group and w[0] % group == 0,
        f"X of shape {x} and W of shape {w} do not fit group {group}: "
        "X.shape[1] must be W.shape[1] * group, and group must divide W.shape[0]",
    )
    require(not kernel or kernel == w[2:], f"kernel_shape {kernel} is not that of W, {w[2:]}")
    return plan_window(x[2:], w[2:], strides, dilations, pads, auto_pad)


def check_bias(b: np.ndarray | None, channels: int) -> None:
    """Raises KernelError unless a bias, if there is one, has one value a channel."""
    require(b is None or b.shape == (channels,), f"B must have shape ({channels},), found {b is not None and b.shape}")


def convolve(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, group: int, window: Window, budget: Budget
) -> np.ndarray:
    """The convolution of x (N, C, *size) with w (M, C / group, *kernel) and b (M,), all float32 or float64."""
    way = prepare(x, w, group, window, budget)
    y = np.empty(way.shape, x.dtype)
    for _ in way.run(x, y):
        pass
    if b is not None:
        y += b.reshape((-1,) + (1,) * len(window.out))
    return y


def prepare(x: np.ndarray, w: np.ndarray, group: int, window: Window, budget: Budget) -> Way:
    """What can be known beforehand of the convolution of inputs of the shape of x with w.

    Raises:
        BudgetError: if the padded input is out of proportion, and more than the budget.
    """
    shape = x.shape
    few = w.shape[0] // group * w.shape[1] <= NARROW
    if 0 in shape or 0 in window.out or 0 in w.shape:
        return _Nothing(shape, w, window)
    ask_for((*shape[:2], *window.reach), x, budget)
    if prod(window.kernel) == 1:
        return _Pointwise(shape, w, group, window)
    if group > 1 and few and len(window.out) == 2:
        return _Narrow(shape, w, group, window)
    if group == 1 and FEW * w.shape[0] <= w.shape[1] and len(window.out) == 2 and set(window.strides) == {1}:
        return _Sums(shape, w, window)
    return _Columns(shape, w, group, window)


class Way:
    """A convolution by filters w (M, C / group, *kernel) of inputs of one shape.

    Attributes:
        shape: of the output.
        places: its tiles, in the order in which ``run`` completes them.
    """

    def __init__(self, x: tuple[int, ...], w: np.ndarray, window: Window) -> None:
        self.shape = (x[0], w.shape[0], *window.out)
        self.places: list[Place] = [(n, ALL, ALL) for n in range(x[0])]
        self.pad = _Padding(x, window)

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        """Convolves x into y, each image of which must be contiguous; yields whenever a tile is done."""
        raise NotImplementedError


class _Padding:
    """The padding of inputs of one shape to exactly what the windows reach, as ``pad_spatial`` does it."""

    def __init__(self, x: tuple[int, ...], window: Window) -> None:
        self.padded = window.padded
        reach = window.reach
        self.shape = (*x[:2], *reach)
        source = [slice(0, max(0, min(n, r - b))) for n, r, b in zip(window.size, reach, window.begin, strict=True)]
        self.source = (ALL, ALL, *source)
        self.target = (ALL, ALL, *(slice(b, b + s.stop) for b, s in zip(window.begin, source, strict=True)))
        self.needed = self.padded or reach != window.size

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if not self.needed:
            return x
        if not self.padded:
            return x[self.source]
        padded = np.zeros(self.shape, x.dtype)
        padded[self.target] = x[self.source]
        return padded


class _Nothing(Way):
    """No channels, or an output without elements."""

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        y[...] = 0
        for _ in self.places:
            yield


class _Pointwise(Way):
    """A kernel of one element: a GEMM an image and group."""

    def __init__(self, x: tuple[int, ...], w: np.ndarray, group: int, window: Window) -> None:
        super().__init__(x, w, window)
        lead = (group,) if group > 1 else ()
        self.filters = w.reshape(*lead, -1, w.shape[1])
        self.columns = (*lead, w.shape[1], prod(window.out))
        self.out = (*lead, w.shape[0] // group, prod(window.out))
        self.step = (ALL, *spatial_slices(window, (0,) * len(window.out)))

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        x = self.pad(x)
        for image, result in zip(x, y, strict=True):
            np.matmul(self.filters, image[self.step].reshape(self.columns), out=result.reshape(self.out))
            yield


# Columns


class _Columns(Way):
    """Windows of some rows of the output at a time as columns, then one GEMM a group into the output."""

    def __init__(self, x: tuple[int, ...], w: np.ndarray, group: int, window: Window) -> None:
        super().__init__(x, w, window)
        self.window = window
        self.rest = prod(window.out[1:])
        self.depth = x[1] * prod(window.kernel)
        height = window.out[0]
        self.rows = min(height, max(1, COLUMN_BYTES // (self.depth * self.rest * w.itemsize)))
        self.parts = [(start, min(start + self.rows, height)) for start in range(0, height, self.rows)]
        self.places = [(n, ALL, slice(*part)) for n in range(x[0]) for part in self.parts]
        lead = (group,) if group > 1 else ()
        self.filters = w.reshape(*lead, w.shape[0] // group, -1)
        self.columns = (*lead, self.depth // group, -1)
        self.out = (*lead, w.shape[0] // group, height * self.rest)
        short = window.out[-1] < SHORT_ROW or window.strides[-1] > 1
        self.short = len(window.out) == 2 and window.kernel[1] > 1 and short

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        x = self.pad(x)
        buffer = np.empty(self.depth * self.rows * self.rest, x.dtype)
        for image, result in zip(x, y, strict=True):
            source = _shifted(image, self.window) if self.short else _windows(image, self.window)
            out = result.reshape(self.out)
            for start, stop in self.parts:
                columns = buffer[: self.depth * (stop - start) * self.rest]
                if self.short:
                    _gather(source, columns, self.window, start, stop)
                else:
                    tile = source[(*(ALL,) * (1 + len(self.window.out)), slice(start, stop))]
                    np.copyto(columns.reshape(tile.shape), tile)
                part = out[..., start * self.rest : stop * self.rest]
                np.matmul(self.filters, columns.reshape(self.columns), out=part)
                yield


def _windows(x: np.ndarray, window: Window) -> np.ndarray:
    """All windows of a padded image (C, *padded) as a view (C, *kernel, *out)."""
    step = x.strides[1:]
    return as_strided(
        x,
        (x.shape[0], *window.kernel, *window.out),
        (
            x.strides[0],
            *(s * d for s, d in zip(step, window.dilations, strict=True)),
            *(s * t for s, t in zip(step, window.strides, strict=True)),
        ),
        writeable=False,
    )


def _shifted(x: np.ndarray, window: Window) -> np.ndarray:
    """A padded image (C, H, W) once for each column of the kernel: (C, kernel width, row stride, rows, out width).

    Element ``[c, k, p, j, i]`` is what column k of the kernel sees at column i of the output in row
    ``j * stride + p``. What a row of the kernel sees of several rows of the output is then one contiguous run.
    """
    stride, width = window.strides[0], window.out[1]
    extent = -(-x.shape[1] // stride)
    made = np.empty((x.shape[0], window.kernel[1], stride, extent, width), x.dtype)
    step, spread = window.strides[1], window.dilations[1]
    for k, p in product(range(window.kernel[1]), range(stride)):
        seen = x[:, p::stride, k * spread : k * spread + (width - 1) * step + 1 : step]
        made[:, k, p, : seen.shape[1]] = seen
    return made


def _gather(shifted: np.ndarray, columns: np.ndarray, window: Window, start: int, stop: int) -> None:
    """Copies what the rows ``start`` to ``stop`` of the output see to columns."""
    width = window.out[1]
    runs = shifted.reshape(*shifted.shape[:3], -1)
    target = columns.reshape(shifted.shape[0], *window.kernel, (stop - start) * width)
    for k in range(window.kernel[0]):
        row, phase = divmod(k * window.dilations[0], window.strides[0])
        np.copyto(target[:, k], runs[:, :, phase, (row + start) * width : (row + stop) * width])


# Few filters


class _Sums(Way):
    """Few filters on many channels at strides of 1: a GEMM for each element of the kernel, all in one, on the input as
    it lies, and then the sum of the products, each shifted to its place. Nothing is copied to columns.
    """

    def __init__(self, x: tuple[int, ...], w: np.ndarray, window: Window) -> None:
        super().__init__(x, w, window)
        self.window = window
        height, self.pitch = window.out[0], window.reach[1]
        taps = [range(0, k * d, d) for k, d in zip(window.kernel, window.dilations, strict=True)]
        self.offsets = [row * self.pitch + column for row, column in product(*taps)]
        self.filters = np.ascontiguousarray(w.reshape(*w.shape[:2], -1).transpose(2, 0, 1)).reshape(-1, w.shape[1])
        self.halo = window.reach[0] - height
        fitting = SUM_BYTES // (self.filters.shape[0] * self.pitch * w.itemsize) - self.halo
        rows = min(height, max(LEAST_ROWS * (self.halo + 1), fitting))
        self.parts = [(start, min(start + rows, height)) for start in range(0, height, rows)]
        self.places = [(n, ALL, slice(*part)) for n in range(x[0]) for part in self.parts]

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        pitch, width = self.pitch, self.window.out[1]
        x = self.pad(x)
        for image, result in zip(x.reshape(*x.shape[:2], -1), y, strict=True):
            for start, stop in self.parts:
                seen = image[:, start * pitch : (stop + self.halo) * pitch]
                products = np.matmul(self.filters, seen).reshape(len(self.offsets), result.shape[0], -1)
                # The run ends with the last column of the output; what lies between two rows is left out at the end.
                run = (stop - start) * pitch - (pitch - width)
                total = products[0, :, :run]
                for offset, one in zip(self.offsets[1:], products[1:], strict=True):
                    total += one[:, offset : offset + run]
                whole = products[0, :, : (stop - start) * pitch]
                result[:, start:stop] = whole.reshape(-1, stop - start, pitch)[:, :, :width]
                yield


# Groups of few channels


class _Narrow(Way):
    """Groups of few channels: columns are runs of whole padded rows, so that all are copied in long pieces.

    What the padding between two rows gives is computed, too, and left out when the result is copied to the output.
    """

    def __init__(self, x: tuple[int, ...], w: np.ndarray, group: int, window: Window) -> None:
        super().__init__(x, w, window)
        self.window = window
        self.depth, self.many = w.shape[1], w.shape[0] // group
        taps = [_taps(*axis) for axis in zip(window.kernel, window.strides, window.dilations, strict=True)]
        self.taps = list(product(*taps))
        size, self.pitch = (n + max(tap.last for tap in axis) for n, axis in zip(window.out, taps, strict=True))
        height = window.out[0]
        cells = self.depth * prod(window.kernel) * self.pitch
        self.rows = min(height, max(1, NARROW_BYTES // (cells * w.itemsize)))
        self.groups = min(group, max(1, NARROW_BYTES // (cells * self.rows * w.itemsize)))
        self.filters = w.reshape(group, self.many, -1)
        self.planes = (self.groups * self.depth, *window.strides, size, self.pitch)
        self.copies = list(_phases(window, size, self.pitch))
        self.parts = [(first, min(first + self.groups, group)) for first in range(0, group, self.groups)]
        self.heights = [(start, min(start + self.rows, height)) for start in range(0, height, self.rows)]
        self.places = [
            (n, slice(first * self.many, last * self.many), slice(*height))
            for n, (first, last), height in product(range(x[0]), self.parts, self.heights)
        ]

    def run(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        pitch, depth, width = self.pitch, self.depth, self.window.out[1]
        # What lies in the padding stays zero.
        planes = np.zeros(self.planes, x.dtype)
        flat = planes.reshape(*self.planes[:3], -1)
        buffer = np.empty((self.groups, depth, *self.window.kernel, self.rows * pitch), x.dtype)
        results = np.empty((self.groups, self.many, self.rows * pitch), x.dtype)
        places = iter(self.places)
        for image, (first, last) in product(x, self.parts):
            channels = slice((last - first) * depth)
            for target, source in self.copies:
                planes[channels][target] = image[first * depth : last * depth][source]
            for start, stop in self.heights:
                # The run ends with the last column of the output: what follows it may lie outside the plane.
                run = (stop - start) * pitch - (pitch - width)
                columns = buffer[: last - first, ..., :run]
                for rows, along in self.taps:
                    seen = _seen(flat[channels], rows, along, pitch, start, run)
                    np.copyto(columns[:, :, rows.where, along.where], seen.reshape(-1, depth, *seen.shape[1:]))
                products = results[: last - first, :, :run]
                np.matmul(self.filters[first:last], columns.reshape(last - first, -1, run), out=products)
                full = results[: last - first, :, : (stop - start) * pitch]
                y[next(places)] = full.reshape(-1, stop - start, pitch)[:, :, :width]
                yield


@dataclass(frozen=True)
class _Taps:
    """Elements of a kernel along one axis that read one phase of the input's stride, at even distances.

    Attributes:
        where: which elements.
        phase: of the input.
        first, step, count: how far into the phase the first of them reads, from one to the next, and how many.
    """

    where: slice
    phase: int
    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        """How far into the phase the last of them reads."""
        return self.first + (self.count - 1) * self.step


def _taps(kernel: int, stride: int, dilation: int) -> list[_Taps]:
    """All elements of a kernel along one axis, by the phase that they read."""
    period = stride // gcd(stride, dilation)
    return [
        _Taps(
            slice(k, None, period),
            k * dilation % stride,
            k * dilation // stride,
            period * dilation // stride,
            -(-(kernel - k) // period),
        )
        for k in range(min(period, kernel))
    ]


def _seen(flat: np.ndarray, rows: _Taps, columns: _Taps, pitch: int, start: int, length: int) -> np.ndarray:
    """What some elements of a kernel see of planes (C, row phases, phases, rows * pitch) from a row of the output on.

    Returns:
        A view (C, kernel rows, kernel columns, length).
    """
    plane = flat[:, rows.phase, columns.phase, (rows.first + start) * pitch + columns.first :]
    item = plane.itemsize
    return as_strided(
        plane,
        (plane.shape[0], rows.count, columns.count, length),
        (plane.strides[0], rows.step * pitch * item, columns.step * item, item),
        writeable=False,
    )


def _phases(window: Window, size: int, pitch: int) -> Iterator[tuple[Any, Any]]:
    """How an image (C, H, W) is copied to planes (C, row phases, phases, size, pitch): index of target and of source.

    Element ``[c, p, q, j, i]`` is the padded input at ``(j * row stride + p, i * stride + q)``. What is in the padding
    is not written.
    """
    for p, q in product(*map(range, window.strides)):
        targets, sources = [], []
        for phase, stride, begin, length, extent in zip(
            (p, q), window.strides, window.begin, window.size, (size, pitch), strict=True
        ):
            low = max(0, -(-(begin - phase) // stride))
            high = min(extent, (length - 1 + begin - phase) // stride + 1)
            start = low * stride + phase - begin
            targets.append(slice(low, max(low, high)))
            sources.append(slice(start, start + (high - low - 1) * stride + 1 if high > low else start, stride))
        yield (ALL, p, q, *targets), (ALL, *sources)
