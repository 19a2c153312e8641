"""Gradients where the mathematics leaves a choice, or where a naive rule gives NaN: the same in both backends.

The names tell the public reports that each case comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.passes.autodiff.transform import differentiate

Array = np.ndarray[Any, Any]
INF = np.inf


def _f(*values: Any) -> Array:
    return np.array(values if len(values) != 1 or isinstance(values[0], list) else values[0], np.float64).squeeze()


def _build(build: Callable[..., Any], arrays: tuple[Array, ...]) -> tuple[Any, list[Any], Any]:
    b = ik.Builder("edge")
    xs = [b.input(f"x{i}", a.dtype, a.shape) for i, a in enumerate(arrays)]
    return b, xs, build(b, *xs)


def _run(b: Any, values: list[Any], arrays: tuple[Array, ...], backend: str) -> list[Array]:
    for i, value in enumerate(values):
        b.output(value, f"o{i}")
    module = b.module()
    lowered = ik.optimize(module, "lower-ad")
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    direct, by_pass = (ik.compile(m, backend=backend).run(feeds) for m in (module, lowered))
    for name, value in direct.items():
        np.testing.assert_array_equal(value, by_pass[name])
    return list(direct.values())


def gradients(build: Callable[..., Any], arrays: tuple[Array, ...], backend: str) -> list[Array]:
    """The gradients with cotangents 1."""
    b, xs, y = _build(build, arrays)
    one = b.Expand(b.CastLike(b.constant(np.float32(1)), y), b.Shape(y))
    found = differentiate(b, [y], xs, [one])
    return _run(b, [b.Sub(x, x) if g is None else g for g, x in zip(found, xs, strict=True)], arrays, backend)


def tangent(build: Callable[..., Any], arrays: tuple[Array, ...], backend: str) -> Array:
    """The tangent for tangents 1, summed over the result."""
    b, xs, y = _build(build, arrays)
    probe = b.Expand(b.CastLike(b.constant(np.float32(0)), y), b.Shape(y))
    pairs = [
        (g, b.Expand(b.CastLike(b.constant(np.float32(1)), x), b.Shape(x)))
        for g, x in zip(differentiate(b, [y], xs, [probe]), xs, strict=True)
        if g is not None
    ]
    found = differentiate(b, [g for g, _ in pairs], [probe], [t for _, t in pairs])[0]
    total = b.constant(np.float64(0)) if found is None else b.ReduceSum(found, keepdims=0)
    return _run(b, [b.Identity(total)], arrays, backend)[0]


def second(build: Callable[..., Any], arrays: tuple[Array, ...], backend: str) -> list[Array]:
    """The Hessian times a vector of ones."""
    b, xs, y = _build(build, arrays)
    one = b.Expand(b.CastLike(b.constant(np.float32(1)), y), b.Shape(y))
    pairs = [
        (g, b.Expand(b.CastLike(b.constant(np.float32(1)), x), b.Shape(x)))
        for g, x in zip(differentiate(b, [y], xs, [one]), xs, strict=True)
        if g is not None
    ]
    found = differentiate(b, [g for g, _ in pairs], xs, [t for _, t in pairs])
    return _run(b, [b.Sub(x, x) if g is None else g for g, x in zip(found, xs, strict=True)], arrays, backend)


def _std(b: Any, x: Any) -> Any:
    d = b.Sub(x, b.ReduceMean(x, keepdims=1))
    return b.Sqrt(b.ReduceMean(b.Mul(d, d), keepdims=0))


def _where_sqrt(b: Any, x: Any) -> Any:
    return b.Where(b.Greater(x, 0.0), b.Sqrt(x), b.Mul(x, 4.0))


def _x_log_x(b: Any, x: Any) -> Any:
    return b.Where(b.Greater(x, 0.0), b.Mul(x, b.Log(x)), b.Mul(x, 0.0))


CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], tuple[Array, ...]]] = {
    "max-tie (pytorch 56734, mxnet 18563)": (
        lambda b, x, y: b.Max(x, y),
        (_f(1, 3), _f(1, 2)),
        (_f(0.5, 1), _f(0.5, 0)),
    ),
    "min-tie": (lambda b, x, y: b.Min(x, y), (_f(1, 3), _f(1, 2)), (_f(0.5, 0), _f(0.5, 1))),
    "max of three, two tie": (
        lambda b, x, y, z: b.Max(x, y, z),
        (_f(2, 1), _f(2, 1), _f(0, 1)),
        (_f(0.5, 1 / 3), _f(0.5, 1 / 3), _f(0, 1 / 3)),
    ),
    "reduce-max ties": (
        lambda b, x: b.ReduceMax(x, keepdims=0),
        (_f(1, 3, 3, 2, 3),),
        (_f(0, 1 / 3, 1 / 3, 0, 1 / 3),),
    ),
    "reduce-min ties": (lambda b, x: b.ReduceMin(x, keepdims=0), (_f(1, 1, 3),), (_f(0.5, 0.5, 0),)),
    "abs at 0 (jax 37820)": (lambda b, x: b.Abs(x), (_f(0, -1, 2),), (_f(0, -1, 1),)),
    "sign at 0": (lambda b, x: b.Sign(x), (_f(0, -1, 2),), (_f(0, 0, 0),)),
    "max-pool tie": (
        lambda b, x: b.MaxPool(x, kernel_shape=[2], strides=[2]),
        (np.array([[[1.0, 1, 2, 1, 3, 3]]]),),
        (np.array([[[1.0, 0, 1, 0, 1, 0]]]),),
    ),
    "max-pool tie, overlapping": (
        lambda b, x: b.MaxPool(x, kernel_shape=[2]),
        (np.array([[[1.0, 1, 1]]]),),
        (np.array([[[1.0, 1, 0]]]),),
    ),
    "relu at 0": (lambda b, x: b.Relu(x), (_f(0, -1, 2),), (_f(0, 0, 1),)),
    "max(x, 0) at 0": (lambda b, x: b.Max(x, 0.0), (_f(0, -1, 2),), (_f(0.5, 0, 1),)),
    "clip at a bound": (lambda b, x: b.Clip(x, 0.0, 1.0), (_f(0, 1, -1, 2, 0.5),), (_f(1, 1, 0, 0, 1),)),
    "clip(x, 0, x) (Theano 633)": (
        lambda b, x: b.Reshape(b.Clip(x, 0.0, b.Reshape(x, np.array([], np.int64))), np.array([1])),
        (np.array([2.0]),),
        (np.array([1.0]),),
    ),
    "clip(x, 0, x) below": (
        lambda b, x: b.Reshape(b.Clip(x, 0.0, b.Reshape(x, np.array([], np.int64))), np.array([1])),
        (np.array([-2.0]),),
        (np.array([1.0]),),
    ),
    "0^b in b (pytorch 27134)": (
        lambda b, x, p: b.Pow(x, p),
        (_f(0, 0, 2), _f(2, 3, 1)),
        (_f(0, 0, 1), _f(0, 0, 2 * np.log(2))),
    ),
    "0^0.5 in x": (lambda b, x, p: b.Pow(x, p), (_f(0, 4), _f(0.5, 0.5)), (_f(INF, 0.25), _f(0, 2 * np.log(4)))),
    "x^0 in x (pytorch 8940)": (
        lambda b, x, p: b.Pow(x, p),
        (_f(0, 2), _f(0, 0)),
        (_f(0, 0), _f(0, np.log(2))),
    ),
    "x^0 of a negative number, in the exponent": (
        lambda b, x, p: b.Pow(x, p),
        (_f(-1, 2), _f(0, 0)),
        (_f(0, 0), _f(np.nan, np.log(2))),
    ),
    "x^0, constant": (lambda b, x: b.Pow(x, 0.0), (_f(0, 2, -1),), (_f(0, 0, 0),)),
    "where-sqrt (pytorch 187297)": (_where_sqrt, (_f(0, 4),), (_f(4, 0.25),)),
    "where-x-log-x": (_x_log_x, (_f(0, 1),), (_f(0, 1),)),
    "where-divide": (
        lambda b, x, y: b.Where(b.Equal(y, 0.0), x, b.Div(x, y)),
        (_f(3, 3), _f(0, 2)),
        (_f(1, 0.5), _f(0, -0.75)),
    ),
    "where-exp": (lambda b, x: b.Where(b.Less(x, 10.0), b.Exp(x), x), (_f(1000, 0),), (_f(1, 1),)),
    "norm at 0, ReduceL2 (pytorch 2421)": (lambda b, x: b.ReduceL2(x, keepdims=0), (_f(0, 0),), (_f(0, 0),)),
    "norm at 0, a root of squares": (lambda b, x: b.Sqrt(b.ReduceSumSquare(x, keepdims=0)), (_f(0, 0),), (_f(0, 0),)),
    "norm at 0, a root of products": (
        lambda b, x: b.Sqrt(b.ReduceSum(b.Mul(x, x), keepdims=0)),
        (_f(0, 0),),
        (_f(0, 0),),
    ),
    "norm at 0, a root of powers": (
        lambda b, x: b.Sqrt(b.ReduceSum(b.Pow(x, 2.0), keepdims=0)),
        (_f(0, 0),),
        (_f(0, 0),),
    ),
    "std of a constant (pytorch 4320)": (_std, (_f(3, 3, 3),), (_f(0, 0, 0),)),
    "std of one element": (_std, (np.array([3.0]),), (np.array([0.0]),)),
    "logsumexp of -inf (jax 6811)": (lambda b, x: b.ReduceLogSumExp(x, keepdims=0), (_f(-INF, -INF),), (_f(0, 0),)),
    "logsumexp, some -inf": (lambda b, x: b.ReduceLogSumExp(x, keepdims=0), (_f(-INF, 0, 0),), (_f(0, 0.5, 0.5),)),
    "prod with a zero (pytorch 773)": (lambda b, x: b.ReduceProd(x, keepdims=0), (_f(2, 0, 3),), (_f(0, 6, 0),)),
    "prod with two zeros": (lambda b, x: b.ReduceProd(x, keepdims=0), (_f(2, 0, 0),), (_f(0, 0, 0),)),
    "gather duplicates (pytorch 1631)": (
        lambda b, x: b.Gather(x, np.array([1, 1, -1, 0])),
        (_f(1, 2, 3),),
        (_f(1, 2, 1),),
    ),
    "gather-elements duplicates": (
        lambda b, x: b.GatherElements(x, np.array([0, 0, 2, 0])),
        (_f(1, 2, 3),),
        (_f(3, 0, 1),),
    ),
    "gather-nd duplicates": (
        lambda b, x: b.GatherND(x, np.array([[1], [1], [-1]])),
        (np.ones((3, 2)),),
        (np.array([[0.0, 0], [2, 2], [1, 1]]),),
    ),
    "scatter-nd duplicates": (
        lambda b, x, u: b.ScatterND(x, np.array([[1], [1]]), u, reduction="add"),
        (_f(1, 2, 3), _f(4, 5)),
        (_f(1, 1, 1), _f(1, 1)),
    ),
    "scatter-max tie": (
        lambda b, x, u: b.ScatterElements(x, np.array([0, 2]), u, reduction="max"),
        (_f(1, 2, 3), _f(1, 5)),
        (_f(0.5, 1, 0), _f(0.5, 1)),
    ),
    "where, masked division by a norm": (
        lambda b, x: b.Where(b.Greater(b.ReduceL2(x, keepdims=1), 0.0), b.Div(x, b.ReduceL2(x, keepdims=1)), x),
        (_f(0, 0),),
        (_f(1, 1),),
    ),
    "scatter duplicates (pytorch 146299)": (
        lambda b, x, u: b.ScatterElements(x, np.array([1, 1]), u, reduction="add"),
        (_f(1, 2, 3), _f(4, 5)),
        (_f(1, 1, 1), _f(1, 1)),
    ),
    "scatter fewer than there are (pytorch 188843)": (
        lambda b, x, u: b.ScatterElements(x, np.array([[2]]), u, axis=1),
        (np.ones((2, 3)), np.ones((1, 1))),
        (np.array([[1.0, 1, 0], [1, 1, 1]]), np.ones((1, 1))),
    ),
    "scatter-mul with a zero": (
        lambda b, x, u: b.ScatterElements(x, np.array([1, 1, 0]), u, reduction="mul"),
        (_f(5, 2), _f(0, 3, 4)),
        (_f(4, 0), _f(6, 0, 5)),
    ),
    "einsum, labels of size 1 (autograd 376)": (
        lambda b, x, y: b.Einsum(x, y, equation="ij,ij->i"),
        (np.array([[2.0], [3.0]]), np.array([[1.0, 4.0]])),
        (np.array([[5.0], [5.0]]), np.array([[5.0, 5.0]])),
    ),
    "einsum, repeated labels": (lambda b, x: b.Einsum(x, equation="ii->"), (np.ones((2, 2)),), (np.eye(2),)),
}
SINGULAR = {"0^0.5 in x", "x^0 of a negative number, in the exponent"}
"""Where the derivative by one of the operands is no finite number, by any convention."""


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", CASES)
def test_convention(name: str, backend: str) -> None:
    build, arrays, expected = CASES[name]
    found = gradients(build, arrays, backend)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    if name not in SINGULAR:
        slope = sum(float(g.sum()) for g in expected)
        np.testing.assert_allclose(tangent(build, arrays, backend), slope, rtol=1e-12)
        for part in second(build, arrays, backend):
            assert np.isfinite(part).all()


def test_cumprod_with_a_zero() -> None:
    """tensorflow 3862; the op is too young for onnxruntime."""
    (found,) = gradients(lambda b, x: b.CumProd(x, np.int64(0)), (_f(2, 0, 3, 4),), "numpy")
    np.testing.assert_array_equal(found, [1, 32, 0, 0])


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax_of_a_masked_row_is_zero(name: str, backend: str) -> None:
    """jax 17117, pytorch 41508: the scores of a row that is masked out as a whole have no gradient."""
    mask = np.array([[0.0, 0.0], [-INF, -INF], [0.0, -INF]])
    weights = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def build(b: Any, x: Any) -> Any:
        y = getattr(b, name)(b.Add(x, mask))
        return b.Mul(b.Where(mask == -INF, np.float64(0), y), weights)

    (found,) = gradients(build, (np.zeros((3, 2)),), backend)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[1], 0)
    assert found[0].any()


def test_unused_is_an_error_or_zero() -> None:
    """tensorflow 783."""
    b = ik.Builder("g")
    x, y, n = b.input("x", "float32", [2]), b.input("y", "float32", [3]), b.input("n", "int64", [2])
    b.output(b.ReduceSum(b.Mul(x, b.Cast(n, to=1)), keepdims=0), "loss")
    b.output(b.Neg(y), "other")
    module = b.module()
    for name, reason in (("y", "no path"), ("n", "tensor<2xi64>")):
        with pytest.raises(ik.IrkitError, match=reason):
            ik.grad(module, "loss", ["x", name])
    made = ik.grad(module, "loss", ["x", "y", "n"], allow_unused=True)
    found = ik.compile(made).run({"x": np.ones(2, "f"), "y": np.ones(3, "f"), "n": np.array([2, 3])})
    np.testing.assert_array_equal(found["grad/x"], [2, 3])
    np.testing.assert_array_equal(found["grad/y"], [0, 0, 0])
    np.testing.assert_array_equal(found["grad/n"], [0, 0])
    assert found["grad/n"].dtype == np.int64
