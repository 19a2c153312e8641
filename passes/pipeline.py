"""Pipelines of passes as text, the levels O0 to O3, and ``optimize``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Literal, TextIO, cast

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.arg_spec import parse_pipeline as parse_specs
from xdsl.utils.exceptions import ArgSpecParseError

from irkit.dialects.onnx import ONNX_OPSET
from irkit.errors import PassError
from irkit.ir.memory import paused_gc
from irkit.ir.module import Module
from irkit.passes import GRADIENT
from irkit.passes.draws import keep_places, release_places
from irkit.passes.instrument import Instrumentation
from irkit.passes.registry import find_pass, pass_names, suggestion
from irkit.passes.rewrite import ops_in

__all__ = ["LEVELS", "optimize", "parse_pipeline", "retarget"]

LEVELS: dict[str, str] = {
    "O0": "",
    "O1": "canonicalize,cse,dce",
    "O2": "infer-shapes,constant-fold,canonicalize,constant-fold,cse,dce",
    "O3": "inline,infer-shapes,constant-fold,canonicalize,constant-fold,cse,hoist,layout,fuse,infer-shapes,"
    "constant-fold,canonicalize,constant-fold,fuse,constant-fold,cse,dce",
}
"""Named pipelines. Each does what the one before does, and more."""


_SPACED_COMMA = re.compile(r"\s*,\s*(?=[^{}]*(?:\{|$))")
"""A comma between passes, with the spaces around it; xDSL's grammar allows none there."""


def parse_pipeline(text: str) -> list[ModulePass]:
    """The passes of a pipeline: ``"canonicalize,cse,constant-fold{max-bytes=1048576},dce"``; a level may stand in it.

    Raises:
        PassError: for text that is no pipeline, an unknown pass, or an option that the pass doesn't have.
    """
    passes: list[ModulePass] = []
    try:
        specs = list(parse_specs(_SPACED_COMMA.sub(",", text.strip())))
    except ArgSpecParseError as error:
        message = str(error).strip().splitlines()[-1].strip()
        raise PassError(
            f"'{text}' is no pipeline: {message}", hint="write pass,pass{option=value option=value},pass"
        ) from None
    for spec in specs:
        if spec.name in LEVELS:
            if spec.parameters:
                raise PassError(f"the level '{spec.name}' has no options")
            passes += parse_pipeline(LEVELS[spec.name])
        else:
            passes.append(_make(spec))
    return passes


_made: dict[tuple[type[ModulePass], str], ModulePass] = {}
"""The passes that were made, by class and options: they are frozen, and it takes xDSL a millisecond to make one."""


def _make(spec: ArgSpec) -> ModulePass:
    try:
        cls = find_pass(spec.name)
    except PassError as error:
        if spec.name in pass_names():
            raise
        raise PassError(error.message, hint=suggestion(spec.name, [*LEVELS, *pass_names()], "passes")) from None
    made = _made.get((cls, repr(spec.parameters)))
    if made is not None:
        return made
    known = [f.name.replace("_", "-") for f in fields(cls) if f.init and f.name != "name"]
    for option in spec.parameters:
        if option.replace("_", "-") not in known:
            hint = suggestion(option, known, "options")
            raise PassError(f"pass '{spec.name}' has no option '{option}'", hint=hint)
    try:
        made = _made[cls, repr(spec.parameters)] = cls.from_spec(ArgSpec(cls.name, spec.parameters))
    except ValueError as error:
        raise PassError(f"an option of pass '{spec.name}' has a wrong value: {error}") from None
    return made


def optimize(
    module: Module,
    pipeline: str | ModulePass | Sequence[str | ModulePass] = "O2",
    *,
    check: Literal["each", "end"] | None = None,
    backends: Sequence[str] = ("numpy",),
    verify_each: bool = False,
    print_before: str | None = None,
    print_after: str | None = None,
    timing: bool = False,
    statistics: bool = False,
    trace: str | os.PathLike[str] | None = None,
    reproducer: str | os.PathLike[str] | None = None,
    keep_going: bool = False,
    target_opset: int | None = None,
    stream: TextIO | None = None,
    instrumentation: Instrumentation | None = None,
) -> Module:
    """A rewritten copy of a module; the module itself stays as it is, whatever happens.

    ``Gradient`` ops of ai.onnx.preview.training are expanded before all else: they name values that no op need use, and
    that passes may remove or fold.

    Args:
        pipeline: text (see ``parse_pipeline``), a level, or passes.
        check: run the module on several sets of generated inputs, and again after ``"each"`` pass that changed
            something, or once at the ``"end"``. A pass after which it computes something else is undone, and the single
            rewrite that did it is named. How much error is allowed is told by a run in float64, where all ops take
            that. What could not be compared is printed.
        backends: on which to run for that.
        verify_each: verify the module after each pass.
        print_before: print the module there: of ``"all"`` passes, of those that ``"changed"`` something, or of one by
            its name.
        print_after: the same, after them.
        timing: print how long everything took.
        statistics: print how often each rule fired, and by how much memory grew.
        trace: where to write the times as a Chrome trace.
        reproducer: where to write, if a pass fails, the module, the pass and the inputs; for ``irkit opt --reproduce``.
        keep_going: go on without a pass that fails, and print why; by default that raises.
        target_opset: the opset of ai.onnx at which the result is to be saved; by default the module's own. Passes make
            nothing that it can't express.
        stream: where to print; standard error by default.
        instrumentation: collects what happened: times, which pass changed something, what passes have to say.

    Raises:
        PassError: for an unknown pass or option, or a pass that fails, naming it.
        CheckError: if a pass changes what the module computes, naming it and the rewrite.
    """
    if check not in (None, "each", "end"):
        raise PassError(f"check is None, 'each' or 'end', not {check!r}")
    parts = [pipeline] if isinstance(pipeline, str | ModulePass) else pipeline
    steps = [step for part in parts for step in (parse_pipeline(part) if isinstance(part, str) else [part])]
    for step in steps:
        if not isinstance(cast(object, step), ModulePass):
            raise PassError(f"{step!r} is no pass", hint="give names as text, or instances of passes")
    if steps and any(op.name == GRADIENT for op in ops_in(module.op)):
        expansion = find_pass("expand-gradient")
        steps = steps if isinstance(steps[0], expansion) else [expansion(), *steps]
    for option, value in (("print_before", print_before), ("print_after", print_after)):
        _check_print(option, value, steps)
    run = instrumentation or Instrumentation()
    run.verify_each |= verify_each
    run.check_each |= check == "each"
    run.print_before = print_before or run.print_before
    run.print_after = print_after or run.print_after
    run.backends = tuple(backends)
    run.stream = stream or run.stream
    run.reproducer = reproducer or run.reproducer
    run.keep_going |= keep_going
    try:
        with paused_gc(), run.timed("optimize"):
            made = _run(module, steps, run, target_opset, check == "end")
    finally:
        if trace is not None:
            run.write_trace(trace)
    for record in run.records:
        for item in record.unchecked:
            run.say(f"after {record.name}, not compared: {item}")
    if timing:
        run.say(run.timing.children[-1].text())
    if statistics:
        run.say(run.statistics())
    return made


def _run(
    module: Module, steps: Sequence[ModulePass], run: Instrumentation, target_opset: int | None, check: bool
) -> Module:
    with run.timed("clone"):
        made = retarget(module.clone(), target_opset)
    keep_places(made)
    for step in steps:
        run.run_pass(step, made)
    release_places(made)
    if check:
        with run.timed("check"):
            report = run.check(module, made, "the pipeline")
        run.compared_at_end = report.compared
        for item in report.unchecked:
            run.say(f"not compared: {item}")
    return made


def retarget(module: Module, opset: int | None) -> Module:
    """Sets the opset of ai.onnx at which a module is to be saved, in place; None leaves its own.

    Raises:
        PassError: if there is no such opset.
    """
    if opset is None:
        return module
    if not 1 <= opset <= ONNX_OPSET:
        raise PassError(f"target_opset is {opset}, expected 1 to {ONNX_OPSET}")
    module.opsets = {**module.opsets, "": opset}
    return module


def _check_print(option: str, value: str | None, steps: Sequence[ModulePass]) -> None:
    names = sorted({step.name.removeprefix("onnx-") for step in steps})
    if value is not None and value.removeprefix("onnx-") not in ("all", "changed", *names):
        hint = suggestion(value, ["all", "changed", *names], "values")
        raise PassError(f"{option} names no pass of the pipeline: '{value}'", hint=hint)
