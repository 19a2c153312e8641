"""If, Loop and Scan, with Python functions as bodies."""

from __future__ import annotations

import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError, find_kernel
from irkit.ir.dtypes import dtype


class Exhausted(Exception):
    pass


class Budget:
    def __init__(self, steps=100):
        self.left = steps

    def step(self):
        self.left -= 1
        if self.left < 0:
            raise Exhausted

    def allocate(self, nbytes):
        assert nbytes >= 0


def call(name, *inputs, budget=None, **keywords):
    if name != "If":
        keywords["budget"] = budget or Budget()
    return find_kernel("", name).function(*inputs, **keywords)


def test_if():
    branches = {"then_branch": lambda: (1, 2), "else_branch": lambda: (3, 4)}
    assert call("If", np.array(True), **branches) == (1, 2)
    assert call("If", np.array([False]), **branches) == (3, 4)
    with pytest.raises(KernelError, match="one element"):
        call("If", np.array([True, False]), **branches)


TRUE, FALSE = np.array(True), np.array(False)


def counting(until):
    """A body that doubles its state, gives the iteration as a scan output and goes on below ``until``."""

    def body(i, cond, state):
        assert (i.shape, i.dtype, cond.dtype) == ((), np.int64, np.bool_)
        return np.array(i + 1 < until), state * 2, i

    return body


@pytest.mark.parametrize(
    ("limit", "cond", "until", "iterations"),
    [
        (5, TRUE, 99, 5),
        (5, TRUE, 3, 3),
        (5, FALSE, 99, 0),
        (0, TRUE, 99, 0),
        (-1, TRUE, 99, 0),
        # Without a condition input the body's condition is ignored.
        (5, None, 0, 5),
        (None, TRUE, 3, 3),
        (None, FALSE, 99, 0),
    ],
)
def test_loop(limit, cond, until, iterations):
    body = counting(until)
    body.output_types = [(dtype("bool"), ()), (dtype("float32"), ()), (dtype("int64"), ())]
    trips = None if limit is None else np.array(limit)
    state, scan = call("Loop", trips, cond, np.float32(1.0).reshape(()), body=body, n_out=2)
    assert state == 2**iterations
    assert scan.dtype == np.int64
    assert scan.tolist() == list(range(iterations))


def test_loop_without_end_is_stopped():
    with pytest.raises(Exhausted):
        call("Loop", None, None, np.array(1.0), body=counting(0), n_out=2)


def test_loop_carries_sequences():
    def body(i, cond, sequence):
        return cond, [*sequence, i]

    (sequence,) = call("Loop", np.array([3]), TRUE, [], body=body, n_out=1)
    assert [int(v) for v in sequence] == [0, 1, 2]


def test_loop_scan_outputs_of_no_iteration():
    def body(i, cond):
        return cond, np.zeros((2, 3), np.int8), np.array("x", object)

    with pytest.raises(KernelError, match="not known"):
        call("Loop", np.array(0), None, body=body, n_out=2)
    body.output_types = [(dtype("bool"), ()), (dtype("int8"), ("n", 3)), (dtype("string"), None)]
    numbers, _ = call("Loop", np.array(0), None, body=body, n_out=2)
    assert numbers.shape == (0, 0, 3)
    body.output_types = [(dtype("bool"), ()), (dtype("int8"), (None, 3)), (dtype("string"), None)]
    numbers, strings = call("Loop", np.array(0), None, body=body, n_out=2)
    assert (numbers.shape, numbers.dtype) == ((0, 0, 3), np.int8)
    assert (strings.shape, strings.dtype) == ((0,), object)


def test_loop_refuses():
    with pytest.raises(KernelError, match="iteration 1"):
        call("Loop", np.array(2), None, body=lambda i, c: (c, np.zeros(int(i))), n_out=1)
    with pytest.raises(KernelError, match="gave 1 values; 2 are needed"):
        call("Loop", np.array(2), None, body=lambda i, c: (c,), n_out=1)


def cumulative(total, element):
    return total + element, total + element


def test_scan_axes_and_directions():
    x = np.arange(6).reshape(2, 3)
    zero = np.zeros(2, np.int64)
    total, sums = call("Scan", zero, x, num_scan_inputs=1, body=cumulative, scan_input_axes=(-1,), n_out=2)
    assert total.tolist() == [3, 12]
    assert sums.tolist() == [[0, 3], [1, 7], [3, 12]]
    total, sums = call(
        "Scan",
        zero,
        x,
        num_scan_inputs=1,
        body=cumulative,
        scan_input_axes=(1,),
        scan_input_directions=(1,),
        scan_output_axes=(-1,),
        scan_output_directions=(1,),
        n_out=2,
    )
    assert total.tolist() == [3, 12]
    assert sums.tolist() == [[3, 3, 2], [12, 9, 5]]


def test_scan_zips_and_gives_scalars():
    def body(a, b):
        assert (a.shape, type(a)) == ((), np.ndarray)
        return (np.asarray(a + b),)

    (sums,) = call(
        "Scan",
        np.array([1, 2]),
        np.array([10, 20]),
        num_scan_inputs=2,
        body=body,
        scan_input_directions=(0, 1),
        n_out=1,
    )
    assert sums.tolist() == [21, 12]


def test_scan_of_nothing():
    body = lambda total, element: cumulative(total, element)  # noqa: E731
    body.output_types = [(dtype("int64"), (2,)), (dtype("int64"), (2,))]
    total, sums = call(
        "Scan", np.ones(2), np.zeros((2, 0)), num_scan_inputs=1, body=body, scan_input_axes=(1,), scan_output_axes=(1,),
        n_out=2,
    )  # fmt: skip
    assert total.tolist() == [1, 1]
    assert sums.shape == (2, 0)


def test_scan_refuses():
    x = np.zeros((2, 3))
    with pytest.raises(KernelError, match=r"\[2, 3\] elements"):
        call("Scan", x, x.T, num_scan_inputs=2, body=cumulative, n_out=1)
    with pytest.raises(KernelError, match="scan_input_axes holds 2"):
        call("Scan", x, num_scan_inputs=1, body=cumulative, scan_input_axes=(0, 1), n_out=1)
    with pytest.raises(KernelError, match="out of range"):
        call("Scan", x, num_scan_inputs=1, body=cumulative, scan_input_axes=(2,), n_out=1)
    with pytest.raises(Exhausted):
        call("Scan", x, num_scan_inputs=1, body=lambda e: (e,), n_out=1, budget=Budget(1))
