"""From current ops to those of an older opset, for export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from xdsl.context import Context
from xdsl.ir import Block, Operation, Region
from xdsl.utils.exceptions import VerifyException

from irkit.dialects.onnx.classes import CLASSES, CURRENT, ONNX_OPSET, OnnxOp, op_class, versions
from irkit.dialects.onnx.structural import Function, Yield, opsets_attr, opsets_of
from irkit.errors import InferenceError, LoweringError
from irkit.ir.builder import Builder
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.opsets import bodies
from irkit.opsets.registry import LOWERINGS, Results, is_compatible
from irkit.opsets.rewrite import HINT_KEPT, Built, recast, renamed_back, renamed_up, replace, values_of
from irkit.opsets.upgrading import decomposition

__all__ = ["can_lower", "lower_module"]

LISTED = 20

INTERNAL = frozenset({"irkit.ad"})
"""Domains whose ops are never written to a file: they are decomposed, whatever the opset."""


def lower_module(module: Module, opsets: Mapping[str, int]) -> None:
    """Makes every op the one that its domain has at the opset asked for; in place, so on a clone.

    Ops younger than that are written by their decompositions or function bodies. Functions keep the opsets that they
    import where the module keeps its own.

    Args:
        opsets: the target by domain; a domain that is not in it keeps the opset that the module was loaded with.

    Raises:
        LoweringError: naming every op that cannot be written there, why, and the lowest opset that would do. The module
            is then of no use any more.
    """
    source = module.opsets
    targets = {**source, **opsets}
    failed: list[tuple[OnnxOp, LoweringError]] = []
    for top in list(module.op.ops):
        if isinstance(top, Function):
            own = opsets_of(top.properties["opsets"])
            chosen = {d: v if targets.get(d, v) == source.get(d) else targets.get(d, v) for d, v in own.items()}
            top.properties["opsets"] = opsets_attr(chosen)
        else:
            chosen = targets
        failed += _Lowerer(chosen, module.ctx).all(top)
    if failed:
        raise _report(failed, targets, module.ctx)
    added = {op.domain for op in module.walk() if isinstance(op, OnnxOp)} - targets.keys()
    module.opsets = {**targets, **{domain: _default_opset(domain) for domain in sorted(added)}}


def can_lower(op: OnnxOp, opsets: Mapping[str, int], ctx: Context) -> bool:
    """Whether an op can be written at these opsets; tried on a copy.

    Args:
        opsets: by domain; one that is not given is the newest.
    """
    return op_class(op.domain, op.op_type, opsets.get(op.domain)) is type(op) or _Lowerer(opsets, ctx).can(op)


def _default_opset(domain: str) -> int:
    return max(since for (d, _), made in CLASSES.items() if d == domain for since in made)


def _report(failed: list[tuple[OnnxOp, LoweringError]], targets: Mapping[str, int], ctx: Context) -> LoweringError:
    lines: list[str] = []
    needed: dict[str, int] = {}
    for op, error in failed:
        lowest = _lowest(op, targets, ctx)
        domain = op.domain or "ai.onnx"
        needs = f"needs opset {lowest} of {domain}" if lowest else f"no opset of {domain} can express it"
        if lowest:
            needed[domain] = max(needed.get(domain, 0), lowest)
        place = f" at {error.where}" if error.where else ""
        lines.append(f"{error.op}{place}: {error.message}; {needs}")
    domains = sorted({op.domain for op, _ in failed})
    at = ", ".join(f"opset {targets[d]} of {d or 'ai.onnx'}" for d in domains if d in targets)
    count = "one op" if len(failed) == 1 else f"{len(failed)} ops"
    shown = lines[:LISTED] + ([f"... and {len(lines) - LISTED} more"] if len(lines) > LISTED else [])
    message = f"{count} cannot be written at {at or 'the opsets asked for'}:\n  " + "\n  ".join(shown)
    hint = " and ".join(f"opset {v} of {d}" for d, v in sorted(needed.items()))
    first, error = failed[0]
    single = len(failed) == 1
    return LoweringError(
        message,
        op=first.name if single else "",
        where=error.where if single else "",
        hint=f"save at {hint} or above" if hint else "",
    )


def _lowest(op: OnnxOp, targets: Mapping[str, int], ctx: Context) -> int | None:
    """The lowest opset of the op's domain at which it can be written."""
    start = targets.get(op.domain, 0)
    candidates: Iterable[int]
    candidates = (
        range(start + 1, ONNX_OPSET + 1)
        if op.domain == ""
        else [v for v in versions(op.domain, op.op_type) if v > start]
    )
    for version in candidates:
        if _Lowerer({**targets, op.domain: version}, ctx).can(op):
            return version
    return None


class _Lowerer:
    """Lowers ops to one set of opsets."""

    def __init__(self, opsets: Mapping[str, int], ctx: Context) -> None:
        self.opsets = opsets
        self.ctx = ctx
        self._targets: dict[tuple[str, str], type[OnnxOp] | None] = {}

    def all(self, root: Operation) -> list[tuple[OnnxOp, LoweringError]]:
        """Lowers the ops nested in this one; returns those that cannot be."""
        failed: list[tuple[OnnxOp, LoweringError]] = []
        ops = [op for op in root.walk() if isinstance(op, OnnxOp)]
        # Constants last: many of them go, since their values become attributes.
        for op in sorted(ops, key=lambda op: op.op_type == "Constant"):
            if op.parent is not None:
                try:
                    self.op(op)
                except LoweringError as error:
                    failed.append((op, error))
        return failed

    def can(self, op: OnnxOp) -> bool:
        """Whether an op could be lowered; tried on a copy."""
        scratch = Block()
        copy = op.clone()
        copy.location = op.location
        scratch.add_op(copy)
        used = [new for old, new in zip(op.results, copy.results, strict=True) if any(True for _ in old.uses)]
        scratch.add_op(Yield.create(operands=used))
        region = Region(scratch)
        try:
            self.op(copy)
        except LoweringError:
            return False
        finally:
            for made in reversed(list(scratch.ops)):
                made.detach()
                made.erase(safe_erase=False)
            region.detach_block(scratch)
        return True

    def target(self, op: OnnxOp) -> type[OnnxOp] | None:
        """The class that the op is to have; None where the opset does not know it."""
        key = (op.domain, op.op_type)
        if key not in self._targets:
            opset = self.opsets.get(op.domain)
            self._targets[key] = None if op.domain in INTERNAL else op_class(*key, opset)
        return self._targets[key]

    def op(self, op: OnnxOp) -> None:
        """Lowers one op, and what it becomes.

        Raises:
            LoweringError: if it cannot be written at the target.
        """
        cls = self.target(op)
        if cls is type(op):
            if HINT_KEPT in op.attributes:
                del op.attributes[HINT_KEPT]
            return
        if not op.current:
            recast(op, CURRENT[op.domain, op.op_type])
        if cls is not None and (cls.domain, cls.op_type, cls.since) not in LOWERINGS and recast(op, cls):
            return
        first: LoweringError | None = None
        for way in self._ways(op, cls):
            try:
                self._apply(op, way)
                return
            except LoweringError as error:
                first = first or error
        if first is None:
            born = versions(op.domain, op.op_type)[0]
            reason = f"it came with opset {born} of {op.domain or 'ai.onnx'} and has no function body"
            first = LoweringError(reason, op=op.name, where=where(op))
        raise first

    def _apply(self, op: OnnxOp, way: Callable[[Builder, OnnxOp], Results | None]) -> None:
        """Puts what a way makes in the op's place; leaves everything as it was where that cannot be lowered."""
        built = Built(op)
        moved = set(map(id, op.regions))
        try:
            results = way(Builder.before(op, self.ctx), op)
            if results is None:
                raise LoweringError("it has no decomposition for its types", op=op.name, where=where(op))
            made = list(built.ops())
            # Its operands follow the values while the ops that give them are lowered in turn.
            holder = Yield.create(operands=values_of(results))
            block = op.parent
            assert block is not None
            block.insert_op_before(holder, op)
            for outer in made:
                for new in _own_ops(outer, moved):
                    if new.parent is not None:
                        self._nested(op, new)
        except InferenceError as error:
            built.erase()
            raise LoweringError(error.message, op=op.name, where=where(op)) from None
        except LoweringError:
            built.erase()
            raise
        values = list(holder.operands)
        holder.detach()
        holder.erase()
        op.attributes.pop(HINT_KEPT, None)
        replace(op, values, drop_constants=True)

    def _nested(self, op: OnnxOp, new: OnnxOp) -> None:
        try:
            self.op(new)
            if new.parent is not None:
                new.verify_()
        except VerifyException as error:
            raise LoweringError(f"the older form does not allow it: {error}", op=op.name, where=where(op)) from None
        except LoweringError as error:
            reason = f"it takes {new.name} to write it: {error.message}"
            raise LoweringError(reason, op=op.name, where=where(op)) from None

    def _ways(self, op: OnnxOp, cls: type[OnnxOp] | None) -> Iterator[Callable[[Builder, OnnxOp], Results | None]]:
        """The ways to write an op at the target, best first."""
        if cls is not None and not cls.spec.deprecated:
            rule = LOWERINGS.get((cls.domain, cls.op_type, cls.since))
            if rule is not None and op.current:
                yield lambda b, o: rule(b, o, cls)
            elif is_compatible(cls, type(op)):
                yield lambda b, o: renamed_back(b, o, cls)
            elif is_compatible(type(op), cls):
                yield lambda b, o: renamed_up(b, o, cls)
        elif cls is not None and is_compatible(cls, type(op)):
            yield lambda b, o: renamed_back(b, o, cls)
        if not op.current or op.domain in INTERNAL:
            found = decomposition(op)
            if found is not None:
                yield found
        if bodies.has_function_body(type(op)):
            yield bodies.instantiate


def _own_ops(made: Operation, moved: set[int]) -> list[OnnxOp]:
    """An op and those in its regions, but for the regions that came from the op it replaced."""
    found: list[OnnxOp] = [made] if isinstance(made, OnnxOp) else []
    for region in made.regions:
        if id(region) not in moved:
            found += [op for op in region.walk() if isinstance(op, OnnxOp)]
    return found
