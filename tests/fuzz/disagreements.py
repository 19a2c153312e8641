"""Where onnxruntime and the NumPy backend are known to differ, and why.

docs/reference/disagreements.md has this table, which a test keeps the same. A call that falls under an entry is not
compared with onnxruntime; it stays in graphs for other checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .graph import Step, Value

__all__ = ["DISAGREEMENTS", "Disagreement", "known", "table"]


@dataclass(frozen=True)
class Disagreement:
    """A kind of call on which the two differ.

    Attributes:
        ops: their names.
        title: which calls.
        ours, theirs: what each gives.
        why: which is right, or why neither is.
        when: whether a call is one of them; its results are known.
        everywhere: whether it shows on every processor, with onnxruntime's optimizations off.
    """

    ops: str
    title: str
    ours: str
    theirs: str
    why: str
    when: Callable[[Step], bool]
    everywhere: bool = True


def _given(step: Step, index: int) -> bool:
    return index < len(step.operands) and step.operands[index] is not None


def _array(step: Step, index: int) -> np.ndarray:
    """An operand, or an empty array where it is not given."""
    value = step.operands[index] if _given(step, index) else None
    return np.zeros(0) if value is None else value.array


_UNFIT = {"Affine", "ScaledTanh", "ThresholdedRelu"}
_LARGEST = {2**31 - 1, 2**63 - 1}


def _never_clipped(step: Step) -> bool:
    """Whether the cell state of an LSTM stays below the clip: each step adds at most 1 to it."""
    start = np.abs(_array(step, 6).astype(float)).max(initial=0)
    return "activations" not in step.attributes and start + max(_array(step, 0).shape[:2]) <= step.attributes["clip"]


def _slice_to_largest(step: Step) -> bool:
    steps = _array(step, 4)
    return any(e in _LARGEST and s < 0 for e, s in zip(_array(step, 2).tolist(), steps.tolist(), strict=False))


def _moved_rest(step: Step) -> bool:
    """Whether output_shape of MaxUnpool is not what the windows give."""
    return (
        _given(step, 2)
        and _array(step, 2).tolist()
        != [
            *step.operands[0].shape[:2],  # type: ignore[union-attr]
            *(s * k for s, k in zip(step.operands[0].shape[2:], step.attributes["strides"], strict=True)),  # type: ignore[union-attr]
        ]
    )


def _saturates(step: Step) -> bool:
    """Whether two neighbouring products may not fit 16 bits."""
    a, b = (step.operands[i].array for i in ((0, 1) if step.op.endswith("Integer") else (0, 3)))  # type: ignore[union-attr]
    if a.dtype == b.dtype == np.uint8:
        return False
    return bool(a.size and b.size and 2 * np.abs(a.astype(int)).max() * np.abs(b.astype(int)).max() >= 2**15)


def _flat(step: Step) -> bool:
    """Whether a variance is nothing but rounding."""
    x = _array(step, 0).astype(np.float64)
    axes = tuple(step.attributes.get("axes", (0, 2, 3)))
    return bool((x.var(axes) <= 1e-5 * (x * x).mean(axes)).any()) if x.size else True


def _condition_ignored(step: Step) -> bool:
    """Whether a Loop gets no condition and its body yields one that it did not get either."""
    body = step.bodies["body"]
    handed_on = {
        body.args[1],
        *(v for s in body.steps if s.op == "Identity" and body.args[1] in s.operands for v in s.results),
    }
    return not _given(step, 1) and body.results[0] not in handed_on


def _overflows(step: Step) -> bool:
    """Whether a product of integers does not fit their type."""
    x, axes = _array(step, 0), tuple(int(a) for a in _array(step, 1))
    if x.dtype.kind not in "iu" or (not axes and step.attributes.get("noop_with_empty_axes")):
        return False
    return bool((np.abs(x.astype(np.float64)).prod(axes or None) > np.iinfo(x.dtype).max).any())


def _pads_less_than_nothing(step: Step) -> bool:
    """Whether SAME padding is negative: a stride goes beyond what is left of an axis."""
    if not step.attributes.get("auto_pad", "").startswith("SAME"):
        return False
    kernel = step.attributes["kernel_shape"]
    strides = step.attributes.get("strides", [1] * len(kernel))
    axes = zip(_array(step, 0).shape[2:], kernel, strides, strict=True)
    return any((math.ceil(n / s) - 1) * s + k - n < 0 for n, k, s in axes)


def _trains_inside(step: Step) -> bool:
    """Whether a body computes running statistics."""
    inner = [s for body in step.bodies.values() for s in body.steps]
    return any(s.attributes.get("training_mode") or _trains_inside(s) for s in inner)


def _stacked(step: Step) -> list[Value]:
    return step.results[len(step.operands) - 2 :]


def _string_blocks(step: Step) -> bool:
    x = _array(step, 0)
    axis = step.attributes.get("axis", 0) % x.ndim
    return x.dtype == object and math.prod(x.shape[axis + 1 :]) > 1


def _between_sizes(step: Step) -> bool:
    if step.attributes.get("coordinate_transformation_mode") != "align_corners":
        return False
    shape = np.array(step.operands[0].shape)  # type: ignore[union-attr]
    sizes = shape[step.attributes.get("axes", list(range(len(shape))))] * _array(step, 2) if _given(step, 2) else shape
    return bool((sizes != np.floor(sizes)).any()) or "keep_aspect_ratio_policy" in step.attributes


DISAGREEMENTS: list[Disagreement] = [
    Disagreement(
        "RNN GRU LSTM",
        "`activations` with Affine, ScaledTanh or ThresholdedRelu, and no `activation_alpha`",
        "alpha = 1 (and beta = 0 for Affine), the defaults of these ops",
        "alpha = 0, so Affine and ScaledTanh are 0 everywhere and ThresholdedRelu is Relu",
        'the specification: "Default values are the same as of corresponding ONNX operators"',
        lambda s: bool(_UNFIT & set(s.attributes.get("activations", ()))) and "activation_alpha" not in s.attributes,
    ),
    Disagreement(
        "LSTM",
        "`clip`, where the cell state may grow beyond it",
        "the cell state is clipped before it goes into the last activation, `h`",
        "it is not",
        'the specification: the clip "is applied to the input of activations", of which `h(Ct)` is one',
        lambda s: "clip" in s.attributes and not _never_clipped(s),
    ),
    Disagreement(
        "StringSplit",
        "an empty string, and a `delimiter` that is not empty",
        "one substring, the empty one, as between any two delimiters",
        "no substring",
        "the specification is silent; its reference implementation splits as Python does",
        lambda s: bool(s.attributes.get("delimiter")) and "" in _array(s, 0).reshape(-1).tolist(),
    ),
    Disagreement(
        "Slice",
        "a negative step with an end of INT32_MAX or INT64_MAX",
        "the end is clamped to the last element, which is not reached: nothing, or what lies beyond it",
        "the end is taken for the beginning of the axis",
        "the specification: for negative steps, ends are clamped to [-1, dim - 1]; INT_MIN slices to the beginning",
        _slice_to_largest,
    ),
    Disagreement(
        "MaxUnpool",
        "an `output_shape` that is larger than the windows make it",
        "indices count in the tensor that was pooled, whose place is the corner of the larger one",
        "indices count in the larger tensor",
        "the official test `maxunpool_export_with_output_shape`; the text does not say",
        _moved_rest,
    ),
    Disagreement(
        "MatMulInteger ConvInteger QLinearMatMul QLinearConv",
        "int8 with products of two neighbouring pairs beyond 16 bits",
        "the exact sum",
        "on processors without VNNI, sums of two products saturate at 16 bits",
        "the specification: the products are accumulated in 32 bits",
        _saturates,
        everywhere=False,
    ),
    Disagreement(
        "DynamicQuantizeLinear",
        "nothing but zeros",
        "scale 0, zero point 0",
        "scale 1, zero point 0",
        "the formula gives scale 0; the zero point is then 0 / 0",
        lambda s: not _array(s, 0).any(),
    ),
    Disagreement(
        "HannWindow HammingWindow BlackmanWindow",
        "a symmetric window of one element",
        "1",
        "NaN",
        "the function body of the specification divides by 0; its text does not say",
        lambda s: s.attributes.get("periodic", 1) == 0 and int(_array(s, 0)) == 1,
    ),
    Disagreement(
        "HannWindow HammingWindow BlackmanWindow",
        "`output_datatype` float64",
        "float64 throughout",
        "computed in float32, then cast",
        "the function body of the specification computes in float32; the difference is one rounding of it",
        lambda s: s.attributes.get("output_datatype") == 11,
    ),
    Disagreement(
        "AffineGrid",
        "`align_corners` and an axis of one element",
        "the element lies at 0, as in PyTorch, to which the specification refers",
        "it lies at -1",
        "the function body of the specification gives -1 for depth, and NaN for height and width",
        lambda s: bool(s.attributes.get("align_corners")) and 1 in _array(s, 1)[2:].tolist(),
    ),
    Disagreement(
        "MeanVarianceNormalization",
        "elements that are all the same",
        "0",
        "NaN at times: the mean of squares less the square of the mean may come out negative",
        "exact arithmetic gives 0",
        _flat,
        everywhere=False,
    ),
    Disagreement(
        "Cast CastLike",
        "floats with a fraction to the 4- and 2-bit integers",
        "truncated, as for all integers",
        "rounded",
        "the specification has no rule of its own for them",
        lambda s: (
            s.results[0].dtype.is_integer
            and s.results[0].dtype.bits < 8
            and s.operands[0].dtype.is_float  # type: ignore[union-attr]
            and bool((np.trunc(_array(s, 0).astype(float)) != _array(s, 0).astype(float)).any())
        ),
    ),
    Disagreement(
        "Shrink",
        "integers beyond 2 ** 24, or a `bias` or `lambd` with a fraction",
        "computed in integers, with the integer parts of the two",
        "computed in float32, then cast",
        "the function body of the specification casts them to the type of the input first",
        lambda s: (
            s.operands[0].dtype.is_integer  # type: ignore[union-attr]
            and (np.abs(_array(s, 0).astype(float)).max(initial=0) > 2**24 or not _whole(s))
        ),
    ),
    Disagreement(
        "NonMaxSuppression",
        "a score equal to `score_threshold`",
        "the box is kept",
        "it is removed",
        'the specification: boxes "with score less than score_threshold are removed"',
        lambda s: _given(s, 4) and bool((_array(s, 1) == _array(s, 4).item()).any()),
    ),
    Disagreement(
        "Loop",
        "no condition operand, and a body that yields false",
        "the loop goes on to its trip count",
        "it ends",
        'the specification: with no condition given, what the body yields is "ignored"',
        _condition_ignored,
    ),
    Disagreement(
        "AveragePool LpPool MaxPool",
        "`auto_pad` SAME_UPPER or SAME_LOWER with strides that pass over the end of an axis",
        "no padding: the first window begins with the first element",
        "negative padding: the windows are moved inwards",
        "the formula gives a negative number, of which the text says nothing; onnxruntime too takes 0 for it in Conv",
        _pads_less_than_nothing,
    ),
    Disagreement(
        "Loop Scan SequenceMap If",
        "BatchNormalization with `training_mode` in a body",
        "running statistics",
        "with its optimizations on, other numbers",
        "with its optimizations off, the two agree",
        _trains_inside,
        everywhere=False,
    ),
    Disagreement(
        "ReduceProd",
        "integers whose product overflows",
        "wraps, as other integer arithmetic",
        "saturates",
        "the specification is silent",
        _overflows,
    ),
    Disagreement(
        "Loop",
        "strings that iterations stack",
        "the string of each iteration",
        "empty strings from the second on",
        "the specification",
        lambda s: any(v.array.dtype == object and v.array.ndim for v in _stacked(s)),
    ),
    Disagreement(
        "Gather",
        "strings, on an axis with others after it",
        "whole slices",
        "the first element of each slice, and empty strings",
        "the specification",
        _string_blocks,
    ),
    Disagreement(
        "Resize",
        "`align_corners` where size times scale is not whole",
        "the product enters the coordinates as it is",
        "it is rounded down first",
        'the official tests (`resize_downsample_scales_linear_align_corners`); the text only says "length"',
        _between_sizes,
    ),
    Disagreement(
        "Resize",
        "integers, with `mode` linear or cubic",
        "rounded, halves to even, and saturated",
        "truncated, or rounded in fixed point with `antialias`",
        "the specification is silent",
        lambda s: s.attributes["mode"] != "nearest" and s.operands[0].dtype.is_integer,  # type: ignore[union-attr]
    ),
]


def _whole(step: Step) -> bool:
    return all(
        math.trunc(step.attributes.get(n, d)) == step.attributes.get(n, d) for n, d in (("bias", 0), ("lambd", 0.5))
    )


_BY_OP: dict[str, list[Disagreement]] = {}
for _entry in DISAGREEMENTS:
    for _op in _entry.ops.split():
        _BY_OP.setdefault(_op, []).append(_entry)


def known(step: Step) -> Disagreement | None:
    """The known disagreement that a step shows, if any."""
    return next((d for d in _BY_OP.get(step.op, ()) if d.when(step)), None)


def table() -> str:
    """The table of the documentation page."""
    lines = ["| ops | calls | here | onnxruntime | why |", "|---|---|---|---|---|"]
    lines += [f"| {d.ops.replace(' ', ', ')} | {d.title} | {d.ours} | {d.theirs} | {d.why} |" for d in DISAGREEMENTS]
    return "\n".join(lines)
