"""Running models before and after a pass, with onnxruntime's own rewriting off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from irkit.backends import compile as compile_module
from irkit.errors import IrkitError
from irkit.ir.module import Module

Outcome = dict[str, Any] | str


def run_numpy(module: Module, feeds: Mapping[str, Any]) -> Outcome:
    """The outputs by name, or the error's class."""
    try:
        return compile_module(module, seed=7).run(feeds)
    except IrkitError as error:
        return type(error).__name__


def run_ort(model: ModelProto, feeds: Mapping[str, Any]) -> Outcome:
    """The outputs by name, or that it failed."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))
    except Exception as error:
        return f"failed: {str(error).splitlines()[0]}"


def assert_same(expected: Any, found: Any, what: str) -> None:
    """Equal dtypes, shapes, NaN, signs of zeros; floats within a few roundings."""
    if isinstance(expected, list):
        assert isinstance(found, list), what
        assert len(expected) == len(found), what
        for left, right in zip(expected, found, strict=True):
            assert_same(left, right, what)
        return
    left, right = np.asarray(expected), np.asarray(found)
    assert left.dtype == right.dtype, what
    assert left.shape == right.shape, what
    if left.dtype.kind == "f":
        np.testing.assert_allclose(right, left, rtol=1e-6, atol=0, equal_nan=True, err_msg=what)
        zeros = left == 0
        assert np.array_equal(np.signbit(left[zeros]), np.signbit(right[zeros])), what
    else:
        assert np.array_equal(left, right), what


def assert_same_outcome(expected: Outcome, found: Outcome, what: str) -> None:
    """Both give the same outputs under the same names in the same order, or both fail."""
    if isinstance(expected, str):
        assert isinstance(found, str), what
        return
    assert not isinstance(found, str), f"{what}: {found}"
    assert list(expected) == list(found), what
    for name, value in expected.items():
        assert_same(value, found[name], f"{what}, output {name}")


@pytest.fixture
def count() -> Callable[..., int]:
    """Counts the ops of these types in a module, nested ones included."""

    def of(module: Module, *op_types: str) -> int:
        names = {t if "." in t else f"onnx.{t}" for t in op_types}
        return sum(op.name in names for op in module.walk())

    return of
