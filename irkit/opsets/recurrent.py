"""RNN, GRU and LSTM as scans: what gradients are taken through.

The input's contributions of all steps are one product before the scan. Past the length of its sequence, a batch entry
keeps its state, and its outputs are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder, Tensor
from irkit.opsets.common import impossible, int64
from irkit.opsets.registry import Results, decompose

__all__: list[str] = []

Activation = Callable[[Builder, Tensor], Tensor]
State = tuple[Tensor, ...]
Cell = Callable[[Builder, Tensor, State], State]


class _Weights(NamedTuple):
    """Those of one direction: R as a matrix, B as a vector and P in three parts, where given."""

    r: Tensor
    b: Tensor | None
    p: list[Tensor] | None


def _number(b: Builder, value: float, like: Tensor) -> Tensor:
    if like.dtype is not None:
        return b.constant(np.asarray(value).astype(like.dtype.numpy))
    return b.CastLike(b.constant(np.float32(value)), like)


def _affine(b: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return b.Add(b.Mul(x, _number(b, alpha, x)), _number(b, beta, x))


def _thresholded(b: Builder, x: Tensor, alpha: float) -> Tensor:
    return b.Where(b.GreaterOrEqual(x, _number(b, alpha, x)), x, _number(b, 0, x))


def _scaled_tanh(b: Builder, x: Tensor, alpha: float, beta: float) -> Tensor:
    return b.Mul(b.Tanh(b.Mul(x, _number(b, beta, x))), _number(b, alpha, x))


ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], dict[str, float]]] = {
    "relu": (lambda b, x: b.Relu(x), {}),
    "tanh": (lambda b, x: b.Tanh(x), {}),
    "sigmoid": (lambda b, x: b.Sigmoid(x), {}),
    "affine": (_affine, {"alpha": 1.0, "beta": 0.0}),
    "leakyrelu": (lambda b, x, alpha: b.LeakyRelu(x, alpha=alpha), {"alpha": 0.01}),
    "thresholdedrelu": (_thresholded, {"alpha": 1.0}),
    "scaledtanh": (_scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
    "hardsigmoid": (lambda b, x, alpha, beta: b.HardSigmoid(x, alpha=alpha, beta=beta), {"alpha": 0.2, "beta": 0.5}),
    "elu": (lambda b, x, alpha: b.Elu(x, alpha=alpha), {"alpha": 1.0}),
    "softsign": (lambda b, x: b.Softsign(x), {}),
    "softplus": (lambda b, x: b.Softplus(x), {}),
}
"""Activations by lower-case name: what builds them, and the defaults of their parameters."""


def _activations(op: OnnxOp, default: Sequence[str], directions: int) -> list[Activation]:
    """The activations of all directions, with their parameters, which are used up in order, and clipped inputs."""
    left = {p: list(op.attr(f"activation_{p}") or ()) for p in ("alpha", "beta")}
    clip = op.attr("clip")
    names: list[str] = list(op.attr("activations") or list(default) * directions)
    if len(names) < len(default) * directions or any(name.lower() not in ACTIVATIONS for name in names):
        raise impossible(op, f"its activations {names} are not {len(default) * directions} of those that there are")
    found: list[Activation] = []
    for name in names[: len(default) * directions]:
        build, parameters = ACTIVATIONS[name.lower()]
        bound = {p: float(left[p].pop(0)) if left[p] else value for p, value in parameters.items()}
        found.append(_bound(build, bound, clip))
    return found


def _bound(build: Callable[..., Tensor], parameters: dict[str, float], clip: float | None) -> Activation:
    def activation(b: Builder, x: Tensor) -> Tensor:
        if clip is not None:
            x = b.Clip(x, _number(b, -clip, x), _number(b, clip, x))
        return build(b, x, **parameters)

    return activation


def _split(b: Builder, value: Tensor, parts: int, axis: int) -> list[Tensor]:
    return [value] if parts == 1 else list(b.Split(value, num_outputs=parts, axis=axis))


def _layer(
    b: Builder,
    op: OnnxOp,
    states: Sequence[int],
    default: Sequence[str],
    make_cell: Callable[[Builder, _Weights, list[Activation]], tuple[Tensor | None, Cell]],
) -> list[Tensor]:
    """A recurrent layer's results, in the op's order.

    Args:
        states: which operands hold the initial states.
        make_cell: from the weights and activations of one direction: the bias to add to the input's contributions, and
            what makes the next state of a contribution and the state.
    """

    def operand(index: int) -> Tensor | None:
        value = op.operand(index)
        return None if value is None else b.wrap(value)

    x, w, r, bias, lengths = (operand(i) for i in range(5))
    peepholes = operand(7)
    assert x is not None and w is not None and r is not None  # noqa: PT018
    directions = 2 if op.attr("direction") == "bidirectional" else 1
    batch_first = bool(op.attr("layout"))
    if batch_first:
        x = b.Transpose(x, perm=[1, 0, 2])
    functions = _activations(op, default, directions)
    each = len(default)

    def parts(value: Tensor | None) -> list[Any]:
        if value is None:
            return [None] * directions
        return [b.Squeeze(part, [0]) for part in _split(b, value, directions, 0)]

    def initial(index: int) -> list[Tensor]:
        value = operand(index)
        if value is None:
            shape = b.Concat(b.Shape(x, start=1, end=2), b.Shape(r, start=2), axis=0)
            return [b.Expand(_number(b, 0, x), shape)] * directions
        return parts(b.Transpose(value, perm=[1, 0, 2]) if batch_first else value)

    begin = list(zip(*(initial(index) for index in states), strict=True))
    live: Tensor | None = None
    if lengths is not None:
        steps = b.Range(int64(b, 0), b.Squeeze(b.Shape(x, start=0, end=1)), int64(b, 1))
        # (steps, batch, 1)
        live = b.Less(b.Reshape(steps, [-1, 1, 1]), b.Reshape(b.Cast(lengths, to=7), [1, -1, 1]))
    outputs: list[Tensor] = []
    ends: list[State] = []
    weights = zip(parts(w), parts(r), parts(bias), parts(peepholes), strict=True)
    for d, (own_w, own_r, own_b, own_p) in enumerate(weights):
        held = _Weights(b.Transpose(own_r, perm=[1, 0]), own_b, None if own_p is None else _split(b, own_p, 3, 0))
        added, cell = make_cell(b, held, functions[d * each : (d + 1) * each])
        given = b.MatMul(x, b.Transpose(own_w, perm=[1, 0]))
        given = given if added is None else b.Add(given, added)
        backward = d == 1 or op.attr("direction") == "reverse"
        final, sequence = _scan(b, cell, begin[d], given, live, backward)
        outputs.append(b.Unsqueeze(sequence, [1]))
        ends.append(final)
    whole = outputs[0] if directions == 1 else b.Concat(*outputs, axis=1)
    finals: list[Tensor] = []
    for i in range(len(states)):
        own = [b.Unsqueeze(end[i], [0]) for end in ends]
        finals.append(own[0] if directions == 1 else b.Concat(*own, axis=0))
    if batch_first:
        whole = b.Transpose(whole, perm=[2, 0, 1, 3])
        finals = [b.Transpose(value, perm=[1, 0, 2]) for value in finals]
    return [whole, *finals][: len(op.results)]


def _scan(
    b: Builder, cell: Cell, begin: State, given: Tensor, live: Tensor | None, backward: bool
) -> tuple[State, Tensor]:
    """The last state, and the first part of the states of all steps."""
    count = len(begin)

    def step(b: Builder, values: Sequence[Tensor]) -> list[Tensor]:
        state = tuple(values[:count])
        following = cell(b, values[count], state)
        output = following[0]
        if live is not None:
            there = values[count + 1]
            output = b.Where(there, output, _number(b, 0, output))
            following = tuple(b.Where(there, new, old) for new, old in zip(following, state, strict=True))
        return [*following, output]

    # The builder tells how many arguments a body has from its signature.
    bodies: dict[int, Any] = {
        2: lambda b, p, q: step(b, (p, q)),
        3: lambda b, p, q, r: step(b, (p, q, r)),
        4: lambda b, p, q, r, s: step(b, (p, q, r, s)),
    }
    scanned = [given] if live is None else [given, live]
    found = b.Scan(
        *begin,
        *scanned,
        num_scan_inputs=len(scanned),
        scan_input_directions=[int(backward)] * len(scanned),
        scan_output_directions=[int(backward)],
        body=bodies[count + len(scanned)],
        outputs=count + 1,
    )
    return tuple(found[:count]), found[count]


def _halves(b: Builder, bias: Tensor | None) -> Tensor | None:
    """The sum of the biases of W and of R."""
    return None if bias is None else b.Add(*_split(b, bias, 2, 0))


@decompose("RNN", 22)
def rnn(b: Builder, op: OnnxOp) -> Results:
    def make_cell(b: Builder, held: _Weights, f: list[Activation]) -> tuple[Tensor | None, Cell]:
        def cell(b: Builder, given: Tensor, state: State) -> State:
            return (f[0](b, b.Add(given, b.MatMul(state[0], held.r))),)

        return _halves(b, held.b), cell

    return _layer(b, op, (5,), ("Tanh",), make_cell)


@decompose("LSTM", 22)
def lstm(b: Builder, op: OnnxOp) -> Results:
    coupled = bool(op.attr("input_forget"))

    def make_cell(b: Builder, held: _Weights, functions: list[Activation]) -> tuple[Tensor | None, Cell]:
        f, g, h = functions

        def peeped(b: Builder, gate: Tensor, index: int, memory: Tensor) -> Tensor:
            return gate if held.p is None else b.Add(gate, b.Mul(held.p[index], memory))

        def cell(b: Builder, given: Tensor, state: State) -> State:
            hidden, memory = state
            i, o, forget, c = _split(b, b.Add(given, b.MatMul(hidden, held.r)), 4, 1)
            i = f(b, peeped(b, i, 0, memory))
            kept = b.Sub(_number(b, 1, i), i) if coupled else f(b, peeped(b, forget, 2, memory))
            memory = b.Add(b.Mul(kept, memory), b.Mul(i, g(b, c)))
            return b.Mul(f(b, peeped(b, o, 1, memory)), h(b, memory)), memory

        return _halves(b, held.b), cell

    return _layer(b, op, (5, 6), ("Sigmoid", "Tanh", "Tanh"), make_cell)


@decompose("GRU", 22)
def gru(b: Builder, op: OnnxOp) -> Results:
    linear = bool(op.attr("linear_before_reset"))

    def make_cell(b: Builder, held: _Weights, functions: list[Activation]) -> tuple[Tensor | None, Cell]:
        f, g = functions
        z_r, r_r, h_r = _split(b, held.r, 3, 1)
        gates = b.Concat(z_r, r_r, axis=1)
        added, recurrent = _halves(b, held.b), None
        if linear and held.b is not None:
            # The candidate's recurrent bias is reset with the state.
            z_w, r_w, h_w, z_b, r_b, recurrent = _split(b, held.b, 6, 0)
            added = b.Concat(b.Add(z_w, z_b), b.Add(r_w, r_b), h_w, axis=0)

        def cell(b: Builder, given: Tensor, state: State) -> State:
            (hidden,) = state
            z_x, r_x, h_x = _split(b, given, 3, 1)
            z_h, r_h = _split(b, b.MatMul(hidden, gates), 2, 1)
            z, reset = f(b, b.Add(z_x, z_h)), f(b, b.Add(r_x, r_h))
            if linear:
                inner = b.MatMul(hidden, h_r)
                new = b.Mul(reset, inner if recurrent is None else b.Add(inner, recurrent))
            else:
                new = b.MatMul(b.Mul(reset, hidden), h_r)
            new = g(b, b.Add(h_x, new))
            return (b.Add(b.Mul(b.Sub(_number(b, 1, z), z), new), b.Mul(z, hidden)),)

        return added, cell

    return _layer(b, op, (5,), ("Sigmoid", "Tanh"), make_cell)
