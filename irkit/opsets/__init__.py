"""Opsets: older forms of ops to current ones and back, and what ops mean in terms of others.

>>> import irkit as ik
>>> from irkit.opsets import lower_module
>>> b = ik.Builder("g")
>>> b.output(b.ReduceSum(b.input("x", "float32", [2, 3]), [1]), "y")
>>> m = b.module().clone()
>>> lower_module(m, {"": 11})
>>> any(op.name == "onnx.ReduceSumV11" for op in m.block.ops)
True
"""

from __future__ import annotations

import importlib

from irkit.opsets.bodies import has_function_body
from irkit.opsets.lowering import lower_module
from irkit.opsets.registry import is_compatible, is_trivial
from irkit.opsets.rewrite import sync_signature
from irkit.opsets.upgrading import (
    decompose_op,
    decomposition,
    expand_function_body,
    upgrade,
    upgrade_op,
)

__all__ = [
    "decompose_op",
    "decomposition",
    "expand_function_body",
    "has_function_body",
    "is_compatible",
    "is_trivial",
    "lower_module",
    "sync_signature",
    "upgrade",
    "upgrade_op",
]

for _family in (
    "activation ad constant control elementwise image index linalg ml norm pool quant random recurrent reduce "
    "rnn shape signal"
).split():
    importlib.import_module(f"irkit.opsets.{_family}")
