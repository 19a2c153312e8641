"""Derivatives of expressions and functions against finite differences and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.frontends import dsl
from tests.unit.dsl.support import BACKENDS, assert_same, evaluate

backends = pytest.mark.parametrize("backend", BACKENDS)
X = np.array([0.3, -0.7, 1.1])
M = np.array([[0.5, -1.0], [2.0, 0.25], [1.5, 1.0]])


def numeric(f: Callable[[Any], Any], x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """The Jacobian by central differences, of the shape of f's value, then x."""
    columns = []
    for i in range(x.size):
        d = np.zeros(x.size)
        d[i] = h
        d = d.reshape(x.shape)
        columns.append((np.asarray(f(x + d)) - np.asarray(f(x - d))) / (2 * h))
    return np.stack(columns, -1).reshape(*np.shape(columns[0]), *x.shape)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "products": lambda x: dsl.sum(dsl.tanh(x @ M) * dsl.exp(x[0])),
    "shared": lambda x: dsl.logsumexp(x * x + dsl.sin(x)),
    "indexing": lambda x: x[0] * x[-1] + dsl.sum(x[::-1] * x) + dsl.sum(x[[0, 0, 2]] ** 3),
    "scan": lambda x: dsl.scan(lambda c, v: (dsl.tanh(c * v) + v, None), dsl.constant(0.5, "float64"), x)[0],
    "loop": lambda x: dsl.sum(dsl.fori(0, 3, lambda i, s: s * dsl.sin(s) + x, x)),
    "cond": lambda x: dsl.cond(x[0] > 0.0, lambda: dsl.prod(x), lambda: dsl.sum(x)),
    "function": lambda x: dsl.function(lambda y: dsl.sum(y * y * y))(x) * x[1],
}


@backends
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_and_hessians(name: str, backend: str) -> None:
    f = FUNCTIONS[name]
    value = lambda x: evaluate(f, x)  # noqa: E731
    slope = lambda x: evaluate(dsl.grad(f), x)  # noqa: E731
    assert_same(evaluate(dsl.grad(f), X, backend=backend), numeric(value, X), rtol=1e-5)
    if name != "loop":
        assert_same(evaluate(dsl.hessian(f), X, backend=backend), numeric(slope, X), rtol=1e-5)


@backends
@pytest.mark.parametrize("symbolic", [False, True])
def test_jacobian_vjp_jvp(symbolic: bool, backend: str) -> None:
    f = lambda x: dsl.tanh(x @ M) * x[0]  # noqa: E731
    jacobian = numeric(lambda x: np.tanh(x @ M) * x[0], X)
    options: Any = {"backend": backend, "symbolic": symbolic}
    if not symbolic:
        assert_same(evaluate(dsl.jacobian(f), X, **options), jacobian, rtol=1e-5)
        ct, tangent = np.array([1.0, -2.0]), np.array([0.5, 0.25, -1.0])
        out, back = evaluate(lambda x, c: (lambda y, b: (y, b(c)[0]))(*dsl.vjp(f, x)), X, ct, **options)
        assert_same(out, np.tanh(X @ M) * X[0])
        assert_same(back, ct @ jacobian)
        _, forward = evaluate(lambda x, t: dsl.jvp(f, (x,), (t,)), X, tangent, **options)
        assert_same(forward, jacobian @ tangent)
    else:
        assert_same(evaluate(dsl.jacobian(dsl.sin), X, **options), np.diag(np.cos(X)))


def test_value_and_grad() -> None:
    def f(params: Any, scale: Any) -> Any:
        loss = dsl.sum(params["w"] * scale) * params["b"]
        return loss, {"w2": params["w"] * 2.0}

    w, b, s = np.array([1.0, 2.0]), np.array(3.0), np.array([0.5, 4.0])

    def g(w: Any, b: Any, s: Any) -> Any:
        (loss, aux), (dparams, ds) = dsl.value_and_grad(f, (0, 1), has_aux=True)({"w": w, "b": b}, s)
        return loss, aux["w2"], dparams["w"], dparams["b"], ds

    loss, doubled, dw, db, ds = evaluate(g, w, b, s)
    assert (loss, db) == (8.5 * 3, 8.5)
    assert_same(doubled, w * 2)
    assert_same(dw, s * 3)
    assert_same(ds, w * 3)


def test_what_a_function_sees_of_an_argument_in_other_ways_is_constant() -> None:
    assert evaluate(lambda x: dsl.grad(lambda y: x * y)(x), np.float64(3)) == 3
    assert evaluate(lambda x: dsl.gradients(x * x, x), np.float64(3)) == 6
    assert evaluate(lambda x: dsl.gradients(x * dsl.stop_gradient(x), x), np.float64(3)) == 3


def test_gradients_of_gradients_and_cotangents() -> None:
    x = dsl.placeholder("x", "float64", [])
    y = x**4
    for power, factor in ((3, 4), (2, 12), (1, 24)):
        y = dsl.gradients(y, x)
        assert ik.compile(y)(2.0) == factor * 2.0**power
    v = dsl.placeholder("v", "float64", [2])
    g = dsl.gradients([v * v, dsl.exp(v)], v, [np.array([1.0, 0]), np.array([0.0, 1])])
    assert_same(ik.compile(g)(np.array([3.0, 0.0])), [6.0, 1.0])
    both = dsl.gradients(dsl.sum(v), {"dv": v, "dx": x}, allow_unused=True)
    assert ik.compile(both).run({"v": np.zeros(2), "x": np.array(1.0)})["dx"] == 0


def test_second_derivatives_of_what_is_linear_are_zero() -> None:
    """Within a map whose steps depend on the value by a condition only."""
    f = lambda x: dsl.sum(dsl.map(lambda v: dsl.cond(v > 0.0, lambda: v, lambda: -v), x))  # noqa: E731
    assert_same(evaluate(dsl.grad(f), X), np.sign(X))
    assert_same(evaluate(dsl.hessian(f), X), np.zeros((3, 3)))


def test_jacobians_and_hessians_of_expressions() -> None:
    x = dsl.placeholder("x", "float64", [3])
    w = dsl.variable(np.array([1.0, 2.0, 3.0]), "w")
    y = dsl.sum(x * x * w)
    found = ik.compile([dsl.jacobian(x * x, x), dsl.hessian(y, x), dsl.jacobian(x * w, w)])(X)
    assert_same(found[0], np.diag(2 * X))
    assert_same(found[1], np.diag([2.0, 4.0, 6.0]))
    assert_same(found[2], np.diag(X))


def test_gradients_by_variables_in_all_places() -> None:
    """A variable that is read in a function, in a loop, and after an assignment."""
    w = dsl.variable(np.array(2.0), "w")
    once = dsl.function(lambda x: x * w)
    x = dsl.placeholder("x", "float64", ["n"])
    looped = dsl.scan(lambda c, v: (c + v * w, None), np.float64(0), x)[0]
    with dsl.control_dependencies([w.assign_add(1.0)]):
        later = w * 10.0
    total = dsl.sum(once(x)) + looped + later
    session = dsl.Session()
    found = session.run([total, dsl.gradients(total, w)], {x: np.array([1.0, 2.0])})
    assert [float(v) for v in found] == [6 + 6 + 30, 3 + 3 + 10]


def test_gradients_within_a_loop() -> None:
    def descend(x: Any) -> Any:
        return dsl.fori(0, 200, lambda i, v: v - 0.1 * dsl.grad(lambda u: dsl.sum((u - 3.0) ** 2))(v), x)

    assert_same(evaluate(descend, X), np.full(3, 3.0))
