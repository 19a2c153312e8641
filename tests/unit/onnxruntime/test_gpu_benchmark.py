"""What ``make gpu`` runs, as far as a machine without a GPU can show it."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from benchmarks import gpu
from irkit.errors import UnsupportedError

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> { t = MatMul(x, w) y = Tanh(t)
    }""")


def _feeds(seed: int) -> dict[str, np.ndarray]:
    return {"x": 0.1 * np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)}


def test_a_model_that_ran_on_the_cpu_does_not_pass() -> None:
    outcome = gpu.measure("tiny", MODEL, "y", _feeds(0), _feeds(1), device="cpu", runs=2)
    assert (outcome.error, outcome.on_cuda) == (0, 0)
    assert outcome.elsewhere >= 2
    assert outcome.strays == {"MatMul": 1}
    assert outcome.problems == ["no node ran on CUDA", "not on CUDA: 1 x MatMul"]


def test_results_that_differ_or_do_not_vary_do_not_pass() -> None:
    good = gpu.Outcome("m", 5, 1, {}, 1e-6, 0.5, 2.0, 1.0)
    assert good.problems == []
    for wrong in ({"error": 1e-3}, {"error": float("inf")}, {"error": float("nan")}, {"variation": 1e-6}):
        assert gpu.Outcome(**{**vars(good), **wrong}).problems


def test_a_machine_without_a_gpu_skips_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "gpu_names", list)
    assert gpu.main([]) == 0
    assert "skipped: this machine has no NVIDIA GPU" in capsys.readouterr().out


def test_a_gpu_that_cannot_be_used_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise UnsupportedError("the driver is too old")

    monkeypatch.setattr(gpu, "gpu_names", lambda: ["a GPU"])
    monkeypatch.setattr(gpu.ik, "compile", refuse)
    assert gpu.main([]) == 1
    assert "the driver is too old" in capsys.readouterr().out


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(SystemExit):
        gpu.main(["resnet9000"])
