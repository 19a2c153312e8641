"""Files: reading only inside a model's own folder, and writing so that what was there stays until the new is whole."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from irkit.errors import LoadError, SaveError

__all__ = ["atomic_writer", "contained_path", "map_bytes", "write_atomically"]


def contained_path(folder: Path, location: str) -> Path:
    """The file that ``location`` names inside ``folder``, symlinks followed.

    Raises:
        LoadError: if it is absolute, leads outside the folder, is missing, or is no regular file.
    """
    if not location or "\0" in location:
        raise LoadError(f"external data has the location {location!r}", hint="expected a relative path of a file")
    if os.path.isabs(location) or Path(location).drive or location.startswith("\\"):
        raise LoadError(
            f"external data stands at the absolute path '{location}'", hint="it must stand beside the model"
        )
    root = folder.resolve()
    # A location with '..' may lead back inside; resolved, it still has to lie under the folder, and it is refused
    # anyway: no honest exporter writes one.
    if ".." in Path(location.replace("\\", "/")).parts:
        raise LoadError(f"external data at '{location}' climbs out of the model's folder")
    try:
        path = (root / location).resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 has a RuntimeError for symlinks in a circle
        raise LoadError(f"external data at '{location}' cannot be read: {error}") from None
    if not path.is_relative_to(root):
        raise LoadError(f"external data at '{location}' leads outside the model's folder")
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise LoadError(f"external data at '{location}' cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise LoadError(f"external data at '{location}' is no regular file")
    return path


def map_bytes(path: Path, offset: int, length: int | None, label: str) -> np.ndarray[Any, Any]:
    """A read-only map of part of a file, as bytes.

    Args:
        length: None: to the end of the file.

    Raises:
        LoadError: if the part does not lie within the file.
    """
    size = path.stat().st_size
    if offset < 0 or offset > size:
        raise LoadError(f"{label} starts at byte {offset} of '{path.name}', which has {size} bytes")
    count = size - offset if length is None else length
    if count < 0 or offset + count > size:
        raise LoadError(f"{label} takes bytes {offset} to {offset + count} of '{path.name}', which has {size} bytes")
    if count == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (count,))


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """A file that appears under its name only when everything is written and flushed.

    Raises:
        SaveError: if it cannot be written; what stood there stays.
    """
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise SaveError(f"'{target}' is a folder")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=folder)
    except OSError as error:
        raise SaveError(f"cannot write into '{folder}': {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SaveError(f"cannot write '{target}': {error.strerror or error}") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_atomically(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Writes the parts one after the other; see ``atomic_writer``."""
    with atomic_writer(path) as file:
        for part in parts:
            file.write(part)
