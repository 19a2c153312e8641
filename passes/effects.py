"""What an op does besides computing its results: from the traits of its class, its graphs and what it calls."""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from xdsl.ir import Operation
from xdsl.traits import (
    MemoryAllocEffect,
    MemoryEffect,
    MemoryReadEffect,
    Pure,
    RecursiveMemoryEffect,
)

from irkit.dialects.onnx.structural import Call, Function
from irkit.ir.module import Module
from irkit.ir.op import Random

__all__ = ["Effect", "Effects"]

FunctionKey = tuple[str, str, str]


class Effect(IntEnum):
    """From harmless to unknown. Up to ``RANDOM`` an op whose results are unused can go."""

    PURE = 0
    """The same operands give the same results: equal ones can be merged, constant ones folded."""
    READS = 1
    RANDOM = 2
    UNKNOWN = 3
    """Writes, or is an op of which nothing is known: stays where it is."""


@cache
def _own(cls: type[Operation]) -> Effect | None:
    """The effect that a class's traits state; None where it is that of its graphs."""
    if not hasattr(cls, "traits"):
        return Effect.UNKNOWN
    traits = cls.traits.traits
    if any(isinstance(t, Random) for t in traits):
        return Effect.RANDOM
    if any(isinstance(t, RecursiveMemoryEffect) for t in traits):
        return None
    if any(isinstance(t, Pure) for t in traits):
        return Effect.PURE
    effects = [t for t in traits if isinstance(t, MemoryEffect)]
    if effects and all(isinstance(t, MemoryReadEffect | MemoryAllocEffect) for t in effects):
        return Effect.READS
    return Effect.UNKNOWN


class Effects:
    """The effects of a module's ops. Answers are kept, so make a new one for each run of a pass."""

    def __init__(self, module: Module) -> None:
        self._functions = {op.key: op for op in module.op.ops if isinstance(op, Function)}
        self._called: dict[FunctionKey, Effect] = {}
        self._with_graphs: dict[Operation, Effect] = {}

    def of(self, op: Operation) -> Effect:
        """The worst of what the op, its graphs and the functions it calls do."""
        own = _own(type(op))
        if own is None:
            found = self._with_graphs.get(op)
            if found is None:
                found = self._with_graphs[op] = self._worst(op)
            return found
        if isinstance(op, Call):
            return max(self._call((op.domain, op.op_type, op.overload)), self._worst(op))
        return max(own, self._worst(op)) if op.regions else own

    def droppable(self, op: Operation) -> bool:
        """Whether the op can go where its results are not used."""
        return self.of(op) <= Effect.RANDOM

    def mergeable(self, op: Operation) -> bool:
        """Whether another op of the same class, operands and attributes gives the same results."""
        return self.of(op) is Effect.PURE

    def _worst(self, op: Operation) -> Effect:
        worst = Effect.PURE
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    worst = max(worst, self.of(inner))
        return worst

    def _call(self, key: FunctionKey) -> Effect:
        function = self._functions.get(key)
        if function is None:
            return Effect.UNKNOWN
        if key not in self._called:
            # In force while the body is looked at: a function that calls itself has no known effect.
            self._called[key] = Effect.UNKNOWN
            self._called[key] = self._worst(function)
        return self._called[key]
