"""Images: Resize through its versions, Upsample, the modes of GridSample and RoiAlign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from irkit.dialects.onnx.classes import OnnxOp
from irkit.dialects.onnx.values import constant_of
from irkit.ir.attributes import string
from irkit.ir.builder import Builder, Tensor
from irkit.opsets.common import array_of, attribute, carried, dynamic_rank, impossible, rank_of
from irkit.opsets.registry import CHOICES, Results, decompose, lower, upgrade

# Resize: version 10 was asymmetric and rounded down; 11 had empty tensors for what is absent from 13 on.

_NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_V10 = {"mode", "coordinate_transformation_mode", "nearest_mode"}
_V11 = _V10 | {"cubic_coeff_a", "exclude_outside", "extrapolation_value"}


@upgrade("Resize", 10)
def resize_asymmetric(b: Builder, op: OnnxOp) -> Results | None:
    return b.Resize(op.operands[0], None, op.operands[1], **carried(op, **_NEAREST))


@upgrade("Resize", 11)
def resize_absent_scales(b: Builder, op: OnnxOp) -> Results | None:
    if op.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        return None
    return _resize(b, op)


def _resize(b: Builder, op: OnnxOp, **changed: Any) -> Results | None:
    x, roi, scales, sizes = (op.operand(i) for i in range(4))
    if sizes is not None and scales is not None:
        held = array_of(scales)
        if held is None or held.size:
            return None
        scales = None
    return b.Resize(x, roi, scales, sizes, **carried(op, **changed))


@decompose("Resize", 11)
def resize_tf_half_pixel(b: Builder, op: OnnxOp) -> Results | None:
    if op.attr("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return _resize(b, op)
    if op.attr("mode") != "nearest":
        return None
    # (x + 0.5) / scale is half a pixel more than half_pixel's coordinate, rounded as nearest_mode says.
    return _shifted(b, op)


def _shifted(b: Builder, op: OnnxOp) -> Results | None:
    """Nearest neighbours at ``(i + 0.5) / scale``, gathered axis by axis."""
    x, scales, sizes = op.operands[0], op.operand(2), op.operand(3)
    rank = rank_of(x)
    held = array_of(scales)
    if rank is None:
        return None
    shape = b.Cast(b.Shape(x), to=1)
    if sizes is not None and (held is None or held.size == 0):
        target: Tensor = b.Cast(sizes, to=7)
        factors: Any = b.Div(b.Cast(sizes, to=1), shape)
    elif scales is not None:
        factors = scales
        target = b.Cast(b.Floor(b.Mul(shape, scales)), to=7)
    else:
        return None
    half = b.constant(np.float32(0.5))
    made: Any = x
    for axis in range(rank):
        at = b.constant(np.array(axis, np.int64))
        count = b.Gather(target, at)
        steps = b.Cast(b.Range(_int(b, 0), count, _int(b, 1)), to=1)
        factor = b.Gather(factors, at)
        # An axis of scale 1 is not resized.
        place = b.Where(b.Equal(factor, 1.0), steps, b.Div(b.Add(steps, half), factor))
        last = b.Sub(b.Cast(b.Gather(b.Shape(x), at), to=7), _int(b, 1))
        index = b.Cast(_rounded(b, place, str(op.attr("nearest_mode"))), to=7)
        made = b.Gather(made, b.Min(b.Max(index, _int(b, 0)), last), axis=axis)
    return made


def _rounded(b: Builder, place: Tensor, mode: str) -> Tensor:
    half = b.constant(np.float32(0.5))
    match mode:
        case "floor":
            return b.Floor(place)
        case "ceil":
            return b.Ceil(place)
        case "round_prefer_ceil":
            return b.Floor(b.Add(place, half))
        case _:
            return b.Ceil(b.Sub(place, half))


def _int(b: Builder, value: int) -> Tensor:
    return b.constant(np.array(value, np.int64))


@lower("Resize", 10)
def resize_plain(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    _check(op, _V10)
    x, scales = op.operands[0], op.operand(2)
    mode = attribute(op, "mode")
    if mode == "cubic":
        raise impossible(op, "the older form knows no mode='cubic'")
    wanted = dict(_NEAREST) if mode == "nearest" else {"coordinate_transformation_mode": "asymmetric"}
    for name, value in wanted.items():
        if attribute(op, name) != value:
            raise impossible(op, f"the older form means {name}='{value}', and it has '{op.attr(name)}'")
    if scales is None:
        raise impossible(op, "the older form takes scales, not sizes")
    return b.op(to, x, scales, **carried(op, *wanted, "nearest_mode"))


@lower("Resize", 11)
def resize_with_empty(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    _check(op, _V11)
    x, roi, scales, sizes = _on_all_axes(b, op)
    if roi is None:
        roi = _empty(b, op)
    if scales is None:
        scales = _empty(b, op)
    return b.op(to, x, roi, scales, sizes, **carried(op, "axes", "antialias", "keep_aspect_ratio_policy"))


@lower("Resize", 13)
def resize_on_all_axes(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    _check(op, _V11)
    return b.op(to, *_on_all_axes(b, op), **carried(op, "axes", "antialias", "keep_aspect_ratio_policy"))


def _check(op: OnnxOp, known: set[str]) -> None:
    """Raises LoweringError where an attribute that the older form lacks says something."""
    for name in op.properties:
        if name not in known and name != "axes" and attribute(op, name) != op.spec.attributes[name].default:
            raise impossible(op, f"the older form knows no {name}={op.attr(name)!r}")
    mode = attribute(op, "coordinate_transformation_mode")
    if mode in CHOICES["Resize", "coordinate_transformation_mode"]:
        raise impossible(op, f"the older form knows no coordinate_transformation_mode='{mode}'")
    if "axes" in op.properties and known is _V10:
        raise impossible(op, "the older form resizes all axes, and it names some")


def _on_all_axes(b: Builder, op: OnnxOp) -> list[SSAValue | Tensor | None]:
    x, roi, scales, sizes = (op.operand(i) for i in range(4))
    axes = attribute(op, "axes")
    if axes is None:
        return [x, roi, scales, sizes]
    if roi is not None and op.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise impossible(op, "the older form takes a region of all axes, and it names some")
    rank = rank_of(x)
    if rank is None and min(axes) < 0:
        raise impossible(op, "its axes count from the end, and the rank is not known")
    places = b.constant(np.array([a + (rank or 0) if a < 0 else a for a in axes], np.int64))
    one = b.constant(np.ones(1, np.float32).reshape(1))
    if scales is not None:
        ones = b.Expand(one, dynamic_rank(b, op.operands[0]))
        return [x, None, b.ScatterElements(ones, places, scales, axis=0), None]
    return [x, None, None, b.ScatterElements(b.Shape(x), places, sizes, axis=0)]


def _empty(b: Builder, op: OnnxOp) -> SSAValue:
    """An empty float32 tensor: one that the graph has, else a new one."""
    for earlier in _before(op):
        for result in earlier.results:
            held = constant_of(result)
            if held is not None and held.shape == (0,) and held.dtype.name == "float32":
                return result
    return b.constant(np.zeros(0, np.float32)).ssa


def _before(op: OnnxOp) -> Iterator[Operation]:
    """The ops in front of this one in its block, first ones first."""
    block = op.parent
    for earlier in () if block is None else block.ops:
        if earlier is op:
            return
        yield earlier


# Upsample: what Resize does, asymmetric and rounding down.


@decompose("Upsample", 1)
def upsample_by_side(b: Builder, op: OnnxOp) -> Results:
    scales = np.array([1, 1, op.attr("height_scale"), op.attr("width_scale")], np.float32)
    return _upsampled(b, op, b.constant(scales))


@decompose("Upsample", 7)
def upsample_by_attribute(b: Builder, op: OnnxOp) -> Results:
    return _upsampled(b, op, b.constant(np.array(op.attr("scales"), np.float32)))


@decompose("Upsample", 9, 10)
def upsample_by_operand(b: Builder, op: OnnxOp) -> Results:
    return _upsampled(b, op, op.operands[1])


def _upsampled(b: Builder, op: OnnxOp, scales: Any) -> Results:
    mode = "linear" if op.attr("mode") in ("linear", "bilinear") else op.attr("mode")
    return b.Resize(op.operands[0], None, scales, mode=mode, **_NEAREST)


# GridSample: bilinear and bicubic are called linear and cubic from 20 on, and any rank is taken.

_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


@upgrade("GridSample", 16)
def grid_sample_modes(b: Builder, op: OnnxOp) -> Results | None:
    mode = _GRID_MODES.get(op.attr("mode"))
    if mode is None or rank_of(op.operands[0]) != 4:
        return None
    written = {"mode": string(mode)} if "mode" in op.properties else {}
    return b.GridSample(*op.operands, **carried(op, **written))


@decompose("GridSample", 16)
def grid_sample(b: Builder, op: OnnxOp) -> Results:
    return b.GridSample(*op.operands, **carried(op, mode=_GRID_MODES.get(op.attr("mode"), op.attr("mode"))))


@lower("GridSample", 16)
def grid_sample_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    if rank_of(op.operands[0]) != 4:
        raise impossible(op, "the older form takes images of rank 4 alone")
    names = {new: old for old, new in _GRID_MODES.items()}
    written = {"mode": string(names[attribute(op, "mode")])} if "mode" in op.properties else {}
    return b.op(to, *op.operands, **carried(op, **written))
