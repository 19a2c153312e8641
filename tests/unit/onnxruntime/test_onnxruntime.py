"""The onnxruntime backend: feeds and results of every kind, opsets, devices, errors."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import irkit as ik
from irkit.backends import backend_names, compile
from irkit.backends.onnxruntime import prepare, runtime
from irkit.backends.onnxruntime.prepare import CARRIERS
from irkit.errors import ExecutionError, FeedError, LoweringError, UnsupportedError
from irkit.ir.dtypes import BY_NAME
from irkit.ir.types import MapType, OptType, SeqType, tensor

CASTABLE = [d.name for d in CARRIERS if d.name != "float4_e2m1fn"]
"""The dtypes between which and float32 onnxruntime has casts."""


def graph(build: Callable[[ik.Builder], None], **options: Any) -> ik.Module:
    builder = ik.Builder("test", **options)
    build(builder)
    return builder.module()


def gather() -> ik.Module:
    def build(b: ik.Builder) -> None:
        x = b.input("x", "float32", ["N", 3])
        b.output(b.Gather(b.Relu(x), b.input("i", "int64", [2]), name="pick"), "y")

    return graph(build)


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Forgets what was found out about the installation, before the test and after it."""
    caches = (runtime.runtime, runtime.highest_opset, runtime.highest_ir_version, runtime._cuda_problem)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_feeds_by_position_and_by_name() -> None:
    f = compile(gather(), "onnxruntime")
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    expected = np.maximum(x, 0)[[1, 0]]
    for y in (f(x, [1, 0]), f(x, i=[1, 0]), f.run({"i": np.array([1, 0]), "x": x})["y"]):
        np.testing.assert_array_equal(y, expected)
    with pytest.raises(FeedError, match="'x'"):
        f(i=[1, 0])
    with pytest.raises(FeedError, match="float64"):
        f(x.astype(np.float64), [1, 0])


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_results_do_not_depend_on_the_level(level: str) -> None:
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(compile(gather(), "onnxruntime", optimize=level, threads=1)(x, [1, 0]), x)


def test_an_error_names_the_op_and_where_it_came_from() -> None:
    with pytest.raises(ExecutionError, match=r"idx=7 must be within") as caught:
        compile(gather(), "onnxruntime")(np.ones((2, 3), np.float32), [0, 7])
    assert caught.value.op == "onnx.Gather"
    assert "test_onnxruntime.py" in caught.value.where


def test_nodes_of_one_name_are_told_apart() -> None:
    def build(b: ik.Builder) -> None:
        x = b.input("x", "float32", ["N"])
        y = b.Gather(x, b.input("i", "int64", [1]), name="same")
        b.output(b.Gather(y, b.input("j", "int64", [1]), name="same"), "y")

    f = compile(graph(build), "onnxruntime", optimize="none")
    places = set()
    for i, j in ((5, 0), (0, 5)):
        with pytest.raises(ExecutionError) as caught:
            f(np.ones(2, np.float32), [i], [j])
        places.add(caught.value.where)
    assert len(places) == 2


@pytest.mark.parametrize("name", CASTABLE)
def test_every_value_of_a_carried_dtype_passes_through(name: str) -> None:
    kind = BY_NAME[name]

    def build(b: ik.Builder) -> None:
        x = b.input("x", name, ["N"])
        b.output(x, "same")
        b.output(b.Cast(x, to=1), "wide")

    bits = kind.numpy.itemsize * 8
    if kind.packed:
        low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
        x = np.arange(low, low + (1 << kind.bits)).astype(kind.numpy)
    else:
        x = np.arange(1 << bits).astype(f"u{kind.numpy.itemsize}").view(kind.numpy)
    same, wide = compile(graph(build), "onnxruntime", optimize="none")(x)
    assert same.dtype == kind.numpy
    assert wide.dtype == np.float32
    exact = x.astype(np.float32)
    np.testing.assert_array_equal(same.astype(np.float32), exact)
    np.testing.assert_array_equal(wide, exact)
    np.testing.assert_array_equal(np.signbit(same.astype(np.float32))[exact == 0], np.signbit(exact)[exact == 0])


@pytest.mark.parametrize(
    "name", [d for d in BY_NAME if d not in CASTABLE and not d.startswith(("complex", "float4", "float6"))]
)
def test_other_dtypes_pass_as_they_are(name: str) -> None:
    def build(b: ik.Builder) -> None:
        x = b.input("x", name, [2, "N"])
        b.output(b.Identity(x), "y")

    x = (
        np.array([["a", "é", ""]] * 2, object)
        if name == "string"
        else np.array([[0, 1, 1]] * 2).astype(BY_NAME[name].numpy)
    )
    for fed in (x, x[:, :0], x[:, ::2]):
        y = compile(graph(build), "onnxruntime")(fed)
        assert y.dtype == fed.dtype
        np.testing.assert_array_equal(y, fed)


@pytest.mark.parametrize("name", ["complex64", "complex128", "float4_e2m1fn"])
def test_a_dtype_that_onnxruntime_lacks_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="onnxruntime"):
        compile(graph(lambda b: b.output(b.Identity(b.input("x", name, [2])), "y")), "onnxruntime")


def test_carried_inputs_with_defaults_and_control_flow() -> None:
    """The default is cast too, and a branch that captures the input sees the original dtype."""
    source = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (bfloat16[2] x, bool c) => (bfloat16[2] y) {
            y = If(c) <
                then_branch = t () => (bfloat16[2] a) { f = Cast<to = 1>(x) n = Neg(f) a = Cast<to = 16>(n) },
                else_branch = e () => (bfloat16[2] b) { b = Identity(x) }
            >
        }""")
    source.graph.initializer.append(onnx.helper.make_tensor("x", onnx.TensorProto.BFLOAT16, [2], [1.5, -2]))
    f = compile(ik.load(source), "onnxruntime", optimize="none")
    bf16 = ml_dtypes.bfloat16
    np.testing.assert_array_equal(f(c=False), np.array([1.5, -2], bf16))
    np.testing.assert_array_equal(f(c=True), np.array([-1.5, 2], bf16))
    np.testing.assert_array_equal(f(np.array([3, 4], bf16), True), np.array([-3, -4], bf16))


def test_sequences_optionals_and_maps() -> None:
    floats = tensor("float32", ["N"])
    x, y = np.ones(2, np.float32), np.zeros(3, np.float32)

    def sequences(b: ik.Builder) -> None:
        s = b.input("s", SeqType(floats))
        b.output(b.SequenceInsert(s, b.input("x", "float32", ["M"])), "longer")
        b.output(b.SequenceLength(s), "length")

    longer, length = compile(graph(sequences), "onnxruntime")([x, y], x * 2)
    assert [a.tolist() for a in longer] == [[1, 1], [0, 0, 0], [2, 2]]
    assert length.tolist() == 2
    assert len(compile(graph(sequences), "onnxruntime")([], x)[0]) == 1

    def optionals(b: ik.Builder) -> None:
        b.output(b.OptionalHasElement(b.input("o", OptType(floats))), "there")

    there = compile(graph(optionals), "onnxruntime")
    assert bool(there(x))
    assert not bool(there(None))

    def maps(b: ik.Builder) -> None:
        b.output(b.op("onnx.ml.ZipMap", b.input("x", "float32", ["N", 2]), classlabels_strings=["a", "b"]), "m")

    found = compile(graph(maps, opsets={"": 21, "ai.onnx.ml": 3}), "onnxruntime")(np.array([[1, 2]], np.float32))
    assert found == [{"a": 1.0, "b": 2.0}]

    def from_map(b: ik.Builder) -> None:
        m = b.input("m", MapType(tensor("int64", []), tensor("float32", [])))
        b.output(b.op("onnx.ml.CastMap", m, map_form="DENSE", cast_to="TO_FLOAT"), "y")

    cast = compile(graph(from_map, opsets={"": 21, "ai.onnx.ml": 3}), "onnxruntime")
    np.testing.assert_array_equal(cast({1: 0.5, 2: 1.5}), [[0.5, 1.5]])

    def of_bfloat16(b: ik.Builder) -> None:
        b.output(b.input("s", SeqType(tensor("bfloat16", ["N"]))), "t")

    with pytest.raises(UnsupportedError, match="bfloat16"):
        compile(graph(of_bfloat16), "onnxruntime")


def test_results_are_the_callers_own() -> None:
    def build(b: ik.Builder) -> None:
        x = b.input("x", "float32", [3])
        w = b.initializer(np.arange(3, dtype=np.float32), "w")
        for name, value in (("a", x), ("b", x), ("c", w), ("d", w)):
            b.output(value, name)

    f = compile(graph(build), "onnxruntime")
    x = np.ones(3, np.float32)
    results = f(x)
    for one, other in itertools.combinations([*results, x], 2):
        assert not np.shares_memory(one, other)
    for result in results:
        result[:] = 99
    assert [r.tolist() for r in f(np.ones(3, np.float32))] == [[1, 1, 1], [1, 1, 1], [0, 1, 2], [0, 1, 2]]


def test_the_highest_opset_is_found_by_trying() -> None:
    assert runtime.highest_opset("example.unknown") is None
    found = runtime.highest_opset("")
    assert found is not None
    assert found >= 21
    assert runtime._loads({"": found})
    assert not runtime._loads({"": 9999})
    assert not runtime._loads({"": found}, 9999)
    assert compile(gather(), "onnxruntime").opsets[""] == found


def test_an_op_without_a_kernel_is_written_at_the_opset_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where onnxruntime has no kernel yet for the newest form of an op, but one for the form before it."""
    real = runtime.runtime()
    seen: list[int] = []

    def session(model: bytes, *arguments: Any, **options: Any) -> Any:
        opset = onnx.ModelProto.FromString(model).opset_import[0].version
        seen.append(opset)
        if opset >= 14:
            raise RuntimeError("Could not find an implementation for Relu(14) node with name 'x'")
        return real.InferenceSession(model, *arguments, **options)

    runtime.highest_opset("")
    runtime.highest_ir_version()
    fake = SimpleNamespace(**{name: getattr(real, name) for name in ("SessionOptions", "GraphOptimizationLevel")})
    fake.InferenceSession, fake.__version__ = session, "0"
    monkeypatch.setattr("irkit.backends.onnxruntime.session.runtime", lambda: fake)
    f = compile(graph(lambda b: b.output(b.Relu(b.input("x", "float32", [2])), "y")), "onnxruntime")
    assert seen == [runtime.highest_opset(""), 13]
    assert f.opsets == {"": 13}
    assert f(np.array([-1, 2], np.float32)).tolist() == [0, 2]


def test_a_model_that_no_opset_can_run_is_refused_with_the_reason() -> None:
    module = ik.load(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "example.foreign" : 1]>
        g (float[2] x) => (float[2] y) { y = example.foreign.Strange(x) }""")
    )
    with pytest.raises(UnsupportedError, match="Strange") as caught:
        compile(module, "onnxruntime")
    assert caught.value.hint
    assert not isinstance(caught.value, LoweringError)


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cuda:x", " "])
def test_a_device_that_is_not_there_is_an_error(device: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{device}'") as caught:
        compile(gather(), "onnxruntime", device=device)
    assert caught.value.hint


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("fails", [False, True])
def test_a_provider_that_is_only_listed_is_not_believed(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """On a machine without a GPU the CUDA build lists CUDA, and its sessions run on the CPU or raise."""
    real = runtime.runtime()

    def session(*arguments: Any, providers: list[Any], **options: Any) -> Any:
        if fails:
            raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 100: no CUDA-capable device is detected")
        return real.InferenceSession(*arguments[:1], real.SessionOptions(), providers=["CPUExecutionProvider"])

    fake = SimpleNamespace(
        SessionOptions=real.SessionOptions,
        InferenceSession=session,
        preload_dlls=lambda: None,
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    monkeypatch.setattr(runtime, "runtime", lambda: fake)
    expected = "no CUDA-capable device" if fails else "gets CPUExecutionProvider"
    with pytest.raises(UnsupportedError, match=expected):
        runtime.providers("cuda")
    assert runtime.providers("cpu") == ["CPUExecutionProvider"]


@pytest.mark.usefixtures("forgetful")
def test_without_onnxruntime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UnsupportedError, match=r"irkit\[cpu\]"):
        compile(gather(), "onnxruntime")
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace())
    with pytest.raises(UnsupportedError, match="broken"):
        compile(gather(), "onnxruntime")


@pytest.mark.parametrize("level", ["none", "all"])
def test_large_weights_are_handed_over_beside_the_model(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setattr(prepare, "LARGE_MODEL", 0)
    monkeypatch.setattr(prepare, "LARGE_TENSOR", 4)
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((3, 3), np.float32), rng.standard_normal(3).astype(ml_dtypes.bfloat16)

    def build(b: ik.Builder) -> None:
        x = b.input("x", "float32", ["N", 3])
        held = b.initializer(w, "w")
        hidden = b.constant(v)
        y = b.If(
            b.input("c", "bool", []),
            then_branch=lambda b: b.MatMul(x, held) + b.Cast(hidden, to=1),
            else_branch=lambda b: b.Mul(x, b.initializer(w[0], "inner")),
        )
        b.output(y, "y")

    module = graph(build)
    prepared = prepare.prepare(module)
    prepared.model({"": 21}, 10)
    assert set(prepared.weights) >= {"w"}
    assert len(prepared.weights) == 2
    assert "inner" not in prepared.weights
    f = compile(module, "onnxruntime", optimize=level)
    x = rng.standard_normal((2, 3), np.float32)
    np.testing.assert_allclose(f(x, True), x @ w + v.astype(np.float32), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(f(x, False), x * w[0])


def test_a_profile_says_what_ran_where() -> None:
    f = compile(gather(), "onnxruntime", profile=True, optimize="none")
    for _ in range(3):
        f(np.ones((2, 3), np.float32), [0, 1])
    found = {entry.name: entry for entry in f.profile}
    assert found["pick"].op_type == "Gather"
    assert {entry.calls for entry in found.values()} == {3}
    assert {entry.provider for entry in found.values()} == {"CPUExecutionProvider"}
    assert sum(entry.seconds for entry in found.values()) > 0
    assert compile(gather(), "onnxruntime").profile == []


def test_one_seed_gives_the_same_numbers() -> None:
    module = graph(lambda b: b.output(b.RandomNormal(shape=[4]), "y"))
    runs = [[f().tolist(), f().tolist()] for f in (compile(module, "onnxruntime", seed=s) for s in (1, 1, 2))]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert runs[0][0] != runs[0][1]


def test_compile_takes_known_backends_and_options_only() -> None:
    assert backend_names()[:2] == ["numpy", "onnxruntime"]
    with pytest.raises(UnsupportedError, match="'onnxruntime'"):
        compile(gather(), "onnxrutime")
    with pytest.raises(UnsupportedError, match="did you mean 'threads'"):
        compile(gather(), "onnxruntime", thread=1)
    with pytest.raises(UnsupportedError, match="basic"):
        compile(gather(), "onnxruntime", optimize="fast")
    with pytest.raises(UnsupportedError, match="at least 1"):
        compile(gather(), "onnxruntime", threads=0)


def test_a_plugin_backend_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = SimpleNamespace(name="echo", load=lambda: lambda module, **options: (module, options))
    monkeypatch.setattr("irkit.backends.entry_points", lambda group, name="echo": [point] if name == "echo" else [])
    module = gather()
    assert compile(module, "echo", speed=9) == (module, {"speed": 9})
    assert "echo" in backend_names()


def test_the_module_is_not_changed() -> None:
    def build(b: ik.Builder) -> None:
        b.output(b.Identity(b.input("x", "bfloat16", [2])), "y")

    module = graph(build)
    before = str(module)
    compile(module, "onnxruntime")
    assert str(module) == before


@pytest.mark.parametrize("seed", [0, 1, 1 << 30, -1])
def test_two_random_ops_draw_different_numbers_whatever_the_seed(seed: int) -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [8])
    b.output(b.RandomUniformLike(x) - b.RandomUniformLike(x), "y")
    compiled = ik.compile(b.module(), "onnxruntime", seed=seed)
    assert np.all(compiled(np.zeros(8, np.float32)) != 0)
