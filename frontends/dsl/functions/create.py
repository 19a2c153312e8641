"""Values from nothing: constants, ranges, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from irkit.frontends.dsl.build import convert, make
from irkit.frontends.dsl.functions.shape import ints, sizes
from irkit.frontends.dsl.operators import add, multiply
from irkit.frontends.dsl.symbol import Operand, Symbol
from irkit.ir.dtypes import DType
from irkit.ir.dtypes import dtype as as_dtype


def full(shape: Any, value: Any, dtype: Any = None) -> Symbol:
    """One value everywhere. Sizes may be symbols."""
    filler = convert(value, dtype)
    return make("Expand", filler, sizes(shape))


def zeros(shape: Any, dtype: Any = "float32") -> Symbol:
    """Zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = "float32") -> Symbol:
    """Ones."""
    return full(shape, 1, dtype)


def full_like(x: Any, value: Any, dtype: Any = None) -> Symbol:
    """One value everywhere, of the shape and, by default, the dtype of another."""
    like = convert(x)
    filler = convert(value, dtype or like.dtype)
    known = like.shape
    if known is not None and all(isinstance(d, int) for d in known):
        return filler if known == () else make("Expand", filler, ints(*(d for d in known if isinstance(d, int))))
    return make("Expand", filler, make("Shape", like))


def zeros_like(x: Any, dtype: Any = None) -> Symbol:
    """Zeros of the shape of another."""
    return full_like(x, 0, dtype)


def ones_like(x: Any, dtype: Any = None) -> Symbol:
    """Ones of the shape of another."""
    return full_like(x, 1, dtype)


def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = "float32") -> Symbol:
    """Ones on the k-th diagonal."""
    return convert(np.eye(rows, columns, k).astype(as_dtype(dtype).numpy))


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Symbol:
    """Numbers at equal distances, without the end. Bounds may be symbols."""
    if stop is None:
        start, stop = 0, start
    given = [start, stop, step]
    if not any(isinstance(v, Operand) for v in given):
        kind = as_dtype(dtype or ("float32" if any(isinstance(v, float) for v in given) else "int64"))
        return convert(np.arange(start, stop, step).astype(kind.numpy))
    kind = dtype or next(v.dtype for v in given if isinstance(v, Operand))
    return make("Range", *(_scalar(v, as_dtype(kind)) for v in given))


def _scalar(value: Any, kind: DType) -> Symbol:
    found = convert(value, kind)
    return found if found.dtype is kind else make("Cast", found, to=kind.code)


def linspace(start: float, stop: float, count: int, dtype: Any = "float32") -> Symbol:
    """So many numbers at equal distances, the end included."""
    return convert(np.linspace(start, stop, count).astype(as_dtype(dtype).numpy))


def random_normal(shape: Any, mean: Any = 0.0, scale: Any = 1.0, dtype: Any = "float32") -> Symbol:
    """Normal random numbers, drawn anew in each run."""
    return add(multiply(_random("RandomNormal", shape, dtype), scale), mean)


def random_uniform(shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: Any = "float32") -> Symbol:
    """Random numbers between two bounds, drawn anew in each run."""
    drawn = _random("RandomUniform", shape, dtype)
    if not isinstance(low, Operand) and not isinstance(high, Operand):
        return drawn if (low, high) == (0.0, 1.0) else add(multiply(drawn, high - low), low)
    return add(multiply(drawn, convert(high) - low), low)


def _random(op: str, shape: Any, dtype: Any) -> Symbol:
    code = as_dtype(dtype).code
    given = sizes(shape)
    if isinstance(given, np.ndarray):
        return make(op, shape=given.tolist(), dtype=code)
    return make(f"{op}Like", make("Expand", convert(0, dtype), given))


def bernoulli(probability: Any) -> Symbol:
    """1 with these probabilities, else 0; drawn anew in each run."""
    return make("Bernoulli", convert(probability))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(full, zeros, ones, full_like, zeros_like, ones_like, eye, arange, linspace),
        *(random_normal, random_uniform, bernoulli),
    )
}
