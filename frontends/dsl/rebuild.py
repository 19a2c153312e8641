"""A builder that can say all that a module says: what printed programs (``irkit.frontends.dsl.source``) build with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser

from irkit.dialects.onnx.structural import Function, Yield
from irkit.errors import LoadError
from irkit.ir.attributes import string, strings
from irkit.ir.builder import Builder, Tensor, Values
from irkit.ir.constants import TensorAttr
from irkit.ir.module import Module
from irkit.ir.names import NAME, set_out_names
from irkit.ir.op import TensorOp
from irkit.ir.text.sidecar import Sidecar

__all__ = ["Rebuilder"]

Notes = Mapping[str, Any]
"""Attributes of an op by name: attributes, texts, or lists of texts."""


class Rebuilder(Builder):
    """A ``Builder`` whose ops may be given names, types and annotations.

    Args:
        options: of ``Builder``.
        constants: the path of the side file with the large constants, which need not be there if there are none.
    """

    def __init__(self, name: str = "graph", *, constants: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(name, **options)
        self._constants = None if constants is None else Path(constants)
        self._sidecar: Sidecar | None = None
        self._after: list[Operation] = []

    # Attributes

    def attr(self, text: str) -> Attribute:
        """An attribute or type from its text."""
        return Parser(self.ctx, text).parse_attribute()

    def stored(self, digest: str) -> TensorAttr:
        """A constant from the side file.

        Raises:
            LoadError: if it is not there.
        """
        if self._sidecar is None:
            if self._constants is None:
                raise LoadError("the program has no side file")
            self._sidecar = Sidecar(self._constants)
        found = self._sidecar.get(digest)
        if found is None:
            raise LoadError(f"'{self._constants}' has no constant {digest}")
        return TensorAttr.of(found)

    # Ops

    def op(
        self,
        op_name: str | type[TensorOp],
        *operands: Values,
        outs: str | Sequence[str] = (),
        types: Sequence[str] | None = None,
        notes: Notes | None = None,
        **options: Any,
    ) -> Any:
        """An op as ``Builder.op`` makes it.

        Args:
            outs: the names of its results.
            types: those of its results, where they are not what inference says.
            notes: its other attributes.
        """
        made = (
            super().op(op_name, *operands, **options)
            if types is None
            else self._typed(op_name, operands, types, options)
        )
        op = cast(Operation, (made[0] if isinstance(made, tuple) else made).ssa.owner)
        self._annotate(op, outs, notes)
        return made

    def _typed(
        self,
        op_name: str | type[TensorOp],
        operands: Sequence[Values],
        types: Sequence[str],
        options: Mapping[str, Any],
    ) -> Any:
        cls = self._class(op_name) if isinstance(op_name, str) else op_name
        given = dict(options)
        name = given.pop("name", "")
        given.pop("outputs", None)
        regions = [given.pop(g, Region()) for g in cls.spec.graphs]
        properties = cls.properties_from(given)
        made = self.raw(cls.name, operands, types, properties, regions, {NAME: name} if name else None)
        return made[0] if len(made) == 1 else made

    def raw(
        self,
        name: str,
        operands: Sequence[Values] = (),
        types: Sequence[str] = (),
        properties: Notes | None = None,
        graphs: Sequence[Region | None] = (),
        notes: Notes | None = None,
    ) -> tuple[Tensor, ...]:
        """Any op, from operands, the texts of its results' types, its properties and its graphs."""
        cls = self.ctx.get_op(name)
        op = cls.create(
            operands=[self.tensor(v) for v in operands],
            result_types=[self.attr(t) for t in types],
            properties=_attributes(properties),
            regions=[Region() if g is None else g for g in graphs],
        )
        self._annotate(op, (), notes)
        self.insert(op)
        return tuple(Tensor(r, self) for r in op.results)

    @staticmethod
    def _annotate(op: Operation, outs: str | Sequence[str], notes: Notes | None) -> None:
        if outs:
            set_out_names(op, [outs] if isinstance(outs, str) else outs)
        op.attributes.update(_attributes(notes))

    def graph(self, body: Callable[..., Any], types: Sequence[str] = (), notes: Notes | None = None) -> Region:
        """The graph that a function of a builder and arguments of these types makes; ``notes`` is what its end says."""
        inner = Rebuilder(ctx=self.ctx)
        inner.block, inner.location = Block(arg_types=[self.attr(t) for t in types]), self.location
        inner.declared, inner.control, inner.depth = self.declared, self.control, self.depth + 1
        inner._constants, inner._sidecar = self._constants, self._sidecar
        results = body(inner, *(Tensor(arg, inner) for arg in inner.block.args))
        end = Yield.create(operands=[inner.tensor(r) for r in results])
        end.attributes.update(_attributes(notes))
        inner.block.add_op(end)
        return Region(inner.block)

    # The module

    def declare(self, op: str, properties: Notes, notes: Notes | None = None) -> None:
        """An op of the module's top level that has neither operands nor results, such as a variable."""
        made = self.ctx.get_op(op).create(properties=_attributes(properties))
        made.attributes.update(_attributes(notes))
        self.declared.append(made)

    def function(
        self,
        key: tuple[str, str, str],
        symbol: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        body: Region,
        *,
        opsets: Mapping[str, int],
        attributes: Sequence[str] = (),
        defaults: Mapping[str, Attribute] | None = None,
        notes: Notes | None = None,
        last: bool = False,
    ) -> None:
        """A function of the model: its domain, name and overload, and a body.

        Args:
            last: whether it stands after the main graph.
        """
        made = Function.of(key, symbol, inputs, outputs, attributes, defaults or {}, opsets, body)
        made.attributes.update(_attributes(notes))
        (self._after if last else self.declared).append(made)

    def module(
        self,
        *,
        module: Notes | None = None,
        graph: Notes | None = None,
        inputs: Sequence[Notes] | None = None,
        outputs: Sequence[Notes] | None = None,
    ) -> Module:
        """The finished module.

        Args:
            module: all its attributes, where they are not what a builder gives.
            graph: those of its graph, likewise.
            inputs: those of each input.
            outputs: those of each output.
        """
        made = super().module()
        for op in self._after:
            made.op.body.block.add_op(op)
        for target, given in ((made.op.attributes, module), (made.func.attributes, graph)):
            if given is not None:
                target.clear()
                target.update(_attributes(given))
        for name, entries in (("arg_attrs", inputs), ("res_attrs", outputs)):
            if entries is not None:
                made.func.properties[name] = ArrayAttr([DictionaryAttr(_attributes(entry)) for entry in entries])
        return made.verify()


def _attributes(notes: Notes | None) -> dict[str, Attribute]:
    return {name: _attribute(value) for name, value in (notes or {}).items()}


def _attribute(value: Any) -> Attribute:
    if isinstance(value, Attribute):
        return value
    return string(value) if isinstance(value, str) else strings(value)
