"""Devices: which ops are to run where, and modules taken apart accordingly.

``with dsl.device("cpu:0")`` marks nodes; the mark is an entry of an op's metadata, so it survives in text and in ONNX
files. ``partition`` splits a module into parts, each for one device, and says what has to be brought from where to
where.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from irkit import backends
from irkit.backends.base import Executable
from irkit.dialects.onnx.structural import Function, NoValue
from irkit.dialects.onnx.values import is_constant
from irkit.dialects.state.order import has_state, read_by
from irkit.errors import IrkitError
from irkit.frontends.dsl.lowering import DEVICE
from irkit.frontends.dsl.nodes import CONTEXT
from irkit.ir.builder import Builder
from irkit.ir.module import Module
from irkit.ir.names import metadata_of, name_of

__all__ = ["Part", "Partition", "PartitionedExecutable", "Transfer", "device", "device_of", "partition"]


@contextmanager
def device(name: str) -> Generator[None]:
    """What is written within is to run on this device, ``"cpu:0"`` or ``"cuda:1"`` say; inner blocks win."""
    outer, CONTEXT.device = CONTEXT.device, name
    try:
        yield
    finally:
        CONTEXT.device = outer


def device_of(op: Operation) -> str:
    """The device on which an op is to run; ``""`` where it does not matter."""
    return metadata_of(op).get(DEVICE, "")


@dataclass(frozen=True)
class Transfer:
    """A value that one part gives and another, on another device, takes."""

    value: str
    source: str
    target: str


@dataclass
class Part:
    """Ops of one device that run without waiting for another.

    Attributes:
        device: of all of them.
        stage: parts of one stage do not depend on each other.
        module: takes and gives values by their names in the plan.
        transfers: what has to be brought before it runs.
    """

    device: str
    stage: int
    module: Module
    transfers: list[Transfer] = field(default_factory=list[Transfer])


@dataclass
class Partition:
    """A module in parts.

    Attributes:
        module: the whole.
        parts: in an order in which they may run.
        outputs: the outputs' names, and the names of the values in the plan that they are.
    """

    module: Module
    parts: list[Part]
    outputs: dict[str, str]

    @property
    def transfers(self) -> list[Transfer]:
        """All that is brought from one device to another, in order."""
        return [t for part in self.parts for t in part.transfers]

    def __str__(self) -> str:
        lines: list[str] = []
        for part in self.parts:
            lines += [f"transfer {t.value}: {t.source} -> {t.target}" for t in part.transfers]
            ops = [op.name.removeprefix("onnx.") for op in part.module.block.ops if isinstance(op, Operation)][:-1]
            taken, given = ", ".join(part.module.input_names), ", ".join(part.module.output_names)
            lines.append(f"run on {part.device}: ({taken}) -> ({given})  [{', '.join(ops)}]")
        return "\n".join(lines)

    def compile(self, backend: str = "numpy", **options: Any) -> PartitionedExecutable:
        """Makes every part ready to run on its device."""
        return PartitionedExecutable(self, backend, **options)


def partition(module: Module, default: str = "cpu:0") -> Partition:
    """Splits a module by the devices of its ops.

    An op without a device runs where its first operand is made that is not a constant; on ``default`` if there is
    none. Constants go to every part that uses them. Parts are as large as can be without waiting for each other.

    Raises:
        IrkitError: if the module has state that is not lifted.
    """
    if has_state(module.op):
        raise IrkitError("a module with variables cannot be partitioned", hint="run the pass lift-state first")
    return _Partitioner(module, default).run()


class _Partitioner:
    def __init__(self, module: Module, default: str) -> None:
        self.module = module
        self.default = default
        self.home: dict[Operation, tuple[str, int]] = {}
        self.names: dict[SSAValue, str] = dict(zip(module.block.args, module.input_names, strict=True))
        self.taken = {*module.input_names, *module.output_names}
        self.brought: set[tuple[str, str]] = set()

    def run(self) -> Partition:
        groups: dict[tuple[int, str], list[Operation]] = {}
        for op in self.module.block.ops:
            if op is self.module.block.last_op or isinstance(op, NoValue) or is_constant(_first(op)):
                continue
            place = self.home[op] = self.place(op)
            groups.setdefault((place[1], place[0]), []).append(op)
        wanted = self.wanted()
        parts = [self.part(device, stage, ops, wanted) for (stage, device), ops in sorted(groups.items(), key=_key)]
        outputs: dict[str, str] = {}
        constants: list[tuple[str, SSAValue]] = []
        for name, value in zip(self.module.output_names, self.module.returned, strict=True):
            outputs[name] = self.name(value)
            if is_constant(value) and outputs[name] not in [n for n, _ in constants]:
                constants.append((outputs[name], value))
        if constants:
            parts.append(self.constants(constants))
        return Partition(self.module, parts, outputs)

    def place(self, op: Operation) -> tuple[str, int]:
        """The device of an op, and its stage: one more than that of what comes from other devices."""
        makers = [value.op for value in read_by(op) if isinstance(value, OpResult) and value.op in self.home]
        inherited = next((self.home[maker][0] for maker in makers), self.default)
        found = device_of(op) or inherited
        return found, max((self.home[m][1] + (self.home[m][0] != found) for m in makers), default=0)

    def wanted(self) -> set[SSAValue]:
        """The values that a part must give: outputs, and what another part takes."""
        found: set[SSAValue] = {v for v in self.module.returned if isinstance(v, OpResult)}
        for op, place in self.home.items():
            for value in read_by(op):
                if isinstance(value, OpResult) and value.op in self.home and self.home[value.op] != place:
                    found.add(value)
        return found

    def name(self, value: SSAValue) -> str:
        """The name of a value in the plan: its own, where it has one that no other has."""
        known = self.names.get(value)
        if known is None:
            outputs = zip(self.module.output_names, self.module.returned, strict=True)
            own = next((name for name, given in outputs if given is value), "")
            base = own or name_of(value) or "value"
            known, count = base, 0
            while known in self.taken and known != own:
                count += 1
                known = f"{base}_{count}"
            self.taken.add(known)
            self.names[value] = known
        return known

    def part(self, device: str, stage: int, ops: Sequence[Operation], wanted: set[SSAValue]) -> Part:
        inside = set(ops)
        taken = [v for op in ops for v in _outer_reads(op) if not (isinstance(v, OpResult) and v.op in inside)]
        values: dict[SSAValue, SSAValue] = {}
        b = Builder(self.module.graph_name or "part", ctx=self.module.ctx, opsets=self.module.opsets)
        transfers: list[Transfer] = []
        for value in dict.fromkeys(taken):
            if isinstance(value, OpResult) and value.op not in self.home:
                _copy_constant(value.op, values, b)
                continue
            name = self.name(value)
            values[value] = b.input(name, value.type).ssa
            if isinstance(value, OpResult) and self.home[value.op][0] != device and (name, device) not in self.brought:
                self.brought.add((name, device))
                transfers.append(Transfer(name, self.home[value.op][0], device))
        for op in ops:
            b.block.add_op(op.clone(values))
        for op in ops:
            for result in op.results:
                if result in wanted:
                    b.output(values[result], self.name(result))
        b.declared += [op.clone() for op in self.module.op.ops if isinstance(op, Function)]
        return Part(device, stage, b.module(), transfers)

    def constants(self, given: Sequence[tuple[str, SSAValue]]) -> Part:
        b = Builder("constants", ctx=self.module.ctx, opsets=self.module.opsets)
        values: dict[SSAValue, SSAValue] = {}
        for name, value in given:
            assert isinstance(value, OpResult)
            _copy_constant(value.op, values, b)
            b.output(values[value], name)
        return Part(self.default, 0, b.module())


def _key(item: tuple[tuple[int, str], Any]) -> tuple[int, str]:
    return item[0]


def _first(op: Operation) -> SSAValue:
    return op.results[0]


def _outer_reads(op: Operation) -> list[SSAValue]:
    """The values from the main graph that an op, or what is in its graphs, takes."""
    block = op.parent
    return [v for v in read_by(op) if (v.block if isinstance(v, BlockArgument) else v.owner.parent) is block]  # type: ignore[union-attr]


def _copy_constant(op: Operation, values: dict[SSAValue, SSAValue], b: Builder) -> None:
    if op.results[0] not in values:
        b.block.add_op(op.clone(values))


class PartitionedExecutable(Executable):
    """A partitioned module, every part compiled for its device.

    On the NumPy backend all devices are this machine's memory, and a transfer is a copy. On onnxruntime each part is a
    session on its device.
    """

    def __init__(self, plan: Partition, backend: str = "numpy", **options: Any) -> None:
        super().__init__(plan.module)
        self.plan = plan
        self.runs = [
            backends.compile(
                part.module, backend, **options, **({"device": _provider(part.device)} if backend != "numpy" else {})
            )
            for part in plan.parts
        ]

    def execute(self, values: dict[str, Any], fetches: tuple[str, ...]) -> Sequence[Any]:
        wanted = {self.plan.outputs[name] for name in fetches}
        needed: list[bool] = []
        for part in reversed(self.plan.parts):
            needed.append(bool(wanted.intersection(part.module.output_names)))
            if needed[-1]:
                wanted.update(part.module.input_names)
        held: dict[str, Any] = dict(values)
        brought: dict[tuple[str, str], Any] = {}
        for part, run, is_needed in zip(self.plan.parts, self.runs, reversed(needed), strict=True):
            if not is_needed:
                continue
            brought.update(((t.value, t.target), _copied(held[t.value])) for t in part.transfers)
            given = {name: brought.get((name, part.device), held[name]) for name in part.module.input_names}
            held.update(run.run(given))
        return [held[self.plan.outputs[name]] for name in fetches]


def _provider(name: str) -> str:
    """The device of a runtime for a device of a graph: there is one CPU."""
    return "cpu" if name.partition(":")[0] == "cpu" else name


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
