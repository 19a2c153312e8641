"""Ops that rearrange elements, and those that ask for a shape.

Results are views of the inputs wherever NumPy can make one; Expand's is read-only and has strides of zero.
Pad removes what negative pads take away first and pads what is left, in every mode; reflect and wrap go around as
often as needed. Reshape infers a -1 next to dimensions copied by 0 from the dimensions not copied, so that an empty
batch keeps the other dimensions that a full one has. A repeated axis, which the specification leaves undefined, is an
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import normalize_axes, normalize_axis
from irkit.backends.numpy.kernels._indexing import Array, integers
from irkit.backends.numpy.registry import KernelError, kernel


@kernel("Reshape")
def reshape(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    target = integers(shape, "shape")
    wrong = KernelError(f"shape {target} does not fit data of shape {data.shape} ({data.size} elements)")
    if any(d < -1 for d in target) or target.count(-1) > 1:
        raise KernelError(f"shape {target} holds a negative dimension other than one -1")
    copied: set[int] = set()
    if not allowzero:
        copied = {i for i, d in enumerate(target) if d == 0}
        if any(i >= data.ndim for i in copied):
            raise KernelError(f"shape {target} copies a dimension that data of shape {data.shape} does not have")
        target = [data.shape[i] if i in copied else d for i, d in enumerate(target)]
    if -1 in target:
        if allowzero and 0 in target:
            raise KernelError(f"shape {target} holds both 0 and -1, which leaves -1 undetermined")
        elements = prod(d for i, d in enumerate(data.shape) if i not in copied)
        known = prod(d for i, d in enumerate(target) if i not in copied and d != -1)
        if known == 0 or elements % known:
            raise wrong
        target[target.index(-1)] = elements // known
    if prod(target) != data.size:
        raise wrong
    return data.reshape(target)


@kernel("Flatten")
def flatten(data: Array, *, axis: int = 1) -> Array:
    rank = data.ndim
    if not -rank <= axis <= rank:
        raise KernelError(f"axis {axis} is out of range [-{rank}, {rank}] for data of shape {data.shape}")
    axis = axis + rank if axis < 0 else axis
    return data.reshape(prod(data.shape[:axis]), prod(data.shape[axis:]))


@kernel("Squeeze")
def squeeze(data: Array, axes: Array | None = None) -> Array:
    if axes is None:
        return data.reshape([d for d in data.shape if d != 1])
    gone = normalize_axes(integers(axes, "axes"), data.ndim)
    for axis in gone:
        if data.shape[axis] != 1:
            raise KernelError(f"axis {axis} of shape {data.shape} has dimension {data.shape[axis]}, not 1")
    return data.reshape([d for i, d in enumerate(data.shape) if i not in gone])


@kernel("Unsqueeze")
def unsqueeze(data: Array, axes: Array) -> Array:
    wanted = integers(axes, "axes")
    rank = data.ndim + len(wanted)
    new = set(normalize_axes(wanted, rank))
    dims = iter(data.shape)
    return data.reshape([1 if i in new else next(dims) for i in range(rank)])


@kernel("Transpose")
def transpose(data: Array, *, perm: Sequence[int] | None = None) -> Array:
    if perm is None:
        return data.transpose()
    if sorted(perm) != list(range(data.ndim)):
        raise KernelError(f"perm {list(perm)} is no permutation of the axes of shape {data.shape}")
    return data.transpose(perm)


def join(parts: Sequence[Array], axis: int) -> Array:
    """Concatenates tensors of equal dtype that differ at most in the dimension of one axis."""
    first = parts[0]
    axis = normalize_axis(axis, first.ndim)
    for i, part in enumerate(parts):
        others = part.shape[:axis] + part.shape[axis + 1 :]
        if part.ndim != first.ndim or others != first.shape[:axis] + first.shape[axis + 1 :]:
            raise KernelError(f"tensor {i} has shape {part.shape}, which does not join {first.shape} on axis {axis}")
        if part.dtype != first.dtype:
            raise KernelError(f"tensor {i} has dtype {part.dtype}, tensor 0 has {first.dtype}")
    return np.concatenate(parts, axis=axis)


@kernel("Concat")
def concat(*inputs: Array, axis: int) -> Array:
    return join(inputs, axis)


def chop(data: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Consecutive slices of the sizes given, which must add up to the dimension of the axis."""
    dim = data.shape[axis]
    if any(size < 0 for size in sizes) or sum(sizes) != dim:
        raise KernelError(f"split {list(sizes)} does not add up to dimension {dim} of axis {axis}")
    parts: list[Array] = []
    start = 0
    lead = (slice(None),) * axis
    for size in sizes:
        parts.append(data[(*lead, slice(start, start + size))])
        start += size
    return parts


@kernel("Split")
def split(
    data: Array, split: Array | None = None, *, axis: int = 0, num_outputs: int | None = None, n_out: int
) -> tuple[Array, ...]:
    axis = normalize_axis(axis, data.ndim)
    if split is not None:
        sizes = integers(split, "split")
    else:
        count = n_out if num_outputs is None else num_outputs
        if count < 1:
            raise KernelError(f"num_outputs is {count}, which must be positive")
        dim = data.shape[axis]
        chunk = -(-dim // count)
        sizes = [max(0, min(chunk, dim - i * chunk)) for i in range(count)]
    if len(sizes) != n_out:
        raise KernelError(f"split into {len(sizes)} parts, but the node has {n_out} outputs")
    return tuple(chop(data, sizes, axis))


def clamped_slice(start: int, end: int, step: int, dim: int) -> slice:
    """The Python slice that takes what ONNX's Slice takes from an axis: the specification clamps otherwise."""
    if step == 0:
        raise KernelError("a step of Slice is 0")
    if dim == 0:
        return slice(0, 0)
    start = start + dim if start < 0 else start
    end = end + dim if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), dim), min(max(end, 0), dim), step)
    start = min(max(start, 0), dim - 1)
    end = min(max(end, -1), dim - 1)
    # A Python slice reads an end of -1 as the last element; None is what goes through element 0.
    return slice(start, None if end == -1 else end, step)


@kernel("Slice")
def slice_(data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    first, last = integers(starts, "starts"), integers(ends, "ends")
    along = list(range(len(first))) if axes is None else integers(axes, "axes")
    by = [1] * len(first) if steps is None else integers(steps, "steps")
    if not len(first) == len(last) == len(along) == len(by):
        raise KernelError(
            f"starts, ends, axes and steps hold {len(first)}, {len(last)}, {len(along)} and {len(by)} elements"
        )
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(normalize_axes(along, data.ndim), first, last, by, strict=True):
        index[axis] = clamped_slice(start, end, step, data.shape[axis])
    return data[tuple(index)]


@kernel("Expand")
def expand(data: Array, shape: Array, *, budget: Any) -> Array:
    wanted = integers(shape, "shape")
    rank = max(data.ndim, len(wanted))
    ours = (1,) * (rank - data.ndim) + data.shape
    theirs = [1] * (rank - len(wanted)) + wanted
    target: list[int] = []
    for a, b in zip(ours, theirs, strict=True):
        if b < 0 or (a != b and a != 1 and b != 1):
            raise KernelError(f"data of shape {data.shape} does not broadcast to {wanted}")
        target.append(b if a == 1 else a)
    budget.allocate(prod(target) * data.itemsize)
    return np.broadcast_to(data, target)


@kernel("Tile")
def tile(data: Array, repeats: Array, *, budget: Any) -> Array:
    times = integers(repeats, "repeats")
    if len(times) != data.ndim or any(t < 0 for t in times):
        raise KernelError(f"repeats {times} must hold one non-negative number for each axis of shape {data.shape}")
    budget.allocate(data.nbytes * prod(times))
    return np.tile(data, times)


def _pad_index(dim: int, before: int, after: int, mode: str) -> Array:
    """For each position along a padded axis, the position it is copied from."""
    index = np.arange(-before, dim + after)
    if mode == "edge":
        return index.clip(0, dim - 1)
    if mode == "wrap":
        return index % dim
    period = max(2 * (dim - 1), 1)
    index = index % period
    return np.minimum(index, 2 * (dim - 1) - index)


@kernel("Pad")
def pad(
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
    budget: Any,
) -> Array:
    amounts = integers(pads, "pads")
    along = list(range(data.ndim)) if axes is None else normalize_axes(integers(axes, "axes"), data.ndim)
    if len(amounts) != 2 * len(along):
        raise KernelError(f"pads holds {len(amounts)} numbers for {len(along)} axes, which take {2 * len(along)}")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise KernelError(f"mode {mode!r} is none of constant, reflect, edge, wrap")
    before, after = [0] * data.ndim, [0] * data.ndim
    crop = [slice(None)] * data.ndim
    for i, axis in enumerate(along):
        low, high, dim = amounts[i], amounts[i + len(along)], data.shape[axis]
        if max(-low, 0) + max(-high, 0) > dim:
            raise KernelError(f"pads {low} and {high} remove more than dimension {dim} of axis {axis}")
        crop[axis] = slice(max(-low, 0), dim - max(-high, 0))
        before[axis], after[axis] = max(low, 0), max(high, 0)
    kept = data[tuple(crop)]
    shape = [low + dim + high for low, dim, high in zip(before, kept.shape, after, strict=True)]
    budget.allocate(prod(shape) * data.itemsize)
    if mode == "constant":
        if constant_value is None:
            out = np.full(shape, "", dtype=object) if data.dtype == object else np.zeros(shape, dtype=data.dtype)
        elif constant_value.size != 1:
            raise KernelError(f"constant_value must hold one element, not shape {constant_value.shape}")
        else:
            out = np.empty(shape, dtype=data.dtype)
            out[...] = constant_value.reshape(())
        out[tuple(slice(low, low + dim) for low, dim in zip(before, kept.shape, strict=True))] = kept
        return out
    for axis in along:
        if before[axis] or after[axis]:
            dim = kept.shape[axis]
            if dim == 0:
                raise KernelError(f"axis {axis} is empty: mode {mode!r} has nothing to pad it with")
            kept = kept.take(_pad_index(dim, before[axis], after[axis], mode), axis=axis)
    return kept


@kernel("Shape")
def shape(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    rank = data.ndim
    last = rank if end is None else end
    low, high = (min(max(i + rank if i < 0 else i, 0), rank) for i in (start, last))
    return np.array(data.shape[low:high], dtype=np.int64)


@kernel("Size")
def size(data: Array) -> Array:
    return np.array(data.size, dtype=np.int64)


@kernel("Identity")
def identity(value: Any) -> Any:
    return value


def _check_blocks(data: Array, blocksize: int, mode: str) -> None:
    if data.ndim != 4:
        raise KernelError(f"input must have shape [N, C, H, W], not {data.shape}")
    if blocksize < 1:
        raise KernelError(f"blocksize is {blocksize}, which must be positive")
    if mode not in ("DCR", "CRD"):
        raise KernelError(f"mode {mode!r} is neither DCR nor CRD")


@kernel("DepthToSpace")
def depth_to_space(data: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    _check_blocks(data, blocksize, mode)
    n, c, h, w = data.shape
    b = blocksize
    if c % (b * b):
        raise KernelError(f"{c} channels are not divisible by blocksize squared, {b * b}")
    depth = c // (b * b)
    if mode == "DCR":
        blocks = data.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = data.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, depth, h * b, w * b)


@kernel("SpaceToDepth")
def space_to_depth(data: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    _check_blocks(data, blocksize, mode)
    n, c, h, w = data.shape
    b = blocksize
    if h % b or w % b:
        raise KernelError(f"height {h} and width {w} are not divisible by blocksize {b}")
    blocks = data.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(n, c * b * b, h // b, w // b)


@kernel("ReverseSequence")
def reverse_sequence(data: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    if data.ndim < 2 or {batch_axis, time_axis} != {0, 1}:
        raise KernelError(
            f"batch_axis {batch_axis} and time_axis {time_axis} must be 0 and 1 in either order, on a tensor of rank 2 "
            f"or more, not shape {data.shape}"
        )
    steps, batch = data.shape[time_axis], data.shape[batch_axis]
    if sequence_lens.shape != (batch,):
        raise KernelError(f"sequence_lens has shape {sequence_lens.shape}, not ({batch},)")
    if batch and (int(sequence_lens.min()) < 0 or int(sequence_lens.max()) > steps):
        raise KernelError(f"sequence_lens {sequence_lens.tolist()} are not all in [0, {steps}]")
    time = np.arange(steps)[:, np.newaxis]
    source = np.where(time < sequence_lens, sequence_lens - 1 - time, time)
    if time_axis == 0:
        return data[source, np.arange(batch)]
    return data[np.arange(batch)[:, np.newaxis], source.T]
