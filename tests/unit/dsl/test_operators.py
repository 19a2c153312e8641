"""Python's operators against NumPy: every operator, both sides, numbers weakly typed; indexing."""

from __future__ import annotations

import operator as op
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irkit as ik
from irkit.errors import InferenceError
from irkit.frontends import dsl
from tests.unit.dsl.support import BACKENDS, assert_same, evaluate

F = np.array([[1.5, -2.25, 3.0], [-0.5, 4.0, -7.5]], np.float32)
G = np.array([[2.0, 0.75, -1.5], [3.0, -2.0, 0.5]], np.float32)
I = np.array([[7, -7, 8], [-9, 5, 3]], np.int64)  # noqa: E741
J = np.array([[2, 3, -3], [4, -2, 1]], np.int64)
S = np.array([[1, 2, 0], [3, 1, 2]], np.int64)
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, True]])

ARITHMETIC = [op.add, op.sub, op.mul, op.truediv, op.floordiv, op.mod]
COMPARISONS = [op.lt, op.le, op.gt, op.ge, op.eq, op.ne]
BITWISE = [op.and_, op.or_, op.xor]


def expected(f: Any, a: Any, b: Any) -> Any:
    found = f(a, b)
    # True division of integers is float32 here.
    return found.astype(np.float32) if found.dtype == np.float64 else found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [*ARITHMETIC, *COMPARISONS], ids=lambda f: f.__name__)
def test_between_symbols(f: Any, backend: str) -> None:
    assert_same(evaluate(f, F, G, backend=backend), f(F, G))
    assert_same(evaluate(f, I, J, backend=backend), expected(f, I, J))


@pytest.mark.parametrize("f", [*ARITHMETIC, *COMPARISONS, op.pow], ids=lambda f: f.__name__)
@pytest.mark.parametrize("number", [2, 0.5, -3, True])
def test_with_numbers(f: Any, number: Any) -> None:
    base = np.abs(F) + 1 if f is op.pow else F
    assert evaluate(lambda x: f(x, number), base).dtype in (np.float32, bool)
    assert_same(evaluate(lambda x: f(x, number), base), f(base, np.float32(number)))
    left = abs(number) if f is op.pow else number
    assert_same(evaluate(lambda x: f(left, x), base), f(np.float32(left), base))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "uint8"])
def test_a_number_takes_the_dtype_of_what_it_stands_beside(dtype: str) -> None:
    x = dsl.placeholder("x", dtype, [2])
    assert (x + 1).dtype == x.dtype
    assert (2 * x).dtype == x.dtype
    assert (x > 1).dtype.name == "bool"
    floats = x.dtype.is_float
    assert (x + 0.5).dtype.name == (dtype if floats else "float32")
    assert (x / 2).dtype.name == (dtype if floats else "float32")


@pytest.mark.parametrize("f", BITWISE, ids=lambda f: f.__name__)
def test_bitwise(f: Any) -> None:
    assert_same(evaluate(f, I, J), f(I, J))
    assert_same(evaluate(f, B, C), f(B, C))
    assert_same(evaluate(lambda x: f(x, 5), I), f(I, 5))
    assert_same(evaluate(lambda x: f(True, x), B), f(True, B))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint8"])
def test_shifts(dtype: str, backend: str) -> None:
    a, s = np.abs(I).astype(dtype) if dtype[0] == "u" else I.astype(dtype), S.astype(dtype)
    assert_same(evaluate(op.lshift, a, s, backend=backend), a << s)
    assert_same(evaluate(op.rshift, a, s, backend=backend), a >> s)
    assert_same(evaluate(lambda x: x >> 1, a, backend=backend), a >> 1)
    assert_same(evaluate(lambda x: 1 << x, s, backend=backend), np.asarray(1, dtype) << s)


def test_unary_and_others() -> None:
    assert_same(evaluate(op.neg, F), -F)
    assert_same(evaluate(op.pos, F), F)
    assert_same(evaluate(abs, I), abs(I))
    assert_same(evaluate(op.invert, B), ~B)
    assert_same(evaluate(op.invert, I), ~I)
    u = np.array([0, 1, 200], np.uint8)
    assert_same(evaluate(op.neg, u), np.negative(u))
    assert_same(evaluate(lambda x, y: x @ y.T, F, G), F @ G.T)
    assert_same(evaluate(lambda x: F.T @ x, G), F.T @ G)
    for found, wanted in zip(evaluate(divmod, F, G), np.divmod(F, G), strict=True):
        assert_same(found, wanted)
    for found, wanted in zip(evaluate(lambda x: divmod(7, x), J), np.divmod(7, J), strict=True):
        assert_same(found, wanted)


def test_arrays_on_the_left_and_numpy_functions() -> None:
    assert_same(evaluate(lambda x: F + x, G), F + G)
    assert_same(evaluate(lambda x: np.less(F, x), G), F < G)
    assert_same(evaluate(lambda x: np.exp(x) + np.maximum(x, F), G), np.exp(G) + np.maximum(G, F))


def test_lists_with_symbols_are_stacked() -> None:
    assert_same(evaluate(lambda x, y: dsl.constant([1.0, 2.0]) * [x, y], np.float32(3), np.float32(4)), [3.0, 8.0])


@pytest.mark.parametrize("number", [300, -1])
def test_a_number_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(InferenceError, match=f"{number} does not fit uint8"):
        dsl.placeholder("x", "uint8", [2]) + number


# Indexing

A = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
M = np.array([[True, False, True], [False, True, True]])
INDICES: list[Any] = [
    0,
    -1,
    (1, 2),
    (..., -1),
    (slice(None), 1),
    slice(1, None),
    slice(None, None, -1),
    (slice(None), slice(None, None, -2)),
    (slice(None), slice(2, None, -1), slice(-1, 0, -1)),
    (..., slice(3, 1)),
    (0, ..., slice(-3, -1)),
    None,
    (None, 0, None, ..., None),
    (slice(None), None, 1),
    [1, 0, 1],
    (slice(None), [2, 0]),
    (slice(None), np.array([[0, 1], [2, -1]])),
    ([0, 1], [2, 1]),
    (slice(None), [0, 1], [2, 3]),
    (slice(None), [0, 1], slice(None), [2, 3]),
    ([0, 1], slice(None), [2, 3]),
    (0, slice(None), [2, 3]),
    (slice(None), np.array([[0], [1]]), np.array([2, 3])),
    (slice(None), None, [0, 1], [2, 3], None),
    ([0, 1], None, [2, 0]),
    (slice(0, 1), [0, 1], [2, 3], slice(None, None, 2)),
    M,
    (M, slice(1, 3)),
    (0, np.array([True, False, True])),
    (slice(None), slice(None), np.array([True, False, True, True])),
    A > 50,
    (slice(None), np.array([True, False, True]), [1, 2]),
    (),
    ...,
    np.zeros((0,), np.int64),
]


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", "")[:40])
def test_indexing(index: Any, symbolic: bool) -> None:
    expected = A[index]
    for backend in BACKENDS:
        found = evaluate(lambda x: x[index], A, backend=backend, symbolic=symbolic)
        assert_same(found, expected)


bound = st.none() | st.integers(-6, 6)
part = st.one_of(
    st.integers(-2, 1),
    st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -3])),
    st.just(None),
    st.lists(st.integers(-2, 1), min_size=2, max_size=2),
)


@settings(max_examples=60)
@given(st.lists(part, max_size=4), st.booleans())
def test_indexing_at_random(parts: list[Any], symbolic: bool) -> None:
    index = tuple(parts)
    assert_same(evaluate(lambda x: x[index], A, symbolic=symbolic), A[index])


def test_indices_that_are_symbols() -> None:
    i, n = dsl.placeholder("i", "int64", []), dsl.placeholder("n", "int64", ["k"])
    x = dsl.placeholder("x", "float32", A.shape)
    run = ik.compile(
        {"one": x[i], "part": x[:, i : i + 2], "several": x[:, n], "mask": x[x > 100.0], "both": x[0, n, n]}
    )
    found = run.run({"i": 1, "n": np.array([2, 0, -1]), "x": A})
    assert_same(found["one"], A[1])
    assert_same(found["part"], A[:, 1:3])
    assert_same(found["several"], A[:, [2, 0, -1]])
    assert_same(found["mask"], A[A > 100])
    assert_same(found["both"], A[0, [2, 0, -1], [2, 0, -1]])


def test_types_are_known_when_the_expression_is_written() -> None:
    x = dsl.placeholder("x", "float32", ["batch", 3, 4])
    assert x[:, 0].shape == ("batch", 4)
    assert x[..., None].shape == ("batch", 3, 4, 1)
    assert x[:, [0, 1]].shape == ("batch", 2, 4)
    assert (x @ np.zeros((4, 7), np.float32)).shape == ("batch", 3, 7)
    assert dsl.mean(x, 1).shape == ("batch", 4)
    assert (x > 0).dtype.name == "bool"


M = np.float32([[3, 1, 2], [0, 5, 4]])
NUMPY_CALLS: list[Any] = [
    lambda x: np.sum(x),
    lambda x: np.sum(x, 1, keepdims=True),
    lambda x: np.sum(a=x, axis=(0, 1)),
    lambda x: np.mean(x, axis=0),
    lambda x: np.max(x, axis=1),
    lambda x: np.amin(x),
    lambda x: np.prod(x, 0),
    lambda x: np.std(x, ddof=1),
    lambda x: np.var(x, 0),
    lambda x: np.any(x > 3, axis=1),
    lambda x: np.all(x >= 0),
    lambda x: np.argmax(x, axis=1),
    lambda x: np.argmin(x),
    lambda x: np.sort(x),
    lambda x: np.argsort(x, axis=0),
    lambda x: np.cumsum(x),
    lambda x: np.cumsum(x, axis=1),
    lambda x: np.cumprod(x, axis=0),
    lambda x: np.where(x > 2, x, -x),
    lambda x: np.clip(x, 1, 3),
    lambda x: np.clip(x, a_min=None, a_max=2),
    lambda x: np.concatenate([x, x], axis=1),
    lambda x: np.concatenate((x, M)),
    lambda x: np.stack([x, x], 1),
    lambda x: np.reshape(x, (3, 2)),
    lambda x: np.ravel(x),
    lambda x: np.transpose(x),
    lambda x: np.transpose(x, (1, 0)),
    lambda x: np.swapaxes(x, 0, 1),
    lambda x: np.moveaxis(x, 0, -1),
    lambda x: np.expand_dims(x, 1),
    lambda x: np.squeeze(np.expand_dims(x, 0), axis=0),
    lambda x: np.broadcast_to(x, (4, 2, 3)),
    lambda x: np.tile(x, (1, 2)),
    lambda x: np.repeat(x, 2, axis=1),
    lambda x: np.flip(x, 1),
    lambda x: np.repeat(x, 2),
    lambda x: np.sort(x, axis=None),
    lambda x: np.roll(x, 1, axis=1),
    lambda x: np.take(x, np.array([1, 0]), axis=1),
    lambda x: np.outer(x[0], x[1]),
    lambda x: np.tril(x, 1),
    lambda x: np.triu(x),
    lambda x: np.einsum("ij,kj->ik", x, x),
    lambda x: np.matmul(x, np.transpose(x)),
]


@pytest.mark.parametrize("function", NUMPY_CALLS)
def test_functions_of_numpy_take_symbols(function: Any) -> None:
    assert_same(evaluate(function, M), function(M))


def test_functions_of_numpy_that_do_not() -> None:
    x = dsl.placeholder("x", "float32", [2, 3])
    assert (np.shape(x), np.ndim(x)) == ((2, 3), 2)
    for refused in (
        lambda: np.split(x, [1]),
        lambda: np.sum(x, dtype=np.float64),
        lambda: np.linalg.inv(x),
        lambda: np.roll(x, 1),
        lambda: np.flip(x),
        lambda: np.concatenate([x, x], dtype=np.float64),
    ):
        with pytest.raises(dsl.SymbolError, match=r"numpy\.\w+ does not take it, or not so"):
            refused()
