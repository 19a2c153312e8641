"""How many arithmetic operations an op makes, one formula a family.

An addition, a product, a comparison and a call of a function (``exp``) are one operation each; a product that is added
to a sum is two. Integers count like floats. What only moves data makes none. An op that no formula names makes one
operation for each element of its results. The formulas are those of the definitions of the ops: an implementation that
pads, folds constants or fuses ops may make more, or fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

__all__ = ["FLOPS", "flops"]

Attributes = Mapping[str, Any]
Formula = Callable[[Attributes, Sequence[Any], Sequence[Any]], int]
"""Attributes, operands (None where absent) and results -> operations."""


def _elements(values: Sequence[Any]) -> int:
    return sum(v.size for v in values if isinstance(v, np.ndarray))


def _per_result(count: int) -> Formula:
    """So many for each element of the first result."""
    return lambda attributes, operands, results: count * _elements(results[:1])


def _per_operand(count: int) -> Formula:
    """So many for each element of the first operand."""
    return lambda attributes, operands, results: count * _elements(operands[:1])


def _window(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """Each element of the result is over one window."""
    return results[0].size * prod(attributes["kernel_shape"])


def _folded(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """n operands take n - 1 operations for each element."""
    return results[0].size * max(len(operands) - 1, 0)


def _matmul(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """2 M N K; of the quantized forms A stands first and the result last."""
    return 2 * results[0].size * (operands[0].shape[-1] if operands[0].ndim else 0)


def _gemm(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """2 M N K, and M N for C."""
    inner = operands[0].shape[0 if attributes.get("transA") else 1]
    return results[0].size * (2 * inner + (len(operands) > 2 and operands[2] is not None))


def _einsum(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """For each combination of all indices a product of the operands, added to a sum."""
    terms = attributes["equation"].replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        named = len(term.replace("...", ""))
        letters = list(term.replace("...", "".join(chr(1 + i) for i in range(x.ndim - named))))
        for letter, extent in zip(letters, x.shape, strict=True):
            extents[letter] = max(extents.get(letter, 1), extent)
    return prod(extents.values()) * len(operands)


def _conv(filters: int, bias: int | None) -> Formula:
    """2 C / group * kernel for each element of the result, and 1 for the bias.

    Args:
        filters, bias: which operands they are; the filters are (M, C / group, *kernel).
    """

    def formula(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
        added = bias is not None and len(operands) > bias and operands[bias] is not None
        return results[0].size * (2 * prod(operands[filters].shape[1:]) + added)

    return formula


def _conv_transpose(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """2 M / group * kernel for each element of X, the filters being (C, M / group, *kernel), and 1 for the bias."""
    added = len(operands) > 2 and operands[2] is not None
    return operands[0].size * 2 * prod(operands[1].shape[1:]) + results[0].size * added


def _attention(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """Q K' and P V at 2 each, and a softmax between them at 5 for each score."""
    q, k, v = operands[:3]
    past = operands[4] if len(operands) > 4 else None
    heads = attributes["q_num_heads"] if q.ndim == 3 else q.shape[1]
    kept = attributes["kv_num_heads"] if q.ndim == 3 else k.shape[1]
    keys = k.shape[-2] + (0 if past is None else past.shape[-2])
    scores = q.shape[0] * heads * q.shape[-2] * keys
    sizes = (q.shape[-1] // heads, v.shape[-1] // kept) if q.ndim == 3 else (q.shape[-1], v.shape[-1])
    return scores * (2 * sum(sizes) + 5)


def _recurrent(gates: int) -> Formula:
    """2 (I + H) for each gate of each unit and step, and 5 for what is done with it.

    X is (steps, batch, I), or (batch, steps, I); R is (directions, gates * H, H).
    """

    def formula(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
        x, _, r = operands[:3]
        units = x.shape[0] * x.shape[1] * r.shape[0] * r.shape[2]
        return units * gates * (2 * (x.shape[2] + r.shape[2]) + 5)

    return formula


def _none(attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    return 0


def _names(names: str, formula: Formula) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), formula)


FLOPS: dict[str, Formula] = {
    # Products
    **_names("MatMul MatMulInteger QLinearMatMul", _matmul),
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv(1, 2),
    "DeformConv": _conv(1, 3),
    "ConvInteger": _conv(1, None),
    "QLinearConv": _conv(3, 8),
    "CausalConvWithState": _conv(1, 2),
    "ConvTranspose": _conv_transpose,
    **_names("Attention FlexAttention", _attention),
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    # Windows and reductions
    **_names("MaxPool AveragePool LpPool", _window),
    **_names("GlobalMaxPool GlobalAveragePool GlobalLpPool", _per_operand(1)),
    **_names("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ArgMax ArgMin CumSum CumProd", _per_operand(1)),
    **_names("ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum", _per_operand(2)),
    "ReduceLogSumExp": _per_operand(4),
    # Normalizations: the steps of their formulas
    "BatchNormalization": _per_result(4),
    **_names("InstanceNormalization LayerNormalization GroupNormalization MeanVarianceNormalization", _per_result(7)),
    **_names("RMSNormalization LpNormalization", _per_result(4)),
    "LRN": lambda attributes, operands, results: results[0].size * (attributes["size"] + 5),
    **_names("Softmax LogSoftmax", _per_result(5)),
    # Elementwise ops of several steps; those of one need no entry
    **_names("Max Min Sum Mean", _folded),
    **_names("Relu LeakyRelu PRelu ThresholdedRelu Shrink Clip", _per_result(2)),
    **_names("Sigmoid Softsign HardSigmoid Elu Selu Celu", _per_result(4)),
    **_names("Softplus Swish HardSwish Mish Gelu SwiGLU", _per_result(5)),
    **_names("QuantizeLinear DequantizeLinear", _per_result(3)),
    # Only data is moved, or a graph's own ops count
    **_names(
        "Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile Pad Shape Size Identity Cast "
        "CastLike BitCast Dropout DepthToSpace SpaceToDepth ReverseSequence Gather GatherElements GatherND "
        "ScatterElements ScatterND TensorScatter NonZero OneHot Compress Constant ConstantOfShape EyeLike Where Trilu "
        "Range If Loop Scan SequenceMap",
        _none,
    ),
}
"""By op type of ai.onnx, the formula."""


def flops(op_type: str, attributes: Attributes, operands: Sequence[Any], results: Sequence[Any]) -> int:
    """The operations of one call of an op, by the table.

    Args:
        op_type: of ai.onnx; others count one for each element of their results.
        attributes: with the defaults filled in.
        operands: None where absent.
    """
    formula = FLOPS.get(op_type)
    return _elements(results) if formula is None else int(formula(attributes, operands, results))
