"""Functions of one value, element by element, and choices between values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irkit.frontends.dsl.build import convert, make, number
from irkit.frontends.dsl.operators import cast as cast_to
from irkit.frontends.dsl.operators import divide, logical_not, logical_or, multiply, pair
from irkit.frontends.dsl.symbol import Symbol
from irkit.ir.dtypes import BY_NAME, dtype

UNARY = {
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "identity": "Identity",
    "isnan": "IsNaN",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "round": "Round",
    "rint": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
    # Activations
    "hard_swish": "HardSwish",
    "mish": "Mish",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
}
"""Function -> the op that it is. Integers become float32 where the op takes floats only."""

WITH_OPTIONS = {
    "celu": ("Celu", "alpha"),
    "elu": ("Elu", "alpha"),
    "gelu": ("Gelu", "approximate"),
    "hard_sigmoid": ("HardSigmoid", "alpha beta"),
    "isinf": ("IsInf", "detect_negative detect_positive"),
    "leaky_relu": ("LeakyRelu", "alpha"),
    "selu": ("Selu", "alpha gamma"),
    "shrink": ("Shrink", "bias lambd"),
    "swish": ("Swish", "alpha"),
    "thresholded_relu": ("ThresholdedRelu", "alpha"),
}
"""Function -> the op, and its attributes, which are the function's options."""

_FLOATS_ONLY = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN IsInf Log Reciprocal Round Sin Sinh Sqrt Tan "
    "Tanh Sigmoid Softplus".split()
)
_NOTHING_TO_DO = frozenset({"Ceil", "Floor", "Round"})


def _operand(op: str, x: Any) -> Symbol:
    value = convert(x)
    if op in _FLOATS_ONLY and value.dtype is not None and value.dtype.kind in ("int", "uint", "bool"):
        return cast_to(value, BY_NAME["float32"])
    return value


def _unary(name: str, op: str) -> Callable[[Any], Symbol]:
    def function(x: Any) -> Symbol:
        value = convert(x)
        if op in _NOTHING_TO_DO and value.dtype is not None and value.dtype.kind in ("int", "uint"):
            return value
        return make(op, _operand(op, value))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{op}``, element by element."
    return function


def _optioned(name: str, op: str, options: str) -> Callable[..., Symbol]:
    def function(x: Any, **given: Any) -> Symbol:
        return make(op, _operand(op, x), **given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{op}``, element by element. Options: {', '.join(options.split())}."
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _unary(name, op) for name, op in UNARY.items()},
    **{name: _optioned(name, op, options) for name, (op, options) in WITH_OPTIONS.items()},
}


def cast(x: Any, to: Any) -> Symbol:
    """The values in another dtype."""
    return cast_to(convert(x), dtype(to))


def cast_like(x: Any, like: Any) -> Symbol:
    """The values in the dtype of another symbol."""
    return make("CastLike", convert(x), convert(like))


def square(x: Any) -> Symbol:
    """``x * x``."""
    value = convert(x)
    return multiply(value, value)


def rsqrt(x: Any) -> Symbol:
    """``1 / sqrt(x)``."""
    return make("Reciprocal", make("Sqrt", _operand("Sqrt", x)))


def expm1(x: Any) -> Symbol:
    """``exp(x) - 1``; for small x by ``2 sinh(x / 2) exp(x / 2)``, which loses no digits."""
    half = multiply(_operand("Exp", x), 0.5)
    return multiply(multiply(make("Sinh", half), 2.0), make("Exp", half))


def log1p(x: Any) -> Symbol:
    """``log(1 + x)``, exact for small x: ``x log(u) / (u - 1)`` with ``u = 1 + x`` rounded (Kahan)."""
    value = _operand("Log", x)
    u = make("Add", value, 1)
    near = make("Equal", u, number(1, u.dtype))
    rest = make("Sub", u, 1)
    infinite = make("IsInf", u)
    safe = make("Where", logical_or(near, infinite), number(1, u.dtype), rest)
    exact = divide(multiply(value, make("Log", u)), safe)
    return make("Where", near, value, make("Where", infinite, make("Log", u), exact))


def log2(x: Any) -> Symbol:
    """The logarithm to base 2."""
    return multiply(make("Log", _operand("Log", x)), 1.4426950408889634)


def log10(x: Any) -> Symbol:
    """The logarithm to base 10."""
    return multiply(make("Log", _operand("Log", x)), 0.4342944819032518)


def trunc(x: Any) -> Symbol:
    """Rounded towards zero."""
    value = convert(x)
    if value.dtype is not None and value.dtype.kind in ("int", "uint"):
        return value
    return make("Where", make("Less", value, 0), make("Ceil", value), make("Floor", value))


def isfinite(x: Any) -> Symbol:
    """Whether an element is neither infinite nor NaN."""
    value = _operand("IsInf", x)
    return logical_not(logical_or(make("IsInf", value), make("IsNaN", value)))


def where(condition: Any, a: Any, b: Any) -> Symbol:
    """``a`` where the condition holds, ``b`` elsewhere. Both are computed; ``cond`` runs one of two branches."""
    x, y = pair("where", a, b)
    return make("Where", convert(condition), x, y)


def clip(x: Any, low: Any = None, high: Any = None) -> Symbol:
    """Between two bounds, either of which may be left out."""
    value = convert(x)
    bounds = [None if v is None else pair("clip", value, v)[1] for v in (low, high)]
    if all(v is None or v.ndim == 0 for v in bounds):
        return make("Clip", value, *bounds)
    if bounds[0] is not None:
        value = make("Max", value, bounds[0])
    return value if bounds[1] is None else make("Min", value, bounds[1])


def prelu(x: Any, slope: Any) -> Symbol:
    """``x`` where positive, ``slope * x`` elsewhere."""
    return make("PRelu", *pair("prelu", x, slope))


FUNCTIONS |= {
    f.__name__: f
    for f in (cast, cast_like, square, rsqrt, expm1, log1p, log2, log10, trunc, isfinite, where, clip, prelu)
}
