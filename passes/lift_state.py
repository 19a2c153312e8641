"""Turns a module with variables into a pure one: their values come in as inputs, and go out as outputs.

The order of the text is one of the orders that the tokens allow, and all of those give the same (see
``irkit.dialects.state.order``). So one walk suffices, which knows the current value of each variable: an assign changes
it, a read is replaced by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.shapes.control import join
from irkit.dialects.state.ops import After, Assign, Read, StateOp, Variable, is_token, variables_of
from irkit.dialects.state.order import Layout, check, has_state, layout_of, read_by
from irkit.dialects.state.signature import StateEntry, lifted_entries, set_state_signature
from irkit.errors import VerifyError
from irkit.ir.attributes import string, texts_of
from irkit.ir.location import fused
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import DECL, DOC, NAME, OUTS, hint, metadata_of, name_of, out_names
from irkit.ir.op import is_absent
from irkit.passes.base import Pass
from irkit.passes.rewrite import erase, set_name, sync_signature

__all__ = ["LiftState"]

INS, INS_DECL = "onnx.ins", "onnx.ins_decl"


@dataclass(frozen=True)
class LiftState(Pass):
    """Makes state explicit: no variables, accesses or tokens are left.

    Each variable becomes an input after the others, with the initial value as its default; each that the run may change
    becomes an output ``next/<name>`` as well, after the others. ``irkit.dialects.state.state_signature`` tells which.
    Outputs that are tokens go; what they stand for is part of the new values.

    An assign runs if an output needs it: if a path of values or tokens leads from it, or from the If, Loop or Scan in
    whose graphs it stands, to an output of the main graph. Others go. An If gives the new values of what its branches
    assign; a Loop or Scan carries them; what is only read is captured.
    """

    name: ClassVar[str] = "onnx-lift-state"
    keeps: ClassVar[frozenset[str]] = frozenset({"types", "gradients"})

    def run(self, module: Module) -> bool:
        if not has_state(module.op):
            return False
        try:
            check(module.op)
        except VerifyException as error:
            raise VerifyError(str(error)) from None
        _Lifter(module).run()
        sync_signature(module)
        return True


Current = dict[str, SSAValue]
"""The value that each variable has at a place in the graph, by symbol."""


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.variables = variables_of(module.op)
        self.retired: list[Operation] = []

    def run(self) -> None:
        earlier = self._lifted_before()
        func, taken = self.module.func, _names_in(self.module)
        block = func.body.block
        inputs = {symbol: _unique(v.variable_name, taken) for symbol, v in self.variables.items()}
        given: Current = {}
        for symbol, variable in self.variables.items():
            arg = block.insert_arg(variable.type, len(block.args), variable.location)
            arg.name_hint = hint(variable.variable_name)
            given[symbol] = arg
        current = dict(given)
        self.block(block, current, _reaching_outputs(block))
        changed = [symbol for symbol in self.variables if current[symbol] is not given[symbol]]
        outputs = {symbol: _unique(f"next/{self.variables[symbol].variable_name}", taken) for symbol in changed}
        self._set_inputs(func, inputs)
        self._set_outputs(func, [(current[symbol], name) for symbol, name in outputs.items()])
        entries = [_entry(v, inputs[symbol], outputs.get(symbol)) for symbol, v in self.variables.items()]
        for op in (*self.retired, *self.variables.values()):
            erase(op)
        if entries:
            set_state_signature(self.module, [*earlier, *entries])
            # Below, an initializer is a constant even where it is listed as an input.
            self.module.ir_version = max(self.module.ir_version, 4)

    def _lifted_before(self) -> tuple[StateEntry, ...]:
        """The variables that an earlier run of the pass has made inputs."""
        earlier = lifted_entries(self.module)
        names = {variable.variable_name for variable in self.variables.values()}
        again = [entry.name for entry in earlier if entry.name in names]
        if again:
            raise VerifyError(f"the module has a variable '{again[0]}', and one of that name that is lifted already")
        return earlier

    def _set_inputs(self, func: FuncOp, inputs: dict[str, str]) -> None:
        entries = list(arg_entries(func.arg_attrs, len(func.body.block.args) - len(inputs)))
        for symbol, name in inputs.items():
            variable = self.variables[symbol]
            doc = variable.attributes.get(DOC)
            entries.append({NAME: string(name), DEFAULT: variable.initial} | ({} if doc is None else {DOC: doc}))
        _set(func, "arg_attrs", entries)

    def _set_outputs(self, func: FuncOp, added: Sequence[tuple[SSAValue, str]]) -> None:
        names = self.module.output_names
        end = cast(Operation, func.body.block.last_op)
        kept = [i for i, value in enumerate(end.operands) if not is_token(value)]
        old = arg_entries(func.res_attrs, len(names))
        # An output that has no name is called by its place, which may change.
        entries = [{**old[i], NAME: string(names[i])} for i in kept]
        end.operands = [*(end.operands[i] for i in kept), *(value for value, _ in added)]
        _set(func, "res_attrs", [*entries, *({NAME: string(name)} for _, name in added)])

    def block(self, block: Block, current: Current, running: set[Operation] | None = None) -> None:
        """Makes the ops of a block pure; ``current`` is brought from what holds before it to what holds after.

        Args:
            running: the ops whose effects take place; None for all.
        """
        for op in list(block.ops):
            runs = running is None or op in running
            match op:
                case Read():
                    _replace(op.results[0], current[op.symbol])
                case Assign():
                    if runs:
                        current[op.symbol] = op.operands[0]
                case After():
                    _replace(op.results[0], op.operands[0])
                case OnnxOp() if op.regions and self._concerns(op):
                    self.body_op(op, current if runs else dict(current))
                case _:
                    pass
            if isinstance(op, StateOp):
                self._retire(op)

    def _retire(self, op: Operation) -> None:
        """Drops an op's operands; it goes when its token, too, is used no more."""
        op.operands = ()
        self.retired.append(op)

    @staticmethod
    def _concerns(op: Operation) -> bool:
        handed_on = [*op.operands, *op.results]
        return any(map(is_token, handed_on)) or any(isinstance(inner, StateOp) for inner in op.walk())

    def body_op(self, op: OnnxOp, current: Current) -> None:
        """Makes an If, Loop or Scan pure: a copy gives the values of the variables that its graphs assign."""
        layout = cast(Layout, layout_of(op))
        written = self._written(op)
        kept = [i for i, result in enumerate(op.results) if not is_token(result)]
        # Carried values stand in front of what a loop collects; an If has only the one kind.
        at = len(kept) if op.op_type == "If" else sum(i < layout.n_states for i in kept)
        yielded = [self._body(op, region.block, layout, kept, at, written, current) for region in op.regions]
        if not kept and not written:
            self._retire(op)
            return
        if op.op_type != "If":
            yielded.append([current[symbol].type for symbol in written])
        added = [reduce(join, types) for types in zip(*yielded, strict=True)]
        types = [op.results[i].type for i in kept]
        operands = self._operands(op, layout, [current[symbol] for symbol in written])
        new = type(op).create(
            operands=operands,
            result_types=[*types[:at], *added, *types[at:]],
            properties=op.properties,
            attributes=op.attributes,
            location=fused([op.location], "lift-state"),
            regions=[op.detach_region(region) for region in tuple(op.regions)],
        )
        _select(new.attributes, OUTS, kept, at, [string("")] * len(written))
        _select(new.attributes, DECL, kept, at, [UnitAttr()] * len(written))
        cast(Block, op.parent).insert_op_before(new, op)
        results = [*new.results[:at], *new.results[at + len(written) :]]
        for place, result in zip(kept, results, strict=True):
            result.name_hint = op.results[place].name_hint
            op.results[place].replace_all_uses_with(result)
        for symbol, result in zip(written, new.results[at : at + len(written)], strict=True):
            result.name_hint = hint(self.variables[symbol].variable_name)
            current[symbol] = result
        self._retire(op)

    def _written(self, op: Operation) -> list[str]:
        assigned = {inner.symbol for inner in op.walk() if isinstance(inner, Assign)}
        return [symbol for symbol in self.variables if symbol in assigned]

    @staticmethod
    def _operands(op: OnnxOp, layout: Layout, added: Sequence[SSAValue]) -> list[SSAValue]:
        """The operands of the copy: without tokens, with the variables that a loop is to carry."""
        given = list(op.operands)
        if op.op_type == "If":
            return given
        end = layout.operand + layout.n_states
        states = [value for value in given[layout.operand : end] if not is_token(value)]
        found = [*given[: layout.operand], *states, *added, *given[end:]]
        while len(found) > op.spec.min_inputs and is_absent(found[-1]):
            found.pop()
        return found

    def _body(
        self,
        op: OnnxOp,
        block: Block,
        layout: Layout,
        kept: Sequence[int],
        at: int,
        written: Sequence[str],
        current: Current,
    ) -> list[Attribute]:
        """Makes a graph pure; returns the types that it yields for the variables that are assigned.

        Args:
            kept: the results of the op that stay, and of them how many (``at``) stand in front of the added ones.
        """
        inner = dict(current)
        args = [i for i, arg in enumerate(block.args) if not is_token(arg)]
        if op.op_type != "If":
            for index, symbol in enumerate(written, layout.arg + layout.n_states):
                arg = block.insert_arg(self.variables[symbol].type, index)
                arg.name_hint = hint(self.variables[symbol].variable_name)
                inner[symbol] = arg
        self.block(block, inner)
        end = cast(Operation, block.last_op)
        places = [*range(layout.output), *(layout.output + i for i in kept)]
        first = layout.output + at
        values = [end.operands[i] for i in places]
        values[first:first] = [inner[symbol] for symbol in written]
        end.operands = values
        blank, as_inferred = [string("")] * len(written), [UnitAttr()] * len(written)
        _select(end.attributes, OUTS, places, first, blank)
        _select(end.attributes, DECL, places, first, as_inferred)
        if op.op_type != "If":
            _select(end.attributes, INS, args, layout.arg + at, blank)
            _select(end.attributes, INS_DECL, args, layout.arg + at, as_inferred)
        for arg in reversed(block.args):
            if is_token(arg):
                block.erase_arg(arg)
        return [inner[symbol].type for symbol in written]


def _reaching_outputs(block: Block) -> set[Operation]:
    """The ops of the main graph that an output depends on."""
    needed: set[SSAValue] = set()
    found: set[Operation] = set()
    for op in reversed(block.ops):
        if op is block.last_op or any(result in needed for result in op.results):
            found.add(op)
            needed.update(read_by(op))
    return found


def _select(
    attributes: dict[str, Attribute], name: str, kept: Sequence[int], at: int, added: Sequence[Attribute]
) -> None:
    """Keeps the entries at these places of an attribute that lists something per value; inserts others at ``at``."""
    found = cast("ArrayAttr[Attribute] | None", attributes.get(name))
    if found is None:
        return
    entries = found.data
    default = string("") if name in (OUTS, INS) else UnitAttr()
    chosen = [entries[i] if i < len(entries) else default for i in kept]
    chosen[at:at] = added
    attributes[name] = ArrayAttr(chosen)


def _set(func: FuncOp, name: str, entries: Sequence[Mapping[str, Attribute]]) -> None:
    """Sets the attributes of a function's arguments or results."""
    made = arg_attrs(entries)
    if made is None:
        func.properties.pop(name, None)
    else:
        func.properties[name] = made


def _replace(old: SSAValue, new: SSAValue) -> None:
    """Makes every use of a value use another, which takes over its name where it has none."""
    name = name_of(old)
    if name and isinstance(new, OpResult) and not name_of(new):
        set_name(new, name)
    old.replace_all_uses_with(new)


def _names_in(module: Module) -> set[str]:
    """All names of values in a module."""
    found = {*module.input_names, *module.output_names}
    for op in module.walk():
        found.update(out_names(op))
        ins = op.attributes.get(INS)
        if ins is not None:
            found.update(texts_of(ins))
    return found


def _unique(name: str, taken: set[str]) -> str:
    """The name, or where it is taken the first of ``name_1``, ``name_2``... that is not; it is taken from now on."""
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


def _entry(variable: Variable, input_name: str, output_name: str | None) -> StateEntry:
    return StateEntry(variable.variable_name, input_name, output_name, variable.trainable, metadata_of(variable))
