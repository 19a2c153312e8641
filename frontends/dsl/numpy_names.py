"""Functions of NumPy that take symbols, besides its ufuncs: each calls the function of the DSL of the same meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CALLS", "call"]

CALLS: dict[Callable[..., Any], str] = {
    np.all: "all axis keepdims",
    np.amax: "max axis keepdims",
    np.amin: "min axis keepdims",
    np.any: "any axis keepdims",
    np.argmax: "argmax axis keepdims",
    np.argmin: "argmin axis keepdims",
    np.argsort: "argsort axis",
    np.broadcast_to: "broadcast_to shape",
    np.clip: "clip a_min=low a_max=high min=low max=high",
    np.cumprod: "cumprod axis",
    np.cumsum: "cumsum axis",
    np.expand_dims: "expand_dims axis",
    np.flip: "flip axis",
    np.max: "max axis keepdims",
    np.mean: "mean axis keepdims",
    np.min: "min axis keepdims",
    np.moveaxis: "moveaxis source destination",
    np.outer: "outer b",
    np.prod: "prod axis keepdims",
    np.ravel: "ravel",
    np.repeat: "repeat repeats axis",
    np.reshape: "reshape shape newshape=shape",
    np.roll: "roll shift axis",
    np.sort: "sort axis",
    np.squeeze: "squeeze axis",
    np.stack: "stack axis",
    np.std: "std axis keepdims ddof",
    np.sum: "sum axis keepdims",
    np.swapaxes: "swapaxes axis1=a axis2=b",
    np.take: "take indices axis",
    np.tile: "tile reps=repeats",
    np.transpose: "transpose axes",
    np.tril: "tril k",
    np.triu: "triu k",
    np.var: "var axis keepdims ddof",
}
"""NumPy's function -> the function of the DSL, and which parameters besides the first they share (``theirs=ours``)."""

_POSITIONAL = {np.concatenate: ("concatenate", ("axis",)), np.where: ("where", ()), np.einsum: ("einsum", ())}
"""Those without a signature to read: all operands by position, then the options that they take."""

_FLATTENING = {np.argsort, np.cumprod, np.cumsum, np.repeat, np.sort}
"""Those that without an axis work on the flattened value."""

_OF_INTS = {np.moveaxis, np.repeat, np.roll, np.swapaxes}
"""Those which take two ints here, though NumPy takes tuples or None, too."""


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function of NumPy gives for symbols; NotImplemented where it is not listed, or has another option."""
    from irkit.frontends import dsl

    if function in _POSITIONAL:
        name, options = _POSITIONAL[function]
        return getattr(dsl, name)(*args, **kwargs) if kwargs.keys() <= set(options) else NotImplemented
    if function in (np.shape, np.ndim):
        return getattr(args[0] if args else kwargs["a"], function.__name__)
    if function not in CALLS:
        return NotImplemented
    name, *shared = CALLS[function].split()
    ours = {theirs: own or theirs for theirs, _, own in (item.partition("=") for item in shared)}
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs).arguments
    first, *rest = bound
    if any(key not in ours and bound[key] is not signature.parameters[key].default for key in rest):
        return NotImplemented
    options = {ours[key]: bound[key] for key in rest if key in ours and bound[key] is not np._NoValue}
    value = bound[first]
    if function in _FLATTENING and options.get("axis", signature.parameters["axis"].default) is None:
        value, options["axis"] = dsl.ravel(value), 0
    if function in _OF_INTS and not (len(options) == 2 and all(isinstance(v, int) for v in options.values())):
        return NotImplemented
    if function is np.flip and options.get("axis") is None:
        return NotImplemented
    return getattr(dsl, name)(value, **options)
