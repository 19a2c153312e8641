"""Activation functions by Keras's names: functions of a value of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from irkit.errors import IrkitError
from irkit.ir.builder import Tensor

__all__ = ["get", "names"]

Function = Callable[..., Tensor]


def linear(x: Tensor) -> Tensor:
    """The value itself."""
    return x


def relu(x: Tensor, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Tensor:
    """``x`` where it is at least the threshold, at most ``max_value``; below, ``negative_slope (x - threshold)``."""
    b = x.builder
    if not threshold:
        positive = b.Relu(x) if max_value is None else b.Clip(x, 0.0, max_value)
        return positive if not negative_slope else positive + b.Min(x, 0.0) * negative_slope
    top = x if max_value is None else b.Min(x, max_value)
    return b.Where(x >= threshold, top, (x - threshold) * negative_slope)


def leaky_relu(x: Tensor, negative_slope: float = 0.2) -> Tensor:
    """``x`` where it is positive, else a multiple of it."""
    return x.builder.LeakyRelu(x, alpha=negative_slope)


def relu6(x: Tensor) -> Tensor:
    """``x`` between 0 and 6."""
    return x.builder.Clip(x, 0.0, 6.0)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where it is positive, else ``alpha (exp(x) - 1)`` (Clevert et al. 2015)."""
    return x.builder.Elu(x, alpha=alpha)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    """``x`` times the normal distribution's cumulative probability (Hendrycks and Gimpel 2016)."""
    return x.builder.Gelu(x, approximate="tanh" if approximate else "none")


def silu(x: Tensor) -> Tensor:
    """``x sigmoid(x)``."""
    return x * x.builder.Sigmoid(x)


def hard_sigmoid(x: Tensor) -> Tensor:
    """``x / 6 + 1 / 2`` between 0 and 1."""
    return x.builder.HardSigmoid(x, alpha=1 / 6, beta=0.5)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Positive numbers along an axis that sum to 1, in proportion to ``exp(x)``."""
    return x.builder.Softmax(x, axis=axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of ``softmax``."""
    return x.builder.LogSoftmax(x, axis=axis)


def log_sigmoid(x: Tensor) -> Tensor:
    """``-log(1 + exp(-x))``."""
    return -x.builder.Softplus(-x)


def tanh_shrink(x: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return x - x.builder.Tanh(x)


def hard_tanh(x: Tensor) -> Tensor:
    """``x`` between -1 and 1."""
    return x.builder.Clip(x, -1.0, 1.0)


def hard_shrink(x: Tensor, threshold: float = 0.5) -> Tensor:
    """0 within the threshold, else ``x``."""
    return x.builder.Shrink(x, lambd=threshold, bias=0.0)


def soft_shrink(x: Tensor, threshold: float = 0.5) -> Tensor:
    """``x`` nearer to 0 by the threshold, 0 within it."""
    return x.builder.Shrink(x, lambd=threshold, bias=threshold)


def squareplus(x: Tensor, b: float = 4.0) -> Tensor:
    """``(x + sqrt(x^2 + b)) / 2``."""
    return (x + x.builder.Sqrt(x * x + b)) * 0.5


def threshold(x: Tensor, threshold: float, default_value: float) -> Tensor:
    """``x`` where it is greater than the threshold, else a number."""
    return x.builder.Where(x > threshold, x, default_value)


def glu(x: Tensor, axis: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second."""
    left, right = x.builder.Split(x, num_outputs=2, axis=axis, outputs=2)
    return left * x.builder.Sigmoid(right)


def exponential(x: Tensor) -> Tensor:
    """``exp(x)``."""
    return x.builder.Exp(x)


def softplus(x: Tensor) -> Tensor:
    """``log(1 + exp(x))``."""
    return x.builder.Softplus(x)


def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return x.builder.Softsign(x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return x.builder.Tanh(x)


def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return x.builder.Sigmoid(x)


def selu(x: Tensor) -> Tensor:
    """A scaled ``elu`` that keeps mean and variance (Klambauer et al. 2017)."""
    return x.builder.Selu(x)


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``max(0, x) + min(0, alpha (exp(x / alpha) - 1))`` (Barron 2017)."""
    return x.builder.Celu(x, alpha=alpha)


def mish(x: Tensor) -> Tensor:
    """``x tanh(softplus(x))``."""
    return x.builder.Mish(x)


def hard_silu(x: Tensor) -> Tensor:
    """``x hard_sigmoid(x)``."""
    return x.builder.HardSwish(x)


def sparse_plus(x: Tensor) -> Tensor:
    """0 up to -1, ``(x + 1)^2 / 4`` up to 1, then ``x``."""
    b = x.builder
    return b.Where(x <= -1.0, 0.0, b.Where(x >= 1.0, x, (x + 1.0) * (x + 1.0) * 0.25))


def sparse_sigmoid(x: Tensor) -> Tensor:
    """``(x + 1) / 2`` between 0 and 1."""
    return x.builder.Clip((x + 1.0) * 0.5, 0.0, 1.0)


_NAMED: dict[str, Function] = {
    f.__name__: f
    for f in (
        linear, relu, relu6, leaky_relu, elu, selu, celu, gelu, silu, softmax, log_softmax, log_sigmoid, softplus,
        softsign, sigmoid, hard_sigmoid, hard_silu, hard_tanh, hard_shrink, soft_shrink, tanh, tanh_shrink, mish,
        exponential, squareplus, threshold, glu, sparse_plus, sparse_sigmoid,
    )
}  # fmt: skip
_NAMED |= {"swish": silu, "hard_swish": hard_silu}

ELEMENTWISE = frozenset(_NAMED) - {"softmax", "log_softmax", "glu"}
"""Those that treat every element by itself."""

ONNX = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "softplus": "Softplus"}
"""The functions that ONNX's recurrent ops know."""


def names() -> list[str]:
    """The names that ``get`` knows."""
    return sorted(_NAMED)


def get(what: Any) -> Function:
    """The activation of a name; None is ``linear``; what can be called is taken as it is.

    Raises:
        IrkitError: if there is none of that name.
    """
    if what is None:
        return linear
    if isinstance(what, str):
        if what not in _NAMED:
            raise IrkitError(f"there is no activation '{what}'", hint=f"there are: {', '.join(names())}")
        return _NAMED[what]
    if not callable(what):
        raise IrkitError(f"{what!r} is no activation", hint="give a name, or a function of a value")
    return cast(Function, what)


def name_of(function: Function) -> str:
    """The name of an activation, or that of the function itself."""
    return next((name for name, f in _NAMED.items() if f is function), getattr(function, "__name__", "?"))
