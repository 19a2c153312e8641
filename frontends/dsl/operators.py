"""Python's operators and NumPy's functions of two operands, with NumPy's meaning where ONNX's ops have another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irkit.errors import InferenceError
from irkit.frontends.dsl import build
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.errors import failure, site_here
from irkit.frontends.dsl.nodes import ConstantNode
from irkit.ir.dtypes import BY_NAME, DType

__all__ = [
    "absolute",
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "invert",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "pair",
    "positive",
    "power",
    "remainder",
    "right_shift",
    "subtract",
    "true_divide",
]

DEFAULT_FLOAT = "float32"
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_NUMBER_RANK = {bool: 0, int: 1, float: 2, complex: 3}
_NEEDED = {1: "int64", 2: DEFAULT_FLOAT, 3: "complex64"}


def pair(name: str, a: Any, b: Any) -> tuple[symbols.Symbol, symbols.Symbol]:
    """Two operands of one dtype.

    A Python number takes the dtype of the other operand; where that is of a lesser kind (a float beside integers, an
    int beside booleans), both become the number's default dtype.

    Raises:
        InferenceError: for two different dtypes.
    """
    a_number, b_number = type(a) in _NUMBER_RANK, type(b) in _NUMBER_RANK
    if a_number and b_number:
        wide = max((type(a), type(b)), key=_NUMBER_RANK.__getitem__)
        kind = build.convert(wide()).dtype
        return build.number(a, kind), build.number(b, kind)
    if b_number:
        return _beside(build.convert(a), b)
    if a_number:
        y, x = _beside(build.convert(b), a)
        return x, y
    x, y = build.convert(a), build.convert(b)
    if x.dtype is not y.dtype and x.dtype is not None and y.dtype is not None:
        raise failure(
            InferenceError,
            f"'{name}' of {x.dtype} and {y.dtype}: dtypes are never mixed silently; the operands are {x!r} and {y!r}",
            site=site_here(),
            hint=f"cast one of them: dsl.cast(x, '{x.dtype}')",
        )
    return x, y


def _beside(x: symbols.Symbol, value: Any) -> tuple[symbols.Symbol, symbols.Symbol]:
    kind = x.dtype
    if kind is None or kind.kind == "string":
        return x, build.convert(value)
    rank = _NUMBER_RANK[type(value)]
    if rank > _RANK[kind.kind]:
        kind = BY_NAME[_complex_of(kind) if rank == 3 and kind.is_float else _NEEDED[rank]]
        x = cast(x, kind)
    return x, build.number(value, kind)


def _complex_of(kind: DType) -> str:
    return "complex128" if kind.name == "float64" else "complex64"


def cast(x: Any, dtype: DType) -> symbols.Symbol:
    """The values in another dtype; the symbol itself where it has it already."""
    value = build.convert(x)
    return value if value.dtype is dtype else build.make("Cast", value, to=dtype.code)


def _is(x: symbols.Symbol, *kinds: str) -> bool:
    return x.dtype is not None and x.dtype.kind in kinds


def _binary(name: str, op: str, doc: str) -> Callable[[Any, Any], symbols.Symbol]:
    def function(a: Any, b: Any) -> symbols.Symbol:
        return build.make(op, *pair(name, a, b))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _logical(name: str, op: str, bitwise: str) -> Callable[[Any, Any], symbols.Symbol]:
    def function(a: Any, b: Any) -> symbols.Symbol:
        x, y = pair(name, a, b)
        return build.make(op if _is(x, "bool") else bitwise, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{op}`` of booleans, bit by bit of integers."
    return function


def _truth(x: Any) -> symbols.Symbol:
    value = build.convert(x)
    return value if _is(value, "bool") else cast(value, BY_NAME["bool"])


def _of_truths(name: str, op: str) -> Callable[[Any, Any], symbols.Symbol]:
    def function(a: Any, b: Any) -> symbols.Symbol:
        return build.make(op, _truth(a), _truth(b))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{op}`` of truth values; a number is true unless it is zero."
    return function


add = _binary("add", "Add", "The sum, with broadcasting.")
subtract = _binary("subtract", "Sub", "The difference.")
multiply = _binary("multiply", "Mul", "The product, element by element.")
maximum = _binary("maximum", "Max", "The greater of two; NaN where either is.")
minimum = _binary("minimum", "Min", "The lesser of two; NaN where either is.")
less = _binary("less", "Less", "Whether a < b.")
less_equal = _binary("less_equal", "LessOrEqual", "Whether a <= b.")
greater = _binary("greater", "Greater", "Whether a > b.")
greater_equal = _binary("greater_equal", "GreaterOrEqual", "Whether a >= b.")
equal = _binary("equal", "Equal", "Whether a == b.")
bitwise_and = _logical("bitwise_and", "And", "BitwiseAnd")
bitwise_or = _logical("bitwise_or", "Or", "BitwiseOr")
bitwise_xor = _logical("bitwise_xor", "Xor", "BitwiseXor")
logical_and = _of_truths("logical_and", "And")
logical_or = _of_truths("logical_or", "Or")
logical_xor = _of_truths("logical_xor", "Xor")


def not_equal(a: Any, b: Any) -> symbols.Symbol:
    """Whether a != b."""
    return build.make("Not", build.make("Equal", *pair("not_equal", a, b)))


def matmul(a: Any, b: Any) -> symbols.Symbol:
    """The matrix product, with broadcasting of the axes before the last two."""
    return build.make("MatMul", *pair("matmul", a, b))


def negative(x: Any) -> symbols.Symbol:
    """``-x``; of unsigned integers modulo their range."""
    value = build.convert(x)
    return build.make("Sub", build.number(0, value.dtype), value) if _is(value, "uint") else build.make("Neg", value)


def positive(x: Any) -> symbols.Symbol:
    """``+x``: the symbol itself."""
    return build.convert(x)


def absolute(x: Any) -> symbols.Symbol:
    """The absolute value."""
    return build.make("Abs", build.convert(x))


def invert(x: Any) -> symbols.Symbol:
    """``~x``: not, of booleans; all bits flipped, of integers."""
    value = build.convert(x)
    return build.make("Not" if _is(value, "bool") else "BitwiseNot", value)


def logical_not(x: Any) -> symbols.Symbol:
    """Whether x is false, or zero."""
    return build.make("Not", _truth(x))


def divide(a: Any, b: Any) -> symbols.Symbol:
    """The quotient; of integers as floats (float32), as Python has it."""
    x, y = pair("divide", a, b)
    if _is(x, "int", "uint", "bool"):
        x, y = (cast(v, BY_NAME[DEFAULT_FLOAT]) for v in (x, y))
    return build.make("Div", x, y)


true_divide = divide


def remainder(a: Any, b: Any) -> symbols.Symbol:
    """What Python's ``%`` gives: the remainder with the sign of the divisor."""
    x, y = pair("remainder", a, b)
    if not _is(x, "float"):
        return build.make("Mod", x, y)
    rest = build.make("Mod", x, y, fmod=1)
    off = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), less(y, 0)))
    return build.make("Where", off, build.make("Add", rest, y), rest)


def floor_divide(a: Any, b: Any) -> symbols.Symbol:
    """What Python's ``//`` gives: the quotient, rounded down."""
    x, y = pair("floor_divide", a, b)
    if _is(x, "uint"):
        return build.make("Div", x, y)
    if _is(x, "int"):
        # Div of integers rounds towards zero; without the remainder it is exact.
        return build.make("Div", build.make("Sub", x, build.make("Mod", x, y)), y)
    rest = remainder(x, y)
    return build.make("Round", build.make("Div", build.make("Sub", x, rest), y))


def power(a: Any, b: Any) -> symbols.Symbol:
    """``a ** b``.

    Raises:
        InferenceError: for integers to a constant negative power, as in NumPy.
    """
    x, y = pair("power", a, b)
    exponent = y.node.value.array() if isinstance(y.node, ConstantNode) and _is(y, "int") else None
    if _is(x, "int", "uint") and exponent is not None and (exponent < 0).any():
        raise failure(
            InferenceError,
            f"integers to a negative power are no integers; the base is {x!r}",
            hint="make the base floats: dsl.cast(x, 'float32') ** -1",
        )
    return build.make("Pow", x, y)


def _unsigned(kind: DType) -> DType:
    return BY_NAME[f"u{kind.name}"] if kind.kind == "int" else kind


def left_shift(a: Any, b: Any) -> symbols.Symbol:
    """``a << b``, for integers."""
    x, y = pair("left_shift", a, b)
    if x.dtype is None:
        return build.make("BitShift", x, y, direction="LEFT")
    kind = _unsigned(x.dtype)
    return cast(build.make("BitShift", cast(x, kind), cast(y, kind), direction="LEFT"), x.dtype)


def right_shift(a: Any, b: Any) -> symbols.Symbol:
    """``a >> b``, for integers; rounds down, so negative ones stay negative."""
    x, y = pair("right_shift", a, b)
    if not _is(x, "int") or x.dtype is None:
        return build.make("BitShift", x, y, direction="RIGHT")
    kind = _unsigned(x.dtype)
    is_negative = less(x, 0)
    # The bits of a negative number flipped are a number that is none.
    plain = build.make("Where", is_negative, build.make("BitwiseNot", x), x)
    shifted = cast(build.make("BitShift", cast(plain, kind), cast(y, kind), direction="RIGHT"), x.dtype)
    return build.make("Where", is_negative, build.make("BitwiseNot", shifted), shifted)
