"""The main job on real models: load, optimize with every pass checked, run on two backends, compare, write, read back.

The models are the nine image classifiers that the onnx package ships (with random weights, since theirs are constants)
and magika's trained file-type classifier. Everything is written into the folder given, or ``out/demo``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

import irkit as ik

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.light_models import (
    LIGHT_MODELS,
    add_logits_output,
    light_feeds,
    light_model,
    magika_feeds,
    magika_model_path,
)

Feeds = dict[str, np.ndarray]

HEAD = ("model", "nodes", "after O2", "numpy", "onnxruntime", "across", "varies", "read back", "seconds")
WIDTHS = (14, 6, 9, 9, 12, 9, 7, 10, 8)
LEGEND = """\
numpy, onnxruntime: how far O2 moves the outputs there; across: how far the two backends are apart; varies: how far the
outputs of two inputs are apart. All as parts of each output's scale. read back: the MLIR text gives the same module.
"""
SAME = 1e-5
ROUNDING = 1e-3
"""Backends add up float32 numbers in other orders: they may differ by so much of what another input changes."""


def models() -> Iterator[tuple[str, onnx.ModelProto, Feeds, Feeds]]:
    """(name, model, feeds, other feeds). What goes into a final Softmax is an output too: with random weights the
    probabilities saturate, and would hide differences."""
    path = magika_model_path()
    yield "magika", onnx.load(path), magika_feeds(seed=0), magika_feeds(seed=1)
    for name in LIGHT_MODELS:
        model = light_model(name)
        add_logits_output(model)
        yield name, model, light_feeds(model, seed=0), light_feeds(model, seed=1)


def worst(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    """The largest difference between two sets of outputs, relative to the scale of each output."""
    return max(float(np.max(np.abs(a[n] - b[n])) / max(float(np.max(np.abs(a[n]))), 1e-30)) for n in a)


def nodes(module: ik.Module) -> int:
    """How many ops compute something."""
    return sum(
        op.name not in ("onnx.Initializer", "onnx.Constant", "onnx.NoValue", "func.return") for op in module.block.ops
    )


def run(name: str, model: onnx.ModelProto, feeds: Feeds, others: Feeds, folder: Path) -> tuple[list[str], bool]:
    """One model through everything; a row of the table, and whether all is well."""
    start = time.perf_counter()
    source = ik.load(model)
    optimized = ik.optimize(source, "O2", check="end")
    before, after = {}, {}
    for backend, options in (("numpy", {}), ("onnxruntime", {"optimize": "none"})):
        before[backend] = ik.compile(source, backend, **options)
        after[backend] = ik.compile(optimized, backend, **options).run(feeds)
    results = {backend: compiled.run(feeds) for backend, compiled in before.items()}
    moved = {backend: worst(results[backend], after[backend]) for backend in before}
    across = worst(after["numpy"], after["onnxruntime"])
    spread = worst(results["numpy"], before["numpy"].run(others))
    ik.save(optimized, folder / f"{name}.onnx")
    ik.save(optimized, folder / f"{name}.mlir")
    back = ik.load(folder / f"{name}.mlir") == optimized
    again = ik.compile(ik.load(folder / f"{name}.onnx"), "onnxruntime", optimize="none").run(feeds)
    seconds = time.perf_counter() - start

    same = max(*moved.values(), worst(after["onnxruntime"], again)) <= SAME
    well = same and across <= ROUNDING * spread and spread > 0.01 and back
    row = [
        name,
        str(nodes(source)),
        str(nodes(optimized)),
        f"{moved['numpy']:.1e}",
        f"{moved['onnxruntime']:.1e}",
        f"{across:.1e}",
        f"{spread:.2f}",
        "equal" if back else "DIFFERS",
        f"{seconds:.1f}",
    ]
    return row, well


def line(cells: Sequence[str]) -> str:
    """A line of the table: the first column to the left, numbers to the right."""
    return "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS, strict=True)))


def main() -> int:
    """Prints a row a model as it is done; returns 1 if any is not well."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo")
    folder.mkdir(parents=True, exist_ok=True)
    print(LEGEND)
    print(line(HEAD))
    print(line(["-" * w for w in WIDTHS]))
    bad: list[str] = []
    for name, model, feeds, others in models():
        row, well = run(name, model, feeds, others, folder)
        print(line(row), flush=True)
        if not well:
            bad.append(name)
    print(f"\nONNX and MLIR text are in {folder}.")
    print("O2 changed what no model means." if not bad else f"NOT WELL: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
