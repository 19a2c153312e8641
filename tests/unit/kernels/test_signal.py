"""Transforms against the sums that define them, windows against their formulas."""

from __future__ import annotations

import cmath
import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

RNG = np.random.default_rng(17)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def transform(values, length, sign=-1):
    """The definition of the DFT, the signal cut or padded with zeros to a length."""
    values = (list(values) + [0] * length)[:length]
    return [
        sum(v * cmath.exp(sign * 2j * math.pi * k * n / length) for n, v in enumerate(values)) for k in range(length)
    ]


def numbers(x):
    return [complex(*v) for v in x.tolist()]


def pairs(values):
    return [[v.real, v.imag] for v in values]


@pytest.mark.parametrize("length", [1, 2, 5, 7, 8])
def test_dft_of_any_length(op, length):
    real, complex_ = floats(2, 6, 1), floats(2, 6, 2)
    n = np.array(length)
    for row in range(2):
        want = transform(real[row, :, 0].tolist(), length)
        np.testing.assert_allclose(op("DFT", real, n)[row], pairs(want), atol=1e-5)
        np.testing.assert_allclose(op("DFT", real, n, onesided=1)[row], pairs(want)[: length // 2 + 1], atol=1e-5)
        want = transform(numbers(complex_[row]), length)
        np.testing.assert_allclose(op("DFT", complex_, n)[row], pairs(want), atol=1e-5)
        want = [v / length for v in transform(numbers(complex_[row]), length, sign=1)]
        np.testing.assert_allclose(op("DFT", complex_, n, inverse=1)[row], pairs(want), atol=1e-5)


@pytest.mark.parametrize("size", [1, 4, 5])
def test_one_sided_round_trip(op, size):
    x = floats(3, size, 1)
    spectrum = op("DFT", x, onesided=1)
    back = op("DFT", spectrum, np.array(size), inverse=1, onesided=1)
    assert back.shape == x.shape
    np.testing.assert_allclose(back, x, atol=1e-5)
    if size == 4:
        np.testing.assert_allclose(op("DFT", spectrum, inverse=1, onesided=1), x, atol=1e-5)


def test_dft_along_another_axis(op):
    x = floats(4, 3, 1)
    want = op("DFT", np.ascontiguousarray(x.swapaxes(0, 1)))
    np.testing.assert_allclose(op("DFT", x, None, np.array(0)), want.swapaxes(0, 1), atol=1e-6)
    np.testing.assert_array_equal(op("DFT", x, None, np.array(-3)), op("DFT", x, None, np.array(0)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_dft_keeps_the_dtype(op, dtype):
    got = op("DFT", np.array([[1], [2], [4]]).astype(dtype))
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(float), pairs(transform([1, 2, 4], 3)), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("shape", "inputs", "attributes", "message"),
    [
        ((2, 3), (), {}, "last axis of a signal"),
        ((2, 3, 2), (), {"onesided": 1}, "needs a real signal"),
        ((2, 3, 1), (), {"onesided": 1, "inverse": 1}, "needs a complex spectrum"),
        ((2, 3, 1), (np.array(0),), {}, "dft_length 0 must be positive"),
        ((2, 1, 2), (), {"onesided": 1, "inverse": 1}, "dft_length 0 must be positive"),
        ((2, 3, 1), (None, np.array(-1)), {}, "must not be the last one"),
        ((2, 3, 1), (None, np.array(3)), {}, "axis 3 is out"),
    ],
)
def test_dft_refuses(op, shape, inputs, attributes, message):
    with pytest.raises(KernelError, match=message):
        op("DFT", floats(*shape), *inputs, **attributes)


def test_dft_length_is_asked_of_the_budget(op):
    with pytest.raises(MemoryError):
        op("DFT", floats(1, 4, 1), np.array(2**50))


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(op, onesided):
    x, window = floats(2, 11, 1), np.abs(floats(4))
    got = op("STFT", x, np.array(3), window, np.array(4), onesided=onesided)
    bins = 3 if onesided else 4
    assert got.shape == (2, 3, bins, 2)
    for b in range(2):
        for frame in range(3):
            part = [float(v) * float(w) for v, w in zip(x[b, 3 * frame : 3 * frame + 4, 0], window, strict=True)]
            np.testing.assert_allclose(got[b, frame], pairs(transform(part, 4))[:bins], atol=1e-5)


def test_stft_defaults_and_complex_signals(op):
    x = floats(1, 5, 2)
    got = op("STFT", x, np.array(1), onesided=0)
    np.testing.assert_allclose(got[0, 0], pairs(transform(numbers(x[0]), 5)), atol=1e-5)
    with pytest.raises(KernelError, match="needs a real signal"):
        op("STFT", x, np.array(1))
    with pytest.raises(KernelError, match="frame_step 0"):
        op("STFT", floats(1, 5, 1), np.array(0))
    with pytest.raises(KernelError, match=r"frame_length 6 must lie in \[1, 5\]"):
        op("STFT", floats(1, 5, 1), np.array(1), None, np.array(6))
    with pytest.raises(KernelError, match="is not the length 2 of window"):
        op("STFT", floats(1, 5, 1), np.array(1), floats(2), np.array(3))


FORMULAS = {
    "HannWindow": lambda t: math.sin(math.pi * t) ** 2,
    "HammingWindow": lambda t: 25 / 46 - 21 / 46 * math.cos(2 * math.pi * t),
    "BlackmanWindow": lambda t: 0.42 - 0.5 * math.cos(2 * math.pi * t) + 0.08 * math.cos(4 * math.pi * t),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op, name, periodic):
    for size in (2, 3, 8):
        want = [FORMULAS[name](n / (size if periodic else size - 1)) for n in range(size)]
        np.testing.assert_allclose(op(name, np.array(size), periodic=periodic), want, atol=1e-6)
    assert op(name, np.array(0), periodic=periodic).shape == (0,)
    half = op(name, np.array(4, np.int32), periodic=periodic, output_datatype=16)
    assert half.dtype == ml_dtypes.bfloat16
    with pytest.raises(KernelError, match="size -1"):
        op(name, np.array(-1), periodic=periodic)
    with pytest.raises(MemoryError):
        op(name, np.array(2**40), periodic=periodic)


@pytest.mark.parametrize("code", [8, 9, 99])
def test_windows_refuse_types_that_are_no_numbers(op, code):
    with pytest.raises(KernelError, match=f"output_datatype {code}"):
        op("HannWindow", np.array(4), output_datatype=code)


def test_a_symmetric_window_of_one_is_one(op):
    assert op("HannWindow", np.array(1), periodic=0).tolist() == [1]
    assert op("HannWindow", np.array(1), periodic=1).tolist() == [0]


def test_mel_weight_matrix(op):
    low, high = np.array(0, np.float32), np.array(4000, np.float32)
    got = op("MelWeightMatrix", np.array(4), np.array(16), np.array(8000), low, high)
    assert got.shape == (9, 4)
    top = 2595 * math.log10(1 + 4000 / 700)
    edges = [math.floor(17 * 700 * (10 ** (i * top / 6 / 2595) - 1) / 8000) for i in range(6)]
    want = np.zeros((9, 4))
    for band in range(4):
        left, centre, right = edges[band : band + 3]
        for j in range(left, centre):
            want[j, band] = (j - left) / (centre - left)
        want[centre, band] = 1
        for j in range(centre + 1, right):
            want[j, band] = (right - j) / (right - centre)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.max() == 1
    with pytest.raises(KernelError, match="must be in order"):
        op("MelWeightMatrix", np.array(4), np.array(16), np.array(8000), high, low)
