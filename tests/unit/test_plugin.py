"""The example package of a third party, installed: its op is found, known, run, explained and exported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin"

PROGRAM = """
import numpy as np
import irkit as ik

b = ik.Builder("capped")
b.output(b.op("softcap.Softcap", b.input("x", "float32", ["n", 3]), cap=2.0), "y")
m = b.module()
assert repr(m.outputs) == '{\\'y\\': tensor<?x3xf32, #onnx.dims<["n", ""]>>}', m.outputs
assert ik.parse(str(m)) == m
x = np.float32([[0, 1, 1e9]])
expected = 2 * np.tanh(x / 2)
for backend in ("numpy", "onnxruntime"):
    np.testing.assert_allclose(ik.compile(m, backend)(x), expected, rtol=1e-6)
b = ik.Builder("sum")
x_in = b.input("x", "float64", [3])
b.output(b.ReduceSum(b.op("softcap.Softcap", x_in, cap=2.0), keepdims=0), "y")
g = ik.compile(ik.grad(b.module(), of="y", wrt=["x"]), "numpy")
point = np.array([0.0, 1.0, -3.0])
np.testing.assert_allclose(g(point), 1 - np.tanh(point / 2) ** 2, rtol=1e-12)
ik.save(m, "capped.onnx")
again = ik.load("capped.onnx")
assert [op.name for op in again.block.ops][0] == "softcap.Softcap"
np.testing.assert_allclose(ik.compile(ik.optimize(again, "O2", check="end"), "numpy")(x), expected, rtol=1e-6)
"""


@pytest.mark.slow
def test_the_example_plugin(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(site), str(PLUGIN)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        ["irkit", "info", "capped.onnx"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert "Softcap" in listed.stdout
