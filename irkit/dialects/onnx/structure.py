"""What a schema can't say about an op: how its graphs fit its operands and results, which attributes exclude others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import Region
from xdsl.utils.exceptions import VerifyException

from irkit.ir.op import TensorOp

__all__ = ["STRUCTURE"]


def _yields(region: Region) -> int:
    if len(region.blocks) != 1:
        raise VerifyException(f"a graph has {len(region.blocks)} blocks, expected one")
    last = region.block.last_op
    return 0 if last is None else len(last.operands)


def _check_takes(op: TensorOp, graph: str, region: Region, expected: int) -> None:
    if len(region.blocks) == 1 and len(region.block.args) != expected:
        raise VerifyException(
            f"the graph '{graph}' of {op.name} takes {len(region.block.args)} inputs, expected {expected}"
        )


def _check_gives(op: TensorOp, graph: str, region: Region, least: int, *, unseen: int = 0) -> None:
    """Checks that a graph gives at least so many values, and one for each result after the ``unseen`` first."""
    found = _yields(region)
    expected = max(least, len(op.results) + unseen)
    if found < expected:
        raise VerifyException(f"the graph '{graph}' of {op.name} gives {found} values, expected at least {expected}")


def _if(op: TensorOp) -> None:
    counts = [_yields(region) for region in op.regions]
    if len(set(counts)) != 1:
        raise VerifyException(f"the branches of {op.name} give {' and '.join(map(str, counts))} values")
    _check_gives(op, "then_branch", op.regions[0], 0)


def _loop(op: TensorOp) -> None:
    states = max(0, len(op.operands) - 2)
    _check_takes(op, "body", op.regions[0], 2 + states)
    _check_gives(op, "body", op.regions[0], 1 + states, unseen=1)


def _scan(op: TensorOp) -> None:
    # Scan-8 has the sequences' lengths as its first operand, which its body does not see.
    inputs = len(op.operands) - (op.spec.since < 9)
    scanned: Any = op.attr("num_scan_inputs")
    if not isinstance(scanned, int):  # in a function, an attribute that the caller gives
        return
    if not 1 <= scanned <= inputs:
        raise VerifyException(f"{op.name} scans {scanned} of {inputs} operands")
    _check_takes(op, "body", op.regions[0], inputs)
    _check_gives(op, "body", op.regions[0], inputs - scanned)


def _sequence_map(op: TensorOp) -> None:
    _check_takes(op, "body", op.regions[0], len(op.operands))
    _check_gives(op, "body", op.regions[0], 0)


def _constant(op: TensorOp) -> None:
    if len(op.properties) != 1:
        given = ", ".join(f"'{name}'" for name in op.properties) or "none"
        raise VerifyException(f"{op.name} needs one attribute that holds its value, but has {given}")


STRUCTURE: dict[str, Callable[[TensorOp], None]] = {
    "Constant": _constant,
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
"""Op type -> check, which raises ``VerifyException``. It holds for every version of its op."""
