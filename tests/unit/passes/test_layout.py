"""The layout pass: op by op in both directions, to the bit, and on nets as NHWC frameworks export them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import PassError
from irkit.ir.location import describe
from irkit.ir.names import name_of, node_name
from irkit.ir.types import dtype_of, shape_of
from irkit.passes import optimize
from irkit.passes.layout import Layout
from irkit.passes.layout.graph import perm_of
from irkit.passes.layout.perms import inverse, last_to_first
from irkit.verify import compare
from tests.unit.passes.layout_nets import NETS, rng_of

Make = Callable[[ik.Builder, ik.Tensor, int, Sequence[int]], Any]
SIZES = {"N": 2, "H": 3, "W": 4, "D": 2, "C": 6}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def transposes(module: ik.Module) -> int:
    return sum(perm_of(op) is not None for op in module.walk())


def moved(module: ik.Module, size: int = 64) -> int:
    """How many elements the transposes move, with symbols for sizes counted as so many."""
    found = 0
    for op in module.walk():
        perm = perm_of(op)
        if perm is not None:
            shape = shape_of(op.operands[0].type)
            assert shape is not None
            wide = [a for a in perm if shape[a] != 1]
            found += 0 if wide == sorted(wide) else int(np.prod([d if isinstance(d, int) else size for d in shape]))
    return found


def feeds_of(module: ik.Module, sizes: dict[str, int] = SIZES) -> dict[str, Any]:
    """Small integers, of which sums are exact in every order."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for name, value_type in module.inputs.items():
        shape = [d if isinstance(d, int) else sizes[str(d)] for d in shape_of(value_type) or ()]
        dtype = dtype_of(value_type)
        assert dtype is not None
        numbers = rng.integers(-60, 61, shape)
        if dtype.name == "string":
            made[name] = numbers.astype(str).astype(object)
        else:
            made[name] = (np.abs(numbers) if dtype.kind == "uint" else numbers).astype(dtype.numpy)
    return made


def assert_same_bits(before: ik.Module, after: ik.Module, feeds: dict[str, Any]) -> None:
    expected, found = ik.compile(before, "numpy").run(feeds), ik.compile(after, "numpy").run(feeds)
    assert list(expected) == list(found)
    for name, value in expected.items():
        assert value.dtype == found[name].dtype
        assert value.shape == found[name].shape
        assert value.size == 0 or len(set(value.reshape(-1).tolist())) > 1 or value.size == 1
        if value.dtype == object:
            assert value.tolist() == found[name].tolist()
        else:
            assert value.tobytes() == found[name].tobytes(), name


# Op by op: c is the axis of channels, s are those of space.


def scales(x: ik.Tensor, c: int) -> np.ndarray:
    return np.array([1 if a in (0, c) else 2 for a in range(len(x.shape))], np.float32)


def per_channel(x: ik.Tensor, c: int, dtype: str = "float32") -> np.ndarray:
    """Of the shape in which channels broadcast."""
    return np.arange(1, 7).astype(dtype).reshape([-1] + [1] * (len(x.shape) - 1 - c % len(x.shape)))


def pads_of(x: ik.Tensor) -> np.ndarray:
    return np.arange(2 * len(x.shape), dtype=np.int64) % 3


def first(b: ik.Builder, x: ik.Tensor, axis: int) -> ik.Tensor:
    return b.Slice(x, ints(0), ints(1), ints(axis))


OPS: dict[str, tuple[str, Make]] = {
    "Relu": ("float32", lambda b, x, c, s: b.Relu(x)),
    "Cast": ("float16", lambda b, x, c, s: b.Cast(x, to=1)),
    "CastLike": ("int8", lambda b, x, c, s: b.CastLike(x, b.input("like", "float32", [3]))),
    "Clip": ("float32", lambda b, x, c, s: b.Clip(x, -1.0, 2.0)),
    "Add, constant per channel": ("int8", lambda b, x, c, s: x + per_channel(x, c, "int8")),
    "Mul, a number": ("float64", lambda b, x, c, s: x * 3.0),
    "Sub, other operand": ("int64", lambda b, x, c, s: b.input("other", "int64", [x.shape[-1]]) - x),
    "Add, two axes": ("float32", lambda b, x, c, s: x + b.input("other", "float32", x.shape[-2:])),
    "Add, whole constant": ("int32", lambda b, x, c, s: x + np.arange(whole(x), dtype=np.int32).reshape(x.shape[1:])),
    "Where": ("float32", lambda b, x, c, s: b.Where(b.Greater(x, 0.0), x, per_channel(x, c))),
    "PRelu": ("float32", lambda b, x, c, s: b.PRelu(x, per_channel(x, c))),
    "Sum": ("float32", lambda b, x, c, s: b.Sum(x, x, per_channel(x, c))),
    "Equal of strings": ("string", lambda b, x, c, s: b.Equal(x, np.array(["1"], object))),
    "Concat": ("string", lambda b, x, c, s: b.Concat(x, x, x, axis=c)),
    "Concat, negative": ("uint8", lambda b, x, c, s: b.Concat(x, x, axis=s[-1] - len(x.shape))),
    "Split": ("float16", lambda b, x, c, s: b.Neg(b.Split(x, ints(4, 2), axis=c, outputs=2)[0])),
    "Slice": ("string", lambda b, x, c, s: b.Slice(x, ints(0, 1), ints(2, 9), ints(s[0], c - len(x.shape)))),
    "Slice, steps": ("int8", lambda b, x, c, s: b.Slice(x, ints(-1), ints(-(2**40)), ints(c), ints(-2))),
    "Slice, no axes": ("float32", lambda b, x, c, s: b.Slice(x, ints(0, 1), ints(9, 9))),
    "Pad": ("float32", lambda b, x, c, s: b.Pad(x, pads_of(x), 7.0)),
    "Pad, axes": ("int32", lambda b, x, c, s: b.Pad(x, ints(1, 0, 2, 1), None, ints(c, s[0]))),
    "Pad, reflect": ("float32", lambda b, x, c, s: b.Pad(x, ints(1, 1), None, ints(c), mode="reflect")),
    "ReduceMean": ("float32", lambda b, x, c, s: b.ReduceMean(x, ints(*s))),
    "ReduceSum": ("int64", lambda b, x, c, s: b.ReduceSum(x, ints(c))),
    "ReduceMax": ("float16", lambda b, x, c, s: b.ReduceMax(x, ints(c - len(x.shape), s[0]))),
    "ReduceL1": ("float32", lambda b, x, c, s: b.ReduceL1(x, ints(s[-1]))),
    "ArgMax": ("int32", lambda b, x, c, s: b.ArgMax(x, axis=c)),
    "Softmax": ("float64", lambda b, x, c, s: b.Softmax(x, axis=c)),
    "LogSoftmax": ("float64", lambda b, x, c, s: b.LogSoftmax(x, axis=s[0])),
    "Hardmax": ("float32", lambda b, x, c, s: b.Hardmax(x, axis=c)),
    "LpNormalization": ("float64", lambda b, x, c, s: b.LpNormalization(x, axis=c, p=1)),
    "CumSum": ("int64", lambda b, x, c, s: b.CumSum(x, np.array(c), reverse=1)),
    "TopK": ("float32", lambda b, x, c, s: b.Neg(b.TopK(x, ints(2), axis=c)[0])),
    "Tile": ("string", lambda b, x, c, s: b.Tile(x, 1 + pads_of(x)[: len(x.shape)])),
    "Tile, computed": ("int8", lambda b, x, c, s: b.Tile(x, b.input("r", "int64", [len(x.shape)]))),
    "Gather": ("string", lambda b, x, c, s: b.Gather(x, ints(2, 0, 2), axis=c)),
    "GatherElements": ("float32", lambda b, x, c, s: b.GatherElements(x, b.Cast(b.Greater(x, 0.0), to=7), axis=c)),
    "ScatterElements": (
        "float32",
        lambda b, x, c, s: b.ScatterElements(x, b.Cast(b.Sign(first(b, x, c)) + 1, to=7), first(b, x, c), axis=c),
    ),
    "Compress": ("int8", lambda b, x, c, s: b.Compress(x, np.array([True, False, True]), axis=c)),
    "Resize, scales": ("float32", lambda b, x, c, s: b.Resize(x, None, scales(x, c), mode="nearest")),
    "Resize, axes": ("float32", lambda b, x, c, s: b.Resize(x, None, None, ints(5), axes=[s[0]], mode="nearest")),
    "Resize, linear": ("float32", lambda b, x, c, s: b.Resize(x, None, scales(x, c), mode="linear")),
    "QuantizeLinear": ("float32", lambda b, x, c, s: b.QuantizeLinear(x, np.float32(0.5), np.uint8(9))),
    "QuantizeLinear, per axis": (
        "float32",
        lambda b, x, c, s: b.QuantizeLinear(x, np.arange(1, 7, dtype=np.float32) / 2, axis=c),
    ),
    "DequantizeLinear, per axis": (
        "int8",
        lambda b, x, c, s: b.DequantizeLinear(x, np.arange(1, 7, dtype=np.float32), axis=c),
    ),
    "DynamicQuantizeLinear": ("float32", lambda b, x, c, s: b.DynamicQuantizeLinear(x)[0]),
    "Shape": ("float32", lambda b, x, c, s: x + b.Cast(b.Gather(b.Shape(x), ints(c)), to=1)),
    "Shape, a part": ("float32", lambda b, x, c, s: x + b.Cast(b.Shape(x, start=c, end=c + 1), to=1)),
    "Size": ("int64", lambda b, x, c, s: x + b.Size(x)),
    "Expand": ("int8", lambda b, x, c, s: b.Expand(b.ReduceMax(x, ints(c)), b.Shape(x))),
    "Expand, constant": (
        "int8",
        lambda b, x, c, s: b.Expand(b.ReduceMin(x, ints(c)), ints(6, *[1] * (x.rank - c - 1))),
    ),
    "Squeeze and Unsqueeze": (
        "float32",
        lambda b, x, c, s: b.Unsqueeze(b.Squeeze(b.ReduceMax(x, ints(c)), ints(c)), ints(c - x.rank)),
    ),
    "a reduction that drops axes": (
        "float32",
        lambda b, x, c, s: x - b.Unsqueeze(b.ReduceMax(x, ints(*s), keepdims=0), ints(*s)),
    ),
    "Gather of one": ("float32", lambda b, x, c, s: b.Unsqueeze(b.Gather(x, np.array(1), axis=c), ints(c))),
    "ArgMin that drops an axis": (
        "int64",
        lambda b, x, c, s: x + b.Unsqueeze(b.ArgMin(x, axis=c, keepdims=0), ints(c)),
    ),
    "Reshape of axes of size 1": (
        "float32",
        lambda b, x, c, s: b.Reshape(b.Reshape(x, ints(1, 2, *x.shape[1:])), ints(2, *x.shape[1:])),
    ),
}


def whole(x: ik.Tensor) -> int:
    return int(np.prod(x.shape[1:]))


def sandwich(name: str, rank: int, channels_first: bool, opset: int = 24, batch: int | str = 2) -> ik.Module:
    """An op in one layout, between transposes from and to the other."""
    element, make = OPS[name]
    space = [3, 4, 2][: rank - 2]
    outer = [batch, *space, 6] if channels_first else [batch, 6, *space]
    to = last_to_first(rank) if channels_first else inverse(last_to_first(rank))
    b = ik.Builder(name, opsets={"": opset})
    x = b.input("x", element, outer)
    c = 1 if channels_first else rank - 1
    y = make(b, b.Transpose(x, perm=list(to)), c, [a for a in range(1, rank) if a != c])
    b.output(b.Transpose(y, perm=list(inverse(to))), "y")
    return b.module()


@pytest.mark.parametrize("first", [True, False], ids=["in NCHW", "in NHWC"])
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("name", OPS)
def test_an_op_works_in_another_layout(name: str, rank: int, first: bool) -> None:
    module = sandwich(name, rank, first)
    made = optimize(module, "layout,dce", verify_each=True)
    assert transposes(module) == 2
    feeds = feeds_of(module)
    if "r" in feeds:
        feeds["r"] = 1 + np.arange(rank) % 3
    # The other operand of W and C, or of C and W, is transposed itself, which is less; that of H and W need not be.
    assert transposes(made) == int(name == "Add, two axes" and not (first and rank > 3))
    assert made.inputs == module.inputs
    assert made.outputs == module.outputs
    assert_same_bits(module, made, feeds)


@pytest.mark.parametrize("name", [n for n in OPS if n not in ("Reshape of axes of size 1", "Slice, no axes")])
def test_sizes_may_be_symbols(name: str) -> None:
    module = sandwich(name, 4, True, batch="N")
    made = optimize(module, "layout,dce", verify_each=True)
    assert transposes(made) == 0
    assert made.outputs == module.outputs
    feeds = feeds_of(module, {"N": 3})
    if "r" in feeds:
        feeds["r"] = ints(1, 2, 3, 1)
    assert_same_bits(module, made, feeds)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 18, 23])
@pytest.mark.parametrize("name", OPS)
def test_what_could_be_written_still_can(name: str, opset: int) -> None:
    module = sandwich(name, 4, True, opset)
    try:
        module.to_onnx()
    except ik.IrkitError:
        # The op itself is younger: then there is nothing to keep.
        assert opset < 23
        return
    made = optimize(module, "layout,dce")
    made.to_onnx()
    assert transposes(made) <= 2


def layer_norm(axis: int) -> ik.Module:
    b = ik.Builder("norm")
    x = b.input("x", "float32", ["N", 4, 6, 3])
    shape = [4, 6, 3][axis - 1 :]
    scale = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    perm = [0, 2, 1, 3] if axis == 3 else [0, 1, 3, 2]
    y = b.LayerNormalization(b.Transpose(x, perm=perm), scale.transpose([p - axis for p in perm[axis:]]), axis=axis)
    b.output(b.Transpose(y, perm=perm), "y")
    return b.module()


@pytest.mark.parametrize("axis", [2, 3])
def test_a_layer_normalization_keeps_its_axes_last(axis: int) -> None:
    module = layer_norm(axis)
    made = optimize(module, "layout,dce", check="each", verify_each=True)
    assert transposes(made) == 0
    # Over channels that stand first there is no such op.
    stays = nchw_norm()
    assert transposes(optimize(stays, "layout,dce", check="each")) == 2


def nchw_norm() -> ik.Module:
    b = ik.Builder("norm")
    x = b.input("x", "float32", ["N", 6, 4, 3])
    y = b.LayerNormalization(b.Transpose(x, perm=[0, 2, 3, 1]), np.arange(1, 7, dtype=np.float32))
    b.output(b.Transpose(y, perm=[0, 3, 1, 2]), "y")
    return b.module()


def test_softmax_below_opset_13_stays_along_the_last_axis() -> None:
    def made(opset: int) -> int:
        b = ik.Builder("softmax", opsets={"": opset})
        x = b.input("x", "float32", [2, 6, 3, 4])
        b.output(b.Transpose(b.Softmax(b.Transpose(x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]), "y")
        return transposes(optimize(b.module(), "layout"))

    assert (made(12), made(13)) == (2, 0)


def test_sums_keep_their_order_where_that_is_asked_for() -> None:
    for name in ("ReduceMean", "Softmax", "Resize, linear", "LpNormalization"):
        assert transposes(optimize(sandwich(name, 4, True), "layout{exact=true}")) == 2, name
    for name in ("ReduceSum", "ReduceMax", "ArgMax", "CumSum", "Resize, scales", "Hardmax"):
        assert transposes(optimize(sandwich(name, 4, True), "layout{exact=true}")) == 0, name


# Nets


@pytest.mark.parametrize("name", NETS)
def test_a_net_ends_with_the_fewest_transposes(name: str) -> None:
    net = NETS[name]
    module = net.module()
    made = optimize(module, "layout,dce", check="each", verify_each=True)
    assert transposes(module) == net.before
    assert transposes(made) == net.fewest, net.why
    assert moved(made) <= moved(module)
    assert made.inputs == module.inputs
    assert made.outputs == module.outputs
    assert optimize(made, "layout,dce") == made
    report = compare(module, made, backends=("numpy", "onnxruntime"))
    assert report.equal, report.text()
    assert report.compared >= 2, report.text()


@pytest.mark.parametrize("name", NETS)
def test_o3_has_as_few(name: str) -> None:
    net = NETS[name]
    made = optimize(net.module(), "O3", check="end")
    assert transposes(made) <= net.fewest


def test_the_least_elements_are_transposed() -> None:
    """Three channels become 64: the Transpose belongs in front of the Conv, not behind it, and the mean behind all."""
    b = ik.Builder("g")
    rng = rng_of("least")
    x = b.input("x", "float32", ["N", 8, 8, 3])
    w = rng.standard_normal((64, 3, 1, 1), np.float32)
    y = b.Transpose(b.Conv(b.Transpose(x, perm=[0, 3, 1, 2]), w), perm=[0, 2, 3, 1])
    b.output(b.ReduceMean(b.Relu(y), ints(1, 2)), "y")
    module = b.module()
    made = optimize(module, "layout,dce", check="each")
    # What is left behind the mean moves an axis of size 1: that is a Reshape.
    assert transposes(made) == 1
    assert moved(made) == 64 * 8 * 8 * 3


def test_where_it_makes_no_difference_ops_work_in_the_layout_asked_for() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", ["N", 8, 8, 3])
    w = rng_of("to").standard_normal((3, 3, 1, 1), np.float32)
    b.output(b.Conv(b.Transpose(b.Relu(x), perm=[0, 3, 1, 2]), w), "y")
    module = b.module()
    for to, expected in (("nchw", ["Transpose", "Relu", "Conv"]), ("nhwc", ["Relu", "Transpose", "Conv"])):
        made = optimize(module, f"layout{{to={to}}},dce", check="each")
        names = [op.name.removeprefix("onnx.") for op in made.block.ops]
        assert [n for n in names if n in expected] == expected


def test_transposes_of_one_value_are_shared() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", [2, 3, 4, 5])
    for index in range(3):
        b.output(b.Transpose(b.Transpose(x, perm=[0, 2, 3, 1]), perm=[1, 0, 3, 2]), f"y{index}")
    made = optimize(b.module(), "layout,dce", check="each")
    assert transposes(made) == 1


def test_what_meets_in_other_layouts_keeps_its_transposes() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", [3, 3, 3])
    b.output(b.Transpose(x, perm=[2, 0, 1]) + b.Transpose(x, perm=[1, 2, 0]) + x, "y")
    module = b.module()
    made = optimize(module, "layout,dce", check="each")
    assert transposes(made) == 2


def test_graphs_of_control_flow_are_boundaries() -> None:
    b = ik.Builder("g")
    x, c = b.input("x", "float32", [2, 3, 4]), b.input("c", "bool", [])
    t = b.Transpose(x, perm=[0, 2, 1])

    def then(b: ik.Builder) -> ik.Tensor:
        return b.Transpose(b.Relu(b.Transpose(t, perm=[0, 2, 1])), perm=[0, 2, 1])

    b.output(b.Transpose(b.If(c, then_branch=then, else_branch=lambda b: b.Neg(t)), perm=[0, 2, 1]), "y")
    module = b.module()
    made = optimize(module, "layout,dce", check="each", verify_each=True)
    assert (transposes(module), transposes(made)) == (4, 2)


def test_names_and_origins_stay() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", ["N", 4, 4, 3])
    t = b.Transpose(x, perm=[0, 3, 1, 2], name="to_first")
    y = b.op("Relu", t, name="act")
    b.output(b.Transpose(y, perm=[0, 2, 3, 1]), "y")
    made = optimize(b.module(), "layout,dce")
    (relu,) = (op for op in made.block.ops if op.name == "onnx.Relu")
    assert node_name(relu) == "act"
    assert "layout" in describe(relu.location)
    assert "test_layout.py" in describe(relu.location)
    assert made.output_names == ["y"]
    assert not name_of(relu.results[0])


def test_other_ops_on_unknown_shapes_stay() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float32", None)
    b.output(b.Transpose(b.Relu(b.Transpose(x))), "y")
    module = b.module()
    assert optimize(module, "layout") == module


# The signature


def conv_net(layout: str) -> ik.Module:
    rng = rng_of("signature")
    b = ik.Builder("g")
    x = b.input("image", "float32", ["N", 3, 8, 8] if layout == "nchw" else ["N", 8, 8, 3])
    size = b.input("size", "float32", ["N", 5])
    w = rng.standard_normal((4, 3, 3, 3), np.float32)
    y = x if layout == "nchw" else b.Transpose(x, perm=[0, 3, 1, 2])
    y = b.Relu(b.Conv(y, w))
    b.output(y if layout == "nchw" else b.Transpose(y, perm=[0, 2, 3, 1]), "map")
    b.output(size * 2.0, "more")
    return b.module()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_images_change_their_layout_on_request(layout: str) -> None:
    other = {"nchw": "nhwc", "nhwc": "nchw"}[layout]
    module, expected = conv_net(layout), conv_net(other)
    made = optimize(module, f"layout{{inputs={other} outputs={other}}},dce", verify_each=True)
    assert made.inputs == expected.inputs
    assert made.outputs == expected.outputs
    assert transposes(made) == transposes(expected)
    feeds = feeds_of(made, {"N": 2})
    assert_same_bits(expected, made, feeds)
    # What has the layout already stays.
    assert optimize(module, f"layout{{inputs={layout}}}").inputs == module.inputs


def test_only_what_is_named_changes_its_layout() -> None:
    module = conv_net("nhwc")
    made = optimize(module, "layout{inputs=nchw outputs=nchw only=map}")
    assert made.inputs == module.inputs
    assert made.outputs != module.outputs
    with pytest.raises(PassError, match="nothing tells the layout of input 'size'"):
        optimize(conv_net_with_flat(), "layout{inputs=nhwc only=size}")
    with pytest.raises(PassError, match="is called 'imag'"):
        optimize(module, "layout{inputs=nchw only=imag}")
    with pytest.raises(PassError, match="option 'to'"):
        Layout(to="hwc")


def conv_net_with_flat() -> ik.Module:
    b = ik.Builder("g")
    b.output(b.Relu(b.input("size", "float32", ["N", 3, 4, 5])), "y")
    return b.module()


def test_the_pass_says_what_it_did() -> None:
    step = Layout(inputs="nchw")
    module = conv_net("nhwc")
    assert step.run(module)
    assert step.notes() == ["input 'image' is NCHW now", "transposes: 2 before, 1 after"]
    assert "signature" not in step.keeps
    assert "signature" in Layout().keeps


def test_the_work_is_linear() -> None:
    """A chain of one Transpose and many ops: as many steps for each, however many they are."""
    from irkit.passes.layout.cut import Network

    def steps(count: int) -> int:
        b = ik.Builder("chain")
        y = b.Transpose(b.input("x", "float32", ["N", 4, 4, 3]), perm=[0, 3, 1, 2])
        for _ in range(count):
            y = b.Relu(y)
        b.output(b.Transpose(y, perm=[0, 2, 3, 1]), "y")
        module, found = b.module(), 0
        levels = Network._levels

        def counting(self: Network) -> tuple[list[int], int]:
            nonlocal found
            made = levels(self)
            found += made[1]
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Network, "_levels", counting)
            assert Layout().run(module)
        assert transposes(module) == 0
        return found

    assert steps(2000) <= 2.5 * steps(1000)
