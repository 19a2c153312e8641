"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Tensor


@converter("DotProductAttention")
def dot_product_attention(
    c: Emitter, op: Any, query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, scale: Any = None
) -> Tensor:
    """Softmax(query key^T scale + bias) value, heads on axis 2: one Attention op, which wants them on axis 1.

    A key that is masked gets a very negative score rather than minus infinity, as in Keras: where all are masked, all
    count alike.
    """
    b, dtype = c.b, c.out.dtype
    q, k, v = (b.Transpose(c.get(x, dtype), perm=[0, 2, 1, 3]) for x in (query, key, value))
    lowest = float(np.finfo(np.float16 if dtype == "float16" else np.float32).min) * 0.7
    extra: Tensor | None = None
    if isinstance(mask, Value) or mask is not None:
        there = c.get(mask, "bool")
        extra = b.Where(there, c.get(0.0, dtype), c.get(lowest, dtype))
    if op.is_causal:
        rows, columns = (b.Range(0, b.Squeeze(b.Shape(t, start=2, end=3), [0]), 1) for t in (q, k))
        seen = b.GreaterOrEqual(b.Unsqueeze(rows, np.array([1])), columns)
        causal = b.Where(seen, c.get(0.0, dtype), c.get(lowest, dtype))
        extra = causal if extra is None else b.Max(b.Add(extra, causal), c.get(lowest, dtype))
    if bias is not None:
        extra = c.get(bias, dtype) if extra is None else b.Add(c.get(bias, dtype), extra)
    options: dict[str, Any] = {}
    if scale is not None:
        options["scale"] = float(scale)
    if op.attn_logits_soft_cap:
        options["softcap"] = float(op.attn_logits_soft_cap)
    made = b.Attention(q, k, v, extra, **options)
    made = made[0] if isinstance(made, tuple) else made
    return b.Transpose(made, perm=[0, 2, 1, 3])
