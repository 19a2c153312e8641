"""An op of a third party: ``softcap.Softcap``, ``cap * tanh(x / cap)``, which keeps logits within ``±cap``.

All that irkit can know of an op stands here, by the decorators that irkit's own ops use: the schema, the shape rule,
the kernel, the gradient, and the meaning in standard ops, which is what onnxruntime runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.defs import OpSchema
from xdsl.ir import Attribute, Dialect

from irkit.backends.numpy.registry import kernel
from irkit.dialects.onnx.classes import OnnxOp, define
from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.ir.builder import Builder, Tensor
from irkit.opsets.registry import decompose
from irkit.passes.autodiff.registry import Vjp, vjp

DOMAIN = "com.example.softcap"

SCHEMA = OpSchema(
    "Softcap",
    DOMAIN,
    1,
    doc="Y = cap * tanh(X / cap)",
    inputs=[OpSchema.FormalParameter("X", "T")],
    outputs=[OpSchema.FormalParameter("Y", "T")],
    type_constraints=[("T", ["tensor(float16)", "tensor(float)", "tensor(double)"], "floating point")],
    attributes=[OpSchema.Attribute("cap", OpSchema.AttrType.FLOAT, "the bound", required=True)],
)


OPS = define("softcap", SCHEMA)


def dialect() -> Dialect:
    """The dialect, found by irkit through this package's entry point."""
    return Dialect("softcap", OPS)


@shape_rule("Softcap", domain=DOMAIN)
def shape(call: Call) -> Sequence[Attribute] | None:
    found = call.type(0)
    return None if found is None else [found]


@kernel("Softcap", domain=DOMAIN)
def softcap(x: np.ndarray[Any, Any], *, cap: float) -> np.ndarray[Any, Any]:
    scale = x.dtype.type(cap)
    return np.asarray(np.tanh(x / scale) * scale)


@decompose("Softcap", 1, domain=DOMAIN)
def meaning(b: Builder, op: OnnxOp) -> Tensor:
    x = b.wrap(op.operands[0])
    cap = b.CastLike(op.attr("cap"), x)
    return b.Tanh(x / cap) * cap


@vjp("Softcap", domain=DOMAIN)
def gradient(g: Vjp) -> Tensor:
    # y = cap * t with t = tanh(x / cap), so dy/dx = 1 - t * t.
    t = g.y() / g.b.CastLike(g.attr("cap"), g.y())
    return g.ct * (1 - t * t)
