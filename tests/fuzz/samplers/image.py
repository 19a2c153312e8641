"""Resampling and regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..graph import Value
from ..registry import F32, I64, largest, samples, scale

# Weighted sums, in which weights of either sign may cancel.
scale("Resize GridSample RoiAlign", largest)


@samples("Resize")
def resize(g: Context, spec: OpSpec) -> Call:
    mode = g.pick(("nearest", "linear", "cubic"))
    x = g.take(
        [d for d in allowed(spec, 0) if d.kind not in ("string", "complex", "bool")], 4, 4, least=1, span=(-99, 99)
    )
    rank = x.array.ndim
    axes = list(range(rank)) if g.below(2) else [2, 3]
    moved = [2, 3] if mode == "cubic" or g.below(4) else [1, 2, 3]
    attributes: dict[str, Any] = {"mode": mode} | ({"axes": axes} if len(axes) < rank else {})
    transform = g.pick(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
    attributes["coordinate_transformation_mode"] = transform
    if mode == "nearest":
        attributes |= g.maybe(nearest_mode=["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if mode == "cubic":
        attributes |= g.maybe(cubic_coeff_a=[-0.5], exclude_outside=1)
    if mode != "nearest" and g.chance(4):
        attributes["antialias"] = 1
    if g.below(2):
        scales = [g.pick((2.0, 0.5, 1.0, 1.5, 3.0)) if a in moved else 1.0 for a in axes]
        operands: list[Any] = [x, None, np.array(scales, np.float32)]
    else:
        sizes = [g.between(1, 6) if a in moved else x.shape[a] for a in axes]
        operands = [x, None, None, g.given(sizes)]
        if len(axes) < rank:
            attributes |= g.maybe(keep_aspect_ratio_policy=["not_larger", "not_smaller"])
    return Call(operands, attributes, perturb=(0,), exact=mode == "nearest")


@samples("GridSample")
def grid_sample(g: Context, spec: OpSpec) -> Call:
    x = g.take([d for d in allowed(spec, 0) if d.is_float], 4, 5, least=1, span=(-9, 9))
    spatial = x.array.ndim - 2
    grid = g.make(
        x.dtype if g.below(4) else F32[0], (x.shape[0], *g.dims(spatial, spatial, 1, 3), spatial), (-1.3, 1.3)
    )
    modes = ("linear", "nearest", "cubic") if spatial == 2 else ("linear", "nearest")
    return Call(
        [x, grid], {"mode": g.pick(modes)} | g.maybe(padding_mode=["border", "reflection", "zeros"], align_corners=1)
    )


@samples("AffineGrid")
def affine_grid(g: Context, spec: OpSpec) -> Call:
    spatial, batch = g.pick((2, 3)), g.between(1, 2)
    theta = g.take(
        allowed(spec, 0),
        3,
        3,
        span=(-3, 3),
        fits=lambda v: v.shape == (batch, spatial, spatial + 1),
        shape=lambda: (batch, spatial, spatial + 1),
    )
    return Call([theta, g.given([batch, 1, *(g.between(1, 4) for _ in range(spatial))])], g.maybe(align_corners=1))


def _boxes(g: Context, count: int, size: float, columns: int) -> np.ndarray:
    rng = g.rng()
    corner = rng.uniform(0, size * 0.6, (count, 2))
    extent = rng.uniform(0.1, size * 0.6, (count, 2))
    return np.concatenate([corner, corner + extent], 1)[:, :columns]


@samples("RoiAlign")
def roi_align(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 4, 4, least=2, span=(-9, 9))
    count = g.between(1, 3)
    rois = Value.of(_boxes(g, count, 6, 4).astype(x.array.dtype), "input")
    batch = g.make(I64[0], (count,), (0, x.shape[0] - 1))
    attributes = g.maybe(
        coordinate_transformation_mode=["output_half_pixel", "half_pixel"],
        mode=["max", "avg"],
        output_height=2,
        output_width=3,
        sampling_ratio=[2, 1],
        spatial_scale=[0.5, 1.5],
    )
    return Call([x, rois, batch], attributes)


@samples("MaxRoiPool")
def max_roi_pool(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 4, 4, least=2)
    count = g.between(1, 3)
    # Half pixels round differently; stay off them.
    boxes = np.floor(_boxes(g, count, 5, 4)) + 0.25
    batch = g.rng().integers(0, x.shape[0], (count, 1))
    rois = Value.of(np.concatenate([batch, boxes], 1).astype(x.array.dtype), "input")
    return Call(
        [x, rois], {"pooled_shape": [g.between(1, 3), g.between(1, 2)]} | g.maybe(spatial_scale=[0.5]), perturb=(0,)
    )


@samples("NonMaxSuppression")
def non_max_suppression(g: Context, spec: OpSpec) -> Call:
    batches, classes, count = g.between(1, 2), g.between(1, 2), g.between(1, 5)
    boxes = _boxes(g, batches * count, 4, 4).reshape(batches, count, 4).astype(np.float32)
    rng = g.rng()
    # No two scores alike: their order would be open.
    scores = (rng.permutation(batches * classes * count).reshape(batches, classes, count) / 20 + 0.05).astype(
        np.float32
    )
    operands = [Value.of(boxes, "input"), Value.of(scores, "input"), g.given(np.array(g.between(1, 4)))]
    if g.below(3):
        operands.append(g.make(F32[0], (), (0.1, 0.9)))
        if g.below(2):
            operands.append(g.make(F32[0], (), (0.1, 0.5)))
    return Call(operands, g.maybe(center_point_box=1), perturb=(0, 1))
