"""Gather and scatter of every kind, sorting, and what else picks elements: copies of one element add up."""

from __future__ import annotations

from collections.abc import Callable

from irkit.ir.builder import Tensor
from irkit.passes.autodiff.registry import Gradients, Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules.shape import copies, places, put_back

proven_zero("NonZero NonMaxSuppression", "gives indices")
proven_zero("Gather GatherElements GatherND ScatterElements ScatterND", "indices", [1])
proven_zero("OneHot", "indices and a size", [0, 1])
proven_zero("Compress", "a condition", [1])
proven_zero("TopK", "how many", [1])
proven_zero("TensorScatter", "indices", [2])


@vjp("Gather")
def gather(g: Vjp) -> Tensor:
    """The rows are added up where they came from; another axis than the first is brought to the front."""
    b, x, indices = g.b, g.x(0), g.x(1)
    rank, picked = g.rank(x), g.rank(indices)
    axis = g.attr("axis") % rank
    ct, shape = g.ct, g.shape_of(x)
    order = [axis, *(i for i in range(rank) if i != axis)]
    if axis:
        # [before, indices, after] -> [indices, before, after]
        ct = b.Transpose(ct, perm=[*range(axis, axis + picked), *range(axis), *range(axis + picked, rank + picked - 1)])
        shape = b.Gather(shape, g.i64(order))
    zeros = b.Expand(g.const(0), shape)
    found = b.ScatterND(zeros, b.Unsqueeze(g.cast(indices, "int64"), g.i64([-1])), ct, reduction="add")
    return b.Transpose(found, perm=[order.index(i) for i in range(rank)]) if axis else found


@vjp("GatherElements")
def gather_elements(g: Vjp) -> Tensor:
    zeros = g.zeros_like(g.x(0))
    return g.b.ScatterElements(zeros, g.x(1), g.ct, axis=g.attr("axis"), reduction="add")


@vjp("GatherND")
def gather_nd(g: Vjp) -> Tensor:
    batch = g.attr("batch_dims")
    if not batch:
        return g.b.ScatterND(g.zeros_like(g.x(0)), g.x(1), g.ct, reduction="add")
    return copies(g, lambda p: g.b.GatherND(p, g.x(1), batch_dims=batch))


@vjp("ScatterElements")
def scatter_elements(g: Vjp) -> Gradients:
    b, axis, indices = g.b, g.attr("axis"), g.x(1)
    return _scatter(
        g,
        lambda into, updates, reduction: b.ScatterElements(into, indices, updates, axis=axis, reduction=reduction),
        lambda value: b.GatherElements(value, indices, axis=axis),
    )


@vjp("ScatterND")
def scatter_nd(g: Vjp) -> Gradients:
    b, indices = g.b, g.x(1)
    return _scatter(
        g,
        lambda into, updates, reduction: b.ScatterND(into, indices, updates, reduction=reduction),
        lambda value: b.GatherND(value, indices),
    )


def _scatter(g: Vjp, scatter: Callable[[Tensor, Tensor, str], Tensor], pick: Callable[[Tensor], Tensor]) -> Gradients:
    """By reduction. Without one it is not defined which of several updates of a place counts: each gets it."""
    b, data, updates, ct = g.b, g.x(0), g.x(2), g.ct
    match g.attr("reduction"):
        case "add":
            return ct, None, pick(ct) if g.needs(2) else None
        case "mul":
            return _scatter_product(g, scatter, pick)
        case "max" | "min":
            y = g.y()
            kept = g.float_of(b.Equal(data, y), ct)
            won = g.float_of(b.Equal(updates, pick(y)), ct)
            share = b.Div(ct, b.Max(scatter(kept, won, "add"), g.const(1)))
            return b.Mul(share, kept), None, b.Mul(pick(share), won) if g.needs(2) else None
        case _:
            zeros = g.zeros_like(updates)
            first = scatter(ct, zeros, "none") if g.needs(0) else None
            return first, None, pick(ct) if g.needs(2) else None


def _scatter_product(
    g: Vjp, scatter: Callable[[Tensor, Tensor, str], Tensor], pick: Callable[[Tensor], Tensor]
) -> Gradients:
    """The product of the others: zeros are counted apart, so that one zero has the product of the rest."""
    b, data, updates, ct = g.b, g.x(0), g.x(2), g.ct
    first = None
    if g.needs(0):
        first = b.Mul(ct, scatter(b.Expand(g.const(1), g.shape_of(data)), updates, "mul"))
    if not g.needs(2):
        return (first,)
    zero, one = g.const(0), g.const(1)
    is_zero = b.Equal(updates, zero)
    safe = b.Where(is_zero, one, updates)
    product = pick(scatter(data, safe, "mul"))
    zeros = pick(scatter(b.Expand(zero, g.shape_of(data)), g.float_of(is_zero, ct), "add"))
    alone = b.Where(b.Equal(zeros, one), product, zero)
    none = b.Where(b.Equal(zeros, zero), b.Div(product, safe), zero)
    return first, None, b.Mul(pick(ct), b.Where(is_zero, alone, none))


@vjp("TensorScatter")
def tensor_scatter(g: Vjp) -> Gradients:
    b, past, update, indices = g.b, g.x(0), g.x(1), g.x(2)
    options = {"axis": g.attr("axis"), "mode": g.attr("mode")}
    first = second = None
    if g.needs(0):
        first = b.TensorScatter(g.ct, g.zeros_like(update), indices, **options)
    if g.needs(1):
        # Place 0 collects what no update wrote.
        nowhere = b.Expand(g.i64(0), g.shape_of(past))
        source = b.TensorScatter(nowhere, b.Add(places(g, update), g.i64(1)), indices, **options)
        count = b.Add(g.count(update), g.i64([1]))
        zeros = b.Expand(g.const(0), count)
        flat = g.i64([-1])
        found = b.ScatterElements(zeros, b.Reshape(source, flat), b.Reshape(g.ct, flat), reduction="add")
        second = g.reshape_like(b.Slice(found, g.i64([1]), count, g.i64([0])), update)
    return first, second


@vjp("OneHot")
def one_hot(g: Vjp) -> Gradients:
    b = g.b
    hot = b.OneHot(g.x(0), g.x(1), b.constant([0, 1], g.ct.dtype), axis=g.attr("axis"))
    on = b.ReduceSum(b.Mul(g.ct, hot), keepdims=0)
    off = b.Sub(b.ReduceSum(g.ct, keepdims=0), on)
    flat = g.i64([1])
    return None, None, b.Concat(b.Reshape(off, flat), b.Reshape(on, flat), axis=0)


@vjp("Compress")
def compress(g: Vjp) -> Tensor:
    return copies(g, lambda p: g.b.Compress(p, g.x(1), axis=g.attr("axis")))


@vjp("TopK")
def top_k(g: Vjp) -> Tensor:
    return g.b.ScatterElements(g.zeros_like(g.x(0)), g.y(1), g.ct, axis=g.attr("axis"), reduction="add")


@vjp("Unique")
def unique(g: Vjp) -> Tensor:
    """Each value counts as the copy of its first occurrence."""
    b, x, first = g.b, g.x(0), g.y(1)
    axis = g.attr("axis")
    if axis is None:
        return put_back(g, x, first, g.ct)
    return put_back(g, x, b.Gather(places(g, x), first, axis=axis), g.ct)
