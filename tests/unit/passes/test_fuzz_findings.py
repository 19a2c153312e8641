"""What random graphs found in passes, each once by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irkit as ik
from irkit.ir.types import tensor_info
from irkit.verify import compare


@pytest.mark.parametrize("level", ["canonicalize", "O1", "O2", "O3"])
def test_an_input_is_not_narrowed_where_squeeze_and_unsqueeze_cancel(level: str) -> None:
    """That an axis is 1 long is what Squeeze demands; the size of the input was baked in by dropping both ops."""
    b = ik.Builder("m")
    x = b.input("x", "float32", ["N", "M", 3])
    axes = np.array([1])
    b.output(b.Unsqueeze(b.Squeeze(x, axes), axes), "y")
    module = b.module()
    made = ik.optimize(module, level, check="each", verify_each=True)
    assert dict(made.inputs) == dict(module.inputs)
    assert dict(made.outputs) == dict(module.outputs)


def test_squeeze_and_unsqueeze_of_a_known_size_still_cancel() -> None:
    b = ik.Builder("m")
    x, axes = b.input("x", "float32", ["N", 1, 3]), np.array([1])
    b.output(b.Unsqueeze(b.Squeeze(x, axes), axes), "y")
    b.output(b.Unsqueeze(b.Squeeze(b.Relu(b.input("z", "float32", ["N", "M", 3])), axes), axes), "w")
    made = ik.optimize(b.module(), "O1")
    assert not any("queeze" in op.name for op in made.walk())


OLDER = [
    ("ReduceLogSumExp", 13, {"axes": [1]}, 0),
    ("ReduceLogSumExp", 18, {}, 0),
    ("ReduceLogSum", 13, {"axes": [1]}, 0),
    ("BatchNormalization", 9, {}, 4),
]


@pytest.mark.parametrize(("name", "opset", "attributes", "vectors"), OLDER)
def test_an_older_op_behind_a_call_runs(name: str, opset: int, attributes: dict[str, object], vectors: int) -> None:
    """What a function gives has no type before it is inlined, of which the official inference made an error."""
    names = ["s"] * vectors
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], [helper.make_opsetid("", opset)]
    )
    graph = helper.make_graph(
        [
            helper.make_node("F", ["x"], ["h"], domain="local"),
            helper.make_node(name, ["h", *names], ["y"], **attributes),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(3, np.float32), "s")] if vectors else [],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    module = ik.load(model)
    found = ik.compile(module, "numpy").run({"x": np.ones((2, 3), np.float32)})
    assert np.isfinite(found["y"]).all()
    report = compare(module, ik.optimize(module, "O3", check="each"))
    assert report.equal
    assert report.compared


def test_axes_of_unknown_type_are_not_axes_left_out() -> None:
    """Squeeze would drop all axes of 1, Slice cut the first: what comes from a function has no type at first."""
    text = """
builtin.module attributes {onnx.ir_version = 10 : i64, onnx.opsets = [["", 23 : i64], ["local", 1 : i64]]} {
  func.func @main(%x: tensor<1x3x1xf32> {onnx.name = "x"}, %n: tensor<1xi64> {onnx.name = "n"}) -> (!onnx.Unknown
      {onnx.name = "y"}, !onnx.Unknown {onnx.name = "z"}) attributes {onnx.graph = "g"} {
    %a = "onnx.Call"() <{domain = "local", op_type = "axes"}> {onnx.outs = ["a"]} : () -> !onnx.Unknown
    %y = "onnx.Squeeze"(%x, %a) {onnx.outs = ["y"]} : (tensor<1x3x1xf32>, !onnx.Unknown) -> !onnx.Unknown
    %z = "onnx.Slice"(%x, %n, %n, %a) {onnx.outs = ["z"]}
      : (tensor<1x3x1xf32>, tensor<1xi64>, tensor<1xi64>, !onnx.Unknown) -> !onnx.Unknown
    func.return %y, %z : !onnx.Unknown, !onnx.Unknown
  }
}"""
    made = ik.optimize(ik.parse(text), "infer-shapes")
    shapes = [tensor_info(kind).shape for kind in made.outputs.values()]  # type: ignore[union-attr]
    assert shapes == [None, (None, None, None)]


@pytest.mark.parametrize("level", ["canonicalize", "dce", "O1", "O2", "O3"])
def test_what_is_drawn_does_not_depend_on_random_ops_that_went(level: str) -> None:
    b = ik.Builder("m")
    x = b.input("x", "float32", [3])
    b.RandomNormal(shape=[2])
    b.output(b.Dropout(x), "y")
    b.output(b.RandomUniform(shape=[5]), "z")
    module = b.module()
    made = ik.optimize(module, level)
    feeds = {"x": np.ones(3, np.float32)}
    before, after = (ik.compile(m, "numpy", seed=1).run(feeds)["z"] for m in (module, made))
    assert np.array_equal(before, after)
    again = ik.optimize(ik.optimize(made, level), "O3")
    assert np.array_equal(before, ik.compile(again, "numpy", seed=1).run(feeds)["z"])


def test_places_are_not_written_where_they_tell_nothing() -> None:
    b = ik.Builder("m")
    b.output(b.RandomUniform(shape=[5]), "z")
    module = b.module()
    assert ik.optimize(module, "O3") == module
