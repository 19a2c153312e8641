"""Running expressions in tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import irkit as ik
from irkit.frontends import dsl

BACKENDS = ("numpy", "onnxruntime")


def evaluate(function: Any, *arrays: Any, backend: str = "numpy", symbolic: bool = False) -> Any:
    """What a function over symbols gives for these arrays, fed to placeholders of their types."""
    given = [np.asarray(a) for a in arrays]
    places = [
        dsl.placeholder(f"x{i}", a.dtype, [f"d{i}_{k}" for k in range(a.ndim)] if symbolic else a.shape)
        for i, a in enumerate(given)
    ]
    made = function(*places)
    many = isinstance(made, tuple | list)
    run = ik.compile(list(made) if many else made, backend=backend)
    found = run(**{p.name: a for p, a in zip(places, given, strict=True) if p.name in run.input_names})
    return list(found) if many and len(made) > 1 else [found] if many else found


def assert_same(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Asserts equal shapes and kinds of dtype, and close values."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.dtype.kind == expected.dtype.kind, (found.dtype, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
