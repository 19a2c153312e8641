"""Speed and memory of the NumPy backend against onnxruntime and the reference evaluator of onnx, on one thread.

``python -m benchmarks.numpy_speed NET [TURNS] [REFERENCE]`` measures one network in this process and prints JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import irkit as ik
from benchmarks.measure import ROOT, Row, Table, paired
from benchmarks.nets import NETS

__all__ = ["BARS", "Bar", "Figures", "measure", "run"]

CLOSE = 1e-4
"""How far results may be from onnxruntime's, as a part of their scale."""

LEAST_SECONDS = 0.1
"""A net is run so often in a turn that the faster side takes at least this long."""

MEMORY_MOST = 1.3
REFERENCE_LEAST = 10


@dataclass(frozen=True)
class Bar:
    """A net and what is asked of it, as multiples of onnxruntime's time: the floor must be met, the goal is hoped for.

    Attributes:
        what: the net in words.
    """

    what: str
    floor: float
    goal: float


BARS = {
    "squeezenet": Bar("squeezenet", 1.8, 1.3),
    "resnet50": Bar("resnet50", 1.8, 1.3),
    "densenet121": Bar("densenet121", 2.0, 1.5),
    "shufflenet": Bar("shufflenet", 3.5, 2.0),
    "depthwise": Bar("MobileNet-like depthwise net", 3.5, 2.0),
    "encoder": Bar("transformer encoder layer, e768, s128", 1.3, 1.1),
    "mlp": Bar("MLP, batch 32", 1.7, 1.3),
    "elementwise10": Bar("200 elementwise ops, n=10", 1.5, 1.0),
    "elementwise1M": Bar("200 elementwise ops, n=1M", 0.5, 0.3),
}


@dataclass(frozen=True)
class Figures:
    """What one net took: CPU seconds of one run on each side, and memory.

    Attributes:
        ratio: of ours to onnxruntime's, the median over the turns.
        reference: CPU seconds of one run of onnx's reference evaluator; 0 where it was not run.
        peak, bound: bytes of activations that our run held at most, and the most that are live at once.
    """

    ours: float
    onnxruntime: float
    ratio: float
    reference: float
    peak: int
    bound: int


def measure(name: str, turns: int, with_reference: bool) -> Figures:
    """Measures one net in this process.

    Raises:
        AssertionError: if the results are not those of onnxruntime.
    """
    import onnxruntime

    model, feeds = NETS[name]()
    module = ik.load(model)
    ours = ik.compile(module, backend="numpy")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    _agree(ours.run(feeds), dict(zip(names, session.run(None, feeds), strict=True)))
    start = time.process_time()
    session.run(None, feeds)
    times = max(1, int(LEAST_SECONDS / max(time.process_time() - start, 1e-6)))
    found = paired(_repeat(lambda: ours.run(feeds), times), _repeat(lambda: session.run(None, feeds), times), turns)
    memory = ours.memory(feeds)
    reference = _reference(module, feeds) if with_reference else 0.0
    return Figures(found.ours / times, found.other / times, found.ratio, reference, memory.peak, memory.bound)


def _repeat(work: Callable[[], object], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


def _agree(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares the last output. Of the light models it is what goes into their softmax, which magnifies roundings."""
    name, wanted = list(expected.items())[-1]
    scale = float(np.abs(wanted).max())
    distance = float(np.abs(found[name] - wanted).max())
    assert distance <= CLOSE * scale, f"'{name}' differs from onnxruntime's by {distance:.3g} of {scale:.3g}"


def _reference(module: ik.Module, feeds: dict[str, np.ndarray]) -> float:
    """One run at the newest opset, at which the evaluator is right on all nets."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(module.to_onnx())
    start = time.process_time()
    evaluator.run(None, feeds)
    return time.process_time() - start


def run(quick: bool = False) -> Table:
    """Measures each net in a process of its own; ``quick`` takes fewer turns, and no densenet121."""
    rows: list[Row] = []
    for name, bar in BARS.items():
        if quick and name == "densenet121":
            continue
        found = _child(name, 5 if quick else 15)
        rows += _rows(bar, found)
    return Table(
        "NumPy backend",
        "CPU time of one run, all on one thread: onnxruntime with its own optimizations, and ours as `ik.compile` "
        "makes it of the same model. The two take turns of at least 0.1 s in one process, a process for each net; the "
        "ratio is the median over 15 turns. The floor must be met, and the goal is hoped for. onnx's reference "
        "evaluator runs once; it multiplies with the same BLAS, so that nets of little but dense layers cannot be ten "
        "times as fast. Results are compared with onnxruntime's first. Of memory: the most bytes of activations that a "
        "run holds, against the bytes of the values that are live at once.",
        "peer",
        rows,
    )


def _child(name: str, turns: int) -> Figures:
    """The figures of a net, measured in a fresh process in which BLAS has one thread and chooses its own kernels."""
    env = {key: value for key, value in os.environ.items() if key not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    env |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.numpy_speed", name, str(turns), "1"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=env)
    return Figures(**json.loads(done.stdout))


def _rows(bar: Bar, found: Figures) -> list[Row]:
    ours = _milliseconds(found.ours)
    goal = "met" if found.ratio <= bar.goal else "missed"
    speedup = found.reference / found.ours
    memory = found.peak / found.bound if found.bound else 1.0
    return [
        Row(
            bar.what,
            ours,
            f"onnxruntime {_milliseconds(found.onnxruntime)}",
            found.ratio,
            f"<= {bar.floor} (goal {bar.goal}: {goal})",
            found.ratio <= bar.floor,
        ),
        Row(
            f"{bar.what}, the reference",
            ours,
            f"onnx.reference {_milliseconds(found.reference)}",
            found.ours / found.reference,
            f"<= 1/{REFERENCE_LEAST}",
            speedup >= REFERENCE_LEAST,
        ),
        Row(
            f"{bar.what}, memory",
            f"{found.peak / 1e6:.3g} MB",
            f"live at once {found.bound / 1e6:.3g} MB",
            memory,
            f"<= {MEMORY_MOST}",
            memory <= MEMORY_MOST,
        ),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def main() -> None:
    """Prints the figures of one net as JSON."""
    name, turns, reference = (*sys.argv[1:], "11", "0")[:3]
    print(json.dumps(asdict(measure(name, int(turns), reference == "1"))))


if __name__ == "__main__":
    main()
