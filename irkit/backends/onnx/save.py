"""Writing ONNX files: whole or not at all, weights inside or beside the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnx import TensorProto

from irkit.backends.onnx.exporter import export
from irkit.dialects.onnx.protos import tensor_to_proto
from irkit.errors import SaveError
from irkit.ir.constants import ConstantData
from irkit.ir.files import atomic_writer, write_atomically
from irkit.ir.module import Module

__all__ = ["save"]

PROTOBUF_LIMIT = (1 << 31) - 1
ALIGNMENT = 4096
"""External tensors start at multiples of this, so that they can be mapped."""


def save(
    module: Module,
    path: str | os.PathLike[str],
    *,
    opset: int | Mapping[str, int] | None = None,
    external_data: bool | str | None = None,
    external_threshold: int = 1024,
    value_info: str = "declared",
) -> None:
    """Writes an ONNX file.

    Args:
        opset: see ``export``.
        external_data: True or a file name puts weights into one file beside the model (default ``<name>.data``);
            ``"many"`` into one file each; False keeps all inside. None: outside where the model would pass
            protobuf's limit of 2 GB.
        external_threshold: smaller tensors (bytes) stay inside.
        value_info: see ``export``.

    Raises:
        LoweringError: see ``export``.
        SaveError: if it cannot be written; what stood there stays as it was.
    """
    target = Path(path)
    if external_data is None:
        external_data = _weights(module) > PROTOBUF_LIMIT - (1 << 26)
    if not external_data:
        model = export(module, opset, value_info=value_info)
        write_atomically(target, [_serialize(model)])
        return
    writer = _External(target, external_data, external_threshold)
    model = export(module, opset, tensor_writer=writer.tensor, value_info=value_info)
    data = _serialize(model)
    writer.write()
    write_atomically(target, [data])


def _weights(module: Module) -> int:
    total = 0
    for op in module.op.walk():
        for attr in op.properties.values():
            held = getattr(attr, "data", None)
            if isinstance(held, ConstantData):
                total += held.nbytes
    return total


def _serialize(model: Any) -> bytes:
    try:
        return model.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf raises different types by implementation
        raise SaveError(
            f"the model cannot be serialized: {error}",
            hint="protobuf takes at most 2 GB; put the weights beside the model with external_data=True",
        ) from None


class _External:
    """Collects the tensors that go into files beside the model, and writes them last."""

    def __init__(self, target: Path, where: bool | str, threshold: int) -> None:
        self.folder = target.parent
        self.many = where == "many"
        self.name = where if isinstance(where, str) and not self.many else f"{target.name}.data"
        if Path(self.name).name != self.name:
            raise SaveError(f"external data goes beside the model: '{self.name}' is no plain file name")
        self.threshold = threshold
        self.offset = 0
        self.files: dict[str, list[tuple[int, ConstantData]]] = {}

    def tensor(self, data: ConstantData, name: str) -> Any:
        """A TensorProto that points to where the bytes will stand."""
        if data.dtype.kind == "string" or data.nbytes < self.threshold:
            return tensor_to_proto(data, name)
        proto = TensorProto(name=name, data_type=data.dtype.code, dims=data.shape)
        proto.data_location = TensorProto.EXTERNAL
        if self.many:
            file, offset = self._file_name(name), 0
        else:
            file, offset = self.name, -(-self.offset // ALIGNMENT) * ALIGNMENT
            self.offset = offset + data.nbytes
        self.files.setdefault(file, []).append((offset, data))
        for key, value in (("location", file), ("offset", str(offset)), ("length", str(data.nbytes))):
            proto.external_data.add(key=key, value=value)
        return proto

    def _file_name(self, name: str) -> str:
        base = "".join(c if c.isalnum() or c in "._-" else "_" for c in name).strip(".")[:100] or "tensor"
        candidate, count = f"{base}.bin", 1
        while candidate in self.files:
            candidate, count = f"{base}_{count}.bin", count + 1
        return candidate

    def write(self) -> None:
        """Writes the files. A constant mapped from the very file is read from the old one, which is replaced last."""
        for name, parts in self.files.items():
            with atomic_writer(self.folder / name) as file:
                for chunk in self._chunks(parts):
                    file.write(chunk)

    @staticmethod
    def _chunks(parts: list[tuple[int, ConstantData]]) -> Iterator[bytes | memoryview]:
        position = 0
        for offset, data in parts:
            yield bytes(offset - position)
            if data.is_splat and data.dtype.bits >= 8:
                yield from _splat_chunks(data)
            else:
                yield data.raw()
            position = offset + data.nbytes


def _splat_chunks(data: ConstantData) -> Iterator[bytes]:
    """The bytes of a splat, some at a time, so that it is never held whole."""
    element = data.element.tobytes()
    per_chunk = max(1, (1 << 20) // len(element))
    for start in range(0, data.size, per_chunk):
        yield element * min(per_chunk, data.size - start)
