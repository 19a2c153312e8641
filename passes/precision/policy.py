"""Which ops keep their precision by default, and why: the tables to look at, or to add to, when a conversion is wrong.

What an op's schema does not take in half precision is not listed here: that is read from the schema.
"""

from __future__ import annotations

from collections.abc import Callable

from irkit.dialects.onnx import OnnxOp
from irkit.dialects.onnx.traits import ELEMENTWISE

__all__ = [
    "BLOCKED",
    "BOUNDED",
    "DIVISORS",
    "DTYPE_ATTRIBUTES",
    "FOLLOWERS",
    "KEPT_OPERANDS",
    "OF_INTEGERS",
    "OPEN_BOUNDS",
    "SOFTMAX_PRECISION",
    "blocked",
]

_EXPONENTIAL = "it grows like exp, which passes the range of float16 at 11.1"
_STEEP = "its slope has no bound, so that it enlarges the rounding of its operand"
_SUM = "it adds up many terms: the sum leaves the range, or terms are lost beside it"
_PLACE = "it computes places, and a half tells places from each other only up to 2048"
_DRAW = "it draws random numbers, which rounding moves to the ends of their range"
_SIGNAL = "it sums over a whole signal, or makes the angles for that"


def _table(**reasons: str) -> dict[str, str]:
    return {op_type: _REASONS[reason] for reason, listed in reasons.items() for op_type in listed.split()}


_REASONS = {
    "exponential": _EXPONENTIAL,
    "steep": _STEEP,
    "sum": _SUM,
    "place": _PLACE,
    "draw": _DRAW,
    "signal": _SIGNAL,
    "power": "squares leave the range of float16 at 256",
    "bits": "it looks at bits",
    "remainder": "the remainder of a rounded number is another number",
    "codes": "its scales were chosen for what comes in float32: a number at the border of two codes gets the other",
    "exact": "its numbers are exact in every type, and runtimes make them in float32 only",
    "kernel": "onnxruntime computes it in float32 only, and adds no casts around it",
    "containers": "it may hand on a sequence or an optional",
    "steps": "its numbers are exact only up to 2048",
}

BLOCKED: dict[str, str] = _table(
    exponential="Exp Sinh Cosh Softplus",
    steep="Log Tan Reciprocal Acos Asin Acosh Atanh",
    power="Pow",
    sum="ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd CumSum CumProd "
    "GlobalAveragePool GlobalLpPool LpPool LpNormalization LRN MeanVarianceNormalization InstanceNormalization Det "
    "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss LinearAttention",
    place="GridSample AffineGrid DeformConv RoiAlign MaxRoiPool NonMaxSuppression",
    steps="Range",
    draw="RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial",
    signal="DFT STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix",
    bits="BitCast",
    codes="QuantizeLinear DequantizeLinear",
    exact="EyeLike",
    kernel="Swish SwiGLU",
    containers="Optional OptionalGetElement OptionalHasElement",
    remainder="Mod",
)
"""Op type of ai.onnx -> why it keeps its precision."""

_FLOAT, _UNDEFINED = 1, None


def _statistics(op: OnnxOp) -> str:
    return "" if op.attr("stash_type") == _FLOAT else "its statistics would be computed in half precision"


def _training(op: OnnxOp) -> str:
    return "it computes the statistics of a batch" if op.attr("training_mode") or op.since < 9 else ""


def _adding(op: OnnxOp) -> str:
    return _SUM if op.attr("reduction") in ("add", "mul") else ""


_CONDITIONAL: dict[str, Callable[[OnnxOp], str]] = {
    "LayerNormalization": _statistics,
    "RMSNormalization": _statistics,
    "GroupNormalization": _statistics,
    "BatchNormalization": _training,
    "ScatterElements": _adding,
    "ScatterND": _adding,
}
"""Ops that keep their precision as their attributes or types have it."""


def blocked(op: OnnxOp) -> str:
    """Why an op keeps its precision by default; ``""`` if it does not."""
    if op.domain:
        return BLOCKED.get(op.op_type, "")
    condition = _CONDITIONAL.get(op.op_type)
    return condition(op) if condition is not None else BLOCKED.get(op.op_type, "")


_MOVERS = (
    "CenterCropPad Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Pad Reshape "
    "ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split Squeeze TensorScatter Tile Transpose Trilu "
    "Unsqueeze"
)
_CHOOSERS = "ArgMax ArgMin Hardmax IsInf IsNaN MaxPool NonZero ReduceMax ReduceMin Shape Size TopK Unique GlobalMaxPool"

FOLLOWERS: frozenset[str] = ELEMENTWISE | frozenset(f"{_MOVERS} {_CHOOSERS}".split())
"""Ops too cheap to be worth a cast: given nothing in half precision, they keep the precision that they are given."""

OF_INTEGERS: frozenset[str] = frozenset({"DequantizeLinear", "Range"})
"""Ops whose results are integers in truth: what is computed of these alone keeps its precision, so that positions stay
exact, and quantized ops between ``DequantizeLinear`` and ``QuantizeLinear`` can still be told as such."""

BOUNDED: frozenset[str] = frozenset(
    "Asin Atan Cos Erf GRU Hardmax HardSigmoid InstanceNormalization LayerNormalization LpNormalization RNN Sigmoid "
    "Sign Sin Softmax Softsign Tanh".split()
)
"""Ops whose results are small whatever their operands."""

DTYPE_ATTRIBUTES: dict[str, str] = {
    "Bernoulli": "dtype",
    "BlackmanWindow": "output_datatype",
    "Cast": "to",
    "DequantizeLinear": "output_dtype",
    "EyeLike": "dtype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "RandomUniformLike": "dtype",
}
"""Op type -> the attribute that names the element type of its result."""

SOFTMAX_PRECISION = "softmax_precision"
"""An attribute of attention that names a precision of its own; where it is not set, that of the operands is meant."""

KEPT_OPERANDS: frozenset[tuple[str, int]] = frozenset({("Resize", 1)})
"""Operands with a type of their own that tell places: they stay as they are whatever becomes of the op."""

OPEN_BOUNDS: frozenset[tuple[str, int]] = frozenset({("Clip", 1), ("Clip", 2)})
"""Operands that bound a result: beyond the range of the half type they mean no bound, which infinity says as well."""

DIVISORS: frozenset[tuple[str, int]] = frozenset({("Div", 1), ("Mod", 1)})
"""Operands of which no element may become 0."""
