"""Whether numbers survive in half precision: of constants every element is looked at, of values what runs showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from irkit.ir.constants import ConstantData
from irkit.ir.dtypes import DType, dtype

__all__ = ["Half", "Range", "half_of"]

LARGE, SMALL = "too large", "too small"


@dataclass
class Range:
    """What runs showed of a value.

    Attributes:
        largest: the largest finite magnitude.
        finite: whether all elements were.
        where: the op that makes it, for people.
    """

    largest: float = 0.0
    finite: bool = True

    def add(self, array: np.ndarray[Any, Any]) -> None:
        """Takes in the elements of one run."""
        least, most = float(array.min(initial=0)), float(array.max(initial=0))
        if np.isfinite(least) and np.isfinite(most):
            self.largest = max(self.largest, -least, most)
            return
        wide = array.astype(np.float64)
        finite = np.isfinite(wide)
        self.finite = self.finite and bool(finite.all())
        self.largest = max(self.largest, float(np.max(np.abs(wide), where=finite, initial=0.0)))


@dataclass(frozen=True)
class Half:
    """A half type, and what counts as fitting into it.

    Attributes:
        dtype: float16 or bfloat16.
        margin: by how much the magnitudes that runs showed must stay below the largest number.
        max_loss: the error that a constant may take, as a part of its largest magnitude.
    """

    dtype: DType
    margin: float = 2.0
    max_loss: float = 0.01

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(cast(Any, ml_dtypes.finfo(self.dtype.numpy)).max)

    @property
    def smallest(self) -> float:
        """The smallest number that has all its digits."""
        return float(cast(Any, ml_dtypes.finfo(self.dtype.numpy)).smallest_normal)

    def convert(self, data: ConstantData) -> ConstantData:
        """A constant in this type, rounded; what is too large becomes infinite. A splat stays one."""
        with np.errstate(over="ignore"):
            return ConstantData(self.dtype, data.shape, data.stored().astype(self.dtype.numpy))

    def misfit(self, data: ConstantData, *, divisor: bool = False) -> tuple[str, float]:
        """How a constant does not fit: ``LARGE``, ``SMALL`` or ``""``; and the number that shows it.

        Args:
            divisor: whether no element may become 0.
        """
        exact = data.stored().astype(np.float64).reshape(-1)
        if data.size == 0:
            return "", 0.0
        made = self.convert(data).stored().astype(np.float64).reshape(-1)
        finite = np.isfinite(exact)
        lost = finite & ~np.isfinite(made)
        if lost.any():
            return LARGE, float(exact[np.argmax(lost)])
        scale = float(np.max(np.abs(exact), where=finite, initial=0.0))
        error = np.abs(np.where(finite, exact - np.where(finite, made, 0.0), 0.0))
        if scale and float(error.max()) > self.max_loss * scale:
            return SMALL, float(exact[np.argmax(error)])
        gone = (made == 0) & (exact != 0)
        if divisor and gone.any():
            return SMALL, float(exact[np.argmax(gone)])
        return "", 0.0

    def overflows(self, seen: Range) -> bool:
        """Whether a value comes near the largest number."""
        return seen.largest * self.margin > self.largest

    def vanishes(self, seen: Range) -> bool:
        """Whether all of a value lies where numbers lose their digits, or become 0."""
        return 0 < seen.largest < self.smallest


def half_of(name: object, margin: float, max_loss: float) -> Half:
    """The half type of a name.

    Raises:
        ValueError: if that is not float16 or bfloat16, or if a bound is none.
    """
    try:
        found = dtype(name)
    except TypeError:
        found = None
    if found is None or found.name not in ("float16", "bfloat16"):
        raise ValueError(f"the half type is float16 or bfloat16, not {name!r}")
    if not margin >= 1 or not 0 <= max_loss < 1:
        raise ValueError(f"margin is at least 1 and max-loss at least 0 and below 1, not {margin} and {max_loss}")
    return Half(found, margin, max_loss)
