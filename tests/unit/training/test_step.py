"""What ``training_step`` makes: the module's face, and each option against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import irkit as ik
from irkit.dialects import state
from irkit.errors import IrkitError, SaveError, UnsupportedError
from irkit.ir.types import tensor
from irkit.passes.training import gradients
from irkit.passes.training.runner import runner
from irkit.passes.training.step import TrainingStep
from tests.unit.training.nets import NETS
from tests.unit.training.support import BACKENDS

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3)).astype(np.float32), RNG.standard_normal((6, 2)).astype(np.float32)
W, B = RNG.standard_normal((3, 2)).astype(np.float32), np.asarray([0.1, -0.2], np.float32)


def linear(kind: str = "float32") -> ik.Module:
    """``y = x w + b``, by its initializers ``w`` and ``b``."""
    b = ik.Builder("linear")
    x = b.input("x", kind, ["batch", 3])
    w, c = b.initializer(W.astype(kind), "w"), b.initializer(B.astype(kind), "b")
    b.output(b.Add(b.MatMul(x, w), c), "y")
    return b.module()


def slopes(x: Array = X, y: Array = Y, w: Array = W, b: Array = B) -> dict[str, Array]:
    """The gradients of the mean squared error."""
    error = 2 * (x @ w + b - y) / y.size
    return {"w": x.T @ error, "b": error.sum(0)}


def run(step: TrainingStep, *batches: dict[str, Any]) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """The results of each batch and the state at the end, on NumPy; onnxruntime's must be the same."""
    found = []
    for backend in BACKENDS:
        runs = runner(step.module, backend, threads=1)
        found.append(([runs.step(batch) for batch in batches], runs.state()))
    for name, value in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    return found[0]


BATCH = {"x": X, "target": Y}


def test_signature_and_values() -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(0.1), metrics=["mae"], keep="y")
    assert step.batch_inputs == ["x", "target"]
    assert step.results == ["loss", "y", "mae"]
    assert [entry.name for entry in step.signature if entry.trainable] == ["w", "b"]
    assert str(step.module.inputs["x"]) == str(linear().inputs["x"])
    (results,), after = run(step, BATCH)
    np.testing.assert_allclose(results["loss"], np.mean((X @ W + B - Y) ** 2), rtol=1e-6)
    np.testing.assert_allclose(results["mae"], np.mean(np.abs(X @ W + B - Y)), rtol=1e-6)
    for name, start in (("w", W), ("b", B)):
        np.testing.assert_allclose(after[name], start - 0.1 * slopes()[name], rtol=1e-5)
    assert after["step"] == 1


@pytest.mark.parametrize("net", NETS)
def test_every_pass_keeps_what_a_step_computes(net: str) -> None:
    step = ik.training_step(NETS[net].module(), "softmax-cross-entropy", "adam", pipeline="")
    ik.optimize(step.module, "O2", check="each", backends=BACKENDS)


def test_check_each_holds() -> None:
    step = ik.training_step(linear(), "mse", "adamw", pipeline="", clip=1.0, metrics=["mae"])
    ik.optimize(step.module, "O2", check="each", backends=BACKENDS)


def test_only_standard_ops_are_left() -> None:
    step = ik.training_step(NETS["mobile"].module(), "softmax-cross-entropy", "adam")
    model = step.module.to_onnx()
    assert {opset.domain for opset in model.opset_import} <= {"", "ai.onnx"}
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}


# What is trained


def test_frozen_parameters_stay_constants() -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(0.1), freeze="b*")
    assert [p.name for p in step.parameters] == ["w"]
    assert "b" not in step.initial()
    chosen = ik.training_step(linear(), "mse", ik.optimizers.SGD(0.1), trainable=["?"], freeze=["w"])
    assert [p.name for p in chosen.parameters] == ["b"]


def test_what_does_not_count_is_left_out_or_refused() -> None:
    b = ik.Builder("scaled")
    x = b.input("x", "float32", ["batch", 3])
    factor, table = b.initializer(np.float32(2), "factor"), b.initializer(np.zeros(3, np.float32), "table")
    unused = b.initializer(np.ones(3, np.float32), "unused")
    b.output(x @ b.initializer(W, "w") * factor, "y")
    b.output(table * unused, "other")
    module = b.module()
    step = ik.training_step(module, "mse", outputs="y")
    assert [p.name for p in step.parameters] == ["w"]
    assert [p.name for p in ik.training_step(module, "mse", outputs="y", trainable=["factor"]).parameters] == ["factor"]
    with pytest.raises(IrkitError, match="respect to 'table' is zero"):
        ik.training_step(module, "mse", outputs="y", trainable=["table", "w"])
    with pytest.raises(IrkitError, match="'nothing' matches no initializers"):
        ik.training_step(module, "mse", outputs="y", trainable=["nothing"])
    with pytest.raises(IrkitError, match="'nothing' matches no initializers"):
        ik.training_step(module, "mse", outputs="y", freeze=["nothing"])
    with pytest.raises(IrkitError, match="nothing to train"):
        ik.training_step(module, "mse", outputs="y", freeze=["*"])
    with pytest.raises(IrkitError, match="2 outputs that could be compared"):
        ik.training_step(module, "mse")


# Losses


def test_a_value_of_the_graph_is_the_loss() -> None:
    b = ik.Builder("own")
    x, t = b.input("x", "float32", ["batch", 3]), b.input("t", "float32", ["batch", 2])
    error = x @ b.initializer(W, "w") - t
    b.output(b.ReduceMean(error * error), "cost")
    step = ik.training_step(b.module(), "cost", ik.optimizers.SGD(0.1))
    assert step.batch_inputs == ["x", "t"]
    _, after = run(step, {"x": X, "t": Y})
    np.testing.assert_allclose(after["w"], W - 0.1 * slopes(b=np.zeros(2, np.float32))["w"], rtol=1e-5)


def test_a_function_is_the_loss() -> None:
    def halved(b: Any, target: Any, prediction: Any) -> Any:
        error = target - prediction
        return b.ReduceMean(error * error, [-1], keepdims=0) * 0.5

    step = ik.training_step(linear(), halved, ik.optimizers.SGD(0.2))
    _, after = run(step, BATCH)
    np.testing.assert_allclose(after["w"], W - 0.1 * slopes()["w"], rtol=1e-5)


def test_several_outputs_with_losses_weights_and_metrics() -> None:
    b = ik.Builder("two")
    h = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")
    b.output(h, "a")
    b.output(b.Sigmoid(h), "p")
    step = ik.training_step(
        b.module(),
        {"a": "mse", "p": "binary-crossentropy"},
        ik.optimizers.SGD(0.1),
        loss_weights={"p": 0.5},
        targets={"p": "labels"},
        metrics={"p": ["accuracy"]},
        sample_weight=True,
    )
    assert step.batch_inputs == ["x", "target/a", "labels", "sample_weight"]
    assert step.metric_names == ("p/accuracy",)
    labels, weight = (Y > 0).astype(np.float32), np.linspace(0, 1, 6, dtype=np.float32)
    (results,), after = run(step, {"x": X, "target/a": Y, "labels": labels, "sample_weight": weight})
    p = 1 / (1 + np.exp(-(X @ W)))
    squares = np.mean((X @ W - Y) ** 2 * weight[:, None])
    crosses = np.mean(-(labels * np.log(p) + (1 - labels) * np.log(1 - p)) * weight[:, None])
    np.testing.assert_allclose(results["loss"], squares + 0.5 * crosses, rtol=1e-5)
    np.testing.assert_allclose(results["p/accuracy"], np.mean((p > 0.5) == labels), rtol=1e-6)
    slope = X.T @ ((2 * (X @ W - Y) + 0.5 * (p - labels)) * weight[:, None]) / Y.size
    np.testing.assert_allclose(after["w"], W - 0.1 * slope, rtol=1e-4)


def test_a_loss_that_is_no_number_is_refused() -> None:
    with pytest.raises(IrkitError, match="a loss is one number"):
        ik.training_step(linear(), ik.losses.Loss("mse", reduction="none"))
    with pytest.raises(IrkitError, match="did you mean 'mse'"):
        ik.training_step(linear(), "mze")


def test_regularizers_are_part_of_the_loss() -> None:
    step = ik.training_step(
        linear(), "mse", ik.optimizers.SGD(0.1), regularizers={"w": ik.regularizers.L1L2(0.01, 0.1)}
    )
    (results,), after = run(step, BATCH)
    penalty = 0.01 * np.abs(W).sum() + 0.1 * (W**2).sum()
    np.testing.assert_allclose(results["loss"], np.mean((X @ W + B - Y) ** 2) + penalty, rtol=1e-5)
    slope = slopes()["w"] + 0.01 * np.sign(W) + 0.2 * W
    np.testing.assert_allclose(after["w"], W - 0.1 * slope, rtol=1e-5)
    found = ik.compile(step.evaluation).run(BATCH)
    np.testing.assert_allclose(found["loss"], results["loss"], rtol=1e-6)


# Gradients


def _global_norm() -> float:
    return float(np.sqrt(sum((g**2).sum() for g in slopes().values())))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("clip", "clipped"),
    [
        (0.1, lambda g: g * (0.1 / _global_norm())),
        (1e6, lambda g: g),
        (gradients.ClipByValue(0.05), lambda g: np.clip(g, -0.05, 0.05)),
    ],
    ids=["global", "wide", "value"],
)
def test_clipping(clip: Any, clipped: Any, packed: bool) -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(1.0), clip=clip, packed=packed)
    _, after = run(step, BATCH)
    values = step.values(after)
    for name, start in (("w", W), ("b", B)):
        np.testing.assert_allclose(values[name], start - clipped(slopes()[name]), rtol=1e-4, atol=1e-6)


def test_clipping_each_gradient_by_its_own_norm() -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(1.0), clip=gradients.ClipByNorm(0.1))
    _, after = run(step, BATCH)
    for name, start in (("w", W), ("b", B)):
        slope = slopes()[name]
        np.testing.assert_allclose(after[name], start - slope * min(1, 0.1 / np.linalg.norm(slope)), rtol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_accumulated_gradients_are_those_of_one_batch(packed: bool) -> None:
    rule = ik.optimizers.Adam(0.1)
    parts = ik.training_step(linear(), "mse", rule, accumulate=3, packed=packed, metrics=["mae"])
    whole = ik.training_step(linear(), "mse", rule, packed=packed)
    pieces = [{"x": X[i : i + 2], "target": Y[i : i + 2]} for i in (0, 2, 4)]
    results, between = run(parts, *pieces[:2])
    np.testing.assert_array_equal(parts.values(between)["w"], W)
    assert between["step"] == 0
    _, after = run(parts, *pieces, *pieces)
    _, expected = run(whole, BATCH, BATCH)
    assert after["step"] == 2
    for name in ("w", "b"):
        np.testing.assert_allclose(parts.values(after)[name], whole.values(expected)[name], rtol=1e-4)
    np.testing.assert_allclose(results[1]["mae"], np.mean(np.abs(X @ W + B - Y)[:4]), rtol=1e-5)


def test_parameters_of_float16_are_kept_in_float32() -> None:
    step = ik.training_step(linear("float16"), "mse", ik.optimizers.SGD(1e-4), loss_scale=1024.0)
    state_ = step.initial()
    assert {state_[name].dtype.name for name in ("w", "b")} == {"float32"}
    batch = {"x": X.astype(np.float16), "target": Y.astype(np.float16)}
    _, after = run(step, *[batch] * 50)
    # Each step is far below what float16 would add to a weight of about 1.
    drift = np.abs(after["w"] - state_["w"])
    assert drift.max() > 1e-4
    np.testing.assert_allclose(after["w"], W.astype(np.float16) - 50e-4 * slopes()["w"], rtol=1e-3, atol=1e-4)
    assert step.inference(after).outputs == linear("float16").outputs


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_by_infinite_gradients_is_left_out(accumulate: int) -> None:
    rule = gradients.DynamicLossScale(initial=8.0, growth_steps=2)
    step = ik.training_step(linear(), "mse", ik.optimizers.Adam(0.1), loss_scale=rule, accumulate=accumulate)
    bad = {"x": X * np.float32(np.inf), "target": Y}
    scales = []
    state_: dict[str, Array] = {}
    for batches in ([BATCH], [BATCH, bad], [BATCH, bad, BATCH], [BATCH, bad, BATCH, BATCH]):
        state_ = run(step, *[b for batch in batches for b in [batch] * accumulate])[1]
        scales.append(float(state_["loss_scale"]))
    assert scales == [8.0, 4.0, 4.0, 8.0]
    assert state_["step"] == 3
    plain = ik.training_step(linear(), "mse", ik.optimizers.Adam(0.1))
    np.testing.assert_allclose(state_["w"], run(plain, BATCH, BATCH, BATCH)[1]["w"], rtol=1e-5)


# Slots, rates, averages


@pytest.mark.parametrize("packed", [False, True])
def test_moving_averages_of_the_weights(packed: bool) -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(0.1), ema=0.75, packed=packed)
    _, after = run(step, BATCH, BATCH)
    first = W - 0.1 * slopes()["w"]
    second = first - 0.1 * slopes(w=first, b=B - 0.1 * slopes()["b"])["w"]
    expected = 0.75 * (0.75 * W + 0.25 * first) + 0.25 * second
    np.testing.assert_allclose(step.values(after, ema=True)["w"], expected, rtol=1e-5)
    np.testing.assert_allclose(step.values(after)["w"], second, rtol=1e-5)
    plain = ik.training_step(linear(), "mse")
    with pytest.raises(IrkitError, match="make the step with ema="):
        plain.values(plain.initial(), ema=True)


def test_weight_decay_leaves_out_what_is_named() -> None:
    for packed in (False, True):
        rule = ik.optimizers.SGD(0.1, weight_decay=0.5, no_decay=["b"])
        step = ik.training_step(linear(), "mse", rule, packed=packed)
        values = step.values(run(step, BATCH)[1])
        np.testing.assert_allclose(values["w"], 0.95 * W - 0.1 * slopes()["w"], rtol=1e-5)
        np.testing.assert_allclose(values["b"], B - 0.1 * slopes()["b"], rtol=1e-5)


def test_schedules_follow_the_step_and_adjustable_rates_the_state() -> None:
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(ik.schedules.Piecewise([0], [0.1, 0.0])))
    _, after = run(step, BATCH, BATCH)
    np.testing.assert_allclose(after["w"], W - 0.1 * slopes()["w"], rtol=1e-5)
    step = ik.training_step(linear(), "mse", ik.optimizers.SGD(ik.schedules.Adjustable(0.5)), accumulate=1)
    runs = runner(step.module, "onnxruntime")
    runs.put({"learning_rate": np.float32(0.1)})
    runs.step(BATCH)
    np.testing.assert_allclose(runs.state()["w"], W - 0.1 * slopes()["w"], rtol=1e-5)


def test_optimizers_that_look_at_whole_parameters_are_not_packed() -> None:
    with pytest.raises(IrkitError, match="cannot be packed"):
        ik.training_step(linear(), "mse", "lamb", packed=True)


# Modes


def _normalized() -> ik.Module:
    b = ik.Builder("normalized")
    h = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")
    kept = [b.initializer(np.full(2, v, np.float32), name) for name, v in (("mean", 0.5), ("variance", 2.0))]
    scale, bias = b.initializer(np.ones(2, np.float32), "scale"), b.initializer(B, "bias")
    b.output(b.BatchNormalization(h, scale, bias, *kept, momentum=0.8), "y")
    return b.module()


def test_batch_normalization_trains_and_keeps_statistics() -> None:
    step = ik.training_step(_normalized(), "mse", ik.optimizers.SGD(0.0))
    assert [p.name for p in step.parameters] == ["w", "scale", "bias"]
    (results,), after = run(step, BATCH)
    h = X @ W
    y = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5) + B
    np.testing.assert_allclose(results["loss"], np.mean((y - Y) ** 2), rtol=1e-5)
    np.testing.assert_allclose(after["mean"], 0.8 * 0.5 + 0.2 * h.mean(0), rtol=1e-4)
    np.testing.assert_allclose(after["variance"], 0.8 * 2.0 + 0.2 * h.var(0), rtol=1e-4)
    made = step.inference(after)
    expected = (h - after["mean"]) / np.sqrt(after["variance"] + 1e-5) + B
    np.testing.assert_allclose(ik.compile(made)(X), expected, rtol=1e-4, atol=1e-5)
    found = runner(step.evaluation)
    found.put(after)
    np.testing.assert_allclose(found.step(BATCH)["loss"], np.mean((expected - Y) ** 2), rtol=1e-4)


@pytest.mark.parametrize("options", [{"batch_norm": "inference"}, {"freeze": ["mean"]}])
def test_batch_normalization_may_be_left_alone(options: dict[str, Any]) -> None:
    step = ik.training_step(_normalized(), "mse", ik.optimizers.SGD(0.1), **options)
    assert not {entry.metadata["role"] for entry in step.signature} & {"statistics"}
    (results,), _ = run(step, BATCH)
    y = (X @ W - 0.5) / np.sqrt(2 + 1e-5) + B
    np.testing.assert_allclose(results["loss"], np.mean((y - Y) ** 2), rtol=1e-5)


def test_the_statistics_of_a_batch_are_computed_once() -> None:
    step = ik.training_step(_normalized(), "mse", ik.optimizers.SGD(0.1))
    found = [op.op_type for op in step.module.walk() if getattr(op, "op_type", "") in ("ReduceMean", "Sqrt")]
    # Mean and variance, two in the gradient, and two of the loss: over the columns, then the batch.
    assert found.count("Sqrt") == 1
    assert found.count("ReduceMean") == 6


def _dropping(ratio: float = 0.25) -> ik.Module:
    b = ik.Builder("dropping")
    x = b.input("x", "float32", ["batch", 400])
    y = b.Dropout(x * b.initializer(np.ones(400, np.float32), "w"), np.float32(ratio))
    b.output(y, "y")
    return b.module()


def test_dropout_is_on_and_draws_anew_at_every_step() -> None:
    ones = np.ones((30, 400), np.float32)
    step = ik.training_step(_dropping(), "mse", ik.optimizers.SGD(0.0), keep="y")
    batch = {"x": ones, "target": ones}
    results, after = run(step, batch, batch)
    first, second = results[0]["y"], results[1]["y"]
    for drawn in (first, second):
        assert set(np.unique(drawn)) == {0.0, np.float32(4 / 3)}
        assert abs((drawn == 0).mean() - 0.25) < 0.015
    # Two independent masks agree where both keep or both drop.
    assert abs(((first == 0) == (second == 0)).mean() - (0.75**2 + 0.25**2)) < 0.02
    assert after["iteration"] == 2
    again = ik.training_step(_dropping(), "mse", ik.optimizers.SGD(0.0), keep="y")
    np.testing.assert_array_equal(run(again, batch)[0][0]["y"], first)
    other = ik.training_step(_dropping(), "mse", ik.optimizers.SGD(0.0), keep="y", seed=1)
    assert (run(other, batch)[0][0]["y"] != first).mean() > 0.2
    np.testing.assert_array_equal(ik.compile(step.inference(after))(ones), ones)


def test_what_is_drawn_has_the_right_distribution() -> None:
    b = ik.Builder("noise")
    x = b.input("x", "float32", ["batch", 500]) * b.initializer(np.ones(500, np.float32), "w")
    b.output(x, "y")
    b.output(b.RandomNormalLike(x, mean=1.0, scale=2.0), "normal")
    b.output(b.RandomUniformLike(x, low=-1.0, high=3.0), "uniform")
    b.output(b.Bernoulli(x, dtype=1), "bernoulli")
    names = ["normal", "uniform", "bernoulli"]
    step = ik.training_step(b.module(), "mse", outputs="y", keep=names)
    batch = {"x": np.full((40, 500), 0.3, np.float32), "target": np.ones((40, 500), np.float32)}
    (results,), _ = run(step, batch)
    for name, mean, deviation in (("normal", 1, 2), ("uniform", 1, 4 / np.sqrt(12)), ("bernoulli", 0.3, 0.21**0.5)):
        assert abs(results[name].mean() - mean) < 0.05, name
        assert abs(results[name].std() - deviation) < 0.05, name
        rows = np.corrcoef(results[name][:20])
        assert np.abs(rows[~np.eye(20, dtype=bool)]).max() < 0.25, name


def test_what_is_drawn_in_a_loop_changes_with_its_iterations() -> None:
    b = ik.Builder("loop")
    x = b.input("x", "float32", ["batch", 8]) * b.initializer(np.ones(8, np.float32), "w")

    def body(inner: Any, i: Any, going: Any, total: Any) -> list[Any]:
        return [going, total + x, inner.RandomUniform(shape=[4])]

    total, drawn = b.Loop(3, True, b.Sub(x, x), body=body)
    b.output(total, "y")
    b.output(drawn, "drawn")
    step = ik.training_step(b.module(), "mse", outputs="y", keep="drawn")
    ones = np.ones((2, 8), np.float32)
    results, _ = run(step, {"x": ones, "target": ones}, {"x": ones, "target": ones})
    found = np.concatenate([results[0]["drawn"], results[1]["drawn"]])
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize("options", [{}, {"scan_input_axes": [1], "scan_input_directions": [1]}], ids=["plain", "axes"])
def test_what_is_drawn_in_a_scan_changes_with_its_iterations(options: dict[str, Any]) -> None:
    b = ik.Builder("scan")
    x = b.input("x", "float32", ["batch", 4]) * b.initializer(np.ones(4, np.float32), "w")

    def body(inner: Any, total: Any, row: Any) -> list[Any]:
        dropped = inner.Dropout(row, np.float32(0.5))
        return [total + inner.ReduceSum(dropped, keepdims=0), inner.RandomUniform(shape=[3])]

    total, drawn = b.Scan(np.float32(0), x, num_scan_inputs=1, body=body, **options)
    b.output(b.Reshape(total, [1]), "y")
    b.output(drawn, "drawn")
    step = ik.training_step(b.module(), "mse", ik.optimizers.SGD(0.1), outputs="y", keep=["drawn", "y"])
    batch = {"x": np.ones((5, 4), np.float32), "target": np.zeros(1, np.float32)}
    results, after = run(step, batch, batch)
    found = np.concatenate([results[0]["drawn"], results[1]["drawn"]])
    assert len(found) == (10 if not options else 8)
    assert len(np.unique(found)) == found.size
    assert results[0]["y"] not in (0, 40)
    assert len(np.unique(after["w"])) > 1


def test_what_cannot_be_drawn_from_the_state_is_refused() -> None:
    b = ik.Builder("sampled")
    x = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")
    b.output(x, "y")
    b.output(b.Multinomial(x), "drawn")
    with pytest.raises(UnsupportedError, match="would not change from step to step"):
        ik.training_step(b.module(), "mse", outputs="y")


# State of the module's own, and the way back


def test_state_of_the_module_is_state_of_the_step() -> None:
    b = ik.Builder("own")
    weight = state.variable(b, "w", W, trainable=True)
    count = state.variable(b, "count", 0)
    value, _ = state.read(b, weight)
    b.output(b.input("x", "float32", ["batch", 3]) @ value, "y")
    b.output(state.assign_add(b, count, 1), "counted")
    module = b.module()
    for source in (module, ik.optimize(module, "lift-state")):
        step = ik.training_step(source, "mse", ik.optimizers.SGD(0.1))
        assert [p.name for p in step.parameters] == ["w"]
        _, after = run(step, BATCH, BATCH)
        assert after["count"] == 2
        made = step.inference(after)
        assert state.initial_state(made)["count"] == 2
        np.testing.assert_array_equal(state.initial_state(made)["w"], after["w"])
        assert list(step.evaluation.outputs) == ["loss"]


def test_state_that_changes_its_size_runs_on_both_backends() -> None:
    b = ik.Builder("log")
    y = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")
    log = state.variable(b, "log", np.zeros((0, 2), np.float32), type=tensor("float32", [None, 2]))
    old, seen = state.read(b, log)
    b.output(y, "y")
    b.output(state.assign(b, log, b.Concat(old, y, axis=0), after=[seen]), "logged")
    step = ik.training_step(b.module(), "mse", ik.optimizers.SGD(0.0))
    _, after = run(step, BATCH, BATCH)
    np.testing.assert_allclose(after["log"], np.concatenate([X @ W] * 2), rtol=1e-5)


def test_an_input_with_a_default_is_trained_if_it_is_named() -> None:
    b = ik.Builder("squares")
    y = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w") * b.initializer(np.ones(2, np.float32), "v")
    b.output(b.ReduceSum(y * y, keepdims=0), "y")
    module = ik.value_and_grad(b.module(), of="y", wrt="w", as_inputs=True)
    step = ik.training_step(module, "y", ik.optimizers.SGD(0.1), trainable="w")
    _, after = run(step, {"x": X})
    assert step.batch_inputs == ["x"]
    np.testing.assert_allclose(after["w"], W - 0.1 * 2 * X.T @ (X @ W), rtol=1e-4)
    assert "w" in step.inference(after).defaults
    other = ik.training_step(module, "y", ik.optimizers.SGD(0.1), trainable="v")
    assert other.batch_inputs == ["x", "w"]
    assert len(ik.train(other, {"x": X}, 1, batch_size=3, progress=False).history) == 1


def _sum_of_squares() -> ik.Module:
    b = ik.Builder("squares")
    y = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")
    b.output(b.ReduceSum(y * y, keepdims=0), "y")
    return b.module()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("net", ["mlp", "mobile"])
def test_the_way_back_keeps_the_source(net: str, packed: bool) -> None:
    source = NETS[net].module()
    step = ik.training_step(source, "softmax-cross-entropy", "adam", packed=packed)
    assert step.inference() == source
    x, y = next(NETS[net].batches(1))
    runs = runner(step.module)
    for _ in range(3):
        runs.step({"x": x, "target": y})
    made = step.inference(runs.state())
    assert made != source
    assert (made.inputs, made.outputs) == (source.inputs, source.outputs)
    evaluator = runner(step.evaluation)
    evaluator.put(runs.state())
    logits = ik.compile(made)(x).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    loss = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y])
    np.testing.assert_allclose(evaluator.step({"x": x, "target": y})["loss"], loss, rtol=1e-4)


def test_names_that_the_state_uses_may_be_those_of_parameters() -> None:
    b = ik.Builder("named")
    h = b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "step")
    kept = [b.initializer(np.full(2, v, np.float32), name) for name, v in (("seed", 0.0), ("iteration", 1.0))]
    scale, bias = b.initializer(np.ones(2, np.float32), "loss"), b.initializer(B, "target")
    b.output(b.Dropout(b.BatchNormalization(h, scale, bias, *kept), np.float32(0.5)), "y")
    step = ik.training_step(b.module(), "mse", "adam", targets="t")
    _, after = run(step, {"x": X, "t": Y})
    evaluator = runner(step.evaluation)
    assert set(evaluator.state()) <= set(after)
    evaluator.put(after)
    y = ik.compile(step.inference(after))(X)
    np.testing.assert_allclose(evaluator.step({"x": X, "t": Y})["loss"], np.mean((y - Y) ** 2), rtol=1e-4)
    assert (step.values(after)["step"] != W).all()


def test_options_for_what_has_no_loss_are_refused() -> None:
    for options in ({"loss_weights": {"z": 2.0}}, {"targets": {"z": "t"}}, {"metrics": {"z": ["mae"]}}):
        with pytest.raises(IrkitError, match="names 'z', which has no loss"):
            ik.training_step(linear(), "mse", **options)
    with pytest.raises(IrkitError, match="no samples' losses to weigh"):
        ik.training_step(_sum_of_squares(), "y", sample_weight=True)
    for options, message in (
        ({"accumulate": 0}, "at least 1"),
        ({"batch_norm": "off"}, "is not known"),
        ({"loss_scale": "auto"}, "is not known"),
        ({"metrics": ["accurcy"]}, "did you mean 'accuracy'"),
        ({"regularizers": {"v": ik.regularizers.L2()}}, "'v' matches no parameters"),
        ({"keep": "z"}, "no value 'z'"),
    ):
        with pytest.raises(IrkitError, match=message):
            ik.training_step(linear(), "mse", **options)


def test_functions_are_inlined_and_older_forms_brought_up_to_date() -> None:
    text = """<ir_version: 8, opset_import: ["" : 6, "own" : 1]>
        g (float[N, 3] x) => (float[N, 3] z)
        <float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, float[3] m = {5, 5, 5}, float[3] v = {1, 1, 1},
         float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 10}>
        { h = own.block(x, w)  z = BatchNormalization<is_test = 1>(h, s, b, m, v) }
        <domain: "own", opset_import: ["" : 6]> block (a, w) => (c)
        { p = MatMul(a, w)  c = Dropout<ratio = 0.5, is_test = 1>(p) }"""
    module = ik.load(onnx.parser.parse_model(text))
    step = ik.training_step(module, "mse", ik.optimizers.SGD(0.01))
    assert {entry.metadata["role"] for entry in step.signature} >= {"statistics", "seed", "parameter"}
    assert [p.name for p in step.parameters] == ["s", "b", "w"]
    _, after = run(step, {"x": X, "target": X})
    assert (after["m"] != 5).all()
    assert step.inference(after).inputs == module.inputs


def test_no_guard_stands_where_everything_is_finite() -> None:
    b = ik.Builder("plain")
    h = b.Dropout(b.Relu(b.input("x", "float32", ["batch", 3]) @ b.initializer(W, "w")), np.float32(0.2))
    b.output(h @ b.initializer(np.ones((2, 4), np.float32), "head"), "logits")
    module = b.module()
    for loss in ("softmax-cross-entropy", "mse", "categorical-crossentropy"):
        options = {"from_logits": True} if loss.startswith("cat") else {}
        step = ik.training_step(module, ik.losses.Loss(loss, **options), "sgd")
        assert "Where" not in {getattr(op, "op_type", "") for op in step.module.walk()}, loss


@pytest.mark.parametrize(
    ("loss", "metric"),
    [
        ("softmax-cross-entropy", "mse"),
        ("softmax-cross-entropy", "mae"),
        ("softmax-cross-entropy", "rmse"),
        ("softmax-cross-entropy", "precision"),
        ("softmax-cross-entropy", "auc"),
        ("softmax-cross-entropy", "f1-score"),
        ("softmax-cross-entropy", "binary-accuracy"),
        ("softmax-cross-entropy", "top-k-categorical-accuracy"),
        ("categorical-crossentropy", "sparse-categorical-accuracy"),
        ("mse", "sparse-top-k-categorical-accuracy"),
    ],
)
def test_a_metric_that_takes_other_targets_is_refused(loss: str, metric: str) -> None:
    b = ik.Builder("classes")
    b.output(b.input("x", "float32", ["batch", 2]) @ b.initializer(np.ones((2, 3), np.float32), "w"), "y")
    sparse = loss == "softmax-cross-entropy"
    with pytest.raises(IrkitError, match=f"metric '{metric}' compares .*but the target is ") as caught:
        ik.training_step(b.module(), loss, "sgd", metrics=[metric])
    assert ("sparse-categorical-accuracy" if sparse else " categorical-accuracy") in caught.value.hint
    assert "float32[batch, 3]" in caught.value.message
    assert ("int64[batch]" if sparse else "a target int64[batch]") in caught.value.message


def test_a_loss_that_takes_other_targets_than_there_are_is_refused() -> None:
    for loss, shape, hint in (
        ("mse", ["batch"], "softmax-cross-entropy"),
        ("mse", ["batch", 2], "the shape of float32"),
        ("softmax-cross-entropy", ["batch", 3], "categorical-crossentropy"),
    ):
        b = ik.Builder("classes")
        b.output(b.input("x", "float32", ["batch", 2]) @ b.initializer(np.ones((2, 3), np.float32), "w"), "y")
        b.input("target", "int64", shape)
        with pytest.raises(IrkitError, match=r"loss '[a-z-]+' compares .*the target is int64") as caught:
            ik.training_step(b.module(), loss, "sgd")
        assert hint in caught.value.hint


def test_values_out_of_range_are_refused() -> None:
    for make in (
        lambda: ik.optimizers.Adam(-1),
        lambda: ik.optimizers.SGD(float("nan")),
        lambda: ik.optimizers.AdamW(weight_decay=-0.1),
        lambda: ik.optimizers.Adam(beta_1=1.0),
        lambda: ik.optimizers.SGD(momentum=-0.5),
        lambda: ik.optimizers.get("rmsprop", rho=2.0),
        lambda: gradients.ClipByValue(0.0),
        lambda: gradients.DynamicLossScale(factor=0.0),
        lambda: ik.losses.Loss("bce", label_smoothing=2.0),
        *(
            lambda options=options: ik.training_step(linear(), "mse", "sgd", **options)
            for options in (
                {"clip": -1},
                {"clip": 0},
                {"ema": 1.0},
                {"ema": -0.1},
                {"loss_scale": 0},
                {"accumulate": 0},
            )
        ),
    ):
        with pytest.raises(IrkitError, match=r"at least|greater than|from 0 to 1"):
            make()
    assert ik.optimizers.Adam(np.float32(0.5)).learning_rate == 0.5  # pyright: ignore[reportArgumentType]


def test_arguments_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    make: Any = ik.training_step
    for call, message in (
        (lambda: make("net.onnx", "mse", "adam"), "takes a module, and str is given"),
        (lambda: make(linear(), 3), "3 is no loss"),
        (lambda: make(linear(), "mse", 0.1), "0.1 is no optimizer"),
        (lambda: make(linear(), "mse", ik.optimizers.SGD), "SGD is no optimizer"),
        (lambda: make(linear(), "mse", regularizers=0.1), "0.1 is no regularizer"),
        (lambda: ik.losses.Loss("softmax-cross-entropy", class_weight={0: 1.0}), "class_weight is a mapping"),
    ):
        with pytest.raises(IrkitError, match=message):
            call()
    (tmp_path / "s.npz").touch()
    with pytest.raises(SaveError, match="cannot make the folder"):
        make(linear(), "mse").save(tmp_path / "s.npz")
    assert make(linear(), "mse", metrics="mae").metric_names == ("mae",)


def test_known_values_are_named_once() -> None:
    with pytest.raises(IrkitError, match="has no value 'z'") as caught:
        ik.training_step(linear(), "mse", outputs="z")
    assert "#" not in caught.value.hint
    assert caught.value.hint.count("y") == 1


@pytest.mark.parametrize("loss", ["softmax-cross-entropy", "categorical-crossentropy"])
def test_metrics_find_the_classes_along_the_axis_of_the_loss(loss: str) -> None:
    b = ik.Builder("segmentation")
    x = b.input("x", "float32", ["batch", 3, "height", "width"])
    b.output(b.Softmax(x * b.initializer(np.ones((3, 1, 1), np.float32), "w"), axis=1), "y")
    step = ik.training_step(b.module(), ik.losses.Loss(loss, axis=1), "sgd", metrics=["accuracy"])
    scores = RNG.standard_normal((2, 3, 3, 3)).astype(np.float32)
    labels = RNG.integers(0, 3, (2, 3, 3))
    target = labels if loss.startswith("softmax") else np.moveaxis(np.eye(3, dtype=np.float32)[labels], -1, 1)
    found, _ = run(step, {"x": scores, "target": target})
    np.testing.assert_allclose(found[0]["accuracy"], np.mean(np.argmax(scores, axis=1) == labels), rtol=1e-6)
