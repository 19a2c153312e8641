"""Which ops are pure, random, commutative, elementwise, or carry their body's effects: one table for all.

What is not listed is pure: an op of ONNX computes its results from its operands and nothing else.
"""

from __future__ import annotations

from xdsl.traits import Commutative, MemoryAllocEffect, OpTrait, Pure, RecursiveMemoryEffect

from irkit.ir.op import Elementwise, Random

__all__ = ["COMMUTATIVE", "ELEMENTWISE", "RANDOM", "WITH_BODY", "traits_of"]

RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split())
"""Ops that draw random numbers at every run. Dropout counts as one, since its training mode does."""

WITH_BODY = frozenset("If Loop Scan SequenceMap FlexAttention".split())
"""Ops whose effects are those of their graphs."""

COMMUTATIVE = frozenset("Add Mul And Or Xor Equal BitwiseAnd BitwiseOr BitwiseXor Max Min Sum Mean".split())
"""Ops whose first two operands (variadic ones: all) may be swapped without changing a bit."""

ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike "
    "Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity "
    "IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round "
    "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
"""Ops that work element by element, with broadcasting."""


def traits_of(domain: str, op_type: str) -> tuple[OpTrait, ...]:
    """The traits of all versions of an op."""
    found: list[OpTrait] = []
    if domain == "" and op_type in RANDOM:
        # An allocation is what xDSL's own passes may drop when unused, but never merge.
        found += [Random(), MemoryAllocEffect()]
    elif op_type in WITH_BODY:
        found.append(RecursiveMemoryEffect())
    elif domain == "" and op_type == "Dropout":
        found += [Random(), MemoryAllocEffect()]
    else:
        found.append(Pure())
    if domain == "" and op_type in COMMUTATIVE:
        found.append(Commutative())
    if domain == "" and op_type in ELEMENTWISE:
        found.append(Elementwise())
    return tuple(found)
