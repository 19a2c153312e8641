"""Writing ONNX: modules to ModelProtos and files."""

from __future__ import annotations

from irkit.backends.onnx.exporter import export
from irkit.backends.onnx.save import save

__all__ = ["export", "save"]
