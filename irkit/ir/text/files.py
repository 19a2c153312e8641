"""Text in files: ``model.mlir``, and ``model.safetensors`` beside it for the large constants."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from xdsl.context import Context

from irkit.errors import LoadError, ParseError, SaveError
from irkit.ir.constants import ConstantData
from irkit.ir.module import Module
from irkit.ir.text.parser import parse_module
from irkit.ir.text.printer import print_module
from irkit.ir.text.sidecar import Sidecar, write_sidecar

__all__ = ["load_text", "save_text", "sidecar_path"]


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Where the large constants of a text file stand."""
    return Path(path).with_suffix(".safetensors")


def save_text(
    module: Module,
    path: str | os.PathLike[str],
    *,
    constants: Literal["digest", "inline", "elide"] = "digest",
    inline_bytes: int = 1024,
    literals: int = 16,
    locations: bool = False,
) -> None:
    """Writes a module as MLIR text, and its large constants into a sidecar if there are any.

    Both files are written under temporary names, read back, and only then renamed, the sidecar first: on any failure
    what stood there before is as it was. Options as for ``print_module``.

    Raises:
        SaveError: if the files cannot be written.
    """
    target = Path(path)
    large: dict[int, ConstantData] = {}

    def collect(data: ConstantData) -> None:
        large[id(data)] = data

    text = print_module(
        module,
        constants=constants,
        inline_bytes=inline_bytes,
        literals=literals,
        locations=locations,
        sidecar=collect,
    )
    content = f"{text}\n".encode()
    written: list[tuple[Path, Path]] = []
    try:
        if large:
            beside = sidecar_path(target)
            if beside == target:
                raise SaveError("the text and its sidecar would be one file", hint="name the text .mlir")
            temporary = _write(beside, lambda file: write_sidecar(file, large.values()))
            written.append((temporary, beside))
            Sidecar(temporary)
        temporary = _write(target, lambda file: file.write(content))
        written.append((temporary, target))
        if temporary.read_bytes() != content:
            raise SaveError("what was written does not read back")
        for temporary, final in written:
            temporary.replace(final)
        _sync_folder(target.parent)
    except OSError as error:
        raise SaveError(error.strerror or str(error), where=str(target)) from None
    except LoadError as error:
        raise SaveError(f"what was written does not read back: {error.message}", where=str(target)) from None
    except SaveError as error:
        raise SaveError(error.message, where=str(target), hint=error.hint) from None
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _write(final: Path, write: Callable[[BinaryIO], Any]) -> Path:
    """A new file beside ``final`` with this content, on disk when this returns."""
    path = final.with_name(f".{final.name[:100]}.{secrets.token_hex(8)}.tmp")
    with path.open("xb") as file:
        try:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise
    return path


def _sync_folder(folder: Path) -> None:
    """Makes renames last through a power failure, where folders can be opened at all."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def load_text(path: str | os.PathLike[str], ctx: Context, *, verify: bool = False) -> Module:
    """Reads MLIR text; constants that stand in its sidecar are mapped, not read.

    Args:
        verify: read the constants after all, and check them against their digests.

    Raises:
        LoadError: if a file cannot be read.
        ParseError: if the text is not right.
    """
    source = Path(path)
    try:
        text = source.read_bytes().decode("utf-8")
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=str(source)) from None
    except UnicodeDecodeError as error:
        raise ParseError(f"this is no text: {error.reason} at byte {error.start}", where=str(source)) from None
    beside = sidecar_path(source)
    constants: Sidecar | None = None
    if beside != source and beside.is_file():
        # A link may lead to where the text itself lies (caches of model hubs are laid out so), and nowhere else.
        if not any(
            beside.resolve().is_relative_to(folder) for folder in (source.parent.resolve(), source.resolve().parent)
        ):
            raise LoadError("the sidecar is a link that leads outside the text's folder", where=str(beside))
        constants = Sidecar(beside)
    if verify and constants is not None:
        constants.verify()
    return parse_module(text, ctx, file=str(source), constants=constants)
