"""Fourier transforms and windows."""

from __future__ import annotations

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..registry import samples, scale


@samples("DFT")
def dft(g: Context, spec: OpSpec) -> Call:
    kinds = allowed(spec, 0)
    parts = g.pick((1, 2))
    x = g.take(
        kinds,
        2,
        4,
        least=1,
        span=(-9, 9),
        fits=lambda v: v.shape[-1] in (1, 2),
        shape=lambda: (*g.dims(1, 3, 1), parts),
    )
    rank, real = x.array.ndim, x.shape[-1] == 1
    axis = g.pick((-2, *range(rank - 1), *range(-rank, -1)))
    length = g.given(np.array(g.between(1, 6))) if g.below(2) else None
    kind = g.below(3)
    attributes = {"onesided": 1} if kind == 1 and real else {"inverse": 1} if kind == 2 and not real else {}
    return Call([x, length, g.given(np.array(axis))] if axis != -2 or g.below(2) else [x, length], attributes)


@samples("STFT")
def stft(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    length, parts = g.between(4, 9), g.pick((1, 1, 2))
    signal = g.make(kind, (g.between(1, 2), length, parts), (-9, 9))
    frame, step = g.between(2, 4), g.between(1, 3)
    window = g.make(kind, (frame,), (0, 1)) if g.below(2) else None
    explicit = g.given(np.array(frame)) if window is None or g.below(2) else None
    onesided = {"onesided": 0 if parts == 2 else g.below(2)}
    return Call([signal, g.given(np.array(step)), window, explicit], onesided)


scale("BlackmanWindow HammingWindow HannWindow", lambda operands: 1.0)


@samples("BlackmanWindow HammingWindow HannWindow")
def windows(g: Context, spec: OpSpec) -> Call:
    size = g.given(np.array(g.between(1, 9)), g.pick(("int64", "int32")))
    return Call([size], g.maybe(periodic=0, output_datatype=[11, 1, 10]))


@samples("MelWeightMatrix")
def mel_weight_matrix(g: Context, spec: OpSpec) -> Call:
    bins, length, rate = g.between(2, 5), g.pick((16, 32, 64)), g.pick((8000, 4096))
    low, high = g.pick((0.0, 125.5)), g.pick((rate / 2, rate / 3))
    operands = [g.given(np.array(v)) for v in (bins, length, rate)]
    return Call(
        operands + [g.given(np.array(v), BY_NAME["float32"]) for v in (low, high)], g.maybe(output_datatype=[11, 1])
    )
