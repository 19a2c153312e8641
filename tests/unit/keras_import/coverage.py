"""Writes ``docs/reference/keras-coverage.md``: which layers and operations of Keras are read.

python -m tests.unit.keras_import.coverage
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from irkit.frontends.keras import adapter

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "keras-coverage.md"

HEAD = """# Which parts of Keras are read

Written by `python -m tests.unit.keras_import.coverage`. A configuration counts where the graph gives what Keras gives
on its numpy backend, with open batch size (and open lengths, where the name says so), on NumPy and on onnxruntime,
within 1e-4. How to load a model: [Convert a Keras model](../how-to/convert-a-keras-model.md).
"""

WRAPPING = "it runs a model of another framework"
LOOKUP = "Keras computes it with TensorFlow's string and hash ops"
AUGMENTED = {
    "AugMix": "its choices are made in Python while it runs",
    "CutMix": "draws from a beta distribution",
    "Equalization": "counts values into bins as many as there are",
    "MixUp": "draws from a beta distribution",
    "RandAugment": "its choices are made in Python while it runs",
    "RandomCrop": "cuts at places that are drawn, with sizes that are not told",
    "RandomElasticTransform": "moves pixels by noise",
    "RandomPerspective": "solves equations for each image",
}
"""What is refused in training, and why; at inference all of these are read."""


def without_case() -> dict[str, str]:
    """Layers that have no case, and why."""
    return {
        "FlaxLayer": WRAPPING,
        "JaxLayer": WRAPPING,
        "TFSMLayer": WRAPPING,
        "TorchModuleWrapper": WRAPPING,
        "HashedCrossing": LOOKUP,
        "Hashing": LOOKUP,
        "IntegerLookup": LOOKUP,
        "StringLookup": LOOKUP,
        "TextVectorization": LOOKUP,
        "MaxNumBoundingBoxes": "it takes ragged boxes, not tensors",
    }


def classes() -> list[str]:
    """The classes of ``keras.layers``, each by its own name."""
    layers = adapter.api().layers
    found = {
        value.__name__ for value in vars(layers).values() if isinstance(value, type) and issubclass(value, layers.Layer)
    }
    return sorted(found)


def _operations() -> dict[str, list[str]]:
    """The operations of Keras by family, and whether each has a converter."""
    import importlib

    from irkit.frontends.keras import conversion  # noqa: F401 (its imports fill the tables)
    from irkit.frontends.keras.registry import converters
    from irkit.frontends.keras.trace import OPERATIONS

    read = {*converters(), *OPERATIONS} - REFUSED
    base = adapter.api().Operation
    found: dict[str, list[str]] = {}
    for family in ("numpy", "nn", "math", "linalg", "image", "core"):
        module = importlib.import_module(f"keras.src.ops.{family}")
        names = sorted(
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
        )
        found[family] = [f"`{name}`" + ("" if name in read else " -") for name in names if name != "SegmentReduction"]
    return found


REFUSED = frozenset("Bincount Nonzero Unique Histogram ViewAsReal ViewAsComplex IRFFT FFT2 IFFT2 ISTFT".split())
"""Operations whose converter is an error that says why."""


def page() -> str:
    """The page."""
    from tests.unit.keras_import.cases import CASES

    by_layer: dict[str, list[str]] = defaultdict(list)
    for case in CASES:
        by_layer[case.layer].append(case.name)
    missing = without_case()
    names = classes()
    lines = [HEAD, f"{len(by_layer)} of {len(names)} classes of layers, {len(CASES)} configurations.\n"]
    lines += ["## Layers\n", "| layer | configurations | in training |", "|---|---|---|"]
    for name in names:
        if name in missing:
            lines.append(f"| `{name}` | none: {missing[name]} | |")
            continue
        training = f"refused: {AUGMENTED[name]}" if name in AUGMENTED else "yes"
        lines.append(f"| `{name}` | {', '.join(sorted(by_layer[name]))} | {training} |")
    lines += [
        "",
        "## Operations\n",
        "Of `keras.ops`, by class. Those with a dash have no form in a graph that we know; a model that ",
    ]
    lines[-1] += "needs one is refused, with the layer's path."
    for family, listed in _operations().items():
        lines += ["", f"**{family}**: {', '.join(listed)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
