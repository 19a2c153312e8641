"""Constants: exact, cheap, never aliased."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irkit.errors import ParseError
from irkit.ir.constants import ConstantData, FloatsAttr, constant, from_raw, pack_bits, resolve_digest, unpack_bits
from irkit.ir.dtypes import BY_NAME, DType, dtype

ALL = [d for d in BY_NAME.values() if d.kind != "string"]
NARROW = [d for d in ALL if d.packed]


def test_negative_zero_is_not_zero() -> None:
    assert constant(0.0, "float32") != constant(-0.0, "float32")
    assert constant([0.0, 1.0], "float64") != constant([-0.0, 1.0], "float64")


def test_nans_of_the_same_bits_are_equal_and_others_are_not() -> None:
    quiet, payload = (from_raw(bytes(b), dtype("float32"), ()) for b in ([0, 0, 0xC0, 0x7F], [1, 0, 0xC0, 0x7F]))
    assert quiet == from_raw(bytes([0, 0, 0xC0, 0x7F]), dtype("float32"), ())
    assert quiet != payload


def test_dtype_and_shape_count() -> None:
    assert constant([1, 2], "int32") != constant([1, 2], "int64")
    assert constant([[1, 2]]) != constant([[1], [2]])
    assert constant(np.zeros((0, 2))) != constant(np.zeros((2, 0)))


def test_a_splat_equals_its_elements_written_out_and_hashes_alike() -> None:
    splat, dense = constant(1.5, "float32", (3, 4)), constant(np.full((3, 4), 1.5, np.float32))
    assert splat == dense
    assert dense == splat
    assert hash(splat) == hash(dense)
    assert splat != constant(np.array([[1.5] * 4] * 2 + [[1.5, 1.5, 1.5, 2.0]], np.float32))
    assert splat.data.is_splat
    assert not dense.data.is_splat


def test_a_huge_splat_costs_one_element() -> None:
    huge = constant(0.0, "float32", (1 << 20, 1 << 20))
    assert huge.data.stored_nbytes == 4
    assert huge.array().shape == (1 << 20, 1 << 20)
    assert str(huge) == "#onnx.tensor<tensor<1048576x1048576xf32>, splat 0.0>"


def test_the_callers_array_is_copied_and_the_constants_cannot_be_written() -> None:
    array = np.arange(3.0)
    made = constant(array)
    array[0] = 9
    assert made.array()[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        made.array()[0] = 1


def test_strings_keep_bytes_that_are_no_utf8() -> None:
    made = constant(["aé", b"\xff\x00"])
    assert list(made.data.stored()) == ["aé".encode(), b"\xff\x00"]
    assert made.array()[0] == "aé"
    assert made.array()[1].encode("utf-8", "surrogateescape") == b"\xff\x00"
    assert made.data.nbytes == 5


@pytest.mark.parametrize("kind", NARROW, ids=str)
@given(data=st.data())
def test_narrow_elements_pack_and_unpack(kind: DType, data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, (1 << kind.bits) - 1), max_size=9))
    packed = pack_bits(np.array(codes, np.uint8).view(kind.numpy), kind.bits)
    assert len(packed) == -(-len(codes) * kind.bits // 8)
    # One stream of bits, the first element lowest.
    stream = int.from_bytes(packed, "little")
    assert [(stream >> (i * kind.bits)) & ((1 << kind.bits) - 1) for i in range(len(codes))] == codes
    back = unpack_bits(packed, len(codes), kind)
    assert back.dtype == kind.numpy
    assert pack_bits(back, kind.bits) == packed


def test_int4_comes_sign_extended() -> None:
    assert unpack_bits(bytes([0x8F, 0x07]), 3, dtype("int4")).astype(int).tolist() == [-1, -8, 7]


@pytest.mark.parametrize("kind", ALL, ids=str)
@given(data=st.data())
def test_every_bit_pattern_of_every_dtype_survives_raw(kind: DType, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 5))
    size = -(-count * kind.bits // 8)
    raw = data.draw(st.binary(min_size=size, max_size=size))
    if kind.kind == "bool":
        raw = bytes(b & 1 for b in raw)
    made = from_raw(raw, kind, (count,))
    used = int.from_bytes(raw, "little") & ((1 << (count * kind.bits)) - 1)
    assert int.from_bytes(bytes(made.raw()), "little") == used
    assert made == from_raw(raw, kind, (count,))


@pytest.mark.parametrize(("size", "shape"), [(7, (2,)), (9, (2,)), (0, ()), (4, (0,))])
def test_data_that_does_not_fit_is_refused(size: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ParseError, match="bytes"):
        from_raw(bytes(size), dtype("float32"), shape)


def test_an_array_of_another_dtype_or_shape_is_refused() -> None:
    with pytest.raises(TypeError, match="float32"):
        ConstantData(dtype("float32"), (2,), np.zeros(2))
    with pytest.raises(ValueError, match="shape"):
        ConstantData(dtype("float64"), (3,), np.zeros(2))


def test_a_digest_finds_the_constant_while_it_lives_and_says_so_when_not() -> None:
    made = constant(np.arange(100.0))
    digest = made.data.digest
    assert resolve_digest(digest, dtype("float64"), (100,)) is made.data
    with pytest.raises(ParseError, match="int64"):
        resolve_digest(digest, dtype("int64"), (100,))
    with pytest.raises(ParseError, match="sidecar"):
        resolve_digest("0" * 64, dtype("float64"), (100,))


def test_digests_tell_shapes_and_splats_apart_rightly() -> None:
    assert constant(np.zeros((2, 3))).data.digest == constant(0.0, "float64", (2, 3)).data.digest
    assert constant(np.zeros((2, 3))).data.digest != constant(np.zeros((3, 2))).data.digest
    assert constant(["ab", "c"]).data.digest != constant(["a", "bc"]).data.digest


def test_lists_of_floats_compare_by_bits() -> None:
    assert FloatsAttr.of([0.0]) != FloatsAttr.of([-0.0])
    assert FloatsAttr.of([np.nan]) == FloatsAttr.of([np.nan])
    assert str(FloatsAttr.of([np.inf, 16777216.0, 0.1])) == "#onnx.floats<[0x7F800000, 1.6777216e+07, 0.1]>"


@pytest.mark.parametrize(
    ("value", "element"),
    [
        (3, "int64"),
        (True, "bool"),
        (2.5, "float64"),
        ("text", "string"),
        (1j, "complex128"),
        (np.float32(1), "float32"),
        (np.array([1], ml_dtypes.bfloat16), "bfloat16"),
        ([b"x"], "string"),
    ],
)
def test_the_dtype_is_numpys_unless_given(value: object, element: str) -> None:
    assert constant(value).data.dtype is dtype(element)
