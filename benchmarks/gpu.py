"""Whether an NVIDIA GPU really runs the models, gives the CPU's results, and how fast: ``make gpu``.

Every model is optimized and run by onnxruntime on the CPU and on CUDA. It passes if a profile shows all its heavy nodes
on the CUDA provider, its outputs are the CPU's but for a small part of their scale, and they vary with the input by
much more than that. On a machine without an NVIDIA GPU it says so and succeeds; with one that cannot be used it fails.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Run as a script, only the script's own folder is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx

import irkit as ik
from examples.light_models import (
    LIGHT_MODELS,
    add_logits_output,
    light_feeds,
    light_model,
    logits_output,
    magika_feeds,
    magika_model_path,
)

__all__ = ["Outcome", "gpu_names", "main", "measure"]

MOST = 1e-4
"""The error allowed, as a part of the output's scale: convolutions on a GPU add up in another order."""

CUDA = "CUDAExecutionProvider"
HEAVY = ("Conv", "FusedConv", "Gemm", "MatMul", "FusedMatMul", "FusedGemm", "LayerNormalization", "Attention")
"""What takes the time, under the names that onnxruntime gives to its fused nodes, too."""

Feeds = Mapping[str, Any]


@dataclass
class Outcome:
    """What running one model showed.

    Attributes:
        name: the model's.
        on_cuda, elsewhere: how many nodes ran on the CUDA provider, and on others.
        strays: the heavy nodes that ran elsewhere.
        error: the largest difference from the CPU's results, as a part of the output's scale.
        variation: how much another input changes the outputs, likewise.
        cpu_ms, gpu_ms: medians over runs, copies to and from the GPU included.
    """

    name: str
    on_cuda: int
    elsewhere: int
    strays: dict[str, int]
    error: float
    variation: float
    cpu_ms: float
    gpu_ms: float

    @property
    def problems(self) -> list[str]:
        """Why the model does not pass."""
        found: list[str] = []
        if self.on_cuda == 0:
            found.append("no node ran on CUDA")
        if self.strays:
            found.append(f"not on CUDA: {', '.join(f'{n} x {op}' for op, n in self.strays.items())}")
        if not self.error <= MOST:
            found.append(f"the results differ by {self.error:.2g} of their scale, at most {MOST:g} is allowed")
        if not self.variation >= 10 * max(self.error, 1e-7):
            found.append(f"another input changes the results by only {self.variation:.2g} of their scale")
        return found


def sources(names: tuple[str, ...]) -> Iterator[tuple[str, Any, str, Feeds, Feeds]]:
    """(name, model, the output to compare, feeds, other feeds) of each model."""
    if "magika" in names:
        model = onnx.load(magika_model_path())
        yield "magika", model, logits_output(model), magika_feeds(8, 0), magika_feeds(8, 1)
    for name in LIGHT_MODELS:
        if name in names:
            model = light_model(name)
            # Softmax saturates with random weights: what goes into it is compared.
            yield name, model, add_logits_output(model), light_feeds(model, 0), light_feeds(model, 1)


def _median_ms(run: Any, feeds: Feeds, runs: int) -> float:
    run.run(feeds)
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        run.run(feeds)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference as a part of the scale of ``a``; infinite where they cannot be compared."""
    if a.shape != b.shape or a.dtype != b.dtype or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max()) / float(np.abs(a).max())


def measure(
    name: str, model: Any, output: str, feeds: Feeds, other: Feeds, *, device: str = "cuda", runs: int = 20
) -> Outcome:
    """Runs one model on the CPU and on a device."""
    module = ik.optimize(ik.load(model), "O2")
    on_cpu = ik.compile(module, "onnxruntime")
    expected = on_cpu.run(feeds)[output]
    variation = _difference(expected, on_cpu.run(other)[output])
    cpu_ms = _median_ms(on_cpu, feeds, runs)
    on_device = ik.compile(module, "onnxruntime", device=device)
    error = _difference(expected, on_device.run(feeds)[output])
    gpu_ms = _median_ms(on_device, feeds, runs)
    watched: Any = ik.compile(module, "onnxruntime", device=device, profile=True)
    watched.run(feeds)
    nodes = watched.profile
    strays = Counter(node.op_type for node in nodes if node.provider != CUDA and node.op_type in HEAVY)
    on_cuda = sum(node.provider == CUDA for node in nodes)
    return Outcome(name, on_cuda, len(nodes) - on_cuda, dict(strays), error, variation, cpu_ms, gpu_ms)


def gpu_names() -> list[str]:
    """The NVIDIA GPUs of this machine, as its driver lists them."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _tiny() -> ik.Module:
    builder = ik.Builder("tiny")
    builder.output(builder.Relu(builder.input("x", "float32", [1])), "y")
    return builder.module()


def main(arguments: list[str] | None = None) -> int:
    """Runs all models; 1 if one does not pass, 0 if all do or there is no GPU."""
    known = ("magika", *LIGHT_MODELS)
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.py", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="model", help=f"some of: {', '.join(known)} (default: all)")
    names: list[str] = parser.parse_args(arguments).models or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no model '{unknown[0]}'; there are: {', '.join(known)}")
    found = gpu_names()
    if not found:
        print("skipped: this machine has no NVIDIA GPU (nvidia-smi is not there, or lists none)")
        return 0
    try:
        ik.compile(_tiny(), "onnxruntime", device="cuda")
    except ik.IrkitError as error:
        print(f"there is {found[0]}, but onnxruntime cannot use it.\n{error}")
        return 1
    print(f"onnxruntime on {found[0]} against the CPU; float32, TF32 off, medians with copies included\n")
    print(
        f"{'model':<14}{'on CUDA':>8}{'others':>8}{'error':>10}{'varies':>10}{'CPU ms':>10}{'GPU ms':>10}{'ratio':>8}"
    )
    failed = 0
    for source in sources(tuple(names)):
        row = measure(*source)
        print(
            f"{row.name:<14}{row.on_cuda:>8}{row.elsewhere:>8}{row.error:>10.1e}{row.variation:>10.1e}"
            f"{row.cpu_ms:>10.2f}{row.gpu_ms:>10.2f}{row.cpu_ms / row.gpu_ms:>8.1f}",
            flush=True,
        )
        for problem in row.problems:
            print(f"  FAILED: {problem}")
        failed += bool(row.problems)
    print(
        f"\n{failed} of {len(names)} models failed" if failed else "\nall models run on the GPU and agree with the CPU"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
