"""Recurrent layers: one LSTM, GRU or RNN op where ONNX's means the same, else the cell's step in a loop."""

from __future__ import annotations

from typing import Any

from irkit.frontends.keras import adapter
from irkit.frontends.keras.control import scan
from irkit.frontends.keras.trace import FUNCTIONS, Tracer, like

ACTIVATIONS: dict[str, tuple[str, float | None, float | None]] = {
    "tanh": ("Tanh", None, None),
    "sigmoid": ("Sigmoid", None, None),
    "relu": ("Relu", None, None),
    "softsign": ("Softsign", None, None),
    "softplus": ("Softplus", None, None),
    "elu": ("Elu", 1.0, None),
    "hard_sigmoid": ("HardSigmoid", 1 / 6, 0.5),
    "linear": ("Affine", 1.0, 0.0),
}
"""Keras's activations that ONNX's recurrent ops have, with alpha and beta."""


def activation(function: Any) -> tuple[str, float | None, float | None] | None:
    """What ONNX calls an activation function of Keras's; None if it has none."""
    for name, found in ACTIVATIONS.items():
        if function is adapter.api().activations.get(name):
            return found
    return None


def _named(names: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(names.split()), **dict(zip(names.split(), args, strict=False)), **kwargs}


def _op(
    tracer: Tracer,
    kind: str,
    cells: list[Any],
    functions: list[Any],
    x: Any,
    states: list[Any],
    mask: Any,
    **options: Any,
) -> tuple[Any, list[Any], list[Any]]:
    """One recurrent op.

    Args:
        cells: per direction kernel, recurrent kernel and bias.
        states: the initial ones, per kind and direction.

    Returns:
        all outputs ``(batch, time, directions, units)``, and per kind of state and direction the last.

    Raises:
        NotImplementedError: if ONNX's op would not compute the same, so that Keras tries another way.
    """
    known = [activation(f) for f in functions]
    if mask is not None or None in known:
        raise NotImplementedError
    units = cells[0][1].shape[0]
    outputs = adapter.symbol((x.shape[0], x.shape[1], len(cells), units), x.dtype)
    last = [like(s) for s in states]
    tracer.primitive(
        "recurrent", (x, states, cells), [outputs, *last], op=kind, activations=known, units=units, **options
    )
    return outputs, last, []


def _one_way(
    tracer: Tracer, kind: str, given: dict[str, Any], states: list[Any], functions: list[Any], **options: Any
) -> Any:
    """A layer that goes one way: its last output, all outputs in the order in which they came, its states."""
    ops = adapter.api().ops
    cell = [given["kernel"], given["recurrent_kernel"], given["bias"]]
    outputs, last, _ = _op(
        tracer,
        kind,
        [cell],
        functions,
        given["x"],
        states,
        given["mask"],
        reverse=bool(given["go_backwards"]),
        **options,
    )
    outputs = ops.squeeze(outputs, 2)
    if given["go_backwards"] and given["return_sequences"]:
        outputs = ops.flip(outputs, 1)
    return last[0], outputs, last


def _lstm(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
    given = _named("x h c mask kernel recurrent_kernel bias activation recurrent_activation", args, kwargs)
    functions = [given["recurrent_activation"], given["activation"], given["activation"]]
    return _one_way(tracer, "LSTM", given, [given["h"], given["c"]], functions)


def _gru(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
    given = _named("x h mask kernel recurrent_kernel bias activation recurrent_activation", args, kwargs)
    functions = [given["recurrent_activation"], given["activation"]]
    return _one_way(tracer, "GRU", given, [given["h"]], functions, reset_after=bool(given["reset_after"]))


def _two_way(kind: str, states: int) -> Any:
    """Both directions in one op; Keras wants the backward outputs in the order of the input."""

    def run(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
        x, initial = args[0], list(args[1 : 1 + 2 * states])
        cells = [[kwargs[f"{way}_{part}"] for part in ("kernel", "recurrent_kernel", "bias")] for way in ("fwd", "bwd")]
        functions = [kwargs["recurrent_activation"], *[kwargs["activation"]] * states]
        # Keras gives all states of one direction first; the op all directions of one state.
        ordered = [initial[way * states + k] for k in range(states) for way in range(2)]
        options = {} if kind == "LSTM" else {"reset_after": True}
        outputs, last, _ = _op(
            tracer, kind, cells, functions * 2, x, ordered, kwargs.get("mask"), reverse=False, **options
        )
        found = []
        for way in range(2):
            mine = [last[k * 2 + way] for k in range(states)]
            found.append((mine[0], outputs[:, :, way], mine))
        return tuple(found)

    return run


FUNCTIONS["lstm"] = _lstm
FUNCTIONS["gru"] = _gru
FUNCTIONS["bidirectional_lstm"] = _two_way("LSTM", 2)
FUNCTIONS["bidirectional_gru"] = _two_way("GRU", 1)


def _rnn(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any], original: Any) -> Any:
    """Any recurrence: the step traced once, as the body of a loop over time."""
    given = _named(
        "step_function inputs initial_states go_backwards mask constants unroll input_length time_major "
        "zero_output_for_mask return_all_outputs",
        args,
        kwargs,
    )
    simple = _simple(tracer, given)
    if simple is not None:
        return simple
    ops = adapter.api().ops
    structure, start = given["inputs"], given["initial_states"]
    time_major, mask = bool(given["time_major"]), given["mask"]
    xs = [x if time_major else ops.swapaxes(x, 0, 1) for x in adapter.flatten(structure)]
    states = adapter.flatten(start)
    constants = tuple(given["constants"] or ())
    masks: list[Any] = []
    if mask is not None:
        mask = ops.cast(mask, "bool")
        masks = [mask if time_major else ops.swapaxes(mask, 0, 1)]
    # An unrolled loop keeps the last output where the mask is off, any other the first state.
    keeps_output = bool(masks) and bool(given["unroll"])
    zeros: list[Any] = []
    if keeps_output:
        probe, (output, _) = tracer.body(
            lambda *s: given["step_function"](
                adapter.pack_like(structure, list(s[: len(xs)])),
                tuple(adapter.pack_like(start, list(s[len(xs) :]))) + constants,
            ),
            [adapter.symbol(x.shape[1:], x.dtype) for x in xs] + [like(s) for s in states],
        )
        del probe
        zeros = [tracer.function("zeros", (output.shape, output.dtype), {}, adapter.backend_function("zeros"))]

    def step(carried: list[Any], items: list[Any]) -> Any:
        packed = adapter.pack_like(start, carried[: len(states)])
        old = adapter.flatten(packed)
        taken = items[: len(xs)]
        output, new = given["step_function"](adapter.pack_like(structure, taken), tuple(packed) + constants)
        new = adapter.flatten(new)
        if masks:
            on = items[-1]
            held = (
                carried[-1]
                if keeps_output
                else ops.zeros_like(output)
                if given["zero_output_for_mask"]
                else _first(start, old)
            )
            output = ops.where(_wide(on, output), output, held)
            new = [ops.where(_wide(on, n), n, o) for n, o in zip(new, old, strict=True)]
        return [*new, *([output] if keeps_output else [])], [output]

    finals, (outputs,) = scan(
        tracer, step, [*states, *zeros], [*xs, *masks], reverse=bool(given["go_backwards"]), restore=False
    )
    last = outputs[-1]
    if not time_major:
        outputs = ops.swapaxes(outputs, 0, 1)
    return last, outputs, adapter.pack_like(start, finals[: len(states)])


def _first(structure: Any, leaves: list[Any]) -> Any:
    """The state that stands for the previous output: the first; of stacked cells that of the last cell."""
    packed = adapter.pack_like(structure, leaves)
    return packed[-1][0] if isinstance(packed[0], (list, tuple)) else packed[0]


def _wide(mask: Any, like_this: Any) -> Any:
    ops = adapter.api().ops
    while len(mask.shape) < len(like_this.shape):
        mask = ops.expand_dims(mask, -1)
    if len(mask.shape) > len(like_this.shape):
        mask = ops.any(mask, axis=tuple(range(len(like_this.shape), len(mask.shape))))
    return mask


def _simple(tracer: Tracer, given: dict[str, Any]) -> Any:
    """A SimpleRNN layer without masks and without dropout in the loop, as one op."""
    layer = tracer.layers[-1] if tracer.layers else None
    if layer is None or type(layer).__name__ != "SimpleRNN" or not type(layer).__module__.startswith("keras."):
        return None
    cell = layer.cell
    if tracer.training and (cell.dropout or cell.recurrent_dropout):
        return None
    wanted = {
        "x": given["inputs"],
        "mask": given["mask"],
        "kernel": cell.kernel.value,
        "recurrent_kernel": cell.recurrent_kernel.value,
        "bias": None if cell.bias is None else cell.bias.value,
        "go_backwards": given["go_backwards"],
        "return_sequences": True,
    }
    try:
        return _one_way(tracer, "RNN", wanted, list(given["initial_states"]), [cell.activation])
    except NotImplementedError:
        return None


FUNCTIONS["rnn"] = _rnn
