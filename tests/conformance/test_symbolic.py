"""Symbolic sizes hold: what is inferred for symbols is what a run finds, on every model of the official suite.

The sizes of a case's inputs are replaced by symbols, one per different size, or one per axis; small vectors of
integers, which are shapes and the like, become constants. Then the case is run, and after each op the sizes inferred
for its results are worked out from those of the inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from xdsl.ir import Operation, SSAValue

import irkit as ik
from irkit.backends.base import spell
from irkit.errors import IrkitError
from irkit.ir import dims
from irkit.ir.types import shape_of
from tests.conformance.cases import Case, load_cases

Naming = Callable[[str, int, int], str]


def per_size(name: str, axis: int, size: int) -> str:
    return f"n{size}"


def per_axis(name: str, axis: int, size: int) -> str:
    return f"{name}_{axis}"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case for case in load_cases() if case.category in ("node", "expanded", "simple") and case.data]


def symbolized(case: Case, naming: Naming) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, int]]:
    """The model with symbols for sizes; its feeds, and the sizes of the symbols."""
    model = onnx.ModelProto.FromString(case.model)
    feeds, sizes = dict(case.data[0][0]), {}
    del model.graph.value_info[:]
    for info in list(model.graph.input):
        value = feeds.get(info.name)
        if not isinstance(value, np.ndarray) or not info.type.HasField("tensor_type"):
            continue
        if value.dtype == np.int64 and value.ndim <= 1 and value.size <= 16:
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
            model.graph.input.remove(info)
            del feeds[info.name]
            continue
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = naming(info.name, axis, value.shape[axis])
            sizes[dim.dim_param] = value.shape[axis]
    for info in model.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return model, feeds, sizes


class Watch:
    """A hook that compares the sizes that are claimed with those found."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def __call__(self, op: Operation, operands: Any, results: Any) -> None:
        for result, value in zip(op.results, results, strict=False):
            self.look(op, result, value)

    def look(self, op: Operation, result: SSAValue, value: Any) -> None:
        claimed = shape_of(result.type)
        if not isinstance(value, np.ndarray) or claimed is None:
            return
        if len(claimed) != value.ndim:
            self.say(op, claimed, value)
            return
        for claim, found in zip(claimed, value.shape, strict=True):
            expected = dims.evaluate(claim, self.sizes)
            kind = "open" if claim is None else "number" if isinstance(claim, int) else "symbol"
            if isinstance(claim, str) and claim not in self.sizes and dims.symbols_in(claim) != [claim]:
                kind = "expression"
            self.counts[kind] += 1
            if expected is not None and expected != found:
                self.say(op, claimed, value)

    def say(self, op: Operation, claimed: Any, value: np.ndarray) -> None:
        operands = ", ".join(spell(v.type) for v in op.operands)
        self.wrong.append(f"{op.name}({operands}) is said to be {list(claimed)}, is {list(value.shape)}")


@pytest.mark.parametrize("naming", [per_size, per_axis])
def test_inferred_sizes_are_those_found(cases: list[Case], naming: Naming) -> None:
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for case in cases:
        model, feeds, sizes = symbolized(case, naming)
        watch = Watch(sizes)
        try:
            module = ik.load(model)
            ik.compile(module, backend="numpy", seed=0, hook=watch).run(feeds)
        except IrkitError as error:
            counts["refused"] += 1
            wrong.append(f"{case.name}: {error}")
        wrong += [f"{case.name}: {message}" for message in watch.wrong]
        counts.update(watch.counts)
    assert not wrong, "\n".join(wrong[:20])
    assert counts["refused"] == 0
    assert counts["expression"] > 2000
    assert counts["open"] < (1800 if naming is per_size else 4000)
