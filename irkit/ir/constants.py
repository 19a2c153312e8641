"""Constants: an attribute that holds a read-only array, exact to the bit, and cheap whatever its size.

``ConstantData`` is the payload: an array (possibly mapped from a file), or a *splat*, one element that fills a shape
without being stored more than once. ``TensorAttr`` is the attribute around it. Text forms, by size:

    #onnx.tensor<tensor<3xi64>, [1, -1, 5]>                     few elements, as literals (exact, else as hex bits)
    #onnx.tensor<tensor<1000x1000xf32>, splat 0.0>              one element everywhere
    #onnx.tensor<tensor<64xf32>, "c2FtcGxl...">                 base64 of the little-endian bytes, as ONNX packs them
    #onnx.tensor<tensor<64x3x7x7xf32>, digest "5f2b...">        SHA-256; the bytes are in a sidecar, or this process
    #onnx.tensor<tensor<64x3x7x7xf32>, elided>                  not there: to look at, not to run
"""

from __future__ import annotations

import base64
import hashlib
import math
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, BytesAttr, DenseArrayBase, StringAttr
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from irkit.errors import ParseError
from irkit.ir.dtypes import DType, dtype
from irkit.ir.types import parse_text, scalar_dims, tensor, tensor_info

__all__ = [
    "ConstantData",
    "FloatsAttr",
    "ListAttr",
    "ProtoAttr",
    "RefAttr",
    "SparseAttr",
    "TensorAttr",
    "TextOptions",
    "constant",
    "pack_bits",
    "resolving",
    "text_options",
    "unpack_bits",
]

Array = np.ndarray[Any, Any]
HASHED_BYTES = 64


def pack_bits(array: Array, bits: int) -> bytes:
    """Elements of 2, 4 or 6 bits as ONNX stores them: one stream of bits, the first element in the lowest ones."""
    codes = array.reshape(-1).view(np.uint8)
    if bits == 6:
        stream = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
        return np.packbits(stream.reshape(-1), bitorder="little").tobytes()
    per_byte = 8 // bits
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    padded[: codes.size] = codes & ((1 << bits) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    return cast(Array, np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)).astype(np.uint8).tobytes()


def unpack_bits(data: Any, count: int, kind: DType) -> Array:
    """The inverse of ``pack_bits``: a flat array of ``count`` elements.

    Signed integers come sign-extended, as ml_dtypes holds them.
    """
    codes = np.frombuffer(data, np.uint8)
    if kind.bits == 6:
        stream = np.unpackbits(codes, count=6 * count, bitorder="little").reshape(count, 6)
        return np.packbits(stream, axis=1, bitorder="little").reshape(-1).view(kind.numpy)
    shifts = np.arange(8 // kind.bits, dtype=np.uint8) * kind.bits
    mask = (1 << kind.bits) - 1
    flat = ((codes[:, None] >> shifts) & mask).reshape(-1)[:count]
    if kind.kind == "int":
        sign = 1 << (kind.bits - 1)
        flat = ((flat ^ sign).astype(np.int8) - np.int8(sign)).view(np.uint8)
    return flat.view(kind.numpy)


class ConstantData:
    """A constant tensor: dtype, shape, and its elements, read when asked for.

    Args:
        kind: the element type.
        shape: the sizes.
        array: the elements, of ``kind.numpy``; of shape ``shape``, or 0-d for a splat. Strings: an object array of
            ``bytes``, since ONNX strings need not be UTF-8.
        source: where the elements stand, if anywhere.
        digest: the digest, where a file claims to know it; by default it is computed when asked for.

    Two are equal when dtype, shape and every bit agree. The hash reads at most 64 bytes.
    """

    __slots__ = ("__weakref__", "_array", "_digest", "_hash", "dtype", "shape", "source")

    def __init__(
        self,
        kind: DType,
        shape: tuple[int, ...],
        array: Array,
        source: object = None,
        digest: str | None = None,
    ) -> None:
        if array.dtype != kind.numpy:
            raise TypeError(f"a constant of {kind} cannot hold an array of {array.dtype}")
        if array.shape not in (shape, ()):
            raise ValueError(f"a constant of shape {shape} cannot hold an array of shape {array.shape}")
        view = array.view()
        view.flags.writeable = False
        self.dtype = kind
        self.shape = shape
        self.source = source
        self._array = view
        self._digest = digest
        self._hash: int | None = None

    @property
    def is_splat(self) -> bool:
        """Whether one stored element fills the whole shape."""
        return self._array.shape == () and self.shape != ()

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take in an ONNX file (strings: the sum of their lengths)."""
        if self.dtype.kind == "string":
            stored = sum(len(s) for s in self._array.reshape(-1))
            return stored * (self.size if self.is_splat else 1)
        return -(-self.size * self.dtype.bits // 8)

    @property
    def stored_nbytes(self) -> int:
        """The bytes really held: one element for a splat."""
        return self._array.nbytes

    @property
    def element(self) -> Array:
        """The 0-d array that a splat repeats.

        Raises:
            ValueError: if this is no splat.
        """
        if self._array.shape != ():
            raise ValueError("not a splat")
        return self._array

    def stored(self) -> Array:
        """The array as held: read-only; 0-d for a splat; strings as ``bytes``."""
        return self._array

    def array(self) -> Array:
        """The elements, read-only. A splat comes as a broadcast view; strings as ``str`` (bad UTF-8 as surrogates)."""
        array = self._array
        if self.dtype.kind == "string":
            decoded = np.empty(array.shape, object)
            for index, item in enumerate(array.reshape(-1)):
                decoded.reshape(-1)[index] = item.decode("utf-8", "surrogateescape")
            decoded.flags.writeable = False
            array = decoded
        return np.broadcast_to(array, self.shape) if array.shape != self.shape else array

    def raw(self) -> memoryview:
        """The bytes as ``raw_data`` in ONNX: little-endian, C order, narrow types packed. Not for strings.

        A view without a copy where the array allows it.
        """
        if self.dtype.kind == "string":
            raise TypeError("strings have no raw form")
        array = np.broadcast_to(self._array, self.shape) if self.is_splat else self._array
        if self.dtype.bits < 8:
            return memoryview(pack_bits(np.array(array, copy=True, order="C"), self.dtype.bits))
        # reshape first: ascontiguousarray would turn 0-d into 1-d, which is what we want for bytes.
        return memoryview(cast(Any, np.ascontiguousarray(array.reshape(-1)).view(np.uint8)))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over dtype, shape and elements; computed once. Makes the constant findable in this process."""
        if self._digest is None:
            hasher = hashlib.sha256(f"{self.dtype.name}{list(self.shape)}".encode())
            if self.dtype.kind == "string":
                for item in np.broadcast_to(self._array, self.shape).reshape(-1):
                    hasher.update(len(item).to_bytes(8, "little") + item)
            else:
                hasher.update(self.raw())
            self._digest = hasher.hexdigest()
            _LIVE[self._digest] = self
        # A digest that was only claimed never takes the place of one that was computed.
        _LIVE.setdefault(self._digest, self)
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ConstantData) or self.dtype is not other.dtype or self.shape != other.shape:
            return False
        mine, theirs = self._array, other._array
        if self.size == 0 or mine is theirs:
            return True
        if mine.shape == theirs.shape:
            return _same_bits(mine, theirs)
        return bool(np.all(_codes(mine) == _codes(theirs)))

    def __hash__(self) -> int:
        if self._hash is None:
            head: object = None
            if self.dtype.kind != "string" and self.size > 0 and self.nbytes <= HASHED_BYTES:
                head = self.raw().tobytes()
            self._hash = hash((self.dtype.code, self.shape, head))
        return self._hash

    def __repr__(self) -> str:
        return f"ConstantData({self.dtype}, {self.shape}{', splat' if self.is_splat else ''})"


_LIVE: weakref.WeakValueDictionary[str, ConstantData] = weakref.WeakValueDictionary()


def _codes(array: Array) -> Array:
    """The elements as unsigned integers (complex: two of them), so that equality is equality of bits."""
    if array.dtype == np.object_:
        return array
    flat = np.ascontiguousarray(array.reshape(-1)).view(np.uint8)
    bits = dtype(array.dtype).bits
    if bits < 8:
        # ml_dtypes leaves the unused bits of a narrow integer as they fall.
        return flat[:, None] & ((1 << bits) - 1)
    return flat.reshape(-1, array.dtype.itemsize)


def _same_bits(a: Array, b: Array) -> bool:
    if a.dtype == np.object_:
        return all(x == y for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True))
    left, right = _codes(a).reshape(-1), _codes(b).reshape(-1)
    step = 1 << 20
    if not np.array_equal(left[:4096], right[:4096]):
        return False
    return all(np.array_equal(left[i : i + step], right[i : i + step]) for i in range(4096, left.size, step))


def constant(value: object, element: object = None, shape: tuple[int, ...] | None = None) -> TensorAttr:
    """A constant attribute from an array, a number, a string or a (nested) list of them.

    Args:
        value: the elements. The array is copied, since constants never change.
        element: the dtype; by default NumPy's own for ``value``.
        shape: makes a splat of that shape out of one element.
    """
    if element is None and not isinstance(value, np.ndarray | np.generic):
        texts = any(isinstance(item, str | bytes) for item in np.asarray(value, object).reshape(-1))
        element = "string" if texts else np.asarray(value).dtype
    kind = dtype(cast(Any, value).dtype if element is None else element)
    if kind.kind != "string":
        array = np.asarray(value)
        if array.dtype != kind.numpy or isinstance(value, np.ndarray):
            array = np.array(array, dtype=kind.numpy, copy=True, order="C")
    else:
        strings = np.asarray(value, object)
        array = np.empty(strings.shape, object)
        for index, item in enumerate(strings.reshape(-1)):
            if not isinstance(item, str | bytes):
                raise TypeError(f"a constant is made of numbers or strings, not of {type(item).__name__}")
            array.reshape(-1)[index] = item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
    if shape is not None and array.shape != ():
        raise ValueError(f"a splat is made of one element, not of shape {array.shape}")
    return TensorAttr.of(ConstantData(kind, array.shape if shape is None else shape, array))


@dataclass(frozen=True)
class TextOptions:
    """How constants are written as text.

    Attributes:
        literals: at most so many elements are written one by one.
        inline_bytes: at most so many bytes are written as base64.
        large: what becomes of the others: ``digest``, ``elide`` or ``inline``.
        sidecar: called with each constant that is written by digest.
    """

    literals: int = 16
    inline_bytes: int = 1024
    large: str = "digest"
    sidecar: Callable[[ConstantData], None] | None = field(default=None, compare=False)


_OPTIONS: ContextVar[TextOptions] = ContextVar("text options", default=TextOptions())  # noqa: B039 - frozen
_SIDECAR: ContextVar[Mapping[str, ConstantData]] = ContextVar("constants of the sidecar", default=MappingProxyType({}))


@contextmanager
def text_options(options: TextOptions) -> Generator[None]:
    """Prints constants by these options within the block."""
    token = _OPTIONS.set(options)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


@contextmanager
def resolving(constants: Mapping[str, ConstantData]) -> Generator[None]:
    """Resolves digests in text from this mapping within the block, then from what lives in the process."""
    token = _SIDECAR.set(constants)
    try:
        yield
    finally:
        _SIDECAR.reset(token)


def _literals(data: ConstantData, array: Array) -> list[str]:
    """Each element as text that reads back to the same bits."""
    kind, flat = data.dtype, array.reshape(-1)
    if kind.kind == "bool":
        return ["true" if x else "false" for x in flat]
    if kind.is_integer:
        return [str(int(x)) for x in flat]
    if kind.kind == "complex":
        part = "f4" if kind.bits == 64 else "f8"
        return [_float_literal(x, x.dtype) for x in flat.view(part)]
    return [_float_literal(x, kind.numpy) for x in flat]


def _float_literal(x: Any, kind: np.dtype[Any]) -> str:
    value = float(x)
    if math.isfinite(value):
        text = str(x) if kind.name in ("float32", "float64") else repr(value)
        mantissa, _, exponent = text.partition("e")
        text = (mantissa if "." in mantissa else mantissa + ".0") + (f"e{exponent}" if exponent else "")
        if np.array(float(text)).astype(kind).tobytes() == np.asarray(x).tobytes():
            return text
    width = kind.itemsize * 2
    return f"0x{int.from_bytes(np.asarray(x).tobytes(), 'little'):0{width}X}"


def _bytes_literal(item: bytes) -> str:
    plain = (chr(b) if 0x20 <= b <= 0x7E and b not in b'\\"' else "\\\\" if b == 0x5C else f"\\{b:02X}" for b in item)
    return f'"{"".join(plain)}"'


def payload_text(data: ConstantData) -> str:
    """What stands after the type in ``#onnx.tensor<type, ...>``, by the options in force."""
    options = _OPTIONS.get()
    if data.is_splat and data.size > 0:
        if data.dtype.kind == "string":
            return f"splat {_bytes_literal(data.element.item())}"
        return f"splat {', '.join(_literals(data, data.element))}"
    if data.dtype.kind == "string":
        if data.nbytes <= options.inline_bytes or options.large == "inline":
            return f"[{', '.join(_bytes_literal(s) for s in data.stored().reshape(-1))}]"
    elif data.size <= options.literals:
        return f"[{', '.join(_literals(data, data.stored() if data.size else np.empty(0, data.dtype.numpy)))}]"
    elif data.nbytes <= options.inline_bytes or options.large == "inline":
        return f'"{base64.b64encode(data.raw()).decode()}"'
    if options.large == "elide":
        return "elided"
    text = f'digest "{data.digest}"'
    if options.sidecar is not None:
        options.sidecar(data)
    return text


@irdl_attr_definition
class TensorAttr(Data[ConstantData]):
    """A constant tensor. See the module's docstring for its text forms."""

    name = "onnx.tensor"

    @classmethod
    def of(cls, data: ConstantData) -> TensorAttr:
        """The attribute that holds this payload."""
        return cls(data)

    @property
    def type(self) -> Attribute:
        """The tensor type of the constant."""
        return tensor(self.data.dtype, self.data.shape)

    def array(self) -> Array:
        """The elements, read-only (see ``ConstantData.array``)."""
        return self.data.array()

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.type)
            printer.print_string(", ")
            printer.print_string(payload_text(self.data))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ConstantData:
        with parser.in_angle_brackets():
            start = parser.pos
            value_type = parser.parse_type()
            info, shape = tensor_info(value_type), scalar_dims(value_type)
            if info is None or shape is None:
                parser.raise_error("a constant needs a tensor type with known sizes", start, parser.pos)
            parser.parse_punctuation(",")
            return _parse_payload(parser, info.dtype, shape)


def _parse_payload(parser: AttrParser, kind: DType, shape: tuple[int, ...]) -> ConstantData:
    count = math.prod(shape)
    if parser.parse_optional_keyword("elided") is not None:
        raise ParseError(
            f"a constant of {kind}{list(shape)} was elided from this text, so it cannot be read back",
            hint="print with constants='digest' and a sidecar, or constants='inline'",
        )
    if parser.parse_optional_keyword("digest") is not None:
        return resolve_digest(parser.parse_str_literal(), kind, shape)
    if parser.parse_optional_keyword("splat") is not None:
        return ConstantData(kind, shape, _parse_element(parser, kind))
    text = parser.parse_optional_str_literal()
    if text is not None:
        return decode_base64(text, kind, shape)
    parts: list[Array] = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: _parse_element(parser, kind)
    )
    if len(parts) != count:
        parser.raise_error(f"{kind}{list(shape)} has {count} elements, but {len(parts)} are listed")
    array = np.empty(count, kind.numpy)
    for index, part in enumerate(parts):
        array[index] = part.item() if kind.kind == "string" else part
    return ConstantData(kind, shape, array.reshape(shape))


def decode_base64(text: str, kind: DType, shape: tuple[int, ...]) -> ConstantData:
    """The constant whose packed bytes are given as base64.

    Raises:
        ParseError: if the number of bytes does not fit the type.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ParseError(f"a constant of {kind}{list(shape)} is no base64: {error}") from error
    return from_raw(data, kind, shape)


def from_raw(
    data: Any, kind: DType, shape: tuple[int, ...], source: object = None, digest: str | None = None
) -> ConstantData:
    """The constant over these bytes (little-endian, C order, narrow types packed), without copying where possible.

    Raises:
        ParseError: if the number of bytes does not fit the type.
    """
    count = math.prod(shape)
    expected, found = -(-count * kind.bits // 8), memoryview(data).nbytes
    if expected != found:
        raise ParseError(f"a tensor of {kind}{list(shape)} takes {expected} bytes, but {found} are given")
    if kind.bits < 8:
        return ConstantData(kind, shape, unpack_bits(data, count, kind).reshape(shape), source, digest)
    return ConstantData(kind, shape, np.frombuffer(data, kind.numpy, count).reshape(shape), source, digest)


def resolve_digest(digest: str, kind: DType, shape: tuple[int, ...]) -> ConstantData:
    """The constant of this digest, from the sidecar in force or from those alive in this process.

    Raises:
        ParseError: if there is none, or if it is of another type.
    """
    found = _SIDECAR.get().get(digest) or _LIVE.get(digest)
    if found is None:
        raise ParseError(
            f"a constant of {kind}{list(shape)} is given by its digest {digest[:12]}..., but no sidecar has it",
            hint="keep the .safetensors file beside the .mlir file, or print with constants='inline'",
        )
    if found.dtype is not kind or found.shape != shape:
        raise ParseError(f"digest {digest[:12]}... is {found.dtype}{list(found.shape)}, not {kind}{list(shape)}")
    return found


def _parse_element(parser: AttrParser, kind: DType) -> Array:
    if kind.kind == "string":
        array = np.empty((), object)
        array[()] = parse_text(parser).encode("utf-8", "surrogateescape")
        return array
    if kind.kind == "complex":
        real = _parse_number(parser, np.dtype("f4" if kind.bits == 64 else "f8"))
        if parser.parse_optional_punctuation(",") is None:
            parser.raise_error("expected the imaginary part")
        imag = _parse_number(parser, real.dtype)
        return np.array([real, imag]).view(kind.numpy).reshape(())
    return _parse_number(parser, kind.numpy)


def _parse_number(parser: AttrParser, kind: np.dtype[Any]) -> Array:
    start = parser.pos
    found: Any = parser.parse_optional_boolean()
    if found is None:
        found = parser.parse_number()
    text = parser.lexer.input.content[start : parser.pos].strip()
    try:
        return number(text, found, kind)
    except (OverflowError, ValueError):
        parser.raise_error(f"{text} is no element of {dtype(kind)}", start, parser.pos)


def number(text: str, value: Any, kind: np.dtype[Any]) -> Array:
    """An element from its literal: hex stands for the bits of a float, everything else for its value.

    Raises:
        OverflowError, ValueError: if there is no such element.
    """
    described = dtype(kind)
    if described.is_float:
        if text.startswith("0x"):
            return np.frombuffer(int(text, 16).to_bytes(kind.itemsize, "little"), kind).reshape(())
        return np.array(float(value)).astype(kind)
    if described.kind == "bool":
        low, high = 0, 1
    elif described.kind == "int":
        low, high = -(1 << (described.bits - 1)), (1 << (described.bits - 1)) - 1
    else:
        low, high = 0, (1 << described.bits) - 1
    if isinstance(value, float) or not low <= value <= high:
        raise ValueError(f"{text} is no {described}")
    return np.array(value).astype(kind)


@irdl_attr_definition
class FloatsAttr(Data[tuple[float, ...]]):
    """A list of float32 numbers, exact: ``#onnx.floats<[1.0, 0x7F800000]>`` (ONNX's FLOATS attribute)."""

    name = "onnx.floats"

    @staticmethod
    def of(values: Any) -> FloatsAttr:
        """The attribute for these numbers, rounded to float32."""
        return FloatsAttr(tuple(np.asarray(values, np.float32).tolist()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatsAttr) and self._bits() == other._bits()

    def __hash__(self) -> int:
        return hash(self._bits())

    def _bits(self) -> bytes:
        return np.asarray(self.data, np.float32).tobytes()

    def print_parameter(self, printer: Printer) -> None:
        literals = [_float_literal(x, x.dtype) for x in np.asarray(self.data, np.float32)]
        printer.print_string(f"<[{', '.join(literals)}]>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[float, ...]:
        with parser.in_angle_brackets():
            found: list[Array] = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: _parse_number(parser, np.dtype(np.float32))
            )
            return tuple(float(x) for x in found)


@irdl_attr_definition
class SparseAttr(ParametrizedAttribute):
    """A sparse tensor in coordinate form, as ONNX has it: values, indices (flat or per axis), and sizes."""

    name = "onnx.sparse"

    values: TensorAttr = param_def()
    indices: TensorAttr = param_def()
    dims: DenseArrayBase = param_def()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dense tensor."""
        return tuple(int(d) for d in cast(Any, self.dims).get_values())

    @property
    def dense_type(self) -> Attribute:
        """The type of the dense tensor."""
        return tensor(self.values.data.dtype, self.shape)

    def array(self) -> Array:
        """The dense tensor.

        Raises:
            ValueError: if an index lies outside.
        """
        dense = np.zeros(self.shape, self.values.data.dtype.numpy)
        values, indices = self.values.array(), self.indices.array()
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), self.shape) if len(indices) else indices.reshape(-1)
        dense.reshape(-1)[indices] = values
        return dense


@irdl_attr_definition
class RefAttr(ParametrizedAttribute):
    """Inside a function: a reference to the attribute that the caller gives. ``#onnx.ref<"alpha", "FLOAT">``"""

    name = "onnx.ref"

    attribute: StringAttr | BytesAttr = param_def()
    kind: StringAttr = param_def()


@irdl_attr_definition
class ProtoAttr(ParametrizedAttribute):
    """A protobuf message kept verbatim (base64), for what the IR does not model."""

    name = "onnx.proto"

    message: StringAttr = param_def()
    content: StringAttr = param_def()

    @staticmethod
    def of(message: str, content: bytes) -> ProtoAttr:
        """The attribute that holds this serialized message."""
        return ProtoAttr(StringAttr(message), StringAttr(base64.b64encode(content).decode()))

    @property
    def bytes(self) -> bytes:
        """The serialized message."""
        return base64.b64decode(self.content.data)


@irdl_attr_definition
class ListAttr(ParametrizedAttribute):
    """A list of tensors, sparse tensors or types, which says of which kind it is even when empty."""

    name = "onnx.list"

    kind: StringAttr = param_def()
    items: ArrayAttr[Attribute] = param_def()
