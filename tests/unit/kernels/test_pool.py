"""Pooling against loops over every window, and its edges."""

from __future__ import annotations

from itertools import product
from math import ceil, floor

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

RNG = np.random.default_rng(3)
NAN, INF = np.nan, np.inf


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def windows(size, kernel, strides, pads, dilations, ceil_mode):
    """Per axis and output: all positions of the window, those outside the input too."""
    lines = []
    for n, k, s, b, e, d in zip(size, kernel, strides, pads[: len(size)], pads[len(size) :], dilations, strict=True):
        out = (ceil if ceil_mode else floor)((n + b + e - d * (k - 1) - 1) / s + 1)
        starts = [i * s - b for i in range(out)]
        lines.append([[start + j * d for j in range(k)] for start in starts if not ceil_mode or start < n])
    return lines


OPTIONS = [
    {"kernel_shape": (2,), "strides": (1,), "pads": (0, 0), "dilations": (1,), "ceil_mode": 0},
    {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "dilations": (1, 1), "ceil_mode": 0},
    {"kernel_shape": (3, 2), "strides": (3, 2), "pads": (1, 1, 0, 0), "dilations": (1, 3), "ceil_mode": 1},
    {"kernel_shape": (2, 3), "strides": (3, 3), "pads": (0, 1, 1, 2), "dilations": (2, 1), "ceil_mode": 1},
    {
        "kernel_shape": (1, 2, 2),
        "strides": (2, 1, 3),
        "pads": (0, 0, 1, 0, 1, 1),
        "dilations": (1, 2, 1),
        "ceil_mode": 1,
    },
]


@pytest.mark.parametrize("given", OPTIONS)
def test_pools_are_their_definition(op, given):
    size = (7, 6, 5)[: len(given["kernel_shape"])]
    x = floats(2, 2, *size)
    options = dict(zip(("kernel", "strides", "pads", "dilations", "ceil_mode"), given.values(), strict=True))
    lines = windows(size, **options)
    out = tuple(len(line) for line in lines)
    top, mean, full, norm = (np.zeros((2, 2, *out)) for _ in range(4))
    where = np.zeros((2, 2, *out), np.int64)
    rank = len(size)
    for n, c, *place in product(range(2), range(2), *(range(o) for o in out)):
        spots = list(product(*(line[i] for line, i in zip(lines, place, strict=True))))
        inside = [s for s in spots if all(0 <= a < m for a, m in zip(s, size, strict=True))]
        padded = [s for s in spots if all(a < m + e for a, m, e in zip(s, size, given["pads"][rank:], strict=True))]
        values = [float(x[(n, c, *s)]) for s in inside]
        at = (n, c, *place)
        best = max(range(len(values)), key=values.__getitem__)
        top[at], where[at] = values[best], np.ravel_multi_index((n, c, *inside[best]), x.shape)
        mean[at], full[at] = sum(values) / len(values), sum(values) / len(padded)
        norm[at] = sum(abs(v) ** 3 for v in values) ** (1 / 3)
    y, indices = op("MaxPool", x, n_out=2, **given)
    np.testing.assert_array_equal(y, top)
    np.testing.assert_array_equal(indices, where)
    np.testing.assert_array_equal(op("MaxPool", x, **given), top)
    np.testing.assert_allclose(op("AveragePool", x, **given), mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(op("AveragePool", x, count_include_pad=1, **given), full, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(op("LpPool", x, p=3, **given), norm, rtol=1e-4, atol=1e-6)


def test_max_pool_ties_nan_and_storage_order(op):
    x = np.array([[[[1, 1, 5], [1, 1, NAN], [-INF, -INF, 7]]]], np.float32)
    y, indices = op("MaxPool", x, n_out=2, kernel_shape=(2, 2))
    np.testing.assert_array_equal(y, [[[[1, NAN], [1, NAN]]]])
    assert indices.tolist() == [[[[0, 5], [3, 5]]]]
    _, columns = op("MaxPool", x, n_out=2, kernel_shape=(2, 2), storage_order=1)
    assert columns.tolist() == [[[[0, 7], [1, 7]]]]
    np.testing.assert_array_equal(op("MaxPool", x, kernel_shape=(2, 2)), y)


def test_max_pool_never_points_into_the_padding(op):
    x = np.full((1, 1, 2), -INF, np.float32)
    y, indices = op("MaxPool", x, n_out=2, kernel_shape=(2,), pads=(1, 1))
    assert y.tolist() == [[[-INF] * 3]]
    assert indices.tolist() == [[[0, 0, 1]]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16, np.float64])
def test_max_pool_keeps_the_dtype(op, dtype):
    x = np.array([[[3, 1, 2]]]).astype(dtype)
    y, indices = op("MaxPool", x, n_out=2, kernel_shape=(2,), pads=(1, 0))
    assert y.dtype == op("MaxPool", x, kernel_shape=(2,)).dtype == dtype
    assert y.astype(int).tolist() == [[[3, 3, 2]]]
    assert indices.dtype == np.int64


def test_average_pool_same_padding_and_rounding(op):
    x = np.array([[[1, 2, 3, 4]]], np.float32)
    assert op("AveragePool", x, kernel_shape=(2,), auto_pad="SAME_UPPER").tolist() == [[[1.5, 2.5, 3.5, 4]]]
    assert op("AveragePool", x, kernel_shape=(2,), auto_pad="SAME_LOWER").tolist() == [[[1, 1.5, 2.5, 3.5]]]
    got = op("AveragePool", x, kernel_shape=(2,), auto_pad="SAME_UPPER", count_include_pad=1)
    assert got.tolist() == [[[1.5, 2.5, 3.5, 2]]]
    many = np.full((1, 1, 4096), 1, ml_dtypes.bfloat16)
    assert op("AveragePool", many, kernel_shape=(4096,)).item() == 1
    assert op("GlobalAveragePool", np.full((1, 1, 4096), 60000, np.float16)).item() == 60000


def test_global_pools(op):
    x = np.array([[[[3, -4], [0, 0]], [[1, 1], [NAN, 1]]]], np.float32)
    np.testing.assert_array_equal(op("GlobalMaxPool", x), [[[[3]], [[NAN]]]])
    np.testing.assert_array_equal(op("GlobalAveragePool", x), [[[[-0.25]], [[NAN]]]])
    np.testing.assert_array_equal(op("GlobalLpPool", x), [[[[5]], [[NAN]]]])
    np.testing.assert_array_equal(op("GlobalLpPool", x, p=1), [[[[7]], [[NAN]]]])
    assert op("GlobalMaxPool", np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 1)
    with pytest.raises(KernelError, match="no elements"):
        op("GlobalMaxPool", np.zeros((2, 1, 0), np.float32))


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_of_nothing(op, name):
    assert op(name, np.zeros((0, 2, 4), np.float32), kernel_shape=(2,)).shape == (0, 2, 3)
    with pytest.raises(KernelError, match="kernel_shape"):
        op(name, floats(1, 1, 4), kernel_shape=(2, 2))
    with pytest.raises(KernelError, match="does not fit"):
        op(name, floats(1, 1, 4), kernel_shape=(5,))


def test_max_unpool(op):
    x = np.array([[[[5, 6], [7, 8]]]], np.float32)
    indices = np.array([[[[0, 7], [13, 10]]]])
    y = np.zeros((4, 4), np.float32)
    y[0, 0], y[1, 3], y[3, 1], y[2, 2] = 5, 6, 7, 8
    np.testing.assert_array_equal(op("MaxUnpool", x, indices, kernel_shape=(2, 2), strides=(2, 2))[0, 0], y)
    larger = op("MaxUnpool", x, indices, np.array([1, 1, 5, 4]), kernel_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(larger[0, 0], np.vstack((y, np.zeros((1, 4)))))
    with pytest.raises(KernelError, match="index 16 is outside the pooled tensor"):
        op("MaxUnpool", x, indices + 3, kernel_shape=(2, 2), strides=(2, 2))
    with pytest.raises(MemoryError):
        op("MaxUnpool", x, indices, kernel_shape=(2, 2), strides=(2**20, 2**20))


def bilinear(plane, y, x):
    """RoiAlign's sample of one plane: zero beyond one pixel outside, the border within."""
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    fy, fx = y - top, x - left
    rows = [(1 - fx) * plane[r, left] + fx * plane[r, right] for r in (top, bottom)]
    return (1 - fy) * rows[0] + fy * rows[1]


@pytest.mark.parametrize(("mode", "offset"), [("half_pixel", 0.5), ("output_half_pixel", 0.0)])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_averages_samples(op, mode, offset, ratio):
    x = floats(2, 1, 6, 5)
    rois = np.array([[1, 2, 9, 7], [-6, -4, 3, 16], [2, 2, 2.5, 2.5]], np.float32)
    batch = np.array([0, 1, 1])
    attributes = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "spatial_scale": 0.5}
    got = op("RoiAlign", x, rois, batch, coordinate_transformation_mode=mode, **attributes)
    expected = np.zeros((3, 1, 2, 3))
    for r in range(3):
        x1, y1, x2, y2 = (float(v) * 0.5 - offset for v in rois[r])
        height, width = y2 - y1, x2 - x1
        if offset == 0:
            height, width = max(height, 1), max(width, 1)
        tall, wide = (ratio or ceil(height / 2)), (ratio or ceil(width / 3))
        for i, j in product(range(2), range(3)):
            samples = [
                bilinear(
                    x[batch[r], 0], y1 + (i + (a + 0.5) / tall) * height / 2, x1 + (j + (b + 0.5) / wide) * width / 3
                )
                for a, b in product(range(tall), range(wide))
            ]
            expected[r, 0, i, j] = sum(samples) / len(samples)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_roi_align_refuses(op):
    x, roi = floats(1, 1, 3, 3), np.array([[0, 0, 2, 2]], np.float32)
    with pytest.raises(KernelError, match=r"batch index 1 is outside \[0, 0\]"):
        op("RoiAlign", x, roi, np.array([1]))
    with pytest.raises(KernelError, match="finite"):
        op("RoiAlign", x, roi * np.float32(NAN), np.array([0]))
    with pytest.raises(MemoryError):
        op("RoiAlign", x, roi * np.float32(1e9), np.array([0]))


def test_max_roi_pool(op):
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    # Rows 0..3 in two bins, columns 1..3 in two bins that share the middle column.
    roi = np.array([[0, 2, 0, 6, 6]], np.float32)
    got = op("MaxRoiPool", x, roi, pooled_shape=(2, 2), spatial_scale=0.5)
    assert got.tolist() == [[[[7, 8], [17, 18]]]]
    outside = op("MaxRoiPool", x, np.array([[0, 40, 40, 50, 50]], np.float32), pooled_shape=(1, 1))
    assert outside.item() == 0
    with pytest.raises(KernelError, match="batch index 3"):
        op("MaxRoiPool", x, np.array([[3, 0, 0, 1, 1]], np.float32), pooled_shape=(1, 1))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_same_padding_is_never_negative(op, auto_pad, size):
    """Where a stride passes over the end of the axis, the formula of the spec gives less than nothing: no padding."""
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    attributes = {"kernel_shape": (1,), "strides": (size,), "auto_pad": auto_pad}
    y, indices = op("MaxPool", x, n_out=2, **attributes)
    assert y.tolist() == indices.tolist() == op("MaxPool", x, **attributes).tolist() == [[[0]]]
    assert op("AveragePool", x, **attributes).tolist() == [[[0]]]
