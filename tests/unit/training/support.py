"""What the tests of training share: goldens, and values run on both backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import irkit as ik

Array = np.ndarray[Any, Any]
BACKENDS = ("numpy", "onnxruntime")


@cache
def goldens() -> dict[str, Array]:
    """What torch and Keras made of the cases."""
    with np.load(Path(__file__).with_name("goldens.npz")) as archive:
        return dict(archive)


def module_of(build: Callable[..., Any], **arrays: Any) -> ik.Module:
    """A module of a function that takes a builder and inputs like some arrays, and gives outputs by name."""
    b = ik.Builder("case")
    inputs = {name: b.input(name, array.dtype, list(array.shape)) for name, array in arrays.items()}
    for name, value in build(b, **inputs).items():
        b.output(value, name)
    return b.module()


def run_both(module: ik.Module, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """The outputs on NumPy, which onnxruntime's must equal closely."""
    found = [ik.compile(module, backend=backend).run(dict(feeds)) for backend in BACKENDS]
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    return found[0]
