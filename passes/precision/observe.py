"""What values a module computes, seen in runs on the NumPy backend: in graphs, loops and functions alike.

An op that hands on its operand and writes down its magnitude is put behind each value, on a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, cast

import numpy as np
from xdsl.ir import Block, Operation, OpResult, SSAValue

from irkit.backends import compile as compile_module
from irkit.backends.numpy.registry import kernel
from irkit.dialects.onnx import Custom
from irkit.ir.attributes import int_attr
from irkit.ir.module import Module
from irkit.passes.precision.fit import Range

__all__ = ["insert_after", "observe", "values_in"]

DOMAIN, OBSERVE = "irkit.observe", "Observe"
_SEEN: dict[int, Range] = {}
_KEYS = count()


@kernel(OBSERVE, domain=DOMAIN)
def _observe(x: Any, *, key: int) -> Any:
    if isinstance(x, np.ndarray):
        _SEEN[key].add(cast("np.ndarray[Any, Any]", x))
    return cast(Any, x)


def values_in(op: Operation) -> Iterator[SSAValue]:
    """All values within an op's regions: arguments of blocks and results, in program order."""
    for region in op.regions:
        for block in region.blocks:
            yield from block.args
            for inner in block.ops:
                yield from values_in(inner)
                yield from inner.results


def insert_after(value: SSAValue, op: Operation) -> None:
    """Puts an op where a value is first known: behind the op that gives it, or at the beginning of its block."""
    if isinstance(value, OpResult):
        block = value.op.parent
        assert block is not None
        block.insert_op_after(op, value.op)
        return
    block = value.owner
    assert isinstance(block, Block)
    first = block.first_op
    assert first is not None
    if first.name == "onnx.NoValue":
        block.insert_op_after(op, first)
    else:
        block.insert_op_before(op, first)


def observe(
    module: Module, values: Sequence[SSAValue], feeds: Sequence[Mapping[str, Any]], seed: int = 0
) -> list[list[Range]]:
    """Runs a module, and says of each set of inputs what these values became; one that was not computed stays empty.

    Raises:
        IrkitError: if the NumPy backend cannot run it, or if the inputs do not fit.
    """
    copy = module.clone()
    places = {value: place for place, value in enumerate(values_in(module.op))}
    copies = list(values_in(copy.op))
    keys = [next(_KEYS) for _ in values]
    for key, value in zip(keys, values, strict=True):
        mine = copies[places[value]]
        op = Custom.of(DOMAIN, OBSERVE, [mine], [mine.type], {"key": int_attr(key)})
        insert_after(mine, op)
        mine.replace_uses_with_if(op.results[0], lambda use, op=op: use.operation is not op)
    try:
        run = compile_module(copy, "numpy", seed=seed)
        found: list[list[Range]] = []
        for fed in feeds:
            _SEEN.update((key, Range()) for key in keys)
            run.run(fed)
            found.append([_SEEN[key] for key in keys])
    finally:
        for key in keys:
            _SEEN.pop(key, None)
    return found
