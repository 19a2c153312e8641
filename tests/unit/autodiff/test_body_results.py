"""Values that are the results of ops without a rule: such ops are rewritten on the way, and the value with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik

X = np.array([[0.5, 1.5, 2.0], [1.0, 0.25, 3.0]])


def model(*, scalar: bool) -> ik.Module:
    """The logarithm of sums: of all elements, or of rows. ``ReduceLogSum`` is defined by other ops."""
    b = ik.Builder("log of sums")
    x = b.input("x", "float64", [2, 3])
    axes = [] if scalar else [np.array([1])]
    b.output(b.ReduceLogSum(b.Mul(x, x), *axes, keepdims=0), "y")
    return b.module()


def run(module: ik.Module, **feeds: Any) -> dict[str, Any]:
    return ik.compile(module).run({"x": X, **{name.replace("__", "/"): value for name, value in feeds.items()}})


SLOPE = 2 * X / (X * X).sum()
ROWS = 2 * X / (X * X).sum(1, keepdims=True)


def test_gradients_give_the_value_too() -> None:
    found = run(ik.value_and_grad(model(scalar=True)))
    np.testing.assert_allclose(found["y"], np.log((X * X).sum()))
    np.testing.assert_allclose(found["grad/x"], SLOPE)
    np.testing.assert_allclose(run(ik.grad(model(scalar=True)))["grad/x"], SLOPE)


def test_vjp_and_jvp() -> None:
    ct, tangent = np.array([1.0, -2.0]), np.ones((2, 3))
    found = run(ik.vjp(model(scalar=False)), ct__y=ct)
    np.testing.assert_allclose(found["y"], np.log((X * X).sum(1)))
    np.testing.assert_allclose(found["grad/x"], ct[:, None] * ROWS)
    found = run(ik.jvp(model(scalar=False)), tangent__x=tangent)
    np.testing.assert_allclose(found["y"], np.log((X * X).sum(1)))
    np.testing.assert_allclose(found["tangent/y"], ROWS.sum(1))


def test_second_derivatives_and_jacobians() -> None:
    eye = np.eye(6).reshape(2, 3, 2, 3)
    total = (X * X).sum()
    hessian = 2 * eye / total - 4 * np.multiply.outer(X, X) / total**2
    found = run(ik.hessian(model(scalar=True)))
    np.testing.assert_allclose(found["hessian/x/x"], hessian, atol=1e-14)
    product = run(ik.hvp(model(scalar=True)), tangent__x=np.ones((2, 3)))["hvp/x"]
    np.testing.assert_allclose(product, hessian.sum((2, 3)))
    jacobian = run(ik.jacobian(model(scalar=False)))["jacobian/x"]
    np.testing.assert_allclose(jacobian, np.stack([ROWS * [[1], [0]], ROWS * [[0], [1]]]))


@pytest.mark.parametrize("of", ["h", "y"])
def test_by_values_in_between(of: str) -> None:
    """Differentiated by a value that is such a result, and keeping one."""
    b = ik.Builder("between")
    x = b.input("x", "float64", [2, 3])
    h = b.ReduceLogSum(x, np.array([1]), keepdims=0)
    b.output(b.ReduceSum(b.Mul(h, h), keepdims=0), "y")
    b.output(h, "h")
    module = b.module()
    if of == "y":
        found = run(ik.value_and_grad(module, of="y", wrt=["h", "x"], keep=["h"]))
        np.testing.assert_allclose(found["h"], np.log(X.sum(1)))
        np.testing.assert_allclose(found["grad/h"], 2 * np.log(X.sum(1)))
    else:
        found = run(ik.vjp(module, of="h", wrt=["x"]), ct__h=np.ones(2))
        np.testing.assert_allclose(found["grad/x"], 1 / X.sum(1, keepdims=True).repeat(3, 1))


def test_the_tape_shows_what_ran() -> None:
    tape = ik.tape(model(scalar=True), {"x": X})
    np.testing.assert_allclose(tape["x"].grad, SLOPE)
    assert next(node.op for node in tape.nodes if node.op not in ("input", "constant")) == "Mul"
    assert all(node.grad is not None for node in tape.nodes if node.op in ("ReduceSum", "Log"))
    for node in tape.nodes:
        if node.contributions:
            np.testing.assert_allclose(sum(node.contributions.values()), node.grad)
