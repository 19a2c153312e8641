"""Asks Keras for what the layers' tests compare with; run by ``python make_goldens.py`` where Keras, torch, jax are.

Keras runs on torch; on JAX what it cannot do there: torch does not pad on one side alone. Writes
``goldens.npz``: per case outputs, gradients (of the weighted sum of the outputs, with respect to inputs and trainable
weights) and what training changes. And ``digits.npz``, scikit-learn's digits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case

ON_JAX = ("Transpose", "LayerNormalization(axis=1", "AveragePooling2D(3", "Resizing", "CenterCrop(9")
BACKEND = os.environ.setdefault("KERAS_BACKEND", "torch")


def names_of(layer: Any) -> list[str]:
    return [v.path.split("/")[-1] for v in layer.weights]


def answers(case: Case) -> dict[str, Any]:
    """What Keras gives for a case."""
    import keras  # Reads KERAS_BACKEND.

    layer = eval(case.layer, dict(vars(keras.layers)))
    inputs = [keras.ops.convert_to_tensor(v) for v in case.inputs()]
    kwargs: dict[str, Any] = dict(case.kwargs)
    if case.mask:
        kwargs["mask"] = keras.ops.convert_to_tensor(case.masked())
    if case.training:
        kwargs["training"] = True

    def call(target: Any, values: list[Any]) -> Any:
        if case.call == "one":
            return target(values[0], **kwargs)
        return target(values, **kwargs) if case.call == "list" else target(*values, **kwargs)

    call(layer, inputs)
    layer.set_weights(case.weights([tuple(v.shape) for v in layer.weights], names_of(layer)))
    gradients = of_jax if BACKEND == "jax" else of_torch
    found = gradients(case, layer, inputs, call)
    if case.training:
        found |= {f"next{i}": keras.ops.convert_to_numpy(v.value) for i, v in enumerate(layer.non_trainable_variables)}
    return found


def of_torch(case: Case, layer: Any, inputs: list[Any], call: Any) -> dict[str, Any]:
    """Outputs and gradients by torch."""
    import keras
    import torch

    inputs = [v.detach().requires_grad_(v.is_floating_point()) for v in inputs]
    outputs = keras.tree.flatten(call(layer, inputs))
    factors = case.factors([tuple(v.shape) for v in outputs])
    loss = sum((torch.as_tensor(f) * v).sum() for f, v in zip(factors, outputs, strict=True))
    found = {f"out{i}": v.detach().numpy() for i, v in enumerate(outputs)}
    wanted = {f"dx{i}": v for i, v in enumerate(inputs) if v.requires_grad}
    wanted |= {f"dw{i}": v.value for i, v in enumerate(layer.trainable_variables)}
    if wanted and loss.requires_grad:
        grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True)
        found |= {key: grad.numpy() for key, grad in zip(wanted, grads, strict=True)}
    return found


def of_jax(case: Case, layer: Any, inputs: list[Any], call: Any) -> dict[str, Any]:
    """Outputs and gradients by JAX."""
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    trainable = [v.value for v in layer.trainable_variables]
    fixed = [v.value for v in layer.non_trainable_variables]

    def run(values: list[Any], trained: list[Any]) -> list[Any]:
        found = call(lambda *a, **k: layer.stateless_call(trained, fixed, *a, **k)[0], values)
        return jax.tree_util.tree_leaves(found)

    outputs = run(inputs, trainable)
    factors = case.factors([v.shape for v in outputs])

    def loss(values: list[Any], trained: list[Any]) -> Any:
        return sum((f * v).sum() for f, v in zip(factors, run(values, trained), strict=True))

    of_inputs, of_weights = jax.grad(loss, argnums=(0, 1))(inputs, trainable)
    found = {f"out{i}": v for i, v in enumerate(outputs)}
    found |= {f"dx{i}": v for i, v in enumerate(of_inputs)}
    return found | {f"dw{i}": v for i, v in enumerate(of_weights)}


def digits() -> dict[str, Any]:
    """scikit-learn's digits: 1797 images of 8 by 8, values 0 to 16."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return {"digits/x": data.images.astype(np.uint8), "digits/y": data.target.astype(np.uint8)}


def main() -> None:
    stored: dict[str, Any] = {}
    for case in CASES:
        if any(part in case.layer for part in ON_JAX) != (BACKEND == "jax"):
            continue
        try:
            found = answers(case)
        except Exception as error:
            print(f"{case.name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            continue
        stored |= {f"{case.name}|{key}": np.asarray(value) for key, value in found.items()}
    if BACKEND == "jax":
        np.savez_compressed(sys.argv[1], **stored)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jax.npz"
        subprocess.run([sys.executable, __file__, str(path)], env={**os.environ, "KERAS_BACKEND": "jax"}, check=True)
        stored |= np.load(path)
    here = Path(__file__).parent
    np.savez_compressed(here / "goldens.npz", **stored)
    np.savez_compressed(here / "digits.npz", **digits())
    print(len(CASES), "cases,", len(stored), "arrays")


if __name__ == "__main__":
    main()
