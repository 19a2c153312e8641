"""A small residual network that tells the directions of stripes: layers, fit, a picture, export to ONNX.

python examples/layers_residual.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import irkit as ik
from irkit.frontends import layers


def data(n: int = 480) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images (n, 12, 12, 1) of stripes, and which of four directions these have."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, n)
    rows, columns = np.mgrid[:12, :12]
    along = np.stack([rows, columns, rows + columns, rows - columns])[kinds]
    images = np.sin(along * 1.6 + rng.uniform(0, 6, (n, 1, 1))) + rng.normal(0, 0.7, (n, 12, 12))
    return images[..., None].astype(np.float32), kinds


class Block(layers.Layer):
    """Two convolutions around which the input goes as well (He et al. 2015)."""

    def __init__(self, filters: int, **options: object) -> None:
        super().__init__(**options)
        self.first = layers.Conv2D(filters, 3, padding="same", activation="relu")
        self.second = layers.Conv2D(filters, 3, padding="same")
        self.norm = layers.BatchNormalization(momentum=0.9)

    def call(self, inputs):
        return layers.ops.relu(inputs + self.norm(self.second(self.first(inputs))))


def build() -> layers.Model:
    """The model, with the weights that seed 0 gives."""
    layers.set_seed(0)
    x = layers.Input((12, 12, 1), name="image")
    y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    for _ in range(2):
        y = layers.MaxPooling2D()(Block(8)(y))
    return layers.Model(x, layers.Dense(4, activation="softmax", name="direction")(layers.Flatten()(y)))


def main(folder: str | None = None, backend: str = "onnxruntime", epochs: int = 5) -> dict[str, float]:
    """Trains, and writes the model and its picture; returns what the validation came to."""
    images, kinds = data()
    model = build()
    model.summary()
    model.compile(ik.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"], backend=backend)
    found = model.fit(images, kinds, epochs=epochs, validation_split=0.25, verbose=2).history
    if folder is not None:
        model.plot(Path(folder) / "residual.svg")
        ik.save(ik.optimize(model.to_module(), "O3"), Path(folder) / "residual.onnx")
    return {name: values[-1] for name, values in found.items()}


if __name__ == "__main__":
    main(*sys.argv[1:2])
