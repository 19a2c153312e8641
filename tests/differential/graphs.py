"""Small graphs that together touch what a frontend, a pass and a backend must get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser

import irkit as ik
from irkit.ir.names import set_out_names
from irkit.ir.types import OptType, tensor

__all__ = ["GRAPHS", "NUMPY_ONLY", "make"]


def _weights(*shape: int) -> np.ndarray:
    """The same at each call: a graph is made many times."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[0]))


def _integers(low: int, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(low, high, shape)


def mlp(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 8])
    h = b.Relu(b.Gemm(x, b.initializer(_weights(8, 16), "w1"), b.initializer(_weights(16), "b1"), name="fc1"))
    b.output(b.Softmax(b.Gemm(h, b.initializer(_weights(16, 4), "w2")), axis=-1), "y")


def convolutions(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 3, 9, 9])
    y = b.Conv(x, b.initializer(_weights(4, 3, 3, 3), "k1"), pads=[1, 1, 1, 1], strides=[2, 2])
    scale, shift, mean = (_weights(4) for _ in range(3))
    y = b.BatchNormalization(y, scale, shift, mean, np.exp(_weights(4)), outputs=1)
    y = b.MaxPool(b.Relu(y), kernel_shape=[2, 2], outputs=1)
    y = b.Conv(y, b.initializer(_weights(4, 1, 1, 1), "k2"), group=4)
    b.output(b.Flatten(b.GlobalAveragePool(y)), "features")


def attention(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["B", "S", 8])
    q, k, v = (b.MatMul(x, b.initializer(_weights(8, 8), name)) for name in ("wq", "wk", "wv"))
    scores = b.MatMul(q, b.Transpose(k, perm=[0, 2, 1])) / float(np.sqrt(8))
    y = x + b.MatMul(b.Softmax(scores, axis=-1), v)
    y = b.LayerNormalization(y, np.ones(8, np.float32), np.zeros(8, np.float32), outputs=1)
    half = y * 0.5 * (b.Erf(y / float(np.sqrt(2))) + 1.0)
    b.output(half, "y")
    b.output(b.ReduceMean(half, np.array([1]), keepdims=0), "pooled")


def branches(b: ik.Builder) -> None:
    x, w = b.input("x", "float32", ["N", 2]), b.initializer(_weights(2, 2), "w")
    positive = b.ReduceSum(x, keepdims=0) > 0.0

    def inner(b: ik.Builder) -> Any:
        return b.If(b.Not(positive), then_branch=lambda b: b.Neg(x), else_branch=lambda b: b.MatMul(x, w))

    b.output(b.If(positive, then_branch=inner, else_branch=lambda b: b.Identity(x)), "y")


def loops(b: ik.Builder) -> None:
    x, n = b.input("x", "float32", [3]), b.input("n", "int64", [])
    step = b.constant(np.array([1, 2, 3], np.float32))

    def body(b: ik.Builder, i: Any, c: Any, s: Any) -> Any:
        grown = s + step * b.Cast(i, to=1)
        return b.ReduceMax(grown, keepdims=0) < 20.0, grown, b.ReduceSum(grown, keepdims=0)

    last, sums = b.Loop(n, True, x, body=body)
    b.output(last, "last")
    b.output(sums, "sums")


def scans(b: ik.Builder) -> None:
    x, start = b.input("x", "float32", ["T", 4]), b.input("start", "float32", [4])

    def body(b: ik.Builder, s: Any, e: Any) -> Any:
        new = b.Tanh(s + e)
        return new, new * 2

    final, trace = b.Scan(start, x, num_scan_inputs=1, body=body)
    b.output(final, "final")
    b.output(trace, "trace")


def functions(b: ik.Builder) -> ik.Module:
    return ik.load(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[N, 3] x, double[2] d) => (float[N, 3] y, double[2] e) {
            y = local.Twice<axis = 0>(x)
            e = local.Soft<axis = -1>(d)
        }
        <domain: "local", opset_import: ["" : 21]>
        Soft<axis>(a) => (b) { b = Softmax<axis: int = @axis>(a) }
        <domain: "local", opset_import: ["" : 21, "local" : 1]>
        Twice<axis>(a) => (b) {
            m = local.Soft<axis: int = @axis>(a)
            n = Neg(m)
            b = local.Soft<axis: int = @axis>(n)
        }""")
    )


def strings(b: ik.Builder) -> None:
    x, y = b.input("x", "string", ["N"]), b.input("y", "string", ["N"])
    joined = b.StringConcat(x, b.StringConcat(y, b.constant(np.array(["!é"], object), "string")))
    b.output(joined, "joined")
    b.output(b.Equal(x, y), "equal")
    b.output(b.Concat(x, joined, axis=0), "all")


def sequences(b: ik.Builder) -> None:
    x, y = b.input("x", "float32", ["N", 2]), b.input("y", "float32", ["M", 2])
    made = b.SequenceInsert(b.SequenceConstruct(x, y), b.Neg(x), 1)
    b.output(b.ConcatFromSequence(made, axis=0), "joined")
    b.output(b.SequenceAt(made, -1), "last")
    b.output(b.SequenceLength(made), "count")
    b.output(b.SequenceErase(made, 0), "rest")


def optionals(b: ik.Builder) -> None:
    o = b.input("o", OptType(tensor("float32", ["N"])))
    there = b.OptionalHasElement(o)
    b.output(there, "there")
    b.output(
        b.If(
            there,
            then_branch=lambda b: b.Neg(b.OptionalGetElement(o)),
            else_branch=lambda b: b.constant([1.0], "float32"),
        ),
        "y",
    )


def empty_tensors(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 3])
    none = b.Slice(x, np.array([0]), np.array([0]), np.array([0]))
    b.output(none, "none")
    b.output(b.Concat(none, x, none, axis=0), "same")
    b.output(b.ReduceSum(none, np.array([0]), keepdims=0), "zeros")
    b.output(b.MatMul(none, np.ones((3, 2), np.float32)), "product")
    b.output(b.Shape(none), "shape")


def shape_arithmetic(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["B", "S", 6])
    shape = b.Shape(x)
    batch, length = (b.Gather(shape, np.array([i])) for i in (0, 1))
    split = b.Reshape(x, b.Concat(batch, length, np.array([2, 3]), axis=0))
    y = b.Transpose(split, perm=[0, 2, 1, 3])
    b.output(y, "heads")
    b.output(b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), shape), "back")
    b.output(b.Expand(b.constant(2.5, "float32"), b.Concat(length, batch, axis=0)), "filled")
    b.output(b.Range(0, b.Squeeze(length * 2, np.array([0])), 1), "counted")


def quantized(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 4])
    scale, zero = np.float32(0.05), np.uint8(128)
    q = b.QuantizeLinear(x, b.constant(scale), b.constant(zero))
    w = b.initializer(_integers(-128, 128, 4, 3).astype(np.int8), "w")
    b.output(q, "q")
    b.output(b.DequantizeLinear(q, b.constant(scale), b.constant(zero)), "near")
    b.output(b.MatMulInteger(q, w, b.constant(zero)), "sums")
    small = b.initializer(_integers(-8, 8, 4, 3), "w4", "int4")
    per_column = b.constant(np.array([0.1, 0.2, 0.3], np.float32))
    # No MatMul, whose fusion with the weights has onnxruntime round the activations to 8 bits.
    b.output(b.DequantizeLinear(small, per_column, axis=1) * b.ReduceMax(x, keepdims=0), "y")


def every_dtype(b: ik.Builder) -> None:
    names = "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    inputs = {name: b.input(name, name, ["N"]) for name in names}
    total = inputs["float64"]
    for name, value in inputs.items():
        b.output(b.Identity(value), f"{name}_same")
        total = total + b.Cast(value, to=11)
    b.output(total, "total")


def carried_dtypes(b: ik.Builder) -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        x = b.input(name, name, ["N"])
        wide = b.Cast(x, to=1)
        b.output(wide, f"{name}_wide")
        b.output(b.CastLike(wide * 1.0, x), f"{name}_back")


def recurrent(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["T", "B", 3])
    w, r = b.initializer(_weights(1, 16, 3), "w"), b.initializer(_weights(1, 16, 4), "r")
    y, h, c = b.LSTM(x, w, r, hidden_size=4, outputs=3)
    for value, name in ((y, "y"), (h, "h"), (c, "c")):
        b.output(value, name)


def indexing(b: ik.Builder) -> None:
    x, i = b.input("x", "float32", ["N", 5]), b.input("i", "int64", ["K"])
    b.output(b.Gather(x, i, axis=1), "picked")
    b.output(b.ScatterND(x, np.array([[0, 1]]), np.array([9], np.float32)), "written")
    values, where = b.TopK(x, np.array([2]))
    b.output(values, "top")
    b.output(where, "top_at")
    b.output(b.OneHot(i, 5, np.array([0, 1], np.float32)), "hot")
    b.output(b.CumSum(x, 1, exclusive=1), "running")
    b.output(b.NonZero(x > 0.0), "positive")
    b.output(b.Where(x > 0.0, x, 0.0), "kept")


def classical(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 3])
    scaled = b.op("onnx.ml.Scaler", x, offset=[0.5, 0.0, -0.5], scale=[1.0, 2.0, 4.0])
    label, scores = b.op(
        "onnx.ml.LinearClassifier",
        scaled,
        classlabels_ints=[3, 5],
        coefficients=[0.5, 1.0, -1.0, -0.5, -1.0, 1.0],
        intercepts=[0.1, -0.1],
        post_transform="SOFTMAX",
    )
    b.output(label, "label")
    b.output(scores, "scores")


def passthroughs(b: ik.Builder) -> None:
    """Outputs that are inputs, constants or one another; an input that nobody uses; dead and double nodes."""
    x = b.input("x", "float32", ["N"])
    b.input("unused", "int64", [2])
    b.Exp(x)
    y, again = b.Neg(x, name="neg"), b.Neg(x, name="again")
    b.output(x, "input")
    b.output(y, "y")
    b.output(y, "y_too")
    b.output(again, "double")
    b.output(b.Identity(b.Identity(y)), "far")
    b.output(b.initializer(np.array([1, 2], np.float32), "w"), "constant")


def defaults(b: ik.Builder) -> ik.Module:
    return ik.load(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {3}> { t = Mul(x, w) y = Add(t, w) }""")
    )


def integers(b: ik.Builder) -> None:
    x, y = b.input("x", "int32", ["N"]), b.input("y", "int32", ["N"])
    u = b.input("u", "uint8", ["N"])
    b.output(b.Div(x, y), "truncated")
    b.output(b.Mod(x, y), "modulo")
    b.output(b.Mod(x, y, fmod=1), "remainder")
    b.output(b.Mul(u, u), "wrapped")
    b.output(b.BitShift(u, b.constant(np.array(1, np.uint8)), direction="LEFT"), "shifted")
    b.output(b.BitwiseXor(x, y), "xor")
    b.output(b.Max(x, y, b.constant(np.array(0, np.int32))), "largest")


def random_numbers(b: ik.Builder) -> None:
    x = b.input("x", "float32", ["N", 4])
    first, second, dropped = b.RandomNormalLike(x), b.RandomNormalLike(x), b.Dropout(x, 0.5, True, outputs=1)
    # What is drawn depends on the names, which a file gives to values that have none.
    for value, name in ((first, "first"), (second, "second"), (dropped, "dropped")):
        set_out_names(value.ssa.owner, [name])
    b.output(first - second, "difference")
    b.output(dropped, "dropped")
    b.output(b.Dropout(x, 0.5, outputs=1), "kept")


def complex_numbers(b: ik.Builder) -> None:
    x = b.input("x", "complex64", ["N"])
    b.output(b.Concat(x, x, axis=0), "both")
    b.output(b.Reshape(b.Transpose(x), np.array([1, -1])), "row")


GRAPHS: dict[str, Callable[[ik.Builder], ik.Module | None]] = {
    function.__name__: function
    for function in (
        *(mlp, convolutions, attention, branches, loops, scans, functions, strings, sequences, optionals),
        *(empty_tensors, shape_arithmetic, quantized, every_dtype, carried_dtypes, recurrent, indexing, classical),
        *(passthroughs, defaults, integers, random_numbers, complex_numbers),
    )
}

NUMPY_ONLY = {"complex_numbers": "onnxruntime has no complex dtypes", "random_numbers": "its numbers are its own"}


def make(name: str) -> ik.Module:
    """The graph of this name as a module."""
    builder = ik.Builder(name, opsets={"": 21, "ai.onnx.ml": 3})
    return GRAPHS[name](builder) or builder.module()
