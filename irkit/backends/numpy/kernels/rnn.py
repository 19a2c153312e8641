"""Recurrent layers: RNN, LSTM, GRU, with every option of the spec.

One loop serves all three: a cell takes what the input contributes at one step (computed for all steps by one GEMM) and
the state, and gives the next state. Conventions: past the length of its sequence a batch entry keeps its state and its
outputs are zero, in both directions; the reverse direction starts at the last valid step. ``clip`` bounds the input of
every activation, that of the cell state included, never the state itself. ``activation_alpha`` and
``activation_beta`` are consumed, in order, by those activations that have such a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from irkit.backends.numpy.kernels._common import widen
from irkit.backends.numpy.kernels._nn import require, results
from irkit.backends.numpy.registry import KernelError, kernel

__all__: list[str] = []

Activation = Callable[[np.ndarray], np.ndarray]
State = tuple[np.ndarray, ...]
Cell = Callable[[np.ndarray, State], State]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, np.zeros((), x.dtype))


ACTIVATIONS: dict[str, tuple[Callable[..., np.ndarray], dict[str, float]]] = {
    "relu": (lambda x: np.maximum(x, 0), {}),
    "tanh": (np.tanh, {}),
    "sigmoid": (_sigmoid, {}),
    "affine": (lambda x, alpha, beta: alpha * x + beta, {"alpha": 1.0, "beta": 0.0}),
    "leakyrelu": (lambda x, alpha: np.where(x >= 0, x, alpha * x), {"alpha": 0.01}),
    "thresholdedrelu": (lambda x, alpha: np.where(x >= alpha, x, 0), {"alpha": 1.0}),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), {"alpha": 1.0, "beta": 1.0}),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), {"alpha": 0.2, "beta": 0.5}),
    "elu": (lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), {"alpha": 1.0}),
    "softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "softplus": (_softplus, {}),
}
"""Activations by lower-case name: the function and the defaults of its parameters."""


def _activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Activation]:
    """The functions named, their parameters bound and their inputs clipped."""
    left = {"alpha": list(alphas), "beta": list(betas)}
    found: list[Activation] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise KernelError(f"activation {name!r} is none of {', '.join(sorted(ACTIVATIONS))}")
        function, defaults = ACTIVATIONS[name.lower()]
        bound = {p: float(left[p].pop(0)) if left[p] else value for p, value in defaults.items()}
        plain = partial(function, **bound) if bound else function
        found.append(plain if clip is None else lambda x, f=plain: f(np.clip(x, -clip, clip)))
    return found


def _run_layer(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    lengths: np.ndarray | None,
    states: Sequence[np.ndarray | None],
    make_cell: Callable[[np.ndarray, np.ndarray, int, list[Activation]], tuple[np.ndarray, Cell]],
    *,
    gates: int,
    default: Sequence[str],
    n_out: int,
    activations: Sequence[str] | None,
    activation_alpha: Sequence[float],
    activation_beta: Sequence[float],
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
) -> Any:
    """Runs a recurrent layer: Y, and the last value of every state.

    Args:
        x, w, r, b, lengths: the inputs X, W, R, B and sequence_lens.
        states: the initial value of each state.
        make_cell: from R and B of one direction, its index and its activations: the bias to add to the input's
            contribution, and the cell.
        gates: how many gates are stacked in W, R and B.
        default: the activations of one direction where none are named.
    """
    require(x.ndim == 3, f"X of shape {x.shape} must have 3 axes")
    require(direction in ("forward", "reverse", "bidirectional"), f"direction {direction!r} is unknown")
    require(layout in (0, 1), f"layout {layout} must be 0 or 1")
    count = 2 if direction == "bidirectional" else 1
    require(r.ndim == 3 and r.shape[0] == count, f"R of shape {r.shape} must have {count} directions")
    hidden = r.shape[2]
    require(hidden_size in (None, hidden), f"hidden_size {hidden_size} is not that of R of shape {r.shape}")
    dtype = x.dtype
    data = widen(x.swapaxes(0, 1) if layout else x)
    steps, batch, features = data.shape
    for name, v, shape in (
        ("W", w, (count, gates * hidden, features)),
        ("R", r, (count, gates * hidden, hidden)),
        ("B", b, (count, 2 * gates * hidden)),
        ("sequence_lens", lengths, (batch,)),
    ):
        require(v is None or v.shape == shape, f"{name} must have shape {shape}, found {v is not None and v.shape}")
    if lengths is not None and lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
        raise KernelError(f"sequence_lens {lengths.tolist()} must lie in [0, {steps}]")
    shape = (batch, count, hidden) if layout else (count, batch, hidden)
    for v in states:
        require(v is None or v.shape == shape, f"an initial state must have shape {shape}")
    initial = [
        np.zeros((count, batch, hidden), data.dtype) if v is None else widen(v.swapaxes(0, 1) if layout else v)
        for v in states
    ]
    names = tuple(activations) if activations else tuple(default) * count
    names = names[: len(default) * count]
    require(
        len(names) == len(default) * count,
        f"{len(default) * count} activations are needed for direction {direction!r}, found {names}",
    )
    functions = _activations(names, activation_alpha, activation_beta, clip)

    y = np.zeros((steps, count, batch, hidden), data.dtype)
    last = [np.empty_like(v) for v in initial]
    for d in range(count):
        bias = np.zeros(2 * gates * hidden, data.dtype) if b is None else widen(b[d])
        own = functions[d * len(default) : (d + 1) * len(default)]
        added, cell = make_cell(widen(r[d]), bias, d, own)
        contribution = (data.reshape(steps * batch, features) @ widen(w[d]).T + added).reshape(
            steps, batch, gates * hidden
        )
        state: State = tuple(v[d] for v in initial)
        backward = direction == "reverse" or d == 1
        for t in reversed(range(steps)) if backward else range(steps):
            following = cell(contribution[t], state)
            if lengths is None:
                state, y[t, d] = following, following[0]
            else:
                live = (t < lengths)[:, None]
                state = tuple(np.where(live, new, old) for new, old in zip(following, state, strict=True))
                y[t, d] = np.where(live, following[0], 0)
        for target, value in zip(last, state, strict=True):
            target[d] = value
    ends = [v.swapaxes(0, 1) if layout else v for v in last]
    whole = y.transpose(2, 0, 1, 3) if layout else y
    return results([v.astype(dtype, copy=False) for v in (whole, *ends)], n_out)


@kernel("RNN")
def rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    n_out: int,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    def make_cell(r: np.ndarray, b: np.ndarray, d: int, f: list[Activation]) -> tuple[np.ndarray, Cell]:
        hidden = r.shape[1]
        recurrent = r.T
        return b[:hidden] + b[hidden:], lambda given, state: (f[0](given + state[0] @ recurrent),)

    return _run_layer(
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h,),
        make_cell,
        gates=1,
        default=("Tanh",),
        n_out=n_out,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
    )


@kernel("LSTM")
def lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    *,
    n_out: int,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    require(
        p is None or p.shape == (*r.shape[:1], 3 * r.shape[-1]),
        f"P must have shape {(*r.shape[:1], 3 * r.shape[-1])}, found {p is not None and p.shape}",
    )

    def make_cell(r: np.ndarray, b: np.ndarray, d: int, functions: list[Activation]) -> tuple[np.ndarray, Cell]:
        f, g, h = functions
        recurrent = r.T
        peep_i, peep_o, peep_f = np.zeros((3, 1), r.dtype) if p is None else np.split(widen(p[d]), 3)

        def cell(given: np.ndarray, state: State) -> State:
            hidden, memory = state
            i, o, forget, c = np.split(given + hidden @ recurrent, 4, axis=1)
            i = f(i + peep_i * memory)
            forget = 1 - i if input_forget else f(forget + peep_f * memory)
            memory = forget * memory + i * g(c)
            return f(o + peep_o * memory) * h(memory), memory

        return b[: b.size // 2] + b[b.size // 2 :], cell

    return _run_layer(
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h, initial_c),
        make_cell,
        gates=4,
        default=("Sigmoid", "Tanh", "Tanh"),
        n_out=n_out,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
    )


@kernel("GRU")
def gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    n_out: int,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    def make_cell(r: np.ndarray, b: np.ndarray, d: int, functions: list[Activation]) -> tuple[np.ndarray, Cell]:
        f, g = functions
        size = r.shape[1]
        gates, candidate = r[: 2 * size].T, r[2 * size :].T
        added, recurrent_bias = b[: 3 * size].copy(), b[3 * size :]
        added[: 2 * size] += recurrent_bias[: 2 * size]
        if not linear_before_reset:
            added[2 * size :] += recurrent_bias[2 * size :]

        def cell(given: np.ndarray, state: State) -> State:
            (hidden,) = state
            zr = f(given[:, : 2 * size] + hidden @ gates)
            z, reset = zr[:, :size], zr[:, size:]
            if linear_before_reset:
                new = reset * (hidden @ candidate + recurrent_bias[2 * size :])
            else:
                new = (reset * hidden) @ candidate
            new = g(given[:, 2 * size :] + new)
            return ((1 - z) * new + z * hidden,)

        return added, cell

    return _run_layer(
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h,),
        make_cell,
        gates=3,
        default=("Sigmoid", "Tanh"),
        n_out=n_out,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        layout=layout,
    )
