"""Shared set-up of all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# One BLAS thread: the sums of a matrix product are then the same on every run, and parallel test workers do not
# fight over the cores. It has to be said before NumPy is imported; child processes inherit it.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[_variable] = "1"

# The commands that the environment of this interpreter installs (irkit, xdsl-opt, lit, filecheck) come first.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

# Seeded: a failure in continuous integration is the same failure here.
settings.register_profile("irkit", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("irkit")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the source tree."""
    return ROOT
