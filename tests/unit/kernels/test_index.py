"""Ops that read or write by index: against loops, invalid indices, duplicates, ties, NaN, empty tensors."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError, find_kernel

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, BF16, object])
def test_gather(op, axis, dtype):
    x = np.arange(6).reshape(2, 3).astype(str if dtype is object else dtype).astype(dtype)
    indices = np.array([[1, -1], [0, -2]], np.int32)
    y = op("Gather", x, indices, axis=axis)
    assert y.dtype == dtype
    assert y.tolist() == np.take(x, indices % x.shape[axis], axis).tolist()


def test_gather_edges(op):
    assert op("Gather", ints(4, 5), np.array(1)).shape == ()
    strings = op("Gather", np.array(["a", "bc"], object), np.array(-1))
    assert (strings.dtype, strings.tolist()) == (object, "bc")
    assert op("Gather", np.zeros((0, 3)), ints()).shape == (0, 3)
    assert op("Gather", np.zeros((0, 3)), ints(1), axis=1).shape == (0, 1)
    with pytest.raises(KernelError, match=r"index 3 .* axis 1 of dimension 3"):
        op("Gather", np.zeros((2, 3)), ints(0, 3), axis=1)
    with pytest.raises(KernelError, match=r"index -1 .* dimension 0"):
        op("Gather", np.zeros((0, 3)), ints(-1))


def test_gather_elements_against_loops(op):
    x = np.arange(24).reshape(2, 3, 4)
    random = np.random.default_rng(3)
    for axis in (-3, 1, 2):
        shape = [1, 2, 3]
        shape[axis] = 5
        indices = random.integers(-x.shape[axis], x.shape[axis], shape)
        y = op("GatherElements", x, indices, axis=axis)
        for at in np.ndindex(*shape):
            source = list(at)
            source[axis] = indices[at]
            assert y[at] == x[tuple(source)]
    with pytest.raises(KernelError, match="do not fit"):
        op("GatherElements", x, np.zeros((3, 3, 4), np.int64), axis=1)
    with pytest.raises(KernelError, match="index 4"):
        op("GatherElements", x, np.full((1, 1, 1), 4), axis=2)
    assert op("GatherElements", np.zeros((0, 2)), np.zeros((0, 1), np.int64)).shape == (0, 1)


@pytest.mark.parametrize(
    ("batch_dims", "index_shape"), [(0, (5, 1)), (0, (3,)), (0, (2, 2, 2)), (1, (2, 4, 2)), (2, (2, 3, 1))]
)
def test_gather_nd_against_loops(op, batch_dims, index_shape):
    x = np.arange(24).reshape(2, 3, 4)
    random = np.random.default_rng(4)
    indices = np.stack([random.integers(-x.shape[batch_dims + j], x.shape[batch_dims + j], index_shape[:-1])
                        for j in range(index_shape[-1])], axis=-1)  # fmt: skip
    y = op("GatherND", x, indices, batch_dims=batch_dims)
    assert y.shape == index_shape[:-1] + x.shape[batch_dims + index_shape[-1] :]
    for at in np.ndindex(*index_shape[:-1]):
        assert y[at].tolist() == x[at[:batch_dims] + tuple(indices[at])].tolist()


def test_gather_nd_refuses(op):
    with pytest.raises(KernelError, match=r"index 3 .* axis 1"):
        op("GatherND", np.zeros((2, 3)), np.array([[0, 3]]))
    with pytest.raises(KernelError, match="tuples of 3"):
        op("GatherND", np.zeros((2, 3)), np.array([[0, 0, 0]]))
    with pytest.raises(KernelError, match="batch_dims"):
        op("GatherND", np.zeros((2, 3)), np.array([[0], [0], [0]]), batch_dims=1)
    assert op("GatherND", np.zeros((0, 3)), np.zeros((0, 1), np.int64)).shape == (0, 3)


REDUCTIONS = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


@pytest.mark.parametrize("dtype", [np.int8, np.float64, BF16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_against_loops(op, dtype, reduction):
    random = np.random.default_rng(5)
    x = random.integers(-4, 4, (3, 4)).astype(dtype)
    indices = random.integers(-4, 4, (2, 6))
    updates = random.integers(-2, 3, (2, 6)).astype(dtype)
    expected = x.astype(int).tolist()
    for i, j in np.ndindex(2, 6):
        k = indices[i, j]
        expected[i][k] = REDUCTIONS[reduction](expected[i][k], int(updates[i, j]))
    y = op("ScatterElements", x, indices, updates, axis=1, reduction=reduction)
    assert y.dtype == dtype
    assert y.astype(int).tolist() == expected

    rows = ints(2, -3, 2).reshape(3, 1)
    blocks = random.integers(-2, 3, (3, 4)).astype(dtype)
    expected = x.astype(int).tolist()
    for (row,), block in zip(rows, blocks.astype(int).tolist(), strict=True):
        expected[row] = [REDUCTIONS[reduction](a, b) for a, b in zip(expected[row], block, strict=True)]
    y = op("ScatterND", x, rows, blocks, reduction=reduction)
    assert y.astype(int).tolist() == expected


def test_scatter_edges(op):
    x = np.array([1.0, 1.0], np.float16)
    # Each of 2048 additions of 2**-11 would be lost in float16, their sum is not.
    y = op("ScatterElements", x, np.zeros(2048, np.int64), np.full(2048, 2**-11, np.float16), reduction="add")
    assert y.tolist() == [2, 1]
    assert np.isnan(op("ScatterElements", x, ints(0), np.array([NAN], np.float16), reduction="max")[0])
    strings = np.array(["a", "b"], object)
    assert op("ScatterElements", strings, ints(-1), np.array(["z"], object)).tolist() == ["a", "z"]
    assert op("ScatterND", np.array([1, 2]), np.zeros((0,), np.int64), np.array([7, 8])).tolist() == [7, 8]
    assert op("ScatterND", np.array([1, 2]), np.zeros((0, 1), np.int64), ints()).tolist() == [1, 2]
    assert op("ScatterElements", np.array([100], np.int8), ints(0), np.array([100], np.int8), reduction="add") == [-56]
    for since in (9, 11):
        scatter = find_kernel("", "Scatter", since).function
        assert scatter(np.array([[1, 2]]), ints(1).reshape(1, 1), ints(9).reshape(1, 1), axis=1).tolist() == [[1, 9]]
    with pytest.raises(KernelError, match="not defined on object"):
        op("ScatterElements", strings, ints(0), strings[:1], reduction="add")
    with pytest.raises(KernelError, match="index 2"):
        op("ScatterElements", x, ints(2), x[:1])
    with pytest.raises(KernelError, match="updates have shape"):
        op("ScatterND", x, ints(0).reshape(1, 1), x)
    with pytest.raises(KernelError, match="reduction"):
        op("ScatterND", x, ints(0).reshape(1, 1), x[:1], reduction="sub")


def test_non_zero(op):
    assert op("NonZero", np.array([[1, 0], [NAN, -0.0]])).tolist() == [[0, 1], [0, 0]]
    assert op("NonZero", np.array(5)).shape == (0, 1)
    assert op("NonZero", np.array(0)).shape == (0, 0)
    assert op("NonZero", np.zeros((2, 0, 3))).shape == (3, 0)
    assert op("NonZero", np.array(["", "x"], object)).tolist() == [[1]]
    assert op("NonZero", np.array([0, 1], BF16)).dtype == np.int64


def test_one_hot(op):
    values = np.array([2, 5], np.int8)
    y = op("OneHot", np.array([1.9, -1, 3, -4], np.float32), np.array([3.0]), values)
    assert y.dtype == np.int8
    assert y.tolist() == [[2, 5, 2], [2, 2, 5], [2, 2, 2], [2, 2, 2]]
    assert op("OneHot", ints(0, 1), np.array(2), np.array(["-", "+"], object), axis=0).tolist() == [
        ["+", "-"],
        ["-", "+"],
    ]
    assert op("OneHot", np.array(2**64 - 1, np.uint64), np.array(2), values).tolist() == [2, 2]
    assert op("OneHot", np.array(1), np.array(2), values, axis=-1).tolist() == [2, 5]
    assert op("OneHot", np.zeros((2, 0), np.int32), np.array(3), values, axis=1).shape == (2, 3, 0)
    with pytest.raises(KernelError, match="depth"):
        op("OneHot", ints(0), np.array(-1), values)
    with pytest.raises(MemoryError):
        op("OneHot", ints(0), np.array(2**40), values)


def test_compress(op):
    x = np.arange(6).reshape(2, 3)
    assert op("Compress", x, np.array([False, True, True, False, True])).tolist() == [1, 2, 4]
    assert op("Compress", x, np.array([False, True]), axis=-1).tolist() == [[1], [4]]
    assert op("Compress", x, np.array([], np.bool_), axis=0).shape == (0, 3)
    with pytest.raises(KernelError, match="longer"):
        op("Compress", x, np.array([False, True, False]), axis=0)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_unique(op, dtype):
    x = np.array([[3, NAN, 1], [NAN, 3, 0]], dtype)
    values, first, inverse, counts = op("Unique", x, n_out=4)
    assert values.dtype == dtype
    assert str(values.astype(float).tolist()) == "[0.0, 1.0, 3.0, nan]"
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([5, 2, 0, 1], [2, 3, 1, 3, 2, 0], [1, 1, 2, 2])
    values, first, inverse, counts = op("Unique", x, sorted=0, n_out=4)
    assert str(values.astype(float).tolist()) == "[3.0, nan, 1.0, 0.0]"
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([0, 1, 2, 5], [0, 1, 2, 1, 0, 3], [2, 2, 1, 1])


def test_unique_axis(op):
    x = np.array([["b", "a"], ["a", "z"], ["b", "a"]], object)
    values, first, inverse, counts = op("Unique", x, axis=0, n_out=4)
    assert values.tolist() == [["a", "z"], ["b", "a"]]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])
    values, first = op("Unique", np.array([[1, 0, 1]], np.int8), axis=-1, sorted=0, n_out=2)
    assert (values.tolist(), first.tolist()) == ([[1, 0]], [0, 1])
    assert [o.shape for o in op("Unique", np.zeros((0, 2)), axis=0, n_out=4)] == [(0, 2), (0,), (0,), (0,)]
    assert [o.shape for o in op("Unique", np.zeros((3, 0)), axis=0, n_out=4)] == [(1, 0), (1,), (3,), (1,)]
    assert [o.shape for o in op("Unique", np.zeros(0), n_out=2)] == [(0,), (0,)]


def top(row, k, largest):
    """Indices by plain Python: NaN above all, equal values by index."""
    rank = [(math.isnan(v), 0 if math.isnan(v) else v) for v in row]
    order = sorted(range(len(row)), key=lambda i: (rank[i], -i if largest else i), reverse=largest)
    return order[:k]


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.int8, np.uint64])
@pytest.mark.parametrize(("n", "k"), [(7, 7), (7, 3), (400, 20), (400, 399)])
def test_top_k(op, largest, dtype, n, k):
    x = np.random.default_rng(n + k).integers(0, 12, (3, n)).astype(dtype)
    if x.dtype.kind not in "iu" and n == 7:
        x[0, 2] = x[1, 5] = NAN
    values, indices = op("TopK", x, ints(k), n_out=2, largest=largest)
    assert (values.dtype, indices.dtype) == (dtype, np.int64)
    assert indices.tolist() == [top([float(v) for v in row], k, largest) for row in x]
    assert values.tobytes() == np.take_along_axis(x, indices, 1).tobytes()
    moved = op("TopK", x.T, ints(k), n_out=2, largest=largest, axis=0)[1]
    assert moved.T.tolist() == indices.tolist()


def test_top_k_edges(op):
    assert [o.shape for o in op("TopK", np.zeros((2, 0)), ints(0), n_out=2)] == [(2, 0)] * 2
    assert op("TopK", np.array([-(2**63), 2**63 - 1]), ints(1), n_out=2, largest=0)[1].tolist() == [0]
    assert op("TopK", np.array([-INF, NAN, INF]), ints(3), n_out=2)[1].tolist() == [1, 2, 0]
    with pytest.raises(KernelError, match="K is 3"):
        op("TopK", np.zeros(2), ints(3), n_out=2)
    with pytest.raises(KernelError, match="out of range"):
        op("TopK", np.array(1.0), ints(1), n_out=2)
