"""Operands and attributes on which the official inference of onnx 1.23 ends the process, kept away from it.

Found by calling it for every schema version with operands of every kind of type, and none.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.errors import InferenceError
from irkit.ir.types import UnknownType, shape_of, unknown


def _needs_known_types(call: Call) -> Sequence[Attribute] | None:
    """It looks at the operands' types without asking whether they are there."""
    known = bool(call.operands) and not any(
        isinstance(call.type(index), UnknownType | None) for index in range(len(call.operands))
    )
    return None if known else [unknown] * call.n_out


shape_rule("EyeLike", "RegexFullMatch")(_needs_known_types)
shape_rule("DictVectorizer", "LabelEncoder", "TreeEnsemble", domain="ai.onnx.ml")(_needs_known_types)


@shape_rule("Split")
def split(call: Call) -> list[Attribute] | None:
    """It divides into ``num_outputs`` parts, and writes a type for each of the results."""
    count = call.attr("num_outputs")
    if isinstance(count, int) and count != call.n_out:
        raise InferenceError(f"num_outputs is {count}, but there are {call.n_out} results")
    return None


@shape_rule("GatherND")
def gather_nd(call: Call) -> list[Attribute] | None:
    """It trusts ``batch_dims``."""
    count = call.attr("batch_dims")
    if not isinstance(count, int):
        return None
    for value in call.operands[:2]:
        shape = shape_of(value.type)
        if count < 0 or (shape is not None and count >= len(shape)):
            raise InferenceError(f"batch_dims is {count}, expected 0 or more, and less than the operands' ranks")
    return None
