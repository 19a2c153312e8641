"""Control flow against plain Python, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.frontends import dsl
from tests.unit.dsl.support import BACKENDS, assert_same, evaluate

backends = pytest.mark.parametrize("backend", BACKENDS)
X = np.float32([[1, 2, 3], [4, 5, 6]])


@backends
@pytest.mark.parametrize("symbolic", [False, True])
def test_cond(backend: str, symbolic: bool) -> None:
    def f(x: Any, flag: Any) -> Any:
        a, b = dsl.cond(flag, lambda v: (v + 1.0, v), lambda v: (-v, v * v), x)
        return a, b

    for flag, wanted in ((True, (X + 1, X)), (False, (-X, X * X))):
        for found, expected in zip(evaluate(f, X, flag, backend=backend, symbolic=symbolic), wanted, strict=True):
            assert_same(found, expected)


def test_only_one_branch_runs() -> None:
    ran: list[str] = []
    x = dsl.placeholder("x", "float32", [])
    y = dsl.cond(x > 0.0, lambda: dsl.exp(x), lambda: dsl.sin(x))
    run = ik.compile(y, hook=lambda op, *_: ran.append(op.name))
    assert run(-1.0) == np.sin(np.float32(-1))
    assert "onnx.Sin" in ran
    assert "onnx.Exp" not in ran


@backends
def test_while_loop(backend: str) -> None:
    def collatz(n: Any) -> Any:
        def step(state: Any) -> Any:
            value, count = state
            return dsl.where(value % 2 == 0, value // 2, 3 * value + 1), count + 1

        return dsl.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    assert evaluate(collatz, np.int64(27), backend=backend) == 111
    assert evaluate(collatz, np.int64(1), backend=backend) == 0


@backends
def test_a_loop_may_change_shapes(backend: str) -> None:
    def grow(n: Any) -> Any:
        return dsl.fori(0, n, lambda i, a: dsl.concatenate([a, dsl.reshape(i, (1,))]), np.zeros(0, np.int64))

    assert evaluate(grow, np.int64(4), backend=backend).tolist() == [0, 1, 2, 3]


@backends
@pytest.mark.parametrize("bounds", [(0, 5), (2, 5), (3, 3), (5, 2), (-2, 2)])
def test_fori(bounds: tuple[int, int], backend: str) -> None:
    wanted = sum(i * i for i in range(*bounds))
    body = lambda i, s: s + i * i  # noqa: E731
    assert evaluate(lambda x: dsl.fori(*bounds, body, x), np.int64(0), backend=backend) == wanted
    lower, upper = map(np.int64, bounds)
    assert evaluate(lambda a, b: dsl.fori(a, b, body, 0), lower, upper, backend=backend) == wanted


@backends
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_scan(backend: str, reverse: bool, symbolic: bool) -> None:
    def f(x: Any) -> Any:
        def step(carry: Any, item: Any) -> Any:
            row, _ = item
            return {"s": carry["s"] + row}, (carry["s"], dsl.sum(row))

        carry, (before, sums) = dsl.scan(step, {"s": np.zeros(3, np.float32)}, (x, x), reverse=reverse)
        return carry["s"], before, sums

    rows = X[::-1] if reverse else X
    before = np.stack([np.zeros(3, np.float32), rows[0]])
    found = evaluate(f, X, backend=backend, symbolic=symbolic)
    assert_same(found[0], X.sum(0))
    assert_same(found[1], before[::-1] if reverse else before)
    assert_same(found[2], X.sum(1))


@backends
def test_scan_without_xs_and_map(backend: str) -> None:
    f = lambda x: dsl.scan(lambda c, _: (c * 2.0, c), x, length=4)  # noqa: E731
    last, seen = evaluate(f, np.float32(1), backend=backend)
    assert last == 16
    assert seen.tolist() == [1, 2, 4, 8]
    assert_same(evaluate(lambda x, y: dsl.map(lambda a, b: a * b, x, y), X, X, backend=backend), X * X)
    made = evaluate(lambda x: dsl.map(lambda a: {"p": a, "n": -a}, x)["n"], X, backend=backend)
    assert_same(made, -X)


@backends
def test_nested(backend: str) -> None:
    def f(x: Any) -> Any:
        def row(r: Any) -> Any:
            return dsl.cond(dsl.sum(r) > 10.0, lambda: dsl.fori(0, 3, lambda i, s: s + r, r), lambda: r)

        return dsl.map(row, x)

    assert_same(evaluate(f, X, backend=backend), np.stack([X[0], X[1] * 4]))


@backends
def test_ops_with_graphs_by_name(backend: str) -> None:
    def f(x: Any) -> Any:
        total, steps = dsl.onnx.Loop(3, None, x, body=lambda i, go, s: (go, s * 2.0, dsl.sum(s)))
        return total, steps

    total, steps = evaluate(f, X, backend=backend)
    assert_same(total, X * 8)
    assert_same(steps, [21.0, 42.0, 84.0])


def test_sequences_and_other_domains() -> None:
    def f(x: Any) -> Any:
        pair = dsl.onnx.SequenceConstruct(x, x + 1.0)
        return dsl.onnx.SequenceAt(dsl.onnx.SequenceInsert(pair, x * 2.0), 2)

    assert_same(evaluate(f, X), X * 2)
    scaled = evaluate(lambda x: dsl.onnx.op("onnx.ml.Scaler", x, offset=[1.0], scale=[2.0]), X)
    assert_same(scaled, (X - 1) * 2)
