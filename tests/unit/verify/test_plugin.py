"""The fixtures for the tests of users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """
import irkit as ik

def test_negation(irkit_backend):
    builder = ik.Builder()
    builder.output(builder.Neg(builder.input("x", "float32", [1])), "y")
    assert ik.compile(builder.module(), irkit_backend)([1.0]) == -1
"""


def test_a_test_runs_once_a_backend(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["irkit.pytest_plugin"]\n')
    (tmp_path / "test_own.py").write_text(TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("numpy", "onnxruntime"):
        assert f"test_negation[{name}] PASSED" in done.stdout
