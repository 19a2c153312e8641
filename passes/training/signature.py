"""Inputs and outputs of a module that is being extended."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from irkit.dialects.state.signature import lifted_entries, set_state_signature
from irkit.errors import IrkitError
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import NAME, hint, name_of
from irkit.passes.infer_shapes import InferShapes
from irkit.passes.inline import Inline
from irkit.passes.lift_state import LiftState
from irkit.passes.registry import suggestion

__all__ = ["Graph", "matches", "matching", "without_defaults"]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of these, or matches one as shells do: ``*``, ``?``, ``[...]``."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def matching(patterns: Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """The names that match any of the patterns.

    Raises:
        IrkitError: for a pattern that matches none.
    """
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in names):
            raise IrkitError(f"'{pattern}' matches no {what}", hint=suggestion(pattern, list(names)[:40], what))
    return [name for name in names if matches(name, patterns)]


def without_defaults(module: Module) -> Module:
    """A copy whose state has to be fed."""
    made = module.clone()
    held = {entry.input for entry in lifted_entries(made)}
    entries = [dict(entry) for entry in arg_entries(made.func.arg_attrs, len(made.block.args))]
    for entry, name in zip(entries, made.input_names, strict=True):
        if name in held:
            del entry[DEFAULT]
    attrs = arg_attrs(entries)
    if attrs is not None:
        made.func.properties["arg_attrs"] = attrs
    return made


class Graph:
    """A copy of a module that is being extended, with its types inferred.

    Args:
        by: stands in the locations of what is built.
        whole: inline the module's functions and lift its state first.

    Attributes:
        module: the copy.
        end: its ``func.return``.
        b: builds in front of that.
    """

    def __init__(self, module: Module, by: str, *, whole: bool = True) -> None:
        self.module = module.clone()
        if whole:
            Inline().run(self.module)
            LiftState().run(self.module)
        InferShapes().run(self.module)
        last = self.module.block.last_op
        assert isinstance(last, ReturnOp)
        self.end: Operation = last
        self.b = Builder.before(last, self.module.ctx, by=by)
        self.entries = lifted_entries(self.module)

    def top(self) -> Builder:
        """A builder at the beginning of the graph."""
        first = self.module.block.first_op
        assert first is not None
        return Builder.before(first, self.module.ctx, by=self.b.by)

    def named(self) -> dict[str, SSAValue]:
        """The values of the main graph that have names."""
        block = self.module.block
        found: dict[str, SSAValue] = {name: r for op in block.ops for r in op.results if (name := name_of(r))}
        found.update(zip(self.module.input_names, block.args, strict=True))
        found.update(zip(self.module.output_names, self.module.returned, strict=True))
        return found

    def value(self, name: str) -> Tensor:
        """A value of the main graph by its name.

        Raises:
            IrkitError: if there is none.
        """
        found = self.named().get(name)
        if found is None:
            shown = [*self.module.output_names, *sorted(self.named())]
            known = list(dict.fromkeys(n for n in shown if not n.startswith("#")))[:40]
            raise IrkitError(f"the graph has no value '{name}'", hint=suggestion(name, known, "values"))
        return self.b.wrap(found)

    # Inputs

    def argument(self, name: str) -> SSAValue:
        """An input by its name."""
        return self.module.block.args[self.module.input_names.index(name)]

    def add_input(self, name: str, value_type: Attribute) -> Tensor:
        """One more input.

        Raises:
            IrkitError: if there is one of this name.
        """
        module = self.module
        block, func = module.block, module.func
        names = module.input_names
        if name in names:
            raise IrkitError(f"the graph has an input '{name}' already", hint="give the new one another name")
        entries = [dict(e) for e in arg_entries(func.arg_attrs, len(block.args))]
        for entry, known in zip(entries, names, strict=True):
            entry.setdefault(NAME, string(known))
        arg = block.insert_arg(value_type, len(block.args))
        arg.name_hint = hint(name)
        self._set("arg_attrs", [*entries, {NAME: string(name)}])
        return self.b.wrap(arg)

    def drop_input(self, name: str) -> None:
        """Takes an input that is not used out of the signature."""
        module = self.module
        index = module.input_names.index(name)
        entries = [dict(e) for e in arg_entries(module.func.arg_attrs, len(module.block.args))]
        for entry, known in zip(entries, module.input_names, strict=True):
            entry.setdefault(NAME, string(known))
        del entries[index]
        module.block.erase_arg(module.block.args[index])
        self._set("arg_attrs", entries)

    # Outputs

    def outputs(self) -> list[tuple[str, SSAValue]]:
        """The outputs' names and values, in order."""
        return list(zip(self.module.output_names, self.module.returned, strict=True))

    def set_outputs(self, outputs: Sequence[tuple[str, SSAValue]]) -> None:
        """Makes these the outputs."""
        self.end.operands = [value for _, value in outputs]
        self._set("res_attrs", [{NAME: string(name)} for name, _ in outputs])

    def add_output(self, name: str, value: SSAValue) -> None:
        """One more output."""
        self.set_outputs([*self.outputs(), (name, value)])

    def forget_state(self) -> None:
        """Says in the metadata that nothing is state: the inputs and outputs that were are ordinary ones."""
        if self.entries:
            set_state_signature(self.module, [])

    def _set(self, name: str, entries: Sequence[dict[str, Attribute]]) -> None:
        made = arg_attrs(entries)
        if made is None:
            self.module.func.properties.pop(name, None)
        else:
            self.module.func.properties[name] = made
