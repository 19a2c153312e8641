"""Random calls for gradient checks: a generator a family of ops, which draws shapes, attributes and values from a seed.

Values keep clear of kinks: those of ``distinct`` differ from each other by far more than a step of the differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Case = tuple[Any, ...]
"""A function of a builder and Tensors, and the arrays to call it with."""


class Draw:
    """Random shapes, choices and arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, *values: Any) -> Any:
        """One of these."""
        return values[self.int(0, len(values) - 1)]

    def shape(self, low: int = 1, high: int = 4, size: int = 4, least: int = 1) -> tuple[int, ...]:
        """A shape of so many axes."""
        return tuple(self.int(least, size) for _ in range(self.int(low, high)))

    def uniform(self, low: float, high: float, *shape: int) -> Array:
        """Anything between."""
        return np.asarray(self.rng.uniform(low, high, shape))

    def distinct(self, *shape: int) -> Array:
        """Both signs, no two of one magnitude, none near 0."""
        size = int(np.prod(shape))
        values = np.linspace(0.1, 1.0, size + 2)[1 : size + 1] * self.rng.choice([-1, 1], size)
        return self.rng.permutation(values).reshape(shape)

    def spread(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        part = shape[self.int(0, len(shape)) :]
        return tuple(1 if self.rng.random() < 0.3 else d for d in part)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        """Some axes, some of them counted from the end."""
        chosen = self.rng.permutation(rank)[: self.int(min(least, rank), rank)]
        return [int(a) - (rank if self.rng.random() < 0.3 else 0) for a in chosen]


def unary(u: Draw) -> Case:
    name = u.pick(
        *"Neg Abs Exp Sin Cos Tan Atan Sinh Cosh Tanh Asinh Erf Relu Elu Celu Selu Sigmoid HardSwish Softplus".split(),
        *"Softsign Mish Swish LeakyRelu ThresholdedRelu HardSigmoid Gelu Identity Sqrt Log Reciprocal Acosh".split(),
        *"Asin Acos Atanh Shrink".split(),
    )
    shape = u.shape(0, 4, least=0)
    x = u.distinct(*shape) * 0.9
    if name in ("Sqrt", "Log", "Reciprocal"):
        x = np.abs(x) + 0.3
    if name == "Acosh":
        x = np.abs(x) + 1.3
    options = {
        "Elu": {"alpha": u.pick(0.5, 1.0, 2.0)},
        "Celu": {"alpha": u.pick(0.5, 1.0, 2.0)},
        "LeakyRelu": {"alpha": u.pick(-0.5, 0.01, 2.0)},
        "Gelu": {"approximate": u.pick("none", "tanh")},
        "Swish": {"alpha": u.pick(0.5, 1.0, -1.0)},
        # The bounds lie between values that are drawn.
        "ThresholdedRelu": {"alpha": 0.05},
        "Shrink": {"lambd": 0.04, "bias": u.pick(0.0, 0.1)},
    }.get(name, {})
    return lambda b, x: getattr(b, name)(x, **options), x


def binary(u: Draw) -> Case:
    name = u.pick("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "Mod", "PRelu")
    shape = u.shape(0, 4, 3)
    one, other = (shape, u.spread(shape)) if name == "PRelu" or u.rng.random() < 0.5 else (u.spread(shape), shape)
    x, y = u.distinct(*one), u.distinct(*other) * 1.037
    if name in ("Div", "Mod"):
        y = np.sign(y) * (np.abs(y) + 0.5)
    if name == "Pow":
        x = np.abs(x) + 0.2
    if name == "Where":
        mask = u.rng.random(shape) < 0.5
        return lambda b, x, y: b.Where(b.constant(mask), x, y), x, y
    if name == "Mod":
        # Quotients between whole numbers.
        x = (u.rng.integers(-2, 3, np.broadcast_shapes(one, other)) + u.uniform(0.2, 0.8)) * y
        return lambda b, x, y: b.Mod(x, y, fmod=1), x, y
    return lambda b, x, y: getattr(b, name)(x, y), x, y


def variadic(u: Draw) -> Case:
    name = u.pick("Sum", "Mean", "Max", "Min")
    shape = u.shape(1, 3, 3)
    arrays = [u.distinct(*(u.spread(shape) if i else shape)) * (1 + 0.071 * i) for i in range(u.int(1, 4))]
    return (lambda b, *xs: getattr(b, name)(*xs), *arrays)


def clip(u: Draw) -> Case:
    x = u.distinct(*u.shape(0, 3))
    low, high = np.array(u.pick(-2.0, -0.077, 0.02)), np.array(u.pick(0.0311, 0.0923, 2.0))
    return (lambda b, x, low, high: b.Clip(x, low, high)), x, low, high


def reduction(u: Draw) -> Case:
    name = u.pick(
        *"ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp".split(),
        "ReduceSumSquare",
    )
    shape = u.shape(1, 4, 3)
    axes = u.axes(len(shape), 0)
    x = u.distinct(*shape)
    if name == "ReduceLogSum":
        x = np.abs(x) + 0.1
    options = {"keepdims": u.int(0, 1), "noop_with_empty_axes": u.int(0, 1)}
    given = [np.array(axes, np.int64)] if axes or u.rng.random() < 0.5 else []
    return lambda b, x: getattr(b, name)(x, *given, **options), x


def cumulative(u: Draw) -> Case:
    name = u.pick("CumSum", "CumProd")
    shape = u.shape(1, 3)
    axis = u.int(-len(shape), len(shape) - 1)
    options = {"exclusive": u.int(0, 1), "reverse": u.int(0, 1)}
    x = u.distinct(*shape)
    if u.rng.random() < 0.3 and name == "CumProd":
        x.flat[u.int(0, x.size - 1)] = 0.0
    return lambda b, x: getattr(b, name)(x, np.int64(axis), **options), x


def softmax(u: Draw) -> Case:
    name = u.pick("Softmax", "LogSoftmax")
    shape = u.shape(1, 4)
    axis = u.int(-len(shape), len(shape) - 1)
    return lambda b, x: getattr(b, name)(x, axis=axis), u.uniform(-2, 2, *shape)


def matmul(u: Draw) -> Case:
    n, k, m = (u.int(1, 4) for _ in range(3))
    batch = u.shape(0, 2, 3)
    left = () if u.rng.random() < 0.2 else (n,)
    right = () if u.rng.random() < 0.2 else (m,)
    x = u.uniform(-1, 1, *(u.spread(batch) if left else ()), *left, k)
    y = u.uniform(-1, 1, *(u.spread(batch) if right else ()), k, *right)
    return (lambda b, x, y: b.MatMul(x, y)), x, y


def gemm(u: Draw) -> Case:
    n, k, m = (u.int(1, 4) for _ in range(3))
    a, t = u.int(0, 1), u.int(0, 1)
    x, y = u.uniform(-1, 1, *((k, n) if a else (n, k))), u.uniform(-1, 1, *((m, k) if t else (k, m)))
    options = {"transA": a, "transB": t, "alpha": u.pick(1.0, -0.5), "beta": u.pick(1.0, 2.0)}
    if u.rng.random() < 0.3:
        return (lambda b, x, y: b.Gemm(x, y, **options)), x, y
    return (lambda b, x, y, c: b.Gemm(x, y, c, **options)), x, y, u.uniform(-1, 1, *u.spread((n, m)))


def einsum(u: Draw) -> Case:
    sizes = {label: u.int(1, 3) for label in "abcd"}
    terms = ["".join(u.rng.choice(list("abcd"), u.int(1, 3))) for _ in range(u.int(1, 3))]
    known = sorted(set("".join(terms)))
    out = "".join(u.rng.permutation(known)[: u.int(0, len(known))])
    # A label of size 1 in one operand repeats along the others.
    arrays = [
        u.uniform(-1, 1, *(1 if u.rng.random() < 0.1 and t.count(c) == 1 else sizes[c] for c in t)) for t in terms
    ]
    present = {c: max(a.shape[t.index(c)] for t, a in zip(terms, arrays, strict=True) if c in t) for c in known}
    assert all(present[c] in (1, sizes[c]) for c in known)
    equation = f"{','.join(terms)}->{out}"
    return (lambda b, *xs: b.Einsum(*xs, equation=equation), *arrays)


def transposed(u: Draw) -> Case:
    shape = u.shape(1, 4)
    perm = [int(p) for p in u.rng.permutation(len(shape))]
    return lambda b, x: b.Mul(b.Transpose(x, perm=perm), b.Transpose(x, perm=perm)), u.uniform(-1, 1, *shape)


def reshaped(u: Draw) -> Case:
    shape = u.shape(1, 4)
    kind = u.pick("Reshape", "Flatten", "Unsqueeze", "Squeeze", "Expand", "Tile")
    x = u.uniform(-1, 1, *shape)
    rank = len(shape)
    match kind:
        case "Reshape":
            return lambda b, x: b.Sin(b.Reshape(x, np.array([-1, shape[-1]]))), x
        case "Flatten":
            axis = u.int(0, rank)
            return lambda b, x: b.Sin(b.Flatten(x, axis=axis)), x
        case "Unsqueeze":
            axes = np.array([u.int(0, rank), -1])[: u.int(1, 2)]
            return lambda b, x: b.Sin(b.Unsqueeze(x, axes)), x
        case "Squeeze":
            x = np.expand_dims(x, u.int(0, rank))
            return lambda b, x: b.Sin(b.Squeeze(x)), x
        case "Expand":
            small = u.uniform(-1, 1, *u.spread(shape))
            return lambda b, x: b.Sin(b.Expand(x, np.array([2, *shape]))), small
        case _:
            repeats = np.array([u.int(1, 3) for _ in shape])
            return lambda b, x: b.Sin(b.Tile(x, repeats)), x


def sliced(u: Draw) -> Case:
    shape = u.shape(1, 3, 5)
    axes = sorted({a % len(shape) for a in u.axes(len(shape))})
    starts, ends = [u.int(-6, 5) for _ in axes], [u.int(-6, 6) for _ in axes]
    steps = [u.pick(1, 1, 2, -1, -2) for _ in axes]
    parts = [np.array(v, np.int64) for v in (starts, ends, axes, steps)]
    return lambda b, x: b.Sin(b.Slice(x, *parts)), u.uniform(-1, 1, *shape)


def padded(u: Draw) -> Case:
    mode = u.pick("constant", "reflect", "edge", "wrap")
    shape = u.shape(1, 3, 5, 2)
    low = -1 if mode == "constant" else 0
    pads = np.array([u.int(low, 1 if mode == "reflect" else 2) for _ in range(2 * len(shape))])
    x = u.uniform(-1, 1, *shape)
    if mode == "constant" and u.rng.random() < 0.5:
        return lambda b, x, v: b.Sin(b.Pad(x, pads, v)), x, np.array(0.3)
    return lambda b, x: b.Sin(b.Pad(x, pads, mode=mode)), x


def joined(u: Draw) -> Case:
    shape = u.shape(1, 3)
    axis = u.int(0, len(shape) - 1)
    arrays = [u.uniform(-1, 1, *shape[:axis], u.int(0, 3), *shape[axis + 1 :]) for _ in range(u.int(1, 4))]
    if not sum(a.shape[axis] for a in arrays):
        arrays.append(u.uniform(-1, 1, *shape))
    return (lambda b, *xs: b.Sin(b.Concat(*xs, axis=axis - len(shape))), *arrays)


def split(u: Draw) -> Case:
    shape = u.shape(1, 3)
    axis = u.int(0, len(shape) - 1)
    parts = [u.int(0, 2) for _ in range(u.int(2, 4))]
    x = u.uniform(-1, 1, *shape[:axis], sum(parts) or 1, *shape[axis + 1 :])
    sizes = np.array(parts if sum(parts) else [1, *[0] * (len(parts) - 1)])
    return lambda b, x: b.Split(b.Mul(x, x), sizes, axis=axis, outputs=len(parts)), x


def gathered(u: Draw) -> Case:
    shape = u.shape(1, 3)
    axis = u.int(0, len(shape) - 1)
    n = shape[axis]
    x = u.uniform(-1, 1, *shape)
    kind = u.pick("Gather", "GatherElements", "GatherND")
    if kind == "Gather":
        index = u.rng.integers(-n, n, u.shape(0, 2, 3))
        return lambda b, x: b.Sin(b.Gather(x, index, axis=axis)), x
    if kind == "GatherElements":
        index = u.rng.integers(-n, n, (*shape[:axis], u.int(1, 4), *shape[axis + 1 :]))
        return lambda b, x: b.Sin(b.GatherElements(x, index, axis=axis)), x
    batch = u.int(0, len(shape) - 1)
    depth = u.int(1, len(shape) - batch)
    outer = (*shape[:batch], u.int(1, 3))
    index = np.stack([u.rng.integers(-shape[batch + i], shape[batch + i], outer) for i in range(depth)], -1)
    return lambda b, x: b.Sin(b.GatherND(x, index, batch_dims=batch)), x


def scattered(u: Draw) -> Case:
    shape = u.shape(1, 3)
    reduction = u.pick("none", "add", "mul", "max", "min")
    x = u.distinct(*shape)
    if u.rng.random() < 0.5:
        axis = u.int(0, len(shape) - 1)
        count = u.int(1, shape[axis])
        index = u.rng.integers(0, shape[axis], (*shape[:axis], count, *shape[axis + 1 :]))
        if reduction == "none":
            # Which of several writers wins is not specified.
            index = np.moveaxis(np.broadcast_to(np.arange(count), np.moveaxis(index, axis, -1).shape), -1, axis).copy()
        updates = u.distinct(*index.shape) * 1.0173
        return lambda b, x, v: b.ScatterElements(x, index, v, axis=axis, reduction=reduction), x, updates
    rows = u.rng.permutation(shape[0])[: u.int(1, shape[0])] if reduction == "none" else u.rng.integers(0, shape[0], 3)
    updates = u.distinct(len(rows), *shape[1:]) * 1.0173
    return lambda b, x, v: b.ScatterND(x, rows[:, None], v, reduction=reduction), x, updates


def picked(u: Draw) -> Case:
    shape = u.shape(1, 3)
    x = u.distinct(*shape)
    axis = u.int(0, len(shape) - 1)
    match u.pick("TopK", "Compress", "Trilu", "ReverseSequence", "DepthToSpace"):
        case "TopK":
            k, largest = u.int(1, shape[axis]), u.int(0, 1)
            return lambda b, x: b.TopK(x, np.array([k]), axis=axis, largest=largest)[0], x
        case "Compress":
            mask = u.rng.random(shape[axis]) < 0.6
            return lambda b, x: b.Sin(b.Compress(x, b.constant(mask), axis=axis)), x
        case "Trilu":
            x = u.uniform(-1, 1, *u.shape(2, 3))
            k, upper = u.int(-3, 3), u.int(0, 1)
            return lambda b, x: b.Sin(b.Trilu(x, np.int64(k), upper=upper)), x
        case "ReverseSequence":
            x = u.uniform(-1, 1, *u.shape(2, 3))
            time = u.int(0, 1)
            lengths = u.rng.integers(1, x.shape[time] + 1, x.shape[1 - time])
            return lambda b, x: b.Sin(b.ReverseSequence(x, lengths, time_axis=time, batch_axis=1 - time)), x
        case _:
            mode, size = u.pick("DCR", "CRD"), 2
            x = u.uniform(-1, 1, u.int(1, 2), 4 * u.int(1, 2), u.int(1, 3), u.int(1, 3))
            return lambda b, x: b.Sin(b.DepthToSpace(x, blocksize=size, mode=mode)), x


def _window(u: Draw, rank: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Sizes of an image, and a window that fits into it."""
    kernel = [u.int(1, 3) for _ in range(rank)]
    strides, dilations = [u.int(1, 3) for _ in range(rank)], [u.int(1, 2) for _ in range(rank)]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = tuple(e + u.int(0, 4) for e in extent)
    options: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if u.rng.random() < 0.25:
        options["auto_pad"] = u.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        if options["auto_pad"] != "VALID":
            options["dilations"] = [1] * rank
    else:
        options["pads"] = [u.int(0, k - 1) for k in kernel * 2]
    return sizes, options


def conv(u: Draw) -> Case:
    rank, group = u.int(1, 2), u.int(1, 3)
    sizes, options = _window(u, rank)
    channels, filters = group * u.int(1, 2), group * u.int(1, 2)
    x = u.uniform(-1, 1, u.int(1, 2), channels, *sizes)
    w = u.uniform(-1, 1, filters, channels // group, *options["kernel_shape"])
    if u.rng.random() < 0.5:
        return (lambda b, x, w: b.Conv(x, w, group=group, **options)), x, w
    return (lambda b, x, w, c: b.Conv(x, w, c, group=group, **options)), x, w, u.uniform(-1, 1, filters)


def conv_transpose(u: Draw) -> Case:
    rank, group = u.int(1, 2), u.int(1, 2)
    kernel, strides = [u.int(1, 3) for _ in range(rank)], [u.int(1, 3) for _ in range(rank)]
    options: dict[str, Any] = {"strides": strides, "dilations": [u.int(1, 2) for _ in range(rank)], "group": group}
    options["output_padding"] = [u.int(0, s - 1) for s in strides]
    options["pads"] = [u.int(0, 1) if k > 1 else 0 for k in kernel * 2]
    channels, filters = group * u.int(1, 2), u.int(1, 2)
    x = u.uniform(-1, 1, u.int(1, 2), channels, *(u.int(2, 4) for _ in range(rank)))
    return (lambda b, x, w: b.ConvTranspose(x, w, **options)), x, u.uniform(-1, 1, channels, filters, *kernel)


def pool(u: Draw) -> Case:
    name = u.pick("AveragePool", "MaxPool", "LpPool")
    sizes, options = _window(u, u.int(1, 2))
    options["ceil_mode"] = u.int(0, 1) if "auto_pad" not in options else 0
    if name == "AveragePool":
        options["count_include_pad"] = u.int(0, 1)
    if name == "LpPool":
        options["p"] = u.int(1, 3)
    x = u.distinct(u.int(1, 2), u.int(1, 2), *sizes)
    return lambda b, x: getattr(b, name)(x, **options), x


def normalized(u: Draw) -> Case:
    kind = u.pick("batch", "training", "instance", "layer", "rms", "group", "lrn", "lp", "mvn")
    shape = (u.int(2, 3), 2 * u.int(1, 2), *u.shape(1, 2, 3, 2))
    x, c = u.uniform(-1, 1, *shape), shape[1]
    scale, bias = u.uniform(0.5, 1.5, c), u.uniform(-1, 1, c)
    e = u.pick(1e-2, 1e-1)
    match kind:
        case "batch":
            rest = (u.uniform(-1, 1, c), u.uniform(0.5, 1.5, c))
            return lambda b, *v: b.BatchNormalization(*v, epsilon=e), x, scale, bias, *rest
        case "training":
            rest = (u.uniform(-1, 1, c), u.uniform(0.5, 1.5, c))

            def build(b: Any, x: Any, s: Any, o: Any) -> Any:
                return b.BatchNormalization(x, s, o, *rest, epsilon=e, training_mode=1, outputs=3)[0]

            return build, x, scale, bias
        case "instance":
            return lambda b, *v: b.InstanceNormalization(*v, epsilon=e), x, scale, bias
        case "layer" | "rms":
            axis = u.int(-len(shape), len(shape) - 1)
            part = u.spread(shape[axis:])
            if kind == "rms":
                return (
                    lambda b, x, s: b.RMSNormalization(x, s, axis=axis, epsilon=e, stash_type=11),
                    x,
                    u.uniform(0.5, 1.5, *part),
                )
            return (
                lambda b, *v: b.LayerNormalization(*v, axis=axis, epsilon=e, stash_type=11),
                x,
                u.uniform(0.5, 1.5, *part),
                u.uniform(-1, 1, *part),
            )
        case "group":
            groups = u.pick(1, 2)
            return (
                lambda b, *v: b.GroupNormalization(*v, num_groups=groups, epsilon=e, stash_type=11),
                x,
                scale,
                bias,
            )
        case "lrn":
            size = u.int(1, 4)
            return lambda b, x: b.LRN(x, size=size, alpha=0.5, beta=0.7, bias=1.5), x
        case "lp":
            axis, p = u.int(-1, len(shape) - 1), u.int(1, 2)
            return lambda b, x: b.LpNormalization(x, axis=axis, p=p), u.distinct(*shape)
        case _:
            axes = sorted({a % len(shape) for a in u.axes(len(shape))} | {0})
            return lambda b, x: b.MeanVarianceNormalization(x, axes=axes), x


def loss(u: Draw) -> Case:
    n, c, rest = u.int(1, 3), u.int(2, 4), u.shape(0, 2, 2)
    target = u.rng.integers(0, c, (n, *rest))
    options: dict[str, Any] = {"reduction": u.pick("none", "sum", "mean")}
    if u.rng.random() < 0.3:
        options["ignore_index"] = u.int(0, c - 1)
        target.flat[0] = (options["ignore_index"] + 1) % c
    name = u.pick("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    x = u.uniform(-1, 1, n, c, *rest)
    if u.rng.random() < 0.5:
        return lambda b, x: getattr(b, name)(x, target, **options), x
    return lambda b, x, w: getattr(b, name)(x, target, w, **options), x, u.uniform(0.5, 1.5, c)


def resized(u: Draw) -> Case:
    mode = u.pick("nearest", "linear", "cubic")
    options: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": u.pick(
            "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"
        ),
    }
    if mode == "cubic":
        options |= {"cubic_coeff_a": u.pick(-0.5, -0.75), "exclude_outside": u.int(0, 1)}
    if mode != "nearest":
        options["antialias"] = u.int(0, 1)
    if mode == "nearest":
        options["nearest_mode"] = u.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    x = u.uniform(-1, 1, 1, u.int(1, 2), u.int(2, 5), u.int(2, 5))
    sizes = np.array([u.int(1, 7), u.int(1, 7)])
    return lambda b, x: b.Resize(x, None, None, sizes, axes=[2, 3], **options), x


def sampled(u: Draw) -> Case:
    mode, padding = u.pick("linear", "cubic"), u.pick("zeros", "border", "reflection")
    corners = u.int(0, 1)
    x = u.uniform(-1, 1, 1, u.int(1, 2), u.int(3, 5), u.int(3, 5))
    grid = u.uniform(-0.7, 0.7, 1, u.int(1, 3), u.int(1, 3), 2)
    return lambda b, x, g: b.GridSample(x, g, mode=mode, padding_mode=padding, align_corners=corners), x, grid


def attention(u: Draw) -> Case:
    batch, heads, group = u.int(1, 2), u.int(1, 2), u.int(1, 2)
    queries, keys, size, out = u.int(1, 3), u.int(1, 4), u.int(1, 3), u.int(1, 3)
    q = u.uniform(-1, 1, batch, heads * group, queries, size)
    k, v = u.uniform(-1, 1, batch, heads, keys, size), u.uniform(-1, 1, batch, heads, keys, out)
    options: dict[str, Any] = {"is_causal": u.int(0, 1), "softmax_precision": 11}
    if u.rng.random() < 0.3:
        options["scale"] = 0.7
    if u.rng.random() < 0.3:
        options["softcap"] = 2.0
    if u.rng.random() < 0.5:
        return lambda b, *x: b.Attention(*x, **options), q, k, v
    return lambda b, *x: b.Attention(*x, **options), q, k, v, u.uniform(-1, 1, queries, keys)


def recurrent(u: Draw) -> Case:
    name = u.pick("RNN", "GRU", "LSTM")
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    direction = u.pick("forward", "reverse", "bidirectional")
    d, hidden, size = 2 if direction == "bidirectional" else 1, u.int(1, 3), u.int(1, 3)
    steps, batch = u.int(1, 4), u.int(1, 2)
    options: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        options["linear_before_reset"] = u.int(0, 1)
    x = u.uniform(-1, 1, steps, batch, size)
    w, r = u.uniform(-1, 1, d, gates * hidden, size), u.uniform(-1, 1, d, gates * hidden, hidden)
    outputs = 3 if name == "LSTM" else 2
    if u.rng.random() < 0.5:
        return (lambda b, *v: getattr(b, name)(*v, outputs=outputs, **options)), x, w, r
    bias = u.uniform(-1, 1, d, 2 * gates * hidden)
    return (lambda b, *v: getattr(b, name)(*v, outputs=outputs, **options)), x, w, r, bias


def fourier(u: Draw) -> Case:
    n = u.int(2, 6)
    x = u.uniform(-1, 1, u.int(1, 2), n, u.pick(1, 2))
    onesided = u.int(0, 1) if x.shape[-1] == 1 else 0
    length = u.pick(None, np.int64(n + 2), np.int64(n - 1))
    inverse = 0 if onesided else u.int(0, 1)
    return lambda b, x: b.DFT(x, length, np.int64(1), inverse=inverse, onesided=onesided), x


def looped(u: Draw) -> Case:
    n, scan = u.int(1, 4), u.rng.random() < 0.5
    w = u.uniform(-1, 1, 3, 3)
    if scan:
        options = {"scan_input_directions": [u.int(0, 1)], "scan_output_directions": [u.int(0, 1)]}

        def scanned(b: Any, s: Any, x: Any, w: Any) -> Any:
            def body(b: Any, s: Any, x: Any) -> Any:
                s = b.Tanh(b.Add(b.MatMul(s, w), x))
                return s, b.Mul(s, x)

            return b.Scan(s, x, num_scan_inputs=1, body=body, **options)

        return scanned, u.uniform(-1, 1, 3), u.uniform(-1, 1, n, 3), w

    def loop(b: Any, s: Any, w: Any) -> Any:
        return b.Loop(n, None, s, body=lambda b, i, c, s: (c, b.Sin(b.MatMul(s, w)), s))

    return loop, u.uniform(-1, 1, 3), w


def network(u: Draw) -> Case:
    """A composition of several ops, where every value has more than one use."""
    shape = u.shape(1, 3, 3)
    names = [str(u.rng.choice("Tanh Sin Sigmoid Softplus Exp Erf Atan".split())) for _ in range(u.int(2, 6))]
    picks = [(u.int(0, i), u.int(0, i)) for i in range(len(names))]

    def build(b: Any, x: Any) -> Any:
        values = [x]
        for name, (i, j) in zip(names, picks, strict=True):
            values.append(getattr(b, name)(b.Mul(values[i], values[j])))
        return b.Sum(*values)

    return build, u.uniform(-1, 1, *shape)


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    made.__name__: made
    for made in (
        *(unary, binary, variadic, clip, reduction, cumulative, softmax, matmul, gemm, einsum, transposed, reshaped),
        *(sliced, padded, joined, split, gathered, scattered, picked, conv, conv_transpose, pool, normalized, loss),
        *(resized, sampled, attention, recurrent, fourier, looped, network),
    )
}
