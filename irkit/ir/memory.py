"""Memory: how much of it the process holds, and Python's garbage collector, held back while many objects are made."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["paused_gc", "resident_bytes"]


@contextmanager
def paused_gc() -> Generator[None]:
    """Without cyclic garbage collection: building many small objects would run it over and over for nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
