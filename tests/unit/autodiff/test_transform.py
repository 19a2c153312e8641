"""Differentiating values and modules: what is built, what is refused, and by which names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError, UnsupportedError
from irkit.passes.autodiff.registry import RULES, Vjp
from irkit.passes.autodiff.rematerialize import made_by_gradient
from irkit.passes.autodiff.transform import differentiate

RNG = np.random.default_rng(5)
X, W = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))


def network() -> ik.Module:
    """``loss = mean(tanh(x w + b)^2)``, with the batch symbolic."""
    b = ik.Builder("network")
    x = b.input("x", "float64", ["N", 3])
    h = b.Tanh(b.Gemm(x, b.initializer(W, "w"), b.initializer(np.array([0.1, -0.2]), "b")))
    b.output(b.ReduceMean(b.Mul(h, h), keepdims=0), "loss")
    b.output(h, "h")
    return b.module()


def run(module: ik.Module, backend: str = "numpy", **feeds: Any) -> dict[str, Any]:
    return ik.compile(module, backend=backend).run({k.replace("__", "/"): v for k, v in feeds.items()})


def differences(f: Any, x: Any, step: float = 1e-6) -> Any:
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = [x.copy() for _ in range(2)]
        moved[0][index] += step
        moved[1][index] -= step
        found[index] = (f(moved[0]) - f(moved[1])) / (2 * step)
    return found


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_value_and_grad(backend: str) -> None:
    module = network()
    before = str(module)
    made = ik.value_and_grad(module, of="loss", wrt=["w", "b", "x"], keep=["h"])
    assert str(module) == before
    assert list(made.inputs) == ["x"]
    assert list(made.outputs) == ["loss", "h", "grad/w", "grad/b", "grad/x"]
    found = run(made, backend, x=X)
    expected = run(module, x=X)
    np.testing.assert_allclose(found["loss"], expected["loss"])
    np.testing.assert_allclose(found["h"], expected["h"])
    np.testing.assert_allclose(found["grad/x"], differences(lambda x: run(module, x=x)["loss"], X), atol=1e-8)
    as_inputs = ik.value_and_grad(module, of="loss", wrt=["w", "b"], as_inputs=True)
    assert list(as_inputs.inputs) == ["x", "w", "b"]
    assert list(as_inputs.defaults) == ["w", "b"]
    np.testing.assert_array_equal(run(as_inputs, x=X)["grad/w"], run(made, x=X)["grad/w"])
    slope = differences(lambda w: run(as_inputs, x=X, w=w)["loss"], W)
    np.testing.assert_allclose(found["grad/w"], slope, atol=1e-8)


def test_backward_ops_say_where_they_come_from() -> None:
    made = ik.grad(network(), of="loss", wrt="w")
    backward = [op for op in made.block.ops if made_by_gradient(op)]
    assert len(backward) > 3
    assert all("made by gradient" in ik.IrkitError("", where=_where(op)).where for op in backward)


def _where(op: Any) -> str:
    from irkit.ir.location import where

    return where(op)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_vjp_and_jvp_agree(backend: str) -> None:
    module = network()
    back, forth = ik.vjp(module, wrt=["x", "w"]), ik.jvp(module, wrt=["x", "w"])
    assert list(back.inputs) == ["x", "ct/loss", "ct/h"]
    assert list(back.outputs) == ["loss", "h", "grad/x", "grad/w"]
    assert list(forth.inputs) == ["x", "tangent/x", "tangent/w"]
    assert list(forth.outputs) == ["loss", "h", "tangent/loss", "tangent/h"]
    ct = {"ct__loss": np.array(0.7), "ct__h": RNG.normal(size=(4, 2))}
    tangents = {"tangent__x": RNG.normal(size=X.shape), "tangent__w": RNG.normal(size=W.shape)}
    g, t = run(back, backend, x=X, **ct), run(forth, backend, x=X, **tangents)
    one = (g["grad/x"] * tangents["tangent__x"]).sum() + (g["grad/w"] * tangents["tangent__w"]).sum()
    other = t["tangent/loss"] * ct["ct__loss"] + (t["tangent/h"] * ct["ct__h"]).sum()
    np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_second_derivatives(backend: str) -> None:
    module = network()
    full = run(ik.hessian(module, of="loss", wrt=["w", "b"]), backend, x=X)
    assert list(full) == ["hessian/w/w", "hessian/w/b", "hessian/b/w", "hessian/b/b"]
    assert full["hessian/w/b"].shape == (3, 2, 2)
    np.testing.assert_allclose(full["hessian/w/b"], np.moveaxis(full["hessian/b/w"], 0, -1), atol=1e-12)
    gradient = ik.grad(module, of="loss", wrt="w", as_inputs=True)
    v = RNG.normal(size=W.shape)
    slope = (run(gradient, x=X, w=W + 1e-6 * v)["grad/w"] - run(gradient, x=X, w=W - 1e-6 * v)["grad/w"]) / 2e-6
    product = run(ik.hvp(module, of="loss", wrt="w"), backend, x=X, tangent__w=v)
    np.testing.assert_allclose(product["hvp/w"], slope, atol=1e-8)
    np.testing.assert_allclose(np.einsum("ijkl,kl->ij", full["hessian/w/w"], v), product["hvp/w"], atol=1e-10)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
def test_jacobian(backend: str) -> None:
    module = network()
    found = run(ik.jacobian(module, of="h", wrt=["x", "b"]), backend, x=X)
    assert found["jacobian/x"].shape == (4, 2, 4, 3)
    columns = differences(lambda x: run(module, x=x)["h"][1, 0], X)
    np.testing.assert_allclose(found["jacobian/x"][1, 0], columns, atol=1e-8)
    assert found["jacobian/b"].shape == (4, 2, 2)


def test_transforms_compose() -> None:
    module = network()
    once = ik.vjp(module, of="h", wrt="x")
    twice = ik.vjp(once, of="grad/x", wrt=["x", "ct/h"])
    assert list(twice.outputs) == ["grad/x", "grad/x_1", "grad/ct/h"]
    third = ik.jvp(twice, of="grad/x_1", wrt="x")
    assert list(third.outputs) == ["grad/x_1", "tangent/grad/x_1"]
    inputs = {"x": X, "ct/h": np.ones((4, 2)), "ct/grad/x": np.ones((4, 3))}
    first = ik.compile(twice)
    tangent = RNG.normal(size=X.shape)
    found = ik.compile(third).run({**inputs, "tangent/x": tangent})["tangent/grad/x_1"]
    up, down = (first.run({**inputs, "x": X + s * 1e-6 * tangent})["grad/x_1"] for s in (1, -1))
    np.testing.assert_allclose(found, (up - down) / 2e-6, atol=1e-7)


def test_intermediate_values_and_uses_of_an_output() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float64", [3])
    h = b.Sin(x)
    b.output(b.Add(b.Mul(h, h), x), "y")
    b.output(h, "h")
    back = ik.vjp(b.module(), of=["y", "h"], wrt=["h", "x"])
    value = RNG.normal(size=3)
    found = run(back, x=value, ct__y=np.ones(3), ct__h=np.full(3, 10.0))
    np.testing.assert_allclose(found["grad/h"], 2 * np.sin(value) + 10)
    np.testing.assert_allclose(found["grad/x"], (2 * np.sin(value) + 10) * np.cos(value) + 1)


def test_only_what_matters_is_built() -> None:
    b = ik.Builder("g")
    x, y = b.input("x", "float32", [3]), b.input("y", "float32", [3])
    product = b.Mul(b.Exp(y), x)
    count = len(b.block.ops)
    found = differentiate(b, [product], [x, y], [None])
    assert found == [None, None]
    assert len(b.block.ops) == count
    assert differentiate(b, [b.Shape(x)], [x], [b.constant([1])]) == [None]


def test_stop_gradient() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float64", [2])
    b.output(b.ReduceSum(b.Mul(x, ik.stop_gradient(x)), keepdims=0), "loss")
    found = run(ik.grad(b.module()), x=np.array([2.0, 3.0]))
    np.testing.assert_array_equal(found["grad/x"], [2, 3])


def test_errors_name_what_is_wrong() -> None:
    module = network()
    with pytest.raises(IrkitError, match="no value 'wrong'"):
        ik.grad(module, of="loss", wrt="wrong")
    with pytest.raises(IrkitError, match="only a value of one element"):
        ik.grad(module, of="h", wrt="w")
    b = ik.Builder("g")
    x = b.input("x", "float32", [2])
    n = b.BitCast(x, to=6)
    b.output(b.ReduceSum(b.BitCast(n, to=1), keepdims=0), "loss")
    b.output(n, "n")
    with pytest.raises(IrkitError, match="'n' is tensor<2xi32>, which has no gradient"):
        ik.vjp(b.module(), of="n")


def test_an_op_without_a_gradient_is_named_with_its_origin() -> None:
    b = ik.Builder("g")
    x = b.input("x", "float16", [2])
    b.output(b.ReduceSum(b.BitCast(x, to=16), keepdims=0), "loss")
    with pytest.raises(UnsupportedError, match=r"onnx.BitCast at .*test_transform.py:\d+: the bits of a number"):
        ik.grad(b.module())


def test_older_forms_are_differentiated_by_what_they_mean() -> None:
    b = ik.Builder("g", opsets={"": 11})
    x = b.input("x", "float64", [2, 3, 2])
    weights = RNG.normal(size=(2, 3, 2))
    b.output(b.ReduceSum(b.Mul(b.op("SoftmaxV11", x, axis=1), weights), keepdims=0), "loss")
    made = ik.grad(b.module())
    assert made.opsets[""] == 21
    value = RNG.normal(size=(2, 3, 2))
    found = run(made, x=value)["grad/x"]

    def loss(x: Any) -> Any:
        e = np.exp(x.reshape(2, 6))
        return ((e / e.sum(1, keepdims=True)).reshape(2, 3, 2) * weights).sum()

    np.testing.assert_allclose(found, differences(loss, value), atol=1e-8)


def test_rules_for_functions_and_ops_of_others() -> None:
    import onnx
    from onnx import helper

    body = [helper.make_node("Floor", ["a"], ["r"])]
    function = helper.make_function("of.mine", "Steps", ["a"], ["r"], body, [helper.make_opsetid("", 21)])
    twice = helper.make_function(
        "of.mine", "Twice", ["a"], ["r"], [helper.make_node("Add", ["a", "a"], ["r"])], [helper.make_opsetid("", 21)]
    )
    graph = helper.make_graph(
        [
            helper.make_node("Twice", ["x"], ["t"], domain="of.mine"),
            helper.make_node("Steps", ["t"], ["s"], domain="of.mine"),
            helper.make_node("ReduceSum", ["s"], ["loss"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [3])],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.DOUBLE, [])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("of.mine", 1)]
    module = ik.load(helper.make_model(graph, functions=[function, twice], opset_imports=opsets))
    with pytest.raises(IrkitError, match="no path of differentiable ops"):
        ik.grad(module)

    @ik.vjp_for("Steps", domain="of.mine")
    def straight_through(g: Vjp) -> Any:
        return g.ct

    try:
        found = run(ik.grad(module), x=np.array([0.3, 1.6, -2.0]))["grad/x"]
    finally:
        del RULES["of.mine", "Steps"]
    # The other function has no rule of its own: its body has.
    np.testing.assert_array_equal(found, [2, 2, 2])


def layers(depth: int) -> ik.Module:
    b = ik.Builder("deep")
    x = b.input("x", "float64", ["N", 8])
    for i in range(depth):
        x = b.Tanh(b.MatMul(x, b.initializer(RNG.normal(size=(8, 8)), f"w{i}")))
        x = b.Identity(x) if i == 1 else x
    b.output(b.ReduceMean(b.Mul(x, x), keepdims=0), "loss")
    return b.module()


def test_checkpoint_computes_again_and_cse_leaves_it() -> None:
    """jax 7100: merging common subexpressions must not undo it."""
    made = ik.value_and_grad(layers(4), wrt="x")
    value = RNG.normal(size=(5, 8))
    again = ik.checkpoint(made, keep=[])
    tanhs = [op for op in again.block.ops if op.name == "onnx.Tanh"]
    assert len(tanhs) == 8
    np.testing.assert_array_equal(run(again, x=value)["grad/x"], run(made, x=value)["grad/x"])
    cleaned = ik.optimize(again, "cse,canonicalize,cse,dce")
    assert len([op for op in cleaned.block.ops if op.name == "onnx.Tanh"]) == len(tanhs)
    within = ik.checkpoint(made, budget=2 * 8 * 8 * 8, sizes={"N": 8})
    assert 4 < len([op for op in within.block.ops if op.name == "onnx.Tanh"]) < len(tanhs)
    np.testing.assert_array_equal(run(within, x=value)["grad/x"], run(made, x=value)["grad/x"])
    with pytest.raises(IrkitError, match="a budget needs every size"):
        ik.checkpoint(made, budget=100)


def test_checkpoint_draws_no_mask_again() -> None:
    """pytorch 190758."""
    b = ik.Builder("g")
    x = b.input("x", "float64", [1000])
    y = b.Dropout(b.Sin(x), 0.5, True)
    b.output(b.ReduceSum(b.Mul(y, y), keepdims=0), "loss")
    b.output(y, "y")
    made = ik.checkpoint(ik.value_and_grad(b.module(), of="loss", keep=["y"]), keep=[])
    assert len([op for op in made.block.ops if op.name == "onnx.Dropout"]) == 1
    value = RNG.uniform(0.5, 1, 1000)
    found = run(made, x=value)
    np.testing.assert_allclose(found["grad/x"], 2 * found["y"] * np.where(found["y"] != 0, 2 * np.cos(value), 0))


def test_gradient_op_of_the_training_preview() -> None:
    import onnx
    from onnx import helper

    preview = "ai.onnx.preview.training"
    nodes = [
        helper.make_node("Mul", ["w", "x"], ["y"]),
        helper.make_node("Gradient", ["w", "x"], ["dw", "dx"], domain=preview, xs=["w", "x"], y="y"),
        helper.make_node("Gradient", ["w", "x"], ["dwdw", "dwdx"], domain=preview, xs=["w", "x"], y="dw"),
        helper.make_node("Gradient", ["x", "x"], ["at_x"], domain=preview, xs=["w"], zs=["x"], y="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, [2]) for n in "wx"],
        [helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, [2]) for n in ("dw", "dx", "dwdx", "at_x")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(preview, 1)]
    module = ik.optimize(ik.load(helper.make_model(graph, opset_imports=opsets)), "expand-gradient,lower-ad")
    w, x = np.array([2.0, 3.0]), np.array([5.0, 7.0])
    for backend in ("numpy", "onnxruntime"):
        found = run(module, backend, w=w, x=x)
        np.testing.assert_array_equal(found["dw"], x)
        np.testing.assert_array_equal(found["dx"], w)
        np.testing.assert_array_equal(found["dwdx"], [1, 1])
        np.testing.assert_array_equal(found["at_x"], x)
