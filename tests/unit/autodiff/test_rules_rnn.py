"""Gradients of recurrent layers and attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import compile as compile_numpy
from irkit.opsets import decompose_op
from tests.unit.autodiff.checks import check
from tests.unit.autodiff.support import gradients, same_gradients

RNG = np.random.default_rng(8)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"direction": "reverse", "clip": 0.9},
    {"direction": "bidirectional", "layout": 1},
]


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape)


def arrays_for(name: str, options: dict[str, Any], *, full: bool = True) -> list[np.ndarray[Any, Any]]:
    """X, W, R, and where ``full`` B, the initial states and P."""
    steps, batch, features, hidden = 3, 2, 2, 2
    count = 2 if options.get("direction") == "bidirectional" else 1
    first = bool(options.get("layout"))
    rows = GATES[name] * hidden
    found = [
        draw(batch, steps, features) if first else draw(steps, batch, features),
        draw(count, rows, features),
        draw(count, rows, hidden),
    ]
    if full:
        states = (batch, count, hidden) if first else (count, batch, hidden)
        found += [draw(count, 2 * rows), *(draw(*states) for _ in range(STATES[name]))]
        if name == "LSTM":
            found.append(draw(count, 3 * hidden))
    return found


def layer(name: str, options: dict[str, Any], lengths: Any = None) -> Any:
    def build(b: Any, x: Any, w: Any, r: Any, *rest: Any) -> Any:
        bias, *others = rest or (None,)
        return b.op(name, x, w, r, bias, lengths, *others, outputs=1 + STATES[name], **options)

    return build


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("options", OPTIONS, ids=["forward", "reverse", "bidirectional"])
def test_recurrent_layer(name: str, options: dict[str, Any]) -> None:
    lengths = np.array([3, 1], np.int32)
    check(layer(name, options, lengths), *arrays_for(name, options), second=False)


@pytest.mark.parametrize("name", GATES)
def test_recurrent_layer_of_unknown_sizes(name: str) -> None:
    check(layer(name, {}), *arrays_for(name, {}, full=False), symbolic=True, second=name == "RNN")


def test_coupled_gates() -> None:
    check(layer("LSTM", {"input_forget": 1}), *arrays_for("LSTM", {}), second=False)


def test_gru_with_the_product_before_the_reset() -> None:
    check(layer("GRU", {"linear_before_reset": 1}), *arrays_for("GRU", {}), second=False)


ACTIVATIONS = "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus".split()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("options", [{}, {"clip": 0.6, "layout": 1}])
def test_scans_of_every_activation_give_what_the_layer_gives(activation: str, options: dict[str, Any]) -> None:
    every: dict[str, Any] = {"activations": [activation], "activation_alpha": [0.4], "activation_beta": [0.3]}
    every |= options
    assert_same_as_scan("RNN", every)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
def test_scans_give_what_the_layers_give(name: str, direction: str, layout: int) -> None:
    options: dict[str, Any] = {"direction": direction, "layout": layout}
    if layout and name != "RNN":
        options["input_forget" if name == "LSTM" else "linear_before_reset"] = 1
    assert_same_as_scan(name, options)


def assert_same_as_scan(name: str, options: dict[str, Any]) -> None:
    arrays = arrays_for(name, options)
    b = ik.Builder("g")
    values = [b.input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(arrays)]
    for i, y in enumerate(layer(name, options, np.array([0, 2], np.int32))(b, *values)):
        b.output(y, f"y{i}")
    module = b.module()
    other = module.clone()
    layers = [op for op in other.block.ops if op.name == f"onnx.{name}"]
    assert layers
    assert all(decompose_op(op, other.ctx) for op in layers)  # type: ignore[arg-type]
    other.verify()
    for found, expected in zip(compile_numpy(other)(*arrays), compile_numpy(module)(*arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


# Attention

ATTENTION: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "plain": ([(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)], {}),
    "causal": ([(1, 2, 4, 2), (1, 2, 4, 2), (1, 2, 4, 2)], {"is_causal": 1, "scale": 0.7}),
    "grouped": ([(1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2)], {"softcap": 1.5}),
    "packed": ([(2, 3, 8), (2, 4, 8), (2, 4, 8)], {"q_num_heads": 2, "kv_num_heads": 2}),
    "windows": ([(1, 1, 5, 2), (1, 1, 5, 2), (1, 1, 5, 2)], {"left_window_size": 1, "right_window_size": 1}),
    "mask": ([(1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 2), (3, 4)], {}),
    "past": ([(1, 2, 2, 2), (1, 2, 2, 2), (1, 2, 2, 2), (2, 4), (1, 2, 2, 2), (1, 2, 2, 2)], {"is_causal": 1}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    shapes, attributes = ATTENTION[name]
    check(lambda b, *v: b.Attention(*v, **attributes), *(draw(*s) for s in shapes))


def test_attention_of_unknown_sizes() -> None:
    check(lambda b, *v: b.Attention(*v, is_causal=1), *(draw(1, 2, 3, 2) for _ in range(3)), symbolic=True)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_attention_with_scores_as_a_result(mode: int) -> None:
    arrays = [draw(*s) for s in ATTENTION["past"][0]]
    attributes: dict[str, Any] = {"outputs": 4, "qk_matmul_output_mode": mode, "softcap": 2.0}
    check(lambda b, *v: b.Attention(*v, **attributes), *arrays, second=False)


def test_attention_with_lengths_of_keys() -> None:
    """The first query of the second sequence comes before any key."""
    lengths = np.array([3, 1])
    q, k, v = draw(2, 1, 2, 2), draw(2, 1, 4, 2), draw(2, 1, 4, 2)

    def build(b: Any, *v: Any) -> Any:
        return b.Attention(*v, None, None, None, lengths, is_causal=1)

    check(build, q, k, v)
    dq, _, dv = gradients(build, q, k, v)
    np.testing.assert_array_equal(dq[1, 0, 0], 0)
    np.testing.assert_array_equal(dv[0, 0, 3], 0)
    assert dv[1, 0, 0].any()


def test_a_masked_row_has_no_gradient() -> None:
    mask = np.array([[False, False, False], [True, False, True]])
    q, k, v = draw(1, 1, 2, 2), draw(1, 1, 3, 2), draw(1, 1, 3, 2)
    dq, dk, dv = gradients(lambda b, *v: b.Attention(*v, mask), q, k, v)
    assert all(np.isfinite(g).all() for g in (dq, dk, dv))
    np.testing.assert_array_equal(dq[0, 0, 0], 0)
    np.testing.assert_array_equal(dv[0, 0, 1], 0)
    assert dq[0, 0, 1].any()
    check(lambda b, *v: b.Attention(*v, mask), q, k, v)


def turned(b: Any, x: Any, cos: Any, sin: Any, attributes: dict[str, Any]) -> Any:
    """RotaryEmbedding of (batch, heads, sequence, 4), with caches of (batch, sequence, half), written out."""
    part = attributes.get("rotary_embedding_dim", 4)
    step = 2 if attributes.get("interleaved") else 1
    starts = (0, 1) if step == 2 else (0, part // 2)
    stops = (part, part) if step == 2 else (part // 2, part)
    first, second = (b.Slice(x, [p], [q], [3], [step]) for p, q in zip(starts, stops, strict=True))
    cos, sin = b.Unsqueeze(cos, [1]), b.Unsqueeze(sin, [1])
    pair = b.Sub(b.Mul(cos, first), b.Mul(sin, second)), b.Add(b.Mul(sin, first), b.Mul(cos, second))
    if step == 2:
        both = b.Concat(*(b.Unsqueeze(v, [4]) for v in pair), axis=4)
        pair = (b.Reshape(both, [0, 0, 0, part]),)
    return b.Concat(*pair, b.Slice(x, [part], [4], [3]), axis=3)


@pytest.mark.parametrize("attributes", [{}, {"interleaved": 1}, {"rotary_embedding_dim": 2}])
def test_rotary_embedding(attributes: dict[str, Any]) -> None:
    """The op is not defined for float64: its gradients are those of the formula, in float32."""
    half = attributes.get("rotary_embedding_dim", 4) // 2
    at = np.array([[0, 3, 1], [2, 2, 4]])
    same_gradients(
        lambda b, *v: b.RotaryEmbedding(*v, at, **attributes),
        lambda b, x, cos, sin: turned(b, x, b.Gather(cos, at), b.Gather(sin, at), attributes),
        draw(2, 2, 3, 4),
        draw(5, half),
        draw(5, half),
    )


def test_rotary_embedding_of_packed_heads() -> None:
    def meant(b: Any, x: Any, cos: Any, sin: Any) -> Any:
        heads = b.Transpose(b.Reshape(x, [2, 3, 2, 4]), perm=[0, 2, 1, 3])
        return b.Reshape(b.Transpose(turned(b, heads, cos, sin, {}), perm=[0, 2, 1, 3]), [2, 3, 8])

    arrays = draw(2, 3, 8), draw(2, 3, 2), draw(2, 3, 2)
    same_gradients(lambda b, *v: b.RotaryEmbedding(*v, num_heads=2), meant, *arrays)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("mode", "start"), [("linear", [1, 2]), ("circular", [4, 0]), ("linear", None)])
def test_tensor_scatter(mode: str, start: list[int] | None, symbolic: bool) -> None:
    at = None if start is None else np.array(start)
    check(lambda b, *v: b.TensorScatter(*v, at, mode=mode), draw(2, 2, 5, 3), draw(2, 2, 3, 3), symbolic=symbolic)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    """The op is not defined for float64: its gradients are those of the recurrence written out, in float32."""
    gated, delta = "gated" in rule, "delta" in rule
    arrays = [draw(1, 3, 8), draw(1, 3, 4), draw(1, 3, 4), draw(1, 2, 2, 2)]
    arrays += [draw(1, 3, 2)] if gated else []
    arrays += [RNG.uniform(0.2, 0.8, (1, 3, 2))] if delta else []

    def build(b: Any, q: Any, k: Any, v: Any, past: Any, *rest: Any) -> Any:
        decay, beta = (rest[0] if gated else None), (rest[-1] if delta else None)
        options: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
        return b.LinearAttention(q, k, v, past, decay, beta, **options)

    def written_out(b: Any, q: Any, k: Any, v: Any, state: Any, *rest: Any) -> Any:
        decay, beta = (rest[0] if gated else None), (rest[-1] if delta else None)
        outputs: list[Any] = []

        def heads(value: Any, t: int, shape: list[int]) -> Any:
            return b.Reshape(b.Gather(value, np.array(t), axis=1), shape)

        for t in range(3):
            row, write = heads(k, t, [1, 2, 1, 2]), heads(v, t, [1, 2, 1, 2])
            if gated:
                state = b.Mul(state, b.Exp(heads(decay, t, [1, 2, 1, 1])))
            if delta:
                write = b.Mul(heads(beta, t, [1, 2, 1, 1]), b.Sub(write, b.MatMul(row, state)))
            state = b.Add(state, b.Mul(heads(k, t, [1, 2, 2, 1]), write))
            y = b.MatMul(heads(q, t, [1, 2, 2, 2]), state)
            outputs.append(b.Reshape(y, [1, 1, 8]))
        return b.Mul(b.Concat(*outputs, axis=1), float(1 / np.sqrt(2)))

    same_gradients(build, written_out, *arrays)


def test_flex_attention() -> None:
    """With a graph that changes the scores, and one that changes what is made of them."""
    check(
        lambda b, *v: b.op(
            "onnx.preview.FlexAttention",
            *v,
            score_mod=lambda b, s: b.Mul(s, b.Tanh(s)),
            prob_mod=lambda b, p: b.Mul(p, 0.5),
        ),
        *(draw(1, 2, 3, 2) for _ in range(3)),
        second=False,
    )
