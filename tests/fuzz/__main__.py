"""``python -m tests.fuzz``: compares as many random graphs as one likes with onnxruntime, and says what differs.

A graph that differs is printed with its steps left out as far as it still does. ``python -m tests.fuzz passes`` puts
graphs through the passes instead.
"""

from __future__ import annotations

import argparse
import sys

from . import passes
from .generate import Seeded, random_graph
from .oracle import Report, RuntimeJudge, check, sweep

PART = 100


def main() -> int:
    if sys.argv[1:2] == ["passes"]:
        return passes.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=5000, help="how many (default: 5000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--steps", type=int, default=12, help="ops a graph, at most (default: 12)")
    parser.add_argument("--ops", default="", help="only these, separated by commas")
    parser.add_argument("--optimize", default="none", help="onnxruntime's levels: none,all (default: none)")
    options = parser.parse_args()
    judge, levels = RuntimeJudge(), tuple(options.optimize.split(","))
    names = options.ops.split(",") if options.ops else None
    report, end = Report(), options.first + options.graphs
    for first in range(options.first, end, PART):
        part = sweep(range(first, min(first + PART, end)), judge, names=names, steps=options.steps, optimize=levels)
        report.add(part)
        print(f"{report.graphs} graphs, {len(report.findings)} differ", file=sys.stderr)
        for seed, finding in part.findings:
            print(f"  seed {seed}: {finding}", file=sys.stderr)
    print(report.text())
    for reason, count in judge.excluded.most_common():
        print(f"  {count} calls taken back: {reason}")
    for seed in dict.fromkeys(seed for seed, _ in report.findings):
        graph = random_graph(Seeded(seed), judge=judge, names=names, steps=options.steps)
        print(f"seed {seed}:\n{graph.reduced(lambda g: bool(check(g, optimize=levels)[0]))}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
