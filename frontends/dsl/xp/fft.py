"""The extension ``fft``. The transforms give or take complex numbers, which ONNX's DFT has as pairs of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from irkit.errors import UnsupportedError
from irkit.frontends.dsl.build import convert
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.xp.array import Array, Device, accept, check_device, wrap
from irkit.frontends.dsl.xp.dtypes import DEFAULTS, as_dtype
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of
from irkit.ir.dtypes import DType


def _refused(name: str) -> NoReturn:
    raise UnsupportedError(
        f"xp.fft.{name} gives or takes complex numbers, and ONNX has no op that makes them or takes them apart",
        hint="dsl.onnx.DFT transforms pairs of real and imaginary parts, along a last axis of size 2",
    )


def _along_one(name: str) -> Callable[..., Any]:
    def transform(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> NoReturn:
        _refused(name)

    return _named(name, transform)


def _along_some(name: str) -> Callable[..., Any]:
    def transform(x: Array, /, *, s: Axes = None, axes: Axes = None, norm: str = "backward") -> NoReturn:
        _refused(name)

    return _named(name, transform)


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        "Refused: its results or operands are complex; ``dsl.onnx.DFT`` transforms pairs of real numbers."
    )
    return function


fft, ifft, rfft, irfft, hfft, ihfft = map(_along_one, "fft ifft rfft irfft hfft ihfft".split())
fftn, ifftn, rfftn, irfftn = map(_along_some, "fftn ifftn rfftn irfftn".split())


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Array:
    """The frequencies of a transform of n samples at a distance of d, in cycles by the unit of d."""
    check_device(device)
    kind = DEFAULTS[float] if dtype is None else as_dtype(dtype)
    return wrap(convert(np.fft.fftfreq(n, d).astype(kind.numpy)))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Those frequencies that are not negative."""
    check_device(device)
    kind = DEFAULTS[float] if dtype is None else as_dtype(dtype)
    return wrap(convert(np.fft.rfftfreq(n, d).astype(kind.numpy)))


def _shifted(name: str, x: Array, axes: Axes, direction: int) -> Array:
    value = accept(x)
    for axis in axes_of(name, value, axes):
        size: Any = (value.shape or ())[axis]
        value = shapes.roll(value, direction * (size // 2) if isinstance(size, int) else 0, axis)
    return wrap(value)


def fftshift(x: Array, /, *, axes: Axes = None) -> Array:
    """The zero frequency moved to the middle of axes whose sizes are known."""
    return _shifted("fft.fftshift", x, axes, 1)


def ifftshift(x: Array, /, *, axes: Axes = None) -> Array:
    """What undoes ``fftshift``."""
    return _shifted("fft.ifftshift", x, axes, -1)


__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]
