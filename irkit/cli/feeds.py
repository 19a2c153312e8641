"""Inputs from ``.npz`` and ``.npy`` files, and outputs into them.

NumPy's format has no dtypes beyond its own: it stores bfloat16 and the like as raw bytes of that width. Those are
read back as what the model's input says.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from irkit.errors import FeedError, LoadError, SaveError
from irkit.ir.files import write_atomically
from irkit.ir.types import dtype_of

__all__ = ["read_feeds", "write_outputs"]

_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What NumPy and zipfile raise for files that are damaged, encrypted, or hold pickles."""


def read_feeds(files: Sequence[str], inputs: Mapping[str, Attribute]) -> dict[str, Any]:
    """The inputs of a model from one ``.npz``, or from ``NAME=FILE.npy`` each. Nothing is unpickled.

    Raises:
        LoadError: if a file cannot be read.
        FeedError: if an input is given twice.
    """
    feeds: dict[str, Any] = {}
    for text in files:
        name, separator, path = text.partition("=")
        whole = not separator or Path(text).is_file()
        found = _read_npz(text) if whole else {name: _load(path)}
        double = [key for key in found if key in feeds]
        if double:
            raise FeedError(f"input '{double[0]}' is given twice")
        feeds.update(found)
    return {name: _with_dtype(value, inputs.get(name)) for name, value in feeds.items()}


def _load(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else _reason(error)
        raise LoadError(f"cannot read '{path}': {reason}", hint="expected a file as numpy.save writes it") from None


def _reason(error: Exception) -> str:
    """NumPy's, which for what is no array of numbers or strings speaks of its own options."""
    return "it is no file of plain arrays" if "pickle" in str(error) else str(error)


def _read_npz(path: str) -> dict[str, Any]:
    archive = _load(path)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise LoadError(f"'{path}' holds one array, without a name", hint=f"write NAME={path}")
    with archive:
        try:
            return {name: archive[name] for name in archive.files}
        except _UNREADABLE as error:
            raise LoadError(f"cannot read '{path}': {_reason(error)}") from None


def _with_dtype(value: Any, value_type: Attribute | None) -> Any:
    kind = None if value_type is None else dtype_of(value_type)
    raw = isinstance(value, np.ndarray) and value.dtype.kind == "V" and value.dtype.names is None
    if kind is not None and raw and value.dtype.itemsize == kind.numpy.itemsize:
        return value.view(kind.numpy)
    return value


def write_outputs(path: str, outputs: Mapping[str, Any]) -> None:
    """Writes values as an ``.npz``, whole or not at all.

    Tensors go by their names, elements of a sequence as ``name.0``, ``name.1``, a map as ``name.keys`` and
    ``name.values``; an optional that holds nothing is left out.

    Raises:
        SaveError: if it cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        _collect(name, value, arrays)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = io.BytesIO()
            try:
                np.lib.format.write_array(entry, array, allow_pickle=False)
            except ValueError as error:
                raise SaveError(f"output '{name}' cannot be written: {error}") from None
            # A fixed date: the same outputs make the same file.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getbuffer())
    write_atomically(path, [buffer.getbuffer()])


def _collect(name: str, value: Any, arrays: dict[str, np.ndarray]) -> None:
    match value:
        case None:
            pass
        case np.ndarray():
            arrays[name] = value.astype(np.str_) if value.dtype == object else value
        case list() | tuple():
            for index, item in enumerate(value):
                _collect(f"{name}.{index}", item, arrays)
        case dict():
            arrays[f"{name}.keys"] = np.array(list(value))
            _collect(f"{name}.values", list(value.values()), arrays)
        case _:
            arrays[name] = np.asarray(value)
