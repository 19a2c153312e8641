"""Runs ONNX's official backend test suite on the NumPy backend.

    python -m tests.conformance.suite [--category node] [--filter PATTERN] [--workers N] [-v]

Each case runs in a worker process that takes one case after another: a crash or a hang costs that case alone. Results
are held to the suite's own tolerances, dtypes and shapes must be equal. The workers import neither onnxruntime nor
onnx.reference, which each of them checks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from tests.conformance.cases import CATEGORIES, Case, load_cases

SECONDS = 120.0
"""How long one case may take."""

FORBIDDEN = ("onnxruntime", "onnx.reference")

BERNOULLI = re.compile(r"test_bernoulli")
"""Cases whose expected values are, as their own comments say, for information only: they are drawn at random. Dtype and
shape are compared, every element must be 0 or 1, and what has probability 0 or 1 must come out so."""

ILL_POSED = ("test_squeezenet",)
"""Light models whose 1000 logits are one number near 1e10 in exact arithmetic, but go through a softmax: one
unit in the last place is 1024 there, so that it answers to how BLAS happened to round. The softmax is taken here, after
the logits have been found equal to 1e-6 of their size, which is what rounding leaves."""


def run_case(case: Case) -> str | None:
    """Runs a case on the NumPy backend; what went wrong, or None."""
    from irkit import compile
    from irkit.errors import IrkitError
    from irkit.frontends.onnx import load

    try:
        module = load(case.model)
        module.verify()
        executable = compile(module, backend="numpy", seed=0)
        for inputs, expected in case.data:
            # Below IR version 4 constants are listed as inputs too; their values come with the data.
            feeds = {name: value for name, value in inputs.items() if name in executable.inputs}
            found = list(executable.run(feeds).values())
            if BERNOULLI.match(case.name):
                expected = [_drawn(expected[0], found[0], next(iter(feeds.values())))]
            elif case.name in ILL_POSED:
                found = _settled(module, executable, feeds)
            message = compare(expected, found, case.rtol, case.atol)
            if message is not None:
                return message
    except IrkitError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
    loaded = [name for name in sys.modules if name.startswith(FORBIDDEN)]
    return f"the process has imported {loaded[0]}" if loaded else None


def _settled(module: Any, executable: Any, feeds: dict[str, Any]) -> list[Any]:
    """The softmax of the logits at the mean, where they agree to rounding; as they are, where they don't."""
    from irkit.ir.names import name_of

    (softmax,) = (op for op in module.block.ops if op.name.startswith("onnx.Softmax"))
    name = name_of(softmax.operands[0])
    logits = executable.run(feeds, [name])[name].astype(np.float64)
    if np.ptp(logits) <= 1e-6 * np.abs(logits).max():
        logits[...] = logits.mean()
    weights = np.exp(logits - logits.max())
    return [(weights / weights.sum()).astype(np.float32)]


def _drawn(expected: np.ndarray, found: Any, probability: np.ndarray) -> np.ndarray:
    """What a drawing of zeros and ones with these probabilities may be: itself, where it is one."""
    if not isinstance(found, np.ndarray) or found.shape != expected.shape:
        return expected
    certain = (probability <= 0) | (probability >= 1)
    valid = np.where(certain, found == probability, (found == 0) | (found == 1))
    return np.where(valid, found, 0.5).astype(expected.dtype)


def compare(expected: Any, found: Any, rtol: float, atol: float, label: str = "output") -> str | None:
    """The first difference, or None."""
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return f"{label}: {_shown(found)}, expected {_shown(expected)}"
        pairs = enumerate(zip(expected, found, strict=True))
        messages = (compare(e, f, rtol, atol, f"{label} {i}") for i, (e, f) in pairs)
        return next((message for message in messages if message is not None), None)
    if isinstance(expected, dict):
        if not isinstance(found, dict) or list(expected) != list(found):
            return f"{label}: {_shown(found)}, expected {_shown(expected)}"
        return compare(list(expected.values()), list(found.values()), rtol, atol, label)
    if expected is None or found is None:
        return None if found is expected else f"{label}: {_shown(found)}, expected {_shown(expected)}"
    want, got = np.asarray(expected), found
    if not isinstance(got, np.ndarray):
        return f"{label}: {_shown(found)} is no array"
    if want.dtype.kind in "OUS":
        want = want.astype(object)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{label}: {_shown(got)}, expected {_shown(want)}"
    if want.dtype == object:
        return None if got.tolist() == want.tolist() else f"{label}: {got.tolist()}, expected {want.tolist()}"
    if want.dtype.name == "bfloat16":
        # Two units in the last place, as the suite's own runner allows.
        rtol = max(rtol, 2**-6)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    try:
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)
    except AssertionError as error:
        return f"{label}: {' '.join(str(error).split())[:400]}"
    return None


def _shown(value: Any) -> str:
    return f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)[:80]


# Workers


def _serve(connection: Connection) -> None:
    """A worker: answers each case with what went wrong in it."""
    while (case := connection.recv()) is not None:
        connection.send(run_case(case))


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self.deadline = 0.0

    def start(self, case: Case) -> None:
        self.case, self.deadline = case, time.monotonic() + SECONDS
        self.connection.send(case)

    def stop(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        elif self.process.is_alive():
            self.connection.send(None)
        self.process.join()
        self.connection.close()


def run_cases(
    cases: Iterable[Case], workers: int = 1, report: Callable[[Case, str | None], None] = lambda case, message: None
) -> dict[str, str]:
    """Runs cases in worker processes.

    Args:
        report: called with each case as it ends, and what went wrong in it.

    Returns:
        what went wrong, by the names of the cases that failed.
    """
    # One BLAS thread a worker; a worker inherits this when it starts.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    queue = list(cases)[::-1]
    failures: dict[str, str] = {}
    pool = [_Worker() for _ in range(min(workers, len(queue)))]
    try:
        while queue or any(worker.case for worker in pool):
            for worker in pool:
                if worker.case is None and queue:
                    worker.start(queue.pop())
            ready = wait([worker.connection for worker in pool], timeout=1.0)
            for index, worker in enumerate(pool):
                case = worker.case
                if case is None:
                    continue
                if worker.connection in ready:
                    message, alive = _answer(worker)
                elif time.monotonic() > worker.deadline:
                    message, alive = f"no answer within {SECONDS:.0f} s", False
                else:
                    continue
                worker.case = None
                if not alive:
                    worker.stop(kill=True)
                    pool[index] = _Worker()
                if message is not None:
                    failures[case.name] = message
                report(case, message)
    finally:
        for worker in pool:
            worker.stop(kill=worker.case is not None)
    return failures


def _answer(worker: _Worker) -> tuple[str | None, bool]:
    try:
        return worker.connection.recv(), True
    except (EOFError, ConnectionError):
        worker.process.join()
        return f"the process died (exit code {worker.process.exitcode})", False


def main() -> int:
    parser = argparse.ArgumentParser(description="ONNX's official backend test suite on irkit's NumPy backend")
    parser.add_argument("--category", choices=CATEGORIES, action="append", help="only these")
    parser.add_argument("--filter", default="", help="a regular expression that the names must match")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="print each case as it ends")
    options = parser.parse_args()
    wanted = options.category or CATEGORIES
    cases = [c for c in load_cases() if c.category in wanted and re.search(options.filter, c.name)]

    def report(case: Case, message: str | None) -> None:
        if message is not None or options.verbose:
            print(f"{'FAIL' if message else 'ok  '} {case.category}/{case.name}{f': {message}' if message else ''}")

    start = time.monotonic()
    failures = run_cases(cases, options.workers, report)
    total, failed = Counter(c.category for c in cases), Counter(c.category for c in cases if c.name in failures)
    print(f"\n{'category':<20}{'passed':>8}{'failed':>8}{'all':>8}")
    for category in (*(c for c in CATEGORIES if total[c]), "all"):
        count = total.total() if category == "all" else total[category]
        bad = failed.total() if category == "all" else failed[category]
        print(f"{category:<20}{count - bad:>8}{bad:>8}{count:>8}")
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
