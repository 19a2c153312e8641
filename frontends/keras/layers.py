"""Layers that are traced otherwise than by running them, because ONNX has one op for what they do in many."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.errors import UnsupportedError
from irkit.frontends.keras import adapter
from irkit.frontends.keras.control import scan
from irkit.frontends.keras.trace import LAYERS, SPECS, Tracer


def hook(*names: str) -> Any:
    """Registers how layers are traced, by the names of their classes."""

    def register(fn: Any) -> Any:
        for name in names:
            LAYERS[name] = fn
        return fn

    return register


@hook("GroupNormalization")
def _group_normalization(tracer: Tracer, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One GroupNormalization, where the axis is the channels'."""
    x = args[0] if args else kwargs["inputs"]
    rank = len(x.shape)
    axis = layer.axis % rank
    if axis not in (1, rank - 1) or rank < 3:
        return adapter.run_layer(layer, args, kwargs)
    groups = x.shape[axis] if layer.groups == -1 else layer.groups
    gamma, beta = (v.value if v is not None else None for v in (layer.gamma, layer.beta))
    compute = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    return tracer.primitive(
        "group_norm",
        (x, gamma, beta),
        adapter.symbol(x.shape, layer.compute_dtype),
        groups=groups,
        last=axis == rank - 1,
        epsilon=layer.epsilon,
        compute=compute,
    )


@hook("UpSampling1D", "UpSampling2D", "UpSampling3D")
def _up_sampling(tracer: Tracer, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One Resize by whole factors."""
    x = args[0] if args else kwargs["inputs"]
    rank = len(x.shape) - 2
    size = list(layer.size) if isinstance(layer.size, (list, tuple)) else [layer.size] * rank
    interpolation = getattr(layer, "interpolation", "nearest")
    if interpolation not in ("nearest", "bilinear", "bicubic"):
        return adapter.run_layer(layer, args, kwargs)
    last = rank == 1 or adapter.channels_last(layer.data_format)
    shape = list(x.shape)
    for i, factor in enumerate(size, 1 if last else 2):
        shape[i] *= factor
    return tracer.primitive(
        "upsample", (x,), adapter.symbol(shape, x.dtype), size=size, interpolation=interpolation, last=last
    )


@hook("TimeDistributed")
def _time_distributed(tracer: Tracer, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The layer called once, on all times as one batch; in training, where a batch has a meaning, time by time."""
    x = args[0] if args else kwargs["inputs"]
    inner, mask = layer.layer, kwargs.get("mask")
    ops = adapter.api().ops
    if tracer.training:
        try:
            return _time_by_time(tracer, inner, x, mask)
        except UnsupportedError:
            # What assigns to variables is no body of a loop.
            return adapter.run_layer(layer, args, kwargs)

    def flat(t: Any) -> Any:
        return ops.reshape(t, (t.shape[0] * t.shape[1], *t.shape[2:]))

    options: dict[str, Any] = {"training": False} if inner._call_has_training_arg else {}
    if inner._call_has_mask_arg and mask is not None:
        options["mask"] = flat(mask)
    made = tracer.layer(inner, (flat(x),), options)
    return adapter.map_tree(lambda t: ops.reshape(t, (*x.shape[:2], *t.shape[1:])), made)


def _time_by_time(tracer: Tracer, inner: Any, x: Any, mask: Any) -> Any:
    ops = adapter.api().ops
    wanted = {"training": True} if inner._call_has_training_arg else {}
    masked = inner._call_has_mask_arg and mask is not None

    def step(states: list[Any], items: list[Any]) -> Any:
        options = {**wanted, "mask": items[1]} if masked else wanted
        return [], [tracer.layer(inner, (items[0],), options)]

    _, (made,) = scan(tracer, step, [], [ops.swapaxes(t, 0, 1) for t in ([x, mask] if masked else [x])])
    return ops.swapaxes(made, 0, 1)


@hook("PReLU")
def _prelu(tracer: Tracer, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0] if args else kwargs["inputs"]
    return tracer.primitive("PRelu", (x, layer.alpha.value), adapter.symbol(x.shape, x.dtype))


# Keras's own specifications of these fail on what the operations take.


def _same_as_first(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return adapter.symbol(x.shape, x.dtype)


def _conv(op: Any, x: Any, kernel: Any) -> Any:
    """As for an input that has as many channels as the kernel: of a grouped convolution they are fewer."""
    last = adapter.channels_last(op.data_format)
    narrow = list(x.shape)
    narrow[-1 if last else 1] = kernel.shape[-2]
    return adapter.specification(op, (adapter.symbol(narrow, x.dtype), kernel), {})


def _digitize(op: Any, x: Any, bins: Any) -> Any:
    return adapter.symbol(x.shape, "int32")


def _attention(op: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """The values' last size, which need not be that of the queries."""
    return adapter.symbol((*query.shape[:-1], value.shape[-1]), adapter.result_type([query.dtype, value.dtype]))


def _adaptive_pool(op: Any, x: Any) -> Any:
    rank = len(x.shape) - 2
    size = [op.output_size] * rank if isinstance(op.output_size, int) else list(op.output_size)
    last = adapter.channels_last(op.data_format)
    return adapter.symbol([x.shape[0], *size, x.shape[-1]] if last else [*x.shape[:2], *size], x.dtype)


def _get_item(op: Any, x: Any, key: Any) -> Any:
    """As NumPy has it, for the keys of NumPy: Keras's own knows neither a single slice nor tensors."""
    keys = key if isinstance(key, tuple) else tuple(key) if isinstance(key, list) else (key,)
    plain = tuple(np.zeros(k.shape, np.int64) if adapter.is_symbolic(k) else k for k in keys)
    return adapter.symbol(np.broadcast_to(np.int8(0), x.shape)[plain].shape, x.dtype)


def _multi_hot(op: Any, x: Any) -> Any:
    shape = list(op.compute_output_spec(x).shape)
    return adapter.symbol(shape, op.dtype)


SPECS.update(
    GetItem=_get_item,
    MultiHot=_multi_hot,
    BatchNorm=_same_as_first,
    Conv=_conv,
    Digitize=_digitize,
    DotProductAttention=_attention,
    AdaptiveMaxPool=_adaptive_pool,
    AdaptiveAveragePool=_adaptive_pool,
)
