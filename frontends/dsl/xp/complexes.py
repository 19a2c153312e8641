"""What elementwise functions are of complex numbers, in terms of their real and imaginary parts.

Formulas and special cases: the array API standard, "Elementwise functions"; ISO C, annex G; W. Kahan, Branch Cuts for
Complex Elementary Functions, in The State of the Art in Numerical Analysis, 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from irkit.frontends.dsl import operators
from irkit.frontends.dsl.build import make, number
from irkit.frontends.dsl.functions.elementwise import FUNCTIONS, isfinite, log1p, where
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp.reals import atan2, copysign, expm1, hypot

__all__ = ["OF_ONE", "OF_TWO"]

Parts = tuple[Symbol, Symbol]
"""Real and imaginary parts, of one dtype and shape."""

_FAR = 1e9
"""From this size on 1 is nothing beside the square of a number, and squares do not overflow yet."""

exp, sqrt, tan, sin, cos, sinh, cosh, asinh, log = (
    FUNCTIONS[name] for name in "exp sqrt tan sin cos sinh cosh arcsinh log".split()
)
isinf, isnan = FUNCTIONS["isinf"], FUNCTIONS["isnan"]
both, either, negated = operators.logical_and, operators.logical_or, operators.logical_not


def _zero(x: Symbol) -> Symbol:
    return operators.equal(x, 0)


def _exp(x: Symbol, y: Symbol) -> Parts:
    # In two steps, of which the first does not overflow before the result does.
    half = exp(x * 0.5)
    lost = both(isinf(x), negated(isfinite(y)))
    real = where(lost, half, half * (half * cos(y)))
    imaginary = where(lost, half * 0.0, half * (half * sin(y)))
    return real, where(_zero(y), y, imaginary)


def _expm1(x: Symbol, y: Symbol) -> Parts:
    sine, lost = sin(y * 0.5), both(isinf(x), negated(isfinite(y)))
    real = where(lost, expm1(x), expm1(x) * cos(y) - sine * sine * 2.0)
    return where(_zero(real), 0.0, real), _exp(x, y)[1]


def _log_of_size(x: Symbol, y: Symbol) -> Symbol:
    across, up = operators.absolute(x), operators.absolute(y)
    great, small = make("Max", across, up), make("Min", across, up)
    # Near 1, the square of the size less 1 has all its digits; elsewhere the square of a ratio does not overflow.
    near, flat = both(great > 0.5, great < 2.0), either(_zero(great), isinf(great))
    ratio = small / where(flat, 1.0, great)
    square = where(near, (great - 1.0) * (great + 1.0) + small * small, where(flat, 0.0, ratio * ratio))
    rest = log1p(square) * 0.5
    return where(either(isinf(x), isinf(y)), math.inf, where(near, rest, log(great) + rest))


def _log(x: Symbol, y: Symbol) -> Parts:
    return _log_of_size(x, y), atan2(y, x)


def _log1p(x: Symbol, y: Symbol) -> Parts:
    near = both(operators.absolute(x) < 0.5, operators.absolute(y) < 0.5)
    real = where(near, log1p(x * (x + 2.0) + y * y) * 0.5, _log_of_size(x + 1.0, y))
    return real, atan2(y, x + 1.0)


def _scaled(function: Callable[[Symbol, Symbol], Parts], factor: float) -> Callable[[Symbol, Symbol], Parts]:
    def scaled(x: Symbol, y: Symbol) -> Parts:
        real, imaginary = function(x, y)
        return real * factor, imaginary * factor

    return scaled


def _sqrt(x: Symbol, y: Symbol) -> Parts:
    root = sqrt(operators.absolute(x) * 0.5 + hypot(x * 0.5, y * 0.5))
    other = y / where(_zero(root), 1.0, root * 2.0)
    left, flat = x < 0, isinf(y)
    real = where(left, operators.absolute(other), root)
    return where(flat, math.inf, real), where(flat, y, where(left, copysign(root, y), other))


def _cosh(x: Symbol, y: Symbol) -> Parts:
    real = where(both(isinf(x), negated(isfinite(y))), operators.absolute(x), cosh(x) * cos(y))
    imaginary = where(_zero(x), _unit(y) * x, sinh(x) * sin(y))
    return real, where(_zero(y), _unit(x) * y, imaginary)


def _unit(x: Symbol) -> Symbol:
    """1 with the sign of x."""
    return copysign(number(1.0, x.dtype), x)


def _sinh(x: Symbol, y: Symbol) -> Parts:
    wild = both(either(_zero(x), isinf(x)), negated(isfinite(y)))
    return where(wild, x, sinh(x) * cos(y)), where(_zero(y), y, cosh(x) * sin(y))


def _tanh(x: Symbol, y: Symbol) -> Parts:
    far, wild = operators.absolute(x) > 20.0, negated(isfinite(y))
    tangent, sine = tan(y), sinh(where(far, 0.0, x))
    beta = tangent * tangent + 1.0
    below = beta * sine * sine + 1.0
    real = where(far, _unit(x), beta * sqrt(sine * sine + 1.0) * sine / below)
    real = where(both(far, both(wild, isfinite(x))), math.nan, real)
    small = where(both(isinf(x), wild), 0.0, sin(y) * cos(y) * exp(operators.absolute(x) * -2.0) * 4.0)
    return where(_zero(x), x, real), where(_zero(y), y, where(far, small, tangent / below))


def _asin(x: Symbol, y: Symbol) -> Parts:
    far, a, b = _around_one(x, y)
    real, imaginary = atan2(x, a[0] * b[0] - a[1] * b[1]), asinh(a[0] * b[1] - a[1] * b[0])
    real = where(far, atan2(x, operators.absolute(y)), real)
    return where(_zero(x), x, real), where(far, copysign(_log_of_twice(x, y), y), imaginary)


def _acos(x: Symbol, y: Symbol) -> Parts:
    far, a, b = _around_one(x, y)
    real, imaginary = atan2(a[0], b[0]) * 2.0, asinh(b[0] * a[1] - b[1] * a[0])
    real = where(far, atan2(operators.absolute(y), x), real)
    real = where(both(_zero(x), isnan(y)), math.pi / 2, real)
    return real, where(far, -copysign(_log_of_twice(x, y), y), imaginary)


def _around_one(x: Symbol, y: Symbol) -> tuple[Symbol, Parts, Parts]:
    """Where a number is far from 1, and the square roots of ``1 - z`` and ``1 + z`` of those that are not."""
    far = _is_far(x, y)
    near_x, near_y = where(far, 0.0, x), where(far, 0.0, y)
    return far, _sqrt(1.0 - near_x, -near_y), _sqrt(near_x + 1.0, near_y)


def _log_of_twice(x: Symbol, y: Symbol) -> Symbol:
    return _log_of_size(x, y) + math.log(2.0)


def _acosh(x: Symbol, y: Symbol) -> Parts:
    angle, size = _acos(x, y)
    return operators.absolute(size), copysign(angle, y)


def _atanh(x: Symbol, y: Symbol) -> Parts:
    far = _is_far(x, y)
    across, up, size = where(far, 0.0, operators.absolute(x)), where(far, 0.0, y), hypot(x, y)
    below = 1.0 - across
    near_real = log1p(across * 4.0 / (below * below + up * up)) * 0.25
    # Far from 1, it is 1 / z and a quarter of a turn.
    far_real, far_up = (where(isinf(size), 0.0, operators.absolute(v) / size / size) for v in (x, y))
    near_imaginary = atan2(up * 2.0, below * (across + 1.0) - up * up) * 0.5
    far_imaginary = where(isnan(y), y, copysign(math.pi / 2 - far_up, y))
    real = copysign(where(far, far_real, near_real), x)
    return where(_zero(x), x, real), where(far, far_imaginary, near_imaginary)


def _is_far(x: Symbol, y: Symbol) -> Symbol:
    return either(operators.absolute(x) > _FAR, operators.absolute(y) > _FAR)


def _turned(function: Callable[[Symbol, Symbol], Parts]) -> Callable[[Symbol, Symbol], Parts]:
    """``-i f(i z)``: what sin, tan, asin... are of sinh, tanh, asinh..., and the other way about."""

    def turned(x: Symbol, y: Symbol) -> Parts:
        real, imaginary = function(-y, x)
        return imaginary, -real

    return turned


def _sign(x: Symbol, y: Symbol) -> Parts:
    size = hypot(x, y)
    nothing = _zero(size)
    divisor = where(nothing, 1.0, size)
    return where(nothing, 0.0, x / divisor), where(nothing, 0.0, y / divisor)


OF_ONE: dict[str, Callable[[Symbol, Symbol], Symbol | Parts]] = {
    "abs": hypot,
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _turned(_asin),
    "atan": _turned(_atanh),
    "atanh": _atanh,
    "conj": lambda x, y: (x, -y),
    "cos": lambda x, y: _cosh(-y, x),
    "cosh": _cosh,
    "exp": _exp,
    "expm1": _expm1,
    "imag": lambda x, y: y,
    "isfinite": lambda x, y: both(isfinite(x), isfinite(y)),
    "isinf": lambda x, y: either(isinf(x), isinf(y)),
    "isnan": lambda x, y: either(isnan(x), isnan(y)),
    "log": _log,
    "log10": _scaled(_log, 1 / math.log(10)),
    "log1p": _log1p,
    "log2": _scaled(_log, 1 / math.log(2)),
    "negative": lambda x, y: (-x, -y),
    "positive": lambda x, y: (x, y),
    "real": lambda x, y: x,
    "reciprocal": lambda x, y: _divide((number(1.0, x.dtype), number(0.0, x.dtype)), (x, y)),
    "round": lambda x, y: (make("Round", x), make("Round", y)),
    "sign": _sign,
    "sin": _turned(_sinh),
    "sinh": _sinh,
    "sqrt": _sqrt,
    "square": lambda x, y: ((x - y) * (x + y), x * y * 2.0),
    "tan": _turned(_tanh),
    "tanh": _tanh,
}
"""Name -> what it is of the real and the imaginary parts."""


def multiply(a: Parts, b: Parts) -> Parts:
    """The product."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _divide(a: Parts, b: Parts) -> Parts:
    """By the greater part of the divisor first (Smith), so that no square overflows."""
    along = operators.absolute(b[0]) >= operators.absolute(b[1])
    great, small = where(along, b[0], b[1]), where(along, b[1], b[0])
    ratio = small / where(_zero(great), 1.0, great)
    below = great + small * ratio
    first, second = where(along, a[0], a[1]), where(along, a[1], a[0])
    imaginary = where(along, second - first * ratio, first * ratio - second)
    return (first + second * ratio) / below, imaginary / below


def _power(a: Parts, b: Parts) -> Parts:
    x, y = _exp(*multiply(b, _log(*a)))
    nothing, none = both(_zero(a[0]), _zero(a[1])), both(_zero(b[0]), _zero(b[1]))
    gone = both(nothing, both(b[0] > 0, isfinite(b[1])))
    x, y = (where(gone, 0.0, part) for part in (x, y))
    return where(none, 1.0, x), where(none, 0.0, y)


def _equal(a: Parts, b: Parts) -> Symbol:
    return both(operators.equal(a[0], b[0]), operators.equal(a[1], b[1]))


OF_TWO: dict[str, Callable[[Any, Any], Symbol | Parts]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "divide": _divide,
    "equal": _equal,
    "multiply": multiply,
    "not_equal": lambda a, b: negated(_equal(a, b)),
    "pow": _power,
    "subtract": lambda a, b: (a[0] - b[0], a[1] - b[1]),
}
"""Name -> what it is of the parts of two operands."""
