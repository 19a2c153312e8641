"""The mask of a Relu before a MaxPool, moved to the pooled gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.ir.dtypes import BY_NAME
from irkit.ir.module import Module
from irkit.passes import optimize
from irkit.passes.autodiff.simplify import SimplifyGradient

RNG = np.random.default_rng(0)
FLOAT, INT8, BOOL = (BY_NAME[name].code for name in ("float32", "int8", "bool"))


def module(keep: str = "", size: int = 6, **pool: Any) -> Module:
    b = ik.Builder("pool")
    x, w = b.input("x", "float32", ["N", 2, size, size]), b.input("w", "float32", ["N", 2, None, None])
    relu = b.Relu(x)
    pooled = b.MaxPool(relu, kernel_shape=[2, 2], strides=[2, 2], **pool)
    b.output(b.ReduceSum(pooled * w, keepdims=0), "loss")
    b.output(pooled, "pooled")
    if keep == "relu":
        b.output(relu, "relu")
    return optimize(ik.value_and_grad(b.module(), of="loss", wrt="x", keep=["pooled", *[keep] * bool(keep)]), "O2")


def point(size: int = 6, out: int = 3) -> dict[str, np.ndarray]:
    """Windows with ties, with nothing positive, with 0 for the greatest."""
    x = RNG.integers(-2, 3, (3, 2, size, size)).astype(np.float32)
    x[0, 0] = -1
    return {"x": x, "w": RNG.standard_normal((3, 2, out, out)).astype(np.float32)}


def shapes_of(made: Module, name: str) -> list[Any]:
    return [op.results[0].type.get_shape()[2:] for op in made.block.ops if op.name == name]


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize(("size", "out", "pads"), [(6, 3, None), (4, 3, [1, 1, 1, 1])])
def test_the_gradient_stays(backend: str, size: int, out: int, pads: list[int] | None) -> None:
    plain = module(size=size, **({"pads": pads} if pads else {}))
    made = optimize(plain, "simplify-gradient,dce", verify_each=True)
    assert shapes_of(plain, "onnx.Cast") == [(size, size)] * 2
    assert shapes_of(made, "onnx.Cast") == []
    assert shapes_of(made, "onnx.Sign") == [(out, out)]
    inputs = point(size, out)
    expected = ik.compile(plain).run(inputs)
    for name, value in ik.compile(made, backend=backend).run(inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-6, err_msg=name)
    assert np.count_nonzero(expected["grad/x"]) > 5


def test_a_relu_may_be_used_elsewhere() -> None:
    plain = module(keep="relu")
    made = optimize(plain, "simplify-gradient,dce", verify_each=True)
    assert shapes_of(made, "onnx.Sign") == [(3, 3)]
    inputs = point()
    expected = ik.compile(plain).run(inputs)
    for name, value in ik.compile(made).run(inputs).items():
        np.testing.assert_array_equal(value, expected[name])


def test_another_mask_stays() -> None:
    b = ik.Builder("other")
    x, d = b.input("x", "float32", ["N", 2, 6, 6]), b.input("d", "float32", ["N", 2, 3, 3])
    _, places = b.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    # The pool is not of the Relu.
    mask = b.Cast(b.Cast(b.Relu(x), to=BOOL), to=FLOAT)
    b.output(b.MaxUnpool(d, places, kernel_shape=[2, 2], strides=[2, 2]) * mask, "y")
    plain = b.module()
    changed = plain.clone()
    assert not SimplifyGradient().run(changed)
    assert changed == plain


def test_another_cast_stays() -> None:
    b = ik.Builder("rounded")
    x, d = b.input("x", "float32", ["N", 2, 6, 6]), b.input("d", "float32", ["N", 2, 3, 3])
    relu = b.Relu(x)
    _, places = b.MaxPool(relu, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    b.output(b.MaxUnpool(d, places, kernel_shape=[2, 2], strides=[2, 2]) * b.Cast(b.Cast(relu, to=INT8), to=FLOAT), "y")
    assert not SimplifyGradient().run(b.module())


def test_windows_in_the_padding_alone_stay() -> None:
    # Such a window has no greatest element, which a Relu would make 0.
    changed = module(size=6, auto_pad="SAME_UPPER")
    assert not SimplifyGradient().run(changed)


def test_names_stay() -> None:
    b = ik.Builder("named")
    x = b.input("x", "float32", ["N", 2, 6, 6])
    pooled = b.MaxPool(b.Relu(x), kernel_shape=[2, 2], strides=[2, 2])
    b.output(b.ReduceSum(b.Exp(pooled), keepdims=0), "loss")
    plain = optimize(ik.value_and_grad(b.module(), of="loss"), "O2")
    made = optimize(plain, "simplify-gradient", verify_each=True)
    assert list(made.outputs) == list(plain.outputs)
    assert list(made.inputs) == list(plain.inputs)
