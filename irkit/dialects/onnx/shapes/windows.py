"""Convolutions, unpooling, crops and transforms: where the official inference loses ranks, or errs."""

from __future__ import annotations

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.errors import InferenceError
from irkit.ir.constants import RefAttr
from irkit.ir.types import Dim, Shape, TensorInfo, intern, tensor, tensor_info

__all__: list[str] = []


def _info(call: Call, index: int) -> TensorInfo | None:
    found = call.type(index)
    return None if found is None else tensor_info(found)


def _refers(call: Call) -> bool:
    """Whether an attribute is given by the caller of a function."""
    return any(isinstance(attr, RefAttr) for attr in call.properties.values())


@shape_rule("Conv", "ConvTranspose", "DeformConv")
def convolution(call: Call) -> list[Attribute] | None:
    """Where neither the weights nor an attribute tell the kernel's size; and a ConvTranspose sized by its strides."""
    x, w = _info(call, 0), _info(call, 1)
    if x is None or x.shape is None or len(x.shape) < 3 or _refers(call):
        return None
    if w is not None and w.shape is not None and len(w.shape) != len(x.shape):
        return None
    if w is not None and w.shape is not None:
        _check_channels(call, x.shape[1], w.shape)
    kernel = None if w is None or w.shape is None else w.shape[2:]
    known = call.attr("kernel_shape") is not None or (kernel is not None and all(isinstance(k, int) for k in kernel))
    sizes: list[Dim] = [None] * (len(x.shape) - 2)
    if call.cls.op_type == "ConvTranspose" and _by_strides(call):
        strides = call.attr("strides") or [1] * len(sizes)
        if len(strides) != len(sizes):
            return None
        sizes = [n * s if isinstance(n, int) else None for n, s in zip(x.shape[2:], strides, strict=True)]
    elif known:
        return None
    channels: Dim = None
    if w is not None and w.shape is not None:
        if call.cls.op_type != "ConvTranspose":
            channels = w.shape[0]
        elif isinstance(w.shape[1], int):
            channels = w.shape[1] * call.attr("group")
    return [tensor(x.dtype, (x.shape[0], channels, *sizes))]


def _check_channels(call: Call, channels: Dim, weights: Shape) -> None:
    """The official inference looks at no channels.

    Raises:
        InferenceError: if those of the input don't fit the weights and groups.
    """
    group = call.attr("group")
    transposed = call.cls.op_type == "ConvTranspose"
    taken = weights[0] if transposed else weights[1]
    expected = taken * (1 if transposed else group) if isinstance(taken, int) else None
    if isinstance(channels, int) and expected is not None and channels != expected:
        raise InferenceError(
            f"the input has {channels} channels, but weights of shape {list(weights)} in {group} group"
            f"{'' if group == 1 else 's'} take {expected}"
        )
    if isinstance(weights[0], int) and weights[0] % group:
        raise InferenceError(f"weights of shape {list(weights)} do not divide into {group} groups")


def _by_strides(call: Call) -> bool:
    """Whether each element gives a stride's length of the result, to which the official inference adds the padding."""
    padded = str(call.attr("auto_pad") or "").startswith("SAME")
    return padded and call.attr("output_padding") is not None and call.attr("output_shape") is None


@shape_rule("CenterCropPad")
def center_crop_pad(call: Call) -> list[Attribute] | None:
    x = _info(call, 0)
    if x is None or x.shape is None or call.constant(1) is not None or _refers(call):
        return None
    rank, axes = len(x.shape), call.attr("axes")
    if any(not -rank <= axis < rank for axis in axes or ()):
        return None
    changed = range(rank) if axes is None else [axis % rank for axis in axes]
    return [tensor(x.dtype, [None if i in changed else d for i, d in enumerate(x.shape)])]


@shape_rule("MaxUnpool")
def max_unpool(call: Call) -> list[Attribute] | None:
    """Where the output's shape is given."""
    x, shape = _info(call, 0), call.constant(2)
    if x is None or x.shape is None or call.type(2) is None:
        return None
    sizes = [None] * len(x.shape) if shape is None else [int(n) for n in shape.array().reshape(-1)]
    if any(n is not None and n < 0 for n in sizes):
        return None
    return [tensor(x.dtype, sizes)]


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
