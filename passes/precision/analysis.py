"""Decides which ops compute in half precision.

Every float value has a *home*: the type in which its op makes it. All are half at first; then ops that must keep their
precision are found until nothing changes any more, each with its reason. A value that one op needs in the other type is
cast where it is made, so that there is one cast at most a value. Constants have no home: each use gets what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard, cast

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from irkit.dialects.onnx import Call, Function, OnnxOp
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.ir.constants import ConstantData, SparseAttr, TensorAttr, constant
from irkit.ir.dtypes import DType
from irkit.ir.module import Module
from irkit.ir.names import name_of, node_name, out_names
from irkit.ir.types import MapType, OptType, SeqType, SparseType, UnknownType, dtype_of
from irkit.passes.precision.fit import LARGE, Half, Range
from irkit.passes.precision.policy import BOUNDED, DIVISORS, FOLLOWERS, OF_INTEGERS, OPEN_BOUNDS, blocked
from irkit.passes.precision.slots import Slots, is_dtype_alias, narrows
from irkit.passes.rewrite import ops_in

__all__ = ["QUIET", "Analysis", "Wishes", "constant_behind"]

QUIET = ""
"""The reason of an op of which there is nothing to tell: it has nothing to gain."""

_INTEGERS = "it computes with what are integers: positions, lengths, quantized numbers"
_RUNNING = "it is a running sum of a loop, in which terms are lost beside it"
_STRUCTURAL = frozenset(("onnx.Yield", "onnx.NoValue", "onnx.Initializer", "func.return", "func.func", "onnx.Function"))


@dataclass(frozen=True)
class Wishes:
    """What a caller asks for.

    Attributes:
        sources: the types that are converted.
        block, allow: op types that keep their precision, or that may lose it though the tables say otherwise.
        block_nodes: names of nodes or of their results.
        keep_io: whether inputs and outputs keep their types.
        told: whether what runs showed is the caller's own data, so that it may be believed.
    """

    sources: frozenset[DType]
    block: frozenset[str] = frozenset()
    block_nodes: frozenset[str] = frozenset()
    allow: frozenset[str] = frozenset()
    keep_io: bool = True
    told: bool = False


def constant_behind(value: SSAValue) -> ConstantData | None:
    """The dense constant that gives a value; a sparse one counts as computed."""
    if not is_constant(value):
        return None
    properties = cast(Operation, value.owner).properties
    return None if any(isinstance(attr, SparseAttr) for attr in properties.values()) else constant_of(value)


@dataclass
class Analysis:
    """The decision about a module.

    Attributes:
        ranges: what runs showed, by value.
        functions: those of the calls that are looked into: made for these calls alone.
        forced: ops that must keep their precision, with reasons.
        kept: the ops that do, with reasons.
        full: the values at home in their original type.
        hot: the values that half precision cannot hold, with reasons.
    """

    module: Module
    half: Half
    wishes: Wishes
    ranges: Mapping[SSAValue, Range] = field(default_factory=dict[SSAValue, Range])
    functions: Mapping[Call, Function] = field(default_factory=dict[Call, Function])
    forced: Mapping[Operation, str] = field(default_factory=dict[Operation, str])
    kept: dict[Operation, str] = field(default_factory=dict[Operation, str])
    full: set[SSAValue] = field(default_factory=set[SSAValue])
    hot: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    _whole: set[SSAValue] = field(default_factory=set[SSAValue])
    _tainted: set[SSAValue] = field(default_factory=set[SSAValue])
    _misfits: dict[tuple[SSAValue, bool], tuple[str, float]] = field(
        default_factory=dict["tuple[SSAValue, bool]", "tuple[str, float]"]
    )
    _changed: bool = True

    def __post_init__(self) -> None:
        self._inputs = frozenset(self.module.block.args)
        self.roots: list[Operation] = [op for op in self.module.op.ops if isinstance(op, FuncOp)]
        self.roots += dict.fromkeys(self.functions.values())
        self.slots = Slots(self.module, self.half.dtype, self.wishes.sources)
        for value, seen in self.ranges.items():
            if self.half.overflows(seen):
                self.hot[value] = f"reaches {seen.largest:.4g}"
            elif self.half.vanishes(seen):
                self.hot[value] = f"stays below {seen.largest:.4g}"
        for value in self._defaults():
            self.hot[value] = "has a default that does not fit"
        self.full.update(arg for arg in self.module.block.args if arg in self.hot)

    def run(self) -> Analysis:
        """Decides; returns itself."""
        while self._changed:
            self._changed = False
            for root in self.roots:
                for op in ops_in(root):
                    self._visit(op)
        return self

    # What is known of values

    def subject(self, value: SSAValue) -> bool:
        """Whether a value is of a type that is converted."""
        return dtype_of(value.type) in self.wishes.sources

    def is_fixed(self, value: SSAValue) -> bool:
        """Whether this is an input that keeps its type."""
        return self.wishes.keep_io and value in self._inputs

    def is_half(self, value: SSAValue) -> bool:
        """Whether a value's home is half precision."""
        return self.subject(value) and value not in self.full and constant_behind(value) is None

    def _is_full(self, value: SSAValue) -> bool:
        return value in self.full and constant_behind(value) is None

    def _defaults(self) -> list[SSAValue]:
        """Inputs that would have to become half, with defaults that cannot."""
        given = {} if self.wishes.keep_io else self.module.defaults
        found: list[SSAValue] = []
        for name, arg in zip(self.module.input_names, self.module.block.args, strict=True):
            default = given.get(name)
            if default is not None and self.subject(arg):
                fits = isinstance(default, TensorAttr) and not self.half.misfit(default.data)[0]
                found += [] if fits else [arg]
        return found

    def _mark_full(self, *values: SSAValue) -> None:
        for value in values:
            if self.subject(value) and value not in self.full:
                self.full.add(value)
                self._changed = True

    def _mark_hot(self, value: SSAValue, reason: str, *, tainted: bool = False) -> None:
        if self.subject(value) and value not in self.hot:
            self.hot[value] = reason
            self._changed = True
        if tainted and value not in self._tainted:
            self._tainted.add(value)
            self._changed = True

    def _mark_whole(self, *values: SSAValue) -> None:
        for value in values:
            if value not in self._whole:
                self._whole.add(value)
                self._changed = True

    def _misfit(self, op: Operation, index: int) -> tuple[str, str]:
        """How an operand that is a constant does not fit; ``LARGE`` or ``SMALL``, and a sentence."""
        value = op.operands[index]
        data = constant_behind(value)
        if data is None:
            return "", ""
        op_type = op.op_type if isinstance(op, OnnxOp) else ""
        key = (value, (op_type, index) in DIVISORS)
        if key not in self._misfits:
            self._misfits[key] = self.half.misfit(data, divisor=key[1])
        how, number = self._misfits[key]
        if not how or (how == LARGE and (op_type, index) in OPEN_BOUNDS):
            return "", ""
        name = name_of(value)
        return how, f"its constant{f' {name!r}' if name else ''} holds {number:.4g}, {how} for {self.half.dtype}"

    # Ops

    def _visit(self, op: Operation) -> None:
        if op.name in _STRUCTURAL or _is_constant_op(op):
            if op.name == "onnx.Initializer" and "sparse_value" in op.properties:
                self._mark_full(*op.results)
            return
        if isinstance(op, Call) and op in self.functions:
            self._call(op, self.functions[op])
        elif isinstance(op, OnnxOp) and op.op_type == "If":
            self._if(op)
        elif isinstance(op, OnnxOp) and op.op_type == "Loop":
            self._loop(op, op.regions[0].block, 2, len(op.operands) - 2, 0)
        elif isinstance(op, OnnxOp) and op.op_type == "Scan" and op.since >= 9:
            scanned = cast(int, op.attr("num_scan_inputs"))
            self._loop(op, op.regions[0].block, 0, len(op.operands) - scanned, scanned)
        else:
            self._plain(op)

    def _plain(self, op: Operation) -> None:
        if op not in self.kept:
            reason = self._reason(op)
            if reason is not None:
                self.kept[op] = reason
                self._changed = True
        if op in self.kept:
            self._mark_full(*op.results)
        else:
            half = self.slots.results(op)
            self._mark_full(*(r for i, r in enumerate(op.results) if i not in half))
        for region in op.regions:
            for block in region.blocks:
                self._mark_full(*block.args)

    def _reason(self, op: Operation) -> str | None:
        """Why an op keeps its precision; None if it need not."""
        given = [v for v in op.operands if self.subject(v)]
        if not given and not any(map(self.subject, op.results)):
            return None
        if op in self.forced:
            return self.forced[op]
        if narrows(op, self.half.dtype, self.wishes.sources):
            return None
        if not isinstance(op, OnnxOp):
            return "it is none of ONNX's ops"
        if any(isinstance(v.type, UnknownType) for v in (*op.operands, *op.results)):
            return "not all its types are known"
        if any(isinstance(v.type, SeqType | OptType | MapType | SparseType) for v in (*op.operands, *op.results)):
            return "it takes or gives sequences, optionals or maps"
        if op.regions:
            return "its graphs are made for the types that they have"
        if self._asked(op):
            return "it was asked for"
        if op.op_type not in self.wishes.allow and (why := blocked(op)):
            if op.op_type in OF_INTEGERS:
                self._mark_whole(*op.results)
            return why
        if is_dtype_alias(op, self.half.dtype):
            return QUIET
        why = self.slots.refused_cast(op)
        if why:
            kind = dtype_of(op.operands[0].type)
            if kind is not None and kind.is_integer:
                self._mark_whole(*op.results)
            return why
        operands = self.slots.operands(op)
        if not operands and not self.slots.results(op):
            return self.slots.missing(op)
        return self._reason_of_values(op, operands)

    def _reason_of_values(self, op: OnnxOp, operands: Sequence[int]) -> str | None:
        for index in operands:
            how, why = self._misfit(op, index)
            if how:
                for result in op.results if how == LARGE else ():
                    self._mark_hot(result, f"may be {why.removeprefix('its ')}", tainted=True)
                return why
        for name, attr in op.properties.items():
            number = op.attr(name)
            if isinstance(number, float) and name not in ("min", "max") and "stash_type" not in op.spec.attributes:
                data = constant(np.float64(number)).data
            elif op.op_type == "ConstantOfShape" and isinstance(attr, TensorAttr):
                data = attr.data
            else:
                continue
            how, worst = self.half.misfit(data)
            if how:
                return f"its attribute '{name}' is {worst:.4g}, {how} for {self.half.dtype}"
        computed = [v for v in op.operands if self.subject(v) and constant_behind(v) is None]
        inherited = [v for v in computed if v in self._tainted]
        if inherited and op.op_type not in BOUNDED and (op.op_type in FOLLOWERS or not self.wishes.told):
            for result in op.results:
                self._mark_hot(result, self.hot[inherited[0]], tainted=True)
        for index in operands:
            value = op.operands[index]
            if value in self.hot:
                return f"its operand{_named(value)} {self.hot[value]}"
        for result in op.results:
            if result in self.hot and self.subject(result):
                return f"its result{_named(result)} {self.hot[result]}"
        if computed and all(v in self._whole for v in computed):
            self._mark_whole(*op.results)
            return _INTEGERS
        if computed and op.op_type in FOLLOWERS and all(map(self._is_full, computed)):
            return "it is given nothing in half precision"
        return None if computed or any(map(self.subject, op.results)) else QUIET

    def converted(self) -> list[OnnxOp]:
        """The ops that become half, in program order."""
        return [op for root in self.roots for op in ops_in(root) if self._converts(op)]

    def _converts(self, op: Operation) -> TypeGuard[OnnxOp]:
        if not isinstance(op, OnnxOp) or op in self.kept or _is_constant_op(op) or joins(op):
            return False
        if narrows(op, self.half.dtype, self.wishes.sources):
            return False
        return bool(self.slots.operands(op) or self.slots.results(op))

    # Graphs and calls: values that must be of one type

    def _join(self, results: Sequence[SSAValue], sources: Sequence[tuple[Operation, int]], *extra: bool) -> None:
        """Values of one home: full if what comes from a source is, or is too large, or a constant that does not fit."""
        values = [op.operands[index] for op, index in sources]
        if not any(map(self.subject, (*results, *values))):
            return
        hot = next((v for v in (*values, *results) if v in self.hot), None)
        unfit = next(filter(None, (self._misfit(op, index)[1] for op, index in sources)), "")
        if hot is not None or unfit:
            reason = self.hot[hot] if hot is not None else f"may be {unfit.removeprefix('its ')}"
            for value in results:
                self._mark_hot(value, reason, tainted=any(v in self._tainted for v in values) or bool(unfit))
        if hot is not None or unfit or any(extra) or not all(map(self.subject, (*results, *values))):
            self._mark_full(*results)

    def _if(self, op: OnnxOp) -> None:
        ends = [cast(Operation, region.block.last_op) for region in op.regions]
        for index, result in enumerate(op.results):
            values = [end.operands[index] for end in ends]
            computed = [v for v in values if constant_behind(v) is None]
            stays = any(map(self._is_full, computed)) or self._asked(op)
            self._join([result], [(end, index) for end in ends], stays)
            if computed and all(v in self._whole for v in computed):
                self._mark_whole(result)

    def _loop(self, op: OnnxOp, body: Block, first: int, states: int, scanned: int) -> None:
        """A Loop or Scan.

        Args:
            first: the place of the first carried value among operands and arguments.
            states: how many are carried.
            scanned: how many operands behind them are scanned.
        """
        end = cast(Operation, body.last_op)
        outputs = 1 if first else 0
        asked = self._asked(op)
        for index in range(states):
            start, arg, result = op.operands[first + index], body.args[first + index], op.results[index]
            given = end.operands[outputs + index]
            if _adds_to(given, arg) and given.owner not in self.kept:
                self.kept[cast(Operation, given.owner)] = _RUNNING
                self._changed = True
            stays = asked or self._is_full(given) or start in self._whole
            if arg in self.full or result in self.full:
                stays = True
            self._join([arg, result], [(op, first + index), (end, outputs + index)], stays)
        for index in range(states, states + scanned):
            value = op.operands[index]
            self._join([body.args[index]], [(op, index)], self._is_full(value) or asked)
        for index in range(states, len(op.results)):
            given = end.operands[outputs + index]
            self._join([op.results[index]], [(end, outputs + index)], self._is_full(given) or asked)

    def _call(self, op: Call, function: Function) -> None:
        body = function.body
        idle = self._asked(op) or not self._works(function)
        for index, arg in enumerate(body.args[: len(op.operands)]):
            if self.subject(arg):
                self._join([arg], [(op, index)], self._is_full(op.operands[index]) or idle)
        end = cast(Operation, body.last_op)
        for index, result in enumerate(op.results):
            self._join([result], [(end, index)], self._is_full(end.operands[index]))

    def _works(self, function: Function) -> bool:
        """Whether some op of a function becomes half; if none does, it stays the function of all its callers."""
        return any(
            self._converts(op) or (isinstance(op, Call) and op in self.functions and self._works(self.functions[op]))
            for op in ops_in(function)
        )

    def _asked(self, op: OnnxOp | Call) -> bool:
        named = {node_name(op), *out_names(op)} & self.wishes.block_nodes
        return op in self.forced or op.op_type in self.wishes.block or bool(named)


def joins(op: Operation) -> bool:
    """Whether an op is an If, Loop or Scan: its graphs say of what type each of its values is."""
    return isinstance(op, OnnxOp) and (op.op_type in ("If", "Loop") or (op.op_type == "Scan" and op.since >= 9))


def _is_constant_op(op: Operation) -> bool:
    return bool(op.results) and is_constant(op.results[0])


def _adds_to(value: SSAValue, arg: SSAValue) -> bool:
    """Whether a carried value is a running sum."""
    op = value.owner
    return isinstance(op, OnnxOp) and op.op_type in ("Add", "Sub", "Sum") and arg in op.operands


def _named(value: SSAValue) -> str:
    name = name_of(value)
    return f" '{name}'" if name else ""
