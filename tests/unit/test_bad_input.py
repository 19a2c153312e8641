"""Files and values from strangers: each is taken, or refused by one typed error. Never another exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.backends import compile as compile_module
from irkit.cli import main
from irkit.errors import FeedError, IrkitError, LoadError, ParseError
from tests.corpus import hostile
from tests.corpus.build import from_text
from tests.corpus.external import SECRET, hostile_models

MALFORMED = dict(hostile.malformed())
# Deprecated ops have kernels, and models that hold one at a later opset are about: they load. onnx refuses them.
TAKEN = {"op_older_than_its_opset"}
# protobuf's own limit of nesting lies between these.
DEEP_REFUSED = {"if_nested_32", "if_nested_60"}

MODELS = {
    "initializers": """g (float[N, 3] x) => (float[N, 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}>
        { t = MatMul(x, w)  u = Add(t, b)  y = Relu(u) }""",
    "attributes": """g (float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y)
        { t = MaxPool <kernel_shape = [2, 2], strides = [2, 2], auto_pad = "VALID"> (x)
          y = Softmax <axis = 1> (t) }""",
    "branches": """g (float[2] x, bool c) => (float[2] y)
        { n = Neg(x)
          y = If(c) <then_branch = t () => (float[2] p) { p = Identity(n) },
                     else_branch = e () => (float[2] q) { q = Constant <value = float[2] {1, 2}> () }> }""",
}


def taken(load: Any, source: Any) -> bool:
    """Whether it loads; False if an IrkitError refuses it. Any other exception fails the test."""
    try:
        load(source)
    except IrkitError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in MALFORMED if name not in TAKEN])
def test_malformed_files_are_refused(name: str) -> None:
    with pytest.raises(IrkitError) as found:
        ik.load(MALFORMED[name])
    assert isinstance(found.value, LoadError)
    assert found.value.message


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_files_that_only_onnx_refuses(name: str) -> None:
    assert ik.load(MALFORMED[name]).output_names == ["y"]


@pytest.mark.parametrize("name", ["bad_file", *sorted(MALFORMED)[:: len(MALFORMED) // 12]])
def test_malformed_files_on_the_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.onnx").write_bytes(MALFORMED.get(name, b"bad"))
    assert main(["convert", "bad.onnx", "-o", "out.mlir"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("irkit: error: "), "Traceback" in err) == ("", 1, False)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.onnx"]


def test_deep_files_are_taken_or_refused() -> None:
    refused = {name for name, data in hostile.deep() if not taken(ik.load, data)}
    assert refused == DEEP_REFUSED


def test_external_data_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    secret = SECRET.tobytes()
    for name, path in hostile_models(tmp_path):
        before = {file for file in tmp_path.rglob("*") if not file.is_symlink()}
        with pytest.raises(LoadError) as found:
            ik.load(path)
        assert "666" not in str(found.value), name
        assert secret.hex() not in str(found.value), name
        assert {file for file in tmp_path.rglob("*") if not file.is_symlink()} == before, name


def _mutations(data: bytes, count: int, seed: int) -> list[bytes]:
    """Copies of ``data`` with one to four bytes changed, taken out or put in."""
    rng = np.random.default_rng(seed)
    found: list[bytes] = []
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            at, value = int(rng.integers(len(copy))), int(rng.integers(256))
            match int(rng.integers(4)):
                case 0:
                    copy[at] = value
                case 1:
                    copy[at] ^= 1 << (value % 8)
                case 2:
                    del copy[at]
                case _:
                    copy.insert(at, value)
        found.append(bytes(copy))
    return found


@pytest.mark.parametrize("name", list(MODELS))
def test_mutated_files_are_taken_or_refused(name: str) -> None:
    data = from_text(MODELS[name]).SerializeToString()
    outcomes = [taken(ik.load, copy) for copy in _mutations(data, 150, seed=len(name))]
    assert {True, False} == set(outcomes)  # the mutations reach both what the parser refuses and what comes after it


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_many_mutated_files_are_taken_or_refused(name: str) -> None:
    data = from_text(MODELS[name]).SerializeToString()
    for copy in _mutations(data, 20_000 // len(MODELS), seed=1000 + len(name)):
        taken(ik.load, copy)


@pytest.mark.parametrize("name", list(MODELS))
def test_mutated_text_is_taken_or_refused(name: str) -> None:
    text = str(ik.load(from_text(MODELS[name]))).encode()
    for copy in _mutations(text, 60, seed=len(name)):
        taken(ik.parse, copy.decode("utf-8", "replace"))


@pytest.mark.parametrize("name", list(MODELS))
def test_truncated_text_is_refused(name: str) -> None:
    text = str(ik.load(from_text(MODELS[name]))).rstrip()
    for cut in np.linspace(0, len(text) - 1, 40).astype(int).tolist():
        with pytest.raises(ParseError):
            ik.parse(text[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "this is no MLIR",
        "}" * 50,
        "{" * 3000,
        "builtin.module {" * 3000,
        '"onnx.Nope"() : () -> ()',
        'builtin.module { "onnx.Relu"(%absent) : (tensor<2xf32>) -> tensor<2xf32> }',
        '%0 = "onnx.Initializer"() <{value = #onnx.tensor<tensor<2xf32>, [1.0]>}> : () -> tensor<2xf32>',
        "\N{BYTE ORDER MARK}builtin.module {",
        "builtin.module { func.func @main(%x: tensor<99999999999999999999x3xf32>) { func.return } }",
    ],
    ids=lambda text: ascii(text[:24]),
)
def test_text_garbage_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        ik.parse(text)


def test_a_text_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_bytes(b"\xff\xfe\x00\x80builtin.module {}")
    with pytest.raises(IrkitError, match=r"m\.mlir"):
        ik.load(path)


FEEDS: list[tuple[str, dict[str, Any]]] = [
    ("missing", {}),
    ("unknown", {"x": np.ones((2, 3), np.float32), "z": np.ones(1)}),
    ("float64", {"x": np.ones((2, 3), np.float64)}),
    ("int64", {"x": np.ones((2, 3), np.int64)}),
    ("rank", {"x": np.ones(3, np.float32)}),
    ("fixed_dim", {"x": np.ones((2, 4), np.float32)}),
    ("strings", {"x": np.array([["a", "b", "c"]])}),
    ("objects", {"x": np.array([[None, object(), 1]], dtype=object)}),
    ("ragged", {"x": [[1.0, 2.0], [3.0]]}),
    ("none", {"x": None}),
    ("sequence", {"x": [np.ones((2, 3), np.float32)] * 2}),
    ("mapping", {"x": {"a": 1.0}}),
    ("function", {"x": len}),
    ("name_not_a_string", {0: np.ones((2, 3), np.float32)}),  # type: ignore[dict-item]
]


@pytest.fixture(scope="module")
def module() -> Any:
    return ik.load(from_text(MODELS["initializers"]))


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize(("name", "feeds"), FEEDS, ids=[name for name, _ in FEEDS])
def test_wrong_feeds_are_refused(backend: str, name: str, feeds: dict[str, Any], module: Any) -> None:
    executable = compile_module(module, backend)
    with pytest.raises(FeedError):
        executable.run(feeds)
    assert executable.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[10.0, 11.0]]
