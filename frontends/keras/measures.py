"""Sizes in the graph: numbers that depend on those of the inputs, computed when the model runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from irkit.errors import UnsupportedError
from irkit.frontends.keras import adapter
from irkit.frontends.keras.sizes import Dim, Polynomial, fit, scaled
from irkit.frontends.keras.values import FIRST, LAST, Value, to_first
from irkit.ir.builder import Builder, Tensor

__all__ = ["Measures", "NeedsTrace"]


class NeedsTrace(Exception):
    """A number that depends on sizes fits several expressions: one more trace tells which."""


class Measures:
    """The part of the emitter that knows sizes.

    Attributes:
        symbols: names of the sizes that differ between traces.
        sizes: per trace the size of each symbol.
        confirmed: whether there is a trace in which all of them differ from the first.
        sources: per symbol a value and an axis that has its size.
        b, root: builders of the graph at hand, and of the main one.
    """

    b: Builder
    root: Builder

    def __init__(self, symbols: Sequence[str], sizes: Sequence[Sequence[int]]) -> None:
        self.symbols = symbols
        self.sizes = sizes
        self.confirmed = len(sizes) > len(symbols) + 1 or not symbols
        self.sources: list[tuple[Value, int]] = []
        self._sizes: dict[tuple[int, ...], Tensor] = {}
        self._operands: list[Value] = []
        self._where = ""

    def _diverges(self, how: str) -> UnsupportedError:
        return UnsupportedError(
            f"it does different things for inputs of different sizes: {how}",
            where=self._where,
            hint="fix the size of the input (shape or batch_shape of keras.Input)",
        )

    def expression(self, number: Dim) -> Polynomial | None:
        """A number as an expression of the symbols."""
        return fit(number.values, self.sizes, confirmed=self.confirmed)

    def size(self, number: int | Dim) -> Tensor:
        """A number as an int64 tensor of one element."""
        if isinstance(number, int):
            return self.b.constant(np.array([number], np.int64))
        if number.values in self._sizes:
            return self._sizes[number.values]
        near = self._near(number)
        if near is not None:
            return near
        found = self.expression(number)
        if found is None:
            if not self.confirmed:
                raise NeedsTrace
            told = ", ".join(
                f"{v} at {'x'.join(map(str, at))}" for v, at in zip(number.values, self.sizes, strict=True)
            )
            raise UnsupportedError(
                f"a size is no expression of {', '.join(self.symbols)}: {told}",
                where=self._where,
                hint="fix the size of the input (shape or batch_shape of keras.Input)",
            )
        terms = [self._term(key, factor) for key, factor in found.items()]
        total = terms[0]
        for term in terms[1:]:
            total = self.root.Add(total, term)
        self._sizes[number.values] = total
        return total

    def _term(self, key: tuple[int, ...], factor: int) -> Tensor:
        made: Tensor | None = None
        for symbol in key:
            size = self._symbol_size(symbol)
            made = size if made is None else self.root.Mul(made, size)
        if made is None:
            return self.root.constant(np.array([factor], np.int64))
        return made if factor == 1 else self.root.Mul(made, np.array([factor], np.int64))

    def _symbol_size(self, symbol: int) -> Tensor:
        values = tuple(at[symbol] for at in self.sizes)
        if values not in self._sizes:
            value, axis = self.sources[symbol]
            self._sizes[values] = self._axis_size(self.root, value, axis)
        return self._sizes[values]

    def _axis_size(self, b: Builder, value: Value, axis: int) -> Tensor:
        layout = LAST if value.has(LAST) else FIRST
        at = axis if layout == LAST else to_first(value.rank).index(axis)
        return b.Shape(value.get(layout, b), start=at, end=at + 1)

    def _near(self, number: Dim) -> Tensor | None:
        """The size from an operand of the operation at hand: exact, where it is no polynomial of the inputs' sizes."""
        if self.expression(number) is not None:
            return None
        for value in self._operands:
            for axis, size in enumerate(value.shape):
                found = scaled(number.values, size.values) if isinstance(size, Dim) else None
                if found is not None and (found == (1, 0) or self.confirmed):
                    made = self._axis_size(self.b, value, axis)
                    for name, factor, neutral in (("Mul", found[0], 1), ("Add", found[1], 0)):
                        if factor != neutral:
                            made = self.b.op(name, made, np.array([factor], np.int64))
                    return made
        return None

    def vector(self, numbers: Iterable[int | Dim]) -> Tensor:
        """Numbers as an int64 tensor of one axis."""
        numbers = list(numbers)
        if all(isinstance(n, int) for n in numbers):
            return self.b.constant(np.array(numbers, np.int64))
        parts: list[Tensor] = []
        fixed: list[int] = []
        for n in [*numbers, None]:
            if isinstance(n, int):
                fixed.append(n)
                continue
            if fixed:
                parts.append(self.b.constant(np.array(fixed, np.int64)))
                fixed = []
            if n is not None:
                parts.append(self.size(n))
        return parts[0] if len(parts) == 1 else self.b.Concat(*parts, axis=0)

    def static(self, what: Any, need: str) -> Any:
        """Numbers that ONNX wants to know before the run.

        Raises:
            UnsupportedError: if one depends on the size of an input.
        """
        for leaf in adapter.flatten(what):
            if isinstance(leaf, Dim):
                raise self.refusal(
                    f"{need} depends on the size of an input", "fix the size of the input (shape of keras.Input)"
                )
        return what

    def described(self, size: int | Dim) -> int | str | None:
        """A size as a type has it."""
        if isinstance(size, int):
            return size
        found = self.expression(size)
        if found is None:
            return None
        terms = []
        for key, factor in sorted(found.items(), key=lambda item: -len(item[0])):
            factors = [*([str(factor)] if factor != 1 or not key else []), *(self.symbols[i] for i in key)]
            terms.append("*".join(factors))
        return " + ".join(terms)

    def refusal(self, why: str, hint: str = "") -> UnsupportedError:
        """An error that says which layer is concerned."""
        return UnsupportedError(why, where=self._where, hint=hint)
