"""All that is measured, in one command: ``python -m benchmarks [names...] [--quick] [--write-docs]``.

Prints a table for each benchmark and ends with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import ROOT, Row, Table

NAMES = ("startup", "speed", "text", "memory", "determinism", "models", "corpora", "training", "numpy_speed")
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
PACKAGES = ("numpy", "onnx", "xdsl", "onnxruntime", "onnxscript", "onnxslim")

INTRODUCTION = """# Benchmarks

What `make bench` measures and what it found. The page is written by `python -m benchmarks --write-docs`: figures are
those of the machine below, and what counts is the ratios, since both sides of one were measured in the same run.
"""


def text_table(quick: bool) -> Table:
    """The benchmark of ``benchmarks.text``, held against its bars."""
    from benchmarks import text

    bars = {"print": 4, "parse": 8}
    rows = [
        Row(
            f"{row.job} {row.ops:,} ops",
            f"{row.ours:.2f} s",
            f"{row.stock:.2f} s",
            row.ours / row.stock,
            f"<= 1/{bars[row.job]}",
            row.ratio >= bars[row.job],
        )
        for row in text.run(2_000 if quick else text.OPS)
    ]
    return Table(
        "MLIR text",
        "CPU time of printing a module and of parsing its text, against stock xDSL, which is made sure to print the "
        "same bytes and to parse them to the same module. The best of several runs on either side.",
        "xDSL",
        rows,
    )


def table(name: str, quick: bool) -> Table:
    """Runs one benchmark. What it fails with is a line of its table."""
    try:
        return text_table(quick) if name == "text" else importlib.import_module(f"benchmarks.{name}").run(quick)
    except Exception as error:
        return Table(name, "", rows=[Row(f"failed: {type(error).__name__}: {error}", "", met=False)])


def cells(found: Table) -> list[list[str]]:
    """The lines of a table as text, the heading first."""
    mark = {True: "yes", False: "NO", None: ""}
    lines = [["", "irkit", found.other, "ratio", "bar", "met"]]
    for row in found.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append([row.what, row.ours, row.other, ratio, row.bar, mark[row.met]])
    used = [any(line[column] for line in lines[1:]) for column in range(len(lines[0]))]
    return [[cell for cell, wanted in zip(line, used, strict=True) if wanted] for line in lines]


def for_terminal(found: Table) -> str:
    """A table with aligned columns."""
    lines = cells(found)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([found.title, "", *drawn[:1], "  ".join("-" * w for w in widths), *drawn[1:], ""])


def for_page(found: Table) -> str:
    """A section of the page."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells(found)]
    lines.insert(1, "|" + " --- |" * len(cells(found)[0]))
    return "\n".join([f"## {found.title}", "", found.how, "", *lines, ""])


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line.partition(":") for line in info.read_text().splitlines()]
        names = [value.strip() for key, _, value in lines if key.strip() == "model name"]
        model = f"{len(names)} cores, {names[0]}" if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"Measured on {model}; Python {platform.python_version()}, {packages}.\n"


def main() -> int:
    """Runs the benchmarks asked for; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller models and fewer runs")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.relative_to(ROOT)}, too")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark '{unknown[0]}'; there are: {', '.join(NAMES)}")
    if options.write_docs and (options.names or options.quick):
        parser.error("the page is written from a whole run: leave out names and --quick")
    tables: list[Table] = []
    for name in options.names or NAMES:
        start = time.monotonic()
        tables.append(table(name, options.quick))
        print(for_terminal(tables[-1]), f"\n({time.monotonic() - start:.0f} s)\n", sep="", flush=True)
    missed = [row.what for found in tables for row in found.rows if row.met is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every bar is met")
    if options.write_docs:
        PAGE.write_text("\n".join([INTRODUCTION, machine(), *map(for_page, tables)]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
