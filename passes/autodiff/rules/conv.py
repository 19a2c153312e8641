"""Convolutions: Conv, ConvTranspose, DeformConv, Col2Im."""

from __future__ import annotations

import numpy as np

from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules._sample import Taps, around, linear, sampled, within
from irkit.passes.autodiff.rules._through import through
from irkit.passes.autodiff.rules._window import (
    Size,
    Windows,
    counted,
    cut,
    divided,
    known,
    maximum,
    padded,
    reshape,
    size_of,
    spatial,
    transposed,
    vector,
    weight_gradient,
    windows,
)

proven_zero("ConvInteger QLinearConv", "the result is integers")
proven_zero("Col2Im", "shapes", [1, 2])


def _bias_gradient(g: Vjp, ct: Tensor) -> Tensor:
    return g.reduce_sum(ct, [axis for axis in range(g.rank(ct)) if axis != 1])


@vjp("Conv")
def conv(g: Vjp) -> Gradients:
    x, w, ct, group = g.x(0), g.x(1), g.ct, g.attr("group")
    win = windows(g, x, g.y(), spatial(g, w))
    return (
        transposed(g, ct, w, group, win) if g.needs(0) else None,
        weight_gradient(g, x, ct, group, win) if g.needs(1) else None,
        _bias_gradient(g, ct) if g.needs(2) else None,
    )


@vjp("ConvTranspose")
def conv_transpose(g: Vjp) -> Gradients:
    b, x, w, ct, group = g.b, g.x(0), g.x(1), g.ct, g.attr("group")
    win = _windows_of_transpose(g)
    if not (known(win.begin) and known(win.end)):
        # Padded, or cut, to what the windows reach.
        data = padded(b, ct, win.axes, win.begin, win.end)
        none = [0] * len(win.size)
        win = Windows(win.reach, win.out, win.kernel, win.strides, win.dilations, [*none], [*none])
    else:
        data = ct
    dx = None
    if g.needs(0):
        pads = [*win.begin, *win.end]
        dx = b.Conv(data, w, group=group, pads=pads, strides=win.strides, dilations=win.dilations)
        # An output longer than the windows reach has room for more of them.
        more = [i for i in range(len(win.out)) if _room(win, i) >= win.strides[i]]
        dx = cut(b, dx, [i + 2 for i in more], [0] * len(more), [win.out[i] for i in more])
    return (
        dx,
        weight_gradient(g, data, x, group, win) if g.needs(1) else None,
        _bias_gradient(g, ct) if g.needs(2) else None,
    )


def _room(win: Windows, i: int) -> int:
    """How much an output of ConvTranspose is longer than its windows reach."""
    n, reach, begin = win.size[i], win.reach[i], win.begin[i]
    if isinstance(n, int) and isinstance(reach, int) and isinstance(begin, int):
        return n + begin - reach
    return win.strides[i] if win.end[i] == 0 else 0


def _windows_of_transpose(g: Vjp) -> Windows:
    """The windows by which a ConvTranspose spreads its operand over its result."""
    b, x, y = g.b, g.x(0), g.y()
    kernel, n, out = spatial(g, g.x(1)), spatial(g, x), spatial(g, y)
    rank = len(kernel)
    strides: list[int] = list(g.attr("strides") or [1] * rank)
    dilations: list[int] = list(g.attr("dilations") or [1] * rank)
    extra: list[int] = list(g.attr("output_padding") or [0] * rank)
    auto_pad: str = g.attr("auto_pad")
    shape = g.attr("output_shape")
    pads: list[Size] = list((g.attr("pads") if auto_pad == "NOTSET" else None) or [0] * 2 * rank)
    win = Windows(out, n, kernel, strides, dilations, pads[:rank], pads[rank:])
    if not shape and not auto_pad.startswith("SAME"):
        win.end[:] = [maximum(b, p - e, 0) for p, e in zip(win.end, extra, strict=True)]
        return win
    for i, (reach, extent) in enumerate(zip(win.reach, win.extent, strict=True)):
        size: Size = shape[i] if shape else out[i]
        # Without output_shape the result has a stride's length for each element.
        total = maximum(b, reach + extra[i] - size if shape else extent - strides[i] + extra[i], 0)
        half = divided(b, total, 2)
        win.begin[i] = half if auto_pad == "SAME_UPPER" else total - half
        end = reach - size - win.begin[i] if shape else extent - strides[i] - win.begin[i]
        win.end[i] = max(end, 0) if isinstance(end, int) else end
    return win


@vjp("Col2Im")
def col2im(g: Vjp) -> Tensor:
    """Columns again: a convolution by all kernels of a single 1."""
    b, ct = g.b, g.ct
    block, taps = g.x(2), g.ints(2)
    rank = g.rank(ct) - 2
    count: Size = int(np.prod(taps)) if taps is not None else b.ReduceProd(block, keepdims=1)
    square = vector(b, [count, count])
    eye = b.EyeLike(g.cast(b.Expand(g.const(0.0, ct), square), ct))
    kernel = b.Reshape(eye, b.Concat(vector(b, [count, 1]), block, axis=0))
    sizes = spatial(g, ct)
    images = b.Conv(
        reshape(b, ct, [-1, 1, *sizes]),
        kernel,
        pads=g.attr("pads") or [0] * 2 * rank,
        strides=g.attr("strides") or [1] * rank,
        dilations=g.attr("dilations") or [1] * rank,
    )
    return g.reshape_like(images, g.x(0))


@vjp("DeformConv")
def deform_conv(g: Vjp) -> Gradients:
    """Through samples, as columns, and a product with the weights."""
    x, w, group, parts = g.x(0), g.x(1), g.attr("group"), g.attr("offset_group")
    win = windows(g, x, g.y(), spatial(g, w))
    rank = len(win.size)
    batch, channels, filters = size_of(g, x, 0), size_of(g, x, 1), size_of(g, w, 0)
    # Sizes that both the places and the columns are told from.
    taps, places = _product(win.kernel), _product(win.out)

    def forward(b: Builder, x: Tensor, w: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
        moved = reshape(b, offset, [batch * parts, taps, rank, *win.out])
        taps_of: list[Taps] = []
        for axis in range(rank):
            at = b.Add(b.Squeeze(cut(b, moved, [2], [axis], [1]), [2]), g.cast(_grid(b, win, axis, taps), offset))
            near, far = around(g, reshape(b, at, [batch * parts, -1]), (0, 1))
            taps_of.append(within(g, near, linear(g, far), win.size[axis]))
        columns = sampled(b, g, reshape(b, x, [batch * parts, divided(b, channels, parts), -1]), taps_of, win.size)
        if mask is not None:
            columns = b.Mul(columns, reshape(b, mask, [batch * parts, 1, -1]))
        columns = reshape(b, columns, [batch, group, divided(b, channels * taps, group), places])
        kernels = reshape(b, w, [group, divided(b, filters, group), -1])
        image = reshape(b, b.MatMul(kernels, columns), [batch, filters, *win.out])
        return image if bias is None else b.Add(image, reshape(b, bias, [1, -1, *[1] * rank]))

    return through(g, forward, [g.x(i) for i in range(5)])


def _product(sizes: list[Size]) -> Size:
    found: Size = 1
    for size in sizes:
        found = size * found
    return found


def _grid(b: Builder, win: Windows, axis: int, taps: Size) -> Tensor:
    """Where the taps of all windows lie along an axis, before they are moved: (taps, 1, ..., out, ..., 1) as int64."""
    rank = len(win.size)
    steps = reshape(b, counted(b, win.out[axis]) * win.strides[axis], [-1 if i == axis else 1 for i in range(rank)])
    inner = counted(b, win.kernel[axis]) * win.dilations[axis]
    inner = reshape(b, inner, [-1 if i == axis else 1 for i in range(rank)])
    inner = reshape(b, b.Expand(inner, vector(b, win.kernel)), [taps, *[1] * rank])
    return b.Sub(b.Add(inner, steps), vector(b, [win.begin[axis]]))
