"""What elementwise functions are of real numbers, written out where ONNX has no op, or one of another meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make, number
from irkit.frontends.dsl.functions import elementwise as functions
from irkit.frontends.dsl.functions.create import zeros_like
from irkit.frontends.dsl.symbol import Symbol
from irkit.ir.dtypes import BY_NAME

__all__ = ["FLOATS_OF_TWO", "OF_FLOATS", "OF_NUMBERS", "OF_TWO", "atan2", "copysign", "expm1", "hypot", "signbit"]

INT64 = BY_NAME["int64"]


def expm1(x: Symbol) -> Symbol:
    """``exp(x) - 1``."""
    # The formula for small x multiplies infinity by zero for great ones.
    near = operators.less(operators.absolute(x), 1.0)
    return functions.where(near, functions.expm1(x), operators.subtract(make("Exp", x), 1.0))


def _rounded(op: str) -> Callable[[Symbol], Symbol]:
    return lambda x: make(op, x) if x.dtype is not None and x.dtype.kind == "float" else x


def _square(x: Symbol) -> Symbol:
    return make("Mul", x, x)


def signbit(x: Symbol) -> Symbol:
    """Whether the sign is negative, that of a zero too; false for NaN."""
    if x.dtype is None or x.dtype.kind != "float":
        return operators.less(x, 0)
    # Of a zero, the sign of its reciprocal: looking at bits needs a later opset than all else here.
    zero = operators.equal(x, 0)
    return operators.less(functions.where(zero, make("Reciprocal", x), x), 0)


def _sign_bit(x: Symbol) -> Symbol:
    """The bit itself, that of a NaN too."""
    kind = _kind(x)
    return operators.less(make("BitCast", x, to=BY_NAME[f"int{kind.bits}"].code) if kind.is_float else x, 0)


OF_FLOATS: dict[str, Callable[[Symbol], Symbol]] = {
    "acos": functions.FUNCTIONS["arccos"],
    "acosh": functions.FUNCTIONS["arccosh"],
    "asin": functions.FUNCTIONS["arcsin"],
    "asinh": functions.FUNCTIONS["arcsinh"],
    "atan": functions.FUNCTIONS["arctan"],
    "atanh": functions.FUNCTIONS["arctanh"],
    "cos": functions.FUNCTIONS["cos"],
    "cosh": functions.FUNCTIONS["cosh"],
    "exp": functions.FUNCTIONS["exp"],
    "expm1": expm1,
    "log": functions.FUNCTIONS["log"],
    "log10": functions.log10,
    "log1p": functions.log1p,
    "log2": functions.log2,
    "reciprocal": functions.FUNCTIONS["reciprocal"],
    "sin": functions.FUNCTIONS["sin"],
    "sinh": functions.FUNCTIONS["sinh"],
    "sqrt": functions.FUNCTIONS["sqrt"],
    "tan": functions.FUNCTIONS["tan"],
    "tanh": functions.FUNCTIONS["tanh"],
}
"""Name -> what it is of a symbol of floating-point numbers."""

OF_NUMBERS: dict[str, Callable[[Symbol], Symbol]] = {
    "abs": operators.absolute,
    "bitwise_invert": operators.invert,
    "ceil": _rounded("Ceil"),
    "conj": lambda x: x,
    "floor": _rounded("Floor"),
    "imag": zeros_like,
    "isfinite": functions.isfinite,
    "isinf": functions.FUNCTIONS["isinf"],
    "isnan": functions.FUNCTIONS["isnan"],
    "logical_not": operators.logical_not,
    "negative": operators.negative,
    "positive": operators.positive,
    "real": lambda x: x,
    "round": _rounded("Round"),
    "sign": functions.FUNCTIONS["sign"],
    "signbit": _sign_bit,
    "square": _square,
    "trunc": functions.trunc,
}
"""Name -> what it is of a symbol of any real dtype."""


def atan2(y: Symbol, x: Symbol) -> Symbol:
    """The angle of the point (x, y)."""
    up, along = operators.absolute(y), operators.absolute(x)
    equal = operators.equal(up, along)
    # Equal sizes, 0 and infinity among them, have no quotient; of zeros it is to be 0, else 1.
    same = functions.where(operators.equal(up, 0), up, operators.cast(equal, _kind(x)))
    angle = make("Atan", functions.where(equal, same, make("Div", up, along)))
    angle = functions.where(signbit(x), operators.subtract(math.pi, angle), angle)
    return copysign(angle, y)


def _kind(x: Symbol) -> Any:
    return x.dtype


def copysign(x: Symbol, sign: Symbol) -> Symbol:
    """The size of x with the sign of another."""
    size = operators.absolute(x)
    return functions.where(signbit(sign), make("Neg", size), size)


def hypot(a: Symbol, b: Symbol) -> Symbol:
    """``sqrt(a^2 + b^2)``, without overflow on the way."""
    a, b = operators.absolute(a), operators.absolute(b)
    great, small = make("Max", a, b), make("Min", a, b)
    flat = operators.logical_or(operators.equal(great, 0), make("IsInf", great))
    quotient = make("Div", small, functions.where(flat, 1.0, great))
    scaled = make("Mul", great, make("Sqrt", operators.add(make("Mul", quotient, quotient), 1.0)))
    size = functions.where(flat, great, scaled)
    return functions.where(operators.logical_or(make("IsInf", a), make("IsInf", b)), math.inf, size)


def _logaddexp(a: Symbol, b: Symbol) -> Symbol:
    great = make("Max", a, b)
    distance = functions.where(operators.equal(a, b), 0.0, operators.absolute(make("Sub", a, b)))
    return make("Add", great, functions.log1p(make("Exp", make("Neg", distance))))


def _nextafter(x: Symbol, y: Symbol) -> Symbol:
    """The next float by its bits: as signed integers they are ordered like the floats of their sign."""
    kind = _kind(x)
    bits = BY_NAME[f"int{kind.bits}"]
    as_bits = make("BitCast", x, to=bits.code)
    away = operators.equal(operators.less(x, y), operators.greater(x, 0))
    step = functions.where(away, number(1, bits), number(-1, bits))
    moved = make("BitCast", make("Add", as_bits, step), to=kind.code)
    least = number(float(np.finfo(kind.numpy).smallest_subnormal), kind)
    from_zero = functions.where(operators.less(y, 0), make("Neg", least), least)
    moved = functions.where(operators.equal(x, 0), from_zero, moved)
    moved = functions.where(operators.equal(x, y), y, moved)
    unordered = operators.logical_or(make("IsNaN", x), make("IsNaN", y))
    return functions.where(unordered, make("Add", x, y), moved)


def _floor_divide(a: Symbol, b: Symbol) -> Symbol:
    if not _kind(a).is_float:
        return operators.floor_divide(a, b)
    quotient = make("Div", a, b)
    exact = operators.floor_divide(a, b)
    exact = functions.where(operators.equal(exact, 0), 0.0, exact)
    # With zeros and infinities the standard asks for the plain quotient, where NumPy has NaN.
    plain = operators.logical_or(make("IsInf", a), make("IsInf", b))
    plain = operators.logical_or(plain, operators.logical_or(operators.equal(a, 0), operators.equal(b, 0)))
    return functions.where(plain, quotient, exact)


def _remainder(a: Symbol, b: Symbol) -> Symbol:
    rest = operators.remainder(a, b)
    if not _kind(a).is_float:
        return rest
    # A zero has the sign of the divisor, as all remainders have.
    return functions.where(operators.equal(rest, 0), copysign(rest, b), rest)


def _power(a: Symbol, b: Symbol) -> Symbol:
    kind = _kind(a)
    if kind.is_float or kind.name in ("int32", "int64"):
        return make("Pow", a, b)
    # Pow takes bases of 32 and 64 bits only; modulo the range of the dtype the result is the same.
    return operators.cast(make("Pow", operators.cast(a, INT64), operators.cast(b, INT64)), kind)


FLOATS_OF_TWO: dict[str, Callable[[Symbol, Symbol], Symbol]] = {
    "atan2": atan2,
    "copysign": copysign,
    "divide": operators.divide,
    "hypot": hypot,
    "logaddexp": _logaddexp,
    "nextafter": _nextafter,
}
"""Name -> what it is of two symbols of one floating-point dtype."""

OF_TWO: dict[str, Callable[[Symbol, Symbol], Symbol]] = {
    "add": operators.add,
    "bitwise_and": operators.bitwise_and,
    "bitwise_left_shift": operators.left_shift,
    "bitwise_or": operators.bitwise_or,
    "bitwise_right_shift": operators.right_shift,
    "bitwise_xor": operators.bitwise_xor,
    "equal": operators.equal,
    "floor_divide": _floor_divide,
    "greater": operators.greater,
    "greater_equal": operators.greater_equal,
    "less": operators.less,
    "less_equal": operators.less_equal,
    "logical_and": operators.logical_and,
    "logical_or": operators.logical_or,
    "logical_xor": operators.logical_xor,
    "maximum": operators.maximum,
    "minimum": operators.minimum,
    "multiply": operators.multiply,
    "not_equal": operators.not_equal,
    "pow": _power,
    "remainder": _remainder,
    "subtract": operators.subtract,
}
"""Name -> what it is of two symbols of one dtype."""
