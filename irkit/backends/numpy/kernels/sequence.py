"""Sequences, which are Python lists, and optionals, which are the value or None.

No kernel changes a list that it is given. An element that is an input is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import normalize_axis, scalar
from irkit.backends.numpy.kernels._indexing import Array, integers
from irkit.backends.numpy.kernels.shape import chop, join
from irkit.backends.numpy.registry import KernelError, kernel


def _position(position: Array, low: int, high: int) -> int:
    """A position within ``[low, high]``, as it stands."""
    found = int(scalar(position, "position"))
    if not low <= found <= high:
        raise KernelError(f"position {found} is out of range [{low}, {high}]")
    return found


def _check_dtype(tensor: Array, sequence: Sequence[Array]) -> None:
    if sequence and sequence[0].dtype != tensor.dtype:
        raise KernelError(f"a tensor of dtype {tensor.dtype} can't join a sequence of {sequence[0].dtype}")


@kernel("SequenceConstruct")
def sequence_construct(*inputs: Array) -> list[Array]:
    for tensor in inputs:
        _check_dtype(tensor, inputs)
    return list(inputs)


@kernel("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Array]:
    return []


@kernel("SequenceLength")
def sequence_length(sequence: list[Array]) -> Array:
    return np.array(len(sequence), dtype=np.int64)


@kernel("SequenceAt")
def sequence_at(sequence: list[Array], position: Array) -> Array:
    return sequence[_position(position, -len(sequence), len(sequence) - 1)]


@kernel("SequenceInsert")
def sequence_insert(sequence: list[Array], tensor: Array, position: Array | None = None) -> list[Array]:
    n = len(sequence)
    _check_dtype(tensor, sequence)
    at = n if position is None else _position(position, -n, n)
    return [*sequence[:at], tensor, *sequence[at:]]


@kernel("SequenceErase")
def sequence_erase(sequence: list[Array], position: Array | None = None) -> list[Array]:
    n = len(sequence)
    if n == 0:
        raise KernelError("there is nothing to erase from an empty sequence")
    at = n - 1 if position is None else _position(position, -n, n - 1) % n
    return [*sequence[:at], *sequence[at + 1 :]]


@kernel("SplitToSequence")
def split_to_sequence(data: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Array]:
    axis = normalize_axis(axis, data.ndim)
    dim = data.shape[axis]
    if split is None:
        parts = chop(data, [1] * dim, axis)
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    if split.ndim == 1:
        return chop(data, integers(split, "split"), axis)
    size = int(scalar(split, "split"))
    if size < 1:
        raise KernelError(f"split is {size}, which must be positive")
    return chop(data, [min(size, dim - start) for start in range(0, dim, size)], axis)


@kernel("ConcatFromSequence")
def concat_from_sequence(sequence: list[Array], *, axis: int, new_axis: int = 0) -> Array:
    if not sequence:
        raise KernelError("an empty sequence has no shape to concatenate")
    if not new_axis:
        return join(sequence, axis)
    axis = normalize_axis(axis, sequence[0].ndim + 1)
    for tensor in sequence:
        if tensor.shape != sequence[0].shape:
            raise KernelError(f"shapes {tensor.shape} and {sequence[0].shape} differ, so they can't be stacked")
    return join([np.expand_dims(tensor, axis) for tensor in sequence], axis)


@kernel("SequenceMap")
def sequence_map(
    sequence: list[Array],
    *additional: Array | list[Array],
    body: Callable[..., tuple[Any, ...]],
    n_out: int,
    budget: Any,
) -> tuple[list[Any], ...]:
    n = len(sequence)
    for i, other in enumerate(additional, start=1):
        if isinstance(other, list) and len(other) != n:
            raise KernelError(f"input {i} has {len(other)} tensors, the first has {n}")
    outputs: tuple[list[Any], ...] = tuple([] for _ in range(n_out))
    for i in range(n):
        budget.step()
        results = body(sequence[i], *(other[i] if isinstance(other, list) else other for other in additional))
        if len(results) != n_out:
            raise KernelError(f"the body gave {len(results)} values for {n_out} outputs")
        for output, result in zip(outputs, results, strict=True):
            output.append(result)
    return outputs


@kernel("Optional")
def optional(value: Any = None, *, type: object = None) -> Any:
    return value


@kernel("OptionalHasElement")
def optional_has_element(value: Any = None) -> Array:
    return np.array(value is not None)


@kernel("OptionalGetElement")
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise KernelError("the optional holds no element")
    return value
