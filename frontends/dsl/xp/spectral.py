"""Eigenvalues and singular values, by sweeps of Jacobi rotations in a Loop.

Golub and Van Loan, Matrix Computations: 8.5 (symmetric eigenvalues), 8.6.3 (one-sided, for singular values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from irkit.errors import InferenceError
from irkit.frontends.dsl import control, operators
from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.functions import shape as shapes
from irkit.frontends.dsl.functions.reduce import reduced
from irkit.frontends.dsl.symbol import Symbol
from irkit.frontends.dsl.xp.array import Array, accept, as_array, each, wrap
from irkit.frontends.dsl.xp.dtypes import to
from irkit.frontends.dsl.xp.elementwise import FUNCTIONS
from irkit.frontends.dsl.xp.searching import where
from irkit.frontends.dsl.xp.statistics import sum

absolute, conj, real, sign, sqrt = (FUNCTIONS[name] for name in "abs conj real sign sqrt".split())

SWEEPS = 12
"""Convergence is quadratic: after 6 to 10 sweeps nothing changes in matrices of up to a few hundred rows."""

_Entries = Callable[[Array, Symbol, Symbol], tuple[Array, Array, Array]]


def sizes_of(name: str, x: Array) -> tuple[int, int]:
    """The sizes of matrices.

    Raises:
        InferenceError: if they are not known.
    """
    rows, columns = (x.shape or (None, None))[-2:] if x.ndim is None or x.ndim > 1 else (None, None)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise failure(InferenceError, f"xp.linalg.{name} of {x!r}", hint="matrices of known sizes")
    return rows, columns


def identities(x: Array, n: int) -> Array:
    """The identity of n rows, for each of the matrices x."""
    kind: Any = x.dtype
    identity = np.eye(n, dtype=kind.numpy)
    batch = (x.shape or ())[:-2]
    if all(isinstance(d, int) for d in batch):
        return as_array(np.broadcast_to(identity, (*batch, n, n)))  # type: ignore[arg-type]
    # Broadcast by a sum, which keeps the sizes that have names: a count is never less than 0.
    counts = sum(to(wrap(operators.not_equal(x.parts[0], x.parts[0])), kind), axis=(-2, -1), keepdims=True)
    return to(real(counts) < 0, kind) + as_array(identity)


def at(x: Array, index: Any, axis: int) -> Array:
    """The slices at an index along an axis: an integer takes the axis away."""
    place = index if isinstance(index, Symbol) else np.array(index)
    return each(lambda part: make("Gather", part, place, axis=axis), x)


def expanded(x: Array, *axes: int) -> Array:
    """With new axes of size 1."""
    return each(lambda part: make("Unsqueeze", part, shapes.ints(*axes)), x)


def adjoint(x: Array) -> Array:
    """The conjugate transpose."""
    return conj(x).mT


def phases(x: Array) -> Array:
    """``x / |x|``, and 1 for 0."""
    return where(x == 0, 1.0, sign(x))


def _swept(x: Array, n: int, entries: _Entries, both_sides: bool) -> tuple[Array, Array]:
    """The matrices after all rotations of their n columns (and rows), and the product of the rotations."""
    turned = identities(x, n)
    if n < 2:
        return x, turned
    first, second = (np.tile(places, SWEEPS).astype(np.int64) for places in np.triu_indices(n, 1))
    count = len(x.parts)

    def rotated(step: Symbol, carried: Any) -> Any:
        a, product = Array(*carried[:count]), Array(*carried[count:])
        p, q = (make("Gather", convert(places), step, axis=0) for places in (first, second))
        rotation = _rotation(n, p, q, *entries(a, p, q))
        moved = a @ rotation
        if both_sides:
            moved = adjoint(rotation) @ moved
        return *moved.parts, *(product @ rotation).parts

    made = control.fori(0, len(first), rotated, (*x.parts, *turned.parts))
    return Array(*made[:count]), Array(*made[count:])


def _rotation(n: int, p: Symbol, q: Symbol, pp: Array, qq: Array, pq: Array) -> Array:
    """The unitary matrix of the plane (p, q) that makes the matrix [[pp, pq], [pq*, qq]] of real pp and qq diagonal.

    The phase of pq goes to column q; what is left is real and symmetric.
    """
    size, phase = absolute(pq), conj(phases(pq))
    slope = (qq - pp) / (size * 2.0)
    tangent = 1.0 / (absolute(slope) + sqrt(slope * slope + 1.0))
    tangent = where(size == 0, 0.0, where(slope < 0, -tangent, tangent))
    cosine = 1.0 / sqrt(tangent * tangent + 1.0)
    sine = tangent * cosine
    identity = as_array(np.eye(n, dtype=pp.dtype.numpy))  # type: ignore[union-attr]
    at_p, at_q = (at(identity, place, 0) for place in (p, q))
    column_p, column_q = expanded(at_p, 1), expanded(at_q, 1)
    cosine, sine, phase = (expanded(v, -2, -1) for v in (cosine, sine, phase))
    change_p = (cosine - 1.0) * column_p * at_p + sine * column_p * at_q
    change_q = (cosine * phase - 1.0) * (column_q * at_q) - sine * phase * (column_q * at_p)
    return identity + change_p + change_q


def _in_order(values: Array, n: int, largest: bool, *matrices: Array) -> tuple[Array, ...]:
    """The values in order, and the columns of the matrices likewise."""
    ordered, order = make("TopK", accept(values), shapes.ints(n), axis=-1, largest=int(largest), sorted=1)
    chosen = make("Unsqueeze", order, shapes.ints(-2))
    picked: list[Array] = []
    for matrix in matrices:
        rows = sizes_of("svd", matrix)[0]
        # Broadcast by a sum, since of an Expand to a computed shape the sizes are not known.
        spread = make("Add", chosen, np.zeros((rows, 1), np.int64))
        picked.append(each(lambda part, spread=spread: make("GatherElements", part, spread, axis=-1), matrix))
    return wrap(ordered), *picked


def eigen(x: Array, n: int) -> tuple[Array, Array]:
    """The eigenvalues of Hermitian matrices in ascending order, and the eigenvectors as columns."""

    def entries(a: Array, p: Symbol, q: Symbol) -> tuple[Array, Array, Array]:
        row_p, row_q = at(a, p, -2), at(a, q, -2)
        return real(at(row_p, p, -1)), real(at(row_q, q, -1)), at(row_p, q, -1)

    turned, vectors = _swept(x, n, entries, both_sides=True)
    kind: Any = turned.parts[0].dtype
    values = sum(real(turned) * as_array(np.eye(n, dtype=kind.numpy)), axis=-1)
    values, vectors = _in_order(values, n, False, vectors)
    return values, vectors


def singular(x: Array, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """``U S``, S in descending order, and V of ``x = U S V^H``, for at least as many rows as columns."""

    def entries(a: Array, p: Symbol, q: Symbol) -> tuple[Array, Array, Array]:
        at_p, at_q = at(a, p, -1), at(a, q, -1)
        pp, qq = (sum(real(conj(v) * v), axis=-1) for v in (at_p, at_q))
        return pp, qq, sum(conj(at_p) * at_q, axis=-1)

    assert rows >= columns
    scaled, right = _swept(x, columns, entries, both_sides=False)
    values = wrap(reduced("ReduceL2", accept(absolute(scaled)), -2, False))
    values, scaled, right = _in_order(values, columns, True, scaled, right)
    return scaled, values, right


def unit_columns(orthogonal: Array, triangular: Array, columns: int) -> Array:
    """The columns of U, from ``Q R = U S``: those of Q with the phases of R's diagonal; Q's own for zeros of S."""
    kind: Any = triangular.dtype
    identity = np.eye(sizes_of("svd", triangular)[0], columns, dtype=kind.numpy)
    return orthogonal * expanded(phases(sum(triangular * as_array(identity), axis=-1)), -2)


class EighResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """``x = U @ diag(S) @ Vh``."""

    U: Any
    S: Any
    Vh: Any
