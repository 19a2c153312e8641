"""Inputs made from types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import irkit as ik
from irkit.backends import compile
from irkit.errors import UnsupportedError
from irkit.ir.dtypes import BY_NAME
from irkit.ir.types import MapType, OptType, SeqType, tensor, unknown
from irkit.verify import random_feeds
from irkit.verify.generate import random_array, symbols


def graph(build: Callable[[ik.Builder], None], **options: Any) -> ik.Module:
    builder = ik.Builder("test", **options)
    build(builder)
    return builder.module()


def passing(*inputs: tuple[str, Any, Any]) -> ik.Module:
    """A module that returns its inputs."""

    def build(b: ik.Builder) -> None:
        for name, element, shape in inputs:
            b.output(b.input(name, element, shape), f"{name}_out")

    return graph(build)


def test_symbols_have_one_size_and_expressions_follow_from_them() -> None:
    module = passing(("x", "float32", ["N", "M"]), ("y", "int64", ["M", "2*N + 1"]), ("z", "bool", ["(N*M)//2", None]))
    assert symbols(module) == ["N", "M", "?"]
    feeds = random_feeds(module, 0, {"N": 3, "M": 4})
    assert feeds["x"].shape == (3, 4)
    assert feeds["y"].shape == (4, 7)
    assert feeds["z"].shape[0] == 6
    chosen = random_feeds(module, 1)
    assert chosen["x"].shape[1] == chosen["y"].shape[0]
    assert random_feeds(module, 0, {"N": 0})["x"].size == 0
    compile(module)(**chosen)


def test_symbols_that_are_no_expressions_are_names() -> None:
    module = passing(("x", "float32", ["floor(H/2)", "a b"]), ("y", "float32", ["a b", "__import__('os')"]))
    feeds = random_feeds(module)
    assert feeds["x"].shape[1] == feeds["y"].shape[0]
    assert all(2 <= size <= 4 for feed in feeds.values() for size in feed.shape)


def test_one_seed_gives_the_same_feeds_whatever_the_order() -> None:
    one = random_feeds(passing(("x", "float32", [3]), ("y", "float32", [3])), 5)
    other = random_feeds(passing(("y", "float32", [3]), ("x", "float32", [3])), 5)
    for name in "xy":
        np.testing.assert_array_equal(one[name], other[name])
    assert not np.array_equal(one["x"], one["y"])
    assert not np.array_equal(one["x"], random_feeds(passing(("x", "float32", [3])), 6)["x"])


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", [name for name in BY_NAME if not name.startswith("float6")])
def test_every_dtype_varies_and_is_what_the_backend_takes(name: str, special: bool) -> None:
    module = passing(("x", name, [40]), ("s", name, []), ("e", name, [0, 2]))
    feeds = random_feeds(module, 3, special=special)
    assert {k: (v.dtype, v.shape) for k, v in feeds.items()} == {
        "x": (BY_NAME[name].numpy, (40,)),
        "s": (BY_NAME[name].numpy, ()),
        "e": (BY_NAME[name].numpy, (0, 2)),
    }
    assert len({str(v) for v in feeds["x"].tolist()}) > 1
    compile(module)(**feeds)
    if not special and BY_NAME[name].is_float:
        assert np.isfinite(feeds["x"].astype(np.float64)).all()


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_special_floats_are_there_also_in_small_arrays(kind: str) -> None:
    array = random_array(BY_NAME[kind], (1,), np.random.default_rng(0), special=True).astype(np.float64)
    assert array[0] == 0
    assert np.signbit(array[0])
    wide = random_array(BY_NAME[kind], (200,), np.random.default_rng(0), special=True).astype(np.float64)
    tiny = float(ml_dtypes.finfo(BY_NAME[kind].numpy).smallest_normal)
    assert np.isnan(wide).any()
    assert np.isposinf(wide).any()
    assert np.isneginf(wide).any()
    assert ((wide != 0) & (np.abs(wide) < tiny)).any()
    assert (np.isfinite(wide) & (np.abs(wide) > 0.1)).sum() > 100


def test_sequences_optionals_and_maps() -> None:
    floats = tensor("float32", ["N"])
    module = passing(
        ("s", SeqType(floats), None),
        ("o", OptType(floats), None),
        ("m", MapType(tensor("string", ()), tensor("int64", ())), None),
    )
    feeds = random_feeds(module, 0, {"N": 2})
    assert [a.shape for a in feeds["s"]] == [(2,)] * 3
    assert feeds["o"].shape == (2,)
    assert all(type(k) is str and type(v) is int for k, v in feeds["m"].items())
    with pytest.raises(UnsupportedError, match="'u'"):
        random_feeds(passing(("u", unknown, None)))


def test_defaults_are_fed_only_when_asked_for() -> None:
    module = ik.load(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[N] x, float[1] w, int64[1] n) => (float[N] y, int64[1] m) <float[1] w = {2}, int64[1] n = {3}> {
            y = Mul(x, w)
            m = Identity(n)
        }""")
    )
    assert set(random_feeds(module)) == {"x"}
    feeds = random_feeds(module, defaults=True)
    assert feeds["w"] != 2
    assert feeds["n"].tolist() == [3]
    compile(module)(**feeds)


# One graph per use that restricts an input; each must run with whatever is generated.


def gather(b: ik.Builder) -> Any:
    return b.Gather(b.input("x", "float32", [4, "N"]), b.input("i", "int32", [5]), axis=1)


def gather_through_casts(b: ik.Builder) -> Any:
    ids = b.Unsqueeze(b.Cast(b.input("i", "int32", ["B", "S"]), to=7), np.array([2]))
    return b.Gather(b.initializer(np.eye(3, dtype=np.float32), "table"), ids)


def gather_in_a_branch(b: ik.Builder) -> Any:
    x, i = b.input("x", "float32", [2]), b.input("i", "int64", [9])
    return b.If(
        b.input("c", "bool", []), then_branch=lambda b: b.Gather(x, i), else_branch=lambda b: b.Gather(b.Neg(x), i)
    )


def gather_nd(b: ik.Builder) -> Any:
    return b.GatherND(b.input("x", "float32", [2, 3, 4]), b.input("i", "int64", [7, 2]))


def scatter(b: ik.Builder) -> Any:
    x = b.input("x", "float32", [3, "N"])
    return b.ScatterElements(x, b.input("i", "int64", [3, 2]), b.input("u", "float32", [3, 2]), axis=1)


def reshape(b: ik.Builder) -> Any:
    return b.Reshape(b.input("x", "float32", [2, 3]), b.input("s", "int64", [3]))


def expand_and_tile(b: ik.Builder) -> Any:
    y = b.Expand(b.input("x", "float32", [2, 3]), b.input("s", "int64", [2]))
    return b.Tile(y, b.input("r", "int64", [2]))


def slices(b: ik.Builder) -> Any:
    inputs = [b.input(name, "int64", [2]) for name in ("starts", "ends", "axes", "steps")]
    return b.Slice(b.input("x", "float32", [4, 5]), *inputs)


def top_k(b: ik.Builder) -> Any:
    return b.TopK(b.input("x", "float32", [3]), b.input("k", "int64", [1]))[0]


def one_hot(b: ik.Builder) -> Any:
    values = b.constant(np.array([0, 1], np.float32))
    return b.OneHot(b.input("i", "int64", [3]), b.input("depth", "int64", []), values)


def loop(b: ik.Builder) -> Any:
    x = b.input("x", "float32", [2])
    return b.Loop(b.input("n", "int64", []), None, x, body=lambda b, i, c, s: (c, s + 1))


def divide(b: ik.Builder) -> Any:
    x, y = b.input("x", "int32", [20]), b.input("y", "int32", [20])
    return b.Div(x, y) + b.Mod(x, y)


def split(b: ik.Builder) -> Any:
    return b.Split(b.input("x", "float32", [7]), b.input("s", "int64", [3]), outputs=3)[0]


def losses(b: ik.Builder) -> Any:
    return b.SoftmaxCrossEntropyLoss(b.input("x", "float32", ["N", 3]), b.input("labels", "int64", ["N"]))


def lstm(b: ik.Builder) -> Any:
    x, w, r = (
        b.input("x", "float32", [5, 2, 3]),
        b.input("w", "float32", [1, 16, 3]),
        b.input("r", "float32", [1, 16, 4]),
    )
    return b.LSTM(x, w, r, None, b.input("lengths", "int32", [2]), hidden_size=4, outputs=1)


def squeeze(b: ik.Builder) -> Any:
    return b.Squeeze(b.Unsqueeze(b.input("x", "float32", [3]), b.input("a", "int64", [1])), b.input("c", "int64", [1]))


USES = [
    gather,
    gather_through_casts,
    gather_in_a_branch,
    gather_nd,
    scatter,
    reshape,
    expand_and_tile,
    slices,
    top_k,
    one_hot,
    loop,
    divide,
    split,
    losses,
    lstm,
    squeeze,
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_inputs_suit_their_use(use: Callable[[ik.Builder], Any]) -> None:
    module = graph(lambda b: b.output(use(b), "result"))
    f = compile(module)
    results = {f.run(random_feeds(module, seed, special=seed == 2))["result"].tobytes() for seed in range(4)}
    assert len(results) > 1
