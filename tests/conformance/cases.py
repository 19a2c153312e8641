"""The cases of ONNX's official backend test suite, as data.

The suite's generators import onnx's reference implementation. A run that is to show that the backend stands on its own
must not: so the cases are collected once, by ``python -m tests.conformance.cases FILE`` in a process of its own, and
kept beside the byte code, by version of onnx.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

CATEGORIES = ("node", "expanded", "simple", "pytorch-converted", "pytorch-operator", "real")

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@dataclass
class Case:
    """One test of the suite.

    Attributes:
        model: a serialized ModelProto.
        data: per data set the inputs by name, and the outputs expected, in order.
    """

    name: str
    category: str
    model: bytes
    data: list[tuple[dict[str, Any], list[Any]]]
    rtol: float
    atol: float


def load_cases() -> list[Case]:
    """All cases, in the order of ``CATEGORIES`` and by name."""
    file = Path(__file__).parent / "__pycache__" / f"cases-{onnx.__version__}.pickle"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        command = [sys.executable, "-m", "tests.conformance.cases", str(temporary)]
        subprocess.run(command, cwd=ROOT, check=True)
        # Whoever comes first wins; both wrote the same.
        temporary.replace(file)
    return pickle.loads(file.read_bytes())


def collect() -> list[Case]:
    """The cases, generated and read from the files of the onnx package."""
    cases = [*_node_cases(), *_real_cases()]
    for category in ("simple", "pytorch-converted", "pytorch-operator"):
        cases += [_disk_case(folder, category) for folder in sorted((DATA / category).iterdir()) if folder.is_dir()]
    return sorted(cases, key=lambda case: (CATEGORIES.index(case.category), case.name))


def _node_cases() -> list[Case]:
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    made: list[Case] = []
    for test in found:
        category = "expanded" if re.search(r"_expanded(_ver\d+)?$", test.name) else "node"
        names = [info.name for info in test.model.graph.input]
        data = [
            (dict(zip(names, map(_array, inputs), strict=True)), list(map(_array, outputs)))
            for inputs, outputs in test.data_sets
        ]
        made.append(Case(test.name, category, test.model.SerializeToString(), data, test.rtol, test.atol))
    return made


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _disk_case(folder: Path, category: str) -> Case:
    model = onnx.load(folder / "model.onnx")
    settings = json.loads((folder / "data.json").read_text()) if (folder / "data.json").exists() else {}
    data: list[tuple[dict[str, Any], list[Any]]] = []
    for data_set in sorted(folder.glob("test_data_set*")):
        inputs = _files(data_set, "input", model.graph.input)
        names = [info.name for info in model.graph.input]
        data.append((dict(zip(names, inputs, strict=False)), _files(data_set, "output", model.graph.output)))
    return Case(
        folder.name,
        category,
        model.SerializeToString(),
        data,
        settings.get("rtol", 1e-3),
        settings.get("atol", 1e-7),
    )


def _files(folder: Path, kind: str, infos: Any) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [_read(folder / f"{kind}_{i}.pb", infos[i].type) for i in range(count)]


def _read(file: Path, value_type: onnx.TypeProto) -> Any:
    content = file.read_bytes()
    match value_type.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
        case _:
            return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def _real_cases() -> list[Case]:
    """The light models. Their input is the ramp from 0 to 1 that the suite's own runner makes."""
    made: list[Case] = []
    for folder in sorted((DATA / "real").iterdir()):
        if not folder.is_dir():
            continue
        settings = json.loads((folder / "data.json").read_text())
        file = DATA / "light" / Path(settings["url"]).name
        model = onnx.load(file)
        given = {tensor.name for tensor in model.graph.initializer}
        inputs = {info.name: _ramp(info) for info in model.graph.input if info.name not in given}
        outputs = [
            _read(file.with_name(f"{file.stem}_output_{i}.pb"), info.type) for i, info in enumerate(model.graph.output)
        ]
        made.append(
            Case(
                folder.name,
                "real",
                model.SerializeToString(),
                [(inputs, outputs)],
                settings.get("rtol", 1e-3),
                settings.get("atol", 1e-7),
            )
        )
    return made


def _ramp(info: onnx.ValueInfoProto) -> np.ndarray:
    shape = tuple(d.dim_value if d.HasField("dim_value") else 1 for d in info.type.tensor_type.shape.dim)
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


if __name__ == "__main__":
    # Pickled under the name by which other processes know the class.
    from tests.conformance import cases as this

    Path(sys.argv[1]).write_bytes(pickle.dumps(this.collect(), protocol=5))
