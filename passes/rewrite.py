"""What passes share: replacing values without losing names, new ops that say where they come from, results dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import onnx
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, FunctionType, LocationAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from irkit.dialects.onnx import CURRENT, Function, Initializer, op_class
from irkit.ir.attributes import strings
from irkit.ir.constants import ConstantData, ProtoAttr, RefAttr, TensorAttr
from irkit.ir.fuel import FUEL
from irkit.ir.location import fused
from irkit.ir.module import Module
from irkit.ir.names import DECL, OUTS, REST, hint, name_of, out_names
from irkit.ir.op import TensorOp, type_string
from irkit.passes.types import refine

__all__ = [
    "Rewriter",
    "body_blocks",
    "enclosing_function",
    "erase",
    "has_reference",
    "items_of",
    "main_returns",
    "ops_in",
    "referenced_names",
    "select_attr",
    "set_name",
    "sync_signature",
    "target_opset",
    "with_results",
]

TensorOpT = TypeVar("TensorOpT", bound=TensorOp)

_CONSTANT = CURRENT["", "Constant"]
MAX_SOURCES = 32
"""Of how many ops a location remembers that they were merged into one."""


def body_blocks(module: Module) -> list[Block]:
    """The block of the main graph, then those of the functions."""
    found: list[Block] = []
    for op in module.op.ops:
        if isinstance(op, FuncOp | Function):
            found += list(op.regions[0].blocks)
    return found


def ops_in(op: Operation) -> Iterator[Operation]:
    """All ops within an op's regions, nested ones included, each before those within it."""
    for region in op.regions:
        for block in region.blocks:
            inner = block.first_op
            while inner is not None:
                yield inner
                if inner.regions:
                    yield from ops_in(inner)
                inner = inner.next_op


def main_returns(module: Module) -> set[SSAValue]:
    """The values of the main graph's outputs; none where there is no main graph."""
    functions = [op for op in module.op.ops if isinstance(op, FuncOp) and op.body.blocks]
    last = functions[0].body.block.last_op if functions else None
    return set() if last is None else set(last.operands)


def enclosing_function(block: Block | None) -> Function | None:
    """The model-local function that a block belongs to, or None for the main graph."""
    while block is not None:
        op = block.parent_op()
        if isinstance(op, Function):
            return op
        block = None if op is None else op.parent
    return None


def target_opset(module: Module, function: Function | None = None) -> int:
    """The opset of ai.onnx that what a pass makes must be expressible in."""
    from irkit.dialects.onnx.classes import ONNX_OPSET
    from irkit.dialects.onnx.structural import opsets_of

    opsets = module.opsets if function is None else opsets_of(function.properties.get("opsets"))
    return opsets.get("", ONNX_OPSET)


def has_reference(op: Operation) -> bool:
    """Whether an attribute of an op in a function's body is the caller's to give."""
    return any(isinstance(attr, RefAttr) for attr in op.properties.values())


def erase(op: Operation) -> None:
    """Takes an op whose results are unused out of its block."""
    op.detach()
    op.erase()


def sync_signature(module: Module) -> None:
    """Makes the types of the functions say what they take and return, after their values' types were refined."""
    for op in module.op.ops:
        if not isinstance(op, FuncOp) or not op.body.blocks:
            continue
        block = op.body.block
        outputs = [] if block.last_op is None else [v.type for v in block.last_op.operands]
        inputs = [a.type for a in block.args]
        declared = op.function_type
        if list(declared.outputs.data) != outputs or list(declared.inputs.data) != inputs:
            op.properties["function_type"] = FunctionType.from_lists(inputs, outputs)


def referenced_names(module: Module) -> set[str]:
    """Names of initializers to which annotations refer that the IR keeps as they came."""
    found: set[str] = set()
    for op in ops_in(module.op):
        rest = op.attributes.get(REST)
        if isinstance(rest, ProtoAttr) and rest.message.data == "GraphProto":
            for annotation in onnx.GraphProto.FromString(rest.bytes).quantization_annotation:
                found |= {entry.value for entry in annotation.quant_parameter_tensor_names}
    rest = module.op.attributes.get(REST)
    if isinstance(rest, ProtoAttr):
        for training in onnx.ModelProto.FromString(rest.bytes).training_info:
            for graph in (training.initialization, training.algorithm):
                found |= {name for node in graph.node for name in node.input}
            for binding in (*training.initialization_binding, *training.update_binding):
                found |= {binding.key, binding.value}
    return found


def items_of(attr: Attribute | None) -> list[Attribute] | None:
    """The entries of an array attribute; None for anything else."""
    return list(cast("ArrayAttr[Attribute]", attr).data) if isinstance(attr, ArrayAttr) else None


def select_attr(attributes: dict[str, Attribute], name: str, kept: Sequence[int]) -> None:
    """Keeps the entries at these places of an attribute that lists something per result, input or output."""
    entries = items_of(attributes.get(name))
    if entries is not None:
        attributes[name] = ArrayAttr([entries[i] for i in kept if i < len(entries)])


def with_results(op: TensorOp, kept: Sequence[int], operands: Sequence[SSAValue], by: str) -> Operation:
    """A copy of an op that takes over its graphs and has only some of its results; the op itself is erased.

    Args:
        kept: the places of the results that stay; the others must be unused.
        operands: of the copy.
        by: the pass, for the location.
    """
    regions = [op.detach_region(region) for region in tuple(op.regions)]
    types = [op.results[i].type for i in kept]
    new = type(op).create(
        operands=operands,
        result_types=types,
        properties=op.properties,
        attributes=op.attributes,
        location=fused([op.location], by),
        regions=regions,
    )
    for name in (OUTS, DECL):
        select_attr(new.attributes, name, kept)
    block = op.parent
    assert block is not None
    block.insert_op_before(new, op)
    for place, result in zip(kept, new.results, strict=True):
        result.name_hint = op.results[place].name_hint
        op.results[place].replace_all_uses_with(result)
    erase(op)
    return new


def _is_input(value: SSAValue) -> bool:
    """Whether this is an input of the main graph: its type is what callers may feed, which no rewrite narrows."""
    return isinstance(value, BlockArgument) and isinstance(value.block.parent_op(), FuncOp)


class Rewriter:
    """Changes a module on behalf of one pass.

    Attributes:
        module, ctx: what is changed.
        returned: the values of the main graph's outputs, kept up to date.
        by: the pass or rule at work; new ops carry it in their location.
        touched: ops made, and users of values replaced, since the list was last emptied.
        in_step: whether a rewrite is under way that was counted as a whole; else ``replace`` counts itself.
    """

    def __init__(self, module: Module, by: str) -> None:
        self.module = module
        self.ctx: Context = module.ctx
        self.returned = main_returns(module)
        self.by = by
        self.touched: list[Operation] = []
        self.in_step = False
        self._fuel = FUEL.get()

    @property
    def exhausted(self) -> bool:
        """Whether bisection wants no more rewrites."""
        return self._fuel is not None and self._fuel.exhausted

    def take(self, op: Operation) -> bool:
        """Whether a rewrite that begins at this op may be made; counts it if so. See ``irkit.ir.fuel``."""
        return self._fuel is None or self._fuel.take(self.by, op)

    def location(self, sources: Iterable[Operation]) -> LocationAttr:
        """The location of what is made out of these ops."""
        return fused([op.location for op in list(sources)[:MAX_SOURCES]], self.by)

    def add(self, op: Operation, before: Operation, sources: Iterable[Operation] | None = None) -> Operation:
        """Inserts a new op in front of another, located at what it is made from (default: the other)."""
        op.location = self.location([before] if sources is None else sources)
        block = before.parent
        assert block is not None
        block.insert_op_before(op, before)
        self.touched.append(op)
        return op

    def make(
        self,
        cls: type[TensorOpT],
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        attributes: Mapping[str, Any] | None = None,
        *,
        before: Operation,
        sources: Iterable[Operation] | None = None,
    ) -> TensorOpT:
        """Makes an op of which the result types are known, and inserts it."""
        op = cls.make(operands, result_types, attributes)
        self.add(op, before, sources)
        return op

    def constant(
        self, data: ConstantData, *, before: Operation, sources: Iterable[Operation] | None = None
    ) -> SSAValue | None:
        """A constant in front of an op: a ``Constant``, or an initializer where that lacks the dtype at the target.

        Returns:
            None where it cannot be expressed: a function owns no initializers.
        """
        attr = TensorAttr.of(data)
        function = enclosing_function(before.parent)
        form = op_class("", "Constant", target_opset(self.module, function))
        allowed = frozenset[str]() if form is None else form.spec.variables[form.spec.outputs[0].type]
        op: Operation
        if type_string(attr.type) in allowed:
            op = _CONSTANT.create(result_types=[attr.type], properties={"value": attr})
        elif function is None:
            op = Initializer.of(attr)
        else:
            return None
        return self.add(op, before, sources).results[0]

    def replace(self, op: Operation, values: Sequence[SSAValue | None]) -> None:
        """Replaces an op's results by these values and erases it. None stands for a result that is not used.

        Does nothing where bisection lets no more rewrites happen: the op stays, and what was made for it is unused.
        """
        if not self.in_step and not self.take(op):
            return
        for result, value in zip(op.results, values, strict=True):
            if value is not None:
                self.replace_value(result, value)
        erase(op)

    def replace_value(self, old: OpResult, new: SSAValue) -> None:
        """Makes every use of a value use another, which takes over its name and, if no input, its type."""
        if old is new:
            return
        self._keep_name(old, new)
        if not _is_input(new):
            refine(new, old.type)
        self.touched += [use.operation for use in old.uses]
        old.replace_all_uses_with(new)
        if old in self.returned:
            self.returned.discard(old)
            self.returned.add(new)

    @staticmethod
    def _keep_name(old: OpResult, new: SSAValue) -> None:
        """The new value keeps its own name if it has one; an output bears the output's name, which the function has."""
        name = name_of(old)
        if name and isinstance(new, OpResult) and not name_of(new):
            set_name(new, name)


def set_name(value: OpResult, name: str) -> None:
    """Names one result of an op."""
    names = list(out_names(value.op))
    names += [""] * (len(value.op.results) - len(names))
    names[value.index] = name
    value.op.attributes[OUTS] = strings(names)
    value.name_hint = hint(name)
