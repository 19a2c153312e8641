"""Element types: one table that ties together ONNX's code, NumPy's dtype and MLIR's spelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

__all__ = ["BY_CODE", "BY_NAME", "BY_NUMPY", "DType", "dtype"]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type.

    Attributes:
        name: NumPy's name for it (``float32``, ``bfloat16``, ``string``...).
        code: its number in ``onnx.TensorProto.DataType``.
        mlir: the short spelling in text (``f32``, ``i64``, ``ui8``...).
        numpy: the NumPy dtype that carries it (strings: ``object`` arrays of ``str``).
        bits: the width of one element as stored in an ONNX file; 0 for strings.
        kind: one of ``float``, ``int``, ``uint``, ``bool``, ``complex``, ``string``.
    """

    name: str
    code: int
    mlir: str
    numpy: np.dtype
    bits: int
    kind: str

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return dtype, (self.name,)

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte in files (4- and 2-bit types)."""
        return 0 < self.bits < 8 and self.kind != "bool"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


def _table() -> tuple[DType, ...]:
    rows: list[tuple[str, int, str, object, int, str]] = [
        ("float32", 1, "f32", np.float32, 32, "float"),
        ("uint8", 2, "ui8", np.uint8, 8, "uint"),
        ("int8", 3, "i8", np.int8, 8, "int"),
        ("uint16", 4, "ui16", np.uint16, 16, "uint"),
        ("int16", 5, "i16", np.int16, 16, "int"),
        ("int32", 6, "i32", np.int32, 32, "int"),
        ("int64", 7, "i64", np.int64, 64, "int"),
        ("string", 8, "!onnx.String", np.object_, 0, "string"),
        ("bool", 9, "i1", np.bool_, 8, "bool"),
        ("float16", 10, "f16", np.float16, 16, "float"),
        ("float64", 11, "f64", np.float64, 64, "float"),
        ("uint32", 12, "ui32", np.uint32, 32, "uint"),
        ("uint64", 13, "ui64", np.uint64, 64, "uint"),
        ("complex64", 14, "complex<f32>", np.complex64, 64, "complex"),
        ("complex128", 15, "complex<f64>", np.complex128, 128, "complex"),
        ("bfloat16", 16, "bf16", ml_dtypes.bfloat16, 16, "float"),
        ("float8_e4m3fn", 17, "f8E4M3FN", ml_dtypes.float8_e4m3fn, 8, "float"),
        ("float8_e4m3fnuz", 18, "f8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz, 8, "float"),
        ("float8_e5m2", 19, "f8E5M2", ml_dtypes.float8_e5m2, 8, "float"),
        ("float8_e5m2fnuz", 20, "f8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz, 8, "float"),
        ("uint4", 21, "ui4", ml_dtypes.uint4, 4, "uint"),
        ("int4", 22, "i4", ml_dtypes.int4, 4, "int"),
        ("float4_e2m1fn", 23, "f4E2M1FN", ml_dtypes.float4_e2m1fn, 4, "float"),
        ("float8_e8m0fnu", 24, "f8E8M0FNU", ml_dtypes.float8_e8m0fnu, 8, "float"),
        ("uint2", 25, "ui2", ml_dtypes.uint2, 2, "uint"),
        ("int2", 26, "i2", ml_dtypes.int2, 2, "int"),
        ("float6_e2m3fn", 27, "f6E2M3FN", ml_dtypes.float6_e2m3fn, 6, "float"),
        ("float6_e3m2fn", 28, "f6E3M2FN", ml_dtypes.float6_e3m2fn, 6, "float"),
    ]
    return tuple(DType(n, c, m, np.dtype(cast(Any, d)), b, k) for n, c, m, d, b, k in rows)


_ALL = _table()
BY_CODE: dict[int, DType] = {d.code: d for d in _ALL}
BY_NAME: dict[str, DType] = {d.name: d for d in _ALL}
BY_MLIR: dict[str, DType] = {d.mlir: d for d in _ALL}
BY_NUMPY: dict[np.dtype, DType] = {d.numpy: d for d in _ALL}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "str": "string", "int": "int64"}


def dtype(what: object) -> DType:
    """The element type named by an ONNX code, a name (``"float32"``), a NumPy dtype or a DType.

    Raises:
        TypeError: if there is no such element type in ONNX.
    """
    if isinstance(what, DType):
        return what
    if isinstance(what, str):
        found = BY_NAME.get(_ALIASES.get(what, what)) or BY_MLIR.get(what)
        if found is not None:
            return found
    elif isinstance(what, int) and not isinstance(what, bool):
        found = BY_CODE.get(what)
        if found is not None:
            return found
        raise TypeError(f"{what} is no element type of ONNX")
    try:
        np_dtype = np.dtype(what)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"{what!r} is no element type of ONNX") from error
    if np_dtype.kind in "US":
        return BY_NAME["string"]
    found = BY_NUMPY.get(np_dtype.newbyteorder("="))
    if found is None:
        raise TypeError(f"{what!r} is no element type of ONNX")
    return found
