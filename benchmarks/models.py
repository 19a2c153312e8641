"""Whether real models answer the same after O2 as before, on both backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

import irkit as ik
from benchmarks.measure import Row, Table
from examples.light_models import (
    LIGHT_MODELS,
    add_logits_output,
    light_feeds,
    light_model,
    logits_output,
    magika_feeds,
    magika_model_path,
)

__all__ = ["run"]

MOST = 1e-5
BACKENDS = ("numpy", "onnxruntime")

Feeds = dict[str, Any]


def sources(quick: bool) -> Iterator[tuple[str, Any, Feeds, Feeds]]:
    """(name, model, feeds, other feeds) of each model."""
    yield "magika", onnx.load(magika_model_path()), magika_feeds(2, 0), magika_feeds(2, 1)
    for name in LIGHT_MODELS[:1] if quick else LIGHT_MODELS:
        model = light_model(name)
        add_logits_output(model)
        yield name, model, light_feeds(model, 0), light_feeds(model, 1)


def _distance(before: Feeds, after: Feeds) -> float:
    """The largest difference of any output, as a part of that output's scale; infinite where one is missing."""
    if list(before) != list(after):
        return float("inf")
    worst = 0.0
    for name, expected in before.items():
        found = after[name]
        if found.shape != expected.shape or found.dtype != expected.dtype or not np.isfinite(expected).all():
            return float("inf")
        scale = float(np.abs(expected).max())
        worst = max(worst, float(np.abs(found.astype(np.float64) - expected).max()) / scale)
    return worst


def _varies(name: str, logits: str, first: Feeds, second: Feeds) -> None:
    """A model that answers the same whatever it is asked compares equal to anything."""
    here, there = first[logits], second[logits]
    scale = float(np.abs(here).max())
    by_input, by_place = float(np.abs(here - there).max()), float(here.reshape(len(here), -1).std(axis=1).max())
    assert min(by_input, by_place) > 1e-3 * scale, f"the outputs of {name} do not vary"


def run(quick: bool = False) -> Table:
    """Runs each model before and after; ``quick`` takes the two smallest.

    Raises:
        AssertionError: if the outputs of a model do not vary with its input and along the classes.
    """
    rows: list[Row] = []
    for name, model, feeds, other in sources(quick):
        module = ik.load(model)
        optimized = ik.optimize(module, "O2")
        sizes = f"{_nodes(module)} -> {_nodes(optimized)} nodes"
        for backend in BACKENDS:
            plan = ik.compile(module, backend=backend)
            before = plan.run(feeds)
            _varies(name, logits_output(model), before, plan.run(other))
            distance = _distance(before, ik.compile(optimized, backend=backend).run(feeds))
            rows.append(Row(f"{name} on {backend}", f"{distance:.1e}", sizes, None, f"<= {MOST:.0e}", distance <= MOST))
    return Table(
        "Real models after O2",
        "The largest difference between the outputs before and after O2, as a part of the output's scale. The light "
        "models of the onnx package have random weights, and their logits are an output too; the benchmark fails if "
        "outputs do not vary with the input and along the classes.",
        "size",
        rows,
    )


def _nodes(module: ik.Module) -> int:
    return sum(node.op_type != "Constant" for node in module.to_onnx().graph.node)
