"""Round trips over all corpora of the tests, counted."""

from __future__ import annotations

from collections import Counter

from benchmarks.measure import Row, Table
from tests.roundtrip.runner import CORPORA, Result, check, corpus

__all__ = ["run"]

TITLES = {
    "suite": "the official suite",
    "schemas": "one model per schema version",
    "features": "features that the suite lacks",
    "external": "external data",
}


def run(quick: bool = False) -> Table:
    """Takes every model through the round trips; ``quick`` leaves out the two large corpora."""
    return Table(
        "Round trips",
        "Each model is loaded, verified, printed as text and parsed back to the same module; kept in the form it came "
        "in it is exported with the same fields; and exported at the source's opset it gives the same outputs on "
        "onnxruntime (optimizations off) wherever that runs the source.",
        "compared on onnxruntime",
        [_row(which) for which in CORPORA if not quick or which in ("features", "external")],
    )


def _row(which: str) -> Row:
    counts: Counter[str] = Counter()
    bad: list[str] = []
    for name, source, feeds in corpus(which):
        try:
            result = check(name, source, feeds)
        except Exception as error:
            result = Result(name, [f"{type(error).__name__}: {error}"])
        counts["models"] += 1
        counts[result.ran or "not run"] += 1
        if result.problems:
            bad.append(name)
    good = counts["models"] - len(bad)
    ours = f"{good} of {counts['models']} good" + (f" (not {', '.join(bad[:3])})" if bad else "")
    rest = ", ".join(f"{count} {what}" for what, count in counts.items() if what not in ("models", "compared"))
    compared = f"{counts['compared']}" + (f" ({rest})" if rest else "")
    return Row(TITLES.get(which, which), ours, compared, bar="all", met=not bad)
