"""Updates of gradient descent, folded into the products that give the gradients: the same numbers from fewer ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.ir.module import Module
from irkit.passes import optimize
from irkit.passes.autodiff.transform import differentiate
from irkit.passes.fold_update import FoldUpdate
from irkit.verify import compare

Update = Callable[[ik.Builder, list[ik.Tensor], list[ik.Tensor], ik.Tensor], Sequence[ik.Tensor]]


def ops(module: Module) -> Counter[str]:
    return Counter(op.name.removeprefix("onnx.") for op in module.block.ops)


def step(update: Update) -> Module:
    """A step of a network of two layers; the update is given the parameters, their gradients and the loss."""
    b = ik.Builder("step")
    x, y = b.input("x", "float64", ["N", 5]), b.input("y", "float64", ["N", 3])
    params = [b.input(f"p{i}", "float64", shape) for i, shape in enumerate(([5, 4], [4], [4, 3], [3]))]
    error = b.Tanh(x @ params[0] + params[1]) @ params[2] + params[3] - y
    loss = b.ReduceMean(error * error, keepdims=0)
    grads = differentiate(b, [loss], params, [b.constant(np.float64(1))])
    b.output(loss, "loss")
    for i, value in enumerate(update(b, params, [g for g in grads if g is not None], loss)):
        b.output(value, f"new{i}")
    return optimize(b.module(), "lower-ad,O2")


def folded(module: Module) -> Module:
    made = optimize(module, "fold-update", verify_each=True)
    report = compare(module, made, rtol=1e-9)
    assert report.equal, report.text()
    assert report.compared >= 2
    return optimize(made, "dce")


def test_descent() -> None:
    module = step(lambda b, p, g, loss: [w - d * 0.1 for w, d in zip(p, g, strict=True)])
    made = folded(module)
    assert ops(made)["Gemm"] == ops(module)["Gemm"]
    # One for each bias; the weights' stand in the Gemm.
    assert ops(made)["Add"] == ops(module)["Add"] + 2
    assert ops(made)["Sub"] == ops(module)["Sub"] - 4
    assert ops(made)["Mul"] <= ops(module)["Mul"] - 4 + 1


@pytest.mark.parametrize("form", [(), (1,)])
def test_a_rate_that_is_an_input(form: tuple[int, ...]) -> None:
    def update(b: ik.Builder, p: list[ik.Tensor], g: list[ik.Tensor], loss: ik.Tensor) -> list[ik.Tensor]:
        rate = b.input("rate", "float64", form)
        return [b.Sub(w, b.Mul(rate, d)) for w, d in zip(p, g, strict=True)]

    module = step(update)
    made = folded(module)
    assert (ops(made)["Sub"] < ops(module)["Sub"]) is (form == ())


def test_a_rate_computed_from_the_loss_after_the_gradients() -> None:
    def update(b: ik.Builder, p: list[ik.Tensor], g: list[ik.Tensor], loss: ik.Tensor) -> list[ik.Tensor]:
        rate = 1.0 / (b.Sqrt(loss) + 2.0)
        return [w - d * rate for w, d in zip(p, g, strict=True)]

    module = step(update)
    assert ops(folded(module))["Sub"] < ops(module)["Sub"]


def test_momentum_and_decay() -> None:
    def update(b: ik.Builder, p: list[ik.Tensor], g: list[ik.Tensor], loss: ik.Tensor) -> list[ik.Tensor]:
        old = [b.input(f"v{i}", "float64", [*(w.shape or ())]) for i, w in enumerate(p)]
        new = [v * 0.9 - d * 0.1 for v, d in zip(old, g, strict=True)]
        return [*(w * 0.99 + v for w, v in zip(p, new, strict=True)), *new]

    module = step(update)
    assert ops(folded(module))["Sub"] < ops(module)["Sub"]


def test_an_average_of_gradients() -> None:
    module = step(lambda b, p, g, loss: [w * 0.9 + d * 0.1 for w, d in zip(p, g, strict=True)])
    assert ops(folded(module))["Mul"] < ops(module)["Mul"]


def test_two_rates() -> None:
    module = step(lambda b, p, g, loss: [p[i] - g[i] * (0.125, 0.25)[i // 2] for i in range(4)])
    made = folded(module)
    # The Gemm scales by itself where the cotangent cannot.
    assert {op.attr("alpha") for op in made.block.ops if op.name == "onnx.Gemm"} == {1.0, -0.125, -0.25}


@pytest.mark.parametrize("kept", range(4))
def test_a_gradient_that_is_an_output_is_not_scaled(kept: int) -> None:
    folded(step(lambda b, p, g, loss: [g[kept], *(w - d * 0.1 for w, d in zip(p, g, strict=True))]))


def test_gradients_that_are_clipped_by_their_norm_stay() -> None:
    def update(b: ik.Builder, p: list[ik.Tensor], g: list[ik.Tensor], loss: ik.Tensor) -> list[ik.Tensor]:
        norm = b.Sqrt(b.Sum(*(b.ReduceSum(d * d, keepdims=0) for d in g)))
        rate = 0.1 / b.Max(norm, b.constant(np.float64(1)))
        return [w - d * rate for w, d in zip(p, g, strict=True)]

    module = step(update)
    assert folded(module) == module


def test_a_value_that_is_multiplied_with_itself_is_scaled_once() -> None:
    b = ik.Builder("square")
    w, x = b.input("w", "float64", [3, 3]), b.input("x", "float64", [])
    b.output(w - b.Expand(b.Mul(x, x), np.array([3, 3])) * 0.5, "new")
    made = folded(b.module())
    assert ops(made)["Sub"] == 0


def test_a_graph_without_updates_is_left_alone() -> None:
    b = ik.Builder("plain")
    x = b.input("x", "float32", ["N", 3])
    b.output(b.Relu(x) - 1.0, "y")
    module = b.module()
    changed = module.clone()
    assert not FoldUpdate().run(changed)
    assert changed == module


def test_new_ops_say_where_they_come_from() -> None:
    from irkit.ir.location import describe

    made = folded(step(lambda b, p, g, loss: [w - d * 0.1 for w, d in zip(p, g, strict=True)]))
    fused = [op for op in made.block.ops if op.name == "onnx.Gemm" and len(op.operands) == 3]
    assert fused
    for op in fused:
        assert "fold-update" in describe(op.location)


def _linear(b: ik.Builder, rng: np.random.Generator, values: list[ik.Tensor]) -> ik.Tensor:
    """One more value of shape (3, 3), by an op that is linear in some earlier values, or not at all."""
    x, y = (values[rng.integers(len(values))] for _ in range(2))
    made: list[Callable[[], Any]] = [
        lambda: b.MatMul(x, y),
        lambda: b.Gemm(x, y, transA=1),
        lambda: b.Gemm(x, y, values[0]),
        lambda: b.Mul(x, y),
        lambda: b.Div(x, b.Exp(y)),
        lambda: b.Add(x, y),
        lambda: b.Sub(x, y),
        lambda: b.Neg(x),
        lambda: b.Tanh(x),
        lambda: b.Transpose(x),
        lambda: b.Einsum(x, y, equation="ij,kj->ik"),
        lambda: b.Expand(b.ReduceSum(x, [0], keepdims=1), np.array([3, 3])),
        lambda: b.Slice(b.Concat(x, y, axis=0), [1], [4], [0]),
        lambda: b.Where(b.Greater(y, 0.0), 0.0, x),
        lambda: b.Mul(x, b.constant(rng.standard_normal())),
    ]
    return made[rng.integers(len(made))]()


@pytest.mark.parametrize("seed", range(60))
def test_any_graph_keeps_its_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = ik.Builder("random")
    values = [b.input(f"x{i}", "float64", [3, 3]) for i in range(3)]
    rate = b.input("rate", "float64", [])
    count = int(rng.integers(3, 14))
    for _ in range(count):
        values.append(_linear(b, rng, values))
    for i, value in enumerate(values[-4:]):
        step = value * (rate if rng.random() < 0.5 else 0.25)
        b.output(values[i % 3] - step if rng.random() < 0.7 else step + values[i % 3], f"new{i}")
    if rng.random() < 0.3:
        b.output(b.Identity(values[-2]), "kept")
    module = optimize(b.module(), "O2")
    made = optimize(module, "fold-update", verify_each=True)
    x = {f"x{i}": rng.uniform(-1, 1, (3, 3)) for i in range(3)} | {"rate": np.float64(0.3)}
    for name, value in ik.compile(module).run(x).items():
        np.testing.assert_allclose(ik.compile(made).run(x)[name], value, rtol=1e-9, atol=1e-12)
