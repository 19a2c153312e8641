"""Functions on the values that a layer's ``call`` works with.

Every ONNX op is one by its name (``ops.Relu(x)``, ``ops.Concat(a, b, axis=1)``), every activation by Keras's
(``ops.gelu(x)``), and so is what follows, which has Keras's names and arguments.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irkit.errors import IrkitError
from irkit.frontends.layers import activations
from irkit.frontends.layers.values import current_trace
from irkit.ir.builder import Builder, Tensor
from irkit.ir.dtypes import dtype as dtype_

Value = Any


def builder_of(*values: Value) -> Builder:
    """The builder that an op on these values belongs to: that of the innermost graph.

    Raises:
        IrkitError: outside of a layer's call.
    """
    builders = [v.builder for v in values if isinstance(v, Tensor)]
    if builders:
        return builtins.max(builders, key=lambda b: b.depth)
    trace = current_trace()
    if trace is None:
        raise IrkitError("an op of layers.ops is made outside of a layer's call", hint="call a layer")
    return trace.b


def __getattr__(name: str) -> Callable[..., Any]:
    if name[:1].isupper():
        return lambda *operands, **attributes: builder_of(*operands).op(name, *operands, **attributes)
    if name in activations.names():
        return activations.get(name)
    raise AttributeError(f"layers.ops has no function '{name}'")


def _simple(onnx: str) -> Callable[..., Tensor]:
    return lambda *operands: builder_of(*operands).op(onnx, *operands)


for _name, _onnx in {
    "abs": "Abs", "add": "Add", "arccos": "Acos", "arcsin": "Asin", "arctan": "Atan", "ceil": "Ceil", "cos": "Cos",
    "divide": "Div", "equal": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater",
    "greater_equal": "GreaterOrEqual", "less": "Less", "less_equal": "LessOrEqual", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "matmul": "MatMul", "maximum": "Max",
    "minimum": "Min", "multiply": "Mul", "negative": "Neg", "power": "Pow", "reciprocal": "Reciprocal",
    "round": "Round", "sign": "Sign", "sin": "Sin", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "where": "Where",
}.items():  # fmt: skip
    globals()[_name] = _simple(_onnx)


def square(x: Value) -> Tensor:
    """``x * x``."""
    return builder_of(x).Mul(x, x)


def cast(x: Value, dtype: str) -> Tensor:
    """A value in another dtype."""
    return builder_of(x).Cast(x, to=dtype_(dtype).code)


def shape(x: Value) -> Tensor:
    """The sizes, as a value."""
    return builder_of(x).Shape(x)


def reshape(x: Value, newshape: Any) -> Tensor:
    """The same elements in another shape; -1 for a size that follows from the others."""
    return builder_of(x).Reshape(x, newshape if isinstance(newshape, Tensor) else list(newshape))


def transpose(x: Value, axes: Sequence[int] | None = None) -> Tensor:
    """The axes in another order, by default reversed."""
    return builder_of(x).Transpose(x, **({} if axes is None else {"perm": list(axes)}))


def expand_dims(x: Value, axis: Any) -> Tensor:
    """With axes of size 1."""
    return builder_of(x).Unsqueeze(x, [axis] if isinstance(axis, int) else list(axis))


def squeeze(x: Value, axis: Any = None) -> Tensor:
    """Without axes of size 1."""
    axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    return builder_of(x).Squeeze(x, axes)


def concatenate(xs: Sequence[Value], axis: int = 0) -> Tensor:
    """Values in a row along an axis."""
    return builder_of(*xs).Concat(*xs, axis=axis)


def stack(xs: Sequence[Value], axis: int = 0) -> Tensor:
    """Values along a new axis."""
    return concatenate([expand_dims(x, axis) for x in xs], axis)


def split(x: Value, sections: int, axis: int = 0) -> tuple[Tensor, ...]:
    """A value in equal parts along an axis."""
    return builder_of(x).Split(x, axis=axis, num_outputs=sections, outputs=sections)


def take(x: Value, indices: Value, axis: int = 0) -> Tensor:
    """What stands at indices along an axis."""
    return builder_of(x, indices).Gather(x, indices if isinstance(indices, Tensor) else np.asarray(indices), axis=axis)


def einsum(equation: str, *operands: Value) -> Tensor:
    """Products summed by Einstein's convention."""
    return builder_of(*operands).Einsum(*operands, equation=equation)


def clip(x: Value, x_min: float, x_max: float) -> Tensor:
    """Between two numbers."""
    return builder_of(x).Clip(x, x_min, x_max)


def _reduction(onnx: str) -> Callable[..., Tensor]:
    def reduce(x: Value, axis: Any = None, keepdims: bool = False) -> Tensor:
        axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
        return builder_of(x).op(onnx, x, axes, keepdims=int(keepdims))

    return reduce


for _name, _onnx in {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
}.items():  # fmt: skip
    globals()[_name] = _reduction(_onnx)


def argmax(x: Value, axis: int = -1) -> Tensor:
    """Where the greatest stands along an axis."""
    return builder_of(x).ArgMax(x, axis=axis, keepdims=0)


def zeros_like(x: Value) -> Tensor:
    """Zeros of a value's shape."""
    b = builder_of(x)
    return b.Expand(b.constant(0, x.dtype), b.Shape(x))


def one_hot(x: Value, num_classes: int, dtype: str = "float32") -> Tensor:
    """1 at the place that a number names along a new last axis, else 0."""
    b = builder_of(x)
    classes = b.Cast(b.constant(np.arange(num_classes)), to=x.dtype.code)
    return b.Cast(b.Equal(b.Unsqueeze(x, [-1]), classes), to=dtype_(dtype).code)
