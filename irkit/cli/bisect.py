"""``irkit bisect``: the first pass that changes what a model computes, and the single rewrite in it."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from irkit.cli.models import check_backends, check_output, read
from irkit.cli.show import clean, print_json
from irkit.errors import CheckError
from irkit.passes import parse_pipeline
from irkit.passes.pipeline import retarget
from irkit.passes.reproduce import Reproducer, write_reproducer
from irkit.verify import bisect

__all__ = ["run"]


def run(args: Namespace) -> int:
    """Runs the command: 0 if no pass breaks the model, else 1."""
    check_backends(args.backends)
    pipeline = args.passes if args.passes is not None else f"O{2 if args.level is None else args.level}"
    steps = parse_pipeline(pipeline)
    if args.reproducer is not None:
        check_output(args.reproducer, suffixes=(".mlir",))
    module, _ = read(args.model)
    module = retarget(module, args.target_opset)
    found = bisect(
        module,
        steps,
        backends=args.backends,
        samples=args.samples,
        seed=args.seed,
        rtol=args.rtol,
        atol=args.atol,
    )
    if found.culprit is None and not found.compared and found.changed:
        raise CheckError("nothing could be compared", hint="; ".join(found.unchecked[:3]))
    if found.culprit is not None and args.reproducer is not None:
        reproducer = Reproducer(found.before, found.culprit, tuple(args.backends), found.feeds, found.text())
        write_reproducer(reproducer, args.reproducer)
    if args.json:
        print_json({"model": args.model, "pipeline": pipeline, **_plain(found)})
    else:
        print(clean(found.text()))
    return 0 if found.culprit is None else 1


def _plain(found: Any) -> dict[str, Any]:
    rewrite = found.rewrite
    return {
        "culprit": found.culprit,
        "index": found.index,
        "error": found.error,
        "rewrite": None
        if rewrite is None
        else {
            "number": rewrite.number,
            "of": rewrite.of,
            "by": rewrite.step.by,
            "op": rewrite.step.op,
            "name": rewrite.step.name,
        },
        "differences": [str(d) for d in found.report.differences],
        "compared": found.compared,
        "unchecked": found.unchecked,
    }
