"""``irkit diff``: how two models differ, in what they are and in what they compute."""

from __future__ import annotations

from argparse import Namespace

from irkit.cli.models import STDIO, check_backends, read
from irkit.cli.show import clean, print_json
from irkit.errors import IrkitError
from irkit.verify.diff import diff

__all__ = ["run"]


def run(args: Namespace) -> int:
    """Runs the command: 0 if the models are the same, else 1."""
    if args.model == args.other == STDIO:
        raise IrkitError("only one of the two models can come from standard input")
    check_backends(args.backends)
    first, second = read(args.model)[0], read(args.other)[0]
    found = diff(
        first,
        second,
        run=not args.no_run,
        backends=args.backends,
        samples=args.samples,
        seed=args.seed,
        rtol=args.rtol,
        atol=args.atol,
    )
    if args.json:
        print_json({"a": args.model, "b": args.other, **found.to_json()})
    else:
        print(clean(found.text()))
    return 0 if found.same else 1
