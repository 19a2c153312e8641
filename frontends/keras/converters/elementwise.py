"""Operations on each element: arithmetic, comparisons, logic, functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Builder, Tensor

UNARY = {
    "Absolute": "Abs",
    "Abs": "Abs",
    "Fabs": "Abs",
    "Arccos": "Acos",
    "Arccosh": "Acosh",
    "Arcsin": "Asin",
    "Arcsinh": "Asinh",
    "Arctan": "Atan",
    "Arctanh": "Atanh",
    "Ceil": "Ceil",
    "Cos": "Cos",
    "Cosh": "Cosh",
    "Erf": "Erf",
    "Exp": "Exp",
    "Floor": "Floor",
    "Log": "Log",
    "Negative": "Neg",
    "Reciprocal": "Reciprocal",
    "Sigmoid": "Sigmoid",
    "Sign": "Sign",
    "Sin": "Sin",
    "Sinh": "Sinh",
    "Sqrt": "Sqrt",
    "Tan": "Tan",
    "Tanh": "Tanh",
}
"""Functions that ONNX has, computed in the dtype of the result."""

BINARY = {
    "Add": "Add",
    "Subtract": "Sub",
    "Multiply": "Mul",
    "Divide": "Div",
    "TrueDivide": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
}
COMPARE = {
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
}
LOGIC = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}
BITS = {"BitwiseAnd": "BitwiseAnd", "BitwiseOr": "BitwiseOr", "BitwiseXor": "BitwiseXor"}


def _table(kinds: dict[str, str], make: Callable[[Emitter, str], Callable[..., Value]]) -> None:
    for kind, name in kinds.items():
        converter(kind)(make_one(make, name))


def make_one(make: Callable[[Emitter, str], Callable[..., Value]], name: str) -> Callable[..., Value]:
    """The converter of one operation of a table."""

    def convert(c: Emitter, op: Any, *args: Any) -> Value:
        return make(c, name)(*args)

    return convert


def _fn(c: Emitter, name: str) -> Callable[..., Tensor]:
    return lambda *xs: c.b.op(name, *xs)


def common(c: Emitter, *args: Any) -> str:
    """The dtype in which arguments are compared: Keras's promotion, numbers counting less than tensors."""
    kinds = [
        x.dtype if isinstance(x, Value) else str(x.dtype) if isinstance(x, np.ndarray | np.generic) else type(x)
        for x in args
    ]
    return adapter.result_type([int if not isinstance(k, str) and k not in (bool, int, float) else k for k in kinds])


_table(UNARY, lambda c, name: lambda x: c.spread(_fn(c, name), x, dtype=c.out.dtype))
_table(LOGIC, lambda c, name: lambda a, b: c.spread(_fn(c, name), a, b, dtype="bool"))
_table(BITS, lambda c, name: lambda a, b: c.spread(_fn(c, name), a, b, dtype=c.out.dtype))
_table(COMPARE, lambda c, name: lambda a, b: c.spread(_fn(c, name), a, b, dtype=common(c, a, b)))


@converter("Add", "Multiply", "Maximum", "Minimum", "Subtract", "Divide", "TrueDivide", "Fmax", "Fmin")
def arithmetic(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    """The four operations; of bools, addition and multiplication are or and and."""
    if op.kind in ("Fmax", "Fmin"):
        return _ignoring_nan(c, "Max" if op.kind == "Fmax" else "Min", a, b)
    name = BINARY[op.kind]
    if c.out.dtype == "bool":
        return c.spread(_fn(c, {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And"}[name]), a, b, dtype="bool")
    return c.spread(_fn(c, name), a, b, dtype=c.out.dtype)


def _ignoring_nan(c: Emitter, name: str, a: Any, b: Any) -> Value:
    def make(x: Tensor, y: Tensor) -> Tensor:
        g = c.b
        return g.Where(g.IsNaN(x), y, g.Where(g.IsNaN(y), x, g.op(name, x, y)))

    return c.spread(make, a, b, dtype=c.out.dtype)


@converter("NotEqual")
def not_equal(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    return c.spread(lambda x, y: c.b.Not(c.b.Equal(x, y)), a, b, dtype=common(c, a, b))


@converter("LogicalNot")
def logical_not(c: Emitter, op: Any, x: Any) -> Value:
    return c.spread(c.b.Not, x, dtype="bool")


@converter("BitwiseNot", "BitwiseInvert")
def bitwise_not(c: Emitter, op: Any, x: Any) -> Value:
    name = "Not" if c.out.dtype == "bool" else "BitwiseNot"
    return c.spread(_fn(c, name), x)


@converter("LeftShift", "BitwiseLeftShift", "RightShift", "BitwiseRightShift")
def shift(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    """Shifts; of signed integers by powers of two, which ONNX's BitShift lacks."""
    left, dtype = "Left" in op.kind, c.out.dtype
    if dtype.startswith("uint"):
        return c.spread(lambda x, y: c.b.BitShift(x, y, direction="LEFT" if left else "RIGHT"), a, b, dtype=dtype)

    def make(x: Tensor, y: Tensor) -> Tensor:
        power = c.b.Pow(c.get(np.asarray(2, "int64")), c.cast(y, "int64"))
        wide = c.cast(x, "int64")
        return c.cast(c.b.Mul(wide, power) if left else floor_div(c.b, wide, power), dtype)

    return c.spread(make, a, b, dtype=dtype)


def floor_div(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Division rounded down; of integers by way of the remainder that has the divisor's sign."""
    if x.dtype is not None and x.dtype.is_float:
        return b.Floor(b.Div(x, y))
    return b.Div(b.Sub(x, b.Mod(x, y)), y)


@converter("FloorDivide")
def floor_divide(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    return c.spread(lambda x, y: floor_div(c.b, x, y), a, b, dtype=c.out.dtype)


@converter("Mod")
def mod(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    """The remainder with the divisor's sign; ONNX has it for integers."""

    def make(x: Tensor, y: Tensor) -> Tensor:
        if x.dtype is None or not x.dtype.is_float:
            return c.b.Mod(x, y)
        rest = c.b.Mod(x, y, fmod=1)
        other_sign = c.b.And(c.b.Not(c.b.Equal(rest, 0.0)), c.b.Xor(c.b.Less(rest, 0.0), c.b.Less(y, 0.0)))
        return c.b.Where(other_sign, c.b.Add(rest, y), rest)

    return c.spread(make, a, b, dtype=c.out.dtype if c.out.dtype != "bool" else "int32", out=c.out.dtype)


@converter("Fmod")
def fmod(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    return c.spread(lambda x, y: c.b.Mod(x, y, fmod=1), a, b, dtype=c.out.dtype)


@converter("Power")
def power(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    if not isinstance(b, Value) and np.ndim(b) == 0 and float(b) in (1.0, 2.0, 0.5):
        return c.spread(
            lambda x: {1.0: lambda t: t, 2.0: square_of(c), 0.5: c.b.Sqrt}[float(b)](x), a, dtype=c.out.dtype
        )
    return c.spread(c.b.Pow, a, b, dtype=c.out.dtype)


def square_of(c: Emitter) -> Callable[[Tensor], Tensor]:
    return lambda x: c.b.Mul(x, x)


@converter("DivideNoNan")
def divide_no_nan(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    def make(x: Tensor, y: Tensor) -> Tensor:
        zero = c.b.Equal(y, 0.0)
        return c.b.Where(zero, c.get(0.0, c.out.dtype), c.b.Div(x, c.b.Where(zero, c.get(1.0, c.out.dtype), y)))

    return c.spread(make, a, b, dtype=c.out.dtype)


@converter("Where")
def where(c: Emitter, op: Any, condition: Any, x1: Any = None, x2: Any = None) -> Any:
    if x1 is None:
        raise c.refusal("where with a condition alone gives as many results as are true")
    dtype = c.out.dtype
    return c.spread(lambda p, x, y: c.b.Where(c.cast(p, "bool"), c.cast(x, dtype), c.cast(y, dtype)), condition, x1, x2)


@converter("Clip")
def clip(c: Emitter, op: Any, x: Any) -> Value:
    return clipped(c, x, op.x_min, op.x_max)


def clipped(c: Emitter, x: Any, low: Any, high: Any) -> Value:
    dtype = c.out.dtype
    scalar = [None if v is None else v if not isinstance(v, Value) and np.ndim(v) == 0 else False for v in (low, high)]
    if False not in [s for s in scalar if isinstance(s, bool)]:
        bounds = [None if v is None else c.get(np.asarray(v), dtype) for v in scalar]
        return c.spread(lambda t: c.b.Clip(t, *bounds), x, dtype=dtype)
    if low is not None:
        x = c.spread(c.b.Max, x, low, dtype=dtype)
    return x if high is None else c.spread(c.b.Min, x, high, dtype=dtype)


def formula(*kinds: str) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function of tensors as the converter of an operation, computed in the result's dtype."""

    def register(fn: Callable[..., Any]) -> Any:
        def convert(c: Emitter, op: Any, *args: Any) -> Value:
            return c.spread(lambda *xs: fn(c.b, op, *xs), *args, dtype=c.out.dtype)

        return converter(*kinds)(convert)

    return register


def test(*kinds: str) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function of tensors that asks something of each element."""

    def register(fn: Callable[..., Any]) -> Any:
        def convert(c: Emitter, op: Any, *args: Any) -> Value:
            dtype = common(c, *args)
            if not dtype.startswith(("float", "bfloat")):
                dtype = "float32"
            return c.spread(lambda *xs: fn(c.b, op, *xs), *args, dtype=dtype)

        return converter(*kinds)(convert)

    return register


formula("Square")(lambda b, op, x: b.Mul(x, x))
formula("Rsqrt")(lambda b, op, x: b.Reciprocal(b.Sqrt(x)))
formula("Log1p")(lambda b, op, x: log1p(b, x))
formula("Expm1")(lambda b, op, x: expm1(b, x))
formula("Log2")(lambda b, op, x: b.Mul(b.Log(x), 1 / math.log(2)))
formula("Log10")(lambda b, op, x: b.Mul(b.Log(x), 1 / math.log(10)))
formula("Exp2")(lambda b, op, x: b.Exp(b.Mul(x, math.log(2))))
formula("Deg2rad")(lambda b, op, x: b.Mul(x, math.pi / 180))
formula("Rad2deg")(lambda b, op, x: b.Mul(x, 180 / math.pi))
formula("Erfc")(lambda b, op, x: b.Sub(1.0, b.Erf(x)))
formula("Hypot")(lambda b, op, x, y: b.Sqrt(b.Add(b.Mul(x, x), b.Mul(y, y))))
formula("Ldexp")(lambda b, op, x, y: b.Mul(x, b.Exp(b.Mul(y, math.log(2)))))
formula("Cbrt")(lambda b, op, x: b.Mul(b.Sign(x), b.Pow(b.Abs(x), 1 / 3)))
formula("Trunc")(lambda b, op, x: x if x.dtype is None or not x.dtype.is_float else b.Mul(b.Sign(x), b.Floor(b.Abs(x))))
formula("Logaddexp")(lambda b, op, x, y: b.Add(b.Max(x, y), log1p(b, b.Exp(b.Neg(b.Abs(b.Sub(x, y)))))))
formula("Copy", "StopGradient", "Conjugate", "Conj", "Real")(lambda b, op, x: x)
test("Isnan")(lambda b, op, x: b.IsNaN(x))
test("Isinf")(lambda b, op, x: b.IsInf(x))
test("Isposinf")(lambda b, op, x: b.IsInf(x, detect_negative=0))
test("Isneginf")(lambda b, op, x: b.IsInf(x, detect_positive=0))
test("Isfinite")(lambda b, op, x: b.Not(b.Or(b.IsNaN(x), b.IsInf(x))))
test("Signbit")(lambda b, op, x: b.Or(b.Less(x, 0.0), b.Less(b.Reciprocal(x), 0.0)))


def log1p(b: Builder, x: Tensor) -> Tensor:
    """log(1 + x), exact near 0: what rounding 1 + x loses is put right by x / ((1 + x) - 1)."""
    one = b.Add(x, 1.0)
    rest = b.Sub(one, 1.0)
    same = b.Or(b.Equal(rest, 0.0), b.IsInf(one))
    safe = b.Where(same, b.CastLike(1.0, x), rest)
    return b.Where(same, x, b.Mul(b.Log(one), b.Div(x, safe)))


def expm1(b: Builder, x: Tensor) -> Tensor:
    """exp(x) - 1 as 2 sinh(x/2) exp(x/2), exact near 0."""
    half = b.Mul(x, 0.5)
    return b.Mul(b.Mul(b.Sinh(half), 2.0), b.Exp(half))


@converter("Logaddexp2")
def logaddexp2(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    def make(x: Tensor, y: Tensor) -> Tensor:
        distance = c.b.Mul(c.b.Abs(c.b.Sub(x, y)), -math.log(2))
        return c.b.Add(c.b.Max(x, y), c.b.Mul(log1p(c.b, c.b.Exp(distance)), 1 / math.log(2)))

    return c.spread(make, a, b, dtype=c.out.dtype)


@converter("Sinc")
def sinc(c: Emitter, op: Any, x: Any) -> Value:
    def make(t: Tensor) -> Tensor:
        at = c.b.Mul(t, math.pi)
        zero = c.b.Equal(at, 0.0)
        safe = c.b.Where(zero, c.get(1.0, c.out.dtype), at)
        return c.b.Where(zero, c.get(1.0, c.out.dtype), c.b.Div(c.b.Sin(safe), safe))

    return c.spread(make, x, dtype=c.out.dtype)


@converter("Arctan2")
def arctan2(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    """The angle of (x, y) from y/x, moved by pi to the left half plane; on the axis x = 0 it is half pi."""

    def make(y: Tensor, x: Tensor) -> Tensor:
        g = c.b
        on_axis = g.Equal(x, 0.0)
        angle = g.Atan(g.Div(y, g.Where(on_axis, c.get(1.0, c.out.dtype), x)))
        turn = g.Where(g.Less(y, 0.0), c.get(-math.pi, c.out.dtype), c.get(math.pi, c.out.dtype))
        off = g.Where(g.Less(x, 0.0), g.Add(angle, turn), angle)
        return g.Where(on_axis, g.Mul(g.Sign(y), math.pi / 2), off)

    return c.spread(make, a, b, dtype=c.out.dtype)


@converter("Heaviside")
def heaviside(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    def make(x: Tensor, at_zero: Tensor) -> Tensor:
        step = c.cast(c.b.Greater(x, 0.0), c.out.dtype)
        return c.b.Where(c.b.Equal(x, 0.0), at_zero, step)

    return c.spread(make, a, b, dtype=c.out.dtype)


@converter("Round")
def rounded(c: Emitter, op: Any, x: Any) -> Value:
    if not c.out.dtype.startswith(("float", "bfloat")):
        return x
    scale = 10.0**op.decimals
    if op.decimals == 0:
        return c.spread(c.b.Round, x, dtype=c.out.dtype)
    return c.spread(lambda t: c.b.Div(c.b.Round(c.b.Mul(t, scale)), scale), x, dtype=c.out.dtype)


@converter("NanToNum")
def nan_to_num(c: Emitter, op: Any, x: Any) -> Value:
    dtype = c.out.dtype
    if not dtype.startswith(("float", "bfloat")):
        return x
    limit = float(np.finfo(np.float32 if dtype == "bfloat16" else dtype).max)

    def make(t: Tensor) -> Tensor:
        found = c.b.Where(c.b.IsNaN(t), c.get(float(op.nan), dtype), t)
        for value, options in ((op.posinf, {"detect_negative": 0}), (op.neginf, {"detect_positive": 0})):
            other = value if value is not None else limit if "detect_negative" in options else -limit
            found = c.b.Where(c.b.IsInf(t, **options), c.get(float(other), dtype), found)
        return found

    return c.spread(make, x, dtype=dtype)


@converter("Isclose")
def isclose(c: Emitter, op: Any, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Value:
    def make(x: Tensor, y: Tensor) -> Tensor:
        near = c.b.LessOrEqual(c.b.Abs(c.b.Sub(x, y)), c.b.Add(c.b.Mul(c.b.Abs(y), rtol), atol))
        found = c.b.Or(c.b.Equal(x, y), c.b.And(near, c.b.Not(c.b.Or(c.b.IsInf(x), c.b.IsInf(y)))))
        return c.b.Or(found, c.b.And(c.b.IsNaN(x), c.b.IsNaN(y))) if op.equal_nan else found

    dtype = common(c, a, b)
    return c.spread(make, a, b, dtype=dtype if dtype.startswith(("float", "bfloat")) else "float32")


@converter("Cast", "SaturateCast", "ConvertToTensor", "Array", "View")
def cast(c: Emitter, op: Any, x: Any) -> Value:
    source = x.dtype if isinstance(x, Value) else ""
    if op.kind == "View" and source != c.out.dtype:
        raise c.refusal("view reads the bits of one dtype as another")
    if op.kind == "SaturateCast" and not c.out.dtype.startswith(("float", "bfloat", "bool")):
        limits = np.iinfo(c.out.dtype)
        return c.spread(
            lambda t: c.b.Clip(t, *(c.get(np.asarray(v, source)) for v in _within(limits, source))),
            x,
            out=c.out.dtype,
        )
    return x if source == c.out.dtype else c.spread(lambda t: c.cast(t, c.out.dtype), x)


def _within(limits: Any, source: str) -> tuple[Any, Any]:
    """The bounds of an integer dtype that a source dtype can express."""
    if source.startswith(("float", "bfloat")):
        return float(limits.min), float(np.nextafter(np.float32(limits.max), np.float32(0))) if limits.bits > 16 else (
            float(limits.max)
        )
    own = np.iinfo(source)
    return max(limits.min, own.min), min(limits.max, own.max)
