"""Reverse-mode differentiation of values in a graph.

``differentiate`` works on values: it walks the ops between some inputs and some outputs backwards and builds, where a
builder stands, what gives the inputs' cotangents. Only what lies on a path from an input to an output is looked at, and
a cotangent that is zero is not built at all. Everything else (modules, tangents, Hessians) is made of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from irkit import opsets
from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.structural import Call, ForeignOp, Function, Yield
from irkit.dialects.state.order import read_by
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.builder import Builder, Tensor, value_of
from irkit.ir.location import fused, where
from irkit.ir.types import OptType, SeqType, UnknownType, dtype_of
from irkit.passes.autodiff.registry import PROVEN_ZERO, REFUSED, RULES, Vjp, differentiable, key_of
from irkit.passes.types import refine

__all__ = [
    "BY",
    "add_values",
    "carries_gradient",
    "differentiate",
    "live_values",
    "load_rules",
    "make_differentiable",
    "sweep",
    "zero_reason",
]

BY = "gradient"
"""What stands in the locations of backward ops."""


@cache
def load_rules() -> None:
    """Imports every family of rules, and those of plug-ins that came with their dialects."""
    rules = importlib.import_module("irkit.passes.autodiff.rules")
    for family in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"{rules.__name__}.{family.name}")


def differentiate(
    b: Builder,
    outputs: Sequence[Tensor | SSAValue],
    inputs: Sequence[Tensor | SSAValue],
    cotangents: Sequence[Tensor | SSAValue | None],
    *,
    block: Block | None = None,
    on_part: Callable[[SSAValue, Operation, Tensor], None] | None = None,
) -> list[Tensor | None]:
    """The cotangents of some values from those of others: what reverse-mode differentiation computes.

    Ops on the way of older forms, and such as are defined by others and have no rule, are rewritten in place first.

    Args:
        b: builds the backward code; everything that is differentiated must be visible there.
        outputs: values of one block; one may be an input at the same time.
        inputs: values of that block, or of those around it. Each is a variable of its own: the gradient with respect to
            a value counts every use of it, and what it is computed from counts as constant unless asked for, too.
        cotangents: one for each output, of its shape and dtype; None for zero.
        block: whose ops give the outputs; by default the one in which the first output is made.
        on_part: called with each contribution to a cotangent: the value, the op that takes it, and what comes from it.

    Returns:
        One for each input; None where it is certainly zero: nothing that the outputs depend on depends on it.

    Raises:
        UnsupportedError: if an op on the way has no gradient, naming it and where it came from.
    """
    others = [value_of(c) for c in cotangents if c is not None]
    walk, values = _prepared(b, [*map(value_of, outputs)], [*map(value_of, inputs)], others, block, on_part)
    targets, sources = values[: len(outputs)], values[len(outputs) : len(outputs) + len(inputs)]
    given = iter(values[len(outputs) + len(inputs) :])
    seeds = [None if c is None else b.wrap(next(given)) for c in cotangents]
    before = b.anchor.prev_op if b.anchor is not None else b.block.last_op
    found = walk.backward(targets, sources, seeds)
    sweep(b.block, before, [t.ssa for t in found if t is not None], end=b.anchor)
    return found


def make_differentiable(
    b: Builder, outputs: Sequence[SSAValue], inputs: Sequence[SSAValue]
) -> tuple[list[SSAValue], list[SSAValue]]:
    """Rewrites, in place, the ops between values for which there is no rule, as ``differentiate`` does first.

    Who goes on using the values after differentiation does this before: a result of a rewritten op is another value
    then.

    Returns:
        What the outputs and the inputs are now.

    Raises:
        UnsupportedError: if an op on the way has no gradient, naming it and where it came from.
    """
    _, values = _prepared(b, outputs, inputs, [], None, None)
    return values[: len(outputs)], values[len(outputs) :]


def _prepared(
    b: Builder,
    outputs: Sequence[SSAValue],
    inputs: Sequence[SSAValue],
    others: Sequence[SSAValue],
    block: Block | None,
    on_part: Callable[[SSAValue, Operation, Tensor], None] | None,
) -> tuple[_Walk, list[SSAValue]]:
    """A walk whose ops all have rules; and what the outputs, the inputs and the other values are now."""
    load_rules()
    n, m = len(outputs), len(inputs)
    walk = _Walk(b, block or _block_of(b, outputs, inputs), on_part)
    with _Held(b, [*outputs, *inputs, *others]) as held:
        walk.prepare(lambda: (held.values[:n], held.values[n : n + m]))
        return walk, held.values


def _block_of(b: Builder, outputs: Sequence[SSAValue], inputs: Sequence[SSAValue]) -> Block:
    """The block whose ops give the outputs."""
    for value in outputs:
        if isinstance(value, OpResult) and value.op.parent is not None and value not in inputs:
            return value.op.parent
    return b.block


class _Held:
    """Values that are followed while ops are rewritten: they are operands of an op that stands there meanwhile."""

    def __init__(self, b: Builder, values: Sequence[SSAValue]) -> None:
        self._op = Yield.create(operands=values)
        b.insert(self._op)

    def __enter__(self) -> _Held:
        return self

    @property
    def values(self) -> list[SSAValue]:
        return list(self._op.operands)

    def __exit__(self, *_: object) -> None:
        self.last = self.values
        self._op.detach()
        self._op.erase()


def carries_gradient(value: SSAValue) -> bool:
    """Whether a value is of a type that has gradients; one of an unknown type may be."""
    kind = value.type
    if isinstance(kind, UnknownType):
        return True
    while isinstance(kind, SeqType | OptType):
        kind = kind.element
    return differentiable(dtype_of(kind))


def zero_reason(op: Operation, operand: int) -> str | None:
    """Why the gradient of an op in one of its operands is zero, if that is proven."""
    key = key_of(op)
    if key is None:
        return None
    return PROVEN_ZERO.get((*key, operand)) or PROVEN_ZERO.get((*key, "*"))


def _reads_live(op: Operation, live: set[SSAValue]) -> bool:
    """Whether an op depends on a live value in a way that counts."""
    if any(value in live and zero_reason(op, i) is None for i, value in enumerate(op.operands)):
        return True
    key = key_of(op)
    if not op.regions or key is None or (*key, "*") in PROVEN_ZERO:
        return False
    return any(value in live for region in op.regions for inner in region.walk() for value in inner.operands)


def live_values(ops: Iterable[Operation], inputs: Iterable[SSAValue]) -> set[SSAValue]:
    """The values among the results of some ops, given in order, that depend on one of these inputs; and the inputs."""
    live = {v for v in inputs if carries_gradient(v)}
    for op in ops:
        if not isinstance(op, Yield | ReturnOp) and _reads_live(op, live):
            live.update(r for r in op.results if carries_gradient(r))
    return live


def sweep(block: Block, before: Operation | None, kept: Sequence[SSAValue], *, end: Operation | None = None) -> None:
    """Erases ops that nothing uses, backwards from ``end`` (or the block's end) to ``before``, which stays."""
    keep = set(kept)
    op = block.last_op if end is None else end.prev_op
    while op is not None and op is not before:
        following = op.prev_op
        unused = not any(r in keep or any(True for _ in r.uses) for r in op.results)
        if unused and op.results and op.name != "onnx.NoValue" and not op.name.startswith("state."):
            op.detach()
            op.erase()
        op = following


@dataclass
class _Walk:
    """One differentiation: the block that it goes through, and what was found."""

    b: Builder
    block: Block
    on_part: Callable[[SSAValue, Operation, Tensor], None] | None = None
    live: set[SSAValue] = field(default_factory=set[SSAValue])
    active: list[Operation] = field(default_factory=list[Operation])
    cts: dict[SSAValue, Tensor] = field(default_factory=dict[SSAValue, Tensor])

    def prepare(self, ends: Callable[[], tuple[list[SSAValue], list[SSAValue]]]) -> None:
        """Finds the ops on the way, and rewrites those that no rule is for until every one has a rule."""
        while True:
            outputs, inputs = ends()
            self._activity(outputs, inputs)
            pending = [op for op in self.active if _needs_expansion(op)]
            if not pending:
                return
            for op in pending:
                _expand(op, self.b)

    def _activity(self, outputs: Sequence[SSAValue], inputs: Sequence[SSAValue]) -> None:
        ops = list(self.block.ops)
        self.live = live_values(ops, inputs)
        needed = {v for v in outputs if v in self.live}
        found: list[Operation] = []
        for op in reversed(ops):
            if any(r in needed for r in op.results) and _reads_live(op, self.live):
                found.append(op)
                needed.update(v for v in read_by(op) if v in self.live)
        self.active = found[::-1]

    def backward(
        self, outputs: Sequence[SSAValue], inputs: Sequence[SSAValue], seeds: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        for output, seed in zip(outputs, seeds, strict=True):
            if seed is not None and output in self.live:
                self.add(output, seed, None)
        b = self.b
        location, by = b.location, b.by
        wanted = self._wanted(inputs)
        try:
            for op in reversed(self.active):
                cts = [self.cts.get(r) for r in op.results]
                if any(ct is not None for ct in cts):
                    b.location, b.by = fused([op.location], BY), BY
                    self._op(op, cts, wanted)
        finally:
            b.location, b.by = location, by
        return [self.cts.get(v) for v in inputs]

    def _wanted(self, inputs: Sequence[SSAValue]) -> set[SSAValue]:
        """Values whose cotangents are needed: the inputs, and what leads from them to ops on the way."""
        found = {v for v in inputs if v in self.live}
        for op in self.active:
            found.update(r for r in op.results if r in self.live)
        return found

    def _op(self, op: Operation, cts: list[Tensor | None], wanted: set[SSAValue]) -> None:
        key = key_of(op)
        assert key is not None
        needs = [v in wanted and zero_reason(op, i) is None for i, v in enumerate(op.operands)]
        g = Vjp(self.b, op, cts, needs, wanted.__contains__)
        found = RULES[key](g)
        parts = [found] if isinstance(found, Tensor) or found is None else list(found)
        for value, part, need in zip(op.operands, parts, needs, strict=False):
            if need and part is not None:
                self.add(value, part, op)
        for value, part in g.captured:
            self.add(value, part, op)

    def add(self, value: SSAValue, part: Tensor, op: Operation | None) -> None:
        """Adds a contribution to the cotangent of a value."""
        kind, got = dtype_of(value.type), part.dtype
        if kind is not None and got is not None and kind is not got:
            name = op.name if op is not None else ""
            raise IrkitError(f"a cotangent of {got} was made for a value of {kind}", op=name, where=where(value))
        if op is not None and self.on_part is not None:
            self.on_part(value, op, part)
        found = self.cts.get(value)
        total = part if found is None else add_values(self.b, found, part)
        if isinstance(total.ssa, OpResult):
            refine(total.ssa, value.type)
        self.cts[value] = total


def add_values(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The sum of two cotangents: of tensors, or of sequences, element by element."""
    if isinstance(x.type, SeqType):
        return b.SequenceMap(x, y, body=_sum)
    if isinstance(x.type, OptType):
        return b.Optional(add_values(b, b.OptionalGetElement(x), b.OptionalGetElement(y)))
    return b.Add(x, y)


def _sum(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.Add(x, y)


def _needs_expansion(op: Operation) -> bool:
    if isinstance(op, OnnxOp) and not op.current:
        return True
    return key_of(op) not in RULES or any(_foreign_call(inner) for inner in op.walk() if op.regions)


def _foreign_call(op: Operation) -> bool:
    return isinstance(op, Call) and key_of(op) not in RULES


def _expand(op: Operation, b: Builder) -> None:
    """Rewrites an op that has no rule into others.

    Raises:
        UnsupportedError: if that is not possible.
    """
    key = key_of(op)
    if key in RULES and not (isinstance(op, OnnxOp) and not op.current):
        # What its graphs call is made part of them, since they are differentiated elsewhere.
        for inner in [inner for inner in op.walk() if _foreign_call(inner)]:
            _expand(inner, b)
        return
    reason = REFUSED.get(key) if key is not None else None
    if reason is None and isinstance(op, OnnxOp) and _rewritten(op, b):
        return
    if reason is None and isinstance(op, Call) and _inline(op, b):
        return
    name = f"{op.domain}.{op.op_type}" if isinstance(op, ForeignOp) else op.name
    if op.name.startswith("state."):
        reason, hint = "variables have no gradient where they stand", "lift the module's state first (pass lift-state)"
    else:
        hint = "declare one with irkit.vjp_for, or keep the gradient from going through it with irkit.stop_gradient"
    raise UnsupportedError(reason or "there is no gradient rule for this op", op=name, where=where(op), hint=hint)


def _rewritten(op: OnnxOp, b: Builder) -> bool:
    return opsets.upgrade_op(op, b.ctx) or opsets.decompose_op(op, b.ctx) or opsets.expand_function_body(op, b.ctx)


def _inline(call: Call, b: Builder) -> bool:
    """Puts a function's body, made for the call's types, in its place."""
    from irkit.backends.numpy.legalize import Specializer, functions_of
    from irkit.passes.rewrite import erase

    top: Operation = call
    while (above := top.parent_op()) is not None:
        top = above
    functions = functions_of(top) if isinstance(top, ModuleOp) else {}
    functions.update({op.key: op for op in b.declared if isinstance(op, Function)})
    body = Specializer(functions, b.ctx).function(call).body
    values = list(call.operands)
    if len(values) < len(body.args):
        values += [Builder.before(call, b.ctx).absent()] * (len(body.args) - len(values))
    mapping: dict[SSAValue, SSAValue] = dict(zip(body.args, values, strict=True))
    assert call.parent is not None
    assert body.last_op is not None
    for op in body.ops:
        if op is not body.last_op:
            copy = op.clone(mapping)
            copy.location = fused([op.location, call.location], "inline")
            call.parent.insert_op_before(copy, call)
    for result, value in zip(call.results, body.last_op.operands, strict=False):
        result.replace_all_uses_with(mapping.get(value, value))
    erase(call)
    return True
