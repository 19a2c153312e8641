"""Random programs with state: what is accepted means one thing in every order, and lifting keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import irkit as ik
from irkit import backends
from irkit.dialects import state
from irkit.errors import VerifyError
from irkit.ir.builder import Builder, Tensor
from irkit.ir.module import Module
from irkit.passes.lift_state import LiftState
from tests.unit.state.reference import Interpreter, conflicts, is_pure

RUNS = 3
PHASES = (Phase.explicit, Phase.generate)
"""Programs are short as they are; shrinking one takes minutes."""


class Program:
    """Builds a random program; ``draw(n)`` picks a number below n.

    Args:
        care: how often, out of ten times, an access waits for the accesses that it must come after.
    """

    def __init__(self, draw: Any, care: int) -> None:
        self.draw = draw
        self.care = care
        b = Builder("program")
        self.vars = [state.variable(b, name, np.int64(i)) for i, name in enumerate("uvw"[: 1 + draw(3)])]
        x = b.input("x", "int64", [])
        values, tokens = self.statements(b, [x], [], 2 + draw(8), depth=2)
        for index, value in enumerate(values[1:]):
            if draw(2) or index == len(values) - 2:
                b.output(value, f"y{index}")
        b.output(b.Identity(x), "x_again")
        for index, done in enumerate(tokens):
            if draw(2):
                b.output(done, f"done{index}")
        self.builder = b

    def statements(
        self, b: Builder, values: list[Tensor], outer: list[Tensor], count: int, depth: int
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Adds statements to a block; returns the values visible at its end, and the tokens made in it."""
        values, made = list(values), []
        writes: dict[int, list[Tensor]] = {}
        reads: dict[int, list[Tensor]] = {}
        everything = range(len(self.vars))
        for _ in range(count):
            kind = self.draw(8 if depth else 5)
            which = self.draw(len(self.vars))
            # All that an access of this variable, and an op with graphs, must come after.
            touched = everything if kind >= 5 else [which]
            needed = [t for w in touched for t in writes.get(w, []) + (reads.get(w, []) if kind != 1 else [])]
            waits = needed if self.draw(10) < self.care else [t for t in needed + outer if self.draw(2)]
            match kind:
                case 0:
                    values.append(b.op("Add" if self.draw(2) else "Sub", self.pick(values), self.pick(values)))
                case 1:
                    value, done = state.read(b, self.vars[which], waits)
                    values.append(value)
                    made.append(done)
                    reads.setdefault(which, []).append(done)
                case 2 | 3:
                    done = state.assign(b, self.vars[which], self.pick(values), waits)
                    made.append(done)
                    writes[which], reads[which] = [done], []
                case 4:
                    values.append(state.after(b, self.pick(values), waits))
                case _:
                    value, done = self.compound(b, kind, values, waits, depth - 1)
                    values += value
                    made.append(done)
                    for w in everything:
                        writes[w], reads[w] = [done], []
        return values, made

    def compound(
        self, b: Builder, kind: int, values: list[Tensor], waits: list[Tensor], depth: int
    ) -> tuple[list[Tensor], Tensor]:
        def inside(b: Builder, visible: list[Tensor], first: list[Tensor]) -> tuple[Tensor, Tensor]:
            begun = state.group(b, first)
            found, made = self.statements(b, visible, [begun], 1 + self.draw(4), depth)
            return b.Identity(self.pick(found)), state.group(b, [begun, *(t for t in made if self.draw(10) < 7)])

        if kind == 5:
            condition = b.Less(self.pick(values), self.pick(values))
            branch = lambda b: inside(b, values, waits)  # noqa: E731
            y, done = b.If(condition, then_branch=branch, else_branch=branch)
            return [y], done
        start = state.group(b, waits)
        if kind == 6:

            def body(b: Builder, i: Tensor, go_on: Tensor, carried: Tensor, begun: Tensor) -> Any:
                y, done = inside(b, [*values, i, carried], [begun])
                return b.Less(self.pick([*values, y]), y) if self.draw(2) else go_on, y, done, b.Identity(carried)

            y, done, _ = b.Loop(self.draw(4), True, self.pick(values), start, body=body)
            return [y], done
        y, done, _ = b.Scan(
            self.pick(values),
            start,
            np.arange(1 + self.draw(3)),
            num_scan_inputs=1,
            body=lambda b, carried, begun, item: (
                *inside(b, [*values, item, carried], [begun]),
                b.Identity(carried),
            ),
        )
        return [y], done

    def pick(self, values: list[Tensor]) -> Tensor:
        return values[self.draw(len(values))]


def make(data: st.DataObject, care: int) -> Builder:
    return Program(lambda n: data.draw(st.integers(0, n - 1)), care).builder


def lifted(module: Module) -> Module:
    pure = module.clone()
    assert LiftState().run(pure)
    pure.verify()
    assert is_pure(pure)
    return pure


def check_same(module: Module, backend: str, seed: int) -> None:
    pure = lifted(module)
    signature, after = state.state_signature(pure), state.initial_state(module)
    runner = backends.compile(pure, backend)
    first, second = Interpreter(module, seed), Interpreter(module, seed + 1)
    for k in range(RUNS):
        feeds = {"x": np.int64(k * 5 - 3)}
        expected = first.run(feeds)
        assert expected == second.run(feeds)
        found, after = state.run_stateful(runner, signature, {"x": np.array(feeds["x"])}, after)
        assert {n: int(v) for n, v in found.items()} == {n: int(v) for n, v in expected.items()}
        assert {n: int(v) for n, v in after.items()} == {n: int(v) for n, v in first.state.items()}


@given(st.data(), st.integers(0, 99))
@settings(max_examples=60, phases=PHASES)
def test_lifting_keeps_what_a_program_means(data: st.DataObject, seed: int) -> None:
    check_same(make(data, care=10).module(), "numpy", seed)


@given(st.data(), st.integers(0, 99))
@settings(max_examples=15, phases=PHASES)
def test_onnxruntime_agrees(data: st.DataObject, seed: int) -> None:
    check_same(make(data, care=10).module(), "onnxruntime", seed)


@given(st.data(), st.integers(0, 99))
@settings(max_examples=60, phases=PHASES)
def test_what_is_refused_is_unordered_and_what_is_accepted_is_ordered(data: st.DataObject, seed: int) -> None:
    builder = make(data, care=7)
    refusal = ""
    try:
        module = builder.module()
    except VerifyError as error:
        refusal = str(error)
    if refusal:
        assert "nothing orders two accesses" in refusal
        # The module stands, as far as it was built: the builder's block is in its function.
        function = builder.block.parent_op()
        assert function is not None
        assert conflicts(Module(function.parent_op(), builder.ctx))  # type: ignore[arg-type]
    else:
        assert not conflicts(module)
        check_same(module, "numpy", seed)


@given(st.data())
@settings(max_examples=20, phases=PHASES)
def test_text_and_clone_keep_state(data: st.DataObject) -> None:
    module = make(data, care=10).module()
    assert ik.parse(str(module)) == module
    assert module.clone() == module
    assert str(lifted(module.clone())) == str(lifted(module))


def test_the_reference_sees_conflicts() -> None:
    b = Builder("g")
    v = state.variable(b, "v", 0)
    first, second = state.assign(b, v, 1), state.assign(b, v, 2)
    b.output(state.group(b, [first, second]), "done")
    with pytest.raises(VerifyError, match="nothing orders"):
        b.module()
    assert conflicts(Module(b.block.parent_op().parent_op(), b.ctx))  # type: ignore[union-attr, arg-type]
