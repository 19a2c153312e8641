"""Puts the bodies of model-local functions in the places where they are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

from xdsl.ir import Block, Operation, SSAValue

from irkit.backends.numpy.random import SEED_ID, call_id, op_key
from irkit.dialects.onnx import Call, Function, NoValue, OnnxOp, absent
from irkit.dialects.onnx.structural import fill_references, opsets_of
from irkit.ir.attributes import int_attr
from irkit.ir.constants import RefAttr
from irkit.ir.location import fused, where
from irkit.ir.module import Module
from irkit.ir.names import NAME, OUTS, node_name, set_node_name
from irkit.ir.op import Random
from irkit.opsets.lowering import can_lower
from irkit.passes.base import Pass
from irkit.passes.infer_shapes import Inferrer
from irkit.passes.rewrite import Rewriter, enclosing_function, ops_in, sync_signature

__all__ = ["Inline"]

MAX_DEPTH = 64
"""So deep calls may stand in each other; what calls itself goes on for ever."""


@dataclass(frozen=True)
class Inline(Pass):
    """Replaces each call of a model-local function by the function's ops, also where functions call functions.

    A call stays where the function calls itself, where an attribute that the body needs is given by the caller's own
    caller, where the opset at which the module is to be saved cannot express the body, and in functions (those that are
    called no more are for ``dce``). Nodes are named ``<call>/<node>``.

    Args:
        max_ops: functions with more ops than this stay; 0 sets no limit.

    Attributes:
        kept: which calls were left and why, after a run.
    """

    name: ClassVar[str] = "onnx-inline"

    max_ops: int = 0

    @cached_property
    def kept(self) -> list[str]:
        return []

    def notes(self) -> list[str]:
        return self.kept

    def run(self, module: Module) -> bool:
        self.kept.clear()
        functions = {op.key: op for op in module.op.ops if isinstance(op, Function)}
        rewriter = Rewriter(module, "inline")
        inferrer = Inferrer(module)
        waiting = [
            (op, 0, _scope(op, ""))
            for op in ops_in(module.op)
            if isinstance(op, Call) and not enclosing_function(op.parent)
        ]
        changed = False
        while waiting:
            call, depth, scope = waiting.pop()
            function = functions.get((call.domain, call.op_type, call.overload))
            if function is None:
                continue
            reason = self._refusal(module, function, call, depth)
            if reason:
                self.kept.append(f"{call.domain}.{call.op_type} '{node_name(call)}' {where(call)} stays: {reason}")
                continue
            if rewriter.exhausted:
                break
            inner = {op: _scope(original, scope) for op, original in _expand(function, call, scope, rewriter, inferrer)}
            changed = True
            waiting += [(op, depth + 1, within) for op, within in inner.items() if isinstance(op, Call)]
        sync_signature(module)
        return changed

    def _refusal(self, module: Module, function: Function, call: Call, depth: int) -> str:
        """Why a call stays; ``""`` if it does not."""
        if depth >= MAX_DEPTH:
            return "functions call each other without end"
        if any(isinstance(attr, RefAttr) for attr in call.attrs.values()) or call.regions:
            return "an attribute is given by the caller's own caller, or is a graph"
        if len(call.operands) > len(function.body.args):
            return "it is given more than the function takes"
        ops = [op for op in ops_in(function) if isinstance(op, OnnxOp)]
        if self.max_ops and len(ops) > self.max_ops:
            return f"its body has {len(ops)} ops (max-ops={self.max_ops})"
        own = opsets_of(function.properties.get("opsets"))
        for op in ops:
            opset = module.opsets.get(op.domain)
            if opset not in (None, own.get(op.domain)) and not can_lower(op, {op.domain: opset}, module.ctx):
                return f"{op.name} cannot be written at opset {opset}"
        return ""


def _scope(op: Operation, prefix: str) -> str:
    """From which calls what a call makes is reached, as the numpy backend has it: random ops are numbered by that."""
    before = 0
    other = op.prev_op if isinstance(op, Call) else None
    while other is not None:
        before += isinstance(other, Call)
        other = other.prev_op
    return f"{prefix}/{call_id(op, before)}"


def _keep_draws(ops: Iterable[Operation], originals: Iterable[Operation], scope: str) -> None:
    """Lets random ops draw what they drew in the function."""
    ordinal = 0
    for op, original in zip(ops, originals, strict=True):
        if original.has_trait(Random):
            key = op_key(original, ordinal, scope)
            op.attributes[SEED_ID] = int_attr(key - (1 << 64) if key >> 63 else key)
            ordinal += 1


def _expand(
    function: Function, call: Call, scope: str, rewriter: Rewriter, inferrer: Inferrer
) -> list[tuple[Operation, Operation]]:
    """Puts the ops of a function in front of a call and the results in its place.

    Returns:
        The ops, nested ones too, each with that of the function.
    """
    outer = cast(Block, call.parent)
    copy = function.clone()
    given = {**function.defaults, **call.attrs}
    named = node_name(call)
    operands: list[SSAValue] = [*call.operands]
    operands += [absent(outer) for _ in range(len(copy.body.args) - len(operands))]
    for arg, operand in zip(copy.body.args, operands, strict=True):
        arg.replace_all_uses_with(operand)
    made = list(ops_in(copy))
    originals = list(ops_in(function))
    _keep_draws(made, originals, scope)
    for op, original in zip(made, originals, strict=True):
        fill_references(op, given)
        op.location = fused([original.location, call.location], "inline")
        op.attributes.pop(OUTS, None)
        if NAME in op.attributes:
            if named:
                set_node_name(op, f"{named}/{node_name(op)}")
            else:
                del op.attributes[NAME]
    end = cast(Operation, copy.body.last_op)
    results = list(end.operands)
    for op in list(copy.body.ops):
        if op is end:
            continue
        if isinstance(op, NoValue):
            op.results[0].replace_all_uses_with(absent(outer))
            results = [absent(outer) if v is op.results[0] else v for v in results]
            continue
        op.detach()
        outer.insert_op_before(op, call)
        inferrer.visit(op)
    module = rewriter.module
    missing = {d: v for d, v in opsets_of(function.properties.get("opsets")).items() if d not in module.opsets}
    if missing:
        module.opsets = {**module.opsets, **missing}
    rewriter.replace(call, results[: len(call.results)])
    return [
        (op, original) for op, original in zip(made, originals, strict=True) if op.parent is not None and op is not end
    ]
