"""``irkit check``: whether a model is sound, two models compute the same, or passes leave alone what one computes."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import irkit as ik
from irkit.backends import compile as compile_module
from irkit.backends.base import Executable
from irkit.cli.models import STDIO, check_backends, read
from irkit.cli.show import print_json, status
from irkit.errors import CheckError, IrkitError
from irkit.ir.compare import difference
from irkit.ir.module import Module
from irkit.ir.op import Random
from irkit.passes import Instrumentation, optimize, parse_pipeline
from irkit.passes.infer_shapes import InferShapes
from irkit.verify import Report, Tolerance, compare, difference_of, random_feeds

__all__ = ["run"]

OK, FAILED, UNCHECKED = "ok", "failed", "unchecked"


@dataclass
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        status: ``"ok"``, ``"failed"`` or ``"unchecked"``.
        details: what was found, a line each.
    """

    name: str
    status: str = OK
    details: list[str] = field(default_factory=list[str])

    def problem(self, text: str) -> None:
        """Notes a difference."""
        self.status = FAILED
        self.details.append(text)

    def skip(self, text: str) -> None:
        """Notes what could not be looked at."""
        self.status = UNCHECKED if self.status == OK else self.status
        self.details.append(f"not checked: {text}")


def run(args: Namespace) -> int:
    """Runs the command: 0 if nothing wrong was found, else 1."""
    if args.other is not None and args.passes is not None:
        raise IrkitError("OTHER and -p exclude each other", hint="check the pipeline first, then the two models")
    if args.model == args.other == STDIO:
        raise IrkitError("only one of the two models can come from standard input")
    check_backends(args.backends)
    if args.other is not None:
        checks = [_same(args)]
    elif args.passes is not None:
        checks = _pipeline(args)
    else:
        checks = _one(args)
    ok = all(check.status != FAILED for check in checks)
    if args.json:
        print_json({"model": args.model, "other": args.other, "ok": ok, "checks": [asdict(c) for c in checks]})
    else:
        for check in checks:
            status(check.status, check.name, check.details)
    return 0 if ok else 1


# Two models


def _same(args: Namespace) -> Check:
    first, second = read(args.model)[0], read(args.other)[0]
    report = compare(
        first,
        second,
        backends=args.backends,
        samples=args.samples,
        seed=args.seed,
        rtol=args.rtol,
        atol=args.atol,
    )
    return _from_report("same results", report)


def _from_report(name: str, report: Report) -> Check:
    check = Check(name)
    for found in report.differences:
        check.problem(str(found))
    if not report.differences:
        runs = ", ".join(f"{count} on {backend}" for backend, count in report.runs.items())
        if report.compared:
            check.details.append(f"pairs of runs compared: {runs}")
        else:
            check.problem("nothing could be compared")
    for reason in report.unchecked:
        check.skip(reason)
    check.details += [f"note: {note}" for note in report.notes]
    return check


# A pipeline


def _pipeline(args: Namespace) -> list[Check]:
    steps = parse_pipeline(args.passes)
    module, _ = read(args.model)
    record = Instrumentation(options={"samples": args.samples, "seed": args.seed, "rtol": args.rtol, "atol": args.atol})
    failure: CheckError | None = None
    try:
        optimize(
            module,
            steps,
            check="each",
            backends=args.backends,
            verify_each=True,
            instrumentation=record,
            stream=io.StringIO(),
        )
    except CheckError as error:
        failure = error
    checks: list[Check] = []
    for entry in record.records:
        check = Check(f"pass {entry.name}", details=[] if entry.changed else ["changes nothing"])
        if entry.compared == 0:
            check.problem("it changed the module, and nothing could be compared")
        for reason in entry.unchecked:
            check.skip(reason)
        checks.append(check)
    if failure is not None:
        checks[-1].status, checks[-1].details = FAILED, failure.message.splitlines()
    return checks or [Check("no passes")]


# One model


def _one(args: Namespace) -> list[Check]:
    module, form = read(args.model, upgrade=False)
    checks = [
        Check("structure"),
        _declared(module),
        _text(module),
        _onnx(module, exact=form == "onnx"),
    ]
    return [*checks, _runs(module, args)]


def _declared(module: Module) -> Check:
    """What the file declares against what inference says, and operands that do not fit their op."""
    check, inference = Check("types"), InferShapes()
    inference.run(module.clone())
    for conflict in inference.conflicts:
        check.problem(str(conflict))
    for failure in inference.failures:
        check.problem(failure)
    return check


def _text(module: Module) -> Check:
    """Text, and back."""
    check = Check("round trip through text")
    try:
        back = ik.parse(module.text(locations=True))
    except IrkitError as error:
        check.problem(f"it does not read back: {error}")
        return check
    found = difference(module.op, back.op, locations=True)
    if found is not None:
        check.problem(found)
    return check


def _onnx(module: Module, *, exact: bool) -> Check:
    """ONNX, and back; to the same module where it came from ONNX."""
    check = Check("round trip through ONNX")
    try:
        back = ik.load(module.to_onnx(), upgrade=False)
    except IrkitError as error:
        check.problem(f"it does not read back: {error}")
        return check
    found = difference(module.op, back.op) if exact else _signature_difference(module, back)
    if found is not None:
        check.problem(found)
    return check


def _signature_difference(a: Module, b: Module) -> str | None:
    for what, mine, theirs in (("inputs", a.input_names, b.input_names), ("outputs", a.output_names, b.output_names)):
        if mine != theirs:
            return f"the {what} are {', '.join(theirs)}, expected {', '.join(mine)}"
    return None


def _runs(module: Module, args: Namespace) -> Check:
    """Every backend runs it, and they agree; the first one is what the others are compared with."""
    check = Check(f"runs on {' and '.join(args.backends)}")
    draws = any(op.has_trait(Random) for op in module.walk())
    made = [(name, _compiled(module, name, args.seed, check)) for name in args.backends]
    ready = [(name, executable) for name, executable in made if executable is not None]
    compared, ran = 0, False
    for sample in range(args.samples if module.inputs else 1):
        agreed, any_ran = _agree(module, ready, sample, draws, args, check)
        compared, ran = compared + agreed, ran or any_ran
    if not ran:
        check.problem("no backend runs it on any sample")
    if check.status == OK:
        check.details.insert(0, f"{compared} sample{'' if compared == 1 else 's'} agree")
    return check


def _compiled(module: Module, name: str, seed: int, check: Check) -> Executable | None:
    options: dict[str, Any] = {"optimize": "none"} if name == "onnxruntime" else {}
    try:
        return compile_module(module, name, seed=seed, **options)
    except IrkitError as error:
        check.skip(f"{name}: {error}")
        return None


def _agree(
    module: Module, ready: Sequence[tuple[str, Executable]], sample: int, draws: bool, args: Namespace, check: Check
) -> tuple[int, bool]:
    """Runs one sample on all backends. Returns 1 if results were compared, else 0; and whether any backend ran it."""
    try:
        feeds = random_feeds(module, args.seed + sample)
    except IrkitError as error:
        check.skip(f"sample {sample}: {error}")
        return 0, False
    results: list[tuple[str, dict[str, Any]]] = []
    errors: list[str] = []
    for name, executable in ready:
        try:
            results.append((name, executable.run(feeds)))
        except IrkitError as error:
            errors.append(f"sample {sample} fails on {name}: {error}")
    # What only some backends refuse is a difference; what all refuse may be the fault of the inputs made up.
    for text in errors:
        if results:
            check.problem(text)
        else:
            check.skip(text)
    if len(results) < 2:
        return 0, bool(results)
    if draws:
        check.skip(f"sample {sample}: the model draws random numbers, which each backend draws in its own way")
        return 0, True
    (first, expected), *others = results
    tolerance = Tolerance(args.rtol, args.atol or 0.0)
    for name, found in others:
        for output, value in expected.items():
            wrong = difference_of(value, found[output], tolerance)
            if wrong is not None:
                check.problem(f"sample {sample}: output '{output}' on {name} {wrong.message} (than on {first})")
    return 1, True
