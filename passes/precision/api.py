"""The pass ``to-half`` and ``irkit.to_half``: calibration, decision, conversion, and the check for overflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from irkit.errors import IrkitError, PassError
from irkit.ir.constants import TensorAttr
from irkit.ir.dtypes import dtype
from irkit.ir.fuel import take
from irkit.ir.location import where
from irkit.ir.module import Module
from irkit.ir.names import name_of, node_name
from irkit.ir.types import dtype_of
from irkit.passes.base import Pass
from irkit.passes.precision.analysis import QUIET, Analysis, Wishes, constant_behind
from irkit.passes.precision.calls import Copies
from irkit.passes.precision.convert import Converter
from irkit.passes.precision.fit import Range, half_of
from irkit.passes.precision.observe import observe, values_in
from irkit.passes.precision.report import Kept, Report
from irkit.verify import Reference

__all__ = ["ToHalf", "to_half"]

BY = "to-half"
Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class ToHalf(Pass):
    """Computes in float16 or bfloat16 what may be, in all graphs, loops and functions that are called.

    An op keeps its precision where its schema does not take the half type, where it is known for trouble
    (``passes/precision/policy.py`` says why), where a constant of it does not fit, or where runs show values that do
    not. Casts stand where the two meet: one a value at most. Inputs and outputs keep their types.

    The module runs on ``samples`` sets of generated inputs, before and after; ``irkit.to_half`` takes your own. What is
    infinite or NaN only afterwards is an error.

    Args:
        dtype: float16 or bfloat16.
        keep_io: whether inputs and outputs keep their types.
        float64: whether float64 is converted, too.
        block: op types that keep their precision, separated by commas.
        block_nodes: the same by the names of nodes or their results.
        allow: op types that may lose it, though they are blocked by default.
        samples: how many sets of inputs to run; 0 for none.
        seed: of these inputs.
        margin: by how much what the runs show must stay below the largest number.
        max_loss: the error that a constant may take, as a part of its largest magnitude.
    """

    name: ClassVar[str] = "onnx-to-half"
    requires: ClassVar[frozenset[str]] = frozenset({"types"})
    keeps: ClassVar[frozenset[str]] = frozenset({"types", "signature"})

    dtype: str = "float16"
    keep_io: bool = True
    float64: bool = False
    block: str = ""
    block_nodes: str = ""
    allow: str = ""
    samples: int = 2
    seed: int = 0
    margin: float = 2.0
    max_loss: float = 0.01

    def __post_init__(self) -> None:
        # What holds of an instance depends on its options.
        object.__setattr__(self, "error", ERRORS.get(self.dtype, 0.0))
        if not self.keep_io:
            object.__setattr__(self, "keeps", frozenset({"types"}))

    @cached_property
    def reports(self) -> list[Report]:
        """The report of the last run."""
        return []

    def notes(self) -> list[str]:
        return self.reports[-1].notes() if self.reports else []

    def run(self, module: Module) -> bool:
        self.reports[:] = [_convert(module, self, None)]
        return bool(self.reports[-1].converted)


ERRORS = {"float16": 0.02, "bfloat16": 0.15}
"""How much of an output's scale a network may lose, by the half type: some 20 roundings."""


def to_half(
    module: Module,
    dtype: str = "float16",
    *,
    calibration: Feeds | Sequence[Feeds] | None = None,
    block: Iterable[str] = (),
    block_nodes: Iterable[str] = (),
    allow: Iterable[str] = (),
    keep_io: bool = True,
    float64: bool = False,
    samples: int = 2,
    seed: int = 0,
    margin: float = 2.0,
    max_loss: float = 0.01,
    target_opset: int | None = None,
) -> tuple[Module, Report]:
    """A copy of a module that computes in half precision where that is safe, and what became of each op.

    Args:
        dtype: float16 or bfloat16.
        calibration: sets of inputs as the model will see them. They run in the module's own precision, and what comes
            near the half type's range, or vanishes in it, keeps its type; without them, generated inputs do that.
        block: op types that keep their precision.
        block_nodes: the same by the names of nodes or their results.
        allow: op types that may lose it, though they are blocked by default.
        keep_io: whether inputs and outputs keep their types.
        float64: whether float64 is converted, too.
        samples: how many sets of inputs to generate where none are given; 0: no runs, and so no check.
        seed: of these inputs.
        margin: by how much what the runs show must stay below the largest number.
        max_loss: the error that a constant may take, as a part of its largest magnitude.
        target_opset: the opset of ai.onnx at which the result is to be saved; by default the module's own. Many ops
            take bfloat16 from opset 22 on only.

    Raises:
        PassError: if something overflows although the module's own precision holds it, naming the op.
        FeedError: if the calibration does not fit the inputs.
    """
    step = ToHalf(
        dtype,
        keep_io,
        float64,
        ",".join(block),
        ",".join(block_nodes),
        ",".join(allow),
        samples,
        seed,
        margin,
        max_loss,
    )
    from irkit.passes.pipeline import optimize

    feeds = [calibration] if isinstance(calibration, Mapping) else calibration
    made = optimize(module, "infer-shapes", target_opset=target_opset)
    report = _convert(made, step, None if feeds is None else list(feeds))
    return made.verify(), report


def _convert(module: Module, step: ToHalf, given: list[Feeds] | None) -> Report:
    try:
        half = half_of(step.dtype, step.margin, step.max_loss)
    except ValueError as error:
        raise PassError(str(error)) from None
    sources = frozenset(dtype(name) for name in ("float32", "float64")[: 1 + step.float64])
    wishes = Wishes(
        sources, _split(step.block), _split(step.block_nodes), _split(step.allow), step.keep_io, given is not None
    )
    _check_names(module, wishes)
    report = Report(half.dtype.name, bytes_before=_constant_bytes(module))
    copies = Copies(module, half.dtype.name)
    watched = _watched(module, copies, sources)
    feeds, before = _runs(module, step, given, watched, report)
    ranges = {value: _joined([run[i] for run in before]) for i, value in enumerate(watched)} if before else {}
    analysis = Analysis(module, half, wishes, ranges, copies.functions).run()
    converted = analysis.converted()
    refused: dict[Operation, str] = {op: "bisection stops here" for op in converted if not take(BY, op)}
    if refused:
        analysis = Analysis(module, half, wishes, ranges, copies.functions, refused).run()
        converted = analysis.converted()
    report.kept = [_kept(op, reason) for op, reason in analysis.kept.items() if reason != QUIET]
    report.converted = len(converted)
    changed: set[Operation] = set(converted)
    if converted:
        places = {value: place for place, value in enumerate(watched)}
        converter = Converter(analysis, BY)
        converter.run(converted)
        # A function may only give a constant.
        changed |= converter.versions
        report.casts, report.constants = converter.casts, converter.constants
        _check(module, step, watched, places, feeds, before, report)
    copies.settle(changed)
    report.bytes_after = _constant_bytes(module)
    return report


def _split(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _check_names(module: Module, wishes: Wishes) -> None:
    """Refuses names of ops and nodes that do not exist: a typing error would leave an op unprotected."""
    from irkit.dialects.onnx import CURRENT
    from irkit.ir.names import out_names
    from irkit.passes.registry import suggestion

    ops = list(module.walk())
    types = {op_type for _, op_type in CURRENT} | {getattr(op, "op_type", "") for op in ops}
    for name in sorted((wishes.block | wishes.allow) - types):
        raise PassError(f"there is no op '{name}'", hint=suggestion(name, sorted(types), "ops"))
    nodes = {node_name(op) for op in ops} | {name for op in ops for name in out_names(op)}
    for name in sorted(wishes.block_nodes - nodes):
        raise PassError(f"there is no node '{name}'", hint=suggestion(name, sorted(nodes - {""})[:50], "nodes"))


def _constant_bytes(module: Module) -> int:
    attrs = (attr for op in module.walk() for attr in op.properties.values())
    return sum(attr.data.nbytes for attr in attrs if isinstance(attr, TensorAttr))


def _kept(op: Operation, reason: str) -> Kept:
    return Kept(op.name, node_name(op) or (name_of(op.results[0]) if op.results else ""), where(op), reason)


# Runs


def _watched(module: Module, copies: Copies, sources: frozenset[Any]) -> list[SSAValue]:
    """The float values that runs are to show: all but constants and what functions compute that no call reaches."""
    roots: list[Operation] = list(dict.fromkeys(cast("Any", copies.functions.values())))
    roots.append(module.func)
    return [
        value
        for root in roots
        for value in values_in(root)
        if dtype_of(value.type) in sources and constant_behind(value) is None
    ]


def _runs(
    module: Module, step: ToHalf, given: list[Feeds] | None, watched: list[SSAValue], report: Report
) -> tuple[list[Feeds], list[list[Range]]]:
    """The sets of inputs, and what the values become for each."""
    try:
        if given is not None:
            feeds = given
        elif step.samples:
            reference = Reference(module, samples=step.samples, seed=step.seed, special=False)
            runs = reference.runs
            feeds = [run.feeds for run in runs if isinstance(run.results.get("numpy"), dict)]
            failed = [str(run.results["numpy"]) for run in runs if not isinstance(run.results.get("numpy"), dict)]
            report.unchecked = "" if feeds else (failed or ["the NumPy backend cannot run it"])[0]
        else:
            feeds = []
            report.unchecked = "no samples were asked for"
        before = observe(module, watched, feeds, step.seed) if feeds else []
    except IrkitError as error:
        if given is not None:
            raise
        report.unchecked = str(error)
        return [], []
    report.samples = len(before)
    return feeds, before


def _joined(ranges: list[Range]) -> Range:
    return Range(max(r.largest for r in ranges), all(r.finite for r in ranges))


def _check(
    module: Module,
    step: ToHalf,
    watched: list[SSAValue],
    places: dict[SSAValue, int],
    feeds: list[Feeds],
    before: list[list[Range]],
    report: Report,
) -> None:
    """Runs the converted module on the same inputs.

    Raises:
        PassError: for the first value that is infinite or NaN, and was finite in its own precision.
    """
    alive = set(values_in(module.op))
    shown = [value for value in watched if value in alive]
    for number, fed in enumerate(feeds):
        try:
            (after,) = observe(module, shown, [_as_taken(fed, module)], step.seed)
        except IrkitError as error:
            raise PassError(f"what it made does not run: {error}") from error
        for value, seen in zip(shown, after, strict=True):
            own = before[number][places[value]]
            if seen.finite or not own.finite:
                continue
            op = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
            assert op is not None
            name = name_of(value)
            raise PassError(
                f"a value{f' {name!r}' if name else ''} overflows in {step.dtype}: {_step_name(op)} makes numbers that "
                f"are not finite, where the largest was {own.largest:.4g} (inputs {number} of {len(feeds)})",
                op=op.name,
                where=where(op),
                hint=f"keep it as it is: block='{getattr(op, 'op_type', '')}', or block-nodes with its name; or give "
                "inputs as calibration to irkit.to_half, or use bfloat16",
            )


def _as_taken(fed: Feeds, module: Module) -> Feeds:
    """Inputs in the types that a module takes, where it no longer keeps those of before."""
    taken = module.inputs
    kinds = {name: dtype_of(taken[name]) for name in fed}
    return {
        name: value.astype(kind.numpy) if isinstance(value, np.ndarray) and kind is not None else value
        for (name, value), kind in zip(fed.items(), kinds.values(), strict=True)
    }


def _step_name(op: Operation) -> str:
    """An op for a sentence."""
    return f"node '{node_name(op)}'" if node_name(op) else "it"
