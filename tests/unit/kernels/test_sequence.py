"""Sequences and optionals, which the kernels take and give as lists and as the value or None."""

from __future__ import annotations

import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError, find_kernel


class Steps:
    """A budget that counts steps."""

    def __init__(self):
        self.taken = 0

    def step(self):
        self.taken += 1


def call(name, *inputs, **keywords):
    return find_kernel("", name).function(*inputs, **keywords)


def values(sequence):
    assert type(sequence) is list
    return [tensor.tolist() for tensor in sequence]


A, B, C = np.array([1]), np.array([2, 2]), np.array([3])


def test_construct_and_ask():
    assert values(call("SequenceConstruct", A, B)) == [[1], [2, 2]]
    assert call("SequenceEmpty", dtype=7) == []
    length = call("SequenceLength", [A, B])
    assert (length.shape, length.dtype, int(length)) == ((), np.int64, 2)
    with pytest.raises(KernelError, match="float32"):
        call("SequenceConstruct", A, np.zeros(1, np.float32))


def test_at_insert_erase():
    sequence = [A, B]
    assert call("SequenceAt", sequence, np.array(-2, np.int32)) is A
    assert values(call("SequenceInsert", sequence, C)) == [[1], [2, 2], [3]]
    assert values(call("SequenceInsert", sequence, C, np.array(-1))) == [[1], [3], [2, 2]]
    assert values(call("SequenceInsert", sequence, C, np.array(2))) == [[1], [2, 2], [3]]
    assert values(call("SequenceInsert", [], C, np.array(0))) == [[3]]
    assert values(call("SequenceErase", sequence)) == [[1]]
    assert values(call("SequenceErase", sequence, np.array(-2))) == [[2, 2]]
    assert values(sequence) == [[1], [2, 2]]
    for name, inputs in [
        ("SequenceAt", (np.array(2),)),
        ("SequenceInsert", (C, np.array(3))),
        ("SequenceErase", (np.array(-3),)),
    ]:
        with pytest.raises(KernelError, match="out of range"):
            call(name, sequence, *inputs)
    with pytest.raises(KernelError, match="empty"):
        call("SequenceErase", [])


def test_split_to_sequence():
    x = np.arange(5)
    assert values(call("SplitToSequence", x, np.array(2))) == [[0, 1], [2, 3], [4]]
    assert values(call("SplitToSequence", x, np.array([1, 0, 4]), keepdims=0)) == [[0], [], [1, 2, 3, 4]]
    assert values(call("SplitToSequence", x[:2])) == [[0], [1]]
    assert values(call("SplitToSequence", x[:2].reshape(1, 2), axis=-1, keepdims=0)) == [[0], [1]]
    assert call("SplitToSequence", x[:0], np.array(2)) == []
    for split in (np.array(0), np.array([2, 2]), np.array([6, -1])):
        with pytest.raises(KernelError, match="split"):
            call("SplitToSequence", x, split)


def test_concat_from_sequence():
    assert call("ConcatFromSequence", [A, B], axis=-1).tolist() == [1, 2, 2]
    assert call("ConcatFromSequence", [A, C], axis=-1, new_axis=1).tolist() == [[1, 3]]
    assert call("ConcatFromSequence", [np.array(1), np.array(2)], axis=0, new_axis=1).tolist() == [1, 2]
    with pytest.raises(KernelError, match="stacked"):
        call("ConcatFromSequence", [A, B], axis=0, new_axis=1)
    with pytest.raises(KernelError, match="empty"):
        call("ConcatFromSequence", [], axis=0)


def test_sequence_map():
    budget = Steps()
    sums, same = call(
        "SequenceMap", [A, C], [B, A], np.array(10), body=lambda x, y, z: (x + y + z, x), n_out=2, budget=budget
    )
    assert values(sums) == [[13, 13], [14]]
    assert values(same) == [[1], [3]]
    assert budget.taken == 2
    assert call("SequenceMap", [], body=lambda x: (x, x), n_out=2, budget=budget) == ([], [])
    with pytest.raises(KernelError, match="input 1 has 1 tensors"):
        call("SequenceMap", [A, C], [B], body=lambda x, y: (x,), n_out=1, budget=budget)
    with pytest.raises(KernelError, match="gave 1 values"):
        call("SequenceMap", [A], body=lambda x: (x,), n_out=2, budget=budget)


def test_optional():
    assert call("Optional", A) is A
    assert call("Optional", type=object()) is None
    assert call("OptionalGetElement", [A]) == [A]
    for value, expected in [(A, True), ([], True), (None, False)]:
        has = call("OptionalHasElement", value)
        assert (type(has), has.dtype, has.shape, bool(has)) == (np.ndarray, np.bool_, (), expected)
    assert not call("OptionalHasElement")
    with pytest.raises(KernelError, match="no element"):
        call("OptionalGetElement", None)
