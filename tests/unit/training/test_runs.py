"""A hundred steps of small networks against torch: the same weights and batches, the loss of every step."""

from __future__ import annotations

import numpy as np
import pytest

import irkit as ik
from irkit.passes.training.runner import runner
from tests.unit.training.nets import NETS, OPTIMIZERS
from tests.unit.training.support import goldens


@pytest.mark.parametrize("packed", [False, True], ids=["single", "packed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_losses_are_those_of_torch(net: str, optimizer: str, packed: bool) -> None:
    step = ik.training_step(NETS[net].module(), "softmax-cross-entropy", OPTIMIZERS[optimizer](), packed=packed)
    run = runner(step.module, "onnxruntime", threads=1)
    found = [float(run.step({"x": x, "target": y})["loss"]) for x, y in NETS[net].batches()]
    expected = goldens()[f"run/{net}/{optimizer}"]
    assert expected[-20:].mean() < 0.9 * expected[:20].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
