"""Rules that make one Gemm of a matrix product and what is added to it, and take transposes into it."""

# pyright: basic
# Patterns and replacements are plain functions over any builder, so that their parameters have no types.

from __future__ import annotations

from typing import Any

from irkit.ir.builder import Tensor
from irkit.passes.rules import Rule, attributes, value

__all__ = ["RULES"]

MATRIX = value("float", rank=2)


def matmul_plus(b: Any, x=MATRIX, w=MATRIX, c=value()):
    return b.Add(b.MatMul(x, w), c)


def fits_gemm(x: Tensor, w: Tensor, c: Tensor) -> bool:
    """Whether C may be added by a Gemm: it broadcasts to the product, which it does not broadcast in turn."""
    if c.shape is None or len(c.shape) > 2:
        return False
    product = (x.shape[0], w.shape[1]) if x.shape is not None and w.shape is not None else (None, None)
    return all(d == 1 or (d is not None and d == p) for d, p in zip(reversed(c.shape), reversed(product), strict=False))


def gemm_plus(b: Any, x=MATRIX, w=MATRIX, c=value(), *, attrs=attributes()):
    return b.Add(b.Gemm(x, w, **attrs), c)


def fits_gemm_without_c(x: Tensor, w: Tensor, c: Tensor, attrs: dict[str, Any]) -> bool:
    if x.shape is None or w.shape is None or c.shape is None or len(c.shape) > 2:
        return False
    product = x.shape[1 if attrs.get("transA") else 0], w.shape[0 if attrs.get("transB") else 1]
    return all(d == 1 or (d is not None and d == p) for d, p in zip(reversed(c.shape), reversed(product), strict=False))


def without(attrs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in attrs.items() if k not in names}


def gemm_of_transposed(b: Any, x=MATRIX, w=value(), c=value(optional=True), *, attrs=attributes(), perm):
    return b.Gemm(b.Transpose(x, perm=perm), w, c, **attrs)


def gemm_by_transposed(b: Any, x=value(), w=MATRIX, c=value(optional=True), *, attrs=attributes(), perm):
    return b.Gemm(x, b.Transpose(w, perm=perm), c, **attrs)


def swaps(perm: Any) -> bool:
    return perm is None or tuple(perm) == (1, 0)


RULES = [
    Rule(
        "matmul-and-add-to-gemm",
        matmul_plus,
        lambda b, x, w, c: b.Gemm(x, w, c),
        when=fits_gemm,
        precision="rounding",
        opset=7,
        samples=[
            {"x": ["N", 3], "w": [3, 4], "c": [4]},
            {"x": ["N", 3], "w": [3, "M"], "c": ["N", "M"]},
            {"x": ["N", 3], "w": [3, 4], "c": [1, 1]},
            {"x": [2, "K"], "w": ["K", 4], "c": []},
        ],
    ),
    Rule(
        "gemm-and-add-to-gemm",
        gemm_plus,
        lambda b, x, w, c, attrs: b.Gemm(x, w, c, **without(attrs, "beta")),
        when=fits_gemm_without_c,
        precision="rounding",
        opset=7,
        samples=[
            {"x": ["N", 3], "w": [3, 4], "c": [4], "attrs": {"alpha": 0.5, "beta": 3.0}},
            {"x": [3, "N"], "w": [4, 3], "c": ["N", 1], "attrs": {"transA": 1, "transB": 1}},
        ],
    ),
    Rule(
        "transposed-into-gemm-a",
        gemm_of_transposed,
        lambda b, x, w, c, attrs: b.Gemm(x, w, c, **{**attrs, "transA": 1 - attrs.get("transA", 0)}),
        when=lambda perm: swaps(perm),
        precision="rounding",
        samples=[
            {"x": [3, "N"], "w": [3, 4], "c": [4], "perm": [1, 0]},
            {"x": ["N", 3], "w": [3, 4], "c": [4], "attrs": {"transA": 1}},
        ],
    ),
    Rule(
        "transposed-into-gemm-b",
        gemm_by_transposed,
        lambda b, x, w, c, attrs: b.Gemm(x, w, c, **{**attrs, "transB": 1 - attrs.get("transB", 0)}),
        when=lambda w, perm: swaps(perm),
        precision="rounding",
        samples=[
            {"x": ["N", 3], "w": [4, 3], "c": [4], "perm": [1, 0]},
            {"x": ["N", 3], "w": [3, 4], "attrs": {"transB": 1}},
        ],
    ),
]
