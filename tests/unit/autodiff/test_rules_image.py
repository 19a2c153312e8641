"""Gradients of image and signal ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.autodiff.checks import check

RNG = np.random.default_rng(9)
Attributes = dict[str, Any]


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape)


TRANSFORMATIONS = (
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize".split()
)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_resize_by_scales(mode: str, transformation: str) -> None:
    roi = np.array([0.0, 0.0, 0.1, -0.2, 1.0, 1.0, 0.9, 1.3]) if transformation == "tf_crop_and_resize" else None
    attributes: Attributes = {"mode": mode, "coordinate_transformation_mode": transformation}
    scales = np.array([1, 1, 1.7, 0.6], np.float32)
    check(
        lambda b, x: b.Resize(x, roi, scales, extrapolation_value=2.5, **attributes),
        draw(1, 2, 4, 5),
        symbolic=mode == "linear",
    )


RESIZES: dict[str, tuple[list[int], Attributes]] = {
    "antialias": ([3, 9], {"mode": "linear", "antialias": 1}),
    "antialias-cubic": ([2, 3], {"mode": "cubic", "antialias": 1, "exclude_outside": 1}),
    "cubic": ([6, 4], {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
    "not-larger": ([7, 9], {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"}),
    "not-smaller": ([2, 9], {"mode": "cubic", "keep_aspect_ratio_policy": "not_smaller"}),
    "floor": ([7, 5], {"mode": "nearest", "nearest_mode": "floor"}),
    "ceil": ([3, 8], {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}),
    "one": ([1, 1], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", RESIZES)
def test_resize_to_sizes(name: str, symbolic: bool) -> None:
    sizes, attributes = RESIZES[name]
    check(lambda b, x: b.Resize(x, None, None, sizes, axes=[1, -1], **attributes), draw(2, 4, 2, 5), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(mode: str, padding: str, corners: int, symbolic: bool) -> None:
    # Points are kept off the middles and the places of elements, where the op is not smooth.
    size = (4, 5)
    cells = np.stack([RNG.integers(-2, n + 1, (2, 3, 2)) for n in reversed(size)], axis=-1)
    at = cells + RNG.uniform(0.1, 0.4, cells.shape)
    extent = np.array(size[::-1], np.float64)
    grid = 2 * at / (extent - 1) - 1 if corners else (2 * at + 1) / extent - 1
    check(
        lambda b, *v: b.GridSample(*v, mode=mode, padding_mode=padding, align_corners=corners),
        draw(2, 2, *size),
        grid,
        symbolic=symbolic,
        second=mode != "nearest",
    )


def test_grid_sample_of_a_volume() -> None:
    grid = RNG.uniform(-0.9, 0.9, (1, 2, 1, 2, 3))
    check(lambda b, *v: b.GridSample(*v), draw(1, 2, 3, 4, 3), grid)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 1, 2, 3, 4]])
@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid(size: list[int], corners: int, symbolic: bool) -> None:
    rank = len(size) - 2
    check(lambda b, t: b.AffineGrid(t, size, align_corners=corners), draw(2, rank, rank + 1), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", [None, [0, -1]])
def test_center_crop_pad(axes: list[int] | None, symbolic: bool) -> None:
    shape = [5, 3, 2] if axes is None else [1, 7]
    check(lambda b, x: b.CenterCropPad(x, shape, axes=axes), draw(2, 4, 5), symbolic=symbolic)


TRANSFORMS = {
    "real": (1, 0, 0),
    "complex": (2, 0, 0),
    "inverse": (2, 1, 0),
    "inverse-real": (1, 1, 0),
    "one-sided": (1, 0, 1),
    "one-sided-inverse": (2, 1, 1),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("length", [None, 5, 6, 8])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_dft(name: str, length: int | None, symbolic: bool) -> None:
    parts, inverse, onesided = TRANSFORMS[name]

    def build(b: Any, x: Any) -> Any:
        return b.DFT(x, length, np.int64(1), inverse=inverse, onesided=onesided)

    check(build, draw(2, 6, 2, parts), symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft(windowed: bool, onesided: int, symbolic: bool) -> None:
    window = [draw(4)] if windowed else []
    check(
        lambda b, x, *w: b.STFT(x, np.int64(3), w[0] if w else None, None if w else np.int64(4), onesided=onesided),
        draw(2, 11, 1),
        *window,
        symbolic=symbolic,
    )
