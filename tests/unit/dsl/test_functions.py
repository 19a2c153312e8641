"""The functions over the op set against NumPy, on both backends, with known and with symbolic sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.frontends import dsl
from tests.unit.dsl.support import BACKENDS, assert_same, evaluate

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 4)).astype(np.float32)
Y = rng.normal(size=(3, 4)).astype(np.float32)
P = np.abs(X) + np.float32(0.1)
U = np.clip(X / 4, -0.9, 0.9).astype(np.float32)
I = rng.integers(-9, 10, (3, 4)).astype(np.int64)  # noqa: E741
J = np.where(rng.integers(-9, 10, (3, 4)) >= 0, 3, -4).astype(np.int64)
B = X > 0
C = Y > 0
T = rng.normal(size=(2, 3, 4)).astype(np.float32)
UI = np.abs(I).astype(np.uint32)


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf)(x).astype(np.float32)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]

UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    **{name: (getattr(np, name), X) for name in "ceil cos cosh exp floor rint round sign sin sinh tan tanh".split()},
    **{name: (getattr(np, name), P) for name in "log sqrt log1p log2 log10 reciprocal".split()},
    **{name: (getattr(np, name), U) for name in "arccos arcsin arctanh expm1".split()},
    **{name: (getattr(np, name), X) for name in "arcsinh arctan square trunc isnan isinf isfinite".split()},
    "arccosh": (np.arccosh, P + 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), P),
    "erf": (_erf, X),
    "relu": (lambda x: np.maximum(x, 0), X),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), X),
    "softplus": (lambda x: np.log1p(np.exp(x)), X),
    "softsign": (lambda x: x / (1 + np.abs(x)), X),
    "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), X),
    "hard_swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X),
    "elu": (lambda x: np.where(x > 0, x, np.exp(x) - 1), X),
    "celu": (lambda x: np.where(x > 0, x, np.exp(x) - 1), X),
    "selu": (lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1)), X),
    "leaky_relu": (lambda x: np.where(x > 0, x, np.float32(0.01) * x), X),
    "hard_sigmoid": (lambda x: np.clip(np.float32(0.2) * x + np.float32(0.5), 0, 1), X),
    "swish": (lambda x: x / (1 + np.exp(-x)), X),
    "thresholded_relu": (lambda x: np.where(x > 1, x, 0).astype(np.float32), X),
    "shrink": (lambda x: np.where(x < -0.5, x, np.where(x > 0.5, x, 0)).astype(np.float32), X),
    "gelu": (lambda x: (x * (1 + _erf(x / np.sqrt(2))) / 2).astype(np.float32), X),
    "absolute": (np.abs, X),
    "negative": (np.negative, X),
    "positive": (np.positive, X),
    "logical_not": (np.logical_not, X),
    "invert": (np.invert, I),
    "identity": (lambda x: x, X),
    "ravel": (np.ravel, X),
    "transpose": (np.transpose, T),
    "softmax": (_softmax, X),
    "log_softmax": (lambda x: np.log(_softmax(x)), X),
    "argmax": (np.argmax, X),
    "argmin": (np.argmin, X),
    "sort": (np.sort, X),
    "argsort": (np.argsort, X),
    "cumsum": (lambda x: np.cumsum(x, 0), X),
    "cumprod": (lambda x: np.cumprod(x, 0), X),
    "matrix_transpose": (lambda x: np.swapaxes(x, -1, -2), T),
    "squeeze": (np.squeeze, T[:, :1]),
    "nonzero": (np.nonzero, B),
    "unique": (np.unique, I),
    "tril": (np.tril, X),
    "triu": (np.triu, X),
    "flatten": (lambda x: x.reshape(2, -1), T),
    "size": (np.size, T),
    "shape": (lambda x: np.array(x.shape), T),
    "zeros_like": (np.zeros_like, X),
    "ones_like": (np.ones_like, X),
    "det": (np.linalg.det, X[:, :3]),
    "global_max_pool": (lambda x: x.max(-1, keepdims=True), T),
    "global_average_pool": (lambda x: x.mean(-1, keepdims=True), T),
    "norm1": (lambda x: np.abs(x).sum(), X),
    "norm2": (lambda x: np.sqrt((x * x).sum()), X),
    "sum_square": (lambda x: (x * x).sum(), X),
    "logsumexp": (lambda x: np.log(np.exp(x).sum()), X),
}

OTHERS: list[Case] = [
    *((getattr(dsl, n), getattr(np, n), (X, Y)) for n in "add subtract multiply divide maximum minimum".split()),
    *((getattr(dsl, n), getattr(np, n), (X, Y)) for n in "less less_equal greater greater_equal equal".split()),
    *((getattr(dsl, n), getattr(np, n), (X, Y)) for n in "not_equal floor_divide remainder".split()),
    *((getattr(dsl, n), getattr(np, n), (I, J)) for n in "floor_divide remainder bitwise_and bitwise_or".split()),
    *((getattr(dsl, n), getattr(np, n), (I, J)) for n in "bitwise_xor add multiply maximum equal".split()),
    *((getattr(dsl, n), getattr(np, n), (B, C)) for n in "logical_and logical_or logical_xor bitwise_and".split()),
    *((getattr(dsl, n), getattr(np, n), (I, J)) for n in "logical_and logical_or logical_xor".split()),
    *((getattr(dsl, n), getattr(np, n), (X,)) for n in "sum mean max min prod std var any all".split()),
    (lambda a: dsl.sum(a, 0), lambda a: a.sum(0), (X,)),
    (lambda a: dsl.sum(a, (0, -1), True), lambda a: a.sum((0, -1), keepdims=True), (T,)),
    (lambda a: dsl.sum(a, ()), lambda a: a.sum(()), (X,)),
    (lambda a: dsl.mean(a, 1), lambda a: a.mean(1), (X,)),
    (lambda a: dsl.var(a, 0, ddof=1), lambda a: a.var(0, ddof=1), (X,)),
    (lambda a: dsl.std(a, -1, True), lambda a: a.std(-1, keepdims=True), (X,)),
    (lambda a: dsl.any(a, 0), lambda a: a.any(0), (B,)),
    (lambda a: dsl.all(a, 1), lambda a: a.all(1), (B,)),
    (dsl.sum, np.sum, (B,)),
    (dsl.mean, lambda a: a.mean(dtype=np.float32), (I,)),
    (lambda a: dsl.argmax(a, 1), lambda a: a.argmax(1), (X,)),
    (lambda a: dsl.argmin(a, 0, True), lambda a: a.argmin(0, keepdims=True), (X,)),
    (lambda a: dsl.cumsum(a, 1, exclusive=True), lambda a: np.cumsum(a, 1) - a, (X,)),
    (lambda a: dsl.cumsum(a, 1, reverse=True), lambda a: np.cumsum(a[:, ::-1], 1)[:, ::-1], (X,)),
    (lambda a: dsl.topk(a, 2), lambda a: (np.sort(a)[:, ::-1][:, :2], np.argsort(-a)[:, :2]), (X,)),
    (lambda a: dsl.sort(a, 0, True), lambda a: np.sort(a, 0)[::-1], (X,)),
    (lambda a: dsl.power(a, 2), lambda a: a**2, (X,)),
    (lambda a: dsl.left_shift(a, 3), lambda a: a << 3, (UI,)),
    (lambda a: dsl.right_shift(a, 1), lambda a: a >> 1, (UI,)),
    (lambda a, c, b: dsl.where(c, a, b), lambda a, c, b: np.where(c, a, b), (X, B, Y)),
    (lambda a: dsl.clip(a, -0.5, 0.5), lambda a: np.clip(a, -0.5, 0.5), (X,)),
    (lambda a: dsl.clip(a, high=0), lambda a: np.minimum(a, 0), (X,)),
    (lambda a, b: dsl.clip(a, b), np.maximum, (X, Y)),
    (dsl.prelu, lambda a, s: np.where(a > 0, a, a * s), (X, np.float32([0.1, 0.2, 0.3, 0.4]))),
    (lambda a: dsl.cast(a, "int32"), lambda a: a.astype(np.int32), (X,)),
    (lambda a: dsl.reshape(a, (4, -1)), lambda a: a.reshape(4, -1), (X,)),
    (lambda a: dsl.reshape(a, (dsl.shape(a)[1], -1)), lambda a: a.reshape(4, 3), (X,)),
    (lambda a: dsl.swapaxes(a, 0, -1), lambda a: np.swapaxes(a, 0, -1), (T,)),
    (lambda a: dsl.moveaxis(a, 0, -1), lambda a: np.moveaxis(a, 0, -1), (T,)),
    (lambda a: dsl.transpose(a, (1, 0, 2)), lambda a: a.transpose(1, 0, 2), (T,)),
    (lambda a: dsl.expand_dims(a, (0, -1)), lambda a: a[None, ..., None], (X,)),
    (lambda a: dsl.broadcast_to(a, (2, 3, 4)), lambda a: np.broadcast_to(a, (2, 3, 4)), (X,)),
    (lambda a, b: dsl.concatenate([a, b], 1), lambda a, b: np.concatenate([a, b], 1), (X, Y)),
    (lambda a, b: dsl.stack([a, b], -1), lambda a, b: np.stack([a, b], -1), (X, Y)),
    (lambda a: dsl.split(a, 2, 1), lambda a: np.split(a, 2, 1), (X,)),
    (lambda a: dsl.split(a, [1, 2], 0), lambda a: np.split(a, [1], 0), (X,)),
    (lambda a: dsl.tile(a, (2, 1)), lambda a: np.tile(a, (2, 1)), (X,)),
    (lambda a: dsl.repeat(a, 2, 0), lambda a: a.repeat(2, 0), (X,)),
    (lambda a: dsl.repeat(a, 3, 1), lambda a: a.repeat(3, 1), (T,)),
    (lambda a: dsl.repeat(a, 3, -1), lambda a: a.repeat(3, -1), (T,)),
    (lambda a: dsl.flip(a, 1), lambda a: np.flip(a, 1), (X,)),
    (lambda a: dsl.flip(a, (0, 2)), lambda a: np.flip(a, (0, 2)), (T,)),
    (lambda a: dsl.pad(a, [(1, 0), (0, 2)]), lambda a: np.pad(a, [(1, 0), (0, 2)]), (X,)),
    (lambda a: dsl.pad(a, [(1, 0), (0, 2)], 7.0), lambda a: np.pad(a, [(1, 0), (0, 2)], constant_values=7), (X,)),
    (lambda a: dsl.pad(a, [(1, 1), (2, 0)], mode="edge"), lambda a: np.pad(a, [(1, 1), (2, 0)], "edge"), (X,)),
    (lambda a: dsl.take(a, [2, 0], 1), lambda a: a.take([2, 0], 1), (X,)),
    (lambda a: dsl.take(a, [2, 0]), lambda a: a.take([2, 0]), (X,)),
    (
        lambda a: dsl.take_along_axis(a, dsl.argsort(a, 1), 1),
        lambda a: np.sort(a, 1),
        (X,),
    ),
    (lambda m, a: dsl.compress(m, a, 0), lambda m, a: a[m], (np.array([True, False, True]), X)),
    (lambda a: dsl.gather_nd(a, [[0, 1], [2, 3]]), lambda a: a[[0, 2], [1, 3]], (X,)),
    (lambda a: dsl.tril(a, -1), lambda a: np.tril(a, -1), (X,)),
    (dsl.dot, np.dot, (X, Y.T.copy())),
    (dsl.matmul, np.matmul, (T, X.T.copy())),
    (lambda a, b: dsl.einsum("bij,kj->bik", a, b), lambda a, b: np.einsum("bij,kj->bik", a, b), (T, X)),
    (lambda a, b: dsl.tensordot(a, b, 1), lambda a, b: np.tensordot(a, b, 1), (T, X.T.copy())),
    (
        lambda a, b: dsl.tensordot(a, b, ((1, 2), (0, 1))),
        lambda a, b: np.tensordot(a, b, ((1, 2), (0, 1))),
        (T, X),
    ),
    (dsl.outer, np.outer, (X[0], Y[1])),
    (lambda a, b: dsl.gemm(a, b, transB=1), lambda a, b: a @ b.T, (X, Y)),
    (lambda a: dsl.one_hot(a, 5), lambda a: np.eye(5, dtype=np.float32)[a], (np.array([0, 3, 4]),)),
    (
        lambda a, s: dsl.layer_norm(a, s),
        lambda a, s: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * s,
        (X, Y[0]),
    ),
    (
        lambda a, s: dsl.rms_norm(a, s),
        lambda a, s: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5) * s,
        (X, Y[0]),
    ),
    (lambda a, k: dsl.conv(a, k), lambda a, k: np.stack([[np.convolve(r, k[0, 0][::-1], "valid")] for r in a[:, 0]]),
     (T[:, :1], Y[None, :1, :2].copy())),
    (lambda a: dsl.max_pool(a, [2]), lambda a: np.maximum(a[..., :-1], a[..., 1:]), (T,)),
    (lambda a: dsl.average_pool(a, [2]), lambda a: (a[..., :-1] + a[..., 1:]) / 2, (T,)),
    (
        lambda a: dsl.cross_entropy(a, np.array([0, 3, 1])),
        lambda a: -np.log(_softmax(a))[[0, 1, 2], [0, 3, 1]].mean(),
        (X,),
    ),
    (lambda a: dsl.full_like(a, 3), lambda a: np.full_like(a, 3), (X,)),
    (lambda a: a + dsl.full((3, 1), 2.0), lambda a: a + 2, (X,)),
    (lambda a: a * dsl.zeros((4,)) + dsl.ones((4,)), lambda a: np.ones_like(a), (X,)),
    (lambda a: a @ dsl.eye(4, 2), lambda a: a[:, :2], (X,)),
    (lambda a: a + dsl.arange(4.0), lambda a: a + np.arange(4, dtype=np.float32), (X,)),
    (lambda a: dsl.arange(dsl.shape(a)[0]), lambda a: np.arange(3), (X,)),
    (lambda a: a + dsl.linspace(0, 1, 4), lambda a: a + np.linspace(0, 1, 4, dtype=np.float32), (X,)),
    (
        lambda a, u: dsl.put_along_axis(a, [[0], [1], [2]], u, 1),
        lambda a, u: np.where(np.eye(3, 4, dtype=bool), u, a),
        (X, Y[:, :1]),
    ),
    (
        lambda a, u: dsl.scatter_nd(a, [[0], [2]], u, "add"),
        lambda a, u: a + np.stack([u[0], u[0] * 0, u[1]]),
        (X, Y[:2]),
    ),
]  # fmt: skip

SIZES_MUST_BE_KNOWN: list[Case] = [
    (dsl.trace, np.trace, (X,)),
    (dsl.diagonal, lambda a: np.diagonal(a, 0, -2, -1), (T,)),
    (lambda a: dsl.unstack(a, 1), lambda a: list(a.T), (X,)),
    (lambda a: dsl.roll(a, 1, 1), lambda a: np.roll(a, 1, 1), (X,)),
    (lambda a: dsl.roll(a, -2, 0), lambda a: np.roll(a, -2, 0), (X,)),
    (lambda a: dsl.set_item(a, (slice(None), 1), 5.0), lambda a: _set(a, (slice(None), 1), 5.0), (X,)),
    (lambda a, v: dsl.set_item(a, (1, slice(None, None, 2)), v), lambda a, v: _set(a, (1, slice(None, None, 2)), v),
     (X, Y[0, :2])),
    (lambda a: dsl.set_item(a, [0, 2], -1), lambda a: _set(a, [0, 2], -1), (X,)),
    (lambda a: dsl.resize(a, [2, 3, 8]), lambda a: a.repeat(2, -1), (T,)),
]  # fmt: skip


def _set(a: Any, index: Any, value: Any) -> Any:
    made = a.copy()
    made[index] = value
    return made


CASES: list[Case] = [(getattr(dsl, name), f, (x,)) for name, (f, x) in UNARY.items()] + OTHERS


def check(case: Case, backend: str, symbolic: bool) -> None:
    function, reference, arrays = case
    found = evaluate(function, *arrays, backend=backend, symbolic=symbolic)
    with np.errstate(all="ignore"):
        expected = reference(*arrays)
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        assert_same(found, expected)


def _id(case: Any) -> str:
    return getattr(case[0], "__name__", "") if isinstance(case, tuple) else str(case)


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_as_numpy(case: Case) -> None:
    check(case, "numpy", symbolic=False)
    check(case, "onnxruntime", symbolic=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SIZES_MUST_BE_KNOWN, ids=_id)
def test_as_numpy_with_known_sizes(case: Case, backend: str) -> None:
    check(case, backend, symbolic=False)


def test_random_numbers_have_the_moments_that_were_asked_for() -> None:
    n, u, b = (
        evaluate(f, np.zeros(1, np.float32))
        for f in (
            lambda x: dsl.random_normal((20000,), 3.0, 2.0) + x,
            lambda x: dsl.random_uniform((20000,), -1.0, 3.0) + x,
            lambda x: dsl.dropout(dsl.full((20000,), 2.0), 0.25) + x,
        )
    )
    assert abs(n.mean() - 3) < 0.1
    assert abs(n.std() - 2) < 0.1
    assert u.min() >= -1
    assert u.max() < 3
    assert abs(u.mean() - 1) < 0.1
    assert set(np.unique(b.round(4))) == {0.0, np.float32(2.6667)}
    assert abs((b == 0).mean() - 0.25) < 0.02


def test_every_function_is_tested_here() -> None:
    """A function that is added gets a case."""
    text = Path(__file__).read_text(encoding="utf-8") + " ".join(UNARY)
    named = set(re.findall(r"\w+", text))
    untested = {n for n in dsl.FUNCTIONS if n not in named}
    assert untested <= {
        "batch_norm",
        "bernoulli",
        "cast_like",
        "conv_transpose",
        "instance_norm",
        "true_divide",
    }, untested


def test_every_function_is_on_the_page(root: Path) -> None:
    page = (root / "docs/reference/dsl.md").read_text(encoding="utf-8")
    assert {name for name in dsl.FUNCTIONS if f"`{name}`" not in page} == set()


def test_the_rest() -> None:
    scale, bias = Y[0, :3], Y[1, :3]
    found = evaluate(lambda x: dsl.batch_norm(x, scale, bias, bias, np.abs(scale)), T)
    expected = (T - bias[:, None]) / np.sqrt(np.abs(scale) + 1e-5)[:, None] * scale[:, None] + bias[:, None]
    assert_same(found, expected)
    found = evaluate(lambda x: dsl.instance_norm(x, scale, bias), T)
    expected = (T - T.mean(-1, keepdims=True)) / np.sqrt(T.var(-1, keepdims=True) + 1e-5) * scale[:, None]
    assert_same(found, expected + bias[:, None], rtol=1e-4)
    kernel = np.ones((3, 1, 2), np.float32)
    found = evaluate(lambda x: dsl.conv_transpose(x, kernel), T)
    total = np.pad(T.sum(1, keepdims=True), [(0, 0), (0, 0), (1, 1)])
    assert_same(found, total[..., :-1] + total[..., 1:])
    assert_same(evaluate(dsl.cast_like, X, I), X.astype(np.int64))
    assert set(np.unique(evaluate(dsl.bernoulli, np.full(100, 0.5, np.float32)))) == {0.0, 1.0}
    assert dsl.true_divide is dsl.divide


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parts", [2, 3])
def test_split_of_an_axis_of_unknown_size(backend: str, parts: int) -> None:
    """Equal parts, or an error in the run, as NumPy has it."""
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    found = evaluate(lambda a: dsl.split(a, parts), x, backend=backend, symbolic=True)
    for part, wanted in zip(found, np.split(x, parts), strict=True):
        assert_same(part, wanted)
    with pytest.raises(ik.IrkitError):
        evaluate(lambda a: dsl.split(a, parts), np.zeros((7, 2), np.float32), backend=backend, symbolic=True)


@pytest.mark.parametrize("widths", [1, (1, 2), [(0, 1), (2, 0)]])
def test_pad_by_one_number_or_pair(widths: Any) -> None:
    x = np.ones((2, 3), np.float32)
    assert_same(evaluate(lambda a: dsl.pad(a, widths), x), np.pad(x, widths))


def test_pad_of_an_unknown_rank() -> None:
    x = dsl.placeholder("x", "float32")
    found = ik.compile(dsl.pad(x, [(1, 0), (0, 2)]))(np.ones((2, 3), np.float32))
    assert_same(found, np.pad(np.ones((2, 3), np.float32), [(1, 0), (0, 2)]))
    with pytest.raises(ik.IrkitError, match="'pad' needs a known rank"):
        dsl.pad(x, 1)
