"""The networks of the speed benchmark, small: what is measured there is right, and memory keeps to its bound."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from benchmarks import nets
from benchmarks.numpy_speed import BARS, CLOSE, MEMORY_MOST

SMALL = {
    "mlp": lambda: nets.mlp(2, (20, 16, 8)),
    "encoder": lambda: nets.encoder(24, 10, 3),
    "depthwise": lambda: nets.depthwise(32),
    "elementwise": lambda: nets.elementwise(10, 40),
}


@pytest.mark.parametrize("name", SMALL)
def test_as_onnxruntime(name: str) -> None:
    model, feeds = SMALL[name]()
    module = ik.load(model)
    ours = ik.compile(module, backend="numpy")
    expected = ik.compile(module, backend="onnxruntime").run(feeds)
    for result, wanted in zip(ours.run(feeds).values(), expected.values(), strict=True):
        assert wanted.std() > 0
        np.testing.assert_allclose(result, wanted, rtol=CLOSE, atol=CLOSE * float(np.abs(wanted).max()))
    assert ours.memory(feeds).ratio <= MEMORY_MOST


def test_every_net_has_its_bars() -> None:
    assert set(BARS) == set(nets.NETS)
    assert all(bar.goal <= bar.floor for bar in BARS.values())
