"""Infers the types of all results again, and says where a file's own declarations contradict them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import onnx
from xdsl.dialects.builtin import NoneType, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from irkit.dialects.onnx import Call, Function, OnnxOp
from irkit.dialects.onnx.protos import type_from_proto
from irkit.dialects.onnx.shapes.control import join
from irkit.dialects.onnx.structural import fill_references
from irkit.errors import InferenceError
from irkit.ir.attributes import text_of
from irkit.ir.constants import ProtoAttr
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import DECL, NAME, out_names
from irkit.ir.op import TensorOp
from irkit.ir.types import UnknownType, tensor, tensor_info
from irkit.passes.base import Pass
from irkit.passes.rewrite import items_of, ops_in, sync_signature
from irkit.passes.types import is_fully_known, meet, set_type

__all__ = ["Conflict", "InferShapes", "Inferrer"]

FunctionKey = tuple[str, str, str]
MAX_ROUNDS = 6
"""How often the types that a Loop carries are widened before only their element types are kept."""


@dataclass(frozen=True)
class Conflict:
    """A declaration that the graph contradicts.

    Attributes:
        name: of the value.
        declared, inferred: its types.
        where: the location of the op that makes it, or ``""``.
    """

    name: str
    declared: Attribute
    inferred: Attribute
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"value '{self.name}'{place} is declared as {self.declared}, but is {self.inferred}"


@dataclass(frozen=True)
class InferShapes(Pass):
    """Infers result types from operands, in all graphs, and through the bodies of functions that are called.

    What was known stays: a size is never forgotten, a symbol never renamed, and a declaration of the file is never
    believed. Bodies of functions are left as they are, since their callers decide.

    Attributes:
        conflicts: declarations that are contradicted, after a run.
        failures: ops whose operands don't fit them, in words, after a run.
    """

    name: ClassVar[str] = "onnx-infer-shapes"

    @cached_property
    def conflicts(self) -> list[Conflict]:
        return []

    @cached_property
    def failures(self) -> list[str]:
        return []

    def notes(self) -> list[str]:
        return [*map(str, self.conflicts), *self.failures]

    def run(self, module: Module) -> bool:
        self.conflicts.clear()
        self.failures.clear()
        inferrer = Inferrer(module)
        for op in module.op.ops:
            if isinstance(op, FuncOp):
                for block in op.body.blocks:
                    inferrer.block(block)
        self.failures.extend(dict.fromkeys(inferrer.failures))
        self.conflicts.extend(_conflicts(module))
        sync_signature(module)
        return bool(inferrer.changed)


class Inferrer:
    """Infers types in program order.

    Args:
        revisit: look at every op, also where all is known; what does not fit any more is found then.
        afresh: do so, and forget what was known of results.

    Attributes:
        changed: the values of which more is known now; an op that uses one is worth another look.
        failures: what did not fit.
    """

    def __init__(self, module: Module, *, revisit: bool = False, afresh: bool = False) -> None:
        self.changed: set[SSAValue] = set()
        self.failures: list[str] = []
        self._functions = {op.key: op for op in module.op.ops if isinstance(op, Function)}
        self._calls: dict[object, list[Attribute]] = {}
        self._calling: set[FunctionKey] = set()
        self._revisit = revisit
        # How many loops are being tried with other types; what was known in them does not count.
        self._fresh = int(afresh)

    def block(self, block: Block) -> None:
        """Infers the types of all results in a block and the graphs within."""
        for op in block.ops:
            self.visit(op)

    def visit(self, op: Operation) -> None:
        """Infers the types of one op's results, those within its graphs first."""
        if op.regions:
            self.graphs(op)
        if op.results and (self._fresh or self._revisit or op.regions or self.is_stale(op)):
            self.results(op)

    def is_stale(self, op: Operation) -> bool:
        """Whether inference may have something to add."""
        if not all(is_fully_known(r.type) for r in op.results):
            return True
        return bool(self.changed) and any(v in self.changed for v in op.operands)

    def results(self, op: Operation) -> None:
        """Infers the types of an op's results, and keeps what is news."""
        if isinstance(op, Call):
            found = self.call(op)
        elif isinstance(op, TensorOp) and op.name != "onnx.Initializer":
            try:
                found = type(op).infer_types(op.operands, op.properties, op.regions, len(op.results))
            except InferenceError as error:
                self.failures.append(str(InferenceError(error.message, op=op.name, where=where(op))))
                return
        else:
            return
        for result, value_type in zip(op.results, found, strict=False):
            self.learn(result, value_type)

    def learn(self, value: SSAValue, value_type: Attribute) -> None:
        """Joins an inferred type with what is known. In a contradiction what follows from the operands wins."""
        known = value_type if self._fresh else meet(value.type, value_type) or value_type
        if known != value.type:
            set_type(value, known)
            self.changed.add(value)

    # Graphs

    def graphs(self, op: Operation) -> None:
        """Infers within the graphs of an op."""
        if isinstance(op, OnnxOp) and op.op_type == "Loop" and op.regions[0].blocks:
            self.loop(op)
            return
        names = op.spec.graphs if isinstance(op, OnnxOp) else ()
        for index, region in enumerate(op.regions):
            for block in region.blocks:
                if index < len(names) and isinstance(op, OnnxOp):
                    self.arguments(op, names[index], block)
                self.block(block)

    def arguments(self, op: OnnxOp, graph: str, block: Block) -> None:
        """Infers the types of a graph's inputs from the op's operands."""
        try:
            types = op.body_types(graph, op.operands, op.properties, len(block.args))
        except (InferenceError, KeyError, ValueError):
            return
        for arg, value_type in zip(block.args, types, strict=False):
            if not isinstance(value_type, UnknownType):
                self.learn(arg, value_type)

    def loop(self, op: OnnxOp) -> None:
        """Finds types that hold in every iteration: those of the initial values, widened until the body keeps them."""
        body = op.regions[0].block
        states = list(op.operands)[2:]
        carried = list(body.args)[2:]
        if len(states) != len(carried) or body.last_op is None:
            self.block(body)
            return
        fixed = [tensor("int64", ()), tensor("bool", ())]
        candidates = [
            _element_only(arg.type) if isinstance(v.type, UnknownType) else v.type
            for v, arg in zip(states, carried, strict=True)
        ]
        before = _snapshot(body)
        self._fresh += 1
        failures = len(self.failures)
        for round_ in range(MAX_ROUNDS):
            del self.failures[failures:]
            for arg, value_type in zip(body.args, [*fixed, *candidates], strict=True):
                self.learn(arg, value_type)
            self.block(body)
            yielded = [v.type for v in body.last_op.operands[1 : 1 + len(states)]]
            wider = [join(a, b) for a, b in zip(candidates, yielded, strict=True)]
            if wider == candidates:
                break
            # Sizes that keep changing are given up together.
            candidates = wider if round_ < MAX_ROUNDS - 3 else [_element_only(t) for t in wider]
        self._fresh -= 1
        if not self._fresh:
            self._settle(before, len(body.args))

    def _settle(self, before: list[tuple[SSAValue, Attribute]], n_args: int) -> None:
        """Keeps what was known of a body whose inputs are known no less than they were."""
        if all(meet(value.type, old) == value.type for value, old in before[:n_args]):
            for value, old in before[n_args:]:
                set_type(value, meet(old, value.type) or value.type)
        for value, old in before:
            if value.type == old:
                self.changed.discard(value)
            else:
                self.changed.add(value)

    # Functions

    def call(self, op: Call) -> list[Attribute]:
        """The types of a call's results: those of the function's body on these operands."""
        key = (op.domain, op.op_type, op.overload)
        function = self._functions.get(key)
        if function is None or key in self._calling or len(op.operands) > len(function.body.args):
            return []
        memo = (key, tuple(v.type for v in op.operands), op.properties.get("attrs"))
        found = self._calls.get(memo)
        if found is None:
            self._calling.add(key)
            found = self._calls[memo] = self._instance(function, op)
            self._calling.discard(key)
        return found

    def _instance(self, function: Function, op: Call) -> list[Attribute]:
        copy = function.clone()
        for arg, operand in zip(copy.body.args, op.operands, strict=False):
            set_type(arg, operand.type)
        given = {**function.defaults, **op.attrs}
        for inner in copy.walk():
            if isinstance(inner, OnnxOp):
                fill_references(inner, given)
        failures, changed = self.failures, self.changed
        # What does not fit inside a function is reported by a run of it; here only the result counts.
        self.failures, self.changed = [], set()
        self.block(copy.body)
        self.failures, self.changed = failures, changed
        return [v.type for v in cast(Operation, copy.body.last_op).operands]


def _element_only(value_type: Attribute) -> Attribute:
    info = tensor_info(value_type)
    return value_type if info is None else tensor(info.dtype, None)


def _snapshot(block: Block) -> list[tuple[SSAValue, Attribute]]:
    found: list[tuple[SSAValue, Attribute]] = [(arg, arg.type) for arg in block.args]
    for op in block.walk():
        found += [(r, r.type) for r in op.results]
        for region in op.regions:
            found += [(arg, arg.type) for inner in region.blocks for arg in inner.args]
    return found


# Declarations


def _conflicts(module: Module) -> list[Conflict]:
    found: list[Conflict] = []
    for op in ops_in(module.op):
        if isinstance(op, FuncOp):
            found += _signature_conflicts(op)
            continue
        entries = items_of(op.attributes.get(DECL))
        if entries is not None:
            values = op.results or op.operands
            names = out_names(op)
            for index, (value, entry) in enumerate(zip(values, entries, strict=False)):
                name = names[index] if index < len(names) else ""
                _check(found, name, entry, value)
    return found


def _signature_conflicts(func: FuncOp) -> list[Conflict]:
    found: list[Conflict] = []
    last = func.body.block.last_op if func.body.blocks else None
    attrs = func.res_attrs
    if last is None or attrs is None:
        return found
    for value, entry in zip(last.operands, attrs.data, strict=False):
        name = entry.data.get(NAME)
        _check(found, "" if name is None else text_of(name), entry.data.get(DECL), value)
    return found


def _check(found: list[Conflict], name: str, declared: Attribute | None, value: SSAValue) -> None:
    if isinstance(declared, ProtoAttr):
        info = onnx.ValueInfoProto.FromString(declared.bytes)
        declared = type_from_proto(info.type) if info.HasField("type") else None
    if declared is None or isinstance(declared, UnitAttr | NoneType):
        return
    if meet(value.type, declared) is None:
        found.append(Conflict(name, declared, value.type, where(value)))
