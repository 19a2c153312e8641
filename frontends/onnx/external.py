"""External data of ONNX models: mapped from files inside the model's folder, never read on load."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from irkit.errors import LoadError, ParseError
from irkit.ir.constants import ConstantData, from_raw
from irkit.ir.dtypes import BY_CODE
from irkit.ir.files import contained_path, map_bytes

__all__ = ["reader"]

SMALL = 4096
"""Tensors of at most so many bytes are copied out of the file, so that their file may be changed afterwards."""


def reader(folder: Path) -> Any:
    """The function that reads a tensor with external data standing under this folder.

    Its result holds a read-only memory map; sizes and offsets are checked against the file.
    """

    def read(proto: Any) -> ConstantData:
        label = f"tensor '{proto.name}'"
        entries = {entry.key: entry.value for entry in proto.external_data}
        kind = BY_CODE.get(proto.data_type)
        if kind is None or kind.kind == "string":
            raise LoadError(f"{label} of element type {proto.data_type} cannot have its data in another file")
        shape = tuple(proto.dims)
        expected = -(-math.prod(shape) * kind.bits // 8)
        offset = _number(entries, "offset", label) or 0
        length = _number(entries, "length", label)
        if length is not None and length != expected:
            raise LoadError(
                f"{label} of {kind}{list(shape)} takes {expected} bytes, but its length is given as {length}"
            )
        if expected >= 1 << 62:
            raise LoadError(f"{label} of {kind}{list(shape)} is larger than any file")
        path = contained_path(folder, entries.get("location", ""))
        data = map_bytes(path, offset, expected, label)
        try:
            return from_raw(data if expected > SMALL else data.tobytes(), kind, shape, source=(path.name, offset))
        except ParseError as error:
            raise LoadError(f"{label}: {error.message}") from None

    return read


def _number(entries: dict[str, str], key: str, label: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not text.isdigit() or len(text) > 19:
        raise LoadError(f"{label} has the {key} {text!r}, expected a number")
    return int(text)
