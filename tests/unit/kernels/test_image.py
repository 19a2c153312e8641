"""Resizing, sampling, boxes and cropping against loops and values worked out by hand."""

from __future__ import annotations

import builtins
import io
import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

RNG = np.random.default_rng(19)
BF16 = np.dtype(ml_dtypes.bfloat16)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def row(*values) -> np.ndarray:
    return np.array(values, np.float32)


def scales(*values) -> np.ndarray:
    return np.array(values, np.float32)


def cubic(t, a):
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0


def sample(values, at, kernel, support, *, stretch=1.0, exclude=False):
    """The weighted mean of all elements near a coordinate, the ends repeated (or excluded)."""
    total = weight = 0.0
    for i in range(math.floor(at - support * stretch) - 1, math.ceil(at + support * stretch) + 2):
        w = kernel((i - at) / stretch)
        if exclude and not 0 <= i < len(values):
            continue
        total += w * float(values[min(max(i, 0), len(values) - 1)])
        weight += w
    return total / weight


COORDINATES = {
    "half_pixel": lambda x, n, out, s, f: (x + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda x, n, out, s, f: (x + 0.5) / s - 0.5 if out > 1 else 0,
    "asymmetric": lambda x, n, out, s, f: x / s,
    "align_corners": lambda x, n, out, s, f: x * (n - 1) / (f - 1) if f != 1 else 0,
    "half_pixel_symmetric": lambda x, n, out, s, f: n / 2 * (1 - out / f) + (x + 0.5) / s - 0.5,
}


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("scale", [0.3, 0.7, 1.6, 2.0])
@pytest.mark.parametrize(("antialias", "exclude"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_resize_one_axis(op, mode, coordinates, scale, antialias, exclude):
    x = floats(7)
    scale = float(np.float32(scale))
    out = math.floor(7 * scale)
    kernel, support = ((lambda t: max(0, 1 - abs(t))), 1) if mode == "linear" else ((lambda t: cubic(t, -0.6)), 2)
    stretch = max(1, 1 / scale) if antialias else 1
    want = [
        sample(
            x, COORDINATES[coordinates](i, 7, out, scale, 7 * scale), kernel, support, stretch=stretch, exclude=exclude
        )
        for i in range(out)
    ]
    got = op(
        "Resize",
        x,
        None,
        scales(scale),
        mode=mode,
        coordinate_transformation_mode=coordinates,
        antialias=antialias,
        exclude_outside=exclude,
        cubic_coeff_a=-0.6,
    )
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


def test_resize_is_separable_and_takes_sizes_and_axes(op):
    x = floats(2, 5, 4)
    both = op("Resize", x, None, None, np.array([8, 3]), mode="cubic", axes=(1, -1))
    first = op("Resize", x, None, None, np.array([8]), mode="cubic", axes=(1,))
    np.testing.assert_allclose(op("Resize", first, None, None, np.array([3]), mode="cubic", axes=(2,)), both, rtol=1e-4)
    swapped = op("Resize", x, None, None, np.array([3, 8]), mode="cubic", axes=(2, 1))
    np.testing.assert_array_equal(swapped, both)


@pytest.mark.parametrize(
    ("nearest", "picked"),
    [
        ("round_prefer_floor", [0, 0, 1, 1, 2]),
        ("round_prefer_ceil", [0, 1, 1, 2, 2]),
        ("floor", [0, 0, 1, 1, 2]),
        ("ceil", [0, 1, 1, 2, 2]),
    ],
)
@pytest.mark.parametrize("kind", ["str", "bfloat16", "int64", "bool"])
def test_resize_nearest_of_any_type(op, nearest, picked, kind):
    x = {
        "str": np.array(["a", "b", "c"], object),
        "bfloat16": np.array([1, 2, 3], BF16),
        "int64": np.array([2**62 + 1, 2, 3]),
        "bool": np.array([True, False, True]),
    }[kind]
    options = {"coordinate_transformation_mode": "align_corners", "nearest_mode": nearest}
    got = op("Resize", x, None, None, np.array([5]), **options)
    assert got.dtype == x.dtype
    assert got.tolist() == x[picked].tolist()


def test_resize_integers_round_and_saturate(op):
    x = np.array([0, 0, 255, 255], np.uint8)
    got = op("Resize", x, None, None, np.array([8]), mode="cubic")
    wide = op("Resize", x.astype(np.float32), None, None, np.array([8]), mode="cubic")
    assert wide.min() < 0
    assert wide.max() > 255
    assert got.tolist() == np.clip(np.rint(wide), 0, 255).tolist()
    big = np.array([2**63 - 1, 2**63 - 1])
    assert op("Resize", big, None, None, np.array([3]), mode="linear").tolist() == [2**63 - 1] * 3


@pytest.mark.parametrize(
    ("policy", "sizes", "shape"),
    [
        ("not_larger", (6, 9), (5, 9)),
        ("not_smaller", (6, 6), (6, 12)),
        ("stretch", (6, 9), (6, 9)),
        ("not_larger", (3, 5), (3, 5)),
    ],
)
def test_resize_keeps_the_aspect_ratio(op, policy, sizes, shape):
    x = floats(4, 8)
    assert op("Resize", x, None, None, np.array(sizes), keep_aspect_ratio_policy=policy).shape == shape


def test_resize_crops_and_extrapolates(op):
    x = row(0, 10, 20, 30, 40)
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear", "extrapolation_value": -1.0}
    got = op("Resize", x, row(0.25, 1.5), None, np.array([6]), **options)
    assert got.tolist() == [10, 20, 30, 40, -1, -1]
    assert op("Resize", x, row(0.25, 0.75), None, np.array([1]), **options).tolist() == [20]
    assert op("Resize", x, row(1, 0), None, np.array([5]), **options).tolist() == [40, 30, 20, 10, 0]
    with pytest.raises(KernelError, match="needs a roi of 2 elements"):
        op("Resize", x, None, None, np.array([6]), **options)


def test_resize_to_and_from_nothing(op):
    assert op("Resize", floats(0, 3), None, None, np.array([0, 6]), mode="linear").shape == (0, 6)
    assert op("Resize", floats(4), None, scales(0.1)).shape == (0,)
    with pytest.raises(KernelError, match="an empty axis cannot be resized"):
        op("Resize", floats(0), None, None, np.array([2]))


def test_resize_rounds_the_length_in_float32(op):
    # 0.7 in float32 lies just below; the product with 10 rounds to 7 all the same.
    assert op("Resize", floats(10), None, scales(0.7)).shape == (7,)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((None, None, None), {}, "one of scales and sizes"),
        ((None, scales(2), np.array([4])), {}, "one of scales and sizes"),
        ((None, scales(2, 2)), {}, "must have 1 elements"),
        ((None, scales(0)), {}, "must be positive"),
        ((None, None, np.array([-1])), {}, "must not be negative"),
        ((None, scales(2)), {"mode": "quintic"}, "mode 'quintic'"),
        ((None, scales(2)), {"coordinate_transformation_mode": "corners"}, "'corners' is unknown"),
        ((None, scales(2)), {"antialias": 1}, "antialias needs"),
    ],
)
def test_resize_refuses(op, inputs, attributes, message):
    with pytest.raises(KernelError, match=message):
        op("Resize", floats(3), *inputs, **attributes)


def test_resize_refuses_to_interpolate_strings_and_huge_outputs(op):
    with pytest.raises(KernelError, match="strings can only be sampled"):
        op("Resize", np.array(["a", "b"], object), None, None, np.array([3]), mode="linear")
    with pytest.raises(MemoryError):
        op("Resize", floats(3), None, None, np.array([2**40]))


def reflect(at, low, high):
    while high > low and not low <= at <= high:
        at = 2 * low - at if at < low else 2 * high - at
    return at if high > low else low


def grid_value(plane, coordinates, mode, padding, align):
    """One sample of an n-dimensional plane at normalized coordinates, outermost axis first."""
    lines = []
    for v, n in zip(coordinates, plane.shape, strict=True):
        at = (v + 1) / 2 * (n - 1) if align else ((v + 1) * n - 1) / 2
        low, high = (0, n - 1) if align else (-0.5, n - 0.5)
        if mode == "nearest":
            at = round(at)
        if padding == "reflection":
            at = reflect(at, low, high)
        first = math.floor(at)
        taps = {
            "nearest": [(round(at), 1.0)],
            "linear": [(first, 1 - at + first), (first + 1, at - first)],
            "cubic": [(i, cubic(i - at, -0.75)) for i in range(first - 1, first + 3)],
        }[mode]
        if padding == "border":
            taps = [(min(max(i, 0), n - 1), w) for i, w in taps]
        elif padding == "reflection":
            taps = [(round(reflect(i, low, high)), w) for i, w in taps]
        lines.append([(i, w) for i, w in taps if 0 <= i < n])
    return sum(math.prod(w for _, w in taps) * float(plane[tuple(i for i, _ in taps)]) for taps in product(*lines))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(4,), (3, 5), (2, 3, 4)])
def test_grid_sample(op, mode, padding, align, size):
    x = floats(2, 2, *size)
    grid = RNG.uniform(-1.9, 1.9, (2, *(2,) * len(size), len(size))).astype(np.float32)
    got = op("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=align)
    for n, c, *place in product(range(2), range(2), *(range(2),) * len(size)):
        coordinates = [float(v) for v in grid[(n, *place)]][::-1]
        want = grid_value(x[n, c], coordinates, mode, padding, align)
        assert got[(n, c, *place)] == pytest.approx(want, rel=1e-3, abs=1e-4)


def test_grid_sample_types_and_edges(op):
    grid = np.array([[[-1.0], [0.25], [np.nan], [np.inf]]], np.float32)
    ints = np.array([[[5, 8]]], np.uint8)
    # Coordinates 0, 0.625, 0 and far outside; 6.875 is cut to 6.
    assert op("GridSample", ints, grid, align_corners=1).tolist() == [[[5, 6, 5, 0]]]
    words = np.array([[["a", "b"]]], object)
    assert op("GridSample", words, grid, align_corners=1, mode="nearest").tolist() == [[["a", "b", "a", ""]]]
    half = op("GridSample", ints.astype(BF16), grid.astype(BF16), align_corners=1)
    assert half.dtype == BF16
    assert op("GridSample", floats(1, 0, 3), grid).shape == (1, 0, 4)
    with pytest.raises(KernelError, match="grid of shape"):
        op("GridSample", floats(1, 1, 3), floats(1, 4, 2))
    with pytest.raises(KernelError, match="no elements to sample"):
        op("GridSample", floats(1, 1, 0), grid, padding_mode="border")


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (1, 1, 2, 3, 1)])
def test_affine_grid(op, align, size):
    rank = len(size) - 2
    theta = floats(size[0], rank, rank + 1)
    got = op("AffineGrid", theta, np.array(size), align_corners=align)
    assert got.shape == (size[0], *size[2:], rank)
    for n, *place in product(range(size[0]), *(range(s) for s in size[2:])):
        at = []
        for i, s in zip(place, size[2:], strict=True):
            corner = -1 + 2 * i / (s - 1) if s > 1 else 0
            at.append(corner if align else -1 + (2 * i + 1) / s)
        np.testing.assert_allclose(got[(n, *place)], theta[n] @ [*at[::-1], 1], rtol=1e-4, atol=1e-6)
    with pytest.raises(KernelError, match="theta must be"):
        op("AffineGrid", theta[:, :1], np.array(size))


def test_image_decoder(op):
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, (3, 4, 3)).astype(np.uint8)
    stream = io.BytesIO()
    image.fromarray(pixels).save(stream, "PNG")
    encoded = np.frombuffer(stream.getvalue(), np.uint8)
    np.testing.assert_array_equal(op("ImageDecoder", encoded), pixels)
    np.testing.assert_array_equal(op("ImageDecoder", encoded, pixel_format="BGR"), pixels[:, :, ::-1])
    grey = op("ImageDecoder", encoded, pixel_format="Grayscale")
    luma = pixels @ [0.299, 0.587, 0.114]
    assert grey.shape == (3, 4, 1)
    assert np.abs(grey[:, :, 0] - luma).max() <= 1
    assert op("ImageDecoder", encoded[:20]).shape == (0, 0, 3)
    assert op("ImageDecoder", encoded[: len(encoded) // 2]).shape == (0, 0, 3)
    with pytest.raises(KernelError, match="pixel_format 'CMYK'"):
        op("ImageDecoder", encoded, pixel_format="CMYK")


def test_image_decoder_says_what_to_install(op, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "PIL":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(KernelError, match="needs Pillow: install irkit with the extra 'images'"):
        op("ImageDecoder", np.zeros(3, np.uint8))


BOXES = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.5], [1, 1, 0, 0], [5, 5, 6, 6]]], np.float32)


@pytest.mark.parametrize(
    ("scores", "most", "overlap", "least", "kept"),
    [
        ((0.9, 0.8, 0.7, 0.1), 9, 0.4, None, [0, 3]),
        ((0.9, 0.8, 0.7, 0.1), 9, 0.5, None, [0, 1, 3]),
        ((0.9, 0.8, 0.7, 0.1), 1, 0.5, None, [0]),
        ((0.5, 0.5, 0.5, 0.5), 9, 1.0, None, [0, 1, 2, 3]),
        ((0.25, 0.5, 0.75, 0.25), 9, 0.0, 0.25, [2, 3]),
        ((0.9, 0.8, 0.7, 0.1), 0, 0.5, None, []),
        ((0.9, 0.8, 0.7, 0.1), None, 0.5, None, []),
    ],
)
def test_non_max_suppression(op, scores, most, overlap, least, kept):
    got = op(
        "NonMaxSuppression",
        BOXES,
        np.array([[scores]], np.float32),
        None if most is None else np.array([most]),
        np.array(overlap, np.float32),
        None if least is None else np.array(least, np.float32),
    )
    assert got.dtype == np.int64
    assert got.tolist() == [[0, 0, k] for k in kept]


def test_non_max_suppression_by_centres_and_classes(op):
    centred = np.array([[[0.5, 0.5, 1, 1], [0.5, 0.25, 1, 0.5], [5.5, 5.5, 1, 1]]], np.float32)
    scores = np.array([[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]], np.float32)
    got = op("NonMaxSuppression", centred, scores, np.array(5), np.array(0.4, np.float32), center_point_box=1)
    assert got.tolist() == [[0, 0, 2], [0, 0, 1], [0, 1, 0], [0, 1, 2]]
    assert op("NonMaxSuppression", centred[:, :0], scores[:, :, :0], np.array(5)).shape == (0, 3)
    with pytest.raises(KernelError, match=r"iou_threshold 1\.5"):
        op("NonMaxSuppression", centred, scores, np.array(5), np.array(1.5, np.float32))
    with pytest.raises(KernelError, match="scores of shape"):
        op("NonMaxSuppression", centred, scores[:, :, :2])


def test_center_crop_pad(op):
    x = np.arange(1, 21).reshape(4, 5)
    assert op("CenterCropPad", x, np.array([1, 2])).tolist() == [[7, 8]]
    assert op("CenterCropPad", x, np.array([7]), axes=(-1,))[0].tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert op("CenterCropPad", x, np.array([8]), axes=(1,))[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    assert op("CenterCropPad", x, np.array([2, 6])).tolist() == [[6, 7, 8, 9, 10, 0], [11, 12, 13, 14, 15, 0]]
    assert op("CenterCropPad", np.array(["a"], object), np.array([2])).tolist() == ["a", ""]
    assert op("CenterCropPad", x, np.array([0, 5])).shape == (0, 5)
    with pytest.raises(KernelError, match="must have 2 extents"):
        op("CenterCropPad", x, np.array([1]))
    with pytest.raises(MemoryError):
        op("CenterCropPad", x, np.array([2**30, 2**30]))
