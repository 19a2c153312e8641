"""If, Loop and Scan. A graph attribute is a callable from the subgraph's inputs to the tuple of its outputs.

Loop ignores the body's condition where the node has no condition input, as the specification's table says. The
scan outputs of zero iterations take their types from the body's ``output_types``, a list of (element type, shape with
None for a dimension not known); such dimensions are 0, since nothing was ever put there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import normalize_axis, scalar
from irkit.backends.numpy.kernels._indexing import Array
from irkit.backends.numpy.registry import KernelError, kernel

Body = Callable[..., tuple[Any, ...]]


@kernel("If")
def if_(cond: Array, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    return then_branch() if bool(scalar(cond, "cond")) else else_branch()


def _stack(values: list[Array], axis: int, reverse: bool, body: Body, position: int, budget: Any) -> Array:
    """One scan output: the values of all iterations along a new axis.

    Args:
        values: what the body gave, in order of iteration.
        axis: where the new axis goes; negative counts from the back.
        reverse: whether later iterations come first.
        body: asked for the type if there was no iteration.
        position: of the output among the body's outputs.
        budget: told of the memory.
    """
    if not values:
        types = getattr(body, "output_types", None)
        if types is None or types[position] is None:
            raise KernelError(f"no iteration ran, and the type of the body's output {position} is not known")
        dtype, shape = types[position]
        dims = [dim if isinstance(dim, int) else 0 for dim in shape or ()]
        dims.insert(normalize_axis(axis, len(dims) + 1), 0)
        return np.empty(dims, dtype=dtype.numpy)
    first = values[0]
    for t, value in enumerate(values):
        if value.shape != first.shape or value.dtype != first.dtype:
            raise KernelError(
                f"scan output {position} of the body is {first.dtype}{list(first.shape)} in iteration 0 "
                f"and {value.dtype}{list(value.shape)} in iteration {t}"
            )
    budget.allocate(first.nbytes * len(values))
    return np.stack(values[::-1] if reverse else values, axis=normalize_axis(axis, first.ndim + 1))


@kernel("Loop")
def loop(
    trip_count: Array | None, cond: Array | None, *state: Any, body: Body, n_out: int, budget: Any
) -> tuple[Any, ...]:
    limit = None if trip_count is None else int(scalar(trip_count, "M"))
    going = np.array(True) if cond is None else cond
    n = len(state)
    scans: list[list[Array]] = [[] for _ in range(n_out - n)]
    iteration, collected = 0, 0
    while (limit is None or iteration < limit) and (cond is None or bool(scalar(going, "the condition of the loop"))):
        budget.step()
        going, *values = body(np.array(iteration, dtype=np.int64), going, *state)
        if len(values) != n_out:
            raise KernelError(f"the body gave {len(values) + 1} values; {n_out + 1} are needed for {n_out} outputs")
        state = tuple(values[:n])
        for scan, value in zip(scans, values[n:], strict=True):
            scan.append(value)
            collected += value.nbytes
        budget.allocate(collected)
        iteration += 1
    stacked = (_stack(scan, 0, False, body, 1 + n + k, budget) for k, scan in enumerate(scans))
    return (*state, *stacked)


def _flags(given: Sequence[int] | None, count: int, name: str) -> list[int]:
    """A list attribute with one entry for each scan input or output; zeros where it is not set."""
    if given is None:
        return [0] * count
    if len(given) != count:
        raise KernelError(f"{name} holds {len(given)} values, {count} are needed")
    return list(given)


@kernel("Scan")
def scan(
    *inputs: Any,
    num_scan_inputs: int,
    body: Body,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    n_out: int,
    budget: Any,
) -> tuple[Any, ...]:
    if not 1 <= num_scan_inputs <= len(inputs):
        raise KernelError(f"num_scan_inputs is {num_scan_inputs}, but the node has {len(inputs)} inputs")
    n = len(inputs) - num_scan_inputs
    if n_out < n:
        raise KernelError(f"the node has {n_out} outputs for {n} state variables")
    state, sources = inputs[:n], inputs[n:]
    input_axes = _flags(scan_input_axes, num_scan_inputs, "scan_input_axes")
    input_directions = _flags(scan_input_directions, num_scan_inputs, "scan_input_directions")
    output_axes = _flags(scan_output_axes, n_out - n, "scan_output_axes")
    output_directions = _flags(scan_output_directions, n_out - n, "scan_output_directions")
    sequences: list[Array] = []
    for source, axis, backward in zip(sources, input_axes, input_directions, strict=True):
        sequence = np.moveaxis(source, normalize_axis(axis, source.ndim), 0)
        sequences.append(sequence[::-1] if backward else sequence)
    steps = len(sequences[0])
    if any(len(sequence) != steps for sequence in sequences):
        raise KernelError(f"the scan inputs have {[len(s) for s in sequences]} elements, which must be equal")
    scans: list[list[Array]] = [[] for _ in range(n_out - n)]
    collected = 0
    for t in range(steps):
        budget.step()
        values = body(*state, *(sequence[t, ...] for sequence in sequences))
        if len(values) != n_out:
            raise KernelError(f"the body gave {len(values)} values for {n_out} outputs")
        state = values[:n]
        for output, value in zip(scans, values[n:], strict=True):
            output.append(value)
            collected += value.nbytes
        budget.allocate(collected)
    stacked = (
        _stack(values, axis, bool(backward), body, n + k, budget)
        for k, (values, axis, backward) in enumerate(zip(scans, output_axes, output_directions, strict=True))
    )
    return (*state, *stacked)
