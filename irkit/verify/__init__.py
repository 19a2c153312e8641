"""Checking by running: inputs made from types, two modules compared, and the pass found that breaks one."""

from __future__ import annotations

from irkit.verify.bisect import Bisection, bisect
from irkit.verify.compare import Backend, Reference, Report, compare
from irkit.verify.diff import Diff, diff
from irkit.verify.generate import Sizes, random_feeds, random_value
from irkit.verify.values import Difference, Tolerance, default_tolerance, difference_of

__all__ = [
    "Backend",
    "Bisection",
    "Diff",
    "Difference",
    "Reference",
    "Report",
    "Sizes",
    "Tolerance",
    "bisect",
    "compare",
    "default_tolerance",
    "diff",
    "difference_of",
    "random_feeds",
    "random_value",
]
