"""Graphs written down as arithmetic: what looks like a builder adds steps to a random graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.ir.dtypes import BY_NAME, DType
from irkit.passes.rules import Rule
from irkit.passes.rules.pattern import Attributes, Rest, Variable

from .generate import Call, Context, Reject
from .graph import Body, Value

__all__ = ["Sketch", "Term"]


@dataclass(frozen=True, eq=False)
class Term:
    """A value with operators, each of which adds a step."""

    value: Value
    b: Sketch

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.value.shape

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return self.value.array.ndim

    def __add__(self, other: Any) -> Term:
        return self.b.binary("Add", self, other)

    def __radd__(self, other: Any) -> Term:
        return self.b.binary("Add", other, self)

    def __sub__(self, other: Any) -> Term:
        return self.b.binary("Sub", self, other)

    def __rsub__(self, other: Any) -> Term:
        return self.b.binary("Sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return self.b.binary("Mul", self, other)

    def __rmul__(self, other: Any) -> Term:
        return self.b.binary("Mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return self.b.binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> Term:
        return self.b.binary("Div", other, self)

    def __matmul__(self, other: Any) -> Term:
        return self.b.op("MatMul", self, other)


class Sketch:
    """Adds steps to a graph in the making, as a builder adds ops: ``b.Relu(x)``, ``x * 2``.

    Numbers become constants of the type of the first operand, arrays constants as they are.
    """

    def __init__(self, g: Context) -> None:
        self.g = g

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper():
            raise AttributeError(name)
        return lambda *operands, **options: self.op(name, *operands, **options)

    def binary(self, name: str, a: Any, b: Any) -> Term:
        """An op of two operands; those of a commutative one are swapped at times."""
        if name in ("Add", "Mul") and self.g.chance(4):
            a, b = b, a
        return self.op(name, a, b)

    def op(
        self,
        name: str,
        *operands: Any,
        outputs: int | None = None,
        bodies: dict[str, Body] | None = None,
        **attributes: Any,
    ) -> Any:
        """Adds a step. Returns its result, or several as a tuple.

        Raises:
            Reject: if it is not valid, or its values are of no use.
        """
        like = next((o for o in operands if isinstance(o, Term)), None)
        values = [self._operand(o, like) for o in operands]
        step = self.g.add(name, Call(values, attributes, bodies or {}, outputs))
        made = tuple(Term(v, self) for v in step.results)
        return made[0] if len(made) == 1 else made

    def _operand(self, given: Any, like: Term | None) -> Value | None:
        if given is None:
            return None
        if isinstance(given, Term):
            return given.value
        if isinstance(given, np.ndarray):
            return self.constant(given).value
        kind = np.dtype(np.float32) if like is None else like.value.array.dtype
        return self.constant(np.asarray(given).astype(kind)).value

    def constant(self, array: np.ndarray) -> Term:
        """A constant, or an initializer where that can stand."""
        origin = "initializer" if self.g.depth == 0 and self.g.below(2) else "constant"
        return Term(Value.of(array, origin), self)

    def taken(self, types: Sequence[DType], low: int, high: int, **options: Any) -> Term:
        """A value in scope or a new one; see ``Context.take``."""
        return Term(self.g.take(types, low, high, **options), self)

    def shaped(self, kind: DType, shape: Sequence[int], *, known: bool = False) -> Term:
        """A value of this very shape; a constant, if it is to be known."""
        size = tuple(shape)
        if known:
            return self.constant(self.g.make(kind, size).array)
        return Term(self.g.take([kind], len(size), len(size), fits=lambda v: v.shape == size, shape=lambda: size), self)

    def pattern(self, rule: Rule) -> None:
        """Adds what a rule looks for, on values such as its samples name."""
        sample = self.g.pick(rule.samples) if rule.samples else {}
        kinds = [v.dtypes for v in rule.traced.variables.values() if isinstance(v, Variable) and v.dtypes is not None]
        named = [d for d in _FLOATS if all(d in each for each in kinds if each[0].is_float)]
        element = self.g.dtype(named or _FLOATS)
        sizes = {"N": self.g.between(1, 3), "M": self.g.between(1, 3), "K": self.g.between(1, 3)}
        positional: list[Any] = []
        options: dict[str, Any] = {}
        for name, variable in rule.traced.variables.items():
            if isinstance(variable, Variable):
                positional.append(self._variable(variable, sample.get(name, _DEFAULT), element, sizes))
            elif isinstance(variable, Rest):
                raise Reject("patterns with a rest are written as idioms")
            else:
                options[name] = sample.get(name, {} if isinstance(variable, Attributes) else None)
        rule.pattern(self, *positional, **options)

    def _variable(self, variable: Variable, given: Any, element: DType, sizes: Mapping[str, int]) -> Term | None:
        if given is None or (given is _DEFAULT and variable.optional):
            return None
        kind = element if variable.dtypes is None or element in variable.dtypes else variable.dtypes[0]
        if isinstance(given, np.ndarray):
            return self.constant(given.astype(kind.numpy) if given.dtype.kind == "f" else given)
        if variable.kind == "scalar":
            return self.constant(np.asarray(1.5 if given is _DEFAULT else given).astype(kind.numpy))
        dims = ["N", 3] if given is _DEFAULT else given
        return self.shaped(kind, [sizes.get(d, d) for d in dims], known=variable.kind == "constant")


_DEFAULT = object()
_FLOATS = [BY_NAME[name] for name in ("float32", "float64", "float16", "bfloat16")]
