"""Gradients in float32 on stock onnxruntime, and in narrow floats on NumPy: the numbers of float32 on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.passes.autodiff.transform import differentiate

RNG = np.random.default_rng(10)
Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def recurrent(name: str, gates: int, states: int, **options: Any) -> tuple[Any, list[Array]]:
    arrays = [draw(4, 2, 3), draw(1, gates * 3, 3), draw(1, gates * 3, 3), draw(1, 2 * gates * 3)]
    return lambda b, *v: b.op(name, *v, outputs=1 + states, hidden_size=3, **options)[0], arrays


CASES: dict[str, tuple[Any, list[Array]]] = {
    "conv": (
        lambda b, *v: b.Conv(*v, strides=[2, 3], pads=[0, 1, 2, 0], group=2),
        [draw(2, 4, 8, 9), draw(6, 2, 3, 2), draw(6)],
    ),
    "depthwise": (
        lambda b, *v: b.Conv(*v, auto_pad="SAME_UPPER", strides=[2, 2], group=4),
        [draw(2, 4, 7, 6), draw(8, 1, 3, 3)],
    ),
    "conv-transpose": (
        lambda b, *v: b.ConvTranspose(*v, strides=[2, 2], output_padding=[1, 0], pads=[0, 1, 1, 0], group=2),
        [draw(1, 4, 3, 4), draw(4, 2, 3, 3), draw(4)],
    ),
    "average-pool": (
        lambda b, x: b.AveragePool(x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, pads=[1, 0, 0, 1]),
        [draw(2, 3, 8, 7)],
    ),
    "max-pool": (lambda b, x: b.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), [draw(2, 3, 8, 7)]),
    "max-pool-apart": (lambda b, x: b.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2]), [draw(2, 3, 8, 8)]),
    "global-pools": (lambda b, x: b.Mul(b.GlobalAveragePool(x), b.GlobalMaxPool(x)), [draw(2, 3, 4, 5)]),
    "batch-normalization": (
        lambda b, *v: b.BatchNormalization(*v),
        [draw(2, 3, 4), draw(3), draw(3), draw(3), np.abs(draw(3)) + 1],
    ),
    "training": (
        lambda b, *v: b.BatchNormalization(
            *v, np.zeros(3, np.float32), np.ones(3, np.float32), training_mode=1, outputs=3
        )[0],
        [draw(2, 3, 4), draw(3), draw(3)],
    ),
    "layer-normalization": (lambda b, *v: b.LayerNormalization(*v), [draw(2, 3, 8), draw(8), draw(8)]),
    "instance-normalization": (lambda b, *v: b.InstanceNormalization(*v), [draw(2, 3, 8), draw(3), draw(3)]),
    "group-normalization": (lambda b, *v: b.GroupNormalization(*v, num_groups=2), [draw(2, 4, 8), draw(4), draw(4)]),
    "softmax": (lambda b, x: b.Mul(b.Softmax(x), b.LogSoftmax(x)), [draw(3, 5)]),
    "loss": (
        lambda b, x: b.SoftmaxCrossEntropyLoss(x, np.array([1, 0, 3]), ignore_index=0),
        [draw(3, 4)],
    ),
    "lrn": (lambda b, x: b.LRN(x, size=3), [draw(2, 5, 3, 3)]),
    "resize": (
        lambda b, x: b.Resize(x, None, np.array([1, 1, 1.5, 0.7], np.float32), mode="linear"),
        [draw(1, 2, 4, 6)],
    ),
    "resize-cubic": (
        lambda b, x: b.Resize(x, None, None, np.array([1, 2, 7, 5]), mode="cubic"),
        [draw(1, 2, 4, 6)],
    ),
    "grid-sample": (lambda b, *v: b.GridSample(*v), [draw(1, 2, 4, 4), draw(1, 3, 3, 2)]),
    "roi-align": (
        lambda b, *v: b.RoiAlign(*v, np.array([0]), output_height=2),
        [draw(1, 2, 5, 5), np.array([[0.2, 0.4, 2.9, 3.5]], np.float32)],
    ),
    "stft": (lambda b, x, w: b.STFT(x, np.int64(2), w), [draw(1, 9, 1), draw(4)]),
    "attention": (lambda b, *v: b.Attention(*v, is_causal=1), [draw(1, 2, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4)]),
    "rnn": recurrent("RNN", 1, 1, direction="reverse"),
    "gru": recurrent("GRU", 3, 1, linear_before_reset=1),
    "lstm": recurrent("LSTM", 4, 2),
}


def backward(name: str, kind: str = "float32") -> tuple[ik.Module, dict[str, Array]]:
    """The gradients of a case, with its operands; the first axis of the first one is of unknown size, as a batch is."""
    build, arrays = CASES[name]
    b = ik.Builder("gradients")
    values = [
        b.input(f"x{i}", kind, ["batch", *a.shape[1:]] if i == 0 else list(a.shape)) for i, a in enumerate(arrays)
    ]
    assert values[0].dtype is not None
    narrow = values[0].dtype.numpy
    y = build(b, *values)
    places = b.Range(np.int64(0), b.Size(y), np.int64(1))
    seed = b.CastLike(b.Sub(b.Mod(b.Reshape(places, b.Shape(y)), np.int64(3)), np.int64(1)), y)
    seed = b.Add(seed, np.asarray(0.5, narrow))
    for i, found in enumerate(differentiate(b, [y], values, [seed])):
        assert found is not None
        b.output(found, f"dx{i}")
    return b.module(), {f"x{i}": a.astype(narrow) for i, a in enumerate(arrays)}


@pytest.mark.parametrize("name", CASES)
def test_both_backends_agree(name: str) -> None:
    pytest.importorskip("onnxruntime")
    module, feeds = backward(name)
    expected = ik.compile(module, backend="numpy").run(feeds)
    found = ik.compile(module, backend="onnxruntime").run(feeds)
    for key, value in expected.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_narrow_floats(name: str, kind: str) -> None:
    module, feeds = backward(name)
    narrow, rounded = backward(name, kind)
    expected = ik.compile(module, backend="numpy").run(feeds)
    found = ik.compile(narrow, backend="numpy").run(rounded)
    for key, value in expected.items():
        assert found[key].dtype == rounded["x0"].dtype
        # What comes in is rounded, and every step.
        share = 0.02 if kind == "float16" else 0.15
        np.testing.assert_allclose(found[key].astype(np.float32), value, atol=share * np.abs(value).max())
