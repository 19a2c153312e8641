"""The computational graph of first principles: tables of parents, node functions and partial derivatives.

A graph is told by three tables: ``Par[i]`` the parents of node i, ``Fun(i, x)`` its output from its parents' outputs x,
and ``dcFun(i, x, p)`` the derivative of its output by that of parent p. Forward, ``list[i] = Fun(i, x)`` for i in
order; backward, with the loss's gradient 1, ``grad[p] += grad[i] * dcFun(i, x, p)`` for i in reverse order and each
parent p.

``from_tables`` makes a module of such tables; ``tape`` shows any module as such tables, with the numbers of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from irkit.backends.numpy import compile as compile_numpy
from irkit.dialects.onnx.values import is_constant
from irkit.dialects.state.order import read_by
from irkit.errors import IrkitError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.constants import constant
from irkit.ir.module import DEFAULT, Module, arg_attrs, arg_entries
from irkit.ir.names import name_of
from irkit.ir.op import is_absent
from irkit.passes.autodiff.api import Work
from irkit.passes.autodiff.registry import zeros_like
from irkit.passes.autodiff.rematerialize import made_by_gradient
from irkit.passes.autodiff.transform import BY, carries_gradient, differentiate, make_differentiable

__all__ = ["Node", "NodeSpec", "Tape", "from_tables", "tape"]

Array = np.ndarray[Any, Any]


# Tables to a module ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSpec:
    """A node of a graph that is told by tables.

    Attributes:
        parents: ``Par[i]``, in the order in which the functions take them.
        fun: ``Fun``: takes a builder, the parents' outputs, and the node's parameters by name; gives the output.
        dc_fun: ``dcFun``: takes a builder, a position p among the parents, then what ``fun`` takes; gives the partial
            derivative, which is multiplied element by element with the node's gradient.
        backward: instead of ``dc_fun``, for nodes whose derivative is no elementwise factor (a whole layer or network):
            takes a builder, the node's gradient, then what ``fun`` takes; gives one gradient per parent, and for nodes
            with parameters a dict of theirs after these. Where both are left out, ``fun`` is differentiated.
        parameters: values that live inside the node, by name.
        update: takes a builder, a parameter and its gradient; gives the parameter's next value.
    """

    parents: Sequence[int]
    fun: Callable[..., Tensor]
    dc_fun: Callable[..., Tensor] | None = None
    backward: Callable[..., Sequence[Any]] | None = None
    parameters: Mapping[str, Array] = field(default_factory=dict[str, Array])
    update: Callable[[Builder, Tensor, Tensor], Tensor] | None = None


def from_tables(
    inputs: Mapping[int, tuple[object, Sequence[int | str | None]]],
    nodes: Mapping[int, NodeSpec],
    loss: int | None = None,
    *,
    name: str = "tables",
) -> Module:
    """A module that computes a graph told by tables, forward and backward.

    Args:
        inputs: the dtype and shape of each node without parents.
        nodes: the others.
        loss: the node whose gradient is 1; by default the last.

    Returns:
        With inputs ``list/<i>`` and ``<i>/<parameter>`` (whose values are defaults); with outputs ``list/<i>``,
        ``grad/<i>`` for each node on the way to the loss, ``<i>/<parameter>/grad``, and where the node has an update
        ``<i>/<parameter>/next``.

    Raises:
        IrkitError: if a parent does not come before its child, or a number is used twice.
    """
    order = [*sorted(inputs), *sorted(nodes)]
    if len(set(order)) != len(order):
        raise IrkitError("a node is an input and has parents at the same time")
    seen = set(inputs)
    for i in sorted(nodes):
        late = [p for p in nodes[i].parents if p not in seen]
        if late:
            raise IrkitError(f"node {i} has the parent {late[0]}, which does not come before it")
        seen.add(i)
    last = order[-1] if loss is None else loss
    if last not in seen:
        raise IrkitError(f"there is no node {last} to be the loss")
    return _FromTables(inputs, nodes, last, name).module()


class _FromTables:
    def __init__(
        self,
        inputs: Mapping[int, tuple[object, Sequence[int | str | None]]],
        nodes: Mapping[int, NodeSpec],
        loss: int,
        name: str,
    ) -> None:
        self.nodes, self.loss = nodes, loss
        self.b = Builder(name)
        self.list: dict[int, Tensor] = {i: self.b.input(f"list/{i}", *inputs[i]) for i in sorted(inputs)}
        self.parameters: dict[int, dict[str, Tensor]] = {}
        self.defaults: dict[str, Array] = {}
        for i in sorted(nodes):
            self.parameters[i] = {}
            for key, value in nodes[i].parameters.items():
                self.parameters[i][key] = self.b.input(f"{i}/{key}", value.dtype, value.shape)
                self.defaults[f"{i}/{key}"] = value
        self.grad: dict[int, Tensor] = {}
        self.parameter_grads: dict[tuple[int, str], Tensor] = {}

    def module(self) -> Module:
        b = self.b
        for i in sorted(self.nodes):
            self.list[i] = self.nodes[i].fun(b, *self.parents(i), **self.parameters[i])
            b.output(self.list[i], f"list/{i}")
        self.backward()
        for i, grad in sorted(self.grad.items()):
            b.output(grad, f"grad/{i}")
        for (i, key), grad in self.parameter_grads.items():
            b.output(grad, f"{i}/{key}/grad")
            update = self.nodes[i].update
            if update is not None:
                b.output(update(b, self.parameters[i][key], grad), f"{i}/{key}/next")
        made = b.module()
        set_defaults(made, self.defaults)
        return made.verify()

    def parents(self, i: int) -> list[Tensor]:
        return [self.list[p] for p in self.nodes[i].parents]

    def backward(self) -> None:
        b, end = self.b, self.list[self.loss]
        one = b.CastLike(b.constant(np.float32(1)), end)
        self.grad[self.loss] = b.Expand(one, b.Shape(end))
        for i in sorted((i for i in self.nodes if i <= self.loss), reverse=True):
            if i in self.grad:
                for p, part in zip(self.nodes[i].parents, self.parts(i), strict=True):
                    if part is not None:
                        self.grad[p] = part if p not in self.grad else b.Add(self.grad[p], part)

    def parts(self, i: int) -> list[Tensor | None]:
        """What a node contributes to the gradients of its parents; sets those of its parameters."""
        b, node, grad = self.b, self.nodes[i], self.grad[i]
        xs, own = self.parents(i), self.parameters[i]
        n = len(xs)
        if node.backward is not None:
            found = list(node.backward(b, grad, *xs, **own))
            if own:
                self.parameter_grads.update({(i, key): g for key, g in found[n].items()})
            return found[:n]
        if node.dc_fun is not None and not own:
            return [b.Mul(grad, node.dc_fun(b, p, *xs)) for p in range(n)]
        found = differentiate(b, [self.list[i]], [*xs, *own.values()], [grad])
        for (key, value), part in zip(own.items(), found[n:], strict=True):
            self.parameter_grads[i, key] = zeros_like(b, value) if part is None else part
        if node.dc_fun is not None:
            return [b.Mul(grad, node.dc_fun(b, p, *xs, **own)) for p in range(n)]
        return found[:n]


def set_defaults(module: Module, defaults: Mapping[str, Array]) -> None:
    """Gives inputs the values that they have where they are not fed."""
    func = module.func
    entries = [dict(e) for e in arg_entries(func.arg_attrs, len(module.block.args))]
    for entry, name in zip(entries, module.input_names, strict=True):
        if name in defaults:
            entry[DEFAULT] = constant(defaults[name])
    attrs = arg_attrs(entries)
    if attrs is not None:
        func.properties["arg_attrs"] = attrs


# A module to tables ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """One value of a run.

    Attributes:
        index: its place in the order of the run, inputs and constants first, from 1 on.
        name: in the graph, or a name made up from the op.
        op: the op that gave it; ``"input"`` or ``"constant"``.
        parents: ``Par[i]``: the indices of the values that the op took.
        value: ``list[i]``.
        grad: ``grad[i]``; None where the loss does not depend on it in a differentiable way.
        contributions: what each child added to the gradient: child's index -> array. Their sum is ``grad``.
    """

    index: int
    name: str
    op: str
    parents: tuple[int, ...]
    value: Any
    grad: Array | None
    contributions: Mapping[int, Array]


@dataclass(frozen=True)
class Tape:
    """What ran, in order, with each value's gradient and each edge's contribution."""

    nodes: tuple[Node, ...]

    @property
    def Par(self) -> dict[int, tuple[int, ...]]:
        """Each node's parents."""
        return {n.index: n.parents for n in self.nodes}

    @property
    def list(self) -> dict[int, Any]:
        """Each node's output."""
        return {n.index: n.value for n in self.nodes}

    @property
    def grad(self) -> dict[int, Array | None]:
        """Each node's gradient."""
        return {n.index: n.grad for n in self.nodes}

    def __getitem__(self, key: int | str) -> Node:
        """A node by index or name."""
        for node in self.nodes:
            if key in (node.index, node.name):
                return node
        raise KeyError(key)

    def __str__(self) -> str:
        rows = [("i", "name", "op", "Par", "list", "grad", "contributions")]
        for n in self.nodes:
            parts = ", ".join(f"{child}: {_short(part)}" for child, part in n.contributions.items())
            parents = ", ".join(map(str, n.parents))
            rows.append((str(n.index), n.name, n.op, parents, _short(n.value), _short(n.grad), parts))
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    array = cast(Array, value)
    if array.size == 1 and array.dtype.kind in "fiu":
        return f"{array.item():.6g}"
    return f"{array.dtype}{list(array.shape)}"


@dataclass(frozen=True)
class _Row:
    value: SSAValue
    name: str
    op: str
    parents: tuple[SSAValue, ...]


def tape(module: Module, feeds: Mapping[str, Any], of: str | None = None) -> Tape:
    """Runs a module forward and backward on NumPy and tells everything that happened in the main graph.

    Args:
        feeds: the inputs by name.
        of: the output (or named value) that is the loss; by default the only output. One of several elements counts as
            their sum.

    Raises:
        IrkitError: for a name that is not there, or a loss that has no gradient.
    """
    work = Work(module)
    b = work.b
    b.by = BY
    # Ops without a rule are rewritten first: what runs is what stands there then.
    (target,), _ = make_differentiable(b, work.outputs(of)[:1], _values(work.module))
    inputs = list(zip(work.module.input_names, work.module.block.args, strict=True))
    end = b.wrap(target)
    one = b.Expand(b.CastLike(b.constant(np.float32(1)), end), b.Shape(end))
    parts: list[tuple[SSAValue, Operation, Tensor]] = []
    wanted = _values(work.module)
    grads = differentiate(b, [target], wanted, [one], on_part=lambda v, op, t: parts.append((v, op, t)))
    forward = [op for op in work.module.block.ops if not made_by_gradient(op) and op is not work.end]
    rows = [_Row(v, n, "input", ()) for n, v in inputs]
    rows += [_Row(r, name_of(r), "constant", ()) for op in forward for r in op.results if is_constant(r)]
    counted: dict[str, int] = {}
    for op in forward:
        for result in op.results:
            if not is_constant(result) and not is_absent(result):
                rows.append(
                    _Row(result, name_of(result) or _made_up(op, counted), op.name.partition(".")[2], _taken(op))
                )
    found: dict[SSAValue, Tensor] = {v: g for v, g in zip(wanted, grads, strict=True) if g is not None}
    shown: list[SSAValue] = [row.value for row in rows]
    outputs = [(f"v{k}", v) for k, v in enumerate(shown)]
    outputs += [(f"g{k}", found[v].ssa) for k, v in enumerate(shown) if v in found]
    outputs += [(f"p{k}", t.ssa) for k, (_, _, t) in enumerate(parts)]
    ran = compile_numpy(work.finish(outputs)).run(dict(feeds))
    index: dict[SSAValue, int] = {v: k + 1 for k, v in enumerate(shown)}
    contributions: dict[SSAValue, dict[int, Array]] = {}
    for k, (value, op, _) in enumerate(parts):
        child = next((index[r] for r in op.results if r in index), 0)
        per = contributions.setdefault(value, {})
        per[child] = per[child] + ran[f"p{k}"] if child in per else ran[f"p{k}"]
    return Tape(
        tuple(
            Node(
                k + 1,
                row.name or f"value{k + 1}",
                row.op,
                tuple(index[p] for p in row.parents if p in index),
                ran[f"v{k}"],
                ran.get(f"g{k}"),
                contributions.get(row.value, {}),
            )
            for k, row in enumerate(rows)
        )
    )


def _values(module: Module) -> list[SSAValue]:
    """The values of the main graph that have gradients."""
    results = [r for op in module.block.ops for r in op.results if not is_absent(r)]
    return [v for v in (*module.block.args, *results) if carries_gradient(v)]


def _taken(op: Operation) -> tuple[SSAValue, ...]:
    return tuple(v for v in dict.fromkeys(read_by(op)) if not is_absent(v))


def _made_up(op: Operation, counted: dict[str, int]) -> str:
    stem = op.name.rpartition(".")[2].lower()
    counted[stem] = counted.get(stem, 0) + 1
    return f"{stem}{counted[stem]}"
