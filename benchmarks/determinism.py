"""Whether the bytes written depend on the hash seed of the interpreter.

``python -m benchmarks.determinism FOLDER [--quick]`` writes the models and prints the digest of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import irkit as ik
from benchmarks.measure import ROOT, Row, Table
from examples.light_models import light_model_path, magika_model_path

__all__ = ["run"]

SEEDS = (0, 1, 4242)
LIGHT = ("squeezenet", "shufflenet", "inception_v1", "resnet50", "densenet121")


def models(quick: bool) -> Iterator[tuple[str, Any]]:
    """(name, source) of what is written."""
    from tests.corpus.features import feature_models

    for name in LIGHT[:1] if quick else LIGHT:
        yield name, light_model_path(name)
    yield "magika", magika_model_path()
    for index, (name, model) in enumerate(feature_models()):
        if not quick or index < 10:
            yield f"feature_{name}", model


def write(folder: Path, quick: bool) -> dict[str, str]:
    """Writes each model after O2, as ONNX and as text; the digest of every file by its name."""
    for name, source in models(quick):
        module = ik.optimize(ik.load(source), "O2")
        ik.save(module, folder / f"{name}.onnx")
        ik.save(module, folder / f"{name}.mlir")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def run(quick: bool = False) -> Table:
    """Compares the files of three processes."""
    found: list[dict[str, str]] = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.determinism", folder, *(["--quick"] if quick else [])]
            env = {**os.environ, "PYTHONHASHSEED": str(seed)}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=env)
            found.append(json.loads(done.stdout))
    names = sorted(set().union(*found))
    differing = [name for name in names if len({files.get(name) for files in found}) > 1]
    rows = []
    for suffix, what in ((".onnx", "ONNX files"), (".mlir", "text files"), (".safetensors", "sidecars of the text")):
        mine = [name for name in names if name.endswith(suffix)]
        bad = [name for name in mine if name in differing]
        same = f"{len(mine) - len(bad)} of {len(mine)} the same" + (f" (not {', '.join(bad[:3])})" if bad else "")
        rows.append(Row(what, same, bar="all", met=bool(mine) and not bad))
    return Table(
        "The same bytes every time",
        f"Models go through O2 and are written by three processes with PYTHONHASHSEED {', '.join(map(str, SEEDS))}.",
        rows=rows,
    )


def main() -> None:
    """Prints the digests as JSON."""
    print(json.dumps(write(Path(sys.argv[1]), "--quick" in sys.argv)))


if __name__ == "__main__":
    main()
