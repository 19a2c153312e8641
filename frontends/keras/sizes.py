"""Sizes that are only known when the model runs, told from traces at several sizes.

Tracing twice, with 3 and with 5 examples in a batch, gives every number of the model twice. A number that is the same
is a constant. One that differs is a ``Dim``: it holds the number of each trace. When an op needs it, an expression of
the sizes of the model's inputs is found that gives all of them; where there is none the model is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Dim", "Polynomial", "fit", "scaled"]


@dataclass(frozen=True)
class Dim:
    """A number that depends on sizes of the inputs.

    Attributes:
        values: in each trace.
    """

    values: tuple[int, ...]

    def _with(self, fn: Callable[[int, int], int], other: Any) -> Any:
        theirs = other.values if isinstance(other, Dim) else (other,) * len(self.values)
        return dim(tuple(fn(a, b) for a, b in zip(self.values, theirs, strict=True)))

    def __add__(self, other: Any) -> Any:
        return self._with(lambda a, b: a + b, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(lambda a, b: a - b, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(lambda a, b: b - a, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(lambda a, b: a * b, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._with(lambda a, b: a // b, other)

    def __mod__(self, other: Any) -> Any:
        return self._with(lambda a, b: a % b, other)

    def __neg__(self) -> Any:
        return dim(tuple(-v for v in self.values))


def dim(values: tuple[int, ...]) -> int | Dim:
    """The number itself where it is the same in every trace."""
    return values[0] if all(v == values[0] for v in values) else Dim(values)


Polynomial = dict[tuple[int, ...], int]
"""By the indices of the symbols multiplied, their coefficient; ``()`` is the constant."""


def fit(values: Sequence[int], sizes: Sequence[Sequence[int]], *, confirmed: bool = False) -> Polynomial | None:
    """A number as an expression of symbolic sizes: ``c + a*s + b*t``, or ``a*s*t``.

    Args:
        values: the number in each trace.
        sizes: of each trace, the size of every symbol. Trace 0 is the base; in trace i + 1 symbol i alone differs.
        confirmed: whether there is a further trace in which all symbols differ.

    Returns:
        None if no expression gives the numbers, or if only one does that two points cannot vouch for.
    """
    base, symbols = sizes[0], range(len(sizes[0]))
    linear: Polynomial = {}
    for i in symbols:
        step = sizes[i + 1][i] - base[i]
        slope, rest = divmod(values[i + 1] - values[0], step)
        if rest:
            break
        if slope:
            linear[(i,)] = slope
    else:
        linear[()] = values[0] - sum(linear[key] * base[key[0]] for key in linear)
        simple = linear[()] == 0 or all(abs(slope) == 1 for key, slope in linear.items() if key)
        if _gives(linear, values, sizes) and (confirmed or (simple and len(linear) <= 2)):
            return {key: c for key, c in linear.items() if c}
    for count in (2, 3):
        for chosen in itertools.combinations(symbols, count):
            factor, rest = divmod(values[0], _product(base, chosen))
            if not rest and factor and _gives({chosen: factor}, values, sizes):
                return {chosen: factor}
    return None


def _product(sizes: Sequence[int], chosen: Sequence[int]) -> int:
    found = 1
    for i in chosen:
        found *= sizes[i]
    return found


def _gives(polynomial: Polynomial, values: Sequence[int], sizes: Sequence[Sequence[int]]) -> bool:
    return all(
        value == sum(c * _product(at, key) for key, c in polynomial.items())
        for value, at in zip(values, sizes, strict=True)
    )


def scaled(values: Sequence[int], other: Sequence[int]) -> tuple[int, int] | None:
    """``(a, c)`` where ``values == a * other + c``; for sizes that are told from one that is at hand already."""
    pairs = sorted(set(zip(other, values, strict=True)))
    if len(pairs) < 2:
        return None
    a, rest = divmod(pairs[1][1] - pairs[0][1], pairs[1][0] - pairs[0][0]) if pairs[1][0] != pairs[0][0] else (0, 1)
    c = pairs[0][1] - a * pairs[0][0]
    return (a, c) if not rest and a and all(a * x + c == y for x, y in pairs) else None
