"""Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError
from irkit.ir.dtypes import dtype

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("attributes", "expected", "to"),
    [
        ({"value": np.array([1, 2], BF16)}, [1, 2], BF16),
        ({"sparse_value": np.array([0, 3], np.float32)}, [0, 3], np.float32),
        ({"value_float": 0.5}, 0.5, np.float32),
        ({"value_floats": (0.5, 1.0)}, [0.5, 1.0], np.float32),
        ({"value_int": 2**40}, 2**40, np.int64),
        ({"value_ints": ()}, [], np.int64),
        ({"value_string": "aé"}, "aé", object),
        ({"value_strings": ("a", "")}, ["a", ""], object),
    ],
)
def test_constant(op, attributes, expected, to):
    result = op("Constant", **attributes)
    assert result.dtype == to
    assert result.shape == np.shape(expected)
    assert (result.astype(float) if to == BF16 else result).tolist() == expected


def test_constant_needs_exactly_one_value(op):
    for attributes in ({}, {"value_int": 1, "value_float": 1.0}):
        with pytest.raises(KernelError, match="exactly one value"):
            op("Constant", **attributes)


def test_constant_of_shape(op):
    assert op("ConstantOfShape", np.zeros(0, np.int64)).shape == ()
    result = op("ConstantOfShape", np.array([2, 0]))
    assert result.shape == (2, 0)
    assert result.dtype == np.float32
    for name in ("int4", "float8_e4m3fn", "float4_e2m1fn", "bool", "bfloat16"):
        value = np.array([1]).astype(dtype(name).numpy)
        result = op("ConstantOfShape", np.array([2, 1]), value=value)
        assert result.dtype == value.dtype
        assert result.astype(float).tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        (np.array([2, -1]), np.zeros(1), "negative"),
        (np.array([2]), np.zeros(2), "one element"),
        (np.array(2), np.zeros(1), "1-D"),
    ],
)
def test_constant_of_shape_refuses(op, shape, value, message):
    with pytest.raises(KernelError, match=message):
        op("ConstantOfShape", shape, value=value)


def test_memory_is_asked_for_first(op):
    with pytest.raises(MemoryError):
        op("ConstantOfShape", np.array([2**31, 2**31, 2**31]))
    with pytest.raises(MemoryError):
        op("Range", np.array(0), np.array(2**62), np.array(1))
    with pytest.raises(MemoryError):
        op("Range", np.array(0.0), np.array(1.0), np.array(1e-300))


@pytest.mark.parametrize("to", [np.int16, np.int32, np.int64, np.float16, BF16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("start", "limit", "delta", "expected"),
    [
        (3, 9, 3, [3, 6]),
        (3, 10, 3, [3, 6, 9]),
        (10, 4, -2, [10, 8, 6]),
        (10, 3, -2, [10, 8, 6, 4]),
        (1, 1, 1, []),
        (1, 0, 5, []),
        (0, 5, -1, []),
    ],
)
def test_range(op, to, start, limit, delta, expected):
    result = op("Range", np.array(start, to), np.array(limit, to), np.array([delta], to))
    assert result.dtype == to
    assert result.shape == (len(expected),)
    assert result.astype(float).tolist() == expected


def test_range_edges(op):
    big = 2**63 - 1
    assert op("Range", np.array(big - 5), np.array(big), np.array(2)).tolist() == [big - 5, big - 3, big - 1]
    assert op("Range", np.array(-big), np.array(big), np.array(big)).tolist() == [-big, 0]
    # bfloat16 can't count past 256 by itself; in float32 it can, and is rounded at the end.
    counted = op("Range", np.array(250, BF16), np.array(264, BF16), np.array(1, BF16)).astype(float).tolist()
    assert counted == [*range(250, 257), 256, 258, 260, 260, 260, 262, 264]
    assert op("Range", np.array(0, np.float32), np.array(1, np.float32), np.array(0.1, np.float32)).shape == (10,)


@pytest.mark.parametrize(
    ("start", "limit", "delta", "message"),
    [(0, 1, 0, "delta"), (0.0, 1.0, 0.0, "delta"), (0.0, math.inf, 1.0, "finite"), (math.nan, 1.0, 1.0, "finite")],
)
def test_range_refuses(op, start, limit, delta, message):
    with pytest.raises(KernelError, match=message):
        op("Range", np.array(start), np.array(limit), np.array(delta))


@pytest.mark.parametrize("k", [0, 1, -1, 3, -2, 10, -10])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (0, 2)])
def test_eye_like(op, k, shape):
    expected = [[float(j == i + k) for j in range(shape[1])] for i in range(shape[0])]
    for to in (np.int32, BF16, bool):
        result = op("EyeLike", np.ones(shape, to), k=k)
        assert result.dtype == to
        assert result.shape == shape
        assert result.astype(float).tolist() == expected
    assert op("EyeLike", np.ones(shape), k=k, dtype=dtype("uint8").code).dtype == np.uint8


def test_eye_like_refuses_other_ranks(op):
    with pytest.raises(KernelError, match="rank 2"):
        op("EyeLike", np.ones(3))
