"""Small model files for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.build import from_text

MODEL = """g (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}>
{ t = MatMul(x, w)  u = Add(t, b)  z = Identity(u)  y = Relu(z) }"""
OTHER = MODEL.replace("Relu", "Abs")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``m.onnx``, ``Relu(x @ w + b)`` with an Identity to spare, in an otherwise empty current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.onnx"
    path.write_bytes(from_text(MODEL).SerializeToString())
    return path


@pytest.fixture
def other(model: Path) -> Path:
    """``other.onnx``: like ``model``, but with Abs instead of Relu."""
    path = model.with_name("other.onnx")
    path.write_bytes(from_text(OTHER).SerializeToString())
    return path
