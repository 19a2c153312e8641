"""``irkit grad`` and ``irkit train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a model, ``model.onnx``, and samples for it, ``data.npz``."""
    rng = np.random.default_rng(0)
    b = ik.Builder("model")
    h = b.Relu(b.input("x", "float32", ["batch", 4]) @ b.initializer(rng.standard_normal((4, 8), np.float32), "body.w"))
    y = h @ b.initializer(rng.standard_normal((8, 3), np.float32), "head.w")
    b.output(y, "logits")
    b.output(b.ReduceMean(y * y, keepdims=0), "size")
    ik.save(b.module(), tmp_path / "model.onnx")
    x = rng.standard_normal((60, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, target=np.argmax(x[:, :3], axis=1))
    return tmp_path


def call(capsys: Capture, *args: Any) -> tuple[int, str, str]:
    code = main([str(arg) for arg in args])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_grad(files: Path, capsys: Capture) -> None:
    out = files / "grad.onnx"
    code, text, _ = call(capsys, "grad", files / "model.onnx", "--of", "size", "--wrt", "x,head.w", "-o", out)
    assert code == 0
    assert "grad/head.w  float32[8, 3]" in text
    x = np.load(files / "data.npz")["x"][:5]
    found = ik.compile(ik.load(out)).run({"x": x})
    expected = ik.compile(ik.grad(ik.load(files / "model.onnx"), "size", ["x", "head.w"])).run({"x": x})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    code, text, _ = call(capsys, "grad", files / "model.onnx", "--of", "size", "--value", "--json", "-o", out)
    assert code == 0
    assert [entry["name"] for entry in json.loads(text)["outputs"]] == ["size", "grad/x"]


def test_grad_says_what_is_wrong(files: Path, capsys: Capture) -> None:
    out = files / "grad.onnx"
    for args, message in (
        (["--of", "sise"], "the graph has no value 'sise'"),
        (["--of", "logits"], "only a value of one element has a gradient"),
        (["--of", "size", "--wrt", "body.v"], "did you mean 'body.w'"),
    ):
        code, _, error = call(capsys, "grad", files / "model.onnx", *args, "-o", out)
        assert code == 2
        assert message in error
        assert not out.exists()
    assert call(capsys, "grad", files / "model.onnx", "-o", files / "grad.txt")[0] == 2


def _train(files: Path, *more: Any) -> list[Any]:
    options = ["--loss", "softmax-cross-entropy", "--outputs", "logits", "--data", files / "data.npz"]
    return ["train", files / "model.onnx", *options, "-o", files / "trained.onnx", *more]


def test_train(files: Path, capsys: Capture) -> None:
    out, log = files / "trained.onnx", files / "log.csv"
    more = ["--optimizer", "adamw", "--learning-rate", "0.05", "--epochs", "4", "--metrics", "accuracy", "--seed", "1"]
    validate = ["--validation", files / "data.npz", "--log-csv", log, "--save-step", files / "step"]
    code, text, _ = call(capsys, *_train(files, *more, *validate, "--freeze", "body.*", "--json", "-o", out))
    assert code == 0
    found = json.loads(text)
    assert [p["name"] for p in found["parameters"]] == ["head.w"]
    losses = [row["loss"] for row in found["history"]]
    assert losses[-1] < 0.7 * losses[0]
    assert log.read_text().startswith("epoch,loss,accuracy,val_loss,val_accuracy\n")
    assert sorted(path.name for path in (files / "step").iterdir()) == [
        "evaluation.onnx",
        "manifest.json",
        "state.safetensors",
        "step.onnx",
    ]
    made, source = ik.load(out), ik.load(files / "model.onnx")
    assert (made.inputs, made.outputs) == (source.inputs, source.outputs)
    arrays = np.load(files / "data.npz")
    right = np.argmax(ik.compile(made).run({"x": arrays["x"]})["logits"], 1) == arrays["target"]
    np.testing.assert_allclose(right.mean(), found["history"][-1]["val_accuracy"], rtol=1e-5)


def test_train_goes_on_from_a_checkpoint(files: Path, capsys: Capture) -> None:
    at = ["--checkpoint", files / "run.safetensors", "--json"]
    whole = json.loads(call(capsys, *_train(files, "--epochs", "3", "--json"))[1])
    call(capsys, *_train(files, "--epochs", "2", *at))
    assert json.loads(call(capsys, *_train(files, "--epochs", "3", *at))[1])["history"] == whole["history"]
    code, text, _ = call(capsys, *_train(files, "--epochs", "1", *at, "--restart"))
    assert code == 0
    assert len(json.loads(text)["history"]) == 1


def test_hints_are_in_the_words_of_the_command_line(files: Path, capsys: Capture) -> None:
    at = ["--checkpoint", files / "run.safetensors"]
    call(capsys, *_train(files, *at))
    np.savez(files / "objects.npz", x=np.asarray([None, {}], dtype=object))
    model, data = files / "model.onnx", ["--data", files / "data.npz", "-o", files / "t.onnx"]
    for args, message, python in (
        (_train(files, *at, "--learning-rate", "1"), "start anew with --restart", "resume="),
        (["train", model, "--loss", "mse", *data], "name one with --outputs", "outputs="),
        (_train(files, "--data", files / "objects.npz"), "no file of plain arrays", "pickle"),
        (["grad", model, "--of", "logits", "-o", files / "g.onnx"], "one element with --of", "of="),
        (["grad", model, "-o", files / "g.onnx"], "--of", "of="),
    ):
        code, _, error = call(capsys, *args)
        assert code == 2
        assert message in error
        assert python not in error


@pytest.mark.parametrize("shift", [1, -1])
def test_train_refuses_labels_that_are_no_classes(shift: int, files: Path, capsys: Capture) -> None:
    arrays = np.load(files / "data.npz")
    np.savez(files / "shifted.npz", x=arrays["x"], target=arrays["target"] + shift)
    code, _, error = call(capsys, *_train(files, "--data", files / "shifted.npz"))
    assert code == 2
    assert "the 3 classes have the numbers 0 to 2" in error


def test_train_prints_tables_for_people(files: Path, capsys: Capture) -> None:
    code, text, error = call(capsys, *_train(files, "--packed", "--ema", "0.9", "--clip", "1", "-o", files / "t.onnx"))
    assert code == 0
    assert text.splitlines()[0].split(maxsplit=1) == ["trained", "56 numbers in 2 parameters"]
    assert "epoch 1/1  loss" in error


def test_train_says_what_is_wrong(files: Path, capsys: Capture) -> None:
    model = files / "model.onnx"
    for args, message in (
        (["train", model, "--loss", "mse"], "nothing to train on"),
        (["train", model, "--loss", "mse", "--data", files / "data.npz"], "nothing would be left"),
        (_train(files, "--learning-rate", "-1"), "--learning-rate -1.0, and it is at least 0"),
        (_train(files, "--clip", "0"), "--clip: 0.0 is given"),
        (_train(files, "--ema", "2"), "--ema 2.0"),
        (_train(files, "--metrics", "mse"), "metric 'mse' compares"),
        (["train", model, "--loss", "mse", "--save-step", files / "s", "-o", files / "t.onnx"], "there is no --data"),
        (_train(files, "--optimizer", "adm"), "did you mean 'adam'"),
        (_train(files, "--trainable", "tail*"), "'tail*' matches no initializers"),
        (_train(files, "-o", files / "none" / "t.onnx"), "there is no folder"),
        (_train(files, "--log-csv", files / "none" / "t.csv"), "there is no folder"),
        (_train(files, "--device", "cuda", "--backend", "numpy"), "has no device 'cuda'"),
    ):
        code, _, error = call(capsys, *args)
        assert code == 2, message
        assert message in error
