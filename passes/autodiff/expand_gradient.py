"""The pass ``expand-gradient``: the ops of ``ai.onnx.preview.training.Gradient`` become ordinary ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.errors import IrkitError, UnsupportedError
from irkit.ir.attributes import texts_of
from irkit.ir.builder import Builder, Tensor
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of
from irkit.passes import GRADIENT
from irkit.passes.autodiff.api import MIN_OPSET
from irkit.passes.autodiff.registry import zero_value
from irkit.passes.autodiff.transform import differentiate, live_values
from irkit.passes.base import Pass
from irkit.passes.rewrite import Rewriter, enclosing_function, ops_in, sync_signature

__all__ = ["ExpandGradient"]


@dataclass(frozen=True)
class ExpandGradient(Pass):
    """Differentiates where a ``Gradient`` op says so: its attributes name values of the graph around it.

    It must run before passes that remove or rename values, since these names are no uses: ``optimize`` runs it first
    wherever there is such an op, and ``irkit.compile`` before it makes a module ready. Where the op is given other
    values than those that it names, what lies between is computed again from these. What it makes needs opset 21.
    """

    name: ClassVar[str] = "onnx-expand-gradient"

    def run(self, module: Module) -> bool:
        rewriter = Rewriter(module, "expand-gradient")
        found = [op for op in ops_in(module.op) if isinstance(op, OnnxOp) and op.name == GRADIENT]
        if found:
            module.opsets = {**module.opsets, "": max(module.opsets.get("", MIN_OPSET), MIN_OPSET)}
        for op in found:
            self._expand(module, op, rewriter)
        sync_signature(module)
        return bool(found)

    def _expand(self, module: Module, op: OnnxOp, rewriter: Rewriter) -> None:
        if enclosing_function(op.parent) is not None:
            raise UnsupportedError(
                "it stands in a model-local function, whose values have no types to differentiate by",
                op=op.name,
                where=where(op),
                hint="put what the function computes into the main graph",
            )
        named = _visible(module, op)
        xs, zs = list(op.attr("xs")), list(op.attr("zs") or ())
        if len(op.operands) != len(xs) + len(zs):
            raise IrkitError(
                f"it names {len(xs) + len(zs)} variables, but has {len(op.operands)} operands",
                op=op.name,
                where=where(op),
            )
        y = self._value(op, named, str(op.attr("y")))
        variables = [self._value(op, named, n) for n in (*xs, *zs)]
        b = Builder.before(op, module.ctx, by="gradient")
        given = list(op.operands)
        fixed = variables[len(xs) :]
        assert op.parent is not None
        live = live_values(op.parent.ops, variables[: len(xs)])
        if given != variables or any(v in live for v in fixed):
            # Variables of their own, so that none depends on another.
            own = [b.Identity(v).ssa for v in given]
            y = _recompute(b, op.parent, y, dict(zip(variables, own, strict=True)))
            variables = own
        target = b.wrap(y)
        one = b.CastLike(b.constant(np.float32(1)), target)
        sources = variables[: len(xs)]
        grads = differentiate(b, [y], sources, [b.Expand(one, b.Shape(target))])
        made = [zero_value(b, b.wrap(v)) if g is None else g for g, v in zip(grads, sources, strict=True)]
        results: list[Tensor] = made[: len(op.results)]
        rewriter.replace(op, [r.ssa for r in results])

    @staticmethod
    def _value(op: Operation, named: dict[str, SSAValue], name: str) -> SSAValue:
        found = named.get(name)
        if found is None:
            raise IrkitError(
                f"there is no value '{name}' where it stands",
                op=op.name,
                where=where(op),
                hint="expand gradients before passes that remove or merge values",
            )
        return found


def _visible(module: Module, op: Operation) -> dict[str, SSAValue]:
    """The named values that an op sees, inner ones winning."""
    blocks: list[tuple[Block, Operation]] = []
    current: Operation | None = op
    while current is not None and not isinstance(current, FuncOp):
        if current.parent is not None:
            blocks.append((current.parent, current))
        current = current.parent_op()
    found: dict[str, SSAValue] = {}
    for block, until in reversed(blocks):
        if block is module.block:
            found.update(zip(module.input_names, block.args, strict=True))
            outputs = dict(zip(module.output_names, module.returned, strict=True))
        else:
            assert block.last_op is not None
            ins = block.last_op.attributes.get("onnx.ins")
            found.update(zip(texts_of(ins) if ins is not None else (), block.args, strict=False))
            outputs = {}
        seen: set[SSAValue] = set()
        for inner in block.ops:
            if inner is until:
                break
            seen.update(inner.results)
            found.update((name, r) for r in inner.results if (name := name_of(r)))
        found.update((name, v) for name, v in outputs.items() if v in seen)
    return found


def _recompute(b: Builder, block: Block, y: SSAValue, values: dict[SSAValue, SSAValue]) -> SSAValue:
    """The value of ``y`` computed again with other values for some of those that it depends on."""
    mapping = dict(values)
    live = live_values(block.ops, list(values))
    end = b.anchor
    for op in list(block.ops):
        if op is end:
            break
        if any(r in live for r in op.results) and not all(r in mapping for r in op.results):
            copy = op.clone(dict(mapping))
            copy.location = op.location
            copy.attributes.pop("onnx.outs", None)
            b.insert(copy)
            mapping.update((r, c) for r, c in zip(op.results, copy.results, strict=True) if r not in mapping)
    return mapping.get(y, y)
