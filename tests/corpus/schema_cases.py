"""One small, valid call of every operator, by the version from which its form holds.

``CASES[op]`` maps a schema version to a ``Case``; a schema uses the case of the highest version not above its own.

Inputs are written as text, arrays or ``None``:

* ``"f32[2,3]"`` is a graph input. A suffix says what its feeds may be: ``<n`` integers or floats in [0, n),
  ``+`` floats in [0.5, 2), ``|`` floats in (-0.9, 0.9), ``^`` floats in [1, 3), ``~`` ascending along the last
  axis, ``*`` floats of scale 30, ``!`` NaN and infinities among others. ``seq(...)``, ``opt(...)`` and
  ``map(key,value)`` wrap a type.
* an array is an initializer;
* ``None`` is an omitted optional input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

__all__ = ["CASES", "Case", "Input"]

Input = str | np.ndarray | None
F32, F64, I32, I64, BOOL = (getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "INT32", "INT64", "BOOL"))


@dataclass(frozen=True)
class Case:
    """One call: its inputs, number of outputs, attributes, and what inference cannot tell.

    ``outputs`` counts the outputs that are written, ``types`` gives output types that shape inference leaves open,
    ``helpers`` are nodes that stand before the call, ``captures`` are graph inputs that only subgraphs
    use (named ``c0``, ``c1``...), and ``opset`` is the lowest opset of the default domain that it needs.
    """

    inputs: Sequence[Input] = ()
    outputs: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    types: Sequence[str] = ()
    helpers: Sequence[NodeProto] = ()
    captures: Sequence[str] = ()
    opset: int = 0


def case(
    *inputs: Input, outs: int | None = None, types: Sequence[str] = (), captures: Sequence[str] = (), **attributes: Any
) -> Case:
    return Case(inputs, outs, attributes, types, captures=captures)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def scalar(value: float, dtype: type = np.int64) -> np.ndarray:
    return np.array(value, dtype)


def tensor(values: Any, dtype: type) -> TensorProto:
    array = np.array(values, dtype)
    return helper.make_tensor("", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ravel().tolist())


def value(name: str, shape: Sequence[int | str] | None, dtype: int = F32) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(name: str, nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def png() -> list[int]:
    """A 2x2 greyscale bitmap file, as bytes (BMP needs no compression code)."""
    pixels = b"\x00\x40\x00\x00\x80\xff\x00\x00"
    palette = b"".join(bytes((v, v, v, 0)) for v in range(256))
    offset = 14 + 40 + len(palette)
    stream = BytesIO()
    stream.write(b"BM" + (offset + len(pixels)).to_bytes(4, "little") + bytes(4) + offset.to_bytes(4, "little"))
    for number, size in (
        (40, 4),
        (2, 4),
        (2, 4),
        (1, 2),
        (8, 2),
        (0, 4),
        (len(pixels), 4),
        (0, 4),
        (0, 4),
        (256, 4),
        (0, 4),
    ):
        stream.write(number.to_bytes(size, "little"))
    stream.write(palette + pixels)
    return list(stream.getvalue())


# Subgraph bodies.

_THEN = graph("then", [node("Add", "c0 c0", "then_y")], [], [value("then_y", (2, 3))])
_ELSE = graph("else", [node("Neg", "c0", "else_y")], [], [value("else_y", (2, 3))])
_LOOP = graph(
    "loop_body",
    [
        node("Identity", "going", "go_on"),
        node("Add", "carried c0", "carried_out"),
        node("Neg", "carried_out", "scanned"),
    ],
    [value("iteration", (), I64), value("going", (), BOOL), value("carried", (2, 3))],
    [value("go_on", (), BOOL), value("carried_out", (2, 3)), value("scanned", (2, 3))],
)
_SCAN = graph(
    "scan_body",
    [node("Add", "state item", "state_out"), node("Neg", "state_out", "item_out")],
    [value("state", (3,)), value("item", (3,))],
    [value("state_out", (3,)), value("item_out", (3,))],
)
_MAP = graph(
    "map_body",
    [node("Mul", "item other", "item_out")],
    [value("item", (2, 3)), value("other", (2, 3))],
    [value("item_out", (2, 3))],
)
_SCORE = graph(
    "score_mod",
    [node("Tanh", "scores", "scores_out")],
    [value("scores", (1, 2, 4, 5))],
    [value("scores_out", (1, 2, 4, 5))],
)
_PROB = graph(
    "prob_mod",
    [node("Mul", "probs probs", "probs_out")],
    [value("probs", (1, 2, 4, 5))],
    [value("probs_out", (1, 2, 4, 5))],
)

X = "f32[2,3]"
IMAGE = "f32[2,4,6,6]"
_legacy_broadcast = {"broadcast": 1, "axis": 1}
_KERNEL: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}
_TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [0, 0, 0, 2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.25, 0.0, 0.0, -0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
}
_TREE_CLASSES: dict[str, Any] = _TREE | {
    "class_treeids": [0, 0, 1, 1],
    "class_nodeids": [1, 2, 1, 2],
    "class_ids": [0, 1, 1, 2],
    "class_weights": [1.0, 0.5, 0.75, 2.0],
    "classlabels_int64s": [10, 20, 30],
}
_TREE_TARGETS: dict[str, Any] = _TREE | {
    "target_treeids": [0, 0, 1, 1],
    "target_nodeids": [1, 2, 1, 2],
    "target_ids": [0, 1, 1, 0],
    "target_weights": [1.0, 0.5, 0.75, 2.0],
    "n_targets": 2,
}
_SVM: dict[str, Any] = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}


def same(text: str, ops: str, **attributes: Any) -> dict[str, dict[int, Case]]:
    return {op: {1: case(text, **attributes)} for op in ops.split()}


def each(ops: str, cases: Mapping[int, Case]) -> dict[str, dict[int, Case]]:
    return {op: dict(cases) for op in ops.split()}


def rnn(gates: int, outputs: int, old_output_sequence: bool) -> dict[int, Case]:
    inputs: list[Input] = ["f32[5,2,3]", f"f32[1,{4 * gates},3]", f"f32[1,{4 * gates},4]", f"f32[1,{8 * gates}]"]
    old = {"output_sequence": 1} if old_output_sequence else {}
    lengths = np.array([5, 3], np.int32)
    return {
        1: case(*inputs, outs=outputs, hidden_size=4, **old),
        7: case(*inputs, lengths, "f32[1,2,4]", outs=outputs, hidden_size=4),
        22: case(*inputs, outs=outputs, hidden_size=4, clip=2.0),
    }


_QUANTIZED: list[Input] = ["u8[2,3]", scalar(0.02, np.float32), scalar(7, np.uint8)]
_RESIZE: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
_ATTENTION: list[Input] = ["f32[2,4,3,8]", "f32[2,2,5,8]", "f32[2,2,5,6]"]

CASES: dict[str, dict[int, Case]] = {
    # Elementwise
    **same(X, "Abs Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Mish Neg Relu Round Selu"),
    **same(X, "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh Atan Asinh Celu Gelu ThresholdedRelu Swish"),
    **same("f32[2,3]|", "Acos Asin Atanh"),
    **same("f32[2,3]^", "Acosh"),
    **same("f32[2,3]+", "Log Sqrt Reciprocal"),
    **same("b[2,3]", "Not"),
    **same("u8[2,3]", "BitwiseNot"),
    **each("BitwiseAnd BitwiseOr BitwiseXor", {18: case("i32[2,3]", "i32[3]")}),
    **each(
        "Add Sub Mul Div", {1: case("f32[2,3,4]", "f32[3]+", **_legacy_broadcast), 7: case("f32[2,3,4]", "f32[3,1]+")}
    ),
    **each("And Or Xor", {1: case("b[2,3,4]", "b[3]", **_legacy_broadcast), 7: case("b[2,3,4]", "b[3,1]")}),
    **each("Greater Less", {1: case("f32[2,3,4]", "f32[3]", **_legacy_broadcast), 7: case("f32[2,3,4]", "f32[3,1]")}),
    **each("GreaterOrEqual LessOrEqual", {12: case("f32[2,3,4]", "f32[3,1]")}),
    **each("Max Mean Min Sum", {1: case(X, X, X), 8: case(X, "f32[3]", "f32[2,1]")}),
    **each("Softmax LogSoftmax Hardmax", {1: case("f32[2,3,4]", axis=1), 13: case("f32[2,3,4]", axis=1)}),
    "BitCast": {26: case(X, to=I32)},
    "BitShift": {
        11: case("u8[2,3]", "u8[2,3]<5", direction="LEFT"),
        28: case("i32[2,3]", "i32[3]<5", direction="RIGHT"),
    },
    "Cast": {
        1: case("f32[2,3]*", to="INT32", types=("i32[2,3]",)),
        6: case("f32[2,3]*", to=I32),
        19: case(X, to=TensorProto.FLOAT16),
    },
    "CastLike": {15: case("f32[2,3]*", "i32[1]")},
    "Clip": {1: case(X, min=-0.5, max=0.75), 11: case(X, scalar(-0.5, np.float32), scalar(0.75, np.float32))},
    "Equal": {1: case("i32[2,3,4]<3", "i32[3]<3", **_legacy_broadcast), 7: case("i32[2,3,4]<3", "i32[3,1]<3")},
    "IsNaN": {9: case("f32[4,5]!")},
    "IsInf": {10: case("f32[4,5]!", detect_negative=0)},
    "Mod": {10: case("i32[2,3]", "i32[3]^"), 28: case(X, "f32[3]+", fmod=1)},
    "PRelu": {1: case("f32[2,3,4]", "f32[3]"), 7: case("f32[2,3,4]", "f32[3,1]")},
    "Pow": {1: case("f32[2,3,4]+", "f32[3]", **_legacy_broadcast), 7: case("f32[2,3,4]+", "f32[3,1]")},
    "SwiGLU": {28: case(X, X, alpha=1.5)},
    "Where": {9: case("b[2,1]", X, "f32[3]")},
    "CumSum": {11: case("f32[2,3,4]", scalar(1), exclusive=1)},
    "CumProd": {26: case("f32[2,3,4]", scalar(1), reverse=1)},
    "Einsum": {12: case("f32[2,3,4]", "f32[2,4,5]", equation="bij,bjk->bik")},
    # Reductions
    **each(
        "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare",
        {1: case("f32[2,3,4]", axes=[1], keepdims=0), 18: case("f32[2,3,4]", i64(-2), keepdims=0)},
    ),
    **each("ReduceLogSum ReduceLogSumExp", {1: case("f32[2,3,4]+", axes=[0, 2]), 18: case("f32[2,3,4]+", i64(0, 2))}),
    "ReduceSum": {1: case("f32[2,3,4]", axes=[1], keepdims=0), 13: case("f32[2,3,4]", i64(-2), keepdims=0)},
    **each("ArgMax ArgMin", {1: case("f32[2,3,4]", axis=1), 12: case("f32[2,3,4]", axis=1, select_last_index=1)}),
    "TopK": {1: case("f32[2,6]", k=3, outs=2), 10: case("f32[2,6]", i64(3), outs=2)},
    "Unique": {11: case("f32[8]<3", outs=4)},
    "NonZero": {9: case("i32[2,3]<2")},
    # Data movement
    "CenterCropPad": {18: case("f32[5,6]", i64(3, 8))},
    "Col2Im": {18: case("f32[1,12,4]", i64(4, 4), i64(2, 2), strides=[2, 2])},
    "Compress": {9: case("f32[4,3]", np.array([True, False, True]), axis=0, types=("f32[2,3]",))},
    "Concat": {1: case(X, "f32[2,4]", axis=1, types=("f32[2,7]",))},
    "ConcatFromSequence": {11: case("seq(f32[2,3])", axis=0)},
    "DepthToSpace": {1: case("f32[1,8,2,3]", blocksize=2), 11: case("f32[1,8,2,3]", blocksize=2, mode="CRD")},
    "SpaceToDepth": {1: case("f32[1,2,4,6]", blocksize=2)},
    "Expand": {8: case("f32[3,1]", i64(2, 3, 4))},
    "EyeLike": {9: case("f32[3,4]", k=1)},
    "Flatten": {1: case("f32[2,3,4]", axis=2)},
    "Gather": {1: case("f32[5,3]", "i64[2,2]<5")},
    "GatherElements": {11: case("f32[3,4]", "i64[2,4]<3")},
    "GatherND": {11: case("f32[3,4,2]", "i64[5,2]<3"), 12: case("f32[2,3,4]", "i64[2,1]<3", batch_dims=1)},
    "Pad": {
        1: case(X, paddings=[0, 1, 2, 0], value=1.5),
        2: case(X, pads=[0, 1, 2, 0], value=1.5),
        11: case(X, i64(0, 1, 2, 0), scalar(1.5, np.float32)),
        18: case(X, i64(1, 2), scalar(1.5, np.float32), i64(-1)),
        19: case(X, i64(1, 2), None, i64(1), mode="wrap"),
    },
    "Range": {
        11: case(scalar(2), scalar(11), scalar(3)),
        27: case(scalar(2.0, np.float32), scalar(4.0, np.float32), scalar(0.5, np.float32)),
    },
    "Reshape": {
        1: case(X, shape=[3, -1], types=("f32[3,2]",)),
        5: case(X, i64(3, -1)),
        14: case("f32[2,0,3]", i64(0, 6), allowzero=1),
    },
    "Resize": {
        10: case("f32[1,2,3,4]", f32(1, 1, 2, 1.5)),
        11: case("f32[1,2,3,4]", f32(), f32(1, 1, 2, 1.5), **_RESIZE),
        13: case("f32[1,2,3,4]", None, None, i64(1, 2, 6, 6), **_RESIZE),
        18: case("f32[1,2,3,4]", None, None, i64(6, 6), axes=[2, 3], **_RESIZE),
    },
    "ReverseSequence": {10: case("f32[4,3]", i64(2, 4, 1))},
    **each("Scatter ScatterElements", {9: case("f32[3,4]", np.array([[0, 2, 1, 0]]), "f32[1,4]", axis=0)}),
    "ScatterND": {11: case("f32[4,3]", i64(2, 0).reshape(2, 1), "f32[2,3]")},
    "Shape": {1: case("f32[2,3,4]"), 15: case("f32[2,3,4]", start=1, end=-1)},
    "Size": {1: case("f32[2,3,4]")},
    "Slice": {
        1: case("f32[4,5]", starts=[1, -3], ends=[3, 5], axes=[0, 1]),
        10: case("f32[4,5]", i64(3), i64(0), i64(0), i64(-2)),
    },
    "Split": {
        1: case("f32[6,2]", f32(2, 4), outs=2, axis=0, types=("f32[2,2]", "f32[4,2]")),
        2: case("f32[6,2]", outs=2, split=[2, 4], axis=0),
        13: case("f32[6,2]", i64(2, 4), outs=2, axis=0),
        18: case("f32[6,2]", outs=4, num_outputs=4),
    },
    "SplitToSequence": {11: case("f32[6,2]", i64(2, 4), axis=0)},
    "Squeeze": {1: case("f32[1,3,1]", axes=[0]), 13: case("f32[1,3,1]", i64(0))},
    "Unsqueeze": {1: case(X, axes=[0, 2]), 13: case(X, i64(0, -1))},
    "TensorScatter": {24: case("f32[2,1,6,4]", "f32[2,1,2,4]", i64(1, 3))},
    "Tile": {1: case(X, scalar(3, np.float32), scalar(1, np.float32), types=("f32[2,9]",)), 6: case(X, i64(2, 3))},
    "Transpose": {1: case("f32[2,3,4]", perm=[2, 0, 1])},
    "Trilu": {14: case("f32[3,4]", scalar(1), upper=0)},
    "Upsample": {
        1: case("f32[1,2,3,4]", height_scale=2.0, width_scale=1.5, types=("f32[1,2,6,6]",)),
        7: case("f32[1,2,3,4]", scales=[1.0, 1.0, 2.0, 1.5]),
        9: case("f32[1,2,3,4]", f32(1, 1, 2, 1.5)),
    },
    "OneHot": {9: case("i64[2,3]<4", scalar(4), f32(-1, 2), axis=1)},
    # Constants and random values
    "Constant": {
        1: case(value=tensor([1.5, -2.0], np.float32)),
        12: case(value_floats=[1.5, -2.0]),
        24: case(value_int=7),
    },
    "ConstantOfShape": {9: case(i64(2, 3), value=tensor([4], np.int32))},
    "RandomNormal": {1: case(shape=[2, 3], mean=1.0, seed=3.0)},
    "RandomUniform": {1: case(shape=[2, 3], low=-1.0, seed=3.0)},
    **same(X, "RandomNormalLike RandomUniformLike", seed=3.0),
    "Bernoulli": {15: case("f32[2,3]<1", seed=3.0)},
    "Multinomial": {7: case(X, sample_size=4, seed=3.0)},
    # Matrices and convolutions
    "MatMul": {1: case("f32[2,3,4]", "f32[4,5]")},
    "Gemm": {
        1: case("f32[3,2]", "f32[3,4]", "f32[4]", transA=1, alpha=0.5, broadcast=1),
        7: case("f32[3,2]", "f32[3,4]", "f32[4]", transA=1, alpha=0.5),
        11: case("f32[2,3]", "f32[4,3]", transB=1),
    },
    "Conv": {1: case(IMAGE, "f32[6,2,2,3]", "f32[6]", group=2, **_KERNEL)},
    "ConvTranspose": {1: case(IMAGE, "f32[4,3,2,3]", "f32[3]", strides=[2, 1], pads=[0, 1, 0, 1])},
    "DeformConv": {19: case("f32[1,2,4,4]", "f32[3,2,2,2]", "f32[1,8,3,3]|", "f32[3]", "f32[1,4,3,3]+")},
    "CausalConvWithState": {27: case("f32[2,3,5]", "f32[3,1,4]", "f32[3]", "f32[2,3,3]", outs=2, activation="silu")},
    "ConvInteger": {10: case("u8[1,2,4,4]", "u8[3,2,2,2]", scalar(3, np.uint8))},
    "MatMulInteger": {10: case("u8[2,3]", "i8[3,4]", scalar(3, np.uint8))},
    "QLinearConv": {
        10: case(
            "u8[1,2,4,4]",
            scalar(0.02, np.float32),
            scalar(5, np.uint8),
            "u8[3,2,2,2]",
            scalar(0.03, np.float32),
            scalar(9, np.uint8),
            scalar(0.5, np.float32),
            scalar(11, np.uint8),
        )
    },
    "QLinearMatMul": {
        10: case(
            *_QUANTIZED,
            "u8[3,4]",
            scalar(0.03, np.float32),
            scalar(9, np.uint8),
            scalar(0.01, np.float32),
            scalar(99, np.uint8),
        )
    },
    "DequantizeLinear": {
        10: case(*_QUANTIZED),
        13: case("i8[2,3]", f32(0.1, 0.2, 0.3), axis=1),
        21: case("i8[2,4]", "f32[2,2]+", None, axis=1, block_size=2),
    },
    "QuantizeLinear": {
        10: case(X, scalar(0.02, np.float32), scalar(7, np.uint8)),
        13: case(X, f32(0.1, 0.2, 0.3), np.array([1, 2, 3], np.int8), axis=1),
        21: case("f32[2,4]", "f32[2,2]+", None, axis=1, block_size=2, output_dtype=TensorProto.INT8),
    },
    "DynamicQuantizeLinear": {11: case(X, outs=3)},
    "Det": {11: case("f32[2,3,3]")},
    # Pooling
    "AveragePool": {1: case(IMAGE, **_KERNEL), 7: case(IMAGE, count_include_pad=1, **_KERNEL)},
    "MaxPool": {1: case(IMAGE, **_KERNEL), 8: case(IMAGE, outs=2, **_KERNEL)},
    "LpPool": {1: case(IMAGE, p=2.0, **_KERNEL), 2: case(IMAGE, p=2, **_KERNEL)},
    **same(IMAGE, "GlobalAveragePool GlobalMaxPool"),
    "GlobalLpPool": {1: case(IMAGE, p=2.0), 2: case(IMAGE, p=2)},
    "MaxRoiPool": {1: case(IMAGE, f32(0, 0, 0, 3, 3, 1, 1, 2, 5, 4).reshape(2, 5), pooled_shape=[2, 2])},
    "RoiAlign": {
        10: case(IMAGE, f32(0, 0, 3, 3, 1, 2, 5, 4).reshape(2, 4), i64(0, 1), output_height=2, output_width=2)
    },
    "MaxUnpool": {9: case("f32[1,1,2,2]", i64(0, 3, 9, 14).reshape(1, 1, 2, 2), kernel_shape=[2, 2], strides=[2, 2])},
    # Normalization, activation of whole tensors, losses
    "BatchNormalization": {
        1: case(
            IMAGE,
            "f32[4]",
            "f32[4]",
            "f32[4]",
            "f32[4]+",
            outs=5,
            consumed_inputs=[0, 0, 0, 1, 1],
            types=(IMAGE,) + ("f32[4]",) * 4,
        ),
        6: case(IMAGE, "f32[4]", "f32[4]", "f32[4]", "f32[4]+", is_test=1),
        7: case(IMAGE, "f32[4]", "f32[4]", "f32[4]", "f32[4]+", epsilon=1e-3),
        14: case(IMAGE, "f32[4]", "f32[4]", "f32[4]", "f32[4]+", outs=3, training_mode=1),
        15: case(IMAGE, "f32[4]", "f32[4]", "f32[4]", "f32[4]+"),
    },
    "InstanceNormalization": {1: case(IMAGE, "f32[4]", "f32[4]", epsilon=1e-3)},
    "GroupNormalization": {
        18: case(IMAGE, "f32[2]", "f32[2]", num_groups=2),
        21: case(IMAGE, "f32[4]", "f32[4]", num_groups=2),
    },
    "LayerNormalization": {17: case("f32[2,3,4]", "f32[4]", "f32[4]", outs=3)},
    "RMSNormalization": {23: case("f32[2,3,4]", "f32[4]")},
    "LpNormalization": {1: case(X, axis=1, p=1)},
    "LRN": {1: case(IMAGE, size=3)},
    "MeanVarianceNormalization": {9: case(IMAGE, axes=[0, 2, 3])},
    "Dropout": {
        1: case(X, outs=2, is_test=1, ratio=0.25),
        7: case(X, outs=2, ratio=0.25),
        12: case(X, scalar(0.25, np.float32), scalar(0, np.bool_), outs=2, seed=3),
    },
    "NegativeLogLikelihoodLoss": {12: case("f32[2,4,3]", "i64[2,3]<4", "f32[4]+", reduction="sum")},
    "SoftmaxCrossEntropyLoss": {12: case("f32[2,4,3]", "i64[2,3]<4", "f32[4]+", outs=2)},
    # Recurrent networks and attention
    "RNN": rnn(1, 2, True),
    "GRU": rnn(3, 2, True),
    "LSTM": rnn(4, 3, True),
    "Attention": {
        23: case(*_ATTENTION, "f32[3,5]", is_causal=1),
        24: case(*_ATTENTION, softcap=2.0),
        25: case(*_ATTENTION, left_window_size=1),
    },
    "LinearAttention": {
        27: case(
            "f32[2,4,12]",
            "f32[2,4,6]",
            "f32[2,4,10]",
            None,
            "f32[2,4,2]",
            "f32[2,4,2]",
            outs=2,
            q_num_heads=4,
            kv_num_heads=2,
        )
    },
    "RotaryEmbedding": {23: case("f32[2,4,3,8]", "f32[50,4]", "f32[50,4]", "i64[2,3]<50")},
    "FlexAttention": {
        1: Case(
            ("f32[1,2,4,8]", "f32[1,2,5,8]", "f32[1,2,5,8]"),
            attributes={"score_mod": _SCORE, "prob_mod": _PROB},
            opset=26,
        )
    },
    # Images and signals
    "AffineGrid": {20: case("f32[2,2,3]", i64(2, 1, 4, 5))},
    "GridSample": {16: case("f32[1,2,4,4]", "f32[1,3,3,2]|"), 20: case("f32[1,2,4,4]", "f32[1,3,3,2]|", mode="cubic")},
    "ImageDecoder": {20: case(np.array(png(), np.uint8), pixel_format="Grayscale")},
    "NonMaxSuppression": {10: case("f32[1,6,4]~", "f32[1,2,6]", i64(2), f32(0.5), f32(0.1), types=("i64[?,3]",))},
    **each("BlackmanWindow HammingWindow HannWindow", {17: case(scalar(10), periodic=0)}),
    "MelWeightMatrix": {
        17: case(scalar(8), scalar(16), scalar(8192), scalar(0.0, np.float32), scalar(4096.0, np.float32))
    },
    "DFT": {17: case("f32[1,8,1]", axis=1, onesided=1), 20: case("f32[1,8,2]", scalar(8), scalar(1), inverse=1)},
    "STFT": {17: case("f32[1,32,1]", scalar(8), "f32[16]+", onesided=1)},
    # Strings
    "RegexFullMatch": {20: case("s[2,3]", pattern="[a-z]+")},
    "StringConcat": {20: case("s[2,3]", "s[3]")},
    "StringNormalizer": {10: case("s[4]", case_change_action="UPPER", is_case_sensitive=1, stopwords=["zz"])},
    "StringSplit": {20: case("s[2]", outs=2, delimiter="a", types=("s[2,?]", "i64[2]"))},
    "TfIdfVectorizer": {
        9: case(
            "i32[2,6]<5",
            mode="TF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=1,
            ngram_counts=[0, 3],
            ngram_indexes=[0, 1, 2, 3, 4],
            pool_int64s=[1, 2, 3, 1, 2, 3, 4],
        )
    },
    # Sequences, optionals, control flow
    "SequenceAt": {11: case("seq(f32[2,3])", scalar(1))},
    "SequenceConstruct": {11: case(X, X)},
    "SequenceEmpty": {11: case(dtype=F32, types=("seq(f32)",))},
    "SequenceErase": {11: case("seq(f32[2,3])", scalar(0))},
    "SequenceInsert": {11: case("seq(f32[2,3])", X, scalar(1))},
    "SequenceLength": {11: case("seq(f32[2,3])")},
    "SequenceMap": {17: case("seq(f32[2,3])", X, body=_MAP, types=("seq(f32[2,3])",))},
    "Optional": {15: case(X)},
    **each("OptionalGetElement OptionalHasElement", {15: case("opt(f32[2,3])")}),
    "If": {1: case("b[]", then_branch=_THEN, else_branch=_ELSE, captures=(X,), types=(X,))},
    "Loop": {1: case(scalar(3), scalar(1, np.bool_), X, body=_LOOP, outs=2, captures=(X,), types=(X, "f32[3,2,3]"))},
    "Scan": {
        8: case(None, "f32[2,3]", "f32[2,5,3]", body=_SCAN, num_scan_inputs=1, outs=2),
        9: case("f32[3]", "f32[5,3]", body=_SCAN, num_scan_inputs=1, outs=2, scan_input_directions=[1]),
    },
    # ai.onnx.ml
    "ArrayFeatureExtractor": {1: case("f32[3,4]", i64(2, 0).reshape(1, 2), types=("f32[3,2]",))},
    "Binarizer": {1: case(X, threshold=0.25)},
    "CastMap": {1: case("map(i64,f32)", cast_to="TO_FLOAT", map_form="DENSE", types=("f32[1,3]",))},
    "CategoryMapper": {
        1: case("s[2,3]", cats_strings=["a", "bc"], cats_int64s=[5, 6], default_int64=-1, types=("i64[2,3]",))
    },
    "DictVectorizer": {1: case("map(i64,f32)", int64_vocabulary=[2, 0, 1], types=("f32[1,3]",))},
    "FeatureVectorizer": {1: case("f32[2,3]", "f32[2,2]", inputdimensions=[3, 2], types=("f32[2,5]",))},
    "Imputer": {1: case(X, imputed_value_floats=[0.5], replaced_value_float=0.0, types=(X,))},
    "LabelEncoder": {
        1: case("s[2,3]", classes_strings=["a", "bc"], default_int64=-1, types=("i64[2,3]",)),
        2: case("s[2,3]", keys_strings=["a", "bc"], values_int64s=[5, 6], default_int64=-1, types=("i64[2,3]",)),
        4: case(
            "i64[2,3]<3",
            keys_tensor=tensor([0, 1], np.int64),
            values_tensor=tensor([0.5, 1.5], np.float32),
            default_tensor=tensor([-1], np.float32),
            types=(X,),
        ),
    },
    "LinearClassifier": {
        1: case(
            X,
            coefficients=[1.0, -1.0, 0.5, 0.25, 2.0, -0.5],
            intercepts=[0.1, -0.1],
            classlabels_ints=[3, 7],
            outs=2,
            types=("i64[2]", "f32[2,2]"),
        )
    },
    "LinearRegressor": {1: case(X, coefficients=[1.0, -1.0, 0.5], intercepts=[0.1], targets=1, types=("f32[2,1]",))},
    "Normalizer": {1: case(X, norm="L2", types=(X,))},
    "OneHotEncoder": {1: case("i64[2,3]<4", cats_int64s=[0, 1, 2], zeros=1, types=("f32[2,3,3]",))},
    "SVMClassifier": {
        1: case(
            X,
            **_SVM,
            classlabels_ints=[3, 7],
            vectors_per_class=[1, 1],
            support_vectors=[1.0, 0.5, -0.5, -1.0, 0.25, 2.0],
            coefficients=[1.0, -1.0],
            rho=[0.1],
            outs=2,
            types=("i64[2]", "f32[2,2]"),
        )
    },
    "SVMRegressor": {
        1: case(
            X,
            **_SVM,
            n_supports=2,
            support_vectors=[1.0, 0.5, -0.5, -1.0, 0.25, 2.0],
            coefficients=[1.0, -1.0],
            rho=[0.1],
            types=("f32[2,1]",),
        )
    },
    "Scaler": {1: case(X, offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 1.0], types=(X,))},
    "TreeEnsemble": {
        5: case(
            X,
            n_targets=2,
            tree_roots=[0, 1],
            nodes_featureids=[0, 2],
            nodes_modes=tensor([0, 1], np.uint8),
            nodes_splits=tensor([0.25, -0.5], np.float32),
            nodes_truenodeids=[0, 2],
            nodes_trueleafs=[1, 1],
            nodes_falsenodeids=[1, 3],
            nodes_falseleafs=[1, 1],
            leaf_targetids=[0, 1, 1, 0],
            leaf_weights=tensor([1.0, 0.5, 0.75, 2.0], np.float32),
            types=("f32[2,2]",),
        )
    },
    "TreeEnsembleClassifier": {1: case("f32[7,3]", **_TREE_CLASSES, outs=2, types=("i64[7]", "f32[7,3]"))},
    "TreeEnsembleRegressor": {1: case("f32[7,3]", **_TREE_TARGETS, types=("f32[7,2]",))},
    "ZipMap": {1: case(X, classlabels_int64s=[3, 5, 7], types=("seq(map(i64,f32))",))},
    # ai.onnx.preview.training
    "Adagrad": {1: case(scalar(0.1, np.float32), scalar(2), X, X, "f32[2,3]+", outs=2, epsilon=1e-5)},
    "Adam": {1: case(scalar(0.1, np.float32), scalar(2), X, X, X, "f32[2,3]+", outs=3)},
    "Momentum": {
        1: case(
            scalar(0.1, np.float32),
            scalar(2),
            X,
            X,
            X,
            outs=2,
            alpha=0.9,
            beta=1.0,
            mode="nesterov",
            norm_coefficient=1e-3,
        )
    },
    "Gradient": {1: Case((X, X), 2, {"xs": ["x0", "x1"], "y": "product"}, (X, X), (node("Mul", "x0 x1", "product"),))},
}
