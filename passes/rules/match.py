"""Matching: whether the ops around one op are what a pattern looks for, and what its variables then stand for.

Two steps. First the shape of the pattern alone is compared, op by op, with an answer kept for each pair of a node and
an op, so that either order of a commutative op's operands costs no more than once. Only then variables are bound, with
backtracking where both orders remain, within a bound on the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import ml_dtypes
import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from irkit.dialects.onnx.values import constant_of, is_constant
from irkit.ir.attributes import from_attr
from irkit.ir.constants import ConstantData
from irkit.ir.dtypes import DType
from irkit.ir.op import TensorOp, is_absent
from irkit.ir.types import dtype_of, shape_of
from irkit.passes.rewrite import has_reference
from irkit.passes.rules.pattern import Attribute, Attributes, Literal, Node, Out, Pattern, Rest, Variable, near
from irkit.passes.types import same_shape

__all__ = ["Match", "find", "fits_attribute", "fits_variable", "holds", "operands_of"]

MAX_STEPS = 2000
"""How many bindings are tried at one op before it counts as no match."""
MAX_USES = 64
"""Of how many uses of a shared value a further output of a pattern is looked for among."""
ROUNDINGS = 8
"""How many steps of its element type a constant may be off a ``near`` number."""
MAX_LOOKED_AT = 4096
"""A constant of more elements is not searched for one repeated element."""


@dataclass
class Match:
    """Where a pattern was found.

    Attributes:
        pattern: the pattern.
        values: the values of its variables by name: None for an optional one that is not given, a tuple for ``*xs``.
        attributes: of its variables of attributes.
        ops: per node its op.
    """

    pattern: Pattern
    values: dict[str, SSAValue | tuple[SSAValue, ...] | None] = field(
        default_factory=dict[str, "SSAValue | tuple[SSAValue, ...] | None"]
    )
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    ops: dict[Node, TensorOp] = field(default_factory=dict[Node, TensorOp])

    @property
    def root(self) -> TensorOp:
        """The op of the pattern's first output."""
        return self.ops[self.pattern.root]

    @property
    def matched(self) -> list[TensorOp]:
        """The ops, each once, users before what they use."""
        return list(dict.fromkeys(self.ops[node] for node in reversed(self.pattern.nodes)))

    @property
    def outputs(self) -> list[OpResult]:
        """The values that are replaced."""
        return [self.ops[out.node].results[out.index] for out in self.pattern.outputs]


def find(pattern: Pattern, op: TensorOp) -> Match | None:
    """The match of a pattern whose root is this op, or None.

    Matched ops stand in one block, no attribute of theirs is a function caller's, and values in between have no use
    outside (being an output of a graph is a use).
    """
    matcher = _Matcher(pattern, op)
    if not matcher.may_be(pattern.root, op):
        return None
    for match in matcher.matches(op):
        if _is_closed(match):
            return match
    return None


class _GaveUp(Exception):
    """Too many bindings were tried."""


_Goals = tuple[Any, SSAValue | None, "TensorOp", "_Goals"] | None
"""A linked list: what a value must be, the value, the op that uses it, and further ones."""


class _Matcher:
    def __init__(self, pattern: Pattern, root: Operation) -> None:
        self.pattern = pattern
        self.block = root.parent
        self.shapes: dict[tuple[Node, Operation], bool] = {}
        self.match = Match(pattern)
        self.trail: list[tuple[dict[Any, Any], Any]] = []
        self.steps = 0

    # The shape alone

    def may_be(self, node: Node, op: Operation) -> bool:
        """Whether an op could be a node, as far as ops, attributes and constants tell."""
        known = self.shapes.get((node, op))
        if known is None:
            known = self.shapes[node, op] = self._may_be(node, op)
        return known

    def _may_be(self, node: Node, op: Operation) -> bool:
        if type(op) is not node.cls or op.parent is not self.block:
            return False
        found = op
        if not _fits_attributes(node, found):
            return False
        operands = operands_of(node, found)
        if operands is None:
            return False
        if all(self._may_come(want, value, found) for want, value in operands):
            return True
        if not node.is_commutative:
            return False
        (p, x), (q, y) = operands
        return self._may_come(p, y, found) and self._may_come(q, x, found)

    def _may_come(self, want: Any, value: SSAValue | None, user: TensorOp) -> bool:
        match want:
            case Out():
                return isinstance(value, OpResult) and value.index == want.index and self.may_be(want.node, value.op)
            case Literal():
                return value is not None and holds(want, value, user)
            case Variable():
                return fits_variable(want, value, user)
            case None:
                return value is None
            case _:
                return True

    # Variables

    def matches(self, op: TensorOp) -> Iterator[Match]:
        """All ways to bind the pattern's variables."""
        try:
            yield from self._nodes([(self.pattern.root, op)], self.pattern.others)
        except _GaveUp:
            return

    def _nodes(self, found: list[tuple[Node, TensorOp]], others: Sequence[Node]) -> Iterator[Match]:
        (node, op) = found[-1]
        for _ in self._node(node, op, None):
            if not others:
                yield self.match
                continue
            for candidate in self._candidates(others[0]):
                if self.may_be(others[0], candidate):
                    yield from self._nodes([*found, (others[0], candidate)], others[1:])

    def _candidates(self, node: Node) -> list[TensorOp]:
        """Ops that could be a further output, among the users of what is bound already."""
        for want in node.operands:
            value: Any = None
            if isinstance(want, Variable):
                value = self.match.values.get(want.name)
            elif isinstance(want, Out) and want.node in self.match.ops:
                value = self.match.ops[want.node].results[want.index]
            if isinstance(value, SSAValue):
                users = [use.operation for use, _ in zip(cast(SSAValue, value).uses, range(MAX_USES), strict=False)]
                taken = set(self.match.ops.values())
                return [u for u in dict.fromkeys(users) if isinstance(u, TensorOp) and u not in taken]
        return []

    def _solve(self, goals: _Goals) -> Iterator[None]:
        """Yields for each way to meet all goals, with the bindings in force."""
        while goals is not None:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise _GaveUp
            want, value, user, goals = goals
            match want:
                case Variable():
                    if not self._bind_value(want.name, value):
                        return
                case Rest() | None:
                    pass
                case Literal():
                    if value is None or not holds(want, value, user):
                        return
                case Out():
                    if not isinstance(value, OpResult) or value.index != want.index:
                        return
                    known = self.match.ops.get(want.node)
                    if known is not None:
                        if known is not value.op:
                            return
                        continue
                    yield from self._node(want.node, cast(TensorOp, value.op), goals)
                    return
                case _:
                    return
        yield

    def _node(self, node: Node, op: TensorOp, goals: _Goals) -> Iterator[None]:
        """Yields for each way in which an op is a node, and the other goals are met."""
        operands = operands_of(node, op) if self.may_be(node, op) else None
        mark = len(self.trail)
        if operands is not None and self._bind_attributes(node, op) and self._bind_rest(node, op):
            self._set(self.match.ops, node, op)
            orders = [operands]
            if node.is_commutative:
                (p, x), (q, y) = operands
                orders.append([(p, y), (q, x)])
            start = len(self.trail)
            for order in orders:
                if all(self._may_come(want, value, op) for want, value in order):
                    chained = goals
                    for want, value in reversed(order):
                        chained = (want, value, op, chained)
                    yield from self._solve(chained)
                self._undo(start)
        self._undo(mark)

    def _bind_value(self, name: str, value: SSAValue | None) -> bool:
        if name in self.match.values:
            known = self.match.values[name]
            return known is value or _same_constant(cast("SSAValue | None", known), value)
        self._set(self.match.values, name, value)
        return True

    def _bind_rest(self, node: Node, op: TensorOp) -> bool:
        last = node.operands[-1] if node.operands else None
        if not isinstance(last, Rest):
            return True
        found = tuple(op.operands[len(node.operands) - 1 :])
        if last.name in self.match.values:
            return self.match.values[last.name] == found
        self._set(self.match.values, last.name, found)
        return True

    def _bind_attributes(self, node: Node, op: TensorOp) -> bool:
        for name, want in node.attributes.items():
            if isinstance(want, Attributes):
                found = {k: from_attr(v) for k, v in op.properties.items() if k not in node.attributes}
                key = want.name
            elif isinstance(want, Attribute):
                found, key = op.attr(name), want.name
            else:
                continue
            if key in self.match.attributes:
                if self.match.attributes[key] != found:
                    return False
            else:
                self._set(self.match.attributes, key, found)
        return True

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        table[key] = value
        self.trail.append((table, key))

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            table, key = self.trail.pop()
            del table[key]


def operands_of(node: Node, op: TensorOp) -> list[tuple[Any, SSAValue | None]] | None:
    """Per operand of a pattern's node what it must be and what the op has; None where their number does not fit."""
    wanted = node.operands
    if wanted and isinstance(wanted[-1], Rest):
        wanted = wanted[:-1]
        if len(op.operands) < len(wanted):
            return None
    elif any(not is_absent(v) for v in op.operands[len(wanted) :]):
        return None
    return [(want, op.operand(i)) for i, want in enumerate(wanted)]


def _fits_attributes(node: Node, op: TensorOp) -> bool:
    if has_reference(op):
        return False
    for name, want in node.attributes.items():
        if name != "*" and not isinstance(want, Attribute) and not fits_attribute(op.attr(name), want):
            return False
    if "*" in node.attributes:
        return True
    for name in op.properties:
        if name not in node.attributes and not fits_attribute(op.attr(name), _default(op, name)):
            return False
    return True


def _default(op: TensorOp, name: str) -> Any:
    declared = op.spec.attributes.get(name)
    return None if declared is None else declared.default


def fits_attribute(found: Any, want: Any) -> bool:
    """Whether an attribute has the value that a pattern names; floats as ONNX holds them, in float32."""
    if isinstance(want, float) and isinstance(found, float):
        return bool(np.float32(found) == np.float32(want))
    return found == (tuple(cast("list[Any]", want)) if isinstance(want, list) else want)


def fits_variable(want: Variable, value: SSAValue | None, user: TensorOp) -> bool:
    """Whether a variable may stand for a value, as far as its own conditions go."""
    if value is None:
        return want.optional
    if want.dtypes is not None and dtype_of(value.type) not in want.dtypes:
        return False
    if want.rank is not None:
        shape = shape_of(value.type)
        if shape is None or len(shape) != want.rank:
            return False
    if want.kind == "value":
        return True
    if not is_constant(value):
        return False
    data = constant_of(value)
    return data is not None and (want.kind == "constant" or (_number(data) is not None and _is_neutral(value, user)))


def holds(want: Literal, value: SSAValue, user: TensorOp | None = None) -> bool:
    """Whether a value is the constant that a pattern names, and broadcasts without effect in the op that uses it."""
    data = constant_of(value) if is_constant(value) else None
    if data is None or data.dtype.kind in ("string", "complex"):
        return False
    if not want.is_number:
        return data.shape == want.value.shape and np.array_equal(data.array(), want.value.astype(data.dtype.numpy))
    found = _number(data)
    if found is None or not _equal(found, want.value, data.dtype):
        return False
    return user is None or _is_neutral(value, user)


def _number(data: ConstantData) -> Any:
    """The one element that a constant holds everywhere, as it is stored; None where there is none."""
    if data.size == 0 or data.size > MAX_LOOKED_AT < data.stored().size or data.dtype.kind in ("string", "complex"):
        return None
    flat = data.stored().reshape(-1)
    return flat[0] if flat.size == 1 or np.all(flat == flat[0]) else None


def _equal(found: Any, want: Any, kind: DType) -> bool:
    if kind.kind == "bool" or isinstance(want, bool):
        return isinstance(want, bool) and kind.kind == "bool" and bool(found) == want
    if not kind.is_float:
        return float(want).is_integer() and int(found) == int(want)
    with np.errstate(all="ignore"):
        exact = np.asarray(float(want)).astype(kind.numpy)
    if isinstance(want, near):
        limits = cast(Any, ml_dtypes).finfo(kind.numpy)
        step = float(limits.eps)
        return bool(abs(float(found) - float(want)) <= ROUNDINGS * step * abs(float(want)))
    return bool(float(found) == float(exact) and np.signbit(float(found)) == np.signbit(float(exact)))


def _is_neutral(value: SSAValue, user: TensorOp) -> bool:
    """Whether a constant of one repeated element leaves the shape of the op's result to the other operands."""
    shape = shape_of(value.type)
    if shape == ():
        return True
    others = [v for v in user.operands if v is not value and not is_absent(v)]
    if not others or shape is None:
        return False
    if all(d == 1 for d in shape):
        ranks = [len(s) for v in others if (s := shape_of(v.type)) is not None]
        if ranks and len(shape) <= max(ranks):
            return True
    return any(same_shape(v.type, user.results[0].type) for v in others)


def _same_constant(a: SSAValue | None, b: SSAValue | None) -> bool:
    """Whether two values are constants of the same bits: one variable may stand for both."""
    if a is None or b is None or not is_constant(a) or not is_constant(b):
        return False
    first = constant_of(a)
    return first is not None and first == constant_of(b)


def _is_closed(match: Match) -> bool:
    """Whether nothing outside uses a value that the pattern does not give."""
    inside = set(match.ops.values())
    given = {(match.ops[out.node], out.index) for out in match.pattern.outputs}
    for op in inside:
        for result in op.results:
            if (op, result.index) not in given and any(use.operation not in inside for use in result.uses):
                return False
    return True
