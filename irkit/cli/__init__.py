"""The ``irkit`` command: look at models, convert, optimize, run and check them.

Exit codes: 0 all is well; 1 a check found a difference; 2 bad usage or bad input; 70 a fault of irkit itself;
130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from irkit.cli.arguments import parser
from irkit.errors import IrkitError

__all__ = ["main"]

BAD_INPUT, FAULT, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code. Every error is one message on standard error.

    Args:
        argv: by default the arguments of the process.
    """
    if argv is None:
        _set_up_streams()
    debug = os.environ.get("IRKIT_DEBUG", "") not in ("", "0")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse: --help, --version, or bad usage
        code = stop.code if isinstance(stop.code, int) else 0
    except BrokenPipeError:
        _discard_output()
        code = BROKEN_PIPE
    except KeyboardInterrupt:
        _say("irkit: interrupted")
        code = INTERRUPTED
    except Exception as error:
        if debug:
            importlib.import_module("traceback").print_exc()
        code, message = _explain(error)
        _say(f"irkit: error: {message}")
    return code


def _run(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    return importlib.import_module(f"irkit.cli.{args.command}").run(args)


def _explain(error: Exception) -> tuple[int, str]:
    match error:
        case IrkitError():
            return error.exit_code, str(error)
        case MemoryError():
            return BAD_INPUT, f"out of memory{f': {error}' if str(error) else ''}"
        case RecursionError():
            return BAD_INPUT, "the model is nested too deeply"
        case OSError():
            place = f"'{error.filename}': " if error.filename else ""
            return BAD_INPUT, f"{place}{error.strerror or error}"
        case _:
            return FAULT, (
                f"this is a fault of irkit: {type(error).__name__}: {error}\n"
                "  hint: set IRKIT_DEBUG=1 to see where, and please report it"
            )


def _say(text: str) -> None:
    from irkit.cli.show import clean

    with contextlib.suppress(OSError):
        print(clean(text), file=sys.stderr, flush=True)


def _set_up_streams() -> None:
    """What the terminal's encoding lacks is written as an escape, rather than ending the command."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _discard_output() -> None:
    """Lets the interpreter flush standard output at its end without another complaint."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
