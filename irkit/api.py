"""What most users call: load, optimize, compile, save."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import irkit.passes  # noqa: F401  (passes declare what is expanded before a module is compiled)
from irkit.errors import LoadError, SaveError
from irkit.ir.module import Module

if TYPE_CHECKING:
    from irkit.backends.base import Executable

__all__ = ["compile", "load", "parse", "save"]

_TEXT = (".mlir",)
_ONNX = (".onnx", ".pb")
_KERAS = (".keras", ".h5", ".hdf5")


def load(source: Any, *, upgrade: bool = True, folder: str | os.PathLike[str] | None = None) -> Module:
    """Reads a model.

    Args:
        source: the path of an ``.onnx``, ``.mlir`` or ``.keras`` file (for the last see ``irkit.frontends.keras``), the
            bytes of an ONNX file, an ``onnx.ModelProto``, or a Module (returned as it is).
        upgrade: bring ops to their current form where that is one to one (ONNX only); False keeps each as it came.
        folder: where external data stands, if not beside the file. Nothing outside it is read.

    Raises:
        LoadError: if it cannot be read: what is wrong, and where.
        ParseError: the same, for MLIR text.
    """
    if isinstance(source, Module):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            raise LoadError(f"'{path}' is a folder", hint="expected an .onnx, .mlir or .keras file")
        if path.suffix in _TEXT:
            from irkit.dialects import context
            from irkit.ir.text import load_text

            return load_text(path, context())
        if path.suffix in _KERAS:
            from irkit.frontends.keras import load as load_keras

            return load_keras(path)
    from irkit.frontends.onnx import load as load_onnx

    return load_onnx(source, upgrade=upgrade, folder=folder)


def compile(module: Any, backend: str = "numpy", **options: Any) -> Executable:
    """Makes a module ready to run; the module is not changed.

    Ops that are transformations of the graph around them (``Gradient`` of ai.onnx.preview.training) are expanded first.

    Args:
        module: a Module, or what stands for one: an expression of ``irkit.frontends.dsl``, a list or dict of them.
        backend: ``"numpy"``, ``"onnxruntime"``, or the name of a plug-in's.
        options: of the backend: ``threads=``, ``seed=``, ``profile=``; onnxruntime has ``device=`` and ``optimize=``
            too.

    Raises:
        UnsupportedError: if there is no such backend or option, or the backend cannot run the module, and why.
    """
    from irkit import backends

    return backends.compile(module, backend, **options)


def parse(text: str) -> Module:
    """The module that MLIR text stands for, as ``str(module)`` prints it.

    Large constants that the text only names by digest are found among those alive in this process.

    Raises:
        ParseError: saying where, and what was expected.
    """
    from irkit.dialects import context
    from irkit.ir.text import parse_module

    return parse_module(text, context())


def save(module: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Writes a module, whole or not at all, as ``.onnx`` or ``.mlir`` by the path's suffix.

    Args:
        module: a Module, or what stands for one, as ``compile`` takes it.
        options: for ONNX ``opset=``, ``external_data=``, ``value_info=`` (see ``irkit.backends.onnx.save``); for text
            those of ``irkit.ir.text.save_text``.

    Raises:
        LoweringError: if an op has no form at the opset asked for.
        SaveError: if the file cannot be written; what stood there stays.
    """
    from irkit.backends import module_of

    module, suffix = module_of(module), Path(path).suffix
    if suffix in _TEXT:
        from irkit.ir.text import save_text

        save_text(module, path, **options)
    elif suffix in _ONNX:
        from irkit.backends.onnx import save as save_onnx

        save_onnx(module, path, **options)
    else:
        raise SaveError(f"'{path}' has the suffix '{suffix}'", hint="write .onnx or .mlir")
