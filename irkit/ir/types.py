"""Value types: builtin tensors with symbolic sizes in their encoding; ONNX's sequences, optionals, maps, sparse ones.

Tensor types are interned: ``tensor("float32", (1, "N"))`` returns one object per type, so that comparing and hashing
types costs nothing in the hot paths. Types that xDSL's own parser makes are equal to the interned ones; ``intern``
maps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    BytesAttr,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    NoneAttr,
    NoneType,
    Signedness,
    StringAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from irkit.errors import VerifyError
from irkit.ir.dtypes import BY_NAME, DType, dtype

__all__ = [
    "Dim",
    "DimsAttr",
    "MapType",
    "OpaqueType",
    "OptType",
    "SeqType",
    "Shape",
    "SparseType",
    "StringType",
    "TensorInfo",
    "UnknownType",
    "absent_type",
    "dtype_of",
    "element_type",
    "intern",
    "is_tensor",
    "scalar_dims",
    "shape_of",
    "tensor",
    "tensor_info",
    "unknown",
]

Dim = int | str | None
Shape = tuple[Dim, ...]
"""Per axis: a size, the name (or expression) of a symbolic size, or None where nothing is known."""


@irdl_attr_definition
class DimsAttr(Data[tuple[str, ...]]):
    """The encoding of a tensor type: per axis the symbolic size as the file wrote it, ``""`` where there is none.

    ``tensor<?x3xf32, #onnx.dims<["N", ""]>>``
    """

    name = "onnx.dims"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, ...]:
        with parser.in_angle_brackets():
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_text(parser)))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets(), printer.in_square_brackets():
            printer.print_list(self.data, printer.print_string_literal)


def parse_text(parser: AttrParser) -> str:
    """A string literal as text; xDSL hands back bytes where it isn't ASCII."""
    found = parser.parse_optional_attribute()
    if isinstance(found, StringAttr):
        return found.data
    data = getattr(found, "data", None)
    if isinstance(data, bytes):
        return data.decode("utf-8", "surrogateescape")
    return parser.raise_error("expected a string literal")


@irdl_attr_definition
class StringType(ParametrizedAttribute, TypeAttribute):
    """The element type of string tensors: ``tensor<2x!onnx.String>``."""

    name = "onnx.String"


@irdl_attr_definition
class UnknownType(ParametrizedAttribute, TypeAttribute):
    """The type of a value about which nothing is known (inside functions, results of foreign ops)."""

    name = "onnx.Unknown"


@irdl_attr_definition
class SeqType(ParametrizedAttribute, TypeAttribute):
    """A sequence: ``!onnx.Seq<tensor<*xf32>>``."""

    name = "onnx.Seq"
    element: Attribute = param_def()


@irdl_attr_definition
class OptType(ParametrizedAttribute, TypeAttribute):
    """An optional: ``!onnx.Opt<tensor<*xf32>>``."""

    name = "onnx.Opt"
    element: Attribute = param_def()


@irdl_attr_definition
class MapType(ParametrizedAttribute, TypeAttribute):
    """A map: ``!onnx.Map<i64, tensor<f32>>``; keys are integers or strings."""

    name = "onnx.Map"
    key: Attribute = param_def()
    value: Attribute = param_def()


@irdl_attr_definition
class SparseType(ParametrizedAttribute, TypeAttribute):
    """A sparse tensor: ``!onnx.Sparse<tensor<10x10xf32>>``."""

    name = "onnx.Sparse"
    tensor: Attribute = param_def()


@irdl_attr_definition
class OpaqueType(ParametrizedAttribute, TypeAttribute):
    """A foreign type, named by domain and name."""

    name = "onnx.Opaque"
    domain: StringAttr | BytesAttr = param_def()
    type_name: StringAttr | BytesAttr = param_def()


def _element_types() -> dict[str, Attribute]:
    made: dict[str, Attribute] = {
        "float32": Float32Type(),
        "float64": Float64Type(),
        "float16": Float16Type(),
        "bfloat16": BFloat16Type(),
        "float8_e4m3fn": Float8E4M3FNType(),
        "float8_e4m3fnuz": Float8E4M3FNUZType(),
        "float8_e5m2": Float8E5M2Type(),
        "float8_e5m2fnuz": Float8E5M2FNUZType(),
        "float8_e8m0fnu": Float8E8M0FNUType(),
        "float4_e2m1fn": Float4E2M1FNType(),
        "float6_e2m3fn": Float6E2M3FNType(),
        "float6_e3m2fn": Float6E3M2FNType(),
        "complex64": ComplexType(Float32Type()),
        "complex128": ComplexType(Float64Type()),
        "string": StringType(),
        "bool": IntegerType(1),
    }
    for bits in (2, 4, 8, 16, 32, 64):
        made[f"int{bits}"] = IntegerType(bits)
        made[f"uint{bits}"] = IntegerType(bits, Signedness.UNSIGNED)
    return made


_ELEMENTS: dict[DType, Attribute] = {BY_NAME[name]: t for name, t in _element_types().items()}
_DTYPES: dict[Attribute, DType] = {t: d for d, t in _ELEMENTS.items()}


class TensorInfo(NamedTuple):
    """What a tensor type says: its element type, and its shape (None where the rank is unknown)."""

    dtype: DType
    shape: Shape | None


MAX_SIZE = (1 << 63) - 1

unknown = UnknownType()
absent_type = NoneType()
_INTERNED: dict[tuple[DType, Shape | None], Attribute] = {}
_OTHERS: dict[Attribute, Attribute] = {unknown: unknown, absent_type: absent_type}


def element_type(what: object) -> Attribute:
    """The MLIR element type of an ONNX dtype."""
    return _ELEMENTS[dtype(what)]


def tensor(element: object, shape: Sequence[Dim] | None) -> Attribute:
    """The tensor type of this dtype and shape; ``shape=None`` is an unknown rank.

    Args:
        element: a dtype in any spelling that ``irkit.ir.dtypes.dtype`` takes.
        shape: per axis an int, the name of a symbolic size, or None.
    """
    info = TensorInfo(dtype(element), None if shape is None else tuple(None if d == "" else d for d in shape))
    found = _INTERNED.get(info)
    if found is None:
        wrong = [d for d in info.shape or () if isinstance(d, int) and not 0 <= d <= MAX_SIZE]
        if wrong:
            raise VerifyError(
                f"a tensor has no size {wrong[0]}", hint=f"sizes are 0 to {MAX_SIZE}, as int64 holds them"
            )
        found = _INTERNED[info] = _make_tensor(info)
        object.__setattr__(found, "_info", info)
        object.__setattr__(found, "_interned", True)
    return found


def _make_tensor(info: TensorInfo) -> Attribute:
    element = _ELEMENTS[info.dtype]
    if info.shape is None:
        return UnrankedTensorType(element)
    sizes = [d if isinstance(d, int) else DYNAMIC_INDEX for d in info.shape]
    if any(isinstance(d, str) for d in info.shape):
        return TensorType(element, sizes, DimsAttr(tuple(d if isinstance(d, str) else "" for d in info.shape)))
    return TensorType(element, sizes)


def tensor_info(value_type: Attribute) -> TensorInfo | None:
    """The dtype and shape of a tensor type, or None for any other type."""
    try:
        return cast("TensorInfo | None", value_type._info)  # type: ignore[attr-defined]
    except AttributeError:
        info = _read_info(value_type)
        object.__setattr__(value_type, "_info", info)
        return info


def _read_info(value_type: Attribute) -> TensorInfo | None:
    if isinstance(value_type, UnrankedTensorType):
        found = _DTYPES.get(cast("UnrankedTensorType[Attribute]", value_type).element_type)
        return None if found is None else TensorInfo(found, None)
    if not isinstance(value_type, TensorType):
        return None
    ranked = cast("TensorType[Attribute]", value_type)
    found = _DTYPES.get(ranked.element_type)
    if found is None:
        return None
    shape: list[Dim] = [None if d == DYNAMIC_INDEX else d for d in ranked.get_shape()]
    if isinstance(ranked.encoding, DimsAttr) and len(ranked.encoding.data) == len(shape):
        shape = [(text or None) if d is None else d for d, text in zip(shape, ranked.encoding.data, strict=True)]
    return TensorInfo(found, tuple(shape))


def intern(value_type: Attribute) -> Attribute:
    """The one object that stands for this type."""
    if getattr(value_type, "_interned", False):
        return value_type
    info = tensor_info(value_type)
    if info is not None:
        made = tensor(info.dtype, info.shape)
        # An encoding of someone else's is kept as it is.
        if isinstance(value_type, UnrankedTensorType) or isinstance(
            cast("TensorType[Attribute]", value_type).encoding, DimsAttr | NoneAttr
        ):
            return made
    found = _OTHERS.setdefault(value_type, value_type)
    object.__setattr__(found, "_interned", True)
    return found


def is_tensor(value_type: Attribute) -> bool:
    """Whether this is a (dense) tensor type of an ONNX dtype."""
    return tensor_info(value_type) is not None


def dtype_of(value_type: Attribute) -> DType | None:
    """The dtype of a tensor type; None for other types."""
    info = tensor_info(value_type)
    return None if info is None else info.dtype


def shape_of(value_type: Attribute) -> Shape | None:
    """The shape of a tensor type; None for other types and for unknown ranks."""
    info = tensor_info(value_type)
    return None if info is None else info.shape


def scalar_dims(value_type: Attribute) -> tuple[int, ...] | None:
    """The shape where every size is a known number, else None."""
    shape = shape_of(value_type)
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return cast("tuple[int, ...]", shape)
