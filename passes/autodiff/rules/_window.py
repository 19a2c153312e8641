"""What the rules of convolutions and pools share: sizes known or not, where windows lie, and their two transposes.

A size is a number where the types tell it, and otherwise an int64 vector of one element that is computed when the graph
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeGuard, cast

import numpy as np

from irkit.dialects.onnx.values import constant_of
from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import Vjp

__all__ = [
    "Size",
    "Windows",
    "counted",
    "cut",
    "divided",
    "known",
    "maximum",
    "padded",
    "reshape",
    "scalar",
    "size_of",
    "spatial",
    "transposed",
    "vector",
    "weight_gradient",
    "windows",
]

Size = int | Tensor


def size_of(g: Vjp, value: Tensor, axis: int) -> Size:
    """The size of an axis."""
    found = value.shape[axis] if value.shape is not None else None
    return found if isinstance(found, int) else g.size(value, axis)


def spatial(g: Vjp, value: Tensor) -> list[Size]:
    """The sizes of all axes but the first two."""
    return [size_of(g, value, axis) for axis in range(2, g.rank(value))]


def known(sizes: Sequence[Size]) -> TypeGuard[list[int]]:
    """Whether all sizes are numbers."""
    return all(isinstance(s, int) for s in sizes)


def vector(b: Builder, sizes: Sequence[Size]) -> Tensor:
    """Sizes as an int64 vector."""
    if known(sizes):
        return b.constant(np.asarray(sizes, np.int64))
    parts = [b.constant(np.asarray([s], np.int64)) if isinstance(s, int) else s for s in sizes]
    return parts[0] if len(parts) == 1 else b.Concat(*parts, axis=0)


def reshape(b: Builder, value: Tensor, sizes: Sequence[Size]) -> Tensor:
    """A value in a shape of these sizes, one of which may be -1."""
    return b.Reshape(value, vector(b, sizes), allowzero=int(-1 not in [s for s in sizes if isinstance(s, int)]))


def scalar(b: Builder, value: Tensor) -> Tensor:
    """A vector of one element as a scalar."""
    found = constant_of(value.ssa)
    return b.Squeeze(value, [0]) if found is None else b.constant(found.array().reshape(()))


def counted(b: Builder, size: Size) -> Tensor:
    """0, 1, 2, ... as int64."""
    if isinstance(size, int):
        return b.constant(np.arange(size, dtype=np.int64))
    zero, one = (b.constant(np.asarray(v, np.int64)) for v in (0, 1))
    return b.Range(zero, b.Reshape(size, b.constant(np.asarray([], np.int64))), one)


def divided(b: Builder, size: Size, by: Size) -> Size:
    """The quotient of sizes, rounded down."""
    return size // by if isinstance(size, int) and isinstance(by, int) else b.Div(size, by)


def maximum(b: Builder, size: Size, least: int) -> Size:
    """The greater of a size and a number."""
    return max(size, least) if isinstance(size, int) else b.Max(size, b.constant(np.asarray([least], np.int64)))


def cut(b: Builder, value: Tensor, axes: Sequence[int], begin: Sequence[Size], size: Sequence[Size]) -> Tensor:
    """The part of a value from ``begin``, of a size, along some axes."""
    if not axes:
        return value
    stops = [a + n for a, n in zip(begin, size, strict=True)]
    return b.Slice(value, vector(b, begin), vector(b, stops), b.constant(np.asarray(axes, np.int64)))


def padded(b: Builder, value: Tensor, axes: Sequence[int], begin: Sequence[Size], end: Sequence[Size]) -> Tensor:
    """A value with zeros around it along some axes; less than none cuts."""
    return b.Pad(value, vector(b, [*begin, *end]), None, b.constant(np.asarray(axes, np.int64)))


@dataclass(frozen=True)
class Windows:
    """Where the windows of an op lie; every field has one entry a spatial axis.

    Attributes:
        size: of what the windows slide over.
        out: how many windows there are.
        kernel, strides, dilations: as of the op.
        begin, end: the padding.
    """

    size: list[Size]
    out: list[Size]
    kernel: list[Size]
    strides: list[int]
    dilations: list[int]
    begin: list[Size]
    end: list[Size]

    @property
    def axes(self) -> list[int]:
        """The spatial axes."""
        return list(range(2, 2 + len(self.size)))

    @property
    def extent(self) -> list[Size]:
        """How far each window reaches."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def reach(self) -> list[Size]:
        """How far all windows together reach, from the begin of the padding."""
        return [(o - 1) * s + e for o, s, e in zip(self.out, self.strides, self.extent, strict=True)]


def windows(g: Vjp, x: Tensor, y: Tensor, kernel: Sequence[Size]) -> Windows:
    """The windows of an op that slides over x and gives y, from its attributes."""
    b, rank = g.b, len(kernel)
    strides: list[int] = list(g.attr("strides") or [1] * rank)
    dilations: list[int] = list(g.attr("dilations") or [1] * rank)
    size, out = spatial(g, x), spatial(g, y)
    auto_pad: str = g.attr("auto_pad") or "NOTSET"
    pads: list[Size] = list((g.attr("pads") if auto_pad == "NOTSET" else None) or [0] * 2 * rank)
    found = Windows(size, out, list(kernel), strides, dilations, pads[:rank], pads[rank:])
    if not auto_pad.startswith("SAME"):
        return found
    for i, (n, reach, extent) in enumerate(zip(size, found.reach, found.extent, strict=True)):
        total = extent - 1 if strides[i] == 1 else maximum(b, reach - n, 0)
        half = divided(b, total, 2)
        found.begin[i], found.end[i] = (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)
    return found


def _rest(win: Windows, i: int) -> int | None:
    """What lies beyond the reach of the windows on an axis (less than none: what they reach beyond it), if known."""
    n, reach, begin, end = win.size[i], win.reach[i], win.begin[i], win.end[i]
    if isinstance(n, int) and isinstance(reach, int) and isinstance(begin, int):
        return n - (reach - begin)
    # With steps of 1, the windows reach to the end of the padding.
    return -end if win.strides[i] == 1 and isinstance(end, int) else None


def transposed(g: Vjp, ct: Tensor, w: Tensor, group: int, win: Windows) -> Tensor:
    """What a convolution's cotangent is worth at its operand: each window's share is added where the window lies."""
    b, rank = g.b, len(win.size)
    fixed = known(win.begin)
    rests = [_rest(win, i) if fixed else None for i in range(rank)]
    begin = win.begin if fixed else [0] * rank
    full = b.ConvTranspose(
        ct,
        w,
        group=group,
        strides=win.strides,
        dilations=win.dilations,
        pads=[*begin, *(0 if rest is None else max(0, -rest) for rest in rests)],
        output_padding=[s - 1 if rest is None else max(0, rest) for s, rest in zip(win.strides, rests, strict=True)],
    )
    unsure = [i for i, rest in enumerate(rests) if rest is None]
    starts: list[Size] = [0 if fixed else win.begin[i] for i in unsure]
    return cut(b, full, [i + 2 for i in unsure], starts, [win.size[i] for i in unsure])


MOST_TAPS = 16
"""Kernels of more taps take longer to make columns by than the product with them takes."""

FEW_COLUMNS = 32
"""Up to so many, rearranging them costs less than rearranging the cotangent."""

MOST_COLUMNS = 1 << 20
"""How many elements the columns of a sample may have."""

MOST_KERNELS = 1 << 16
"""How many elements the kernels that make columns may have."""


def weight_gradient(g: Vjp, x: Tensor, ct: Tensor, group: int, win: Windows) -> Tensor:
    """The cotangent of a convolution's weights from its input and its cotangent.

    There are four ways, all for any padding, strides, dilations and groups; the shapes choose one. Times are CPU
    milliseconds of onnxruntime on one thread, of 3x3 kernels, for the operands batch x channels x size x size (and so
    many filters):

    ====================  ===  ===============  ================  ===============  ===============
    way                   ops  64x1x28x28 (32)  64x32x14x14 (64)  16x64x8x8 (128)  8x16x56x56 (16)
    ====================  ===  ===============  ================  ===============  ===============
    1. columns, one       3    2.6              12.7              3.2              6.0
    product
    2. columns, a         4    1.8              17.1              5.8              9.6
    product per sample
    3. the same as        7    1.5              11.3              5.1              4.9
    MatMul of matrices
    4. a convolution by   4    2.4              15.4              4.2              8.4
    the cotangent
    ====================  ===  ===============  ================  ===============  ===============

    Columns hold what stands under each tap; a grouped convolution by kernels of a single 1 makes them. The first way
    is taken for one group, but the second where there are few columns (``FEW_COLUMNS``: the first layer of a network);
    the third, which takes more ops and is quicker by little, for several groups. The fourth is for where columns are
    of no use: more than ``MOST_TAPS`` taps (7x7 of 3 channels: 22 ms, by columns 25), too much memory
    (``MOST_COLUMNS``, ``MOST_KERNELS``), or sizes that are known only at run time. Nine shifted products, one a tap,
    take as long as the third way, in 27 ops; a convolution with operands exchanged and the result reversed takes twice
    as long.
    """
    channels, filters = size_of(g, x, 1), size_of(g, ct, 1)
    if not (isinstance(channels, int) and isinstance(filters, int) and known(win.kernel) and _fills(win)):
        return _by_convolution(g, x, ct, group, win)
    taps, places = prod(win.kernel), prod(win.out)
    too_large = channels * taps * places > MOST_COLUMNS or channels * taps * taps > MOST_KERNELS
    if too_large or not 0 < taps <= MOST_TAPS:
        return _by_convolution(g, x, ct, group, win)
    columns = _columns(g, x, channels, taps, win)
    b, rows, kernel = g.b, filters // group, [filters, channels // group, *win.kernel]
    if group == 1:
        # The right operand is the one that onnxruntime rearranges: the smaller.
        axes = "abcdefgh"[: len(win.out)]
        if channels * taps <= FEW_COLUMNS:
            each = b.Einsum(ct, columns, equation=f"no{axes},nk{axes}->nok")
            return b.Reshape(b.ReduceSum(each, [0], keepdims=0), kernel)
        sides = [(f"nk{axes}", columns), (f"no{axes}", ct)]
        (left, x), (right, y) = sides if channels * taps >= filters else sides[::-1]
        return b.Reshape(b.Einsum(x, y, equation=f"{left},{right}->ok"), kernel)
    columns = b.Reshape(columns, [-1, group, channels // group * taps, places])
    each = b.MatMul(b.Reshape(ct, [-1, group, rows, places]), b.Transpose(columns, perm=[0, 1, 3, 2]))
    return b.Reshape(b.ReduceSum(each, [0], keepdims=0), kernel)


def _fills(win: Windows) -> TypeGuard[Windows]:
    """Whether all sizes are known, and there are as many windows as find room."""
    if not (known(win.size) and known(win.out) and known(win.begin) and known(win.end) and known(win.kernel)):
        return False
    sizes = zip(win.size, win.begin, win.end, cast("list[int]", win.extent), win.strides, strict=True)
    return [(n + p + q - e) // s + 1 for n, p, q, e, s in sizes] == win.out


def _columns(g: Vjp, x: Tensor, channels: int, taps: int, win: Windows) -> Tensor:
    """(batch, channels * taps, out): what stands under each tap of each window, by kernels of a single 1 each."""
    if taps == 1 and not any([*win.begin, *win.end]) and all(s == 1 for s in win.strides):
        return x
    single = np.eye(taps).reshape(taps, 1, *cast("list[int]", win.kernel))
    return g.b.Conv(
        x,
        g.const(np.tile(single, (channels, *[1] * (single.ndim - 1))), x),
        group=channels,
        pads=[*win.begin, *win.end],
        strides=win.strides,
        dilations=win.dilations,
    )


def _by_convolution(g: Vjp, x: Tensor, ct: Tensor, group: int, win: Windows) -> Tensor:
    """A convolution again, of the input by the cotangent.

    Batch and channels change places in both, and strides and dilations too.
    """
    b, rank = g.b, len(win.size)
    if not (known(win.begin) and known(win.end)):
        x = padded(b, x, win.axes, win.begin, win.end)
        win = Windows(spatial(g, x), win.out, win.kernel, win.strides, win.dilations, [0] * rank, [0] * rank)
    swapped = [1, 0, *win.axes]
    if group == 1:
        data = b.Transpose(x, perm=swapped)
    else:
        batch, sizes = size_of(g, x, 0), spatial(g, x)
        channels = divided(b, size_of(g, x, 1), group)
        data = b.Transpose(
            reshape(b, x, [batch, group, channels, *sizes]), perm=[2, 1, 0, *(axis + 1 for axis in win.axes)]
        )
        data = reshape(b, data, [channels, batch * group, *sizes])
    found = b.Conv(
        data,
        b.Transpose(ct, perm=swapped),
        group=group,
        pads=[*win.begin, *win.end],
        strides=win.dilations,
        dilations=win.strides,
    )
    found = b.Transpose(found, perm=swapped)
    # A remainder that no window reaches may leave room for more than the kernel.
    longer = [i for i in range(rank) if not _exact(win, i)]
    return cut(b, found, [i + 2 for i in longer], [0] * len(longer), [win.kernel[i] for i in longer])


def _exact(win: Windows, i: int) -> bool:
    """Whether the windows certainly leave less than one step of the kernel beyond their reach."""
    rest, end = _rest(win, i), win.end[i]
    return rest is not None and isinstance(end, int) and rest + end < win.dilations[i]
