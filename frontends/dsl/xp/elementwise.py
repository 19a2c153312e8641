"""Elementwise functions: of operands promoted to one dtype, as tables tell for real and for complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make
from irkit.frontends.dsl.errors import SymbolError, failure
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp import complexes, reals
from irkit.frontends.dsl.xp.array import Array, accept, as_array, refused, wrap
from irkit.frontends.dsl.xp.dtypes import DEFAULTS, promoted, promoted_arrays, to

__all__ = ["FUNCTIONS", "floating", "floating_array", "truth"]


def floating_array(x: Any) -> Array:
    """The operand of a function of floating-point numbers, real or complex; integers become the default dtype."""
    value = as_array(x)
    return value if value.dtype is None or value.dtype.kind in ("float", "complex") else to(value, DEFAULTS[float])


def floating(name: str, x: Any) -> Symbol:
    """The same of real numbers."""
    return accept(floating_array(x), name)


def _of_one(name: str, real: Callable[[Symbol], Symbol], floats: bool) -> Callable[..., Array]:
    of_parts = complexes.OF_ONE.get(name)

    def public(x: Array, /) -> Array:
        value = floating_array(x) if floats else as_array(x)
        if len(value.parts) == 1:
            return wrap(real(value.parts[0]))
        return _made(name, of_parts, *value.parts)

    return _named(name, public, "floating-point numbers" if floats else "numbers")


def _of_two(name: str, real: Callable[[Symbol, Symbol], Symbol], floats: bool) -> Callable[..., Array]:
    of_parts = complexes.OF_TWO.get(name)

    def public(x1: Any, x2: Any, /) -> Array:
        a, b = promoted_arrays(x1, x2)
        if floats:
            a, b = floating_array(a), floating_array(b)
        if len(a.parts) == 1:
            return wrap(real(a.parts[0], b.parts[0]))
        return _made(name, of_parts, a.parts, b.parts)

    return _named(name, public, "two operands, promoted to one dtype and broadcast")


def _made(name: str, function: Callable[..., Any] | None, *operands: Any) -> Array:
    """The array of what a function gives for parts of complex numbers: a symbol, or real and imaginary parts."""
    if function is None:
        raise refused(name, "complex numbers")
    made = function(*operands)
    return wrap(made) if isinstance(made, Symbol) else Array(*(wrap(part).value for part in made))


def _named(name: str, function: Callable[..., Array], of: str) -> Callable[..., Array]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of the array API standard, of {of}."
    return function


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: _of_one(name, function, True) for name, function in reals.OF_FLOATS.items()},
    **{name: _of_one(name, function, False) for name, function in reals.OF_NUMBERS.items()},
    **{name: _of_two(name, function, True) for name, function in reals.FLOATS_OF_TWO.items()},
    **{name: _of_two(name, function, False) for name, function in reals.OF_TWO.items()},
}


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """Between two bounds, numbers or arrays; of the dtype of x.

    Raises:
        SymbolError: if a bound is of a greater kind than x.
    """
    value = accept(x, "clip")
    for op, bound in (("Max", min), ("Min", max)):
        if bound is not None:
            a, b = promoted("clip", value, bound)
            if a.dtype is None or value.dtype is None or (a.dtype.kind == "float") != (value.dtype.kind == "float"):
                raise failure(SymbolError, f"xp.clip of {value!r} by {bound!r}", hint="bounds are of the kind of x")
            value = operators.cast(make(op, a, b), accept(x).dtype)  # type: ignore[arg-type]
    return wrap(value)


FUNCTIONS["clip"] = clip


def truth(x: Any) -> Symbol:
    """Which elements are not zero."""
    value = as_array(x)
    is_bool = value.dtype is not None and value.dtype.kind == "bool"
    return value.parts[0] if is_bool else accept(FUNCTIONS["not_equal"](value, 0))
