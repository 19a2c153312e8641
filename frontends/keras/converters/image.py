"""Images: resizing, cropping, colours, coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter
from irkit.frontends.keras.converters.conv import image
from irkit.frontends.keras.converters.shape import padded
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import FIRST, LAST, Value
from irkit.ir.builder import Tensor

MODES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    "bilinear": {"mode": "linear"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
}
"""Keras's interpolations as ONNX's; all take the centres of pixels to lie at halves."""


def _lanczos(a: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: np.where(np.abs(t) < a, np.sinc(t) * np.sinc(t / a), 0)


def _cubic(t: np.ndarray) -> np.ndarray:
    """Keys's kernel with a = -0.5 (Keys 1981, equation 15)."""
    x = np.abs(t)
    near = (1.5 * x - 2.5) * x**2 + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bilinear": lambda t: np.maximum(1 - np.abs(t), 0),
    "bicubic": _cubic,
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}
"""What a pixel counts at a distance."""


@converter("Resize")
def resize(c: Emitter, op: Any, x: Any) -> Value:
    """To a size; cropped or padded before, where the aspect ratio is to be kept."""
    single = x.rank == 3
    if single:
        x = Value([1, *x.shape], x.dtype, c.b.Unsqueeze(c.get(x), np.array([0])), depth=c.b.depth)
    size = c.static(list(op.size), "the size of the result")
    if op.crop_to_aspect_ratio or op.pad_to_aspect_ratio:
        x = _fitted(c, op, x, size)
    made = resized(c, x, size, op.interpolation, bool(op.antialias), image(op))
    if single:
        return c.value(c.b.Squeeze(c.get(made), np.array([0])))
    return made


def resized(c: Emitter, x: Value, size: list[Any], interpolation: str, antialias: bool, layout: str) -> Value:
    """An image of another size."""
    at = slice(1, -1) if layout == FIRST else slice(2, None)
    old: list[Any] = list(x.shape[at])
    shape: list[Any] = list(x.shape)
    shape[at] = size
    if old == size:
        return x
    dtype = x.dtype if x.dtype in ("float32", "float64", "float16") else "float32"
    source = c.form(x, layout, dtype)
    known = not any(isinstance(v, Dim) for v in [*old, *size])
    whole = known and all(m % n == 0 for n, m in zip(old, size, strict=True))
    if interpolation.startswith("lanczos") or (
        known and interpolation in KERNELS and (antialias or interpolation == "bicubic")
    ):
        # Two matrix products: onnxruntime has few of these kernels, and not for all sizes.
        made = source
        for axis, (n, m) in enumerate(zip(c.static(old, "the size of the image"), size, strict=True), 2):
            made = _along(c, made, axis, _weights(interpolation, n, m, antialias), x.rank)
    elif interpolation == "nearest" and known and not whole:
        # By an index: to which pixel a centre goes that lies between two is a matter of rounding.
        made = source
        for axis, (n, m) in enumerate(zip(old, size, strict=True), 2):
            at = np.floor((np.arange(m, dtype=np.float32) + np.float32(0.5)) * np.float32(n) / np.float32(m))
            made = c.b.Gather(made, at.astype(np.int64), axis=axis)
    elif interpolation in MODES:
        if antialias and interpolation != "nearest":
            # ONNX's antialias weighs pixels otherwise than Keras does.
            raise c.refusal(
                "smoothing depends on the size of the input", "fix the size of the input, or antialias=False"
            )
        options = dict(MODES[interpolation])
        options["coordinate_transformation_mode"] = "half_pixel"
        scales = None if any(isinstance(v, Dim) for v in [*old, *size]) else _scales(old, size)
        if scales is not None:
            made = c.b.Resize(source, None, scales, None, **options)
        else:
            made = c.b.Resize(
                source, None, None, c.b.Concat(c.b.Shape(source, end=2), c.vector(size), axis=0), **options
            )
    else:
        raise c.refusal(f"the interpolation '{interpolation}' has no form here")
    return Value(shape, dtype, made, layout=layout, depth=c.b.depth)


def _scales(old: list[int], size: list[int]) -> np.ndarray | None:
    """The factors of all axes, if they give just this size when rounded to float32."""
    found = np.array([1.0, 1.0, *(m / n for n, m in zip(old, size, strict=True))], np.float32)
    exact = all(int(np.floor(n * s)) == m for n, s, m in zip(old, found[2:], size, strict=True))
    return found if exact else None


def _weights(name: str, n: int, m: int, antialias: bool) -> np.ndarray:
    """What each of m new pixels takes of each of n old ones."""
    kernel = KERNELS[name]
    scale = n / m
    stretch = max(scale, 1.0) if antialias else 1.0
    centres = (np.arange(m) + 0.5) * scale - 0.5
    found = kernel((np.arange(n)[None] - centres[:, None]) / stretch)
    return found / found.sum(axis=1, keepdims=True)


def _along(c: Emitter, x: Tensor, axis: int, weights: np.ndarray, rank: int) -> Tensor:
    """An axis replaced by weighted sums over it."""
    dtype = str(x.dtype)
    if axis == rank - 1:
        return c.b.MatMul(x, c.get(weights.T, dtype))
    return c.b.MatMul(c.get(weights, dtype), x)


def _fitted(c: Emitter, op: Any, x: Value, size: list[int]) -> Value:
    """Cut or padded about its centre to the aspect ratio that is wanted."""
    first = 1 if adapter.channels_last(op.data_format) else 2
    height, width = c.static(list(x.shape[first : first + 2]), "keeping the aspect ratio")
    wanted_height, wanted_width = int(width * size[0] / size[1]), int(height * size[1] / size[0])
    if op.crop_to_aspect_ratio:
        new = max(min(height, wanted_height), 1), max(min(width, wanted_width), 1)
        starts = [int((o - n) / 2) for o, n in zip((height, width), new, strict=True)]
        cut = c.b.Slice(
            c.get(x),
            np.array(starts),
            np.array([s + n for s, n in zip(starts, new, strict=True)]),
            np.array([first, first + 1]),
        )
        shape = list(x.shape)
        shape[first : first + 2] = new
        return Value(shape, x.dtype, cut, depth=c.b.depth)
    new = max(height, wanted_height), max(width, wanted_width)
    widths: list[Any] = [(0, 0)] * x.rank
    for i, (o, n) in enumerate(zip((height, width), new, strict=True)):
        before = int((n - o) / 2)
        widths[first + i] = (before, before)
    shape = list(x.shape)
    for i, (before, after) in enumerate(widths):
        shape[i] = shape[i] + before + after if before + after else shape[i]
    made = padded(c, x, widths, "constant" if op.fill_mode == "constant" else op.fill_mode, op.fill_value)
    return Value(shape, x.dtype, c.get(made), depth=c.b.depth)


@converter("upsample")
def upsample(c: Emitter, op: Any, x: Any) -> Value:
    """Resize by whole factors."""
    layout = FIRST if op.last else LAST
    dtype = x.dtype
    wide = dtype if dtype.startswith("float") or op.interpolation == "nearest" else "float32"
    options = MODES[op.interpolation]
    if op.interpolation == "nearest":
        options = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    # onnxruntime takes the scales of all axes more often than those of some.
    scales = np.array([1.0, 1.0, *op.size], np.float32)
    made = c.b.Resize(c.form(x, layout, wide), None, scales, None, **options)
    return c.value(c.cast(made, dtype), layout)


@converter("CropImages", "PadImages")
def crop_or_pad(c: Emitter, op: Any, x: Any) -> Any:
    last = adapter.channels_last(op.data_format)
    first = (x.rank - 3) if last else (x.rank - 2)
    out = c.out.shape
    if op.kind == "CropImages":
        starts = []
        for axis, (before, after) in enumerate(
            ((op.top_cropping, op.bottom_cropping), (op.left_cropping, op.right_cropping)), first
        ):
            starts.append(before if before is not None else x.shape[axis] - out[axis] - (after or 0))
        ends = [s + out[first + i] for i, s in enumerate(starts)]
        return c.b.Slice(c.get(x), c.vector(starts), c.vector(ends), np.array([first, first + 1]))
    widths: list[Any] = [(0, 0)] * x.rank
    for axis, (before, after) in enumerate(
        ((op.top_padding, op.bottom_padding), (op.left_padding, op.right_padding)), first
    ):
        both = out[axis] - x.shape[axis]
        before = both - (after or 0) if before is None else before
        widths[axis] = (before, both - before)
    return padded(c, x, widths)


@converter("RGBToGrayscale")
def grayscale(c: Emitter, op: Any, x: Any) -> Tensor:
    """0.2989 R + 0.587 G + 0.114 B."""
    axis = -1 if adapter.channels_last(op.data_format) else -3
    weights = np.array([0.2989, 0.587, 0.114]).reshape([3] + [1] * (-1 - axis))
    return c.cast(
        c.b.ReduceSum(c.b.Mul(c.get(x, "float32"), c.get(weights, "float32")), np.array([axis]), keepdims=1),
        c.out.dtype,
    )


@converter("RGBToHSV", "HSVToRGB")
def colours(c: Emitter, op: Any, x: Any) -> Tensor:
    """Between red, green, blue and hue, saturation, value (Smith 1978); the hue is a sixth of a turn per colour."""
    b, axis = c.b, -1 if adapter.channels_last(op.data_format) else -3
    x0, x1, x2 = b.Split(c.get(x), axis=axis, num_outputs=3)
    if op.kind == "HSVToRGB":
        parts = []
        for shift in (5.0, 3.0, 1.0):
            k = b.Mod(b.Add(b.Mul(x0, 6.0), shift), c.get(6.0, x.dtype), fmod=1)
            share = b.Clip(b.Min(k, b.Sub(4.0, k)), c.get(0.0, x.dtype), c.get(1.0, x.dtype))
            parts.append(b.Sub(x2, b.Mul(b.Mul(x2, x1), share)))
        return b.Concat(*parts, axis=axis)
    value = b.Max(x0, x1, x2)
    spread = b.Sub(value, b.Min(x0, x1, x2))
    none, dark = b.Equal(spread, 0.0), b.LessOrEqual(value, 0.0)
    one, zero = c.get(1.0, x.dtype), c.get(0.0, x.dtype)
    safe = b.Where(none, one, spread)
    saturation = b.Where(dark, zero, b.Div(spread, b.Where(dark, one, value)))
    red = b.Div(b.Sub(x1, x2), safe)
    green = b.Add(b.Div(b.Sub(x2, x0), safe), 2.0)
    blue = b.Add(b.Div(b.Sub(x0, x1), safe), 4.0)
    hue = b.Where(b.Equal(value, x0), red, b.Where(b.Equal(value, x1), green, blue))
    hue = b.Div(b.Where(b.Less(hue, 0.0), b.Add(hue, 6.0), hue), 6.0)
    return b.Concat(b.Where(none, zero, hue), saturation, value, axis=axis)


BORDERS = {"constant": "zeros", "nearest": "border", "reflect": "reflection", "mirror": "reflection"}
"""Keras's fill modes as ONNX's paddings; a reflection is about the edges of pixels, or (mirror) about their centres."""


@converter("grid_sample")
def grid_sample(c: Emitter, op: Any, x: Any, places: Any) -> Value:
    """One GridSample, which takes places from -1 to 1; a fill other than 0 is put where there is no image."""
    b = c.b
    if op.fill_mode not in BORDERS:
        raise c.refusal(f"filling with '{op.fill_mode}' has no form here", "use 'constant', 'nearest' or 'reflect'")
    layout = FIRST if op.last else LAST
    sizes = x.shape[1:3] if op.last else x.shape[2:4]
    corners = op.fill_mode == "mirror"
    wide = [b.Cast(c.size(s), to=1) for s in reversed(sizes)]
    size = b.Concat(*wide, axis=0)
    at = c.get(places, "float32")
    grid = (
        b.Sub(b.Div(b.Mul(at, 2.0), b.Sub(size, 1.0)), 1.0)
        if corners
        else b.Sub(b.Div(b.Add(b.Mul(at, 2.0), 1.0), size), 1.0)
    )
    mode = "nearest" if op.interpolation == "nearest" else "linear"
    options = {"mode": mode, "padding_mode": BORDERS[op.fill_mode], "align_corners": int(corners)}
    source = c.form(x, layout, "float32")
    made = b.GridSample(source, grid, **options)
    if op.fill_mode == "constant" and op.fill_value:
        ones = b.Expand(np.ones((1, 1, 1, 1), np.float32), b.Shape(source))
        made = b.Add(made, b.Mul(b.Sub(1.0, b.GridSample(ones, grid, **options)), op.fill_value))
    return c.value(c.cast(made, c.out.dtype), layout)
