"""Cast, BitCast and quantization: the tables of the ONNX spec, exact rounding by fractions, edges."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError
from irkit.ir.dtypes import BY_NAME, dtype

NAN, INF = math.nan, math.inf
BF16 = np.dtype(ml_dtypes.bfloat16)


def cast(op, values, to, **attributes):
    return op("Cast", values, to=dtype(to).code, **attributes)


def same(result, expected, to):
    """Equality with type, NaN and the sign of zero."""
    assert result.dtype == dtype(to).numpy
    got = result.astype(np.float64)
    np.testing.assert_array_equal(got, np.array(expected, np.float64))
    np.testing.assert_array_equal(
        np.signbit(got[~np.isnan(got)]), np.signbit(np.array(expected, np.float64)[~np.isnan(got)])
    )


SPECIAL = np.array([0.0, -0.0, NAN, INF, -INF, 1e30, -1e30, 1.1])
FLOAT8 = {
    # name: largest, its zero for -0, values without saturation for inf, -inf, too large, too small; 1.1 rounded
    "float8_e4m3fn": (448, -0.0, (NAN, NAN, NAN, NAN), 1.125),
    "float8_e4m3fnuz": (240, 0.0, (NAN, NAN, NAN, NAN), 1.125),
    "float8_e5m2": (57344, -0.0, (INF, -INF, INF, -INF), 1.0),
    "float8_e5m2fnuz": (57344, 0.0, (NAN, NAN, NAN, NAN), 1.0),
}


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", FLOAT8)
def test_float8_tables(op, name, source):
    largest, minus_zero, wild, near = FLOAT8[name]
    with np.errstate(over="ignore"):
        x = SPECIAL.astype(dtype(source).numpy)
    saturated = [0.0, minus_zero, NAN, largest, -largest, largest, -largest, near]
    same(cast(op, x, name), saturated, name)
    same(op("CastLike", x, np.zeros((), dtype(name).numpy)), saturated, name)
    same(cast(op, x, name, saturate=0), [0.0, minus_zero, NAN, *wild, near], name)


def test_float8_ties_and_the_edge_of_saturation(op):
    x = np.array([464, 464.1, 1.0625, 1.1875])
    same(cast(op, x, "float8_e4m3fn"), [448, 448, 1.0, 1.25], "float8_e4m3fn")
    same(cast(op, x, "float8_e4m3fn", saturate=0), [448, NAN, 1.0, 1.25], "float8_e4m3fn")


@pytest.mark.parametrize(
    ("mode", "saturate", "expected"),
    [
        ("up", 1, [2.0**-127, 4, 4, 2, 2.0**127, 2.0**127, 2.0**-127]),
        ("down", 1, [2.0**-127, 2, 2, 2, 2.0**127, 2.0**127, 2.0**-127]),
        ("nearest", 1, [2.0**-127, 4, 2, 2, 2.0**127, 2.0**127, 2.0**-127]),
        ("nearest", 0, [NAN, 4, 2, 2, NAN, NAN, NAN]),
        ("up", 0, [NAN, 4, 4, 2, NAN, NAN, 2.0**-127]),
    ],
)
def test_float8_e8m0(op, mode, saturate, expected):
    x = np.array([0, 3, 2.5, 2, INF, 1.9 * 2.0**127, 2.0**-128 * 1.1])
    result = cast(op, x, "float8_e8m0fnu", round_mode=mode, saturate=saturate)
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    special = cast(op, np.array([NAN, -1], np.float32), "float8_e8m0fnu", round_mode=mode, saturate=saturate)
    assert np.isnan(special.astype(float)).all()


def test_float8_e8m0_refuses_unknown_modes(op):
    with pytest.raises(KernelError, match="round_mode"):
        cast(op, np.ones(1, np.float32), "float8_e8m0fnu", round_mode="even")


@pytest.mark.parametrize("source", ["float64", "int64", "uint64"])
def test_rounding_to_bfloat16_happens_once(op, source):
    rng = np.random.default_rng(3)
    x = rng.integers(2**40, 2**41, 500)
    # Half of them next to a tie: 8 significant bits, then a 1, zeros and at most one bit more.
    x[::2] = (x[::2] >> 33 << 33) + 2**32 + rng.integers(-1, 2, 250)
    result = cast(op, x.astype(source), "bfloat16").astype(np.float64)
    for value, got in zip(x.tolist(), result.tolist(), strict=True):
        unit = 2 ** (value.bit_length() - 8)
        assert got == round(Fraction(value, unit)) * unit


def test_rounding_of_subnormals_and_overflow(op):
    x = np.array([2.0**-134, 2.0**-134 * (1 + 2.0**-40), -1e-300, 3.3961e38, 3.4e38, 1e308])
    same(cast(op, x, "bfloat16"), [0.0, 2.0**-133, -0.0, 3.3895313892515355e38, INF, INF], "bfloat16")
    same(cast(op, np.array([65519, 65520, -(2**60)]), "float16"), [65504, INF, -INF], "float16")


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_tiny_floats_saturate(op, name):
    largest = {"float4_e2m1fn": 6, "float6_e2m3fn": 7.5, "float6_e3m2fn": 28}[name]
    same(
        cast(op, np.array([INF, -INF, 1e9, NAN, -0.0, 1.5], np.float32), name),
        [largest, -largest, largest, 0, -0.0, 1.5],
        name,
    )


def test_float4_rounds_to_even(op):
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.1, -0.3], np.float32)
    same(cast(op, x, "float4_e2m1fn"), [0, 1, 1, 2, 2, 4, 4, 6, -0.5], "float4_e2m1fn")


def test_integers_wrap(op):
    x = np.array([200, -129, 255, 17, -3], np.int16)
    same(cast(op, x, "int8"), [-56, 127, -1, 17, -3], "int8")
    same(cast(op, x, "uint8"), [200, 127, 255, 17, 253], "uint8")
    same(cast(op, x, "int4"), [-8, -1, -1, 1, -3], "int4")
    same(cast(op, x, "uint4"), [8, 15, 15, 1, 13], "uint4")
    same(cast(op, x, "int2"), [0, -1, -1, 1, 1], "int2")
    same(cast(op, x, "uint2"), [0, 3, 3, 1, 1], "uint2")
    same(cast(op, np.array([-1.9, 1.9, -7.5]), "int4"), [-1, 1, -7], "int4")
    same(cast(op, np.array([-1], ml_dtypes.int4), "uint16"), [65535], "uint16")
    assert cast(op, np.array([2**63], np.uint64), "int64").tolist() == [-(2**63)]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_bool(op, source):
    result = cast(op, np.array([0.0, -0.0, 0.5, NAN, -INF]).astype(dtype(source).numpy), "bool")
    assert result.dtype == bool
    assert result.tolist() == [False, False, True, True, True]
    same(cast(op, np.array([True, False]), source), [1, 0], source)


def test_to_strings(op):
    def strings(values):
        return cast(op, values, "string").tolist()

    assert strings(np.array([0.1, 1, -2.5, 1e20, 1e-7, NAN, INF, -INF], np.float32)) == [
        "0.1", "1", "-2.5", "100000000000000000000", "0.0000001", "NaN", "INF", "-INF",
    ]  # fmt: skip
    assert strings(np.array(1 / 3)) == "0.3333333333333333"
    assert strings(np.array([[-(2**63)]])) == [["-9223372036854775808"]]
    assert strings(np.array([True, False])) == ["1", "0"]
    assert strings(np.array([-8], ml_dtypes.int4)) == ["-8"]
    assert strings(np.array([0.5], BF16)) == ["0.5"]
    assert cast(op, np.zeros((0, 2)), "string").shape == (0, 2)


def test_from_strings(op):
    words = np.array(["3.14", "1e-5", "1E8", "+INF", "inf", "-Inf", "nan", " 7 "], object)
    for name in ("float32", "float64"):
        expected = np.array([3.14, 1e-5, 1e8, INF, INF, -INF, NAN, 7], dtype(name).numpy)
        np.testing.assert_array_equal(cast(op, words, name), expected)
    assert cast(op, np.array(["100.5", "-9223372036854775808"], object), "int64").tolist() == [100, -(2**63)]
    assert cast(op, np.array("18446744073709551615", object), "uint64").item() == 2**64 - 1
    same(cast(op, np.array(["-8", "7"], object), "int4"), [-8, 7], "int4")
    same(cast(op, np.array(["500"], object), "float8_e4m3fn"), [448], "float8_e4m3fn")
    assert cast(op, np.zeros((2, 0), object), "int32").shape == (2, 0)


@pytest.mark.parametrize(
    ("word", "to"),
    [("Hello", "float32"), ("", "int32"), ("1_0", "int64"), ("256", "uint8"), ("-1", "uint4"), ("inf", "int8")],
)
def test_strings_that_are_no_numbers(op, word, to):
    with pytest.raises(KernelError, match="string"):
        cast(op, np.array([word], object), to)


def test_unknown_type(op):
    with pytest.raises(KernelError, match="99"):
        op("Cast", np.ones(1), to=99)


@pytest.mark.parametrize(
    ("source", "to", "values", "expected"),
    [
        ("float32", "int32", [1.0, -0.0], [0x3F800000, -(2**31)]),
        ("int64", "float64", [0x3FF0000000000000], [1.0]),
        ("uint16", "bfloat16", [0x3FC0], [1.5]),
        ("int8", "uint8", [-1], [255]),
        ("uint8", "bool", [0, 1, 2], [0, 1, 1]),
        ("bool", "int8", [1, 0], [1, 0]),
        ("uint8", "float8_e5m2", [0x3C], [1.0]),
        ("int4", "uint4", [-1, 7, -8], [15, 7, 8]),
        ("uint4", "int4", [15, 7, 8], [-1, 7, -8]),
        ("uint4", "float4_e2m1fn", [0b0011, 0b1010], [1.5, -1.0]),
        ("float4_e2m1fn", "int4", [-1.0], [-6]),
        ("int2", "uint2", [-2, 1], [2, 1]),
        ("uint2", "int2", [3, 0], [-1, 0]),
    ],
)
def test_bit_cast(op, source, to, values, expected):
    x = np.array(values).astype(dtype(source).numpy)
    same(op("BitCast", x, to=dtype(to).code), expected, to)
    same(op("BitCast", x[:1].reshape(()), to=dtype(to).code), expected[0], to)


def test_bit_cast_refuses_other_widths(op):
    for x, to in (
        (np.ones(1, np.float32), "int64"),
        (np.array(["a"], object), "int8"),
        (np.ones(1, ml_dtypes.int4), "int8"),
    ):
        with pytest.raises(KernelError, match="widths"):
            op("BitCast", x, to=dtype(to).code)


INTEGER_RANGES = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
    "uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER_RANGES)
def test_quantize_saturates_and_rounds_to_even(op, name):
    low, high = INTEGER_RANGES[name]
    x = np.array([-1e9, 1e9, INF, -INF, 1, 3, -1, NAN], np.float32)
    expected = [low, high, high, low, *(max(low, min(high, q + 1)) for q in (0, 2, 0)), 1]
    zero = np.array(1).astype(dtype(name).numpy)
    same(op("QuantizeLinear", x, np.array(2, np.float32), zero), expected, name)
    without = op("QuantizeLinear", x, np.array(2, np.float32), None, output_dtype=dtype(name).code)
    same(without, [low, high, high, low, 0, min(2, high), 0, 0], name)


def test_quantize_defaults_to_uint8(op):
    result = op("QuantizeLinear", np.array(3.0, np.float32), np.array([2.0], np.float32))
    assert result.dtype == np.uint8
    assert result.shape == ()
    assert result.item() == 2


def test_quantize_per_axis_and_by_blocks(op):
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    scale, zero = np.array([1, 2, 4], np.float32), np.array([0, 10, 20], np.int8)
    expected = [
        [[round(float(x[i, j, k]) / float(scale[j])) + int(zero[j]) for k in range(2)] for j in range(3)]
        for i in range(2)
    ]
    for axis in (1, -2):
        assert op("QuantizeLinear", x, scale, zero, axis=axis).tolist() == expected
    blocks = np.array([[[1, 2], [4, 8]], [[1, 1], [2, 2]]], np.float32)
    expected = [
        [[round(float(x[i, j, k]) / float(blocks[i, j // 2, k])) for k in range(2)] for j in range(3)] for i in range(2)
    ]
    assert op("QuantizeLinear", x, blocks, None, axis=1, block_size=2).tolist() == expected
    back = op("DequantizeLinear", np.array(expected, np.uint8), blocks, None, axis=1, block_size=2)
    assert back[1, 2].tolist() == [expected[1][2][0] * 2.0, expected[1][2][1] * 2.0]


@pytest.mark.parametrize("name", ["QuantizeLinear", "DequantizeLinear"])
def test_quantization_parameters_that_do_not_fit(op, name):
    x = np.ones((2, 4), np.float32 if name == "QuantizeLinear" else np.int8)

    def scale(*shape):
        return np.ones(shape, np.float32)

    for parameters, attributes, message in (
        ((scale(3),), {}, "scale"),
        ((scale(4),), {"axis": 0}, "scale"),
        ((scale(4),), {"axis": 2}, "axis 2"),
        ((scale(2, 3),), {"block_size": 2}, r"shape \[2, 2\]"),
        ((scale(2, 2),), {"block_size": -2}, "block_size"),
        ((scale(4), np.zeros(2, np.int8)), {}, "zero point"),
    ):
        with pytest.raises(KernelError, match=message):
            op(name, x, *parameters, **attributes)
    unsigned = {"output_dtype": BY_NAME["uint8"].code} if name == "QuantizeLinear" else {}
    zero_point = np.zeros((), np.int8 if unsigned else np.uint8)
    with pytest.raises(KernelError, match="zero point is"):
        op(name, x, scale(), zero_point, **unsigned)


def test_quantize_divides_in_the_precision_asked_for(op):
    # 2049 is 2048 in float16 (and 65504 / 0.1 overflows there): the quotients differ.
    x, scale = np.array([2049, 1e4], np.float32), np.array(1, np.float32)
    zero = np.array(0, np.int16)
    assert op("QuantizeLinear", x, scale, zero).tolist() == [2049, 10000]
    assert op("QuantizeLinear", x, scale, zero, precision=BY_NAME["float16"].code).tolist() == [2048, 10000]
    assert op("QuantizeLinear", x, scale.astype(np.float16), zero).tolist() == [2048, 10000]
    e8m0 = np.array(2, ml_dtypes.float8_e8m0fnu)
    assert op("QuantizeLinear", x, e8m0, zero).tolist() == [1024, 5000]
    assert op("QuantizeLinear", np.array([7, 9, -3], np.int32), np.array(2, np.int32), zero).tolist() == [4, 4, -2]


def test_quantize_to_floats(op):
    x, scale = np.array([1e6, -1e6, 3, 1], np.float32), np.array(2, np.float32)
    for name, saturate, expected in (
        ("float8_e4m3fn", 1, [448, -448, 1.5, 0.5]),
        ("float8_e4m3fn", 0, [NAN, NAN, 1.5, 0.5]),
        ("float8_e5m2", 0, [INF, -INF, 1.5, 0.5]),
        ("float4_e2m1fn", 1, [6, -6, 1.5, 0.5]),
    ):
        same(op("QuantizeLinear", x, scale, None, output_dtype=dtype(name).code, saturate=saturate), expected, name)


def test_dequantize(op):
    scale = np.array(0.5, np.float32)
    for name in ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"):
        low, high = INTEGER_RANGES[name]
        x = np.array([low, high]).astype(dtype(name).numpy)
        same(op("DequantizeLinear", x, scale, np.array(1).astype(x.dtype)), [(low - 1) / 2, (high - 1) / 2], "float32")
    same(op("DequantizeLinear", np.array([-(2**31)], np.int32), scale), [-(2.0**30)], "float32")
    same(op("DequantizeLinear", np.array([448], ml_dtypes.float8_e4m3fn), scale.astype(BF16)), [224], "bfloat16")
    e8m0 = np.array(4, ml_dtypes.float8_e8m0fnu)
    x = np.array([3], np.int8)
    same(op("DequantizeLinear", x, e8m0, output_dtype=BY_NAME["float16"].code), [12], "float16")
    with pytest.raises(KernelError, match="output_dtype"):
        op("DequantizeLinear", x, e8m0)


def test_dynamic_quantize(op):
    y, scale, zero = op("DynamicQuantizeLinear", np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32), n_out=3)
    np.testing.assert_allclose(scale, 5 / 255, rtol=1e-6)
    assert (y.dtype, scale.dtype, zero.dtype) == (np.uint8, np.float32, np.uint8)
    assert zero.item() == 153
    assert y.tolist() == [153, 255, 0, 26, 221, 179]


@pytest.mark.parametrize("x", [np.zeros((2, 2), np.float32), np.zeros((0,), np.float32), np.zeros((), np.float32)])
def test_dynamic_quantize_of_zeros(op, x):
    y, scale, zero = op("DynamicQuantizeLinear", x, n_out=3)
    assert y.shape == x.shape
    assert not y.any()
    assert scale.item() == 0
    assert zero.item() == 0
