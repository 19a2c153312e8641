"""Modules of expressions: which inputs and outputs they have, and what is done to them before they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from xdsl.ir import SSAValue

from irkit.dialects import state
from irkit.dialects.onnx.classes import OnnxOp, versions
from irkit.dialects.onnx.spec import schema_of
from irkit.errors import IrkitError, VerifyError
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.build import convert
from irkit.frontends.dsl.errors import UninitializedError, failure
from irkit.frontends.dsl.lowering import FUNCTIONS, Lowering
from irkit.frontends.dsl.nodes import (
    AssignNode,
    BuiltNode,
    CallNode,
    GradientNode,
    Node,
    PlaceholderNode,
    ReadNode,
    cone,
)
from irkit.frontends.dsl.state import Variable
from irkit.ir.builder import DEFAULT_OPSET, Builder
from irkit.ir.constants import TensorAttr
from irkit.ir.memory import paused_gc
from irkit.ir.module import Module

__all__ = ["lower", "pure_module", "to_module"]


def lower(
    outputs: Mapping[str, symbols.Symbol | symbols.Effect],
    inputs: Sequence[symbols.Symbol] | None = None,
    cut: Mapping[symbols.Symbol, str] | None = None,
    name: str = "graph",
    start: Callable[[Variable], TensorAttr] = Variable.start,
) -> tuple[Module, dict[Variable, state.Variable]]:
    """The module that gives these outputs, with its variables not lifted yet; and the variables.

    Args:
        inputs: the placeholders, in order; by default those that are needed, in the order in which they were made.
        cut: symbols that are fed instead of computed, with the names of their inputs.
        start: gives what a variable is declared with.
    """
    with paused_gc():
        lowering = Lowering(name, start)
        root, b = lowering.frames[None], lowering.builder
        lowering.inlined = _differentiated(cone([o.node for o in outputs.values()]))
        fed: dict[tuple[Node, int], str] = {(s.node, s.index): n for s, n in (cut or {}).items()}
        found = _placeholders(outputs, inputs, {node for node, _ in fed})
        taken: dict[str, Node] = {}
        for node in found:
            other = taken.setdefault(node.name, node)
            if other is not node:
                raise failure(
                    IrkitError,
                    f"two placeholders are called '{node.name}'",
                    site=node.site,
                    related=[("the other", other.site)],
                    hint="give one of them another name",
                )
            root.values[node] = [b.input(node.name, node.types[0]).ssa]
        for (node, index), given in fed.items():
            values = dict(enumerate(root.values.get(node, ())))
            values[index] = b.input(given, node.types[index]).ssa
            root.values[node] = _Partial(values, node)
        for label, what in outputs.items():
            b.output(lowering.value(what), label)
        b.declared += [function for _, function in lowering.functions.values()]
        module = _finished(b)
        module.opsets = {**module.opsets, "": _opset(module), **({FUNCTIONS: 1} if lowering.functions else {})}
    return module, lowering.variables


def _finished(b: Builder) -> Module:
    """The module; accesses of state without an order are refused in the words of expressions."""
    try:
        return b.module()
    except VerifyError as error:
        text, found, _ = error.message.partition("; give the one that comes later the token of the other")
        if not found:
            raise
        hint = (
            "write the later one within `with dsl.control_dependencies([earlier]):`; dsl.after(value, [earlier]) waits"
        )
        raise VerifyError(text, op=error.op, where=error.where, hint=hint) from None


def _differentiated(nodes: Sequence[Node]) -> set[Node]:
    """The calls that must be inlined although that was not asked for: differentiation looks into them, or the graphs
    that they call cannot do without types."""
    calls: set[Node] = {n for n in nodes if isinstance(n, CallNode) and not n.inline}
    if not calls:
        return calls
    through = cone([y.node for n in nodes if isinstance(n, GradientNode) for y in n.ys])
    needing = {c for c in calls if any(isinstance(n, GradientNode | BuiltNode) for n in cone([c]))}
    return calls.intersection(through) | needing


def _opset(module: Module) -> int:
    """The opset to save at: the usual one, unless an op came later and cannot be told in others."""
    used = {type(op) for op in module.walk() if isinstance(op, OnnxOp) and not op.domain}
    schemas = {cls.op_type: cast(Any, schema_of(cls.domain, cls.op_type, cls.since)) for cls in used}
    births = [min(versions("", op_type)) for op_type, schema in schemas.items() if not schema.has_function]
    return max([DEFAULT_OPSET, *births])


class _Partial(dict[int, SSAValue]):
    """The results of a node of which some are fed; the others are not there."""

    def __init__(self, values: Mapping[int, SSAValue], node: Node) -> None:
        super().__init__(values)
        self.node = node

    def __missing__(self, index: int) -> SSAValue:
        raise failure(IrkitError, f"result {index} is needed of an op of which another is fed", site=self.node.site)


def _placeholders(
    outputs: Mapping[str, symbols.Symbol | symbols.Effect],
    inputs: Sequence[symbols.Symbol] | None,
    stops: set[Node],
) -> list[PlaceholderNode]:
    needed = [n for n in _cone_without([o.node for o in outputs.values()], stops) if isinstance(n, PlaceholderNode)]
    if inputs is None:
        return sorted(needed, key=lambda n: n.serial)
    given = [s.node for s in inputs if isinstance(s.node, PlaceholderNode)]
    missing = next((n for n in needed if n not in given), None)
    if missing is not None:
        raise failure(
            IrkitError, f"the placeholder '{missing.name}' is needed, but not among the inputs", site=missing.site
        )
    return given


def _cone_without(nodes: Sequence[Node], stops: set[Node]) -> list[Node]:
    if not stops:
        return cone(nodes)
    seen: dict[Node, None] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen and node not in stops:
            seen[node] = None
            stack += node.reads
    return list(seen)


def named_outputs(outputs: Any) -> dict[str, symbols.Symbol | symbols.Effect]:
    """The outputs of a module by name: a dict's keys; else names of placeholders and constants, or ``out0``..."""
    if isinstance(outputs, Mapping):
        return {str(k): _output(v) for k, v in outputs.items()}
    listed = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    return {"out" if len(listed) == 1 else f"out{i}": _output(v) for i, v in enumerate(listed)}


def _output(value: Any) -> symbols.Symbol | symbols.Effect:
    """The symbol of an output; of complex numbers, that of their pairs of parts."""
    if isinstance(value, symbols.Effect):
        return value
    return value.__irkit_output__() if hasattr(value, "__irkit_output__") else convert(value)


def to_module(outputs: Any, inputs: Sequence[symbols.Symbol] | None = None, name: str = "graph") -> Module:
    """The module that an expression, or a list or dict of them, stands for, op by op as it was written.

    Args:
        outputs: symbols and effects; the keys of a dict are the names of the outputs.
        inputs: the placeholders that are to be its inputs, in order; by default those that are needed, in the order in
            which they were made.
        name: of the graph.

    Returns:
        Where the expression has state, a module with variables; the pass ``lift-state`` makes it pure.

    Raises:
        IrkitError: if a variable begins with random numbers, which are drawn by a session.
    """
    return lower(named_outputs(outputs), inputs, name=name)[0]


def pure_module(outputs: Any) -> Module:
    """The same without variables, common subexpressions merged: what ``ik.compile`` runs.

    Raises:
        IrkitError: if it assigns variables, since a compiled module keeps nothing from run to run; if it reads one
            whose initial value is random.
        UninitializedError: if it reads one without an initial value.
    """
    from irkit.passes import optimize

    named = named_outputs(outputs)
    for node in cone([v.node for v in named.values()]):
        if isinstance(node, AssignNode):
            raise failure(
                IrkitError,
                f"variable '{node.variable.name}' is assigned, and ik.compile keeps no state",
                site=node.site,
                hint="run it in a dsl.Session, or export it: dsl.to_module, then the pass lift-state",
            )
        if isinstance(node, ReadNode) and node.variable.initial is None:
            raise failure(
                UninitializedError,
                f"variable '{node.variable.name}' has no initial value, and ik.compile keeps no state",
                site=node.site,
                related=[("it is declared at", node.variable.site)],
                hint="declare it with an initial value, use a placeholder, or run it in a dsl.Session",
            )
    module, variables = lower(named)
    return optimize(module, "lift-state,cse,dce" if variables else "cse,dce")
