"""The networks on which the NumPy backend is measured: four of the light models, and four that are built here.

Each is an ONNX model with seeded random weights, and feeds for it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import ModelProto

import irkit as ik
from examples.light_models import add_logits_output, light_feeds, light_model

__all__ = ["NETS", "depthwise", "elementwise", "encoder", "mlp"]

OPSET = 21
"""Old enough for every onnxruntime of these years to have a kernel for each op."""

Net = tuple[ModelProto, dict[str, np.ndarray]]


class _Weights:
    """Seeded initializers of a builder: He-normal matrices and filters, small vectors."""

    def __init__(self, b: ik.Builder) -> None:
        self.b = b
        self.rng = np.random.default_rng(0)
        self.count = 0

    def normal(self, *shape: int, fan_in: int) -> ik.Tensor:
        values = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(np.sqrt(2 / fan_in))
        return self.held(values)

    def held(self, values: np.ndarray) -> ik.Tensor:
        self.count += 1
        return self.b.initializer(values, f"w{self.count}")

    def matrix(self, rows: int, columns: int) -> ik.Tensor:
        return self.normal(rows, columns, fan_in=rows)

    def vector(self, size: int, around: float = 0.0) -> ik.Tensor:
        values = around + 0.1 * self.rng.standard_normal(size, dtype=np.float32)
        return self.held(values.astype(np.float32))

    def feed(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape, dtype=np.float32)


def _light(name: str) -> Net:
    model = light_model(name)
    add_logits_output(model)
    return model, light_feeds(model)


def mlp(batch: int = 32, sizes: tuple[int, ...] = (784, 512, 256, 10)) -> Net:
    """Dense layers with Relu between them, and a Softmax."""
    b = ik.Builder("mlp")
    weights = _Weights(b)
    x: Any = b.input("x", "float32", [batch, sizes[0]])
    for rows, columns in pairwise(sizes):
        x = b.Add(b.MatMul(x, weights.matrix(rows, columns)), weights.vector(columns))
        x = b.Relu(x) if columns != sizes[-1] else b.Softmax(x)
    b.output(x, "y")
    return b.module().to_onnx(opset=OPSET), {"x": weights.feed(batch, sizes[0])}


def encoder(width: int = 768, length: int = 128, heads: int = 12) -> Net:
    """One layer of a transformer's encoder (Vaswani et al. 2017) with Gelu, as exporters write it: no fused ops."""
    b = ik.Builder("encoder")
    weights = _Weights(b)
    x: Any = b.input("x", "float32", [1, length, width])

    def dense(value: Any, rows: int, columns: int) -> Any:
        return b.Add(b.MatMul(value, weights.matrix(rows, columns)), weights.vector(columns))

    def split(value: Any, perm: list[int]) -> Any:
        shape = np.array([0, 0, heads, width // heads])
        return b.Transpose(b.Reshape(value, shape), perm=perm)

    def norm(value: Any) -> Any:
        return b.LayerNormalization(value, weights.vector(width, 1.0), weights.vector(width))

    q, k, v = (split(dense(x, width, width), perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = b.Softmax(b.Div(b.MatMul(q, k), np.float32(np.sqrt(width // heads))), axis=-1)
    mixed = b.Reshape(b.Transpose(b.MatMul(scores, v), perm=[0, 2, 1, 3]), np.array([0, 0, width]))
    x = norm(b.Add(x, dense(mixed, width, width)))
    x = norm(b.Add(x, dense(b.Gelu(dense(x, width, 4 * width)), 4 * width, width)))
    b.output(x, "y")
    return b.module().to_onnx(opset=OPSET), {"x": weights.feed(1, length, width)}


def depthwise(size: int = 224) -> Net:
    """The layers of MobileNet (Howard et al. 2017): depthwise and 1x1 convolutions, each with BatchNormalization and
    a Relu that is cut off at 6."""
    b = ik.Builder("depthwise")
    weights = _Weights(b)

    def layer(value: Any, inputs: int, outputs: int, kernel: int, stride: int, group: int = 1) -> Any:
        filters = weights.normal(outputs, inputs // group, kernel, kernel, fan_in=inputs // group * kernel**2)
        pads = [kernel // 2] * 4
        y = b.Conv(value, filters, group=group, strides=[stride] * 2, pads=pads, kernel_shape=[kernel] * 2)
        statistics = weights.vector(outputs), weights.held(np.exp(weights.feed(outputs) * np.float32(0.1)))
        y = b.BatchNormalization(y, weights.vector(outputs, 1.0), weights.vector(outputs), *statistics)
        return b.Clip(y, np.float32(0), np.float32(6))

    x: Any = layer(b.input("x", "float32", [1, 3, size, size]), 3, 32, 3, 2)
    channels = 32
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for outputs, stride in plan:
        x = layer(layer(x, channels, channels, 3, stride, channels), channels, outputs, 1, 1)
        channels = outputs
    x = b.Flatten(b.GlobalAveragePool(x))
    b.output(b.Add(b.MatMul(x, weights.matrix(channels, 1000)), weights.vector(1000)), "y")
    return b.module().to_onnx(opset=OPSET), {"x": weights.feed(1, 3, size, size)}


def elementwise(elements: int, ops: int = 200) -> Net:
    """A chain of Add, Mul, Sub and Max, each of the value before and the input."""
    b = ik.Builder("elementwise")
    x: Any = b.input("x", "float32", [elements])
    y = x
    for _ in range(ops // 4):
        y = b.Max(b.Sub(b.Mul(b.Add(y, x), x), x), x)
    b.output(y, "y")
    feed = 2 * np.random.default_rng(0).random(elements, np.float32) - 1
    return b.module().to_onnx(opset=OPSET), {"x": feed}


NETS: dict[str, Callable[[], Net]] = {
    "squeezenet": lambda: _light("squeezenet"),
    "resnet50": lambda: _light("resnet50"),
    "densenet121": lambda: _light("densenet121"),
    "shufflenet": lambda: _light("shufflenet"),
    "depthwise": depthwise,
    "encoder": encoder,
    "mlp": mlp,
    "elementwise10": lambda: elementwise(10),
    "elementwise1M": lambda: elementwise(1_000_000),
}
"""By name, how each is made."""
