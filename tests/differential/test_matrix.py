"""Frontend x pipeline x backend: whatever way a graph comes in and is rewritten, every backend gives the same results.

What is right is what the NumPy backend makes of the graph as built by hand, with no pass run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.passes.pipeline import LEVELS
from irkit.passes.registry import find_pass, pass_names
from irkit.verify import compare, difference_of, random_feeds
from tests.differential.graphs import GRAPHS, NUMPY_ONLY, make

SEED = 7
BACKENDS: list[tuple[str, dict[str, Any]]] = [
    ("numpy", {}),
    ("numpy", {"threads": 2}),
    ("onnxruntime", {"optimize": "none", "threads": 1}),
    ("onnxruntime", {"optimize": "all", "threads": 1}),
]
FRONTENDS: dict[str, Callable[[ik.Module], ik.Module]] = {
    "builder": lambda module: module,
    "onnx": lambda module: ik.load(module.to_onnx().SerializeToString()),
    "onnx-as-it-came": lambda module: ik.load(module.to_onnx(), upgrade=False),
    "text": lambda module: ik.parse(module.text(constants="inline")),
}
# What rounds on purpose is held to its own bounds elsewhere.
PIPELINES = ["", *(name for name in pass_names() if not getattr(find_pass(name)(), "error", 0)), *LEVELS]


@cache
def expected(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Feeds for a graph, and its results."""
    module = make(name)
    run = ik.compile(module, seed=SEED)
    found = []
    for sample, size in enumerate((3, 1, 5)):
        feeds = random_feeds(module, sample, {"N": size, "S": size + 1}, defaults=sample == 1)
        found.append((feeds, run.run(feeds)))
    return found


def backends(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for backend, options in BACKENDS:
        if backend == "numpy" or name not in NUMPY_ONLY:
            yield backend, options


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_all_ways_give_the_same_results(name: str, frontend: str, pipeline: str) -> None:
    source = make(name)
    module = ik.optimize(FRONTENDS[frontend](source), pipeline, verify_each=True)
    assert list(module.inputs) == list(source.inputs)
    assert list(module.outputs) == list(source.outputs)
    for backend, options in backends(name):
        run = ik.compile(module, backend, seed=SEED, **options)
        for feeds, results in expected(name):
            for output, value in run.run(feeds).items():
                difference = difference_of(results[output], value)
                assert difference is None, f"{backend} {options}: output '{output}' {difference}"


@pytest.mark.parametrize("name", GRAPHS)
def test_the_results_show_something(name: str) -> None:
    """They vary with the inputs, and most numbers are finite; or the matrix would prove nothing."""
    results = [found for _, found in expected(name)]
    assert any(_differ(results[0][output], results[2][output]) for output in results[0])
    for found in results:
        for value in found.values():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
                assert np.isfinite(value).all()


def _differ(a: Any, b: Any) -> bool:
    return difference_of(a, b) is not None


@pytest.mark.parametrize("name", GRAPHS)
def test_special_values_and_empty_dims_go_through_the_passes(name: str) -> None:
    source = make(name)
    names = ["numpy"] if name in NUMPY_ONLY else ["numpy", "onnxruntime"]
    # The fourth sample has no elements; onnxruntime 1.32 aborts the process on an LSTM of no steps.
    samples = 3 if name == "recurrent" else 4
    report = compare(source, ik.optimize(source, "O3"), backends=names, samples=samples)
    assert report.equal, report.text()
    assert all(report.runs.values()), report.text()


@pytest.mark.parametrize("name", GRAPHS)
def test_checked_optimization_accepts_right_passes(name: str) -> None:
    ik.optimize(make(name), "O2", check="each")


@pytest.mark.parametrize("name", NUMPY_ONLY)
def test_what_is_kept_from_onnxruntime_really_cannot_be_compared_there(name: str) -> None:
    module = make(name)
    feeds, results = expected(name)[0]
    try:
        found = ik.compile(module, "onnxruntime", seed=SEED).run(feeds)
    except IrkitError:
        return
    assert any(_differ(value, found[output]) for output, value in results.items())
