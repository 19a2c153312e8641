"""Derivatives of modules: each function returns a new module, and leaves the one it is given as it was.

Names: a gradient with respect to ``w`` is the output ``grad/w``; the cotangent of an output ``y`` is the input
``ct/y``; the tangent of an input ``x`` is the input ``tangent/x``, and that of an output ``y`` the output
``tangent/y``. A name that is taken gets ``_1`` and so on appended. The results are modules like any other: they can be
differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, OpResult, Region, SSAValue

from irkit.dialects.onnx import Initializer, Yield
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import TensorAttr
from irkit.ir.location import where
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import NAME, hint, name_of
from irkit.ir.types import scalar_dims, shape_of, tensor
from irkit.passes import GRADIENT
from irkit.passes.autodiff.registry import RuleT, zero_value
from irkit.passes.autodiff.registry import vjp as _declare
from irkit.passes.autodiff.rematerialize import rematerialize
from irkit.passes.autodiff.transform import BY, carries_gradient, differentiate, make_differentiable, sweep
from irkit.passes.dce import DeadCodeElimination
from irkit.passes.infer_shapes import InferShapes
from irkit.passes.registry import find_pass, suggestion
from irkit.passes.rewrite import erase, ops_in, sync_signature

__all__ = [
    "checkpoint",
    "differentiate",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vjp_for",
]

MIN_OPSET = 21
"""The rules use ops as of this opset; a module of an older one is saved at it."""

Names = str | Sequence[str] | None


def value_and_grad(
    module: Module,
    of: str | None = None,
    wrt: Names = None,
    *,
    as_inputs: bool = False,
    allow_unused: bool = False,
    keep: Sequence[str] = (),
) -> Module:
    """A module that gives a scalar value and its gradients.

    Args:
        of: the output (or any named value) to differentiate, of one element; by default the only output.
        wrt: with respect to what: inputs, initializers, or any named values; by default all inputs of float types.
        as_inputs: initializers in ``wrt`` become inputs, with their values as defaults.
        allow_unused: a gradient that is certainly zero is given as zeros; otherwise asking for it is an error.
        keep: other outputs (or named values) to give as well.

    Returns:
        With outputs ``of``, those of ``keep``, and ``grad/<name>`` for each of ``wrt``.

    Raises:
        IrkitError: for a name that is not there, a value that has no gradient, or one of more than one element.
        UnsupportedError: if an op on the way has no gradient.
    """
    work = Work(module)
    (target, *_), names, values = work.ends(of, wrt, as_inputs)
    grads = work.gradients(*work.scalar(target), values, names, allow_unused)
    shown = [(work.name(target, of), target), *((n, work.value(n)) for n in keep)]
    return work.finish([*shown, *((f"grad/{n}", g.ssa) for n, g in zip(names, grads, strict=True))])


def grad(
    module: Module,
    of: str | None = None,
    wrt: Names = None,
    *,
    as_inputs: bool = False,
    allow_unused: bool = False,
) -> Module:
    """A module that gives the gradients of a scalar value, as ``grad/<name>``; see ``value_and_grad``."""
    work = Work(module)
    (target, *_), names, values = work.ends(of, wrt, as_inputs)
    grads = work.gradients(*work.scalar(target), values, names, allow_unused)
    return work.finish([(f"grad/{n}", g.ssa) for n, g in zip(names, grads, strict=True)])


def vjp(
    module: Module, of: Names = None, wrt: Names = None, *, as_inputs: bool = False, allow_unused: bool = False
) -> Module:
    """A module that takes the cotangents of some outputs, of any shape, and gives those of ``wrt``.

    Args:
        of: outputs or named values; by default all outputs of float types.
        wrt: see ``value_and_grad``, as for the rest.
        as_inputs: whether initializers in ``wrt`` become inputs.
        allow_unused: whether a value that no output depends on gets zeros instead of an error.

    Returns:
        With further inputs ``ct/<name>``; with the outputs ``of`` and ``grad/<name>`` for each of ``wrt``.
    """
    work = Work(module)
    targets, names, values = work.ends(of, wrt, as_inputs)
    shown = [(work.name(t, None), t) for t in targets]
    cts = [work.add_input(f"ct/{n}", t) for n, t in shown]
    grads = work.gradients(targets, cts, values, names, allow_unused)
    return work.finish([*shown, *((f"grad/{n}", g.ssa) for n, g in zip(names, grads, strict=True))])


def jvp(module: Module, of: Names = None, wrt: Names = None, *, as_inputs: bool = False) -> Module:
    """A module that takes tangents of ``wrt`` and gives those of some outputs: forward mode.

    It is made by transposing twice: a gradient is linear in its cotangents, so the cotangents of *that* map are the
    tangents. There is no second table of rules.

    Returns:
        With further inputs ``tangent/<name>`` for each of ``wrt``; with the outputs ``of`` and ``tangent/<name>`` for
        each of them.
    """
    work = Work(module)
    targets, names, values = work.ends(of, wrt, as_inputs)
    tangents = [work.add_input(f"tangent/{n}", v) for n, v in zip(names, values, strict=True)]
    shown = [(work.name(t, None), t) for t in targets]
    found = work.tangents(targets, values, tangents)
    return work.finish([*shown, *((f"tangent/{n}", t.ssa) for (n, _), t in zip(shown, found, strict=True))])


def hvp(module: Module, of: str | None = None, wrt: Names = None, *, as_inputs: bool = False) -> Module:
    """A module that gives the product of a scalar's Hessian with a vector, without the Hessian.

    Returns:
        With further inputs ``tangent/<name>`` (the vector) and outputs ``hvp/<name>`` for each of ``wrt``.
    """
    work = Work(module)
    (target, *_), names, values = work.ends(of, wrt, as_inputs)
    vectors = [work.add_input(f"tangent/{n}", v) for n, v in zip(names, values, strict=True)]
    grads = work.gradients(*work.scalar(target), values, names, allow_unused=True)
    # The Hessian is symmetric, so reverse mode over the gradient gives it times a vector as well.
    found = work.gradients([g.ssa for g in grads], vectors, values, names, allow_unused=True)
    return work.finish([(f"hvp/{n}", h.ssa) for n, h in zip(names, found, strict=True)])


def jacobian(module: Module, of: str | None = None, wrt: Names = None, *, as_inputs: bool = False) -> Module:
    """A module that gives the derivatives of every element of a value by every element of others.

    A Scan runs the backward ops for one element after the other.

    Returns:
        With outputs ``jacobian/<name>`` for each of ``wrt``, of the shape of ``of`` followed by that of the value.
    """
    work = Work(module)
    (target, *_), names, values = work.ends(of, wrt, as_inputs)
    found = work.jacobians(target, values)
    return work.finish([(f"jacobian/{n}", j.ssa) for n, j in zip(names, found, strict=True)])


def hessian(module: Module, of: str | None = None, wrt: Names = None, *, as_inputs: bool = False) -> Module:
    """A module that gives all second derivatives of a scalar.

    Returns:
        With outputs ``hessian/<a>/<b>`` for each pair of ``wrt``, of the shape of a followed by that of b.
    """
    work = Work(module)
    (target, *_), names, values = work.ends(of, wrt, as_inputs)
    grads = work.gradients(*work.scalar(target), values, names, allow_unused=True)
    made: list[tuple[str, SSAValue]] = []
    for a, first in zip(names, grads, strict=True):
        rows = work.jacobians(first.ssa, values)
        made += [(f"hessian/{a}/{b}", row.ssa) for b, row in zip(names, rows, strict=True)]
    return work.finish(made)


def stop_gradient(value: Tensor) -> Tensor:
    """The value itself, as a constant for differentiation."""
    return cast(Tensor, value.builder.op("ad.stop_gradient", value))


def vjp_for(*names: str, domain: str = "") -> Callable[[RuleT], RuleT]:
    """Declares the decorated function as the gradient rule of ops, or of model-local functions, by name and domain.

    The rule gets a ``Vjp`` and returns one cotangent per operand; it takes the place of a rule that was there. It must
    be linear in the cotangents.
    """
    return _declare(*names, domain=domain)


def checkpoint(
    module: Module,
    keep: Sequence[str] | None = None,
    *,
    budget: int | None = None,
    sizes: dict[str, int] | None = None,
) -> Module:
    """Of a module with backward ops: computes forward values again where the backward ops need them, to save memory.

    The copies read what is kept through an ``ad.barrier``, so that merging common subexpressions does not undo them.
    What random ops drew is kept, never drawn again.

    Args:
        keep: the names of the forward values that stay alive for the backward ops; inputs and constants always do.
        budget: instead of ``keep``: how many bytes of forward values may be kept; the largest go first.
        sizes: for ``budget``: what symbolic sizes are taken for.
    """
    made = module.clone()
    rematerialize(made, keep, budget, sizes or {})
    sync_signature(made)
    DeadCodeElimination().run(made)
    return made.verify()


class Work:
    """A copy of a module that is being extended."""

    def __init__(self, module: Module) -> None:
        self.module = module.clone()
        # These ops are derivatives of the graph around them, and become ordinary ops before it is differentiated again.
        if any(op.name == GRADIENT for op in ops_in(self.module.op)):
            find_pass("expand-gradient")().apply(self.module.ctx, self.module.op)
        InferShapes().run(self.module)
        last = self.module.block.last_op
        assert isinstance(last, ReturnOp)
        self.end: Operation = last
        self.b = Builder.before(last, self.module.ctx, by=BY)
        self._named: dict[str, SSAValue] = {}
        self._index()

    def _index(self) -> None:
        block = self.module.block
        self._named = {name: r for op in block.ops for r in op.results if (name := name_of(r))}
        self._named.update(zip(self.module.input_names, block.args, strict=True))
        self._named.update(zip(self.module.output_names, self.module.returned, strict=True))

    def value(self, name: str) -> SSAValue:
        """A value of the main graph by its name.

        Raises:
            IrkitError: if there is none.
        """
        found = self._named.get(name)
        if found is None:
            raise IrkitError(
                f"the graph has no value '{name}'", hint=suggestion(name, sorted(self._named)[:40], "values")
            )
        return found

    def name(self, value: SSAValue, asked: str | None) -> str:
        """The name under which a value is given."""
        if asked is not None:
            return asked
        for name, found in zip(self.module.output_names, self.module.returned, strict=True):
            if found is value:
                return name
        return next((name for name, found in self._named.items() if found is value), "value")

    def ends(self, of: Names, wrt: Names, as_inputs: bool) -> tuple[list[SSAValue], list[str], list[SSAValue]]:
        """What is differentiated, and by what: see ``outputs`` and ``sources``. All ops between have rules."""
        targets = self.outputs(of)
        names, values = self.sources(wrt, as_inputs)
        targets, values = make_differentiable(self.b, targets, values)
        self._index()
        return targets, names, values

    def outputs(self, of: Names) -> list[SSAValue]:
        """The values to differentiate.

        Raises:
            IrkitError: if one has no gradient, or if it is not clear which is meant.
        """
        if isinstance(of, str):
            chosen = [of]
        elif of is not None:
            chosen = list(of)
        else:
            chosen = [
                n for n, v in zip(self.module.output_names, self.module.returned, strict=True) if carries_gradient(v)
            ]
        if not chosen:
            raise IrkitError("the graph has no output of a float type, so nothing to differentiate")
        values = [self.value(n) for n in chosen]
        for name, value in zip(chosen, values, strict=True):
            if not carries_gradient(value):
                raise IrkitError(f"'{name}' is {value.type}, which has no gradient", where=where(value))
        return values

    def scalar(self, target: SSAValue) -> tuple[list[SSAValue], list[SSAValue]]:
        """A value of one element, and its cotangent 1.

        One of unknown rank is reshaped to a scalar, which fails when it is run with more elements.

        Raises:
            IrkitError: if it is none.
        """
        if shape_of(target.type) is None:
            target = self.b.Reshape(target, np.zeros(0, np.int64)).ssa
        shape = scalar_dims(target.type)
        single = [o for o in self.module.returned if carries_gradient(o)]
        if shape is None or int(np.prod(shape, dtype=np.int64)) != 1:
            several = f" (the graph has {len(single)} outputs of float types)" if len(single) > 1 else ""
            raise IrkitError(
                f"'{self.name(target, None)}' is {target.type}; only a value of one element has a gradient{several}",
                where=where(target),
                hint="name a scalar with of=, reduce the value to one, or use vjp or jacobian",
            )
        value = self.b.wrap(target)
        assert value.dtype is not None
        return [target], [self.b.constant(np.ones(shape, value.dtype.numpy)).ssa]

    def sources(self, wrt: Names, as_inputs: bool) -> tuple[list[str], list[SSAValue]]:
        """The names and values to differentiate by.

        Raises:
            IrkitError: if one has no gradient.
        """
        if wrt is None:
            pairs = zip(self.module.input_names, self.module.block.args, strict=True)
            names = [n for n, v in pairs if carries_gradient(v)]
            if not names:
                raise IrkitError("the graph has no input of a float type", hint="name initializers or values with wrt=")
        else:
            names = [wrt] if isinstance(wrt, str) else list(wrt)
        for name in names:
            value = self.value(name)
            if as_inputs and isinstance(value, OpResult) and isinstance(value.op, Initializer):
                self._to_input(name, value)
        return names, [self.value(n) for n in names]

    def _to_input(self, name: str, value: OpResult) -> None:
        op = value.op
        assert isinstance(op, Initializer)
        if not isinstance(op.value, TensorAttr):
            raise UnsupportedError(f"'{name}' is sparse, and an input is not", op=op.name, where=where(op))
        arg = self.add_input(name, value, {DEFAULT: op.value}, fresh=False)
        value.replace_all_uses_with(arg)
        erase(op)
        self._index()

    def add_input(
        self, name: str, like: SSAValue, extra: dict[str, Attribute] | None = None, *, fresh: bool = True
    ) -> SSAValue:
        """One more input, of the type of a value."""
        module = self.module
        block, func = module.block, module.func
        entries = [dict(e) for e in arg_entries(func.arg_attrs, len(block.args))]
        for entry, known in zip(entries, module.input_names, strict=True):
            entry.setdefault(NAME, string(known))
        taken = {*module.input_names, *(self._named if fresh else ())}
        name = _unique(name, taken)
        arg = block.insert_arg(like.type, len(block.args))
        arg.name_hint = hint(name)
        entries.append({NAME: string(name), **(extra or {})})
        attrs = arg_attrs(entries)
        if attrs is not None:
            func.properties["arg_attrs"] = attrs
        self._named[name] = arg
        return arg

    def gradients(
        self,
        targets: Sequence[SSAValue],
        cts: Sequence[SSAValue],
        values: Sequence[SSAValue],
        names: Sequence[str],
        allow_unused: bool,
    ) -> list[Tensor]:
        """The cotangents of values.

        Raises:
            IrkitError: for one that is certainly zero, unless that is allowed.
        """
        found = differentiate(self.b, targets, values, cts)
        made: list[Tensor] = []
        for name, value, grad in zip(names, values, found, strict=True):
            if grad is None and not allow_unused:
                reason = "no path of differentiable ops leads from it to what is differentiated"
                if not carries_gradient(value):
                    reason = f"it is {value.type}, and only values of float types have gradients"
                raise IrkitError(
                    f"the gradient with respect to '{name}' is zero: {reason}",
                    where=where(value),
                    hint="leave it out of wrt, or pass allow_unused=True for zeros",
                )
            made.append(zero_value(self.b, self.b.wrap(value)) if grad is None else grad)
        return made

    def tangents(
        self, targets: Sequence[SSAValue], values: Sequence[SSAValue], given: Sequence[SSAValue]
    ) -> list[Tensor]:
        """The tangents of targets from those of values."""
        b = self.b
        # What these are does not matter: the gradient is linear in them, so its derivative by them is the same for all.
        probes = [zero_value(b, b.wrap(t)) for t in targets]
        grads = differentiate(b, targets, values, probes)
        pairs = [(g, t) for g, t in zip(grads, given, strict=True) if g is not None]
        found = differentiate(b, [g for g, _ in pairs], probes, [t for _, t in pairs])
        return [zero_value(b, b.wrap(t)) if f is None else f for f, t in zip(found, targets, strict=True)]

    def jacobians(self, target: SSAValue, values: Sequence[SSAValue]) -> list[Tensor]:
        """Per value the derivatives of each element of the target by each of its own."""
        b = self.b
        y = b.wrap(target)
        assert y.dtype is not None
        count = b.Reshape(b.Size(y), b.constant(np.asarray([1], np.int64)))
        square = b.Concat(count, count, axis=0)
        basis = b.EyeLike(b.ConstantOfShape(square), dtype=y.dtype.code)
        shape = b.Shape(y)
        kept: list[Tensor | None] = []

        with b.nested([_row_type(basis)]) as (inner, (row,)):
            ct = inner.Reshape(row, shape, allowzero=1)
            kept = differentiate(inner, [target], list(values), [ct])
            made = [t for t in kept if t is not None]
            # A graph's output must be a value of its own.
            own = [inner.Identity(t) for t in made]
            sweep(inner.block, None, [t.ssa for t in own])
            inner.block.add_op(Yield.create(operands=[t.ssa for t in own]))
        stacked: list[Tensor] = []
        if made:
            found = b.op("Scan", basis, num_scan_inputs=1, body=Region(inner.block))
            stacked = [found] if isinstance(found, Tensor) else list(found)
        rows = iter(stacked)
        results: list[Tensor] = []
        for value, part in zip(values, kept, strict=True):
            full = b.Concat(shape, b.Shape(b.wrap(value)), axis=0)
            if part is None:
                results.append(b.Expand(b.constant(np.zeros((), y.dtype.numpy)), full))
            else:
                results.append(b.Reshape(next(rows), full, allowzero=1))
        return results

    def finish(self, outputs: Sequence[tuple[str, SSAValue]]) -> Module:
        """The module with these outputs, and without what they do not need."""
        module = self.module
        taken = set[str]()
        entries: list[dict[str, Attribute]] = []
        for name, _ in outputs:
            name = _unique(name, taken)
            taken.add(name)
            entries.append({NAME: string(name)})
        self.end.operands = [value for _, value in outputs]
        attrs = arg_attrs(entries)
        if attrs is None:
            module.func.properties.pop("res_attrs", None)
        else:
            module.func.properties["res_attrs"] = attrs
        opsets = module.opsets
        if opsets.get("", MIN_OPSET) < MIN_OPSET:
            module.opsets = {**opsets, "": MIN_OPSET}
        sync_signature(module)
        DeadCodeElimination().run(module)
        return module.verify()


def _row_type(basis: Tensor) -> Attribute:
    """The type of a row of a square matrix."""
    shape = shape_of(basis.type)
    return tensor(basis.dtype, [None if shape is None else shape[1]])


def _unique(name: str, taken: set[str]) -> str:
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
