"""A check that compared nothing has not succeeded: it ends with 1, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from irkit.cli import main


@pytest.fixture
def misfit(tmp_path: Path) -> str:
    """A Conv whose weights take another number of channels than come in, and an Identity for a pass to remove."""
    weights = onnx.numpy_helper.from_array(np.ones((4, 5, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Conv", ["i", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, 8, 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "misfit", [x], [y], [weights])
    path = tmp_path / "misfit.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return str(path)


def test_a_model_that_no_backend_runs_does_not_pass(misfit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", misfit]) == 1
    out = capsys.readouterr().out
    assert "no backend runs it" in out
    assert "3 channels" in out


def test_a_pipeline_on_it_does_not_pass(misfit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", misfit, "-p", "canonicalize"]) == 1
    assert "nothing could be compared" in capsys.readouterr().out


@pytest.mark.parametrize("when", ["each", "end"])
def test_opt_with_check_writes_nothing(
    when: str, misfit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.onnx"
    assert main(["opt", misfit, "-p", "canonicalize", "--check", when, "-o", str(target)]) == 1
    assert "nothing could be compared" in capsys.readouterr().err
    assert not target.exists()
    assert main(["opt", misfit, "-p", "canonicalize", "-o", str(target)]) == 0
    assert target.exists()
