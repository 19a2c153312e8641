"""Operations that pick elements out, by place or by value: indexing, gathering, sorting, scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.frontends.keras.converters.elementwise import common
from irkit.frontends.keras.converters.shape import flipped, target
from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Tensor

FAR = 1 << 62


@converter("GetItem")
def get_item(c: Emitter, op: Any, x: Any, key: Any) -> Tensor:
    """Indexing as in NumPy: numbers, slices, an ellipsis, new axes, and at most one array."""
    keys = list(key) if isinstance(key, (tuple, list)) else [key]
    if sum(k is Ellipsis for k in keys) == 0:
        keys.append(Ellipsis)
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    used = sum(k is not None and k is not Ellipsis for k in keys)
    keys[at : at + 1] = [slice(None)] * (x.rank - used)
    starts: list[Any] = []
    ends: list[Any] = []
    axes: list[int] = []
    steps: list[int] = []
    gone: list[int] = []
    new: list[int] = []
    arrays: list[tuple[int, Any]] = []
    axis = place = 0
    for k in keys:
        if k is None:
            new.append(place)
            place += 1
            continue
        if isinstance(k, (int, Dim)) and not isinstance(k, bool):
            starts.append(k)
            ends.append(k + 1 if isinstance(k, Dim) or k != -1 else FAR)
            axes.append(axis)
            steps.append(1)
            gone.append(axis)
            place -= 1
        elif isinstance(k, slice):
            if k != slice(None):
                step = 1 if k.step is None else k.step
                starts.append((0 if step > 0 else FAR) if k.start is None else k.start)
                ends.append((FAR if step > 0 else -FAR) if k.stop is None else k.stop)
                axes.append(axis)
                steps.append(step)
        elif isinstance(k, (Value, np.ndarray, list)) and not (isinstance(k, Value) and k.dtype == "bool"):
            arrays.append((axis, k))
        else:
            raise c.refusal("indexing by truth values gives as many elements as are true", "use keras.ops.where")
        axis += 1
        place += 1
    made = c.get(x)
    if len(arrays) > 1 or (arrays and (gone or new)):
        raise c.refusal("indexing by several arrays at once has no form here", "use keras.ops.take in their place")
    if axes:
        made = c.b.Slice(made, c.vector(starts), c.vector(ends), np.array(axes), np.array(steps))
    for at, array in arrays:
        made = c.b.Gather(made, c.get(array, "int64"), axis=at)
    if gone:
        made = c.b.Squeeze(made, np.array(gone))
    return c.b.Unsqueeze(made, np.array(new)) if new else made


@converter("Take")
def take(c: Emitter, op: Any, x: Any, indices: Any) -> Tensor:
    """Gather; Keras's backends wrap a negative index round, as Gather does."""
    made, axis = c.get(x), op.axis
    if axis is None:
        made, axis = c.b.Reshape(made, np.array([-1])), 0
    index = c.get(indices if isinstance(indices, Value) else np.asarray(indices))
    kind = str(index.dtype)
    return c.b.Gather(made, index if kind in ("int32", "int64") else c.cast(index, "int64"), axis=axis)


@converter("TakeAlongAxis")
def take_along_axis(c: Emitter, op: Any, x: Any, indices: Any) -> Tensor:
    made, axis = c.get(x), op.axis
    index = c.get(indices if isinstance(indices, Value) else np.asarray(indices), "int64")
    if axis is None:
        return c.b.GatherElements(c.b.Reshape(made, np.array([-1])), c.b.Reshape(index, np.array([-1])), axis=0)
    own = indices.shape if isinstance(indices, Value) else np.shape(indices)
    axis %= x.rank
    wide = [a if i == axis or a == b or b == 1 else b for i, (a, b) in enumerate(zip(own, x.shape, strict=True))]
    if list(own) != wide:
        index = c.b.Expand(index, c.vector(wide))
    full = [b if i == axis else w for i, (b, w) in enumerate(zip(x.shape, wide, strict=True))]
    if list(x.shape) != full:
        made = c.b.Expand(made, c.vector(full))
    return c.b.GatherElements(made, index, axis=axis)


@converter("Slice")
def slice_(c: Emitter, op: Any, x: Any, start_indices: Any) -> Tensor:
    start = c.get(start_indices, "int64") if isinstance(start_indices, Value) else c.vector(_list(start_indices))
    if isinstance(start_indices, Value) and start_indices.rank == 0:
        start = c.b.Unsqueeze(start, [0])
    sizes = [FAR if isinstance(s, int) and s == -1 else s for s in op.shape]
    return c.b.Slice(c.get(x), start, c.b.Add(start, c.vector(sizes)), np.arange(x.rank))


def _list(x: Any) -> list[Any]:
    return [int(v) if not isinstance(v, (Dim, Value)) else v for v in (x.tolist() if isinstance(x, np.ndarray) else x)]


@converter("SliceUpdate")
def slice_update(c: Emitter, op: Any, x: Any, start_indices: Any, updates: Any) -> Tensor:
    """The rectangle that starts at an index replaced: by ScatterND with the places of all its elements."""
    b = c.b
    shape = updates.shape if isinstance(updates, Value) else np.shape(updates)
    start = (
        c.get(start_indices, "int64")
        if isinstance(start_indices, Value)
        else b.Concat(*(b.Reshape(c.get(v, "int64"), np.array([1])) for v in start_indices), axis=0)
    )
    places = []
    for axis, size in enumerate(shape):
        line = b.Range(0, b.Squeeze(c.size(size), [0]), 1)
        line = b.Add(line, b.Gather(start, np.asarray(axis)))
        line = b.Reshape(line, np.array([-1 if i == axis else 1 for i in range(len(shape))]))
        places.append(b.Unsqueeze(b.Expand(line, c.vector(shape)), np.array([len(shape)])))
    return b.ScatterND(c.get(x), b.Concat(*places, axis=-1), c.get(updates, c.out.dtype))


@converter("Scatter")
def scatter(c: Emitter, op: Any, indices: Any, values: Any) -> Tensor:
    zeros = c.b.Expand(c.get(np.zeros((), np.float32), c.out.dtype), c.vector(c.out.shape))
    return c.b.ScatterND(zeros, c.get(indices, "int64"), c.get(values, c.out.dtype), reduction="add")


@converter("ScatterUpdate")
def scatter_update(c: Emitter, op: Any, x: Any, indices: Any, updates: Any) -> Tensor:
    reduction = op.reduction or "none"
    return c.b.ScatterND(c.get(x), c.get(indices, "int64"), c.get(updates, c.out.dtype), reduction=reduction)


@converter("OneHot", "MultiHot")
def one_hot(c: Emitter, op: Any, x: Any) -> Any:
    """One-hot vectors; what is out of range gives zeros (a negative index does not count from the end)."""
    if op.sparse:
        raise c.refusal("sparse tensors have no form here", "leave sparse=True out")
    b, classes = c.b, c.static(op.num_classes, "the number of classes")
    shape = x.shape if isinstance(x, Value) else np.shape(x)
    wide = np.arange(classes)
    if op.kind == "OneHot":
        axis = op.axis % (len(shape) + 1)
        index = b.Unsqueeze(c.get(x, "int64"), np.array([axis]))
        line = wide.reshape([classes if i == axis else 1 for i in range(len(shape) + 1)])
        return c.cast(b.Equal(index, line), c.out.dtype)
    axis = op.axis % len(c.out.shape)
    index = b.Unsqueeze(c.get(x, "int64"), np.array([len(shape)]))
    hot = c.cast(b.Equal(index, wide), c.out.dtype)
    reduce_at = 1 if len(shape) > 1 else 0
    found = b.ReduceMax(hot, np.array([reduce_at]), keepdims=0)
    last = len(c.out.shape) - 1
    if axis == last:
        return found
    order = list(range(last))
    order.insert(axis, last)
    return b.Transpose(found, perm=order)


@converter("TopK")
def top_k(c: Emitter, op: Any, x: Any) -> list[Tensor]:
    values, index = c.b.TopK(c.get(x), c.size(op.k), axis=-1, largest=1, sorted=1)
    return [values, c.cast(index, c.outs[1].dtype)]


@converter("InTopK")
def in_top_k(c: Emitter, op: Any, targets: Any, predictions: Any) -> Tensor:
    """Whether fewer than k predictions are greater than that of the target."""
    b, scores = c.b, c.get(predictions)
    index = b.Unsqueeze(c.get(targets, "int64"), np.array([-1]))
    own = b.GatherElements(scores, index, axis=-1)
    above = b.ReduceSum(b.Cast(b.Greater(scores, own), to=7), np.array([-1]), keepdims=0)
    return b.And(b.Less(above, op.k), b.Not(b.IsNaN(b.Squeeze(own, np.array([-1])))))


@converter("Argmax", "Argmin")
def arg_max(c: Emitter, op: Any, x: Any) -> Tensor:
    made, axis = c.get(x), op.axis
    if str(made.dtype) == "bool":
        made = c.cast(made, "int32")
    keep = bool(op.keepdims)
    if axis is None:
        found = c.b.op(op.kind.replace("m", "M"), c.b.Reshape(made, np.array([-1])), axis=0, keepdims=0)
        return c.cast(c.b.Reshape(found, c.vector(c.out.shape)) if keep else found, c.out.dtype)
    found = c.b.op("ArgMax" if op.kind == "Argmax" else "ArgMin", made, axis=axis, keepdims=int(keep))
    return c.cast(found, c.out.dtype)


@converter("Sort", "Argsort")
def sort(c: Emitter, op: Any, x: Any) -> Tensor:
    """By TopK of the whole axis, smallest first. Keras's argsort is stable, as TopK is."""
    made, axis = c.get(x), op.axis
    if axis is None:
        made, axis = c.b.Reshape(made, np.array([-1])), 0
    if str(made.dtype) == "bool":
        made = c.cast(made, "int32")
    size = c.b.Shape(made, start=axis, end=None if axis == -1 else axis + 1)
    values, index = c.b.TopK(made, size, axis=axis, largest=0, sorted=1)
    return c.cast(values if op.kind == "Sort" else index, c.out.dtype)


@converter("SearchSorted", "Digitize")
def search_sorted(c: Emitter, op: Any, a: Any, b: Any) -> Tensor:
    """How many of the sorted values are less than each (right: not greater)."""
    ordered, x = (b, a) if op.kind == "Digitize" else (a, b)
    # Digitize tells the bin whose lower edge is not greater: the count of edges <= x.
    right = op.kind == "Digitize" or op.side == "right"
    dtype = common(c, ordered, x)
    own = x.rank if isinstance(x, Value) else np.ndim(x)
    at = c.b.Unsqueeze(c.get(x, dtype), np.array([own]))
    edges = c.get(ordered if isinstance(ordered, Value) else np.asarray(ordered), dtype)
    before = c.b.LessOrEqual(edges, at) if right else c.b.Less(edges, at)
    return c.cast(c.b.ReduceSum(c.cast(before, "int64"), np.array([-1]), keepdims=0), c.out.dtype)


@converter("Tril", "Triu")
def trilu(c: Emitter, op: Any, x: Any) -> Tensor:
    return c.b.Trilu(c.get(x), c.b.Squeeze(c.size(op.k), [0]), upper=int(op.kind == "Triu"))


@converter("Diagonal", "Diag", "Trace")
def diagonal(c: Emitter, op: Any, x: Any) -> Any:
    b = c.b
    if op.kind == "Diag" and x.rank == 1:
        size = c.static(x.shape[0], "the size of a diagonal")
        n, k = size + abs(op.k), op.k
        mask = np.eye(n, k=k, dtype=bool)
        line = b.Pad(c.get(x), np.array([max(k, 0) and 0, abs(k)]), None)
        wide = b.Unsqueeze(line, np.array([1 if k >= 0 else 0]))
        return b.Where(mask, wide, c.get(np.zeros(()), c.out.dtype))
    i, j = (0, 1) if op.kind == "Diag" else (op.axis1 % x.rank, op.axis2 % x.rank)
    offset = op.k if op.kind == "Diag" else op.offset
    rows, columns = c.static([x.shape[i], x.shape[j]], "the size of a matrix whose diagonal is taken")
    moved = b.Transpose(c.get(x), perm=[a for a in range(x.rank) if a not in (i, j)] + [i, j])
    at = np.arange(max(0, min(rows + min(offset, 0), columns - max(offset, 0))))
    flat = (at - min(offset, 0)) * columns + at + max(offset, 0)
    outer = [d for a, d in enumerate(x.shape) if a not in (i, j)]
    line = b.Gather(b.Reshape(moved, target(c, [*outer, rows * columns])), flat.astype(np.int64), axis=-1)
    if op.kind != "Trace":
        return line
    return c.cast(b.ReduceSum(c.cast(line, c.out.dtype), np.array([-1]), keepdims=0), c.out.dtype)


@converter("Bincount")
def bincount(c: Emitter, op: Any, x: Any) -> Tensor:
    """How often each number comes; the count of bins must be given, as that of the values is not known."""
    raise c.refusal(
        "the result of bincount has as many elements as the greatest value found",
        "use keras.ops.sum(keras.ops.one_hot(x, bins), axis=-2)",
    )


@converter("Nonzero", "Unique", "Histogram")
def by_value(c: Emitter, op: Any, *args: Any) -> Tensor:
    raise c.refusal(f"the shape of the result of {op.kind.lower()} depends on the values")


@converter("IsIn")
def is_in(c: Emitter, op: Any, x: Any, values: Any) -> Tensor:
    own = x.rank if isinstance(x, Value) else np.ndim(x)
    dtype = common(c, x, values)
    flat = c.b.Reshape(c.get(values, dtype), np.array([-1]))
    same = c.b.Equal(c.b.Unsqueeze(c.get(x, dtype), np.array([own])), flat)
    found = c.b.Cast(c.b.ReduceMax(c.b.Cast(same, to=6), np.array([-1]), keepdims=0), to=9)
    return c.b.Not(found) if op.invert else found


@converter("flip_time")
def flip_time(c: Emitter, op: Any, x: Any) -> Value:
    return flipped(c, x, [op.axis])
