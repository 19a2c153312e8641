"""Pipelines: text, levels, errors, and what goes on around each pass."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline

import irkit as ik
from irkit.errors import CheckError, PassError
from irkit.passes import LEVELS, Instrumentation, Pass, optimize, parse_pipeline, pass_names, registry, xdsl_passes
from irkit.passes.constant_fold import ConstantFolding


def model() -> ik.Module:
    b = ik.Builder()
    x = b.input("x", "float32", [4])
    b.output(b.Exp(x) + b.Exp(x) * (b.constant(2.0, "float32") + 3), "y")
    return b.module()


@dataclass(frozen=True)
class Breaks(Pass):
    """Turns every Exp into a Neg."""

    name: ClassVar[str] = "breaks"

    def run(self, module: ik.Module) -> bool:
        for op in list(module.walk()):
            if op.name == "onnx.Exp":
                b = ik.Builder.before(op, module.ctx, by="breaks")
                op.results[0].replace_all_uses_with(b.Neg(op.operands[0]).ssa)
        return True


@dataclass(frozen=True)
class Raises(Pass):
    """Removes an op, then raises."""

    name: ClassVar[str] = "raises"

    def run(self, module: ik.Module) -> bool:
        next(iter(module.block.ops)).detach()
        raise RuntimeError("no luck")


@dataclass(frozen=True)
class Invalid(Pass):
    """Moves the last op before the first."""

    name: ClassVar[str] = "invalid"

    def run(self, module: ik.Module) -> bool:
        last = module.block.last_op
        assert last is not None
        op = last.prev_op
        assert op is not None
        op.detach()
        first = module.block.first_op
        assert first is not None
        module.block.insert_op_before(op, first)
        return True


def test_text_becomes_passes_with_options() -> None:
    steps = parse_pipeline("canonicalize, cse,constant-fold{max-bytes=5 quantization=true},onnx-dce")
    assert [s.name for s in steps] == ["onnx-canonicalize", "onnx-cse", "onnx-constant-fold", "onnx-dce"]
    assert steps[2] == ConstantFolding(max_bytes=5, quantization=True)
    assert parse_pipeline("") == []


def test_levels_stand_for_pipelines() -> None:
    for level, text in LEVELS.items():
        assert parse_pipeline(level) == parse_pipeline(text)
    assert parse_pipeline("O1,dce") == [*parse_pipeline("O1"), *parse_pipeline("dce")]
    assert parse_pipeline("O0") == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("canonicalise", "there is no pass 'canonicalise'", "did you mean 'canonicalize'?"),
        ("O4", "there is no pass 'O4'", "O3"),
        ("constant-fold{max-byte=3}", "has no option 'max-byte'", "did you mean 'max-bytes'?"),
        ("dce{x=1}", "has no option 'x'", "known options: none"),
        ("constant-fold{max-bytes=many}", "wrong value", ""),
        ("cse,,dce", "is no pipeline", "pass,pass{option=value"),
        ("cse{", "is no pipeline", ""),
        ("cse;dce", "is no pipeline", ""),
        ("O2{x=1}", "'O2' has no options", ""),
    ],
)
def test_wrong_text_is_one_clear_error(text: str, message: str, hint: str) -> None:
    with pytest.raises(PassError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_the_input_is_unchanged_and_the_result_is_new() -> None:
    module = model()
    before = module.clone()
    made = optimize(module, "O3")
    assert module == before
    assert made != module
    assert optimize(module, "O0") == module


def test_a_pass_that_raises_is_named_and_harms_nothing() -> None:
    module = model()
    before = module.clone()
    with pytest.raises(PassError, match="pass 'raises' failed: RuntimeError: no luck"):
        optimize(module, [Raises()])
    assert module == before


def test_an_invalid_result_is_found_by_verify_each() -> None:
    optimize(model(), [Invalid()])
    with pytest.raises(PassError, match="pass 'invalid' left an invalid module"):
        optimize(model(), [Invalid()], verify_each=True)


@pytest.mark.parametrize("check", ["each", "end"])
def test_a_wrong_result_is_found_by_check(check: str) -> None:
    with pytest.raises(CheckError) as caught:
        optimize(model(), [*parse_pipeline("cse"), Breaks()], check=check)
    assert ("pass 'breaks'" if check == "each" else "the pipeline") in str(caught.value)
    assert caught.value.exit_code == 1


def test_what_was_not_compared_is_said() -> None:
    b = ik.Builder(opsets={"": 21, "other": 1})
    from irkit.dialects.onnx import Custom
    from irkit.ir.types import tensor

    x = b.input("x", "float32", [4])
    op = Custom.of("other", "Thing", [x.ssa], [tensor("float32", (4,))])
    b.insert(op)
    b.Neg(x)
    b.output(op.results[0], "y")
    stream = io.StringIO()
    seen = Instrumentation()
    optimize(b.module(), "dce", check="each", stream=stream, instrumentation=seen)
    assert "after dce, not compared:" in stream.getvalue()
    assert seen.records[0].unchecked


def test_records_say_what_changed_and_what_it_took() -> None:
    seen = Instrumentation()
    stream = io.StringIO()
    optimize(model(), "constant-fold,cse,dce,dce", timing=True, stream=stream, instrumentation=seen)
    assert [(r.name, r.changed) for r in seen.records] == [
        ("constant-fold", True),
        ("cse", True),
        ("dce", True),
        ("dce", False),
    ]
    assert seen.records[2].ops_after < seen.records[2].ops_before
    (root,) = seen.timing.children
    assert [child.name for child in root.children] == ["clone", "constant-fold", "cse", "dce", "dce"]
    assert root.seconds >= sum(child.seconds for child in root.children)
    assert "constant-fold" in stream.getvalue()
    assert "100.0 %" in stream.getvalue()


@pytest.mark.parametrize(
    ("print_after", "expected"),
    [("all", ["cse", "cse (no change)", "dce (no change)"]), ("changed", ["cse"]), ("dce", ["dce (no change)"])],
)
def test_print_after(print_after: str, expected: list[str]) -> None:
    stream = io.StringIO()
    optimize(model(), "cse,cse,dce", print_after=print_after, stream=stream)
    lines = stream.getvalue().splitlines()
    assert [line.removeprefix("// after ") for line in lines if line.startswith("// after")] == expected
    assert any("func.func @main" in line for line in lines)


def test_print_after_a_pass_that_is_not_there() -> None:
    with pytest.raises(PassError, match="print_after names no pass"):
        optimize(model(), "cse", print_after="dse")


def test_target_opset() -> None:
    assert optimize(model(), "O1", target_opset=13).opsets[""] == 13
    with pytest.raises(PassError, match="target_opset is 1000"):
        optimize(model(), "O1", target_opset=1000)


def test_our_passes_run_in_pipelines_of_xdsl() -> None:
    module = model()
    pipeline = PassPipeline.parse_spec(xdsl_passes(), "onnx-constant-fold{max-bytes=100},onnx-cse,onnx-dce")
    made = module.clone()
    pipeline.apply(made.ctx, made.op)
    made.verify()
    assert made == optimize(module, "constant-fold,cse,dce")
    assert set(xdsl_passes()) == {f"onnx-{name}" for name in registry.BUILTIN}
    for name, load in xdsl_passes().items():
        assert load().name == name


def test_passes_of_xdsl_run_in_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stock(ModulePass):
        name = "stock"

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            for inner in op.walk():
                inner.attributes.pop("onnx.outs", None)

    seen = Instrumentation()
    optimize(model(), [Stock()], instrumentation=seen)
    assert not seen.records[0].changed


def test_plugins_add_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "breaks": EntryPoint("breaks", f"{__name__}:Breaks", registry.GROUP),
        "cse": EntryPoint("cse", "elsewhere:Cse", registry.GROUP),
        "gone": EntryPoint("gone", "no_such_module:Gone", registry.GROUP),
        "odd": EntryPoint("odd", "builtins:int", registry.GROUP),
    }
    monkeypatch.setattr(registry, "_plugins", lambda: points)
    monkeypatch.setattr(EntryPoint, "load", lambda self: {"breaks": Breaks, "odd": int}[self.name])
    assert "breaks" in pass_names()
    (step,) = parse_pipeline("breaks")
    assert isinstance(step, Breaks)
    for text, message in (("cse", "claims the name"), ("gone", "does not load"), ("odd", "is no pass")):
        with pytest.raises(PassError, match=message):
            parse_pipeline(text)


def test_every_pass_declares_itself() -> None:
    for name in registry.BUILTIN:
        cls = registry.find_pass(name)
        assert issubclass(cls, Pass)
        assert cls.name == f"onnx-{name}"
        assert cls.__doc__
        assert cls.keeps <= {"types", "signature", "gradients"}
        assert cls.requires <= {"types"}


def test_output_depends_on_nothing_but_the_input() -> None:
    from irkit.backends.onnx import export

    module = model()
    texts = {export(optimize(module, "O3")).SerializeToString(deterministic=True) for _ in range(3)}
    assert len(texts) == 1


def test_a_long_chain_is_linear() -> None:
    """Ten times the ops take at most about ten times as long; measured by work, not by the clock."""
    import sys

    def calls(n: int) -> int:
        b = ik.Builder()
        y = b.input("x", "float32", [2])
        for index in range(n):
            y = b.op(("Relu", "Identity", "Neg", "Neg")[index % 4], y)
        b.output(y, "y")
        module = b.module()
        count = 0

        def profiler(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(profiler)
        try:
            optimize(module, "O2")
        finally:
            sys.setprofile(None)
        return count

    calls(40)
    assert calls(4000) < 11 * calls(400)


def test_a_pipeline_may_be_given_in_parts_and_what_is_no_pass_is_refused() -> None:
    b = ik.Builder()
    x = b.input("x", "float32", [2])
    b.output(b.Identity(x) + b.Identity(x), "y")
    module = b.module()
    whole = ik.optimize(module, "canonicalize,cse,dce")
    assert ik.optimize(module, ["canonicalize,cse", "dce"]) == whole
    assert ik.optimize(module, parse_pipeline("canonicalize")[0]) == ik.optimize(module, "canonicalize")
    with pytest.raises(PassError, match="is no pass"):
        ik.optimize(module, [42])  # type: ignore[list-item]
