"""What a module with state means, said a second time: an interpreter that takes any order that the edges allow.

It runs the ops that the outputs need, one after another, picking at random among those whose operands are there; reads
and assigns look at a dictionary. Nothing in it looks at the order of the text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from irkit.dialects.state import After, Assign, Join, Read, StateOp, TokenType, Variable
from irkit.ir.module import Module

HAPPENED = object()
"""The value of a token."""


def reads(op: Operation) -> list[SSAValue]:
    """What must be there before an op runs, captures included."""
    return [value for inner in op.walk() for value in inner.operands]


def in_block(op: Operation, block: Block) -> list[Operation]:
    """The ops of a block that an op directly depends on."""
    return [v.owner for v in reads(op) if isinstance(v.owner, Operation) and v.owner.parent is block]


def closure(op: Operation, block: Block) -> set[Operation]:
    """The ops of a block that an op depends on, directly or not."""
    found: set[Operation] = set()
    stack = in_block(op, block)
    while stack:
        other = stack.pop()
        if other not in found:
            found.add(other)
            stack += in_block(other, block)
    return found


def conflicts(module: Module) -> bool:
    """Whether somewhere two accesses of one variable, one of them a write, are ordered by nothing."""
    blocks = [b for op in module.func.walk() for region in op.regions for b in region.blocks]
    for block in blocks:
        kinds: dict[Operation, dict[str, bool]] = {}
        for op in block.ops:
            for inner in op.walk():
                if isinstance(inner, Read | Assign):
                    mine = kinds.setdefault(op, {})
                    mine[inner.symbol] = mine.get(inner.symbol, False) or isinstance(inner, Assign)
        before = {op: closure(op, block) for op in kinds}
        for a, b in combinations(kinds, 2):
            clash = any(s in kinds[b] and (kinds[a][s] or kinds[b][s]) for s in kinds[a])
            if clash and a not in before[b] and b not in before[a]:
                return True
    return False


class Interpreter:
    """Runs a module with state; keeps the state between runs."""

    def __init__(self, module: Module, seed: int) -> None:
        self.module = module
        self.random = random.Random(seed)
        self.state = {op.symbol: op.initial.array() for op in module.op.ops if isinstance(op, Variable)}

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """The outputs by name, tokens left out."""
        block = self.module.block
        env: dict[SSAValue, Any] = {arg: feeds[n] for arg, n in zip(block.args, self.module.inputs, strict=True)}
        assert block.last_op is not None
        self.block(block, env, closure(block.last_op, block))
        outputs = zip(self.module.outputs, self.module.returned, strict=True)
        return {name: env[value] for name, value in outputs if not isinstance(value.type, TokenType)}

    def block(self, block: Block, env: dict[SSAValue, Any], only: set[Operation] | None = None) -> list[Any]:
        """Runs a block in a random order; returns what its terminator is given."""
        waiting = [op for op in block.ops if op is not block.last_op and (only is None or op in only)]
        here = {result for op in waiting for result in op.results}
        while waiting:
            ready = [op for op in waiting if all(v in env for v in reads(op) if v in here)]
            op = self.random.choice(ready)
            waiting.remove(op)
            env.update(zip(op.results, self.op(op, env), strict=True))
        assert block.last_op is not None
        return [env.get(value) for value in block.last_op.operands]

    def op(self, op: Operation, env: dict[SSAValue, Any]) -> list[Any]:
        match op:
            case Read():
                return [self.state[op.symbol], HAPPENED]
            case Assign():
                self.state[op.symbol] = env[op.operands[0]]
                return [HAPPENED]
            case Join():
                return [HAPPENED]
            case After():
                return [env[op.operands[0]]]
            case _:
                return getattr(self, op.name.removeprefix("onnx."), self.plain)(op, env)

    def plain(self, op: Operation, env: dict[SSAValue, Any]) -> list[Any]:
        with np.errstate(over="ignore"):
            return [np.asarray(PLAIN[op.name](*(env[v] for v in op.operands)))]

    def NoValue(self, op: Operation, env: dict[SSAValue, Any]) -> list[Any]:
        return [None]

    def Constant(self, op: Any, env: dict[SSAValue, Any]) -> list[Any]:
        return [op.attr("value")]

    def If(self, op: Any, env: dict[SSAValue, Any]) -> list[Any]:
        branch = op.graph("then_branch" if bool(env[op.operands[0]]) else "else_branch")
        return self.block(branch.block, env)

    def Loop(self, op: Any, env: dict[SSAValue, Any]) -> list[Any]:
        given = [env[v] for v in op.operands] + [None, None]
        states = [env[v] for v in op.operands[2:]]
        trips = 1 << 62 if given[0] is None else int(given[0])
        collected: list[list[Any]] = [[] for _ in op.results[len(states) :]]
        i, go_on = 0, True if given[1] is None else bool(given[1])
        # Where no condition is given, what the body says of it is ignored.
        while i < trips and (go_on or given[1] is None):
            args = [np.int64(i), np.bool_(go_on), *states]
            go_on, *values = self.block(op.regions[0].block, self.entered(op, env, args))
            states = values[: len(states)]
            for column, value in zip(collected, values[len(states) :], strict=True):
                column.append(value)
            i += 1
        return states + [np.array(column, np.int64) for column in collected]

    def Scan(self, op: Any, env: dict[SSAValue, Any]) -> list[Any]:
        count = len(op.operands) - op.attr("num_scan_inputs")
        values = [env[v] for v in op.operands]
        states, scanned = values[:count], values[count:]
        collected: list[list[Any]] = [[] for _ in op.results[count:]]
        for row in zip(*scanned, strict=True):
            found = self.block(op.regions[0].block, self.entered(op, env, [*states, *row]))
            states = found[:count]
            for column, value in zip(collected, found[count:], strict=True):
                column.append(value)
        return states + [np.array(column, np.int64) for column in collected]

    @staticmethod
    def entered(op: Operation, env: dict[SSAValue, Any], args: list[Any]) -> dict[SSAValue, Any]:
        """The values visible in an iteration: those around the op, and the body's inputs."""
        return {**env, **dict(zip(op.regions[0].block.args, args, strict=True))}


PLAIN: dict[str, Callable[..., Any]] = {
    "onnx.Add": np.add,
    "onnx.Sub": np.subtract,
    "onnx.Less": np.less,
    "onnx.Identity": lambda x: x,
}


def is_pure(module: Module) -> bool:
    """Whether nothing of the state dialect is left."""
    values = [value for op in module.walk() for value in op.results]
    values += [arg for op in module.walk() for region in op.regions for block in region.blocks for arg in block.args]
    return not any(isinstance(op, StateOp | Variable) for op in module.walk()) and not any(
        isinstance(value.type, TokenType) for value in values
    )
