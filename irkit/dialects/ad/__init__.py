"""The ``ad`` dialect: what a derivative needs besides ONNX's ops. It is lowered when a module is exported or run.

====================  ==========================================================================================
``ad.scale``          the product with broadcasting, but 0 where either is 0, even if the other is no finite number
``ad.stop_gradient``  its operand; the gradient ends here
``ad.barrier``        its operands; never merged with another, so that what is computed from it is computed anew
====================  ==========================================================================================

``ad.scale`` is linear in each operand, and its own transpose: that makes gradients of ``Where(c, f(x), g(x))`` finite
where only the branch not taken is singular, for tangents and second derivatives too.
"""

from __future__ import annotations

from onnx.defs import OpSchema
from xdsl.ir import Attribute, Dialect, OpTraits
from xdsl.traits import MemoryAllocEffect, Pure

from irkit.dialects.ad.finite import Facts, facts_of, is_finite
from irkit.dialects.onnx.classes import define
from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.dialects.onnx.shapes.elementwise import broadcast
from irkit.ir.dtypes import BY_NAME
from irkit.ir.op import Elementwise, Random, type_string
from irkit.ir.types import intern, tensor, tensor_info, unknown

__all__ = ["AD", "DOMAIN", "Barrier", "Facts", "Scale", "StopGradient", "facts_of", "is_finite"]

DOMAIN = "irkit.ad"
"""The domain of the dialect's ops. No file holds it: they are lowered on export."""

_TENSORS = {kind: str(type_string(tensor(kind, ()))) for kind in BY_NAME.values()}
_FLOATS = [text for kind, text in _TENSORS.items() if kind.kind in ("float", "complex")]
_ANY = [
    form.format(text) for text in _TENSORS.values() for form in ("{}", "seq({})", "optional({})", "optional(seq({}))")
]
_FORMAL = OpSchema.FormalParameter
_VARIADIC = OpSchema.FormalParameterOption.Variadic

Scale, StopGradient, Barrier = define(
    "ad",
    OpSchema(
        "scale",
        DOMAIN,
        1,
        doc="ct * factor, 0 where either is 0",
        inputs=[_FORMAL("ct", "T"), _FORMAL("factor", "T")],
        outputs=[_FORMAL("output", "T")],
        type_constraints=[("T", _FLOATS, "floating point")],
    ),
    OpSchema(
        "stop_gradient",
        DOMAIN,
        1,
        doc="The operand, as a constant for differentiation",
        inputs=[_FORMAL("input", "T")],
        outputs=[_FORMAL("output", "T")],
        type_constraints=[("T", _ANY, "anything")],
    ),
    OpSchema(
        "barrier",
        DOMAIN,
        1,
        doc="The operands, computed anew from here",
        inputs=[_FORMAL("inputs", "T", param_option=_VARIADIC, is_homogeneous=False)],
        outputs=[_FORMAL("outputs", "T", param_option=_VARIADIC, is_homogeneous=False)],
        type_constraints=[("T", _ANY, "anything")],
    ),
)

Scale.traits = OpTraits(lambda: (Pure(), Elementwise()))
# As for ops that draw random numbers: droppable, never merged.
Barrier.traits = OpTraits(lambda: (Random(), MemoryAllocEffect()))


@shape_rule("scale", domain=DOMAIN)
def _scale(call: Call) -> list[Attribute] | None:
    ct, factor = (tensor_info(t) if (t := call.type(i)) is not None else None for i in (0, 1))
    if ct is None or factor is None:
        return [unknown]
    return [tensor(ct.dtype, broadcast([ct.shape, factor.shape]))]


@shape_rule("stop_gradient", "barrier", domain=DOMAIN)
def _same(call: Call) -> list[Attribute] | None:
    return [intern(v.type) for v in call.operands]


AD = Dialect("ad", [Scale, StopGradient, Barrier], [])
