"""Why a rule does not fire: the op at which it came nearest, how far it came, and what did not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, OpResult, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of, node_name
from irkit.ir.op import TensorOp
from irkit.passes.rewrite import enclosing_function, ops_in, target_opset
from irkit.passes.rules.match import find, fits_attribute, fits_variable, holds, operands_of
from irkit.passes.rules.pattern import Attribute, Literal, Node, Out, Variable
from irkit.passes.rules.rule import Rule

__all__ = ["Miss", "why_not"]


@dataclass(frozen=True)
class Miss:
    """An op at which a rule could begin, and why it does not fire there.

    Attributes:
        op: the op.
        matched: how many ops of the pattern fit.
        of: how many it has.
        reason: what did not fit.
    """

    op: TensorOp
    matched: int
    of: int
    reason: str

    def __str__(self) -> str:
        place = where(self.op)
        name = node_name(self.op) or name_of(self.op.results[0])
        head = f"{self.op.name}{f' {name!r}' if name else ''}{f' ({place})' if place else ''}"
        return f"{head}: {self.matched} of {self.of} ops fit; {self.reason}"


def why_not(rule: Rule, module: Module) -> list[Miss]:
    """For each op at which a rule could begin why it does not fire there, the nearest misses first.

    Where it would fire nothing is reported.
    """
    misses = [
        miss
        for op in ops_in(module.op)
        if isinstance(op, OnnxOp) and op.name in rule.roots and (miss := _miss(rule, op, module)) is not None
    ]
    return sorted(misses, key=lambda miss: -miss.matched)


def _miss(rule: Rule, op: OnnxOp, module: Module) -> Miss | None:
    pattern = rule.traced
    count = len(pattern.nodes)
    opset = target_opset(module, enclosing_function(op.parent))
    if find(pattern, op) is None:
        matched, reason = _nearest(pattern.root, op)
        return Miss(op, matched, count, reason or _outside(rule, op))
    if rule.opset > opset:
        return Miss(op, count, count, f"it needs opset {rule.opset}, and the module is to be saved at {opset}")
    if rule.applies(op, module) is False:
        name = getattr(rule.when, "__name__", "")
        named = f" '{name}'" if name.isidentifier() else ""
        return Miss(op, count, count, f"its condition{named} does not hold")
    return None


def _outside(rule: Rule, op: TensorOp) -> str:
    """What is wrong where every op fits by itself."""
    inner = {operand.node for node in rule.traced.nodes for operand in node.operands if isinstance(operand, Out)}
    kinds = ", ".join(sorted({node.cls.name for node in inner}))
    return f"a variable would have to stand for two values, or a value in between ({kinds}) is used elsewhere as well"


def _nearest(node: Node, op: Operation) -> tuple[int, str]:
    """How many nodes fit from here on, and the first thing that does not; ``""`` if all do."""
    if type(op) is not node.cls:
        return 0, f"there is {op.name}{_name(op)} where the pattern has {node.cls.name}"
    assert isinstance(op, TensorOp)
    for name, want in node.attributes.items():
        if name != "*" and not isinstance(want, Attribute) and not fits_attribute(op.attr(name), want):
            return 0, f"{name} of {op.name}{_name(op)} is {op.attr(name)!r}, not {want!r}"
    if "*" not in node.attributes:
        for name in op.properties:
            declared = op.spec.attributes.get(name)
            default = None if declared is None else declared.default
            if name not in node.attributes and not fits_attribute(op.attr(name), default):
                return 0, f"{name} of {op.name}{_name(op)} is {op.attr(name)!r}, which the pattern does not name"
    operands = operands_of(node, op)
    if operands is None:
        return 0, f"{op.name}{_name(op)} has {len(op.operands)} operands, more or fewer than the pattern"
    orders = [operands]
    if node.is_commutative:
        (p, x), (q, y) = operands
        orders.append([(p, y), (q, x)])
    best = max((_operands(order, op) for order in orders), key=lambda found: (not found[1], found[0]))
    return best[0] + 1, best[1]


def _operands(order: list[tuple[Any, SSAValue | None]], op: TensorOp) -> tuple[int, str]:
    matched, reason = 0, ""
    for count, found in _each(order, op):
        matched += count
        reason = reason or found
    return matched, reason


def _each(order: list[tuple[Any, SSAValue | None]], op: TensorOp) -> Iterator[tuple[int, str]]:
    for index, (want, value) in enumerate(order):
        label = f"operand {index} of {op.name}{_name(op)}"
        match want:
            case Out():
                if not isinstance(value, OpResult):
                    yield 0, f"{label} is no result of {want.node.cls.name}"
                else:
                    yield _nearest(want.node, value.op)
            case Literal():
                if value is None or not holds(want, value, op):
                    yield 0, f"{label} is not the constant {want.value}"
            case Variable():
                if not fits_variable(want, value, op):
                    found = "absent" if value is None else str(value.type)
                    yield 0, f"{label}, {found}, is not what '{want.name}' may stand for"
            case None:
                if value is not None:
                    yield 0, f"{label} is given, and absent in the pattern"
            case _:
                pass


def _name(op: Operation) -> str:
    name = node_name(op) or (name_of(op.results[0]) if op.results else "")
    return f" '{name}'" if name else ""
