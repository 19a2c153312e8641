"""Arithmetic on sizes that may be symbolic: ``2*seq + 1``, ``batch*heads``, ``(h + 1)//2``.

A size is what a tensor type holds per axis: a number, a text, or None where nothing is known. A text is a symbol, or an
expression of symbols: an integer polynomial whose atoms are symbols and, where a polynomial can't say it, ``//``,
``%``, ``max`` and ``min`` of expressions. Symbols stand for sizes, hence for integers from 0 on. All functions here
take and give sizes; results are in one canonical spelling, so that equal polynomials are equal texts. None in, None
out.

Values computed from sizes (what ``Shape`` feeds to ``Sub``, say) are handled in the same form and may be negative.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from typing import NamedTuple

from irkit.ir.types import Dim

__all__ = [
    "add",
    "bounds",
    "ceildiv",
    "evaluate",
    "exact_div",
    "floordiv",
    "is_at_least",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "product",
    "solve",
    "sub",
    "substitute",
    "symbols_in",
    "total",
]

MAX_TERMS = 32
MAX_DEPTH = 12
"""Of nested ``//``, ``%``, ``max``, ``min``. What grows beyond is not known any more."""


class Op(NamedTuple):
    """An atom that is no symbol: ``//``, ``%``, ``max`` or ``min`` of two expressions."""

    kind: str
    a: Expr
    b: Expr

    @property
    def depth(self) -> int:
        return 1 + max(self.a.depth, self.b.depth)


Atom = str | Op
Monomial = tuple[Atom, ...]
"""A product of atoms, sorted by their text; a power is a repetition."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A polynomial: pairs of monomial and coefficient, none of them 0, in the order in which they are written."""

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def constant(self) -> int | None:
        """The number that it is, if it is one."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms[0][0] == () else None

    @property
    def depth(self) -> int:
        return max((atom.depth for m, _ in self.terms for atom in m if isinstance(atom, Op)), default=0)


class _TooLarge(Exception):
    """An expression has outgrown its use."""


def _of_terms(terms: Mapping[Monomial, int]) -> Expr:
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > MAX_TERMS:
        raise _TooLarge
    return Expr(tuple(sorted(kept, key=lambda term: (-len(term[0]), [_atom_text(a) for a in term[0]]))))


def _number(value: int) -> Expr:
    return Expr((((), value),) if value else ())


def _atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _plus(a: Expr, b: Expr, factor: int = 1) -> Expr:
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + factor * coefficient
    return _of_terms(terms)


def _minus(a: Expr, b: Expr) -> Expr:
    return _plus(a, b, -1)


def _times(a: Expr, b: Expr) -> Expr:
    terms: dict[Monomial, int] = {}
    for m, c in a.terms:
        for n, d in b.terms:
            joined = tuple(sorted((*m, *n), key=_atom_text))
            terms[joined] = terms.get(joined, 0) + c * d
    return _of_terms(terms)


def _quotient(a: Expr, b: Expr) -> Expr | None:
    """The polynomial q with ``a == q*b``, or None. Monomials are compared by degree, then by text, as written."""
    if not b.terms:
        return None
    lead, coefficient = b.terms[0]
    found: dict[Monomial, int] = {}
    rest = a
    for _ in range(MAX_TERMS):
        if not rest.terms:
            return _of_terms(found)
        monomial, c = rest.terms[0]
        left = _without(monomial, lead)
        if left is None or c % coefficient:
            return None
        found[left] = found.get(left, 0) + c // coefficient
        rest = _minus(rest, _times(Expr(((left, c // coefficient),)), b))
    return None


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factors:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _op(kind: str, a: Expr, b: Expr) -> Expr:
    if kind in ("max", "min") and _text(a) > _text(b):
        a, b = b, a
    made = Op(kind, a, b)
    if made.depth > MAX_DEPTH:
        raise _TooLarge
    return _atom(made)


def _floordiv(a: Expr, b: Expr) -> Expr:
    exact = _quotient(a, b)
    if exact is not None:
        return exact
    k = b.constant
    if not k or k < 0:
        return _op("//", a, b)
    whole, rest = _split(a, k)
    if rest.constant is not None:
        return _plus(whole, _number(rest.constant // k))
    low, high = _bounds(rest)
    if low is not None and high is not None and low // k == high // k:
        return _plus(whole, _number(low // k))
    return _plus(whole, _nested(rest, k) or _op("//", rest, b))


def _nested(a: Expr, k: int) -> Expr | None:
    """``(x // m + c) // k`` as ``(x + m*c) // (m*k)``; and ``//``, which is monotonic, drawn into a max or min."""
    number = sum(c for monomial, c in a.terms if monomial == ())
    match _minus(a, _number(number)).terms:
        case (((Op("//", x, y),), 1),) if (m := y.constant) and m > 0:
            return _floordiv(_plus(x, _number(m * number)), _number(m * k))
        case (((Op("max" | "min" as kind, x, y),), 1),):
            a, b = (_floordiv(_plus(part, _number(number)), _number(k)) for part in (x, y))
            return _max(a, b) if kind == "max" else _min(a, b)
        case _:
            return None


def _mod(a: Expr, b: Expr) -> Expr:
    if _quotient(a, b) is not None:
        return _number(0)
    k = b.constant
    if not k or k < 0:
        return _op("%", a, b)
    _, rest = _split(a, k)
    if rest.constant is not None:
        return _number(rest.constant % k)
    low, high = _bounds(rest)
    if low is not None and high is not None and low // k == high // k:
        return _minus(rest, _number(low // k * k))
    return _op("%", rest, b)


def _split(a: Expr, k: int) -> tuple[Expr, Expr]:
    """q and r with ``a == k*q + r``, where r has no multiple of k as a term, and its number is less than k."""
    whole = {m: c // k for m, c in a.terms if m == () or not c % k}
    rest = {m: c % k if m == () else c for m, c in a.terms if m == () or c % k}
    return _of_terms(whole), _of_terms(rest)


def _max(a: Expr, b: Expr) -> Expr:
    low, high = _bounds(_minus(a, b))
    if low is not None and low >= 0:
        return a
    return b if high is not None and high <= 0 else _op("max", a, b)


def _min(a: Expr, b: Expr) -> Expr:
    low, high = _bounds(_minus(a, b))
    if high is not None and high <= 0:
        return a
    return b if low is not None and low >= 0 else _op("min", a, b)


Bounds = tuple[int | None, int | None]


def _bounds(e: Expr) -> Bounds:
    """The least and the largest value, None where there is no such bound."""
    low: int | None = 0
    high: int | None = 0
    for monomial, c in e.terms:
        a, b = reduce(_times_bounds, map(_atom_bounds, monomial), (1, 1))
        if c < 0:
            a, b = b, a
        low = None if low is None or a is None else low + c * a
        high = None if high is None or b is None else high + c * b
    return low, high


def _times_bounds(x: Bounds, y: Bounds) -> Bounds:
    (a, b), (c, d) = x, y
    if a is None or c is None or a < 0 or c < 0:
        return None, None
    return a * c, None if b is None or d is None else b * d


def _atom_bounds(atom: Atom) -> Bounds:
    if isinstance(atom, str):
        return 0, None
    (a, b), (c, d) = _bounds(atom.a), _bounds(atom.b)
    match atom.kind:
        case "//":
            k = atom.b.constant
            if k and k > 0:
                return None if a is None else a // k, None if b is None else b // k
            return (0, b) if a is not None and a >= 0 and c is not None and c > 0 else (None, None)
        case "%":
            return (0, None if d is None else d - 1) if c is not None and c > 0 else (None, None)
        case "max":
            low = max((x for x in (a, c) if x is not None), default=None)
            return low, None if b is None or d is None else max(b, d)
        case _:
            high = min((x for x in (b, d) if x is not None), default=None)
            return None if a is None or c is None else min(a, c), high


# Text


def _is_plain(symbol: str) -> bool:
    return symbol.isidentifier() and not keyword.iskeyword(symbol)


@cache
def _atom_text(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom if _is_plain(atom) else repr(atom)
    if atom.kind in ("max", "min"):
        return f"{atom.kind}({_text(atom.a)}, {_text(atom.b)})"
    return f"({_factor(atom.a)}{atom.kind}{_factor(atom.b)})"


def _factor(e: Expr) -> str:
    text = _text(e)
    single = len(e.terms) == 1 and (e.terms[0][0] == () or (e.terms[0][1] == 1 and len(e.terms[0][0]) == 1))
    return text if (single and e.terms[0][1] > 0) or not e.terms else f"({text})"


def _text(e: Expr) -> str:
    written = ""
    for monomial, coefficient in e.terms:
        factors = [_atom_text(atom) for atom in monomial]
        size = abs(coefficient)
        product_ = "*".join(factors if factors and size == 1 else [str(size), *factors])
        sign = "-" if coefficient < 0 else "+"
        written += f" {sign} {product_}" if written else product_ if coefficient > 0 else f"-{product_}"
    return written or "0"


_CALLS: dict[str, Callable[[Expr, Expr], Expr]] = {"max": _max, "min": _min, "Max": _max, "Min": _min}
_BINARY: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: _plus,
    ast.Sub: _minus,
    ast.Mult: _times,
    ast.FloorDiv: _floordiv,
    ast.Div: _floordiv,
    ast.Mod: _mod,
}


@cache
def _parse(text: str) -> Expr:
    """The expression that a text is; a symbol of its own where it is none."""
    if _is_plain(text) or len(text) > 1000:
        return _atom(text)
    try:
        found = _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError, _TooLarge):
        return _atom(text)
    # A symbol whose name is a number is not that number.
    return _atom(text) if found.constant is not None else found


def _read(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return _number(number)
        case ast.Constant(value=str(symbol)):
            return _atom(symbol)
        case ast.Name(id=name):
            return _atom(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _minus(_number(0), _read(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left), _read(right))
        case ast.Call(func=ast.Name(id=name), args=[first, *others], keywords=[]) if name in _CALLS:
            return reduce(_CALLS[name], map(_read, others), _read(first))
        case _:
            raise ValueError


def _expr(dim: int | str) -> Expr:
    return _number(dim) if isinstance(dim, int) else _parse(dim)


@cache
def _dim(e: Expr) -> int | str:
    if e.constant is not None:
        return e.constant
    match e.terms:
        # A symbol stands for itself in the spelling of its file, whatever that is.
        case (((str(symbol),), 1),):
            return symbol
        # Outermost parentheses are for reading inside larger expressions only.
        case (((Op("//" | "%") as op,), 1),):
            return _atom_text(op)[1:-1]
        case _:
            return _text(e)


def _lift(rule: Callable[[Expr, Expr], Expr]) -> Callable[[Dim, Dim], Dim]:
    @cache
    def apply(a: Dim, b: Dim) -> Dim:
        if a is None or b is None:
            return None
        try:
            return _dim(rule(_expr(a), _expr(b)))
        except (_TooLarge, ZeroDivisionError):
            return None

    return apply


_add, _sub, _mul = _lift(_plus), _lift(_minus), _lift(_times)
_floor_, _mod_, _max_, _min_ = _lift(_floordiv), _lift(_mod), _lift(_max), _lift(_min)


def add(a: Dim, b: Dim) -> Dim:
    """``a + b``."""
    return a + b if isinstance(a, int) and isinstance(b, int) else _add(a, b)


def sub(a: Dim, b: Dim) -> Dim:
    """``a - b``."""
    return a - b if isinstance(a, int) and isinstance(b, int) else _sub(a, b)


def mul(a: Dim, b: Dim) -> Dim:
    """``a * b``; 0 times an unknown size is 0."""
    if a == 0 or b == 0:
        return 0
    return a * b if isinstance(a, int) and isinstance(b, int) else _mul(a, b)


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``, rounded towards minus infinity. None for a division by 0."""
    return None if b == 0 else _floor_(a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """``a / b``, rounded towards infinity, for b > 0."""
    return floordiv(sub(add(a, b), 1), b)


def mod(a: Dim, b: Dim) -> Dim:
    """``a % b``, of the sign of b. None for a division by 0."""
    return None if b == 0 else _mod_(a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger one."""
    return _max_(a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller one."""
    return _min_(a, b)


def total(dims: Iterable[Dim]) -> Dim:
    """The sum."""
    return reduce(add, dims, 0)


def product(dims: Iterable[Dim]) -> Dim:
    """The product, as of the sizes of a shape."""
    return reduce(mul, dims, 1)


def exact_div(a: Dim, b: Dim) -> Dim:
    """The size q with ``a == q * b`` as polynomials, or None. It is the quotient wherever b is not 0."""
    if a is None or b is None:
        return None
    try:
        found = _quotient(_expr(a), _expr(b))
    except _TooLarge:
        return None
    return None if found is None else _dim(found)


def bounds(dim: Dim) -> tuple[int | None, int | None]:
    """The least and the largest value that a size can have, None where there is no bound."""
    return (None, None) if dim is None else _bounds(_expr(dim))


def is_at_least(dim: Dim, least: int) -> bool:
    """Whether a size can't be less than a number."""
    low, _ = bounds(dim)
    return low is not None and low >= least


def symbols_in(dim: Dim) -> list[str]:
    """The symbols of which a size is made, each once, sorted."""
    return [] if not isinstance(dim, str) else sorted(_symbols(_expr(dim)))


def _symbols(e: Expr) -> set[str]:
    found: set[str] = set()
    for monomial, _ in e.terms:
        for atom in monomial:
            found |= {atom} if isinstance(atom, str) else _symbols(atom.a) | _symbols(atom.b)
    return found


def substitute(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """The size with other sizes in the place of some of its symbols."""
    if not isinstance(dim, str) or not any(s in sizes for s in symbols_in(dim)):
        return dim
    try:
        return _dim(_substitute(_expr(dim), sizes))
    except (_TooLarge, ZeroDivisionError):
        return None


_RULES = {"//": _floordiv, "%": _mod, "max": _max, "min": _min}


def _substitute(e: Expr, sizes: Mapping[str, Dim]) -> Expr:
    made = _number(0)
    for monomial, coefficient in e.terms:
        factor = _number(coefficient)
        for atom in monomial:
            factor = _times(factor, _substituted(atom, sizes))
        made = _plus(made, factor)
    return made


def _substituted(atom: Atom, sizes: Mapping[str, Dim]) -> Expr:
    if isinstance(atom, str):
        size = sizes.get(atom, atom)
        if size is None:
            raise _TooLarge
        return _expr(size)
    a, b = _substitute(atom.a, sizes), _substitute(atom.b, sizes)
    if atom.kind in ("//", "%") and b.constant == 0:
        raise ZeroDivisionError
    return _RULES[atom.kind](a, b)


def solve(dim: Dim, size: int, known: Mapping[str, int]) -> dict[str, int] | None:
    """What a size's symbols are if it is a number: those that follow, where one is unknown and it is linear in that.

    Returns:
        the symbols that are known now, none where that can't be told; None if the size cannot be that number.
    """
    rest = substitute(dim, known)
    if isinstance(rest, int):
        return {} if rest == size else None
    low, high = bounds(rest)
    if (low is not None and size < low) or (high is not None and size > high):
        return None
    names = symbols_in(rest)
    if rest is None or len(names) != 1:
        return {}
    terms = dict(_expr(rest).terms)
    constant, factor = terms.pop((), 0), terms.pop((names[0],), 0)
    if terms or not factor:
        return {}
    value, left = divmod(size - constant, factor)
    return None if left or value < 0 else {names[0]: value}


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """The number that a size is, given those of its symbols; None where one is missing, or for a division by 0."""
    found = substitute(dim, sizes)
    return found if isinstance(found, int) else None
