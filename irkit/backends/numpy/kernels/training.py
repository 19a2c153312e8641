"""The optimizers of ai.onnx.preview.training: Adagrad, Adam, Momentum.

Each takes the learning rate R, the update count T, then all tensors, all gradients, and all of each further state, and
returns the new tensors followed by the new states. Tensors are updated independently, in their own type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import scalar, shape_of
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _update(
    inputs: tuple[np.ndarray, ...], states: int, step: Callable[..., tuple[np.ndarray, ...]]
) -> tuple[np.ndarray, ...] | np.ndarray:
    """Applies ``step(x, gradient, *states)``, which returns the new x and states, to each tensor of ``inputs``.

    Args:
        inputs: the tensors, their gradients, then ``states`` groups more.
        states: how many states a tensor has.
        step: the update of one tensor.
    """
    groups = states + 2
    if not inputs or len(inputs) % groups:
        raise KernelError(f"the number of tensors must be a multiple of {groups}, it is {len(inputs)}")
    count = len(inputs) // groups
    updated: list[tuple[np.ndarray, ...]] = []
    for i in range(count):
        x, *others = inputs[i::count]
        for other in others:
            if other.shape != x.shape:
                raise KernelError(f"tensor {i} is {shape_of(x)}, its gradient or state is {shape_of(other)}")
        updated.append(tuple(np.asarray(new).astype(x.dtype, copy=False) for new in step(x, *others)))
    return tuple(new for group in zip(*updated, strict=True) for new in group)


@kernel("Adagrad", domain=_DOMAIN)
def adagrad(
    r: np.ndarray, t: np.ndarray, *inputs: np.ndarray, decay_factor: float, epsilon: float, norm_coefficient: float
) -> Any:
    """One iteration of Adagrad; the state is the accumulated squared gradient."""
    rate = scalar(r, "R") / (1 + scalar(t, "T") * decay_factor)

    def step(x: np.ndarray, gradient: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
        regularized = norm_coefficient * x + gradient
        h_new = h + regularized * regularized
        return x - rate * regularized / (np.sqrt(h_new) + epsilon), h_new

    return _update(inputs, 1, step)


@kernel("Adam", domain=_DOMAIN)
def adam(
    r: np.ndarray,
    t: np.ndarray,
    *inputs: np.ndarray,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> Any:
    """One iteration of Adam; the states are the running means of the gradient and of its square."""
    rate, count = scalar(r, "R"), scalar(t, "T")
    if count > 0:
        rate *= np.sqrt(1 - beta**count) / (1 - alpha**count)
    rate = float(rate)

    def step(x: np.ndarray, gradient: np.ndarray, v: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
        regularized = norm_coefficient * x + gradient
        v_new = alpha * v + (1 - alpha) * regularized
        h_new = beta * h + (1 - beta) * regularized * regularized
        x_new = x - rate * v_new / (np.sqrt(h_new) + epsilon)
        return (1 - norm_coefficient_post) * x_new, v_new, h_new

    return _update(inputs, 2, step)


@kernel("Momentum", domain=_DOMAIN)
def momentum(
    r: np.ndarray,
    t: np.ndarray,
    *inputs: np.ndarray,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """One iteration of gradient descent with momentum, standard or Nesterov's; the state is the momentum."""
    if mode not in ("standard", "nesterov"):
        raise KernelError(f'mode must be "standard" or "nesterov", not "{mode}"')
    rate = scalar(r, "R")
    weight = beta if scalar(t, "T") > 0 else 1

    def step(x: np.ndarray, gradient: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
        regularized = norm_coefficient * x + gradient
        v_new = alpha * v + weight * regularized
        direction = regularized + alpha * v_new if mode == "nesterov" else v_new
        return x - rate * direction, v_new

    return _update(inputs, 1, step)
