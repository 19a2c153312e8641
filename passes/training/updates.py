"""From gradients to the next state: unscaling, accumulating, clipping, the optimizer's update, moving averages.

What is updated is a unit: one parameter, or in ``packed`` steps one vector of all those that are updated alike. An
update that may be left out (not all micro-steps are there yet, or a gradient is not finite) stands in the branch of an
``If``; the other branch gives everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.registry import zeros_like
from irkit.passes.training.build import Build, Held, Parameter, data_of, widened
from irkit.passes.training.gradients import DynamicLossScale, all_finite
from irkit.passes.training.optimizers import Context
from irkit.passes.training.schedules import Adjustable
from irkit.passes.training.signature import matches
from irkit.passes.training.values import cast

__all__ = ["Unit", "Updates", "held_parameters"]

Values = dict[str, Tensor]
"""The state that an update changes, by the variable's name."""


@dataclass(frozen=True)
class Unit:
    """What is updated as one: the variable that holds it, its parameters' values, and whether their weights decay."""

    held: Held
    members: tuple[Parameter, ...]
    decays: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the variable."""
        return self.members[0].shape if self.members[0].offset is None else (sum(p.size for p in self.members),)


def held_parameters(build: Build, initializers: Mapping[str, SSAValue]) -> list[Unit]:
    """Makes initializers variables: each one of its own, or packed."""
    optimizer = build.options.optimizer
    groups: dict[tuple[str, bool], list[str]] = {}
    units: list[Unit] = []
    for name, value in initializers.items():
        data = data_of(value)
        decays = bool(optimizer.weight_decay) and not matches(name, optimizer.no_decay)
        if build.options.packed:
            groups.setdefault((widened(data.dtype).name, decays), []).append(name)
            continue
        held = build.hold(value, "parameter")
        units.append(Unit(held, (Parameter(name, data.dtype, data.shape, held.name),), decays))
    units += [_pack(build, {n: initializers[n] for n in names}, decays) for (_, decays), names in groups.items()]
    return units


def _pack(build: Build, initializers: Mapping[str, SSAValue], decays: bool) -> Unit:
    """One vector of several initializers, which become views of it."""
    arrays = {name: data_of(value) for name, value in initializers.items()}
    kind = widened(next(iter(arrays.values())).dtype)
    flat = np.concatenate([data.array().astype(kind.numpy).reshape(-1) for data in arrays.values()])
    held = build.declare("parameters", flat, "parameter", trainable=True)
    members: list[Parameter] = []
    offset = 0
    for name, data in arrays.items():
        members.append(Parameter(name, data.dtype, data.shape, held.name, offset))
        offset += data.size
    b = build.after_reads()
    parts = b.Split(held.value, [p.size for p in members], axis=0, outputs=len(members))
    for member, part in zip(members, [parts] if isinstance(parts, Tensor) else parts, strict=True):
        view = b.Reshape(part, np.asarray(member.shape, np.int64))
        build.replace(initializers[member.name], build.b.wrap(view.ssa))
    return Unit(held, tuple(members), decays)


class Updates:
    """Builds what a step makes of its gradients.

    Args:
        units: what is updated.
        scale: the loss scale, if there is one.
    """

    def __init__(self, build: Build, units: Sequence[Unit], scale: Held | None) -> None:
        self.build, self.units, self.scale = build, units, scale
        self.options, self.b = build.options, build.b
        optimizer = self.options.optimizer
        self.step = build.declare("step", np.int64(0), "counter")
        self.rate = None
        if isinstance(optimizer.learning_rate, Adjustable):
            start = np.float32(optimizer.learning_rate.initial)
            self.rate = build.declare("learning_rate", start, "learning-rate")
        self.scalars = {k: build.declare(k, np.float32(v), "scalar") for k, v in optimizer.scalars.items()}
        self.slots: dict[str, dict[str, Held]] = {}
        self.averages: dict[str, Held] = {}
        for unit in units:
            kind = unit.held.op.initial.data.dtype.numpy
            self.slots[unit.held.name] = {
                key: build.declare(f"{key}/{unit.held.name}", slot.initial(unit.shape, kind), "slot")
                for key, slot in optimizer.slots(unit.shape).items()
            }
            if self.options.ema is not None:
                start = unit.held.op.initial
                self.averages[unit.held.name] = build.declare(f"ema/{unit.held.name}", start, "ema")

    def assign(self, grads: Mapping[str, Tensor]) -> None:
        """Assigns everything its next value, given the gradients by the parameters' names."""
        build, b = self.build, self.b
        per_unit = {unit.held.name: self._gradient(unit, grads) for unit in self.units}
        conditions: list[Tensor] = []
        if self.options.accumulate > 1:
            per_unit, due = self._accumulated(per_unit)
            conditions.append(due)
        if isinstance(self.options.loss_scale, DynamicLossScale):
            conditions.append(self._adapted(list(per_unit.values()), conditions))
        before = self._before()
        if conditions:
            condition = conditions[0] if len(conditions) == 1 else b.And(*conditions)
            after = _either(b, condition, before, lambda inner, old: self._updated(inner, old, per_unit))
        else:
            after = self._updated(b, before, per_unit)
        for name, value in after.items():
            build.assign(build.held[name], value)

    def _gradient(self, unit: Unit, grads: Mapping[str, Tensor]) -> Tensor:
        """The gradient of a unit, in its variable's dtype, without the loss scale."""
        b, kind = self.b, unit.held.op.initial.data.dtype
        parts = [grads[p.name] for p in unit.members]
        parts = [cast(b, part, kind.name) for part in parts]
        if unit.members[0].offset is not None:
            flat = [b.Reshape(part, [-1]) for part in parts]
            parts = flat if len(flat) == 1 else [b.Concat(*flat, axis=0)]
        return parts[0] if self.scale is None else parts[0] * cast(b, b.Reciprocal(self.scale.value), parts[0])

    def _accumulated(self, grads: Values) -> tuple[Values, Tensor]:
        """The means of the gradients of all micro-steps, and whether this is the last of them."""
        build, b, count = self.build, self.b, self.options.accumulate
        done = build.declare("micro_step", np.int64(0), "counter")
        due = b.Equal(done.value, b.constant(np.int64(count - 1)))
        build.assign(done, b.Where(due, b.constant(np.int64(0)), done.value + 1))
        sums: Values = {}
        held: dict[str, Held] = {}
        for name, grad in grads.items():
            start = build.held[name].op.initial.data
            zeros = np.broadcast_to(np.zeros((), start.dtype.numpy), start.shape)
            held[name] = build.declare(f"accumulated/{name}", zeros, "accumulator")
            sums[name] = held[name].value + grad
        cleared = _either(b, due, sums, lambda inner, old: {k: zeros_like(inner, v) for k, v in old.items()})
        for name, value in cleared.items():
            build.assign(held[name], value)
        return {name: total * (1.0 / count) for name, total in sums.items()}, due

    def _adapted(self, grads: Sequence[Tensor], due: Sequence[Tensor]) -> Tensor:
        """Whether all gradients are finite; the loss scale follows."""
        build, b, rule = self.build, self.b, self.options.loss_scale
        assert isinstance(rule, DynamicLossScale)
        assert self.scale is not None
        good = build.declare("loss_scale/good_steps", np.int64(0), "loss-scale")
        finite = all_finite(b, grads)
        scale, counted = rule.next(b, self.scale.value, good.value, finite)
        if due:
            scale, counted = b.Where(due[0], scale, self.scale.value), b.Where(due[0], counted, good.value)
        build.assign(self.scale, scale)
        build.assign(good, counted)
        return finite

    def _before(self) -> Values:
        """All that an update changes, as it is."""
        held = [self.step, *self.scalars.values()]
        for unit in self.units:
            held += [unit.held, *self.slots[unit.held.name].values()]
            held += [self.averages[unit.held.name]] if self.averages else []
        return {h.name: h.value for h in held}

    def _updated(self, b: Builder, old: Values, grads: Mapping[str, Tensor]) -> Values:
        """All that an update changes, after it."""
        optimizer = self.options.optimizer
        new = {self.step.name: b.Add(old[self.step.name], b.constant(np.int64(1)))}
        c = Context.of(b, optimizer, old[self.step.name])
        if self.rate is not None:
            c = Context(b, b.wrap(self.rate.value.ssa), c.count)
        shared = optimizer.advance(c, {key: old[h.name] for key, h in self.scalars.items()})
        new.update({self.scalars[key].name: value for key, value in shared.items()})
        c = Context(b, c.rate, c.count, shared)
        for unit, grad in zip(self.units, self._clipped(b, [grads[u.held.name] for u in self.units]), strict=True):
            name = unit.held.name
            slots = {key: old[h.name] for key, h in self.slots[name].items()}
            weight = optimizer.decayed(c, old[name]) if unit.decays else old[name]
            new[name], kept = optimizer.update(c, weight, grad, slots)
            new.update({self.slots[name][key].name: value for key, value in kept.items()})
            if self.options.ema is not None:
                average = self.averages[name].name
                new[average] = old[average] * self.options.ema + new[name] * (1 - self.options.ema)
        return new

    def _clipped(self, b: Builder, grads: Sequence[Tensor]) -> list[Tensor]:
        inner = [b.wrap(g.ssa) for g in grads]
        return inner if self.options.clip is None else self.options.clip(b, inner)


def _either(b: Builder, condition: Tensor, old: Values, change: Callable[[Builder, Values], Values]) -> Values:
    """The values changed where a condition holds, else as they were."""

    def then(inner: Builder) -> list[Tensor]:
        new = change(inner, {name: inner.wrap(value.ssa) for name, value in old.items()})
        return [new[name] for name in old]

    def otherwise(inner: Builder) -> list[Tensor]:
        return [inner.Identity(value) for value in old.values()]

    found = b.If(condition, then_branch=then, else_branch=otherwise)
    return dict(zip(old, [found] if isinstance(found, Tensor) else found, strict=True))
