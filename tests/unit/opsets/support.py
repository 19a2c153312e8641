"""Small models of one op at one version, and running them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from irkit.backends.numpy import compile as compile_numpy
from irkit.dialects.onnx import op_class
from irkit.ir.builder import Builder
from irkit.ir.module import Module

__all__ = ["differences", "one_op", "run", "run_onnxruntime"]


def one_op(op_type: str, since: int, *operands: Any, outs: int = 1, domain: str = "", **attributes: Any) -> Module:
    """A graph of one op. Operands are ``(dtype, shape)`` for an input ``x0``, ``x1``..., an array, or None."""
    cls = op_class(domain, op_type, since)
    assert cls is not None
    b = Builder(opsets={"": since} if domain == "" else {"": 21, domain: since})
    values = [
        b.input(f"x{i}", *given)
        if isinstance(given, tuple)
        else given
        if given is None
        else b.initializer(given, f"x{i}")
        for i, given in enumerate(operands)
    ]
    made = b.op(cls, *values, outputs=outs, name="node", **attributes)
    for i, value in enumerate([made] if outs == 1 else made):
        b.output(value, f"y{i}")
    return b.module()


def run(module: Module, *feeds: np.ndarray) -> list[Any]:
    """The outputs on NumPy, of feeds in the order of the inputs."""
    return list(compile_numpy(module, seed=0).run(dict(zip(module.input_names, feeds, strict=True))).values())


def run_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """The outputs on onnxruntime, its optimizations off.

    Raises:
        an exception of onnxruntime's where it cannot run the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def differences(expected: Any, found: Any) -> str:
    """How two lists of outputs differ; ``""`` where they agree."""
    if isinstance(expected, list | tuple):
        if len(expected) != len(found):
            return f"{len(expected)} against {len(found)} values"
        return "; ".join(filter(None, (differences(a, b) for a, b in zip(expected, found, strict=True))))
    if isinstance(expected, dict):
        return differences([*expected, *expected.values()], [*found, *found.values()])
    a, b = np.asarray(expected), np.asarray(found)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "OUS":
        return "" if (a == b).all() else f"{a} against {b}"
    same = np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=1e-6, equal_nan=True)
    return "" if same else f"{a} against {b}"
