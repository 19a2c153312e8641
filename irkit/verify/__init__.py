"""Checking by running: inputs made from types, two modules compared, and the pass found that breaks one."""

from __future__ import annotations

from irkit.verify.bisect import Bisection, PassLike, bisect
from irkit.verify.compare import Backend, Difference, Report, compare, default_tolerance, difference_of
from irkit.verify.generate import Sizes, random_feeds, random_value

__all__ = [
    "Backend",
    "Bisection",
    "Difference",
    "PassLike",
    "Report",
    "Sizes",
    "bisect",
    "compare",
    "default_tolerance",
    "difference_of",
    "random_feeds",
    "random_value",
]
