"""A recurrent network, written as a scan, that learns to add: trained by ``minimize``, saved, and used.

python examples/dsl_rnn.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import irkit as ik
from irkit.frontends import dsl

UNITS = 8
rng = np.random.default_rng(3)


def _weights(*shape: int) -> np.ndarray:
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of numbers, time first, and their means."""
    values = np.random.default_rng(seed).uniform(-1, 1, (12, n, 1)).astype(np.float32)
    return values, values.mean(0)


x = dsl.placeholder("x", "float32", ["time", "batch", 1])
wanted = dsl.placeholder("wanted", "float32", ["batch", 1])

w_in = dsl.variable(_weights(1, UNITS), "w_in")
w_state = dsl.variable(_weights(UNITS, UNITS), "w_state")
bias = dsl.variable(np.zeros(UNITS, np.float32), "bias")
w_out = dsl.variable(_weights(UNITS, 1), "w_out")


def cell(state: Any, item: Any) -> Any:
    """One step in time."""
    return dsl.tanh(item @ w_in + state @ w_state + bias), None


state, _ = dsl.scan(cell, dsl.zeros((dsl.shape(x)[1], UNITS)), x)
answer = state @ w_out
loss = dsl.mean(dsl.square(answer - wanted))
train = dsl.minimize(ik.optimizers.Adam(0.02), loss)


def main(backend: str = "numpy") -> dict[str, np.ndarray]:
    """Trains, saves the state, and loads it into another session."""
    session = dsl.Session(backend)
    values, means = data(32, seed=0)
    first = session.run(loss, {x: values, wanted: means})
    for i in range(60):
        values, means = data(32, seed=i)
        last, _ = session.run([loss, train], {x: values, wanted: means})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rnn.safetensors"
        session.save(path)
        fresh = dsl.Session(backend)
        fresh.load(path)
    values, means = data(4, seed=99)
    found = fresh.run(answer, {x: values})
    print(f"loss {first:.4f} -> {last:.4f}; means {means[:, 0].round(3)}, answers {found[:, 0].round(3)}")
    return {"first": first, "last": last, "answer": found, "w_out": fresh.state["w_out"]}


if __name__ == "__main__":
    main()
