"""Attention against loops over queries and keys, and the ops around it."""

from __future__ import annotations

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)
PREVIEW = "ai.onnx.preview"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def naive(q, k, v, *, scale=None, softcap=0.0, bias=None, allowed=None):
    """Attention over the keys a query may attend to, and the raw scores; all (batch, heads, sequence, size)."""
    batch, heads, rows, size = q.shape
    share = heads // k.shape[1]
    scale = 1 / math.sqrt(size) if scale is None else scale
    y = np.zeros((batch, heads, rows, v.shape[3]))
    raw = np.zeros((batch, heads, rows, k.shape[2]))
    for b, h, i in product(range(batch), range(heads), range(rows)):
        weights = []
        for j in range(k.shape[2]):
            raw[b, h, i, j] = score = scale * float(np.dot(q[b, h, i].astype(float), k[b, h // share, j].astype(float)))
            if softcap:
                score = softcap * math.tanh(score / softcap)
            if bias is not None:
                score += float(np.broadcast_to(bias, (batch, heads, rows, k.shape[2]))[b, h, i, j])
            weights.append(math.exp(score) if allowed is None or allowed(b, h, i, j) else 0.0)
        if sum(weights):
            y[b, h, i] = sum(w / sum(weights) * v[b, h // share, j].astype(float) for j, w in enumerate(weights))
    return y, raw


def test_grouped_heads_scale_softcap_and_float_mask(op):
    q, k, v, mask = floats(2, 4, 3, 5), floats(2, 2, 6, 5), floats(2, 2, 6, 4), floats(4, 3, 6)
    got, _, _, raw = op("Attention", q, k, v, mask, n_out=4, scale=0.7, softcap=1.5)
    expected, scores = naive(q, k, v, scale=0.7, softcap=1.5, bias=mask)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(raw, scores, rtol=1e-4, atol=1e-5)
    capped = 1.5 * np.tanh(scores / 1.5)
    for mode, want in ((1, capped), (2, capped + mask)):
        output = op("Attention", q, k, v, mask, n_out=4, scale=0.7, softcap=1.5, qk_matmul_output_mode=mode)[3]
        np.testing.assert_allclose(output, want, rtol=1e-4, atol=1e-5)
    p = op("Attention", q, k, v, mask, n_out=4, qk_matmul_output_mode=3)[3]
    np.testing.assert_allclose(p.sum(axis=-1), np.ones((2, 4, 3)), rtol=1e-5)


def test_packed_heads_and_past(op):
    q, k, v = floats(2, 3, 8), floats(2, 2, 4), floats(2, 2, 6)
    past_k, past_v = floats(2, 1, 5, 4), floats(2, 1, 5, 6)
    y, key, value = op("Attention", q, k, v, None, past_k, past_v, n_out=3, q_num_heads=2, kv_num_heads=1, is_causal=1)
    keys, values = (
        np.concatenate((past_k[:, 0], k), axis=1)[:, None],
        np.concatenate((past_v[:, 0], v), axis=1)[:, None],
    )
    np.testing.assert_array_equal(key, keys)
    np.testing.assert_array_equal(value, values)
    heads = np.stack((q[..., :4], q[..., 4:]), axis=1)
    expected, _ = naive(heads, keys, values, allowed=lambda b, h, i, j: j <= i + 5)
    np.testing.assert_allclose(y, np.concatenate((expected[:, 0], expected[:, 1]), axis=2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("left", "right", "causal"), [(1, -1, 0), (-1, 0, 0), (2, 1, 0), (1, 1, 1), (0, 0, 0)])
def test_windows_are_counted_from_the_absolute_position(op, left, right, causal):
    q, k, v = floats(2, 1, 3, 4), floats(2, 1, 6, 4), floats(2, 1, 6, 4)
    lengths = np.array([5, 2])

    def allowed(b, h, i, j):
        p = i + int(lengths[b]) - 3
        return (
            j < lengths[b] and (left < 0 or j >= p - left) and (right < 0 or j <= p + right) and (not causal or j <= p)
        )

    got = op(
        "Attention",
        q,
        k,
        v,
        None,
        None,
        None,
        lengths,
        left_window_size=left,
        right_window_size=right,
        is_causal=causal,
    )
    expected, _ = naive(q, k, v, allowed=allowed)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert not expected[1, 0, 0].any() or not causal


def test_masks_that_are_short_or_allow_nothing(op):
    q, k, v = floats(1, 1, 2, 4), floats(1, 1, 3, 4), floats(1, 1, 3, 4)
    mask = np.array([[True, True], [False, False]])
    expected, _ = naive(q, k, v, allowed=lambda b, h, i, j: i == 0 and j < 2)
    y, _, _, p = op("Attention", q, k, v, mask, n_out=4, qk_matmul_output_mode=3)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert y[0, 0, 1].tolist() == [0] * 4
    assert p[0, 0, 1].tolist() == [0] * 3
    added = np.where(mask, np.float32(0), np.float32(-np.inf))
    np.testing.assert_array_equal(op("Attention", q, k, v, added), y)
    # A score of +inf does not undo a mask.
    q[0, 0, 1] = np.inf
    assert op("Attention", q, k, v, mask)[0, 0, 1].tolist() == [0] * 4


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float64])
def test_attention_keeps_the_dtype(op, dtype):
    q, k, v = (floats(1, 2, 3, 4).astype(dtype) for _ in range(3))
    y, key, value, scores = op("Attention", q, k, v, n_out=4, softmax_precision=1)
    assert {a.dtype for a in (y, key, value, scores)} == {np.dtype(dtype)}
    tolerance = 1e-9 if dtype == np.float64 else 0.03
    if dtype == np.float64:
        y = op("Attention", q, k, v)
    np.testing.assert_allclose(y.astype(float), naive(q, k, v)[0], rtol=tolerance, atol=tolerance)


def test_attention_of_nothing(op):
    assert op("Attention", floats(0, 2, 3, 4), floats(0, 2, 5, 4), floats(0, 2, 5, 6)).shape == (0, 2, 3, 6)
    no_keys = op("Attention", floats(1, 1, 2, 4), floats(1, 1, 0, 4), floats(1, 1, 0, 3), is_causal=1)
    assert no_keys.tolist() == [[[[0] * 3] * 2]]


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        (((1, 2, 3, 4), (1, 2, 5, 3), (1, 2, 5, 4)), {}, "do not fit"),
        (((1, 3, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), {}, "3 query heads must be a multiple of 2"),
        (((1, 3, 4), (1, 5, 4), (1, 5, 4)), {}, "the number of heads must be given for Q"),
        (((1, 3, 5), (1, 5, 4), (1, 5, 4)), {"q_num_heads": 2, "kv_num_heads": 2}, "multiple of 2 heads"),
        (((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), (2, 5)), {}, "must broadcast"),
        (((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), None, (1, 1, 2, 4)), {}, "given together"),
        (((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)), {"left_window_size": -2}, "window sizes"),
    ],
)
def test_attention_refuses(op, shapes, attributes, message):
    with pytest.raises(KernelError, match=message):
        op("Attention", *(None if s is None else floats(*s) for s in shapes), **attributes)


def test_attention_refuses_lengths_out_of_range(op):
    q = floats(1, 1, 2, 4)
    with pytest.raises(KernelError, match=r"nonpad_kv_seqlen \[3\] must lie in \[0, 2\]"):
        op("Attention", q, q, q, None, None, None, np.array([3]))


def test_flex_attention(op):
    q, k, v = floats(1, 4, 2, 3), floats(1, 2, 5, 3), floats(1, 2, 5, 2)
    plain = op("FlexAttention", q, k, v, domain=PREVIEW, scale=0.5)
    np.testing.assert_allclose(plain, naive(q, k, v, scale=0.5)[0], rtol=1e-4, atol=1e-5)
    bias = floats(1, 4, 2, 5)
    got = op(
        "FlexAttention",
        q,
        k,
        v,
        domain=PREVIEW,
        score_mod=lambda s: (s + bias,),
        prob_mod=lambda p: (p * np.float32(2),),
    )
    np.testing.assert_allclose(got, 2 * naive(q, k, v, bias=bias)[0], rtol=1e-4, atol=1e-5)
    half = q.astype(np.float16), k.astype(np.float16), v.astype(np.float16)
    seen = []
    op("FlexAttention", *half, domain=PREVIEW, score_mod=lambda s: (seen.append(s.dtype) or s,))
    op("FlexAttention", *half, domain=PREVIEW, score_mod=lambda s: (seen.append(s.dtype) or s,), softmax_precision=10)
    assert seen == [np.float32, np.float16]
    with pytest.raises(KernelError, match="score_mod must keep float32"):
        op("FlexAttention", q, k, v, domain=PREVIEW, score_mod=lambda s: (s[:, :1],))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
def test_rotary_embedding(op, interleaved, turned):
    x = floats(2, 2, 3, 6)
    width = turned or 6
    angle = floats(5, width // 2)
    cos, sin = np.cos(angle), np.sin(angle)
    positions = np.array([[0, 4, 2], [1, 1, 3]])
    expected = x.copy()
    for b, h, s, i in product(range(2), range(2), range(3), range(width // 2)):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + width // 2)
        c, t = cos[positions[b, s], i], sin[positions[b, s], i]
        a, z = x[b, h, s, first], x[b, h, s, second]
        expected[b, h, s, first], expected[b, h, s, second] = c * a - t * z, t * a + c * z
    options = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    np.testing.assert_allclose(op("RotaryEmbedding", x, cos, sin, positions, **options), expected, rtol=1e-5, atol=1e-6)
    packed = x.transpose(0, 2, 1, 3).reshape(2, 3, 12)
    got = op("RotaryEmbedding", packed, cos[positions], sin[positions], num_heads=2, **options)
    np.testing.assert_allclose(got, expected.transpose(0, 2, 1, 3).reshape(2, 3, 12), rtol=1e-5, atol=1e-6)


def test_rotary_embedding_refuses(op):
    x, cache = floats(1, 1, 2, 4), floats(3, 2)
    with pytest.raises(KernelError, match=r"position_ids must lie in \[0, 2\]"):
        op("RotaryEmbedding", x, cache, cache, np.array([[0, 3]]))
    with pytest.raises(KernelError, match="must be even"):
        op("RotaryEmbedding", x, cache, cache, np.array([[0, 1]]), rotary_embedding_dim=3)
    with pytest.raises(KernelError, match="caches must give"):
        op("RotaryEmbedding", x, cache, cache)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("wide_decay", [False, True])
def test_linear_attention_is_its_recurrence(op, rule, wide_decay):
    tokens, heads, groups, dk, dv = 4, 2, 2, 3, 2
    q, k, v = floats(2, tokens, heads * groups * dk), floats(2, tokens, heads * dk), floats(2, tokens, heads * dv)
    past = floats(2, heads, dk, dv)
    decay = -np.abs(floats(2, tokens, heads * (dk if wide_decay else 1))) if "gated" in rule else None
    beta = np.abs(floats(2, tokens, heads)) if "delta" in rule else None
    y, state = op(
        "LinearAttention",
        q,
        k,
        v,
        past,
        decay,
        beta,
        n_out=2,
        update_rule=rule,
        q_num_heads=4,
        kv_num_heads=2,
        scale=0.5,
    )
    for b, h in product(range(2), range(heads)):
        s = past[b, h].astype(float)
        for t in range(tokens):
            kt, vt = k[b, t, h * dk : (h + 1) * dk], v[b, t, h * dv : (h + 1) * dv]
            if decay is not None:
                g = decay[b, t, h * dk : (h + 1) * dk] if wide_decay else decay[b, t, h]
                s = s * np.exp(np.broadcast_to(g, dk))[:, None]
            if beta is not None:
                vt = beta[b, t, h] * (vt - s.T @ kt)
            s = s + np.outer(kt, vt)
            for r in range(groups):
                n = h * groups + r
                expected = 0.5 * q[b, t, n * dk : (n + 1) * dk] @ s
                np.testing.assert_allclose(y[b, t, n * dv : (n + 1) * dv], expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(state[b, h], s, rtol=1e-3, atol=1e-5)


def test_linear_attention_refuses_and_keeps_types(op):
    q, heads = floats(1, 2, 4).astype(np.float16), {"q_num_heads": 2, "kv_num_heads": 2}
    y, state = op("LinearAttention", q, q, q, floats(1, 2, 2, 2), n_out=2, update_rule="linear", **heads)
    assert (y.dtype, state.dtype) == (np.float16, np.float32)
    with pytest.raises(KernelError, match="decay must be given for 'gated'"):
        op("LinearAttention", q, q, q, update_rule="gated", **heads)
    with pytest.raises(KernelError, match="beta must not be given"):
        op("LinearAttention", q, q, q, None, None, q[:, :, :2], update_rule="linear", **heads)


def test_tensor_scatter(op):
    cache = np.arange(24).reshape(2, 3, 4)
    update = -np.arange(1, 13).reshape(2, 3, 2)
    got = op("TensorScatter", cache, update, np.array([1, 2]), axis=-1)
    expected = cache.copy()
    expected[0, :, 1:3], expected[1, :, 2:4] = update[0], update[1]
    np.testing.assert_array_equal(got, expected)
    round_ = op("TensorScatter", cache, update, np.array([3, 5]), axis=2, mode="circular")
    expected = cache.copy()
    expected[0][:, [3, 0]], expected[1][:, [1, 2]] = update[0], update[1]
    np.testing.assert_array_equal(round_, expected)
    with pytest.raises(KernelError, match="mode 'circular' wraps around"):
        op("TensorScatter", cache, update, np.array([1, 3]), axis=-1)
    with pytest.raises(KernelError, match="must not be the batch axis"):
        op("TensorScatter", cache, update, axis=0)
    with pytest.raises(KernelError, match="update of shape"):
        op("TensorScatter", cache, cache[:, :, :1])


@pytest.mark.parametrize("dtype", [np.str_, BF16, ml_dtypes.int4, np.bool_, np.complex64])
def test_tensor_scatter_of_any_type(op, dtype):
    values = np.array([0, 1, 1, 0]).astype(dtype)
    values = values.astype(object) if dtype is np.str_ else values
    got = op("TensorScatter", values.reshape(1, 4, 1), values[1:3].reshape(1, 2, 1))
    assert got.dtype == values.dtype
    assert got.ravel().tolist() == [values[1], values[2], values[2], values[3]]
