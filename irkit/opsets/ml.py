"""LabelEncoder: version 1 numbered a list of strings, in the direction that its input told."""

from __future__ import annotations

from irkit.dialects.onnx.classes import OnnxOp
from irkit.ir.builder import Builder
from irkit.ir.types import dtype_of
from irkit.opsets.common import attribute, impossible
from irkit.opsets.registry import Results, decompose, lower, upgrade

DOMAIN = "ai.onnx.ml"
_OTHERS = ("keys_floats", "values_floats", "keys_tensor", "values_tensor", "default_tensor")


@upgrade("LabelEncoder", 1, domain=DOMAIN)
def numbered_classes(b: Builder, op: OnnxOp) -> Results | None:
    unused = "default_string" if _of_strings(op) else "default_int64"
    classes = op.attr("classes_strings") or ()
    return None if unused in op.properties or len(set(classes)) < len(classes) else label_encoder(b, op)


@decompose("LabelEncoder", 1, domain=DOMAIN)
def label_encoder(b: Builder, op: OnnxOp) -> Results | None:
    if dtype_of(op.operands[0].type) is None:
        return None
    classes = op.attr("classes_strings") or ()
    if _of_strings(op):
        # Found from the front, so the first of equal ones counts.
        first = dict(reversed([(text, i) for i, text in enumerate(classes)]))
        keys = sorted(first, key=first.__getitem__)
        numbers = sorted(first.values())
        attributes = {"keys_strings": keys, "values_int64s": numbers, "default_int64": op.attr("default_int64")}
    else:
        numbers = list(range(len(classes)))
        attributes = {"keys_int64s": numbers, "values_strings": classes, "default_string": op.attr("default_string")}
    return b.op("onnx.ml.LabelEncoder", op.operands[0], **attributes)


def _of_strings(op: OnnxOp) -> bool:
    kind = dtype_of(op.operands[0].type)
    return kind is not None and kind.kind == "string"


@lower("LabelEncoder", 1, domain=DOMAIN)
def label_encoder_older(b: Builder, op: OnnxOp, to: type[OnnxOp]) -> Results:
    strings = _of_strings(op)
    classes = attribute(op, "keys_strings" if strings else "values_strings")
    numbers = attribute(op, "values_int64s" if strings else "keys_int64s")
    if classes is None or numbers != tuple(range(len(classes))) or any(n in op.properties for n in _OTHERS):
        raise impossible(op, "the older form numbers a list of strings from 0 on, and it maps otherwise")
    name = "default_int64" if strings else "default_string"
    return b.op(to, op.operands[0], classes_strings=classes, **{name: attribute(op, name)})
