"""Writes what ``train.mjs`` needs into a folder: a training step, its initial state, and batches.

    python examples/javascript/make_step.py build/step

The batches are made up: images of 12x12 with a bright bar or a bright square, four kinds in all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import irkit as ik
from irkit.passes.training import TrainingStep
from irkit.passes.training.files import save_state

__all__ = ["BATCHES", "EPOCHS", "batches", "model", "step", "write"]

EPOCHS, BATCHES, SIZE = 5, 12, 32

Array = np.ndarray[Any, Any]


def model() -> ik.Module:
    """A small convolutional network: (batch, 1, 12, 12) to four logits."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return (random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    b = ik.Builder("bars")
    x = b.input("x", "float32", ["batch", 1, 12, 12])
    h = b.Conv(x, b.initializer(weight(8, 1, 3, 3), "conv.weight"), b.initializer(np.zeros(8, np.float32), "conv.bias"))
    h = b.MaxPool(b.Relu(h), kernel_shape=[2, 2], strides=[2, 2])
    dense = b.initializer(weight(4, 200).T.copy(), "dense.weight"), b.initializer(np.zeros(4, np.float32), "dense.bias")
    b.output(b.Flatten(h) @ dense[0] + dense[1], "logits")
    return b.module()


def step() -> TrainingStep:
    """Its training step."""
    return ik.training_step(model(), "softmax-cross-entropy", ik.optimizers.AdamW(1e-2), metrics=["accuracy"])


def batches() -> list[tuple[Array, Array]]:
    """Images and their kinds: a row, a column, a square, a diagonal."""
    random = np.random.default_rng(1)
    found: list[tuple[Array, Array]] = []
    for _ in range(BATCHES):
        x = random.normal(0, 0.5, (SIZE, 1, 12, 12)).astype(np.float32)
        target = random.integers(0, 4, SIZE)
        for image, kind in zip(x[:, 0], target, strict=True):
            i, j = random.integers(0, 8, 2)
            if kind == 0:
                image[i, j : j + 5] += 2
            elif kind == 1:
                image[i : i + 5, j] += 2
            elif kind == 2:
                image[i : i + 2, j : j + 2] += 2
            else:
                image[range(i, i + 4), range(j, j + 4)] += 2
        found.append((x, target))
    return found


def write(folder: Path) -> None:
    """Writes the folder."""
    step().save(folder)
    arrays = {
        f"{i}/{name}": value
        for i, pair in enumerate(batches())
        for name, value in zip(("x", "target"), pair, strict=True)
    }
    save_state(folder / "data.safetensors", arrays)
    (folder / "data.json").write_text(json.dumps({"epochs": EPOCHS, "batches": BATCHES}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python make_step.py FOLDER")
    write(Path(sys.argv[1]))
    print(f"now: node {Path(__file__).with_name('train.mjs')} {sys.argv[1]}")
