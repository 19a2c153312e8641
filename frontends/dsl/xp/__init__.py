"""A namespace of the Python array API standard, version 2024.12, over the DSL's lazy arrays.

>>> from irkit.frontends.dsl import xp
>>> x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
>>> float(xp.sum(x * 2))
20.0

Functions promote dtypes, as the standard asks; those of ``dsl`` never do. An array that depends on no placeholder is
evaluated where Python needs its value.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.xp import (
    creation,
    dtypes,
    elementwise,
    fft,
    info,
    linalg,
    manipulation,
    searching,
    statistics,
)
from irkit.frontends.dsl.xp.array import Array, from_pairs, to_pairs

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None


def namespace(api_version: str | None = None) -> Any:
    """This module, for a version of the standard; each holds those before it.

    Raises:
        SymbolError: for a version that it does not know.
    """
    import sys

    if api_version is not None and api_version not in _VERSIONS:
        raise failure(SymbolError, f"version {api_version!r} of the standard", hint=f"there is {', '.join(_VERSIONS)}")
    return sys.modules[__name__]


FUNCTIONS: dict[str, Any] = {
    **{name: getattr(creation, name) for name in creation.__all__},
    **{name: getattr(dtypes, name) for name in "astype can_cast finfo iinfo isdtype result_type".split()},
    **elementwise.FUNCTIONS,
    **{name: getattr(manipulation, name) for name in manipulation.__all__ if name != "axes_of"},
    **{name: getattr(linalg, name) for name in "matmul matrix_transpose tensordot vecdot".split()},
    **{name: getattr(statistics, name) for name in statistics.__all__},
    **{name: getattr(searching, name) for name in searching.__all__},
    "__array_namespace_info__": info.__array_namespace_info__,
}
"""The functions of the standard, by name; each is an attribute of this module."""

globals().update(FUNCTIONS)
globals().update(dtypes.DTYPES)

__all__ = [
    "Array",
    "e",
    "fft",
    "from_pairs",
    "inf",
    "linalg",
    "nan",
    "namespace",
    "newaxis",
    "pi",
    "to_pairs",
    *FUNCTIONS,  # pyright: ignore[reportUnsupportedDunderAll]
    *dtypes.DTYPES,  # pyright: ignore[reportUnsupportedDunderAll]
]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
