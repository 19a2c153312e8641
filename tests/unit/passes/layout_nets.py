"""Nets as NHWC frameworks export them: a Transpose before and after each op that ONNX has for NCHW alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import irkit as ik

__all__ = ["NETS", "Net", "rng_of"]


def rng_of(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


@dataclass(frozen=True)
class Net:
    """A net, how many transposes it has, how few it can have, and why not fewer."""

    build: Callable[[Nhwc], None]
    before: int
    fewest: int
    why: str

    def module(self) -> ik.Module:
        b = Nhwc(self.build.__name__)
        self.build(b)
        return b.b.module()


class Nhwc:
    """Layers on NHWC tensors."""

    def __init__(self, name: str) -> None:
        self.b = ik.Builder(name, opsets={"": 21})
        self.rng = rng_of(name)

    def image(self, size: int = 8, channels: int = 3) -> ik.Tensor:
        return self.b.input("image", "float32", ["N", size, size, channels])

    def weights(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)

    def conv(self, x: ik.Tensor, channels: int, size: int = 3, group: int = 1, stride: int = 1) -> ik.Tensor:
        w = self.weights(channels, int(x.shape[-1]) // group, size, size)
        y = self.b.Transpose(x, perm=[0, 3, 1, 2])
        y = self.b.Conv(y, w, pads=[size // 2] * 4, group=group, strides=[stride, stride])
        return self.b.Transpose(y, perm=[0, 2, 3, 1])

    def block(self, x: ik.Tensor, channels: int, **options: int) -> ik.Tensor:
        """Conv, a normalization as scale and offset, Relu."""
        y = self.conv(x, channels, **options)
        return self.b.Relu(y * self.weights(channels) + self.weights(channels))

    def pool(self, x: ik.Tensor) -> ik.Tensor:
        y = self.b.MaxPool(self.b.Transpose(x, perm=[0, 3, 1, 2]), kernel_shape=[2, 2], strides=[2, 2])
        return self.b.Transpose(y, perm=[0, 2, 3, 1])

    def upsample(self, x: ik.Tensor) -> ik.Tensor:
        scales = np.array([1, 2, 2, 1], np.float32)
        return self.b.Resize(x, None, scales, mode="nearest")

    def dense(self, x: ik.Tensor, units: int) -> ik.Tensor:
        return self.b.MatMul(x, self.weights(int(x.shape[-1]), units)) + self.weights(units)

    def mean(self, x: ik.Tensor, keepdims: int = 0) -> ik.Tensor:
        return self.b.ReduceMean(x, np.array([1, 2]), keepdims=keepdims)


def residual(n: Nhwc) -> None:
    x = n.block(n.image(), 4)
    for _ in range(3):
        x = n.b.Relu(x + n.conv(n.block(x, 4), 4))
    n.b.output(n.dense(n.mean(x), 5), "scores")


def densely_connected(n: Nhwc) -> None:
    x = n.block(n.image(), 4)
    for _ in range(3):
        x = n.b.Concat(x, n.block(x, 2), axis=-1)
    x = n.pool(n.block(x, 4, size=1))
    n.b.output(n.dense(n.mean(x), 5), "scores")


def squeeze_and_excite(n: Nhwc) -> None:
    x = n.block(n.image(), 4)
    for _ in range(2):
        s = n.b.Reshape(n.mean(x), np.array([-1, 1, 1, 4]))
        s = n.b.Sigmoid(n.conv(n.b.Relu(n.conv(s, 2, size=1)), 4, size=1))
        x = n.block(x * s, 4)
    n.b.output(n.mean(x), "features")


def squeeze_and_excite_by_dense(n: Nhwc) -> None:
    x = n.block(n.image(), 4)
    for _ in range(2):
        s = n.b.Sigmoid(n.dense(n.b.Relu(n.dense(n.mean(x), 2)), 4))
        x = n.block(x * n.b.Unsqueeze(s, np.array([1, 2])), 4)
    n.b.output(n.mean(x), "features")


def convnext(n: Nhwc) -> None:
    x = n.conv(n.image(), 4, size=3, stride=2)
    for _ in range(2):
        y = n.conv(x, 4, group=4)
        y = n.b.LayerNormalization(y, n.weights(4), n.weights(4), epsilon=1e-6)
        x = x + n.dense(n.b.Sigmoid(n.dense(y, 8)), 4) * n.weights(4)
    n.b.output(n.dense(n.mean(x), 5), "scores")


def u_net(n: Nhwc) -> None:
    x = n.block(n.image(), 4)
    kept = []
    for channels in (6, 8):
        kept.append(x)
        x = n.block(n.pool(x), channels)
    for skip in reversed(kept):
        x = n.b.Concat(n.upsample(x), skip, axis=3)
        x = n.block(x, int(skip.shape[-1]))
    n.b.output(n.b.Softmax(n.conv(x, 3, size=1), axis=-1), "mask")


def padded(n: Nhwc) -> None:
    """As MobileNet pads before strides, with channels split and shuffled."""
    x = n.block(n.image(), 8)
    x = n.b.Pad(x, np.array([0, 0, 0, 0, 0, 1, 1, 0]))
    first, second = n.b.Split(n.block(x, 8, stride=2), np.array([4, 4]), axis=-1, outputs=2)
    x = n.b.Concat(n.b.Clip(n.block(second, 4), 0.0, 6.0), first, axis=-1)
    x = n.b.Slice(x, np.array([1, 1]), np.array([4, 4]), np.array([1, 2]))
    n.b.output(n.b.ArgMax(n.mean(n.block(x, 4)), axis=-1), "label")


def sequence(n: Nhwc) -> None:
    """Convolutions along one axis, made of such along two: an axis is put in and taken away around each."""
    x = n.b.input("series", "float32", ["N", 9, 3])
    for channels in (4, 4, 6):
        w = n.weights(channels, int(x.shape[-1]), 1, 3)
        y = n.b.Transpose(n.b.Unsqueeze(x, np.array([1])), perm=[0, 3, 1, 2])
        y = n.b.Transpose(n.b.Conv(y, w, pads=[0, 1, 0, 1]), perm=[0, 2, 3, 1])
        x = n.b.Relu(n.b.Squeeze(y, np.array([1])) + n.weights(channels))
    n.b.output(n.b.ReduceMean(x, np.array([1]), keepdims=0), "features")


def quantized(n: Nhwc) -> None:
    x = n.image()
    for _ in range(2):
        x = n.b.QuantizeLinear(x, np.float32(0.1), np.int8(0))
        x = n.block(n.b.DequantizeLinear(x, np.float32(0.1), np.int8(0)), 3)
    n.b.output(x, "map")


IN = "the image is NHWC and the first Conv is not; what is behind the last reduction has no order left"

NETS = {
    net.build.__name__: net
    for net in (
        Net(residual, 14, 1, IN),
        Net(densely_connected, 12, 1, IN),
        Net(squeeze_and_excite, 14, 1, IN),
        Net(squeeze_and_excite_by_dense, 6, 1, IN),
        Net(convnext, 6, 5, f"{IN}; in each block Conv is NCHW, LayerNormalization and MatMul NHWC: in and out"),
        Net(u_net, 16, 2, "the image and the mask are NHWC"),
        Net(padded, 8, 1, IN),
        Net(sequence, 6, 1, "the series has its channels last, Conv first; the mean takes the other axis away"),
        Net(quantized, 4, 2, "the image and the map are NHWC"),
    )
}
