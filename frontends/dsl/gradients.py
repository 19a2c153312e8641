"""Derivatives of expressions and of functions, over the one differentiation of the graph.

A gradient is one node. It is expanded when a module is made, where all that it depends on stands; so gradients may be
taken of gradients, within functions and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from irkit.dialects.onnx.structural import Yield
from irkit.dialects.state.ops import After
from irkit.errors import IrkitError
from irkit.frontends.dsl import build, control, tree
from irkit.frontends.dsl.errors import failure, site_here
from irkit.frontends.dsl.functions.create import eye, ones_like, zeros_like
from irkit.frontends.dsl.functions.shape import elements, ints
from irkit.frontends.dsl.nodes import GradientNode, ReadNode, cone
from irkit.frontends.dsl.state import Variable
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.ir.builder import Builder

if TYPE_CHECKING:
    from irkit.frontends.dsl.lowering import Frame, Lowering, Place

__all__ = ["grad", "gradients", "hessian", "jacobian", "jvp", "stop_gradient", "tangents", "value_and_grad", "vjp"]


# On expressions


def gradients(ys: Any, xs: Any, cotangents: Any = None, *, allow_unused: bool = False) -> Any:
    """The gradient of a value with respect to others.

    Args:
        ys: a symbol of one element; with ``cotangents`` a symbol of any shape, or a list of them.
        xs: symbols and variables, in lists and dicts if you like. For a variable: with respect to what ``ys`` reads
            of it.
        cotangents: those of ``ys``, of their shapes; by default 1.
        allow_unused: whether to give zeros for what ``ys`` does not depend on, instead of an error.

    Returns:
        Symbols in the structure of ``xs``.

    Raises:
        IrkitError: if a value has no gradient, naming the line.
    """
    targets = [build.convert(y) for y in (ys if isinstance(ys, list | tuple) else [ys])]
    leaves, structure = tree.flatten(xs)
    sources = [leaf if isinstance(leaf, Variable) else build.convert(leaf) for leaf in leaves]
    if cotangents is None:
        targets, cts = _scalar(targets)
    else:
        given = cotangents if isinstance(cotangents, list | tuple) else [cotangents]
        cts = [build.convert(c, t.dtype) for c, t in zip(given, targets, strict=True)]
    for value in (*targets, *sources):
        if value.dtype is not None and not value.dtype.is_float:
            raise failure(IrkitError, f"{value!r} has no gradient: only values of float dtypes have", site=site_here())
    if not allow_unused:
        _check_used(targets, sources)
    node = GradientNode(targets, sources, cts, allow_unused)
    return tree.rebuild(structure, [Symbol(node, i) for i in range(len(sources))])


def _scalar(targets: list[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
    if len(targets) != 1:
        raise failure(IrkitError, "only one value has a gradient", hint="add them up, or pass cotangents")
    (target,) = targets
    count = elements(target)
    if count is None and target.shape is None:
        # Fails when it is run with more than one element.
        target = build.make("Reshape", target, ints())
    elif count != 1:
        raise failure(
            IrkitError,
            f"{target!r} has more than one element, and only one has a gradient",
            related=[("it was made at", target.node.site)],
            hint="reduce it: dsl.mean(loss), or use dsl.vjp or dsl.jacobian",
        )
    return [target], [ones_like(target)]


def _check_used(targets: Sequence[Symbol], sources: Sequence[Symbol | Variable]) -> None:
    nodes = cone([t.node for t in targets])
    reached = set(nodes)
    read = {n.variable for n in nodes if isinstance(n, ReadNode)}
    for x in sources:
        if (x not in read) if isinstance(x, Variable) else (x.node not in reached):
            raise failure(
                IrkitError,
                f"{targets[0]!r} does not depend on {x!r}, so its gradient is zero",
                related=[("the value was made at", targets[0].node.site)],
                hint="leave it out, or pass allow_unused=True for zeros",
            )


def lower_gradient(lowering: Lowering, node: GradientNode, frame: Frame) -> list[SSAValue]:
    """Builds the backward ops at the end of the block in which the node stands."""
    from irkit.passes.autodiff.registry import zero_value
    from irkit.passes.autodiff.transform import differentiate

    ys = [lowering.value(y) for y in node.ys]
    cts = [lowering.value(c) for c in node.cotangents]
    groups = [_read_values(frame.place, x) if isinstance(x, Variable) else [lowering.value(x)] for x in node.xs]
    flat = [value for group in groups for value in group]
    with lowering.at(frame, node) as b, _Followed(lowering, frame), _without_order(b):
        b.location = None
        found = differentiate(b, ys, flat, cts)
    made: list[SSAValue] = []
    given = iter(found)
    b = frame.place.builder
    for x, group in zip(node.xs, groups, strict=True):
        parts = [part for part in (next(given) for _ in group) if part is not None]
        if not parts and not node.allow_unused:
            raise failure(
                IrkitError,
                f"the gradient with respect to {x!r} is zero: no path of differentiable ops leads to what is "
                "differentiated",
                site=node.site,
                hint="leave it out, or pass allow_unused=True for zeros",
            )
        if parts:
            made.append(reduce(lambda p, q: b.op("Add", p, q), parts).ssa)
        elif group:
            made.append(zero_value(b, b.wrap(group[0])).ssa)
        else:
            assert isinstance(x, Variable)
            value, _ = lowering.read_at(frame.place, x, frame.control, node)
            made.append(zero_value(b, b.wrap(value)).ssa)
    return made


def _read_values(place: Place | None, variable: Variable) -> list[SSAValue]:
    """All values read of a variable that are visible at a place."""
    found: list[SSAValue] = []
    while place is not None:
        found += place.values.get(variable, [])
        place = place.parent
    return found


class _Followed:
    """The values of all open frames, followed while differentiation rewrites ops: operands of an op meanwhile."""

    def __init__(self, lowering: Lowering, frame: Frame) -> None:
        self.tables: list[tuple[Any, Any, int]] = []
        values: list[SSAValue] = []
        for open_frame in lowering.frames.values():
            place: Place | None = open_frame.place
            while place is not None:
                for table in (place.calls, place.reads, place.values):
                    self._add(table, values)
                place = place.parent
            self._add(open_frame.values, values)
        self.op = Yield.create(operands=values)
        frame.place.builder.insert(self.op)

    def _add(self, table: dict[Any, Any], values: list[SSAValue]) -> None:
        for key, found in table.items():
            if not isinstance(found, dict):
                self.tables.append((table, key, len(found)))
                values += found

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        operands = list(self.op.operands)
        self.op.detach()
        self.op.erase()
        at = 0
        for table, key, count in self.tables:
            given = operands[at : at + count]
            table[key] = tuple(given) if isinstance(table[key], tuple) else given
            at += count


@contextmanager
def _without_order(b: Builder) -> Generator[None]:
    """Differentiation knows no tokens: where a value waits for some, it is the value itself meanwhile."""
    found = [op for op in b.block.ops if isinstance(op, After)]
    for op in found:
        identity = build.op_class("Identity").create(
            operands=op.operands[:1], result_types=[op.results[0].type], location=op.location
        )
        b.block.insert_op_before(identity, op)
        op.results[0].replace_all_uses_with(identity.results[0])
    plain = [op.prev_op for op in found]
    for op in found:
        op.detach()
    try:
        yield
    finally:
        for op, identity in zip(found, plain, strict=True):
            assert identity is not None
            b.block.insert_op_before(op, identity)
            op.operands = [identity.operands[0], *op.operands[1:]]
            identity.results[0].replace_all_uses_with(op.results[0])
            identity.detach()
            identity.erase()


def stop_gradient(x: Any) -> Symbol:
    """The value itself, constant for differentiation."""
    return build.make("ad.stop_gradient", build.convert(x))


def tangents(ys: Any, xs: Any, given: Any) -> Any:
    """The tangents of ``ys`` from those of ``xs``: forward mode.

    A gradient is linear in its cotangent, so its own transpose is the tangent; what the cotangent is does not matter.
    """
    y_leaves, y_structure = tree.flatten(ys)
    targets = [build.convert(y) for y in y_leaves]
    x_leaves, _ = tree.flatten(xs)
    t_leaves, _ = tree.flatten(given)
    probes = [build.make("Identity", zeros_like(y)) for y in targets]
    backward = gradients(targets, list(x_leaves), probes)
    found = [build.convert(t, build.convert(x).dtype) for t, x in zip(t_leaves, x_leaves, strict=True)]
    return tree.rebuild(y_structure, gradients([*(backward or ())], probes, found, allow_unused=True))


def _jacobian(y: Symbol, x: Any) -> Symbol:
    """The derivatives of every element of a value by every element of another, of the shape of y, then x."""
    count = elements(y)
    shape_y = _sizes(y)
    if count is None:
        n = build.make("Reshape", build.make("Size", y), ints(1))
        basis = build.make(
            "EyeLike", build.make("Expand", build.convert(0, y.dtype), build.make("Concat", n, n, axis=0))
        )
    else:
        basis = eye(count, dtype=y.dtype)

    def row(unit: Symbol) -> Symbol:
        return gradients(y, x, build.make("Reshape", unit, shape_y, allowzero=1), allow_unused=True)

    rows = control.map(row, basis)
    full = build.make("Concat", shape_y, _sizes(x), axis=0)
    return build.make("Reshape", rows, full, allowzero=1)


def _sizes(x: Any) -> Symbol:
    """The shape of a value: a constant where it is known."""
    shape: Any = x.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return build.make("Shape", build.convert(x))
    return build.convert(ints(*shape))


# On functions


def _split(args: Sequence[Any], argnums: int | Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The arguments with fresh symbols in the places to differentiate by, and those."""
    places = [argnums] if isinstance(argnums, int) else list(argnums)
    full = list(args)
    chosen: list[Any] = []
    for place in places:
        # What the function sees of the same value in other ways counts as constant.
        fresh = tree.mapped(lambda leaf: build.make("Identity", build.convert(leaf)), full[place])
        full[place] = fresh
        chosen.append(fresh)
    return full, chosen


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the value of another, and its gradient with respect to some arguments.

    Args:
        function: gives a symbol of one element; with ``has_aux`` that, and anything else.
        argnums: which arguments; the gradient of one is in its structure, of several a tuple.
    """

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        full, chosen = _split(args, argnums)
        result = function(*full, **kwargs)
        value = result[0] if has_aux else result
        found = gradients(value, chosen)
        return result, found[0] if isinstance(argnums, int) else tuple(found)

    differentiated.__name__ = f"value_and_grad_{getattr(function, '__name__', 'function')}"
    return differentiated


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of another; see ``value_and_grad``."""
    both = value_and_grad(function, argnums, has_aux=has_aux)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        result, found = both(*args, **kwargs)
        return (found, result[1]) if has_aux else found

    differentiated.__name__ = f"grad_{getattr(function, '__name__', 'function')}"
    return differentiated


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """What a function gives, and the function that takes cotangents of that and gives those of the arguments."""
    full, chosen = _split(primals, range(len(primals)))
    result = function(*full)
    leaves, _ = tree.flatten(result)

    def backward(cotangents: Any) -> tuple[Any, ...]:
        given, _ = tree.flatten(cotangents)
        return tuple(gradients(list(leaves), chosen, given, allow_unused=True))

    return result, backward


def jvp(function: Callable[..., Any], primals: Sequence[Any], given: Sequence[Any]) -> tuple[Any, Any]:
    """What a function gives, and its tangent for tangents of the arguments."""
    full, chosen = _split(primals, range(len(primals)))
    result = function(*full)
    return result, tangents(result, chosen, list(given))


def jacobian(function: Any, argnum: Any = 0) -> Any:
    """The function that gives all derivatives of another's elements, of the shape of its value, then the argument.

    Of an expression, ``jacobian(y, x)``: those of y by a symbol or variable x, itself an expression.
    """
    if isinstance(function, Operand):
        return _jacobian(build.convert(function), argnum)

    def differentiated(*args: Any, **kwargs: Any) -> Symbol:
        full, (x,) = _split(args, argnum)
        return _jacobian(build.convert(function(*full, **kwargs)), x)

    return differentiated


def hessian(function: Any, argnum: Any = 0) -> Any:
    """The function that gives all second derivatives of another, which gives one element.

    Of an expression, ``hessian(y, x)``: those of y by a symbol or variable x.
    """
    if isinstance(function, Operand):
        return _jacobian(gradients(function, argnum), argnum)
    return jacobian(grad(function, argnum), argnum)
