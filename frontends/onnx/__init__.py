"""Loading ONNX models: files, bytes or ModelProtos to modules, without loss."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from irkit.errors import LoadError
from irkit.frontends.onnx.external import reader
from irkit.frontends.onnx.importer import import_model
from irkit.ir.module import Module

__all__ = ["load"]


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
        try:
            model = _parse(path.read_bytes(), f"'{path}'")
        except OSError as error:
            raise LoadError(f"cannot read '{path}': {error.strerror}") from None
    external = None if base is None else reader(base)
    return import_model(model, file=name, external=external, upgrade=upgrade)


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
