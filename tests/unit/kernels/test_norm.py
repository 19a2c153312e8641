"""Normalization and softmax against plain Python, and at the edges."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from irkit.backends.numpy.registry import KernelError

BF16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def standard(values, epsilon):
    """Values less their mean, over their standard deviation; with mean and inverse deviation."""
    values = [float(v) for v in np.ravel(values)]
    mean = sum(values) / len(values)
    inverse = 1 / math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) + epsilon)
    return np.array([(v - mean) * inverse for v in values]), mean, inverse


def test_batch_normalization_in_inference(op):
    x, scale, bias, mean, var = floats(2, 3, 4), floats(3), floats(3), floats(3), np.abs(floats(3))
    expected = [
        [[(v - mean[c]) / math.sqrt(var[c] + 0.01) * scale[c] + bias[c] for v in x[n, c]] for c in range(3)]
        for n in range(2)
    ]
    got = op("BatchNormalization", x, scale, bias, mean, var, epsilon=0.01)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_batch_normalization_in_training(op):
    x, scale, bias, mean, var = floats(2, 3, 4), floats(3), floats(3), floats(3), np.abs(floats(3))
    y, new_mean, new_var = op(
        "BatchNormalization", x, scale, bias, mean, var, n_out=3, training_mode=1, momentum=0.75, epsilon=0.5
    )
    for c in range(3):
        expected, m, inverse = standard(x[:, c], 0.5)
        np.testing.assert_allclose(np.ravel(y[:, c]), expected * scale[c] + bias[c], rtol=1e-4, atol=1e-5)
        assert new_mean[c] == pytest.approx(mean[c] * 0.75 + m * 0.25, rel=1e-4)
        assert new_var[c] == pytest.approx(var[c] * 0.75 + (1 / inverse**2 - 0.5) * 0.25, rel=1e-4)


def test_batch_normalization_types_and_one_axis(op):
    x = np.full(4, 60000, np.float16)
    one = np.ones(1, np.float32)
    y, mean, _ = op("BatchNormalization", x, one, one, one, one, n_out=3, training_mode=1, momentum=0.0)
    assert (y.dtype, mean.dtype) == (np.float16, np.float32)
    assert y.tolist() == [1] * 4
    assert mean.tolist() == [60000]
    with pytest.raises(KernelError, match=r"scale must have shape \(3,\)"):
        op("BatchNormalization", floats(1, 3, 2), one, one, one, one)
    with pytest.raises(KernelError, match="training_mode=1"):
        op("BatchNormalization", floats(1, 1, 2), one, one, one, one, n_out=3)


def test_instance_and_group_normalization(op):
    x, scale, bias = floats(2, 4, 3), floats(4), floats(4)
    instance, group = (np.empty((2, 4, 3)) for _ in range(2))
    for n in range(2):
        for c in range(4):
            instance[n, c] = standard(x[n, c], 1e-5)[0] * scale[c] + bias[c]
        for g in range(2):
            part = slice(2 * g, 2 * g + 2)
            group[n, part] = standard(x[n, part], 1e-5)[0].reshape(2, 3)
        group[n] = group[n] * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(op("InstanceNormalization", x, scale, bias), instance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(op("GroupNormalization", x, scale, bias, num_groups=2), group, rtol=1e-4, atol=1e-5)
    with pytest.raises(KernelError, match="num_groups 3 must divide the 4 channels"):
        op("GroupNormalization", x, scale, bias, num_groups=3)


@pytest.mark.parametrize(("axis", "rows"), [(-1, 6), (1, 2), (0, 1), (-3, 1)])
def test_layer_and_rms_normalization(op, axis, rows):
    x = floats(2, 3, 4)
    scale, bias = floats(4), floats(3, 1)
    y, mean, inverse = op("LayerNormalization", x, scale, bias, n_out=3, axis=axis)
    parts = [standard(row, 1e-5) for row in x.reshape(rows, -1)]
    expected = np.concatenate([p[0] for p in parts]).reshape(x.shape) * scale + bias
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert mean.shape == inverse.shape == x.shape[: axis % 3] + (1,) * (3 - axis % 3)
    np.testing.assert_allclose(np.ravel(mean), [p[1] for p in parts], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.ravel(inverse), [p[2] for p in parts], rtol=1e-4)
    rms = np.concatenate([r / math.sqrt(sum(float(v) ** 2 for v in r) / r.size + 1e-5) for r in x.reshape(rows, -1)])
    np.testing.assert_allclose(op("RMSNormalization", x, scale, axis=axis), rms.reshape(x.shape) * scale, rtol=1e-4)


def test_layer_normalization_stashes_in_float32(op):
    x = np.array([[30000, 30002, 30004, 30006]], np.float16).repeat(2, axis=0)
    one = np.ones(4, np.float16)
    y, mean, _ = op("LayerNormalization", x, one, n_out=3)
    assert (y.dtype, mean.dtype) == (np.float16, np.float32)
    # In float16 neither the mean nor the squares would be finite or exact.
    np.testing.assert_allclose(y[0], standard(x[0].astype(float), 1e-5)[0], rtol=1e-3)
    _, mean, _ = op("LayerNormalization", x.astype(BF16), one.astype(BF16), n_out=3, stash_type=16)
    assert mean.dtype == BF16
    # By the spec stash_type=1 rounds double inputs to float32 first.
    near = np.array([[1.0, 1.0 + 1e-12]])
    assert op("LayerNormalization", near, np.ones(2)).tolist() == [[0, 0]]


@pytest.mark.parametrize("name", ["LayerNormalization", "RMSNormalization"])
def test_layer_normalization_refuses(op, name):
    with pytest.raises(KernelError, match="axis 2 is out"):
        op(name, floats(2, 3), floats(3), axis=2)
    with pytest.raises(KernelError, match="stash_type 7"):
        op(name, floats(2, 3), floats(3), stash_type=7)
    with pytest.raises(KernelError, match="must broadcast"):
        op(name, floats(2, 3), floats(2, 2, 3))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_lrn(op, size):
    x = floats(1, 5, 2)
    expected = np.empty_like(x)
    for c in range(5):
        low, high = max(0, c - (size - 1) // 2), min(4, c + math.ceil((size - 1) / 2))
        squares = np.square(x[0, low : high + 1]).sum(axis=0)
        expected[0, c] = x[0, c] / (2 + 0.5 / size * squares) ** 0.6
    np.testing.assert_allclose(op("LRN", x, size=size, alpha=0.5, beta=0.6, bias=2.0), expected, rtol=1e-5)


def test_lp_normalization(op):
    x = np.array([[3, -4], [0, 0]], np.float32)
    np.testing.assert_allclose(op("LpNormalization", x), [[0.6, -0.8], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(op("LpNormalization", x, p=1, axis=0), [[1, -1], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(op("LpNormalization", np.array([NAN, 1], np.float32)), [NAN, NAN])
    with pytest.raises(KernelError, match="p 3"):
        op("LpNormalization", x, p=3)


def test_mean_variance_normalization(op):
    x = floats(2, 2, 3, 2)
    got = op("MeanVarianceNormalization", x, axes=(0, 2, 3))
    for c in range(2):
        np.testing.assert_allclose(np.ravel(got[:, c]), standard(x[:, c], 0)[0], rtol=1e-4, atol=1e-5)
    assert op("MeanVarianceNormalization", np.full((2, 2), 7, np.float32), axes=(-1,)).tolist() == [[0, 0]] * 2
    with pytest.raises(KernelError, match="axis 2 is out"):
        op("MeanVarianceNormalization", floats(2, 2), axes=(2,))


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_softmax_family(op, axis):
    x = floats(2, 3, 4) * np.float32(30)
    soft, logs, hard = (op(name, x, axis=axis) for name in ("Softmax", "LogSoftmax", "Hardmax"))
    moved = [np.moveaxis(v, axis, -1).reshape(-1, x.shape[axis]) for v in (x, soft, logs, hard)]
    for row, s, log, h in zip(*moved, strict=True):
        values = [float(v) for v in row]
        top = max(values)
        total = sum(math.exp(v - top) for v in values)
        np.testing.assert_allclose(s, [math.exp(v - top) / total for v in values], rtol=1e-5, atol=1e-30)
        np.testing.assert_allclose(log, [v - top - math.log(total) for v in values], rtol=1e-5, atol=1e-5)
        assert h.tolist() == [float(i == values.index(top)) for i in range(len(values))]


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64])
def test_softmax_at_the_edges(op, dtype):
    x = np.array([[1e4, 1e4, -INF], [-INF, -INF, -INF], [INF, 0, 0], [NAN, 0, 0]]).astype(dtype)
    soft = op("Softmax", x)
    assert soft.dtype == dtype
    np.testing.assert_array_equal(soft[0].astype(float), [0.5, 0.5, 0])
    assert np.isnan(soft[1].astype(float)).all()
    assert np.isnan(soft[3].astype(float)).all()
    assert op("Hardmax", x).astype(float).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(op("LogSoftmax", x)[0, 2].astype(float), -INF)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_of_nothing(op, name):
    assert op(name, np.zeros((2, 0), np.float32)).shape == (2, 0)
    assert op(name, np.zeros((0, 3), np.float32)).shape == (0, 3)
    with pytest.raises(KernelError, match="axis"):
        op(name, np.float32(1).reshape(()))
    with pytest.raises(KernelError, match="axis 2"):
        op(name, floats(2, 3), axis=2)


@pytest.mark.parametrize(
    ("name", "shape", "vectors"),
    [
        ("LayerNormalization", (2, 0), [(0,), (0,)]),
        ("RMSNormalization", (2, 0), [(0,)]),
        ("GroupNormalization", (2, 4, 0), [(4,), (4,)]),
        ("InstanceNormalization", (2, 3, 0), [(3,), (3,)]),
        ("MeanVarianceNormalization", (0, 3, 2, 2), []),
        ("BatchNormalization", (0, 3), [(3,)] * 4),
    ],
)
def test_norms_of_nothing_do_not_warn(op, name, shape, vectors):
    x, parameters = np.zeros(shape, np.float32), [np.ones(v, np.float32) for v in vectors]
    attributes = {"GroupNormalization": {"num_groups": 2}, "BatchNormalization": {"training_mode": 1}}.get(name, {})
    found = op(name, x, *parameters, n_out=3 if name == "BatchNormalization" else 1, **attributes)
    assert (found[0] if isinstance(found, tuple | list) else found).shape == shape
