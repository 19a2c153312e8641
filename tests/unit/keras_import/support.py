"""What the tests of the Keras importer share."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

import irkit as ik
from irkit.dialects import state
from irkit.frontends import keras as from_keras
from irkit.frontends.keras import adapter
from irkit.ir.module import Module


def ops_of(module: Module) -> list[str]:
    """The ops of a module that compute something, in order, bodies of loops included."""
    skipped = {"onnx.Initializer", "onnx.Constant", "onnx.NoValue", "onnx.Yield"}
    return [
        op.name.removeprefix("onnx.") for op in module.walk() if op.name.startswith("onnx.") and op.name not in skipped
    ]


def lifted(module: Module) -> Module:
    """The module with its state as inputs and outputs."""
    return ik.optimize(module, "lift-state")


def arrays(returned: Any) -> list[np.ndarray]:
    """What a Keras model returned, flat, as arrays."""
    return [adapter.to_numpy(v) for v in adapter.flatten(returned)]


def assert_same(got: list[np.ndarray], want: list[np.ndarray], tolerance: float, what: str) -> None:
    """Same shapes, and values within a tolerance."""
    assert len(got) == len(want), what
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape, what
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


# Expressions of keras.ops


def op_feeds(batch: int) -> dict[str, np.ndarray]:
    """The inputs that expressions of ``op_cases`` may name."""
    rng = np.random.default_rng(batch)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "x": normal(batch, 4, 6),
        "y": normal(batch, 4, 6),
        "i": rng.integers(0, 6, (batch, 4)).astype(np.int32),
        "b": rng.random((batch, 4)) < 0.5,
        "p": np.abs(normal(batch, 4, 6)) + np.float32(1.1),
        "m": normal(batch, 3, 3),
        "v": normal(batch),
        "img": rng.random((batch, 6, 8, 3)).astype(np.float32),
    }


@functools.cache
def _names() -> dict[str, np.ndarray]:
    return op_feeds(1)


def used_names(expression: str) -> list[str]:
    """The inputs that an expression names."""
    return [name for name in _names() if re.search(rf"\b{name}\b", expression)]


def op_model(*expressions: str) -> tuple[Any, dict[str, Any]]:
    """A model that computes expressions from a dict of inputs, and what its inputs are."""
    keras = adapter.api()
    compiled = [compile(e, "<expression>", "eval") for e in expressions]

    class Expressions(keras.Model):
        def call(self, inputs: dict[str, Any]) -> Any:
            return [eval(e, {"ops": keras.ops, "np": np, **inputs}) for e in compiled]

    model = Expressions()
    model.built = True
    used = {name for e in expressions for name in used_names(e)}
    specs = {
        name: keras.KerasTensor((None, *a.shape[1:]), str(a.dtype), name=name)
        for name, a in _names().items()
        if name in used
    }
    return model, specs


def load_quietly(*args: Any, **options: Any) -> Module:
    """The module of a model that is not compared with Keras here."""
    return from_keras.load(*args, check=False, **options)


def initial(module: Module) -> dict[str, np.ndarray]:
    """The state that a module starts with."""
    return state.initial_state(module)
