"""The JavaScript example trains as Python does: on onnxruntime-node, and on onnxruntime-web in WebAssembly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.javascript.make_step import BATCHES, EPOCHS, batches, step, write
from irkit.passes.training.files import load_state
from irkit.passes.training.runner import runner

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "javascript"


def run(command: list[str], folder: Path) -> str:
    """The output of a command, which must succeed."""
    if shutil.which(command[0]) is None:
        pytest.fail(f"{command[0]} is not installed; the JavaScript example needs Node.js 20 or newer")
    # The native package would fetch CUDA's libraries as well.
    environment = {**os.environ, "ONNXRUNTIME_NODE_INSTALL": "skip"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its packages and the step that it trains."""
    folder = tmp_path_factory.mktemp("javascript")
    for source in EXAMPLE.iterdir():
        if source.is_file():
            shutil.copy(source, folder)
    write(folder / "step")
    run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], folder)
    return folder


@pytest.fixture(scope="module")
def in_python() -> tuple[list[dict[str, float]], dict[str, Any]]:
    """The losses and metrics of each step, and the state in the end."""
    made = step()
    held = runner(made.module, "onnxruntime", threads=1)
    history: list[dict[str, float]] = []
    for _ in range(EPOCHS):
        held.put(made.at_epoch(held.state()))
        for x, target in batches():
            found = held.step({"x": x, "target": target})
            history.append({name: float(value) for name, value in found.items()})
    return history, held.state()


def test_python_learns(in_python: tuple[list[dict[str, float]], dict[str, Any]]) -> None:
    losses = [found["loss"] for found in in_python[0]]
    assert len(losses) == EPOCHS * BATCHES
    assert np.mean(losses[-BATCHES:]) < 0.6 * np.mean(losses[:BATCHES])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["node", "web"])
def test_javascript_does_the_same(
    backend: str, installed: Path, in_python: tuple[list[dict[str, float]], dict[str, Any]]
) -> None:
    expected, state = in_python
    history = json.loads(run(["node", "train.mjs", "step", backend], installed))
    assert len(history) == len(expected)
    for found, meant in zip(history, expected, strict=True):
        assert found.keys() == meant.keys()
        np.testing.assert_allclose(found["loss"], meant["loss"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["accuracy"], meant["accuracy"], atol=1e-6)
    trained, _ = load_state(installed / "step" / f"trained-{backend}.safetensors")
    assert trained.keys() == state.keys()
    for name, value in trained.items():
        assert value.dtype == state[name].dtype
        assert value.shape == state[name].shape
        np.testing.assert_allclose(value, state[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_javascript_says_how_it_is_used(installed: Path) -> None:
    done = subprocess.run(["node", "train.mjs"], cwd=installed, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "usage" in done.stderr
