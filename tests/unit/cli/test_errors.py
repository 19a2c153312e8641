"""Bad usage, bad input and interruption: one message, the documented exit code, and no half-written file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit.ir.files
from irkit.cli import main, models

Captured = pytest.CaptureFixture[str]


def error(capsys: Captured, *argv: str, code: int = 2) -> str:
    """The one message of a command that fails."""
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("frobnicate m.onnx", "invalid choice: 'frobnicate'"),
        ("info m.onnx --nope", "unrecognized arguments: --nope"),
        ("opt m.onnx -O4", "invalid choice: 4"),
        ("run m.onnx --threads 0", "0 is less than 1"),
        ("run m.onnx --size N", "'N' is not of the form SYMBOL=N"),
        ("convert m.onnx -o m.mlir --opset x", "invalid opset value: 'x'"),
    ],
)
def test_bad_usage(model: Path, argv: str, message: str, capsys: Captured) -> None:
    assert message in error(capsys, *argv.split())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("info absent.onnx", "cannot read 'absent.onnx': No such file or directory"),
        ("info absent.mlir", "absent.mlir"),
        ("info .", "'.' is a folder"),
        ("convert m.onnx -o m.txt", "cannot write 'm.txt'"),
        ("convert m.onnx -o nowhere/m.onnx", "there is no folder 'nowhere'"),
        ("convert m.onnx -o m.mlir --opset 13", "--opset concerns an .onnx file, but the output is text"),
        ("convert m.onnx -o o.onnx --locations", "--locations concerns text, but the output is an .onnx file"),
        ("opt", "no model is given"),
        ("opt m.onnx -p canonicalise", "canonicalise"),
        ("opt m.onnx -p constant-fold{max-bites=3}", "max-bites"),
        ("opt m.onnx -p constant-fold{max-bytes=lots}", "lots"),
        ("opt m.onnx --backends numpy", "there is no --check"),
        ("opt m.onnx --json -o -", "--json and -o - would both print"),
        ("run m.onnx --backend abacus", "abacus"),
        ("run m.onnx --size M=3", "no input has a symbolic dim 'M'"),
        ("run m.onnx --inputs absent.npz", "cannot read 'absent.npz'"),
        ("run m.onnx --inputs m.onnx", "cannot read 'm.onnx'"),
        ("run m.onnx --inputs x.npy", "holds one array, without a name"),
        ("run m.onnx --inputs x=x.npy x=x.npy", "input 'x' is given twice"),
        ("run m.onnx --inputs z=x.npy", "z"),
        ("run m.onnx --inputs x=wrong.npy", "x"),
        ("run m.onnx -o y.csv", "cannot write 'y.csv'"),
        ("check m.onnx m.onnx -p cse", "OTHER and -p exclude each other"),
        ("check m.onnx --backends abacus", "there is no backend 'abacus'"),
        ("check - -", "only one of the two models can come from standard input"),
    ],
)
def test_bad_input(model: Path, argv: str, message: str, capsys: Captured) -> None:
    np.save("x.npy", np.ones((2, 3), np.float32))
    np.save("wrong.npy", np.ones((2, 5), np.float32))
    before = {path: path.read_bytes() for path in model.parent.iterdir()}
    text = error(capsys, *argv.split())
    assert text.startswith("irkit: error: ")
    assert message in text
    assert {path: path.read_bytes() for path in model.parent.iterdir()} == before


@pytest.mark.parametrize("data", [b"", b"not a model", b"\xff\xfe text", b"builtin.module {", b"\x08\x0a\x3a\xff"])
def test_bad_standard_input(model: Path, data: bytes, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    assert error(capsys, "info", "-").startswith("irkit: error: ")


def _raise(failure: BaseException) -> Any:
    def function(*_args: Any, **_options: Any) -> None:
        raise failure

    return function


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "irkit: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 2, "irkit: error: out of memory\n"),
        (RecursionError(), 2, "irkit: error: the model is nested too deeply\n"),
        (PermissionError(13, "Permission denied", "m.onnx"), 2, "irkit: error: 'm.onnx': Permission denied\n"),
    ],
)
def test_what_ends_a_command(
    model: Path,
    failure: BaseException,
    code: int,
    message: str,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("irkit.cli._discard_output", lambda: None)  # it would replace the output of the test itself
    monkeypatch.setattr(models.ik, "load", _raise(failure))
    assert error(capsys, "info", "m.onnx", code=code) == message


def test_a_fault_of_irkit_says_so_and_shows_a_traceback_on_demand(
    model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IRKIT_DEBUG", raising=False)
    monkeypatch.setattr(models.ik, "load", _raise(ZeroDivisionError("oh")))
    assert "this is a fault of irkit: ZeroDivisionError: oh" in error(capsys, "info", "m.onnx", code=70)
    monkeypatch.setenv("IRKIT_DEBUG", "1")
    assert main(["info", "m.onnx"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "target"),
    [
        ("convert m.onnx -o out.onnx", "out.onnx"),
        ("convert m.onnx -o out.mlir", "out.mlir"),
        ("opt m.onnx -O1 -o out.onnx", "out.onnx"),
        ("run m.onnx -o out.npz", "out.npz"),
    ],
)
@pytest.mark.parametrize("present", [True, False])
def test_no_half_written_file(
    model: Path, argv: str, target: str, present: bool, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    if present:
        Path(target).write_bytes(b"as it was")
    monkeypatch.setattr(irkit.ir.files.os, "fsync", _raise(OSError(28, "No space left on device")))
    assert main(argv.split()) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in model.parent.iterdir()) == sorted(["m.onnx", *([target] if present else [])])
    if present:
        assert Path(target).read_bytes() == b"as it was"


def test_help_imports_nothing_heavy(model: Path) -> None:
    heavy = ("numpy", "onnx", "onnxruntime", "xdsl")
    code = (
        "import sys; from irkit.cli import main; code = main(['--help']); "
        f"print([name for name in {heavy!r} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_the_reader_of_the_output_is_gone(model: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "irkit.cli", "info", "m.onnx"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
