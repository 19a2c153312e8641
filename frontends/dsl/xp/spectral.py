"""Eigenvalues and singular values, by sweeps of Jacobi rotations in a Loop.

Golub and Van Loan, Matrix Computations: 8.5 (symmetric eigenvalues), 8.6.3 (one-sided, for singular values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl import control, operators
from irkit.frontends.dsl.build import convert, make, number
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.functions import elementwise
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.ir.dtypes import BY_NAME

SWEEPS = 12
"""Convergence is quadratic: after 6 to 10 sweeps nothing changes in matrices of up to a few hundred rows."""

_Entries = Callable[[Symbol, Symbol, Symbol], tuple[Symbol, Symbol, Symbol]]


def sizes_of(name: str, x: Symbol) -> tuple[int, int]:
    """The sizes of matrices.

    Raises:
        InferenceError: if they are not known.
    """
    rows, columns = (x.shape or (None, None))[-2:] if x.ndim is None or x.ndim > 1 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise failure(InferenceError, f"xp.linalg.{name} of {x!r}", hint="matrices of known sizes")
    return rows, columns


def identities(x: Symbol, n: int) -> Symbol:
    """The identity of n rows, for each of the matrices x."""
    kind: Any = x.dtype
    identity = np.eye(n, dtype=kind.numpy)
    batch = (x.shape or ())[:-2]
    if all(isinstance(d, int) for d in batch):
        return convert(np.broadcast_to(identity, (*batch, n, n)))  # type: ignore[arg-type]
    # Broadcast by a sum, which keeps the sizes that have names: a count is never less than 0.
    counts = reduced("ReduceSum", operators.cast(operators.not_equal(x, x), BY_NAME["float32"]), (-2, -1), True)
    return make("Add", operators.cast(operators.less(counts, 0), kind), identity)


def _swept(x: Symbol, n: int, entries: _Entries, both_sides: bool) -> tuple[Symbol, Symbol]:
    """The matrices after all rotations of their n columns (and rows), and the product of the rotations."""
    kind: Any = x.dtype
    identity = np.eye(n, dtype=kind.numpy)
    turned = identities(x, n)
    if n < 2:
        return x, turned
    first, second = (np.tile(places, SWEEPS).astype(np.int64) for places in np.triu_indices(n, 1))

    def rotated(step: Symbol, carried: Any) -> Any:
        p, q = (make("Gather", convert(places), step, axis=0) for places in (first, second))
        rotation = _rotation(identity, p, q, *entries(carried[0], p, q))
        moved = make("MatMul", carried[0], rotation)
        if both_sides:
            moved = make("MatMul", shapes.matrix_transpose(rotation), moved)
        return moved, make("MatMul", carried[1], rotation)

    return control.fori(0, len(first), rotated, (x, turned))


def _rotation(identity: np.ndarray, p: Symbol, q: Symbol, pp: Symbol, qq: Symbol, pq: Symbol) -> Symbol:
    """The rotation in the plane (p, q) that makes the matrix [[pp, pq], [pq, qq]] diagonal."""
    slope = make("Div", make("Sub", qq, pp), operators.multiply(pq, 2.0))
    root = make("Sqrt", operators.add(make("Mul", slope, slope), 1.0))
    tangent = make("Reciprocal", make("Add", operators.absolute(slope), root))
    tangent = elementwise.where(operators.less(slope, 0), make("Neg", tangent), tangent)
    tangent = elementwise.where(operators.equal(pq, 0), 0.0, tangent)
    cosine = make("Reciprocal", make("Sqrt", operators.add(make("Mul", tangent, tangent), 1.0)))
    sine = make("Mul", tangent, cosine)
    at_p, at_q = (make("Gather", identity, place, axis=0) for place in (p, q))
    column_p, column_q = (make("Unsqueeze", at, shapes.ints(1)) for at in (at_p, at_q))
    diagonal = make("Add", make("Mul", column_p, at_p), make("Mul", column_q, at_q))
    crossed = make("Sub", make("Mul", column_p, at_q), make("Mul", column_q, at_p))
    cosine, sine = (make("Unsqueeze", v, shapes.ints(-2, -1)) for v in (cosine, sine))
    change = make("Add", make("Mul", operators.subtract(cosine, 1.0), diagonal), make("Mul", sine, crossed))
    return make("Add", identity, change)


def _in_order(values: Symbol, n: int, largest: bool, *matrices: Symbol) -> tuple[Symbol, ...]:
    """The values in order, and the columns of the matrices likewise."""
    ordered, order = make("TopK", values, shapes.ints(n), axis=-1, largest=int(largest), sorted=1)
    chosen = make("Unsqueeze", order, shapes.ints(-2))
    picked: list[Symbol] = []
    for matrix in matrices:
        rows = sizes_of("svd", matrix)[0]
        # Broadcast by a sum, since of an Expand to a computed shape the sizes are not known.
        spread = make("Add", chosen, np.zeros((rows, 1), np.int64))
        picked.append(make("GatherElements", matrix, spread, axis=-1))
    return ordered, *picked


def eigen(x: Symbol, n: int) -> tuple[Symbol, Symbol]:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns."""

    def entries(a: Symbol, p: Symbol, q: Symbol) -> tuple[Symbol, Symbol, Symbol]:
        row_p, row_q = (make("Gather", a, place, axis=-2) for place in (p, q))
        return make("Gather", row_p, p, axis=-1), make("Gather", row_q, q, axis=-1), make("Gather", row_p, q, axis=-1)

    turned, vectors = _swept(x, n, entries, both_sides=True)
    kind: Any = x.dtype
    values = reduced("ReduceSum", make("Mul", turned, np.eye(n, dtype=kind.numpy)), -1, False)
    values, vectors = _in_order(values, n, False, vectors)
    return values, vectors


def singular(x: Symbol, rows: int, columns: int) -> tuple[Symbol, Symbol, Symbol]:
    """``U S``, S in descending order, and V of ``x = U S V^T``, for at least as many rows as columns."""

    def entries(a: Symbol, p: Symbol, q: Symbol) -> tuple[Symbol, Symbol, Symbol]:
        at_p, at_q = (make("Gather", a, place, axis=-1) for place in (p, q))
        pairs = ((at_p, at_p), (at_q, at_q), (at_p, at_q))
        pp, qq, pq = (reduced("ReduceSum", make("Mul", a, b), -1, False) for a, b in pairs)
        return pp, qq, pq

    assert rows >= columns
    scaled, right = _swept(x, columns, entries, both_sides=False)
    values = reduced("ReduceL2", scaled, -2, False)
    values, scaled, right = _in_order(values, columns, True, scaled, right)
    return scaled, values, right


def unit_columns(scaled: Symbol, orthogonal: Symbol, triangular: Symbol, columns: int) -> Symbol:
    """The columns of U, from ``Q R = U S``: those of Q with the signs of R's diagonal; Q's own for zeros of S."""
    kind: Any = scaled.dtype
    rows = int((triangular.shape or (columns,))[-2])  # type: ignore[arg-type]
    diagonal = reduced("ReduceSum", make("Mul", triangular, np.eye(rows, columns, dtype=kind.numpy)), -1, False)
    signs = elementwise.where(operators.less(diagonal, 0), number(-1.0, kind), number(1.0, kind))
    return make("Mul", orthogonal, make("Unsqueeze", signs, shapes.ints(-2)))


class EighResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """``x = U @ diag(S) @ Vh``."""

    U: Any
    S: Any
    Vh: Any
