"""Initial values, the signature of a lifted module through ONNX and text, and running with state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

import irkit as ik
from irkit import backends
from irkit.dialects import state
from irkit.errors import FeedError, IrkitError, UnsupportedError, VerifyError
from irkit.ir.attributes import strings
from irkit.ir.builder import Builder
from irkit.ir.module import Module
from irkit.ir.names import metadata_of, set_metadata
from irkit.passes import optimize
from irkit.passes.lift_state import LiftState


def counter() -> Module:
    b = Builder("counter")
    step = b.input("step", "int64", [])
    count = state.variable(b, "count", 7, trainable=True, metadata={"unit": "runs"}, doc="how often")
    limit = state.variable(b, "größe/limit: 1", np.int64(100))
    value, t = state.read(b, count)
    most, _ = state.read(b, limit)
    b.output(value, "before")
    b.output(state.assign(b, count, b.Min(value + step, most), [t]), "done")
    return b.module()


def lifted() -> Module:
    module = counter()
    assert LiftState().run(module)
    return module.verify()


SIGNATURE = (
    state.StateEntry("count", "count", "next/count", trainable=True, metadata={"unit": "runs"}),
    state.StateEntry("größe/limit: 1", "größe/limit: 1", None),
)


def test_the_initial_state_is_that_of_the_variables_and_of_the_inputs() -> None:
    before, after = state.initial_state(counter()), state.initial_state(lifted())
    assert before == after == {"count": 7, "größe/limit: 1": 100}
    assert list(after) == ["count", "größe/limit: 1"]
    assert not after["count"].flags.writeable
    plain = Builder("plain")
    plain.output(plain.input("x"), "y")
    stateless = plain.module()
    assert state.initial_state(stateless) == {}
    assert state.state_signature(stateless) == ()


def test_the_signature_survives_text_onnx_and_passes(tmp_path: Path) -> None:
    module = lifted()
    assert state.state_signature(module) == SIGNATURE
    assert state.state_signature(ik.parse(str(module))) == SIGNATURE
    assert state.state_signature(optimize(module, "O2")) == SIGNATURE
    ik.save(module, tmp_path / "counter.onnx")
    loaded = ik.load(tmp_path / "counter.onnx")
    assert state.state_signature(loaded) == SIGNATURE
    assert state.initial_state(loaded) == {"count": 7, "größe/limit: 1": 100}


def test_names_that_are_no_symbols_survive_text() -> None:
    module = counter()
    again = ik.parse(str(module))
    assert again == module
    assert list(state.initial_state(again)) == ["count", "größe/limit: 1"]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_running(backend: str) -> None:
    runner = backends.compile(lifted(), backend)
    start = state.initial_state(lifted())
    outputs, after = state.run_stateful(runner, SIGNATURE, {"step": np.array(50)}, start)
    assert (outputs, after) == ({"before": 7}, {"count": 57, "größe/limit: 1": 100})
    assert start["count"] == 7
    outputs, after = state.run_stateful(runner, SIGNATURE, {"step": np.array(50)}, after, fetches=[])
    assert (outputs, after["count"]) == ({}, 100)
    lower = {**after, "größe/limit: 1": np.array(9)}
    outputs, after = state.run_stateful(runner, SIGNATURE, {"step": np.array(1)}, lower)
    assert (outputs, after) == ({"before": 100}, {"count": 9, "größe/limit: 1": 9})


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_a_run_without_state_starts_from_the_beginning(backend: str) -> None:
    found = backends.compile(lifted(), backend).run({"step": np.array(1)})
    assert found == {"before": 7, "next/count": 8}


def test_state_that_does_not_fit() -> None:
    runner = backends.compile(lifted(), "numpy")
    feeds = {"step": np.array(1)}
    with pytest.raises(FeedError, match=r"lacks \['größe/limit: 1'\] and has the unknown \['c'\]"):
        state.run_stateful(runner, SIGNATURE, feeds, {"count": np.array(1), "c": np.array(1)})
    wrong = {**state.initial_state(lifted()), "count": np.zeros(3, np.int64)}
    with pytest.raises(FeedError, match="'count'"):
        state.run_stateful(runner, SIGNATURE, feeds, wrong)


def test_a_signature_that_is_gone_or_not_there_yet() -> None:
    with pytest.raises(IrkitError, match=r"(?s)not inputs yet.*lift-state"):
        state.state_signature(counter())
    module = lifted()
    module.op.attributes["onnx.meta"] = counter_meta("not json")
    with pytest.raises(IrkitError, match="does not describe state: not json"):
        state.state_signature(module)
    module.op.attributes["onnx.meta"] = counter_meta('[{"name": "a", "input": "a", "output": null}]')
    with pytest.raises(IrkitError, match="has lost an input or output of its variable 'a'"):
        state.state_signature(module)


def counter_meta(text: str) -> Attribute:
    return ArrayAttr([strings(("irkit.state", text))])


def test_more_variables_after_lifting() -> None:
    def add(module: Module, name: str) -> None:
        last = module.block.last_op
        assert last is not None
        b = Builder.before(last, module.ctx)
        var = state.variable(b, name, np.float32(3))
        done = state.assign_add(b, var, 1)
        value, _ = state.read(b, var, [done])
        last.operands = [value.ssa, *last.operands[1:]]

    module = lifted()
    add(module, "new")
    assert LiftState().run(module)
    entries = state.state_signature(module.verify())
    assert [e.name for e in entries] == ["count", "größe/limit: 1", "new"]
    assert state.initial_state(module)["new"] == 3

    module = lifted()
    add(module, "count")
    with pytest.raises(VerifyError, match="a variable 'count', and one of that name that is lifted already"):
        LiftState().run(module)


def test_other_metadata_stays() -> None:
    module = counter()
    set_metadata(module.op, {"author": "me"})
    LiftState().run(module)
    assert list(metadata_of(module.op)) == ["author", "irkit.state"]


def test_old_file_formats_have_no_default_inputs() -> None:
    module = counter()
    module.ir_version = 3
    LiftState().run(module)
    assert module.ir_version == 4


def test_backends_name_the_pass_that_is_missing() -> None:
    with pytest.raises(UnsupportedError, match="lift-state"):
        counter().to_onnx()
