"""If, Loop and Scan: the backward op computes the forward body again and differentiates it there.

A Loop or Scan runs backwards over the values that its state had at the beginning of each iteration, which the forward
op gives as further scan outputs. Where a state's shape may change from one iteration to the next, a Loop keeps them in
a sequence instead. What an If computes is computed again in the branch that was taken. Random numbers are never drawn
again: they are outputs of the forward op, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue, SSAValues

from irkit.dialects.onnx.shapes.control import join
from irkit.dialects.onnx.structural import Yield
from irkit.dialects.state.order import read_by
from irkit.errors import UnsupportedError
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.ir.names import DECL, OUTS
from irkit.ir.op import Random, TensorOp, is_absent
from irkit.ir.types import SeqType, intern, tensor, tensor_info
from irkit.passes.autodiff.registry import Gradients, Vjp, add_results, proven_zero, vjp, zero_value
from irkit.passes.autodiff.rules.random import masked
from irkit.passes.autodiff.transform import add_values, carries_gradient, differentiate, live_values, sweep
from irkit.passes.types import refine

proven_zero("If", "a condition", [0])
proven_zero("Loop", "a trip count and a condition", [0, 1])


# Graphs ---------------------------------------------------------------------------------------------------------------


def _captured(regions: Sequence[Region], wanted: Callable[[SSAValue], bool]) -> list[SSAValue]:
    """The values from outside that these graphs read and whose gradients are wanted, each once."""
    found: dict[SSAValue, None] = {}
    for region in regions:
        for op in region.block.ops:
            found.update((v, None) for v in read_by(op) if carries_gradient(v) and wanted(v))
    return list(found)


def _is_random(op: Operation) -> bool:
    return op.has_trait(Random) and op.name != "ad.barrier"


def _drawn(block: Block) -> list[OpResult]:
    """What random ops of a graph drew.

    Raises:
        UnsupportedError: if one stands in a graph within it, from where its numbers cannot be kept.
    """
    found: list[OpResult] = []
    for op in block.ops:
        if op.name == "onnx.Dropout":
            # What it gives varies with its operand, and its mask alone does not.
            add_results(cast(TensorOp, op), 2)
            found.append(op.results[1])
        elif _is_random(op):
            found += op.results
        for inner in op.walk() if op.regions else ():
            if inner is not op and _is_random(inner):
                raise UnsupportedError(
                    "random numbers drawn in a graph within a graph cannot be drawn alike for the gradient",
                    op=inner.name,
                    where=where(inner),
                    hint="draw them outside of the inner graph",
                )
    return found


def _replay(b: Builder, block: Block, values: dict[SSAValue, SSAValue]) -> None:
    """Puts copies of a graph's ops where ``b`` builds; ``values`` maps what is known, and then their results too."""
    for op in block.ops:
        if isinstance(op, Yield) or (op.results and all(r in values for r in op.results)):
            continue
        if op.name.startswith("state."):
            raise UnsupportedError(
                "a graph that accesses variables cannot be computed again for its gradient",
                op=op.name,
                where=where(op),
                hint="lift the module's state first (pass lift-state)",
            )
        if op.name == "onnx.Dropout" and op.results[1:] and op.results[1] in values:
            given = [None if is_absent(v) else b.wrap(values.get(v, v)) for v in op.operands]
            values[op.results[0]] = masked(b, given, b.wrap(values[op.results[1]])).ssa
            continue
        copy = op.clone(values)
        for mine, theirs in zip(op.walk(), copy.walk(), strict=True):
            theirs.location = mine.location
            theirs.attributes.pop(OUTS, None)
        b.block.add_op(copy)


def _yield(b: Builder, values: Sequence[Tensor]) -> None:
    b.block.add_op(Yield.create(operands=[v.ssa for v in values]))


def _entries(attributes: dict[str, Attribute], at: int, count: int) -> None:
    """Keeps the lists that say something per output in step with outputs that were inserted."""
    for name, blank in ((OUTS, string("")), (DECL, UnitAttr())):
        found = attributes.get(name)
        if isinstance(found, ArrayAttr):
            entries = list(cast("ArrayAttr[Attribute]", found).data)
            entries += [blank] * (at - len(entries))
            attributes[name] = ArrayAttr([*entries[:at], *[blank] * count, *entries[at:]])


def _add_result(op: Operation, at: int, value_type: Attribute) -> OpResult:
    """Gives an op one more result, in place."""
    made = OpResult(value_type, op, at)
    results = [*op.results[:at], made, *op.results[at:]]
    for index, result in enumerate(results):
        result.index = index
    op.results = SSAValues(results)
    _entries(op.attributes, at, 1)
    return made


def _add_yield(block: Block, at: int, value: SSAValue) -> None:
    end = block.last_op
    assert end is not None
    end.operands = [*end.operands[:at], value, *end.operands[at:]]
    _entries(end.attributes, at, 1)


def _with_axis(value_type: Attribute) -> Attribute:
    info = tensor_info(value_type)
    assert info is not None
    return tensor(info.dtype, None if info.shape is None else (None, *info.shape))


# If -------------------------------------------------------------------------------------------------------------------


@vjp("If")
def if_(g: Vjp) -> Gradients:
    op = g.op
    wanted = _captured(op.regions, g.live)
    saved = [_save_drawn(op, side, g.b.ctx) for side in (0, 1)]
    zero = [True] * len(wanted)

    def branch(side: int) -> Callable[[Builder], list[Tensor]]:
        def build(b: Builder) -> list[Tensor]:
            block = op.regions[side].block
            values: dict[SSAValue, SSAValue] = dict(saved[side])
            _replay(b, block, values)
            assert block.last_op is not None
            outputs = [values.get(v, v) for v in block.last_op.operands]
            pairs = [(v, ct) for v, ct in zip(outputs, g.cts, strict=False) if ct is not None]
            found = differentiate(b, [v for v, _ in pairs], wanted, [ct for _, ct in pairs], block=b.block)
            for index, value in enumerate(found):
                zero[index] = zero[index] and value is None
            given = [zero_value(b, b.wrap(v)) if t is None else t for v, t in zip(wanted, found, strict=True)]
            # A graph's output must be a value of its own.
            made = [b.Identity(t) if t.ssa.owner is not b.block and _outside(b, t.ssa) else t for t in given]
            sweep(b.block, None, [t.ssa for t in made])
            return made

        return build

    if not wanted:
        return ()
    found = g.b.If(g.x(0), then_branch=branch(0), else_branch=branch(1))
    results = [found] if isinstance(found, Tensor) else list(found)
    g.captured += [(v, t) for v, t, none in zip(wanted, results, zero, strict=True) if not none]
    return ()


def _outside(b: Builder, value: SSAValue) -> bool:
    return not (isinstance(value, OpResult) and value.op.parent is b.block)


def _save_drawn(op: Operation, side: int, ctx: Context) -> dict[SSAValue, SSAValue]:
    """Makes what one branch of an If drew outputs of it; the other branch gives something empty."""
    mine, other = op.regions[side].block, op.regions[1 - side].block
    saved: dict[SSAValue, SSAValue] = {}
    for value in _drawn(mine):
        info = tensor_info(value.type)
        if info is None or info.shape is None:
            raise UnsupportedError("what is drawn here has no known rank", op=op.name, where=where(value))
        at = len(op.results)
        assert other.last_op is not None
        b = Builder.before(other.last_op, ctx, by="gradient")
        zero = b.constant(np.zeros((), info.dtype.numpy))
        empty = b.Expand(zero, b.constant(np.zeros(len(info.shape), np.int64)))
        _add_yield(mine, at, value)
        _add_yield(other, at, empty.ssa)
        saved[value] = _add_result(op, at, tensor(info.dtype, [None] * len(info.shape)))
    return saved


# Loop and Scan: what both share ---------------------------------------------------------------------------------------


@dataclass
class _Backward:
    """A backward body under construction.

    Attributes:
        live: the states whose cotangents are carried.
        captures: outer values whose cotangents are accumulated.
        held: what stands for values of the forward body: an argument of the block for each that may have to be kept.
    """

    g: Vjp
    forward: Block
    first: int
    states: Sequence[SSAValue]
    n_yield: int
    live: list[int] = field(default_factory=list[int])
    captures: list[SSAValue] = field(default_factory=list[SSAValue])
    held: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        assert self.forward.last_op is not None
        return tuple(self.forward.last_op.operands)

    def arg(self, state: int) -> SSAValue:
        """The argument of the forward body that holds a state."""
        return self.forward.args[self.first + state]

    def activity(self, others: Sequence[SSAValue] = ()) -> None:
        """Finds the states on the way: those that depend on something wanted, in the first iteration or a later one."""
        self.captures = _captured(self.g.op.regions, self.g.live)
        live = {k for k, v in enumerate(self.states) if carries_gradient(v) and self.g.live(v)}
        while True:
            sources = [*(self.arg(k) for k in live), *others, *self.captures]
            values = live_values(self.forward.ops, sources)
            found = live | {k for k in range(len(self.states)) if self.yielded[self.n_yield + k] in values}
            if found == live:
                break
            live = found
        self.live = sorted(live)

    def ct_types(self) -> list[Attribute]:
        return [self.arg(k).type for k in self.live] + [v.type for v in self.captures]

    def first_cts(self) -> list[Tensor]:
        """What the carried cotangents begin with."""
        g = self.g
        cts = [g.ct_of(k) for k in self.live]
        return cts + [zero_value(g.b, g.b.wrap(v)) for v in self.captures]

    def step(
        self, b: Builder, carried: Sequence[Tensor], scan_cts: Mapping[int, Tensor], others: Sequence[SSAValue]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """One iteration backwards, where ``b`` builds: the new carried cotangents, and those of ``others``."""
        values: dict[SSAValue, SSAValue] = dict(self.held)
        _replay(b, self.forward, values)
        states, totals = carried[: len(self.live)], carried[len(self.live) :]
        outputs: list[SSAValue] = []
        cts: list[Tensor] = []
        for k, ct in zip(self.live, states, strict=True):
            outputs.append(values.get(v := self.yielded[self.n_yield + k], v))
            cts.append(ct)
        for index, ct in scan_cts.items():
            outputs.append(values.get(v := self.yielded[index], v))
            cts.append(ct)
        sources = [self.held[self.arg(k)] for k in self.live] + [self.held[v] for v in others] + self.captures
        found = differentiate(b, outputs, sources, cts, block=b.block)
        n = len(self.live)
        new = [zero_value(b, old) if t is None else t for t, old in zip(found[:n], states, strict=True)]
        for total, part in zip(totals, found[n + len(others) :], strict=True):
            new.append(total if part is None else add_values(b, total, part))
        # A graph's output must be a value of its own.
        new = [b.Identity(t) if _outside(b, t.ssa) else t for t in new]
        return new, found[n : n + len(others)]

    def hold(self, b: Builder) -> None:
        """Gives the backward block an argument for each value of the forward body that may have to be kept."""
        for value in (*(self.arg(k) for k in range(len(self.states))), *_drawn(self.forward)):
            self.held[value] = b.block.insert_arg(value.type, len(b.block.args))

    def used(self) -> list[tuple[SSAValue, BlockArgument]]:
        """The values to keep, each with the argument of the backward block that stands for it."""
        return [(v, a) for v, a in self.held.items() if isinstance(a, BlockArgument) and any(True for _ in a.uses)]


# Loop -----------------------------------------------------------------------------------------------------------------


@vjp("Loop")
def loop(g: Vjp) -> Gradients:
    op, b = g.op, g.b
    assert isinstance(op, TensorOp)
    block = op.regions[0].block
    states = list(op.operands[2:])
    n = len(states)
    made = _Backward(g, block, 2, states, 1)
    made.activity()
    scan_cts = {1 + j: ct for j, ct in enumerate(g.cts) if j >= n and ct is not None}
    trips = _trips(g, block)
    int64, bool_ = tensor("int64", ()), tensor("bool", ())
    with b.nested([int64, bool_, *made.ct_types()]) as (inner, args):
        step, going, *carried = args
        back = inner.Sub(inner.Sub(trips, inner.constant(np.asarray(1, np.int64))), step)
        made.hold(inner)
        made.held[block.args[0]] = back.ssa
        made.held[block.args[1]] = inner.constant(np.asarray(True)).ssa
        slices = {j: inner.Gather(ct, back, axis=0) for j, ct in scan_cts.items()}
        new, _ = made.step(inner, carried, slices, [])
        _yield(inner, [inner.Identity(going), *new])
        sweep(inner.block, None, [back.ssa])
        for value, arg in made.used():
            kept = _kept_by_loop(g, value)
            fetch = Builder.before(_after(back.ssa), b.ctx)
            fetch.location = inner.location
            take = fetch.SequenceAt if isinstance(kept.type, SeqType) else fetch.Gather
            taken = take(kept, back).ssa
            # A sequence does not say the rank of what it holds.
            refine(taken, arg.type)
            arg.replace_all_uses_with(taken)
        for arg in [a for a in made.held.values() if isinstance(a, BlockArgument)]:
            inner.block.erase_arg(arg)
        sweep(inner.block, None, [])
        found = b.op("Loop", trips, None, *made.first_cts(), body=Region(inner.block))
    results = [found] if isinstance(found, Tensor) else list(found)
    g.captured += list(zip(made.captures, results[len(made.live) :], strict=True))
    by_state = dict(zip(made.live, results, strict=False))
    return [None, None, *(by_state.get(k) for k in range(n))]


def _after(value: SSAValue) -> Operation:
    assert isinstance(value, OpResult)
    found = value.op.next_op
    assert found is not None
    return found


def _trips(g: Vjp, block: Block) -> Tensor:
    """How many iterations there were."""
    b, op = g.b, g.op
    assert isinstance(op, TensorOp)
    limit = g.ints(0)
    if limit is not None and op.operand(1) is None:
        return b.constant(np.asarray(max(limit[0], 0), np.int64))
    counts = _scan_output(op, block, block.args[0])
    return b.Squeeze(b.Shape(counts), b.constant(np.asarray([0], np.int64)))


def _scan_output(op: Operation, block: Block, value: SSAValue) -> SSAValue:
    """Makes a value of a loop's body one more of its scan outputs."""
    assert block.last_op is not None
    unseen = len(block.last_op.operands) - len(op.results)
    _add_yield(block, unseen + len(op.results), value)
    return _add_result(op, len(op.results), _with_axis(value.type))


def _kept_by_loop(g: Vjp, value: SSAValue) -> Tensor:
    """What a value of the body was in each iteration: stacked, or in a sequence where its shape may change."""
    op = g.op
    block = op.regions[0].block
    if tensor_info(value.type) is None:
        raise UnsupportedError(
            "the gradient of this loop needs a sequence or optional that it carries",
            op=op.name,
            where=where(op),
            hint="collect tensors as scan outputs instead",
        )
    if _keeps_shape(op, block, value):
        return g.b.wrap(_scan_output(op, block, value))
    # One more state, after the others.
    n = len(op.operands) - 2
    info = tensor_info(value.type)
    assert info is not None
    sequence = intern(SeqType(tensor(info.dtype, None)))
    before = Builder.before(op, g.b.ctx, by="gradient")
    op.operands = [*op.operands, before.SequenceEmpty(dtype=info.dtype.code).ssa]
    arg = block.insert_arg(sequence, 2 + n)
    _entries_of_args(block, 2 + n)
    assert block.last_op is not None
    within = Builder.before(block.last_op, g.b.ctx, by="gradient")
    longer = within.SequenceInsert(arg, value)
    _add_yield(block, 1 + n, longer.ssa)
    return g.b.wrap(_add_result(op, n, sequence))


def _entries_of_args(block: Block, at: int) -> None:
    end = block.last_op
    assert end is not None
    for name, blank in (("onnx.ins", string("")), ("onnx.ins_decl", UnitAttr())):
        found = end.attributes.get(name)
        if isinstance(found, ArrayAttr):
            entries = list(cast("ArrayAttr[Attribute]", found).data)
            entries += [blank] * (at - len(entries))
            end.attributes[name] = ArrayAttr([*entries[:at], blank, *entries[at:]])


def _keeps_shape(op: Operation, block: Block, value: SSAValue) -> bool:
    """Whether a value of the body certainly has one shape in every iteration."""
    found = value.type
    if isinstance(value, BlockArgument) and value.index >= 2:
        assert block.last_op is not None
        found = join(join(found, op.operands[value.index].type), block.last_op.operands[value.index - 1].type)
    info = tensor_info(found)
    return info is not None and info.shape is not None and None not in info.shape


# Scan -----------------------------------------------------------------------------------------------------------------


@vjp("Scan")
def scan(g: Vjp) -> Gradients:
    op, b = g.op, g.b
    assert isinstance(op, TensorOp)
    block = op.regions[0].block
    n_scan = g.attr("num_scan_inputs")
    n = len(op.operands) - n_scan
    sources = list(op.operands[n:])
    axes = list(g.attr("scan_input_axes") or [0] * n_scan)
    backwards = list(g.attr("scan_input_directions") or [0] * n_scan)
    n_out = len(op.results) - n
    out_axes = list(g.attr("scan_output_axes") or [0] * n_out)
    out_backwards = list(g.attr("scan_output_directions") or [0] * n_out)
    made = _Backward(g, block, 0, list(op.operands[:n]), 0)
    wanted = [j for j, v in enumerate(sources) if carries_gradient(v) and g.live(v)]
    scanned = list(block.args[n:])
    made.activity([scanned[j] for j in wanted])
    scan_cts = [j for j in range(n_out) if g.cts[n + j] is not None]
    with b.nested(made.ct_types()) as (inner, carried):
        made.hold(inner)
        for arg in scanned:
            made.held[arg] = inner.block.insert_arg(arg.type, len(inner.block.args))
        cts = {
            j: inner.block.insert_arg(block_ct, len(inner.block.args)) for j, block_ct in _ct_slices(block, n, scan_cts)
        }
        given = {n + j: inner.wrap(arg) for j, arg in cts.items()}
        new, found = made.step(inner, carried, given, [scanned[j] for j in wanted])
        outputs = [(j, t) for j, t in zip(wanted, found, strict=True) if t is not None]
        if not new and not outputs:
            return [None] * (n + n_scan)
        own = [inner.Identity(t) if _outside(inner, t.ssa) else t for _, t in outputs]
        _yield(inner, [*new, *own])
        sweep(inner.block, None, [])
        # What is scanned, in the order of the block's arguments: value, axis, direction.
        rows: list[tuple[SSAValue, int, int]] = []
        at: dict[SSAValue, int] = {arg: j for j, arg in enumerate(scanned)}
        used: set[SSAValue] = {arg for _, arg in made.used()}
        if not used and not cts:
            used = {made.held[scanned[0]]}
        for value, arg in list(made.held.items()):
            assert isinstance(arg, BlockArgument)
            if arg not in used:
                inner.block.erase_arg(arg)
            elif value in at:
                j = at[value]
                rows.append((sources[j], axes[j], 1 - backwards[j]))
            else:
                rows.append((_kept_by_scan(op, block, value), 0, 1))
        rows += [(g.ct_of(n + j).ssa, out_axes[j], 1 - out_backwards[j]) for j in cts]
        result = b.op(
            "Scan",
            *made.first_cts(),
            *(value for value, _, _ in rows),
            body=Region(inner.block),
            num_scan_inputs=len(rows),
            scan_input_axes=[axis for _, axis, _ in rows],
            scan_input_directions=[direction for _, _, direction in rows],
            scan_output_axes=[axes[j] for j, _ in outputs] or None,
            scan_output_directions=[1 - backwards[j] for j, _ in outputs] or None,
        )
    results = [result] if isinstance(result, Tensor) else list(result)
    n_carried = len(made.live) + len(made.captures)
    g.captured += list(zip(made.captures, results[len(made.live) : n_carried], strict=True))
    by_state = dict(zip(made.live, results, strict=False))
    by_source = {j: t for (j, _), t in zip(outputs, results[n_carried:], strict=True)}
    return [*(by_state.get(k) for k in range(n)), *(by_source.get(j) for j in range(n_scan))]


def _ct_slices(block: Block, n: int, scan_cts: Sequence[int]) -> list[tuple[int, Attribute]]:
    assert block.last_op is not None
    return [(j, block.last_op.operands[n + j].type) for j in scan_cts]


def _kept_by_scan(op: TensorOp, block: Block, value: SSAValue) -> SSAValue:
    kept = _scan_output(op, block, value)
    for name in ("scan_output_axes", "scan_output_directions"):
        found = op.attr(name)
        if found:
            op.properties.update(type(op).properties_from({name: [*found, 0]}))
    return kept


# SequenceMap ----------------------------------------------------------------------------------------------------------


@vjp("SequenceMap")
def sequence_map(g: Vjp) -> Gradients:
    """Each element's cotangent by itself; what every element reads gets the sum of its parts."""
    b, op = g.b, g.op
    block = op.regions[0].block
    _drawn_nowhere(block)
    wanted = [i for i in range(g.n_operands) if g.needs(i)]
    captures = _captured(op.regions, g.live)
    cts = [(j, ct) for j, ct in enumerate(g.cts) if ct is not None]
    assert block.last_op is not None
    yielded = list(block.last_op.operands)

    def body(inner: Builder, args: Sequence[Tensor]) -> list[Tensor]:
        own, given = args[: len(block.args)], args[len(block.args) :]
        values: dict[SSAValue, SSAValue] = {old: new.ssa for old, new in zip(block.args, own, strict=True)}
        _replay(inner, block, values)
        sources = [own[i].ssa for i in wanted] + captures
        outputs = [values.get(yielded[j], yielded[j]) for j, _ in cts]
        found = differentiate(inner, outputs, sources, given, block=inner.block)
        made = [zero_value(inner, inner.wrap(v)) if t is None else t for t, v in zip(found, sources, strict=True)]
        made = [inner.Identity(t) if _outside(inner, t.ssa) else t for t in made]
        sweep(inner.block, None, [t.ssa for t in made])
        return made

    types = [arg.type for arg in block.args] + [yielded[j].type for j, _ in cts]
    with b.nested(types) as (inner, args):
        _yield(inner, body(inner, args))
        found = b.op("SequenceMap", *op.operands, *(ct for _, ct in cts), body=Region(inner.block))
    results = [found] if isinstance(found, Tensor) else list(found)
    parts: dict[int, Tensor] = {}
    for i, result in zip(wanted, results, strict=False):
        parts[i] = result if isinstance(op.operands[i].type, SeqType) else _summed(g, result, g.x(i))
    for value, result in zip(captures, results[len(wanted) :], strict=True):
        g.captured.append((value, _summed(g, result, b.wrap(value))))
    return [parts.get(i) for i in range(g.n_operands)]


def _summed(g: Vjp, sequence: Tensor, like: Tensor) -> Tensor:
    """The sum of a sequence's tensors; zeros for an empty one."""
    longer = g.b.SequenceInsert(sequence, g.zeros_like(like))
    return g.b.ReduceSum(g.b.ConcatFromSequence(longer, axis=0, new_axis=1), g.i64([0]), keepdims=0)


def _drawn_nowhere(block: Block) -> None:
    for value in _drawn(block):
        raise UnsupportedError(
            "random numbers drawn for each element of a sequence cannot be drawn alike for the gradient",
            op=value.op.name,
            where=where(value),
            hint="draw them outside of the graph",
        )
