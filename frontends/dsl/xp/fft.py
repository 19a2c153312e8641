"""The extension ``fft``: ONNX's DFT, which has complex numbers as pairs of parts along a last axis.

An axis that is transformed must have a known size, or be given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp.array import COMPLEX_OF, Array, Device, as_array, check_device, each, from_pairs, refused
from irkit.frontends.dsl.xp.dtypes import DEFAULTS, as_dtype, to
from irkit.frontends.dsl.xp.elementwise import FUNCTIONS, floating_array
from irkit.frontends.dsl.xp.manipulation import Axes, axes_of
from irkit.ir.dtypes import DType

Norm = Literal["backward", "ortho", "forward"]

_conj, _real = FUNCTIONS["conj"], FUNCTIONS["real"]


def _transformed(x: Array, axis: int, onesided: bool = False) -> Array:
    """DFT along an axis, of real or complex numbers. The op wants an axis for the batch."""
    pairs = make("Unsqueeze", shapes.stack(x.parts, -1), shapes.ints(0))
    made = make("DFT", pairs, None, np.int64(axis + 1), onesided=int(onesided))
    return from_pairs(make("Squeeze", made, shapes.ints(0)))


def _swapped(x: Array) -> Array:
    """The real parts as imaginary ones and the other way about.

    Between two swaps, the transform is the inverse one times the number of elements. DFT's own inverse divides by that
    number in single precision on onnxruntime.
    """
    return Array(*reversed(x.parts))


def _fitted(name: str, x: Array, axis: int, size: int | None) -> tuple[Array, int]:
    """The array cut or filled up with zeros to this size of an axis, and the size."""
    known: Any = (x.shape or ())[axis]
    wanted = known if size is None else size
    if not isinstance(wanted, int) or wanted < 1:
        raise failure(
            InferenceError, f"xp.fft.{name} of {x!r}: axis {axis} has {wanted} elements", hint="give n=, or s="
        )
    if known == wanted:
        return x, wanted

    def fitted(part: Symbol) -> Symbol:
        # Filled up first, since the axis may be of any size.
        widths = [(0, wanted * (i == axis)) for i in range(shapes.rank_of(part, name))]
        longer = part if isinstance(known, int) and known > wanted else shapes.pad(part, widths)
        return make("Slice", longer, shapes.ints(0), shapes.ints(wanted), shapes.ints(axis))

    return each(fitted, x), wanted


_POWERS = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}
_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _normed(x: Array, norm: str, count: int, inverse: bool) -> Array:
    """A transform of so many elements in this norm."""
    if norm not in _POWERS:
        raise failure(SymbolError, f"norm {norm!r}", hint=f"one of {', '.join(_POWERS)}")
    power = 1.0 - _POWERS[norm] if inverse else _POWERS[norm]
    return x * float(count) ** -power if power else x


def _axes(name: str, x: Array, s: Sequence[int] | None, axes: Axes) -> list[tuple[int, int | None]]:
    """The axes and their sizes to be."""
    if axes is None and s is not None:
        axes = list(range(-len(s), 0))
    found = axes_of(f"fft.{name}", x, axes)
    if s is not None and len(s) != len(found):
        raise failure(
            SymbolError, f"xp.fft.{name} with sizes {tuple(s)} for {len(found)} axes", hint="one for each axis"
        )
    return list(zip(found, [None] * len(found) if s is None else s, strict=True))


def _forward_or_back(name: str, x: Array, axes: Sequence[tuple[int, int | None]], norm: str, inverse: bool) -> Array:
    """The transform of complex numbers along axes."""
    total = 1
    for axis, size in axes:
        x, count = _fitted(name, x, axis, size)
        total *= count
    if not axes:
        return x
    if inverse:
        x = _swapped(x)
    for axis, _ in axes:
        x = _transformed(x, axis)
    return _normed(_swapped(x) if inverse else x, norm, total, inverse)


def _of_real(name: str, x: Any, axis: int, size: int | None, norm: str) -> Array:
    """The half of the transform of real numbers that tells the other."""
    value = floating_array(x)
    if len(value.parts) > 1:
        raise refused(f"fft.{name}", str(value.dtype))
    value, count = _fitted(name, value, axis, size)
    return _normed(_transformed(value, axis, onesided=True), norm, count, False)


def _to_real(name: str, x: Array, axis: int, size: int | None, norm: str) -> Array:
    """The inverse transform of the half of a spectrum whose other half is its conjugate."""
    known: Any = (x.shape or ())[axis]
    count = 2 * (known - 1) if size is None and isinstance(known, int) else size
    if not isinstance(count, int) or count < 1:
        raise failure(
            InferenceError, f"xp.fft.{name} of {x!r} gives {count} elements along axis {axis}", hint="give n="
        )
    half, _ = _fitted(name, x, axis, count // 2 + 1)
    rank = shapes.rank_of(half.parts[0], name)
    mirrored = np.arange((count - 1) // 2, 0, -1)
    order = np.concatenate([np.arange(count // 2 + 1), mirrored])
    sides = np.where(np.arange(count) > count // 2, -1.0, 1.0).reshape([-1 if i == axis else 1 for i in range(rank)])
    whole, imaginary = each(lambda part: make("Gather", part, order, axis=axis), half).parts
    imaginary = make("Mul", imaginary, sides.astype(half.parts[0].dtype.numpy))  # type: ignore[union-attr]
    found = _swapped(_transformed(_swapped(Array(whole, imaginary)), axis))
    return _normed(_real(found), norm, count, True)


def _complex(x: Any) -> Array:
    value = floating_array(x)
    return value if len(value.parts) > 1 else to(value, COMPLEX_OF[value.dtype])  # type: ignore[index]


def fft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along an axis, cut or filled up with zeros to n elements."""
    value = floating_array(x)
    return _forward_or_back("fft", value, [(axes_of("fft.fft", value, axis)[0], n)], norm, False)


def ifft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """What undoes ``fft``."""
    value = _complex(x)
    return _forward_or_back("ifft", value, [(axes_of("fft.ifft", value, axis)[0], n)], norm, True)


def fftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward") -> Array:
    """``fft`` along all axes, or some, cut or filled up to the sizes s."""
    value = floating_array(x)
    return _forward_or_back("fftn", value, _axes("fftn", value, s, axes), norm, False)


def ifftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward") -> Array:
    """What undoes ``fftn``."""
    value = _complex(x)
    return _forward_or_back("ifftn", value, _axes("ifftn", value, s, axes), norm, True)


def rfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """``fft`` of real numbers: the ``n // 2 + 1`` elements for frequencies that are not negative."""
    return _of_real("rfft", x, axes_of("fft.rfft", as_array(x), axis)[0], n, norm)


def irfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """What undoes ``rfft``; without n, of an even number of elements."""
    value = _complex(x)
    return _to_real("irfft", value, axes_of("fft.irfft", value, axis)[0], n, norm)


def rfftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward") -> Array:
    """``rfft`` along the last of the axes, and ``fft`` along the others."""
    *others, last = _axes("rfftn", as_array(x), s, axes)
    return _forward_or_back("rfftn", _of_real("rfftn", x, *last, norm), others, norm, False)


def irfftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward") -> Array:
    """What undoes ``rfftn``."""
    value = _complex(x)
    *others, last = _axes("irfftn", value, s, axes)
    return _to_real("irfftn", _forward_or_back("irfftn", value, others, norm, True), *last, norm)


def hfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The real transform of n elements of which the half that is given tells the other, its conjugate."""
    value = _conj(_complex(x))
    return _to_real("hfft", value, axes_of("fft.hfft", value, axis)[0], n, _SWAPPED.get(norm, norm))


def ihfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """What undoes ``hfft``."""
    at = axes_of("fft.ihfft", as_array(x), axis)[0]
    return _conj(_of_real("ihfft", x, at, n, _SWAPPED.get(norm, norm)))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Array:
    """The frequencies of a transform of n samples at a distance of d, in cycles by the unit of d."""
    check_device(device)
    kind = DEFAULTS[float] if dtype is None else as_dtype(dtype)
    return as_array(np.fft.fftfreq(n, d).astype(kind.numpy))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Those frequencies that are not negative."""
    check_device(device)
    kind = DEFAULTS[float] if dtype is None else as_dtype(dtype)
    return as_array(np.fft.rfftfreq(n, d).astype(kind.numpy))


def _shifted(name: str, x: Array, axes: Axes, direction: int) -> Array:
    value = as_array(x)
    for axis in axes_of(name, value, axes):
        size: Any = (value.shape or ())[axis]
        by = direction * (size // 2) if isinstance(size, int) else 0
        value = each(lambda part, by=by, axis=axis: shapes.roll(part, by, axis), value)
    return value


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
