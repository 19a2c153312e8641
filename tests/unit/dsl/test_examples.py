"""The example programs: on both backends, as users run them, and exported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.frontends import dsl
from irkit.testing import assert_equivalent

ROOT = Path(__file__).resolve().parents[3]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"dsl_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def both(program: Any) -> dict[str, Any]:
    """What a program gives on NumPy, after a look that onnxruntime gives the same."""
    found, again = program.main("numpy"), program.main("onnxruntime")
    for name, value in found.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    return found


def exported(module: ik.Module, path: Path, feeds: dict[str, Any]) -> None:
    """Asserts that a module, written and read, runs on onnxruntime as on NumPy."""
    ik.save(module, path)
    loaded = ik.load(path)
    assert_equivalent(module, loaded, backends=["numpy"], feeds=feeds)
    found, wanted = ik.compile(loaded, backend="onnxruntime").run(feeds), ik.compile(module).run(feeds)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_logistic_regression(tmp_path: Path) -> None:
    program = example("logistic_regression")
    found = both(program)
    assert found["accuracy"] > 0.97
    points, labels = program.data()
    module = dsl.Session().module(program.FETCHES)
    exported(module, tmp_path / "step.onnx", {"x": points, "label": labels})


def test_kmeans(tmp_path: Path) -> None:
    program = example("kmeans")
    found = both(program)
    points, start = program.data()
    centres, steps = start, 0
    moved = np.inf
    while moved > 1e-6:
        labels = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        new = np.stack([points[labels == k].mean(0) if (labels == k).any() else centres[k] for k in range(3)])
        moved, centres, steps = np.abs(new - centres).max(), new, steps + 1
    assert found["steps"] == steps > 2
    np.testing.assert_allclose(found["centres"], centres, rtol=1e-4, atol=1e-5)
    exported(dsl.to_module(program.program()), tmp_path / "kmeans.onnx", {"points": points, "start": start})


def test_kalman(tmp_path: Path) -> None:
    program = example("kalman")
    found = both(program)
    mean, cov = np.zeros(2), np.eye(2) * 10
    F, H, Q, R = (np.float64(m) for m in (program.F, program.H, program.Q, program.R))
    for z, wanted in zip(program.data(), found["means"], strict=True):
        mean, cov = F @ mean, F @ cov @ F.T + Q
        gain = cov @ H.T @ np.linalg.inv(H @ cov @ H.T + R)
        mean, cov = mean + gain @ (z - H @ mean), cov - gain @ H @ cov
        np.testing.assert_allclose(wanted, mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["covariance"], cov, rtol=1e-3, atol=1e-4)
    exported(dsl.to_module(program.program()), tmp_path / "kalman.onnx", {"measured": program.data()})


def test_rnn(tmp_path: Path) -> None:
    program = example("rnn")
    found = both(program)
    assert found["last"] < found["first"] / 10
    values, means = program.data(8, seed=5)
    module = dsl.Session().module([program.loss, program.train])
    assert {"next/w_in", "next/w_in/m", "next/w_in/step"} <= set(module.outputs)
    exported(module, tmp_path / "step.onnx", {"x": values, "wanted": means})


def test_newton(tmp_path: Path) -> None:
    program = example("newton")
    found = both(program)
    np.testing.assert_allclose(found["x"], [1, 1], rtol=1e-8)
    assert found["steps"] < 10
    exported(dsl.to_module(program.program()), tmp_path / "newton.onnx", {"start": np.array([-1.2, 1.0])})


@pytest.mark.parametrize("name", ["logistic_regression", "kmeans", "kalman", "rnn", "newton"])
def test_it_says_what_it_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(name).main()
    assert capsys.readouterr().out
