"""Matrix products, Einsum, determinants, triangles."""

from __future__ import annotations

from irkit.errors import UnsupportedError
from irkit.ir.builder import Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp

proven_zero("MatMulInteger QLinearMatMul", "gives integers")
proven_zero("Trilu", "a diagonal's number", [1])


def _swapped(g: Vjp, x: Tensor) -> Tensor:
    """The matrices transposed."""
    rank = g.rank(x)
    return g.b.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@vjp("MatMul")
def matmul(g: Vjp) -> Gradients:
    b, x, y, ct = g.b, g.x(0), g.x(1), g.ct
    if g.rank(x) == 1 and g.rank(y) == 1:
        return (
            b.Mul(ct, y) if g.needs(0) else None,
            b.Mul(ct, x) if g.needs(1) else None,
        )
    if g.rank(x) == 2 and g.rank(y) == 2:
        return (
            b.Gemm(ct, y, transB=1) if g.needs(0) else None,
            b.Gemm(x, ct, transA=1) if g.needs(1) else None,
        )
    # A vector stands for a matrix of one row (left) or one column (right).
    row, column = g.rank(x) == 1, g.rank(y) == 1
    left = b.Unsqueeze(x, g.i64([0])) if row else x
    right = b.Unsqueeze(y, g.i64([1])) if column else y
    if row:
        ct = b.Unsqueeze(ct, g.i64([-2]))
    if column:
        ct = b.Unsqueeze(ct, g.i64([-1]))
    first = second = None
    if g.needs(0):
        first = g.unbroadcast_to(b.MatMul(ct, _swapped(g, right)), left)
        first = b.Squeeze(first, g.i64([0])) if row else first
    if g.needs(1):
        if g.rank(right) == 2 and g.rank(left) > 2:
            # One product over all rows instead of a batch of them whose results are summed.
            rows = b.Reshape(left, b.Concat(g.i64([-1]), g.size(left, -1), axis=0))
            cts = b.Reshape(ct, b.Concat(g.i64([-1]), g.size(ct, -1), axis=0))
            second = b.Gemm(rows, cts, transA=1)
        else:
            second = g.unbroadcast_to(b.MatMul(_swapped(g, left), ct), right)
        second = b.Squeeze(second, g.i64([1])) if column else second
    return first, second


@vjp("Gemm")
def gemm(g: Vjp) -> Gradients:
    """``Y = alpha A' B' + beta C``."""
    b, ct, beta = g.b, g.ct, g.attr("beta")
    alpha = None if g.attr("alpha") == 1 else g.attr("alpha")
    trans_a, trans_b = int(g.attr("transA")), int(g.attr("transB"))
    first = second = third = None
    if g.needs(0):
        if trans_a:
            first = b.Gemm(g.x(1), ct, transA=trans_b or None, transB=1, alpha=alpha)
        else:
            first = b.Gemm(ct, g.x(1), transB=1 - trans_b or None, alpha=alpha)
    if g.needs(1):
        if trans_b:
            second = b.Gemm(ct, g.x(0), transA=1, transB=trans_a or None, alpha=alpha)
        else:
            second = b.Gemm(g.x(0), ct, transA=1 - trans_a or None, alpha=alpha)
    if g.needs(2):
        scaled = ct if beta == 1 else b.Mul(ct, g.const(beta))
        third = g.unbroadcast(scaled, 2)
    return first, second, third


@vjp("Trilu")
def trilu(g: Vjp) -> Tensor:
    return g.b.Trilu(g.ct, g.x(1), upper=g.attr("upper"))


@vjp("Det")
def det(g: Vjp) -> Tensor:
    """The cofactors: determinants of the minors, which need no inverse and hold for singular matrices too."""
    b, x = g.b, g.x(0)
    rank = g.rank(x)
    size = b.Reshape(g.size(x, rank - 1), g.i64([]))
    all_but_one = b.Range(g.i64(0), b.Sub(size, g.i64(1)), g.i64(1))
    column = b.Unsqueeze(b.Range(g.i64(0), size, g.i64(1)), g.i64([1]))
    # Row i lists the places without i.
    kept = b.Add(all_but_one, b.Cast(b.GreaterOrEqual(all_but_one, column), to=7))
    # [..., n, n] -> [..., i, rows, n] -> [..., i, rows, j, columns]
    minors = b.Gather(b.Gather(x, kept, axis=rank - 2), kept, axis=rank)
    batch = list(range(rank - 2))
    minors = b.Transpose(minors, perm=[*batch, rank - 2, rank, rank - 1, rank + 1])
    sign = b.Mod(b.Add(column, b.Transpose(column, perm=[1, 0])), g.i64(2))
    signs = b.Sub(g.const(1), b.Mul(g.const(2), g.cast(sign, g.ct)))
    ct = b.Unsqueeze(g.ct, g.i64([-2, -1]))
    return b.Mul(b.Mul(ct, b.Det(minors)), signs)


# Einsum ---------------------------------------------------------------------------------------------------------------


@vjp("Einsum")
def einsum(g: Vjp) -> Gradients:
    terms, output = _terms(g)
    return [_einsum_operand(g, i, terms, output) if g.needs(i) else None for i in range(g.n_operands)]


def _terms(g: Vjp) -> tuple[list[str], str]:
    """The labels of each operand and of the result, the ellipsis written out in labels of its own.

    Axes that an ellipsis stands for align from the right and broadcast, those of size 1 too.
    """
    equation = str(g.attr("equation")).replace(" ", "")
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    spread = [g.rank(g.x(i)) - len(t.replace("...", "")) if "..." in t else 0 for i, t in enumerate(terms)]
    longest = max(spread, default=0)
    free = [chr(c) for c in (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)) if chr(c) not in equation]
    if longest > len(free):
        raise UnsupportedError("there are not enough letters for its axes", op=g.op.name, where=where(g.op))
    hidden = "".join(free[:longest])
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        output = ("..." if "..." in left else "") + "".join(once)
    terms = [t.replace("...", hidden[longest - n :]) for t, n in zip(terms, spread, strict=True)]
    return terms, output.replace("...", hidden)


def _einsum_operand(g: Vjp, index: int, terms: list[str], output: str) -> Tensor:
    """The cotangent of an operand: the product of the result's and the others, with its labels as the result.

    A label that nothing else has is repeated along its axis; one that the operand repeats is put on the diagonal; an
    axis of size 1 that was broadcast is summed.
    """
    b, x = g.b, g.x(index)
    term = terms[index]
    labels = "".join(dict.fromkeys(term))
    others = [(t, g.x(i)) for i, t in enumerate(terms) if i != index]
    operands = [(output, g.ct), *others]
    known = set("".join(t for t, _ in operands))
    present = "".join(c for c in labels if c in known)
    equation = ",".join(t for t, _ in operands) + "->" + present
    found = b.Einsum(*(v for _, v in operands), equation=equation)
    diagonal = b.Einsum(x, equation=f"{term}->{labels}") if len(labels) < len(term) else x
    missing = [i for i, c in enumerate(labels) if c not in known]
    if missing:
        found = b.Unsqueeze(found, g.i64(missing))
    found = _fit(g, found, diagonal)
    if len(labels) == len(term):
        return found
    return _on_diagonal(g, found, term, labels, x)


def _fit(g: Vjp, value: Tensor, like: Tensor) -> Tensor:
    """A value summed along axes where the operand has size 1, and repeated along those where it has itself."""
    if value.shape == like.shape and value.shape is not None and None not in value.shape:
        return value
    b = g.b
    shape = g.shape_of(like)
    return b.Expand(g.unbroadcast_to(value, like), shape)


def _on_diagonal(g: Vjp, value: Tensor, term: str, labels: str, x: Tensor) -> Tensor:
    """Puts a value with labels ``ij`` where ``iij`` has equal places for equal labels, zeros elsewhere."""
    b = g.b
    seen: dict[str, int] = {}
    found = value
    # The value gets all axes: new ones for the repeated labels, broadcast against masks of the diagonals.
    axes = [i for i, c in enumerate(term) if term.index(c) != i]
    order = [labels.index(term[i]) for i in range(len(term)) if i not in axes]
    if order != list(range(len(order))):
        found = b.Transpose(found, perm=order)
    found = b.Unsqueeze(found, g.i64(axes))
    for i, c in enumerate(term):
        if c not in seen:
            seen[c] = i
            continue
        places = b.Range(g.i64(0), b.Reshape(g.size(x, i), g.i64([])), g.i64(1))
        rank = len(term)
        row = b.Unsqueeze(places, g.i64([k for k in range(rank) if k != seen[c]]))
        column = b.Unsqueeze(places, g.i64([k for k in range(rank) if k != i]))
        found = b.Mul(found, g.float_of(b.Equal(row, column), value))
    return found
