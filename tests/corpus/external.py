"""Models whose data stands in files beside them: as the format allows it, and as an attacker would write it.

Every function writes into a folder of its own and returns the path of the model. All valid models compute ``x + w``
with ``w == WEIGHT``. The hostile ones must be refused by one error, and nothing outside the model's folder may be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .build import graph_of, model_of, named, node, tensor_value

__all__ = ["SECRET", "WEIGHT", "hostile_models", "valid_models"]

WEIGHT = np.array([0.5, -1.5, 2.5, -0.0], np.float32)
# What stands outside the model's folder: as long as the weight, so that reading it would go unnoticed.
SECRET = np.array([666.0, 666.0, 666.0, 666.0], np.float32)


def valid_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every valid model below ``folder``."""
    yield from _write_all("valid_", folder)


def hostile_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every hostile model below ``folder``, with the files it is after."""
    yield from _write_all("hostile_", folder)


def _write_all(prefix: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for name, write in named(sys.modules[__name__], prefix):
        if name != "models":
            home = folder / name / "model"
            home.mkdir(parents=True)
            (folder / name / "secret.bin").write_bytes(SECRET.tobytes())
            yield name, write(home)


def _external(
    name: str, entries: dict[str, str], dims: tuple[int, ...] = (4,), dtype: int = TensorProto.FLOAT
) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=dtype, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _add(tensor: TensorProto) -> ModelProto:
    return model_of([node("Add", ["x", "w"], ["y"])], [tensor_value("x", [4])], [tensor_value("y", [4])], [tensor])


def _save(model: ModelProto, home: Path) -> Path:
    path = home / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _weight(home: Path, entries: dict[str, str], data: bytes | None = None, file: str = "w.bin") -> Path:
    """A model whose weight has these entries, beside a file that holds ``data`` (the weight itself by default)."""
    target = home / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(WEIGHT.tobytes() if data is None else data)
    return _save(_add(_external("w", entries)), home)


# Valid


def valid_whole_file(home: Path) -> Path:
    """Only a location: the tensor is the whole file."""
    return _weight(home, {"location": "w.bin"})


def valid_offset_and_length(home: Path) -> Path:
    """A region inside a larger file, aligned to a page."""
    data = bytes(4096) + WEIGHT.tobytes() + bytes(100)
    return _weight(home, {"location": "w.bin", "offset": "4096", "length": "16"}, data)


def valid_offset_without_length(home: Path) -> Path:
    """An offset, and the file's end as the region's."""
    return _weight(home, {"location": "w.bin", "offset": "64"}, bytes(64) + WEIGHT.tobytes())


def valid_length_without_offset(home: Path) -> Path:
    """The first bytes of a longer file."""
    return _weight(home, {"location": "w.bin", "length": "16"}, WEIGHT.tobytes() + bytes(50))


def valid_unaligned_offset(home: Path) -> Path:
    """An offset that is no multiple of the element's size."""
    return _weight(home, {"location": "w.bin", "offset": "3", "length": "16"}, bytes(3) + WEIGHT.tobytes())


def valid_with_checksum(home: Path) -> Path:
    """The checksum that the format knows, in no canonical order."""
    digest = "0" * 40
    return _weight(home, {"checksum": digest, "length": "16", "offset": "0", "location": "w.bin"})


def valid_unknown_key(home: Path) -> Path:
    """Keys that the format does not know, named like attributes of objects: without any effect."""
    return _weight(home, {"location": "w.bin", "__class__": "x", "dims": "9", "basepath": ".."})


def valid_subfolder(home: Path) -> Path:
    """A file in a folder below the model's."""
    return _weight(home, {"location": "data/deep/w.bin"}, file="data/deep/w.bin")


def valid_dot_segments(home: Path) -> Path:
    """A location with a ``.`` that stays where it is."""
    return _weight(home, {"location": "./data/w.bin"}, file="data/w.bin")


def valid_odd_file_name(home: Path) -> Path:
    """A file name with spaces, dots and letters beyond ASCII."""
    name = "gewichte é..v2 .bin"
    return _weight(home, {"location": name}, file=name)


def valid_symlink_inside(home: Path) -> Path:
    """A symlink to a file in the same folder, as the caches of model hubs have them."""
    path = _weight(home, {"location": "w.bin"}, file="blobs/abc123")
    (home / "w.bin").symlink_to(Path("blobs") / "abc123")
    return path


def valid_one_file_two_tensors(home: Path) -> Path:
    """Two tensors in one file, one after the other, with a gap."""
    half = WEIGHT / 2
    (home / "all.bin").write_bytes(half.tobytes() + bytes(48) + half.tobytes())
    return _save(_two("all.bin", "0", "all.bin", "64"), home)


def valid_many_files(home: Path) -> Path:
    """Two tensors in two files."""
    for name in ("a.bin", "b.bin"):
        (home / name).write_bytes((WEIGHT / 2).tobytes())
    return _save(_two("a.bin", "0", "b.bin", "0"), home)


def valid_shared_region(home: Path) -> Path:
    """Two tensors over the same bytes."""
    (home / "w.bin").write_bytes((WEIGHT / 2).tobytes())
    return _save(_two("w.bin", "0", "w.bin", "0"), home)


def _two(first: str, first_offset: str, second: str, second_offset: str) -> ModelProto:
    tensors = [
        _external(name, {"location": file, "offset": offset, "length": "16"})
        for name, file, offset in (("a", first, first_offset), ("b", second, second_offset))
    ]
    return model_of(
        [node("Add", ["a", "b"], ["w"]), node("Add", ["x", "w"], ["y"])],
        [tensor_value("x", [4])],
        [tensor_value("y", [4])],
        tensors,
    )


def valid_in_attribute_and_subgraph(home: Path) -> Path:
    """External data of a Constant's value, and of an initializer inside a branch."""
    (home / "w.bin").write_bytes(WEIGHT.tobytes())
    entries = {"location": "w.bin"}
    then = graph_of([node("Add", ["x", "w"], ["a"])], [], [tensor_value("a", [4])], [_external("w", entries)], "then")
    other = graph_of(
        [node("Constant", [], ["v"], value=_external("", entries)), node("Add", ["x", "v"], ["b"])],
        [],
        [tensor_value("b", [4])],
        name="else",
    )
    model = model_of(
        [
            node("ReduceSum", ["x"], ["s"], keepdims=0),
            node("Greater", ["s", "zero"], ["c"]),
            node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        ],
        [tensor_value("x", [4])],
        [tensor_value("y", [4])],
        [numpy_helper.from_array(np.array(0, np.float32), "zero")],
    )
    return _save(model, home)


def valid_packed_dtype(home: Path) -> Path:
    """An int4 tensor with an odd count: three elements in two bytes; and an empty tensor with a region of no bytes."""
    (home / "w.bin").write_bytes(WEIGHT.tobytes() + bytes([0x21, 0x07]))
    tensors = [
        _external("w", {"location": "w.bin", "length": "16"}),
        _external("packed", {"location": "w.bin", "offset": "16", "length": "2"}, (3,), TensorProto.INT4),
        _external("empty", {"location": "w.bin", "offset": "18", "length": "0"}, (0, 2)),
    ]
    model = model_of(
        [node("Add", ["x", "w"], ["y"])],
        [tensor_value("x", [4])],
        [tensor_value("y", [4]), tensor_value("packed", [3], TensorProto.INT4), tensor_value("empty", [0, 2])],
        tensors,
    )
    return _save(model, home)


# Hostile


def hostile_parent(home: Path) -> Path:
    """``../secret.bin``"""
    return _weight(home, {"location": "../secret.bin"})


def hostile_nested_parent(home: Path) -> Path:
    """``data/../../secret.bin``, through a folder that exists."""
    return _weight(home, {"location": "data/../../secret.bin"}, file="data/w.bin")


def hostile_nested_parent_missing(home: Path) -> Path:
    """The same through a folder that does not exist."""
    return _weight(home, {"location": "nowhere/../../secret.bin"})


def hostile_absolute(home: Path) -> Path:
    """An absolute path to a readable file."""
    return _weight(home, {"location": str((home.parent / "secret.bin").resolve())})


def hostile_absolute_inside(home: Path) -> Path:
    """An absolute path is refused even where it leads inside."""
    return _weight(home, {"location": str((home / "w.bin").resolve())})


def hostile_sibling_prefix(home: Path) -> Path:
    """A folder whose path starts with the model folder's path, ``model`` and ``model-other``."""
    other = home.with_name("model-other")
    other.mkdir()
    (other / "secret.bin").write_bytes(SECRET.tobytes())
    return _weight(home, {"location": "../model-other/secret.bin"})


def hostile_symlink_outside(home: Path) -> Path:
    """A symlink that leads out of the folder."""
    (home / "link.bin").symlink_to(home.parent / "secret.bin")
    return _weight(home, {"location": "link.bin"})


def hostile_symlink_chain_outside(home: Path) -> Path:
    """A symlink to a symlink that leads out."""
    (home / "second.bin").symlink_to("../secret.bin")
    (home / "link.bin").symlink_to("second.bin")
    return _weight(home, {"location": "link.bin"})


def hostile_symlinked_folder(home: Path) -> Path:
    """A folder below the model's that is a symlink to the folder above."""
    (home / "data").symlink_to("..", target_is_directory=True)
    return _weight(home, {"location": "data/secret.bin"})


def hostile_symlink_loop(home: Path) -> Path:
    """Two symlinks that lead to one another."""
    (home / "a.bin").symlink_to("b.bin")
    (home / "b.bin").symlink_to("a.bin")
    return _weight(home, {"location": "a.bin"})


def hostile_offset_beyond_file(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "17", "length": "16"})


def hostile_offset_beyond_without_length(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "4096"})


def hostile_length_beyond_file(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "4", "length": "16"})


def hostile_file_too_short(home: Path) -> Path:
    """No length, and a file shorter than the tensor."""
    return _weight(home, {"location": "w.bin"}, WEIGHT.tobytes()[:-1])


def hostile_length_not_of_tensor(home: Path) -> Path:
    """A region inside the file that is shorter than the tensor."""
    return _weight(home, {"location": "w.bin", "offset": "0", "length": "8"})


def hostile_length_zero(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "length": "0"})


def hostile_offset_plus_length_overflows(home: Path) -> Path:
    """2**64 - 8 + 16 wraps around to 8 in 64 bits."""
    return _weight(home, {"location": "w.bin", "offset": str(2**64 - 8), "length": "16"})


def hostile_offset_beyond_int64(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": str(2**63), "length": "16"})


def hostile_offset_huge(home: Path) -> Path:
    """A number of five thousand digits, above Python's own limit of conversion."""
    return _weight(home, {"location": "w.bin", "offset": "9" * 5000, "length": "16"})


def hostile_negative_offset(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "-16", "length": "16"})


def hostile_negative_length(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "0", "length": "-16"})


def hostile_offset_not_a_number(home: Path) -> Path:
    return _weight(home, {"location": "w.bin", "offset": "0x10", "length": "16"})


def hostile_shape_overflows(home: Path) -> Path:
    """Dims whose product is 0 in 64 bits, with an empty region."""
    (home / "w.bin").write_bytes(b"")
    return _save(_add(_external("w", {"location": "w.bin", "length": "0"}, (2**32, 2**32))), home)


def hostile_missing_file(home: Path) -> Path:
    return _save(_add(_external("w", {"location": "absent.bin"})), home)


def hostile_no_location(home: Path) -> Path:
    return _weight(home, {"offset": "0", "length": "16"})


def hostile_empty_location(home: Path) -> Path:
    return _weight(home, {"location": ""})


def hostile_folder_as_file(home: Path) -> Path:
    (home / "folder.bin").mkdir()
    return _weight(home, {"location": "folder.bin"})


def hostile_model_folder_as_file(home: Path) -> Path:
    return _weight(home, {"location": "."})


def hostile_nul_in_location(home: Path) -> Path:
    return _weight(home, {"location": "w.bin\0.txt"})


def hostile_long_location(home: Path) -> Path:
    """A name longer than any file system takes."""
    return _weight(home, {"location": "w" * 70_000})


def hostile_device(home: Path) -> Path:
    """A device that never ends, by its absolute path."""
    return _weight(home, {"location": "/dev/zero"})


def hostile_device_symlink(home: Path) -> Path:
    """The same behind a symlink inside the folder."""
    (home / "link.bin").symlink_to("/dev/zero")
    return _weight(home, {"location": "link.bin", "length": "16"})


def hostile_named_pipe(home: Path) -> Path:
    """A named pipe: whoever opens it waits for ever."""
    os.mkfifo(home / "pipe.bin")
    return _weight(home, {"location": "pipe.bin"})


def hostile_location_twice(home: Path) -> Path:
    """Two locations: whichever a reader takes, another reader takes the other."""
    path = _weight(home, {"location": "w.bin"})
    model = ModelProto.FromString(path.read_bytes())
    model.graph.initializer[0].external_data.add(key="location", value="../secret.bin")
    return _save(model, home)


def hostile_string_tensor(home: Path) -> Path:
    """Strings can't stand in an external file."""
    (home / "w.bin").write_bytes(b"abcd")
    tensor = _external("w", {"location": "w.bin"}, (4,), TensorProto.STRING)
    text = helper.make_tensor_value_info("y", TensorProto.STRING, [4])
    return _save(model_of([node("Identity", ["w"], ["y"])], [], [text], [tensor]), home)
