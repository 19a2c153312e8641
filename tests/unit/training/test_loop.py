"""The loop: data, validation, callbacks, the log, and runs that are killed and go on."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file

import irkit as ik
from irkit.errors import ExecutionError, FeedError, IrkitError, LoadError
from irkit.passes.training import Callback, Run
from irkit.passes.training.data import Batches
from irkit.passes.training.runner import runner
from tests.unit.training import looped
from tests.unit.training.support import BACKENDS

ROOT = Path(__file__).resolve().parents[3]


def linear(rate: Any = 0.1, **options: Any) -> Any:
    """A step for ``y = x w``."""
    b = ik.Builder("linear")
    b.output(b.input("x", "float32", ["batch", 2]) @ b.initializer(np.zeros((2, 1), np.float32), "w"), "y")
    return ik.training_step(b.module(), "mse", ik.optimizers.SGD(rate), **options)


X = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
Y = X @ np.asarray([[2.0], [-1.0]], np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_learns_and_says_so(backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    run = ik.train(
        linear(metrics=["mae"]), (X, Y), 5, batch_size=10, backend=backend, validation=(X[:20], Y[:20]), log_csv=log
    )
    assert [row["epoch"] for row in run.history] == [1, 2, 3, 4, 5]
    assert run.history[-1]["loss"] < 0.05 * run.history[0]["loss"]
    np.testing.assert_allclose(run.state["w"], [[2], [-1]], atol=0.1)
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert list(rows[0]) == ["epoch", "loss", "mae", "val_loss", "val_mae"]
    assert float(rows[-1]["val_loss"]) == run.history[-1]["val_loss"]
    found = ik.compile(run.model())(X[:20])
    np.testing.assert_allclose(run.history[-1]["val_loss"], np.mean((found - Y[:20]) ** 2), rtol=1e-4)
    np.testing.assert_allclose(run.history[-1]["val_mae"], np.mean(np.abs(found - Y[:20])), rtol=1e-4)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("epoch 1/5  loss ")


def test_both_backends_do_the_same() -> None:
    runs = [looped.run(None, None, backend=backend) for backend in BACKENDS]
    for a, b in zip(*(run.history for run in runs), strict=True):
        assert a.keys() == b.keys()
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-4)
    for name, value in runs[0].state.items():
        np.testing.assert_allclose(runs[1].state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_module_is_made_a_step_first() -> None:
    b = ik.Builder("linear")
    b.output(b.input("x", "float32", ["batch", 2]) @ b.initializer(np.zeros((2, 1), np.float32), "w"), "y")
    module = b.module()
    run = ik.train(module, (X, Y), 2, loss="mse", optimizer="sgd", progress=False)
    assert len(run.history) == 2
    with pytest.raises(IrkitError, match="are for a module"):
        ik.train(run.step, (X, Y), 2, loss="mse")


def test_what_a_function_gives_is_taken_epoch_by_epoch() -> None:
    asked = []

    def batches(epoch: int) -> Any:
        asked.append(epoch)
        for i in range(3):
            yield {"x": X[i * 4 : i * 4 + 4], "target": Y[i * 4 : i * 4 + 4]}

    run = ik.train(linear(), batches, 2, progress=False)
    assert asked == [0, 1]
    assert run.state["step"] == 6
    with pytest.raises(IrkitError, match="epoch 1 has no batches"):
        ik.train(linear(), lambda epoch: [], 1, progress=False)


def test_data_that_does_not_fit_is_refused() -> None:
    step = linear()
    for data, message in (
        ({"x": X}, "the data lacks 'target'"),
        ({"x": X, "target": Y, "z": Y}, "there is no input 'z'"),
        ((X, Y, Y), "3 arrays are given"),
        ((X, Y[:7]), "differ in length: x 50, target 7"),
        ((X.astype(complex), Y), "'x' is complex128"),
        ((X[:, :1], Y), "axis 1 has size 1, expected 2"),
        ((X[:0], Y[:0]), "0 samples"),
    ):
        with pytest.raises(FeedError, match=message):
            ik.train(step, data, 1, progress=False)


def test_batches_of_a_function_may_be_tuples() -> None:
    run = ik.train(
        linear(), lambda epoch: ((X[i : i + 10], Y[i : i + 10]) for i in range(0, 50, 10)), 2, progress=False
    )
    whole = ik.train(linear(), (X, Y), 2, batch_size=10, shuffle=False, progress=False)
    assert run.history == whole.history


def test_what_is_no_data_is_refused() -> None:
    batch: Any = {"x": X, "target": Y}
    for data, message in (
        ((batch for _ in range(2)), "generator is given where arrays are expected"),
        (X, "ndarray is given"),
        (lambda epoch: 3, "the data's function gives int"),
        (lambda epoch: [X], "ndarray is given"),
    ):
        with pytest.raises(FeedError, match=message):
            ik.train(linear(), data, 1, progress=False)
    with pytest.raises(FeedError, match="float is given"):
        ik.train(linear(), (X, Y), 1, validation=0.2, progress=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(IrkitError, match="str is given"):
        ik.train("net.onnx", (X, Y))  # pyright: ignore[reportArgumentType]


def test_counts_below_their_least_are_refused() -> None:
    for options in ({"epochs": -1}, {"checkpoint_every": 0, "checkpoint": "run"}, {"batch_size": 0}):
        with pytest.raises(IrkitError, match=r"at least|holds nothing"):
            ik.train(linear(), (X, Y), progress=False, **options)


def classifier(loss: Any = "softmax-cross-entropy", **options: Any) -> Any:
    """A step for three classes."""
    b = ik.Builder("classifier")
    b.output(b.input("x", "float32", ["batch", 2]) @ b.initializer(np.zeros((2, 3), np.float32), "w"), "y")
    return ik.training_step(b.module(), loss, "sgd", **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_that_are_no_classes_are_refused(backend: str) -> None:
    labels = np.arange(50) % 3
    for wrong in (labels - 1, labels + 1):
        for data in ((X, wrong), lambda epoch, wrong=wrong: [(X, wrong)]):
            with pytest.raises(FeedError, match="the 3 classes have the numbers 0 to 2"):
                ik.train(classifier(), data, backend=backend, progress=False)
        with pytest.raises(FeedError, match="'target' holds"):
            ik.train(classifier(), (X, labels), backend=backend, validation=(X, wrong), progress=False)
    ignoring = classifier(ik.losses.Loss("softmax-cross-entropy", ignore_index=-1))
    ik.train(ignoring, (X, labels - 1), backend=backend, progress=False)


def test_an_error_of_onnxruntime_in_a_step_is_one_of_irkit() -> None:
    b = ik.Builder("reshaped")
    x = b.Reshape(b.input("x", "float32", ["batch", 2]), [-1, 4])
    b.output(x @ b.initializer(np.zeros((4, 1), np.float32), "w"), "y")
    step = ik.training_step(b.module(), "mse", "sgd")
    with pytest.raises(ExecutionError, match="onnxruntime"):
        runner(step.module, "onnxruntime").step({"x": X[:5], "target": Y[:2]})


def test_the_order_depends_on_the_seed_and_the_epoch_alone() -> None:
    inputs = linear().module.inputs
    wanted = {name: inputs[name] for name in ("x", "target")}

    def order(seed: int | None, epoch: int, start: int = 0) -> Any:
        found = Batches({"x": X, "target": Y}, wanted, 8, seed).of_epoch(epoch, start)
        return np.concatenate([batch["x"] for batch in found])

    assert sorted(order(0, 0)[:, 0]) == sorted(X[:, 0])
    np.testing.assert_array_equal(order(0, 3), order(0, 3))
    np.testing.assert_array_equal(order(0, 3, 2), order(0, 3)[16:])
    np.testing.assert_array_equal(order(None, 3), X)
    assert (order(0, 0) != order(0, 1)).any()
    assert (order(0, 0) != order(1, 0)).any()


def test_a_fixed_batch_leaves_out_what_does_not_fill_one() -> None:
    b = ik.Builder("fixed")
    b.output(b.input("x", "float32", [8, 2]) @ b.initializer(np.zeros((2, 1), np.float32), "w"), "y")
    run = ik.train(b.module(), (X, Y), 1, loss="mse", progress=False)
    assert run.state["step"] == 50 // 8
    with pytest.raises(FeedError, match="do not fill a batch of 8"):
        ik.train(run.step, (X[:7], Y[:7]), 1, progress=False)


def test_callbacks_are_told_and_may_change_the_run() -> None:
    told: list[str] = []

    class Watch(Callback):
        def on_begin(self, run: Run) -> None:
            told.append("begin")

        def on_batch(self, run: Run, logs: Any) -> None:
            told.append(f"batch {run.batch}")
            assert set(logs) == {"loss"}

        def on_epoch(self, run: Run, logs: Any) -> None:
            told.append(f"epoch {run.epoch}")
            run.put({"learning_rate": 0.0})
            run.stop = run.epoch == 2

        def on_end(self, run: Run) -> None:
            told.append("end")

    for backend in BACKENDS:
        told.clear()
        step = linear(ik.schedules.Adjustable(0.1))
        run = ik.train(step, (X, Y), 9, batch_size=25, callbacks=[Watch()], progress=False, backend=backend)
        assert told == ["begin", "batch 1", "batch 2", "epoch 1", "batch 1", "batch 2", "epoch 2", "end"]
        once = ik.train(linear(), (X, Y), 1, batch_size=25, progress=False, backend=backend)
        np.testing.assert_array_equal(run.state["w"], once.state["w"])
        with pytest.raises(IrkitError, match="no variable 'rate'"):
            run.put({"rate": 1})


def test_states_that_were_given_out_do_not_change() -> None:
    runs = runner(linear().module, "onnxruntime")
    batch = {"x": X, "target": Y}
    runs.step(batch)
    kept = runs.state()
    copies = {name: value.copy() for name, value in kept.items()}
    for _ in range(3):
        runs.step(batch)
    for name, value in kept.items():
        np.testing.assert_array_equal(value, copies[name])
    later = runs.state()
    assert (later["w"] != kept["w"]).all()
    runs.put(kept)
    runs.step(batch)
    again = runner(linear().module, "onnxruntime")
    for _ in range(2):
        again.step(batch)
    np.testing.assert_array_equal(runs.state()["w"], again.state()["w"])


def _killed(checkpoint: Path, log: Path, batches: int) -> int:
    """Runs in another process, which is killed after so many batches; returns how many it really did."""
    command = [sys.executable, "-m", "tests.unit.training.looped", str(checkpoint), str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done = 0
        for line in process.stdout:
            done = int(line)
            if done >= batches:
                process.kill()
                break
        process.wait()
    return done


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = looped.run(None, str(tmp_path / "whole.csv"))
    checkpoint, log = tmp_path / "run.safetensors", tmp_path / "run.csv"
    at = int(np.random.default_rng().integers(3, looped.EPOCHS * looped.BATCHES - 2))
    assert _killed(checkpoint, log, at) >= at
    resumed = looped.run(str(checkpoint), str(log))
    assert resumed.history == whole.history, f"killed after batch {at}"
    for name, value in whole.state.items():
        np.testing.assert_array_equal(resumed.state[name], value, err_msg=f"{name}, killed after batch {at}")
    assert log.read_text() == (tmp_path / "whole.csv").read_text()


@pytest.mark.parametrize("at", [2, 9, 10])
def test_every_place_of_a_checkpoint_can_be_gone_on_from(at: int, tmp_path: Path) -> None:
    class Stop(Callback):
        def on_batch(self, run: Run, logs: Any) -> None:
            if run.epoch * looped.BATCHES + run.batch == at:
                raise KeyboardInterrupt

    path = str(tmp_path / "run.safetensors")
    options = {"batch_size": 8, "threads": 1, "checkpoint": path, "checkpoint_every": 1, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        ik.train(looped.step(), looped.data(), looped.EPOCHS, callbacks=[Stop()], **options)
    resumed = ik.train(looped.step(), looped.data(), looped.EPOCHS, **options)
    whole = looped.run(None, None)
    assert resumed.history == whole.history
    for name, value in whole.state.items():
        np.testing.assert_array_equal(resumed.state[name], value, err_msg=name)


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    ik.train(linear(), (X, Y), 1, checkpoint=path, progress=False)
    for other, message in (
        (linear(0.2), "optimizer.learning_rate was 0.1 and is 0.2"),
        (linear(clip=1.0), "clip was None and is 'ClipByGlobalNorm'"),
        (linear(metrics=["mae"]), r"metrics\[0\] was absent and is 'mae'"),
        (ik.training_step(linear().source, "mae", ik.optimizers.SGD(0.1)), "loss was 'mse' and is 'mae'"),
        (ik.training_step(linear().source, "mse", "adam"), "optimizer was 'SGD' and is 'Adam'"),
    ):
        with pytest.raises(LoadError, match=message):
            ik.train(other, (X, Y), 2, checkpoint=path, progress=False)
    again = ik.train(linear(keep="y"), (X, Y), 2, checkpoint=path, progress=False)
    assert len(again.history) == 2
    with pytest.raises(LoadError, match="of another training step"):
        ik.train(linear(metrics=["mae"]), (X, Y), 2, checkpoint=path, progress=False)
    assert len(ik.train(linear(), (X, Y), 2, checkpoint=path, resume=False, progress=False).history) == 2
    assert len(ik.train(linear(), (X, Y), 2, checkpoint=path, progress=False).history) == 2
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LoadError, match="cannot read the state"):
        ik.train(linear(), (X, Y), 3, checkpoint=path, progress=False)


def test_a_saved_step_runs_on_onnxruntime_alone(tmp_path: Path) -> None:
    step = looped.step()
    step.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    state = load_file(tmp_path / "state.safetensors")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx", options, providers=["CPUExecutionProvider"])
    batch = {name: value[:8] for name, value in looped.data().items()}
    assert [entry["name"] for entry in manifest["batch"]] == list(batch)
    runs = runner(step.module, "onnxruntime", threads=1)
    for _ in range(4):
        feeds = {**batch, **{entry["input"]: state[entry["name"]] for entry in manifest["state"]}}
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(names, feeds), strict=True))
        for entry in manifest["state"]:
            if entry["output"] is not None:
                state[entry["name"]] = found[entry["output"]]
        expected = runs.step(batch)
        for entry in manifest["outputs"]:
            np.testing.assert_allclose(found[entry["name"]], expected[entry["name"]], rtol=1e-6)
    for name, value in runs.state().items():
        np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
    held = {entry["state"] for entry in manifest["parameters"]}
    assert {entry["name"] for entry in manifest["state"] if entry["role"] == "parameter"} == held
    assert {entry["name"] for entry in manifest["state"] if entry["reset"] == "epoch"} == {
        "metric/accuracy/total",
        "metric/accuracy/count",
    }


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, drawn in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        ik.train(linear(), (X, Y), 2, batch_size=10)
        text = stream.getvalue()
        assert ("\x1b[" in text) == drawn
        assert text.count("epoch 1/2  loss ") == 1
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    ik.train(linear(), (X, Y), 1, progress=False)
    assert stream.getvalue() == ""
