"""Optimizers written down again, in NumPy and float64, from their papers and Keras's documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.unit.training.cases import gradients, start

Array = np.ndarray[Any, Any]
Memory = dict[str, Any]


def sgd(w: Array, g: Array, m: Memory, t: int, lr: float, momentum: float = 0.0, nesterov: bool = False) -> Array:
    m["v"] = momentum * m.get("v", 0.0) - lr * g
    return w + (momentum * m["v"] - lr * g if nesterov else m["v"])


def adagrad(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    m["sum"] = m.get("sum", 0.1) + g**2
    return w - lr * g / np.sqrt(m["sum"] + 1e-7)


def adadelta(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    m["g"] = 0.95 * m.get("g", 0.0) + 0.05 * g**2
    delta = np.sqrt(m.get("x", 0.0) + 1e-7) / np.sqrt(m["g"] + 1e-7) * g
    m["x"] = 0.95 * m.get("x", 0.0) + 0.05 * delta**2
    return w - lr * delta


def rmsprop(w: Array, g: Array, m: Memory, t: int, lr: float, momentum: float = 0.0, centered: bool = False) -> Array:
    m["v"] = 0.9 * m.get("v", 0.0) + 0.1 * g**2
    m["g"] = 0.9 * m.get("g", 0.0) + 0.1 * g
    spread = m["v"] - m["g"] ** 2 if centered else m["v"]
    m["m"] = momentum * m.get("m", 0.0) + lr * g / np.sqrt(spread + 1e-7)
    return w - m["m"]


def _moments(g: Array, m: Memory, b1: float = 0.9, b2: float = 0.999) -> tuple[Array, Array]:
    m["m"] = b1 * m.get("m", 0.0) + (1 - b1) * g
    m["v"] = b2 * m.get("v", 0.0) + (1 - b2) * g**2
    return m["m"], m["v"]


def adam(
    w: Array,
    g: Array,
    m: Memory,
    t: int,
    lr: float,
    epsilon: float = 1e-7,
    epsilon_hat: bool = True,
    amsgrad: bool = False,
) -> Array:
    first, second = _moments(g, m)
    if amsgrad:
        m["max"] = second = np.maximum(m.get("max", 0.0), second)
    if epsilon_hat:
        return w - lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * first / (np.sqrt(second) + epsilon)
    return w - lr * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + epsilon)


def adamax(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    first, _ = _moments(g, m)
    m["u"] = np.maximum(0.999 * m.get("u", 0.0), np.abs(g))
    return w - lr / (1 - 0.9**t) * first / (m["u"] + 1e-7)


def nadam(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    first, second = _moments(g, m)
    now, then = (0.9 * (1 - 0.5 * 0.96**i) for i in (t, t + 1))
    m["product"] = m.get("product", 1.0) * now
    ahead = then * first / (1 - m["product"] * then) + (1 - now) * g / (1 - m["product"])
    return w - lr * ahead / (np.sqrt(second / (1 - 0.999**t)) + 1e-7)


def lion(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    old = m.get("m", 0.0)
    m["m"] = 0.99 * old + 0.01 * g
    return w - lr * np.sign(0.9 * old + 0.1 * g)


def lamb(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    first, second = _moments(g, m)
    step = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-7)
    a, b = np.linalg.norm(w), np.linalg.norm(step)
    return w - lr * (a / b if a > 0 and b > 0 else 1.0) * step


def adafactor(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    rms: Callable[[Array], float] = lambda x: float(np.sqrt(np.mean(x**2)))  # noqa: E731
    kept, square = 1 - t**-0.8, g**2 + 1e-30
    if w.ndim > 1:
        m["r"] = kept * m.get("r", 0.0) + (1 - kept) * square.mean(-1)
        m["c"] = kept * m.get("c", 0.0) + (1 - kept) * square.mean(-2)
        spread = (m["r"] / m["r"].mean(-1, keepdims=True))[..., :, None] * m["c"][..., None, :]
    else:
        m["v"] = spread = kept * m.get("v", 0.0) + (1 - kept) * square
    step = g / np.sqrt(spread)
    step = step / max(1.0, rms(step))
    return w - max(1e-3, rms(w)) * min(lr, 1 / np.sqrt(t)) * step


def muon(w: Array, g: Array, m: Memory, t: int, lr: float) -> Array:
    if w.ndim < 2:
        return adam(w, g, m, t, lr * 0.05)
    m["m"] = 0.95 * m.get("m", 0.0) + g
    x = (g + 0.95 * m["m"]).reshape(len(w), -1)
    rows, columns = x.shape
    x = x.T if rows > columns else x
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x.T if rows > columns else x
    return w - lr * max(1.0, rows / columns) ** 0.5 * x.reshape(w.shape)


RULES: dict[str, Callable[..., Array]] = {
    "sgd": sgd,
    "adagrad": adagrad,
    "adadelta": adadelta,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adam,
    "adamax": adamax,
    "nadam": nadam,
    "lion": lion,
    "lamb": lamb,
    "adafactor": adafactor,
    "muon": muon,
}


def run(name: str, learning_rate: float, weight_decay: float | None = None, **options: Any) -> Array:
    """The parameters, flat, after each update of the cases."""
    decay = weight_decay if weight_decay is not None else 0.004 if name == "adamw" else 0.0
    parameters = [w.astype(np.float64) for w in start()]
    memories: list[Memory] = [{} for _ in parameters]
    found = []
    for t, grads in enumerate(gradients(), 1):
        for i, g in enumerate(grads):
            w = parameters[i] * (1 - learning_rate * decay)
            parameters[i] = RULES[name](w, g.astype(np.float64), memories[i], t, learning_rate, **options)
        found.append(np.concatenate([w.reshape(-1) for w in parameters]))
    return np.stack(found)
