"""Every op of ONNX as a function of symbols: ``dsl.onnx.Conv(x, w, strides=[1, 1])``.

Operands in the order of the op, ``None`` for an optional one that is left out; attributes by name; graphs as functions.
Ops of other domains: ``dsl.onnx.op("onnx.ml.Scaler", x, ...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from irkit.frontends.dsl.build import make, op_class

__all__ = ["op"]

op = make


def __getattr__(name: str) -> Callable[..., Any]:
    if not name[:1].isupper():
        raise AttributeError(f"module 'irkit.frontends.dsl.onnx' has no attribute '{name}'")
    return partial(make, op_class(name))
