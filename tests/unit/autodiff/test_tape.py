"""The graph of first principles: two inputs, five sigmoid neurons, and the loss ``0.5 (x - E)^2``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.errors import IrkitError
from irkit.passes.autodiff.tape import NodeSpec

E = 0.25
PARENTS = {3: (1, 2), 4: (1, 2), 5: (3, 4), 6: (3, 4), 7: (5, 6), 8: (7,)}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def neuron(b: Any, *xs: Any) -> Any:
    return b.Sigmoid(b.Sum(*xs))


def slope(b: Any, p: int, *xs: Any) -> Any:
    y = neuron(b, *xs)
    return b.Mul(y, b.Sub(np.float64(1), y))


def loss(b: Any, x: Any) -> Any:
    d = b.Sub(x, np.float64(E))
    return b.Mul(b.Mul(d, d), np.float64(0.5))


def by_hand(x1: float, x2: float) -> tuple[dict[int, float], dict[int, float]]:
    values = {1: x1, 2: x2}
    for i in range(3, 8):
        values[i] = sigmoid(sum(values[p] for p in PARENTS[i]))
    values[8] = 0.5 * (values[7] - E) ** 2
    grads = dict.fromkeys(values, 0.0) | {8: 1.0}
    for i in range(8, 2, -1):
        factor = values[7] - E if i == 8 else values[i] * (1 - values[i])
        for p in PARENTS[i]:
            grads[p] += grads[i] * factor
    return values, grads


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("given", [True, False], ids=["dcFun", "derived"])
def test_from_tables(given: bool, backend: str) -> None:
    nodes = {i: NodeSpec(PARENTS[i], neuron, slope if given else None) for i in range(3, 8)}
    last = (lambda b, p, x: b.Sub(x, np.float64(E))) if given else None
    nodes[8] = NodeSpec(PARENTS[8], loss, last)
    module = ik.from_tables({1: ("float64", []), 2: ("float64", [])}, nodes)
    found = ik.compile(module, backend=backend).run({"list/1": np.array(0.3), "list/2": np.array(-0.7)})
    values, grads = by_hand(0.3, -0.7)
    for i in range(3, 9):
        np.testing.assert_allclose(found[f"list/{i}"], values[i])
    for i in range(1, 9):
        np.testing.assert_allclose(found[f"grad/{i}"], grads[i])


def test_parameters_inside_a_node_and_a_network_as_one_node() -> None:
    w0, w1 = np.random.default_rng(0).normal(size=(2, 3)), np.random.default_rng(1).normal(size=(3, 1))

    def forward(b: Any, x: Any, w0: Any, w1: Any) -> Any:
        return b.MatMul(b.Tanh(b.MatMul(x, w0)), w1)

    def backward(b: Any, grad: Any, x: Any, w0: Any, w1: Any) -> Any:
        h = b.Tanh(b.MatMul(x, w0))
        dh = b.Mul(b.MatMul(grad, b.Transpose(w1)), b.Sub(np.float64(1), b.Mul(h, h)))
        dw = {"w0": b.MatMul(b.Transpose(x), dh), "w1": b.MatMul(b.Transpose(h), grad)}
        return b.MatMul(dh, b.Transpose(w0)), dw

    def update(b: Any, value: Any, grad: Any) -> Any:
        return b.Sub(value, b.Mul(grad, np.float64(0.1)))

    x = np.random.default_rng(2).normal(size=(4, 2))
    found = []
    for rule in (backward, None):
        network = NodeSpec([1], forward, backward=rule, parameters={"w0": w0, "w1": w1}, update=update)
        square = NodeSpec([2], lambda b, y: b.ReduceSum(b.Mul(y, y), keepdims=0))
        module = ik.from_tables({1: ("float64", ["N", 2])}, {2: network, 3: square})
        assert list(module.defaults) == ["2/w0", "2/w1"]
        found.append(ik.compile(module).run({"list/1": x}))
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name])
    np.testing.assert_allclose(found[0]["2/w0/next"], w0 - 0.1 * found[0]["2/w0/grad"])
    after = ik.compile(module).run({"list/1": x, "2/w0": found[0]["2/w0/next"], "2/w1": found[0]["2/w1/next"]})
    assert after["list/3"] < found[0]["list/3"]


def test_tables_that_make_no_graph() -> None:
    with pytest.raises(IrkitError, match="node 3 has the parent 4, which does not come before it"):
        ik.from_tables({1: ("float64", [])}, {3: NodeSpec([4], neuron), 4: NodeSpec([1], neuron)})
    with pytest.raises(IrkitError, match="is an input and has parents"):
        ik.from_tables({1: ("float64", [])}, {1: NodeSpec([1], neuron)})


def test_tape_shows_what_ran() -> None:
    b = ik.Builder("neurons")
    values: dict[int, Any] = {i: b.input(str(i), "float64", []) for i in (1, 2)}
    for i in range(3, 8):
        values[i] = b.Sigmoid(b.Add(*(values[p] for p in PARENTS[i])))
    values[8] = loss(b, values[7])
    b.output(values[8], "8")
    for i in range(3, 8):
        b.output(values[i], str(i))
    tape = ik.tape(b.module(), {"1": np.array(0.3), "2": np.array(-0.7)}, of="8")
    expected, grads = by_hand(0.3, -0.7)
    for i in range(1, 9):
        node = tape[str(i)] if i in (1, 2) else next(n for n in tape.nodes if np.allclose(n.value, expected[i]))
        np.testing.assert_allclose(node.value, expected[i])
        np.testing.assert_allclose(node.grad, grads[i])
    for node in tape.nodes:
        if node.contributions:
            np.testing.assert_allclose(sum(node.contributions.values()), node.grad)
            assert all(node.index in tape.Par[child] for child in node.contributions)
        assert all(p < node.index for p in node.parents)
    assert len(tape["1"].contributions) == 2
    text = str(tape).splitlines()
    assert text[0].split() == ["i", "name", "op", "Par", "list", "grad", "contributions"]
    assert len(text) == len(tape.nodes) + 1
