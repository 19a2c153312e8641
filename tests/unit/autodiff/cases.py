"""Functions and points at which the gradients of the core families are checked; values are drawn anew by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Case = tuple[Any, ...]
"""A function of a builder and Tensors, and the arrays to call it with."""


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


class Draw:
    """Random arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, low: float, high: float, *shape: int) -> Array:
        return np.asarray(self.rng.uniform(low, high, shape))

    def away(self, *shape: int) -> Array:
        """Distinct values of both signs, at least 0.1 from 0 and from each other's magnitudes' kinks."""
        size = int(np.prod(shape))
        values = np.linspace(0.15, 0.95, max(size, 2))[:size] * self.rng.choice([-1, 1], size)
        return self.rng.permutation(values).reshape(shape)


def _unary(name: str, **options: Any) -> Callable[..., Any]:
    return lambda b, x: getattr(b, name)(x, **options)


POSITIVE = "Sqrt Log Reciprocal".split()
INSIDE = (
    "Neg Abs Exp Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Atanh Erf Relu LeakyRelu Elu Celu Selu Sigmoid "
    "HardSwish Softplus Softsign Mish Gelu Swish Softmax LogSoftmax Identity"
).split()


def elementwise(seed: int) -> dict[str, Case]:
    u = Draw(seed)
    cases: dict[str, Case] = {
        "add": (lambda b, x, y: b.Add(x, y), u(-1, 1, 2, 3), u(-1, 1, 3)),
        "sub": (lambda b, x, y: b.Sub(x, y), u(-1, 1, 1, 3), u(-1, 1, 2, 2, 3)),
        "mul": (lambda b, x, y: b.Mul(x, y), u(-1, 1, 2, 3), u(-1, 1, 2, 1)),
        "square": (lambda b, x: b.Mul(x, x), u(-1, 1, 2, 3)),
        "used twice": (lambda b, x: b.Add(b.Sin(x), b.Mul(b.Cos(x), x)), u(-1, 1, 3)),
        "div": (lambda b, x, y: b.Div(x, y), u(-1, 1, 2, 3), u(1, 2, 1)),
        "div by a constant": (lambda b, x: b.Div(x, np.array([2.0, -3.0])), u(-1, 1, 3, 2)),
        "pow": (lambda b, x, y: b.Pow(x, y), u(0.5, 1, 2, 3), u(-1, 1, 3)),
        "pow 2": (lambda b, x: b.Pow(x, 2.0), u(-1, 1, 2, 3)),
        "pow 3": (lambda b, x: b.Pow(x, 3.0), u(-1, 1, 2, 3)),
        "pow, integer exponents": (lambda b, x: b.Pow(x, ints(1, 2, 3)), u(-1, 1, 2, 3)),
        "mod": (lambda b, x, y: b.Mod(x, y, fmod=1), np.array([5.3, -3.2]), np.array([1.9, 1.4])),
        "max": (lambda b, x, y: b.Max(x, y), u.away(2, 3), u(-0.05, 0.05, 3)),
        "min": (lambda b, x, y: b.Min(x, y), u.away(2, 3), u(-0.05, 0.05, 3)),
        "max of three": (lambda b, x, y, z: b.Max(x, y, z), u.away(2, 3), u(-0.05, 0.05, 3), u(-2, -1, 1)),
        "max of one": (lambda b, x: b.Max(x), u(-1, 1, 3)),
        "sum": (lambda b, x, y, z: b.Sum(x, y, z), u(-1, 1, 2, 3), u(-1, 1, 3), u(-1, 1, 1)),
        "mean": (lambda b, x, y: b.Mean(x, y, x), u(-3, 3, 2, 3), u(-1, 1, 3)),
        "clip": (lambda b, x, y, z: b.Clip(x, y, z), u.away(2, 3), np.array(-0.1), np.array(0.1)),
        "clip below": (lambda b, x: b.Clip(x, 0.0), u.away(5)),
        "where": (lambda b, x, y: b.Where(b.Greater(x, 0.0), b.Mul(x, x), y), u.away(2, 3), u(-1, 1, 3)),
        "hard sigmoid": (_unary("HardSigmoid", alpha=0.7, beta=0.4), u.away(2, 3)),
        "thresholded": (_unary("ThresholdedRelu", alpha=0.05), u.away(2, 3)),
        "shrink": (_unary("Shrink", lambd=0.1, bias=0.05), u.away(2, 3)),
        "gelu, tanh": (_unary("Gelu", approximate="tanh"), u(-1, 1, 4)),
        "swish": (_unary("Swish", alpha=1.5), u(-1, 1, 4)),
        "elu": (_unary("Elu", alpha=0.5), u.away(4)),
        "celu": (_unary("Celu", alpha=0.5), u.away(4)),
        "acosh": (_unary("Acosh"), u(1.5, 2, 4)),
        "softmax over an inner axis": (_unary("Softmax", axis=1), u(-1, 1, 2, 3, 2)),
        "prelu": (lambda b, x, s: b.PRelu(x, s), u.away(4, 3), u(0, 1, 3)),
        "swiglu": (lambda b, x, y: b.SwiGLU(x, y), u(-1, 1, 4, 3), u(0, 1, 4, 3)),
        "cast": (lambda b, x: b.Cast(b.Mul(x, x), to=11), u(-1, 1, 2)),
        "range": (lambda b, x, y: b.Range(x, 2.0, y), np.array(0.1), np.array(0.3)),
        "dropout": (lambda b, x: b.Dropout(b.Mul(x, x), 0.3, True), u(-1, 1, 7)),
        "dropout off": (lambda b, x: b.Dropout(b.Mul(x, x), 0.3), u(-1, 1, 7)),
    }
    for name in INSIDE:
        cases[name] = (_unary(name), u.away(2, 3))
    for name in POSITIVE:
        cases[name] = (_unary(name), u(0.5, 2, 2, 3))
    return cases


REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
).split()
PRODUCTS = (
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 2, 3), (3, 4)),
    ((2, 1, 2, 3), (3, 3, 4)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (3,)),
)
EQUATIONS = (
    ("ij,jk->ik", (2, 3), (3, 2)),
    ("ij,jk", (2, 3), (3, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij->", (2, 3)),
    ("ij->ji", (2, 3)),
    ("iij,jk->ik", (2, 2, 3), (3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (2, 3, 3, 2)),
    ("bij,bj->b", (1, 2, 3), (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("ij,ij,ij->i", (2, 3), (2, 1), (1, 3)),
    ("jii->j", (2, 3, 3)),
    ("iji->j", (3, 2, 3)),
    ("ab,cd->bd", (2, 3), (2, 2)),
)


def _reduce(name: str, *axes: int, **options: Any) -> Callable[..., Any]:
    return lambda b, x: getattr(b, name)(x, *([ints(*axes)] if axes else []), **options)


def reductions(seed: int) -> dict[str, Case]:
    u = Draw(seed)
    cases: dict[str, Case] = {"trilu": (lambda b, x: b.Trilu(x, 1, upper=0), u(-1, 1, 3, 3))}
    for name in REDUCTIONS:
        for keep in (0, 1):
            cases[f"{name} of the last, {keep}"] = (_reduce(name, -1, keepdims=keep), u(0.1, 1, 2, 3, 2))
            cases[f"{name} of two, {keep}"] = (_reduce(name, 0, 2, keepdims=keep), u(0.1, 1, 2, 3, 2))
            cases[f"{name} of all, {keep}"] = (_reduce(name, keepdims=keep), u(0.1, 1, 2, 3))
        cases[f"{name} of none"] = (_reduce(name, noop_with_empty_axes=1), u(0.1, 1, 2, 3))
        if name != "ReduceProd":
            cases[f"{name} of axes known when run"] = (
                lambda b, x, a, name=name: getattr(b, name)(x, a, keepdims=0),
                u(0.1, 1, 2, 3),
                ints(1),
            )
    for name in ("CumSum", "CumProd"):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                cases[f"{name} {exclusive} {reverse}"] = (
                    lambda b, x, n=name, e=exclusive, r=reverse: getattr(b, n)(x, 1, exclusive=e, reverse=r),
                    u(-1, 1, 2, 3),
                )
    for left, right in PRODUCTS:
        cases[f"matmul {left} {right}"] = (lambda b, x, y: b.MatMul(x, y), u(-1, 1, *left), u(-1, 1, *right))
    for a in (0, 1):
        for t in (0, 1):
            cases[f"gemm {a} {t}"] = (
                lambda b, x, y, c, a=a, t=t: b.Gemm(x, y, c, transA=a, transB=t, alpha=0.5, beta=2.0),
                u(-1, 1, *((3, 2) if a else (2, 3))),
                u(-1, 1, *((4, 3) if t else (3, 4))),
                u(-1, 1, 4),
            )
    for shape in ((3, 3), (2, 2, 2), (1, 1), (2, 4, 4)):
        cases[f"det {shape}"] = (lambda b, x: b.Det(x), u(-1, 1, *shape))
    for equation, *shapes in EQUATIONS:
        cases[f"einsum {equation}"] = (
            lambda b, *x, e=equation: b.Einsum(*x, equation=e),
            *(u(-1, 1, *s) for s in shapes),
        )
    return cases


def shapes(seed: int) -> dict[str, Case]:
    u = Draw(seed)
    x = u.away(2, 3, 4)
    picks = np.array([[0, 2], [2, -1]])
    cases: dict[str, Case] = {
        "reshape": (lambda b, x: b.Reshape(x, ints(4, -1)), x),
        "flatten": (lambda b, x: b.Flatten(x, axis=2), x),
        "squeeze": (lambda b, x: b.Squeeze(x, ints(1)), u(-1, 1, 2, 1, 3)),
        "unsqueeze": (lambda b, x: b.Unsqueeze(x, ints(0, -1)), x),
        "transpose": (lambda b, x: b.Transpose(x, perm=[2, 0, 1]), x),
        "transpose all": (lambda b, x: b.Transpose(x), x),
        "concat": (lambda b, x, y, z: b.Concat(x, y, z, axis=-1), u(-1, 1, 2, 3), u(-1, 1, 2, 1), u(-1, 1, 2, 2)),
        "concat, first": (lambda b, x: b.Concat(b.Mul(x, x), np.ones((2, 2)), axis=1), u(-1, 1, 2, 3)),
        "concat, last": (lambda b, x: b.Concat(np.ones((2, 2)), b.Mul(x, x), axis=1), u(-1, 1, 2, 3)),
        "split": (lambda b, x: b.Split(x, ints(1, 2), axis=1, outputs=2), u(-1, 1, 2, 3)),
        "split, a part unused": (lambda b, x: b.Split(x, ints(1, 2), axis=1, outputs=2)[1], u(-1, 1, 2, 3)),
        "slice": (lambda b, x: b.Slice(x, ints(1, -3), ints(100, -1), ints(1, 2)), x),
        "slice by steps": (lambda b, x: b.Slice(x, ints(-1, 0), ints(-100, 10), ints(1, 2), ints(-1, 2)), x),
        "slice from where is known when run": (lambda b, x, s: b.Slice(x, s, ints(2), ints(1)), x, ints(1)),
        "slice of nothing": (lambda b, x: b.Add(b.ReduceSum(b.Slice(x, ints(9), ints(9), ints(1))), b.Mul(x, x)), x),
        "expand": (lambda b, x: b.Expand(x, ints(2, 1, 3)), u(-1, 1, 4, 1)),
        "tile": (lambda b, x: b.Tile(x, ints(2, 3)), u(-1, 1, 2, 3)),
        "depth to space": (lambda b, x: b.DepthToSpace(x, blocksize=2), u(-1, 1, 1, 8, 2, 3)),
        "depth to space, CRD": (lambda b, x: b.DepthToSpace(x, blocksize=2, mode="CRD"), u(-1, 1, 1, 8, 2, 3)),
        "space to depth": (lambda b, x: b.SpaceToDepth(x, blocksize=2), u(-1, 1, 1, 2, 2, 4)),
        "reverse sequence": (lambda b, x: b.ReverseSequence(x, ints(2, 3)), u(-1, 1, 3, 2, 2)),
        "center crop or pad": (lambda b, x: b.CenterCropPad(x, ints(5, 2), axes=[1, 2]), x),
        "gather": (lambda b, x, i: b.Gather(x, i), u(-1, 1, 4, 2), ints(1, -1, 1)),
        "gather along 1": (lambda b, x, i: b.Gather(x, i, axis=1), x, picks),
        "gather one": (lambda b, x: b.Gather(x, 1, axis=1), x),
        "gather elements": (
            lambda b, x, i: b.GatherElements(x, i, axis=1),
            u(-1, 1, 2, 3),
            np.array([[0, 0], [2, -1]]),
        ),
        "gather nd": (lambda b, x, i: b.GatherND(x, i), x, np.array([[0, 1], [1, 2], [0, 1]])),
        "gather nd, batches": (lambda b, x, i: b.GatherND(x, i, batch_dims=1), x, np.array([[1], [2]])),
        "compress": (lambda b, x: b.Compress(x, np.array([True, False, True]), axis=1), x),
        "compress flat": (lambda b, x: b.Compress(x, np.array([True, False, True])), x),
        "top k": (lambda b, x: b.TopK(x, ints(2), axis=1)[0], x),
        "smallest k": (lambda b, x: b.TopK(x, ints(2), axis=-1, largest=0)[0], x),
        "unique": (lambda b, x: b.Unique(x, outputs=1), u.away(5)),
        "unique rows": (lambda b, x: b.Unique(x, axis=0, outputs=1), u.away(3, 2)),
        "one-hot values": (lambda b, v: b.OneHot(ints(1, 0, 2), 3, v), u(-1, 1, 2)),
        "tensor scatter": (
            lambda b, x, v: b.TensorScatter(x, v, ints(0, 1), axis=1),
            u(-1, 1, 2, 3, 2),
            u(-1, 1, 2, 2, 2),
        ),
        "tensor scatter, circular": (
            lambda b, x, v: b.TensorScatter(x, v, ints(2, 1), axis=1, mode="circular"),
            u(-1, 1, 2, 3, 2),
            u(-1, 1, 2, 2, 2),
        ),
        "pad with a value, crop": (lambda b, x, v: b.Pad(x, ints(1, -1), v, ints(1)), u(-1, 1, 2, 3), np.array(0.5)),
    }
    for reduction in "none add mul max min".split():
        twice = reduction != "none"
        along = np.array([[0, 0], [2, 2]]) if twice else np.array([[0, 1], [2, 0]])
        cases[f"scatter elements, {reduction}"] = (
            lambda b, x, v, r=reduction, i=along: b.ScatterElements(x, i, v, axis=1, reduction=r),
            u.away(2, 3),
            u.away(2, 2) * 1.1,
        )
        rows = ints(1, 1)[:, None] if twice else ints(1, 0)[:, None]
        cases[f"scatter nd, {reduction}"] = (
            lambda b, x, v, r=reduction, i=rows: b.ScatterND(x, i, v, reduction=r),
            u.away(2, 3),
            u.away(2, 3) * 1.1,
        )
    for mode in "constant reflect edge wrap".split():
        cases[f"pad, {mode}"] = (lambda b, x, m=mode: b.Pad(x, ints(0, 1, 2, 1), None, mode=m), u(-1, 1, 3, 3))
    return cases


def control(seed: int) -> dict[str, Case]:
    u = Draw(seed)

    def power(b: Any, x: Any, w: Any, n: Any) -> Any:
        return b.Loop(n, None, x, body=lambda b, i, c, s: (c, b.Tanh(b.Mul(s, w)), b.Mul(s, s)))

    def until(b: Any, x: Any, w: Any) -> Any:
        def body(b: Any, i: Any, c: Any, s: Any) -> Any:
            return b.Less(b.ReduceSum(b.Mul(s, s), keepdims=0), 50.0), b.Mul(s, w)

        return b.Loop(None, True, x, body=body)

    def counted(b: Any, x: Any) -> Any:
        return b.Loop(4, None, x, body=lambda b, i, c, s: (c, b.Mul(s, b.Sin(b.Add(s, b.Cast(i, to=11))))))

    def growing(b: Any, x: Any, w: Any) -> Any:
        def body(b: Any, i: Any, c: Any, s: Any) -> Any:
            return c, b.Concat(s, b.Mul(b.Slice(s, ints(0), ints(2), ints(0)), w), axis=0)

        return b.Loop(3, None, x, body=body)

    def nested(b: Any, x: Any, w: Any) -> Any:
        def inner(b: Any, i: Any, c: Any, s: Any) -> Any:
            return c, b.Sin(b.Mul(s, w))

        return b.Loop(2, None, x, body=lambda b, i, c, s: (c, b.Loop(3, None, s, body=inner)))

    def collecting(b: Any, x: Any, w: Any) -> Any:
        def body(b: Any, i: Any, c: Any, s: Any, found: Any) -> Any:
            return c, b.Sin(b.Mul(s, w)), b.SequenceInsert(found, s)

        _, found = b.Loop(3, None, x, b.SequenceEmpty(dtype=11), body=body)
        return b.ConcatFromSequence(found, axis=0)

    def chosen(b: Any, x: Any, y: Any) -> Any:
        return b.If(
            b.Greater(b.ReduceSum(x, keepdims=0), 0.0),
            then_branch=lambda b: b.Mul(x, b.Sin(y)),
            else_branch=lambda b: b.Exp(x),
        )

    def chosen_again(b: Any, x: Any, y: Any) -> Any:
        return b.Loop(4, None, x, body=lambda b, i, c, s: (c, chosen(b, b.Cos(s), y)))

    def recurrent(b: Any, s: Any, x: Any, w: Any) -> Any:
        return b.Scan(s, x, num_scan_inputs=1, body=lambda b, s, x: (b.Tanh(b.Add(b.MatMul(s, w), x)), b.Mul(s, x)))

    def backwards(b: Any, s: Any, x: Any) -> Any:
        return b.Scan(
            s,
            x,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_input_directions=[1],
            scan_output_axes=[1],
            scan_output_directions=[1],
            body=lambda b, s, x: (b.Sin(b.Add(s, x)), b.Mul(s, x)),
        )

    def stateless(b: Any, x: Any) -> Any:
        return b.Scan(x, num_scan_inputs=1, body=lambda b, x: b.Mul(x, x))

    def sequence(b: Any, x: Any, y: Any) -> Any:
        s = b.SequenceInsert(b.SequenceConstruct(x, y), b.Mul(x, y), np.int64(1))
        s = b.SequenceErase(s, np.int64(0))
        return b.SequenceAt(s, np.int64(-2)), b.ConcatFromSequence(s, axis=0)

    def mapped(b: Any, x: Any, w: Any) -> Any:
        s = b.SequenceMap(b.SplitToSequence(x, None, axis=0, keepdims=0), body=lambda b, v: b.Mul(v, b.Sin(w)))
        return b.ConcatFromSequence(s, axis=0, new_axis=1)

    def pieces(b: Any, x: Any) -> Any:
        s = b.SplitToSequence(b.Mul(x, x), ints(1, 2), axis=0)
        return b.ConcatFromSequence(b.SequenceErase(s, np.int64(0)), axis=0)

    def dropout_in_branch(b: Any, x: Any) -> Any:
        return b.If(
            b.Greater(b.ReduceSum(x, keepdims=0), -100.0),
            then_branch=lambda b: b.Dropout(b.Sin(x), 0.3, True),
            else_branch=lambda b: b.Mul(x, x),
        )

    def noise(b: Any, x: Any) -> Any:
        return b.Loop(3, None, x, body=lambda b, i, c, s: (c, b.Mul(s, b.RandomNormalLike(s))))

    return {
        "loop": (power, u(-1, 1, 3), u(-1, 1, 3), np.array(3)),
        "loop without an iteration": (power, u(-1, 1, 3), u(-1, 1, 3), np.array(0)),
        "loop until a condition": (until, u(0.5, 1, 3), u(2, 2.1, 3)),
        "loop that reads its counter": (counted, u(-1, 1, 2)),
        "loop whose state grows": (growing, u(-1, 1, 2, 2), u(-1, 1, 2)),
        "loop in a loop": (nested, u(-1, 1, 2), u(0.5, 1, 2)),
        "loop that collects a sequence": (collecting, u(-1, 1, 2), u(0.5, 1, 2)),
        "if, then": (chosen, u(0.1, 1, 3), u(0, 1, 3)),
        "if, else": (chosen, -u(0.1, 1, 3), u(0, 1, 3)),
        "if in a loop": (chosen_again, u(-1, 1, 3), u(-1, 1, 3)),
        "scan": (recurrent, u(-1, 1, 3), u(-1, 1, 4, 3), u(-1, 1, 3, 3)),
        "scan backwards along 1": (backwards, u(-1, 1, 3), u(-1, 1, 3, 4)),
        "scan without a state": (stateless, u(-1, 1, 3, 2)),
        "sequence": (sequence, u(-1, 1, 2), u(-1, 1, 2)),
        "sequence map": (mapped, u(-1, 1, 2, 3), u(-1, 1, 3)),
        "pieces": (pieces, u(-1, 1, 3, 2)),
        "optional": (lambda b, x: b.OptionalGetElement(b.Optional(b.Mul(x, x))), u(-1, 1, 2)),
        "dropout in a branch": (dropout_in_branch, u(-1, 1, 5)),
        "dropout in a loop": (
            lambda b, x: b.Loop(3, None, x, body=lambda b, i, c, s: (c, b.Dropout(b.Sin(s), 0.3, True))),
            u(-1, 1, 5),
        ),
        "noise in a loop": (noise, u(-1, 1, 3)),
    }
