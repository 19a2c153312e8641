"""Model-local functions: specialised per call, with their attributes, missing inputs, nested calls and captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from irkit.backends.numpy import NumpyExecutable, compile
from irkit.errors import ExecutionError
from irkit.frontends.onnx import load

HEADER = '<ir_version: 9, opset_import: ["" : 21, "local" : 1]>\n'
FUNCTION = '<domain: "local", opset_import: ["" : 21, "local" : 1]>\n'


def model(graph: str, *functions: str) -> ModelProto:
    return parser.parse_model("\n".join([HEADER + graph, *(FUNCTION + f for f in functions)]))


def compiled(graph: str, *functions: str, **options: Any) -> NumpyExecutable:
    return compile(load(model(graph, *functions)), **options)


LEAKY = "Leaky <alpha>(x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"


def test_attribute_references_at_two_types() -> None:
    f = compiled(
        """g (float[N] a, double[N] b) => (float[N] c, double[N] d) {
            c = local.Leaky <alpha = 0.5> (a)
            d = local.Leaky <alpha = 0.25> (b)
        }""",
        LEAKY,
    )
    c, d = f(np.array([-4, 4], np.float32), np.array([-4, 4.0]))
    assert (c.dtype, c.tolist()) == (np.float32, [-2, 4])
    assert (d.dtype, d.tolist()) == (np.float64, [-1, 4])


def test_attribute_left_open_takes_the_default_of_the_op() -> None:
    function = LEAKY.replace("<alpha>", "<alpha: float = 0.125>")
    f = compiled("g (float[N] a) => (float[N] c) { c = local.Leaky (a) }", function)
    assert f([-8.0]).tolist() == [-1]


def test_nested_calls_pass_attributes_on() -> None:
    outer = """Twice <alpha>(x) => (y) {
        t = local.Leaky <alpha: float = @alpha> (x)
        y = local.Leaky <alpha = 0.5> (t)
    }"""
    f = compiled("g (float[N] a) => (float[N] c) { c = local.Twice <alpha = 0.25> (a) }", outer, LEAKY)
    assert f([-8.0, 1.0]).tolist() == [-1, 1]


def test_missing_inputs() -> None:
    function = "Limit (x, low, high) => (y) { y = Clip (x, low, high) }"
    f = compiled(
        """g (float[N] a, float high) => (float[N] c, float[N] d) {
            c = local.Limit (a, , high)
            d = local.Limit (a)
        }""",
        function,
    )
    c, d = f([1.0, 5.0], 3.0)
    assert c.tolist() == [1, 3]
    assert d.tolist() == [1, 5]


def test_loops_within_functions_know_their_types() -> None:
    function = """Collect (n, x) => (rows) {
        true_ = Constant <value = bool {1}> ()
        rows = Loop (n, true_) <body = b (i, c) => (c, row) { row = Exp (x) }>
    }"""
    f = compiled("g (int64 n, float16[2] x) => (rows) { rows = local.Collect (n, x) }", function)
    assert f(3, [0, 0]).tolist() == [[1, 1]] * 3
    empty = f(0, [0, 0])
    assert (empty.dtype, empty.shape) == (np.float16, (0, 2))


def test_older_forms_within_functions_are_rewritten_by_the_types_of_the_call() -> None:
    old = """<ir_version: 9, opset_import: ["" : 11, "local" : 1]>
    g (float[2,2,2] a) => (float[2,2,2] c) { c = local.Soft (a) }
    <domain: "local", opset_import: ["" : 11]>
    Soft (x) => (y) { y = Softmax <axis = 1> (x) }"""
    f = compile(load(parser.parse_model(old)))
    assert f(np.zeros((2, 2, 2), np.float32)).tolist() == np.full((2, 2, 2), 0.25).tolist()


def test_calls_draw_numbers_of_their_own() -> None:
    function = "Noise () => (y) { y = RandomNormal <shape = [100]> () }"
    graph = "g () => (float[100] a, float[100] b) { a = local.Noise ()\n b = local.Noise () }"
    f = compiled(graph, function, seed=1)
    a, b = f()
    assert not np.array_equal(a, b)
    for first, again in zip((a, b), compiled(graph, function, seed=1)(), strict=True):
        np.testing.assert_array_equal(first, again)


def test_errors_within_functions_name_the_inner_op() -> None:
    f = compiled(
        "g (int32[N] a, int32[N] b) => (int32[N] c) { c = local.Ratio (a, b) }",
        "Ratio (x, y) => (z) { z = Div (x, y) }",
    )
    with pytest.raises(ExecutionError) as caught:
        f([1], [0])
    assert caught.value.op == "onnx.Div"
