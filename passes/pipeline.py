"""Pipelines of passes as text, the levels O0 to O3, and ``optimize``."""

from __future__ import annotations

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
from irkit.passes.instrument import Instrumentation
from irkit.passes.registry import find_pass, pass_names, suggestion

__all__ = ["LEVELS", "optimize", "parse_pipeline"]

LEVELS: dict[str, str] = {
    "O0": "",
    "O1": "canonicalize,cse,dce",
    "O2": "infer-shapes,constant-fold,canonicalize,constant-fold,cse,dce",
    "O3": "infer-shapes,constant-fold,canonicalize,constant-fold,cse,infer-shapes,canonicalize,constant-fold,cse,dce",
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


def _make(spec: ArgSpec) -> ModulePass:
    try:
        cls = find_pass(spec.name)
    except PassError as error:
        if spec.name in pass_names():
            raise
        raise PassError(error.message, hint=suggestion(spec.name, [*LEVELS, *pass_names()], "passes")) from None
    known = [f.name.replace("_", "-") for f in fields(cls) if f.init and f.name != "name"]
    for option in spec.parameters:
        if option.replace("_", "-") not in known:
            hint = suggestion(option, known, "options")
            raise PassError(f"pass '{spec.name}' has no option '{option}'", hint=hint)
    try:
        return cls.from_spec(ArgSpec(cls.name, spec.parameters))
    except ValueError as error:
        raise PassError(f"an option of pass '{spec.name}' has a wrong value: {error}") from None


def optimize(
    module: Module,
    pipeline: str | ModulePass | Sequence[str | ModulePass] = "O2",
    *,
    check: Literal["each", "end"] | None = None,
    backends: Sequence[str] = ("numpy",),
    verify_each: bool = False,
    print_after: str | None = None,
    timing: bool = False,
    target_opset: int | None = None,
    stream: TextIO | None = None,
    instrumentation: Instrumentation | None = None,
) -> Module:
    """A rewritten copy of a module; the module itself stays as it is, whatever happens.

    Args:
        pipeline: text (see ``parse_pipeline``), a level, or passes.
        check: run the module before and after, on generated inputs: around ``"each"`` pass, or once at the ``"end"``.
            What could not be compared is printed.
        backends: on which to run for that.
        verify_each: verify the module after each pass.
        print_after: print the module after ``"all"`` passes, those that ``"changed"`` something, or one by its name.
        timing: print how long everything took.
        target_opset: the opset of ai.onnx at which the result is to be saved; by default the module's own. Passes make
            nothing that it can't express.
        stream: where to print; standard error by default.
        instrumentation: collects what happened: times, which pass changed something, what passes have to say.

    Raises:
        PassError: for an unknown pass or option, or a pass that fails, naming it.
        CheckError: if a pass changes what the module computes, naming it.
    """
    if check not in (None, "each", "end"):
        raise PassError(f"check is None, 'each' or 'end', not {check!r}")
    parts = [pipeline] if isinstance(pipeline, str | ModulePass) else pipeline
    steps = [step for part in parts for step in (parse_pipeline(part) if isinstance(part, str) else [part])]
    for step in steps:
        if not isinstance(cast(object, step), ModulePass):
            raise PassError(f"{step!r} is no pass", hint="give names as text, or instances of passes")
    _check_print_after(print_after, steps)
    run = instrumentation or Instrumentation()
    run.verify_each |= verify_each
    run.check_each |= check == "each"
    run.print_after = print_after or run.print_after
    run.backends = tuple(backends)
    run.stream = stream or run.stream
    with paused_gc(), run.timed("optimize"):
        with run.timed("clone"):
            made = module.clone()
        _set_target(made, target_opset)
        for step in steps:
            run.run_pass(step, made)
        if check == "end":
            with run.timed("check"):
                report = run.check(module, made, "the pipeline")
            run.compared_at_end = report.compared
            for item in report.unchecked:
                run.say(f"not compared: {item}")
    for record in run.records:
        for item in record.unchecked:
            run.say(f"after {record.name}, not compared: {item}")
    if timing:
        run.say(run.timing.children[-1].text())
    return made


def _set_target(module: Module, opset: int | None) -> None:
    if opset is None:
        return
    if not 1 <= opset <= ONNX_OPSET:
        raise PassError(f"target_opset is {opset}, expected 1 to {ONNX_OPSET}")
    module.opsets = {**module.opsets, "": opset}


def _check_print_after(print_after: str | None, steps: Sequence[ModulePass]) -> None:
    names = sorted({step.name.removeprefix("onnx-") for step in steps})
    if print_after is not None and print_after.removeprefix("onnx-") not in ("all", "changed", *names):
        hint = suggestion(print_after, ["all", "changed", *names], "values")
        raise PassError(f"print_after names no pass of the pipeline: '{print_after}'", hint=hint)
