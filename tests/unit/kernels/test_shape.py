"""Ops that rearrange elements: empty and 0-d tensors, clamping, every mode of Pad, narrow types, refusals."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError, find_kernel

STRINGS = np.array(["a", "b", "c"], object)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "target", "allowzero", "expected"),
    [
        ((2, 3, 4), (4, -1), 0, (4, 6)),
        ((2, 3, 4), (0, 0, 2, -1), 0, (2, 3, 2, 2)),
        ((0, 3, 4), (0, -1), 0, (0, 12)),
        ((3, 0), (0, 5), 1, (0, 5)),
        ((1, 1), (), 0, ()),
        ((), (1, -1), 0, (1, 1)),
        ((), (-1,), 0, (1,)),
    ],
)
def test_reshape(op, shape, target, allowzero, expected):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y = op("Reshape", x, ints(*target), allowzero=allowzero)
    assert y.shape == expected
    assert y.ravel().tolist() == x.ravel().tolist()


@pytest.mark.parametrize(
    ("shape", "target", "allowzero"),
    [((2, 3), (4,), 0), ((2, 3), (-1, -1), 0), ((2, 3), (-2, 3), 0), ((2,), (1, 2, 0), 0), ((0, 2), (0, -1), 1),
     ((2, 3), (5, -1), 0), ((0, 2), (3, -1, 0), 0)],
)  # fmt: skip
def test_reshape_refuses(op, shape, target, allowzero):
    with pytest.raises(KernelError, match="shape"):
        op("Reshape", np.zeros(shape), ints(*target), allowzero=allowzero)


def slice_by_the_specification(data, start, end, step):
    """A 1-D Slice written out as the specification's text has it."""
    n = len(data)
    start += n if start < 0 else 0
    end += n if end < 0 else 0
    if step > 0:
        start, end = min(max(start, 0), n), min(max(end, 0), n)
        return [data[i] for i in range(start, end, step)]
    start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
    return [data[i] for i in range(start, end, step)] if n else []


@pytest.mark.parametrize("n", [0, 1, 4])
def test_slice_clamps(op, n):
    data = list(range(10, 10 + n))
    bounds = [-(2**63), -6, -2, -1, 0, 1, 3, 7, 2**63 - 1]
    for start, end, step in itertools.product(bounds, bounds, [-(2**62), -2, -1, 1, 3, 2**62]):
        y = op("Slice", ints(*data), ints(start), ints(end), ints(0), ints(step))
        assert y.tolist() == slice_by_the_specification(data, start, end, step), (n, start, end, step)


def test_slice_axes(op):
    x = np.arange(24).reshape(2, 3, 4)
    y = op("Slice", x, np.array([1, 3], np.int32), np.array([9, 0], np.int32), np.array([-2, -1], np.int32),
           np.array([1, -2], np.int32))  # fmt: skip
    assert y.tolist() == [[[x[i, j, k] for k in (3, 1)] for j in (1, 2)] for i in range(2)]
    with pytest.raises(KernelError, match="step"):
        op("Slice", x, ints(0), ints(1), ints(0), ints(0))
    with pytest.raises(KernelError, match="twice"):
        op("Slice", x, ints(0, 0), ints(1, 1), ints(0, -3))
    with pytest.raises(KernelError, match="out of range"):
        op("Slice", x, ints(0), ints(1), ints(3))


def test_squeeze_unsqueeze(op):
    x = np.zeros((1, 3, 1), ml_dtypes.int4)
    assert op("Squeeze", x).shape == (3,)
    assert op("Squeeze", x, ints(-1)).shape == (1, 3)
    assert op("Squeeze", np.zeros((1, 1))).shape == ()
    assert op("Unsqueeze", np.array(5), ints(0, -1)).shape == (1, 1)
    assert op("Unsqueeze", x, ints(-1, 0)).shape == (1, 1, 3, 1, 1)
    with pytest.raises(KernelError, match="not 1"):
        op("Squeeze", x, ints(1))
    with pytest.raises(KernelError, match="twice"):
        op("Unsqueeze", x, ints(0, -5))


def test_transpose_flatten_shape_size(op):
    x = np.arange(6).reshape(1, 2, 3)
    assert op("Transpose", x).tolist() == [[[0], [3]], [[1], [4]], [[2], [5]]]
    assert op("Transpose", np.array(1)).shape == ()
    with pytest.raises(KernelError, match="permutation"):
        op("Transpose", x, perm=(0, 1, 1))
    assert op("Flatten", np.array(3.0), axis=0).shape == (1, 1)
    assert op("Flatten", np.zeros((0, 2, 3)), axis=-1).shape == (0, 3)
    assert op("Flatten", x, axis=3).shape == (6, 1)
    with pytest.raises(KernelError, match="axis 4"):
        op("Flatten", x, axis=4)
    assert op("Shape", x).tolist() == [1, 2, 3]
    assert op("Shape", x, start=-9, end=-1).tolist() == [1, 2]
    assert op("Shape", x, start=2, end=1).tolist() == []
    assert op("Shape", np.array(1)).dtype == np.int64
    assert op("Size", np.zeros((2, 0))).tolist() == 0


def test_concat(op):
    assert op("Concat", STRINGS, STRINGS[:0], axis=-1).tolist() == ["a", "b", "c"]
    assert op("Concat", np.zeros((2, 0)), np.ones((2, 1)), axis=1).tolist() == [[1], [1]]
    for inputs, axis in [((np.zeros((2, 1)), np.zeros((3, 1))), 1), ((np.zeros(2), np.zeros((2, 1))), 0)]:
        with pytest.raises(KernelError, match="does not join"):
            op("Concat", *inputs, axis=axis)
    with pytest.raises(KernelError, match="out of range"):
        op("Concat", np.array(1.0), axis=0)


def test_split(op):
    x = np.arange(7)
    assert [p.tolist() for p in op("Split", x, n_out=3, num_outputs=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [p.tolist() for p in op("Split", x[:5], n_out=4, num_outputs=4)] == [[0, 1], [2, 3], [4], []]
    assert [p.tolist() for p in op("Split", x, ints(0, 7), n_out=2)] == [[], list(range(7))]
    with pytest.raises(KernelError, match="add up"):
        op("Split", x, ints(3, 3), n_out=2)
    with pytest.raises(KernelError, match="outputs"):
        op("Split", x, ints(3, 4), n_out=3)


def test_expand_tile(op):
    assert op("Expand", np.array([[1], [2]]), ints(2, 1, 3)).tolist() == [[[1] * 3, [2] * 3]] * 2
    assert op("Expand", np.array([1, 2]), ints(1)).tolist() == [1, 2]
    assert op("Expand", np.array("x", object), ints(0)).shape == (0,)
    with pytest.raises(KernelError, match="broadcast"):
        op("Expand", np.array([1, 2]), ints(3))
    with pytest.raises(MemoryError):
        op("Expand", np.array(1.0), ints(2**40))
    assert op("Tile", np.array([[1, 2]], np.int8), ints(2, 2)).tolist() == [[1, 2, 1, 2]] * 2
    assert op("Tile", STRINGS, ints(0)).shape == (0,)
    with pytest.raises(KernelError, match="repeats"):
        op("Tile", STRINGS, ints(1, 1))
    with pytest.raises(MemoryError):
        op("Tile", np.zeros(8), ints(2**60))


@pytest.mark.parametrize(
    ("mode", "pads", "expected"),
    [
        ("constant", (1, 2), [0, 1, 2, 3, 0, 0]),
        ("constant", (-2, 2), [3, 0, 0]),
        ("edge", (2, -1), [1, 1, 1, 2]),
        ("reflect", (2, 1), [3, 2, 1, 2, 3, 2]),
        ("reflect", (5, 0), [2, 1, 2, 3, 2, 1, 2, 3]),
        ("reflect", (-1, 1), [2, 3, 2]),
        ("wrap", (1, 5), [3, 1, 2, 3, 1, 2, 3, 1, 2]),
        ("wrap", (-1, 2), [2, 3, 2, 3]),
        ("edge", (0, 0), [1, 2, 3]),
    ],
)
def test_pad_modes(op, mode, pads, expected):
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.uint4):
        y = op("Pad", np.array([1, 2, 3], dtype), ints(*pads), mode=mode)
        assert y.dtype == dtype
        assert y.astype(np.int64).tolist() == expected


def test_pad_details(op):
    assert op("Pad", STRINGS, ints(0, 1)).tolist() == ["a", "b", "c", ""]
    assert op("Pad", STRINGS, ints(1, 0), np.array("z", object)).tolist() == ["z", "a", "b", "c"]
    x = np.array([[1, 2]], np.int8)
    assert op("Pad", x, ints(1, 0), np.array([-7], np.int8), ints(-2)).tolist() == [[-7, -7], [1, 2]]
    assert op("Pad", np.zeros((0, 2)), ints(1, 0, 0, 0)).shape == (1, 2)
    assert op("Pad", np.array(4.0), ints()).tolist() == 4
    assert op("Pad", np.array([5]), ints(2, 1), mode="reflect").tolist() == [5] * 4
    with pytest.raises(KernelError, match="empty"):
        op("Pad", np.zeros(0), ints(1, 0), mode="edge")
    with pytest.raises(KernelError, match="remove more"):
        op("Pad", np.zeros(2), ints(-2, -1))
    with pytest.raises(KernelError, match="pads holds 3"):
        op("Pad", np.zeros(2), ints(1, 1, 1))
    with pytest.raises(MemoryError):
        op("Pad", np.zeros(2), ints(0, 2**40))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks(op, mode):
    x = np.arange(2 * 8 * 2 * 3).reshape(2, 8, 2, 3)
    y = op("DepthToSpace", x, blocksize=2, mode=mode)
    assert y.shape == (2, 2, 4, 6)
    for n, c, h, w in np.ndindex(y.shape):
        offset = (h % 2) * 2 + w % 2
        channel = offset * 2 + c if mode == "DCR" else c * 4 + offset
        assert y[n, c, h, w] == x[n, channel, h // 2, w // 2]
    assert op("SpaceToDepth", y, blocksize=2, mode=mode).tolist() == x.tolist()
    with pytest.raises(KernelError, match="divisible"):
        op("DepthToSpace", x, blocksize=3, mode=mode)


def test_reverse_sequence(op):
    x = np.arange(8).reshape(4, 2)
    assert op("ReverseSequence", x, ints(0, 3)).T.tolist() == [[0, 2, 4, 6], [5, 3, 1, 7]]
    assert op("ReverseSequence", x.T, ints(4, 1), time_axis=1, batch_axis=0).tolist() == [[6, 4, 2, 0], [1, 3, 5, 7]]
    assert op("ReverseSequence", np.zeros((0, 2, 3)), ints(0, 0)).shape == (0, 2, 3)
    with pytest.raises(KernelError, match="sequence_lens"):
        op("ReverseSequence", x, ints(5, 1))


def test_identity_keeps_what_it_is_given():
    identity = find_kernel("", "Identity").function
    sequence = [np.zeros(1)]
    assert identity(sequence) is sequence
    assert identity(None) is None


@pytest.mark.parametrize(
    ("mode", "scales", "expected"),
    [
        ("nearest", (2.0,), [1, 1, 2, 2]),
        ("nearest", (1.6,), [1, 1, 2]),
        ("linear", (2.0,), [1, 1.5, 2, 2]),
        ("nearest", (1.0,), [1, 2]),
    ],
)
def test_upsample(op, mode, scales, expected):
    x = np.array([1, 2], np.float32)

    class Budget:
        def allocate(self, nbytes):
            assert nbytes < 2**20

    for since in (7, 9, 10):
        given = {"scales": scales} if since == 7 else {}
        inputs = (x,) if since == 7 else (x, np.array(scales, np.float32))
        y = find_kernel("", "Upsample", since).function(*inputs, mode=mode, budget=Budget(), **given)
        assert y.dtype == np.float32
        assert y.tolist() == expected
    with pytest.raises(KernelError, match="scales"):
        find_kernel("", "Upsample", 7).function(x, scales=(0.5,), mode=mode, budget=Budget())
    with pytest.raises(KernelError, match="scales"):
        find_kernel("", "Upsample", 7).function(x, scales=(np.inf,), mode=mode, budget=Budget())
