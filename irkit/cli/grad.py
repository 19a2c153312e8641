"""``irkit grad``: a model that gives the gradients of one of its values."""

from __future__ import annotations

from argparse import Namespace

import irkit as ik
from irkit.backends.base import spell
from irkit.cli.hints import in_flags
from irkit.cli.models import STDIO, check_output, read, write
from irkit.cli.show import print_json, table
from irkit.errors import IrkitError

__all__ = ["run"]

WORDS = {
    "name a scalar with of=, reduce the value to one, or use vjp or jacobian": "name a value of one element with --of",
    "of=": "--of",
    "wrt=": "--wrt",
    "as_inputs=True": "--as-inputs",
    "allow_unused=True": "--allow-unused",
}


def run(args: Namespace) -> int:
    """Runs the command."""
    if args.json and args.output == STDIO:
        raise IrkitError("--json and -o - would both print to standard output", hint="write the module to a file")
    check_output(args.output)
    module, _ = read(args.model)
    derive = ik.value_and_grad if args.value else ik.grad
    with in_flags(WORDS):
        made = derive(module, args.of, args.wrt, as_inputs=args.as_inputs, allow_unused=args.allow_unused)
    made = ik.optimize(made, "lower-ad,O2")
    write(made, args.output)
    outputs = [{"name": name, "type": spell(value_type)} for name, value_type in made.outputs.items()]
    if args.json:
        print_json({"inputs": list(made.inputs), "outputs": outputs})
    elif args.output != STDIO:
        table(("output", "type"), [(o["name"], o["type"]) for o in outputs], indent=0)
    return 0
