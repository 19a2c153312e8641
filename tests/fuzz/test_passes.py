"""Random graphs through every pass and level, and that what checks them sees differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.passes import pass_names
from irkit.passes.canonicalize import elementwise, shape
from irkit.passes.canonicalize.rules import RULES
from irkit.passes.fusion import all_rules
from irkit.passes.registry import find_pass

from .generate import Judge, Seeded, op_names
from .graph import Graph
from .idioms import IDIOMS, Patterned, Subject, subject
from .passes import EVERY, IDLE, NARROWING, SINGLE, Finding, Report, check, signature_difference, sweep

FEW = 160
MANY = 2_000

UNREACHED = {"fuse:pad-into-max-pool"}
"""The rules that these graphs never have a use for: it takes a Pad with -inf, and these values are finite."""


def assert_same(report: Report) -> None:
    assert not report.findings, report.text()
    assert report.compared >= 0.8 * report.graphs, report.text()


def test_passes_keep_what_graphs_compute() -> None:
    report = sweep(range(FEW), steps=4)
    assert_same(report)
    assert set(report.changed) >= set(EVERY), report.text()
    assert len(report.ops) >= 120, report.text()
    assert sum(count >= 3 for count in report.rewrites.values()) >= 40, report.text()


@pytest.mark.slow
def test_passes_keep_what_many_graphs_compute() -> None:
    report = Report()
    for first in range(FEW, FEW + MANY, 500):
        report.add(sweep(range(first, first + 500)))
        assert_same(report)
    rules = {f"canonicalize:{rule.name}" for each in RULES.values() for rule in each}
    rules |= {f"fuse:{rule.name}" for rule in all_rules()}
    assert rules - set(report.rewrites) == UNREACHED, report.text()


def test_every_pass_is_tried() -> None:
    own = {name for name in pass_names() if find_pass(name).__module__.startswith("irkit.")}
    assert {*SINGLE, *IDLE, *NARROWING} == own


def test_a_seed_gives_one_graph() -> None:
    first, again = (subject(Seeded(3)).build().module for _ in range(2))
    assert str(first) == str(again)


@pytest.mark.parametrize("name", [name for name in IDIOMS if not name.startswith("rules_")])
def test_idioms_can_be_drawn(name: str) -> None:
    def drawn(seed: int) -> bool:
        g = Patterned(Seeded(seed), Judge(), op_names())
        g.idiom("transposes")
        return g.idiom(name)

    with np.errstate(all="ignore"):
        assert any(map(drawn, range(10)))


# What is wrong is found, and the graph reduced.


def first_found(kind: Finding, idiom: str) -> tuple[Finding, list[str]]:
    """What is found first in this pipeline on graphs of an idiom, and the ops of the graph when it is reduced."""
    for seed in range(300):
        g = Patterned(Seeded(seed), Judge(), op_names())
        with np.errstate(all="ignore"):
            if not (g.idiom("constants") and g.idiom(idiom)):
                continue
            made = Subject(Graph(g.steps), set(), set())
            found = check(made, seed, Report(), only=kind)
            if found:
                small = made.reduced(lambda s, seed=seed: bool(check(s, seed, Report(), only=kind)))
                return found[0], [step.op for step in small.graph.steps]
    pytest.fail(f"nothing found in {kind.pipeline}")


def test_a_lost_sign_of_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(elementwise._NEUTRAL, "onnx.Sub", (False, lambda x: x == np.zeros((), x.dtype)))
    found, ops = first_found(Finding("plain", "canonicalize", "special", ""), "neutral")
    assert "0.0" in found.message
    assert "Sub" in ops
    assert len(ops) == 1


def test_a_wrong_permutation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = shape._permutation

    def wrong(op: Any) -> Any:
        perm = right(op)
        return None if perm is None else perm[::-1]

    monkeypatch.setattr(shape, "_permutation", wrong)
    _, ops = first_found(Finding("plain", "canonicalize", "own", ""), "transposes")
    assert "Transpose" in ops
    assert len(ops) <= 3


def test_a_signature_that_changes_is_found() -> None:
    def module(*sizes: Any, name: str = "y") -> ik.Module:
        b = ik.Builder("signature")
        b.output(b.Relu(b.input("x", "float32", sizes)), name)
        return b.module()

    general = module("N", 3)
    assert not signature_difference(general, module("N", 3))
    assert "inputs" in signature_difference(general, module(2, 3))
    assert "outputs" in signature_difference(general, module("N", 3, name="z"))
    assert "inputs" in signature_difference(module(2, 3), general)
