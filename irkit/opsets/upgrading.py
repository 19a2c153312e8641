"""From older forms to current ones: by upgrades, which can be undone; by decompositions and bodies on demand."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.ir import SSAValue

from irkit.dialects.onnx.classes import CURRENT, OnnxOp
from irkit.errors import InferenceError, LoweringError
from irkit.ir.builder import Builder
from irkit.ir.constants import RefAttr
from irkit.ir.module import Module
from irkit.opsets import bodies
from irkit.opsets.registry import DECOMPOSITIONS, UPGRADES, Results, Rewrite, is_compatible
from irkit.opsets.rewrite import Built, recast, renamed_up, replace, values_of

__all__ = [
    "decompose_op",
    "decomposition",
    "expand_function_body",
    "upgrade",
    "upgrade_op",
    "upgraded",
]


def upgrade_op(op: OnnxOp, ctx: Context) -> bool:
    """Replaces an op of an older form by current ops, where that is one to one and can be undone.

    The name, doc string, metadata and result names go on to what replaces it; its location stays.

    Returns:
        Whether it was replaced. If not, it keeps its older form, which means what it always did.
    """
    return upgraded(op, ctx) is not None


def upgraded(op: OnnxOp, ctx: Context) -> list[SSAValue] | None:
    """As ``upgrade_op``; returns the values that took the results' place."""
    if op.current:
        return None
    key = (op.domain, op.op_type, op.since)
    rule = UPGRADES.get(key)
    if rule is not None and any(isinstance(attr, RefAttr) for attr in op.properties.values()):
        return None
    if rule is None:
        current = CURRENT[op.domain, op.op_type]
        if not is_compatible(type(op), current):
            return None
        if recast(op, current):
            return list(op.results)
        return _rewritten(op, lambda b, o: renamed_up(b, o, current), Builder.before(op, ctx))
    return _rewritten(op, rule, Builder.before(op, ctx))


def _rewritten(op: OnnxOp, rule: Rewrite, b: Builder) -> list[SSAValue] | None:
    built = Built(op)
    try:
        results: Results | None = rule(b, op)
    except (InferenceError, LoweringError):
        # The node breaks a rule of its own schema: it stays as it is, for the verifier or a backend to say so.
        results = None
    if results is None:
        built.erase()
        return None
    values = values_of(results)
    replace(op, values)
    return values


def upgrade(module: Module) -> None:
    """Upgrades every op of a module, in its graphs and functions, as ``upgrade_op`` does."""
    for op in list(module.op.walk()):
        if isinstance(op, OnnxOp) and not op.current:
            upgrade_op(op, module.ctx)


def decomposition(op: OnnxOp) -> Rewrite | None:
    """What tells the meaning of this older form in current ops, or None."""
    found = DECOMPOSITIONS.get((op.domain, op.op_type, op.since))
    if found is not None:
        return found
    current = CURRENT[op.domain, op.op_type]
    if not op.current and is_compatible(type(op), current):
        return lambda b, o: renamed_up(b, o, current, strict=False)
    return UPGRADES.get((op.domain, op.op_type, op.since))


def decompose_op(op: OnnxOp, ctx: Context) -> bool:
    """Replaces an op of an older form by as many current ops as it takes.

    Returns:
        Whether there is such a decomposition for it.
    """
    rule = decomposition(op)
    return rule is not None and _rewritten(op, rule, Builder.before(op, ctx, by="decompose")) is not None


def expand_function_body(op: OnnxOp, ctx: Context) -> bool:
    """Replaces an op by the function body that its schema defines it with, for the op's types and attributes.

    Returns:
        Whether there is one.
    """
    if not bodies.has_function_body(type(op)):
        return False
    return _rewritten(op, bodies.instantiate, Builder.before(op, ctx, by="function-body")) is not None
