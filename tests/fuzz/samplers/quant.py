"""Quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.dtypes import BY_NAME, DType
from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..graph import Value
from ..registry import F32, axis_of, exact, samples

exact("MatMulInteger")
exact("DequantizeLinear QuantizeLinear", rounding=True)


def _granularity(g: Context, x: Value) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of scales: for the whole tensor, along an axis, or in blocks of one."""
    rank = x.array.ndim
    kind = g.below(3) if rank else 0
    if kind == 0:
        return (), {}
    axis = axis_of(g, rank)
    if kind == 1:
        return (x.shape[axis],), {"axis": axis}
    size = x.shape[axis]
    block = g.pick([d for d in range(1, size + 1) if size % d == 0])
    shape = list(x.shape)
    shape[axis] = size // block
    return tuple(shape), {"axis": axis, "block_size": block}


_TARGETS = "uint8 int8 uint16 int16 uint4 int4 float8_e4m3fn float8_e5m2 uint2 int2".split()


def _zero(g: Context, kind: DType, shape: tuple[int, ...]) -> Value:
    return Value.of(np.zeros(shape, kind.numpy), "constant") if kind.is_float else g.make(kind, shape)


@samples("QuantizeLinear")
def quantize_linear(g: Context, spec: OpSpec) -> Call:
    x = g.take([d for d in allowed(spec, 0) if d.is_float], 0, 4, least=1)
    target = g.dtype([BY_NAME[n] for n in _TARGETS])
    shape, attributes = _granularity(g, x)
    scale = g.make(x.dtype, shape, (0.25, 2))
    if g.below(2):
        return Call([x, scale, _zero(g, target, shape)], attributes)
    return Call([x, scale], attributes | ({} if target.name == "uint8" else {"output_dtype": target.code}))


@samples("DequantizeLinear")
def dequantize_linear(g: Context, spec: OpSpec) -> Call:
    x = g.take([BY_NAME[n] for n in (*_TARGETS, "int32")], 0, 4, least=1)
    shape, attributes = _granularity(g, x)
    scale = g.make(
        g.dtype([d for d in allowed(spec, 1) if d.name in ("float32", "float16", "bfloat16")]), shape, (0.25, 2)
    )
    return Call([x, scale] + ([_zero(g, x.dtype, shape)] if g.below(2) and x.dtype.bits < 32 else []), attributes)


@samples("DynamicQuantizeLinear")
def dynamic_quantize_linear(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(F32, 1, 4, least=1)], outputs=3)


@samples("MatMulInteger")
def matmul_integer(g: Context, spec: OpSpec) -> Call:
    a = g.take(allowed(spec, 0), 2, 3, least=1)
    b = g.make(g.dtype(allowed(spec, 1)), (*a.shape[:-2][: g.below(2)], a.shape[-1], g.between(1, 4)))
    zero_a = g.make(a.dtype, ()) if g.below(2) else None
    zero_b = g.make(b.dtype, g.pick(((), b.shape[-1:] if b.array.ndim == 2 else ()))) if g.below(2) else None
    return Call([a, b, zero_a, zero_b])


@samples("QLinearMatMul")
def qlinear_matmul(g: Context, spec: OpSpec) -> Call:
    kinds = [BY_NAME["uint8"], BY_NAME["int8"]]
    a = g.take(kinds, 2, 3, least=1)
    b = g.make(g.dtype([a.dtype, *kinds]), (*a.shape[:-2][: g.below(2)], a.shape[-1], g.between(1, 4)))
    scales = [g.make(F32[0], (), span) for span in ((0.01, 0.1), (0.01, 0.1), (0.5, 4))]
    zeros = [g.make(kind, ()) for kind in (a.dtype, b.dtype, a.dtype)]
    return Call([a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]])
