"""Layers, nodes and tensors: what a call records, and how a model is walked back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import InferenceError, IrkitError
from irkit.frontends import layers
from irkit.frontends.layers.draw import draw
from irkit.frontends.layers.summary import rows


@pytest.fixture(autouse=True)
def _fresh_names() -> None:
    layers.reset_names()
    layers.set_seed(0)


def ancestors(tensor: layers.Tensor) -> list[str]:
    """The names of the layers before a tensor, by its history alone."""
    assert tensor._keras_history is not None
    layer, index, _ = tensor._keras_history
    found = [layer.name]
    for inner in layer._inbound_nodes[index].input_tensors:
        found += ancestors(inner)
    return found


def test_a_shared_layer_has_a_node_a_call_and_its_weights_once() -> None:
    a, c = layers.Input((4,), name="a"), layers.Input((4,), name="c")
    shared = layers.Dense(3, name="shared")
    first, second = shared(a), shared(c)
    assert first._keras_history == (shared, 0, 0)
    assert second._keras_history == (shared, 1, 0)
    y = layers.Dense(2, name="head")(layers.Concatenate()([first, second]))
    node = y._keras_history[0]._inbound_nodes[0].inbound_layers[0]._inbound_nodes[0]  # type: ignore[index, union-attr]
    assert [layer.name for layer in node.inbound_layers if layer] == ["shared", "shared"]
    assert (node.node_indices, node.tensor_indices) == ([0, 1], [0, 0])
    assert node.input_shapes == [(None, 3), (None, 3)]
    assert node.output_shapes == [(None, 6)]
    assert node.input_tensors[0] is first
    assert node.input_masks == [None, None]
    assert shared._outbound_nodes == [node]
    assert ancestors(y) == ["head", "concatenate", "shared", "a", "shared", "c"]
    model = layers.Model([a, c], y)
    assert len(model.weights) == 4
    names = [v.path for v in model.weights]
    assert names == ["shared/kernel", "shared/bias", "head/kernel", "head/bias"]
    module = model.to_module()
    assert str(module).count("onnx.Initializer") == 4
    assert list(module.inputs) == ["a", "c"]
    assert list(module.outputs) == ["head"]


def test_an_input_has_a_node_without_inbound_layers_and_a_loose_tensor_gives_none() -> None:
    x = layers.Input((4,))
    assert x.shape == (None, 4)
    assert x._keras_history is not None
    node = x._keras_history[0]._inbound_nodes[0]
    assert node.inbound_layers == []
    assert node.output_tensors == [x]
    loose = layers.Tensor(("batch", 4), "float32", "loose")
    made = layers.Dense(2)(loose)
    assert made._keras_history is not None
    node = made._keras_history[0]._inbound_nodes[0]
    assert (node.inbound_layers, node.node_indices, node.tensor_indices) == ([None], [None], [None])
    assert "inbound_layers  [None]" in node.describe()


def test_several_outputs_have_tensor_indices() -> None:
    x = layers.Input((5, 3))
    sequence, h, c = layers.LSTM(4, return_sequences=True, return_state=True)(x)
    assert [t._keras_history[2] for t in (sequence, h, c)] == [0, 1, 2]
    merged = layers.Add()([h, c])
    assert merged._keras_history is not None
    assert merged._keras_history[0]._inbound_nodes[0].tensor_indices == [1, 2]
    model = layers.Model(x, {"sum": merged, "all": sequence})
    found = model(np.ones((2, 5, 3), np.float32))
    assert {k: v.shape for k, v in found.items()} == {"sum": (2, 4), "all": (2, 5, 4)}
    assert list(model.to_module().outputs) == ["sum", "all"]


def test_a_model_is_a_layer() -> None:
    x = layers.Input((4,))
    inner = layers.Model(x, layers.Dense(4, activation="tanh", name="inner_dense")(x), name="inner")
    y = layers.Input((4,))
    outer = layers.Model(y, inner(inner(y)))
    assert len(inner._inbound_nodes) == 2
    assert len(outer.weights) == 2
    value = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    kernel, bias = outer.get_weights()
    np.testing.assert_allclose(outer(value), np.tanh(np.tanh(value @ kernel + bias) @ kernel + bias), rtol=1e-5)
    np.testing.assert_allclose(outer(value), outer.predict(value), rtol=1e-5, atol=1e-6)


def test_a_model_may_begin_in_the_middle_of_another(tmp_path: Path) -> None:
    x = layers.Input((4,))
    middle = layers.Dense(3, name="first")(x)
    rest = layers.Model(middle, layers.Dense(2, name="second")(middle))
    assert [v.path for v in rest.weights] == ["second/kernel", "second/bias"]
    assert rest.predict(np.ones((5, 3), np.float32)).shape == (5, 2)
    with pytest.raises(IrkitError, match="in the middle"):
        rest.save(tmp_path / "m.zip")


def test_operators_on_tensors_are_layers() -> None:
    x = layers.Input((3,))
    y = 2.0 * x + 1.0
    assert y._keras_history is not None
    assert type(y._keras_history[0]).__name__ == "Operation"
    model = layers.Model(x, -y / x)
    value = np.float32([[1, 2, 4]])
    np.testing.assert_allclose(model(value), -(2 * value + 1) / value, rtol=1e-6)


def test_sizes_are_symbolic_and_stay_so() -> None:
    x = layers.Input((None, "width", 3))
    y = layers.Conv2D(4, 3, padding="same")(x)
    assert y.spec[2] == "width"
    assert y.shape == (None, None, None, 4)
    model = layers.Model(x, layers.GlobalMaxPooling2D()(y))
    for height in (5, 9):
        assert model(np.ones((1, height, 7, 3), np.float32)).shape == (1, 4)


def test_a_layer_that_does_not_fit_is_named() -> None:
    x = layers.Input((5, 6))
    dense = layers.Dense(2, name="odd")
    dense(layers.Input((4,)))
    with pytest.raises(InferenceError, match="in layer 'odd'"):
        dense(x)
    with pytest.raises(IrkitError, match="not among the inputs"):
        layers.Model(layers.Input((4,)), layers.Dense(2)(layers.Input((4,))))


class Residual(layers.Layer):
    """A layer of one's own."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.dense = layers.Dense(units)

    def build(self, input_shape: Any) -> None:
        self.gain = self.add_weight((input_shape[-1],), "ones", name="gain")

    def call(self, inputs: Any) -> Any:
        return inputs + layers.ops.relu(self.dense(inputs)) * self.gain


def test_a_layer_of_ones_own_is_a_few_lines() -> None:
    x = layers.Input((4,))
    model = layers.Model(x, Residual(4)(x))
    assert [v.path for v in model.weights] == ["residual/gain", "residual/dense/kernel", "residual/dense/bias"]
    value = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    gain, kernel, bias = model.get_weights()
    np.testing.assert_allclose(model(value), value + np.maximum(value @ kernel + bias, 0) * gain, rtol=1e-5)


def test_shapes_of_outputs() -> None:
    assert layers.Conv2D(4, 3, strides=2, padding="same").compute_output_shape((None, 32, None, 3)) == (
        None,
        16,
        None,
        4,
    )


def test_masks_go_from_layer_to_layer() -> None:
    x = layers.Input((None,), dtype="int64")
    embedded = layers.Embedding(6, 3, mask_zero=True)(x)
    assert embedded._keras_mask is not None
    assert embedded._keras_mask.shape == (None, None)
    kept = layers.LSTM(4, return_sequences=True)(layers.Dropout(0.5)(embedded))
    assert kept._keras_mask is not None
    pooled = layers.GlobalAveragePooling1D()(kept)
    assert pooled._keras_mask is None
    model = layers.Model(x, pooled)
    short, padded = np.int64([[1, 2, 3]]), np.int64([[1, 2, 3, 0, 0]])
    np.testing.assert_allclose(model(short), model(padded), rtol=1e-5)


def test_mixed_precision_keeps_weights_in_float32() -> None:
    x = layers.Input((4,))
    y = layers.Dense(3, dtype="mixed_float16")(x)
    assert y.dtype == "float16"
    model = layers.Model(x, y)
    assert model.weights[0].dtype.name == "float32"
    assert model(np.ones((2, 4), np.float32)).dtype == np.float16


def test_a_stateful_layer_goes_on_where_it_was() -> None:
    x = layers.Input((3, 2), batch_size=2)
    lstm = layers.LSTM(4, stateful=True)
    model = layers.Model(x, lstm(x))
    whole = layers.LSTM(4)
    values = np.random.default_rng(0).standard_normal((2, 6, 2)).astype(np.float32)
    whole(values)
    whole.set_weights([v.numpy() for v in lstm.cell.weights])
    model.predict_on_batch(values[:, :3])
    second = model.predict_on_batch(values[:, 3:])
    np.testing.assert_allclose(second, whole(values), rtol=1e-5)
    lstm.reset_states()
    np.testing.assert_allclose(model(values[:, :3]), whole(values[:, :3]), rtol=1e-5)
    np.testing.assert_allclose(model(values[:, 3:]), whole(values), rtol=1e-5)


def test_transposes_meet_and_go() -> None:
    x = layers.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, activation="relu", padding="same")(x)
    skipped = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.SeparableConv2D(4, 3, padding="same")(skipped)
    y = layers.MaxPooling2D()(layers.Activation("gelu")(layers.Add()([y, skipped])))
    module = layers.Model(x, y).to_module()
    optimized = ik.optimize(module, "O2", check="each")
    assert str(optimized).count('"onnx.Transpose"') == 2


def test_summary_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, c = layers.Input((4,), name="a"), layers.Input((4,), name="c")
    shared = layers.Dense(3, name="shared")
    model = layers.Model([a, c], layers.Add(name="sum")([shared(a), shared(c)]))
    model.summary()
    assert "weights: 15, of which trainable: 15" in capsys.readouterr().out
    assert [row[3] for row in rows(model, nodes=True)] == ["", "", "a", "c", "shared, shared[1][0]"]
    assert draw(model).count(">shared: Dense<") == 1
    drawn = draw(model, nodes=True)
    assert drawn.count(">node 1<") == 1
    assert drawn.count(">shared[1][0]<") == 1
    model.plot(tmp_path / "m.svg", nodes=True)
    assert (tmp_path / "m.svg").read_text() == drawn


def _equal(first: Any, second: Any, value: Any) -> None:
    np.testing.assert_array_equal(first.predict(value), second.predict(value))


def test_models_are_saved_and_loaded(tmp_path: Path) -> None:
    value = np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)
    x = layers.Input((6, 4))
    shared = layers.Dense(4, activation="gelu", kernel_regularizer=layers.regularizers.L2(0.1))
    y = layers.Bidirectional(layers.GRU(3))(layers.Masking()(shared(shared(x)) + 1.0))
    functional = layers.Model(x, layers.BatchNormalization()(y))
    sequential = layers.Sequential([layers.Conv1D(3, 2), layers.Flatten(), layers.Dense(2)])
    sequential.predict(value)
    for model in (functional, sequential):
        model.set_weights([w + np.float32(0.1) for w in model.get_weights()])
        model.save(tmp_path / "m.zip")
        _equal(layers.load_model(tmp_path / "m.zip"), model, value)
        model.save_weights(tmp_path / "w.safetensors")
        other = type(model).from_config(model.get_config())
        other.predict(value)
        other.load_weights(tmp_path / "w.safetensors")
        _equal(other, model, value)
    with pytest.raises(IrkitError, match="weights of another model"):
        functional.load_weights(tmp_path / "w.safetensors")


def test_a_lambda_of_no_name_is_not_saved(tmp_path: Path) -> None:
    x = layers.Input((4,))
    model = layers.Model(x, layers.Lambda(lambda v: v * 2.0)(x))
    with pytest.raises(IrkitError, match="register"):
        model.save(tmp_path / "m.zip")


def test_export_runs_on_onnxruntime(tmp_path: Path) -> None:
    x = layers.Input((6, 6, 3))
    y = layers.BatchNormalization()(layers.SeparableConv2D(4, 3, activation="relu")(x))
    model = layers.Model(x, layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling2D()(y)))
    ik.save(model.to_module(), tmp_path / "m.onnx")
    value = np.random.default_rng(0).standard_normal((5, 6, 6, 3)).astype(np.float32)
    found = ik.compile(ik.load(tmp_path / "m.onnx"), backend="onnxruntime")(value)
    np.testing.assert_allclose(found, model(value), rtol=1e-5, atol=1e-6)
