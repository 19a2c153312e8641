"""``irkit convert``: a model in another format, opset or layout of its weights."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from irkit.cli.models import ONNX, STDIO, TEXT, check_output, read, write
from irkit.errors import IrkitError

__all__ = ["run"]

PYTHON = ".py"


def run(args: Namespace) -> int:
    """Runs the command."""
    if args.to == "python" or Path(args.output).suffix == PYTHON:
        return _to_python(args)
    check_output(args.output)
    options = _options(args)
    module, _ = read(args.model, upgrade=not args.no_upgrade)
    write(module, args.output, **options)
    return 0


def _to_python(args: Namespace) -> int:
    """A program that builds the module again; on standard output with all constants in it."""
    from irkit.frontends.dsl.source import program, save_program

    given = (args.opset, args.external_data, args.constants, args.locations)
    if any(given):
        raise IrkitError("--opset, --external-data, --constants and --locations do not concern a Python program")
    check_output(args.output, suffixes=(PYTHON,) if args.output != STDIO else TEXT)
    module, _ = read(args.model, upgrade=not args.no_upgrade)
    if args.output == STDIO:
        print(program(module), end="")
    else:
        save_program(module, args.output)
    return 0


def _options(args: Namespace) -> dict[str, Any]:
    """The options that the output's format has.

    Raises:
        IrkitError: for one that only the other has.
    """
    to_onnx = args.output != STDIO and Path(args.output).suffix in ONNX
    onnx_only = {"--opset": args.opset, "--external-data": args.external_data}
    text_only = {"--constants": args.constants, "--locations": args.locations}
    for name, given in (text_only if to_onnx else onnx_only).items():
        if given:
            kind, other = ("an .onnx file", "text") if to_onnx else ("text", "an .onnx file")
            raise IrkitError(f"{name} concerns {other}, but the output is {kind}")
    if to_onnx:
        found: dict[str, Any] = {"opset": dict(args.opset) or None, "external_data": args.external_data}
    else:
        found = {"constants": args.constants, "locations": args.locations}
    return {name: value for name, value in found.items() if value is not None}
