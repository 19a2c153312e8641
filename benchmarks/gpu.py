"""Whether the CUDA provider of onnxruntime really runs the demo's models, and computes what the CPU computes.

``python -m benchmarks.gpu`` (or ``make gpu``). On a machine without an NVIDIA GPU it says so and succeeds.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import irkit as ik
from examples.demo import models, worst

TOLERANCE = 2e-3
"""Of each output's scale: CUDA's convolutions use TF32 or other algorithms than the CPU's."""
RUNS = 10

WIDTHS = (14, 10, 12, 11, 10, 10, 10)
HEAD = ("model", "on CUDA", "on CPU", "difference", "varies", "CUDA ms", "CPU ms")


def reason_to_skip() -> str | None:
    """Why there is nothing to measure here, or None."""
    if shutil.which("nvidia-smi") is None:
        return "this machine has no NVIDIA driver (nvidia-smi is not there)"
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if found.returncode or "GPU" not in found.stdout:
        return f"nvidia-smi lists no GPU: {(found.stdout or found.stderr).strip()}"
    return None


def nodes_by_provider(compiled: Any, feeds: dict[str, np.ndarray]) -> dict[str, int]:
    """How many nodes ran on each provider, from onnxruntime's own profile of a run."""
    compiled.run(feeds)
    counts: dict[str, int] = {}
    for node in compiled.profile():
        counts[node.provider] = counts.get(node.provider, 0) + 1
    return counts


def milliseconds(compiled: Any, feeds: dict[str, np.ndarray]) -> float:
    """The median time of a run, copies to and from the device included, after a warm-up."""
    compiled.run(feeds)
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        compiled.run(feeds)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def line(cells: tuple[str, ...]) -> str:
    """A line of the table."""
    return "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, WIDTHS, strict=True)))


def main() -> int:
    """Prints the table; returns 1 if a model did not run on CUDA, or computed something else there."""
    skip = reason_to_skip()
    if skip is not None:
        print(f"skipped: {skip}")
        return 0
    print(line(HEAD))
    bad: list[str] = []
    for name, model, feeds, others in models():
        module = ik.load(model)
        counts = nodes_by_provider(ik.compile(module, "onnxruntime", device="cuda", profile=True), feeds)
        on_cuda = counts.get("CUDAExecutionProvider", 0)
        cuda, cpu = ik.compile(module, "onnxruntime", device="cuda"), ik.compile(module, "onnxruntime")
        expected = cpu.run(feeds)
        difference, spread = worst(expected, cuda.run(feeds)), worst(expected, cpu.run(others))
        fast, slow = milliseconds(cuda, feeds), milliseconds(cpu, feeds)
        on_cpu = sum(counts.values()) - on_cuda
        cells = (
            name,
            f"{on_cuda} nodes",
            f"{on_cpu} nodes",
            f"{difference:.1e}",
            f"{spread:.2f}",
            f"{fast:.1f}",
            f"{slow:.1f}",
        )
        print(line(cells), flush=True)
        if on_cuda <= on_cpu or difference > TOLERANCE or difference > spread / 10:
            bad.append(name)
    print("CUDA ran the models, and agrees with the CPU." if not bad else f"NOT WELL: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
