"""Real Keras models: how long irkit takes to read them, how many nodes there are, and how fast they run.

    python -m benchmarks.keras_models [--torch PYTHON] [NAME ...]

With ``--torch``, an interpreter that has Keras, torch and onnxscript, the same model with the same weights is exported
there by Keras itself (``model.export(format="onnx")`` on its torch backend), and both files run in turns on
onnxruntime, at batch 1 on one thread. Times of reading are CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import irkit as ik
from irkit.frontends import keras as from_keras
from irkit.frontends.keras.adapter import api

NAMES = ("MobileNetV2", "EfficientNetB0", "ResNet50")
BARS = {"MobileNetV2": (0.6, 108), "EfficientNetB0": (0.6, 284), "ResNet50": (None, 128)}
"""At most so many CPU seconds to read, and nodes after O3."""
TURNS = 30
EXPORT = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
model = getattr(keras.applications, sys.argv[1])(weights=None, classifier_activation=None)
model.load_weights(sys.argv[2])
model(np.zeros((1, *model.input_shape[1:]), np.float32))  # Keras exports no model that was never called.
model.export(sys.argv[3], format="onnx", verbose=False)
"""
SKIPPED = frozenset({"onnx.Initializer", "onnx.Constant", "onnx.NoValue", "func.return"})


def nodes(module: ik.Module) -> int:
    """How many ops of the main graph compute something."""
    return sum(op.name not in SKIPPED for op in module.block.ops)


def cpu_of(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the CPU seconds that it took."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def session(path: Path) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def latencies(paths: list[Path], image: np.ndarray) -> tuple[list[float], float]:
    """Milliseconds of each file, run in turns; and how far the results are apart, relative to the greatest number."""
    sessions = [session(path) for path in paths]
    feeds = [{s.get_inputs()[0].name: image} for s in sessions]
    results = [np.asarray(s.run(None, f)[0]) for s, f in zip(sessions, feeds, strict=True)]
    taken: list[list[float]] = [[] for _ in sessions]
    for _ in range(TURNS):
        for times, run, feed in zip(taken, sessions, feeds, strict=True):
            start = time.process_time()
            run.run(None, feed)
            times.append((time.process_time() - start) * 1e3)
    apart = max(float(np.abs(r - results[0]).max()) for r in results) / max(float(np.abs(results[0]).max()), 1e-30)
    return [statistics.median(times) for times in taken], apart


def measure(name: str, torch: str | None, folder: Path) -> bool:
    """Prints one line; returns whether the bars are met."""
    # Without its softmax, which makes all outputs of an untrained network alike.
    model = getattr(api().applications, name)(weights=None, classifier_activation=None)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if variable.path.endswith(("gamma", "moving_variance")):
            variable.assign(rng.uniform(0.8, 1.2, variable.shape))
    module, reading = cpu_of(lambda: from_keras.load(model, check=False))
    small, optimizing = cpu_of(lambda: ik.optimize(module, "O3"))
    ours = folder / f"{name}.onnx"
    ik.save(small, ours)
    seconds, most = BARS.get(name, (None, None))
    met = (seconds is None or reading <= seconds) and (most is None or nodes(small) <= most)
    line = f"{name:20} read {reading:5.2f} s, O3 {optimizing:5.2f} s, nodes {nodes(module)} -> {nodes(small)}"
    image = np.random.default_rng(0).uniform(-1, 1, (1, *model.input_shape[1:])).astype(np.float32)
    paths = [ours]
    if torch is not None:
        weights, theirs = folder / f"{name}.weights.h5", folder / f"{name}-torch.onnx"
        model.save_weights(weights)
        start = time.perf_counter()
        subprocess.run(
            [torch, "-c", EXPORT, name, str(weights), str(theirs)],
            check=True,
            capture_output=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        line += f"; Keras on torch: export {time.perf_counter() - start:.0f} s"
        paths.append(theirs)
    times, apart = latencies(paths, image)
    line += "; onnxruntime " + " against ".join(f"{t:.1f} ms" for t in times)
    if len(times) > 1:
        line += f", results apart {apart:.0e}"
        met &= times[0] <= times[1] * 1.05
    print(line, "" if met else "(bar missed)", flush=True)
    return met


def main() -> int:
    """Measures the models named; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter with Keras, torch and onnxscript")
    given = parser.parse_args()
    keras = api()
    # What is loaded first pays for imports.
    from_keras.load(keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(2, 3)]), check=False)
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(name, given.torch, Path(folder)) for name in given.names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
