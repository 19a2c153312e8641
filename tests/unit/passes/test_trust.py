"""What optimize does around passes: failures undone and reproduced, printing, statistics, traces; origins of ops."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import irkit as ik
from irkit.errors import CheckError, IrkitError, LoadError, PassError
from irkit.ir.names import name_of, node_name, set_node_name, set_out_names
from irkit.passes import Instrumentation, Pass, optimize
from irkit.passes.explain import explain
from irkit.passes.reproduce import Reproducer, read_reproducer, write_reproducer
from irkit.passes.rewrite import Rewriter, ops_in


def model() -> ik.Module:
    """Three Exp ops named e0 to e2, added up, and what canonicalize and cse can do."""
    b = ik.Builder()
    x = b.input("x", "float32", ["N", 3])
    total = b.Identity(x)
    for index in range(3):
        e = b.Exp(x + float(index))
        set_out_names(e.ssa.owner, [f"e{index}"])
        set_node_name(e.ssa.owner, f"node{index}")
        total = total + e
    b.output(total, "y")
    return b.module()


@dataclass(frozen=True)
class ExpToExp2(Pass):
    """Writes Exp(x) as Pow(e, x), and one of them as Pow(2, x)."""

    name: ClassVar[str] = "to-pow"

    def run(self, module: ik.Module) -> bool:
        rewriter = Rewriter(module, "to-pow")
        for op in [op for op in ops_in(module.op) if op.name == "onnx.Exp"]:
            b = ik.Builder.before(op, module.ctx, by="to-pow")
            base = np.float32(2 if name_of(op.results[0]) == "e1" else np.e)
            rewriter.replace(op, [b.Pow(base, op.operands[0]).ssa])
        return True


@dataclass(frozen=True)
class Raises(Pass):
    """Rewrites one op, then raises."""

    name: ClassVar[str] = "raises"

    def run(self, module: ik.Module) -> bool:
        rewriter = Rewriter(module, "raises")
        op = next(op for op in ops_in(module.op) if op.name == "onnx.Exp")
        rewriter.replace(op, [op.operands[0]])
        raise RuntimeError("no luck")


def test_a_wrong_rewrite_is_named_and_the_pass_undone(tmp_path: Path) -> None:
    module = model()
    made = module.clone()
    seen = Instrumentation(check_each=True)
    with pytest.raises(CheckError) as caught:
        seen.run_pass(ExpToExp2(), made)
    assert made == module
    text = str(caught.value)
    assert text.startswith(
        "pass 'to-pow' changed what the module computes: rewrite 2 of 3, 'to-pow' at onnx.Exp 'node1'"
    )
    assert "output 'y'" in text
    assert seen.records[0].failed
    assert not seen.records[0].changed


def test_a_pass_that_raises_is_undone_and_named_with_its_last_rewrite() -> None:
    module = model()
    made = module.clone()
    seen = Instrumentation(check_each=True)
    with pytest.raises(PassError, match=r"no luck \(after 'raises' at onnx.Exp 'node0'"):
        seen.run_pass(Raises(), made)
    assert made == module


def test_keep_going_leaves_out_the_passes_that_fail() -> None:
    stream = io.StringIO()
    seen = Instrumentation()
    made = optimize(
        model(),
        [Raises(), ExpToExp2(), "canonicalize"],
        check="each",
        keep_going=True,
        stream=stream,
        instrumentation=seen,
    )
    assert made == optimize(model(), "canonicalize")
    assert [bool(r.failed) for r in seen.records] == [True, True, False]
    assert stream.getvalue().count("undone: ") == 2


def test_a_reproducer_does_it_again(tmp_path: Path) -> None:
    path = tmp_path / "again.mlir"
    module = model()
    with pytest.raises(CheckError, match=r"irkit opt --reproduce .*again.mlir does it again"):
        optimize(module, ["cse", ExpToExp2()], check="each", reproducer=path)
    found = read_reproducer(path)
    assert found.pipeline == "to-pow"
    assert found.module == optimize(module, "cse")
    assert found.backends == ("numpy",)
    assert "rewrite 2 of 3" in found.message
    assert found.feeds
    assert all(set(fed) == {"x"} and fed["x"].dtype == np.float32 for fed in found.feeds)
    # Its inputs show the mistake.
    with pytest.raises(CheckError, match="rewrite 2 of 3"):
        optimize(
            found.module, [ExpToExp2()], check="each", instrumentation=Instrumentation(options={"feeds": found.feeds})
        )


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int4", "string", "bool", "complex64", "float8_e4m3fn"])
def test_reproducers_keep_inputs_to_the_bit(tmp_path: Path, kind: str) -> None:
    from irkit.ir.dtypes import dtype
    from irkit.verify.generate import random_array

    b = ik.Builder("g")
    b.output(b.Identity(b.input("ä x", kind, ["N", 3])), "y")
    value = random_array(dtype(kind), (5, 3), np.random.default_rng(0), special=True)
    path = write_reproducer(Reproducer(b.module(), "dce", feeds=[{"ä x": value}], message="so"), tmp_path / "r.mlir")
    (fed,) = read_reproducer(path).feeds
    assert fed["ä x"].dtype == value.dtype
    assert fed["ä x"].tobytes() == value.tobytes() if kind != "string" else (fed["ä x"] == value).all()


def test_reproducers_keep_sequences_and_leave_out_what_they_cannot_hold(tmp_path: Path) -> None:
    module = model()
    path = tmp_path / "r.mlir"
    sequence = [np.ones(2, np.float32), np.zeros((0, 1), np.float32)]
    write_reproducer(Reproducer(module, "dce", feeds=[{"s": sequence}, {"m": {1: 2.0}}]), path)
    (fed,) = read_reproducer(path).feeds
    assert [a.shape for a in fed["s"]] == [(2,), (0, 1)]
    ik.save(module, path)
    with pytest.raises(LoadError, match="is no reproducer"):
        read_reproducer(path)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("all", None, ["before canonicalize", "before cse", "before dce"]),
        ("changed", None, ["before canonicalize"]),
        ("cse", None, ["before cse"]),
        (None, "changed", ["after canonicalize"]),
        ("dce", "dce", ["before dce", "after dce (no change)"]),
    ],
)
def test_printing(before: str | None, after: str | None, expected: list[str]) -> None:
    stream = io.StringIO()
    optimize(model(), "canonicalize,cse,dce", print_before=before, print_after=after, stream=stream)
    lines = stream.getvalue().splitlines()
    assert [line.removeprefix("// ") for line in lines if line.startswith("// ")] == expected
    assert sum("func.func @main" in line for line in lines) == len(expected)


def test_print_before_must_name_a_pass() -> None:
    with pytest.raises(PassError, match="print_before names no pass"):
        optimize(model(), "cse", print_before="dse")


def test_statistics_and_memory() -> None:
    stream = io.StringIO()
    seen = Instrumentation()
    optimize(model(), "canonicalize,cse", statistics=True, stream=stream, instrumentation=seen)
    assert seen.records[0].rewrites == {"canonicalize:identity": 1}
    assert isinstance(seen.records[0].memory, int)
    assert "canonicalize: " in stream.getvalue()
    assert "1  canonicalize:identity" in stream.getvalue()


def test_a_trace_for_chrome(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    optimize(model(), "canonicalize,cse", check="each", trace=path)
    events = json.loads(path.read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["optimize", "clone", "canonicalize", "check", "cse"]
    whole = events[0]
    for event in events[1:]:
        assert event["ph"] == "X"
        assert whole["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + 1
    assert events[2]["args"]["rewrites"] == {"canonicalize:identity": 1}


def test_a_trace_is_written_where_a_pass_fails(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with pytest.raises(PassError):
        optimize(model(), [Raises()], trace=path)
    assert [e["name"] for e in json.loads(path.read_text())["traceEvents"]] == ["optimize", "clone", "raises"]


# Where ops came from


def test_an_op_says_through_which_passes_and_rules_it_came() -> None:
    b = ik.Builder("g", opsets={"": 24})
    x = b.input("x", "float32", ["N", 3])
    first = b.Sigmoid(b.Neg(b.Neg(x)))
    product = b.Identity(x) * first
    for node, value in (("sigmoid", first), ("product", product)):
        set_node_name(value.ssa.owner, node)
    b.output(product, "y")
    made = optimize(b.module(), "canonicalize,fuse,dce")
    (op,) = (op for op in made.block.ops if op.name == "onnx.Swish")
    found = explain(made, op)
    (_, origin) = found.ops[0]
    assert origin.steps() == ["fuse:swish"]
    assert len(origin.sources()) == 2
    assert "made by fuse:swish" in found.text()
    assert node_name(op) == "product"
    assert explain(made, "product").ops[0][0] is op


def test_a_node_of_the_file_says_what_became_of_it() -> None:
    from tests.corpus.build import from_text

    module = ik.load(
        from_text(
            "g (float[N, 3] x) => (float[N, 3] y){ t = Neg (x)  u = Neg (t)  v = Exp (u)  w = Exp (x)  y = Add (v, w) }"
        )
    )
    made = optimize(module, "O1")
    found = explain(made, "#2")
    assert found.is_source
    ((op, origin),) = found.ops
    assert op.name == "onnx.Exp"
    assert origin.steps() == ["cse"]
    assert [s.partition(" of ")[0] for s in origin.sources()] == ["node #2", "node #3"]
    data = found.to_json()
    assert data["ops"][0]["steps"] == ["cse"]
    with pytest.raises(IrkitError, match="nothing in the module is called 'q'"):
        explain(made, "q")


def test_explain_tells_what_is_fused_away_from_what_is_removed_and_what_never_was() -> None:
    from tests.corpus.build import from_text

    source = ik.load(
        from_text(
            "g (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] c = {1, 2}>"
            "{ n = Neg (x)  p = Neg (n)  t = MatMul (p, w)  y = Add (t, c) }"
        )
    )
    made = optimize(source, "O3")
    by_value, by_number = explain(made, "t", source=source), explain(made, "#2", source=source)
    assert by_value.is_source
    assert [op.name for op, _ in by_value.ops] == [op.name for op, _ in by_number.ops] == ["onnx.Gemm"]
    for gone in ("n", "#0"):
        with pytest.raises(IrkitError, match=f"nothing is left of '{gone}'"):
            explain(made, gone, source=source)
    with pytest.raises(IrkitError, match="the nodes of the file are #0 to #3"):
        explain(made, "#99", source=source)
    for module in (source, made):
        with pytest.raises(IrkitError, match="nothing in the module is called 'qqq'") as caught:
            explain(module, "qqq", source=source)
        assert "removed" not in str(caught.value)
    assert explain(source, "x").text() == "'x' is an input of the graph: no op makes it"
    assert explain(source, "w").text().endswith("\n  an initializer of the graph")


def test_a_pass_that_changes_the_signature_is_not_compared() -> None:
    from irkit.dialects.state import build

    b = ik.Builder("counter")
    x = b.input("x", "float32", [2])
    total = build.variable(b, "total", np.zeros(2, np.float32))
    build.assign(b, total, build.read(b, total)[0] + x)
    b.output(x * 2.0, "y")
    seen = Instrumentation()
    made = optimize(b.module(), "lift-state,canonicalize", check="each", stream=io.StringIO(), instrumentation=seen)
    assert "total" in " ".join(made.inputs)
    assert seen.records[0].unchecked == ["it changes the signature on purpose"]
