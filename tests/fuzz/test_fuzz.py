"""The NumPy backend against onnxruntime on random graphs, and that the graphs are what they should be."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from irkit.errors import IrkitError

from .disagreements import DISAGREEMENTS, Disagreement, table
from .generate import Judge, Reject, Seeded, graphs, op_names, random_graph
from .graph import Built, Graph, Step, build
from .oracle import RuntimeJudge, check, difference, on_runtime, sweep
from .registry import RANDOM, UNSAMPLED

FEW = 300
MANY = 5000
OFFICIAL = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


@pytest.fixture(scope="module")
def judge() -> RuntimeJudge:
    """What it found out about onnxruntime serves all tests."""
    return RuntimeJudge()


def test_backends_agree(judge: RuntimeJudge) -> None:
    report = sweep(range(FEW), judge)
    assert not report.findings, report.text()
    assert report.compared >= 0.8 * report.graphs, report.text()
    assert len(report.ops) >= 150, report.text()


@pytest.mark.slow
def test_backends_agree_on_many(judge: RuntimeJudge) -> None:
    report = sweep(range(MANY), judge)
    assert not report.findings, report.text()
    assert report.compared >= 0.8 * report.graphs, report.text()
    assert sum(count >= 20 for count in report.ops.values()) >= 150, report.text()


@pytest.mark.slow
def test_backends_agree_when_onnxruntime_optimizes(judge: RuntimeJudge) -> None:
    report = sweep(range(MANY, MANY + 500), judge, optimize=("none", "all"))
    assert not report.findings, report.text()


QUICK = settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@QUICK
@given(graphs(steps=5))
def test_graphs_drawn_by_hypothesis_are_valid(graph: Graph) -> None:
    found, _ = check(graph, optimize=())
    assert not found, "\n".join(map(str, found))


def test_graphs_shrink() -> None:
    """To the one op that is looked for, on the simplest operand."""
    calm = settings(QUICK, max_examples=300, phases=[Phase.generate, Phase.shrink])
    found = find(
        graphs(names=["Add", "Softmax", "Transpose", "If"], steps=6),
        lambda graph: any(step.op == "Softmax" for step in graph.steps),
        settings=calm,
    )
    assert [step.op for step in found.steps] == ["Softmax"]


def test_a_seed_gives_one_graph() -> None:
    for seed in range(5):
        first, again = (random_graph(Seeded(seed)).build() for _ in range(2))
        assert str(first.module) == str(again.module)
        for name, value in first.feeds.items():
            assert not difference(value, again.feeds[name], ())


def test_a_failing_graph_is_reduced() -> None:
    made = (random_graph(Seeded(seed)) for seed in range(99))
    graph = next(g for g in made if sum(s.op == "Transpose" for s in g.steps) == 1 and len(g.steps) > 5)
    small = graph.reduced(lambda g: any(step.op == "Transpose" for step in g.steps))
    needed = {v for step in small.steps for v in step.reads()}
    assert sum(step.op == "Transpose" for step in small.steps) == 1
    assert all(s.op == "Transpose" or needed & set(s.results) for s in small.steps)


def test_every_op_has_a_sampler_or_a_reason() -> None:
    current = {
        f"{schema.domain.removeprefix('ai.onnx')}.{schema.name}".lstrip(".")
        for schema in onnx.defs.get_all_schemas()
        if schema.domain in OFFICIAL and not schema.deprecated
    }
    assert current - set(op_names()) == set(UNSAMPLED)


def test_random_ops_have_samplers_too() -> None:
    assert set(op_names()) >= RANDOM
    for seed, name in enumerate(sorted(RANDOM)):
        assert random_graph(Seeded(seed), names=[name], least=1).steps[0].op == name


# The disagreements


class _Collector(Judge):
    """Takes nothing; keeps the steps that fall under an entry."""

    def __init__(self, entry: Disagreement) -> None:
        self.entry = entry
        self.found: list[Step] = []

    def after(self, step: Step, built: Built) -> bool:
        if step.op in self.entry.ops.split() and self.entry.when(step):
            self.found.append(step)
        return step.op not in self.entry.ops.split()


def _differs(step: Step) -> bool:
    built = build([step])
    found = on_runtime(built.module).run(built.feeds)
    return any(difference(value.array, found[name], value.shadows) for name, value in built.outputs.items())


@pytest.mark.slow
@pytest.mark.parametrize("entry", [d for d in DISAGREEMENTS if d.everywhere], ids=lambda d: d.title[:40])
def test_a_disagreement_is_real(entry: Disagreement) -> None:
    """Some call that falls under the entry still gives something else on onnxruntime."""
    collector = _Collector(entry)
    for seed in range(400):
        names = entry.ops.split() + (["Identity", "Less"] if entry.ops == "Loop" else [])
        with suppress(Reject):
            random_graph(Seeded(seed), names=names, judge=collector, steps=3, least=1)
        # onnxruntime has no kernel for some of them.
        for step in collector.found:
            with suppress(IrkitError):
                if _differs(step):
                    return
        collector.found.clear()
    pytest.fail(f"no call under {entry.title!r} differs")


def test_the_page_tells_the_disagreements(root: Path) -> None:
    page = (root / "docs/reference/disagreements.md").read_text(encoding="utf-8")
    assert table() in page


def test_differences_are_told() -> None:
    one = np.float32([1, 2])
    assert not difference(one, one.copy(), ())
    assert difference(one, np.float32([1, np.nan]), (one,))
    assert difference(one, np.float32([1, 2 + 1e-6]), ())
    assert not difference(one, np.float32([1, 2 + 1e-6]), (one,))
    assert difference(one, np.float64([1, 2]), ())
    assert difference([one], [], ())
    assert difference(np.array(["a"], object), np.array(["b"], object), ())
