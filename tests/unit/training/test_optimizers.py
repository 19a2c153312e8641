"""Optimizers against Keras and torch, and against formulas written down again in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.passes.training.optimizers import Context, Optimizer
from tests.unit.training import reference
from tests.unit.training.cases import OPTIMIZERS, SHAPES, gradients, start
from tests.unit.training.support import BACKENDS, goldens

Array = np.ndarray[Any, Any]


def update_module(rule: Optimizer, shapes: Any = SHAPES) -> tuple[ik.Module, dict[str, Array]]:
    """One update of several parameters as a module, and the state that it starts with."""
    b = ik.Builder("update")
    initial: dict[str, Array] = {"step": np.zeros((), np.int64)}
    initial.update({name: np.asarray(value, np.float32) for name, value in rule.scalars.items()})
    for i, shape in enumerate(shapes):
        for key, slot in rule.slots(shape).items():
            initial[f"{key}/{i}"] = slot.initial(shape, np.dtype(np.float32))
    inputs = {name: b.input(name, value.dtype, list(value.shape)) for name, value in initial.items()}
    c = Context.of(b, rule, inputs["step"])
    shared = rule.advance(c, {name: inputs[name] for name in rule.scalars})
    c = Context(b, c.rate, c.count, shared)
    b.output(inputs["step"] + 1, "next/step")
    for name, value in shared.items():
        b.output(value, f"next/{name}")
    for i, shape in enumerate(shapes):
        w, g = b.input(f"w/{i}", "float32", shape), b.input(f"g/{i}", "float32", shape)
        slots = {key: inputs[f"{key}/{i}"] for key in rule.slots(shape)}
        new, kept = rule.update(c, rule.decayed(c, w), g, slots)
        b.output(new, f"next/w/{i}")
        for key, value in kept.items():
            b.output(value, f"next/{key}/{i}")
    return b.module(), initial


def run_updates(rule: Optimizer, backend: str) -> Array:
    """The parameters, flat, after each update."""
    module, state = update_module(rule)
    state.update({f"w/{i}": w for i, w in enumerate(start())})
    f = ik.compile(ik.optimize(module, "O2"), backend=backend)
    found = []
    for grads in gradients():
        out = f.run({**state, **{f"g/{i}": g for i, g in enumerate(grads)}})
        state = {name.removeprefix("next/"): value for name, value in out.items()}
        found.append(np.concatenate([state[f"w/{i}"].reshape(-1) for i in range(len(SHAPES))]))
    return np.stack(found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates(name: str, backend: str) -> None:
    case = OPTIMIZERS[name]
    found = run_updates(ik.optimizers.get(case.name, **case.options), backend)
    assert np.abs(np.diff(found, axis=0)).max() > 1e-4
    np.testing.assert_allclose(found, reference.run(case.name, **case.options), rtol=2e-5, atol=2e-6)
    for peer in ("keras", "torch"):
        if getattr(case, peer):
            np.testing.assert_allclose(found, goldens()[f"optimizer/{name}/{peer}"], rtol=3e-5, atol=3e-6, err_msg=peer)
