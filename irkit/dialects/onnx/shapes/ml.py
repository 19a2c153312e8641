"""Classical machine learning: ops that keep the shape of what comes in, of which the official inference says little."""

from __future__ import annotations

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.ir.types import intern, tensor, tensor_info

ML = "ai.onnx.ml"


@shape_rule("Binarizer", "Imputer", domain=ML)
def same(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    return None if found is None else [intern(found)]


@shape_rule("Normalizer", "Scaler", domain=ML)
def same_shape_as_float(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    info = None if found is None else tensor_info(found)
    return None if info is None else [tensor("float32", info.shape)]
