"""Elementwise ops, activations and casts."""

from __future__ import annotations

from typing import Any

from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.op import OpSpec

from ..generate import Call, Context, Reject, allowed
from ..registry import BOOL, exact, largest, partner, samples, scale

# The elements that an op takes, where it does not take all; for ops of one operand.
_SPANS: dict[str, tuple[float, float]] = {
    "Acos": (-1, 1),
    "Acosh": (1, 9),
    "Asin": (-1, 1),
    "Atanh": (-0.9, 0.9),
    "Cosh": (-8, 8),
    "Exp": (-9, 9),
    "Log": (0.1, 50),
    "Reciprocal": (0.1, 50),
    "Sinh": (-8, 8),
    "Sqrt": (0, 100),
    "Tan": (-1.4, 1.4),
}
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Celu": {"alpha": [2.0, 0.5]},
    "Elu": {"alpha": [2.0, 0.5]},
    "Gelu": {"approximate": ["tanh", "none"]},
    "HardSigmoid": {"alpha": [0.5, 0.1], "beta": [0.25, 0.6]},
    "IsInf": {"detect_negative": 0, "detect_positive": 0},
    "LeakyRelu": {"alpha": [0.5, -0.5, 0.1]},
    "Selu": {"alpha": [2.0, 0.5], "gamma": [2.0, 0.5]},
    "Shrink": {"bias": [0.5, 1.0], "lambd": [1.0, 0.25]},
    "Swish": {"alpha": [2.0, -1.0]},
    "ThresholdedRelu": {"alpha": [0.5, 2.0]},
}
_UNARY = """
Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin
Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
"""


@samples(_UNARY)
def unary(g: Context, spec: OpSpec) -> Call:
    name = spec.op_type
    return Call([g.take(allowed(spec, 0), span=_SPANS.get(name))], g.maybe(**_ATTRIBUTES.get(name, {})))


exact("Abs BitwiseNot Ceil Floor Identity IsInf IsNaN Neg Not Relu Round Sign ThresholdedRelu")
exact("Add Sub Mul Div Mod PRelu LeakyRelu Reciprocal Shrink Sqrt Cast CastLike", rounding=True)
# x * f(x), where f is close to 1 but for roundings.
scale("Gelu Mish Swish", largest)
scale("SwiGLU", lambda operands: largest(operands) * largest(operands[1:]))
scale("Sigmoid Softplus Elu Celu Selu Erf", lambda operands: 1.0)


@samples("Add Sub Mul")
@samples("And Or Xor BitwiseAnd BitwiseOr BitwiseXor", exactly=True)
@samples("Equal Greater GreaterOrEqual Less LessOrEqual", exactly=True)
def binary(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    y = partner(g, x)
    return Call([y, x] if g.below(2) else [x, y])


@samples("Div")
def div(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    return Call([x, partner(g, x, span=(1, 9) if x.dtype.is_integer else (0.1, 20))])


@samples("Mod")
def mod(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    signed = x.dtype.kind == "int" and g.below(2)
    y = partner(g, x, span=(-9, -1) if signed else (1, 9))
    return Call([x, y], {"fmod": 1} if x.dtype.is_float else g.maybe(fmod=[1, 0]))


@samples("Pow")
def power(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), span=(0.1, 4))
    types = [x.dtype, x.dtype, *allowed(spec, 1)]
    return Call([x, partner(g, x, types, span=(0, 3) if x.dtype.is_integer else (-3, 3))])


@samples("BitShift", exactly=True)
def bit_shift(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    return Call([x, partner(g, x, span=(0, min(x.dtype.bits - 1, 9)))], {"direction": g.pick(("LEFT", "RIGHT"))})


@samples("Max Min", exactly=True)
@samples("Sum Mean")
def variadic(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    # Two at a time: the shapes of three that fit the first need not fit each other.
    return Call([x] if g.chance(6) else [x, partner(g, x)] + ([x] if g.chance(3) else []))


@samples("Where", exactly=True)
def where(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 1))
    condition = partner(g, x, BOOL)
    y = partner(g, x)
    return Call([condition, y, x] if g.chance(4) else [condition, x, y])


@samples("PRelu")
def prelu(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    sizes = [size if g.below(3) else 1 for size in x.shape]
    return Call([x, g.make(x.dtype, sizes[g.below(len(sizes) + 1) :])])


@samples("SwiGLU")
def swiglu(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    return Call(
        [x, g.take([x.dtype], fits=lambda v: v.shape == x.shape, shape=lambda: x.shape)], g.maybe(alpha=[2.0, 0.5])
    )


@samples("Clip", exactly=True)
def clip(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0))
    bounds = [g.make(x.dtype, (), (-2, 1)), g.make(x.dtype, (), (1, 4))]
    given = g.below(4)
    return Call([x, bounds[0] if given != 1 else None, bounds[1] if given != 2 else None])


# Casts


def _span_for(target: DType) -> tuple[float, float]:
    """The numbers for which a cast to this dtype has a result that is defined."""
    if target.is_integer:
        bits = min(target.bits - (target.kind == "int"), 20)
        return (-(2.0**bits) if target.kind == "int" else 0.0, 2.0**bits - 1)
    return {"float16": (-60000.0, 60000.0), "float8_e8m0fnu": (0.01, 100.0)}.get(target.name, (-(2.0**20), 2.0**20))


def _castable(g: Context, spec: OpSpec) -> tuple[Any, DType]:
    sources = [d for d in allowed(spec, 0) if d.kind != "string"]
    target = g.dtype([BY_NAME["int32"], *(d for d in allowed(spec, 0) if d.name != "float8_e8m0fnu")])
    x = g.take(sources)
    if x.dtype.is_float and not target.is_float:
        x = g.take([x.dtype], span=_span_for(target))
    if x.dtype.name.startswith("float8") or (target.kind == "string" and x.dtype.is_float):
        raise Reject("formats of numbers")
    return x, target


def _narrow(g: Context, target: DType) -> dict[str, Any]:
    return g.maybe(saturate=[0, 1]) if target.name.startswith("float8") else {}


@samples("Cast")
def cast(g: Context, spec: OpSpec) -> Call:
    x, target = _castable(g, spec)
    return Call([x], {"to": target.code, **_narrow(g, target)})


@samples("CastLike")
def cast_like(g: Context, spec: OpSpec) -> Call:
    x, target = _castable(g, spec)
    return Call([x, g.take([target], shape=lambda: g.dims(0, 2))], _narrow(g, target))


@samples("BitCast", exactly=True)
def bit_cast(g: Context, spec: OpSpec) -> Call:
    # Not even the sign of a zero may be left to rounding.
    x = g.take([d for d in allowed(spec, 0) if d.kind not in ("string", "bool")], fits=lambda v: not v.shadows)
    fitting = [d for d in allowed(spec, 0) if d.bits == x.dtype.bits and d.is_integer]
    return Call([x], {"to": g.pick(fitting).code})
