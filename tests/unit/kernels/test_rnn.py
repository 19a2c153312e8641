"""Recurrent layers against their equations, one batch entry and one step at a time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

RNG = np.random.default_rng(13)
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
STATES = {"RNN": 1, "LSTM": 2, "GRU": 1}
DEFAULT = {"RNN": ("Tanh",), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}


def floats(*shape: int) -> np.ndarray:
    """Small, so that unbounded activations stay in range over all steps."""
    return RNG.uniform(-0.8, 0.8, shape).astype(np.float32)


FUNCTIONS = {
    "Relu": lambda x, a, b: max(x, 0),
    "Tanh": lambda x, a, b: math.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + math.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: x if x >= 0 else a * x,
    "ThresholdedRelu": lambda x, a, b: x if x >= a else 0,
    "ScaledTanh": lambda x, a, b: a * math.tanh(b * x),
    "HardSigmoid": lambda x, a, b: min(max(a * x + b, 0), 1),
    "Elu": lambda x, a, b: x if x >= 0 else a * math.expm1(x),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: math.log1p(math.exp(x)),
}


def apply(name, x, alpha=0.0, beta=0.0, clip=None):
    if clip is not None:
        x = np.clip(x, -clip, clip)
    return np.array([FUNCTIONS[name](float(v), alpha, beta) for v in x])


def step(op, x, h, c, w, r, b, p, f, linear_before_reset, input_forget):
    """One step of one direction for one batch entry, as the spec writes it: the next h and c."""
    size = len(h)
    wx = [w[i * size : (i + 1) * size] @ x for i in range(GATES[op])]
    rm = [r[i * size : (i + 1) * size] for i in range(GATES[op])]
    wb, rb = (np.split(half, GATES[op]) for half in np.split(b, 2))
    if op == "RNN":
        return f[0](wx[0] + rm[0] @ h + wb[0] + rb[0]), c
    if op == "GRU":
        z = f[0](wx[0] + rm[0] @ h + wb[0] + rb[0])
        reset = f[0](wx[1] + rm[1] @ h + wb[1] + rb[1])
        inner = reset * (rm[2] @ h + rb[2]) if linear_before_reset else rm[2] @ (reset * h) + rb[2]
        return (1 - z) * f[1](wx[2] + inner + wb[2]) + z * h, c
    pi, po, pf = np.split(p, 3)
    gate = [wx[i] + rm[i] @ h + wb[i] + rb[i] for i in range(4)]
    i = f[0](gate[0] + pi * c)
    forget = 1 - i if input_forget else f[0](gate[2] + pf * c)
    c = forget * c + i * f[1](gate[3])
    return f[0](gate[1] + po * c) * f[2](c), c


def expected(op, x, w, r, b, lengths, h0, c0, p, functions, direction, linear_before_reset=0, input_forget=0):
    steps, batch, _ = x.shape
    count, _, size = r.shape
    y = np.zeros((steps, count, batch, size))
    last_h, last_c = np.zeros((count, batch, size)), np.zeros((count, batch, size))
    for d in range(count):
        for n in range(batch):
            h, c = h0[d, n].astype(float), c0[d, n].astype(float)
            order = range(int(lengths[n]))
            for t in reversed(order) if direction == "reverse" or d else order:
                h, c = step(op, x[t, n], h, c, w[d], r[d], b[d], p[d], functions[d], linear_before_reset, input_forget)
                y[t, d, n] = h
            last_h[d, n], last_c[d, n] = h, c
    return (y, last_h, last_c)[: 1 + STATES[op]]


def make(op, steps=4, batch=3, features=2, size=3, count=1):
    gates = GATES[op]
    return {
        "x": floats(steps, batch, features),
        "w": floats(count, gates * size, features),
        "r": floats(count, gates * size, size),
        "b": floats(count, 2 * gates * size),
        "lengths": np.array([4, 2, 0], np.int32),
        "h0": floats(count, batch, size),
        "c0": floats(count, batch, size),
        "p": floats(count, 3 * size),
    }


def arguments(op, t):
    common = [t["x"], t["w"], t["r"], t["b"], t["lengths"], t["h0"]]
    return [*common, t["c0"], t["p"]] if op == "LSTM" else common


OPTIONS = {
    "RNN": [{}],
    "LSTM": [{"input_forget": 0}, {"input_forget": 1}],
    "GRU": [{"linear_before_reset": v} for v in (0, 1)],
}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("name", "option"), [(n, o) for n in GATES for o in OPTIONS[n]])
@pytest.mark.parametrize("layout", [0, 1])
def test_layers_are_their_equations(op, name, option, direction, layout):
    count = 2 if direction == "bidirectional" else 1
    t = make(name, count=count)
    functions = [[lambda x, f=f: apply(f, x) for f in DEFAULT[name]]] * count
    want = expected(name, **t, functions=functions, direction=direction, **option)
    given = dict(t)
    if layout:
        for key in ("x", "h0", "c0"):
            given[key] = np.ascontiguousarray(t[key].swapaxes(0, 1))
        want = (want[0].transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in want[1:]))
    got = op(
        name, *arguments(name, given), n_out=len(want), direction=direction, hidden_size=3, layout=layout, **option
    )
    for a, b in zip(got, want, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


PARAMETERS = {
    "Affine": (0.5, 0.25),
    "LeakyRelu": (0.3, 0),
    "ThresholdedRelu": (0.4, 0),
    "ScaledTanh": (0.8, 0.6),
    "HardSigmoid": (0.3, 0.4),
    "Elu": (0.7, 0),
}
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


@pytest.mark.parametrize("names", [*((n, "Tanh", "Sigmoid") for n in FUNCTIONS), ("Elu", "HardSigmoid", "ScaledTanh")])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_every_activation_and_clip(op, names, clip):
    t = make("LSTM")
    values = [PARAMETERS.get(n, (0, 0)) for n in names]
    functions = [[lambda x, n=n, v=v: apply(n, x, *v, clip=clip) for n, v in zip(names, values, strict=True)]]
    want = expected("LSTM", **t, functions=functions, direction="forward")
    attributes = {
        "activation_alpha": tuple(PARAMETERS[n][0] for n in names if n in PARAMETERS),
        "activation_beta": tuple(PARAMETERS[n][1] for n in names if n in WITH_BETA),
    } | ({} if clip is None else {"clip": clip})
    got = op("LSTM", *arguments("LSTM", t), n_out=3, activations=names, **attributes)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_names_of_activations_ignore_case_and_defaults_hold(op):
    t = make("RNN")
    values = arguments("RNN", t)
    np.testing.assert_array_equal(
        op("RNN", *values, activations=("leakyrelu",)),
        op("RNN", *values, activations=("LeakyRelu",), activation_alpha=(0.01,)),
    )


@pytest.mark.parametrize("name", list(GATES))
def test_optional_inputs_are_zeros(op, name):
    t = make(name)
    full = dict(t, lengths=np.full(3, 4, np.int32), **{k: t[k] * 0 for k in ("b", "h0", "c0", "p")})
    np.testing.assert_array_equal(op(name, t["x"], t["w"], t["r"]), op(name, *arguments(name, full)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_layers_keep_the_dtype(op, dtype):
    t = {k: v if k == "lengths" else v.astype(dtype) for k, v in make("GRU").items()}
    y, h = op("GRU", *arguments("GRU", t), n_out=2)
    assert y.dtype == h.dtype == dtype
    functions = [[lambda x, f=f: apply(f, x) for f in DEFAULT["GRU"]]]
    wide = {k: v.astype(float) for k, v in t.items()}
    want = expected("GRU", **wide, functions=functions, direction="forward")
    tolerance = {np.float64: 1e-9, np.float16: 2e-3}.get(dtype, 2e-2)
    np.testing.assert_allclose(y.astype(float), want[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (3, 0)])
def test_layers_of_nothing(op, steps, batch):
    t = make("LSTM", steps=steps, batch=batch)
    y, h, c = op("LSTM", t["x"], t["w"], t["r"], t["b"], None, t["h0"], t["c0"], n_out=3)
    assert y.shape == (steps, 1, batch, 3)
    np.testing.assert_array_equal(h, t["h0"])
    np.testing.assert_array_equal(c, t["c0"])


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({}, {"activations": ("Gelu", "Tanh")}, "activation 'Gelu' is none of"),
        ({}, {"activations": ("Tanh",)}, "2 activations are needed"),
        ({}, {"direction": "sideways"}, "direction 'sideways'"),
        ({}, {"direction": "bidirectional"}, "must have 2 directions"),
        ({}, {"hidden_size": 4}, "hidden_size 4"),
        ({"lengths": np.array([4, 5, 1], np.int32)}, {}, r"sequence_lens \[4, 5, 1\] must lie in \[0, 4\]"),
        ({"w": floats(1, 9, 3)}, {}, "W must have shape"),
        ({"h0": floats(3, 1, 3)}, {}, "an initial state must have shape"),
    ],
)
def test_layers_refuse(op, change, attributes, message):
    with pytest.raises(KernelError, match=message):
        op("GRU", *arguments("GRU", make("GRU") | change), **attributes)
