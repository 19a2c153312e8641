"""The rules of `passes/fusion`: each on graphs made from its pattern, and all on what PyTorch's exporters write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.passes import Instrumentation
from irkit.passes.fusion import all_rules
from irkit.passes.rules import HandRule, Rewrite, Rule
from irkit.passes.rules.pattern import Variable
from irkit.testing import check_rule
from irkit.verify import compare

EXPORTED = Path(__file__).parent / "exported"


def rotary(split: bool) -> ik.Module:
    b = ik.Builder("rotary", opsets={"": 26})
    x, f = b.input("x", "float32", ["B", 2, "S", 8]), b.input("f", "float32", ["B", "S", 4])
    both = b.Concat(f, f, axis=-1)
    cos, sin = (b.Unsqueeze(t, np.array([1])) for t in (b.Cos(both), b.Sin(both)))
    if split:
        first, second = b.Split(x, np.array([4, 4]), axis=-1, outputs=2)
    else:
        axis, step = np.array([3]), np.array([1])
        first = b.Slice(x, np.array([0]), np.array([4]), axis, step)
        second = b.Slice(x, np.array([4]), np.array([np.iinfo(np.int64).max]), axis, step)
    b.output(x * cos + b.Concat(b.Neg(second), first, axis=-1) * sin, "y")
    # The tables serve other heads as well.
    b.output(cos, "cos")
    return b.module()


GRAPHS: dict[str, list[ik.Module]] = {
    "rotary-embedding": [rotary(False), rotary(True)],
}


def dtypes_of(rule: Rewrite) -> list[str] | None:
    """One or two element types for the quick tests: float32, and a narrow one where the rule takes it."""
    if not isinstance(rule, Rule):
        return None
    kinds = [v.dtypes for v in rule.traced.variables.values() if isinstance(v, Variable) and v.dtypes is not None]
    names = [k.name for k in kinds[0]] if kinds else ["float32"]
    return [name for name in ("float32", "float16") if name in names]


RULES = [pytest.param(rule, id=f"{rule.name}-{index}") for index, rule in enumerate(all_rules())]


@pytest.mark.parametrize("rule", RULES)
def test_both_sides_of_a_rule_are_equal(rule: Rewrite) -> None:
    report = check_rule(rule, dtypes=dtypes_of(rule), graphs=graphs_of(rule))
    assert report.fired >= (3 if isinstance(rule, Rule) and rule.samples else 1)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_both_sides_of_a_rule_are_equal_for_all_types_and_on_onnxruntime(rule: Rewrite) -> None:
    check_rule(rule, graphs=graphs_of(rule))
    check_rule(rule, dtypes=["float32"], graphs=graphs_of(rule), backends=("numpy", "onnxruntime"), seed=1)


def graphs_of(rule: Rewrite) -> list[ik.Module]:
    graphs = GRAPHS.get(rule.name, [])
    if rule.name != "rotary-embedding" or not isinstance(rule, Rule):
        return graphs
    # Two rules of one name, of which each matches one of the two.
    return [graphs["parts" in rule.traced.variables]]


def test_rules_declare_themselves() -> None:
    for rule in all_rules():
        assert rule.name == rule.name.lower()
        assert rule.precision in ("exact", "rounding", "fast-math")
        assert rule.roots
        assert isinstance(rule, HandRule) or rule.samples or rule.name in GRAPHS or not needs_samples(rule)


def needs_samples(rule: Rule) -> bool:
    return any(not isinstance(v, Variable) for v in rule.traced.variables.values())


# What exporters write

MADE = {
    "gelu": "Gelu",
    "gelu_tanh": "Gelu",
    "new_gelu": "Gelu",
    "quick_gelu": "Swish",
    "silu": "Swish",
    "hardswish": "HardSwish",
    "mish": "Mish",
    "layer_norm": "LayerNormalization",
    "rms_norm": "RMSNormalization",
    "group_norm": "GroupNormalization",
    "conv_bn": "Conv",
    "conv_transpose_bn": "ConvTranspose",
    "linear": "Gemm",
    "log_softmax": "LogSoftmax",
    "cross_entropy": "SoftmaxCrossEntropyLoss",
    "rotary": "RotaryEmbedding Cos Sin",
    "attention": "Attention",
    "masked_attention": "Attention",
    "sdpa": "Attention",
}
"""By the first part of a file's name, the ops that are left besides reshapes, transposes and a scale."""
BESIDES = {"Constant", "Initializer", "NoValue", "return", "Reshape", "Transpose", "Mul"}
FAST = {"attention", "masked_attention", "sdpa"}


@pytest.mark.parametrize("path", sorted(EXPORTED.glob("*.onnx")), ids=lambda p: p.stem)
def test_what_exporters_write_is_recognised(path: Path) -> None:
    layer = path.stem.partition(".")[0]
    module = ik.load(path)
    pipeline = "O3,fuse{fast-math=true},O2" if layer in FAST else "O3"
    made = ik.optimize(module, pipeline, target_opset=24)
    left = Counter(op.name.rpartition(".")[2] for op in made.block.ops)
    assert {name for name in left if name not in BESIDES} == set(MADE[layer].split())
    assert left["Reshape"] + left["Transpose"] <= 4
    # Attention gives zeros where all scores are -inf: infinite inputs would show that.
    report = compare(module, made, special=layer not in FAST)
    assert report.equal, report.text()
    assert report.compared >= 1


@pytest.mark.parametrize("path", sorted(EXPORTED.glob("*.ts13.onnx")), ids=lambda p: p.stem)
def test_nothing_is_made_that_the_model_s_own_opset_lacks(path: Path) -> None:
    module = ik.load(path)
    made = ik.optimize(module, "O3,fuse{fast-math=true gradients=false},O2")
    assert made.opsets[""] == 13
    written = made.to_onnx()
    assert [o.version for o in written.opset_import if o.domain in ("", "ai.onnx")] == [13]
    assert compare(ik.load(path), ik.load(written), special=False).equal


# Conditions


def left_of(build: Any, pipeline: str = "fuse", **inputs: Any) -> Counter[str]:
    b = ik.Builder("g", opsets={"": 26})
    b.output(build(b, *(b.input(name, *given) for name, given in inputs.items())), "y")
    module = b.module()
    made = ik.optimize(module, pipeline)
    assert compare(module, made, special=False).equal
    return Counter(op.name.removeprefix("onnx.") for op in made.block.ops)


def layer_norm(axes: int = -1) -> Any:
    def build(b: Any, x: Any, gamma: Any, beta: Any) -> Any:
        d = x - b.ReduceMean(x, np.array([axes]))
        return d / b.Sqrt(b.ReduceMean(d * d, np.array([axes])) + 1e-5) * gamma + beta

    return build


def test_layer_norm_looks_at_the_shapes_of_its_parameters() -> None:
    x = ("float32", ["N", 3, 4])
    fits = {"x": x, "gamma": ("float32", [4]), "beta": ("float32", [4])}
    assert left_of(layer_norm(), **fits)["Mul"] == 0
    # The scale that would broadcast stays an op of its own.
    for gamma in ([1], [3, 1], [3, 4], ["M"], [2, 1, 4]):
        left = left_of(layer_norm(), **{**fits, "gamma": ("float32", gamma)})
        assert left["LayerNormalization"] == left["Mul"] == left["Add"] == 1
    assert left_of(layer_norm(1), **fits)["LayerNormalization"] == 0
    # Of a size that is not known no scale of ones can be made.
    for gamma, expected in ((["D"], 1), ([1], 0)):
        sizes = {"x": ("float32", ["N", "D"]), "gamma": ("float32", gamma), "beta": ("float32", [1])}
        assert left_of(layer_norm(), **sizes)["LayerNormalization"] == expected


def test_a_bias_that_would_widen_the_product_stays_outside() -> None:
    x, w = ("float32", ["N", 3]), ("float32", [3, 4])
    assert left_of(lambda b, x, w, c: x @ w + c, x=x, w=w, c=("float32", [4]))["Gemm"] == 1
    for shape in ([5, 1, 4], [2, 1, 1], ["M", 4], ["N", 1, 4]):
        assert left_of(lambda b, x, w, c: x @ w + c, x=x, w=w, c=("float32", shape))["Gemm"] == 0


def test_attention_wants_the_same_heads_everywhere() -> None:
    def build(b: Any, q: Any, k: Any, v: Any) -> Any:
        return b.Softmax(q @ b.Transpose(k, perm=[0, 1, 3, 2]) * 0.5, axis=-1) @ v

    fast = "fuse{fast-math=true}"
    shape = ("float32", ["N", 2, 5, 4])
    assert left_of(build, fast, q=shape, k=shape, v=shape)["Attention"] == 1
    one = ("float32", ["N", 1, 5, 4])
    assert left_of(build, fast, q=shape, k=one, v=one)["Attention"] == 0
    assert left_of(build, q=shape, k=shape, v=shape)["Attention"] == 0


def test_a_chain_behind_a_convolution_goes_into_its_weights() -> None:
    rng = np.random.default_rng(0)

    def build(b: Any, x: Any) -> Any:
        w = b.initializer(rng.standard_normal((4, 3, 3, 3), np.float32), "w")
        shift, factor, offset = (rng.standard_normal((4, 1, 1), np.float32) for _ in range(3))
        return (b.Conv(x, w) - shift) * factor + offset

    left = left_of(build, "O3", x=("float32", ["N", 3, 6, 6]))
    assert left["Conv"] == 1
    assert left["Sub"] == left["Mul"] == left["Add"] == 0


def test_a_shape_is_no_data_to_fuse_through() -> None:
    # The values of the second operand only say a shape: what is computed there is not what is normalized.
    left = left_of(
        lambda b, x, n: b.Reshape(b.Relu(x), b.Concat(b.Max(n, np.int64([1])), np.int64([-1]), axis=0)),
        "fuse{gradients=false}",
        x=("float32", ["N", 6]),
        n=("int64", [1]),
    )
    assert left["Max"] == 1


def test_results_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys, hashlib, irkit as ik\n"
        "for p in sorted(sys.argv[1:]):\n"
        "    m = ik.optimize(ik.load(p), 'O3,fuse{fast-math=true}', target_opset=24)\n"
        "    print(hashlib.sha256(m.to_onnx().SerializeToString(deterministic=True)).hexdigest())\n"
    )
    paths = [str(path) for path in EXPORTED.glob("*.ts17.onnx")]
    seen: set[str] = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script, *paths],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def test_weights_that_another_op_uses_are_left_alone() -> None:
    rng = np.random.default_rng(0)

    def build(b: Any, x: Any) -> Any:
        w = b.initializer(rng.standard_normal((3, 3, 1, 1), np.float32), "w")
        statistics = [b.initializer(np.abs(rng.standard_normal(3, np.float32)) + 0.1, f"s{i}") for i in range(4)]
        return b.BatchNormalization(b.Conv(x, w), *statistics) + b.Conv(b.Relu(x), w)

    left = left_of(build, "fold-batch-norm", x=("float32", ["N", 3, 4, 4]))
    assert left["BatchNormalization"] == 1


def test_statistics_that_a_caller_may_override_are_no_constants() -> None:
    from tests.corpus.build import from_text

    text = """g (float[N, 2, 3] x, float[2] m) => (float[N, 2, 3] y)
    <float[2, 2, 1] w = {1, 2, 3, 4}, float[2] m = {1, 2}, float[2] s = {1, 2}, float[2] v = {1, 3}>
    { t = Conv (x, w)  y = BatchNormalization (t, s, s, m, v) }"""
    made = ik.optimize(ik.load(from_text(text)), "O3")
    assert any(op.name == "onnx.BatchNormalization" for op in made.block.ops)


def test_a_batch_norm_that_trains_stays() -> None:
    from tests.corpus.build import from_text

    text = """g (float[N, 2, 3] x) => (float[N, 2, 3] y, float[2] rm, float[2] rv)
    <float[2, 2, 1] w = {1, 2, 3, 4}, float[2] m = {1, 2}, float[2] s = {1, 2}, float[2] v = {1, 3}>
    { t = Conv (x, w)  y, rm, rv = BatchNormalization <training_mode = 1> (t, s, s, m, v) }"""
    made = ik.optimize(ik.load(from_text(text)), "O3")
    assert any(op.name == "onnx.BatchNormalization" for op in made.block.ops)


def test_max_pool_takes_up_only_what_no_window_can_see_alone() -> None:
    def build(fill: float, pads: list[int]) -> Any:
        return lambda b, x: b.MaxPool(b.Pad(x, np.array(pads), np.float32(fill)), kernel_shape=[2, 2])

    x = ("float32", ["N", 3, 4, 4])
    assert left_of(build(-np.inf, [0, 0, 1, 1, 0, 0, 1, 1]), x=x)["Pad"] == 0
    assert left_of(build(0.0, [0, 0, 1, 1, 0, 0, 1, 1]), x=x)["Pad"] == 1
    assert left_of(build(-np.inf, [0, 0, 2, 0, 0, 0, 0, 0]), x=x)["Pad"] == 1
    assert left_of(build(-np.inf, [1, 0, 1, 0, 0, 0, 0, 0]), x=x)["Pad"] == 1


def test_statistics_say_how_often_each_rule_fired() -> None:
    seen = Instrumentation()
    b = ik.Builder("g", opsets={"": 24})
    x = b.input("x", "float32", ["N"])
    b.output(b.Tanh(x * b.Sigmoid(x)) * b.Sigmoid(x * b.Sigmoid(x)), "y")
    ik.optimize(b.module(), "fuse", instrumentation=seen)
    assert seen.records[0].rewrites == {"fuse:swish": 2}
