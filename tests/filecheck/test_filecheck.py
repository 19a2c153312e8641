"""The text tests of this folder, each a file with RUN and CHECK lines, run by lit and filecheck."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(path for path in FOLDER.rglob("*") if path.suffix in {".mlir", ".test"} and "Inputs" not in path.parts)


def lit(output: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run lit on files or folders; scratch files go to ``output``."""
    return subprocess.run(
        ["lit", "-v", "-j", "1", *map(str, paths)],
        env=os.environ | {"LIT_OUTPUT": str(output)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FOLDER).as_posix())
def test_file(file: Path, tmp_path: Path) -> None:
    done = lit(tmp_path, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 1" in done.stdout


def test_a_wrong_check_fails(tmp_path: Path) -> None:
    (tmp_path / "lit.cfg.py").write_text((FOLDER / "lit.cfg.py").read_text(encoding="utf-8"), encoding="utf-8")
    test = tmp_path / "wrong.mlir"
    test.write_text("// RUN: xdsl-opt %s | filecheck %s\n// CHECK: no.such.op\nbuiltin.module {}\n", encoding="utf-8")
    done = lit(tmp_path / "out", test)
    assert done.returncode == 1
    assert "no.such.op" in done.stdout.partition("executed command: filecheck")[2]
