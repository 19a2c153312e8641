"""Small networks, in irkit's builder, with the weights and batches that torch gets too.

``make_goldens.py`` holds the same networks in torch. Weights are in torch's layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import irkit as ik

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
STEPS, CLASSES = 100, 4


class _Maker:
    """Draws weights in order, each scaled by its number of inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.made: Weights = {}

    def dense(self, name: str, *shape: int, bias: bool = True) -> None:
        fan = int(np.prod(shape[1:]))
        self.made[f"{name}.w"] = (self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
        if bias:
            self.made[f"{name}.b"] = (0.1 * self.rng.standard_normal(shape[0])).astype(np.float32)

    def norm(self, name: str, size: int) -> None:
        self.made[f"{name}.w"] = (1 + 0.1 * self.rng.standard_normal(size)).astype(np.float32)
        self.made[f"{name}.b"] = (0.1 * self.rng.standard_normal(size)).astype(np.float32)


def _mlp_weights() -> Weights:
    m = _Maker(1)
    m.dense("fc1", 32, 16)
    m.dense("fc2", 32, 32)
    m.dense("fc3", CLASSES, 32)
    return m.made


def _cnn_weights() -> Weights:
    m = _Maker(2)
    m.dense("c1", 8, 1, 3, 3)
    m.dense("c2", 12, 8, 3, 3)
    m.dense("fc", CLASSES, 12 * 3 * 3)
    return m.made


def _mobile_weights() -> Weights:
    m = _Maker(3)
    m.dense("stem", 8, 3, 3, 3, bias=False)
    m.norm("bn0", 8)
    for i in (1, 2):
        m.dense(f"expand{i}", 16, 8, 1, 1, bias=False)
        m.norm(f"bn{i}a", 16)
        m.dense(f"depth{i}", 16, 1, 3, 3, bias=False)
        m.norm(f"bn{i}b", 16)
        m.dense(f"project{i}", 8, 16, 1, 1, bias=False)
        m.norm(f"bn{i}c", 8)
    m.dense("fc", CLASSES, 8)
    return m.made


def _lstm_weights() -> Weights:
    m = _Maker(4)
    m.dense("x", 4 * 12, 6)
    m.dense("h", 4 * 12, 12)
    m.dense("fc", CLASSES, 12)
    return m.made


def _transformer_weights() -> Weights:
    m = _Maker(5)
    m.made["embed"] = (0.5 * m.rng.standard_normal((20, 16))).astype(np.float32)
    m.made["position"] = (0.1 * m.rng.standard_normal((8, 16))).astype(np.float32)
    for i in (1, 2):
        m.norm(f"ln{i}a", 16)
        m.dense(f"qkv{i}", 48, 16)
        m.dense(f"out{i}", 16, 16)
        m.norm(f"ln{i}b", 16)
        m.dense(f"up{i}", 32, 16)
        m.dense(f"down{i}", 16, 32)
    m.norm("ln", 16)
    m.dense("fc", CLASSES, 16)
    return m.made


# Modules


def _linear(b: Any, x: Any, w: Any, name: str) -> Any:
    return b.Gemm(x, w[f"{name}.w"], w[f"{name}.b"], transB=1)


def _mlp(b: Any, x: Any, w: Any) -> Any:
    return _linear(b, b.Relu(_linear(b, b.Relu(_linear(b, x, w, "fc1")), w, "fc2")), w, "fc3")


def _cnn(b: Any, x: Any, w: Any) -> Any:
    for name in ("c1", "c2"):
        x = b.Relu(b.Conv(x, w[f"{name}.w"], w[f"{name}.b"], pads=[1, 1, 1, 1]))
        x = b.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])
    return _linear(b, b.Flatten(x), w, "fc")


def _mobile(b: Any, x: Any, w: Any) -> Any:
    def norm(value: Any, name: str) -> Any:
        size = w[f"{name}.w"].shape[0]
        mean, variance = np.zeros(size, np.float32), np.ones(size, np.float32)
        kept = b.initializer(mean, f"{name}.mean"), b.initializer(variance, f"{name}.variance")
        return b.BatchNormalization(value, w[f"{name}.w"], w[f"{name}.b"], *kept)

    x = b.Clip(norm(b.Conv(x, w["stem.w"], pads=[1, 1, 1, 1], strides=[2, 2]), "bn0"), 0.0, 6.0)
    for i in (1, 2):
        y = b.Clip(norm(b.Conv(x, w[f"expand{i}.w"]), f"bn{i}a"), 0.0, 6.0)
        y = b.Clip(norm(b.Conv(y, w[f"depth{i}.w"], pads=[1, 1, 1, 1], group=16), f"bn{i}b"), 0.0, 6.0)
        x = x + norm(b.Conv(y, w[f"project{i}.w"]), f"bn{i}c")
    return _linear(b, b.Flatten(b.GlobalAveragePool(x)), w, "fc")


def _lstm(b: Any, x: Any, w: Any) -> Any:
    # torch's gates come as i, f, g, o; ONNX's as i, o, f, c.
    def gates(value: Any, rank: int) -> Any:
        i, f, g, o = b.Split(value, axis=0, num_outputs=4, outputs=4)
        return b.Unsqueeze(b.Concat(i, o, f, g, axis=0), [0])

    bias = b.Concat(gates(w["x.b"], 1), gates(w["h.b"], 1), axis=1)
    _, last, _ = b.LSTM(
        b.Transpose(x, perm=[1, 0, 2]), gates(w["x.w"], 2), gates(w["h.w"], 2), bias, hidden_size=12, outputs=3
    )
    return _linear(b, b.Squeeze(last, [0]), w, "fc")


def _transformer(b: Any, x: Any, w: Any) -> Any:
    def dense(value: Any, name: str) -> Any:
        return value @ b.Transpose(w[f"{name}.w"]) + w[f"{name}.b"]

    def norm(value: Any, name: str) -> Any:
        return b.LayerNormalization(value, w[f"{name}.w"], w[f"{name}.b"])

    x = b.Gather(w["embed"], x) + w["position"]
    for i in (1, 2):
        qkv = dense(norm(x, f"ln{i}a"), f"qkv{i}")
        q, k, v = (
            b.Transpose(b.Reshape(part, [0, 0, 2, 8]), perm=[0, 2, 1, 3])
            for part in b.Split(qkv, axis=-1, num_outputs=3, outputs=3)
        )
        scores = q @ b.Transpose(k, perm=[0, 1, 3, 2]) * float(1 / np.sqrt(8))
        mixed = b.Reshape(b.Transpose(b.Softmax(scores) @ v, perm=[0, 2, 1, 3]), [0, 0, 16])
        x = x + dense(mixed, f"out{i}")
        x = x + dense(b.Gelu(dense(norm(x, f"ln{i}b"), f"up{i}")), f"down{i}")
    return _linear(b, b.ReduceMean(norm(x, "ln"), [1], keepdims=0), w, "fc")


@dataclass(frozen=True)
class Net:
    """A network: its weights, how it is built, and the shape of a sample (integers below 20 where ``tokens``)."""

    weights: Callable[[], Weights]
    build: Callable[[Any, Any, Any], Any]
    sample: tuple[int, ...]
    tokens: bool = False

    def module(self) -> ik.Module:
        b = ik.Builder("net")
        x = b.input("x", "int64" if self.tokens else "float32", ["batch", *self.sample])
        held = {name: b.initializer(value, name) for name, value in self.weights().items()}
        b.output(self.build(b, x, held), "logits")
        return b.module()

    def batches(self, steps: int = STEPS) -> Iterator[tuple[Array, Array]]:
        """Batches of 12 and 8 samples in turn; a sample is a pattern of its class, blurred."""
        rng = np.random.default_rng(7)
        patterns = (
            rng.integers(0, 20, (CLASSES, *self.sample))
            if self.tokens
            else rng.standard_normal((CLASSES, *self.sample))
        )
        for i in range(steps):
            labels = rng.integers(0, CLASSES, 12 if i % 2 == 0 else 8)
            shape = (len(labels), *self.sample)
            if self.tokens:
                kept = rng.random(shape) < 0.4
                yield np.where(kept, patterns[labels], rng.integers(0, 20, shape)), labels
            else:
                yield (0.6 * patterns[labels] + rng.standard_normal(shape)).astype(np.float32), labels


NETS = {
    "mlp": Net(_mlp_weights, _mlp, (16,)),
    "cnn": Net(_cnn_weights, _cnn, (1, 12, 12)),
    "mobile": Net(_mobile_weights, _mobile, (3, 12, 12)),
    "lstm": Net(_lstm_weights, _lstm, (7, 6)),
    "transformer": Net(_transformer_weights, _transformer, (8,), tokens=True),
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: ik.optimizers.SGD(0.02, momentum=0.9),
    "adamw": lambda: ik.optimizers.AdamW(2e-3, weight_decay=0.01, epsilon=1e-8, epsilon_hat=False),
}
