"""Keras is a guest: the importer is there without it, and never brings in another framework."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def run(code: str) -> str:
    """What a program prints in a process of its own."""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_without_keras_only_use_fails() -> None:
    code = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "keras" else real(name, *rest)
from irkit.frontends import keras as from_keras
assert "keras" not in sys.modules
try:
    from_keras.load("m.keras")
except Exception as error:
    print(type(error).__name__, error)
"""
    out = run(code)
    assert out.startswith("UnsupportedError")
    assert "pip install keras" in out


def test_reading_imports_no_framework() -> None:
    code = (
        BLOCKED.format(names=["tensorflow", "torch", "jax", "jaxlib", "scipy"])
        + """
import os, sys, warnings
import numpy as np
from irkit.frontends import keras as from_keras
from irkit.frontends.keras import adapter
keras = adapter.api()
i = keras.Input((8, 8, 3))
x = keras.layers.Conv2D(4, 3, activation="gelu")(i)
model = keras.Model(i, keras.layers.MaxPooling2D()(x))
from_keras.load(model)
others = [n for n in sys.modules if n.partition(".")[0] in ("jax", "scipy", "torch", "tensorflow")]
print(keras.config.backend(), "KERAS_BACKEND" in os.environ, others)
"""
    )
    assert run(code).strip() == "numpy False []"
