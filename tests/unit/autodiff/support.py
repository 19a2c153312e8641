"""Gradients at a point, and those of two graphs compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import irkit as ik
from irkit.backends.numpy import compile as compile_numpy
from irkit.passes.autodiff.transform import differentiate

Array = np.ndarray[Any, Any]
Build = Callable[..., Any]


def gradients(build: Build, *arrays: Array) -> tuple[Array, ...]:
    """The gradients of the weighted sum of a function's first result, one for each array.

    The weights are 1, 2, 3, 1, 2, ... where the result has several elements, so that none cancel by chance.
    """
    b = ik.Builder("gradients")
    values = [b.input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(arrays)]
    y = build(b, *values)
    y = y[0] if isinstance(y, tuple) else y
    places = b.Range(np.int64(0), b.Size(y), np.int64(1))
    weights = b.CastLike(b.Add(b.Mod(b.Reshape(places, b.Shape(y)), np.int64(3)), np.int64(1)), y)
    for i, found in enumerate(differentiate(b, [y], values, [weights])):
        assert found is not None
        b.output(found, f"dx{i}")
    found = compile_numpy(b.module())(*arrays)
    return found if isinstance(found, tuple) else (found,)


def same_gradients(build: Build, meant: Build, *arrays: Array, rtol: float = 1e-4) -> None:
    """Checks the gradients of a function in float32 against those of one that means the same, in float64."""
    narrow = [x.astype(np.float32) for x in arrays]
    for found, expected in zip(gradients(build, *narrow), gradients(meant, *arrays), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
