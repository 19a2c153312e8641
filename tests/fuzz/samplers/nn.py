"""Convolutions and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import OpSpec

from ..generate import Call, Context, Reject, allowed
from ..graph import Value
from ..registry import exact, samples, scale

exact("MaxPool GlobalMaxPool MaxUnpool ConvInteger")
scale("RNN GRU LSTM", lambda operands: 1.0)


def window(g: Context, sizes: tuple[int, ...], *, pads: bool = True, dilated: bool = True) -> dict[str, Any]:
    """A window that fits into these sizes: kernel_shape, and strides, dilations and pads or auto_pad at times."""
    kernel = [g.between(1, min(3, size)) for size in sizes]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if g.below(2):
        found["strides"] = [g.between(1, 3) for _ in sizes]
    if pads and g.chance(4):
        found["auto_pad"] = g.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
        return found
    if dilated and g.chance(3):
        found["dilations"] = [
            g.between(1, max(1, min(3, (s - 1) // max(k - 1, 1)))) for s, k in zip(sizes, kernel, strict=True)
        ]
    if pads and g.below(2):
        # A window that lies in the padding alone has no largest element.
        found["pads"] = [g.between(0, k - 1) for k in kernel * 2]
    return found


def image(g: Context, spec: OpSpec, kinds: list | None = None, span: tuple[float, float] | None = (-9, 9)) -> Value:
    """N x C x 1 to 3 spatial axes."""
    return g.take(
        allowed(spec, 0) if kinds is None else kinds,
        3,
        5,
        least=1,
        span=span,
        shape=lambda: (*g.dims(2, 2, 1, 3), *(g.between(2, 6) for _ in range(g.pick((2, 1, 3))))),
    )


@samples("Conv")
def conv(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    attributes, w = _weights(g, x, x.dtype)
    bias = g.make(x.dtype, w.shape[:1]) if g.below(2) else None
    return Call([x, w, bias], attributes)


def _weights(g: Context, x: Value, kind: Any) -> tuple[dict[str, Any], Value]:
    attributes = window(g, x.shape[2:])
    channels = x.shape[1]
    group = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
    w = g.make(kind, (group * g.between(1, 2), channels // group, *attributes["kernel_shape"]))
    if group > 1 or g.below(2):
        attributes["group"] = group
    if g.below(2):
        del attributes["kernel_shape"]
    return attributes, w


@samples("ConvInteger")
def conv_integer(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec, span=None)
    attributes, w = _weights(g, x, g.dtype(allowed(spec, 1)))
    zero = g.make(x.dtype, ()) if g.below(2) else None
    zero_w = g.make(w.dtype, g.pick(((), w.shape[:1]))) if g.below(2) else None
    return Call([x, w, zero, zero_w], attributes)


@samples("QLinearConv")
def qlinear_conv(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec, span=None)
    attributes, w = _weights(g, x, g.dtype(allowed(spec, 3)))
    per = g.pick(((), w.shape[:1]))
    scales = [g.make(BY_NAME["float32"], shape, (0.01, 0.1)) for shape in ((), per)]
    zero_w = Value.of(np.zeros(per, w.array.dtype), "constant") if w.dtype.kind == "int" else g.make(w.dtype, per)
    y = g.dtype([d for d in allowed(spec, 7) if d is x.dtype])
    operands = [x, scales[0], g.make(x.dtype, ()), w, scales[1], zero_w]
    operands += [g.make(BY_NAME["float32"], (), (0.5, 4)), g.make(y, ())]
    bias = g.make(BY_NAME["int32"], w.shape[:1], (-99, 99)) if g.below(2) else None
    return Call([*operands, bias], attributes)


@samples("ConvTranspose")
def conv_transpose(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    sizes, channels = x.shape[2:], x.shape[1]
    kernel = [g.between(1, 3) for _ in sizes]
    group = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
    w = g.make(x.dtype, (channels, g.between(1, 2), *kernel))
    attributes: dict[str, Any] = {"group": group} if group > 1 else {}
    strides = [g.between(1, 3) for _ in sizes]
    attributes |= {"strides": strides}
    if g.chance(3):
        attributes["dilations"] = [g.between(1, 2) for _ in sizes]
    if g.below(2):
        attributes["pads"] = [g.between(0, k - 1) // 2 for k in kernel * 2]
    if g.chance(3):
        attributes["output_padding"] = [g.between(0, s - 1) for s in strides]
    bias = g.make(x.dtype, (group * w.shape[1],)) if g.below(2) else None
    return Call([x, w, bias], attributes)


@samples("DeformConv")
def deform_conv(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 4, 4, least=2, span=(-9, 9))
    batch, channels, *sizes = x.shape
    kernel = [g.between(1, min(2, s)) for s in sizes]
    group = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
    offsets = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
    pads = [g.between(0, 1) for _ in range(4)]
    strides = [g.between(1, 2) for _ in sizes]
    out = [(s + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, s in enumerate(sizes)]
    points = offsets * kernel[0] * kernel[1]
    w = g.make(x.dtype, (group * g.between(1, 2), channels // group, *kernel))
    offset = g.make(x.dtype, (batch, points * 2, *out), (-1.5, 1.5))
    bias = g.make(x.dtype, w.shape[:1]) if g.below(2) else None
    mask = g.make(x.dtype, (batch, points, *out), (0, 1)) if g.below(2) else None
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides, "group": group, "offset_group": offsets}
    return Call([x, w, offset, bias, mask], attributes)


@samples("AveragePool LpPool MaxPool")
def pools(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    name = spec.op_type
    attributes = window(g, x.shape[2:])
    if g.chance(3) and "auto_pad" not in attributes:
        attributes["ceil_mode"] = 1
    if name == "LpPool":
        attributes |= g.maybe(p=[1, 2, 3])
    if name == "AveragePool":
        attributes |= g.maybe(count_include_pad=1)
    if name == "MaxPool":
        two = g.below(2)
        return Call([x], attributes | (g.maybe(storage_order=1) if two else {}), outputs=1 + two)
    return Call([x], attributes)


@samples("GlobalAveragePool GlobalLpPool GlobalMaxPool")
def global_pools(g: Context, spec: OpSpec) -> Call:
    return Call([image(g, spec)], g.maybe(p=[1, 2, 3]) if spec.op_type == "GlobalLpPool" else {})


@samples("MaxUnpool")
def max_unpool(g: Context, spec: OpSpec) -> Call:
    x = image(g, spec)
    sizes = x.shape[2:]
    kernel = [g.between(1, 2) for _ in sizes]
    out = [s * k for s, k in zip(sizes, kernel, strict=True)]
    places = g.rng().permutation(x.shape[0] * x.shape[1] * int(np.prod(out)))[: x.array.size]
    indices = g.given(np.sort(places).reshape(x.shape))
    operands = [x, indices]
    if g.below(2):
        operands.append(g.given([*x.shape[:2], *(o + g.below(2) for o in out)]))
    return Call(operands, {"kernel_shape": kernel, "strides": kernel})


@samples("Col2Im")
def col2im(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    if kind.kind in ("string", "bool"):
        raise Reject("no sums")
    sizes, block = [g.between(2, 4) for _ in range(2)], [g.between(1, 2) for _ in range(2)]
    attributes = g.maybe(strides=[[2, 1], [1, 2]], pads=[[1, 0, 0, 1], [1, 1, 1, 1]], dilations=[[1, 2], [2, 1]])
    steps, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
    spread = attributes.get("dilations", [1, 1])
    counts = [(sizes[i] + pads[i] + pads[i + 2] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1 for i in range(2)]
    if min(counts) < 1:
        raise Reject("no blocks")
    x = g.make(kind, (g.between(1, 2), g.between(1, 2) * block[0] * block[1], counts[0] * counts[1]))
    return Call([x, g.given(sizes), g.given(block)], attributes)


@samples("CausalConvWithState")
def causal_conv(g: Context, spec: OpSpec) -> Call:
    kind = g.dtype(allowed(spec, 0))
    batch, channels, length, width = (g.between(1, 3) for _ in range(4))
    operands = [g.make(kind, (batch, channels, length), (-2, 2)), g.make(kind, (channels, 1, width), (-2, 2))]
    operands.append(g.make(kind, (channels,), (-2, 2)) if g.below(2) else None)
    operands.append(g.make(kind, (batch, channels, width - 1), (-2, 2)) if g.below(2) else None)
    return Call(operands, g.maybe(activation=["silu", "swish", "none"]), outputs=2)


@samples("RNN GRU LSTM")
def recurrent(g: Context, spec: OpSpec) -> Call:
    name = spec.op_type
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    kind = g.dtype(allowed(spec, 0))
    length, batch, width, hidden = (g.between(1, 3) for _ in range(4))
    direction = g.pick(("forward", "reverse", "bidirectional"))
    ways, flip = (2 if direction == "bidirectional" else 1), g.chance(5)

    def make(*shape: int) -> Value:
        return g.make(kind, shape, (-1, 1))

    def state() -> Value | None:
        return make(*((batch, ways, hidden) if flip else (ways, batch, hidden))) if g.below(2) else None

    x = make(*((batch, length, width) if flip else (length, batch, width)))
    operands: list[Any] = [x, make(ways, gates * hidden, width), make(ways, gates * hidden, hidden)]
    operands.append(make(ways, 2 * gates * hidden) if g.below(2) else None)
    operands.append(g.make(BY_NAME["int32"], (batch,), (1, length)) if g.chance(3) else None)
    operands.append(state())
    if name == "LSTM":
        operands += [state(), make(ways, 3 * hidden) if g.chance(3) else None]
    attributes: dict[str, Any] = {"hidden_size": hidden} | g.maybe(clip=[0.5, 4.0])
    attributes |= {"direction": direction} if direction != "forward" else {}
    attributes |= {"layout": 1} if flip else {}
    if g.chance(3):
        known = ["Tanh", "Relu", "Sigmoid", "Softsign", "HardSigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "Elu"]
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[name] * ways
        attributes["activations"] = [g.pick(known) for _ in range(count)]
    if name == "GRU":
        attributes |= g.maybe(linear_before_reset=1)
    return Call(operands, attributes, outputs=3 if name == "LSTM" else 2)
