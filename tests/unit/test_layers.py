"""Imports run one way: the contracts of ``[tool.importlinter]`` in pyproject.toml hold."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_import_contracts_hold(root: Path) -> None:
    done = subprocess.run(
        ["lint-imports", "--no-cache"], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
