"""Training as an expression: an optimizer's updates as nodes beside those of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.dsl.build import built
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.gradients import gradients
from irkit.frontends.dsl.nodes import ReadNode, cone
from irkit.frontends.dsl.state import Variable, group, variable
from irkit.frontends.dsl.symbol import Effect, Operand, Symbol
from irkit.ir.types import scalar_dims

if TYPE_CHECKING:
    from irkit.passes.training.optimizers import Optimizer

__all__ = ["minimize", "trainable_variables"]


def trainable_variables(value: Symbol) -> list[Variable]:
    """The variables that a value reads and that an optimizer may change, in the order in which they were made."""
    found = {n.variable for n in cone([value.node]) if isinstance(n, ReadNode) and n.variable.trainable}
    return sorted(found, key=lambda v: v.serial)


def minimize(
    optimizer: Optimizer | str,
    loss: Symbol,
    variables: Variable | Sequence[Variable] | None = None,
    *,
    gradients_of: Mapping[Variable, Symbol] | None = None,
    name: str = "",
) -> Effect:
    """The effect of one step that makes a loss smaller: gradients, and an update of each variable.

    What the optimizer keeps of a variable is a variable itself, called ``<variable>/<slot>``; the number of steps done
    is called ``<first variable>/step``. A second optimizer of the same variable keeps ``<variable>/1/<slot>``, and so
    on. With a name they are called ``<variable>/<name>/<slot>`` and ``<name>/step``.

    Args:
        optimizer: of ``irkit.optimizers``, or its name there.
        loss: a symbol of one element.
        variables: which to change, one or several; by default all trainable ones that the loss reads.
        gradients_of: gradients to use instead of the loss's own, clipped ones say.
        name: for what the optimizer keeps.

    Raises:
        IrkitError: if the loss reads no such variable, or ``variables`` are none.
    """
    from irkit.passes.training import optimizers

    if isinstance(optimizer, type):
        raise failure(
            IrkitError,
            f"{optimizer.__name__} is a class; minimize takes an optimizer",
            hint=f"make one: ik.optimizers.{optimizer.__name__}()",
        )
    rule: Any = optimizers.get(optimizer) if isinstance(optimizer, str) else optimizer
    chosen = _chosen(loss, variables)
    if not chosen:
        raise failure(
            IrkitError,
            "the loss reads no trainable variable",
            related=[("the loss is made at", loss.node.site)],
            hint="read a dsl.variable of a float dtype on the way to the loss, or name variables=",
        )
    found = dict(gradients_of or {})
    missing = [v for v in chosen if v not in found]
    found |= dict(zip(missing, gradients(loss, missing), strict=True)) if missing else {}
    # Names depend on the variables alone, so that state which is saved is found again whatever else the program makes.
    prefixes = {v: "/".join([v.name, *filter(None, [name or str(v.optimizers or "")]), ""]) for v in chosen}
    prefix = f"{name}/" if name else prefixes[chosen[0]]
    for target in () if name else chosen:
        target.optimizers += 1
    step = variable(np.int64(0), f"{prefix}step", trainable=False)
    shared = {
        key: variable(np.float32(start), f"{prefix}{key}", trainable=False) for key, start in rule.scalars.items()
    }
    effects = [step.assign_add(1)]
    read = step.value
    kept = {key: v.value for key, v in shared.items()}
    if shared:
        effects += _advance(rule, read, kept, shared)
    for target in chosen:
        effects += _update(rule, target, found[target], read, kept, prefixes[target])
    return group(*effects)


def _chosen(loss: Symbol, variables: Variable | Sequence[Variable] | None) -> list[Variable]:
    if variables is None:
        return trainable_variables(loss)
    chosen = [variables] if isinstance(variables, Operand) else list(variables)
    for item in chosen:
        if not isinstance(item, Variable):
            raise failure(
                IrkitError,
                f"an optimizer changes variables; {item!r} is none",
                related=[("it is made at", item.node.site)] if isinstance(item, Symbol) else [],
                hint="declare it with dsl.variable; a placeholder is fed from outside in each run",
            )
    return chosen


def _context(rule: Any, b: Any, step: Any, shared: Mapping[str, Any]) -> Any:
    """What an update sees: the optimizer's own scalars are those after this step."""
    from irkit.passes.training.optimizers import Context

    before = Context.of(b, rule, step)
    return Context.of(b, rule, step, rule.advance(before, shared)) if shared else before


def _advance(rule: Any, step: Symbol, kept: Mapping[str, Symbol], shared: Mapping[str, Variable]) -> list[Effect]:
    names = list(kept)

    def function(b: Any, count: Any, *scalars: Any) -> list[Any]:
        made = _context(rule, b, count, dict(zip(names, scalars, strict=True))).shared
        return [made[name] for name in names]

    new = built(function, step, *kept.values())
    listed = new if isinstance(new, tuple) else (new,)
    return [shared[name].assign(value) for name, value in zip(names, listed, strict=True)]


def _update(
    rule: Any, target: Variable, gradient: Symbol, step: Symbol, kept: Mapping[str, Symbol], prefix: str
) -> list[Effect]:
    sizes = scalar_dims(target.type)
    if sizes is None or target.dtype is None:
        raise failure(
            IrkitError,
            f"{target!r} has no fixed shape, which what an optimizer keeps of it needs",
            related=[("it is declared at", target.site)],
            hint="declare it without None in shape=, or leave it out of variables=",
        )
    kind = target.dtype.numpy
    slots = {
        name: variable(slot.initial(sizes, kind), f"{prefix}{name}", trainable=False)
        for name, slot in rule.slots(sizes).items()
    }
    names, scalars = list(slots), list(kept)

    def function(b: Any, w: Any, g: Any, count: Any, *rest: Any) -> list[Any]:
        own = dict(zip(names, rest, strict=False))
        shared = dict(zip(scalars, rest[len(names) :], strict=True))
        new, changed = rule.update(_context(rule, b, count, shared), w, g, own)
        return [new, *(changed[name] for name in names)]

    made = built(function, target, gradient, step, *(v.value for v in slots.values()), *kept.values())
    listed = made if isinstance(made, tuple) else (made,)
    return [v.assign(value) for v, value in zip((target, *slots.values()), listed, strict=True)]
