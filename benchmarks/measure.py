"""What every benchmark gives back, and how CPU time and memory are measured."""

from __future__ import annotations

import gc
import logging
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Anonymous", "Pair", "Row", "Table", "child_cpu", "cpu", "paired", "quiet", "resident"]

ROOT = Path(__file__).resolve().parents[1]
MB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        what: what was done.
        ours, other: the figures, with their units; ``other`` is the peer's, or what the ratio is to.
        ratio: ours to the other, where both are figures of one kind.
        bar: what is asked for; ``""`` where the line is only told.
        met: whether it is so; None where nothing is asked.
    """

    what: str
    ours: str
    other: str = ""
    ratio: float | None = None
    bar: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Table:
    """The outcome of one benchmark: a title, how it was measured, and lines."""

    title: str
    how: str
    other: str = "peer"
    rows: list[Row] = field(default_factory=list[Row])

    @property
    def met(self) -> bool:
        """Whether no line misses its bar."""
        return all(row.met is not False for row in self.rows)


def cpu(work: Callable[[], object]) -> float:
    """The CPU seconds that this process takes for some work, all threads together."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


@dataclass(frozen=True)
class Pair:
    """Medians over runs of two jobs that took turns: the seconds of each, and the ratio within a turn."""

    ours: float
    other: float
    ratio: float


def paired(ours: Callable[[], object], other: Callable[[], object], turns: int) -> Pair:
    """Times two jobs by turns, after one run of each that does not count; who goes first alternates."""
    ours(), other()
    times: list[tuple[float, float]] = []
    for turn in range(turns):
        if turn % 2:
            second = cpu(other)
            times.append((cpu(ours), second))
        else:
            first = cpu(ours)
            times.append((first, cpu(other)))
    return Pair(
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(a / b for a, b in times),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without log messages: what a peer spends on writing them is not held against it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def child_cpu(command: Sequence[str], repeat: int, env: Mapping[str, str] | None = None) -> float:
    """The median CPU seconds of a command, run so many times.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    times: list[float] = []
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env={**os.environ, **(env or {})})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def python(code: str) -> list[str]:
    """The command that runs some code in a fresh interpreter."""
    return [sys.executable, "-c", code]


def resident() -> tuple[int, int]:
    """(anonymous, mapped from files): this process's resident memory in bytes, from ``/proc/self/status``.

    Raises:
        OSError: where there is no ``/proc``.
    """
    found = {"RssAnon:": 0, "RssFile:": 0}
    for line in Path("/proc/self/status").read_text().splitlines():
        key, *rest = line.split()
        if key in found:
            found[key] = int(rest[0]) << 10
    return found["RssAnon:"], found["RssFile:"]


class Anonymous:
    """Samples the process's anonymous resident memory while the block runs; ``peak`` is the most that was seen."""

    def __init__(self, period: float = 0.002) -> None:
        self.period = period
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._stop.wait(self.period):
            self.peak = max(self.peak, resident()[0])

    def __enter__(self) -> Anonymous:
        self.peak = resident()[0]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, resident()[0])
