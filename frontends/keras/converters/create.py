"""Arrays made out of sizes and numbers, and random ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irkit.frontends.keras.emit import Emitter
from irkit.frontends.keras.registry import converter
from irkit.frontends.keras.sizes import Dim
from irkit.frontends.keras.values import LAST, Value
from irkit.ir.builder import Builder, Tensor


def filled(c: Emitter, shape: Any, fill: Any, dtype: str) -> Value:
    """An array that is the same everywhere, made when an op needs it."""
    b = c.b
    made = Value(shape, dtype, depth=b.depth, makers={LAST: lambda: full(c, shape, fill, dtype)})
    made.fill = None if isinstance(fill, Value) or np.ndim(fill) else float(fill)
    return made


def full(c: Emitter, shape: Any, fill: Any, dtype: str) -> Tensor:
    """An array that is the same everywhere."""
    sizes: list[Any] = [shape] if isinstance(shape, (int, Dim)) else list(shape)
    if not isinstance(fill, Value) and all(isinstance(s, int) for s in sizes):
        return c.get(np.full(sizes, fill), dtype)
    return c.b.Expand(c.get(fill if isinstance(fill, Value) else np.asarray(fill), dtype), c.vector(sizes))


@converter("zeros", "ones", "empty", "full", "Full")
def constant(c: Emitter, op: Any, fill_value: Any = None) -> Value:
    fill = {"ones": 1, "full": getattr(op, "fill_value", 0)}.get(op.kind, 0)
    return filled(c, c.out.shape, fill if fill_value is None else fill_value, c.out.dtype)


@converter("ZerosLike", "OnesLike", "FullLike", "EmptyLike")
def constant_like(c: Emitter, op: Any, x: Any, fill_value: Any = None) -> Value:
    fill = fill_value if op.kind == "FullLike" else int(op.kind == "OnesLike")
    return filled(c, c.out.shape, fill, c.out.dtype)


@converter("arange", "Arange")
def arange(c: Emitter, op: Any, *given: Any, **named: Any) -> Tensor:
    start, stop, step = (
        (*given, *(None,) * 3)[:3] if given else (getattr(op, k, None) for k in ("start", "stop", "step"))
    )
    start, stop, step = named.get("start", start), named.get("stop", stop), named.get("step", step)
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    dtype = c.out.dtype
    wide = dtype if dtype in ("float32", "float64", "int32", "int64") else "float32" if "float" in dtype else "int64"
    return c.cast(
        c.b.Range(*(c.get(v if not isinstance(v, (int, float)) else np.asarray(v), wide) for v in (start, stop, step))),
        dtype,
    )


@converter("eye", "identity", "tri")
def eye(c: Emitter, op: Any) -> Tensor:
    """Where the column is the row's number plus k; for tri, where it is not beyond."""
    rows, columns = c.out.shape
    k = getattr(op, "k", 0)
    if isinstance(rows, int) and isinstance(columns, int):
        make = np.tri if op.kind == "tri" else np.eye
        return c.get(make(rows, columns, k), c.out.dtype)
    row = c.b.Add(c.b.Range(0, c.b.Squeeze(c.size(rows), [0]), 1), c.get(k, "int64"))
    column = c.b.Range(0, c.b.Squeeze(c.size(columns), [0]), 1)
    row = c.b.Unsqueeze(row, np.array([1]))
    return c.cast(c.b.GreaterOrEqual(row, column) if op.kind == "tri" else c.b.Equal(row, column), c.out.dtype)


@converter("linspace", "Linspace", "logspace", "Logspace")
def linspace(c: Emitter, op: Any, *given: Any) -> Tensor:
    start, stop = given or (op.start, op.stop)
    num = c.static(op.num, "the number of points")
    if op.axis != 0 and c.outs[0].shape[0] != num:
        raise c.refusal("points along another axis than the first have no form here")
    dtype = c.out.dtype
    steps = np.arange(num, dtype=np.float64) / max(num - 1 if op.endpoint else num, 1)
    low, high = (c.get(v if isinstance(v, Value) else np.asarray(v), dtype) for v in (start, stop))
    share = c.get(steps.reshape([-1] + [1] * max(low.rank or 0, high.rank or 0)), dtype)
    made = c.b.Add(low, c.b.Mul(c.b.Sub(high, low), share))
    if op.kind.lower() == "logspace":
        made = c.b.Pow(c.get(np.asarray(op.base), dtype), made)
    return made


# Random numbers


def _uniform(
    c: Emitter, shape: Any, low: float = 0.0, high: float = 1.0, name: str = "RandomUniform", **more: float
) -> Tensor:
    sizes = list(shape)
    options: dict[str, Any] = dict(more) or {"low": low, "high": high}
    if all(isinstance(s, int) for s in sizes):
        return c.b.op(name, shape=sizes, dtype=1, **options)
    return c.b.op(f"{name}Like", full(c, sizes, 0, "float32"), dtype=1, **options)


@converter("random_uniform", "random_normal")
def random(c: Emitter, op: Any, a: Any, b: Any) -> Any:
    """Uniform between bounds, or normal of a mean and a deviation; drawn as float32."""
    name = "RandomUniform" if op.kind == "random_uniform" else "RandomNormal"
    plain = not isinstance(a, Value) and not isinstance(b, Value) and np.ndim(a) == 0 and np.ndim(b) == 0
    if plain:
        keys = ("low", "high") if name == "RandomUniform" else ("mean", "scale")
        bounds: tuple[Any, Any] = (a, b)
        made = _uniform(c, op.shape, name=name, **{k: float(v) for k, v in zip(keys, bounds, strict=True)})
        return c.cast(made, c.out.dtype)
    keys = {"low": 0.0, "high": 1.0} if name == "RandomUniform" else {"mean": 0.0, "scale": 1.0}
    unit = c.value(_uniform(c, op.shape, name=name, **keys))
    width = c.spread(c.b.Sub, b, a, dtype="float32") if name == "RandomUniform" else b
    moved = c.spread(c.b.Mul, unit, width, dtype="float32")
    return c.spread(c.b.Add, moved, a, dtype="float32", out=c.out.dtype)


@converter("random_randint")
def randint(c: Emitter, op: Any, a: Any, b: Any) -> Any:
    unit = c.value(_uniform(c, op.shape))
    width = c.spread(c.b.Sub, b, a, dtype="float32") if isinstance(a, Value) or isinstance(b, Value) else float(b - a)
    moved = c.spread(lambda u, w, low: c.b.Floor(c.b.Add(c.b.Mul(u, w), low)), unit, width, a, dtype="float32")
    return c.spread(lambda t: c.cast(t, c.out.dtype), moved)


@converter("random_truncated_normal")
def truncated_normal(c: Emitter, op: Any, mean: Any, stddev: Any) -> Any:
    """Within two deviations: the inverse of the normal distribution at a uniform number between its values there."""
    edge = math.erf(2 / math.sqrt(2))
    unit = _uniform(c, op.shape, -edge, edge)
    normal = c.value(c.b.Mul(erfinv(c.b, unit), math.sqrt(2)))
    moved = c.spread(c.b.Mul, normal, stddev, dtype="float32")
    return c.spread(c.b.Add, moved, mean, dtype="float32", out=c.out.dtype)


CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)
"""The coefficients of Giles (2010), Approximating the erfinv function, for single precision; highest power first."""


def erfinv(b: Builder, x: Tensor) -> Tensor:
    """The inverse of the error function: polynomials in w = -log(1 - x^2), one below 5 and one beyond (Giles 2010)."""
    w = b.Neg(b.Log(b.Mul(b.Sub(1.0, x), b.Add(1.0, x))))
    near, far = b.Sub(w, 2.5), b.Sub(b.Sqrt(w), 3.0)
    found = []
    for at, coefficients in ((near, CENTRE), (far, TAIL)):
        total = b.Add(b.Mul(at, coefficients[0]), coefficients[1])
        for a in coefficients[2:]:
            total = b.Add(b.Mul(total, at), a)
        found.append(total)
    inside = b.Mul(b.Where(b.Less(w, 5.0), *found), x)
    infinite = b.Mul(x, math.inf)
    return b.Where(b.GreaterOrEqual(b.Abs(x), 1.0), infinite, inside)


@converter("Erfinv")
def erfinv_of(c: Emitter, op: Any, x: Any) -> Value:
    return c.spread(lambda t: erfinv(c.b, t), x, dtype=c.out.dtype)


@converter("random_dropout")
def dropout(c: Emitter, op: Any, x: Any) -> Any:
    """ONNX's Dropout; with a shape of its own for the noise, a comparison of uniform numbers that is broadcast."""
    rate, dtype = float(op.rate), x.dtype
    if rate >= 1:
        return full(c, x.shape, 0, dtype)
    if op.shape is None or list(op.shape) == list(x.shape):

        def drop(t: Tensor) -> Tensor:
            made = c.b.Dropout(t, c.get(rate, dtype), c.get(True, "bool"))
            return made[0] if isinstance(made, tuple) else made

        return c.spread(drop, x)
    noise = Value(op.shape, "float32", _uniform(c, op.shape), depth=c.b.depth)
    keep = c.spread(lambda u: c.cast(c.b.Less(u, 1 - rate), dtype), noise)
    return c.spread(lambda t, k: c.b.Mul(t, c.b.Mul(k, 1 / (1 - rate))), x, keep)


@converter("random_categorical")
def categorical(c: Emitter, op: Any, logits: Any) -> Tensor:
    count = c.static(op.count, "the number of samples")
    return c.cast(c.b.Multinomial(c.get(logits, "float32"), sample_size=count, dtype=7), c.out.dtype)


@converter("random_shuffle")
def shuffle(c: Emitter, op: Any, x: Any) -> Tensor:
    """In the order of uniform numbers."""
    size = x.shape[op.axis]
    _, order = c.b.TopK(_uniform(c, [size]), c.size(size), axis=0, largest=1, sorted=1)
    return c.b.Gather(c.get(x), order, axis=op.axis)


@converter("random_gamma", "random_beta", "random_binomial")
def other_distributions(c: Emitter, op: Any) -> Any:
    raise c.refusal(
        f"numbers of the {op.kind.removeprefix('random_')} distribution are drawn, which ONNX cannot",
        "convert the model with training=False, or draw from a normal or uniform distribution",
    )
