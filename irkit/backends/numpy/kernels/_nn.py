"""What the kernels of neural-network ops share: checks, and windows that slide over spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Protocol

import numpy as np

from irkit.backends.numpy.registry import KernelError
from irkit.ir.dtypes import dtype

__all__ = [
    "OUT_OF_PROPORTION",
    "Budget",
    "Window",
    "ask_for",
    "broadcastable_to",
    "explicit_pads",
    "integers",
    "numeric_type",
    "pad_spatial",
    "per_channel",
    "plan_window",
    "require",
    "results",
    "spatial_attribute",
    "spatial_slices",
    "split_padding",
]

OUT_OF_PROPORTION = 16
"""What is this many times the size of the input is asked of the budget."""


class Budget(Protocol):
    """The runner's limits on steps and memory."""

    def step(self) -> None: ...

    def allocate(self, nbytes: int, /) -> None: ...


def require(condition: bool, message: str) -> None:
    """Raises KernelError with the message unless the condition holds."""
    if not condition:
        raise KernelError(message)


def results(values: Sequence[np.ndarray], n_out: int) -> Any:
    """The first ``n_out`` values as a kernel returns them: one value, or a tuple of several."""
    return values[0] if n_out == 1 else tuple(values[:n_out])


def numeric_type(code: int, name: str, kinds: Sequence[str] = ("float",)) -> np.dtype:
    """The NumPy dtype of an element type given by its ONNX code; ``name`` is the attribute that messages speak of."""
    try:
        found = dtype(int(code))
    except TypeError as error:
        raise KernelError(f"{name} {code} is no element type") from error
    require(found.kind in kinds and found.bits >= 8, f"{name} {code} ({found}) must be a type of {' or '.join(kinds)}")
    return found.numpy


def integers(x: np.ndarray) -> tuple[int, ...]:
    """The elements of an integer tensor as Python ints."""
    return tuple(int(v) for v in x.ravel())


def per_channel(v: np.ndarray, rank: int) -> np.ndarray:
    """A vector of one value a channel, shaped to broadcast along axis 1 of a tensor of the given rank."""
    return v.reshape((1, -1) + (1,) * (rank - 2)) if rank > 1 else v


def broadcastable_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a shape broadcasts to the target without changing it."""
    return len(shape) <= len(target) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False)
    )


@dataclass(frozen=True)
class Window:
    """A window sliding over spatial axes; every field has one entry per axis.

    Attributes:
        size: the spatial extent of the input.
        kernel: elements of the window.
        strides: step from one output to the next.
        dilations: distance between neighbouring elements of the window.
        begin: padding before the input.
        end: padding after the input, as asked for by pads or auto_pad.
        out: the number of positions.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    @cached_property
    def extent(self) -> tuple[int, ...]:
        """How far each window reaches: ``(kernel - 1) * dilation + 1``."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """The length of padded input that all windows together touch (0 where there are none)."""
        steps = zip(self.out, self.strides, self.extent, strict=True)
        return tuple((o - 1) * s + e if o else 0 for o, s, e in steps)

    @cached_property
    def padded(self) -> bool:
        """Whether some window reaches outside the input."""
        return any(self.begin) or any(r > n for r, n in zip(self.reach, self.size, strict=True))


def spatial_attribute(name: str, value: Sequence[int] | None, rank: int, default: int = 1) -> tuple[int, ...]:
    """An attribute with one positive entry per spatial axis, its default filled in."""
    if not value:
        return (default,) * rank
    require(len(value) == rank, f"{name} {tuple(value)} must have {rank} entries, one per spatial axis")
    require(all(v >= 1 for v in value), f"{name} {tuple(value)} must be positive")
    return tuple(int(v) for v in value)


def explicit_pads(pads: Sequence[int] | None, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ``pads`` attribute as (begin, end); zeros where absent."""
    if not pads:
        return (0,) * rank, (0,) * rank
    require(len(pads) == 2 * rank, f"pads {tuple(pads)} must have {2 * rank} entries, two per spatial axis")
    require(all(p >= 0 for p in pads), f"pads {tuple(pads)} must not be negative")
    return tuple(int(p) for p in pads[:rank]), tuple(int(p) for p in pads[rank:])


def split_padding(total: int, auto_pad: str) -> tuple[int, int]:
    """Total padding of one axis as (begin, end): the odd element goes to the end for SAME_UPPER, else to the start."""
    half = total // 2
    return (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)


def plan_window(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> Window:
    """Where the windows of a convolution or pooling lie (ONNX: Conv, MaxPool; the padding and shape formulas).

    With ``ceil_mode`` a last window may hang over the end, unless it would start in the padding at the end.
    """
    lists = (None if v is None else tuple(v) for v in (kernel, strides, dilations, pads))
    return _plan_window(tuple(size), *lists, auto_pad, ceil_mode)


@lru_cache(1024)
def _plan_window(
    size: tuple[int, ...],
    kernel: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: bool,
) -> Window:
    rank = len(size)
    kernel = spatial_attribute("kernel_shape", kernel, rank)
    strides = spatial_attribute("strides", strides, rank)
    dilations = spatial_attribute("dilations", dilations, rank)
    require(
        auto_pad in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
        f"auto_pad {auto_pad!r} must be NOTSET, VALID, SAME_UPPER or SAME_LOWER",
    )
    begin, end = explicit_pads(pads if auto_pad == "NOTSET" else None, rank)
    out: list[int] = []
    same: list[tuple[int, int]] = []
    for i, (n, k, s, d) in enumerate(zip(size, kernel, strides, dilations, strict=True)):
        extent = (k - 1) * d + 1
        if auto_pad.startswith("SAME"):
            positions = -(-n // s)
            same.append(split_padding(max(0, (positions - 1) * s + extent - n), auto_pad))
        else:
            room = n + begin[i] + end[i] - extent
            require(
                room >= 0 or n == 0,
                f"a window of {extent} does not fit spatial axis {i} of length {n} padded by {begin[i]} and {end[i]}",
            )
            positions = max(0, (-(-room // s) if ceil_mode else room // s) + 1)
            if ceil_mode and positions and (positions - 1) * s >= n + begin[i]:
                positions -= 1
        out.append(positions)
    if same:
        begin, end = tuple(b for b, _ in same), tuple(e for _, e in same)
    return Window(size, kernel, strides, dilations, begin, end, tuple(out))


def ask_for(shape: Sequence[int], x: np.ndarray, budget: Budget) -> None:
    """Asks the budget for an array of this shape, where that is out of proportion to the input x."""
    if prod(shape) > OUT_OF_PROPORTION * max(x.size, 1 << 16):
        budget.allocate(prod(shape) * x.itemsize)


def pad_spatial(x: np.ndarray, window: Window, fill: object, budget: Budget) -> np.ndarray:
    """The input (N, C, *size) cut or padded with ``fill`` to exactly what the windows reach; a view where possible."""
    reach = window.reach
    if not window.padded:
        return x[(slice(None), slice(None), *(slice(0, r) for r in reach))]
    shape = (*x.shape[:2], *reach)
    ask_for(shape, x, budget)
    result = np.full(shape, fill, x.dtype)
    source = tuple(slice(0, max(0, min(n, r - b))) for n, r, b in zip(window.size, reach, window.begin, strict=True))
    target = tuple(slice(b, b + s.stop) for b, s in zip(window.begin, source, strict=True))
    result[(slice(None), slice(None), *target)] = x[(slice(None), slice(None), *source)]
    return result


def spatial_slices(window: Window, offset: Sequence[int]) -> tuple[slice, ...]:
    """What element ``offset`` of every window sees in an input padded by ``pad_spatial``: a slice per spatial axis."""
    return tuple(
        slice(k * d, k * d + (o - 1) * s + 1 if o else k * d, s)
        for k, d, o, s in zip(offset, window.dilations, window.out, window.strides, strict=True)
    )
