"""Pooling over windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter
from irkit.frontends.keras.converters.conv import each, image, spatial, window_padding
from irkit.frontends.keras.converters.reduce import reduced
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Tensor


@converter("MaxPool", "AveragePool")
def pool(c: Emitter, op: Any, x: Any) -> Value:
    """Windows at the edge count only what they really cover."""
    rank, layout = x.rank - 2, image(op)
    sizes = each(op.pool_size, rank)
    strides = sizes if op.strides is None else each(op.strides, rank)
    if any(isinstance(s, Dim) for s in sizes):
        return _whole(c, op, x)
    options = window_padding(op.padding, spatial(op, x), sizes, strides)
    name = "MaxPool" if op.kind == "MaxPool" else "AveragePool"
    made = c.b.op(name, c.form(x, layout), kernel_shape=sizes, strides=strides, **options)
    return c.value(made, layout)


def _whole(c: Emitter, op: Any, x: Any) -> Value:
    """A window that is as large as the image, whatever its size."""
    sizes = each(op.pool_size, x.rank - 2)
    axes = list(range(1, x.rank - 1) if adapter.channels_last(op.data_format) else range(2, x.rank))
    wide = [(a, s) for a, s in zip(axes, sizes, strict=True) if s != 1]
    if any(x.shape[a] != s for a, s in wide):
        raise c.refusal("the window of a pooling depends on the size of the input", "fix the size of the input")
    name = "ReduceMax" if op.kind == "MaxPool" else "ReduceMean"
    return reduced(c, name, x, [a for a, _ in wide], True, c.out.dtype)


@converter("AdaptiveMaxPool", "AdaptiveAveragePool")
def adaptive_pool(c: Emitter, op: Any, x: Any) -> Value:
    """To a given size: output i covers floor(i n / m) to ceil((i + 1) n / m).

    Where the size is a multiple these are windows of one size, else each axis is gone over by itself.
    """
    rank, layout = x.rank - 2, image(op)
    wanted, sizes = each(op.output_size, rank), spatial(op, x)
    maximum = op.kind == "AdaptiveMaxPool"
    made = c.form(x, layout)
    if all(m == 1 for m in wanted):
        name = "ReduceMax" if maximum else "ReduceMean"
        return c.value(c.b.op(name, made, np.arange(2, 2 + rank), keepdims=1), layout)
    sizes = c.static(sizes, "the window of an adaptive pooling")
    if all(n % m == 0 for n, m in zip(sizes, wanted, strict=True)):
        window = [n // m for n, m in zip(sizes, wanted, strict=True)]
        name = "MaxPool" if maximum else "AveragePool"
        return c.value(c.b.op(name, made, kernel_shape=window, strides=window), layout)
    for axis, (n, m) in enumerate(zip(sizes, wanted, strict=True), 2):
        made = _adapted(c, made, axis, n, m, maximum)
    return c.value(made, layout)


def _adapted(c: Emitter, x: Tensor, axis: int, n: int, m: int, maximum: bool) -> Tensor:
    bounds = [(i * n // m, math.ceil((i + 1) * n / m)) for i in range(m)]
    name = "ReduceMax" if maximum else "ReduceMean"
    parts = [
        c.b.op(name, c.b.Slice(x, np.array([lo]), np.array([hi]), np.array([axis])), np.array([axis]), keepdims=1)
        for lo, hi in bounds
    ]
    return parts[0] if m == 1 else c.b.Concat(*parts, axis=axis)
