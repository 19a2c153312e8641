"""Gradients against central differences in float64, on the NumPy backend.

One check covers a rule from all sides: reverse mode, linearity in the cotangent, forward mode (both transpositions),
and second order. A kink of the function within the step of the differences would fail, so inputs keep clear of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import irkit as ik
from irkit.backends.numpy import compile as compile_numpy
from irkit.ir.builder import Builder, Tensor
from irkit.passes.autodiff.transform import differentiate

Build = Callable[..., Any]
Array = np.ndarray[Any, Any]
STEP = 1e-5


def check(
    build: Build,
    *arrays: Array,
    wrt: Sequence[int] | None = None,
    symbolic: bool = False,
    forward: bool = True,
    second: bool = True,
    rtol: float = 2e-5,
    seed: int = 0,
) -> None:
    """Checks the gradients of a function of arrays.

    Args:
        build: takes a builder and Tensors, returns one or more.
        arrays: the point; float64 ones are differentiated.
        wrt: the operands to differentiate; by default all of float64.
        symbolic: every size is unknown to the graph.
        forward, second: whether to check forward mode and second derivatives.
    """
    rng = np.random.default_rng(seed)
    chosen = [i for i, a in enumerate(arrays) if a.dtype == np.float64] if wrt is None else list(wrt)
    run = _primal(build, arrays, symbolic)
    outputs = [i for i, y in enumerate(run(arrays)) if y.dtype == np.float64]
    assert outputs, "nothing to differentiate"
    cts = [rng.uniform(0.5, 1.5, run(arrays)[i].shape) * rng.choice([-1, 1]) for i in outputs]
    tangents = [rng.uniform(-1, 1, arrays[i].shape) for i in chosen]
    backward = _backward(build, arrays, chosen, outputs, cts, symbolic)
    grads = backward(arrays, cts)
    for grad, i in zip(grads, chosen, strict=True):
        assert grad.shape == arrays[i].shape
        assert np.isfinite(grad).all()

    def shifted(step: float) -> list[Array]:
        return [a + step * tangents[chosen.index(i)] if i in chosen else a for i, a in enumerate(arrays)]

    up, down = run(shifted(STEP)), run(shifted(-STEP))
    slopes = [(up[i] - down[i]) / (2 * STEP) for i in outputs]
    expected = sum(float(np.sum(c * s)) for c, s in zip(cts, slopes, strict=True))
    found = sum(float(np.sum(g * t)) for g, t in zip(grads, tangents, strict=True))
    scale = 1 + sum(float(np.sum(np.abs(c * s))) for c, s in zip(cts, slopes, strict=True))
    assert abs(found - expected) <= rtol * scale, (found, expected)
    _per_element(run, arrays, chosen, outputs, cts, grads, rng, rtol)
    _linear(backward, arrays, cts, grads, rng)
    pushed = _forward(build, arrays, chosen, outputs, cts, symbolic)(arrays, tangents) if forward else slopes
    for tangent, slope in zip(pushed, slopes, strict=True):
        np.testing.assert_allclose(tangent, slope, rtol=rtol * 10, atol=rtol * scale)
    if second:
        _second(build, arrays, chosen, outputs, cts, tangents, backward, shifted, symbolic, rtol)


def _per_element(
    run: Any,
    arrays: Sequence[Array],
    chosen: Sequence[int],
    outputs: Sequence[int],
    cts: Any,
    grads: Any,
    rng: Any,
    rtol: float,
) -> None:
    """A few single elements, so that errors which cancel in a random direction show."""
    for place, i in enumerate(chosen):
        for flat in rng.permutation(arrays[i].size)[:3]:
            basis = np.zeros(arrays[i].size)
            basis[flat] = STEP
            basis = basis.reshape(arrays[i].shape)
            moved = [[a + sign * basis if j == i else a for j, a in enumerate(arrays)] for sign in (1, -1)]
            up, down = run(moved[0]), run(moved[1])
            slope = sum(float(np.sum(c * (up[o] - down[o]))) for c, o in zip(cts, outputs, strict=True)) / (2 * STEP)
            np.testing.assert_allclose(grads[place].reshape(-1)[flat], slope, rtol=rtol * 20, atol=rtol * 20)


def _linear(backward: Any, arrays: Any, cts: Sequence[Array], grads: Sequence[Array], rng: Any) -> None:
    others = [rng.uniform(-1, 1, c.shape) for c in cts]
    combined = backward(arrays, [2.5 * c - 0.75 * o for c, o in zip(cts, others, strict=True)])
    apart = backward(arrays, others)
    for whole, g, o in zip(combined, grads, apart, strict=True):
        np.testing.assert_allclose(whole, 2.5 * g - 0.75 * o, rtol=1e-9, atol=1e-9 * (1 + np.abs(g).max(initial=0)))


def _inputs(b: Builder, arrays: Sequence[Array], symbolic: bool, prefix: str = "x") -> list[Tensor]:
    return [
        b.input(f"{prefix}{i}", a.dtype, [f"{prefix}{i}_{k}" for k in range(a.ndim)] if symbolic else a.shape)
        for i, a in enumerate(arrays)
    ]


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _runner(b: Builder, results: Sequence[Tensor]) -> Callable[..., list[Array]]:
    for i, result in enumerate(results):
        b.output(result, f"out{i}")
    compiled = compile_numpy(b.module(), seed=7)
    names = list(compiled.inputs)
    return lambda *given: list(
        compiled.run(dict(zip(names, [v for part in given for v in part], strict=True))).values()
    )


def _primal(build: Build, arrays: Sequence[Array], symbolic: bool) -> Callable[..., list[Array]]:
    b = ik.Builder("primal")
    xs = _inputs(b, arrays, symbolic)
    return _runner(b, _tuple(build(b, *xs)))


def _given(b: Builder, found: Sequence[Tensor | None], likes: Sequence[Tensor]) -> list[Tensor]:
    return [b.Sub(like, like) if t is None else t for t, like in zip(found, likes, strict=True)]


def _backward(
    build: Build, arrays: Any, chosen: Sequence[int], outputs: Sequence[int], cts: Any, symbolic: bool
) -> Callable[..., list[Array]]:
    b = ik.Builder("backward")
    xs, given = _inputs(b, arrays, symbolic), _inputs(b, cts, symbolic, "ct")
    ys = _tuple(build(b, *xs))
    wrt = [xs[i] for i in chosen]
    return _runner(b, _given(b, differentiate(b, [ys[o] for o in outputs], wrt, given), wrt))


def _forward(
    build: Build, arrays: Any, chosen: Sequence[int], outputs: Sequence[int], cts: Any, symbolic: bool
) -> Callable[..., list[Array]]:
    """Tangents: the gradient, which is linear in its cotangents, differentiated by them."""
    b = ik.Builder("forward")
    xs, given = _inputs(b, arrays, symbolic), _inputs(b, [arrays[i] for i in chosen], symbolic, "t")
    ys = [_tuple(build(b, *xs))[o] for o in outputs] if len(outputs) == 1 else list(_pick(build(b, *xs), outputs))
    wrt = [xs[i] for i in chosen]
    probes = [b.Sub(y, y) for y in ys]
    grads = differentiate(b, ys, wrt, probes)
    pairs = [(g, t) for g, t in zip(grads, given, strict=True) if g is not None]
    found = differentiate(b, [g for g, _ in pairs], probes, [t for _, t in pairs])
    return _runner(b, _given(b, found, ys))


def _pick(values: Any, places: Sequence[int]) -> list[Any]:
    every = _tuple(values)
    return [every[i] for i in places]


def _second(
    build: Build,
    arrays: Any,
    chosen: Sequence[int],
    outputs: Sequence[int],
    cts: Any,
    tangents: Any,
    backward: Any,
    shifted: Any,
    symbolic: bool,
    rtol: float,
) -> None:
    """Hessian-vector products, against differences of the gradient."""
    b = ik.Builder("second")
    xs, given = _inputs(b, arrays, symbolic), _inputs(b, cts, symbolic, "ct")
    vs = _inputs(b, tangents, symbolic, "v")
    ys = _pick(build(b, *xs), outputs)
    wrt = [xs[i] for i in chosen]
    pairs = [(g, v) for g, v in zip(differentiate(b, ys, wrt, given), vs, strict=True) if g is not None]
    found = differentiate(b, [g for g, _ in pairs], wrt, [v for _, v in pairs])
    got = _runner(b, _given(b, found, wrt))(arrays, cts, tangents)
    up, down = backward(shifted(STEP), cts), backward(shifted(-STEP), cts)
    for h, p, m in zip(got, up, down, strict=True):
        slope = (p - m) / (2 * STEP)
        np.testing.assert_allclose(h, slope, rtol=rtol * 20, atol=rtol * 20 * (1 + np.abs(slope).max(initial=0)))
