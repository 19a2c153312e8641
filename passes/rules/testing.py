"""Tests a rule: graphs that its pattern matches are made from the pattern itself, and both sides are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import ml_dtypes
import numpy as np
from xdsl.ir import Operation
from xdsl.traits import Commutative

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.values import is_constant
from irkit.errors import InferenceError, IrkitError, LoweringError, VerifyError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import DType, dtype
from irkit.ir.module import Module
from irkit.ir.types import dtype_of
from irkit.passes.rewrite import body_blocks
from irkit.passes.rules.driver import apply_rules
from irkit.passes.rules.pattern import FLOATS, Attribute, Attributes, Rest, Variable
from irkit.passes.rules.rule import Rewrite, Rule
from irkit.verify import Report, compare
from irkit.verify.compare import Reference
from irkit.verify.generate import random_array, random_feeds
from irkit.verify.values import Tolerance

__all__ = ["RuleReport", "check_rule"]

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "string")
Array = np.ndarray[Any, Any]
OPSET = 26
"""At which graphs are made, unless a rule needs a later one."""
RUNS = 4
"""Sets of inputs per graph: small sizes, sizes of 1, special values, sizes of 0."""


@dataclass
class RuleReport:
    """What a test of a rule did.

    Attributes:
        graphs: how many graphs were made.
        fired: on how many of them the rule did.
        compared: how many pairs of runs were compared on these.
        notes: what could not be tested, and why.
    """

    graphs: int = 0
    fired: int = 0
    compared: int = 0
    notes: list[str] = field(default_factory=list[str])


def check_rule(
    rule: Rewrite,
    *,
    samples: Sequence[Mapping[str, Any]] | None = None,
    dtypes: Iterable[str] | None = None,
    graphs: Iterable[Module] = (),
    backends: Sequence[str] = ("numpy",),
    rtol: float | None = None,
    seed: int = 0,
) -> RuleReport:
    """Asserts that a rule keeps what graphs compute, on graphs made from its pattern.

    For each sample and dtype the pattern builds a graph; the rule is applied, and both sides run on several sizes of
    the symbolic dims (0 and 1 among them), on NaN, infinities and signed zeros, and on large and tiny magnitudes. What
    must be equal is what the rule's precision says: every bit, the sign of zeros included, for ``"exact"``, from
    subnormal numbers to the largest; up to rounding for the others: for ``"rounding"`` magnitudes of about the square
    roots of the largest and the smallest normal number, for ``"fast-math"`` ordinary numbers alone. Further graphs have
    inner values that are used outside, operands of commutative ops swapped, the whole in a branch of an If, constants
    that a caller may override (there the rule must not fire), and the opset just below the rule's (neither). Where a
    rule keeps gradients, those are compared, too.

    Args:
        samples: what the variables are, by name; by default the rule's own. A value or constant: a list of sizes and
            symbols, an array (then it is a constant), or None if it is optional; a scalar: a number; ``*xs``: a list of
            such; an attribute: its value; ``**attrs``: a dict. A variable left out gets a shape of two axes. Without
            any samples, shapes of several kinds are tried: of two axes, scalar, empty, broadcast against each other.
        dtypes: of values whose type the pattern leaves open, all of one; by default those of the pattern, or all that
            it can be built with.
        graphs: modules on which to try the rule besides; the only ones for a rule without a pattern or samples.
        backends: on which to run.
        rtol: as ``irkit.verify.compare`` takes it; for a rule that is not exact.
        seed: of constants and inputs.

    Returns:
        What was done.

    Raises:
        AssertionError: saying on which graph the rule fails and how, or that it never fired.
    """
    report = RuleReport()
    checker = _Checker(rule, report, tuple(backends), rtol, seed)
    for index, module in enumerate(graphs):
        checker.check(module, f"graph {index}")
    if isinstance(rule, Rule):
        given = rule.samples if samples is None else samples
        for index, sample in enumerate(given or (() if report.graphs else _samples(rule))):
            for element in dtypes or _dtypes(rule):
                checker.sample(rule, sample, dtype(element), f"sample {index} ({element})", thorough=index == 0)
    reasons = "".join(f"\n  {note}" for note in report.notes)
    assert report.fired, f"rule '{rule.name}' fired on none of {report.graphs} graphs{reasons}"
    assert report.compared, f"rule '{rule.name}': nothing could be compared: {'; '.join(report.notes)}"
    return report


def _dtypes(rule: Rule) -> list[str]:
    for variable in rule.traced.variables.values():
        if isinstance(variable, Variable) and variable.dtypes is not None:
            return [d.name for d in variable.dtypes]
    return list(DTYPES)


def _samples(rule: Rule) -> Iterator[dict[str, Any]]:
    """Shapes of several kinds, for patterns that set no conditions on them."""
    open_ones = [n for n, v in rule.traced.variables.items() if isinstance(v, Attribute)]
    if open_ones:
        raise TypeError(f"rule '{rule.name}' leaves the attribute '{open_ones[0]}' open: give samples")
    names = [n for n, v in rule.traced.variables.items() if isinstance(v, Variable) and v.kind != "scalar"]
    for shape in (["N", 3], [], [0, 3], ["N", "M", 2]):
        yield dict.fromkeys(names, shape)
    if len(names) > 1:
        for name in names:
            for shape in ([3], [2, 1, 3], [1, 1]):
                yield {other: shape if other == name else ["N", 3] for other in names}


class _Checker:
    def __init__(
        self, rule: Rewrite, report: RuleReport, backends: tuple[str, ...], rtol: float | None, seed: int
    ) -> None:
        self.rule = rule
        self.report = report
        self.backends = backends
        self.rtol = rtol
        self.seed = seed

    def sample(self, rule: Rule, sample: Mapping[str, Any], element: DType, what: str, *, thorough: bool) -> None:
        """Checks the graphs made for one sample; a dtype that the pattern cannot be built with is passed over."""
        try:
            plain = self.build(rule, sample, element)
        except (InferenceError, VerifyError) as error:
            note = f"the pattern cannot be built with {element}: {error}"
            if note not in self.report.notes:
                self.report.notes.append(note)
            return
        fired = self.check(plain, what)
        if not thorough or not fired:
            return
        self.check(_swapped(plain), f"{what}, operands swapped", must_fire=True)
        self.check(self.build(rule, sample, element, inner_outputs=True), f"{what}, inner values used outside")
        self.check(self.build(rule, sample, element, in_branch=True), f"{what}, in a branch", must_fire=True)
        if any(isinstance(v, Variable) and v.kind != "value" for v in rule.traced.variables.values()):
            module = self.build(rule, sample, element, overridable=True)
            assert not apply_rules(module, rule), f"{self.head(what)}: fires on constants that a caller may override"
        self.opset(rule, plain, what)
        if rule.keeps_gradients and element.name in ("float32", "float64"):
            self.gradients(plain, what)

    def head(self, what: str) -> str:
        return f"rule '{self.rule.name}' on {what}"

    def build(
        self,
        rule: Rule,
        sample: Mapping[str, Any],
        element: DType,
        *,
        inner_outputs: bool = False,
        in_branch: bool = False,
        overridable: bool = False,
    ) -> Module:
        """The graph that the pattern makes of a sample."""
        rng = np.random.default_rng(self.seed)
        b = Builder("sample", opsets={"": max(OPSET, rule.opset)})
        maker = _Maker(b, rng, element, overridable)
        positional, named = maker.arguments(rule, sample)
        if in_branch:
            condition = b.input("condition", "bool", [])
            others, _ = _Maker(b, rng, element, overridable, "_else").arguments(rule, sample)

            def branch(arguments: Sequence[Any]) -> Callable[[Builder], Any]:
                # Operators on a value make ops where its builder is: that must be the branch.
                return lambda inner: rule.pattern(
                    inner, *(inner.wrap(v.ssa) if isinstance(v, Tensor) else v for v in arguments), **named
                )

            outputs: Any = b.If(condition, then_branch=branch(positional), else_branch=branch(others))
        else:
            outputs = rule.pattern(b, *positional, **named)
        listed: list[Tensor] = list(cast("list[Tensor]", outputs)) if isinstance(outputs, list | tuple) else [outputs]
        for index, output in enumerate(listed):
            b.output(output, f"y{index}")
        if inner_outputs:
            given = {output.ssa for output in listed}
            inner = [r for op in b.block.ops if isinstance(op, OnnxOp) for r in op.results]
            for index, value in enumerate(v for v in inner if not is_constant(v) and v not in given):
                b.output(value, f"inner{index}")
        return b.module()

    def check(self, module: Module, what: str, *, must_fire: bool = False) -> bool:
        """Applies the rule to a copy of a module and compares. Returns whether it fired."""
        self.report.graphs += 1
        after = module.clone()
        fired = apply_rules(after, self.rule)
        assert fired or not must_fire, f"{self.head(what)}: does not fire"
        if not fired:
            return False
        self.report.fired += 1
        after.verify()
        self.compare(module, after, what)
        return True

    def compare(self, before: Module, after: Module, what: str) -> None:
        """Runs both and asserts that they agree."""
        exact = self.rule.precision == "exact"
        found: Report = compare(
            before,
            after,
            backends=self.backends,
            samples=RUNS,
            seed=self.seed,
            rtol=0.0 if exact else self.rtol,
            special=self.rule.precision != "fast-math",
            signed_zeros=exact,
        )
        self.agree(found, before, after, what)
        if self.rule.precision == "fast-math":
            return
        feeds = list(_of_magnitudes(before, self.seed, exact))
        if feeds:
            # Where an intermediate result of the old side underflows, the new one may be nearer to what is right.
            right = Reference(before, backends=self.backends, feeds=feeds, seed=self.seed, wide=not exact)
            found = right.check(after, Tolerance(0.0 if exact else self.rtol, 0.0, signed_zeros=exact))
            self.agree(found, before, after, f"{what}, inputs of large and tiny magnitudes")

    def agree(self, found: Report, before: Module, after: Module, what: str) -> None:
        """Asserts that a comparison found no difference, and counts it."""
        assert found.equal, f"{self.head(what)}: {found.text()}\nbefore:\n{before}\nafter:\n{after}"
        self.report.compared += found.compared
        self.report.notes += [f"{what}: {reason}" for reason in found.unchecked]

    def opset(self, rule: Rule, plain: Module, what: str) -> None:
        """The rule's opset can express what it makes, and below it the rule does not run."""
        for opset, may_fire in ((rule.opset, True), (rule.opset - 1, False)):
            module = plain.clone()
            module.opsets = {"": opset}
            try:
                module.clone().to_onnx()
            except (LoweringError, IrkitError):
                continue
            fired = apply_rules(module, rule)
            assert may_fire or not fired, f"{self.head(what)}: fires at opset {opset}"
            module.to_onnx()

    def gradients(self, module: Module, what: str) -> None:
        """Compares the derivatives of the sum of all outputs, weighted by themselves."""
        import irkit as ik

        wanted = [name for name, t in module.inputs.items() if (kind := dtype_of(t)) is not None and kind.is_float]
        after = module.clone()
        apply_rules(after, self.rule)
        if not wanted:
            return
        sides: list[Module] = []
        try:
            sides = [ik.vjp(m, wrt=wanted) for m in (module, after)]
        except IrkitError as error:
            self.report.notes.append(f"{what}: gradients not compared: {error.message}")
            return
        # Whole numbers are where functions have kinks.
        feeds = [random_feeds(sides[0], self.seed + i, {"N": 4, "M": 3}) for i in range(3)]
        rounded = [{name: _rounded(v) for name, v in fed.items()} for fed in feeds]
        tolerance = self.rtol or (1e-3 if self.rule.precision != "exact" else None)
        found = compare(*sides, backends=self.backends, feeds=[*feeds, *rounded], rtol=tolerance)
        assert found.equal, f"{self.head(what)}: gradients: {found.text()}"


class _Maker:
    """Makes the arguments of a pattern's function."""

    def __init__(
        self, b: Builder, rng: np.random.Generator, element: DType, overridable: bool, suffix: str = ""
    ) -> None:
        self.b = b
        self.suffix = suffix
        self.rng = rng
        self.element = element
        self.overridable = overridable

    def arguments(self, rule: Rule, sample: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        unknown = [name for name in sample if name not in rule.traced.variables]
        if unknown:
            raise TypeError(f"rule '{rule.name}' has no variable '{unknown[0]}'")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, variable in rule.traced.variables.items():
            match variable:
                case Variable():
                    positional.append(self.value(name, variable, sample.get(name, _DEFAULT)))
                case Rest():
                    shapes: Sequence[Any] = sample.get(name, [["N", 3]] * 2)
                    positional += [self.value(f"{name}{i}", Variable(), shape) for i, shape in enumerate(shapes)]
                case Attributes():
                    named[name] = sample.get(name, {})
                case _:
                    named[name] = sample.get(name)
        return positional, named

    def value(self, name: str, variable: Variable, given: Any) -> Tensor | None:
        if given is None or (given is _DEFAULT and variable.optional):
            return None
        name += self.suffix
        kind = self.element if variable.dtypes is None or self.element in variable.dtypes else variable.dtypes[0]
        if isinstance(given, np.ndarray):
            array = cast(Array, given)
            return self.constant(name, array.astype(kind.numpy) if array.dtype.kind == "f" else array)
        if variable.kind == "scalar":
            return self.constant(name, np.asarray(1.5 if given is _DEFAULT else given).astype(kind.numpy))
        shape: Sequence[Any] = ["N", 3] if given is _DEFAULT else given
        if variable.kind == "constant":
            return self.constant(name, random_array(kind, [d if isinstance(d, int) else 2 for d in shape], self.rng))
        return self.b.input(name, kind, shape)

    def constant(self, name: str, array: Array) -> Tensor:
        if self.overridable:
            return self.b.input(name, array.dtype, list(array.shape))
        return self.b.initializer(array, name)


_DEFAULT = object()


def _magnitudes(kind: np.dtype[Any], exact: bool) -> list[float]:
    """Finite magnitudes of a float type: all of its range, or those whose squares are within it."""
    limits = cast(Any, ml_dtypes).finfo(kind)
    top, least, last = (float(v) for v in (limits.max, limits.smallest_normal, limits.smallest_subnormal))
    if not exact:
        return [top**0.5 / 4, 4 * least**0.5]
    found = [top, top / 4, 1e30, top**0.5, 100.0, 0.01, least**0.5, 2 * least, 16 * last]
    return [m for m in found if m <= top]


def _of_magnitudes(module: Module, seed: int, exact: bool) -> Iterator[dict[str, Any]]:
    """Inputs whose floats are all of one magnitude, of either sign; one set for each."""
    floats = {
        name: kind.numpy
        for name, t in module.inputs.items()
        if name not in module.defaults and (kind := dtype_of(t)) is not None and kind.name in FLOATS
    }
    if not floats:
        return
    widest = max(len(_magnitudes(kind, exact)) for kind in floats.values())
    for index in range(widest):
        fed = random_feeds(module, seed + index, {"N": 4, "M": 3})
        rng = np.random.default_rng(seed + index)
        for name, kind in floats.items():
            sizes = _magnitudes(kind, exact)
            size = sizes[index % len(sizes)]
            shape = np.shape(fed[name])
            fed[name] = np.asarray(size * rng.uniform(0.5, 1, shape) * rng.choice((-1.0, 1.0), shape), kind)
        yield fed


def _rounded(value: Any) -> Any:
    return cast(Any, np.round(value)) if getattr(value, "dtype", np.dtype(bool)).kind == "f" else value


def _swapped(module: Module) -> Module:
    """A copy in which the operands of every commutative op of two operands are swapped."""
    made = module.clone()
    for block in body_blocks(made):
        op: Operation | None = block.first_op
        while op is not None:
            if isinstance(op, OnnxOp) and len(op.operands) == 2 and op.has_trait(Commutative):
                op.operands = list(reversed(op.operands))
            op = op.next_op
    return made
