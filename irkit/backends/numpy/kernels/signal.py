"""Signals: DFT, STFT, HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix.

Transforms are computed in the input's precision, and at least in float32. Conventions: a symmetric window of one
element is 1; a one-sided transform of a complex signal, and a one-sided inverse of a real one, are errors, as the spec
has it.
"""

from __future__ import annotations

import numpy as np

from irkit.backends.numpy.kernels._common import normalize_axis, scalar, widen
from irkit.backends.numpy.kernels._nn import Budget, numeric_type, require
from irkit.backends.numpy.registry import kernel

__all__: list[str] = []


def _complex(x: np.ndarray) -> np.ndarray:
    """A tensor whose last axis is (real,) or (real, imaginary), as real or complex numbers in its working dtype."""
    require(
        x.ndim >= 2 and x.shape[-1] in (1, 2),
        f"the last axis of a signal of shape {x.shape} must be 1 (real) or 2 (real and imaginary parts)",
    )
    wide = widen(x)
    if x.shape[-1] == 1:
        return wide[..., 0]
    result = np.empty(x.shape[:-1], np.result_type(wide, np.complex64))
    result.real, result.imag = wide[..., 0], wide[..., 1]
    return result


def _parts(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Complex numbers as a tensor with a last axis of (real, imaginary)."""
    return np.stack((np.real(x), np.imag(x)), axis=-1).astype(dtype, copy=False)


@kernel("DFT")
def dft(
    x: np.ndarray,
    dft_length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
    *,
    budget: Budget,
    inverse: int = 0,
    onesided: int = 0,
) -> np.ndarray:
    signal = _complex(x)
    along = normalize_axis(-2 if axis is None else scalar(axis, "axis"), x.ndim)
    require(along != x.ndim - 1, "axis must not be the last one, which holds real and imaginary parts")
    real = x.shape[-1] == 1
    if onesided and not inverse:
        require(real, "a one-sided transform needs a real signal (last axis of 1)")
    if onesided and inverse:
        require(not real, "a one-sided inverse transform needs a complex spectrum (last axis of 2)")
    length = x.shape[along]
    if onesided and inverse:
        length = 2 * (length - 1)
    if dft_length is not None:
        length = scalar(dft_length, "dft_length")
    require(length >= 1, f"dft_length {length} must be positive, for a signal of shape {x.shape} along axis {along}")
    budget.allocate(x.size // max(x.shape[along], 1) * length * 16)
    if onesided:
        if inverse:
            return np.fft.irfft(signal, length, along)[..., None].astype(x.dtype)
        return _parts(np.fft.rfft(signal, length, along), x.dtype)
    transform = np.fft.ifft if inverse else np.fft.fft
    return _parts(transform(signal, length, along), x.dtype)


@kernel("STFT")
def stft(
    x: np.ndarray,
    frame_step: np.ndarray,
    window: np.ndarray | None = None,
    frame_length: np.ndarray | None = None,
    *,
    budget: Budget,
    onesided: int = 1,
) -> np.ndarray:
    require(x.ndim == 3, f"the signal of shape {x.shape} must be (batch_size, signal_length, 1 or 2)")
    signal = _complex(x)
    require(not onesided or x.shape[-1] == 1, "a one-sided transform needs a real signal (last axis of 1)")
    step = scalar(frame_step, "frame_step")
    require(window is None or window.ndim == 1, "window must have one axis")
    length = x.shape[1] if window is None else window.shape[0]
    if frame_length is not None:
        given = scalar(frame_length, "frame_length")
        require(window is None or given == length, f"frame_length {given} is not the length {length} of window")
        length = given
    require(step >= 1, f"frame_step {step} must be positive")
    require(1 <= length <= x.shape[1], f"frame_length {length} must lie in [1, {x.shape[1]}], the signal's length")
    count = (x.shape[1] - length) // step + 1
    budget.allocate(x.shape[0] * count * length * 16)
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)[:, ::step][:, :count]
    if window is not None:
        frames = frames * widen(window)
    return _parts((np.fft.rfft if onesided else np.fft.fft)(frames, axis=-1), x.dtype)


def _cosine_window(
    size: np.ndarray, coefficients: tuple[float, ...], periodic: int, output_datatype: int, budget: Budget
) -> np.ndarray:
    """The window ``sum_k c[k] * cos(2 pi k n / N)``, with N the size, or one less for a symmetric window."""
    count = scalar(size, "size")
    require(count >= 0, f"size {count} must not be negative")
    dtype = numeric_type(output_datatype, "output_datatype", ("float", "int", "uint"))
    budget.allocate(count * 8)
    period = count if periodic else count - 1
    if period < 1:
        return np.ones(count, dtype)
    angle = np.arange(count) * (2 * np.pi / period)
    return sum((c * np.cos(k * angle) for k, c in enumerate(coefficients)), np.zeros(count)).astype(dtype)


@kernel("HannWindow")
def hann_window(size: np.ndarray, *, budget: Budget, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    return _cosine_window(size, (0.5, -0.5), periodic, output_datatype, budget)


@kernel("HammingWindow")
def hamming_window(size: np.ndarray, *, budget: Budget, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    return _cosine_window(size, (25 / 46, -21 / 46), periodic, output_datatype, budget)


@kernel("BlackmanWindow")
def blackman_window(size: np.ndarray, *, budget: Budget, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    return _cosine_window(size, (0.42, -0.5, 0.08), periodic, output_datatype, budget)


@kernel("MelWeightMatrix")
def mel_weight_matrix(
    num_mel_bins: np.ndarray,
    dft_length: np.ndarray,
    sample_rate: np.ndarray,
    lower_edge_hertz: np.ndarray,
    upper_edge_hertz: np.ndarray,
    *,
    budget: Budget,
    output_datatype: int = 1,
) -> np.ndarray:
    """Band edges lie at ``num_mel_bins + 2`` equal steps on the mel scale, rounded down to spectrogram bins."""
    bands, length = scalar(num_mel_bins, "num_mel_bins"), scalar(dft_length, "dft_length")
    rate = scalar(sample_rate, "sample_rate")
    low, high = float(lower_edge_hertz.reshape(())), float(upper_edge_hertz.reshape(()))
    require(bands >= 0 and length >= 0 and rate >= 1, "num_mel_bins and dft_length must be at least 0, sample_rate 1")
    require(0 <= low <= high, f"the edges {low} and {high} Hz must be in order and not negative")
    bins = length // 2 + 1
    budget.allocate(bins * bands * 8)
    mel = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mel[0] + np.arange(bands + 2) * ((mel[1] - mel[0]) / (bands + 2))
    edges = np.floor((length + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    at = np.arange(bins)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(centre > left, (at - left) / (centre - left), 1.0)
        falling = np.where(right > centre, (right - at) / (right - centre), 1.0)
    weights = np.where((at >= left) & (at <= centre), rising, 0.0)
    weights = np.where((at > centre) & (at < right), falling, weights)
    return weights.astype(numeric_type(output_datatype, "output_datatype", ("float", "int", "uint")))
