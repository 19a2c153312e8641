"""Reductions, arg-reductions and cumulative ops: hand-made values, empty sets, NaN, ties, narrow types."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf
FLOATS = [np.float16, BF16, np.float32, np.float64]

PLAIN = {
    "ReduceSum": sum,
    "ReduceProd": math.prod,
    "ReduceMean": lambda v: sum(v) / len(v),
    "ReduceMax": max,
    "ReduceMin": min,
    "ReduceL1": lambda v: sum(abs(e) for e in v),
    "ReduceL2": lambda v: math.sqrt(sum(e * e for e in v)),
    "ReduceSumSquare": lambda v: sum(e * e for e in v),
    "ReduceLogSum": lambda v: math.log(sum(v)),
    "ReduceLogSumExp": lambda v: math.log(sum(math.exp(e) for e in v)),
}


def axes(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", PLAIN)
def test_values(op, name, dtype):
    x = np.array([[[0.5, 1.5], [2, 0.25]], [[3, 1], [0.5, 2.5]]], dtype)
    eps = 4 * float(ml_dtypes.finfo(dtype).eps)
    whole = [float(v) for v in x.ravel()]
    first_and_last = [[float(v) for v in x[:, j, :].ravel()] for j in range(2)]
    plain = PLAIN[name]
    for result, expected in (
        (op(name, x), [[[plain(whole)]]]),
        (op(name, x, None, keepdims=0), plain(whole)),
        (op(name, x, axes(0, -1)), [[[plain(first_and_last[0])], [plain(first_and_last[1])]]]),
        (op(name, x, axes(2, 0), keepdims=0), [plain(v) for v in first_and_last]),
    ):
        assert result.dtype == dtype
        assert result.shape == np.shape(expected)
        np.testing.assert_allclose(result.astype(float), expected, rtol=eps)


@pytest.mark.parametrize("name", PLAIN)
def test_rank_zero_and_no_axes(op, name):
    x = np.array(4.0, np.float32)
    for result in (op(name, x), op(name, x, keepdims=0), op(name, x, axes(), noop_with_empty_axes=1)):
        assert result.shape == ()
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, PLAIN[name]([4.0]), rtol=1e-6)
    x = np.array([[2.0, 4.0]])
    result = op(name, x, axes(), noop_with_empty_axes=1)
    np.testing.assert_allclose(result, [[PLAIN[name]([2.0]), PLAIN[name]([4.0])]], rtol=1e-15)
    assert op(name, x, axes(), noop_with_empty_axes=0).shape == (1, 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMean", NAN),
        ("ReduceMax", -INF),
        ("ReduceMin", INF),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -INF),
        ("ReduceLogSumExp", -INF),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_empty_set(op, name, expected, dtype):
    result = op(name, np.zeros((2, 0, 3), dtype), axes(1))
    assert result.dtype == dtype
    assert result.shape == (2, 1, 3)
    np.testing.assert_array_equal(result.astype(float), np.full((2, 1, 3), expected))
    assert op(name, np.zeros((2, 0, 3), dtype), axes(0), keepdims=0).shape == (0, 3)


def test_empty_set_of_integers(op):
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        info = np.iinfo(dtype)
        assert op("ReduceMax", np.zeros((0,), dtype), keepdims=0).item() == info.min
        assert op("ReduceMin", np.zeros((0,), dtype), keepdims=0).item() == info.max
    assert op("ReduceMax", np.zeros(0, bool), keepdims=0).item() is False
    assert op("ReduceMin", np.zeros(0, bool), keepdims=0).item() is True
    with pytest.raises(KernelError, match="mean of no int32"):
        op("ReduceMean", np.zeros((0, 2), np.int32), axes(0))
    assert op("ReduceMean", np.zeros((0, 2), np.int32), axes(1)).shape == (0, 1)


def test_integers(op):
    x = np.array([2**31 - 1, 1], np.int32)
    assert op("ReduceSum", x).tolist() == [-(2**31)]
    assert op("ReduceMean", x).tolist() == [2**30]
    assert op("ReduceMean", np.array([-3, -4], np.int64)).tolist() == [-3]
    assert op("ReduceMean", np.array([2**64 - 1], np.uint64)).tolist() == [2**64 - 1]
    assert op("ReduceL2", np.array([3, 4], np.int32)).tolist() == [5]
    assert op("ReduceL2", np.array([60000, 80000], np.int32)).tolist() == [100000]
    assert op("ReduceSumSquare", np.array([2**16, 1], np.uint32)).tolist() == [1]
    assert op("ReduceMax", np.array([-3, 5], np.int8)).dtype == np.int8
    assert op("ReduceMax", np.array([False, True])).tolist() == [True]


def test_narrow_floats_accumulate_in_float32(op):
    assert op("ReduceSum", np.full(4096, 1, np.float16)).tolist() == [4096]
    assert op("ReduceSum", np.full(1000, 1, BF16)).astype(float).tolist() == [1000]
    assert op("ReduceMean", np.full(10, 60000, np.float16)).tolist() == [60000]
    assert op("ReduceL2", np.full(4, 300, np.float16)).tolist() == [600]


def test_nan_and_infinities(op):
    x = np.array([[1, NAN, 3], [INF, 2, -INF], [-INF, -INF, -INF]])
    np.testing.assert_array_equal(op("ReduceMax", x, axes(1), keepdims=0), [NAN, INF, -INF])
    np.testing.assert_array_equal(op("ReduceMin", x, axes(1), keepdims=0), [NAN, -INF, -INF])
    np.testing.assert_array_equal(op("ReduceLogSumExp", x, axes(1), keepdims=0), [NAN, INF, -INF])
    np.testing.assert_allclose(op("ReduceLogSumExp", np.array([1000.0, 1000.0])), [1000 + math.log(2)])


@pytest.mark.parametrize("bad", [axes(2), axes(-3), axes(0, 0), axes(1, -1)])
def test_bad_axes(op, bad):
    with pytest.raises(KernelError, match="axis"):
        op("ReduceSum", np.ones((2, 2), np.float32), bad)


def test_arg_max_and_min(op):
    x = np.array([[1, 3, 3], [2, 0, 0]], np.int32)
    assert op("ArgMax", x, axis=1).tolist() == [[1], [0]]
    assert op("ArgMax", x, axis=-1, select_last_index=1, keepdims=0).tolist() == [2, 0]
    assert op("ArgMin", x, axis=-1, select_last_index=1, keepdims=0).tolist() == [0, 2]
    assert op("ArgMin", x, axis=0, keepdims=0).tolist() == [0, 1, 1]
    for dtype in FLOATS:
        y = np.array([1, NAN, 5, NAN], dtype)
        result = op("ArgMax", y, axis=0, keepdims=0)
        assert result.dtype == np.int64
        assert result.item() == 1
        assert op("ArgMin", y, axis=0, keepdims=0, select_last_index=1).item() == 3


def test_arg_max_of_nothing(op):
    with pytest.raises(KernelError, match="no element"):
        op("ArgMax", np.zeros((2, 0), np.float32), axis=1)
    assert op("ArgMax", np.zeros((0, 2), np.float32), axis=1).shape == (0, 1)
    assert op("ArgMin", np.zeros((0, 0), np.float32), axis=1, keepdims=0).shape == (0,)
    with pytest.raises(KernelError, match="axis 0 is out of range"):
        op("ArgMax", np.array(1.0), axis=0)


@pytest.mark.parametrize(
    ("exclusive", "reverse", "sums", "products"),
    [
        (0, 0, [2, 5, 9], [2, 6, 24]),
        (1, 0, [0, 2, 5], [1, 2, 6]),
        (0, 1, [9, 7, 4], [24, 12, 4]),
        (1, 1, [7, 4, 0], [12, 4, 1]),
    ],
)
def test_cumulative(op, exclusive, reverse, sums, products):
    attributes = {"exclusive": exclusive, "reverse": reverse}
    for dtype in (np.int32, np.uint64, *FLOATS):
        x = np.array([[2, 3, 4]], dtype)
        result = op("CumSum", x, np.array(-1, np.int32), **attributes)
        assert result.dtype == dtype
        assert result.astype(float).tolist() == [sums]
        assert op("CumProd", x.T, np.array(0), **attributes).astype(float).ravel().tolist() == products


def test_cumulative_edges(op):
    assert op("CumSum", np.zeros((0, 2), np.float32), np.array(0), exclusive=1).shape == (0, 2)
    assert op("CumSum", np.array([2**31 - 1, 1], np.int32), np.array([0])).tolist() == [2**31 - 1, -(2**31)]
    assert op("CumSum", np.full(300, 1, BF16), np.array(0))[-1].astype(float) == 300
    with pytest.raises(KernelError, match="axis 1 is out of range"):
        op("CumSum", np.ones(2), np.array(1))
    with pytest.raises(KernelError, match="axis must have exactly one element"):
        op("CumSum", np.ones(2), np.array([0, 0]))
