"""Applies rules until none fires: each op is looked at with the rules that begin at its kind, and nothing else."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from xdsl.ir import Operation, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import is_constant
from irkit.errors import IrkitError, PassError
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.passes.base import Pass
from irkit.passes.rewrite import Rewriter, has_reference, ops_in, sync_signature, target_opset
from irkit.passes.rules.rule import Rewrite

__all__ = ["RulePass", "apply_rules", "drive", "index_of", "rule_pass"]


class Applicable(Protocol):
    """What the driver needs of a rule."""

    @property
    def name(self) -> str: ...

    @property
    def apply(self) -> Callable[[OnnxOp, Rewriter], bool]: ...


def drive(module: Module, rules: Mapping[str, Sequence[Applicable]], by: str) -> Counter[str]:
    """Applies rules to a module until none fires. Returns how often each did.

    Args:
        rules: by the name of the op at which they begin, in the order in which they are tried.
        by: the pass; what is made is located at ``<by>:<rule>``.

    Raises:
        PassError: if it does not come to an end, naming the rule that fired most; or if a rule raises, naming it.
    """
    fired: Counter[str] = Counter()
    rewriter = Rewriter(module, by)
    waiting = deque(op for op in ops_in(module.op) if op.name in rules)
    # A rule makes the graph smaller or simpler, so a rewrite for every op a few times over is plenty.
    limit = 10 * len(waiting) + 1000
    queued = set(waiting)
    # Most ops have few kinds of operands, and most rules need others.
    choosy = {name for name, each in rules.items() if any(getattr(rule, "needs", NOTHING) for rule in each)}
    fitting: dict[tuple[str, frozenset[str]], Sequence[Applicable]] = {}
    rewriter.in_step = True
    while waiting and not rewriter.exhausted:
        op = waiting.popleft()
        queued.discard(op)
        if op.parent is None or not isinstance(op, OnnxOp) or has_reference(op):
            continue
        key = op.name, frozenset(map(_maker, op.operands)) if op.name in choosy else NOTHING
        chosen = fitting.get(key)
        if chosen is None:
            chosen = [rule for rule in rules[op.name] if getattr(rule, "needs", NOTHING) <= key[1]]
            fitting[key] = chosen
        name = _first_that_fires(op, chosen, rewriter, by) if chosen else None
        if name is None:
            continue
        fired[name] += 1
        rewriter.take(op)
        if fired.total() > limit:
            culprit, count = fired.most_common(1)[0]
            raise PassError(
                f"{by} does not come to an end: rule '{culprit}' fired {count} times", op=op.name, where=where(op)
            )
        for other in (op, *rewriter.touched):
            if other.parent is not None and other.name in rules and other not in queued:
                queued.add(other)
                waiting.append(other)
        rewriter.touched.clear()
    sync_signature(module)
    return fired


NOTHING: frozenset[str] = frozenset()


def _maker(value: SSAValue) -> str:
    """What gives a value: the name of an op, ``"constant"``, or ``""``."""
    owner = value.owner
    if not isinstance(owner, Operation):
        return ""
    return "constant" if is_constant(value) else owner.name


def _first_that_fires(op: OnnxOp, rules: Sequence[Applicable], rewriter: Rewriter, by: str) -> str | None:
    for rule in rules:
        rewriter.by = f"{by}:{rule.name}"
        try:
            if rule.apply(op, rewriter):
                return rule.name
        except IrkitError:
            raise
        except Exception as error:
            message = f"rule '{rule.name}' failed: {type(error).__name__}: {error}"
            raise PassError(message, op=op.name, where=where(op)) from error
    return None


def index_of(rules: Iterable[Rewrite]) -> dict[str, list[Rewrite]]:
    """Rules by the names of the ops at which they begin."""
    found: dict[str, list[Rewrite]] = {}
    for rule in rules:
        for name in rule.roots:
            found.setdefault(name, []).append(rule)
    return found


@dataclass(frozen=True)
class RulePass(Pass):
    """A pass of rules. Subclasses say in ``all_rules`` which; ``rule_pass`` makes one.

    Args:
        fast_math: also rules that hold for finite values only, or up to the order of operations.
        exact: only rules that keep every bit.
        gradients: the result may still be differentiated: leave out rules that change derivatives.

    Attributes:
        fired: how often each rule did, after a run.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"types"})

    fast_math: bool = False
    exact: bool = False
    gradients: bool = True

    @cached_property
    def fired(self) -> Counter[str]:
        return Counter()

    @classmethod
    def all_rules(cls) -> Sequence[Rewrite]:
        """The rules, in the order in which they are tried at one op."""
        return ()

    def notes(self) -> list[str]:
        return [f"{name}: {count}" for name, count in self.fired.most_common()]

    def chosen(self, module: Module) -> list[Rewrite]:
        """The rules that the options and the target opset allow."""
        wanted = ["exact", *([] if self.exact else ["rounding"]), *(["fast-math"] if self.fast_math else [])]
        opset = target_opset(module)
        return [
            rule
            for rule in self.all_rules()
            if rule.precision in wanted and rule.opset <= opset and (rule.keeps_gradients or not self.gradients)
        ]

    def run(self, module: Module) -> bool:
        self.fired.clear()
        self.fired.update(drive(module, index_of(self.chosen(module)), self.name.removeprefix("onnx-")))
        return bool(self.fired)


def rule_pass(name: str, *rules: Rewrite) -> type[RulePass]:
    """A pass of these rules, for pipelines: ``ik.optimize(m, [rule_pass("mine", rule)(), "dce"])``."""
    attributes: dict[str, Any] = {
        "__doc__": f"Applies the rules {', '.join(rule.name for rule in rules)}.",
        "__module__": __name__,
        "name": name,
        "all_rules": classmethod(lambda cls: rules),
    }
    return dataclass(frozen=True)(type("Rules", (RulePass,), attributes))


def apply_rules(module: Module, *rules: Rewrite) -> Counter[str]:
    """Applies rules to a module, in place, whatever they say of precision and gradients. Returns how often each fired.

    A rule whose opset is above the module's own does not run.
    """
    opset = target_opset(module)
    return drive(module, index_of(rule for rule in rules if rule.opset <= opset), "rules")
