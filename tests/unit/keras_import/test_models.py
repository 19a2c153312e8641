"""Whole models: names, sizes, sharing, state, dtypes, layouts. Many tests come from reports about other exporters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects import state
from irkit.errors import CheckError, IrkitError, LoadError, UnsupportedError
from irkit.frontends import keras as from_keras
from irkit.frontends.keras import adapter
from irkit.frontends.keras.registry import converters
from irkit.frontends.keras.sizes import Dim, fit, scaled
from irkit.ir.names import metadata_of
from irkit.ir.types import shape_of
from tests.unit.keras_import.support import initial, lifted, ops_of

pytestmark = [
    # To learn a shape, Keras's numpy backend runs a layer on arrays that hold anything.
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]

keras = adapter.api()
L = keras.layers


def checked(module: ik.Module) -> str:
    return metadata_of(module.op)["irkit.keras.checked"]


def mlp() -> Any:
    return keras.Sequential(
        [keras.Input((8,), name="x"), L.Dense(16, activation="relu"), L.Dropout(0.5), L.Dense(3, activation="softmax")]
    )


# Sizes


def test_recurrence_over_an_open_time_is_one_op_with_symbolic_sizes() -> None:
    i = keras.Input((None, 4), name="x")
    module = from_keras.load(keras.Model(i, L.LSTM(5, return_sequences=True, name="y")(i)))
    assert ops_of(module).count("LSTM") == 1
    assert "Loop" not in ops_of(module)
    assert shape_of(module.inputs["x"]) == ("batch", "time", 4)
    assert shape_of(module.outputs["y"]) == ("batch", "time", 5)
    assert "Expand" not in ops_of(module), "a state of zeros is left out"


def test_sizes_survive_strides_and_poolings() -> None:
    i = keras.Input((None, None, 3))
    x = L.UpSampling2D(2)(L.Conv2D(4, 3, padding="same")(i))
    module = from_keras.load(keras.Model(i, x))
    assert shape_of(next(iter(module.outputs.values())))[:3] == ("batch", "2*height", "2*width")


def test_same_with_strides_rounds_up() -> None:
    for size in (7, 8):
        i = keras.Input((size, size, 2))
        module = from_keras.load(keras.Model(i, L.Conv2D(3, 3, strides=2, padding="same")(i)))
        assert shape_of(next(iter(module.outputs.values())))[1:3] == (4, 4)


def test_two_inputs_have_lengths_of_their_own_unless_they_meet() -> None:
    q, k = keras.Input((None, 4), name="q"), keras.Input((None, 4), name="k")
    apart = from_keras.load(keras.Model([q, k], L.MultiHeadAttention(2, 2)(q, k)))
    assert shape_of(apart.inputs["q"])[1] != shape_of(apart.inputs["k"])[1]
    joined = from_keras.load(keras.Model([q, k], L.Add()([q, k])))
    assert shape_of(joined.inputs["q"])[1] == shape_of(joined.inputs["k"])[1] == "time"


def test_what_is_computed_from_a_size_is_computed_again() -> None:
    class Positions(L.Layer):
        def call(self, x: Any) -> Any:
            size = keras.ops.shape(x)[1]
            return x + keras.ops.cast(keras.ops.arange(size), "float32")[None, :, None] / keras.ops.cast(
                size, "float32"
            )

    i = keras.Input((None, 2), name="x")
    module = from_keras.load(keras.Model(i, Positions()(i)))
    run = ik.compile(module, "numpy")
    for size in (1, 6):
        x = np.zeros((2, size, 2), np.float32)
        np.testing.assert_allclose(run(x)[0, :, 0], np.arange(size) / size, rtol=1e-6)


@pytest.mark.parametrize(("limit", "error"), [(40, UnsupportedError), (20, CheckError)])
def test_a_python_branch_on_the_size_is_not_baked(limit: int, error: type[IrkitError]) -> None:
    """Between the sizes of the traces tracing finds it, below them the comparison with Keras does."""

    class Odd(L.Layer):
        def call(self, x: Any) -> Any:
            return x + 1 if x.shape[1] is not None and x.shape[1] > limit else x * 2

    i = keras.Input((None, 2))
    with pytest.raises(error, match=r"different things for inputs of different sizes|differs") as caught:
        from_keras.load(keras.Model(i, Odd(name="odd")(i)))
    assert error is CheckError or "odd" in caught.value.where


def test_an_array_of_the_size_at_hand_is_refused_not_baked() -> None:
    class Baked(L.Layer):
        def call(self, x: Any) -> Any:
            return x if x.shape[1] is None else x * np.linspace(0, 1, x.shape[1], dtype=np.float32)[None, :, None]

    i = keras.Input((None, 2))
    with pytest.raises(UnsupportedError, match="computed while tracing"):
        from_keras.load(keras.Model(i, Baked()(i)))


def test_expressions_of_sizes() -> None:
    sizes = [[3, 16], [5, 16], [3, 40]]
    assert fit([16, 16, 40], sizes) == {(1,): 1}
    assert fit([33, 33, 81], sizes) is None, "2 t + 1 is not told from two points alone"
    assert fit([33, 33, 81, 113], [*sizes, [4, 56]], confirmed=True) == {(1,): 2, (): 1}
    assert fit([48, 80, 120], sizes) == {(0, 1): 1}
    assert fit([256, 256, 1600, 3136], [*sizes, [4, 56]], confirmed=True) is None, "a square is no line"
    assert scaled([8, 8, 20], [16, 16, 40]) is None
    assert scaled([32, 32, 80], [16, 16, 40]) == (2, 0)
    assert Dim((3, 5)) - Dim((2, 4)) == 1
    assert (Dim((3, 5)) * 2 + 1).values == (7, 11)


# Names


def test_names_of_inputs_outputs_and_nodes() -> None:
    i = keras.Input((8,), name="features")
    x = L.Dense(4, name="hidden")(i)
    model = keras.Model(i, {"logits": L.Dense(2, name="head")(x), "hidden": x})
    module = from_keras.load(model)
    assert list(module.inputs) == ["features"]
    assert set(module.outputs) == {"logits", "hidden"}
    onnx_model = module.to_onnx()
    assert {n.name for n in onnx_model.graph.node} >= {"hidden/MatMul", "head/MatMul"}
    assert {t.name for t in onnx_model.graph.initializer} == {v.path for v in model.weights}


def test_dict_keys_name_inputs() -> None:
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    module = from_keras.load(keras.Model({"a": a, "b": b}, L.Subtract(name="d")([a, b])))
    found = ik.compile(module, "numpy").run({"a": np.full((1, 4), 3, np.float32), "b": np.ones((1, 4), np.float32)})
    assert (found["d"] == 2).all()


def test_no_stack_traces_in_the_file() -> None:
    data = from_keras.load(mlp()).to_onnx().SerializeToString()
    assert b".py" not in data
    assert b"Traceback" not in data


def test_locations_tell_the_layer() -> None:
    from irkit.ir.location import where

    inner = keras.Sequential([keras.Input((8,)), L.Dense(4, name="deep")], name="encoder")
    i = keras.Input((8,))
    module = from_keras.load(keras.Model(i, inner(i)))
    product = next(op for op in module.block.ops if op.name == "onnx.MatMul")
    assert "encoder/deep" in where(product)


# Sharing and nesting


def test_a_shared_layer_has_one_weight() -> None:
    i = keras.Input((6,))
    shared = L.Dense(6)
    module = from_keras.load(keras.Model(i, shared(shared(i))))
    assert ops_of(module).count("MatMul") == 2
    assert sum(op.name == "onnx.Initializer" for op in module.block.ops) == 2


def test_nested_models_and_lambdas() -> None:
    inner = keras.Sequential([keras.Input((8,)), L.Dense(4, activation="relu"), L.Lambda(lambda t: t * 2), L.Dense(8)])
    i = keras.Input((8,))
    module = from_keras.load(keras.Model(i, [inner(inner(i)), i]))
    assert checked(module).startswith("against Keras")
    assert ops_of(module).count("MatMul") == 4


def test_subclassed_models() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = L.Embedding(10, 4), L.Dense(3)

        def call(self, ids: Any, weights: Any = None, training: bool = False) -> Any:
            x = self.table(ids)
            return {"y": self.head(x if weights is None else x * weights[..., None])}

    net = Net()
    net(np.zeros((2, 5), np.int32))
    module = from_keras.load(net, inputs=keras.KerasTensor((None, None), "int32"))
    assert list(module.outputs) == ["y"]
    both = {"ids": keras.KerasTensor((None, None), "int32"), "weights": keras.KerasTensor((None, None))}
    module = from_keras.load(net, inputs=both)
    assert list(module.inputs) == ["ids", "weights"]


def test_a_model_that_does_not_say_what_it_takes() -> None:
    model = keras.Sequential([L.Dense(3)])
    with pytest.raises(UnsupportedError, match="does not say what its inputs are"):
        from_keras.load(model)
    assert list(from_keras.load(model, inputs=(None, 4)).inputs) == ["input"]


# What reports say of other exporters


def test_bidirectional_is_one_op() -> None:
    i = keras.Input((None, 4))
    module = from_keras.load(keras.Model(i, L.Bidirectional(L.LSTM(5, return_sequences=True))(i)))
    assert [op for op in ops_of(module) if op in ("LSTM", "Scan", "Loop")] == ["LSTM"]


def test_augmentation_is_the_identity_at_inference() -> None:
    i = keras.Input((8, 8, 3))
    x = L.RandomZoom(0.2)(L.RandomRotation(0.2)(L.RandomFlip()(i)))
    assert set(ops_of(from_keras.load(keras.Model(i, x)))) <= {"Identity", "Cast"}


def test_transposed_convolution_has_explicit_pads() -> None:
    i = keras.Input((5, 5, 2))
    module = from_keras.load(keras.Model(i, L.Conv2DTranspose(3, 3, strides=2, padding="same")(i)))
    op = next(op for op in module.block.ops if op.name == "onnx.ConvTranspose")
    assert op.attr("pads") == (0, 0, 1, 1)
    assert not op.attr("auto_pad") or op.attr("auto_pad") == "NOTSET"


def test_no_transposes_are_left_inside() -> None:
    i = keras.Input((16, 16, 3))
    x = L.Conv2D(4, 3, padding="same")(i)
    y = L.ReLU()(L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same")(x)))
    x = L.Concatenate()([L.Add()([x, y]), L.Conv2D(2, 1, activation="swish")(y)])
    x = L.GlobalAveragePooling2D()(L.ZeroPadding2D(1)(L.MaxPooling2D()(x)))
    module = from_keras.load(keras.Model(i, L.Dense(2)(x)))
    small = ik.optimize(module, "O2")
    assert ops_of(small).count("Transpose") == 1, "the input's"
    first = ik.optimize(from_keras.load(keras.Model(i, L.Dense(2)(x)), layout="nchw"), "O2")
    assert "Transpose" not in ops_of(first)
    assert shape_of(next(iter(first.inputs.values())))[1:] == (3, 16, 16)


def test_layouts_agree() -> None:
    i = keras.Input((6, 7, 3), name="x")
    model = keras.Model(i, L.Conv2D(4, 3, name="y")(i))
    last, first = (ik.compile(from_keras.load(model, layout=k), "numpy") for k in ("as-declared", "nchw"))
    x = np.random.default_rng(0).random((2, 6, 7, 3), np.float32)
    np.testing.assert_allclose(first(np.moveaxis(x, 3, 1)), np.moveaxis(last(x), 3, 1), rtol=1e-5)
    with pytest.raises(IrkitError, match="no layout"):
        from_keras.load(model, layout="nhwc")


def test_layer_normalization_is_one_op() -> None:
    i = keras.Input((None, 6))
    assert ops_of(from_keras.load(keras.Model(i, L.LayerNormalization()(i)))) == ["LayerNormalization"]


def test_gru_gates_and_reset() -> None:
    for reset_after in (True, False):
        i = keras.Input((5, 3))
        layer = L.GRU(4, reset_after=reset_after, bias_initializer="uniform")
        module = from_keras.load(keras.Model(i, layer(i)))
        op = next(op for op in module.block.ops if op.name == "onnx.GRU")
        assert op.attr("linear_before_reset") == int(reset_after)


def test_states_of_a_stateful_layer_go_in_and_out() -> None:
    i = keras.Input((4, 3), batch_size=2, name="x")
    layer = L.GRU(5, stateful=True, name="y")
    model = keras.Model(i, layer(i))
    module = lifted(from_keras.load(model))
    signature = state.state_signature(module)
    assert [e.name for e in signature] == ["y/rnn_state"]
    run, values = ik.compile(module, "numpy"), initial(module)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((2, 4, 3), np.float32)
        found, values = state.run_stateful(run, signature, {"x": x}, values)
        np.testing.assert_allclose(found["y"], adapter.to_numpy(model(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_keeps_the_declared_types(policy: str) -> None:
    i = keras.Input((6, 6, 3), name="x")
    x = L.BatchNormalization(dtype=policy)(L.Conv2D(4, 3, dtype=policy)(i))
    x = L.Dense(2, dtype="float32", name="y")(L.GlobalAveragePooling2D(dtype=policy)(x))
    module = from_keras.load(keras.Model(i, x))
    assert "f32" in str(module.inputs["x"])
    assert "f32" in str(module.outputs["y"])
    assert checked(module).startswith("against Keras")


# Training


def test_batch_normalization_in_training_moves_its_statistics() -> None:
    i = keras.Input((5, 5, 3), name="x")
    model = keras.Model(i, L.BatchNormalization(name="bn", momentum=0.5)(i))
    module = lifted(from_keras.load(model, training=True))
    names = {e.name for e in state.state_signature(module)}
    assert names == {"bn/moving_mean", "bn/moving_variance"}
    before = adapter.to_numpy(model.layers[-1].moving_mean)
    assert not before.any(), "checking left the model as it was"
    x = np.random.default_rng(0).standard_normal((4, 5, 5, 3), np.float32) + 3
    found = ik.compile(module, "numpy").run({"x": x})
    np.testing.assert_allclose(found["next/bn/moving_mean"], x.mean((0, 1, 2)) / 2, rtol=1e-4)


def test_dropout_in_training_is_random_and_said_to_be_unchecked() -> None:
    with pytest.warns(from_keras.UncheckedWarning, match="random"):
        module = from_keras.load(mlp(), training=True)
    assert "Dropout" in ops_of(module)
    assert "Dropout" not in ops_of(from_keras.load(mlp()))


def test_weights_go_back_into_the_model() -> None:
    model = mlp()
    module = from_keras.load(model)
    path = model.layers[0].kernel.path
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    loss = ik.value_and_grad(_with_loss(module), of="loss", wrt=[path])
    run = ik.compile(loss, "numpy")
    start = run.run({"x": x})
    kernel = adapter.to_numpy(model.layers[0].kernel)
    from_keras.write_back(model, {path: kernel - 0.05 * start[f"grad/{path}"]})
    again = ik.compile(_with_loss(from_keras.load(model)), "numpy").run({"x": x})
    assert again["loss"] < start["loss"]


def _with_loss(module: ik.Module) -> ik.Module:
    """The module with minus the mean logarithm of the first class as an output, ``loss``."""
    from irkit.ir.builder import Builder

    b = Builder("loss")
    inputs = {name: b.input(name, t) for name, t in module.inputs.items()}
    values = dict(zip(module.block.args, (v.ssa for v in inputs.values()), strict=True))
    for op in list(module.block.ops)[:-1]:
        copy = op.clone(values)
        b.block.add_op(copy)
    out = b.wrap(values[module.returned[0]])
    first = b.Gather(out, np.asarray(0), axis=1)
    b.output(b.Neg(b.ReduceMean(b.Log(first), keepdims=0)), "loss")
    return b.module()


def test_write_back_says_what_does_not_fit() -> None:
    model = mlp()
    path = model.layers[0].kernel.path
    with pytest.raises(IrkitError, match="did you mean"):
        from_keras.write_back(model, {path + "s": np.zeros((8, 16))})
    with pytest.raises(IrkitError, match="shape"):
        from_keras.write_back(model, {path: np.zeros((16, 8))})


# Checking and refusing


def test_a_wrong_converter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from irkit.frontends.keras import registry

    assert "Tanh" in converters()
    monkeypatch.setitem(registry._TABLE, "Tanh", lambda c, op, x: c.spread(lambda t: c.b.Mul(c.b.Tanh(t), 1.001), x))
    i = keras.Input((8,))
    with pytest.raises(CheckError, match="differs from that of the Keras model"):
        from_keras.load(keras.Model(i, L.Activation("tanh")(i)))


def test_a_branch_on_a_value_is_refused_with_the_layers_path() -> None:
    class Jumps(L.Layer):
        def call(self, x: Any) -> Any:
            return x if keras.ops.sum(x) > 0 else -x

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.block = keras.Sequential([L.Dense(4), Jumps(name="jumps")], name="block")

        def call(self, x: Any) -> Any:
            return self.block(x)

    net = Net()
    net(np.ones((2, 4), np.float32))
    with pytest.raises(UnsupportedError, match="only known when the model runs") as caught:
        from_keras.load(net, inputs=(None, 4))
    assert caught.value.where == "layer 'block/jumps'"
    assert "keras.ops.cond" in caught.value.hint


def test_what_is_no_model() -> None:
    with pytest.raises(LoadError, match="no Keras model"):
        from_keras.load(3)
    with pytest.raises(LoadError, match="no file"):
        from_keras.load("missing.keras")


def test_tracing_leaves_the_model_as_it_was() -> None:
    model = mlp()
    dense = model.layers[0]
    nodes, before = len(dense._inbound_nodes), adapter.to_numpy(dense.kernel)
    original = type(dense).symbolic_call
    from_keras.load(model)
    assert len(dense._inbound_nodes) == nodes
    assert type(dense).symbolic_call is original
    np.testing.assert_array_equal(adapter.to_numpy(dense.kernel), before)
    assert "__array_ufunc__" not in vars(keras.KerasTensor)


# Files and commands


def test_files(tmp_path: Path) -> None:
    model = mlp()
    model.save(tmp_path / "m.keras")
    module = ik.load(tmp_path / "m.keras")
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_allclose(ik.compile(module, "numpy")(x), adapter.to_numpy(model(x)), rtol=1e-5, atol=1e-6)
    (tmp_path / "broken.keras").write_bytes(b"PK nothing")
    with pytest.raises(LoadError, match="cannot read"):
        ik.load(tmp_path / "broken.keras")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from irkit.cli import main

    i = keras.Input((4, 3), batch_size=2, name="x")
    keras.Model(i, L.SimpleRNN(3, stateful=True, name="y")(i)).save(tmp_path / "m.keras")
    assert main(["convert", str(tmp_path / "m.keras"), "-o", str(tmp_path / "m.onnx")]) == 0
    assert list(ik.load(tmp_path / "m.onnx").outputs) == ["y", "next/y/rnn_state"]
    assert main(["info", str(tmp_path / "m.keras")]) == 0
    assert "keras" in capsys.readouterr().out
