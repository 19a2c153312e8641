"""Models that a process runs on jax are read there, and compared with what jax computes."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_on_jax() -> None:
    command = [sys.executable, "-m", "tests.unit.keras_import.on_backend", "jax"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("23 compared on jax")
