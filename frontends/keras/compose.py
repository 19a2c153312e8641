"""Operations that are made of others: each written with ``keras.ops``, and traced as what it is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.frontends.keras import adapter
from irkit.frontends.keras.trace import OPERATIONS, Tracer


def compose(*names: str) -> Callable[[Any], Any]:
    """Registers a function of ``keras.ops``, the operation and its arguments, that computes the operation's results."""

    def register(fn: Any) -> Any:
        def hook(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return fn(adapter.api().ops, op, *args, **kwargs)

        OPERATIONS.update(dict.fromkeys(names, hook))
        return fn

    return register


compose("Ndim")(lambda ops, op, x: len(x.shape))
compose("Size")(lambda ops, op, x: math.prod(x.shape))
compose("Isreal")(lambda ops, op, x: ops.ones_like(x, dtype="bool"))
compose("AllClose")(lambda ops, op, a, b: ops.all(ops.isclose(a, b, op.rtol, op.atol, op.equal_nan)))
compose("Diagflat")(lambda ops, op, x: ops.diag(ops.ravel(x), op.k))
compose("PSNR")(lambda ops, op, a, b: 20 * math.log10(op.max_val) - 10 * ops.log10(ops.mean(ops.square(a - b))))
compose("BinaryCrossentropy")(lambda ops, op, target, output: _binary(ops, op, target, output))
compose("Nanargmax", "Nanargmin")(lambda ops, op, x: _nan_arg(ops, op, x))
compose("Lcm")(lambda ops, op, a, b: ops.where(a * b == 0, 0, ops.abs(a * b) // ops.maximum(_gcd(ops, a, b), 1)))
compose("Gcd")(lambda ops, op, a, b: _gcd(ops, a, b))


@compose("Select")
def _select(ops: Any, op: Any, conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Any:
    made = default
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        made = ops.where(condition, choice, made)
    return made


@compose("Trapezoid")
def _trapezoid(ops: Any, op: Any, y: Any) -> Any:
    axis = op.axis % len(y.shape)
    size = y.shape[axis]
    at = [slice(None)] * len(y.shape)
    first, second = list(at), list(at)
    first[axis], second[axis] = slice(0, size - 1), slice(1, size)
    means = (y[tuple(first)] + y[tuple(second)]) / 2
    if op.x is None:
        return ops.sum(means, axis=axis) * op.dx
    width = ops.diff(op.x, axis=-1)
    if len(op.x.shape) == 1:
        width = ops.reshape(width, [-1 if i == axis else 1 for i in range(len(y.shape))])
    return ops.sum(means * width, axis=axis)


@compose("Vander")
def _vander(ops: Any, op: Any, x: Any) -> Any:
    count = x.shape[0] if op.N is None else op.N
    powers = [ops.power(x, float(k)) for k in range(count)]
    made = ops.stack(powers if op.increasing else powers[::-1], axis=-1)
    return ops.cast(made, x.dtype)


@compose("UnravelIndex")
def _unravel_index(ops: Any, op: Any, indices: Any) -> Any:
    found: list[Any] = []
    for size in reversed(op.shape):
        found.insert(0, indices % size)
        indices = indices // size
    return tuple(found)


@compose("Corrcoef")
def _corrcoef(ops: Any, op: Any, x: Any) -> Any:
    off = x - ops.mean(x, axis=-1, keepdims=True)
    covariance = ops.matmul(off, ops.transpose(off))
    deviation = ops.sqrt(ops.diagonal(covariance))
    return covariance / ops.outer(deviation, deviation)


@compose("Correlate")
def _correlate(ops: Any, op: Any, a: Any, b: Any) -> Any:
    """The sums of products of one signal with another moved along it, by a convolution."""
    size = b.shape[0]
    pads = {"valid": (0, 0), "same": (size // 2, (size - 1) // 2), "full": (size - 1, size - 1)}[op.mode]
    wide = ops.pad(a, (pads,)) if any(pads) else a
    made = ops.conv(
        ops.reshape(wide, (1, -1, 1)), ops.reshape(b, (-1, 1, 1)), padding="valid", data_format="channels_last"
    )
    return ops.reshape(made, (-1,))


def _binary(ops: Any, op: Any, target: Any, output: Any) -> Any:
    if op.from_logits:
        output = ops.sigmoid(output)
    output = ops.clip(output, adapter.epsilon(), 1 - adapter.epsilon())
    return -(target * ops.log(output) + (1.0 - target) * ops.log(1.0 - output))


def _log_probabilities(ops: Any, op: Any, output: Any) -> Any:
    """The logarithms of probabilities, or of what becomes them when scaled to the sum 1."""
    if op.from_logits:
        return ops.log_softmax(output, axis=op.axis)
    output = output / ops.sum(output, axis=op.axis, keepdims=True)
    return ops.log(ops.clip(output, adapter.epsilon(), 1 - adapter.epsilon()))


@compose("CategoricalCrossentropy")
def _categorical(ops: Any, op: Any, target: Any, output: Any) -> Any:
    return -ops.sum(target * _log_probabilities(ops, op, output), axis=op.axis)


@compose("SparseCategoricalCrossentropy")
def _sparse(ops: Any, op: Any, target: Any, output: Any) -> Any:
    """Of probabilities, these are not scaled to the sum 1."""
    if op.from_logits:
        logs = ops.log_softmax(output, axis=op.axis)
    else:
        logs = ops.log(ops.clip(output, adapter.epsilon(), 1 - adapter.epsilon()))
    if len(target.shape) == len(output.shape) and target.shape[-1] == 1:
        target = ops.squeeze(target, -1)
    hot = ops.one_hot(ops.cast(target, "int32"), output.shape[op.axis], axis=op.axis, dtype=output.dtype)
    return -ops.sum(hot * logs, axis=op.axis)


def _nan_arg(ops: Any, op: Any, x: Any) -> Any:
    """Of nothing but NaN, Keras gives -1."""
    lowest = type(op).__name__ == "Nanargmin"
    nan = ops.isnan(x)
    clean = ops.where(nan, math.inf if lowest else -math.inf, x)
    found = (ops.argmin if lowest else ops.argmax)(clean, axis=op.axis, keepdims=bool(op.keepdims))
    return ops.where(ops.all(nan, axis=op.axis, keepdims=bool(op.keepdims)), -1, found)


def _gcd(ops: Any, a: Any, b: Any) -> Any:
    """Euclid's algorithm, for all elements until the last is done."""
    dtype = adapter.result_type([getattr(v, "dtype", int) for v in (a, b)])
    a, b = (
        ops.abs(ops.cast(a, dtype)) + ops.zeros_like(b, dtype=dtype),
        ops.abs(ops.cast(b, dtype)) + ops.zeros_like(a, dtype=dtype),
    )

    def step(x: Any, y: Any) -> Any:
        done = y == 0
        return ops.where(done, x, y), ops.where(done, 0, x % ops.where(done, 1, y))

    return ops.while_loop(lambda x, y: ops.any(y != 0), step, (a, b))[0]


@compose("Rearrange")
def _rearrange(ops: Any, op: Any, x: Any, pattern: str, **sizes: Any) -> Any:
    """Axes taken apart, moved and put together as a pattern says: ``b (h p) c -> b h (p c)``."""
    before, after = (
        [re.findall(r"\w+", group) for group in re.findall(r"\([^)]*\)|\w+", side)] for side in pattern.split("->")
    )
    known: dict[str, Any] = dict(sizes)
    for group, size in zip(before, x.shape, strict=True):
        missing = [name for name in group if name not in known]
        rest = size // math.prod(known[name] for name in group if name in known)
        known.update(dict.fromkeys(missing[:1], rest))
    names = [name for group in before for name in group]
    order = [name for group in after for name in group]
    x = ops.reshape(x, [known[name] for name in names])
    x = ops.transpose(x, [names.index(name) for name in order])
    return ops.reshape(x, [math.prod(known[name] for name in group) for group in after])


@compose("GaussianBlur")
def _gaussian_blur(ops: Any, op: Any, images: Any) -> Any:
    """A depthwise convolution with the product of two bell curves, of the same size."""
    channels = images.shape[-1 if adapter.channels_last(op.data_format) else -3]
    lines = []
    for size, sigma in zip(op.kernel_size, ops.unstack(ops.cast(op.sigma, images.dtype), 2), strict=True):
        at = np.arange(size) - (size - 1) / 2
        line = ops.exp(ops.cast(-0.5 * at**2, images.dtype) / ops.square(sigma))
        lines.append(line / ops.sum(line))
    # Keras's sizes and widths are of the horizontal axis first.
    kernel = ops.reshape(ops.outer(*reversed(lines)), (*reversed(op.kernel_size), 1, 1))
    kernel = ops.tile(kernel, (1, 1, channels, 1))
    single = len(images.shape) == 3
    batch = ops.expand_dims(images, 0) if single else images
    made = ops.depthwise_conv(batch, kernel, strides=1, padding="same", data_format=op.data_format)
    return ops.squeeze(made, 0) if single else made


def _affine_transform(tracer: Tracer, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where each pixel of the result comes from: (x, y) times the matrix of the first six numbers, sampled there."""
    images, transform = args
    ops = adapter.api().ops
    single = len(images.shape) == 3
    batch = ops.expand_dims(images, 0) if single else images
    transform = ops.expand_dims(transform, 0) if len(transform.shape) == 1 else transform
    last = adapter.channels_last(op.data_format)
    height, width = batch.shape[1:3] if last else batch.shape[2:4]
    rows = ops.expand_dims(ops.arange(height, dtype="float32"), 1)
    columns = ops.expand_dims(ops.arange(width, dtype="float32"), 0)
    a = [ops.reshape(ops.cast(transform[:, k], "float32"), (-1, 1, 1)) for k in range(6)]
    x, y = (a[k] * columns + a[k + 1] * rows + a[k + 2] for k in (0, 3))
    made = tracer.primitive(
        "grid_sample",
        (batch, ops.stack([x, y], axis=-1)),
        adapter.symbol(batch.shape, batch.dtype),
        last=last,
        interpolation=op.interpolation,
        fill_mode=op.fill_mode,
        fill_value=float(op.fill_value),
    )
    return ops.squeeze(made, 0) if single else made


OPERATIONS["AffineTransform"] = _affine_transform
