"""Reading and writing models for the commands: paths, and ``-`` for standard input and output."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import irkit as ik
from irkit.backends import backend_names
from irkit.errors import IrkitError, ParseError
from irkit.ir.module import Module

__all__ = ["check_backends", "check_output", "is_text", "read", "read_bytes", "write"]

STDIO = "-"
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
TEXT, ONNX, KERAS = (".mlir",), (".onnx", ".pb"), (".keras", ".h5", ".hdf5")


def is_text(data: bytes) -> bool:
    """Whether this is text: an ONNX file has control characters among its first bytes."""
    return bool(data) and _BINARY.search(data[:4096]) is None


def read_bytes() -> bytes:
    """All of standard input.

    Raises:
        IrkitError: if it is a terminal.
    """
    if sys.stdin.isatty():
        raise IrkitError("standard input is a terminal", hint="pipe a model into it, or name a file")
    return sys.stdin.buffer.read()


def read(source: str, *, upgrade: bool = True) -> tuple[Module, str]:
    """The verified module of a file, or of standard input; and its format: ``"onnx"``, ``"mlir"``, ``"keras"``.

    Raises:
        LoadError, ParseError: if it cannot be read.
        VerifyError: if it is text that breaks a rule of the IR.
    """
    if source == STDIO:
        data = read_bytes()
        if not is_text(data):
            return ik.load(data, upgrade=upgrade), "onnx"
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ParseError(f"standard input is no text: {error.reason} at byte {error.start}") from None
        return ik.parse(text).verify(), "mlir"
    if Path(source).suffix in TEXT:
        return ik.load(source).verify(), "mlir"
    if Path(source).suffix in KERAS:
        return _read_keras(source), "keras"
    return ik.load(source, upgrade=upgrade), "onnx"


def _read_keras(source: str) -> Module:
    """A Keras model, its state as inputs and outputs; what could not be checked is said on standard error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        module = ik.optimize(ik.load(source), "lift-state")
    for warning in said:
        if isinstance(warning.message, UserWarning):
            print(f"warning: {warning.message}", file=sys.stderr)
    return module


def check_backends(names: Sequence[str]) -> None:
    """Refuses backends that there are not.

    Raises:
        IrkitError: naming those that there are.
    """
    known = backend_names()
    for name in names:
        if name not in known:
            raise IrkitError(f"there is no backend '{name}'", hint=f"there are {', '.join(known)}")
    if not names:
        raise IrkitError("--backends names no backend", hint=f"there are {', '.join(known)}")


def check_output(target: str, *, suffixes: tuple[str, ...] = TEXT + ONNX) -> None:
    """Refuses early what could not be written in the end.

    Raises:
        IrkitError: if the suffix is unknown, or the folder is missing.
    """
    if target == STDIO and TEXT[0] in suffixes:
        return
    path = Path(target)
    if path.suffix not in suffixes:
        raise IrkitError(f"cannot write '{target}'", hint=f"its suffix must be {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise IrkitError(f"cannot write '{target}': there is no folder '{path.parent}'")


def write(module: Module, target: str, **options: Any) -> None:
    """Writes a module as the suffix says, whole or not at all; ``-`` is text on standard output.

    Args:
        options: of ``irkit.save``.

    Raises:
        LoweringError, SaveError: see ``irkit.save``.
    """
    if target == STDIO:
        print(module.text(**{"constants": "inline", **options}))
    else:
        ik.save(module, target, **options)
