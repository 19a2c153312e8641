"""``irkit explain``: where an op came from, or what became of a node."""

from __future__ import annotations

from argparse import Namespace

from irkit.cli.models import read
from irkit.cli.show import clean, print_json
from irkit.passes import optimize
from irkit.passes.explain import explain

__all__ = ["run"]


def run(args: Namespace) -> int:
    """Runs the command."""
    source, _ = read(args.model)
    pipeline = args.passes if args.passes is not None else None if args.level is None else f"O{args.level}"
    module = source if pipeline is None else optimize(source, pipeline, target_opset=args.target_opset)
    found = explain(module, args.node, source=source)
    if args.json:
        print_json({"model": args.model, "pipeline": pipeline or "", **found.to_json()})
    else:
        print(clean(found.text()))
    return 0
