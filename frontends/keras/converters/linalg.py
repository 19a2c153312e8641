"""Products of matrices and tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from irkit.frontends.keras.converters.reduce import axes_of, reduced
from irkit.frontends.keras.converters.shape import target
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Tensor


def shape_of(x: Any) -> tuple[Any, ...]:
    """The shape of an argument."""
    return x.shape if isinstance(x, Value) else np.shape(x)


def product(c: Emitter, a: Tensor, b: Tensor, dtype: str) -> Tensor:
    """A matrix product; of small integers in int32, which has one."""
    wide = "int32" if dtype in ("bool", "int8", "uint8", "int16", "uint16") else dtype
    return c.cast(c.b.MatMul(c.cast(a, wide), c.cast(b, wide)), dtype)


@converter("Matmul", "Dot", "Inner", "Vdot")
def matmul(c: Emitter, op: Any, a: Any, b: Any) -> Any:
    dtype = c.out.dtype
    ranks = len(shape_of(a)), len(shape_of(b))
    x, y = c.get(a, dtype), c.get(b, dtype)
    if op.kind == "Vdot":
        return product(c, c.b.Reshape(x, np.array([-1])), c.b.Reshape(y, np.array([-1])), dtype)
    if op.kind != "Matmul" and 0 in ranks:
        return c.b.Mul(x, y)
    if op.kind == "Inner":
        return contracted(c, x, y, shape_of(a), shape_of(b), [ranks[0] - 1], [ranks[1] - 1])
    if op.kind == "Dot" and ranks[1] > 2:
        return contracted(c, x, y, shape_of(a), shape_of(b), [ranks[0] - 1], [ranks[1] - 2])
    return product(c, x, y, dtype)


@converter("Tensordot")
def tensordot(c: Emitter, op: Any, a: Any, b: Any) -> Tensor:
    dtype, ranks = c.out.dtype, (len(shape_of(a)), len(shape_of(b)))
    axes = op.axes
    if isinstance(axes, int):
        pairs = list(range(ranks[0] - axes, ranks[0])), list(range(axes))
    else:
        pairs = tuple([v] if isinstance(v, int) else list(v) for v in axes)
    mine, theirs = ([v % r for v in side] for side, r in zip(pairs, ranks, strict=True))
    return contracted(c, c.get(a, dtype), c.get(b, dtype), shape_of(a), shape_of(b), mine, theirs)


def contracted(
    c: Emitter, x: Tensor, y: Tensor, a: Sequence[Any], b: Sequence[Any], mine: Sequence[int], theirs: Sequence[int]
) -> Tensor:
    """The sum of products over some axes: as the product of two matrices."""
    outer = [i for i in range(len(a)) if i not in mine]
    inner = [i for i in range(len(b)) if i not in theirs]
    order = [*outer, *mine]
    x = x if order == sorted(order) else c.b.Transpose(x, perm=order)
    back = [*theirs, *inner]
    y = y if back == sorted(back) else c.b.Transpose(y, perm=back)
    width = math.prod([a[i] for i in mine])
    left = [a[i] for i in outer]
    x = x if len(mine) == 1 else c.b.Reshape(x, target(c, [*left, width], [a[i] for i in order]))
    count = math.prod([b[i] for i in inner])
    y = y if len(theirs) == 1 and len(inner) <= 1 else c.b.Reshape(y, target(c, [width, count]))
    made = product(c, x, y, str(x.dtype))
    if len(inner) == 1:
        return made
    return c.b.Reshape(made, target(c, [*left, *(b[i] for i in inner)], [*left, count]))


@converter("Einsum")
def einsum(c: Emitter, op: Any, *operands: Any) -> Any:
    """A dense layer's product as a MatMul; anything else as ONNX's Einsum."""
    dtype = c.out.dtype
    equation = op.subscripts.replace(" ", "")
    if len(operands) == 2:
        made = _dense(c, equation, *operands, dtype)
        if made is not None:
            return made
    wide = "int32" if dtype in ("bool", "int8", "uint8", "int16", "uint16") else dtype
    return c.cast(c.b.Einsum(*(c.get(x, wide) for x in operands), equation=equation), dtype)


def _dense(c: Emitter, equation: str, x: Any, kernel: Any, dtype: str) -> Tensor | None:
    """``...k,k...`` with all of k last in the one and first in the other."""
    found = re.fullmatch(r"(\.\.\.)?(\w+),(\w+)->(\.\.\.)?(\w*)", equation)
    if found is None or found[1] != found[4]:
        return None
    left, right, result = found[2], found[3], found[5]
    summed = [s for s in left if s in right and s not in result]
    n = len(summed)
    if not n or left[-n:] != "".join(summed) or right[:n] != "".join(summed) or result != left[:-n] + right[n:]:
        return None
    if set(left[:-n]) & set(right):
        return None
    a, b = shape_of(x), shape_of(kernel)
    return contracted(
        c,
        c.get(x, dtype),
        c.get(kernel, dtype),
        a,
        b,
        list(range(len(a) - n, len(a))),
        list(range(n)),
    )


@converter("Outer", "Kron")
def outer(c: Emitter, op: Any, a: Any, b: Any) -> Tensor:
    dtype = c.out.dtype
    if op.kind == "Outer":
        x = c.b.Reshape(c.get(a, dtype), np.array([-1, 1]))
        return c.b.Mul(x, c.b.Reshape(c.get(b, dtype), np.array([1, -1])))
    rank = len(c.out.shape)
    shapes = [[1] * (rank - len(s)) + list(s) for s in (shape_of(a), shape_of(b))]
    x = c.b.Reshape(c.get(a, dtype), target(c, [v for s in shapes[0] for v in (s, 1)]))
    y = c.b.Reshape(c.get(b, dtype), target(c, [v for s in shapes[1] for v in (1, s)]))
    return c.b.Reshape(c.b.Mul(x, y), target(c, c.out.shape))


@converter("Cross")
def cross(c: Emitter, op: Any, a: Any, b: Any) -> Tensor:
    """Of vectors of three: each part from the two others."""
    axis = getattr(op, "axis", None)
    axes = [axis] if axis is not None else [op.axisa, op.axisb, op.axisc]
    if any(v not in (-1, len(c.out.shape) - 1) for v in axes):
        raise c.refusal("a cross product along another axis than the last has no form here", "move the axis first")
    if shape_of(a)[-1] != 3 or shape_of(b)[-1] != 3:
        raise c.refusal("a cross product of vectors of two has no form here", "give them a third part")
    dtype = c.out.dtype

    def part(x: Any, *places: int) -> Tensor:
        return c.b.Gather(c.get(x, dtype), np.array(places), axis=-1)

    ahead = c.b.Mul(part(a, 1, 2, 0), part(b, 2, 0, 1))
    return c.b.Sub(ahead, c.b.Mul(part(a, 2, 0, 1), part(b, 1, 2, 0)))


@converter("Norm")
def norm(c: Emitter, op: Any, x: Any) -> Any:
    dtype, order = c.out.dtype, op.ord
    axes = axes_of(op.axis, x.rank)
    keep = bool(op.keepdims)
    matrix = len(axes) == 2 and order is not None
    if order is None or order == "fro" or (order == 2 and not matrix):
        return reduced(c, "ReduceL2", x, axes, keep, dtype)
    size = c.spread(c.b.Abs, x, dtype=dtype)
    if matrix:
        if order not in (1, -1, math.inf, -math.inf, "inf"):
            raise c.refusal(f"the matrix norm of order {order} needs singular values, which ONNX has not")
        order = math.inf if order == "inf" else order
        first, second = (axes[0], axes[1]) if abs(order) == 1 else (axes[1], axes[0])
        total = reduced(c, "ReduceSum", size, first, True, dtype)
        found = reduced(c, "ReduceMax" if order > 0 else "ReduceMin", total, second, True, dtype)
        return found if keep else c.b.Squeeze(c.get(found), np.array(axes))
    if order in (math.inf, "inf"):
        return reduced(c, "ReduceMax", size, axes, keep, dtype)
    if order == -math.inf:
        return reduced(c, "ReduceMin", size, axes, keep, dtype)
    if order == 0:
        there = c.spread(lambda t: c.cast(c.b.Greater(t, 0.0), dtype), size)
        return reduced(c, "ReduceSum", there, axes, keep, dtype)
    if order == 1:
        return reduced(c, "ReduceL1", x, axes, keep, dtype)
    powers = c.spread(lambda t: c.b.Pow(t, float(order)), size)
    return c.spread(lambda t: c.b.Pow(t, 1 / float(order)), reduced(c, "ReduceSum", powers, axes, keep, dtype))


@converter("Det")
def det(c: Emitter, op: Any, x: Any) -> Tensor:
    return c.b.Det(c.get(x))


@converter("Logdet")
def logdet(c: Emitter, op: Any, x: Any) -> Tensor:
    return c.b.Log(c.b.Det(c.get(x)))


@converter("CDist")
def cdist(c: Emitter, op: Any, a: Any, b: Any) -> Value:
    """Euclidean distances of all pairs of rows."""
    x = c.b.Unsqueeze(c.get(a, c.out.dtype), np.array([-2]))
    y = c.b.Unsqueeze(c.get(b, c.out.dtype), np.array([-3]))
    return c.value(c.b.ReduceL2(c.b.Sub(x, y), np.array([-1]), keepdims=0))
