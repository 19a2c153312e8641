"""What the result of an op will take, told before it runs: from static types for a plan, from operands for a step.

Kernels whose result depends on values (``Tile``, ``Range``, ``Resize``...) ask the budget themselves. Here are those in
which the sizes of operands multiply: broadcasting, products and gathers. A result no larger than its operands together
is not counted, since it may be a view of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation

from irkit.backends.numpy.plan import Plan
from irkit.dialects.onnx.classes import OnnxOp
from irkit.errors import BudgetError
from irkit.ir.location import where
from irkit.ir.op import Elementwise
from irkit.ir.types import dtype_of, scalar_dims

__all__ = ["check_plan", "foreseen"]

Shapes = Sequence[tuple[int, ...]]
Shape = tuple[int, ...]


def _broadcast(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    return np.broadcast_shapes(*shapes)


def _matmul(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    a, b = shapes[:2]
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)


def _quantized_matmul(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    return _matmul((shapes[0], shapes[3]), attributes)


def _gemm(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    a, b = shapes[:2]
    return (a[1 if attributes.get("transA") else 0], b[0 if attributes.get("transB") else 1])


def _gather(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    data, indices = shapes
    axis = attributes.get("axis", 0) % len(data)
    return (*data[:axis], *indices, *data[axis + 1 :])


def _gather_nd(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    data, indices = shapes
    return (*indices[:-1], *data[attributes.get("batch_dims", 0) + indices[-1] :])


def _einsum(shapes: Shapes, attributes: Mapping[str, Any]) -> Shape:
    terms, arrow, result = attributes["equation"].replace(" ", "").partition("->")
    if not arrow or "." in terms:
        return ()
    sizes: dict[str, int] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 0))
    return tuple(sizes[label] for label in result)


_RULES: dict[str, Callable[[Shapes, Mapping[str, Any]], Shape]] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _quantized_matmul,
    "Gemm": _gemm,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Einsum": _einsum,
    "StringConcat": _broadcast,
}


def foreseen(op: Operation, operands: Sequence[Any], attributes: Mapping[str, Any]) -> int:
    """The bytes of an op's first result, where its operands' shapes tell; 0 where it is no larger than they are."""
    if not isinstance(op, OnnxOp) or op.domain:
        return 0
    rule = _broadcast if op.has_trait(Elementwise) else _RULES.get(op.op_type)
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    if rule is None or len(arrays) < 2:
        return 0
    kind = dtype_of(op.results[0].type)
    try:
        size = math.prod(rule([x.shape for x in arrays], attributes))
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        # They do not fit: the kernel says how.
        return 0
    nbytes = size * (1 if kind is None else kind.numpy.itemsize)
    return nbytes if nbytes > sum(x.nbytes for x in arrays) else 0


def check_plan(plan: Plan, limit: int) -> None:
    """Refuses a plan with a result that is larger than all memory allowed, by its type alone.

    Raises:
        BudgetError: naming the op.
    """
    for step in plan.steps:
        for result in step.op.results:
            nbytes = _static_bytes(result.type)
            if nbytes > limit and nbytes > sum(_static_bytes(v.type) for v in step.op.operands):
                raise BudgetError(
                    f"its result of type {result.type} takes {nbytes} bytes, the budget is {limit}",
                    op=step.op.name,
                    where=where(step.op),
                    hint="allow more: compile(..., budget=Budget(bytes=...))",
                )


def _static_bytes(value_type: Any) -> int:
    shape, kind = scalar_dims(value_type), dtype_of(value_type)
    return 0 if shape is None or kind is None else math.prod(shape) * kind.numpy.itemsize
