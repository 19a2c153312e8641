"""What may be fed, what comes back, and what is said about wrong feeds. The checks are those of every backend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import irkit as ik
from irkit.backends.numpy import NumpyExecutable, compile
from irkit.errors import FeedError
from irkit.ir.types import MapType, OptType, SeqType, tensor


def identity(element: object, shape: list[int | str | None] | None = None) -> NumpyExecutable:
    b = ik.Builder()
    x = b.input("x", element, shape)
    b.output(b.Identity(x), "y")
    return compile(b.module())


@pytest.fixture
def add() -> NumpyExecutable:
    b = ik.Builder()
    x, y = b.input("x", "float32", ["N", 2]), b.input("y", "float32", ["N", 2])
    b.output(x + y, "sum")
    b.output(x - y, "difference")
    return compile(b.module())


ONES = np.ones((3, 2), np.float32)


def test_names_and_types(add: NumpyExecutable) -> None:
    assert add.input_names == ["x", "y"]
    assert add.output_names == ["sum", "difference"]
    assert add.inputs["x"] == tensor("float32", ["N", 2])


def test_run_and_call(add: NumpyExecutable) -> None:
    found = add.run({"y": ONES, "x": 2 * ONES})
    assert list(found) == ["sum", "difference"]
    np.testing.assert_array_equal(found["sum"], 3 * ONES)
    total, difference = add(2 * ONES, y=ONES)
    np.testing.assert_array_equal(total, 3 * ONES)
    np.testing.assert_array_equal(difference, ONES)


def test_fetches_run_only_what_they_need(add: NumpyExecutable) -> None:
    assert list(add.run({"x": ONES, "y": ONES}, ["difference"])) == ["difference"]
    np.testing.assert_array_equal(add.run({"x": ONES}, ["x"])["x"], ONES)
    with pytest.raises(FeedError, match=r"input 'y' .* is missing"):
        add.run({"x": ONES}, ["sum"])
    with pytest.raises(FeedError, match="no output 'z'"):
        add.run({"x": ONES}, ["z"])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": ONES}, r"input 'y' \(float32\[N, 2\]\) is missing; given: 'x'"),
        ({"x": ONES, "y": ONES, "z": ONES}, "there is no input 'z'"),
        ({"x": ONES, "y": ONES.astype(np.float64)}, r"input 'y' is float64\[3, 2\], expected float32\[N, 2\]"),
        ({"x": ONES, "y": ONES[0]}, "its rank is 1, expected 2"),
        ({"x": ONES, "y": ONES[:, :1]}, "axis 1 has size 1, expected 2"),
        ({"x": ONES, "y": ONES[:2]}, "'N' is 2 on axis 0 here, but 3 in input 'x'"),
        ({"x": ONES, "y": None}, "input 'y' is nothing"),
        ({"x": ONES, "y": [[1, 2], [3]]}, "it is no array"),
        ({"x": ONES, "y": "text"}, "input 'y' is a str"),
        ({"x": ONES, "y": np.ma.masked_array(ONES, ONES > 0)}, "fill the mask"),
    ],
)
def test_wrong_feeds(add: NumpyExecutable, feeds: dict[str, Any], message: str) -> None:
    with pytest.raises(FeedError, match=message):
        add.run(feeds)


def test_wrong_calls(add: NumpyExecutable) -> None:
    with pytest.raises(FeedError, match="3 inputs are given, but there are 2"):
        add(ONES, ONES, ONES)
    with pytest.raises(FeedError, match="input 'x' is given twice"):
        add(ONES, ONES, x=ONES)


@pytest.mark.parametrize(
    ("element", "value", "expected"),
    [
        ("float32", 3, np.float32(3)),
        ("float32", 0.1, np.float32(0.1)),
        ("float16", [1, 2.5], np.array([1, 2.5], np.float16)),
        ("bfloat16", 1.5, np.array(1.5, ml_dtypes.bfloat16)),
        ("int4", [-8, 7], np.array([-8, 7], ml_dtypes.int4)),
        ("int8", [[-128, 127]], np.array([[-128, 127]], np.int8)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("bool", [True, False], np.array([True, False])),
        ("complex64", 1, np.complex64(1)),
        ("float32", [], np.array([], np.float32)),
        ("float32", np.array([1, 2], ">f4"), np.array([1, 2], np.float32)),
    ],
)
def test_python_numbers(element: str, value: Any, expected: Any) -> None:
    found = identity(element)(value)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("int8", 128),
        ("uint8", -1),
        ("int32", 1.0),
        ("bool", 1),
        ("int32", True),
        ("float16", 70000.0),
        ("float16", 2049),
        ("float32", 1j),
        ("float32", np.float64(1)),
        ("int64", np.array([1], np.int32)),
    ],
)
def test_python_numbers_that_do_not_fit(element: str, value: Any) -> None:
    with pytest.raises(FeedError):
        identity(element)(value)


def test_strings() -> None:
    f = identity("string")
    for value in (["a", "é"], np.array(["a", "é"]), np.array(["a", "é"], object), [b"a", "é".encode()]):
        found = f(value)
        assert found.dtype == object
        assert found.tolist() == ["a", "é"]
    assert f("one").shape == ()
    with pytest.raises(FeedError, match="element 1 of input 'x' is int 2"):
        f(np.array(["a", 2], object))
    with pytest.raises(FeedError, match="feed str"):
        f(np.ones(2))


def test_sequences_optionals_and_maps() -> None:
    f = identity(SeqType(tensor("float32", None)))
    found = f([[1.0], ONES])
    assert [x.shape for x in found] == [(1,), (3, 2)]
    with pytest.raises(FeedError, match="element 1 of input 'x'"):
        f([ONES, np.ones(2)])
    with pytest.raises(FeedError, match="expected a sequence of float32"):
        f(ONES)
    optional = identity(OptType(tensor("float32", None)))
    assert optional(None) is None
    assert optional() is None
    np.testing.assert_array_equal(optional(ONES), ONES)
    b = ik.Builder()
    scores = b.input("scores", MapType(tensor("int64", ()), tensor("float32", ())))
    b.output(b.op("onnx.ml.DictVectorizer", scores, int64_vocabulary=[5, 7]), "y")
    vectorize = compile(b.module())
    assert vectorize({7: 0.5}).reshape(-1).tolist() == [0, 0.5]
    with pytest.raises(FeedError, match="feed a dict"):
        vectorize(3)


def test_unranked_and_unnamed_sizes() -> None:
    assert identity("float32", None)(ONES).shape == (3, 2)
    assert identity("float32", [None, None])(ONES).shape == (3, 2)
