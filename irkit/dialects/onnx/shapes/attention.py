"""Attention, whose symbolic sizes the official inference takes for 0."""

from __future__ import annotations

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.ir import dims
from irkit.ir.types import Dim, TensorInfo, tensor, tensor_info

__all__: list[str] = []


@shape_rule("Attention")
def attention(call: Call) -> list[Attribute] | None:
    """Y, present_key, present_value and the scores, where a size is symbolic."""
    infos = [_info(call, i) for i in range(6)]
    q, k, v = infos[:3]
    if q is None or k is None or v is None or q.shape is None or k.shape is None or v.shape is None:
        return None
    known = [i.shape for i in infos if i is not None and i.shape is not None]
    if all(isinstance(d, int) for shape in known for d in shape):
        return None
    query, key, value = (
        _by_heads(info.shape, call.attr(f"{name}_num_heads"))
        for info, name in ((q, "q"), (k, "kv"), (v, "kv"))
        if info.shape is not None
    )
    if query is None or key is None or value is None:
        return None
    batch, heads, length, _ = query
    width = value[3]
    total = _total(infos[4], key[2]) if call.type(4) is not None else key[2]
    y = (batch, heads, length, width) if len(q.shape) == 4 else (batch, length, dims.mul(heads, width))
    return [
        tensor(q.dtype, y),
        tensor(k.dtype, (batch, key[1], total, key[3])),
        tensor(v.dtype, (batch, value[1], total, width)),
        tensor(q.dtype, (batch, heads, length, total)),
    ]


def _info(call: Call, index: int) -> TensorInfo | None:
    found = call.type(index)
    return None if found is None else tensor_info(found)


def _by_heads(shape: tuple[Dim, ...], heads: int | None) -> tuple[Dim, Dim, Dim, Dim] | None:
    """(batch, heads, length, width), as it stands or from (batch, length, heads * width)."""
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3 or not heads:
        return None
    return shape[0], heads, shape[1], dims.floordiv(shape[2], heads)


def _total(past: TensorInfo | None, length: Dim) -> Dim:
    known = past is not None and past.shape is not None and len(past.shape) == 4
    return dims.add(past.shape[2], length) if known else None  # type: ignore[union-attr,index]
