"""What the public functions say about what is no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.frontends import dsl


@pytest.mark.parametrize("what", [3, [], {}, None, "model.onnx"])
def test_nothing_to_run(what: Any, tmp_path: Path) -> None:
    with pytest.raises(IrkitError, match="there is nothing to run in"):
        ik.compile(what)
    with pytest.raises(IrkitError, match="there is nothing to run in"):
        ik.save(what, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_expressions_are_saved(tmp_path: Path) -> None:
    x = dsl.placeholder("x", "float32", [2])
    ik.save(x + 1, tmp_path / "m.onnx")
    assert ik.compile(ik.load(tmp_path / "m.onnx"))([1.0, 2.0]).tolist() == [2, 3]
