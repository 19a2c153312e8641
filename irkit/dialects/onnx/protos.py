"""Types, tensors and attributes to and from ONNX's protobuf messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import onnx
from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto
from xdsl.dialects.builtin import ArrayAttr, BytesAttr, DenseArrayBase, StringAttr, i64
from xdsl.ir import Attribute

from irkit.errors import LoadError, ParseError
from irkit.ir.attributes import int_attr, kind_of, string, strings, text_of, to_attr
from irkit.ir.constants import (
    ConstantData,
    FloatsAttr,
    ListAttr,
    ProtoAttr,
    RefAttr,
    SparseAttr,
    TensorAttr,
    from_raw,
    unpack_bits,
)
from irkit.ir.dtypes import BY_CODE, DType, dtype
from irkit.ir.types import (
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    UnknownType,
    dtype_of,
    intern,
    tensor,
    tensor_info,
    unknown,
)

__all__ = [
    "ExternalReader",
    "attr_from_proto",
    "attr_to_proto",
    "has_denotation",
    "sparse_from_proto",
    "tensor_from_proto",
    "tensor_to_proto",
    "text_attr",
    "text_attrs",
    "text_of_field",
    "type_bytes",
    "type_from_bytes",
    "type_from_proto",
    "type_to_proto",
]

ExternalReader = Callable[[TensorProto], ConstantData]
"""Reads a tensor whose bytes stand in another file."""

Proto = Any
"""A protobuf message: their Python classes have no useful static types."""


# Texts


def text_of_field(value: str | bytes) -> str:
    """The text of a field that protobuf wants to be UTF-8; what is not comes as bytes.

    Raises:
        LoadError: if it is not.
    """
    if isinstance(value, bytes):
        raise LoadError(f"a name or text is not UTF-8: {value[:80]!r}")
    return value


def text_attr(value: str | bytes) -> StringAttr | BytesAttr:
    """The attribute of such a text."""
    return string(text_of_field(value))


def text_attrs(values: Iterable[str | bytes]) -> ArrayAttr[Attribute]:
    """The attribute of several."""
    return strings(map(text_of_field, values))


# Types

_BY_BYTES: dict[bytes, Attribute] = {}


def type_from_bytes(data: bytes) -> Attribute:
    """The type of a serialized TypeProto, as the official inference gives it; remembered by its bytes."""
    found = _BY_BYTES.get(data)
    if found is None:
        proto = TypeProto.FromString(data)
        for dim in proto.tensor_type.shape.dim if proto.WhichOneof("value") == "tensor_type" else ():
            if dim.dim_value < 0:
                # The official inference says -1 for a size that it does not know.
                dim.ClearField("dim_value")
        found = _BY_BYTES[data] = type_from_proto(proto)
    return found


def type_from_proto(proto: Proto) -> Attribute:
    """The IR type that a TypeProto stands for; what it leaves open is unknown.

    Raises:
        LoadError: for a negative size, or an element type that does not exist.
    """
    match proto.WhichOneof("value"):
        case "tensor_type":
            return _tensor_type(proto.tensor_type)
        case "sequence_type":
            return intern(SeqType(type_from_proto(proto.sequence_type.elem_type)))
        case "optional_type":
            return intern(OptType(type_from_proto(proto.optional_type.elem_type)))
        case "map_type":
            key = tensor(_dtype(proto.map_type.key_type), ())
            return intern(MapType(key, type_from_proto(proto.map_type.value_type)))
        case "sparse_tensor_type":
            return intern(SparseType(_tensor_type(proto.sparse_tensor_type)))
        case "opaque_type":
            return intern(OpaqueType(text_attr(proto.opaque_type.domain), text_attr(proto.opaque_type.name)))
        case _:
            return unknown


def _dtype(code: int) -> DType:
    found = BY_CODE.get(code)
    if found is None:
        raise LoadError(f"element type {code} does not exist in ONNX")
    return found


def _tensor_type(proto: Proto) -> Attribute:
    if proto.elem_type == TensorProto.UNDEFINED:
        return unknown
    element = _dtype(proto.elem_type)
    if not proto.HasField("shape"):
        return tensor(element, None)
    shape: list[int | str | None] = []
    for dim in proto.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value":
            if dim.dim_value < 0:
                raise LoadError(f"a size of {dim.dim_value} in a tensor type", hint="sizes are 0 or more")
            shape.append(dim.dim_value)
        else:
            shape.append(text_of_field(dim.dim_param) if which == "dim_param" else None)
    return tensor(element, shape)


def has_denotation(proto: Proto) -> bool:
    """Whether a TypeProto says what its value or axes denote, which the IR's types do not."""
    if proto.denotation:
        return True
    shape = proto.tensor_type.shape if proto.WhichOneof("value") == "tensor_type" else None
    return shape is not None and any(dim.denotation for dim in shape.dim)


def type_to_proto(value_type: Attribute) -> Proto:
    """The TypeProto of an IR type; an unset one for an unknown type."""
    proto = TypeProto()
    info = tensor_info(value_type)
    if info is not None:
        _fill_tensor(proto.tensor_type, info.dtype, info.shape)
        return proto
    match value_type:
        case SeqType():
            # CopyFrom sets the field even where the element type is unknown.
            proto.sequence_type.elem_type.CopyFrom(type_to_proto(value_type.element))
        case OptType():
            proto.optional_type.elem_type.CopyFrom(type_to_proto(value_type.element))
        case MapType():
            proto.map_type.key_type = cast(DType, dtype_of(value_type.key)).code
            proto.map_type.value_type.CopyFrom(type_to_proto(value_type.value))
        case SparseType():
            info = tensor_info(value_type.tensor)
            if info is not None:
                _fill_tensor(proto.sparse_tensor_type, info.dtype, info.shape)
            else:
                proto.sparse_tensor_type.SetInParent()
        case OpaqueType():
            proto.opaque_type.domain = text_of(value_type.domain)
            proto.opaque_type.name = text_of(value_type.type_name)
        case _:
            pass
    return proto


def _fill_tensor(proto: Proto, element: DType, shape: Any) -> None:
    proto.elem_type = element.code
    if shape is None:
        return
    proto.shape.SetInParent()
    for size in shape:
        dim = proto.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size


def type_bytes(value_type: Attribute) -> bytes | None:
    """The serialized TypeProto of a type; None for an unknown one. Remembered on the type."""
    try:
        return cast("bytes | None", value_type._bytes)  # type: ignore[attr-defined]
    except AttributeError:
        made = None if isinstance(value_type, UnknownType) else type_to_proto(value_type).SerializeToString()
        object.__setattr__(value_type, "_bytes", made or None)
        return made or None


# Tensors

_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_TYPED_FIELDS: dict[str, str] = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}


def tensor_from_proto(proto: Proto, external: ExternalReader | None = None) -> ConstantData:
    """The constant that a TensorProto holds, exact to the bit.

    Raises:
        LoadError: if sizes are negative or the data does not fit them.
    """
    shape = tuple(proto.dims)
    label = f"tensor '{proto.name}'" if proto.name else "a tensor"
    if any(d < 0 for d in shape):
        raise LoadError(f"{label} has the shape {list(shape)}", hint="sizes are 0 or more")
    element = _dtype(proto.data_type)
    if proto.HasField("raw_data") + sum(1 for field in _DATA_FIELDS if getattr(proto, field)) > 1:
        raise LoadError(f"{label} has data in more than one field")
    if proto.HasField("segment"):
        raise LoadError(f"{label} is stored in segments, which no version of ONNX reads")
    if proto.data_location == TensorProto.EXTERNAL:
        if external is None:
            raise LoadError(f"{label} has its data in another file, but there is no folder to look in")
        return external(proto)
    try:
        if proto.HasField("raw_data"):
            if element.kind == "string":
                raise LoadError(f"{label} is of strings, which have no raw form")
            return from_raw(proto.raw_data, element, shape)
        return _typed(proto, element, shape)
    except ParseError as error:
        raise LoadError(f"{label}: {error.message}") from None
    except (OverflowError, ValueError) as error:
        # Sizes beside a zero that overflow, or numbers beyond the dtype.
        raise LoadError(f"{label} of {element}{list(shape)} cannot be held: {error}") from None


def _code_range(element: DType) -> tuple[int, int]:
    """What an entry of ``int32_data`` may be: a value for integers, the bits for the rest."""
    if element.kind == "int" and not element.packed:
        return -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1
    # A byte holds two or four packed elements; some writers store bits with a sign.
    bits = max(8, element.bits)
    return (0 if element.kind in ("uint", "bool") else -(1 << (bits - 1))), (1 << bits) - 1


def _typed(proto: Proto, element: DType, shape: tuple[int, ...]) -> ConstantData:
    count = math.prod(shape)
    field = _TYPED_FIELDS.get(element.name, "int32_data")
    values = getattr(proto, field)
    per = {"complex": 2}.get(element.kind, 1)
    packed = element.packed and element.bits != 6
    expected = -(-count * element.bits // 8) if packed else count * per
    if len(values) != expected:
        raise ParseError(f"{element}{list(shape)} takes {expected} entries in {field}, but {len(values)} are given")
    if element.kind == "string":
        array = np.empty(count, object)
        array[:] = list(values)
    elif field == "int32_data":
        codes = np.array(values, np.int32)
        low, high = _code_range(element)
        if codes.size and (codes.min() < low or codes.max() > high):
            bad = int(codes[(codes < low) | (codes > high)][0])
            raise ParseError(f"{bad} in {field} is no {element}")
        if packed:
            array = unpack_bits(codes.astype(np.uint8).tobytes(), count, element)
        elif element.kind == "bool":
            array = codes != 0
        else:
            width = np.dtype(f"u{element.numpy.itemsize}")
            array = codes.astype(width).view(element.numpy)
    elif field == "float_data":
        array = np.array(values, np.float32).view(element.numpy)
    elif field == "double_data":
        array = np.array(values, np.float64).view(element.numpy)
    else:
        array = np.array(values, element.numpy)
    return ConstantData(element, shape, array.reshape(shape))


def tensor_to_proto(data: ConstantData, name: str = "") -> Proto:
    """The TensorProto of a constant, in raw form (strings aside)."""
    proto = TensorProto(data_type=data.dtype.code, dims=data.shape)
    if name:
        proto.name = name
    if data.dtype.kind == "string":
        proto.string_data.extend(np.broadcast_to(data.stored(), data.shape).reshape(-1).tolist())
    else:
        proto.raw_data = bytes(data.raw())
    return proto


def sparse_from_proto(proto: Proto, external: ExternalReader | None = None) -> SparseAttr:
    """The sparse constant that a SparseTensorProto holds.

    Raises:
        LoadError: if indices lie outside, or its parts do not fit.
    """
    values, indices = tensor_from_proto(proto.values, external), tensor_from_proto(proto.indices, external)
    dims = tuple(proto.dims)
    if any(d < 0 for d in dims):
        raise LoadError(f"a sparse tensor has the shape {list(dims)}")
    if len(values.shape) != 1 or len(indices.shape) not in (1, 2) or indices.shape[0] != values.shape[0]:
        raise LoadError(f"a sparse tensor has values {list(values.shape)} and indices {list(indices.shape)}")
    if indices.dtype is not dtype("int64"):
        raise LoadError(f"the indices of a sparse tensor are {indices.dtype}, expected int64")
    if math.prod(dims) >= 1 << 63:
        raise LoadError(f"a sparse tensor of shape {list(dims)} has more elements than can be counted")
    bounds = np.array(dims if len(indices.shape) == 2 else math.prod(dims), np.int64)
    array = indices.array()
    if array.ndim == 2 and array.shape[1] != len(dims):
        raise LoadError(f"a sparse tensor of rank {len(dims)} has indices of shape {list(indices.shape)}")
    if array.size and bool(((array < 0) | (array >= bounds)).any()):
        raise LoadError(f"an index of a sparse tensor of shape {list(dims)} lies outside")
    matrix = array.ndim == 2 and array.size > 0
    flat = cast(Any, np.ravel_multi_index(tuple(array.T), dims)) if matrix else array.reshape(-1)
    if bool((flat[1:] <= flat[:-1]).any()):
        raise LoadError(f"the indices of a sparse tensor of shape {list(dims)} are not in ascending order, each once")
    return SparseAttr(TensorAttr.of(values), TensorAttr.of(indices), DenseArrayBase.from_list(i64, list(dims)))


def sparse_to_proto(attr: SparseAttr, name: str = "") -> Proto:
    """The SparseTensorProto of a sparse constant."""
    proto = SparseTensorProto(dims=attr.shape)
    proto.values.CopyFrom(tensor_to_proto(attr.values.data, name))
    proto.indices.CopyFrom(tensor_to_proto(attr.indices.data))
    return proto


# Attributes

_NUMBERS = {name: field.number for name, field in AttributeProto.DESCRIPTOR.fields_by_name.items()}
_NAMING_FIELDS = frozenset(_NUMBERS[name] for name in ("name", "ref_attr_name", "doc_string", "type"))
_VALUE_FIELDS = {
    kind: _NUMBERS[{"INT": "i", "FLOAT": "f", "STRING": "s", "TENSOR": "t", "TYPE_PROTO": "tp"}.get(kind, kind.lower())]
    for kind in (
        "INT FLOAT STRING TENSOR TYPE_PROTO SPARSE_TENSOR INTS FLOATS STRINGS TENSORS SPARSE_TENSORS TYPE_PROTOS"
    ).split()
}
"""Kind -> the number of the field that holds its value."""


def attr_from_proto(proto: Proto, external: ExternalReader | None = None) -> Attribute:
    """The attribute of an AttributeProto that holds no graphs.

    Raises:
        LoadError: if its kind is missing or unknown.
    """
    kind = AttributeProto.AttributeType.Name(proto.type)
    own = _VALUE_FIELDS.get(kind)
    for descriptor, _ in proto.ListFields():
        if descriptor.number not in _NAMING_FIELDS and descriptor.number != own:
            raise LoadError(f"attribute '{proto.name}' is of kind {kind}, but has a value in '{descriptor.name}'")
    if proto.ref_attr_name:
        return RefAttr(text_attr(proto.ref_attr_name), StringAttr(kind))
    match kind:
        case "INT":
            return int_attr(proto.i)
        case "FLOAT":
            return to_attr("FLOAT", proto.f)
        case "STRING":
            return string(proto.s)
        case "INTS":
            return DenseArrayBase.from_list(i64, list(proto.ints))
        case "FLOATS":
            return FloatsAttr.of(list(proto.floats))
        case "STRINGS":
            return strings(proto.strings)
        case "TENSOR":
            return TensorAttr.of(tensor_from_proto(proto.t, external))
        case "SPARSE_TENSOR":
            return sparse_from_proto(proto.sparse_tensor, external)
        case "TYPE_PROTO":
            return type_from_proto(proto.tp)
        case "TENSORS":
            return _list("TENSORS", [TensorAttr.of(tensor_from_proto(t, external)) for t in proto.tensors])
        case "SPARSE_TENSORS":
            return _list("SPARSE_TENSORS", [sparse_from_proto(t, external) for t in proto.sparse_tensors])
        case "TYPE_PROTOS":
            return _list("TYPE_PROTOS", [type_from_proto(t) for t in proto.type_protos])
        case _:
            raise LoadError(f"attribute '{proto.name}' is of kind {kind}")


def _list(kind: str, items: list[Attribute]) -> ListAttr:
    return ListAttr(StringAttr(kind), ArrayAttr(items))


def attr_to_proto(name: str, attr: Attribute) -> Proto:
    """The AttributeProto of an attribute."""
    kind = kind_of(attr)
    proto = AttributeProto(name=name, type=cast(Any, AttributeProto.AttributeType.Value(kind)))
    value = cast(Any, attr)
    if isinstance(attr, RefAttr):
        proto.ref_attr_name = text_of(attr.attribute)
        return proto
    match kind:
        case "INT":
            proto.i = value.value.data
        case "FLOAT":
            proto.f = value.value.data
        case "STRING":
            proto.s = text_of(attr).encode("utf-8", "surrogateescape")
        case "INTS":
            proto.ints.extend(value.get_values())
        case "FLOATS":
            proto.floats.extend(value.data)
        case "STRINGS":
            proto.strings.extend(text_of(s).encode("utf-8", "surrogateescape") for s in value.data)
        case "TENSOR":
            proto.t.CopyFrom(tensor_to_proto(value.data))
        case "SPARSE_TENSOR":
            proto.sparse_tensor.CopyFrom(sparse_to_proto(value))
        case "TYPE_PROTO":
            proto.tp.CopyFrom(type_to_proto(attr))
        case "TENSORS":
            proto.tensors.extend(tensor_to_proto(t.data) for t in value.items.data)
        case "SPARSE_TENSORS":
            proto.sparse_tensors.extend(sparse_to_proto(t) for t in value.items.data)
        case "TYPE_PROTOS":
            proto.type_protos.extend(type_to_proto(t) for t in value.items.data)
        case _:
            raise TypeError(f"attribute '{name}' of kind {kind} cannot be written")
    return proto


def proto_attr(message: Proto) -> ProtoAttr:
    """A message kept verbatim."""
    return ProtoAttr.of(type(message).__name__, message.SerializeToString(deterministic=True))


def message_of(attr: ProtoAttr) -> Proto:
    """The message that ``proto_attr`` kept."""
    return getattr(onnx, attr.message.data).FromString(attr.bytes)
