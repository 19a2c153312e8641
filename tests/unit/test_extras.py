"""The optional extras: ``cuda`` resolves for this platform, and its onnxruntime imports and runs without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

RUN_RELU = """
import sys
import numpy as np
import onnxruntime
assert "CUDAExecutionProvider" in onnxruntime.get_available_providers(), "not the build for CUDA"
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
assert session.get_providers() == ["CPUExecutionProvider"]
(y,) = session.run(None, {"x": np.array([-1.0, 2.0], np.float32)})
print(y.tolist())
"""


def pip(python: str | Path, *arguments: str) -> str:
    """Run pip of an interpreter; return what it printed."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def extra(root: Path, name: str) -> list[str]:
    """The requirements of an extra."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"][name]


def core(root: Path) -> list[str]:
    """The requirements without any extra."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]


def test_cpu_and_cuda_share_no_requirement(root: Path) -> None:
    assert [line.split(">=")[0] for line in extra(root, "cpu")] == ["onnxruntime"]
    assert [line.split(">=")[0] for line in extra(root, "cuda")] == ["onnxruntime-gpu[cuda,cudnn]"]


@pytest.mark.slow
def test_cuda_resolves_together_with_the_core(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    wanted = [*core(root), *extra(root, "cuda")]
    pip(sys.executable, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report), *wanted)
    names = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
    assert {"onnxruntime-gpu", "onnx", "xdsl", "numpy"} <= names
    assert "onnxruntime" not in names
    assert any(name.startswith("nvidia-cudnn") for name in names)
    assert any(name.startswith("nvidia-cuda-runtime") for name in names)


@pytest.mark.slow
def test_the_onnxruntime_of_cuda_imports_and_runs_without_a_gpu(root: Path, tmp_path: Path) -> None:
    import onnx

    model = tmp_path / "relu.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        model,
    )
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    (requirement,) = extra(root, "cuda")
    pip(python, "install", "--quiet", requirement.replace("[cuda,cudnn]", ""))
    done = subprocess.run(
        [python, "-c", RUN_RELU, model], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.0, 2.0]"
