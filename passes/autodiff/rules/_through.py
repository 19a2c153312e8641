"""Rules that go through what an op means: its forward code in simpler ops is built again and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.ir import SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.errors import UnsupportedError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.ir.op import is_absent
from irkit.passes.autodiff.registry import Vjp

__all__ = ["through", "through_body"]

Forward = Callable[..., Any]


def through(g: Vjp, forward: Forward, operands: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The cotangents of an op's operands, from forward code that computes its results.

    Only what the gradient needs of that code is kept; values that it takes from outside, and not as an operand, count
    as constant.

    Args:
        forward: given a builder and the operands (None for an absent one), builds the results: one Tensor, or several;
            ``g`` builds there meanwhile.
        operands: as many of the op's as the code takes.

    Returns:
        One for each operand.
    """
    from irkit.passes.autodiff.transform import differentiate, sweep

    b = g.b
    seeds = [(i, ct) for i, ct in enumerate(g.cts) if ct is not None]
    given = [x for x in operands if x is not None]
    outer = [x.ssa for x in given] + [ct.ssa for _, ct in seeds]
    with b.nested([value.type for value in outer]) as (inner, args):
        each = iter(args)
        places = [None if x is None else next(each) for x in operands]
        g.b = inner
        try:
            found = forward(inner, *places)
        finally:
            g.b = b
        results: list[Tensor] = [found] if isinstance(found, Tensor) else list(found)
        wanted = [i for i, place in enumerate(places) if place is not None and g.needs(i)]
        sources = [cast(Tensor, places[i]) for i in wanted]
        grads = differentiate(inner, [results[i] for i, _ in seeds], sources, list(each))
        sweep(inner.block, None, [t.ssa for t in grads if t is not None])
        parts: list[Tensor | None] = [None] * len(places)
        mapping: dict[SSAValue, SSAValue] = dict(zip((a.ssa for a in args), outer, strict=True))
        for i, grad in zip(wanted, grads, strict=True):
            parts[i] = None if grad is None else b.wrap(mapping.get(grad.ssa, grad.ssa))
        for arg, value in zip(args, outer, strict=True):
            arg.ssa.replace_all_uses_with(value)
        for op in list(inner.block.ops):
            op.detach()
            if len(op.results) == 1 and is_absent(op.results[0]):
                op.results[0].replace_all_uses_with(b.absent())
                op.erase()
            else:
                b.insert(op)
    return parts


def through_body(g: Vjp) -> list[Tensor | None]:
    """The cotangents of an op's operands, through the function body that its schema gives it.

    Raises:
        UnsupportedError: if it has none for these operands.
    """
    from irkit.opsets.bodies import instantiate

    op = cast(OnnxOp, g.op)

    def forward(b: Builder, *operands: Tensor | None) -> list[Tensor]:
        mapping = {old: b.absent() if new is None else new.ssa for old, new in zip(op.operands, operands, strict=True)}
        copy = op.clone(dict(mapping))
        found = instantiate(b, copy)
        copy.erase()
        if found is None:
            raise UnsupportedError(
                "its function body, by which it would be differentiated, does not fit", op=op.name, where=where(op)
            )
        return found

    return through(g, forward, [g.x(i) for i in range(g.n_operands)])
