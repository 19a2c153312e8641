"""Loading ONNX models: files, bytes or ModelProtos to modules, without loss."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from irkit.errors import LoadError
from irkit.frontends.onnx.external import reader
from irkit.frontends.onnx.importer import import_model
from irkit.ir.module import Module

__all__ = ["load"]

PROTOBUF_LIMIT = (1 << 31) - 1


def load(source: Any, *, upgrade: bool = True, folder: str | os.PathLike[str] | None = None) -> Module:
    """The module of an ONNX model.

    Args:
        source: a path, the bytes of a file, or an ``onnx.ModelProto``.
        upgrade: bring ops to their current form where that is one to one and can be undone on export; else keep every
            op in the form it came in.
        folder: where external data stands; by default the file's own folder. Nothing outside it is read.

    Raises:
        LoadError: if the file cannot be read, or the model is malformed: what is wrong, and where.
    """
    name, base = "", None if folder is None else Path(folder)
    if isinstance(source, onnx.ModelProto):
        model: Any = source
    elif isinstance(source, bytes | bytearray | memoryview):
        model = _parse(bytes(source), "the data given")
    else:
        path = Path(source)
        name, base = path.name, base or path.parent
        model = _parse(_read(path), f"'{path}'")
    external = None if base is None else reader(base)
    return import_model(model, file=name, external=external, upgrade=upgrade)


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            raise LoadError(f"'{path}' is a device")
        if status.st_size > PROTOBUF_LIMIT:
            raise LoadError(
                f"'{path}' has {status.st_size} bytes, more than the 2 GB that protobuf reads",
                hint="is it an ONNX model? Larger ones have their weights in files beside them",
            )
        return path.read_bytes()
    except OSError as error:
        raise LoadError(f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:  # a null byte in the path
        raise LoadError(f"cannot read {str(path)!r}: {error}") from None


def _parse(data: bytes, what: str) -> Any:
    if not data:
        raise LoadError(f"{what} is empty")
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise LoadError(
            f"{what} is no ONNX model, or is truncated ({len(data)} bytes)",
            hint="check that the file was copied whole, and that it is no pointer file of a large-file store",
        ) from None
    if not model.HasField("graph"):
        raise LoadError(f"{what} holds no graph", hint="is it an ONNX model?")
    return model
