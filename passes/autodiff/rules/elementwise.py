"""Arithmetic, powers, trigonometry, selection.

Where a factor may be infinite or NaN although the op's value does not matter (``1 / x``, ``log``, powers...), the rule
uses ``ad.scale``, by which a zero cotangent stays zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from irkit.dialects.ad import DOMAIN
from irkit.dialects.ad.finite import facts_of
from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("Sign Floor Ceil Round", "piecewise constant")
proven_zero(
    "Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN And Or Xor Not BitShift BitwiseAnd BitwiseNot "
    "BitwiseOr BitwiseXor",
    "gives booleans or integers",
)
proven_zero("Where", "a condition", [0])


def divide(g: Vjp, ct: Tensor, divisor: Tensor) -> Tensor:
    """``ct / divisor``; 0 where ``ct`` is 0, even if the divisor may be."""
    constant = g.constant(1) if g.n_operands > 1 and g.op.operands[1] is divisor.ssa else None
    nonzero = constant is not None and constant.size <= 1 << 16 and bool(np.all(constant.array().astype(complex) != 0))
    if nonzero or facts_of(divisor.ssa).positive:
        return g.b.Div(ct, divisor)
    return g.scale(ct, g.b.Reciprocal(divisor))


@vjp("Add")
def add(g: Vjp) -> Gradients:
    return g.unbroadcast(g.ct, 0) if g.needs(0) else None, g.unbroadcast(g.ct, 1) if g.needs(1) else None


@vjp("Sub")
def sub(g: Vjp) -> Gradients:
    return (
        g.unbroadcast(g.ct, 0) if g.needs(0) else None,
        g.b.Neg(g.unbroadcast(g.ct, 1)) if g.needs(1) else None,
    )


@vjp("Mul")
def mul(g: Vjp) -> Gradients:
    if g.op.operands[0] is g.op.operands[1]:
        return (g.scale(g.b.Add(g.ct, g.ct), g.x(0)),)
    return (
        g.unbroadcast(g.scale(g.ct, g.x(1)), 0) if g.needs(0) else None,
        g.unbroadcast(g.scale(g.ct, g.x(0)), 1) if g.needs(1) else None,
    )


@vjp("Div")
def div(g: Vjp) -> Gradients:
    first = g.unbroadcast(divide(g, g.ct, g.x(1)), 0) if g.needs(0) else None
    if not g.needs(1):
        return (first,)
    return first, g.unbroadcast(g.scale(g.ct, g.b.Neg(g.b.Div(g.y(), g.x(1)))), 1)


@vjp("Mod")
def mod(g: Vjp) -> Gradients:
    # x = q y + r with an integer q, which is constant almost everywhere.
    first = g.unbroadcast(g.ct, 0) if g.needs(0) else None
    if not g.needs(1):
        return (first,)
    quotient = g.b.Round(g.b.Div(g.b.Sub(g.x(0), g.y()), g.x(1)))
    return first, g.unbroadcast(g.scale(g.ct, g.b.Neg(quotient)), 1)


@vjp("Pow")
def pow_(g: Vjp) -> Gradients:
    first = g.unbroadcast(_pow_base(g), 0) if g.needs(0) else None
    if not g.needs(1):
        return (first,)
    b, x = g.b, g.x(0)
    # d/dp x^p = x^p log(x), and 0 for x = 0.
    at_zero = b.Equal(x, g.const(0, x))
    log = b.Log(b.Where(at_zero, g.const(1, x), x))
    factor = b.Where(at_zero, g.const(0, x), b.Mul(g.y(), log))
    return first, g.unbroadcast(g.cast(g.scale(g.ct, factor), g.x(1)), 1)


def _pow_base(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    constant = g.constant(1)
    if constant is not None and constant.size == 1:
        power = float(constant.array().item())
        if power == 0:
            return g.zeros_like(g.y())
        if power == 1:
            return g.ct
        if power == 2:
            return g.scale(b.Add(g.ct, g.ct), x)
        return g.scale(g.ct, b.Mul(b.Pow(x, g.const(power - 1, x)), g.const(power, x)))
    # x^0 is constant, at x = 0 too.
    p = g.cast(g.x(1), x)
    factor = b.Mul(p, b.Pow(x, b.Sub(p, g.const(1, x))))
    return g.scale(g.ct, b.Where(b.Equal(p, g.const(0, x)), g.const(0, x), factor))


@vjp("Sum")
def sum_(g: Vjp) -> Gradients:
    return [g.unbroadcast(g.ct, i) if g.needs(i) else None for i in range(g.n_operands)]


@vjp("Mean")
def mean(g: Vjp) -> Gradients:
    ct = g.b.Mul(g.ct, g.const(1 / g.n_operands))
    return [g.unbroadcast(ct, i) if g.needs(i) else None for i in range(g.n_operands)]


@vjp("Max")
def max_(g: Vjp) -> Gradients:
    return _extremum(g, g.b.Greater, g.b.GreaterOrEqual)


@vjp("Min")
def min_(g: Vjp) -> Gradients:
    return _extremum(g, g.b.Less, g.b.LessOrEqual)


def _extremum(g: Vjp, strictly: Callable[..., Tensor], weakly: Callable[..., Tensor]) -> Gradients:
    """The cotangent goes to the operand that won; operands that tie share it."""
    b = g.b
    if g.n_operands == 1:
        return (g.ct,)
    if g.n_operands == 2:
        x, y = g.x(0), g.x(1)
        half = g.const(0.5)
        won = b.Mul(b.Add(g.float_of(strictly(x, y), g.ct), g.float_of(weakly(x, y), g.ct)), half)
        first = b.Mul(g.ct, won)
        return (
            g.unbroadcast(first, 0) if g.needs(0) else None,
            g.unbroadcast(b.Sub(g.ct, first), 1) if g.needs(1) else None,
        )
    won = [g.float_of(b.Equal(g.x(i), g.y()), g.ct) for i in range(g.n_operands)]
    share = b.Div(g.ct, b.Max(b.Sum(*won), g.const(1)))
    return [g.unbroadcast(b.Mul(share, w), i) if g.needs(i) else None for i, w in enumerate(won)]


@vjp("Clip")
def clip(g: Vjp) -> Gradients:
    """1 inside, the bounds included. ``Y = Min(high, Max(x, low))``: a high bound below the low one wins."""
    b, x, low, high = g.b, g.x(0), g.x(1), g.x(2)
    above = None if low is None else b.GreaterOrEqual(x, low)
    below = None if high is None else b.LessOrEqual(x, high)
    inside = b.And(above, below) if above is not None and below is not None else above if above is not None else below
    found: list[Tensor | None] = [g.ct if inside is None else b.Mul(g.ct, g.float_of(inside, g.ct)), None, None]
    if low is not None and g.needs(1):
        raised = b.Less(x, low)
        if high is not None:
            raised = b.And(raised, b.LessOrEqual(low, high))
        found[1] = g.unbroadcast(b.Mul(g.ct, g.float_of(raised, g.ct)), 1)
    if high is not None and g.needs(2):
        lowered = b.Greater(x if low is None else b.Max(x, low), high)
        found[2] = g.unbroadcast(b.Mul(g.ct, g.float_of(lowered, g.ct)), 2)
    return found


@vjp("Where")
def where(g: Vjp) -> Gradients:
    b, zero = g.b, g.const(0)
    return (
        None,
        g.unbroadcast(b.Where(g.x(0), g.ct, zero), 1) if g.needs(1) else None,
        g.unbroadcast(b.Where(g.x(0), zero, g.ct), 2) if g.needs(2) else None,
    )


# One operand: the derivative's factor ---------------------------------------------------------------------------------


def bounded(*op_types: str) -> Callable[[Callable[[Vjp], Tensor]], Callable[[Vjp], Tensor]]:
    """Declares the derivative of ops of one operand, where it is finite for every finite operand."""

    def register(factor: Callable[[Vjp], Tensor]) -> Callable[[Vjp], Tensor]:
        @vjp(*op_types)
        def rule(g: Vjp) -> Tensor:  # pyright: ignore[reportUnusedFunction]
            return g.b.Mul(g.ct, factor(g))

        return factor

    return register


def _singular(*op_types: str) -> Callable[[Callable[[Vjp], Tensor]], Callable[[Vjp], Tensor]]:
    """The same, where it may be infinite or NaN."""

    def register(factor: Callable[[Vjp], Tensor]) -> Callable[[Vjp], Tensor]:
        @vjp(*op_types)
        def rule(g: Vjp) -> Tensor:  # pyright: ignore[reportUnusedFunction]
            return g.scale(g.ct, factor(g))

        return factor

    return register


@vjp("Neg")
def neg(g: Vjp) -> Tensor:
    return g.b.Neg(g.ct)


@bounded("Abs")
def abs_(g: Vjp) -> Tensor:
    return g.b.Sign(g.x(0))


@_singular("Reciprocal")
def reciprocal(g: Vjp) -> Tensor:
    return g.b.Neg(g.b.Mul(g.y(), g.y()))


@vjp("Sqrt")
def sqrt(g: Vjp) -> Tensor:
    ct = g.b.Mul(g.ct, g.const(0.5))
    facts = facts_of(g.op.operands[0])
    if facts.nonnegative and not facts.positive:
        # The root of a sum of squares, say: it has its minimum where it is 0, and 0 for a slope there.
        return g.b.Mul(ct, safe_inverse(g, g.y()))
    return divide(g, ct, g.y())


def safe_inverse(g: Vjp, x: Tensor) -> Tensor:
    """``1 / x``, and 0 where x is 0; its derivatives are finite there too."""
    b = g.b
    at_zero = b.Equal(x, g.const(0, x))
    return b.Where(at_zero, g.const(0, x), b.Reciprocal(b.Where(at_zero, g.const(1, x), x)))


@_singular("Exp")
def exp(g: Vjp) -> Tensor:
    return g.y()


@vjp("Log")
def log(g: Vjp) -> Tensor:
    return divide(g, g.ct, g.x(0))


@bounded("Sin")
def sin(g: Vjp) -> Tensor:
    return g.b.Cos(g.x(0))


@bounded("Cos")
def cos(g: Vjp) -> Tensor:
    return g.b.Neg(g.b.Sin(g.x(0)))


@_singular("Tan")
def tan(g: Vjp) -> Tensor:
    return g.b.Add(g.b.Mul(g.y(), g.y()), g.const(1))


def _one_minus_square(g: Vjp, x: Tensor) -> Tensor:
    return g.b.Sub(g.const(1), g.b.Mul(x, x))


@_singular("Asin")
def asin(g: Vjp) -> Tensor:
    return g.b.Reciprocal(g.b.Sqrt(_one_minus_square(g, g.x(0))))


@_singular("Acos")
def acos(g: Vjp) -> Tensor:
    return g.b.Neg(g.b.Reciprocal(g.b.Sqrt(_one_minus_square(g, g.x(0)))))


@bounded("Atan")
def atan(g: Vjp) -> Tensor:
    return g.b.Reciprocal(g.b.Add(g.b.Mul(g.x(0), g.x(0)), g.const(1)))


@_singular("Sinh")
def sinh(g: Vjp) -> Tensor:
    return g.b.Cosh(g.x(0))


@_singular("Cosh")
def cosh(g: Vjp) -> Tensor:
    return g.b.Sinh(g.x(0))


@bounded("Tanh")
def tanh(g: Vjp) -> Tensor:
    return _one_minus_square(g, g.y())


@bounded("Asinh")
def asinh(g: Vjp) -> Tensor:
    return g.b.Reciprocal(g.b.Sqrt(g.b.Add(g.b.Mul(g.x(0), g.x(0)), g.const(1))))


@_singular("Acosh")
def acosh(g: Vjp) -> Tensor:
    return g.b.Reciprocal(g.b.Sqrt(g.b.Sub(g.b.Mul(g.x(0), g.x(0)), g.const(1))))


@_singular("Atanh")
def atanh(g: Vjp) -> Tensor:
    return g.b.Reciprocal(_one_minus_square(g, g.x(0)))


@bounded("Erf")
def erf(g: Vjp) -> Tensor:
    return g.b.Mul(g.b.Exp(g.b.Neg(g.b.Mul(g.x(0), g.x(0)))), g.const(2 / math.sqrt(math.pi)))


# The ad dialect's own -------------------------------------------------------------------------------------------------

proven_zero("stop_gradient", "asked for by stop_gradient", domain=DOMAIN)


@vjp("scale", domain=DOMAIN)
def scale(g: Vjp) -> Gradients:
    return (
        g.unbroadcast(g.scale(g.ct, g.x(1)), 0) if g.needs(0) else None,
        g.unbroadcast(g.scale(g.ct, g.x(0)), 1) if g.needs(1) else None,
    )


@vjp("barrier", domain=DOMAIN)
def barrier(g: Vjp) -> Gradients:
    return g.cts
