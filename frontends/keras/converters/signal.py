"""Fourier transforms of real and complex signals; Keras gives complex numbers as pairs of real tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.special import window
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Tensor


def _windowed(op: Any, c: Emitter) -> np.ndarray:
    """The window, with zeros on both sides up to the transform's length."""
    size, length = op.sequence_length, op.fft_length
    if isinstance(op.window, str):
        line = window(op.window, size)
    else:
        line = np.ones(size) if op.window is None else np.asarray(op.window, np.float64)
    before = (length - size) // 2
    return np.pad(line, (before, length - size - before))


@converter("STFT")
def stft(c: Emitter, op: Any, x: Any) -> list[Tensor]:
    """ONNX's STFT of frames of the transform's length; centred, the signal is reflected at both ends."""
    b, dtype = c.b, x.dtype
    made = c.get(x)
    if op.center:
        half = op.fft_length // 2
        made = b.Pad(made, np.array([half, half]), None, np.array([x.rank - 1]), mode="reflect")
    flat = b.Reshape(made, np.array([-1, 0])) if x.rank == 2 else _flat(c, made, x.rank)
    signal = b.Unsqueeze(flat, np.array([2]))
    spectrum = b.STFT(
        signal,
        np.asarray(op.sequence_stride, np.int64),
        c.get(_windowed(op, c), dtype),
        np.asarray(op.fft_length, np.int64),
        onesided=1,
    )
    if x.rank != 2:
        spectrum = b.Reshape(spectrum, c.vector([*c.out.shape, 2]))
    return [b.Squeeze(part, np.array([-1])) for part in b.Split(spectrum, axis=-1, num_outputs=2)]


def _flat(c: Emitter, x: Tensor, rank: int) -> Tensor:
    if rank == 1:
        return c.b.Unsqueeze(x, np.array([0]))
    return c.b.Reshape(x, c.b.Concat(np.array([-1]), c.b.Shape(x, start=rank - 1), axis=0))


@converter("FFT", "RFFT")
def fft(c: Emitter, op: Any, x: Any) -> list[Tensor]:
    b = c.b
    if op.kind == "RFFT":
        pair, length = b.Unsqueeze(c.get(x), np.array([x.rank])), op.fft_length
        axis = x.rank - 1
    else:
        pair = b.Concat(*(b.Unsqueeze(c.get(p), np.array([p.rank])) for p in x), axis=-1)
        length, axis = None, x[0].rank - 1
    size = None if length is None else c.get(np.asarray(length, np.int64))
    made = b.DFT(pair, size, np.asarray(axis, np.int64), onesided=int(op.kind == "RFFT"))
    return [b.Squeeze(part, np.array([-1])) for part in b.Split(made, axis=-1, num_outputs=2)]


@converter("ViewAsReal", "ViewAsComplex", "IRFFT", "FFT2", "IFFT2", "ISTFT")
def other_transforms(c: Emitter, op: Any, *args: Any) -> Any:
    raise c.refusal(f"{op.kind} has no form here", "leave it out of the model that is converted")


@converter("ExtractSequences")
def extract_sequences(c: Emitter, op: Any, x: Value) -> Tensor:
    """Frames of a signal, by an index of each element."""
    size = c.static(x.shape[-1], "the length of a signal that is cut into frames")
    count = 1 + (size - op.sequence_length) // op.sequence_stride
    at = np.arange(count)[:, None] * op.sequence_stride + np.arange(op.sequence_length)
    return c.b.Gather(c.get(x), at.astype(np.int64), axis=x.rank - 1)
