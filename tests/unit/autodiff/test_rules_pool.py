"""Gradients of pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.autodiff.checks import check
from tests.unit.autodiff.support import gradients

RNG = np.random.default_rng(6)
Attributes = dict[str, Any]


def draw(*shape: int) -> np.ndarray[Any, Any]:
    """Distinct values, none near another or near 0, so that no maximum is in doubt."""
    size = int(np.prod(shape))
    return ((RNG.permutation(size) + 1) / size * RNG.choice([-1, 1], size)).reshape(shape)


WINDOWS: dict[str, tuple[tuple[int, ...], Attributes]] = {
    "plain": ((2, 2, 6), {"kernel_shape": [2], "strides": [2]}),
    "overlapping": ((1, 2, 6, 5), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    "remainder": ((1, 2, 8), {"kernel_shape": [2], "strides": [3]}),
    "ceil": ((1, 2, 8, 7), {"kernel_shape": [3, 2], "strides": [3, 2], "ceil_mode": 1, "pads": [0, 1, 0, 0]}),
    "dilated": ((1, 1, 9), {"kernel_shape": [3], "strides": [2], "dilations": [2], "pads": [1, 2]}),
    "same-upper": ((1, 1, 7, 6), {"kernel_shape": [3, 4], "strides": [3, 2], "auto_pad": "SAME_UPPER"}),
    "same-lower": ((1, 1, 7, 6), {"kernel_shape": [3, 4], "strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    "cube": ((1, 1, 4, 4, 3), {"kernel_shape": [2, 2, 2], "strides": [2, 1, 1]}),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_average_pool(name: str, include: int, symbolic: bool) -> None:
    shape, attributes = WINDOWS[name]
    check(lambda b, x: b.AveragePool(x, **attributes, count_include_pad=include), draw(*shape), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool(name: str, symbolic: bool) -> None:
    shape, attributes = WINDOWS[name]
    check(lambda b, x: b.MaxPool(x, **attributes), draw(*shape), symbolic=symbolic)


def test_max_pool_of_column_major_indices() -> None:
    attributes = WINDOWS["overlapping"][1]
    check(lambda b, x: b.MaxPool(x, **attributes, storage_order=1, outputs=2)[0], draw(2, 2, 6, 5))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", ["overlapping", "ceil", "same-upper"])
def test_lp_pool(name: str, p: int, symbolic: bool) -> None:
    shape, attributes = WINDOWS[name]
    check(lambda b, x: b.LpPool(x, **attributes, p=p), draw(*shape), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(name: str, symbolic: bool) -> None:
    check(lambda b, x: b.op(name, x), draw(2, 3, 4, 5), symbolic=symbolic)


@pytest.mark.parametrize("p", [1, 3])
def test_global_lp_pool_of_other_norms(p: int) -> None:
    check(lambda b, x: b.GlobalLpPool(x, p=p), draw(2, 3, 5))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("output_shape", [None, [1, 2, 5, 6], [1, 2, 4, 3]])
def test_max_unpool(output_shape: list[int] | None, symbolic: bool) -> None:
    indices = np.stack([RNG.permutation(16)[:4] + 16 * c for c in range(2)]).reshape(1, 2, 2, 2)
    check(
        lambda b, x: b.MaxUnpool(x, indices, output_shape, kernel_shape=[2, 2], strides=[2, 2]),
        draw(1, 2, 2, 2),
        symbolic=symbolic,
    )


ROIS = np.array([[0.3, 0.4, 4.1, 3.3], [1.2, 0.7, 3.45, 4.85], [-2.0, -1.5, 9.3, 6.2]])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, ratio: int, transformation: str, symbolic: bool) -> None:
    attributes: Attributes = {
        "mode": mode,
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": ratio,
        "spatial_scale": 0.9,
        "coordinate_transformation_mode": transformation,
    }
    batch = np.array([1, 0, 1])
    check(lambda b, x, r: b.RoiAlign(x, r, batch, **attributes), draw(2, 2, 5, 6), ROIS, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
def test_max_roi_pool(symbolic: bool) -> None:
    rois = np.array([[1, 0, 0, 4, 3], [0, 1, 1, 3, 4], [0, 2, 5, 9, 9]], np.float64)
    check(
        lambda b, x, rois: b.MaxRoiPool(x, rois, pooled_shape=[2, 3], spatial_scale=0.75),
        draw(2, 2, 5, 6),
        rois,
        wrt=[0],
        symbolic=symbolic,
    )


def gradient(name: str, x: np.ndarray[Any, Any], **attributes: Any) -> np.ndarray[Any, Any]:
    return gradients(lambda b, v: b.op(name, v, **attributes), x)[0]


def test_the_first_of_equal_maxima_takes_all() -> None:
    x = np.array([[[[2.0, 2.0, 1.0], [2.0, 0.0, 2.0]]]])
    np.testing.assert_array_equal(gradient("MaxPool", x, kernel_shape=[2, 3]), [[[[1, 0, 0], [0, 0, 0]]]])
    np.testing.assert_array_equal(gradient("GlobalMaxPool", x), [[[[1, 0, 0], [0, 0, 0]]]])


def test_average_pool_counts_what_ceil_mode_leaves() -> None:
    found = gradient("AveragePool", np.ones((1, 1, 5)), kernel_shape=[2], strides=[2], ceil_mode=1)
    np.testing.assert_array_equal(found, [[[0.5, 0.5, 1.0, 1.0, 3.0]]])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_norm_of_zero_has_no_gradient(p: int) -> None:
    np.testing.assert_array_equal(gradient("LpPool", np.zeros((1, 1, 4)), kernel_shape=[2], p=p), np.zeros((1, 1, 4)))
    np.testing.assert_array_equal(gradient("GlobalLpPool", np.zeros((1, 1, 4)), p=p), np.zeros((1, 1, 4)))
