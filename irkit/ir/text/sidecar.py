"""Sidecars: the constants that a text names by digest, in a safetensors file.

Every constant is a flat ``U8`` tensor under its digest: the bytes as ONNX packs them, so that no dtype needs a name in
safetensors. Its own dtype and shape stand in ``__metadata__``, as ``"int4[3, 5]"``. Strings are stored as their
lengths (little-endian, 64 bits each), then their bytes. Offsets are aligned, so that arrays are views of the mapping.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from irkit.errors import LoadError, SaveError
from irkit.ir.constants import ConstantData, from_raw
from irkit.ir.dtypes import BY_NAME, DType

__all__ = ["MAX_HEADER", "Sidecar", "write_sidecar"]

MAX_HEADER = 100_000_000
"""A longer header is refused, as the safetensors library refuses it."""

ALIGNMENT = 64
_CHUNK = 1 << 24
_TYPE = re.compile(r"(\w+)\[((?:\d+(?:, \d+)*)?)\]", re.ASCII).fullmatch


def write_sidecar(file: BinaryIO, constants: Iterable[ConstantData]) -> None:
    """Writes constants; the order in which they are given does not matter.

    Raises:
        SaveError: if two different constants claim one digest, or the header would grow past what readers accept.
    """
    found: dict[str, ConstantData] = {}
    for data in constants:
        if found.setdefault(data.digest, data) != data:
            raise SaveError(f"two different constants claim the digest {data.digest}")
    sizes = {digest: _stored_size(data) for digest, data in found.items()}
    # The most aligned first: each then starts at a multiple of its element's size, without any gap.
    order = sorted(found, key=lambda digest: (-_alignment(sizes[digest]), digest))
    entries: dict[str, Any] = {
        "__metadata__": {digest: f"{found[digest].dtype.name}{list(found[digest].shape)}" for digest in order}
    }
    offset = 0
    for digest in order:
        end = offset + sizes[digest]
        entries[digest] = {"dtype": "U8", "shape": [sizes[digest]], "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries, separators=(",", ":")).encode("ascii")
    header += b" " * (-(len(header) + 8) % ALIGNMENT)
    if len(header) > MAX_HEADER:
        raise SaveError(f"the sidecar's header takes {len(header)} bytes, readers accept {MAX_HEADER}")
    file.write(struct.pack("<Q", len(header)) + header)
    for digest in order:
        for part in _stored(found[digest]):
            for start in range(0, len(part), _CHUNK):
                file.write(part[start : start + _CHUNK])


def _alignment(size: int) -> int:
    return min(size & -size, ALIGNMENT) if size else ALIGNMENT


def _stored_size(data: ConstantData) -> int:
    return data.nbytes + 8 * data.size if data.dtype.kind == "string" else data.nbytes


def _stored(data: ConstantData) -> Iterator[memoryview]:
    if data.dtype.kind != "string":
        yield data.raw()
        return
    items: list[bytes] = list(np.broadcast_to(data.stored(), data.shape).reshape(-1))
    yield memoryview(np.array([len(item) for item in items], "<u8").tobytes())
    yield memoryview(b"".join(items))


class Sidecar(Mapping[str, ConstantData]):
    """The constants of a file by digest. The header is checked at once; the bytes stay in the file until they are read.

    Raises:
        LoadError: if the file is no sidecar: too short, a header too long or malformed, offsets that overlap, leave
            gaps or lie outside, a dtype or shape that does not fit the bytes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._made: dict[str, ConstantData] = {}
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                header, start = self._header(file, size)
                # A mapping of length 0 is an error; a sidecar has at least its header.
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self._error(str(error)) from None
        self._bytes = memoryview(mapped)[start:]
        self._entries = self._check(header, size - start)

    def _error(self, message: str) -> LoadError:
        return LoadError(message, where=str(self.path))

    def _header(self, file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
        if size < 8:
            raise self._error(f"{size} bytes are too few for a safetensors file")
        (length,) = struct.unpack("<Q", file.read(8))
        if length > MAX_HEADER:
            raise self._error(f"a header of {length} bytes is claimed, {MAX_HEADER} are accepted")
        if length > size - 8:
            raise self._error(f"a header of {length} bytes is claimed, but the file has {size} bytes")
        try:
            found: object = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_unique)
        except RecursionError:
            raise self._error("the header is nested too deeply") from None
        except ValueError as error:
            raise self._error(f"the header is malformed: {error}") from None
        if not isinstance(found, dict):
            raise self._error("the header is no JSON object")
        return cast("dict[str, Any]", found), 8 + length

    def _check(self, header: dict[str, Any], size: int) -> dict[str, tuple[DType, tuple[int, ...], int, int]]:
        types = header.pop("__metadata__", {})
        if not isinstance(types, dict):
            raise self._error("__metadata__ is no JSON object")
        entries: dict[str, tuple[DType, tuple[int, ...], int, int]] = {}
        for name, entry in header.items():
            label = f"the constant {name[:72]!r}"
            match entry:
                case {"dtype": "U8", "shape": [int(count)], "data_offsets": [int(start), int(end)]} if not (
                    isinstance(count, bool) or isinstance(start, bool) or isinstance(end, bool)
                ):
                    pass
                case _:
                    raise self._error(f"{label} is no flat tensor of bytes")
            if not 0 <= start <= end <= size or end - start != count:
                raise self._error(f"{label} has {count} bytes at {start} to {end}, out of {size}")
            written = cast("dict[str, Any]", types).get(name)
            read = _TYPE(written) if isinstance(written, str) else None
            kind = BY_NAME.get(read[1]) if read else None
            if read is None or kind is None or len(read[2]) > 4096:
                raise self._error(f"{label} has no dtype and shape in __metadata__, as in 'float32[2, 3]'")
            shape = tuple(int(part) for part in read[2].split(", ")) if read[2] else ()
            expected = -(-math.prod(shape) * kind.bits // 8)
            if count < 8 * math.prod(shape) if kind.kind == "string" else count != expected:
                raise self._error(f"{label} is {written}, which does not fit its {count} bytes")
            entries[name] = (kind, shape, start, end)
        position = 0
        for name, (_, _, start, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
            if start != position:
                problem = "overlaps the one before" if start < position else "leaves a gap before it"
                raise self._error(f"the constant {name[:72]!r} {problem}")
            position = end
        if position != size:
            raise self._error(f"{size - position} bytes at the end belong to no constant")
        return entries

    def __getitem__(self, digest: str) -> ConstantData:
        found = self._made.get(digest)
        if found is None:
            kind, shape, start, end = self._entries[digest]
            content = self._bytes[start:end]
            if kind.kind == "string":
                array = self._strings(digest, content, math.prod(shape)).reshape(shape)
                found = ConstantData(kind, shape, array, digest=digest)
            else:
                found = from_raw(content, kind, shape, digest=digest)
            self._made[digest] = found
        return found

    def _strings(self, digest: str, content: memoryview, count: int) -> np.ndarray[Any, Any]:
        lengths: list[int] = np.frombuffer(content, "<u8", count).tolist()
        if 8 * count + sum(lengths) != len(content):
            raise self._error(f"the strings of the constant {digest[:72]!r} do not fill their {len(content)} bytes")
        array = np.empty(count, object)
        position = 8 * count
        for index, length in enumerate(lengths):
            array[index] = bytes(content[position : position + length])
            position += length
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def verify(self) -> None:
        """Reads every byte and checks that each constant is what its digest says.

        Raises:
            LoadError: naming the first that is not.
        """
        for digest in self:
            data = self[digest]
            if ConstantData(data.dtype, data.shape, data.stored()).digest != digest:
                raise self._error(f"the bytes of the constant {digest[:72]!r} do not match its digest")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {double[:72]!r} stands there twice")
    return found
