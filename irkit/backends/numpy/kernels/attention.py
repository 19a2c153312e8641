"""Attention: Attention, FlexAttention (ai.onnx.preview), LinearAttention, RotaryEmbedding, TensorScatter.

Conventions: float16 and bfloat16 are rounded after every step of Attention's function body (its official tests hold to
one unit in the last place), the softmax in ``softmax_precision``. A query that may attend to no key gives zeros. Heads
of K and V are shared by consecutive query heads. A mask shorter than the keys is continued with "not allowed", one
whose last extent is 1 included, as in the body.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import compute_dtype, normalize_axis, rounded, widen
from irkit.backends.numpy.kernels._nn import numeric_type, require, results
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []


def _split_heads(x: np.ndarray, heads: int | None, name: str) -> np.ndarray:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    if heads is None or heads < 1:
        raise KernelError(f"the number of heads must be given for {name} of shape {x.shape}, found {heads}")
    require(
        x.shape[2] % heads == 0, f"the last extent of {name} of shape {x.shape} must be a multiple of {heads} heads"
    )
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _join_heads(x: np.ndarray) -> np.ndarray:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, sequence, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, sequence, heads * size)


def _shared_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (B, Hq, S, D) times b (B, Hkv, D, T), each head of b serving Hq / Hkv consecutive heads of a: (B, Hq, S, T)."""
    batch, heads, rows, inner = a.shape
    shared = b.shape[1]
    if shared == heads:
        return np.matmul(a, b)
    grouped = a.reshape(batch, shared, (heads // shared) * rows, inner)
    return np.matmul(grouped, b).reshape(batch, heads, rows, b.shape[3])


def _check_heads(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    require(
        q.shape[0] == k.shape[0] == v.shape[0] and q.shape[3] == k.shape[3] and k.shape[1:3] == v.shape[1:3],
        f"Q, K and V do not fit, as (batch, heads, sequence, size): {q.shape}, {k.shape}, {v.shape}",
    )
    require(
        k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0,
        f"{q.shape[1]} query heads must be a multiple of {k.shape[1]} key heads",
    )


def _softmax(scores: np.ndarray, precision: np.dtype) -> np.ndarray:
    """Softmax along the last axis, every step rounded to a dtype; a row that is all -inf gives zeros."""
    data = rounded(scores, precision)
    if data.size == 0:
        return data
    top = data.max(axis=-1, keepdims=True)
    p = rounded(data - np.where(np.isneginf(top), data.dtype.type(0), top), precision)
    p = rounded(np.exp(p, out=p), precision)
    total = rounded(p.sum(axis=-1, keepdims=True), precision)
    return rounded(p / np.where(total == 0, data.dtype.type(1), total), precision)


def _causal_offset(queries: int, past: np.ndarray | None, valid: np.ndarray | None) -> np.ndarray:
    """How many keys precede the first query, to broadcast to (batch, heads, queries, keys)."""
    if valid is not None:
        return valid.reshape(-1, 1, 1, 1) - queries
    return np.full((1, 1, 1, 1), 0 if past is None else past.shape[2])


def _attention_bias(
    shape: tuple[int, ...],
    dtype: np.dtype,
    mask: np.ndarray | None,
    valid: np.ndarray | None,
    offset: np.ndarray,
    causal: bool,
    left: int,
    right: int,
) -> np.ndarray | None:
    """What is added to scores of the given shape: the mask, and -inf where a key may not be attended to."""
    allowed: np.ndarray | None = None
    bias: np.ndarray | None = None
    if mask is not None:
        require(0 < mask.ndim <= 4, f"attn_mask of shape {mask.shape} must have 1 to 4 axes")
        boolean = mask.dtype == np.bool_
        if not boolean:
            mask = mask.astype(dtype)
        short = shape[3] - mask.shape[-1]
        if short > 0:
            fill = np.full((*mask.shape[:-1], short), False if boolean else -np.inf, mask.dtype)
            mask = np.concatenate((mask, fill), axis=-1)
        extents = (1,) * (4 - mask.ndim) + mask.shape
        require(
            all(m in (1, s) for m, s in zip(extents, shape, strict=True)),
            f"attn_mask of shape {mask.shape} must broadcast to {shape}, (batch, heads, queries, keys)",
        )
        allowed, bias = (mask, None) if boolean else (None, mask)
    keys = np.arange(shape[3])
    place = np.arange(shape[2])[:, None] + offset
    limits = []
    if causal:
        limits.append(keys <= place)
    if left >= 0:
        limits.append(keys >= place - left)
    if right >= 0:
        limits.append(keys <= place + right)
    if valid is not None:
        limits.append(keys < valid.reshape(-1, 1, 1, 1))
    for limit in limits:
        allowed = limit if allowed is None else allowed & limit
    if allowed is None:
        return bias
    return np.where(allowed, dtype.type(0) if bias is None else bias, dtype.type(-np.inf))


@kernel("Attention")
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    n_out: int,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:
    out_dtype, value_dtype, packed = q.dtype, v.dtype, q.ndim == 3
    require(
        q.ndim == k.ndim == v.ndim and q.ndim in (3, 4),
        f"Q, K and V must all have 3 or all have 4 axes, found shapes {q.shape}, {k.shape}, {v.shape}",
    )
    require(min(left_window_size, right_window_size) >= -1, "window sizes must be -1 or more")
    require(qk_matmul_output_mode in (0, 1, 2, 3), f"qk_matmul_output_mode {qk_matmul_output_mode} must be 0 to 3")
    if packed:
        q, k, v = (
            _split_heads(q, q_num_heads, "Q"),
            _split_heads(k, kv_num_heads, "K"),
            _split_heads(v, kv_num_heads, "V"),
        )
    require((past_key is None) == (past_value is None), "past_key and past_value must be given together")
    if past_key is not None and past_value is not None:
        require(nonpad_kv_seqlen is None, "nonpad_kv_seqlen must not be given together with past_key")
        for name, past, now in (("past_key", past_key, k), ("past_value", past_value, v)):
            fits = past.ndim == 4 and past.shape[:2] == now.shape[:2] and past.shape[3] == now.shape[3]
            require(fits, f"{name} of shape {past.shape} does not fit the incoming {now.shape}")
        k, v = np.concatenate((past_key, k), axis=2), np.concatenate((past_value, v), axis=2)
    _check_heads(q, k, v)
    if nonpad_kv_seqlen is not None:
        fits = nonpad_kv_seqlen.shape == q.shape[:1]
        require(fits, f"nonpad_kv_seqlen of shape {nonpad_kv_seqlen.shape} must be ({q.shape[0]},)")
        if nonpad_kv_seqlen.size and not 0 <= nonpad_kv_seqlen.min() <= nonpad_kv_seqlen.max() <= k.shape[2]:
            raise KernelError(f"nonpad_kv_seqlen {nonpad_kv_seqlen.tolist()} must lie in [0, {k.shape[2]}]")

    dtype = compute_dtype(q.dtype)
    root = np.asarray(sqrt(1 / sqrt(q.shape[3] or 1) if scale is None else scale)).astype(out_dtype)
    raw = _shared_matmul(widen(q * root), widen((k * root).swapaxes(2, 3))).astype(out_dtype, copy=False)
    capped = dtype.type(softcap) * np.tanh(widen(raw) / dtype.type(softcap)) if softcap > 0 else widen(raw)
    offset = _causal_offset(q.shape[2], past_key, nonpad_kv_seqlen)
    bias = _attention_bias(
        raw.shape, dtype, attn_mask, nonpad_kv_seqlen, offset, bool(is_causal), left_window_size, right_window_size
    )
    biased = (capped if bias is None else capped + bias).astype(out_dtype, copy=False)
    precision = out_dtype if softmax_precision is None else numeric_type(softmax_precision, "softmax_precision")
    p = _softmax(biased, precision)
    if bias is not None and bias.shape[-1]:
        p = np.where(np.isneginf(bias.max(axis=-1, keepdims=True)), p.dtype.type(0), p)
    p = p.astype(out_dtype, copy=False)
    y = _shared_matmul(p.astype(dtype, copy=False), v.astype(dtype, copy=False)).astype(out_dtype, copy=False)
    scores = (raw, capped, biased, p)[qk_matmul_output_mode]
    return results(
        (_join_heads(y) if packed else y, k, v.astype(value_dtype, copy=False), scores.astype(out_dtype, copy=False)),
        n_out,
    )


@kernel("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    scale: float | None = None,
    softmax_precision: int | None = None,
    score_mod: Callable[..., Any] | None = None,
    prob_mod: Callable[..., Any] | None = None,
) -> np.ndarray:
    require(
        q.ndim == k.ndim == v.ndim == 4, f"Q, K and V must have 4 axes, found shapes {q.shape}, {k.shape}, {v.shape}"
    )
    _check_heads(q, k, v)
    dtype = compute_dtype(q.dtype)
    precision = dtype if softmax_precision is None else numeric_type(softmax_precision, "softmax_precision")
    factor = dtype.type(1 / sqrt(q.shape[3] or 1) if scale is None else scale)
    scores = _shared_matmul(widen(q), widen(k).swapaxes(2, 3)) * factor
    scores = _modified(scores.astype(precision, copy=False), score_mod, "score_mod")
    p = _modified(_softmax(scores, precision).astype(precision, copy=False), prob_mod, "prob_mod")
    return _shared_matmul(p.astype(dtype, copy=False), widen(v)).astype(q.dtype, copy=False)


def _modified(x: np.ndarray, body: Callable[..., Any] | None, name: str) -> np.ndarray:
    """What the graph makes of x, which must keep its shape and dtype."""
    if body is None:
        return x
    (result,) = body(x)
    require(
        result.shape == x.shape and result.dtype == x.dtype,
        f"{name} must keep {x.dtype} of shape {x.shape}, it gave {result.dtype} of shape {result.shape}",
    )
    return result


@kernel("RotaryEmbedding")
def rotary_embedding(
    x: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
    interleaved: int = 0,
) -> np.ndarray:
    require(x.ndim in (3, 4), f"X of shape {x.shape} must have 3 or 4 axes")
    packed = x.ndim == 3
    data = _split_heads(x, num_heads, "X") if packed else x
    batch, _, sequence, size = data.shape
    turned = rotary_embedding_dim or size
    require(
        0 <= turned <= size and turned % 2 == 0,
        f"the rotated part ({turned} of the head size {size}) must be even and no larger than the head",
    )
    require(cos_cache.shape == sin_cache.shape, f"caches must agree: {cos_cache.shape} and {sin_cache.shape}")
    cos, sin = cos_cache, sin_cache
    if position_ids is not None:
        require(cos.ndim == 2, f"with position_ids a cache must have 2 axes, found shape {cos.shape}")
        require(
            position_ids.shape == (batch, sequence),
            f"position_ids must have shape {(batch, sequence)}, found {position_ids.shape}",
        )
        if position_ids.size and not 0 <= position_ids.min() <= position_ids.max() < cos.shape[0]:
            raise KernelError(f"position_ids must lie in [0, {cos.shape[0] - 1}], the rows of the caches")
        cos, sin = cos[position_ids], sin[position_ids]
    require(
        cos.shape == (batch, sequence, turned // 2),
        f"caches must give {(batch, sequence, turned // 2)}, found {cos.shape}",
    )
    cos, sin = widen(cos)[:, None], widen(sin)[:, None]
    wide = widen(data)
    y = np.empty(data.shape, x.dtype)
    if interleaved:
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    a, b = wide[..., first], wide[..., second]
    y[..., first] = (cos * a - sin * b).astype(x.dtype, copy=False)
    y[..., second] = (sin * a + cos * b).astype(x.dtype, copy=False)
    y[..., turned:] = data[..., turned:]
    return _join_heads(y) if packed else y


@kernel("LinearAttention")
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int = 64,
) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence token by token, in float32, as the op defines it; ``chunk_size`` is a hint and has no effect."""
    del chunk_size
    rules = ("linear", "gated", "delta", "gated_delta")
    require(update_rule in rules, f"update_rule {update_rule!r} must be one of {', '.join(rules)}")
    gated, delta = "gated" in update_rule, "delta" in update_rule
    require(gated == (decay is not None), f"decay {'must' if gated else 'must not'} be given for {update_rule!r}")
    require(delta == (beta is not None), f"beta {'must' if delta else 'must not'} be given for {update_rule!r}")
    for name, x in (("query", query), ("key", key), ("value", value), ("decay", decay), ("beta", beta)):
        fits = x is None or (x.ndim == 3 and x.shape[:2] == query.shape[:2])
        require(fits, f"{name} must have shape (B, T, ...) like query {query.shape}, found {x is not None and x.shape}")
    q, k, v = (
        widen(_split_heads(x, heads, name))
        for x, heads, name in (
            (query, q_num_heads, "query"),
            (key, kv_num_heads, "key"),
            (value, kv_num_heads, "value"),
        )
    )
    _check_heads(q, k, v)
    batch, heads, tokens, depth = k.shape
    shape = (batch, heads, depth, v.shape[3])
    require(past_state is None or past_state.shape == shape, f"past_state must have shape {shape}")
    state_dtype = query.dtype if past_state is None else past_state.dtype
    state = np.zeros(shape, q.dtype) if past_state is None else past_state.astype(q.dtype)
    gate = rate = None
    if decay is not None:
        sizes = (heads, heads * depth)
        require(decay.shape[2] in sizes, f"the last extent of decay must be one of {sizes}, found {decay.shape[2]}")
        gate = np.exp(widen(_split_heads(decay, heads, "decay")))
    if beta is not None:
        require(beta.shape[2] in (1, heads), f"the last extent of beta must be 1 or {heads}, found {beta.shape[2]}")
        rate = widen(beta).transpose(0, 2, 1)[..., None]
    factor = q.dtype.type(scale or 1 / sqrt(depth or 1))
    y = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
    for t in range(tokens):
        row, write = k[:, :, t, None, :], v[:, :, t, None, :]
        if gate is not None:
            state = state * gate[:, :, t, :, None]
        if rate is not None:
            write = rate[:, :, t, None, :] * (write - np.matmul(row, state))
        state = state + row.swapaxes(2, 3) * write
        y[:, :, t] = _shared_matmul(q[:, :, t, None, :], state)[:, :, 0]
    y *= factor
    return _join_heads(y).astype(query.dtype, copy=False), state.astype(state_dtype, copy=False)


@kernel("TensorScatter")
def tensor_scatter(
    past_cache: np.ndarray,
    update: np.ndarray,
    write_indices: np.ndarray | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> np.ndarray:
    axis = normalize_axis(axis, past_cache.ndim)
    require(axis != 0, "axis must not be the batch axis 0")
    require(mode in ("linear", "circular"), f"mode {mode!r} must be 'linear' or 'circular'")
    batch, longest = past_cache.shape[0], past_cache.shape[axis]
    length = update.shape[axis] if update.ndim == past_cache.ndim else -1
    expected = (*past_cache.shape[:axis], length, *past_cache.shape[axis + 1 :])
    require(
        update.shape == expected and length <= longest,
        f"update of shape {update.shape} must be past_cache of shape {past_cache.shape}, no longer along axis {axis}",
    )
    start = np.zeros(batch, np.int64) if write_indices is None else write_indices
    require(start.shape == (batch,), f"write_indices of shape {start.shape} must be ({batch},)")
    result = past_cache.copy()
    if not update.size:
        return result
    if mode == "linear" and not 0 <= start.min() <= start.max() <= longest - length:
        raise KernelError(
            f"write_indices {start.tolist()} put {length} entries outside the {longest} of axis {axis}; "
            "mode 'circular' wraps around"
        )
    target, source = np.moveaxis(result, axis, 1), np.moveaxis(update, axis, 1)
    at = (start[:, None] + np.arange(length)) % longest
    target[np.arange(batch)[:, None], at] = source
    return result
