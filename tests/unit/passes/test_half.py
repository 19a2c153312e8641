"""Half precision: what is converted, what is not and why, and that nothing overflows unseen."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irkit as ik
from irkit.errors import CheckError, FeedError, PassError
from irkit.ir.location import where
from irkit.ir.types import dtype_of, shape_of, tensor
from irkit.passes import Instrumentation
from irkit.passes.precision import Report, analysis, api, convert, fit, policy, slots
from irkit.passes.precision.policy import BLOCKED, BOUNDED, DTYPE_ATTRIBUTES, FOLLOWERS, OF_INTEGERS
from irkit.verify import compare
from tests.corpus.build import from_text
from tests.fuzz.halves import sweep

EXPORTED = Path(__file__).parents[2] / "corpus" / "exported"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
W = RNG.standard_normal((4, 4)).astype(np.float32)


def built(make: Callable[..., Any], *shapes: Any, opset: int = 21, kind: str = "float32") -> ik.Module:
    """A module of a function of a builder and inputs ``x0``, ``x1``...; its results are the outputs."""
    b = ik.Builder(opsets={"": opset})
    results = make(b, *(b.input(f"x{i}", kind, shape) for i, shape in enumerate(shapes or ([3, 4],))))
    for index, result in enumerate(results if isinstance(results, tuple | list) else [results]):
        b.output(result, f"y{index}")
    return b.module()


def kinds(module: ik.Module, op_type: str) -> list[str]:
    """The types of the first results of all ops of a type."""
    return [str(dtype_of(op.results[0].type)) for op in module.walk() if op.name == f"onnx.{op_type}"]


def close(module: ik.Module, made: ik.Module, feeds: Mapping[str, Any], error: float) -> None:
    """Both give about the same, on numpy and on onnxruntime."""
    expected = ik.compile(module, "numpy").run(feeds)
    for backend in ("numpy", "onnxruntime"):
        found = ik.compile(made, backend).run(feeds)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            scale = np.abs(value).max()
            assert np.abs(found[name].astype(np.float64) - value).max() <= error * scale, (backend, name)


def reason(report: Report, op_type: str) -> str:
    return next(kept.reason for kept in report.kept if kept.op == f"onnx.{op_type}")


# Types


@pytest.mark.parametrize(("kind", "error"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_a_layer_becomes_half_and_its_signature_stays(kind: str, error: float) -> None:
    module = built(lambda b, x: b.Relu(x @ b.initializer(W, "w") + 1), ["batch", 4])
    made, report = ik.to_half(module, kind)
    assert made.inputs == module.inputs
    assert made.outputs == module.outputs
    assert kinds(made, "MatMul") == kinds(made, "Relu") == kinds(made, "Initializer") == [kind]
    assert (report.converted, report.casts, report.bytes_after) == (3, 2, report.bytes_before // 2)
    expected, found = (ik.compile(m, "numpy")(X) for m in (module, made))
    assert np.abs(expected - found).max() <= error * np.abs(expected).max()
    assert not np.array_equal(expected, found)


def test_inputs_outputs_and_defaults_follow_where_asked() -> None:
    text = "g (float[3] x, float[3] d) => (float[3] y) <float[3] d = {1, 2, 3}> { y = Add (x, d) }"
    module = ik.load(from_text(text))
    made, _ = ik.to_half(module, keep_io=False)
    assert {str(dtype_of(t)) for t in (*made.inputs.values(), *made.outputs.values())} == {"float16"}
    assert ik.compile(made, "numpy").run({"x": np.float16([1, 1, 1])})["y"].tolist() == [2, 3, 4]
    onnx.checker.check_model(made.to_onnx(), full_check=True)


def test_every_blocked_op_is_one_and_has_a_reason() -> None:
    from irkit.dialects.onnx import CURRENT

    for op_type in {*BLOCKED, *BOUNDED, *DTYPE_ATTRIBUTES, *FOLLOWERS, *OF_INTEGERS}:
        assert ("", op_type) in CURRENT, op_type
    assert all(BLOCKED.values())


def test_blocked_and_named_ops_keep_their_precision() -> None:
    module = built(lambda b, x: b.Exp(b.MatMul(b.MatMul(x, W, name="first"), W, name="second")))
    made, report = ik.to_half(module)
    assert kinds(made, "Exp") == ["float32"]
    assert reason(report, "Exp") == BLOCKED["Exp"]
    assert kinds(ik.to_half(module, allow=["Exp"])[0], "Exp") == ["float16"]
    assert kinds(ik.to_half(module, block=["MatMul"])[0], "MatMul") == ["float32"] * 2
    made, report = ik.to_half(module, block_nodes=["second"])
    assert kinds(made, "MatMul") == ["float16", "float32"]
    assert reason(report, "MatMul") == "it was asked for"


def test_what_does_not_exist_is_refused() -> None:
    module = built(lambda b, x: b.Relu(x))
    with pytest.raises(PassError, match=r"no op 'Relus'(?s:.)*'Relu'"):
        ik.to_half(module, block=["Relus"])
    with pytest.raises(PassError, match="no node 'n'"):
        ik.to_half(module, block_nodes=["n"])
    for wrong in ({"dtype": "float64"}, {"margin": 0.5}, {"max_loss": 1.0}):
        with pytest.raises(PassError, match=r"half type|margin"):
            ik.to_half(module, **wrong)
    with pytest.raises(FeedError):
        ik.to_half(module, calibration={"x0": X[:2]})


def test_the_schema_at_the_opset_of_the_module_decides() -> None:
    module = built(lambda b, x: b.Conv(x, np.ones((2, 1, 3), np.float32)), [1, 1, 8], opset=17)
    made, report = ik.to_half(module, "bfloat16")
    assert made == module
    assert reason(report, "Conv") == "ONNX takes it in bfloat16 from opset 22 on"
    assert kinds(ik.to_half(module, "bfloat16", target_opset=22)[0], "Conv") == ["bfloat16"]
    assert kinds(ik.to_half(module, "float16")[0], "Conv") == ["float16"]


def test_results_that_a_schema_keeps_in_float32_are_cast_nowhere() -> None:
    ones = np.ones(4, np.float32)
    module = built(lambda b, x: b.LayerNormalization(b.Relu(x), ones, ones, outputs=3))
    made, _ = ik.to_half(module)
    (norm,) = (op for op in made.walk() if op.name == "onnx.LayerNormalization")
    assert [str(dtype_of(r.type)) for r in norm.results] == ["float16", "float32", "float32"]
    assert kinds(made, "Cast") == ["float16", "float32"]
    close(module, made, {"x0": X}, 2e-3)
    stashed = built(lambda b, x: b.LayerNormalization(b.Relu(x), ones, ones, stash_type=10))
    assert kinds(ik.to_half(stashed)[0], "LayerNormalization") == ["float32"]


I = np.array  # noqa: E741
IMAGE = [1, 2, 4, 4]
ONE = np.ones(2, np.float32)
MIXED: dict[str, tuple[Callable[..., Any], list[Any], str]] = {
    "Resize": (lambda b, x: b.Resize(x, None, np.float32([1, 1, 2, 2])), [IMAGE], "float16"),
    "BatchNormalization": (lambda b, x: b.BatchNormalization(x, ONE, ONE, ONE, ONE), [IMAGE], "float16"),
    "Dropout": (lambda b, x: b.Dropout(x, np.float32(0.5)), [[3, 4]], "float16"),
    "Clip": (lambda b, x: b.Clip(x, np.float32(-0.5), np.float32(0.5)), [[3, 4]], "float16"),
    "Pad": (lambda b, x: b.Pad(x, I([0, 1, 0, 1]), np.float32(2)), [[3, 4]], "float16"),
    "OneHot": (lambda b, x: b.OneHot(b.ArgMax(x), I(4), np.float32([0.1, 1])), [[3, 4]], "float16"),
    "Where": (lambda b, x: b.Where(b.Greater(x, 0), x, np.float32(-1)), [[3, 4]], "float16"),
    "QuantizeLinear": (lambda b, x: b.QuantizeLinear(b.Relu(x), np.float32(0.1)), [[3, 4]], "uint8"),
    "Pow": (lambda b, x: b.Pow(b.Abs(x), np.float32(2)), [[3, 4]], "float32"),
    "ConstantOfShape": (lambda b, x: x + b.ConstantOfShape(b.Shape(x)), [[3, 4]], "float16"),
    "Range": (lambda b, x: x + b.Range(np.float32(0), np.float32(4), np.float32(1)), [[3, 4]], "float32"),
    "RandomNormal": (lambda b, x: x * 0 + b.RandomNormal(shape=[4], seed=1.0), [[3, 4]], "float32"),
    "EyeLike": (lambda b, x: x + b.EyeLike(x), [[3, 4]], "float32"),
    "LSTM": (
        lambda b, x: b.LSTM(
            x, np.full((1, 8, 4), 0.1, np.float32), np.full((1, 8, 2), 0.2, np.float32), hidden_size=2, outputs=1
        ),
        [[3, 1, 4]],
        "float16",
    ),
    "TopK": (lambda b, x: b.TopK(x, I([2])), [[3, 4]], "float16"),
    "Gelu": (lambda b, x: b.Gelu(x), [[3, 4]], "float16"),
}


@pytest.mark.parametrize("op_type", MIXED)
def test_ops_whose_operands_have_types_of_their_own(op_type: str) -> None:
    make, shapes, expected = MIXED[op_type]
    module = built(make, *shapes)
    made, _ = ik.to_half(module)
    assert kinds(made, op_type) == [expected]
    onnx.checker.check_model(made.to_onnx(), full_check=True)
    feeds = {"x0": RNG.standard_normal(shapes[0]).astype(np.float32)}
    if op_type not in ("QuantizeLinear", "RandomNormal"):
        close(module, made, feeds, 3e-3)
    assert ik.compile(made, "onnxruntime").run(feeds)


def test_attributes_that_name_a_type_follow_where_that_is_allowed() -> None:
    module = built(
        lambda b, x: (
            x + b.EyeLike(b.Cast(x, to=9), dtype=1),
            b.RandomNormal(shape=[2], dtype=1) + b.Slice(x, I([0]), I([2]), I([1])),
        )
    )
    made, _ = ik.to_half(module, allow=["EyeLike", "RandomNormal"])
    assert kinds(made, "EyeLike") == kinds(made, "RandomNormal") == ["float16"]
    assert ik.compile(made, "numpy").run({"x0": X})


def test_attention_keeps_the_precision_of_its_softmax() -> None:
    module = built(lambda b, q: b.Attention(q, q, q), [1, 2, 3, 4], opset=24)
    made, _ = ik.to_half(module)
    (attention,) = (op for op in made.walk() if op.name.startswith("onnx.Attention"))
    assert str(dtype_of(attention.results[0].type)) == "float16"
    assert attention.attr("softmax_precision") == 1


# Constants and values


def test_constants_that_do_not_fit_are_named() -> None:
    big, tiny = np.float32([1, 7e4]), np.float32(1e-12)
    made, report = ik.to_half(built(lambda b, x: b.Tanh(x * b.initializer(big, "big")) @ W[:2], [3, 2]))
    assert kinds(made, "Mul") == kinds(made, "Tanh") == ["float32"]
    assert kinds(made, "MatMul") == ["float16"]
    assert reason(report, "Mul") == "its constant 'big' holds 7e+04, too large for float16"
    assert "its operand reaches" in reason(report, "Tanh")
    made, report = ik.to_half(built(lambda b, x: b.Relu(x @ W) + tiny))
    assert kinds(made, "Add") == ["float32"]
    assert "1e-12, too small" in reason(report, "Add")
    assert kinds(ik.to_half(built(lambda b, x: b.Relu(x @ W) + tiny), "bfloat16")[0], "Add") == ["bfloat16"]


def test_small_weights_beside_large_ones_may_vanish_unless_something_is_divided_by_them() -> None:
    weights = np.float32([1, 1e-9])
    assert kinds(ik.to_half(built(lambda b, x: x * weights, [2]))[0], "Mul") == ["float16"]
    made, _ = ik.to_half(built(lambda b, x: x / weights, [2]))
    assert kinds(made, "Div") == ["float32"]


def test_nan_infinities_and_signs_of_constants_stay() -> None:
    special = np.float32([np.nan, np.inf, -np.inf, -0.0, 0.0])
    made, _ = ik.to_half(built(lambda b, x: b.Where(b.Greater(x, 0), x, b.initializer(special, "c")), [5]))
    (held,) = (op.value.array() for op in made.walk() if op.name == "onnx.Initializer")
    assert held.dtype == np.float16
    assert np.array_equal(held, special, equal_nan=True)
    assert np.signbit(held[3:]).tolist() == [True, False]


def test_a_mask_of_the_lowest_float_stays_up_to_the_softmax() -> None:
    lowest = np.finfo(np.float32).min

    def attention(b: ik.Builder, x: ik.Tensor, mask: ik.Tensor) -> ik.Tensor:
        return b.Softmax(x @ W + (1 - mask) * lowest) @ W

    module = built(attention, [3, 4], [1, 4])
    made, _ = ik.to_half(module)
    assert kinds(made, "Softmax") == ["float32"]
    assert kinds(made, "MatMul") == ["float16"] * 2
    # A row that is masked altogether has the same probabilities all over, which -inf would make NaN.
    close(module, made, {"x0": X, "x1": np.zeros((1, 4), np.float32)}, 2e-3)


def test_a_bound_that_no_half_reaches_is_infinite() -> None:
    module = built(lambda b, x: b.Clip(x, np.float32(0), np.float32(1e9)))
    made, _ = ik.to_half(module)
    assert kinds(made, "Clip") == ["float16"]
    close(module, made, {"x0": X}, 1e-3)


def test_values_that_runs_show_too_large_stay_in_float32() -> None:
    module = built(lambda b, x: b.Mul(b.MatMul(b.MatMul(x, W), W), np.float32(1e-3)))
    assert kinds(ik.to_half(module)[0], "MatMul") == ["float16"] * 2
    made, report = ik.to_half(module, calibration=[{"x0": X}, {"x0": 2e4 * X}])
    assert kinds(made, "MatMul") == ["float32", "float32"]
    assert "reaches" in reason(report, "MatMul")
    close(module, made, {"x0": 2e4 * X}, 2e-3)
    assert kinds(ik.to_half(module, "bfloat16", calibration={"x0": 2e4 * X})[0], "MatMul") == ["bfloat16"] * 2


def test_values_that_vanish_stay_in_float32() -> None:
    module = built(lambda b, x: b.Sigmoid(b.MatMul(x, W) * 1e-3 * 1e-3) * W[:1])
    made, report = ik.to_half(module)
    assert "stays below" in str(report)
    assert kinds(made, "Sigmoid") == ["float32"]


def divided_by_a_probability(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.Div(np.float32(1), b.Softmax(x * 10))


def test_overflow_is_an_error_that_names_the_op_and_says_what_to_do() -> None:
    module = built(divided_by_a_probability, [1, 4])
    fed = {"x0": np.float32([[0, 1, 2, 3]])}
    with pytest.raises(PassError) as caught:
        ik.to_half(module, calibration=fed)
    text = str(caught.value)
    assert text.startswith("onnx.Div at ")
    assert "test_half.py" in text
    assert "overflows in float16" in text
    assert "block='Div'" in text
    made, _ = ik.to_half(module, calibration=fed, block=["Softmax"])
    assert np.isfinite(ik.compile(made, "numpy").run(fed)["y0"]).all()


def test_without_runs_the_report_says_so() -> None:
    _, report = ik.to_half(built(lambda b, x: x @ W), samples=0)
    assert report.samples == 0
    assert "no samples were asked for" in str(report)
    _, report = ik.to_half(built(lambda b, x: x @ W))
    assert report.samples == 2


# Integers


def test_integers_are_left_alone_and_what_is_computed_of_them_stays_exact() -> None:
    def rotary(b: ik.Builder, x: ik.Tensor, position: ik.Tensor) -> Any:
        angles = b.MatMul(b.Cast(position, to=1), np.float32([[1, 0.01, 0.5, 2]]))
        return x * b.Cos(angles), position * 3 + 1

    b = ik.Builder()
    x, position = b.input("x", "float32", [3, 4]), b.input("p", "int64", [3, 1])
    for name, value in zip("yz", rotary(b, x, position), strict=True):
        b.output(value, name)
    module = b.module()
    made, report = ik.to_half(module)
    assert kinds(made, "Cos") == kinds(made, "MatMul") == ["float32"]
    assert reason(report, "MatMul").startswith("it computes with what are integers")
    close(module, made, {"x": X, "p": np.array([[1], [5000], [60001]])}, 1e-3)


def test_small_integers_and_bools_fit() -> None:
    for kind, expected in (("bool", "float16"), ("int8", "float16"), ("int32", "float32")):
        b = ik.Builder()
        x, mask = b.input("x", "float32", [3, 4]), b.input("m", kind, [3, 4])
        b.output(x * b.Cast(mask, to=1), "y")
        made, _ = ik.to_half(b.module())
        assert expected in kinds(made, "Cast")
        assert kinds(made, "Mul") == ["float16"]


def test_quantized_ops_stay_as_they_are() -> None:
    scale = np.float32(0.1)

    def layer(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
        q = b.QuantizeLinear(x, scale, np.int8(0))
        w = b.DequantizeLinear(np.ones((4, 4), np.int8), scale)
        return b.DequantizeLinear(b.QuantizeLinear(b.MatMul(b.DequantizeLinear(q, scale), w), scale, np.int8(0)), scale)

    module = built(layer)
    assert ik.to_half(module)[0] == module
    weights_alone = built(lambda b, x: x @ b.DequantizeLinear(np.ones((4, 4), np.int8), scale))
    assert kinds(ik.to_half(weights_alone)[0], "MatMul") == ["float16"]


# Casts


def test_casts_of_the_module_go_only_where_nothing_is_lost() -> None:
    module = built(lambda b, x: b.MatMul(b.Cast(b.Cast(b.MatMul(x, W), to=10), to=1), W))
    made, _ = ik.to_half(module, "float16")
    assert kinds(made, "Cast") == ["float16", "float32"]
    # float32 -> float16 -> float32 is a rounding, which bfloat16 is not.
    made, _ = ik.to_half(module, "bfloat16")
    assert kinds(made, "Cast").count("float16") == 1
    wide = built(lambda b, x: b.Cast(b.Cast(x, to=10), to=1))
    assert ik.to_half(wide)[0] == wide


def test_a_value_is_cast_once_and_never_back() -> None:
    def diamond(b: ik.Builder, x: ik.Tensor) -> Any:
        h = b.Relu(x @ W)
        return b.Exp(h) + b.Log(h + 1) * h, b.Exp(h * 2) @ W

    made, report = ik.to_half(built(diamond))
    sources = [op.operands[0] for op in made.walk() if op.name == "onnx.Cast"]
    assert len(set(sources)) == len(sources) == report.casts
    assert not any(getattr(v.owner, "name", "") == "onnx.Cast" for v in sources)


def test_origins_stay() -> None:
    b = ik.Builder()
    b.output(b.Relu(b.input("x", "float32", [2])), "y")
    made, _ = ik.to_half(b.module())
    ops = [op for op in made.block.ops if op.name in ("onnx.Relu", "onnx.Cast")]
    assert len(ops) == 3
    assert all(where(op).startswith("made by to-half from ") and "test_half.py" in where(op) for op in ops)


# Graphs, functions, sequences


def test_branches_agree() -> None:
    def make(second: Callable[[ik.Builder, ik.Tensor], ik.Tensor]) -> ik.Module:
        b = ik.Builder()
        x, c = b.input("x", "float32", [3, 4]), b.input("c", "bool", [])
        h = b.Relu(x @ W)
        b.output(b.If(c, then_branch=lambda b: h @ W, else_branch=lambda b: second(b, h)) @ W, "y")
        return b.module()

    for second, expected in ((lambda b, h: b.Neg(h), "float16"), (lambda b, h: b.Exp(h), "float32")):
        module = make(second)
        made, _ = ik.to_half(module)
        assert kinds(made, "If") == [expected]
        onnx.checker.check_model(made.to_onnx(), full_check=True)
        for c in (True, False):
            close(module, made, {"x": X, "c": np.array(c)}, 4e-3)


def test_loops_carry_one_type_and_sum_in_float32() -> None:
    def loop(b: ik.Builder, x: ik.Tensor) -> Any:
        return b.Loop(np.array(3), None, x, x, body=lambda b, i, c, s, t: (c, b.Tanh(s @ W), t + s, b.Tanh(s @ W) * 2))

    module = built(loop)
    made, report = ik.to_half(module)
    (op,) = (op for op in made.walk() if op.name == "onnx.Loop")
    assert [str(dtype_of(r.type)) for r in op.results] == ["float16", "float32", "float16"]
    assert "running sum" in reason(report, "Add")
    onnx.checker.check_model(made.to_onnx(), full_check=True)
    close(module, made, {"x0": X}, 4e-3)


def test_scans_take_and_give_half() -> None:
    def scan(b: ik.Builder, x: ik.Tensor) -> Any:
        return b.Scan(
            np.zeros(4, np.float32), b.Relu(x), num_scan_inputs=1, body=lambda b, s, e: (b.Tanh(s * e), e @ W)
        )

    module = built(scan)
    made, _ = ik.to_half(module)
    (op,) = (op for op in made.walk() if op.name == "onnx.Scan")
    assert [str(dtype_of(r.type)) for r in op.results] == ["float16", "float16"]
    onnx.checker.check_model(made.to_onnx(), full_check=True)
    close(module, made, {"x0": X}, 4e-3)


FUNCTIONS = """g (float[3, 4] x, int64[2] n) => (float[3, 4] y, int64[2] m) {
    a = local.F <alpha = 0.5> (x)  y = local.F <alpha = 2.0> (a)  m = local.N (n) }
<domain: "local", opset_import: ["" : 21]>
F <alpha> (v) => (r) { c = Constant <value_float: float = @alpha> ()  t = Mul (v, c)  e = Exp (t)  r = Tanh (e) }
<domain: "local", opset_import: ["" : 21]>
N (v) => (r) { r = Neg (v) }"""


def test_functions_are_converted_for_the_calls_that_there_are() -> None:
    module = ik.load(from_text(FUNCTIONS, imports={"local": 1}))
    made, report = ik.to_half(module)
    assert len([op for op in made.op.ops if op.name == "onnx.Function"]) == 3
    # What the first call gives is not half, so that the second has nothing to gain, and keeps its function.
    assert [op.properties["op_type"].data for op in made.walk() if op.name == "onnx.Call"] == ["F_float16", "F", "N"]
    assert [kept.op for kept in report.kept].count("onnx.Exp") == 2
    assert kinds(made, "Mul") == ["None", "None"]  # functions are untyped
    close(module, made, {"x": X, "n": np.array([1, 2])}, 3e-3)
    onnx.checker.check_model(made.to_onnx(), full_check=True)
    again, second = ik.to_half(made)
    assert again == made
    assert not second.converted


def test_a_function_in_which_nothing_changes_is_given_what_it_was() -> None:
    text = """g (float[3, 4] x) => (seq(float[3, 4]) y) { h = Relu (x)  y = local.S (h) }
    <domain: "local", opset_import: ["" : 21]>
    S (v) => (r) { r = SequenceConstruct (v, v) }"""
    module = ik.load(from_text(text, imports={"local": 1}))
    made, report = ik.to_half(module)
    assert report.converted == 1
    assert [a.dtype for a in ik.compile(made, "numpy").run({"x": X})["y"]] == [np.float32] * 2


def test_sequences_stay_as_they_are() -> None:
    module = built(lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(b.Relu(x), x), axis=0) @ W)
    made, _ = ik.to_half(module)
    assert kinds(made, "ConcatFromSequence") == ["float32"]
    assert kinds(made, "MatMul") == kinds(made, "Relu") == ["float16"]
    close(module, made, {"x0": X}, 2e-3)


def test_float64_where_asked() -> None:
    module = built(lambda b, x: b.Relu(x @ W.astype(np.float64)), kind="float64")
    assert ik.to_half(module)[0] == module
    made, _ = ik.to_half(module, float64=True)
    assert kinds(made, "MatMul") == ["float16"]
    assert made.outputs == module.outputs


# As a pass


def test_the_pass_has_options_and_notes_and_is_checked() -> None:
    module = built(lambda b, x: b.Softmax(b.Exp(b.Tanh(x @ W))))
    seen = Instrumentation()
    made = ik.optimize(
        module, 'to-half{dtype=bfloat16 block="Softmax" samples=1},dce,canonicalize', check="each", instrumentation=seen
    )
    assert kinds(made, "MatMul") == ["bfloat16"]
    assert kinds(made, "Softmax") == ["float32"]
    assert seen.records[0].compared
    assert "no overflow in runs on 1 sets of inputs" in seen.records[0].notes
    half = ik.optimize(module, "to-half{keep-io=false}", check="each", stream=io.StringIO())
    assert str(dtype_of(half.inputs["x0"])) == "float16"
    assert ik.optimize(module, "O1,to-half,O1", check="end").inputs == module.inputs


def test_integers_that_rounding_decides_are_not_compared() -> None:
    module = built(lambda b, x: b.Cast(b.Floor(b.MatMul(x, W) * 1000), to=7))
    stream = io.StringIO()
    ik.optimize(module, "to-half", check="each", stream=stream)
    assert "rounding may decide" in stream.getvalue()


@pytest.mark.parametrize("name", ["encoder_script", "decoder_dynamo"])
def test_transformers_as_torch_exports_them(name: str) -> None:
    from irkit.verify.generate import random_feeds

    module = ik.load(EXPORTED / f"{name}.onnx")
    feeds = random_feeds(module, 0)
    made, report = ik.to_half(module, calibration=feeds)
    assert report.converted >= 25
    close(module, made, feeds, 2e-3)
    onnx.checker.check_model(made.to_onnx(), full_check=True)


def test_magika() -> None:
    from tests.corpus.light import magika_feeds, magika_model_path

    module = ik.load(magika_model_path())
    made, report = ik.to_half(module, calibration=magika_feeds())
    assert report.bytes_after < 0.51 * report.bytes_before
    close(module, made, magika_feeds(), 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "densenet121", "depthwise", "encoder"])
def test_networks(name: str) -> None:
    from benchmarks.nets import NETS

    model, feeds = NETS[name]()
    module = ik.load(model)
    made, report = ik.to_half(module, calibration=feeds)
    assert report.bytes_after < 0.51 * report.bytes_before
    close(module, made, feeds, 5e-3)


def test_a_function_that_gives_a_constant_is_converted() -> None:
    text = """g (float[2] x) => (float[2] y) { c = local.F ()  y = Mul (x, c) }
    <domain: "local", opset_import: ["" : 21]>
    F () => (r) { r = Constant <value = float {1.5}> () }"""
    module = ik.load(from_text(text, imports={"local": 1}))
    made, report = ik.to_half(module)
    assert report.converted == 1
    given = [op for op in made.walk() if op.name in ("onnx.Constant", "onnx.Initializer")]
    assert "float16" in {str(dtype_of(op.results[0].type)) for op in given}
    onnx.checker.check_model(made.to_onnx(), full_check=True)
    x = np.float32([1, -2])
    np.testing.assert_array_equal(ik.compile(made)(x), np.float32([1.5, -3]))


# Random graphs


def test_random_graphs_convert() -> None:
    report = sweep(range(60), steps=4)
    assert not report.findings, report.text()
    assert report.converted >= 45, report.text()
    assert report.compared >= 100, report.text()
    assert not sweep(range(60, 80), "bfloat16", steps=4).findings


@pytest.mark.slow
def test_many_random_graphs_convert() -> None:
    for kind in ("float16", "bfloat16"):
        report = sweep(range(1000), kind)
        assert not report.findings, report.text()
        assert report.compared >= 2000, report.text()


# Planted mistakes


def a_product(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return (x * 1e-3) @ b.initializer(1e5 * W, "w")


def an_overflowing_value(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.MatMul(x * 1000, 100 * W) * np.float32(1e-3)


def a_code(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.QuantizeLinear(x, np.float32(0.1), np.int8(0))


def a_mask(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.Softmax(x @ (W * 0.01) + b.Where(b.Greater(x, 100), np.float32(-3e38), np.float32(0))) @ W


def an_offset(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return b.Div(np.float32(1e-9), b.Relu(x) + np.float32(1e-9))


def a_branch(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    c = b.Greater(b.ReduceMax(x, keepdims=0), 0)
    return b.If(c, then_branch=lambda b: b.Exp(x), else_branch=lambda b: b.Neg(x)) @ W


def a_long_sum(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    body = lambda b, i, c, s: (c, s + b.Abs(x) * 3)  # noqa: E731
    return b.Loop(np.array(4000), None, x, body=body) * np.float32(1e-3)


def a_position(b: ik.Builder, x: ik.Tensor) -> ik.Tensor:
    return x * b.Cos(b.Cast(np.array([[5001], [4001], [3003]]), to=1) * np.float32(1.0))


def a_wide_result(b: ik.Builder, x: ik.Tensor) -> Any:
    ones = np.ones(4, np.float32)
    return b.LayerNormalization(b.Relu(x), ones, ones, outputs=2)


def plant(target: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(target, name, value)


def forgets_small_constants(patch: pytest.MonkeyPatch) -> None:
    right = fit.Half.misfit

    def wrong(self: Any, data: Any, *, divisor: bool = False) -> tuple[str, float]:
        found = right(self, data)
        return found if found[0] == fit.LARGE else ("", 0.0)

    patch.setattr(fit.Half, "misfit", wrong)


def unblocks(*names: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patched(patch: pytest.MonkeyPatch) -> None:
        for name in names:
            patch.delitem(policy.BLOCKED, name)

    return patched


def takes_all_for_halves(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: slots.Slots, op: Any, operands: Any) -> list[Any]:
        return [tensor(self.half, shape_of(r.type)) for r in op.results]

    patch.setattr(slots.Slots, "_inferred", wrong)
    patch.setattr(slots.Slots, "_allowed", lambda self, op, formal: True)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[..., Any]]] = {
    "constants are not looked at": (plant(fit.Half, "misfit", lambda self, data, divisor=False: ("", 0.0)), a_product),
    "runs are not believed": (plant(fit.Half, "overflows", lambda self, seen: False), an_overflowing_value),
    "quantization is not blocked": (unblocks("QuantizeLinear"), a_code),
    "what may be too large is cast": (plant(analysis.Analysis, "_mark_hot", lambda *a, **k: None), a_mask),
    "small constants vanish": (forgets_small_constants, an_offset),
    "ends of graphs are not cast": (plant(convert.Converter, "_ends", lambda *a: iter(())), a_branch),
    "running sums are halves": (plant(analysis, "_adds_to", lambda value, arg: False), a_long_sum),
    "integers are halves": (plant(slots.Slots, "refused_cast", lambda self, op: ""), a_position),
    "casts are forgotten": (plant(convert.Converter, "_version", lambda self, value, kind, user: value), a_branch),
    "results are taken for halves": (takes_all_for_halves, a_wide_result),
}


OTHERS = {a_mask: 200.0, a_code: 0.2501}
"""Inputs all over of one number, on which a mistake shows that the calibration did not."""


def outcome(make: Callable[..., Any]) -> str:
    """What is wrong with a conversion, ``""`` if nothing."""
    module = built(make)
    try:
        made, _ = ik.to_half(module, calibration={"x0": X})
        onnx.checker.check_model(made.to_onnx(), full_check=True)
    except (ik.IrkitError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    feeds = [{"x0": X}, *({"x0": np.full_like(X, OTHERS[make])} for _ in range(make in OTHERS))]
    with np.errstate(all="ignore"):
        report = compare(module, made, feeds=feeds, rtol=0.01)
    return "" if report.equal else report.text()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake, make = MUTANTS[name]
    assert not outcome(make)
    mistake(monkeypatch)
    assert outcome(make)


def test_a_missing_check_for_overflow_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_check", lambda *a: None)
    module = built(divided_by_a_probability, [1, 4])
    with pytest.raises(CheckError, match=r"inf|NaN|error"):
        ik.optimize(
            module,
            "to-half",
            check="each",
            instrumentation=Instrumentation(options={"feeds": [{"x0": np.float32([[0, 1, 2, 3]])}]}),
        )
