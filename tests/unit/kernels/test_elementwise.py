"""Elementwise kernels: values by hand or from the math module, types, broadcasting, errors."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf


def check(result, expected, dtype):
    """Equality of type, shape and values, NaN equal to NaN."""
    expected = np.array(expected, object if dtype is object else np.float64)
    assert result.dtype == np.dtype(dtype)
    assert result.shape == expected.shape
    if dtype is object:
        assert result.tolist() == expected.tolist()
    else:
        np.testing.assert_array_equal(result.astype(np.float64), expected)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Sqrt", math.sqrt),
        ("Exp", math.exp),
        ("Log", math.log),
        ("Tanh", math.tanh),
        ("Atan", math.atan),
        ("Acosh", math.acosh),
        ("Reciprocal", lambda v: 1 / v),
        ("Erf", math.erf),
        ("Floor", math.floor),
        ("Ceil", math.ceil),
        ("Round", round),
        ("Neg", lambda v: -v),
    ],
)
def test_unary_floats(op, name, function, dtype, shape):
    x = (np.arange(math.prod(shape)) * 0.375 + 1.5).reshape(shape).astype(dtype)
    result = op(name, x)
    assert result.dtype == dtype
    assert result.shape == shape
    expected = np.array([function(float(v)) for v in x.ravel()]).reshape(shape)
    tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 4e-7), (np.float64, 5e-16)], ids=["float32", "float64"])
def test_erf_is_accurate_everywhere(op, dtype, tolerance):
    x = np.concatenate([np.linspace(-7, 7, 4001), 10.0 ** np.arange(-30, 3), [1e-38, 30.0]]).astype(dtype)
    expected = np.array([math.erf(float(v)) for v in x])
    np.testing.assert_allclose(op("Erf", x).astype(np.float64), expected, rtol=tolerance, atol=1e-45)
    check(op("Erf", np.array([INF, -INF, NAN, 0], dtype)), [1, -1, NAN, 0], dtype)
    assert math.copysign(1, op("Erf", np.array(-0.0, dtype)).item()) == -1


def test_integer_arithmetic_wraps(op):
    int8 = np.array([127, -128], np.int8)
    check(op("Add", int8, np.array([1, -1], np.int8)), [-128, 127], np.int8)
    check(op("Neg", int8), [-127, -128], np.int8)
    check(op("Abs", int8), [127, -128], np.int8)
    check(op("Mul", np.array(200, np.uint8), np.array([2], np.uint8)), [144], np.uint8)


def test_bfloat16_addition_rounds_once(op):
    check(op("Add", np.array(256, BF16), np.array([1, 3], BF16)), [256, 260], BF16)
    # 1 + 1/256 + 1/256 needs float32 in between: rounding after each addition would give 1.
    tiny = np.array(2.0**-8, BF16)
    check(op("Sum", np.array(1, BF16), tiny, tiny), 1 + 2.0**-7, BF16)


@pytest.mark.parametrize(
    ("a", "b", "quotient", "remainder", "fmod"),
    [
        (7, 2, 3, 1, 1),
        (-7, 2, -3, 1, -1),
        (7, -2, -3, -1, 1),
        (-7, -2, 3, -1, -1),
        (-6, 3, -2, 0, 0),
        (-1, 3, 0, 2, -1),
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integer_division(op, dtype, a, b, quotient, remainder, fmod):
    a, b = np.array(a, dtype), np.array([b], dtype)
    check(op("Div", a, b), [quotient], dtype)
    check(op("Mod", a, b), [remainder], dtype)
    check(op("Mod", a, b, fmod=1), [fmod], dtype)


def test_integer_division_at_the_edges(op):
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        lowest = np.array([np.iinfo(dtype).min], dtype)
        assert op("Div", lowest, np.array([-1], dtype)).tolist() == [np.iinfo(dtype).min]
        assert op("Mod", lowest, np.array([-1], dtype)).tolist() == [0]
    big = np.array([2**64 - 1], np.uint64)
    assert op("Div", big, np.array([2], np.uint64)).tolist() == [2**63 - 1]
    check(op("Div", np.zeros((0, 2), np.int32), np.zeros(2, np.int32)), np.zeros((0, 2)), np.int32)


@pytest.mark.parametrize("name", ["Div", "Mod"])
def test_integer_division_by_zero_is_an_error(op, name):
    with pytest.raises(KernelError, match=r"division by zero.*index \[1\]"):
        op(name, np.array([1, 2], np.int64), np.array([1, 0], np.int64))
    with pytest.raises(KernelError, match="division by zero"):
        op(name, np.array([1, 2], np.uint8), np.array(0, np.uint8))


def test_float_division_and_remainder(op):
    check(op("Div", np.array([1, -1, 0], np.float32), np.zeros(3, np.float32)), [INF, -INF, NAN], np.float32)
    a = np.array([5.5, -5.5, 1, -1, INF, 3], np.float64)
    b = np.array([2, 2, INF, INF, 2, 0], np.float64)
    check(op("Mod", a, b), [1.5, 0.5, 1, INF, NAN, NAN], np.float64)
    check(op("Mod", a, b, fmod=1), [1.5, -1.5, 1, -1, NAN, NAN], np.float64)
    for dtype in (np.float16, BF16):
        check(op("Mod", np.array(-5.5, dtype), np.array(2, dtype)), 0.5, dtype)
    assert math.copysign(1, op("Mod", np.array(0.0), np.array(-2.0)).item()) == -1


def test_pow_keeps_the_type_of_the_base(op):
    check(op("Pow", np.array([3, 4], np.float32), np.array(2, np.int64)), [9, 16], np.float32)
    check(op("Pow", np.array([4, 9], np.int32), np.array(0.5, np.float32)), [2, 3], np.int32)
    check(op("Pow", np.array(2, BF16), np.array([3, -1], np.float32)), [8, 0.5], BF16)
    check(op("Pow", np.array([300], np.float16), np.array([2], np.float16)), [INF], np.float16)
    check(op("Pow", np.array([-1], np.float32), np.array([2**24 + 1], np.int64)), [-1], np.float32)
    check(op("Pow", np.array([2.0]), np.array([[3]], np.int32)), [[8]], np.float64)
    check(op("Pow", np.zeros(0, np.float32), np.array(2, np.float32)), np.zeros(0), np.float32)


def test_integer_pow(op):
    wrapped = (3**40 + 2**31) % 2**32 - 2**31
    base = np.array([2, -2, 1, -1, -1, 3, 0], np.int32)
    exponent = np.array([-1, -1, -5, -3, -4, 40, 0], np.int64)
    check(op("Pow", base, exponent), [0, 0, 1, -1, 1, wrapped, 1], np.int32)
    assert op("Pow", np.array(3), np.array(39)).item() == 3**39
    with pytest.raises(KernelError, match="negative integer exponent"):
        op("Pow", np.array([0]), np.array([-1]))


def test_bit_shift_past_the_width(op):
    x = np.array([-8, -8, 8, 8, -1], np.int8)
    y = np.array([1, 8, 100, -1, -1], np.int8)
    check(op("BitShift", x, y, direction="RIGHT"), [-4, -1, 0, 0, -1], np.int8)
    check(op("BitShift", x, y, direction="LEFT"), [-16, 0, 0, 0, 0], np.int8)
    check(
        op("BitShift", np.array([255, 255], np.uint8), np.array([7, 8], np.uint8), direction="RIGHT"), [1, 0], np.uint8
    )
    check(op("BitShift", np.array(1, np.uint64), np.array([63], np.uint64), direction="LEFT"), [2**63], np.uint64)
    with pytest.raises(KernelError, match="direction"):
        op("BitShift", x, y, direction="UP")


def test_bitwise_and_logic(op):
    check(op("BitwiseNot", np.array([0, 5], np.uint8)), [255, 250], np.uint8)
    check(op("BitwiseXor", np.array([6], np.int16), np.array(3, np.int16)), [5], np.int16)
    true, false = np.array([True, False]), np.array(False)
    check(op("Xor", true, np.array([True, True])), [False, True], bool)
    check(op("Not", false), True, bool)


def test_comparisons(op):
    check(op("Equal", np.array([NAN, 1], np.float32), np.array([NAN, 1], np.float32)), [0, 1], bool)
    check(op("Equal", np.array([["a"], ["b"]], object), np.array(["a", "b"], object)), [[1, 0], [0, 1]], bool)
    check(op("Greater", np.array(2**63, np.uint64), np.array([1], np.uint64)), [1], bool)
    check(op("LessOrEqual", np.array([1, NAN], BF16), np.array(1, BF16)), [1, 0], bool)


def test_is_nan_and_is_inf(op):
    x = np.array([1, NAN, INF, -INF])
    for dtype in (np.float16, BF16, np.float32, ml_dtypes.float8_e5m2):
        check(op("IsNaN", x.astype(dtype)), [0, 1, 0, 0], bool)
        check(op("IsInf", x.astype(dtype)), [0, 0, 1, 1], bool)
        check(op("IsInf", x.astype(dtype), detect_negative=0), [0, 0, 1, 0], bool)
        check(op("IsInf", x.astype(dtype), detect_positive=0), [0, 0, 0, 1], bool)
        check(op("IsInf", x.astype(dtype), detect_positive=0, detect_negative=0), [0, 0, 0, 0], bool)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
def test_max_and_min_propagate_nan(op, dtype):
    x, y = np.array([1, NAN, 3], dtype), np.array([[2], [NAN]], dtype)
    check(op("Max", x, y), [[2, NAN, 3], [NAN] * 3], dtype)
    check(op("Min", x, y), [[1, NAN, 2], [NAN] * 3], dtype)
    check(op("Max", x), [1, NAN, 3], dtype)


def test_mean(op):
    check(op("Mean", np.array([60000, 1], np.float16), np.array(60000, np.float16)), [60000, 30000], np.float16)
    check(op("Mean", np.array(1.5)), 1.5, np.float64)


def test_clip(op):
    x = np.array([-5, 0, 5, NAN], np.float32)
    check(op("Clip", x, np.array(-1, np.float32), np.array(2, np.float32)), [-1, 0, 2, NAN], np.float32)
    check(op("Clip", x, None, np.array([2], np.float32)), [-5, 0, 2, NAN], np.float32)
    check(op("Clip", x), [-5, 0, 5, NAN], np.float32)
    # min above max: all become max.
    check(op("Clip", np.array([1, 9], np.uint8), np.array(5, np.uint8), np.array(3, np.uint8)), [3, 3], np.uint8)
    check(op("Clip", np.array(7, np.int8), np.array([1], np.int8)), 7, np.int8)
    with pytest.raises(KernelError, match="max must have exactly one element"):
        op("Clip", x, None, np.array([1, 2], np.float32))


def test_where(op):
    condition = np.array([[True], [False]])
    check(op("Where", condition, np.array(["x", "y"], object), np.array("z", object)), [["x", "y"], ["z", "z"]], object)
    result = op("Where", condition, np.array(1, BF16), np.array([2, 3], BF16))
    check(result, [[1, 1], [2, 3]], BF16)


@pytest.mark.parametrize("name", ["Add", "Div", "Mod", "Pow", "Less", "Max", "Where", "BitShift"])
def test_shapes_that_do_not_broadcast(op, name):
    a, b = np.ones((2, 3), np.int32), np.ones(2, np.int32)
    inputs = (a > 0, a, b) if name == "Where" else (a, b)
    attributes = {"direction": "LEFT"} if name == "BitShift" else {}
    with pytest.raises(KernelError, match=r"\[2, 3\] and \[2\] do not broadcast"):
        op(name, *inputs, **attributes)
