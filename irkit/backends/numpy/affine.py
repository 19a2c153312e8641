"""Scales and shifts per channel by constants: what is folded of BatchNormalization and its neighbours.

Parameters are folded in float64 and rounded once, so that a result differs from that of the single ops by roundings
of the dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from irkit.backends.numpy.plan import Step
from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.types import tensor_info

__all__ = ["Affine", "affine"]


@dataclass(frozen=True, slots=True)
class Affine:
    """``x * scale + shift`` along axis 1 of a tensor.

    Attributes:
        slot: of x.
        scale, shift: one value a channel, float64, of shape (C,).
        spatial: how many axes follow the channels.
        starts: whether others may be folded into it: it is a normalization. A chain of additions and products alone is
            left as it is, for an author may mean its roundings, as in adding a large number and taking it away again.
    """

    slot: int
    scale: np.ndarray
    shift: np.ndarray
    spatial: int
    starts: bool = False

    def then(self, other: Affine) -> Affine:
        """This and then the other one."""
        shift = self.shift * other.scale + other.shift
        return Affine(self.slot, self.scale * other.scale, shift, self.spatial, self.starts)

    def fits(self, element: np.dtype[Any]) -> bool:
        """Whether all its numbers are finite in a dtype."""
        return all(bool(np.isfinite(v.astype(element)).all()) for v in (self.scale, self.shift))

    def of_filters(self, w: np.ndarray, b: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
        """The filters and the bias of a convolution with this behind it; None where they do not fit or overflow."""
        if w.ndim < 3 or self.scale.shape != w.shape[:1] or (b is not None and b.shape != w.shape[:1]):
            return None
        shift = self.shift if b is None else b * self.scale + self.shift
        made = w * self.scale.reshape((-1,) + (1,) * (w.ndim - 1)), shift
        filters, bias = (v.astype(w.dtype) for v in made)
        return (filters, bias) if np.isfinite(filters).all() and np.isfinite(bias).all() else None


def affine(step: Step, held: Mapping[int, Any]) -> Affine | None:
    """A step on floats as a scale and a shift, or None.

    Args:
        held: the values of the plan that are known, by slot.
    """
    op = step.op
    if not isinstance(op, OnnxOp) or op.op_type not in ("BatchNormalization", "Mul", "Div", "Add", "Sub"):
        return None
    shape = _shape(op.results[0].type)
    if shape is None or len(shape) < 2:
        return None
    if op.op_type == "BatchNormalization":
        return _normalization(step, held, len(shape) - 2)
    for at in (0, 1):
        if step.inputs[1 - at] in held and _shape(op.operands[at].type) == shape:
            return _arithmetic(op.op_type, step.inputs[at], held[step.inputs[1 - at]], shape, swapped=at == 1)
    return None


def _shape(value_type: Any) -> Any:
    info = tensor_info(value_type)
    return None if info is None else info.shape


def _normalization(step: Step, held: Mapping[int, Any], spatial: int) -> Affine | None:
    """BatchNormalization at inference: ``(x - mean) / sqrt(var + epsilon) * scale + bias``."""
    if step.attributes.get("training_mode") or len(step.op.results) != 1:
        return None
    if any(slot not in held for slot in step.inputs[1:]):
        return None
    scale, bias, mean, variance = (held[slot].astype(np.float64) for slot in step.inputs[1:])
    if scale.ndim != 1 or not scale.shape == bias.shape == mean.shape == variance.shape:
        return None
    factor = scale / np.sqrt(variance + step.attributes["epsilon"])
    return Affine(step.inputs[0], factor, bias - mean * factor, spatial, starts=True)


def _arithmetic(name: str, slot: int, held: np.ndarray, shape: Any, swapped: bool) -> Affine | None:
    """Mul, Div, Add or Sub of x and a constant, which stands first where ``swapped``."""
    channels, spatial = shape[1], len(shape) - 2
    if not isinstance(channels, int) or held.ndim > len(shape) or (name == "Div" and swapped):
        return None
    full = (1,) * (len(shape) - held.ndim) + held.shape
    # A shift by one number is not taken: the same everywhere, it may be there to round.
    extents = (channels, 1) if name in ("Mul", "Div") else (channels,)
    if full[0] != 1 or full[2:] != (1,) * spatial or full[1] not in extents:
        return None
    values = np.broadcast_to(held.reshape(-1).astype(np.float64), (channels,))
    one, zero = np.ones(channels), np.zeros(channels)
    match name:
        case "Mul":
            return Affine(slot, values, zero, spatial)
        case "Div":
            return Affine(slot, 1 / values, zero, spatial)
        case "Add":
            return Affine(slot, one, values, spatial)
        case _:
            return Affine(slot, -one, values, spatial) if swapped else Affine(slot, one, -values, spatial)
