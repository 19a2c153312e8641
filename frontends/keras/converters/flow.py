"""Loops, branches and recurrence."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.trace import Tape
from irkit.frontends.keras.values import Value
from irkit.ir.builder import Builder, Tensor


def _inputs(c: Emitter, tapes: tuple[Tape, ...], tensors: Any) -> list[Value]:
    """What the inputs of a body are, given the tensors that the loop hands in."""
    symbols = zip(*(t.inputs for t in tapes), strict=True)
    return [
        Value(c.shape_of(s), s[0].dtype, c.cast(t, s[0].dtype), depth=c.b.depth)
        for s, t in zip(symbols, tensors, strict=True)
    ]


def _run(c: Emitter, b: Builder, tapes: tuple[Tape, ...], tensors: Any) -> list[Tensor]:
    """A body in a graph of its own."""
    with c.inside(b):
        found = c.run(tapes, _inputs(c, tapes, tensors))
        made = [c.get(v) for v in found]
        # What goes straight through, or comes from outside, is still to be made in this graph.
        return [b.Identity(t) if _outside(t, b) else t for t in made]


def _outside(t: Tensor, b: Builder) -> bool:
    owner = t.ssa.owner
    return getattr(owner, "parent", None) is not b.block


@converter("scan")
def scan(c: Emitter, op: Any, carried: list[Any], xs: list[Any]) -> list[Tensor]:
    """Keras's scan, map and rnn: a Scan over the first axis, or a Loop where there is nothing to go over."""
    symbols = list(zip(*(t.inputs for t in op.body), strict=True))
    count = len(carried)
    start = [c.get(v, s[0].dtype) for v, s in zip(carried, symbols, strict=False)]
    if not xs:
        made = c.b.Loop(
            c.b.Squeeze(c.size(op.length), [0]),
            None,
            *start,
            body=_of_arity(lambda b, xs: [b.Identity(xs[1]), *_run(c, b, op.body, xs[2:])], 2 + len(start)),
            outputs=len(c.outs),
        )
        return list(made) if isinstance(made, tuple) else [made]
    outs = len(c.outs) - count
    options: dict[str, Any] = {}
    if op.reverse:
        options["scan_input_directions"] = [1] * len(xs)
        if op.restore and outs:
            options["scan_output_directions"] = [1] * outs
    made = c.b.Scan(
        *start,
        *(c.get(x) for x in xs),
        num_scan_inputs=len(xs),
        # A function of as many parameters as there are states and items.
        body=_of_arity(lambda b, given: _run(c, b, op.body, given), len(symbols)),
        **options,
    )
    return list(made) if isinstance(made, tuple) else [made]


def _of_arity(fn: Any, count: int) -> Any:
    """A function that the builder sees to take a builder and so many tensors."""

    def body(b: Builder, *tensors: Tensor) -> Any:
        return fn(b, list(tensors))

    kind = inspect.Parameter.POSITIONAL_ONLY
    body.__signature__ = inspect.Signature([inspect.Parameter(f"x{i}", kind) for i in range(count + 1)])  # type: ignore[attr-defined]
    return body


@converter("while")
def while_loop(c: Emitter, op: Any, start: list[Any]) -> list[Tensor]:
    symbols = list(zip(*(t.inputs for t in op.body), strict=True))
    given = [c.get(v, s[0].dtype) for v, s in zip(start, symbols, strict=True)]
    first = c.get(c.run(op.test, _inputs(c, op.test, given))[0], "bool")
    if first.rank:
        first = c.b.Squeeze(first)

    def body(b: Builder, states: list[Tensor]) -> list[Tensor]:
        new = _run(c, b, op.body, states)
        with c.inside(b):
            again = c.get(c.run(op.test, _inputs(c, op.test, new))[0], "bool")
        return [b.Squeeze(again) if again.rank else again, *new]

    limit = None if op.limit is None else c.get(np.asarray(op.limit, np.int64))
    made = c.b.Loop(
        limit, first, *given, body=_of_arity(lambda b, xs: body(b, xs[2:]), 2 + len(given)), outputs=len(given)
    )
    return list(made) if isinstance(made, tuple) else [made]


@converter("for")
def for_loop(c: Emitter, op: Any, lower: Any, upper: Any, start: list[Any]) -> list[Tensor]:
    symbols = list(zip(*(t.inputs for t in op.body), strict=True))
    given = [c.get(v, s[0].dtype) for v, s in zip(start, symbols[1:], strict=True)]
    begin = c.get(lower, "int64")
    trips = c.b.Sub(c.get(upper, "int64"), begin)

    def body(b: Builder, xs: list[Tensor]) -> list[Tensor]:
        index = b.Cast(b.Add(xs[0], begin), to=6)
        return [b.Identity(xs[1]), *_run(c, b, op.body, [index, *xs[2:]])]

    made = c.b.Loop(trips, True, *given, body=_of_arity(body, 2 + len(given)), outputs=len(given))
    return list(made) if isinstance(made, tuple) else [made]


@converter("if")
def branch(c: Emitter, op: Any, predicate: Any) -> list[Tensor]:
    made = c.b.If(
        _truth(c, c.get(predicate, "bool")),
        then_branch=lambda b: _branch(c, b, op.branches[1]),
        else_branch=lambda b: _branch(c, b, op.branches[0]),
        outputs=len(c.outs),
    )
    return list(made) if isinstance(made, tuple) else [made]


def _truth(c: Emitter, predicate: Tensor) -> Tensor:
    return c.b.Squeeze(predicate) if predicate.rank else predicate


def _branch(c: Emitter, b: Builder, tapes: tuple[Tape, ...]) -> list[Tensor]:
    with c.inside(b):
        made = [c.get(v, out.dtype) for v, out in zip(c.run(tapes), c.outs, strict=True)]
        return [b.Identity(t) if _outside(t, b) else t for t in made]


@converter("switch")
def switch(c: Emitter, op: Any, index: Any) -> list[Tensor]:
    """Nested branches; an index out of range takes the first or the last."""
    chosen = c.get(index, "int64")
    outs = c.outs

    def choose(b: Builder, k: int) -> Any:
        if k == len(op.branches) - 1:
            return _branch(c, b, op.branches[k])
        made = b.If(
            b.LessOrEqual(chosen, np.asarray(k, np.int64)),
            then_branch=lambda inner: _branch(c, inner, op.branches[k]),
            else_branch=lambda inner: choose(inner, k + 1),
            outputs=len(outs),
        )
        return list(made) if isinstance(made, tuple) else [made]

    return choose(c.b, 0)


GATES = {"LSTM": (0, 3, 1, 2), "GRU": (0, 1, 2), "RNN": (0,)}
"""Where ONNX's gates (LSTM: i o f c; GRU: z r h) stand among Keras's (i f c o; z r h)."""


def _zero(state: Any) -> bool:
    """Whether a state is zero, which is what ONNX's ops begin with where none is given."""
    return state.fill == 0 if isinstance(state, Value) else not np.any(state)


@converter("recurrent")
def recurrent(c: Emitter, op: Any, x: Any, states: list[Any], cells: list[list[Any]]) -> list[Tensor]:
    """One LSTM, GRU or RNN; both directions where there are two cells."""
    b, dtype = c.b, x.dtype
    order, ways = GATES[op.op], len(cells)

    def gates(made: Tensor) -> Tensor:
        """Columns of gates in ONNX's order, as rows."""
        if order != tuple(range(len(order))):
            parts = b.Split(made, axis=-1, num_outputs=len(order))
            made = b.Concat(*(parts[g] for g in order), axis=-1)
        return made

    def rows(kernel: Any) -> Tensor:
        return b.Unsqueeze(b.Transpose(gates(c.get(kernel, dtype)), perm=[1, 0]), np.array([0]))

    def biases(bias: Any) -> Tensor:
        zeros = c.get(np.zeros((1, len(order) * op.units)), dtype)
        if bias.rank == 2:
            return b.Reshape(c.get(bias, dtype), np.array([1, -1]))
        return b.Concat(b.Unsqueeze(gates(c.get(bias, dtype)), np.array([0])), zeros, axis=1)

    def joined(parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else b.Concat(*parts, axis=0)

    kinds = len(states) // ways
    given: list[Tensor] = []
    if not all(_zero(s) for s in states):
        initial = [b.Unsqueeze(c.get(s, dtype), np.array([0])) for s in states]
        given = [joined(initial[k * ways : (k + 1) * ways]) for k in range(kinds)]
    options: dict[str, Any] = {"activations": [name for name, _, _ in op.activations]}
    alphas = [a for _, a, _ in op.activations if a is not None]
    betas = [v for _, _, v in op.activations if v is not None]
    options |= {"activation_alpha": alphas} if alphas else {}
    options |= {"activation_beta": betas} if betas else {}
    if op.op == "GRU":
        options["linear_before_reset"] = int(op.reset_after)
    direction = "bidirectional" if ways == 2 else "reverse" if op.reverse else "forward"
    bias = None if cells[0][2] is None else joined([biases(cell[2]) for cell in cells])
    made = b.op(
        op.op,
        b.Transpose(c.get(x), perm=[1, 0, 2]),
        joined([rows(cell[0]) for cell in cells]),
        joined([rows(cell[1]) for cell in cells]),
        bias,
        None,
        *given,
        hidden_size=op.units,
        direction=direction,
        outputs=1 + kinds,
        **options,
    )
    outputs = b.Transpose(made[0], perm=[2, 0, 1, 3])
    last: list[Tensor] = []
    for state in made[1:]:
        parts = [state] if ways == 1 else list(b.Split(state, axis=0, num_outputs=2))
        last += [b.Squeeze(p, np.array([0])) for p in parts]
    return [outputs, *last]
