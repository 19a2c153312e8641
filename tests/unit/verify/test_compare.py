"""Two modules compared: what is found, what is let pass, and what is said to be unchecked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import irkit as ik
from irkit.errors import FeedError, VerifyError
from irkit.ir.module import Module
from irkit.ir.names import set_out_names
from irkit.testing import assert_equivalent, check_pass
from irkit.verify import Report, Tolerance, bisect, compare, difference_of

BOTH = ("numpy", "onnxruntime", ("onnxruntime", {"optimize": "all"}))


def graph(build: Callable[[ik.Builder], None], **options: Any) -> ik.Module:
    builder = ik.Builder("test", **options)
    build(builder)
    return builder.module()


def unary(function: Callable[[ik.Builder, Any], Any], element: str = "float32") -> ik.Module:
    return graph(lambda b: b.output(function(b, b.input("x", element, ["N", 3])), "y"))


def found(a: ik.Module, b: ik.Module, **options: Any) -> set[str]:
    return {difference.what for difference in compare(a, b, **options).differences}


@pytest.mark.parametrize("samples", [1, 3, 6])
def test_equal_modules(samples: int) -> None:
    module = unary(lambda b, x: b.Softmax(x * 2 + 1))
    report = compare(module, module.clone(), backends=BOTH, samples=samples)
    assert report.equal
    assert report
    assert report.runs == {"numpy": samples, "onnxruntime": samples, "onnxruntime optimize=all": samples}
    assert report.unchecked == []
    assert report.text() == f"equal ({3 * samples} pairs of runs compared)"


def test_a_wrong_number_is_found_and_described() -> None:
    report = compare(unary(lambda b, x: x * 2), unary(lambda b, x: x * 2.001), backends=BOTH)
    assert not report.equal
    assert {d.what for d in report.differences} == {"value"}
    assert {d.backend for d in report.differences} == set(report.runs)
    worst = report.differences[0]
    assert worst.output == "y"
    assert worst.max_rel == pytest.approx(0.0005, rel=0.01)
    assert worst.index is not None
    assert "output 'y'" in report.text()
    assert json.loads(json.dumps(report.to_json()))["equal"] is False


def test_small_errors_pass_and_the_tolerance_is_relative_to_the_scale() -> None:
    exact, near = unary(lambda b, x: x * 1e6), unary(lambda b, x: x * 1e6 + 1e-2)
    assert compare(exact, near, special=False)
    assert found(exact, near, rtol=1e-10) == {"value"}
    assert compare(exact, near, rtol=0, atol=0.2, special=False)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda b, x: b.Relu(x), lambda b, x: b.Where(x > 0, x, 0.0)),  # NaN
        (lambda b, x: 1 / (x + 0.0), lambda b, x: 1 / x),  # -0
        (lambda b, x: x * 0.0, lambda b, x: b.Where(b.IsNaN(x), x, 0.0)),  # infinity
        (lambda b, x: b.Floor(x), lambda b, x: b.Round(x)),
        (lambda b, x: b.ReduceMax(x, keepdims=0), lambda b, x: b.ReduceMax(b.Abs(x), keepdims=0)),
    ],
)
def test_what_only_some_values_show_is_found(right: Any, wrong: Any) -> None:
    assert not compare(unary(right), unary(wrong)).equal


def test_broadcasting_mistakes_show_in_sizes() -> None:
    """Equal where N is 1: only other sizes tell."""

    def right(b: ik.Builder, x: Any) -> Any:
        return b.ReduceSum(x, np.array([0]), keepdims=0)

    def wrong(b: ik.Builder, x: Any) -> Any:
        return b.ReduceMean(x, np.array([0]), keepdims=0)

    report = compare(unary(right), unary(wrong))
    assert 0 in {d.sample for d in report.differences}
    assert 1 not in {d.sample for d in report.differences}


def test_dtypes_shapes_and_kinds() -> None:
    as_int = unary(lambda b, x: b.Cast(x, to=6))
    assert found(as_int, unary(lambda b, x: b.Cast(x, to=7))) == {"signature"}
    assert difference_of(np.ones(2), np.ones(2, np.float32)).what == "type"  # type: ignore[union-attr]
    assert difference_of(np.ones((2, 1)), np.ones(2)).what == "shape"  # type: ignore[union-attr]
    assert difference_of([np.ones(1)], [np.ones(1), np.ones(1)]).what == "shape"  # type: ignore[union-attr]
    assert difference_of([np.ones(1)], [np.zeros(1)]).what == "value"  # type: ignore[union-attr]
    assert difference_of({"a": 1.0}, {"a": 1.0}) is None
    assert difference_of({"a": 1.0}, {"b": 1.0}).what == "value"  # type: ignore[union-attr]
    assert difference_of(None, np.ones(1)).what == "type"  # type: ignore[union-attr]
    assert difference_of(None, None) is None


@pytest.mark.parametrize(
    ("kind", "a", "b", "what"),
    [
        (np.float32, [1, np.nan], [1, np.nan], None),
        (np.float32, [1, np.nan], [1, 2], "nan"),
        (np.float32, [1, 2], [1, np.nan], "nan"),
        (np.float32, [np.inf, 1], [np.inf, 1], None),
        (np.float32, [np.inf, 1], [-np.inf, 1], "infinity"),
        (np.float32, [np.inf, 1], [3e38, 1], "infinity"),
        (np.float32, [0, 100], [9e-4, 100], None),
        (np.float32, [0, 100], [2e-3, 100], "value"),
        (np.float32, [0, 0], [0, 1e-30], "value"),
        (np.float64, [0, 100], [1e-6, 100], "value"),
        (np.float16, [1, 1], [1.001, 1], None),
        (np.float16, [1, 1], [1.01, 1], "value"),
        (ml_dtypes.bfloat16, [1, 1], [1.0078125, 1], None),
        (ml_dtypes.bfloat16, [1, 1], [1.0625, 1], "value"),
        (ml_dtypes.float8_e4m3fn, [1, 1], [1.125, 1], None),
        (ml_dtypes.float8_e4m3fn, [1, 1], [1.25, 1], "value"),
        (ml_dtypes.int4, [1, 7], [1, 6], "value"),
        (np.int64, [1 << 62, 1], [(1 << 62) + 1, 1], "value"),
        (np.uint8, [1, 255], [1, 255], None),
        (np.bool_, [True, False], [True, True], "value"),
        (np.complex64, [1 + 1j, 1], [1 + 1j, 1], None),
        (np.complex64, [1 + 1j, 1], [1 - 1j, 1], "value"),
        (object, ["a", "b"], ["a", "b"], None),
        (object, ["a", "b"], ["a", "c"], "value"),
        (np.float32, [], [], None),
    ],
)
def test_values(kind: Any, a: list[Any], b: list[Any], what: str | None) -> None:
    difference = difference_of(np.array(a).astype(kind), np.array(b).astype(kind))
    assert (difference.what if difference else None) == what


def test_signed_zeros_on_request() -> None:
    plus, minus = np.array([0.0, 1]), np.array([-0.0, 1])
    strict = Tolerance(signed_zeros=True)
    assert difference_of(plus, minus) is None
    assert difference_of(plus, minus, strict).what == "zero"  # type: ignore[union-attr]
    assert difference_of(minus, minus.copy(), strict) is None
    assert difference_of(plus * 1j, minus * 1j, strict) is not None
    same, other = unary(lambda b, x: x + 0.0), unary(lambda b, x: b.Identity(x))
    assert compare(same, other)
    assert found(same, other, signed_zeros=True) == {"zero"}


def test_signatures() -> None:
    def module(inputs: list[tuple[str, str, list[Any]]], outputs: list[str]) -> ik.Module:
        def build(b: ik.Builder) -> None:
            values = [b.input(*entry) for entry in inputs]
            for name in outputs:
                b.output(b.Neg(values[0]), name)

        return graph(build)

    base = module([("x", "float32", ["N"]), ("u", "int64", [2])], ["y", "z"])
    for inputs, outputs in (
        ([("x", "float32", ["N"])], ["y", "z"]),
        ([("u", "float32", ["N"]), ("x", "int64", [2])], ["y", "z"]),
        ([("x", "float32", [3]), ("u", "int64", [2])], ["y", "z"]),
        ([("x", "float64", ["N"]), ("u", "int64", [2])], ["y", "z"]),
        ([("x", "float32", ["N"]), ("u", "int64", [3])], ["y", "z"]),
        ([("x", "float32", ["N"]), ("u", "int64", [2])], ["z", "y"]),
        ([("x", "float32", ["N"]), ("u", "int64", [2])], ["y"]),
    ):
        report = compare(base, module(inputs, outputs))
        assert {d.what for d in report.differences} == {"signature"}
        assert report.compared == 0


def test_what_fails_alike_is_unchecked_and_what_fails_once_is_a_difference() -> None:
    def at(index: int) -> ik.Module:
        return unary(lambda b, x: b.Gather(x, np.array([index]), axis=1))

    report = compare(at(7), at(8), backends=("numpy", "onnxruntime"))
    assert report.equal
    assert report.compared == 0
    assert len(report.unchecked) == 6
    assert "both fail" in report.unchecked[0]
    assert "nothing could be compared" in report.text()
    with pytest.raises(AssertionError, match="nothing could be compared"):
        assert_equivalent(at(7), at(8), ["numpy"])
    for a, b in ((at(0), at(7)), (at(7), at(0))):
        assert found(a, b) == {"failure"}


def test_a_backend_that_cannot_run_the_first_is_unchecked() -> None:
    complex_ = unary(lambda b, x: b.Identity(x), "complex64")
    report = compare(complex_, complex_, backends=("numpy", "onnxruntime"))
    assert report.equal
    assert report.runs == {"numpy": 3, "onnxruntime": 0}
    assert "onnxruntime does not have" in report.unchecked[0]
    with pytest.raises(AssertionError):
        assert_equivalent(complex_, complex_)
    assert_equivalent(complex_, complex_, ["numpy"])


def test_a_backend_that_can_only_run_the_first_shows_a_difference() -> None:
    def neg(b: ik.Builder, x: Any) -> Any:
        return b.Cast(b.Neg(b.Cast(x, to=16)), to=1)

    report = compare(unary(lambda b, x: b.Neg(x)), unary(neg), backends=["onnxruntime"])
    assert {(d.what, d.backend) for d in report.differences} == {("failure", "onnxruntime")}
    assert "only the second module cannot be compiled" in report.text()


def test_larger_sizes_are_tried_where_small_ones_fail() -> None:
    w = np.ones((1, 1, 7, 7), np.float32)
    module = graph(lambda b: b.output(b.Conv(b.input("x", "float32", ["N", 1, "H", "W"]), w), "y"))
    report = compare(module, module, backends=("numpy", "onnxruntime"))
    assert report.runs == {"numpy": 3, "onnxruntime": 3}


def test_random_ops_draw_the_same_by_name_and_are_unchecked_elsewhere() -> None:
    def draw(name: str, scale: float = 1.0) -> ik.Module:
        def build(b: ik.Builder) -> None:
            x = b.input("x", "float32", [4])
            made = b.RandomNormalLike(x)
            set_out_names(made.ssa.owner, [name])
            b.output(x + made * scale, "y")

        return graph(build)

    assert compare(draw("r"), draw("r"))
    assert found(draw("r"), draw("r", 2.0)) == {"value"}
    assert found(draw("r"), draw("s")) == {"value"}
    report = compare(draw("r"), draw("r", 2.0), backends=["onnxruntime"])
    assert report.equal
    assert "random" in report.unchecked[0]


def test_notes_on_outputs_that_show_nothing() -> None:
    def noted(function: Callable[[ik.Builder, Any], Any]) -> str:
        module = unary(function)
        return "\n".join(compare(module, module).notes)

    assert "is 1.0 everywhere" in noted(lambda b, x: b.Where(b.IsNaN(x), 1.0, 1.0))
    assert "not finite anywhere" in noted(lambda b, x: x / 0.0)
    assert "is empty" in noted(lambda b, x: b.Slice(x, np.array([0]), np.array([0]), np.array([1])))
    assert noted(lambda b, x: x + 1) == ""


def test_feeds_of_ones_own() -> None:
    a, b = unary(lambda b, x: b.Relu(x)), unary(lambda b, x: b.Abs(x))
    positive, negative = {"x": np.ones((1, 3), np.float32)}, {"x": -np.ones((1, 3), np.float32)}
    assert compare(a, b, feeds=positive).runs == {"numpy": 1}
    assert compare(a, b, feeds=positive).equal
    assert not compare(a, b, feeds=[positive, negative]).equal
    with pytest.raises(FeedError, match="'x'"):
        compare(a, b, feeds={"x": np.ones(3, np.float32)})


def test_defaults_are_fed_too() -> None:
    def module(op: str) -> ik.Module:
        return ik.load(
            onnx.parser.parse_model(f"""
            <ir_version: 10, opset_import: ["" : 21]>
            g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {{1}}> {{ y = {op}(x, w) }}""")
        )

    assert not compare(module("Mul"), module("Div")).equal
    folded = unary(lambda b, x: x)
    assert found(module("Mul"), folded) == {"signature"}


def test_assert_equivalent_takes_files_bytes_and_protos(tmp_path: Any) -> None:
    module = unary(lambda b, x: b.Tanh(x))
    path = tmp_path / "m.onnx"
    ik.save(module, path)
    for other in (path, str(path), path.read_bytes(), onnx.load(path), module):
        assert_equivalent(module, other)
    with pytest.raises(AssertionError, match="output 'y'"):
        assert_equivalent(path, unary(lambda b, x: b.Sin(x)))


# Passes


@dataclass(frozen=True)
class Rewrite(ModulePass):
    """Rewrites by a function; a name of one's own tells several apart."""

    name: ClassVar[str] = "test-rewrite"
    change: Callable[[Module], None] = lambda module: None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.change(Module(op, ctx))


@dataclass(frozen=True)
class Nothing(ModulePass):
    name: ClassVar[str] = "nothing"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pass


def _drop_adds(module: Module) -> None:
    for op in list(module.block.ops):
        if op.name == "onnx.Add":
            op.results[0].replace_all_uses_with(op.operands[0])
            op.detach()
            op.erase()


def _swap_adds(module: Module) -> None:
    for op in module.block.ops:
        if op.name == "onnx.Add":
            op.operands = list(reversed(op.operands))


def _fail(module: Module) -> None:
    raise KeyError("oops")


def _break(module: Module) -> None:
    for op in module.block.ops:
        if op.name == "onnx.Add":
            op.operands = [*op.operands, *op.operands]


def test_bisect_names_the_pass_that_breaks() -> None:
    module = unary(lambda b, x: x + 1)
    before = str(module)
    good, bad = Rewrite(_swap_adds), Rewrite(_drop_adds)
    result = bisect(module, [Nothing(), good, good, bad, good])
    assert (result.culprit, result.index, result.error) == ("test-rewrite", 3, "")
    assert {d.what for d in result.report.differences} == {"value"}
    assert result.after is not None
    assert result.before != result.after
    assert "number 4" in result.text()
    fine = bisect(module, [Nothing(), good])
    assert (fine.culprit, fine.index) == (None, -1)
    assert fine.text() == "no pass breaks the module"
    failing = bisect(module, [good, Rewrite(_fail)])
    assert (failing.index, failing.error, failing.after) == (1, "KeyError: 'oops'", None)
    assert bisect(module, [Rewrite(_break)]).index == 0
    assert str(module) == before


def test_check_pass() -> None:
    module = unary(lambda b, x: x + 1)
    assert check_pass(Rewrite(_swap_adds), module) != module
    assert check_pass([Nothing(), Nothing()], module, backends=BOTH) == module
    with pytest.raises(AssertionError, match="output 'y'"):
        check_pass(Rewrite(_drop_adds), module)
    with pytest.raises(VerifyError):
        check_pass(Rewrite(_break), module)
    assert check_pass("dce", module) == module


def test_a_report_is_true_only_if_equal() -> None:
    assert Report()
    assert not compare(unary(lambda b, x: x), unary(lambda b, x: -x))
