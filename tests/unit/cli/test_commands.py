"""Each command of ``irkit``: what it prints, which JSON it has, what it writes, and its exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irkit as ik
from irkit.cli import main

X = np.array([[1, 2, 3], [-1, -2, -3]], np.float32)
Y = np.array([[23, 27], [0, 0]], np.float32)

Captured = pytest.CaptureFixture[str]


def output(capsys: Captured, *argv: str, code: int = 0) -> str:
    """What the command prints, after its exit code was checked and nothing stands on standard error."""
    found = main(argv)
    out, err = capsys.readouterr()
    assert (found, err) == (code, "")
    return out


def found_json(capsys: Captured, *argv: str, code: int = 0) -> Any:
    return json.loads(output(capsys, *argv, "--json", code=code))


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Lets ``data`` come from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


# info


def test_info_prints_what_is_in_the_model(model: Path, capsys: Captured) -> None:
    text = output(capsys, "info", "m.onnx")
    assert text.split("\n\n")[1:] == [
        "inputs\n  name  type\n  x     float32[N, 3]",
        "outputs\n  name  type\n  y     float32[N, 2]",
        "ops (4 nodes)\n  op        count\n  Add           1\n  Identity      1\n  MatMul        1\n  Relu          1",
        "parameters (8 elements, 32 B)\n  dtype    tensors  elements  size\n  float32        2         8  32 B\n",
    ]


def test_info_json(model: Path, capsys: Captured) -> None:
    found = found_json(capsys, "info", "m.onnx")
    assert list(found) == [
        "file",
        "format",
        "bytes",
        "external_bytes",
        "ir_version",
        "opsets",
        "producer",
        "domain",
        "model_version",
        "graph",
        "doc",
        "inputs",
        "outputs",
        "symbolic_dims",
        "nodes",
        "ops",
        "control_flow",
        "unknown_ops",
        "functions",
        "parameters",
        "metadata",
        "conflicts",
        "misfits",
    ]
    assert found["bytes"] == model.stat().st_size
    assert found["opsets"] == {"ai.onnx": 21}
    assert found["inputs"] == [{"name": "x", "type": "float32[N, 3]", "default": False}]
    assert found["symbolic_dims"] == ["N"]
    assert found["ops"] == {"Add": 1, "Identity": 1, "MatMul": 1, "Relu": 1}
    assert found["parameters"]["by_dtype"] == {"float32": {"tensors": 2, "elements": 8, "bytes": 32}}


def test_info_counts_control_flow_functions_and_unknown_ops(
    model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "local" : 1, "ours" : 1]>
        g (float[2] x, bool c) => (float[2] y) {
          a = local.twice(x)  b = ours.Mystery(a)
          y = If(c) <then_branch = t () => (float[2] p) { p = Identity(b) },
                     else_branch = e () => (float[2] q) { q = Neg(a) }>
        }
        <domain: "local", opset_import: ["" : 21]> twice (v) => (w) { w = Add(v, v) }"""
    )
    pipe(monkeypatch, proto.SerializeToString())
    found = found_json(capsys, "info", "-")
    assert (found["file"], found["bytes"]) == ("-", None)
    assert found["control_flow"] == {"If": 1}
    assert found["unknown_ops"] == {"ours.Mystery": 1}
    assert found["functions"] == [
        {"name": "local.twice", "inputs": ["v"], "outputs": ["w"], "nodes": 1, "calls": 1},
    ]


def test_names_from_a_file_do_not_steer_the_terminal(model: Path, capsys: Captured) -> None:
    proto = onnx.load(model)
    proto.producer_name = "\x1b[2Jred\u202e\nnext"
    onnx.save(proto, model)
    text = output(capsys, "info", "m.onnx")
    assert "\\x1b[2Jred\\x202e\\nnext" in text
    assert "\x1b" not in text


# convert


def test_convert_there_and_back(model: Path, capsys: Captured) -> None:
    assert output(capsys, "convert", "m.onnx", "-o", "m.mlir", "--no-upgrade") == ""
    assert output(capsys, "convert", "m.mlir", "-o", "back.onnx", "--no-upgrade") == ""
    assert ik.load("back.onnx", upgrade=False) == ik.load(model, upgrade=False)
    assert sorted(path.name for path in model.parent.iterdir()) == ["back.onnx", "m.mlir", "m.onnx"]


def test_convert_to_another_opset(model: Path, capsys: Captured) -> None:
    output(capsys, "convert", "m.onnx", "-o", "old.onnx", "--opset", "13")
    old = onnx.load("old.onnx")
    onnx.checker.check_model(old, full_check=True)
    assert [(entry.domain, entry.version) for entry in old.opset_import] == [("", 13)]


def test_convert_with_external_data(model: Path, capsys: Captured) -> None:
    output(capsys, "convert", "m.onnx", "-o", "ext.onnx", "--external-data", "weights.bin")
    assert ik.load("ext.onnx") == ik.load(model)


@pytest.mark.parametrize("form", ["onnx", "mlir"])
def test_standard_input_and_output(model: Path, form: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ik.load(model)
    pipe(monkeypatch, model.read_bytes() if form == "onnx" else str(module).encode())
    text = output(capsys, "convert", "-", "-o", "-")
    assert ik.parse(text) == module


def test_locations(model: Path, capsys: Captured) -> None:
    assert "loc(" not in output(capsys, "convert", "m.onnx", "-o", "-")
    assert "loc(" in output(capsys, "convert", "m.onnx", "-o", "-", "--locations")


# opt


def test_opt_runs_the_pipeline(model: Path, capsys: Captured) -> None:
    text = output(capsys, "opt", "m.onnx", "-p", "canonicalize,cse", "-o", "o.onnx", "--check", "each")
    rows = [line.split()[:4] for line in text.splitlines()[:3]]
    assert rows == [["pass", "changed", "ops", "before"], ["canonicalize", "yes", "8", "7"], ["cse", "no", "7", "7"]]
    assert [node.op_type for node in onnx.load("o.onnx").graph.node] == ["MatMul", "Add", "Relu"]


def test_opt_json(model: Path, capsys: Captured) -> None:
    found = found_json(capsys, "opt", "m.onnx", "-O1")
    assert list(found) == ["pipeline", "passes"]
    assert found["pipeline"] == "O1"
    assert [entry["name"] for entry in found["passes"]] == ["canonicalize", "cse", "dce"]
    facts = ["name", "changed", "ops_before", "ops_after", "seconds"]
    keys = [*facts, "notes", "unchecked", "rewrites", "memory", "failed"]
    assert all(list(entry) == keys for entry in found["passes"])


def test_opt_to_standard_output_keeps_the_table_apart(model: Path, capsys: Captured) -> None:
    assert main(["opt", "m.onnx", "-p", "canonicalize", "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert "Identity" not in str(ik.parse(out))
    assert err.startswith("pass ")


def test_opt_lists_passes(capsys: Captured) -> None:
    found = found_json(capsys, "opt", "--list-passes")
    listed = {entry["name"]: [option["name"] for option in entry["options"]] for entry in found["passes"]}
    assert {"canonicalize", "constant-fold", "cse", "dce", "infer-shapes"} <= set(listed)
    assert "max-bytes" in listed["constant-fold"]
    assert found["levels"]["O1"] == "canonicalize,cse,dce"


# run


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_run_on_given_inputs(model: Path, backend: str, capsys: Captured) -> None:
    np.save("x.npy", X)
    output(capsys, "run", "m.onnx", "--backend", backend, "--inputs", "x=x.npy", "-o", "y.npz")
    with np.load("y.npz") as outputs:
        assert outputs.files == ["y"]
        np.testing.assert_array_equal(outputs["y"], Y)


def test_run_json(model: Path, capsys: Captured) -> None:
    np.savez("x.npz", x=X)
    found = found_json(capsys, "run", "m.onnx", "--inputs", "x.npz", "--profile")
    assert list(found) == ["backend", "device", "compile_seconds", "run_seconds", "inputs", "outputs", "profile"]
    assert found["outputs"] == [
        {"name": "y", "dtype": "float32", "shape": [2, 2], "nan": 0, "min": 0.0, "mean": 12.5, "max": 27.0}
    ]
    assert sorted(entry["name"] for entry in found["profile"]) == ["t", "u", "y", "z"]


def test_run_makes_inputs_of_the_size_and_seed_asked_for(model: Path, capsys: Captured) -> None:
    first, again, second = (
        found_json(capsys, "run", "m.onnx", "--size", "N=5", "--seed", seed)["inputs"] for seed in ("0", "0", "1")
    )
    assert first[0]["shape"] == [5, 3]
    assert first == again != second


# check


def test_check_of_a_sound_model(model: Path, capsys: Captured) -> None:
    text = output(capsys, "check", "m.onnx", "--samples", "2")
    assert text == (
        "ok         structure\n"
        "ok         types\n"
        "ok         round trip through text\n"
        "ok         round trip through ONNX\n"
        "ok         runs on numpy and onnxruntime: 2 samples agree\n"
    )


def test_check_finds_a_contradicted_type(model: Path, capsys: Captured) -> None:
    proto = onnx.load(model)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    onnx.save(proto, model)
    found = found_json(capsys, "check", "m.onnx", "--backends", "numpy", code=1)
    assert {check["name"]: check["status"] for check in found["checks"]}["types"] == "failed"


def test_check_of_two_models(model: Path, other: Path, capsys: Captured) -> None:
    output(capsys, "convert", "m.onnx", "-o", "m.mlir")
    assert found_json(capsys, "check", "m.onnx", "m.mlir")["ok"] is True
    found = found_json(capsys, "check", "m.onnx", "other.onnx", "--backends", "numpy", code=1)
    assert list(found) == ["model", "other", "ok", "checks"]
    assert (found["ok"], found["checks"][0]["status"]) == (False, "failed")
    assert "'y'" in found["checks"][0]["details"][0]


def test_check_of_a_pipeline(model: Path, capsys: Captured) -> None:
    text = output(capsys, "check", "m.onnx", "-p", "canonicalize,cse", "--backends", "numpy")
    assert text == "ok         pass canonicalize\nok         pass cse: changes nothing\n"
