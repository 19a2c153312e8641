"""Matrix products and friends against plain Python sums."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.float16, BF16, np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64]


def product(a, b):
    """The matrix product of nested lists."""
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


A = [[1, 2, 3], [4, 5, 6]]
B = [[1, 0], [2, 1], [0, 3]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul(op, dtype):
    a, b = np.array(A, dtype), np.array(B, dtype)
    stack = np.stack([a, a + a])
    expected = np.array(product(A, B))
    for result, values in (
        (op("MatMul", a, b), expected),
        (op("MatMul", stack, b), [expected, 2 * expected]),
        (op("MatMul", stack, np.stack([b, b])), [expected, 2 * expected]),
        (op("MatMul", a, np.stack([b, b])), [expected, expected]),
        (op("MatMul", a[0], b[:, 1]), 11),
        (op("MatMul", stack, b[:, 1]), [expected[:, 1], 2 * expected[:, 1]]),
    ):
        assert result.dtype == dtype
        assert result.shape == np.shape(values)
        np.testing.assert_array_equal(result.astype(float), values)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 0), (0, 3), (2, 3)),
        ((0, 2), (2, 3), (0, 3)),
        ((2, 3, 0), (0, 4), (2, 3, 4)),
        ((0, 2, 3), (3, 0), (0, 2, 0)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int64])
def test_matmul_of_empty_matrices(op, a, b, expected, dtype):
    result = op("MatMul", np.ones(a, dtype), np.ones(b, dtype))
    assert result.shape == expected
    assert result.dtype == dtype
    assert not result.astype(float).any()


def test_matmul_of_large_integers_is_exact(op):
    a = np.array([[2**62, 3], [2**53 + 1, 1]])
    assert op("MatMul", a, np.array([[1], [1]])).tolist() == [[2**62 + 3], [2**53 + 2]]
    assert op("MatMul", np.array([[2**31 - 1]], np.int32), np.array([[2]], np.int32)).tolist() == [[-2]]
    assert op("MatMul", np.array([[2**64 - 1]], np.uint64), np.array([[2]], np.uint64)).tolist() == [[2**64 - 2]]


def test_matmul_narrow_floats_accumulate_in_float32(op):
    ones = np.ones((1, 4096), np.float16)
    assert op("MatMul", ones, ones.T).tolist() == [[4096]]
    ones = np.ones((1, 1000), BF16)
    assert op("MatMul", ones, ones.T).astype(float).tolist() == [[1000]]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (2, 3), "inner dimensions"),
        ((), (2, 3), "rank 0"),
        ((2, 2, 3), (4, 3, 2), "broadcast"),
        ((3,), (2,), "inner"),
    ],
)
def test_matmul_of_shapes_that_do_not_fit(op, a, b, message):
    with pytest.raises(KernelError, match=message):
        op("MatMul", np.ones(a, np.float32), np.ones(b, np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm(op, dtype, trans_a, trans_b):
    a, b = np.array(A, dtype), np.array(B, dtype)
    left, right = (a.T.copy() if trans_a else a), (b.T.copy() if trans_b else b)
    plain = np.array(product(A, B))
    for c, extra in ((None, 0), (np.array(3, dtype), 6), (np.array([[1], [2]], dtype), [[2, 2], [4, 4]])):
        result = op("Gemm", left, right, c, alpha=3.0, beta=2.0, transA=trans_a, transB=trans_b)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.astype(float), 3 * plain + extra)


def test_gemm_edges(op):
    assert op(
        "Gemm", np.ones((2, 0), np.float32), np.ones((0, 2), np.float32), np.array([1, 2], np.float32)
    ).tolist() == [
        [1, 2],
        [1, 2],
    ]
    assert op("Gemm", np.array([[3]], np.int32), np.array([[1]], np.int32), alpha=0.5).tolist() == [[1]]
    nan = op("Gemm", np.ones((1, 1)), np.ones((1, 1)), np.array(math.nan), beta=0.0)
    assert math.isnan(nan.item())
    with pytest.raises(KernelError, match="must be matrices"):
        op("Gemm", np.ones(2), np.ones((2, 2)))
    with pytest.raises(KernelError, match="must broadcast"):
        op("Gemm", np.ones((1, 2)), np.ones((2, 2)), np.ones((3, 2)))
    with pytest.raises(KernelError, match="inner dimensions"):
        op("Gemm", np.ones((2, 3)), np.ones((2, 2)))


def test_einsum(op):
    a, b = np.array(A, np.float32), np.array(B, np.float32)
    assert op("Einsum", a, b, equation="ij, jk -> ki").tolist() == np.array(product(A, B)).T.tolist()
    assert op("Einsum", a, equation="ij->").tolist() == 21
    # Implicit output: the letters that occur once, capitals first.
    assert op("Einsum", a, equation="bA").tolist() == a.T.tolist()
    square = np.array([[1, 2], [3, 4]], np.int8)
    assert op("Einsum", square, equation="ii").tolist() == 5
    assert op("Einsum", np.stack([square, square]), equation="...ii->...i").tolist() == [[1, 4], [1, 4]]
    for dtype in (np.float16, BF16, np.uint8, np.int64):
        result = op("Einsum", np.ones((2, 3), dtype), np.ones((3,), dtype), equation="ij,j->i")
        assert result.dtype == dtype
        assert result.astype(float).tolist() == [3, 3]
    assert op("Einsum", np.ones(4096, np.float16), equation="i->").tolist() == 4096
    assert op("Einsum", np.ones((0, 2), np.float32), equation="ij->j").tolist() == [0, 0]


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->ik", "i->i", "ij->jj", "i+j", "ij,ij->ij"])
def test_einsum_refuses(op, equation):
    with pytest.raises(KernelError, match="does not fit"):
        op("Einsum", np.ones((2, 3), np.float32), equation=equation)


def test_det(op):
    for dtype in (np.float16, BF16, np.float32, np.float64):
        result = op("Det", np.array([[[2, 1], [1, 3]], [[1, 2], [2, 4]]], dtype))
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(float), [5, 0], atol=1e-6)
    assert op("Det", np.array([[7.0]])).shape == ()
    assert op("Det", np.zeros((0, 0), np.float32)).item() == 1
    assert op("Det", np.zeros((0, 2, 2), np.float32)).shape == (0,)
    with pytest.raises(KernelError, match="must be equal"):
        op("Det", np.ones((2, 3), np.float32))


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 2), (0, 3), (2, 0)])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 10, -10, 2**62, -(2**62)])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(op, rows, columns, k, upper):
    x = np.arange(1, 2 * rows * columns + 1).reshape(2, rows, columns)
    diagonal = k or 0
    expected = [
        [
            [int(v) if (j - i >= diagonal if upper else j - i <= diagonal) else 0 for j, v in enumerate(row)]
            for i, row in enumerate(m)
        ]
        for m in x
    ]
    result = op("Trilu", x, None if k is None else np.array(k), upper=upper)
    assert result.tolist() == expected


def test_trilu_types(op):
    words = op("Trilu", np.array([["a", "b"], ["c", "d"]], object), upper=1)
    assert words.tolist() == [["a", "b"], ["", "d"]]
    for dtype in (bool, BF16, np.complex64):
        assert op("Trilu", np.ones((2, 2), dtype), np.array([1])).dtype == dtype
    with pytest.raises(KernelError, match="rank 2"):
        op("Trilu", np.ones(2))


def test_matmul_integer(op):
    a, b = np.array([[1, 255], [0, 128]], np.uint8), np.array([[-128, 127], [1, 0]], np.int8)

    def expected(a_zero, b_zero):
        left = [[int(v) - a_zero[i] for v in row] for i, row in enumerate(a)]
        right = [[int(v) - b_zero[j] for j, v in enumerate(row)] for row in b]
        return product(left, right)

    assert op("MatMulInteger", a, b).tolist() == expected((0, 0), (0, 0))
    assert op("MatMulInteger", a, b, np.array(3, np.uint8), np.array([-1], np.int8)).tolist() == expected(
        (3, 3), (-1, -1)
    )
    result = op("MatMulInteger", a, b, np.array([3, 4], np.uint8), np.array([1, -2], np.int8))
    assert result.dtype == np.int32
    assert result.tolist() == expected((3, 4), (1, -2))
    assert op("MatMulInteger", a, b, np.array([[3], [4]], np.uint8)).tolist() == expected((3, 4), (0, 0))
    with pytest.raises(KernelError, match="per row"):
        op("MatMulInteger", a, b, np.array([1, 2, 3], np.uint8))
    with pytest.raises(KernelError, match="per column"):
        op("MatMulInteger", a, b, None, np.array([1, 2, 3], np.int8))


def test_qlinear_matmul(op):
    a, b = np.array([[208, 236], [3, 2]], np.uint8), np.array([[152, 51], [60, 26]], np.uint8)
    a_scale, b_scale, y_scale = 0.0066, 0.00705, 0.0107
    zero = (113, 114, 118)
    real = product(
        [[(int(v) - 113) * a_scale for v in row] for row in a], [[(int(v) - 114) * b_scale for v in row] for row in b]
    )
    expected = [[max(0, min(255, round(v / y_scale) + 118)) for v in row] for row in real]
    for dtype in (np.float32, np.float16, BF16):
        scales = [np.array(s, dtype) for s in (a_scale, b_scale, y_scale)]
        zeros = [np.array(z, np.uint8) for z in zero]
        result = op("QLinearMatMul", a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2])
        assert result.dtype == np.uint8
        assert np.abs(result.astype(int) - expected).max() <= (0 if dtype == np.float32 else 2)


def test_qlinear_matmul_per_row_and_column(op):
    one, none = np.array(1, np.float32), np.array(0, np.int8)
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[1, 0], [0, 1]], np.int8)
    rows, columns = np.array([1, 2], np.float32), np.array([1, 10], np.float32)
    zeros = np.zeros(2, np.int8)
    result = op("QLinearMatMul", a, rows, zeros, b, columns, zeros, one, none)
    assert result.tolist() == [[1, 20], [6, 80]]
    result = op("QLinearMatMul", a, rows, zeros, b[0], one, none, one, none)
    assert result.tolist() == [1, 6]
    f8 = ml_dtypes.float8_e4m3fn
    result = op(
        "QLinearMatMul", *(v.astype(f8) if v.dtype == np.int8 else v for v in (a, one, none, b, one, none, one, none))
    )
    assert result.dtype == f8
    assert result.astype(float).tolist() == [[1, 2], [3, 4]]


def test_qlinear_matmul_with_a_scale_per_row_of_the_result(op):
    one, none = np.array(1, np.float32), np.array(0, np.int8)
    a, b = np.array([[2, 4], [6, 8]], np.int8), np.array([[1, 0], [0, 1]], np.int8)
    result = op("QLinearMatMul", a, one, none, b, one, none, np.array([1, 2], np.float32), np.array([0, 1], np.int8))
    assert result.tolist() == [[2, 4], [4, 5]]
    with pytest.raises(KernelError, match="per row"):
        op("QLinearMatMul", a, one, none, b, one, none, np.ones(3, np.float32), np.zeros(3, np.int8))
