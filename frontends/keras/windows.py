"""What Keras's numpy backend calls of jax, on NumPy: convolutions, pooling windows, Fourier transforms.

Written from the definitions in the documentation of ``jax.lax`` and of XLA's operations, for eager runs of Keras
models beside which a conversion is checked. It shares no code with irkit's kernels, so that neither hides a fault of
the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["LAX", "fft", "fft2"]

Pads = Sequence[tuple[int, int]]


def _pads(padding: Any, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Explicit paddings: ``SAME`` gives ceil(size / stride) results, the odd one of the padding after."""
    if not isinstance(padding, str):
        return [tuple(pair) for pair in padding]
    if padding.upper() == "VALID":
        return [(0, 0)] * len(sizes)
    totals = [max((math.ceil(s / k) - 1) * k + w - s, 0) for s, w, k in zip(sizes, windows, strides, strict=True)]
    return [(total // 2, total - total // 2) for total in totals]


def _padded(x: np.ndarray, pads: Pads, value: float) -> np.ndarray:
    """Pads with a value; a negative padding cuts off."""
    grown = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pads], constant_values=np.asarray(value, x.dtype))
    cut = [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pads, grown.shape, strict=True)]
    return grown[tuple(cut)]


def reduce_window(
    x: Any, initial: float, reduce: Any, window: Sequence[int], strides: Sequence[int], padding: Any
) -> np.ndarray:
    """The reduction of every window of an array; ``reduce`` is ``np.maximum`` or ``np.add``."""
    x = np.asarray(x)
    x = _padded(x, _pads(padding, x.shape, window, strides), initial)
    axes = tuple(range(x.ndim, 2 * x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(window))[tuple(slice(None, None, k) for k in strides)]
    return reduce.reduce(view, axis=axes, initial=np.asarray(initial, x.dtype))


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
) -> np.ndarray:
    """Correlation of an input with a kernel, in any layout that ``dimension_numbers`` tells."""
    spec = dimension_numbers
    x = np.transpose(np.asarray(lhs), spec.lhs_spec)
    w = np.transpose(np.asarray(rhs), spec.rhs_spec)
    rank = x.ndim - 2
    dilation, spread = tuple(rhs_dilation or (1,) * rank), tuple(lhs_dilation or (1,) * rank)
    if any(step > 1 for step in spread):
        sizes = [(n - 1) * step + 1 for n, step in zip(x.shape[2:], spread, strict=True)]
        wide = np.zeros((*x.shape[:2], *sizes), x.dtype)
        wide[(..., *(slice(None, None, step) for step in spread))] = x
        x = wide
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    x = _padded(x, [(0, 0), (0, 0), *_pads(padding, x.shape[2:], reach, window_strides)], 0)
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    view = view[(slice(None), slice(None), *(slice(None, None, s) for s in window_strides))]
    view = view[(..., *(slice(None, None, d) for d in dilation))]
    out = _correlate(view, w, rank, feature_group_count)
    return np.transpose(out, np.argsort(spec.out_spec))


def _correlate(view: np.ndarray, w: np.ndarray, rank: int, groups: int) -> np.ndarray:
    """From windows ``(N, C, *out, *kernel)`` and a kernel ``(O, C / groups, *kernel)`` to ``(N, O, *out)``."""
    batch, channels, out = view.shape[0], view.shape[1], view.shape[2 : 2 + rank]
    each, n_out = channels // groups, w.shape[0]
    patches = view.reshape(batch, groups, each, *view.shape[2:])
    patches = np.moveaxis(patches, 2, 2 + rank).reshape(batch, groups, math.prod(out), -1)
    kernels = w.reshape(groups, n_out // groups, -1)
    found = np.matmul(patches, np.swapaxes(kernels, 1, 2)[None])
    return np.swapaxes(found, 2, 3).reshape(batch, n_out, *out)


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Pads,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
) -> np.ndarray:
    """The transpose of a correlation: the input spread by the strides, the kernel turned round.

    ``padding`` is that of the spread input. With ``transpose_kernel`` the kernel's last two roles are exchanged too.
    """
    rhs = np.asarray(rhs)
    spec = dimension_numbers
    if transpose_kernel:
        spatial = tuple(spec.rhs_spec[2:])
        rhs = np.swapaxes(np.flip(rhs, spatial), spec.rhs_spec[0], spec.rhs_spec[1])
    return conv_general_dilated(lhs, rhs, (1,) * len(strides), padding, strides, rhs_dilation, spec)


def _pair(transform: Any) -> Any:
    def run(x: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
        real, imaginary = (np.asarray(part) for part in x)
        found = transform(real + 1j * imaginary)
        return found.real.astype(real.dtype), found.imag.astype(real.dtype)

    return run


fft, fft2 = _pair(np.fft.fft), _pair(np.fft.fft2)

LAX = SimpleNamespace(
    add=np.add,
    max=np.maximum,
    reduce_window=reduce_window,
    conv_general_dilated=conv_general_dilated,
    conv_transpose=conv_transpose,
    ConvDimensionNumbers=SimpleNamespace,
)
"""Stands for ``jax.lax`` in Keras's numpy backend."""
