"""Rematerialization: forward values that the backward ops need are computed again, close to their use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import FusedLoc, StringAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue

from irkit.dialects.onnx.values import is_constant
from irkit.dialects.state.order import read_by
from irkit.errors import IrkitError
from irkit.ir.builder import Builder, value_of
from irkit.ir.location import fused, where
from irkit.ir.module import Module
from irkit.ir.names import OUTS, name_of
from irkit.ir.op import is_absent
from irkit.ir.types import tensor_info
from irkit.passes.autodiff.transform import BY
from irkit.passes.effects import Effects
from irkit.passes.registry import suggestion

__all__ = ["made_by_gradient", "rematerialize"]


def rematerialize(module: Module, keep: Sequence[str] | None, budget: int | None, sizes: Mapping[str, int]) -> None:
    """Rewrites the main graph in place; see ``irkit.checkpoint``.

    Raises:
        IrkitError: for a name that is not there, or a size that is not known.
    """
    block = module.block
    backward = [op for op in block.ops if made_by_gradient(op)]
    later = set(backward)
    effects = Effects(module)
    saved = _saved(block, backward, later)
    if keep is not None:
        named = {name_of(r): r for op in block.ops for r in op.results if name_of(r)}
        for name in keep:
            if name not in named and name not in module.input_names:
                raise IrkitError(
                    f"the graph has no value '{name}'", hint=suggestion(name, sorted(named)[:40], "values")
                )
        kept = {named[name] for name in keep if name in named}
    elif budget is not None:
        kept = _within(budget, [v for v in saved if _repeatable(v, effects)], saved, sizes)
    else:
        raise IrkitError("say what to keep: keep= names values, budget= gives a number of bytes")
    _Remat(module, kept, later, effects).run(backward)


def made_by_gradient(op: Operation) -> bool:
    """Whether an op is one of the backward ops that differentiation made."""
    location = op.location
    return isinstance(location, FusedLoc) and location.metadata == StringAttr(BY)


def _saved(block: Block, backward: Sequence[Operation], later: set[Operation]) -> list[OpResult]:
    """The results of forward ops that backward ops read, each once, in order of first use."""
    found: dict[OpResult, None] = {}
    for op in backward:
        for value in read_by(op):
            if (
                isinstance(value, OpResult)
                and value.op.parent is block
                and value.op not in later
                and not is_constant(value)
            ):
                found[value] = None
    return list(found)


def _repeatable(value: SSAValue, effects: Effects) -> bool:
    """Whether an op may be run again for the same result."""
    return isinstance(value, OpResult) and effects.mergeable(value.op) and not is_constant(value)


def _within(
    budget: int, candidates: Sequence[OpResult], saved: Sequence[OpResult], sizes: Mapping[str, int]
) -> set[OpResult]:
    """The values to keep so that they take at most so many bytes: the largest are given up first."""
    weights = {v: _bytes(v, sizes) for v in saved}
    total = sum(weights.values())
    kept = set(saved)
    for value in sorted(candidates, key=lambda v: -weights[v]):
        if total <= budget:
            break
        kept.discard(value)
        total -= weights[value]
    return kept


def _bytes(value: OpResult, sizes: Mapping[str, int]) -> int:
    info = tensor_info(value.type)
    if info is None or info.shape is None:
        return 0
    dims: list[int] = []
    for size in info.shape:
        if not isinstance(size, int):
            if size is None or size not in sizes:
                raise IrkitError(
                    f"a budget needs every size, but {value.type} has '{size or '?'}'",
                    where=where(value),
                    hint="give it with sizes={'" + str(size or "N") + "': 32}",
                )
            size = sizes[size]
        dims.append(size)
    return math.prod(dims) * max(info.dtype.bits, 8) // 8


class _Remat:
    def __init__(self, module: Module, kept: set[OpResult], later: set[Operation], effects: Effects) -> None:
        self.module = module
        self.kept = kept
        self.later = later
        self.effects = effects
        self.again: dict[SSAValue, SSAValue] = {}
        self.behind: dict[SSAValue, SSAValue] = {}

    def run(self, backward: Sequence[Operation]) -> None:
        for op in backward:
            for value in dict.fromkeys(read_by(op)):
                if self._goes(value):
                    new = self._copy(value, op)
                    for user in op.walk():
                        if value in user.operands:
                            user.operands = [new if v is value else v for v in user.operands]

    def _goes(self, value: SSAValue) -> bool:
        """Whether a value is not kept for the backward ops."""
        return (
            isinstance(value, OpResult)
            and value.op.parent is self.module.block
            and value.op not in self.later
            and value not in self.kept
            and _repeatable(value, self.effects)
        )

    def _copy(self, value: SSAValue, before: Operation) -> SSAValue:
        """The value computed again in front of an op; once for all later uses."""
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self.again:
                pending.pop()
                continue
            assert isinstance(current, OpResult)
            missing = [v for v in read_by(current.op) if self._goes(v) and v not in self.again]
            if missing:
                pending += missing
                continue
            pending.pop()
            self._clone(current.op, before)
        return self.again[value]

    def _clone(self, op: Operation, before: Operation) -> None:
        mapping: dict[SSAValue, SSAValue] = {}
        for value in dict.fromkeys(read_by(op)):
            if value in self.again:
                mapping[value] = self.again[value]
            elif self._is_outer(value) and not is_constant(value) and not is_absent(value):
                mapping[value] = self._barrier(value, before)
        copy = op.clone(mapping)
        for mine, theirs in zip(op.walk(), copy.walk(), strict=True):
            theirs.location = fused([mine.location], "checkpoint")
        copy.attributes.pop(OUTS, None)
        block = before.parent
        assert block is not None
        block.insert_op_before(copy, before)
        self.again.update(zip(op.results, copy.results, strict=True))

    def _is_outer(self, value: SSAValue) -> bool:
        block = value.op.parent if isinstance(value, OpResult) else value.owner
        return block is self.module.block

    def _barrier(self, value: SSAValue, before: Operation) -> SSAValue:
        if value not in self.behind:
            b = Builder.before(before, self.module.ctx, by="checkpoint")
            self.behind[value] = value_of(b.op("ad.barrier", value, outputs=1))
        return self.behind[value]
