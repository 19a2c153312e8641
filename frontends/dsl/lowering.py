"""Expressions into modules: each node becomes an op where its trace stands, when something first needs it.

A *place* is a block under construction; a *frame* is a trace laid out at a place: the values of its nodes. The graph
of a loop is a place of its own, an inlined call a frame within the place of its caller. Equal calls of a pure function
are laid out once per place, so that memoised recursion stays linear.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, Operation, Region, SSAValue

from irkit.dialects import state
from irkit.dialects.onnx.structural import Call, Function, Yield
from irkit.errors import IrkitError
from irkit.frontends.dsl import symbol as symbols
from irkit.frontends.dsl.build import context, op_class
from irkit.frontends.dsl.errors import Site, SymbolError, failure, location_of
from irkit.frontends.dsl.nodes import (
    AssignNode,
    BuiltNode,
    CallNode,
    ConstantNode,
    GradientNode,
    Graph,
    GroupNode,
    Node,
    OpNode,
    PlaceholderNode,
    ReadNode,
    Scope,
    cone,
    leaked,
)
from irkit.frontends.dsl.state import Variable
from irkit.ir.builder import DEFAULT_OPSET, Builder
from irkit.ir.constants import TensorAttr
from irkit.ir.names import hint, set_metadata, set_node_name, set_out_names
from irkit.ir.types import unknown

__all__ = ["DEVICE", "FUNCTIONS", "Frame", "Lowering", "Place"]

DEVICE = "irkit.device"
"""The key of an op's metadata that names the device on which it is to run."""

FUNCTIONS = "irkit.functions"
"""The domain of traced functions that are not inlined."""


class Place:
    """A block under construction.

    Attributes:
        calls: what calls laid out here gave, by graph and arguments.
        reads: what reads of variables gave, by variable and tokens.
        values: all values read of a variable here.
        written, outer: the variables assigned here, and those of which a value from outside is used here.
    """

    def __init__(self, builder: Builder, parent: Place | None) -> None:
        self.builder = builder
        self.parent = parent
        self.calls: dict[Any, list[SSAValue]] = {}
        self.reads: dict[Any, tuple[SSAValue, SSAValue]] = {}
        self.values: dict[Variable, list[SSAValue]] = {}
        self.written: dict[Variable, Site] = {}
        self.outer: dict[Variable, Site] = {}


class Frame:
    """A trace laid out at a place; its accesses of state wait for ``control``, its ops are for ``device``."""

    def __init__(self, place: Place, control: tuple[SSAValue, ...] = (), device: str = "") -> None:
        self.place = place
        self.control = control
        self.device = device
        self.values: dict[Node, Any] = {}


class Lowering:
    """Lays nodes out in a new module."""

    def __init__(self, name: str, start: Callable[[Variable], TensorAttr] = Variable.start) -> None:
        self.start = start
        self.builder = Builder(name, ctx=context())
        self.frames: dict[Scope | None, Frame] = {None: Frame(Place(self.builder, None))}
        self.variables: dict[Variable, state.Variable] = {}
        self.functions: dict[Graph, tuple[str, Function]] = {}
        self.inlined: set[Node] = set()
        self.untyped = False
        self._locations: dict[tuple[int, int], LocationAttr] = {}

    # Values

    def frame(self, node: Node) -> Frame:
        """The frame of the trace in which a node was made."""
        found = self.frames.get(node.scope)
        if found is None:
            raise leaked(node, node.site)
        return found

    def value(self, what: symbols.Symbol | symbols.Effect) -> SSAValue:
        """The value of a symbol, laid out if it is not there yet."""
        node = what.node
        values = self.frame(node).values
        if node not in values:
            self.lay_out(node)
        return values[node][what.index]

    def lay_out(self, node: Node) -> None:
        """Lays a node out after all that it depends on. A long chain of nodes is no deep recursion."""
        stack = [node]
        while stack:
            top = stack[-1]
            frame = self.frame(top)
            if top in frame.values:
                stack.pop()
                continue
            waiting = [d for d in top.deps if d not in self.frame(d).values]
            if waiting:
                stack += reversed(waiting)
                continue
            frame.values[top] = self.emit(top, frame)
            stack.pop()

    def emit(self, node: Node, frame: Frame) -> Sequence[SSAValue]:
        """The results of a node whose operands are there."""
        match node:
            case OpNode():
                made = self.op(node, frame)
            case ConstantNode():
                return self.constant(node, frame)
            case CallNode():
                made = self.call(node, frame)
            case ReadNode():
                return self.read(node, frame)
            case AssignNode():
                return self.assign(node, frame)
            case GroupNode():
                with self.at(frame, node) as b:
                    tokens = [self.value(e) for e in node.effects]
                    return [state.group(b, [*tokens, *self.tokens(node, frame)]).ssa]
            case GradientNode():
                from irkit.frontends.dsl.gradients import lower_gradient

                made = lower_gradient(cast(Any, self), node, cast(Any, frame))
            case BuiltNode():
                with self.at(frame, node) as b:
                    found = node.function(b, *(b.wrap(self.value(s)) for s in node.operands))
                listed: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
                made = [t.ssa for t in listed]
            case PlaceholderNode():
                raise failure(
                    SymbolError,
                    f"the placeholder '{node.name}' is used in a function of the model, which sees its arguments only",
                    site=node.site,
                    hint="pass it to the function, or let the function be inlined",
                )
            case _:
                raise leaked(node, node.site)
        if node.control:
            with self.at(frame, node) as b:
                tokens = [self.value(e) for e in node.control]
                made = [v if isinstance(v.type, state.TokenType) else state.after(b, v, tokens).ssa for v in made]
        return made

    @contextmanager
    def at(self, frame: Frame, node: Node) -> Generator[Builder]:
        """The builder of a frame, whose ops come from the node's line."""
        b = frame.place.builder
        outer, b.location = b.location, self.location(node.site)
        try:
            yield b
        finally:
            b.location = outer

    def location(self, site: Site) -> LocationAttr:
        """The location of a site; each is looked up once."""
        if site is None:
            return location_of(None)
        key = (id(site[0]), site[1])
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = location_of(site)
        return found

    # Ops

    def op(self, node: OpNode, frame: Frame) -> Sequence[SSAValue]:
        b = frame.place.builder
        operands = [b.absent() if s is None else self.value(s) for s in node.operands]
        regions = [Region() if g is None else self.region(g, node, frame) for g in node.graphs]
        op = node.cls.create(
            operands=operands,
            result_types=[unknown] * len(node.types) if self.untyped else node.types,
            properties=dict(node.properties),
            regions=regions,
            location=self.location(node.site),
        )
        if node.name:
            set_node_name(op, node.name)
        self.mark(op, node, frame)
        b.block.add_op(op)
        return op.results

    @staticmethod
    def mark(op: Operation, node: Node, frame: Frame) -> None:
        """Notes the device of an op."""
        device = node.device or frame.device
        if device:
            set_metadata(op, {DEVICE: device})

    def constant(self, node: ConstantNode, frame: Frame) -> Sequence[SSAValue]:
        op = op_class("Initializer" if node.name else "Constant").create(
            result_types=[node.value.type], properties={"value": node.value}, location=self.location(node.site)
        )
        if node.name:
            set_out_names(op, [node.name])
        frame.place.builder.block.add_op(op)
        return op.results

    def region(self, graph: Graph, node: OpNode, frame: Frame) -> Region:
        """The graph of an op, laid out at a place of its own."""
        types: list[Attribute] = [unknown if self.untyped else p.type for p in graph.params]
        with frame.place.builder.nested(types) as (inner, args):
            place = Place(inner, frame.place)
            self.lay_graph(graph, Frame(place, frame.control, node.device or frame.device), [a.ssa for a in args])
            values = self.results(graph)
            inner.block.add_op(Yield.create(operands=values))
            for param, arg in zip(graph.params, args, strict=True):
                arg.ssa.name_hint = hint(param.name)
        del self.frames[graph.scope]
        self.check_loop(node, place)
        frame.place.written.update(place.written)
        return Region(inner.block)

    def lay_graph(self, graph: Graph, frame: Frame, args: Sequence[SSAValue]) -> None:
        """Opens a frame for a graph."""
        self.frames[graph.scope] = frame
        frame.values.update((p.node, [arg]) for p, arg in zip(graph.params, args, strict=True))

    def results(self, graph: Graph) -> list[SSAValue]:
        """The values of a graph's results, once its frame is open."""
        return [self.value(r) for r in graph.results]

    def check_loop(self, node: OpNode, place: Place) -> None:
        """Refuses a loop that assigns a variable and uses what it was before the loop."""
        both = [v for v in place.written if v in place.outer]
        if both and node.cls.name != "onnx.If":
            raise failure(
                IrkitError,
                f"the loop assigns variable '{both[0].name}', but uses the value that it had before the loop",
                site=place.outer[both[0]],
                related=[("it is assigned at", place.written[both[0]])],
                hint="read it where it stands by variable.read(), after the assignment by dsl.control_dependencies",
            )

    # Calls

    def call(self, node: CallNode, frame: Frame) -> Sequence[SSAValue]:
        args = [self.value(a) for a in node.args]
        if not node.inline and node not in self.inlined:
            return self.function_call(node, frame, args)
        control = self.tokens(node, frame)
        key = (node.graph, tuple(args), control, node.device)
        found = frame.place.calls.get(key) if node.is_pure else None
        if found is None:
            outer = self.frames.get(node.graph.scope)
            self.lay_graph(node.graph, Frame(frame.place, control, node.device or frame.device), args)
            found = self.results(node.graph)
            if outer is None:
                del self.frames[node.graph.scope]
            else:
                self.frames[node.graph.scope] = outer
            frame.place.calls[key] = found
        return found

    def function_call(self, node: CallNode, frame: Frame, args: Sequence[SSAValue]) -> Sequence[SSAValue]:
        name = self.function(node)
        types = [unknown] * len(node.types) if self.untyped else node.types
        op = Call.of(FUNCTIONS, name, args, types)
        op.location = self.location(node.site)
        self.mark(op, node, frame)
        frame.place.builder.block.add_op(op)
        return op.results

    def function(self, node: CallNode) -> str:
        """The name of the model's function for a traced one; made on the first call."""
        known = self.functions.get(node.graph)
        if known is not None:
            return known[0]
        graph = node.graph
        if not graph.is_pure and any(
            isinstance(n, ReadNode | AssignNode) for n in cone([r.node for r in graph.results])
        ):
            raise failure(
                IrkitError,
                f"'{node.name}' accesses variables, which a function of the model cannot",
                site=node.site,
                hint="let it be inlined: @dsl.function without inline=False",
            )
        taken = {name for name, _ in self.functions.values()}
        base = node.name if node.name.isidentifier() else "function"
        name, count = base, 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        outer, self.frames = self.frames, {}
        was_untyped, self.untyped = self.untyped, True
        inner = Builder(ctx=context())
        place = Place(inner, None)
        # What is outside of all traces (constants) is laid out again in the function, which sees nothing else.
        self.frames = {None: Frame(place)}
        args = [inner.block.insert_arg(unknown, i) for i in range(len(graph.params))]
        self.lay_graph(graph, Frame(place), args)
        inner.block.add_op(Yield.create(operands=self.results(graph)))
        self.frames, self.untyped = outer, was_untyped
        inputs = [f"x{i}" for i in range(len(graph.params))]
        outputs = [f"y{i}" for i in range(len(graph.results))]
        made = Function.of(
            (FUNCTIONS, name, ""), name, inputs, outputs, [], {}, {"": DEFAULT_OPSET, FUNCTIONS: 1}, Region(inner.block)
        )
        made.location = self.location(graph.scope.site)
        self.functions[graph] = (name, made)
        return name

    # State

    def tokens(self, node: Node, frame: Frame) -> tuple[SSAValue, ...]:
        """What a node's accesses of state wait for."""
        return tuple(dict.fromkeys([*frame.control, *(self.value(e) for e in node.control)]))

    def variable(self, variable: Variable, node: Node) -> state.Variable:
        """The declaration of a variable; made on its first use."""
        found = self.variables.get(variable)
        if found is None:
            root, start = self.builder, self.start(variable)
            outer, root.location = root.location, self.location(variable.site)
            try:
                found = state.variable(
                    root,
                    variable.name,
                    start,
                    type=variable.type,
                    trainable=variable.trainable,
                )
            except IrkitError as error:
                other = next(v for v in self.variables if v.name == variable.name)
                raise failure(
                    IrkitError, error.message, site=variable.site, related=[("the other", other.site)], hint=error.hint
                ) from None
            finally:
                root.location = outer
            self.variables[variable] = found
        return found

    def read(self, node: ReadNode, frame: Frame) -> Sequence[SSAValue]:
        tokens = self.tokens(node, frame)
        if node.here:
            return self.read_at(frame.place, node.variable, tokens, node, fresh=True)
        place = frame.place
        while place.parent is not None and not any(_is_within(t, place) for t in tokens):
            place.outer.setdefault(node.variable, node.site)
            place = place.parent
        return self.read_at(place, node.variable, tokens, node)

    def read_at(
        self, place: Place, variable: Variable, tokens: tuple[SSAValue, ...], node: Node, *, fresh: bool = False
    ) -> tuple[SSAValue, SSAValue]:
        """What a variable holds after these tokens: one read per place and tokens, unless a fresh one is asked for."""
        key = (variable, tokens)
        found = None if fresh else place.reads.get(key)
        if found is None:
            declared = self.variable(variable, node)
            with self.at(Frame(place), node) as b:
                value, done = state.read(b, declared, tokens)
            found = (value.ssa, done.ssa)
            place.values.setdefault(variable, []).append(value.ssa)
            if not fresh:
                place.reads[key] = found
        return found

    def assign(self, node: AssignNode, frame: Frame) -> Sequence[SSAValue]:
        place, tokens = frame.place, self.tokens(node, frame)
        value = self.value(node.value)
        declared = self.variable(node.variable, node)
        place.written.setdefault(node.variable, node.site)
        if node.op:
            old, done = self.read_at(place, node.variable, tokens, node)
            with self.at(frame, node) as b:
                value = b.op(node.op, b.wrap(old), b.wrap(value)).ssa
            self.mark(cast(Operation, value.owner), node, frame)
            tokens = (done,)
        with self.at(frame, node) as b:
            made = state.assign(b, declared, value, tokens).ssa
        return [made]


def _is_within(value: SSAValue, place: Place) -> bool:
    return value.owner is place.builder.block or getattr(value.owner, "parent", None) is place.builder.block
