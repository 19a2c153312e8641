"""Activation functions.

Conventions:

- Narrow floats are computed in float32 and rounded once, function ops (Gelu, Swish, SwiGLU, ...) included.
- ``exp(x) - 1`` is computed by expm1, so that the ELU family is exact near 0, and ``log(1 + exp(x))`` from the side
  that does not overflow.
- NaN propagates, except where the formula of the op compares only: ThresholdedRelu and Shrink give 0.
- What a formula makes of an infinity is kept: ``Swish(-inf)`` is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import broadcasts_to, shape_of, widen
from irkit.backends.numpy.kernels.elementwise import erf
from irkit.backends.numpy.registry import KernelError, kernel

__all__ = ["gelu_erf", "gelu_tanh", "sigmoid", "softplus"]


def _activation(*names: str) -> Callable[[Callable[..., np.ndarray]], Callable[..., np.ndarray]]:
    """Declares a function of float32 or float64 arrays as the kernel of ``names`` for every floating type."""

    def register(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def run(x: np.ndarray, **attributes: Any) -> np.ndarray:
            return np.asarray(function(widen(x), **attributes)).astype(x.dtype, copy=False)

        kernel(*names)(run)
        return function

    return register


@kernel("Relu")
def relu(x: np.ndarray) -> np.ndarray:
    """``max(0, x)``."""
    return np.asarray(np.maximum(x, np.zeros((), x.dtype)))


@_activation("Sigmoid")
def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))``."""
    result = np.negative(x, out=np.empty_like(x))
    np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)


@_activation("Softplus")
def softplus(x: np.ndarray) -> np.ndarray:
    """``log(1 + exp(x))``, as ``max(x, 0) + log1p(exp(-|x|))``."""
    result = np.abs(x, out=np.empty_like(x))
    np.negative(result, out=result)
    np.exp(result, out=result)
    np.log1p(result, out=result)
    result += np.maximum(x, 0)
    return result


@_activation("Softsign")
def softsign(x: np.ndarray) -> np.ndarray:
    """``x / (1 + |x|)``."""
    return x / (1 + np.abs(x))


@_activation("HardSigmoid")
def hard_sigmoid(x: np.ndarray, *, alpha: float, beta: float) -> np.ndarray:
    """``max(0, min(1, alpha x + beta))``."""
    return np.maximum(0, np.minimum(1, alpha * x + beta))


@_activation("HardSwish")
def hard_swish(x: np.ndarray) -> np.ndarray:
    """``x HardSigmoid(x)`` with alpha 1/6 and beta 1/2."""
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@_activation("Elu")
def elu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """``alpha (exp(x) - 1)`` for x < 0, else ``x``."""
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


@_activation("Selu")
def selu(x: np.ndarray, *, alpha: float, gamma: float) -> np.ndarray:
    """``gamma alpha (exp(x) - 1)`` for x <= 0, else ``gamma x``."""
    return gamma * np.where(x <= 0, alpha * np.expm1(np.minimum(x, 0)), x)


@_activation("Celu")
def celu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """``max(0, x) + min(0, alpha (exp(x / alpha) - 1))``."""
    if alpha == 0:
        raise KernelError("alpha must not be 0")
    return np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha))


@_activation("LeakyRelu")
def leaky_relu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """``alpha x`` for x < 0, else ``x``."""
    return np.where(x < 0, alpha * x, x)


@_activation("ThresholdedRelu")
def thresholded_relu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """``x`` for x > alpha, else 0."""
    return np.where(x > alpha, x, np.zeros((), x.dtype))


@_activation("Mish")
def mish(x: np.ndarray) -> np.ndarray:
    """``x tanh(log(1 + e^x))``.

    With e = exp(x), tanh(log(1 + e)) is ((1 + e)^2 - 1) / ((1 + e)^2 + 1), and 1 in float64 from x = 20 on.
    """
    e = np.exp(np.minimum(x, 20))
    n = e * (e + 2)
    return x * (n / (n + 2))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    """``0.5 x (1 + erf(x / sqrt 2))``."""
    result = erf(np.multiply(x, math.sqrt(0.5), out=np.empty_like(x)))
    result += 1
    result *= x
    result *= 0.5
    return result


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


@_activation("Gelu")
def gelu(x: np.ndarray, *, approximate: str) -> np.ndarray:
    """The Gaussian error linear unit, or its approximation by tanh."""
    if approximate == "none":
        return gelu_erf(x)
    if approximate == "tanh":
        return gelu_tanh(x)
    raise KernelError(f'approximate must be "none" or "tanh", not "{approximate}"')


@_activation("Swish")
def swish(x: np.ndarray, *, alpha: float) -> np.ndarray:
    """``x sigmoid(alpha x)``."""
    return x * sigmoid(np.asarray(alpha * x))


@kernel("SwiGLU")
def swiglu(a: np.ndarray, b: np.ndarray, *, alpha: float) -> np.ndarray:
    """``Swish(a) b``; the shapes must be the same."""
    if a.shape != b.shape:
        raise KernelError(f"A and B must have the same shape, they are {shape_of(a)} and {shape_of(b)}")
    return np.asarray(swish(widen(a), alpha=alpha) * widen(b)).astype(a.dtype, copy=False)


@kernel("PRelu")
def prelu(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """``slope x`` for x < 0, else ``x``; ``slope`` broadcasts to ``x``, not the reverse."""
    if not broadcasts_to(slope.shape, x.shape):
        raise KernelError(f"slope {shape_of(slope)} must broadcast to the shape of X {shape_of(x)}")
    return np.where(x < np.zeros((), x.dtype), np.multiply(slope, x), x)


@kernel("Shrink")
def shrink(x: np.ndarray, *, bias: float, lambd: float) -> np.ndarray:
    """``x + bias`` for x < -lambd, ``x - bias`` for x > lambd, else 0; integers add the integer part of ``bias``."""
    wide = widen(x)
    offset = np.array(math.trunc(bias) if x.dtype.kind in "iu" else bias).astype(wide.dtype)
    zero = np.zeros((), wide.dtype)
    shrunk = np.where(wide < -lambd, wide + offset, np.where(wide > lambd, wide - offset, zero))
    return np.asarray(shrunk).astype(x.dtype, copy=False)
