"""What it costs to import irkit, and to ask the command for help."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.measure import Row, Table, child_cpu, python
from examples.light_models import light_model_path

__all__ = ["run"]

MOST = 0.5


def run(quick: bool = False) -> Table:
    """Starts fresh interpreters.

    Raises:
        FileNotFoundError: if the command is not installed beside the interpreter.
    """
    repeat = 3 if quick else 7
    command = shutil.which("irkit", path=str(Path(sys.executable).parent))
    if command is None:
        raise FileNotFoundError("the command irkit is not installed beside this Python")
    empty, peer = child_cpu(python("pass"), repeat), child_cpu(python("import onnx"), repeat)
    load = f"import irkit; irkit.load({str(light_model_path('squeezenet'))!r})"
    rows = [
        _row("import irkit", child_cpu(python("import irkit"), repeat), peer, MOST),
        _row("irkit --help", child_cpu([command, "--help"], repeat), peer, MOST),
        _row("import irkit, then load light_squeezenet", child_cpu(python(load), repeat), peer),
    ]
    return Table(
        "Start-up",
        f"CPU time of a fresh process, the median of {repeat}; an interpreter that does nothing takes {empty:.2f} s "
        "of it.",
        "import onnx",
        rows,
    )


def _row(what: str, ours: float, peer: float, most: float | None = None) -> Row:
    bar, met = ("", None) if most is None else (f"< {most} s", ours < most)
    return Row(what, f"{ours:.2f} s", f"{peer:.2f} s", ours / peer, bar, met)
