"""The examples of layers do what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import irkit as ik
from examples import layers_residual
from irkit.frontends import layers


def test_the_residual_network_learns_and_is_exported(tmp_path: Path) -> None:
    layers.reset_names()
    found = layers_residual.main(str(tmp_path))
    assert found["val_accuracy"] > 0.9
    images, kinds = layers_residual.data()
    run = ik.compile(ik.load(tmp_path / "residual.onnx"), backend="onnxruntime")
    assert (run(images).argmax(1) == kinds).mean() > 0.9
    assert np.isfinite(run(images)).all()
    assert (tmp_path / "residual.svg").read_text().startswith("<svg")
