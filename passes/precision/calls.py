"""Model-local functions for one kind of call each: with the types of the call, so that their ops can be looked at.

A function is untyped and may be called with any types, while half precision is a matter of types: each call gets, or
shares with others like it, a function of its own, and gives it back where nothing in it changes.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Attribute, Operation, SSAValue

from irkit.dialects.onnx import Call, Function
from irkit.dialects.onnx.structural import fill_references
from irkit.ir.attributes import string, strings
from irkit.ir.constants import RefAttr
from irkit.ir.module import Module
from irkit.ir.types import UnknownType, absent_type, dtype_of, tensor
from irkit.passes.infer_shapes import Inferrer
from irkit.passes.precision.observe import values_in
from irkit.passes.rewrite import erase, ops_in
from irkit.passes.types import set_type

__all__ = ["Copies"]

MAX_DEPTH = 64
"""So deep functions may call each other."""

Key = tuple[tuple[str, str, str], tuple[Attribute, ...], Attribute | None, int]


def _element_only(value_type: Attribute) -> Attribute:
    kind = dtype_of(value_type)
    return value_type if kind is None else tensor(kind, None)


class Copies:
    """The functions made for the calls of a module.

    Attributes:
        functions: by call.
    """

    def __init__(self, module: Module, suffix: str) -> None:
        self.module, self.suffix = module, suffix
        self.functions: dict[Call, Function] = {}
        self._originals = {op.key: op for op in module.op.ops if isinstance(op, Function)}
        self._taken = {(domain, name) for domain, name, _ in self._originals}
        self._made: dict[Key, Function] = {}
        self._before: dict[Call, dict[str, Attribute]] = {}
        self._typed: list[tuple[SSAValue, Attribute]] = []
        for op in [op for op in ops_in(module.func) if isinstance(op, Call)]:
            self._visit(op, 0)

    def _visit(self, call: Call, depth: int) -> None:
        source = self._originals.get((call.domain, call.op_type, call.overload))
        refers = any(isinstance(attr, RefAttr) for attr in call.attrs.values())
        if source is None or refers or call.regions or depth > MAX_DEPTH or len(call.operands) > len(source.body.args):
            return
        types = tuple(_element_only(v.type) for v in call.operands)
        key = (source.key, types, call.properties.get("attrs"), len(call.results))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._specialize(source, call)
            for op in [op for op in ops_in(made) if isinstance(op, Call)]:
                self._visit(op, depth + 1)
        self._before[call] = dict(call.properties)
        self.functions[call] = made
        call.properties["op_type"] = made.properties["fn_name"]
        for name in ("attrs", "overload"):
            call.properties.pop(name, None)

    def _specialize(self, source: Function, call: Call) -> Function:
        made = source.clone()
        for mine, theirs in zip(source.walk(), made.walk(), strict=True):
            theirs.location = mine.location
        name = self._name(source.key[0], f"{source.key[1]}_{self.suffix}")
        made.properties.update(
            {"sym_name": string(f"{source.key[0]}.{name}"), "fn_name": string(name), "attributes": strings([])}
        )
        made.properties.pop("overload", None)
        made.properties.pop("defaults", None)
        self._typed += [(value, value.type) for value in values_in(made)]
        for index, arg in enumerate(made.body.args):
            set_type(arg, _element_only(call.operands[index].type) if index < len(call.operands) else absent_type)
        given = {**source.defaults, **call.attrs}
        for op in ops_in(made):
            fill_references(op, given)
        parent = source.parent
        assert parent is not None
        parent.insert_op_after(made, source)
        Inferrer(self.module).block(made.body)
        return made

    def _name(self, domain: str, wanted: str) -> str:
        found, count = wanted, 1
        while (domain, found) in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add((domain, found))
        return found

    def settle(self, changed: Collection[Operation]) -> None:
        """Keeps the functions in which an op changed, with their types forgotten; other calls are as they were.

        Args:
            changed: the ops that did.
        """
        kept = {f for f in self.functions.values() if any(op in changed for op in ops_in(f))}
        # A function that calls one that is kept is kept, too.
        grown = True
        while grown:
            callers = {
                f
                for f in self.functions.values()
                if any(isinstance(op, Call) and self.functions.get(op) in kept for op in ops_in(f))
            }
            grown = not callers <= kept
            kept |= callers
        for call, function in self.functions.items():
            if function not in kept:
                call.properties.clear()
                call.properties.update(self._before[call])
        for function in dict.fromkeys(self.functions.values()):
            if function not in kept:
                erase(function)
        for value, value_type in self._typed:
            if isinstance(value_type, UnknownType):
                set_type(value, value_type)
