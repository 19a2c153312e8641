"""The plan: a graph compiled once to steps over numbered slots, so that a run looks nothing up.

A step is a kernel with its attributes bound, the slots of its operands and results, and the slots that die with it.
Constants are loaded once, into slots of their own. Graph attributes are plans too: they take the values that they
capture, then their own inputs. A call of a function is a step whose body is the plan of the function specialised to it.
Ops that no result depends on are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from irkit.backends.numpy.legalize import FunctionKey, Specializer, kernel_of, unsupported
from irkit.backends.numpy.random import call_id, op_key
from irkit.dialects.onnx.structural import Call, Custom, Function
from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.errors import UnsupportedError
from irkit.ir.attributes import from_attr
from irkit.ir.constants import ConstantData
from irkit.ir.dtypes import DType
from irkit.ir.location import where
from irkit.ir.op import Random, TensorOp, is_absent
from irkit.ir.types import Shape, tensor_info

__all__ = ["ABSENT", "Fused", "Graph", "Plan", "Planner", "Step", "captures"]

ABSENT = -1
"""The slot of an operand that is not given, and of a result that nobody uses."""

SPLAT_BYTES = 1 << 26
"""A splat up to this size is written out when it is loaded; BLAS copies a broadcast view at every use."""


@dataclass(slots=True, eq=False)
class Graph:
    """A graph attribute of a step.

    Attributes:
        plan: takes the captured values, then the graph's own inputs.
        captured: their slots in the plan that the step stands in.
        repeats: whether each call is an iteration of its own to ops that draw random numbers.
    """

    plan: Plan
    captured: tuple[int, ...]
    repeats: bool


@dataclass(slots=True, eq=False)
class Step:
    """One op of a plan.

    Attributes:
        function: the kernel.
        inputs, outputs: slots, or ``ABSENT``.
        attributes: by keyword, as the kernel takes them.
        graphs: by keyword.
        wants: the runner's services that the kernel takes (see ``registry``).
        key: the id of an op that draws random numbers.
        many: whether the kernel may return a tuple.
        frees: slots that nothing reads after this step.
    """

    op: Operation
    function: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    graphs: dict[str, Graph] = field(default_factory=dict[str, Graph])
    wants: frozenset[str] = frozenset()
    key: int = 0
    many: bool = False
    frees: tuple[int, ...] = ()

    def reads(self) -> set[int]:
        """The slots that the step reads, those captured by its graphs included."""
        found = {slot for slot in self.inputs if slot != ABSENT}
        for graph in self.graphs.values():
            found.update(graph.captured)
        return found


@dataclass(slots=True, eq=False)
class Fused:
    """What is run of a plan when nobody watches each op; see ``fuse``.

    Attributes:
        steps: in order.
        constants: those of the plan and what was computed of them, by slot.
    """

    steps: list[Step]
    constants: dict[int, Any]


OutputType = tuple[DType, "Shape | None"] | None


@dataclass(slots=True, eq=False)
class Plan:
    """A compiled graph.

    Attributes:
        steps: in an order in which they can run.
        inputs: how many; they come in the first slots.
        slots: how many, constants included.
        constants: by slot.
        outputs: slots, or ``ABSENT``.
        output_types: element type and shape per output; None where it is no tensor, or not known.
        draws: whether some op in it, or nested in it, draws random numbers.
        fused: what the straight-line form runs; made with ``code``.
        code: the compiled straight-line form, made by the executor on first use.
    """

    steps: list[Step]
    inputs: int
    slots: int
    constants: dict[int, Any]
    outputs: tuple[int, ...]
    output_types: list[OutputType]
    draws: bool
    fused: Fused | None = None
    code: Callable[..., tuple[Any, ...]] | None = None

    def fresh_slots(self, inputs: Iterable[Any], constants: Mapping[int, Any] | None = None) -> list[Any]:
        """The slots at the start of a run.

        Args:
            constants: by slot; by default the plan's.
        """
        slots: list[Any] = [None] * self.slots
        for slot, value in (self.constants if constants is None else constants).items():
            slots[slot] = value
        slots[: self.inputs] = inputs
        return slots


def captures(op: Operation) -> list[SSAValue]:
    """The values from outside that an op's regions use, in order of first use."""
    inside: set[SSAValue] = set()
    found: dict[SSAValue, None] = {}
    for region in op.regions:
        for block in region.blocks:
            inside.update(block.args)
        for inner in region.walk():
            for nested in inner.regions:
                for block in nested.blocks:
                    inside.update(block.args)
            found.update(dict.fromkeys(v for v in inner.operands if v not in inside))
            inside.update(inner.results)
    return list(found)


class Planner:
    """Makes the plans of one module; constants that several of them use are loaded once.

    Args:
        functions: the module's.
    """

    def __init__(self, functions: Mapping[FunctionKey, Function], ctx: Context) -> None:
        self._specializer = Specializer(functions, ctx)
        self._arrays: dict[SSAValue, np.ndarray] = {}
        self._ordinals: dict[Operation, dict[Operation, int]] = {}

    def plan(self, block: Block, inputs: Sequence[SSAValue], results: Sequence[SSAValue], scope: str = "") -> Plan:
        """The plan that computes these values of a block from its inputs.

        Args:
            inputs: values that the run is given, in the order of the plan's inputs.
            scope: from which calls of functions the block is reached.

        Raises:
            UnsupportedError: if an op has no kernel.
        """
        return _Frame(self, inputs, scope).build(block, results)

    def array(self, value: SSAValue) -> np.ndarray:
        """The constant behind a value: read-only, loaded once."""
        found = self._arrays.get(value)
        if found is None:
            held = constant_of(value)
            if held is None:
                op = value.owner
                assert isinstance(op, Operation)
                raise UnsupportedError("the constant has no value", op=op.name, where=where(op))
            found = self._arrays[value] = _load(held)
        return found

    def ordinal(self, op: Operation) -> int:
        """The place of an op that draws among all such ops of its module or function."""
        root = op
        while (parent := root.parent_op()) is not None and not isinstance(root, FuncOp | Function):
            root = parent
        found = self._ordinals.get(root)
        if found is None:
            drawing = (inner for inner in root.walk() if inner.has_trait(Random))
            found = self._ordinals[root] = {inner: index for index, inner in enumerate(drawing)}
        return found.get(op, 0)

    def function(self, call: Call) -> Function:
        """The function that is called, specialised to the call."""
        return self._specializer.function(call)


def _load(held: ConstantData) -> np.ndarray:
    array = held.array()
    small_splat = held.is_splat and held.dtype.kind != "string" and held.nbytes <= SPLAT_BYTES
    if small_splat or not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array


class _Frame:
    """One plan in the making."""

    def __init__(self, planner: Planner, inputs: Sequence[SSAValue], scope: str) -> None:
        self.planner = planner
        self.scope = scope
        self.inputs = inputs
        self.slots: dict[SSAValue, int] = {value: slot for slot, value in enumerate(inputs)}
        self.count = len(inputs)
        self.constants: dict[int, Any] = {}
        self.calls = 0

    def build(self, block: Block, results: Sequence[SSAValue]) -> Plan:
        ops, captured = _needed(block, results)
        steps = [self.step(op, captured.get(op, ())) for op in ops]
        outputs = tuple(self.slot(v) for v in results)
        _mark_dead(steps, self.count, {*outputs, *self.constants})
        return Plan(
            steps=steps,
            inputs=len(self.inputs),
            slots=self.count,
            constants=self.constants,
            outputs=outputs,
            output_types=[_output_type(v.type) for v in results],
            draws=any("rng" in s.wants or any(g.plan.draws for g in s.graphs.values()) for s in steps),
        )

    def slot(self, value: SSAValue) -> int:
        """The slot of a value that is read."""
        if is_absent(value):
            return ABSENT
        found = self.slots.get(value)
        if found is None:
            found = self.new_slot(value)
            # Everything else has been defined before: blocks are in order.
            self.constants[found] = self.planner.array(value)
        return found

    def new_slot(self, value: SSAValue) -> int:
        self.slots[value] = made = self.count
        self.count += 1
        return made

    def step(self, op: Operation, captured: Sequence[SSAValue]) -> Step:
        if isinstance(op, Call):
            return self.call(op)
        kernel = kernel_of(op)
        if kernel is None:
            raise unsupported(op)
        spec = op.spec if isinstance(op, TensorOp) else None
        made = Step(
            op=op,
            function=kernel.function,
            inputs=tuple(self.slot(v) for v in op.operands),
            outputs=(),
            attributes=_attributes(op),
            wants=kernel.wants,
            many=spec is None or spec.max_outputs > 1,
        )
        if "rng" in kernel.wants:
            made.key = op_key(op, self.planner.ordinal(op), self.scope)
        if spec is not None and spec.graphs:
            for name, region in zip(spec.graphs, op.regions, strict=True):
                if region.blocks:
                    made.graphs[name] = self.graph(region.block, captured, repeats=spec.op_type != "If")
        made.outputs = tuple(self.new_slot(r) for r in op.results)
        return made

    def graph(self, block: Block, captured: Sequence[SSAValue], repeats: bool) -> Graph:
        carried = [v for v in captured if not is_constant(v) and not is_absent(v)]
        last = block.last_op
        assert last is not None
        plan = self.planner.plan(block, [*carried, *block.args], list(last.operands), self.scope)
        return Graph(plan, tuple(self.slot(v) for v in carried), repeats)

    def call(self, op: Call) -> Step:
        body = self.planner.function(op).body
        last = body.last_op
        assert last is not None
        scope = f"{self.scope}/{call_id(op, self.calls)}"
        self.calls += 1
        plan = self.planner.plan(body, list(body.args), list(last.operands), scope)
        inputs = [self.slot(v) for v in op.operands]
        inputs += [ABSENT] * (len(body.args) - len(inputs))
        outputs = tuple(self.new_slot(r) for r in op.results)
        return Step(op, _call, tuple(inputs), outputs, graphs={"body": Graph(plan, (), False)}, many=True)


def _call(*inputs: Any, body: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
    return body(*inputs)


def _attributes(op: Operation) -> dict[str, Any]:
    if isinstance(op, Custom):
        return {name: from_attr(attr) for name, attr in op.attrs.items()}
    assert isinstance(op, TensorOp)
    return {name: value for name, value in op.attrs().items() if value is not None}


def _needed(block: Block, results: Sequence[SSAValue]) -> tuple[list[Operation], dict[Operation, list[SSAValue]]]:
    """The ops of a block that these values depend on, in order, constants left out; and what their regions capture."""
    wanted: set[SSAValue] = set(results)
    captured: dict[Operation, list[SSAValue]] = {}
    kept: list[Operation] = []
    for op in reversed(list(block.ops)):
        if op.name in ("onnx.NoValue", "onnx.Initializer", "onnx.Constant"):
            continue
        if not any(r in wanted for r in op.results):
            continue
        kept.append(op)
        wanted.update(op.operands)
        if op.regions:
            captured[op] = captures(op)
            wanted.update(captured[op])
    return kept[::-1], captured


def _mark_dead(steps: list[Step], slots: int, kept: set[int]) -> None:
    """Says of each step which slots nothing reads after it; results that nobody reads become ``ABSENT``."""
    read_later = [False] * slots
    for slot in kept:
        if slot != ABSENT:
            read_later[slot] = True
    for step in reversed(steps):
        step.outputs = tuple(slot if read_later[slot] else ABSENT for slot in step.outputs)
        frees = [slot for slot in sorted(step.reads()) if not read_later[slot]]
        for slot in frees:
            read_later[slot] = True
        step.frees = tuple(frees)


def _output_type(value_type: Attribute) -> OutputType:
    info = tensor_info(value_type)
    return None if info is None else (info.dtype, info.shape)
