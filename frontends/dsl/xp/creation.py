"""Creation functions. What does not depend on symbols is a constant."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from irkit.frontends.dsl import build
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions import create
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.symbol import Operand
from irkit.frontends.dsl.xp.array import Array, Device, accept, as_array, check_device, each, wrap
from irkit.frontends.dsl.xp.dtypes import DEFAULTS, as_dtype, of_parts, promoted, promoted_arrays, to
from irkit.ir.dtypes import DType

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

_DEFAULT_OF_KIND = {"b": bool, "i": int, "f": float, "c": complex}


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Device | None = None, copy: bool | None = None
) -> Array:
    """An array of anything: an array or symbol, a NumPy array (a lazy constant), numbers, nested sequences of them.

    Python's numbers are bool, int64, float32 and complex64. An array comes back as it is, unless a copy is asked for
    or the dtype is another.
    """
    check_device(device)
    kind = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Operand):
        value = as_array(obj)
        if kind is not None and value.dtype is not kind:
            _no_copy(copy, obj)
            return to(value, kind)
        return value if not copy else Array(*value.parts)
    _no_copy(copy, obj)
    if isinstance(obj, list | tuple) and any(isinstance(v, Operand) for v in _leaves(obj)):
        made = _stacked(obj)
        return made if kind is None else to(made, kind)
    return as_array(_constant(obj, kind))


def _no_copy(copy: bool | None, obj: Any) -> None:
    if copy is False:
        raise ValueError(f"an array of a {type(obj).__name__} is always a copy")


def _constant(obj: Any, kind: DType | None) -> np.ndarray:
    if kind is not None:
        return np.array(obj, kind.numpy)
    found = np.array(obj)
    if isinstance(obj, np.ndarray | np.generic) or hasattr(obj, "__array__") or hasattr(obj, "__buffer__"):
        return found
    is_python = all(type(v) in (bool, int, float, complex) for v in _leaves(obj))
    default = _DEFAULT_OF_KIND.get(found.dtype.kind)
    return found.astype(DEFAULTS[default].numpy) if is_python and default is not None else found


def _leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list | tuple) else [value]


def _stacked(value: Any) -> Array:
    if isinstance(value, list | tuple):
        return each(lambda *parts: shapes.stack(parts), *promoted_arrays(*map(_stacked, value)))
    return as_array(value)


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
    """The array of another library, as a constant: its values are copied, since those of symbols never change."""
    check_device(device)
    if isinstance(x, Operand):
        return Array(*as_array(x).parts)
    _no_copy(copy, x)
    return as_array(np.array(np.from_dlpack(x)))


def _shape(shape: Any) -> Any:
    return (shape,) if isinstance(shape, int) else shape


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """One value everywhere. Sizes may be arrays of no axes."""
    check_device(device)
    given = as_array(fill_value) if isinstance(fill_value, Operand) else fill_value
    kind = DEFAULTS.get(type(given)) if dtype is None else as_dtype(dtype)
    filler = given if kind is None else to(given, kind)
    return each(lambda part: create.full(_shape(shape), part), filler)


def zeros(shape: Any, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Zeros, float32 by default."""
    return full(shape, 0, dtype=dtype or DEFAULTS[float], device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Ones, float32 by default."""
    return full(shape, 1, dtype=dtype or DEFAULTS[float], device=device)


def empty(shape: Any, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Zeros: a graph has no memory that is not initialized."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: Any, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """One value everywhere, of the shape and, by default, the dtype of another array."""
    check_device(device)
    value = as_array(x)
    kind: Any = value.dtype if dtype is None else as_dtype(dtype)
    filler = to(as_array(fill_value) if isinstance(fill_value, Operand) else fill_value, kind)
    return each(lambda part: create.full_like(value.parts[0], part), filler)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Zeros of the shape of another array."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Ones of the shape of another array."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: Device | None = None) -> Array:
    """Zeros of the shape of another array."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Array:
    """Ones on the k-th diagonal."""
    check_device(device)
    return as_array(np.eye(n_rows, n_cols, k, as_dtype(dtype or DEFAULTS[float]).numpy))


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: DType | None = None, device: Device | None = None
) -> Array:
    """Numbers at equal distances, without the end. Bounds may be arrays of no axes."""
    check_device(device)
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, Operand) for v in (start, stop, step)):
        bounds = promoted("arange", start, stop, step)
        return wrap(create.arange(*bounds, dtype=None if dtype is None else as_dtype(dtype)))
    is_float = any(isinstance(v, float) for v in (start, stop, step))
    kind = as_dtype(dtype) if dtype is not None else DEFAULTS[float if is_float else int]
    return wrap(build.convert(np.arange(start, stop, step).astype(kind.numpy)))


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    endpoint: bool = True,
) -> Array:
    """So many numbers at equal distances."""
    check_device(device)
    kind = (
        as_dtype(dtype) if dtype is not None else DEFAULTS[complex if complex in (type(start), type(stop)) else float]
    )
    return as_array(np.linspace(start, stop, num, endpoint=endpoint, dtype=kind.numpy))


def meshgrid(*arrays: Array, indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    """The coordinates of a grid, an array for each of the axes that are given as arrays of one axis.

    Raises:
        SymbolError: for another indexing, or arrays of other ranks.
    """
    from irkit.frontends.dsl.xp.manipulation import broadcast_arrays

    values = [as_array(x) for x in arrays]
    if indexing not in ("xy", "ij") or any(v.ndim not in (0, 1) for v in values):
        raise failure(
            SymbolError, f"meshgrid of {values} with indexing {indexing!r}", hint="arrays of one axis, 'xy' or 'ij'"
        )
    count = len(values)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    ways = [[-1 if axis == order[i] else 1 for axis in range(count)] for i in range(count)]
    spread = [each(lambda part, way=way: shapes.reshape(part, way), v) for v, way in zip(values, ways, strict=True)]
    return broadcast_arrays(*spread)


@of_parts("x")
def tril(x: Array, /, *, k: int = 0) -> Array:
    """Zeros above the k-th diagonal."""
    return wrap(shapes.tril(accept(x), k))


@of_parts("x")
def triu(x: Array, /, *, k: int = 0) -> Array:
    """Zeros below the k-th diagonal."""
    return wrap(shapes.triu(accept(x), k))
