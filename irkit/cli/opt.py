"""``irkit opt``: passes over a model, with what they did in a table."""

from __future__ import annotations

import inspect
import sys
from argparse import Namespace
from dataclasses import MISSING, fields
from typing import Any, TextIO

from irkit.cli.models import STDIO, check_backends, check_output, read, write
from irkit.cli.show import clean, duration, facts, heading, print_json, table
from irkit.errors import CheckError, IrkitError
from irkit.passes import LEVELS, Instrumentation, optimize, parse_pipeline, pass_names
from irkit.passes.registry import find_pass
from irkit.passes.reproduce import read_reproducer

__all__ = ["run"]

SHOWN_NOTES = 5
DEFAULT_REPRODUCER = "irkit-reproducer.mlir"


def run(args: Namespace) -> int:
    """Runs the command."""
    if args.list_passes:
        return _list_passes(args.json)
    if args.reproduce is not None:
        return _reproduce(args)
    if args.model is None:
        raise IrkitError("no model is given", hint="irkit opt MODEL -p PIPELINE, or irkit opt --list-passes")
    if args.backends is not None:
        check_backends(args.backends)
        if not args.check:
            raise IrkitError("--backends says where --check runs the model, but there is no --check")
    if args.json and args.output == STDIO:
        raise IrkitError("--json and -o - would both print to standard output", hint="write the module to a file")
    if args.output is not None:
        check_output(args.output)
    reproducer = args.reproducer or (DEFAULT_REPRODUCER if args.check else None)
    if args.reproducer is not None:
        check_output(args.reproducer, suffixes=(".mlir",))
    pipeline = args.passes if args.passes is not None else f"O{2 if args.level is None else args.level}"
    steps = parse_pipeline(pipeline)
    module, _ = read(args.model)
    record = Instrumentation()
    made = optimize(
        module,
        steps,
        check=args.check,
        backends=args.backends or ["numpy"],
        verify_each=args.verify_each,
        print_before=args.print_before,
        print_after=args.print_after,
        timing=args.timing,
        statistics=args.statistics,
        trace=args.trace,
        reproducer=reproducer,
        keep_going=args.keep_going,
        target_opset=args.target_opset,
        instrumentation=record,
    )
    blind = [r.name for r in record.records if r.compared == 0]
    if record.compared_at_end == 0:
        blind.append("the whole pipeline")
    if blind:
        raise CheckError(
            f"nothing could be compared before and after {', '.join(blind)}; nothing was written",
            hint="the reasons stand above; --backends names others to compare on",
        )
    if args.output is not None:
        write(made, args.output)
    found = _report(pipeline, record)
    if args.json:
        print_json(found)
    else:
        _print(found, sys.stderr if args.output == STDIO else sys.stdout)
    return 0


def _reproduce(args: Namespace) -> int:
    """Runs a reproducer's pass on its module and inputs; fails as it did, or says that it does not any more."""
    found = read_reproducer(args.reproduce)
    options = {"feeds": found.feeds} if found.feeds else {}
    record = Instrumentation(options=options)
    optimize(
        found.module,
        found.pipeline,
        check="each",
        verify_each=True,
        backends=args.backends or found.backends,
        print_before=args.print_before,
        print_after=args.print_after,
        instrumentation=record,
    )
    if args.json:
        print_json(_report(found.pipeline, record))
    else:
        print(clean(f"{found.pipeline} does not go wrong any more; it did: {found.message}"))
    return 0


def _report(pipeline: str, record: Instrumentation) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "pipeline": pipeline,
        "passes": [
            {
                "name": r.name,
                "changed": r.changed,
                "ops_before": r.ops_before,
                "ops_after": r.ops_after,
                "seconds": r.seconds,
                "notes": r.notes,
                "unchecked": r.unchecked,
                "rewrites": dict(r.rewrites),
                "memory": r.memory,
                "failed": r.failed,
            }
            for r in record.records
        ],
    }


def _print(found: dict[str, Any], stream: TextIO) -> None:
    rows = [
        (p["name"], "yes" if p["changed"] else "no", p["ops_before"], p["ops_after"], duration(p["seconds"]))
        for p in found["passes"]
    ]
    table(("pass", "changed", ">ops before", ">after", ">time"), rows, indent=0, stream=stream)
    for entry in found["passes"]:
        notes = entry["notes"]
        if notes:
            heading(f"\n{entry['name']}", stream=stream)
            more = len(notes) - SHOWN_NOTES
            shown = [*notes[:SHOWN_NOTES], *([f"and {more} more (--json lists them)"] if more > 0 else [])]
            for note in shown:
                facts([("", note)], stream=stream)


def _list_passes(as_json: bool) -> int:
    found = {
        "passes": [{"name": name, **_describe(name)} for name in pass_names()],
        "levels": dict(LEVELS),
    }
    if as_json:
        print_json(found)
        return 0
    table(("pass", "what it does"), [(p["name"], p["summary"]) for p in found["passes"]], indent=0)
    options = [(p["name"], o["name"], o["default"]) for p in found["passes"] for o in p["options"]]
    if options:
        heading("\noptions")
        table(("pass", "option", "default"), options)
    heading("\nlevels")
    table(("level", "pipeline"), [(name, text or "(nothing)") for name, text in LEVELS.items()])
    return 0


def _describe(name: str) -> dict[str, Any]:
    cls = find_pass(name)
    text = inspect.getdoc(cls) or ""
    options = [f for f in fields(cls) if f.init and f.name != "name"]
    return {
        "summary": text.splitlines()[0] if text else "",
        "options": [
            {"name": f.name.replace("_", "-"), "default": "" if f.default is MISSING else str(f.default)}
            for f in options
        ],
    }
