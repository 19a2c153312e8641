"""Convolutions against loops over every element, and their edges."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.kernels import _convolve
from irkit.backends.numpy.registry import KernelError

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def naive_conv(x, w, b, strides, pads, dilations, group):
    """The definition: a sum over channels and taps, of elements inside the input, one output at a time."""
    rank = x.ndim - 2
    size, kernel = x.shape[2:], w.shape[2:]
    out = [
        (size[i] + pads[i] + pads[rank + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per_group = w.shape[0] // group
    for n, m in product(range(x.shape[0]), range(w.shape[0])):
        first = m // per_group * w.shape[1]
        for place in product(*(range(o) for o in out)):
            total = 0.0 if b is None else float(b[m])
            for c, tap in product(range(w.shape[1]), product(*(range(k) for k in kernel))):
                at = [place[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank)]
                if all(0 <= a < s for a, s in zip(at, size, strict=True)):
                    total += float(x[(n, first + c, *at)]) * float(w[(m, c, *tap)])
            y[(n, m, *place)] = total
    return y


CASES = {
    "1d": ((2, 3, 9), (4, 3, 3), {}, 1),
    "2d": ((1, 2, 5, 6), (3, 2, 3, 2), {"strides": (2, 1), "pads": (1, 0, 2, 1)}, 1),
    "dilated": ((1, 2, 7, 7), (2, 2, 3, 3), {"dilations": (2, 3), "pads": (1, 2, 1, 2)}, 1),
    "3d": ((1, 2, 4, 3, 4), (2, 2, 2, 2, 3), {"strides": (1, 2, 1)}, 1),
    "grouped": ((2, 6, 4, 4), (4, 3, 2, 2), {"pads": (1, 1, 0, 0)}, 2),
    "one element": ((2, 4, 3, 5), (6, 2, 1, 1), {}, 2),
    "one element, strided and padded": ((1, 4, 5, 5), (3, 4, 1, 1), {"strides": (2, 3), "pads": (1, 0, 1, 2)}, 1),
    "depthwise": ((2, 3, 6, 5), (3, 1, 3, 3), {"pads": (1, 1, 1, 1)}, 3),
    "depthwise, strided": ((1, 3, 7, 6), (3, 1, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1)}, 3),
    "depthwise, dilated and strided": ((1, 2, 9, 8), (2, 1, 3, 3), {"strides": (2, 2), "dilations": (3, 2)}, 2),
    "depthwise, two filters a channel": ((1, 3, 5), (6, 1, 3), {"strides": (2,)}, 3),
    "padding beyond the window": ((1, 1, 2, 2), (1, 1, 2, 2), {"pads": (3, 0, 0, 3)}, 1),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_conv_is_its_definition(op, name, bias):
    x_shape, w_shape, given, group = CASES[name]
    rank = len(x_shape) - 2
    x, w, b = floats(*x_shape), floats(*w_shape), floats(w_shape[0]) if bias else None
    options = {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank} | given
    got = op("Conv", x, w, b, group=group, **given)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, naive_conv(x, w, b, group=group, **options), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("group", "many", "depth"), [(1, 3, 3), (1, 1, 4), (2, 2, 2), (4, 1, 1), (2, 4, 5)])
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "dilations"),
    [
        ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((2, 3), (1, 1), (0, 2, 3, 0), (2, 1)),
        ((3, 3), (2, 2), (0, 1, 1, 0), (1, 1)),
        ((2, 3), (3, 2), (2, 0, 3, 4), (2, 3)),
        ((1, 4), (1, 3), (0, 0, 0, 0), (1, 1)),
        ((3,), (2,), (1, 2), (2,)),
        ((2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 0), (1, 1, 1)),
    ],
)
def test_every_way_gives_the_definition(op, monkeypatch, group, many, depth, kernel, strides, pads, dilations):
    """All ways of computing a convolution, each with tiles of one row too."""
    x = floats(2, group * depth, *(9, 7, 3)[: len(kernel)])
    w, b = floats(group * many, depth, *kernel), floats(group * many)
    expected = naive_conv(x, w, b, strides, pads, dilations, group)
    limits: list[dict[str, int]] = [{}, {"COLUMN_BYTES": 1, "NARROW_BYTES": 1, "SUM_BYTES": 1, "LEAST_ROWS": 1}]
    limits += [{**small, "SHORT_ROW": 1, "NARROW": 0, "FEW": 1000} for small in limits]
    for limit in limits:
        with monkeypatch.context() as patch:
            for name, value in limit.items():
                patch.setattr(_convolve, name, value)
            found = op("Conv", x, w, b, group=group, strides=strides, pads=pads, dilations=dilations)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("filters", "group"), [(6, 6), (2, 1), (6, 1)])
def test_infinities_stay_in_their_windows(op, filters, group):
    x = np.ones((1, 6, 5, 5), np.float32)
    x[0, :, 2, 4] = np.inf
    w = np.ones((filters, 6 // group, 3, 3), np.float32)
    found = op("Conv", x, w, group=group, pads=(1, 1, 1, 1))
    assert np.isposinf(found[0, :, 1:4, 3:]).all()
    assert np.isfinite(found[0, :, :, :3]).all()
    assert np.isfinite(found[0, :, [0, 4]]).all()


@pytest.mark.parametrize(
    ("auto_pad", "pads"), [("SAME_UPPER", (0, 1, 1, 1)), ("SAME_LOWER", (1, 1, 0, 1)), ("VALID", (0, 0, 0, 0))]
)
def test_conv_auto_pad(op, auto_pad, pads):
    x, w = floats(1, 2, 5, 5), floats(2, 2, 2, 3)
    np.testing.assert_allclose(
        op("Conv", x, w, auto_pad=auto_pad), naive_conv(x, w, None, (1, 1), pads, (1, 1), 1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_conv_rounds_once(op, dtype):
    x = np.full((1, 512, 1), 1, dtype)
    w = np.full((1, 512, 1), 1, dtype)
    w[0, 0, 0] = 1 / 16
    got = op("Conv", x, w)
    # 511 + 1/16, in one rounding; a running sum in bfloat16 would stall at 256.
    assert got.dtype == dtype
    assert got.item() == np.asarray(511.0625).astype(dtype).item()


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (1, 2, 0, 4)])
def test_conv_of_nothing(op, shape):
    assert op("Conv", np.zeros(shape, np.float32), floats(3, 2, 1, 1)).shape == (shape[0], 3, *shape[2:])


def test_conv_without_channels_is_its_bias(op):
    got = op("Conv", np.zeros((1, 0, 3), np.float32), np.zeros((2, 0, 2), np.float32), np.array([5, 6], np.float32))
    assert got.tolist() == [[[5, 5], [6, 6]]]


@pytest.mark.parametrize(
    ("x", "w", "attributes", "message"),
    [
        ((1, 3, 4, 4), (2, 2, 3, 3), {}, "do not fit group 1"),
        ((1, 4, 4, 4), (3, 2, 3, 3), {"group": 2}, "group must divide"),
        ((1, 2, 4, 4), (2, 2, 5, 3), {}, "a window of 5 does not fit spatial axis 0 of length 4"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"strides": (0, 1)}, "strides .* must be positive"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"pads": (-1, 0, 0, 0)}, "must not be negative"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"pads": (0, 0)}, "must have 4 entries"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"auto_pad": "SAME"}, "auto_pad 'SAME'"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"kernel_shape": (2, 2)}, "kernel_shape"),
        ((2, 2), (2, 2), {}, "at least one spatial axis"),
        ((1, 2, 4, 4), (2, 2, 3), {}, "must have the rank of X"),
    ],
)
def test_conv_refuses(op, x, w, attributes, message):
    with pytest.raises(KernelError, match=message):
        op("Conv", floats(*x), floats(*w), **attributes)


def test_conv_refuses_a_bias_of_the_wrong_size(op):
    with pytest.raises(KernelError, match=r"B must have shape \(2,\)"):
        op("Conv", floats(1, 1, 3), floats(2, 1, 2), floats(3))


def test_enormous_padding_is_asked_of_the_budget(op):
    with pytest.raises(MemoryError):
        op("Conv", floats(1, 1, 3), floats(1, 1, 2), pads=(2**40, 0))


def test_conv_integer_is_exact_and_pads_with_the_zero_point(op):
    x = np.array([[[0, 255, 7]]], np.uint8)
    w = np.array([[[255, 1]], [[0, 3]]], np.uint8)
    got = op("ConvInteger", x, w, np.array(5, np.uint8), np.array([1, 2], np.uint8), pads=(1, 1))
    assert got.dtype == np.int32
    data = [0, -5, 250, 2, 0]
    filters = [[254, 0], [-2, 1]]
    assert got.tolist() == [[[f[0] * a + f[1] * b for a, b in pairwise(data)] for f in filters]]


def test_conv_integer_wraps_to_int32(op):
    n = 40000
    x, w = np.full((1, n, 1), 255, np.uint8), np.full((1, n, 1), 255, np.uint8)
    assert op("ConvInteger", x, w).item() == (255 * 255 * n + 2**31) % 2**32 - 2**31


def test_qlinear_conv_rounds_halves_to_even_and_saturates(op):
    x = np.array([[[1, 3, 5, 200, 0]]], np.uint8)
    one = np.array(1, np.float32)
    args = (np.array(0, np.uint8), np.array([[[1]], [[2]]], np.uint8), np.array([0.5, 1], np.float32))
    got = op("QLinearConv", x, one, *args, np.array([0, 0], np.uint8), one, np.array(101, np.uint8))
    # 0.5, 1.5, 2.5 round to 0, 2, 2 before the zero point is added.
    assert got.tolist() == [[[101, 103, 103, 201, 101], [103, 107, 111, 255, 101]]]
    signed = op(
        "QLinearConv",
        x.astype(np.int8),
        one,
        np.array(0, np.int8),
        np.array([[[-1]]], np.int8),
        one,
        np.array(0, np.int8),
        one,
        np.array(-100, np.int8),
        np.array([-30], np.int32),
    )
    assert signed.tolist() == [[[-128, -128, -128, -74, -128]]]
    assert signed.dtype == np.int8


def naive_transpose(x, w, strides, dilations, begin, out, group):
    """Every input element spreads its filter over the output."""
    rank = x.ndim - 2
    y = np.zeros((x.shape[0], w.shape[1] * group, *out))
    for n, c, m in product(range(x.shape[0]), range(x.shape[1]), range(w.shape[1])):
        channel = c // (x.shape[1] // group) * w.shape[1] + m
        for place in np.ndindex(*x.shape[2:]):
            for tap in np.ndindex(*w.shape[2:]):
                at = [place[i] * strides[i] + tap[i] * dilations[i] - begin[i] for i in range(rank)]
                if all(0 <= a < o for a, o in zip(at, out, strict=True)):
                    y[(n, channel, *at)] += float(x[(n, c, *place)]) * float(w[(c, m, *tap)])
    return y


@pytest.mark.parametrize(
    ("attributes", "begin", "out"),
    [
        ({}, (0, 0), (5, 8)),
        ({"pads": (1, 0, 1, 2)}, (1, 0), (3, 6)),
        ({"output_padding": (1, 1)}, (0, 0), (6, 9)),
        ({"output_shape": (6, 6)}, (0, 1), (6, 6)),
        ({"output_shape": (4, 5), "auto_pad": "SAME_UPPER"}, (0, 1), (4, 5)),
        ({"output_shape": (7, 10)}, (0, 0), (7, 10)),
        ({"auto_pad": "SAME_LOWER"}, (0, 1), (6, 6)),
        ({"auto_pad": "VALID"}, (0, 0), (5, 8)),
    ],
)
def test_conv_transpose(op, attributes, begin, out):
    x, w, b = floats(2, 4, 2, 3), floats(4, 2, 2, 2), floats(4)
    given = {"strides": (3, 2), "dilations": (1, 3), "group": 2} | attributes
    expected = naive_transpose(x, w, (3, 2), (1, 3), begin, out, 2) + b.reshape(1, 4, 1, 1)
    got = op("ConvTranspose", x, w, b, **given)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", [(0, 2, 3), (2, 2, 0)])
def test_conv_transpose_of_nothing(op, x):
    assert op("ConvTranspose", np.zeros(x, np.float32), floats(2, 3, 2)).shape == (x[0], 3, 4 if x[2] else 1)


def test_conv_transpose_refuses(op):
    with pytest.raises(KernelError, match="do not fit group"):
        op("ConvTranspose", floats(1, 3, 4), floats(2, 2, 3))
    with pytest.raises(KernelError, match="leave nothing"):
        op("ConvTranspose", floats(1, 2, 2), floats(2, 2, 1), pads=(2, 2))
    with pytest.raises(MemoryError):
        op("ConvTranspose", floats(1, 1, 2), floats(1, 1, 1), strides=(2**40,))


def test_deform_conv_without_offsets_is_conv(op):
    x, w, b = floats(2, 4, 5, 4), floats(4, 2, 3, 2), floats(4)
    options = {"strides": (1, 2), "pads": (1, 1, 0, 1), "dilations": (1, 2), "group": 2}
    expected = op("Conv", x, w, b, **options)
    offset = np.zeros((2, 2 * 6 * 2, *expected.shape[2:]), np.float32)
    got = op("DeformConv", x, w, offset, b, offset_group=2, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    half = op("DeformConv", x, w, offset, None, np.full_like(offset[:, :12], 0.5), offset_group=2, **options)
    np.testing.assert_allclose(half, (expected - b.reshape(1, 4, 1, 1)) / 2, rtol=1e-4, atol=1e-5)


def test_deform_conv_interpolates_and_is_zero_outside(op):
    x = np.array([[[10, 20, 40]]], np.float32)
    w = np.array([[[1]]], np.float32)
    offset = np.array([[[0.25, -1.5, 0.5]]], np.float32)
    # 0.25 between 10 and 20; 1 - 1.5 = -0.5 half of 10; 2.5 half of 40.
    assert op("DeformConv", x, w, offset).tolist() == [[[12.5, 5, 20]]]
    far = np.array([[[1e30, -1e30, np.nan]]], np.float32)
    np.testing.assert_array_equal(op("DeformConv", x, w, far), [[[0, 0, np.nan]]])


def test_col2im_sums_what_overlaps(op):
    blocks = np.arange(1, 13, dtype=np.float32).reshape(1, 4, 3)
    # Blocks of two elements at 0, 1, 2 of an image of 1 x 4, two channels.
    got = op("Col2Im", blocks, np.array([1, 4]), np.array([1, 2]))
    assert got.tolist() == [[[[1, 2 + 4, 3 + 5, 6]], [[7, 8 + 10, 9 + 11, 12]]]]


def test_col2im_is_the_transpose_of_im2col(op):
    image = RNG.integers(0, 50, (2, 1, 4, 5)).astype(np.int64)
    window = {"strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (1, 2)}
    one = np.eye(4, dtype=np.float64).reshape(4, 1, 2, 2)
    columns = op("Conv", image.astype(np.float64), one, **window)
    back = op("Col2Im", columns.reshape(2, 4, -1).astype(np.int64), np.array([4, 5]), np.array([2, 2]), **window)
    ones = op("Conv", np.ones((1, 1, 4, 5)), one, **window).reshape(1, 4, -1)
    times = op("Col2Im", ones, np.array([4, 5]), np.array([2, 2]), **window)
    assert back.dtype == np.int64
    np.testing.assert_array_equal(back, image * times)


def test_col2im_refuses(op):
    with pytest.raises(KernelError, match="must have a multiple of 4 rows and 6 columns"):
        op("Col2Im", floats(1, 4, 5), np.array([3, 4]), np.array([2, 2]))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("with_past", [False, True])
def test_causal_conv(op, k, with_past):
    x, w, b = floats(2, 3, 4), floats(3, 1, k), floats(3)
    past = floats(2, 3, k - 1) if with_past else None
    y, state = op("CausalConvWithState", x, w, b, past, n_out=2, activation="silu")
    sequence = np.concatenate((np.zeros((2, 3, k - 1), np.float32) if past is None else past, x), axis=2)
    expected = naive_conv(sequence, w, b, (1,), (0, 0), (1,), 3)
    np.testing.assert_allclose(y, expected / (1 + np.exp(-expected)), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(state, sequence[:, :, 4:])


def test_causal_conv_of_no_tokens_keeps_the_state(op):
    past = floats(1, 2, 2)
    y, state = op("CausalConvWithState", np.zeros((1, 2, 0), np.float32), floats(2, 1, 3), None, past, n_out=2)
    assert y.shape == (1, 2, 0)
    np.testing.assert_array_equal(state, past)


def test_the_three_ways_agree_on_many_shapes(op):
    for _ in range(20):
        kernel = tuple(int(v) for v in RNG.integers(1, 4, 2))
        strides, dilations = (tuple(int(v) for v in RNG.integers(1, 4, 2)) for _ in range(2))
        pads = tuple(int(v) for v in RNG.integers(0, 3, 4))
        x, w = floats(1, 2, 9, 9), floats(2, 1, *kernel)
        got = op("Conv", x, w, group=2, strides=strides, dilations=dilations, pads=pads)
        # The same filters in full, zero across channels, take the way by columns.
        full = np.zeros((2, 2, *kernel), np.float32)
        full[[0, 1], [0, 1]] = w[:, 0]
        expected = op("Conv", x, full, strides=strides, dilations=dilations, pads=pads)
        assert prod(got.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
