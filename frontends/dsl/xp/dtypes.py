"""Data types and their promotion: sections "Data types" and "Type promotion rules" of the array API standard."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import numpy as np

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import number
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.functions.create import zeros_like
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.frontends.dsl.xp.array import PART_OF, Array, Device, accept, as_array, check_device, wrap
from irkit.ir.dtypes import BY_NAME, DType

__all__ = [
    "DEFAULTS",
    "DTYPES",
    "as_dtype",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "of_parts",
    "promoted",
    "promoted_arrays",
    "result_type",
    "to",
]

DTYPES: dict[str, DType] = {
    name: BY_NAME[name]
    for name in ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split())
}
"""The dtypes of the standard."""

DEFAULTS: dict[type, DType] = {
    bool: BY_NAME["bool"],
    int: BY_NAME["int64"],
    float: BY_NAME["float32"],
    complex: BY_NAME["complex64"],
}
"""The dtypes of Python's numbers where nothing stands beside them."""

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_NUMBER_RANK = {bool: 0, int: 1, float: 2, complex: 3}


def as_dtype(what: Any) -> DType:
    """A dtype of this namespace, or whatever names one."""
    from irkit.ir.dtypes import dtype

    return dtype(what)


@cache
def _both(a: DType, b: DType) -> DType:
    if a is b:
        return a
    kinds = {a.kind, b.kind}
    bits = max(a.bits, b.bits)
    if a.name in DTYPES and b.name in DTYPES:
        if len(kinds) == 1:
            return a if a.bits == bits else b
        if kinds == {"int", "uint"}:
            signed, unsigned = (a, b) if a.kind == "int" else (b, a)
            if unsigned.bits < 64:
                return BY_NAME[f"int{max(signed.bits, 2 * unsigned.bits)}"]
        if kinds == {"float", "complex"}:
            return BY_NAME["complex128" if {a.name, b.name} & {"float64", "complex128"} else "complex64"]
    raise failure(
        SymbolError, f"the array API standard has no common dtype of {a} and {b}", hint="cast one: xp.astype(x, dtype)"
    )


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operation on these has.

    A Python number takes the dtype of the arrays; one of a greater kind makes it the default dtype of its kind.

    Raises:
        SymbolError: if they have no common dtype: uint64 beside signed integers, and integers beside floats.
    """
    kinds = [x.dtype if isinstance(x, Operand) else x for x in arrays_and_dtypes if type(x) not in _NUMBER_RANK]
    numbers = [type(x) for x in arrays_and_dtypes if type(x) in _NUMBER_RANK]
    if not kinds:
        return DEFAULTS[max(numbers, key=_NUMBER_RANK.__getitem__)]
    found = as_dtype(kinds[0])
    for kind in kinds[1:]:
        found = _both(found, as_dtype(kind))
    for kind in sorted(numbers, key=_NUMBER_RANK.__getitem__):
        if _NUMBER_RANK[kind] > _RANK[found.kind]:
            found = BY_NAME["complex128"] if kind is complex and found.name == "float64" else DEFAULTS[kind]
    return found


def promoted_arrays(*values: Any) -> list[Array]:
    """Arrays of one dtype: that of ``result_type``."""
    operands: list[Any] = [x if type(x) in _NUMBER_RANK else as_array(x) for x in values]
    kind = result_type(*operands)
    return [to(x, kind) for x in operands]


def promoted(name: str, *values: Any) -> list[Symbol]:
    """Operands of one dtype, for the function of real numbers of this name."""
    return [accept(x, name) for x in promoted_arrays(*values)]


def to(x: Any, kind: DType) -> Array:
    """An array or a Python number in a dtype.

    Raises:
        UnsupportedError: from complex numbers to real ones, as the standard asks.
    """
    part = PART_OF.get(kind)
    if type(x) in _NUMBER_RANK:
        # A complex number is refused by any other dtype in the words of `number`.
        return Array(number(x, kind)) if part is None else Array(number(x.real, part), number(x.imag, part))
    if x.dtype is kind:
        return x
    if part is None:
        return wrap(operators.cast(accept(x, f"astype to {kind}"), kind))
    real, *imaginary = (operators.cast(value, part) for value in x.parts)
    return Array(real, *(imaginary or [zeros_like(real)]))


def of_parts(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function that moves elements about or sums them: of complex arrays it is that of their parts.

    Args:
        names: the parameters that stand for elements: arrays, numbers, or sequences of them.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        def public(*args: Any, **options: Any) -> Any:
            if not any(map(_is_complex, (*args, *options.values()))):
                return function(*args, **options)
            bound = signature.bind(*args, **options)
            given = {name: bound.arguments[name] for name in names if bound.arguments.get(name) is not None}
            flat = promoted_arrays(*(x for v in given.values() for x in (v if isinstance(v, list | tuple) else [v])))
            made: list[Any] = []
            for side in range(2):
                parts = iter([Array(x.parts[side]) for x in flat])
                for name, v in given.items():
                    bound.arguments[name] = [next(parts) for _ in v] if isinstance(v, list | tuple) else next(parts)
                made.append(function(*bound.args, **bound.kwargs))
            return _joined(*made)

        return public

    return decorated


def _is_complex(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_is_complex, x))
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype.kind == "c"
    return type(x) is complex or (isinstance(x, Array) and len(x.parts) > 1)


def _joined(real: Any, imaginary: Any) -> Any:
    """Complex arrays of the results for their parts."""
    if isinstance(real, Array):
        return Array(*real.parts, *imaginary.parts)
    return type(real)(map(_joined, real, imaginary))


def astype(x: Array, dtype: DType, /, *, copy: bool = True, device: Device | None = None) -> Array:
    """The values in another dtype; complex numbers become no real ones.

    Raises:
        UnsupportedError: from a complex dtype to another kind.
    """
    check_device(device)
    value, kind = as_array(x), as_dtype(dtype)
    if value.dtype is kind and not copy:
        return x
    return Array(*to(value, kind).parts)


def can_cast(from_: DType | Array, to: DType, /) -> bool:
    """Whether the promotion rules lead from one dtype to the other."""
    source = as_dtype(from_.dtype if isinstance(from_, Operand) else from_)
    try:
        return _both(source, as_dtype(to)) is as_dtype(to)
    except SymbolError:
        return False


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a dtype is of a kind: another dtype, the name of a group of them, or a tuple of these.

    Raises:
        SymbolError: for a name of no group.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, item) for item in kind)
    if not isinstance(kind, str):
        return as_dtype(dtype) is as_dtype(kind)
    if kind not in _KINDS:
        raise failure(SymbolError, f"'{kind}' is no kind of dtypes", hint=f"the kinds are {', '.join(_KINDS)}")
    return as_dtype(dtype).kind in _KINDS[kind]


@dataclass(frozen=True)
class FInfo:
    """Limits of a floating-point dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Array, /) -> FInfo:
    """Limits of a floating-point dtype, or of that of an array."""
    kind = as_dtype(type.dtype if isinstance(type, Operand) else type)
    if kind.kind not in ("float", "complex"):
        raise failure(SymbolError, f"finfo of {kind}, which is no floating-point dtype", hint="use xp.iinfo")
    found = np.finfo(kind.numpy)
    eps, greatest, least, normal = (float(v) for v in (found.eps, found.max, found.min, found.smallest_normal))
    return FInfo(int(found.bits), eps, greatest, least, normal, as_dtype(found.dtype))


def iinfo(type: DType | Array, /) -> IInfo:
    """Limits of an integer dtype, or of that of an array."""
    kind = as_dtype(type.dtype if isinstance(type, Operand) else type)
    if not kind.is_integer:
        raise failure(SymbolError, f"iinfo of {kind}, which is no integer dtype", hint="use xp.finfo")
    found = np.iinfo(kind.numpy)
    return IInfo(int(found.bits), int(found.max), int(found.min), kind)
