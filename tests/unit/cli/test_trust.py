"""`irkit bisect`, `explain`, `diff`, and the options of `irkit opt` around passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import irkit as ik
from irkit.cli import main
from irkit.dialects.onnx import OnnxOp
from irkit.passes.canonicalize.rules import RULES, Rule, load_all
from irkit.passes.rewrite import Rewriter

Captured = pytest.CaptureFixture[str]


def output(capsys: Captured, *argv: str, code: int = 0) -> str:
    assert main(argv) == code
    return capsys.readouterr().out


def data(capsys: Captured, *argv: str, code: int = 0) -> dict[str, object]:
    return json.loads(output(capsys, *argv, "--json", code=code))


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canonicalization rule that drops every Add."""
    load_all()

    def wrong(op: OnnxOp, rw: Rewriter) -> bool:
        rw.replace(op, [op.operands[0]])
        return True

    monkeypatch.setitem(RULES, "onnx.Add", [Rule("planted", wrong)])


def test_bisect_finds_nothing_in_right_passes(model: Path, capsys: Captured) -> None:
    assert output(capsys, "bisect", "m.onnx").startswith("no pass breaks the module\n")
    found = data(capsys, "bisect", "m.onnx", "-O1")
    assert (found["culprit"], found["rewrite"], found["pipeline"]) == (None, None, "O1")
    assert found["compared"]


def test_bisect_names_pass_and_rewrite(model: Path, capsys: Captured, planted: None) -> None:
    text = output(capsys, "bisect", "m.onnx", "-O1", "--reproducer", "r.mlir", code=1)
    assert text.startswith("pass 'canonicalize' (number 1) breaks the module: different")
    assert "'canonicalize:planted' at onnx.Add" in text
    found = data(capsys, "bisect", "m.onnx", "-p", "cse,canonicalize", code=1)
    assert (found["culprit"], found["index"]) == ("canonicalize", 1)
    assert isinstance(found["rewrite"], dict)
    assert found["rewrite"]["by"] == "canonicalize:planted"
    assert main(["opt", "--reproduce", "r.mlir"]) == 1
    assert "rewrite 1 of" in capsys.readouterr().err


def test_opt_leaves_a_reproducer(model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        load_all()
        patch.setitem(RULES, "onnx.Add", [Rule("planted", lambda op, rw: rw.replace(op, [op.operands[0]]) is None)])
        assert main(["opt", "m.onnx", "-O1", "--check", "each", "-o", "out.onnx"]) == 1
        error = capsys.readouterr().err
        assert "irkit opt --reproduce irkit-reproducer.mlir does it again" in error
        assert not Path("out.onnx").exists()
        assert main(["opt", "--reproduce", "irkit-reproducer.mlir"]) == 1
        capsys.readouterr()
    # Without the mistake it goes well.
    assert "does not go wrong any more" in output(capsys, "opt", "--reproduce", "irkit-reproducer.mlir")
    assert data(capsys, "opt", "--reproduce", "irkit-reproducer.mlir")["pipeline"] == "canonicalize"
    assert main(["opt", "--reproduce", "m.onnx"]) == 2


def test_opt_keeps_going(model: Path, capsys: Captured, planted: None) -> None:
    assert main(["opt", "m.onnx", "-p", "canonicalize,dce", "--check", "each", "--keep-going", "-o", "out.onnx"]) == 0
    captured = capsys.readouterr()
    assert "undone: " in captured.err
    assert ik.load("out.onnx") is not None


def test_opt_prints_statistics_and_writes_a_trace(model: Path, capsys: Captured) -> None:
    argv = ["opt", "m.onnx", "-O1", "--statistics", "--trace", "trace.json", "--print-before", "dce"]
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert "1  canonicalize:identity" in captured.err
    assert "// before dce" in captured.err
    assert json.loads(Path("trace.json").read_text())["traceEvents"][0]["name"] == "optimize"


def test_explain(model: Path, capsys: Captured) -> None:
    assert output(capsys, "explain", "m.onnx", "u").startswith("onnx.Add -> 'u' (float32[N, 2])\n  node #1")
    found = data(capsys, "explain", "m.onnx", "#0", "-O3")
    assert found["is_source"] is True
    assert found["ops"][0]["op"] == "onnx.Gemm"  # type: ignore[index]
    assert found["ops"][0]["steps"] == ["fuse:matmul-and-add-to-gemm"]  # type: ignore[index]
    assert len(found["ops"][0]["sources"]) == 2  # type: ignore[index]
    assert data(capsys, "explain", "m.onnx", "t", "-O3")["ops"] == found["ops"]
    assert "input of the graph" in output(capsys, "explain", "m.onnx", "x")
    assert main(["explain", "m.onnx", "nothing"]) == 2
    assert "nothing in the module is called 'nothing'" in capsys.readouterr().err


def test_diff(model: Path, other: Path, capsys: Captured) -> None:
    assert "the same graph" in output(capsys, "diff", "m.onnx", "m.onnx")
    text = output(capsys, "diff", "m.onnx", "other.onnx", code=1)
    assert "~ node Relu 'y'\n    was Relu, is Abs" in text
    assert "results: different" in text
    found = data(capsys, "diff", "m.onnx", "other.onnx", "--no-run", code=1)
    assert found["values"] is None
    assert found["same"] is False
    assert main(["diff", "-", "-"]) == 2
    assert main(["diff", "m.onnx", "gone.onnx"]) == 2
