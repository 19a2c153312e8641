"""``ai.onnx.preview.training.Gradient`` through the public face: what a backend cannot run is expanded first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import irkit as ik
from irkit.errors import PassError
from irkit.testing import assert_equivalent

PREVIEW = "ai.onnx.preview.training"
W, X = np.array([2.0, 3.0]), np.array([5.0, 7.0])


def gradient(inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Gradient", inputs.split(), outputs.split(), domain=PREVIEW, **attributes)


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [2])


def model(
    nodes: Sequence[onnx.NodeProto], outputs: str, inputs: str = "w x", constants: dict[str, Any] | None = None
) -> ik.Module:
    """A model in float64 whose values have two elements, at opset 12."""
    infos = [
        [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, [2]) for n in t.split()] for t in (inputs, outputs)
    ]
    held = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", *infos, initializer=held)
    opsets = [helper.make_opsetid("", 12), helper.make_opsetid(PREVIEW, 1)]
    return ik.load(helper.make_model(graph, opset_imports=opsets))


PRODUCT = helper.make_node("Mul", ["w", "x"], ["y"])


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_compile_expands_it(backend: str) -> None:
    nodes = [
        PRODUCT,
        gradient("w x", "dw dx", xs=["w", "x"], y="y"),
        # The derivative of a derivative, and one at another point than that of the forward ops.
        gradient("x", "dwdx", xs=["x"], y="dw"),
        helper.make_node("Neg", ["w"], ["negative"]),
        gradient("x negative", "elsewhere", xs=["x"], zs=["w"], y="y"),
        helper.make_node("Mul", ["y", "y"], ["square"]),
        gradient("w x", "slope", xs=["w"], zs=["x"], y="square"),
    ]
    module = model(nodes, "dw dx dwdx elsewhere slope")
    before = str(module)
    found = ik.compile(module, backend=backend).run({"w": W, "x": X})
    assert str(module) == before
    expected = {"dw": X, "dx": W, "dwdx": np.ones(2), "elsewhere": -W, "slope": 2 * W * X * X}
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("level", ["dce", "O2", "constant-fold,cse", "O3"])
def test_passes_that_would_remove_what_it_names(level: str) -> None:
    """Folded first, ``y`` would be a constant and its gradient zero."""
    nodes = [PRODUCT, gradient("w x", "dw dx", xs=["w", "x"], y="y")]
    module = model(nodes, "dw dx y", inputs="", constants={"w": W, "x": X})
    made = ik.optimize(module, level, check="each")
    found = ik.compile(made).run({})
    np.testing.assert_array_equal(found["dw"], X)
    np.testing.assert_array_equal(found["dx"], W)
    assert made.opsets[""] == 21
    without_y = ik.optimize(model(nodes, "dw", constants={}), level)
    assert_equivalent(model(nodes, "dw"), without_y)


def test_it_is_differentiated_again() -> None:
    nodes = [
        helper.make_node("Mul", ["w", "w"], ["square"]),
        helper.make_node("Mul", ["square", "x"], ["y"]),
        gradient("w x", "dw", xs=["w"], zs=["x"], y="y"),
    ]
    found = ik.compile(ik.vjp(model(nodes, "dw"), wrt=["w", "x"])).run({"w": W, "x": X, "ct/dw": np.ones(2)})
    np.testing.assert_array_equal(found["dw"], 2 * W * X)
    np.testing.assert_array_equal(found["grad/w"], 2 * X)
    np.testing.assert_array_equal(found["grad/x"], 2 * W)
    tape = ik.tape(model(nodes, "dw"), {"w": W, "x": X})
    np.testing.assert_array_equal(tape["w"].grad, 2 * X)


def test_in_a_branch() -> None:
    inner = helper.make_graph(
        [helper.make_node("Mul", ["y", "w"], ["z"]), gradient("w", "inner", xs=["w"], y="z")],
        "then",
        [],
        [info("inner")],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["same"])],
        "else",
        [],
        [info("same")],
    )
    nodes = [
        PRODUCT,
        helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array(0.0))),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["out"], then_branch=inner, else_branch=other),
    ]
    run = ik.compile(model(nodes, "out")).run
    # y is computed outside the branch: within it, it is what it is.
    np.testing.assert_array_equal(run({"w": W, "x": X})["out"], W * X)
    np.testing.assert_array_equal(run({"w": -W, "x": X})["out"], -W)


def test_what_cannot_be_expanded_is_named() -> None:
    with pytest.raises(PassError, match="there is no value 'wrong' where it stands"):
        ik.compile(model([PRODUCT, gradient("w", "dw", xs=["w"], y="wrong")], "dw"))
    with pytest.raises(PassError, match="names 2 variables, but has 1 operands"):
        ik.compile(model([PRODUCT, gradient("w", "dw", xs=["w"], zs=["x"], y="y")], "dw"))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(PREVIEW, 1), helper.make_opsetid("mine", 1)]
    nodes = [PRODUCT, gradient("w", "dw", xs=["w"], y="y")]
    function = helper.make_function("mine", "Slope", ["w", "x"], ["dw"], nodes, opsets[:2])
    infos = [[info(name) for name in names] for names in ("ab", "c")]
    graph = helper.make_graph([helper.make_node("Slope", ["a", "b"], ["c"], domain="mine")], "g", *infos)
    module = ik.load(helper.make_model(graph, functions=[function], opset_imports=opsets))
    with pytest.raises(PassError, match="stands in a model-local function"):
        ik.compile(module)


def test_the_backend_itself_imports_no_pass() -> None:
    """It says which pass to run instead."""
    code = (
        "import sys; from irkit.backends import numpy; from irkit.frontends.onnx import load;"
        "m = load(sys.stdin.buffer.read());"
        "assert not [n for n in sys.modules if n.startswith('irkit.passes')];"
        "numpy.compile(m)"
    )
    made = model([PRODUCT, gradient("w", "dw", xs=["w"], y="y")], "dw").to_onnx().SerializeToString()
    done = subprocess.run([sys.executable, "-c", code], input=made, capture_output=True, check=False)
    assert b"UnsupportedError" in done.stderr
    assert b"expand it first (pass expand-gradient)" in done.stderr


def test_the_command_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from irkit.cli import main

    file, out = tmp_path / "gradient.onnx", tmp_path / "out.npz"
    onnx.save(model([PRODUCT, gradient("w x", "dw dx", xs=["w", "x"], y="y")], "dw dx").to_onnx(), file)
    np.savez(tmp_path / "in.npz", w=W, x=X)
    assert main(["run", str(file), "--inputs", str(tmp_path / "in.npz"), "-o", str(out)]) == 0
    with np.load(out) as found:
        np.testing.assert_array_equal(found["dw"], X)
