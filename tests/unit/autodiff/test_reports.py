"""Cases from public bug reports against other systems, with gradients worked out by hand; on both backends.

Those that are about a convention at a single point stand in ``test_conventions``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.autodiff.test_conventions import gradients, second, tangent

Array = np.ndarray[Any, Any]
BACKENDS = ["numpy", "onnxruntime"]
INF = np.inf


def _f(*values: Any) -> Array:
    return np.array(values, np.float32)


def _training(b: Any, x: Any, scale: Any, bias: Any) -> Any:
    zeros, ones = np.zeros(1, np.float32), np.ones(1, np.float32)
    return b.BatchNormalization(x, scale, bias, zeros, ones, training_mode=1, epsilon=0.0, outputs=3)[0]


RAMP = np.arange(10, dtype=np.float32).reshape(1, 2, 5)
CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], tuple[Array, ...]]] = {
    "a stride that leaves a remainder, depthwise (pytorch 51430)": (
        lambda b, x, w: b.Conv(x, w, group=2, strides=[2]),
        (RAMP, np.array([[[1.0, 2.0]], [[3.0, 4.0]]], np.float32)),
        (np.array([[[1, 2, 1, 2, 0], [3, 4, 3, 4, 0]]]), np.array([[[2, 4]], [[12, 14]]])),
    ),
    "a stride that leaves a remainder, grouped (pytorch 51430)": (
        lambda b, x, w: b.Conv(x, w, group=1, strides=[2]),
        (RAMP, np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]], np.float32)),
        (
            np.array([[[6, 8, 6, 8, 0], [10, 12, 10, 12, 0]]]),
            np.array([[[2, 4], [12, 14]], [[2, 4], [12, 14]]]),
        ),
    ),
    "pads that differ at both ends (onnx-ad)": (
        lambda b, x, w: b.Conv(x, w, pads=[2, 0]),
        (_f(1, 2, 3).reshape(1, 1, 3), _f(1, 10, 100).reshape(1, 1, 3)),
        (np.array([[[111, 110, 100]]]), np.array([[[1, 3, 6]]])),
    ),
    "a last window that ceil_mode adds (pytorch 198119)": (
        lambda b, x: b.AveragePool(x, kernel_shape=[2], strides=[2], ceil_mode=1),
        (np.ones((1, 1, 5), np.float32),),
        (np.array([[[0.5, 0.5, 0.5, 0.5, 1]]]),),
    ),
    "mean and variance depend on x (pytorch 186256)": (
        _training,
        (_f(1, 2, 6).reshape(3, 1), _f(2.0), _f(0.5)),
        (np.zeros((3, 1)), np.array([0.0]), np.array([3.0])),
    ),
    "resize with align_corners": (
        lambda b, x: b.Resize(
            x, None, None, np.array([3]), axes=[2], mode="linear", coordinate_transformation_mode="align_corners"
        ),
        (_f(1, 5).reshape(1, 1, 2),),
        (np.array([[[1.5, 1.5]]]),),
    ),
    "resize of one element with align_corners": (
        lambda b, x: b.Resize(
            x, None, None, np.array([3]), axes=[2], mode="linear", coordinate_transformation_mode="align_corners"
        ),
        (_f(5).reshape(1, 1, 1),),
        (np.array([[[3.0]]]),),
    ),
    "reflected padding (onnx-ad)": (
        lambda b, x: b.Pad(x, np.array([2, 1]), mode="reflect"),
        (_f(1, 2, 3, 4),),
        (np.array([1, 2, 3, 1]),),
    ),
    "padding by the edge (onnx-ad)": (
        lambda b, x: b.Pad(x, np.array([2, 1]), mode="edge"),
        (_f(1, 2, 3),),
        (np.array([3, 1, 2]),),
    ),
    "transposed convolution, weights (onnx-ad)": (
        lambda b, x, w: b.ConvTranspose(x, w, strides=[2]),
        (_f(1, 2).reshape(1, 1, 2), _f(3, 4, 5).reshape(1, 1, 3)),
        (np.array([[[12, 12]]]), np.array([[[3, 3, 3]]])),
    ),
    "determinant (onnx-ad)": (
        lambda b, x: b.Det(x),
        (_f([2, 1], [3, 5]),),
        (np.array([[5, -3], [-1, 2]]),),
    ),
    "values of OneHot (onnx-ad)": (
        lambda b, v: b.OneHot(np.array([0, 2, 2]), np.int64(4), v),
        (_f(0, 1),),
        (np.array([9, 3]),),
    ),
}
NUMPY_ALONE = {"determinant (onnx-ad)"}
"""What onnxruntime has no kernel for in float32."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_report(name: str, backend: str) -> None:
    build, arrays, expected = CASES[name]
    found = gradients(build, arrays, backend)
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    slope = sum(float(np.sum(g)) for g in expected)
    np.testing.assert_allclose(tangent(build, arrays, backend), slope, rtol=1e-5, atol=1e-4)
    for part in second(build, arrays, backend):
        assert np.isfinite(part).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_masked_row_has_no_gradient_of_any_order(name: str, backend: str) -> None:
    """jax 17117, pytorch 41508."""
    mask = np.array([[0.0, 0.0], [-INF, -INF], [0.0, -INF]])

    def build(b: Any, x: Any) -> Any:
        y = getattr(b, name)(b.Add(x, mask))
        return b.Where(mask == -INF, np.float64(0), b.Mul(y, y))

    arrays = (np.array([[0.1, 0.4], [0.2, 0.3], [0.5, 0.6]]),)
    (first,) = gradients(build, arrays, backend)
    (curved,) = second(build, arrays, backend)
    for part in (first, curved):
        assert np.isfinite(part).all()
        np.testing.assert_array_equal(part[1], 0)
    assert np.isfinite(tangent(build, arrays, backend))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_row_of_attention_that_may_see_nothing(kind: str) -> None:
    """pytorch 41508: the row's query gets nothing, and the keys and values nothing from it."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 1, n, 2)) for n in (2, 3, 3))
    seen = np.array([[True, True, False], [False, False, False]])
    mask = seen if kind == "bool" else np.where(seen, 0.0, -INF)

    def build(b: Any, q: Any, k: Any, v: Any) -> Any:
        y = b.Attention(q, k, v, mask)
        # What a row without a key gives is nobody's business.
        return b.Where(np.array([[True], [False]]), b.Mul(y, y), np.float64(0))

    for parts in (gradients(build, (q, k, v), "numpy"), second(build, (q, k, v), "numpy")):
        for part in parts:
            assert np.isfinite(part).all()
        np.testing.assert_array_equal(parts[0][0, 0, 1], 0)
        np.testing.assert_array_equal(parts[1][0, 0, 2], 0)
        np.testing.assert_array_equal(parts[2][0, 0, 2], 0)
    assert np.isfinite(tangent(build, (q, k, v), "numpy"))


@pytest.mark.parametrize("zeros", [[], [1], [0, 2], [0, 1, 2, 3]])
def test_products_with_zeros_of_any_order(zeros: list[int]) -> None:
    """tensorflow 3862, pytorch 773; CumProd is too young for onnxruntime."""
    x = np.array([2.0, 5.0, 3.0, 4.0])
    x[zeros] = 0
    others = np.array([[np.prod(np.delete(x[: j + 1], i)) if i <= j else 0 for i in range(4)] for j in range(4)])
    for name, expected in (("CumProd", others.sum(0)), ("ReduceProd", others[3])):
        options = [np.int64(0)] if name == "CumProd" else []

        def build(b: Any, x: Any, name: str = name, options: Any = options) -> Any:
            return getattr(b, name)(x, *options)

        np.testing.assert_array_equal(gradients(build, (x,), "numpy")[0], expected)
        np.testing.assert_allclose(tangent(build, (x,), "numpy"), expected.sum())
        pairs = [
            sum(
                np.prod(np.delete(x[: j + 1], [i, k]))
                for j in (range(4) if name == "CumProd" else [3])
                for k in range(j + 1)
                if k != i and i <= j
            )
            for i in range(4)
        ]
        np.testing.assert_allclose(second(build, (x,), "numpy")[0], pairs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_are_counted_beyond_float16(backend: str) -> None:
    """tinygrad 12296: 70000 is no number of float16."""
    (found,) = gradients(lambda b, x: b.ReduceMax(x, keepdims=0), (np.ones(70000, np.float16),), backend)
    np.testing.assert_allclose(found.astype(np.float64), 1 / 70000, rtol=0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tangents_through_the_branch_that_was_not_taken(backend: str) -> None:
    """The second derivative of x^4 at 2 is 48, whatever the square root does at 0 beside it.

    A guard ``Where(ct == 0, 0, ct * slope)`` is not linear in the cotangent, and would lose a part of it.
    """

    def build(b: Any, x: Any) -> Any:
        square = b.Mul(x, x)
        return b.Where(b.Greater(x, 1.0), b.Mul(square, square), b.Sqrt(b.Sub(x, 2.0)))

    x = np.array([2.0, 3.0])
    np.testing.assert_allclose(gradients(build, (x,), backend)[0], 4 * x**3)
    np.testing.assert_allclose(second(build, (x,), backend)[0], 12 * x**2)
    np.testing.assert_allclose(tangent(build, (x,), backend), (4 * x**3).sum())
