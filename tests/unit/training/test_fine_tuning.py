"""Models of others: another head on them, some of their weights trained, and back to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irkit as ik
from examples.light_models import light_model, magika_feeds, magika_model_path
from irkit.errors import IrkitError
from irkit.ir.names import name_of
from irkit.ir.types import shape_of
from irkit.passes.training import dense
from tests.unit.training.support import BACKENDS


def _initializers(module: ik.Module) -> dict[str, Any]:
    return {name_of(op.results[0]): op for op in module.block.ops if op.name == "onnx.Initializer"}


def _kept(made: ik.Module, source: ik.Module, trained: set[str]) -> int:
    """How many initializers both have that were not trained; all must be as they were."""
    after, before = _initializers(made), _initializers(source)
    kept = [name for name in before if name in after and name not in trained]
    assert all(after[name].properties == before[name].properties for name in kept)
    return len(kept)


def test_magika_learns_new_classes(tmp_path: Path) -> None:
    source = ik.load(magika_model_path())
    # The features: what the last LayerNorm gives, one row per file.
    values = [(name_of(r), r) for op in source.block.ops for r in op.results]
    at = [name for name, r in values if "LayerNorm_1" in name and len(shape_of(r.type) or ()) == 2][-1]
    module = ik.replace_head(source, at, dense(3, name="new"))
    assert list(module.outputs) == ["logits"]
    assert module.inputs == source.inputs
    step = ik.training_step(module, "softmax-cross-entropy", ik.optimizers.Adam(1e-2), trainable="new.*")
    assert [p.name for p in step.parameters] == ["new.weight", "new.bias"]
    files = magika_feeds(9, 3)
    data = {**files, "target": np.arange(9) % 3}
    run = ik.train(step, data, 30, batch_size=9, progress=False, threads=1)
    assert run.history[-1]["loss"] < 0.5 * run.history[0]["loss"]
    path = tmp_path / "tuned.onnx"
    ik.save(run.model(), path)
    onnx.checker.check_model(str(path))
    made = ik.load(path)
    assert _kept(made, source, set()) > 5
    logits = ik.compile(made, backend="onnxruntime").run(files)["logits"]
    assert (np.argmax(logits, 1) == data["target"]).mean() > 0.8


def test_all_of_magika_can_be_trained() -> None:
    step = ik.training_step(ik.load(magika_model_path()), "categorical-crossentropy", ik.optimizers.SGD(0.01))
    assert len(step.parameters) > 8
    feeds = {**magika_feeds(2, 1), "target": np.eye(214, dtype=np.float32)[[3, 5]]}
    found, other = (ik.compile(step.module, backend=backend).run(feeds) for backend in BACKENDS)
    for name, value in found.items():
        # Convolutions add up 2048 bytes in another order: errors are measured by the scale of the whole tensor.
        np.testing.assert_allclose(other[name], value, rtol=0, atol=1e-5 * max(1.0, float(np.abs(value).max())))
    assert np.isfinite(found["loss"])
    start = step.initial()
    assert all((found[f"next/{p.name}"] != start[p.name]).any() for p in step.parameters)


def test_squeezenet_learns_with_its_first_layers_frozen() -> None:
    module = ik.load(light_model("squeezenet"))
    frozen = ["conv1*", "fire2/*", "fire3/*", "fire4/*", "fire5/*", "fire6/*", "fire7/*"]
    # What is pooled; before it stands a Dropout of opset 7.
    tuned = ik.replace_head(module, "r65", lambda b, x: dense(3)(b, b.Flatten(x)))
    step = ik.training_step(tuned, "softmax-cross-entropy", ik.optimizers.SGD(1e-3, momentum=0.9), freeze=frozen)
    trained = {p.name for p in step.parameters}
    assert {"head.weight", "head.bias", "fire8/squeeze1x1_w_0"} <= trained
    assert not [name for name in trained if name.startswith(("conv1_", "fire2", "fire7"))]
    assert "seed" in step.initial()
    x = np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)
    run = ik.train(step, {"data_0": x, "target": np.asarray([0, 2])}, 6, progress=False)
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    made = run.model()
    assert made.inputs == module.inputs
    assert _kept(made, module, trained) > 20


def test_heads_that_do_not_fit_are_refused() -> None:
    b = ik.Builder("images")
    x = b.input("x", "float32", ["N", 3, 8, 8])
    b.output(b.Relu(x), "y")
    module = b.module()
    with pytest.raises(IrkitError, match="a dense head takes a matrix"):
        ik.replace_head(module, "y", 3)
    with pytest.raises(IrkitError, match="did you mean 'y'"):
        ik.replace_head(module, "yy", 3)
    made = ik.replace_head(module, "y", lambda b, x: dense(4)(b, b.ReduceMean(x, [2, 3], keepdims=0)), keep=["y"])
    assert list(made.outputs) == ["logits", "y"]
