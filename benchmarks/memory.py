"""Memory on a model whose weights stand in a file of 2.4 GB.

``python -m benchmarks.memory SIDE SOURCE TARGET`` runs one side in this process and prints what it took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import irkit as ik
from benchmarks.measure import MB, ROOT, Anonymous, Row, Table, quiet, resident

__all__ = ["make_model", "run"]

WIDTH, WEIGHTS = 5000, 24
LOAD_MOST, SAVE_MOST = 150, 300


def make_model(path: Path, weights: int, width: int = WIDTH) -> int:
    """Writes a chain of MatMul and Relu whose weights stand in ``<name>.data``, each with its own bytes.

    Returns:
        The size of the weights.
    """
    size = 4 * width * width
    data = path.with_suffix(".data")
    block = np.random.default_rng(0).standard_normal(MB, dtype=np.float32)
    nodes, initializers = [], []
    with data.open("wb") as file:
        for index in range(weights):
            scaled = memoryview(block * np.float32(0.01 * (index + 1))).cast("B")
            for start in range(0, size, scaled.nbytes):
                file.write(scaled[: size - start])
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", str(index * size)), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
            initializers.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"v{index}", f"w{index}"], [f"h{index}"], name=f"matmul_{index}"))
            nodes.append(helper.make_node("Relu", [f"h{index}"], [f"v{index + 1}"], name=f"relu_{index}"))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info(f"v{weights}", TensorProto.FLOAT, ["batch", width])],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return weights * size


def ours_load(source: Path) -> Any:
    """Loads and optimizes with irkit."""
    return ik.optimize(ik.load(source), "O2")


def ours_save(model: Any, target: Path) -> None:
    """Saves with irkit, the weights beside the model."""
    ik.save(model, target, external_data=True)


def peer_load(source: Path) -> Any:
    """Loads and optimizes with onnxscript."""
    import onnx_ir
    from onnxscript import optimizer

    model = onnx_ir.load(source)
    optimizer.optimize(model)
    return model


def peer_save(model: Any, target: Path) -> None:
    """Saves with onnx-ir, the weights beside the model."""
    import onnx_ir

    onnx_ir.save(model, target, external_data=f"{target.name}.data")


SIDES: dict[str, tuple[Callable[[Path], Any], Callable[[Any, Path], None]]] = {
    "ours": (ours_load, ours_save),
    "peer": (peer_load, peer_save),
}


def measure(side: str, source: Path, target: Path) -> dict[str, float]:
    """How much memory (MB) and CPU time one side takes, after it has gone through a small model once."""
    load, save = SIDES[side]
    with tempfile.TemporaryDirectory() as name, quiet():
        small = Path(name) / "small.onnx"
        make_model(small, 2, 32)
        save(load(small), Path(name) / "out.onnx")
        anonymous, mapped = resident()
        start = time.process_time()
        with Anonymous() as loading:
            model = load(source)
        loaded, mapped_after = resident()[1], time.process_time()
        with Anonymous() as saving:
            save(model, target)
    return {
        "load": (loading.peak - anonymous) / MB,
        "load_mapped": (loaded - mapped) / MB,
        "load_seconds": mapped_after - start,
        "save": (saving.peak - anonymous) / MB,
        "save_mapped": (resident()[1] - mapped) / MB,
        "save_seconds": time.process_time() - mapped_after,
    }


def _same_weights(source: Path, target: Path, weights: int) -> bool:
    """Whether each weight of the file written has the bytes that it had in the one read."""
    before, after = (_mapped(path) for path in (source, target))
    return len(before) == weights and all(np.array_equal(before[name], after.get(name)) for name in before)


def _mapped(path: Path) -> dict[str, Any]:
    found = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        offset, count = int(place["offset"]), int(place["length"]) // 8
        found[tensor.name] = np.memmap(path.parent / place["location"], np.uint64, "r", offset, (count,))
    return found


def run(quick: bool = False) -> Table:
    """Measures each side in a process of its own; ``quick`` takes a sixth of the weights.

    Raises:
        AssertionError: if the weights saved are not those loaded.
    """
    weights = WEIGHTS // 6 if quick else WEIGHTS
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "large.onnx"
        size = make_model(source, weights)
        for side in SIDES:
            target = Path(name) / f"{side}.onnx"
            command = [sys.executable, "-m", "benchmarks.memory", side, str(source), str(target)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT)
            found[side] = json.loads(done.stdout)
            if side == "ours":
                assert _same_weights(source, target, weights), "the weights saved are not those loaded"
            for path in Path(name).glob(f"{side}*"):
                path.unlink()
    rows = [
        _row(found, "load", "load and O2", LOAD_MOST),
        _row(found, "save", "save to another file, all that was held till then included", SAVE_MOST),
    ]
    return Table(
        f"Memory: a model with {size / 1e9:.1f} GB of external data",
        "Growth of the process's anonymous resident memory at its peak (RssAnon of /proc/self/status, sampled every 2 "
        "ms), in a process that has gone through a small model before. Pages mapped from files, which the system can "
        "drop at any time, are told apart. The weights saved are compared with those loaded.",
        "onnxscript",
        rows,
    )


def _row(found: dict[str, dict[str, float]], key: str, what: str, most: int) -> Row:
    texts = [
        f"{side[key]:.1f} MB (mapped: {side[f'{key}_mapped']:.0f} MB), {side[f'{key}_seconds']:.1f} s"
        for side in found.values()
    ]
    ours, peer = found["ours"][key], found["peer"][key]
    ratio = ours / peer if peer > 0 else None
    return Row(what, texts[0], texts[1], ratio, f"<= {most} MB", ours <= most)


def main() -> None:
    """Prints the figures of one side as JSON."""
    side, source, target = sys.argv[1:]
    print(json.dumps(measure(side, Path(source), Path(target))))


if __name__ == "__main__":
    main()
