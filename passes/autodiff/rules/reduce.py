"""Reductions and cumulative sums and products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irkit.dialects.ad.finite import is_finite
from irkit.errors import UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Vjp, proven_zero, vjp
from irkit.passes.autodiff.rules.elementwise import safe_inverse

proven_zero("ArgMax ArgMin", "gives indices")
proven_zero(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare CumSum CumProd",
    "axes",
    [1],
)


def _is_identity(g: Vjp) -> bool:
    """Whether nothing is reduced: no axes are given, which here means none."""
    axes = g.constant(1)
    none = g.x(1) is None or (axes is not None and axes.size == 0)
    return none and bool(g.attr("noop_with_empty_axes"))


def _all_axes(g: Vjp) -> bool:
    axes = g.constant(1)
    return (g.x(1) is None or (axes is not None and axes.size == 0)) and not g.attr("noop_with_empty_axes")


def _unreduced(g: Vjp, value: Tensor) -> Tensor:
    """A value of the result's shape, with the reduced axes as axes of size 1: it broadcasts to the operand."""
    if g.attr("keepdims") or _all_axes(g) or _is_identity(g):
        return value
    return g.b.Unsqueeze(value, g.x(1))


def _count(g: Vjp) -> Tensor:
    """How many elements each element of the result was made of, as a tensor of int64."""
    b, x, y = g.b, g.x(0), g.y()
    if _all_axes(g):
        return b.Size(x)
    # An empty result has no element that could tell.
    return b.Div(b.Size(x), b.Max(b.Size(y), g.b.constant(np.asarray(1, np.int64))))


def _known_count(g: Vjp) -> int | None:
    x, y = g.static_shape(g.x(0)), g.static_shape(g.y())
    if x is not None and y is not None:
        return int(np.prod(x)) // max(int(np.prod(y)), 1)
    axes, shape = g.ints(1), g.x(0).shape
    if axes is None or shape is None:
        return None
    sizes = [shape[a] for a in axes]
    return int(np.prod([s for s in sizes if isinstance(s, int)])) if all(isinstance(s, int) for s in sizes) else None


def divided_by_count(g: Vjp, value: Tensor, count: Tensor) -> Tensor:
    """A cotangent over a count, which itself may not be a number of float16."""
    wide = "float64" if value.dtype is not None and value.dtype.name == "float64" else "float32"
    count = g.cast(count, wide)
    return g.b.Div(value, count) if value.dtype is count.dtype else g.b.Mul(value, g.cast(g.b.Reciprocal(count), value))


def spread(g: Vjp, value: Tensor) -> Tensor:
    """A value of the result's shape, repeated along the reduced axes."""
    return g.b.Expand(_unreduced(g, value), g.shape_of(g.x(0)))


@vjp("ReduceSum")
def reduce_sum(g: Vjp) -> Tensor:
    return g.ct if _is_identity(g) else spread(g, g.ct)


@vjp("ReduceMean")
def reduce_mean(g: Vjp) -> Tensor:
    if _is_identity(g):
        return g.ct
    known = _known_count(g)
    if known is not None:
        return spread(g, g.b.Mul(g.ct, g.const(1 / max(known, 1))))
    return spread(g, divided_by_count(g, g.ct, _count(g)))


@vjp("ReduceMax", "ReduceMin")
def reduce_extremum(g: Vjp) -> Tensor:
    """Ties share the cotangent. They are counted in float32 at least: a count may be no number of float16."""
    if _is_identity(g):
        return g.ct
    b, x = g.b, g.x(0)
    wide = "float64" if x.dtype is not None and x.dtype.name == "float64" else "float32"
    won = g.cast(b.Equal(x, _unreduced(g, g.y())), wide)
    axes = [g.x(1)] if g.x(1) is not None else []
    empty = g.attr("noop_with_empty_axes")
    ties = b.ReduceSum(won, *axes, keepdims=1, noop_with_empty_axes=empty)
    share = b.Div(won, b.Max(ties, g.const(1, won)))
    return b.Mul(_unreduced(g, g.ct), g.cast(share, g.ct))


@vjp("ReduceL1")
def reduce_l1(g: Vjp) -> Tensor:
    return g.b.Mul(_unreduced(g, g.ct), g.b.Sign(g.x(0)))


@vjp("ReduceL2")
def reduce_l2(g: Vjp) -> Tensor:
    # At 0 the norm has a corner, where 0 is chosen.
    return g.b.Mul(_unreduced(g, g.b.Mul(g.ct, safe_inverse(g, g.y()))), g.x(0))


@vjp("ReduceSumSquare")
def reduce_sum_square(g: Vjp) -> Tensor:
    return g.scale(_unreduced(g, g.b.Add(g.ct, g.ct)), g.x(0))


@vjp("ReduceLogSumExp")
def reduce_log_sum_exp(g: Vjp) -> Tensor:
    b, x, y = g.b, g.x(0), g.y()
    if not is_finite(x.ssa):
        # exp(-inf - y) is 0 for every finite y, as it should be where all are -inf.
        y = b.Where(b.Equal(y, g.const(-np.inf, y)), g.const(0, y), y)
    return b.Mul(_unreduced(g, g.ct), b.Exp(b.Sub(x, _unreduced(g, y))))


@vjp("CumSum")
def cumsum(g: Vjp) -> Tensor:
    reverse = 0 if g.attr("reverse") else 1
    return g.b.CumSum(g.ct, g.x(1), exclusive=g.attr("exclusive"), reverse=reverse)


# Products: the product of the others, without division --------------------------------------------------------------


def _scan_axis(b: Builder, first: Tensor, scanned: Sequence[Tensor], axis: int, reverse: int, body: object) -> Tensor:
    """The outputs, along an axis, of a recurrence along it: the state begins as ``first``."""
    count = len(scanned)
    _, found = b.Scan(
        first,
        *scanned,
        num_scan_inputs=count,
        scan_input_axes=[axis] * count,
        scan_input_directions=[reverse] * count,
        scan_output_axes=[axis],
        scan_output_directions=[reverse],
        body=body,
    )
    return found


def _edge(g: Vjp, x: Tensor, axis: int, value: float) -> Tensor:
    """A tensor of one value, of the shape of ``x`` without the axis."""
    shape = g.shape_of(x)
    rank = g.rank(x)
    sizes = g.b.Gather(shape, g.i64([i for i in range(rank) if i != axis]))
    return g.b.Expand(g.const(value, x), sizes)


def _product_so_far(b: Builder, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return b.Mul(p, v), b.Identity(p)


def product_gradient(g: Vjp, x: Tensor, ct: Tensor, axis: int, *, exclusive: bool, reverse: bool) -> Tensor:
    """The cotangent of ``x`` from that of its cumulative product along an axis.

    With P the exclusive products from one side, the k-th is ``P_k R_k``, where
    ``R_k = ct_k + x_(k+1) R_(k+1)`` gathers from the other side; with ``exclusive`` the term ``ct_k`` comes one later.
    """
    b, direction = g.b, int(reverse)
    before = _scan_axis(b, _edge(g, x, axis, 1), [x], axis, direction, _product_so_far)

    def inclusive(b: Builder, s: Tensor, v: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        r = b.Add(c, s)
        return b.Mul(v, r), b.Identity(r)

    def later(b: Builder, s: Tensor, v: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return b.Add(c, b.Mul(v, s)), b.Identity(s)

    zero = _edge(g, x, axis, 0)
    after = _scan_axis(b, zero, [x, ct], axis, 1 - direction, later if exclusive else inclusive)
    return b.Mul(before, after)


@vjp("CumProd")
def cumprod(g: Vjp) -> Tensor:
    axis = _fixed_axes(g)[0]
    exclusive, reverse = bool(g.attr("exclusive")), bool(g.attr("reverse"))
    return product_gradient(g, g.x(0), g.ct, axis, exclusive=exclusive, reverse=reverse)


@vjp("ReduceProd")
def reduce_prod(g: Vjp) -> Tensor:
    if _is_identity(g):
        return g.ct
    b, x = g.b, g.x(0)
    if _all_axes(g):
        return b.Mul(g.reshape_like(_others(g, b.Reshape(x, g.i64([-1])), 0), x), g.ct)
    rank = g.rank(x)
    axes = _fixed_axes(g)
    if len(axes) == 1:
        return b.Mul(_others(g, x, axes[0]), _unreduced(g, g.ct))
    # Several axes become one, the last.
    order = [i for i in range(rank) if i not in axes] + axes
    moved = b.Transpose(x, perm=order)
    sizes = b.Concat(b.Gather(g.shape_of(x), g.i64(order[: rank - len(axes)])), g.count(x, axes), axis=0)
    others = g.reshape_like(_others(g, b.Reshape(moved, sizes, allowzero=1), rank - len(axes)), moved)
    return b.Mul(b.Transpose(others, perm=[order.index(i) for i in range(rank)]), _unreduced(g, g.ct))


def _fixed_axes(g: Vjp) -> list[int]:
    """The axes, in order and counted from the front.

    Raises:
        UnsupportedError: if they are known at run time only.
    """
    axes = g.ints(1)
    if axes is None:
        raise UnsupportedError(
            "the gradient of a product needs its axes to be constants",
            op=g.op.name,
            where=where(g.op),
            hint="fold constants first (pass constant-fold)",
        )
    rank = g.rank(g.x(0))
    return sorted(a % rank for a in axes)


def _others(g: Vjp, x: Tensor, axis: int) -> Tensor:
    """Per element the product of the others along an axis."""
    one = _edge(g, x, axis, 1)
    return g.b.Mul(
        _scan_axis(g.b, one, [x], axis, 0, _product_so_far), _scan_axis(g.b, one, [x], axis, 1, _product_so_far)
    )
