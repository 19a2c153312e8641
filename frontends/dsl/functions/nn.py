"""Matrix products, convolutions, pooling, normalization, losses and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from irkit.errors import InferenceError
from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.errors import failure
from irkit.frontends.dsl.functions.reduce import sum as total
from irkit.frontends.dsl.functions.shape import ints, rank_of
from irkit.frontends.dsl.operators import multiply, pair
from irkit.frontends.dsl.symbol import Symbol


def dot(a: Any, b: Any) -> Symbol:
    """The inner product of vectors, the matrix product of matrices."""
    return make("MatMul", *pair("dot", a, b))


def einsum(equation: str, *operands: Any) -> Symbol:
    """The sum that the equation says: ``einsum("bij,bjk->bik", a, b)``."""
    return make("Einsum", *(convert(o) for o in operands), equation=equation)


def tensordot(a: Any, b: Any, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Symbol:
    """The sum of products over the last ``axes`` axes of a and the first of b, or over those named."""
    x, y = convert(a), convert(b)
    n, m = rank_of(x, "tensordot"), rank_of(y, "tensordot")
    left, right = (list(range(n - axes, n)), list(range(axes))) if isinstance(axes, int) else ([*axes[0]], [*axes[1]])
    if len(left) != len(right):
        raise failure(InferenceError, f"'tensordot' over {len(left)} axes of one and {len(right)} of the other")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    of_x = list(letters[:n])
    of_y = list(letters[n : n + m])
    for i, j in zip(left, right, strict=True):
        of_y[j % m] = of_x[i % n]
    gone = {of_x[i % n] for i in left}
    out = [c for c in (*of_x, *of_y) if c not in gone]
    return einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}", x, y)


def outer(a: Any, b: Any) -> Symbol:
    """The products of all elements of one vector with all of another."""
    return multiply(make("Unsqueeze", convert(a), ints(-1)), b)


def trace(x: Any) -> Symbol:
    """The sum of the diagonal of the last two axes."""
    from irkit.frontends.dsl.functions.shape import diagonal

    return total(diagonal(x), -1)


def det(x: Any) -> Symbol:
    """The determinant of the last two axes."""
    return make("Det", convert(x))


def gemm(a: Any, b: Any, c: Any = None, **options: Any) -> Symbol:
    """``alpha a b + beta c``, either matrix transposed on request (``transA``, ``transB``)."""
    return make("Gemm", convert(a), convert(b), None if c is None else convert(c), **options)


def softmax(x: Any, axis: int = -1) -> Symbol:
    """Exponentials divided by their sum along an axis."""
    return make("Softmax", convert(x), axis=axis)


def log_softmax(x: Any, axis: int = -1) -> Symbol:
    """The logarithm of ``softmax``."""
    return make("LogSoftmax", convert(x), axis=axis)


def conv(x: Any, weights: Any, bias: Any = None, **options: Any) -> Symbol:
    """A convolution, channels first (x: N C spatial..., weights: M C/group kernel...).

    Options: ``strides``, ``pads`` (beginnings, then ends), ``dilations``, ``group``, ``auto_pad``.
    """
    return make("Conv", convert(x), convert(weights), None if bias is None else convert(bias), **options)


def conv_transpose(x: Any, weights: Any, bias: Any = None, **options: Any) -> Symbol:
    """A transposed convolution (weights: C M/group kernel...)."""
    return make("ConvTranspose", convert(x), convert(weights), None if bias is None else convert(bias), **options)


def max_pool(x: Any, kernel_shape: Sequence[int], **options: Any) -> Symbol:
    """The maximum of each window of the spatial axes. Options: ``strides``, ``pads``, ``dilations``, ``ceil_mode``."""
    return make("MaxPool", convert(x), kernel_shape=kernel_shape, outputs=1, **options)


def average_pool(x: Any, kernel_shape: Sequence[int], **options: Any) -> Symbol:
    """The mean of each window of the spatial axes. Options: as ``max_pool``, ``count_include_pad``."""
    return make("AveragePool", convert(x), kernel_shape=kernel_shape, **options)


def global_max_pool(x: Any) -> Symbol:
    """The maximum over all spatial axes, kept with size 1."""
    return make("GlobalMaxPool", convert(x))


def global_average_pool(x: Any) -> Symbol:
    """The mean over all spatial axes, kept with size 1."""
    return make("GlobalAveragePool", convert(x))


def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: float = 1e-5) -> Symbol:
    """Normalized by given means and variances per channel (axis 1)."""
    return make("BatchNormalization", *(convert(v) for v in (x, scale, bias, mean, var)), epsilon=epsilon, outputs=1)


def layer_norm(x: Any, scale: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5) -> Symbol:
    """Normalized over the axes from ``axis`` on."""
    operands = [convert(x), convert(scale), None if bias is None else convert(bias)]
    return make("LayerNormalization", *operands, axis=axis, epsilon=epsilon, outputs=1)


def rms_norm(x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5) -> Symbol:
    """Divided by the root of the mean square over the axes from ``axis`` on."""
    return make("RMSNormalization", convert(x), convert(scale), axis=axis, epsilon=epsilon)


def instance_norm(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Symbol:
    """Normalized per sample and channel."""
    return make("InstanceNormalization", convert(x), convert(scale), convert(bias), epsilon=epsilon)


def dropout(x: Any, rate: float = 0.5) -> Symbol:
    """Each element is zero with this probability, and else divided by one minus it."""
    return make("Dropout", convert(x), rate, True, outputs=1)


def one_hot(indices: Any, depth: int, axis: int = -1, dtype: Any = "float32") -> Symbol:
    """1 at the index, 0 elsewhere, along a new axis."""
    import numpy as np

    from irkit.ir.dtypes import dtype as as_dtype

    values = np.array([0, 1]).astype(as_dtype(dtype).numpy)
    return make("OneHot", convert(indices), np.int64(depth), values, axis=axis)


def cross_entropy(scores: Any, labels: Any, reduction: str = "mean", ignore_index: int | None = None) -> Symbol:
    """The softmax cross entropy of scores (N C ...) and labels (N ..., integers)."""
    options: dict[str, Any] = {} if ignore_index is None else {"ignore_index": ignore_index}
    return make("SoftmaxCrossEntropyLoss", convert(scores), convert(labels), reduction=reduction, outputs=1, **options)


def resize(x: Any, sizes: Sequence[int], mode: str = "nearest", **options: Any) -> Symbol:
    """Resized to these sizes of all axes."""
    return make("Resize", convert(x), None, None, ints(*sizes), mode=mode, **options)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(dot, einsum, tensordot, outer, trace, det, gemm, softmax, log_softmax, conv, conv_transpose, max_pool),
        *(average_pool, global_max_pool, global_average_pool, batch_norm, layer_norm, rms_norm, instance_norm),
        *(dropout, one_hot, cross_entropy, resize),
    )
}
