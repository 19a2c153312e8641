"""Every layer gives what Keras gives, and so do its gradients; see ``make_goldens.py``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.dialects.state import initial_state, run_stateful, state_signature
from irkit.frontends import layers
from irkit.frontends.layers.node import flatten
from irkit.frontends.layers.saving import from_config, to_config
from tests.unit.layers.cases import CASES, Case

TOLERANCE = 1e-5
WITH_GRADIENTS = [case for case in CASES if "CategoryEncoding" not in case.layer]


@cache
def goldens() -> dict[str, np.ndarray[Any, Any]]:
    """All of Keras's answers."""
    return dict(np.load(Path(__file__).with_name("goldens.npz")))


def answers(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    found = {key.rpartition("|")[2]: value for key, value in goldens().items() if key.rpartition("|")[0] == case.name}
    assert found, f"no goldens for {case.name}: run make_goldens.py"
    return found


def model_of(case: Case) -> tuple[layers.Model, Any]:
    """The case's layer as a model, with the case's weights."""
    layers.reset_names()
    layer = eval(case.layer, dict(vars(layers)))
    kind = "int32" if case.integers else "float32"
    inputs = [
        layers.Input(shape[1:], batch_size=shape[0], dtype=kind, name=f"x{i}") for i, shape in enumerate(case.shapes)
    ]
    kwargs: dict[str, Any] = dict(case.kwargs)
    given = list(inputs)
    if case.mask:
        given.append(layers.Input(case.shapes[0][1:2], batch_size=case.shapes[0][0], dtype="bool", name="mask"))
        kwargs["mask"] = given[-1]
    args = {"one": inputs[:1], "list": [inputs], "args": inputs}[case.call]
    outputs = layer(*args, **kwargs)
    layer.set_weights(case.weights([v.shape for v in layer.weights], [v.name for v in layer.weights]))
    return layers.Model(given, flatten(outputs)), layer


def close(found: Any, expected: Any, what: str) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert found.shape == expected.shape, what
    assert np.abs(found.astype(np.float64) - expected).max(initial=0) <= TOLERANCE * scale, what


def feeds_of(case: Case) -> dict[str, Any]:
    feeds: dict[str, Any] = {f"x{i}": value for i, value in enumerate(case.inputs())}
    return feeds | ({"mask": case.masked()} if case.mask else {})


def backends(case: Case) -> list[str]:
    """onnxruntime takes no BatchNormalization in training; a training step lowers it."""
    return ["numpy"] if case.training else ["numpy", "onnxruntime"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_gives_what_keras_gives(case: Case) -> None:
    model, layer = model_of(case)
    expected, feeds = answers(case), feeds_of(case)
    module = ik.optimize(model.to_module(training=case.training), "lift-state")
    signature, start = state_signature(module), initial_state(module)
    for backend in backends(case):
        outputs, state = run_stateful(ik.compile(module, backend=backend), signature, feeds, start)
        for index, value in enumerate(outputs.values()):
            close(value, expected[f"out{index}"], f"out{index} on {backend}")
        for index, variable in enumerate(layer.non_trainable_weights):
            if f"next{index}" in expected and variable.path in state:
                close(state[variable.path], expected[f"next{index}"], f"{variable.path} after a step")


@pytest.mark.parametrize("case", WITH_GRADIENTS, ids=lambda case: case.name)
def test_a_layer_has_the_gradients_that_keras_has(case: Case) -> None:
    model, layer = model_of(case)
    expected, feeds = answers(case), feeds_of(case)
    traced = model.traced(case.training)
    b, shapes = traced.trace.b, [tuple(value.shape or ()) for _, value in traced.outputs]
    parts = [
        b.ReduceSum(b.Mul(value, factor), keepdims=0)
        for (_, value), factor in zip(traced.outputs, case.factors(shapes), strict=True)
        if value.dtype is not None and value.dtype.is_float
    ]
    b.output(b.Sum(*parts), "loss")
    names = {f"dw{i}": traced.trace.names.get(v) for i, v in enumerate(layer.trainable_weights)}
    names |= {key: f"x{key[2:]}" for key in expected if key.startswith("dx")}
    assert set(names) == {key for key in expected if key.startswith("d")}
    pure = ik.optimize(traced.finish(), "lift-state")
    module = ik.optimize(ik.value_and_grad(pure, "loss", list(names.values()), allow_unused=True), "lower-ad")
    for backend in backends(case):
        found = ik.compile(module, backend=backend).run(feeds)
        for key, name in names.items():
            close(found[f"grad/{name}"], expected[key], f"{key} ({name}) on {backend}")


@pytest.mark.parametrize("text", sorted({case.layer for case in CASES}))
def test_a_layer_is_made_again_from_its_configuration(text: str) -> None:
    layer = eval(text, dict(vars(layers)))
    config = json.loads(json.dumps(to_config(layer)))
    again = from_config(config)
    assert type(again) is type(layer)
    assert again.name == layer.name
    assert to_config(again) == config


def test_every_layer_has_a_case() -> None:
    text = " ".join(case.layer for case in CASES)
    untested = {"InputLayer", "Operation", "Lambda", "StackedRNNCells", "Wrapper", "Activation"}
    missing = [name for name in layers.LAYERS if f"{name}(" not in text and name not in untested]
    assert not missing
