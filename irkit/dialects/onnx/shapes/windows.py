"""Convolutions, crops and transforms whose sizes depend on values: the official inference then loses their ranks."""

from __future__ import annotations

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.ir.types import Dim, TensorInfo, intern, tensor, tensor_info

__all__: list[str] = []


def _info(call: Call, index: int) -> TensorInfo | None:
    found = call.type(index)
    return None if found is None else tensor_info(found)


@shape_rule("Conv", "ConvTranspose", "DeformConv")
def convolution(call: Call) -> list[Attribute] | None:
    """Where neither the weights nor an attribute tell the kernel's size."""
    x, w = _info(call, 0), _info(call, 1)
    if x is None or x.shape is None or len(x.shape) < 3 or call.attr("kernel_shape") is not None:
        return None
    kernel = None if w is None or w.shape is None else w.shape[2:]
    if kernel is not None and all(isinstance(k, int) for k in kernel):
        return None
    channels: Dim = None
    if w is not None and w.shape is not None:
        if call.cls.op_type != "ConvTranspose":
            channels = w.shape[0]
        elif isinstance(w.shape[1], int):
            channels = w.shape[1] * call.attr("group")
    return [tensor(x.dtype, (x.shape[0], channels, *[None] * (len(x.shape) - 2)))]


@shape_rule("CenterCropPad")
def center_crop_pad(call: Call) -> list[Attribute] | None:
    x = _info(call, 0)
    if x is None or x.shape is None or call.constant(1) is not None:
        return None
    rank, axes = len(x.shape), call.attr("axes")
    changed = range(rank) if axes is None else [axis % rank for axis in axes]
    return [tensor(x.dtype, [None if i in changed else d for i, d in enumerate(x.shape)])]


@shape_rule("STFT")
def stft(call: Call) -> list[Attribute] | None:
    """Where the lengths are not known."""
    x = _info(call, 0)
    if x is None or x.shape is None or len(x.shape) != 3:
        return None
    if call.constant(1) is not None and isinstance(x.shape[1], int):
        return None
    return [tensor(x.dtype, (x.shape[0], None, None, 2))]


@shape_rule("RotaryEmbedding")
def rotary_embedding(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    return None if found is None else [intern(found)]
