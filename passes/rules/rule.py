"""Rules: a pattern, what takes its place, and what must hold; or a rewrite written by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from irkit.dialects.onnx import OnnxOp, op_class
from irkit.dialects.onnx.values import constant_of
from irkit.errors import InferenceError, PassError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import fused
from irkit.ir.module import Module
from irkit.ir.names import DOC, META, NAME, metadata_of, set_metadata
from irkit.ir.op import TensorOp
from irkit.ir.types import UnknownType, tensor_info
from irkit.opsets.lowering import can_lower
from irkit.passes.registry import suggestion
from irkit.passes.rewrite import MAX_SOURCES, Rewriter, enclosing_function, target_opset
from irkit.passes.rules.match import Match, find
from irkit.passes.rules.pattern import Pattern, Rest, Variable, trace
from irkit.passes.types import meet

__all__ = ["HandRule", "Precision", "Rewrite", "Rule", "item"]

Precision = Literal["exact", "rounding", "fast-math"]
"""``exact``: the same bits for every input. ``rounding``: the same up to rounding, NaN and infinities in the same
places, for magnitudes up to about the square root of the type's largest number; beyond, an intermediate result of one
side may overflow. ``fast-math``: only where every value is finite."""
PRECISIONS: list[str] = list(get_args(Precision))


@dataclass(frozen=True, eq=False)
class Rewrite:
    """What all rules say of themselves.

    Attributes:
        name: in lower case with dashes, as locations, statistics and options have it.
        precision: how equal both sides are; what is not ``"exact"`` runs only where that was asked for.
        opset: the lowest opset of ai.onnx that can express what the rule makes; below it the rule does not run.
        keeps_gradients: whether both sides have the same derivative wherever one of them has one; rules that don't run
            only on what will not be differentiated any more.
    """

    name: str
    precision: Precision = field(default="exact", kw_only=True)
    opset: int = field(default=1, kw_only=True)
    keeps_gradients: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        # A rule of an unknown precision would be left out of every pass without a word.
        if self.precision not in PRECISIONS:
            raise PassError(
                f"rule '{self.name}': there is no precision {self.precision!r}",
                hint=suggestion(str(self.precision), PRECISIONS, "precisions"),
            )

    @property
    def roots(self) -> Sequence[str]:
        """The names of the ops at which the rule begins."""
        raise NotImplementedError

    @property
    def needs(self) -> frozenset[str]:
        """What must be among the makers of such an op's operands: names of ops, or ``"constant"`` for a constant."""
        return frozenset()

    def apply(self, op: OnnxOp, rw: Rewriter) -> bool:
        """Rewrites what begins at an op. Returns whether it fired; if not, nothing has changed."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Rule(Rewrite):
    """A rewrite rule of two plain functions over a builder.

    >>> from irkit.passes.rules import Rule, value
    >>> def twice(b, x=value("float")):
    ...     return b.Neg(b.Neg(x))
    >>> rule = Rule("neg-of-neg", twice, lambda b, x: x)
    >>> rule.roots
    ['onnx.Neg']

    Attributes:
        pattern: see ``irkit.passes.rules.pattern``.
        replacement: takes a ``Builder`` and the variables of the pattern that it names, and returns as many values as
            the pattern gives. None (as the whole result) means that the rule does not apply after all. Constants come
            as values: what it computes of them is for constant folding to fold.
        when: takes the variables that it names, values as Tensors; ``match`` is the whole match. Returns whether the
            rule applies.
        samples: for ``check_rule``: variables to shapes, constants or attributes; see there.
    """

    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    when: Callable[..., bool] | None = field(default=None, kw_only=True)
    samples: Sequence[Mapping[str, Any]] = field(default=(), kw_only=True)

    @cached_property
    def traced(self) -> Pattern:
        """The pattern as nodes; made on first use."""
        return trace(self.pattern)

    @property
    def roots(self) -> Sequence[str]:
        return [self.traced.root.cls.name]

    @property
    def needs(self) -> frozenset[str]:
        return self.traced.makers

    def applies(self, op: OnnxOp, module: Module) -> bool | None:
        """Whether the rule's condition holds at an op; None where the pattern does not match there."""
        match = find(self.traced, op)
        if match is None:
            return None
        given = _bindings(match, Builder.before(op, module.ctx))
        return self.when is None or bool(self.when(**_asked(self.when, given)))

    def apply(self, op: OnnxOp, rw: Rewriter) -> bool:
        match = find(self.traced, op)
        if match is None:
            return False
        before = _insertion_point(match)
        if before is None:
            return False
        b = Builder.before(before, rw.ctx, by=rw.by, sources=match.matched[:MAX_SOURCES])
        given = _bindings(match, b)
        if self.when is not None and not self.when(**_asked(self.when, given)):
            return False
        return _replace(match, before, self._values(b, given), rw)

    def _values(self, b: Builder, given: Mapping[str, Any]) -> Callable[[], list[SSAValue] | None]:
        def build() -> list[SSAValue] | None:
            made: Any = self.replacement(b, *_rest(self.traced, given), **_asked(self.replacement, given, skip=1))
            if made is None:
                return None
            listed: list[Any] = list(cast("list[Any]", made)) if isinstance(made, list | tuple) else [made]
            return [b.tensor(value) for value in listed]

        return build


def _bindings(match: Match, b: Builder) -> dict[str, Any]:
    """The variables as functions of rules take them."""
    given: dict[str, Any] = {"match": match, **match.attributes}
    for name, variable in match.pattern.variables.items():
        if isinstance(variable, Variable):
            value = match.values.get(name)
            given[name] = None if value is None else b.wrap(cast(SSAValue, value))
        elif isinstance(variable, Rest):
            given[name] = tuple(b.wrap(v) for v in cast("tuple[SSAValue, ...]", match.values[name]))
    return given


def _rest(pattern: Pattern, given: Mapping[str, Any]) -> Iterable[Any]:
    """What goes to ``*xs``."""
    return next((given[n] for n, v in pattern.variables.items() if isinstance(v, Rest)), ())


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    found = inspect.signature(function).parameters.values()
    return tuple(p.name for p in found if p.kind is not p.VAR_POSITIONAL)


def _asked(function: Callable[..., Any], given: Mapping[str, Any], skip: int = 0) -> dict[str, Any]:
    """The variables that a function names."""
    names = _parameters(function)[skip:]
    missing = [name for name in names if name not in given]
    if missing:
        raise TypeError(f"'{function.__name__}' asks for '{missing[0]}', which is no parameter of the pattern")
    return {name: given[name] for name in names}


def _insertion_point(match: Match) -> Operation | None:
    """The op in front of which the replacement goes: the last of those that give outputs.

    None where something before it already uses an output of another.
    """
    owners: set[Operation] = {result.op for result in match.outputs}
    if len(owners) == 1:
        return match.root
    for first in owners:
        between = _until_all(first, owners)
        if between is not None:
            users = {use.operation for owner in owners for r in owner.results for use in r.uses} - {*match.ops.values()}
            return None if any(_holds_any(op, users) for op in between) else between[-1]
    return None


def _until_all(first: Operation, owners: set[Operation]) -> list[Operation] | None:
    """The ops of a block from one of these to the last of them; None if another comes before it."""
    left, found = set(owners), list[Operation]()
    op: Operation | None = first
    while op is not None:
        found.append(op)
        left.discard(op)
        if not left:
            return found
        op = op.next_op
    return None


def _holds_any(op: Operation, users: set[Operation]) -> bool:
    return op in users or (bool(op.regions) and any(inner in users for inner in op.walk()))


def _replace(match: Match, before: Operation, build: Callable[[], list[SSAValue] | None], rw: Rewriter) -> bool:
    """Puts what a replacement makes in the place of what was matched, unless it does not fit there."""
    block = before.parent
    assert block is not None
    last = before.prev_op
    try:
        values = build()
    except InferenceError:
        values = None
    first = block.first_op if last is None else last.next_op
    built: list[Operation] = []
    while first is not None and first is not before:
        if first.name != "onnx.NoValue":
            built.append(first)
        first = first.next_op
    if values is None or not _fits(match, values) or not _expressible(built, before, rw):
        for op in reversed(built):
            op.detach()
            op.erase(safe_erase=False)
        return False
    _hand_over(match, values, built)
    touched = [u.operation for op in match.matched for v in op.operands for u, _ in zip(v.uses, range(8), strict=False)]
    for old, new in zip(match.outputs, values, strict=True):
        rw.replace_value(old, new)
    gone = match.matched
    while gone:
        free = [op for op in gone if not any(r.first_use for r in op.results)]
        if not free:
            break
        for op in free:
            op.detach()
            op.erase()
        gone = [op for op in gone if op not in free]
    rw.touched += [*built, *touched]
    return True


def _fits(match: Match, values: Sequence[SSAValue]) -> bool:
    """Whether the new values may have the types of the old ones."""
    if len(values) != len(match.outputs):
        raise TypeError(f"the replacement gives {len(values)} values, the pattern {len(match.outputs)}")
    for old, new in zip(match.outputs, values, strict=True):
        if meet(old.type, new.type) is None:
            return False
        info = tensor_info(new.type)
        # A rule must not lose what is known, or a later pass could take another type for granted.
        if isinstance(new.type, UnknownType) and not isinstance(old.type, UnknownType) and info is None:
            return False
    return True


def _expressible(built: Sequence[Operation], before: Operation, rw: Rewriter) -> bool:
    """Whether the target opset has every op that was made, and a form of it for this instance."""
    opset = target_opset(rw.module, enclosing_function(before.parent))
    for op in built:
        for inner in op.walk():
            if isinstance(inner, OnnxOp) and inner.domain == "":
                if op_class("", inner.op_type, opset) is None:
                    return False
                if not can_lower(inner, {"": opset}, rw.ctx):
                    return False
    return True


def _hand_over(match: Match, values: Sequence[SSAValue], built: Sequence[Operation]) -> None:
    """The op that gives the first output gets the root's node name and doc string, and everybody's metadata."""
    owner = values[0].owner
    if not isinstance(owner, TensorOp) or owner not in set(built):
        return
    for name in (NAME, DOC):
        found = match.root.attributes.get(name)
        if found is not None:
            owner.attributes.setdefault(name, found)
    if any(META in op.attributes for op in match.matched):
        merged: dict[str, str] = {}
        for op in reversed(match.matched):
            merged.update(metadata_of(op))
        set_metadata(owner, {**merged, **metadata_of(owner)})


@dataclass(frozen=True, eq=False)
class HandRule(Rewrite):
    """A rule whose rewrite is written by hand: a function of an op and a ``Rewriter``, or an xDSL ``RewritePattern``.

    Attributes:
        begins_at: the names of the ops at which it begins, as ``"onnx.If"``.
        rewrite: the function, which says whether it fired; or the pattern.
        over: what must be among the makers of the op's operands for the rule to be tried; see ``needs``.
    """

    begins_at: Sequence[str]
    rewrite: Callable[[OnnxOp, Rewriter], bool] | RewritePattern
    over: Sequence[str] = ()

    @property
    def roots(self) -> Sequence[str]:
        return self.begins_at

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.over)

    def apply(self, op: OnnxOp, rw: Rewriter) -> bool:
        rewrite = self.rewrite
        if not isinstance(rewrite, RewritePattern):
            return rewrite(op, rw)
        location = fused([op.location], rw.by)
        rewriter = PatternRewriter(op)

        def inserted(new: Operation) -> None:
            new.location = location
            rw.touched.append(new)

        def replaced(old: Operation, values: Sequence[SSAValue | None]) -> None:
            rw.touched.extend(use.operation for result in old.results for use in result.uses)

        rewriter.operation_insertion_handler.append(inserted)
        rewriter.operation_replacement_handler.append(replaced)
        rewrite.match_and_rewrite(op, rewriter)
        return rewriter.has_done_action


def item(value: Tensor) -> Any:
    """The one number that a scalar variable stands for, as a Python value."""
    data = constant_of(value.ssa)
    if data is None or data.size == 0:
        raise ValueError("not a constant of one element")
    return np.asarray(data.stored()).reshape(-1)[0].item()
