"""The few functions of scipy that Keras's numpy backend uses, for where scipy is not installed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["SCIPY", "window"]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

COSINES = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}
"""Windows that are sums of cosines, by their coefficients (of alternating sign)."""


def window(name: str, size: int, periodic: bool = True) -> np.ndarray:
    """A window function of a Fourier transform, sampled at ``k / size``; not periodic, at ``k / (size - 1)``.

    Raises:
        ValueError: for a name that is not among ``COSINES``.
    """
    if name not in COSINES:
        raise ValueError(f"the window is '{name}', expected one of {', '.join(COSINES)}")
    angles = 2 * np.pi * np.arange(size) / (size if periodic else max(size - 1, 1))
    return sum((-1) ** k * a * np.cos(k * angles) for k, a in enumerate(COSINES[name]))  # type: ignore[return-value]


def _logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    highest = np.max(x, axis=axis, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0)
    found = np.log(np.sum(np.exp(x - highest), axis=axis, keepdims=True)) + highest
    return found if keepdims else np.squeeze(found, axis)


def _stft(
    x: Any, *, window: Any, nperseg: int, noverlap: int, nfft: int, **options: Any
) -> tuple[Any, Any, np.ndarray]:
    """The spectra of frames of a signal, divided by the sum of the window; frames come last."""
    starts = np.arange(0, x.shape[-1] - nperseg + 1, nperseg - noverlap)
    frames = x[..., starts[:, None] + np.arange(nperseg)] * window
    return None, None, np.swapaxes(np.fft.rfft(frames, nfft) / np.sum(window), -1, -2)


SCIPY = SimpleNamespace(
    special=SimpleNamespace(erf=_erf, erfc=_erfc, logsumexp=_logsumexp),
    signal=SimpleNamespace(get_window=window, stft=_stft),
)
"""Stands for ``scipy`` in Keras's numpy backend."""
