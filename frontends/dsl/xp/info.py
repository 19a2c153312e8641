"""What the namespace offers: ``__array_namespace_info__`` of the standard."""

from __future__ import annotations

from typing import Any

from irkit.frontends.dsl.xp.array import CPU, Device, check_device
from irkit.frontends.dsl.xp.dtypes import DEFAULTS, DTYPES, isdtype
from irkit.ir.dtypes import DType

__all__ = ["Info", "__array_namespace_info__"]


class Info:
    """What the namespace offers."""

    def capabilities(self) -> dict[str, Any]:
        """Masks and shapes that depend on values are there; an array has 64 axes at most on the numpy backend."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The only device."""
        return CPU

    def devices(self) -> list[Device]:
        """The devices."""
        return [CPU]

    def default_dtypes(self, /, *, device: Device | None = None) -> dict[str, DType]:
        """The dtypes of what is made without one."""
        check_device(device)
        return {
            "real floating": DEFAULTS[float],
            "complex floating": DEFAULTS[complex],
            "integral": DEFAULTS[int],
            "indexing": DEFAULTS[int],
        }

    def dtypes(self, /, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes by name, all or those of a kind."""
        check_device(device)
        return {name: found for name, found in DTYPES.items() if kind is None or isdtype(found, kind)}


def __array_namespace_info__() -> Info:
    """What the namespace offers: dtypes, devices, capabilities."""
    return Info()
