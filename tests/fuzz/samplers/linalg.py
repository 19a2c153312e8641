"""Matrix products, attention, losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..graph import Value
from ..registry import BOOL, I64, samples


@samples("MatMul")
def matmul(g: Context, spec: OpSpec) -> Call:
    a = g.take(allowed(spec, 0), 1, 4, span=(-9, 9))
    inner = a.shape[-1]

    def fits(v: Value) -> bool:
        if v.shape[-2 if v.array.ndim > 1 else 0] != inner:
            return False
        try:
            np.broadcast_shapes(v.shape[:-2], a.shape[:-2])
        except ValueError:
            return False
        return True

    def shape() -> tuple[int, ...]:
        if g.chance(4):
            return (inner,)
        lead = a.shape[:-2] if g.below(2) else g.dims(0, 1) if len(a.shape) < 3 else ()
        return (*lead, inner, g.between(1, 4))

    return Call([a, g.take([a.dtype], 1, 4, span=(-9, 9), fits=fits, shape=shape)], exact=a.dtype.is_integer)


@samples("Gemm")
def gemm(g: Context, spec: OpSpec) -> Call:
    a = g.take(allowed(spec, 0), 2, 2, span=(-9, 9))
    turned, other = g.below(2), g.below(2)
    m, k = a.shape[::-1] if turned else a.shape
    n = g.between(1, 4)
    b = g.make(a.dtype, (n, k) if other else (k, n), (-9, 9))
    c = g.make(a.dtype, g.pick(((n,), (m, n), (), (1, n), (m, 1))), (-9, 9)) if g.below(2) else None
    scales = g.maybe(alpha=[0.5, 2.0], beta=[0.25, -1.0]) if a.dtype.is_float else {}
    return Call([a, b, c], {**scales, **({"transA": 1} if turned else {}), **({"transB": 1} if other else {})})


_EQUATIONS = (
    "ij->ji ij,jk->ik bij,bjk->bik i,j->ij ij,ij-> ii->i ii-> ij->i ij,ij,j->j ...ij->...ji ...ij,...jk->...ik"
    " ij,jk bij,ij->bij"
).split()


@samples("Einsum")
def einsum(g: Context, spec: OpSpec) -> Call:
    equation = g.pick(_EQUATIONS)
    kind = g.dtype([d for d in allowed(spec, 0) if d.bits > 8])
    sizes: dict[str, int] = {}
    made: list[Value] = []
    lead = g.dims(0, 2, 1)
    for term in equation.partition("->")[0].split(","):
        shape = [sizes.setdefault(c, g.between(1, 3)) for c in term.replace("...", "")]
        shape = [*lead, *shape] if "..." in term else shape

        def fits(v: Value, shape: list[int] = shape) -> bool:
            return list(v.shape) == shape

        made.append(g.take([kind], 0, 4, span=(-9, 9), fits=fits, shape=lambda shape=shape: shape))
    return Call(made, {"equation": equation if g.below(2) else equation.replace(",", " , ")})


@samples("Det")
def det(g: Context, spec: OpSpec) -> Call:
    n = g.between(1, 3)
    x = g.take(
        allowed(spec, 0),
        2,
        4,
        span=(-9, 9),
        least=1,
        fits=lambda v: v.shape[-1] == v.shape[-2],
        shape=lambda: (*g.dims(0, 2, 1), n, n),
    )
    return Call([x])


@samples("Attention")
def attention(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    batch, groups, heads_kv, length, keys, d, dv = (g.between(1, 3) for _ in range(7))
    heads, size, size_v = groups * heads_kv, 2 * d, 2 * dv
    flat = g.below(2)

    def make(heads: int, length: int, size: int) -> Value:
        return g.make(kind, (batch, length, heads * size) if flat else (batch, heads, length, size), (-2, 2))

    past = g.between(1, 3) if g.chance(3) else 0
    total = keys + past
    operands: list[Any] = [make(heads, length, size), make(heads_kv, keys, size), make(heads_kv, keys, size_v)]
    mask = None
    if g.below(2):
        shape = g.pick(((length, total), (batch, 1, length, total), (1, heads, length, total)))
        mask = g.make(g.pick((kind, BOOL[0])), shape, (-1, 1))
        if mask.dtype.kind == "bool":
            # A row that may attend to nothing is a 0 / 0.
            array = mask.array.copy()
            array[..., 0] = True
            mask = Value.of(array, mask.origin)
    operands.append(mask)
    if past:
        operands += [g.make(kind, (batch, heads_kv, past, s), (-2, 2)) for s in (size, size_v)]
    attributes = g.maybe(scale=[0.5, 1.0], softcap=[2.0], is_causal=1)
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": heads_kv}
    outputs = 3 if past else 1
    if g.chance(4):
        outputs = 4 if past else 1
        attributes |= {"qk_matmul_output_mode": g.below(4)} if past else {}
    return Call(operands, attributes, outputs=outputs)


@samples("LinearAttention")
def linear_attention(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    batch, length, groups, heads, dk, dv = (g.between(1, 3) for _ in range(6))
    rule = g.pick(("linear", "gated", "delta", "gated_delta"))
    q = g.make(kind, (batch, length, groups * heads * dk), (-1, 1))
    k, v = (g.make(kind, (batch, length, heads * d), (-1, 1)) for d in (dk, dv))
    past = g.make(kind, (batch, heads, dk, dv), (-1, 1)) if g.below(2) else None
    decay = g.make(kind, (batch, length, heads * g.pick((dk, 1))), (-2, 0)) if "gated" in rule else None
    beta = g.make(kind, (batch, length, g.pick((heads, 1))), (0, 1)) if "delta" in rule else None
    heads_of = {"q_num_heads": groups * heads, "kv_num_heads": heads}
    return Call([q, k, v, past, decay, beta], {"update_rule": rule, **heads_of, **g.maybe(scale=[0.5])}, outputs=2)


@samples("RotaryEmbedding")
def rotary_embedding(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    batch, heads, length, half = (g.between(1, 3) for _ in range(4))
    extra = 2 * g.below(2)
    size, flat = 2 * half + extra, g.below(2)
    x = g.make(kind, (batch, length, heads * size) if flat else (batch, heads, length, size), (-3, 3))
    attributes = g.maybe(interleaved=1) | ({"rotary_embedding_dim": 2 * half} if extra else {})
    attributes |= {"num_heads": heads} if flat else {}
    if g.below(2):
        cos, sin = (g.make(kind, (batch, length, half), (-1, 1)) for _ in range(2))
        return Call([x, cos, sin], attributes)
    cos, sin = (g.make(kind, (5, half), (-1, 1)) for _ in range(2))
    return Call([x, cos, sin, g.make(I64[0], (batch, length), (0, 4))], attributes)


@samples("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")
def losses(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 4, least=1, span=(-9, 9))
    classes = x.shape[1]
    ignored = g.pick((None, None, 0, -1))
    low = -1 if ignored == -1 else 0
    labels = g.make(g.dtype(allowed(spec, 1)[::-1]), (x.shape[0], *x.shape[2:]), (low, classes - 1))
    weight = g.make(x.dtype, (classes,), (0.5, 2)) if g.below(2) else None
    attributes = g.maybe(reduction=["none", "sum", "mean"]) | ({} if ignored is None else {"ignore_index": ignored})
    outputs = 2 if spec.op_type == "SoftmaxCrossEntropyLoss" and g.below(2) else 1
    if ignored is not None and (labels.array == ignored).all():
        labels = g.given(np.full(labels.shape, classes - 1 if ignored == 0 else 0), labels.dtype)
    return Call([x, labels, weight], attributes, outputs=outputs)
