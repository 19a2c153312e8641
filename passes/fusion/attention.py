"""Rules that make one Attention or RotaryEmbedding of what exporters of language models write for it."""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import OpResult, SSAValue

from irkit.dialects.onnx import OnnxOp
from irkit.ir.builder import Tensor
from irkit.passes.fusion.facts import axis_of, ints_of, same_dims
from irkit.passes.rules import Rule, constant, item, scalar, value

__all__ = ["RULES"]

HEADS = value(("float32",), rank=4)
"""Batch, heads, places, elements of a head."""

# Attention: softmax(q @ k * scale + mask) @ v, with k transposed. The scale stands on the product or on q and k.
# The op gives zeros for a row of which all scores are -inf, as a mask may make them, where the parts give NaN: so
# that takes fast-math.


def by_quotient(b: Any, q: Any, k: Any, scale: Any) -> Any:
    return (q @ k) / scale


def by_product(b: Any, q: Any, k: Any, scale: Any) -> Any:
    return (q @ k) * scale


def on_query(b: Any, q: Any, k: Any, scale: Any) -> Any:
    return (q * scale) @ k


def on_query_by_quotient(b: Any, q: Any, k: Any, scale: Any) -> Any:
    return (q / scale) @ k


def on_both(b: Any, q: Any, k: Any, scale: Any) -> Any:
    return (q * scale) @ (k * scale)


Scores = Callable[[Any, Any, Any, Any], Any]
FACTORS: dict[Scores, Callable[[float], float]] = {
    by_quotient: lambda s: 1 / s,
    by_product: lambda s: s,
    on_query: lambda s: s,
    on_query_by_quotient: lambda s: 1 / s,
    on_both: lambda s: s * s,
}
"""How the scores are written -> the scale that this comes to, of the constant in it."""


def _attention(scores: Scores) -> Callable[..., Any]:
    def pattern(b: Any, q=HEADS, k=HEADS, v=HEADS, scale=scalar()):
        return b.Softmax(scores(b, q, k, scale), axis=-1) @ v

    return pattern


def _attention_of_last_axis(scores: Scores) -> Callable[..., Any]:
    def pattern(b: Any, q=HEADS, k=HEADS, v=HEADS, scale=scalar()):
        return b.Softmax(scores(b, q, k, scale), axis=3) @ v

    return pattern


def _masked_attention(scores: Scores, axis: int = -1) -> Callable[..., Any]:
    def pattern(b: Any, q=HEADS, k=HEADS, v=HEADS, scale=scalar(), mask=value(("float32",))):
        return b.Softmax(scores(b, q, k, scale) + mask, axis=axis) @ v

    return pattern


def _replacement(scores: Scores) -> Callable[..., Any]:
    def attention(b, q, k, v, scale):
        factor = FACTORS[scores](float(item(scale)))
        return b.Attention(q, b.Transpose(k, perm=[0, 1, 3, 2]), v, scale=factor)

    return attention


def _masked_replacement(scores: Scores) -> Callable[..., Any]:
    def attention(b, q, k, v, scale, mask):
        factor = FACTORS[scores](float(item(scale)))
        return b.Attention(q, b.Transpose(k, perm=[0, 1, 3, 2]), v, mask, scale=factor)

    return attention


def is_attention(q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> bool:
    """Whether batch and heads are the same everywhere: a product of matrices would broadcast them, Attention not."""
    shapes = [t.shape for t in (q, k, v)]
    heads = [s[:2] for s in shapes if s is not None]
    return len(heads) == 3 and None not in heads[0] and all(h == heads[0] for h in heads) and item(scale) > 0


def is_masked_attention(q: Tensor, k: Tensor, v: Tensor, scale: Tensor, mask: Tensor) -> bool:
    """The same, and whether the mask broadcasts to the scores rather than they to it."""
    if not is_attention(q, k, v, scale) or mask.shape is None or not 2 <= len(mask.shape) <= 4:
        return False
    assert q.shape is not None
    assert k.shape is not None
    scores = (*q.shape[:3], k.shape[3])
    padded = (1,) * (4 - len(mask.shape)) + mask.shape
    # Attention wants the last two sizes as they are, not broadcast.
    fits = all(m == 1 or (m is not None and m == s) for m, s in zip(padded[:2], scores[:2], strict=True))
    return fits and padded[2:] == scores[2:] and None not in padded[2:]


_HEADS = {"q": ["N", 2, 5, 4], "k": ["N", 2, 4, 6], "v": ["N", 2, 6, 3], "scale": 2.0}
_MASKED = [
    {**_HEADS, "mask": [5, 6]},
    {**_HEADS, "mask": ["N", 1, 5, 6]},
]


# RotaryEmbedding: x * cos + rotate(x) * sin, where rotate(x) joins the negated second half and the first.


def rotary(
    b: Any,
    x=HEADS,
    cos=value(("float32",), rank=4),
    sin=value(("float32",), rank=4),
    zero=constant("int64"),
    half=constant("int64"),
    end=constant("int64"),
    axes=constant("int64"),
    steps=constant("int64", optional=True),
):
    first = b.Slice(x, zero, half, axes, steps)
    second = b.Slice(x, half, end, axes, steps)
    return x * cos + b.Concat(b.Neg(second), first, axis=-1) * sin


def rotary_of_split(
    b: Any, x=HEADS, cos=value(("float32",), rank=4), sin=value(("float32",), rank=4), parts=constant("int64")
):
    first, second = b.Split(x, parts, axis=-1, outputs=2)
    return x * cos + b.Concat(b.Neg(second), first, axis=-1) * sin


def angles(value: SSAValue, function: str) -> SSAValue | None:
    """The angles f, where a value is Unsqueeze(function(Concat(f, f)), 1): what both halves of a head are turned by."""
    outer = _maker(value, "Unsqueeze")
    if outer is None or axis_of(outer.operands[1], 4) != 1:
        return None
    inner = _maker(outer.operands[0], function)
    joined = None if inner is None else _maker(inner.operands[0], "Concat")
    if joined is None or len(joined.operands) != 2 or joined.attr("axis") not in (-1, 2):
        return None
    return joined.operands[0] if joined.operands[0] is joined.operands[1] else None


def _maker(value: SSAValue, op_type: str) -> OnnxOp | None:
    op = value.op if isinstance(value, OpResult) else None
    return op if isinstance(op, OnnxOp) and op.name == f"onnx.{op_type}" else None


def turns_halves(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Whether cos and sin are those of the same angles for both halves of each head."""
    size = None if x.shape is None else x.shape[3]
    found = angles(cos.ssa, "Cos"), angles(sin.ssa, "Sin")
    if not isinstance(size, int) or size % 2 or found[0] is None or found[0] is not found[1]:
        return False
    given = cos.builder.wrap(found[0]).shape
    # Per batch and place; sizes that broadcast would not fit the caches.
    return x.shape is not None and same_dims((x.shape[0], x.shape[2], size // 2), given)


def is_rotary(
    x: Tensor, cos: Tensor, sin: Tensor, zero: Tensor, half: Tensor, end: Tensor, axes: Tensor, steps: Any
) -> bool:
    if not turns_halves(x, cos, sin) or axis_of(axes, 4) != 3:
        return False
    assert x.shape is not None
    size = x.shape[3]
    assert isinstance(size, int)
    last = ints_of(end)
    return (
        ints_of(zero) == [0]
        and ints_of(half) == [size // 2]
        and last is not None
        and last[0] >= size
        and (steps is None or ints_of(steps) == [1])
    )


def is_rotary_of_split(x: Tensor, cos: Tensor, sin: Tensor, parts: Tensor) -> bool:
    if not turns_halves(x, cos, sin):
        return False
    found = ints_of(parts)
    return found is not None and len(found) == 2 and found[0] == found[1]


def rotary_embedding(b, x, cos, sin):
    turned = b.wrap(angles(cos.ssa, "Cos"))
    return b.RotaryEmbedding(x, b.Cos(turned), b.Sin(turned))


RULES = [
    *(
        Rule(
            "attention",
            pattern(scores),
            _replacement(scores),
            when=is_attention,
            precision="fast-math",
            opset=23,
            samples=[_HEADS],
        )
        for scores in FACTORS
        for pattern in (_attention, _attention_of_last_axis)
    ),
    *(
        Rule(
            "masked-attention",
            _masked_attention(scores, axis),
            _masked_replacement(scores),
            when=is_masked_attention,
            precision="fast-math",
            opset=23,
            samples=_MASKED,
        )
        for scores in FACTORS
        for axis in (-1, 3)
    ),
    Rule(
        "rotary-embedding",
        rotary,
        rotary_embedding,
        when=is_rotary,
        precision="rounding",
        opset=23,
    ),
    Rule(
        "rotary-embedding",
        rotary_of_split,
        rotary_embedding,
        when=is_rotary_of_split,
        precision="rounding",
        opset=23,
    ),
]
