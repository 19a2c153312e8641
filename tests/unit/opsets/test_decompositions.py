"""What older forms mean, against formulas written down here and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from irkit.backends.onnx import export
from irkit.errors import UnsupportedError
from irkit.frontends.onnx import load
from irkit.opsets import decompose_op, upgrade
from tests.unit.opsets.support import differences, one_op, run, run_onnxruntime

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def f32(shape: list[int] | None) -> tuple[str, Any]:
    return ("float32", shape)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("shape", [[2, 3, 4], None])
def test_softmax_below_13_takes_all_axes_from_one_on(op_type: str, shape: list[int] | None) -> None:
    x = floats(2, 3, 4)
    flat = x.reshape(2, 12)
    soft = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    expected = {
        "Softmax": soft,
        "LogSoftmax": np.log(soft),
        "Hardmax": (flat == flat.max(1, keepdims=True)).astype(np.float32),
    }[op_type]
    module = one_op(op_type, 11, f32(shape))
    upgrade(module)
    assert module.block.first_op.name == f"onnx.{op_type}V11"
    assert not differences([expected.reshape(2, 3, 4)], run(module, x))


@pytest.mark.parametrize(("shape", "axis"), [([2, 3], 1), ([2, 3, 4], 2), ([2, 3, 4], -1), (None, -1)])
def test_softmax_over_the_last_axis_is_the_current_one(shape: list[int] | None, axis: int) -> None:
    module = one_op("Softmax", 11, f32(shape), axis=axis)
    upgrade(module)
    assert module.block.first_op.name == "onnx.Softmax"
    assert export(module, opset=11).graph.node[0].attribute[0].i == axis


def batch(shape: tuple[int, ...]) -> list[np.ndarray]:
    return [floats(4, 3, 2, 2), floats(*shape), floats(*shape), floats(*shape), floats(*shape) ** 2 + 0.5]


def test_batch_normalization_by_feature() -> None:
    x, scale, bias, mean, variance = feeds = batch((3, 2, 2))
    module = one_op("BatchNormalization", 7, f32([4, 3, 2, 2]), *[f32([3, 2, 2])] * 4, spatial=0)
    assert not differences([scale * (x - mean) / np.sqrt(variance + 1e-5) + bias], run(module, *feeds))


@pytest.mark.parametrize(
    ("since", "attributes", "axes", "shape"),
    [
        (9, {}, (0, 2, 3), (3,)),
        (7, {"spatial": 0}, (0,), (3, 2, 2)),
        (6, {}, (0, 2, 3), (3,)),
        (1, {"consumed_inputs": [0, 0, 0, 1, 1]}, (0, 2, 3), (3,)),
    ],
)
@pytest.mark.parametrize("ranked", [True, False])
def test_batch_normalization_in_training(
    since: int, attributes: dict[str, Any], axes: tuple[int, ...], shape: tuple[int, ...], ranked: bool
) -> None:
    x, scale, bias, mean, variance = feeds = batch(shape)
    of = (lambda s: f32(list(s))) if ranked else (lambda s: f32(None))
    module = one_op("BatchNormalization", since, of(x.shape), *[of(shape)] * 4, outs=5, **attributes)
    m, v = x.mean(axes), x.var(axes)
    column = shape if len(shape) > 1 else (3, 1, 1)
    normal = (x - m.reshape(column)) / np.sqrt(v.reshape(column) + 1e-5)
    expected = [
        normal * scale.reshape(column) + bias.reshape(column),
        (0.9 * mean + 0.1 * m).astype(np.float32),
        (0.9 * variance + 0.1 * v).astype(np.float32),
        m,
        v,
    ]
    assert not differences(expected, run(module, *feeds))


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 1.5], [1, 1, 0.6, 0.7]])
def test_resize_with_tf_half_pixel_for_nn(nearest: str, scales: list[float]) -> None:
    x = floats(1, 2, 4, 5)
    module = one_op(
        "Resize",
        11,
        f32([1, 2, 4, 5]),
        np.zeros(0, np.float32),
        np.array(scales, np.float32),
        mode="nearest",
        coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode=nearest,
    )
    expected = run_onnxruntime(export(module, opset=11), {"x0": x})
    assert not differences(expected, run(module, x))
    assert not differences(expected, run_onnxruntime(export(module, opset=21), {"x0": x}))


def test_resize_with_tf_half_pixel_for_nn_to_sizes() -> None:
    x, empty = floats(1, 2, 4, 5), np.zeros(0, np.float32)
    kept = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    module = one_op("Resize", 11, f32([1, 2, 4, 5]), empty, empty, np.array([1, 2, 7, 8]), **kept)
    assert not differences(run_onnxruntime(export(module, opset=11), {"x0": x}), run(module, x))


def test_resize_linear_with_tf_half_pixel_for_nn_is_refused() -> None:
    module = one_op(
        "Resize",
        11,
        f32([1, 2, 4, 5]),
        np.zeros(0, np.float32),
        np.ones(4, np.float32),
        mode="linear",
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )
    with pytest.raises(UnsupportedError, match="ResizeV11"):
        run(module, floats(1, 2, 4, 5))


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("directions", [None, [0], [1]])
def test_scan_of_opset_8(lengths: bool, directions: list[int] | None) -> None:
    def info(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["sum"]), helper.make_node("Mul", ["sum", "k"], ["y"])],
        "body",
        [info("s", [3]), info("x", [3])],
        [info("sum", [3]), info("y", [3])],
    )
    given = {} if directions is None else {"directions": directions}
    names = ["n" if lengths else "", "s0", "xs"]
    scan = helper.make_node("Scan", names, ["last", "ys"], num_scan_inputs=1, body=body, **given)
    inputs = [info("s0", [2, 3]), info("xs", [2, 5, 3]), info("k", [3])]
    if lengths:
        inputs.append(info("n", [2], TensorProto.INT64))
    graph = helper.make_graph([scan], "g", inputs, [info("last", [2, 3]), info("ys", [2, 5, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    feeds = {"s0": floats(2, 3), "xs": floats(2, 5, 3), "k": floats(3)}
    if lengths:
        feeds["n"] = np.array([3, 5])
    module = load(model)
    found = run(module, *(feeds[name] for name in module.input_names))
    expected, newer = run_onnxruntime(model, feeds), run_onnxruntime(export(module, opset=21), feeds)
    if lengths:
        # What follows a short sequence is undefined.
        expected[1][0, 3:] = found[1][0, 3:]
    assert not differences(expected, found)
    assert not differences(expected, newer)


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "aligned"),
    [((3,), 1, (3, 1)), ((2, 3), 0, (2, 3, 1)), ((1,), 1, (1,)), ((4,), None, (4,)), ((3, 4), -2, (3, 4)), ((), 0, ())],
)
def test_broadcast_from_an_axis(
    shape: tuple[int, ...], axis: int | None, aligned: tuple[int, ...], ranked: bool
) -> None:
    x, y = floats(2, 3, 4), floats(*shape)
    types = [f32([2, 3, 4]), f32(list(shape))] if ranked else [f32(None)] * 2
    module = one_op("Sub", 6, *types, broadcast=1, axis=axis)
    assert not differences([x - y.reshape(aligned)], run(module, x, np.asarray(y, np.float32)))


@pytest.mark.parametrize("shape", [[1, 2, 4, 5], None])
def test_lp_pool_of_a_broken_power(shape: list[int] | None) -> None:
    x = floats(1, 2, 4, 5)
    whole = (np.abs(x) ** 2.5).sum((2, 3), keepdims=True) ** (1 / 2.5)
    assert not differences([whole], run(one_op("GlobalLpPool", 1, f32(shape), p=2.5), x))
    windows = np.lib.stride_tricks.sliding_window_view(np.abs(x) ** 2.5, (2, 2), (2, 3))
    found = run(one_op("LpPool", 1, f32(shape), p=2.5, kernel_shape=[2, 2]), x)
    assert not differences([windows.sum((4, 5)) ** (1 / 2.5)], found)


@pytest.mark.parametrize("shape", [[2, 3, 4], None])
def test_prelu_by_channel(shape: list[int] | None) -> None:
    x, slope = floats(2, 3, 4), floats(3)
    module = one_op("PRelu", 6, f32(shape), f32(shape and [3]))
    assert not differences([np.where(x < 0, x * slope[:, None], x)], run(module, x, slope))


def test_one_hot_takes_no_index_below_zero() -> None:
    module = one_op("OneHot", 9, ("int64", [4]), np.array(3), np.array([0, 5], np.float32))
    expected = np.array([[5, 0, 0], [0, 0, 0], [0, 0, 5], [0, 0, 0]], np.float32)
    assert not differences([expected], run(module, np.array([0, -1, 2, 3])))


def test_group_normalization_by_group_in_double_precision() -> None:
    x, scale, bias = RNG.normal(size=(1, 4, 3)) + 1e3, np.array([2.0, 3.0]), np.array([1.0, -1.0])
    groups = x.reshape(2, 6)
    normal = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + bias[:, None]).reshape(1, 4, 3)
    module = one_op("GroupNormalization", 18, ("float64", [1, 4, 3]), *[("float64", [2])] * 2, num_groups=2)
    assert np.abs(run(module, x, scale, bias)[0] - expected).max() < 1e-9


def test_integers_in_ops_that_lost_them() -> None:
    assert not differences(
        [np.array([0, 0, -1], np.int32)], run(one_op("Erf", 9, ("int32", [3])), np.array([0, 1, -9], np.int32))
    )
    module = one_op("ReduceLogSum", 13, ("int64", [3]), axes=[0], keepdims=0)
    assert not differences([np.array(4)], run(module, np.array([100, 1, 9])))


@pytest.mark.parametrize(("since", "attributes"), [(1, {"is_test": 1}), (6, {"is_test": 1}), (7, {})])
def test_the_mask_of_old_dropout_is_of_the_data_type(since: int, attributes: dict[str, Any]) -> None:
    module = one_op("Dropout", since, f32([4]), outs=2, **attributes)
    x = floats(4)
    assert not differences([x, np.ones(4, np.float32)], run(module, x))


def test_dropout_in_training_drops() -> None:
    found = run(one_op("Dropout", 6, f32([1000]), ratio=0.5), np.ones(1000, np.float32))[0]
    assert 300 < (found == 0).sum() < 700
    assert set(np.unique(found)) == {0.0, 2.0}


@pytest.mark.parametrize("given", ["a", "b"])
def test_label_encoder_counts_the_first_of_equal_classes(given: str) -> None:
    module = one_op(
        "LabelEncoder", 1, ("string", [1]), domain="ai.onnx.ml", classes_strings=["b", "a", "a"], default_int64=-1
    )
    assert not differences([np.array([{"a": 1, "b": 0}[given]])], run(module, np.array([given], object)))


def test_split_by_a_tensor_of_floats() -> None:
    module = one_op("Split", 1, f32([6]), f32([2]), outs=2, axis=0)
    x = floats(6)
    assert not differences([x[:2], x[2:]], run(module, x, np.array([2, 4], np.float32)))


def test_a_decomposition_is_located_at_what_it_replaces() -> None:
    module = one_op("Softmax", 11, f32([2, 3, 4]))
    old = module.block.first_op
    assert decompose_op(old, module.ctx)
    module.verify()
    names = [op.attributes["onnx.name"].data for op in module.block.ops if "onnx.name" in op.attributes]
    assert names == ["node"]
    assert all("decompose" in str(op.location) for op in module.block.ops if op.name.startswith("onnx."))


def test_a_current_op_has_no_decomposition() -> None:
    module = one_op("Relu", 14, f32([2]))
    assert not decompose_op(module.block.first_op, module.ctx)
