"""Removes what nothing uses: ops, initializers, results of If and Loop, carried values of loops, functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from irkit.dialects.onnx import Call, Function, Initializer, OnnxOp
from irkit.ir.attributes import to_attr
from irkit.ir.fuel import take
from irkit.ir.module import Module
from irkit.ir.names import DECL, OUTS, name_of
from irkit.passes.base import Pass
from irkit.passes.effects import Effects
from irkit.passes.rewrite import erase, has_reference, referenced_names, select_attr, sync_signature, with_results

__all__ = ["DeadCodeElimination"]


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes ops whose results are unused and that do nothing else, in all graphs and functions.

    An If, Loop, Scan or SequenceMap of which some results are used loses the others, together with what its graphs
    compute for them alone; a value that a loop carries only for itself goes as well. Inputs and outputs of the main
    graph stay, ops of unknown domains stay, and so do initializers that an annotation of the file refers to.
    """

    name: ClassVar[str] = "onnx-dce"

    def run(self, module: Module) -> bool:
        sweeper = _Sweeper(module)
        sweeper.run()
        sync_signature(module)
        return sweeper.changed


class _Sweeper:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.effects = Effects(module)
        self.changed = False
        self.referenced = referenced_names(module)

    def run(self) -> None:
        functions = {op.key: op for op in self.module.op.ops if isinstance(op, Function)}
        waiting: list[Block] = []
        for op in self.module.op.ops:
            if isinstance(op, FuncOp):
                waiting += op.body.blocks
        reached: set[Function] = set()
        while waiting:
            block = waiting.pop()
            self.sweep(block)
            for key in _calls(block):
                callee = functions.get(key)
                if callee is not None and callee not in reached:
                    reached.add(callee)
                    waiting.append(callee.body)
        for function in functions.values():
            if function not in reached and take("dce", function):
                erase(function)
                self.changed = True

    def sweep(self, block: Block) -> None:
        """Visits the ops of a block from last to first, so that a use is gone before what it uses is looked at."""
        op = block.last_op
        while op is not None:
            before = op.prev_op
            self.visit(op)
            op = before

    def visit(self, op: Operation) -> None:
        if op.results and not any(r.first_use for r in op.results) and self._droppable(op):
            if take("dce", op):
                erase(op)
                self.changed = True
            return
        if not op.regions:
            return
        is_partly_used = isinstance(op, OnnxOp) and not all(r.first_use for r in op.results)
        if isinstance(op, OnnxOp) and is_partly_used and not has_reference(op) and take("dce", op):
            match op.op_type:
                case "If" | "SequenceMap":
                    self.prune_branches(op)
                    return
                case "Loop":
                    self.prune_loop(op, first_state=2, first_arg=2, first_yield=1)
                    return
                case "Scan" if op.since >= 9:
                    self.prune_loop(op, first_state=0, first_arg=0, first_yield=0)
                    return
                case _:
                    pass
        self.sweep_regions(op)

    def sweep_regions(self, op: Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self.sweep(block)

    def _droppable(self, op: Operation) -> bool:
        if self.referenced and isinstance(op, Initializer) and name_of(op.results[0]) in self.referenced:
            return False
        return self.effects.droppable(op)

    def prune_branches(self, op: OnnxOp) -> None:
        """Drops unused results of an op whose graphs' outputs are its results."""
        kept = _used(op) or [0]
        for region in op.regions:
            _select_yields(region.block, kept)
        self.sweep_regions(op)
        self._rebuild(op, kept, list(op.operands))

    def prune_loop(self, op: OnnxOp, *, first_state: int, first_arg: int, first_yield: int) -> None:
        """Drops unused results of a Loop or Scan, and carried values that matter to none of the rest.

        Args:
            first_state, first_arg, first_yield: where the carried values begin among the operands, the body's inputs
                and its outputs.
        """
        body = op.regions[0].block
        end = cast(Operation, body.last_op)
        n_states = len(end.operands) - first_yield - _n_scan_outputs(op, end, first_yield)
        wanted = _used(op) or [0]
        states = self._needed_states(body, n_states, wanted, first_arg, first_yield)
        kept = [i for i in range(len(op.results)) if i in states or (i >= n_states and i in wanted)]
        if len(kept) == len(op.results):
            self.sweep_regions(op)
            return
        _select_yields(body, [*range(first_yield), *(first_yield + i for i in kept)])
        self.sweep_regions(op)
        args = [
            i for i in range(len(body.args)) if not first_arg <= i < first_arg + n_states or i - first_arg in states
        ]
        for index in reversed(range(len(body.args))):
            if index not in args:
                body.erase_arg(body.args[index])
        for name in ("onnx.ins", "onnx.ins_decl"):
            select_attr(cast(Operation, body.last_op).attributes, name, args)
        operands = [
            v
            for i, v in enumerate(op.operands)
            if not first_state <= i < first_state + n_states or i - first_state in states
        ]
        _select_scan_attributes(op, [i - n_states for i in kept if i >= n_states])
        self._rebuild(op, kept, operands)

    def _needed_states(
        self, body: Block, n_states: int, wanted: Sequence[int], first_arg: int, first_yield: int
    ) -> set[int]:
        """The carried values that a wanted result, the condition or an effect depends on, in any iteration."""
        end = cast(Operation, body.last_op)
        yields = end.operands
        states = {i for i in wanted if i < n_states}
        stack: list[SSAValue] = list(yields[:first_yield]) + [yields[first_yield + i] for i in wanted]
        for op in body.ops:
            if op is not end and not self.effects.droppable(op):
                stack += _read_by(op)
        seen: set[Operation] = set()
        while stack:
            value = stack.pop()
            if isinstance(value, BlockArgument):
                state = value.index - first_arg
                if value.block is body and 0 <= state < n_states and state not in states:
                    states.add(state)
                    stack.append(yields[first_yield + state])
            elif isinstance(value, OpResult) and value.op.parent is body and value.op not in seen:
                seen.add(value.op)
                stack += _read_by(value.op)
        return states

    def _rebuild(self, op: OnnxOp, kept: Sequence[int], operands: Sequence[SSAValue]) -> None:
        if len(kept) < len(op.results):
            with_results(op, kept, operands, "dce")
            self.changed = True


def _used(op: Operation) -> list[int]:
    return [i for i, r in enumerate(op.results) if r.first_use]


def _read_by(op: Operation) -> list[SSAValue]:
    """All values that an op or anything in its graphs reads."""
    if not op.regions:
        return list(op.operands)
    return [value for inner in op.walk() for value in inner.operands]


def _n_scan_outputs(op: OnnxOp, end: Operation, first_yield: int) -> int:
    if op.op_type == "Loop":
        return len(end.operands) - first_yield - (len(op.operands) - 2 if len(op.operands) > 2 else 0)
    return len(end.operands) - (len(op.operands) - op.attr("num_scan_inputs"))


def _select_yields(block: Block, kept: Sequence[int]) -> None:
    end = cast(Operation, block.last_op)
    end.operands = [end.operands[i] for i in kept]
    for name in (OUTS, DECL):
        select_attr(end.attributes, name, kept)


def _select_scan_attributes(op: OnnxOp, kept: Sequence[int]) -> None:
    for name in ("scan_output_axes", "scan_output_directions"):
        found: Attribute | None = op.properties.get(name)
        if isinstance(found, DenseArrayBase):
            values = found.get_values()
            op.properties[name] = to_attr("INTS", [int(values[i]) for i in kept])


def _calls(block: Block) -> Iterable[tuple[str, str, str]]:
    for op in block.ops:
        for inner in op.walk() if op.regions else (op,):
            if isinstance(inner, Call):
                yield inner.domain, inner.op_type, inner.overload
