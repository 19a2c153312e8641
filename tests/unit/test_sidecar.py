"""Text in files, and the safetensors file beside it that holds the large constants."""

from __future__ import annotations

import gc
import json
import os
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from xdsl.dialects.builtin import ModuleOp

from irkit.dialects import context
from irkit.dialects.onnx import Yield
from irkit.errors import LoadError, ParseError, SaveError
from irkit.ir.builder import Builder
from irkit.ir.constants import ConstantData, TensorAttr, constant, from_raw
from irkit.ir.dtypes import BY_NAME
from irkit.ir.module import Module
from irkit.ir.text import Sidecar, load_text, save_text, write_sidecar
from irkit.ir.text import files as text_files

CTX = context()


def every_dtype() -> list[ConstantData]:
    random = np.random.default_rng(0)
    made: list[ConstantData] = []
    for kind in BY_NAME.values():
        if kind.kind == "string":
            texts = np.array([b"a" * 600, b"", b"\xff\x00", "ü".encode()] * 300, object)
            made.append(ConstantData(kind, (300, 4), texts.reshape(300, 4)))
            continue
        # An odd number of elements, so that narrow types end within a byte.
        count = 3 * 4099
        raw = random.bytes(-(-count * kind.bits // 8))
        if kind.kind == "bool":
            raw = bytes(byte & 1 for byte in raw)
        made.append(from_raw(raw, kind, (3, 4099)))
    return made


def module_of(constants: list[ConstantData]) -> Module:
    attributes = {f"k{index}": TensorAttr.of(data) for index, data in enumerate(constants)}
    return Module(ModuleOp([Yield.create(attributes=attributes)]), CTX)


def sidecar_bytes(constants: list[ConstantData]) -> bytes:
    stream = BytesIO()
    write_sidecar(stream, constants)
    return stream.getvalue()


def test_constants_of_every_dtype_come_back(tmp_path: Path) -> None:
    constants = every_dtype()
    module = module_of(constants)
    path = tmp_path / "model.mlir"
    save_text(module, path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"model.mlir", "model.safetensors"}
    assert len(path.read_bytes()) < 5000
    beside = Sidecar(tmp_path / "model.safetensors")
    assert len(beside) == len(constants)
    for data in constants:
        found = beside[data.digest]
        assert found == data
        assert found is beside[data.digest]
        if data.dtype.kind != "string":
            assert found.raw() == data.raw()
            assert not found.stored().flags.writeable
            assert found.stored().flags.aligned
    beside.verify()
    digests = [data.digest for data in constants]
    del constants, beside
    loaded = load_text(path, context(), verify=True)
    assert loaded == module
    assert str(loaded) == str(module)
    save_text(loaded, path)
    assert list(Sidecar(tmp_path / "model.safetensors")) == sorted(digests, key=_order(path))


def _order(path: Path) -> Any:
    entries = json.loads(_header(path.with_suffix(".safetensors").read_bytes()))
    return lambda digest: entries[digest]["data_offsets"]


def _header(content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length]


def test_loading_reads_no_bytes_of_constants(tmp_path: Path) -> None:
    array = np.arange(1 << 20, dtype=np.float32)
    save_text(module_of([constant(array).data]), tmp_path / "m.mlir")
    with (tmp_path / "m.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", -1.0))
    loaded = load_text(tmp_path / "m.mlir", CTX)
    op = loaded.op.body.block.first_op
    assert op is not None
    attr = op.attributes["k0"]
    assert isinstance(attr, TensorAttr)
    found = attr.array()
    assert found[-1] == -1.0
    assert np.array_equal(found[:-1], array[:-1])
    base: Any = found
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base.obj).__name__ == "mmap"
    with pytest.raises(LoadError, match="do not match its digest"):
        load_text(tmp_path / "m.mlir", CTX, verify=True)


def test_a_claimed_digest_never_replaces_a_computed_one(tmp_path: Path) -> None:
    real, other = constant(np.arange(1000)).data, constant(np.arange(1000)[::-1]).data
    forged = from_raw(bytes(other.raw()), other.dtype, other.shape, digest=real.digest)
    assert forged.digest == real.digest
    text = str(module_of([real]))
    assert text == str(module_of([forged]))
    assert Module(_parse(text).op, CTX) == module_of([real])
    with pytest.raises(SaveError, match="two different constants claim the digest"):
        save_text(module_of([real, forged]), tmp_path / "m.mlir")
    assert list(tmp_path.iterdir()) == []


def _parse(text: str) -> Module:
    from irkit.ir.text import parse_module

    return parse_module(text, CTX)


def test_the_safetensors_library_reads_sidecars(tmp_path: Path) -> None:
    constants = [data for data in every_dtype() if data.dtype.kind != "string"]
    (tmp_path / "s.safetensors").write_bytes(sidecar_bytes(constants))
    with safe_open(tmp_path / "s.safetensors", "numpy") as file:
        assert set(file.keys()) == {data.digest for data in constants}
        for data in constants:
            assert file.get_tensor(data.digest).tobytes() == bytes(data.raw())


def test_bytes_do_not_depend_on_the_order() -> None:
    constants = every_dtype()
    assert sidecar_bytes(constants) == sidecar_bytes(constants[::-1]) == sidecar_bytes(constants * 2)


def test_small_constants_need_no_sidecar(tmp_path: Path) -> None:
    b = Builder("g")
    b.output(b.input("x", "float32", [2]) + b.constant(np.float32([1, float("nan")])), "y")
    module = b.module()
    save_text(module, tmp_path / "m.mlir", locations=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.mlir"]
    assert load_text(tmp_path / "m.mlir", CTX) == module


def test_inline_and_elided_constants_need_no_sidecar(tmp_path: Path) -> None:
    module = module_of(every_dtype())
    save_text(module, tmp_path / "inline.mlir", constants="inline")
    assert load_text(tmp_path / "inline.mlir", CTX) == module
    save_text(module, tmp_path / "elided.mlir", constants="elide")
    with pytest.raises(ParseError, match=r"elided"):
        load_text(tmp_path / "elided.mlir", CTX)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_missing_sidecar_is_said(tmp_path: Path) -> None:
    save_text(module_of([constant(np.arange(5000)).data]), tmp_path / "m.mlir")
    (tmp_path / "m.safetensors").unlink()
    gc.collect()  # While the constant lives in this process, its digest finds it.
    with pytest.raises(ParseError, match="no sidecar has it") as caught:
        load_text(tmp_path / "m.mlir", CTX)
    assert caught.value.where.startswith(f"{tmp_path / 'm.mlir'}:2:")
    assert "beside" in caught.value.hint


@pytest.mark.parametrize("step", ["sidecar", "text", "check"])
def test_a_failed_save_leaves_what_was_there(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.mlir"
    save_text(module_of([constant(np.arange(5000)).data]), path)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == {"sidecar": 1, "text": 2}.get(step):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    if step == "check":
        monkeypatch.setattr(Path, "read_bytes", lambda self: b"something else")
    with pytest.raises(SaveError):
        save_text(module_of([constant(np.arange(6000)).data]), path)
    monkeypatch.undo()
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    for name in ("m.mlir", "m.safetensors"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    module = module_of([constant(np.arange(5000)).data])
    save_text(module, tmp_path / "m.mlir")
    assert (tmp_path / "elsewhere").read_text() == "precious"
    assert load_text(tmp_path / "m.mlir", CTX) == module


def test_a_sidecar_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    module = module_of([constant(np.arange(5000)).data])
    for folder in ("blobs", "model"):
        (tmp_path / folder).mkdir()
    save_text(module, tmp_path / "blobs" / "m.mlir")
    for name in ("m.mlir", "m.safetensors"):
        (tmp_path / "model" / name).symlink_to(tmp_path / "blobs" / name)
    assert load_text(tmp_path / "model" / "m.mlir", CTX) == module
    content = (tmp_path / "blobs" / "m.mlir").read_bytes()
    (tmp_path / "model" / "m.mlir").unlink()
    (tmp_path / "model" / "m.mlir").write_bytes(content)
    with pytest.raises(LoadError, match="leads outside"):
        load_text(tmp_path / "model" / "m.mlir", CTX)


@pytest.mark.parametrize("name", ["missing/m.mlir", "m.safetensors", ""])
def test_places_that_cannot_be_written_are_typed_errors(name: str, tmp_path: Path) -> None:
    with pytest.raises(SaveError):
        save_text(module_of([constant(np.arange(5000)).data]), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "error"), [(None, LoadError), (b"\xff\xfe\x00", ParseError), (b"", ParseError)])
def test_files_that_are_no_text_are_typed_errors(content: bytes | None, error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error):
        load_text(path, CTX)
    with pytest.raises(LoadError):
        load_text(tmp_path, CTX)


def _file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + data


def _entry(start: Any, end: Any, shape: Any = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


META = {"__metadata__": {"a": "int8[4]", "b": "int8[4]"}}
MALFORMED = {
    "empty": (b"", "too few"),
    "a header longer than the file": (_file({}, length=1000), "the file has"),
    "a header past the limit": (_file({}, length=1 << 62), "are accepted"),
    "no JSON": (_file(b"{nonsense"), "malformed"),
    "no UTF-8": (_file(b'{"\xff": 1}'), "malformed"),
    "no object": (_file([]), "no JSON object"),
    "deep": (_file(b"[" * 100_000), "nested too deeply"),
    "a key twice": (_file(b'{"a": 1, "a": 2}'), "stands there twice"),
    "an entry of another kind": (_file({"a": 1}), "no flat tensor"),
    "another dtype": (_file(META | {"a": _entry(0, 4, dtype="F32")}, bytes(4)), "no flat tensor"),
    "two axes": (_file(META | {"a": _entry(0, 4, [2, 2])}, bytes(4)), "no flat tensor"),
    "a truth value": (_file(META | {"a": _entry(False, 4, [4])}, bytes(4)), "no flat tensor"),
    "a fraction": (_file(META | {"a": _entry(0.0, 4, [4])}, bytes(4)), "no flat tensor"),
    "outside": (_file(META | {"a": _entry(0, 4)}, bytes(3)), "out of 3"),
    "far outside": (_file(META | {"a": _entry(1 << 64, (1 << 64) + 4)}, bytes(4)), "out of 4"),
    "negative": (_file(META | {"a": _entry(-4, 0)}, bytes(4)), "out of 4"),
    "backwards": (_file(META | {"a": _entry(4, 0, [-4])}, bytes(4)), "out of 4"),
    "another length": (_file(META | {"a": _entry(0, 4, [5])}, bytes(4)), "5 bytes at 0 to 4"),
    "an overlap": (_file(META | {"a": _entry(0, 4), "b": _entry(2, 6)}, bytes(6)), "overlaps"),
    "the same bytes twice": (_file(META | {"a": _entry(0, 4), "b": _entry(0, 4)}, bytes(4)), "overlaps"),
    "a gap": (_file(META | {"a": _entry(0, 4), "b": _entry(5, 9)}, bytes(9)), "leaves a gap"),
    "more at the end": (_file(META | {"a": _entry(0, 4)}, bytes(5)), "belong to no constant"),
    "no metadata": (_file({"a": _entry(0, 4)}, bytes(4)), "no dtype and shape"),
    "odd metadata": (_file({"__metadata__": 1, "a": _entry(0, 4)}, bytes(4)), "no JSON object"),
    "an unknown dtype": (_file({"__metadata__": {"a": "int9[4]"}, "a": _entry(0, 4)}, bytes(4)), "no dtype and shape"),
    "a negative size": (_file({"__metadata__": {"a": "int8[-4]"}, "a": _entry(0, 4)}, bytes(4)), "no dtype and shape"),
    "another size": (_file({"__metadata__": {"a": "int8[5]"}, "a": _entry(0, 4)}, bytes(4)), "does not fit"),
    "an overflow": (
        _file({"__metadata__": {"a": f"int8[{1 << 32}, {1 << 32}]"}, "a": _entry(0, 0)}),
        "does not fit",
    ),
    "digits without end": (
        _file({"__metadata__": {"a": f"int8[{'9' * 5000}]"}, "a": _entry(0, 0)}),
        "no dtype and shape",
    ),
    "too few lengths": (_file({"__metadata__": {"a": "string[4]"}, "a": _entry(0, 31)}, bytes(31)), "does not fit"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_sidecars_are_typed_errors(name: str, tmp_path: Path) -> None:
    content, message = MALFORMED[name]
    path = tmp_path / "s.safetensors"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=message) as caught:
        Sidecar(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("lengths", [[1, 2], [(1 << 64) - 1, 5], [0, 3]])
def test_strings_that_do_not_fill_their_bytes_are_errors(lengths: list[int], tmp_path: Path) -> None:
    data = struct.pack("<2Q", *lengths) + bytes(4)
    path = tmp_path / "s.safetensors"
    path.write_bytes(_file({"__metadata__": {"a": "string[2]"}, "a": _entry(0, len(data))}, data))
    with pytest.raises(LoadError, match="do not fill"):
        Sidecar(path)["a"]


def test_mutated_sidecars_load_or_give_our_error(tmp_path: Path) -> None:
    constants = [constant(np.arange(6, dtype=dtype)).data for dtype in (np.int64, np.float16, ml_dtypes.bfloat16)]
    content = sidecar_bytes(constants)
    random = np.random.default_rng(0)
    path = tmp_path / "s.safetensors"
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for at in random.integers(0, len(content) - 60, 2):
            changed[at] = random.integers(0, 256)
        path.write_bytes(changed[: random.integers(len(content) // 2, len(content) + 1)])
        try:
            for data in Sidecar(path).values():
                data.array()
        except LoadError:
            refused += 1
    assert refused > 200


def test_the_sidecar_stands_beside_the_text() -> None:
    assert text_files.sidecar_path("a/m.v2.mlir") == Path("a/m.v2.safetensors")
