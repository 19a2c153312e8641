"""Whether two ModelProtos say the same: tensors by dtype, shape and bits; orders that mean nothing set aside.

Written without irkit, so that a fault of the importer cannot hide itself.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx import TensorProto, numpy_helper

__all__ = ["first_difference", "normalized"]

Proto = Any
_MEANINGFUL = {
    (onnx.AttributeProto, "f"),
    (onnx.AttributeProto, "i"),
    (onnx.AttributeProto, "s"),
    (TensorProto, "raw_data"),
}
"""Scalar fields whose default value says something."""


def normalized(model: Proto) -> Proto:
    """A copy with tensors in raw form, empty scalars unset, unordered lists sorted, nodes in a canonical order."""
    copy = type(model)()
    copy.CopyFrom(model)
    _message(copy)
    if isinstance(copy, onnx.ModelProto):
        _sort(copy.opset_import, lambda o: o.domain)
    return copy


def _says_nothing(message: Proto, field: FieldDescriptor, value: Any) -> bool:
    return value == field.default_value and (type(message), field.name) not in _MEANINGFUL


def _message(message: Proto) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in value if field.is_repeated else [value]:
                _message(item)
        elif not field.is_repeated and field.containing_oneof is None and _says_nothing(message, field, value):
            message.ClearField(field.name)
    if isinstance(message, TensorProto):
        _tensor(message)
    elif isinstance(message, onnx.SparseTensorProto):
        message.indices.ClearField("name")
    elif isinstance(message, onnx.AttributeProto):
        # The name of a tensor within an attribute names nothing.
        for tensor in [message.t, *message.tensors] if message.type in (4, 9) else []:
            tensor.ClearField("name")
        if message.type == onnx.AttributeProto.SPARSE_TENSOR:
            message.sparse_tensor.values.ClearField("name")
    elif isinstance(message, onnx.NodeProto):
        _sort(message.attribute, lambda a: a.name)
    elif isinstance(message, onnx.GraphProto):
        _sort(message.value_info, lambda v: v.name)
        _sort(message.initializer, lambda t: t.name)
        _sort(message.sparse_initializer, lambda s: s.values.name)
        _canonical_order(message)
    elif isinstance(message, onnx.FunctionProto):
        _sort(message.value_info, lambda v: v.name)
        _sort(message.opset_import, lambda o: o.domain)
        _sort(message.attribute_proto, lambda a: a.name)


def _sort(items: Proto, key: Any) -> None:
    ordered = sorted(items, key=key)
    copies = []
    for item in ordered:
        copy = type(item)()
        copy.CopyFrom(item)
        copies.append(copy)
    del items[:]
    items.extend(copies)


def _canonical_order(graph: Proto) -> None:
    """Nodes that stand before the makers of their inputs are moved behind them; others stay."""
    known = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    made = {name for node in graph.node for name in node.output if name}
    in_order = True
    for node in graph.node:
        if any(name in made and name not in known for name in node.input):
            in_order = False
        known.update(node.output)
    if not in_order:
        _sort(graph.node, lambda n: (n.output[0] if n.output else "", n.name))


def _tensor(tensor: Proto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return
    if not tensor.HasField("raw_data"):
        array = numpy_helper.to_array(tensor)
        made = numpy_helper.from_array(array, tensor.name)
        if made.data_type != tensor.data_type:
            raise AssertionError(f"{tensor.name}: onnx reads type {tensor.data_type} as {made.data_type}")
        for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        tensor.raw_data = made.raw_data if array.dtype.kind != "f" or array.itemsize < 4 else _exact(tensor, array)
    if not np.prod(list(tensor.dims), dtype=np.int64):
        tensor.raw_data = b""


def _exact(tensor: Proto, array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def first_difference(a: Proto, b: Proto, path: str = "") -> str | None:
    """The first field in which two normalized messages differ, or None."""
    if a == b or a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True):
        return None
    fields = {f.name: f for f, _ in a.ListFields()} | {f.name: f for f, _ in b.ListFields()}
    for name, field in fields.items():
        x, y = getattr(a, name), getattr(b, name)
        here = f"{path}.{name}"
        if field.is_repeated:
            if len(x) != len(y):
                return f"{here}: {len(x)} against {len(y)} entries"
            for index, (p, q) in enumerate(zip(x, y, strict=True)):
                if p == q:
                    continue
                if field.type != FieldDescriptor.TYPE_MESSAGE:
                    if isinstance(p, float) and struct.pack("d", p) == struct.pack("d", q):
                        continue
                    return f"{here}[{index}]: {p!r} against {q!r}"
                found = first_difference(p, q, f"{here}[{getattr(p, 'name', '') or index}]")
                if found is not None:
                    return found
        elif a.HasField(name) != b.HasField(name):
            return f"{here}: {x!r} against {y!r}, set in only one"
        elif x != y:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                found = first_difference(x, y, here)
                if found is not None:
                    return found
            elif not (isinstance(x, float) and struct.pack("f", x) == struct.pack("f", y)):
                return f"{here}: {x!r} against {y!r}"
    return None
