"""Ops that the official suite has no test of, against their definitions in plain Python."""

from __future__ import annotations

import math
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import irkit as ik
from irkit.ir.dtypes import dtype as element_type
from tests.unit.kernels.test_ml import MODES, TRANSFORMS, ml

NAN = math.nan


# Trees of TreeEnsemble-5 ----------------------------------------------------------------------------------------------

MODE_NAMES = [*MODES, "MEMBER"]


class Forest:
    """Random trees as the op has them (flat attributes), and walked node by node."""

    def __init__(self, rng: np.random.Generator, trees: int, targets: int) -> None:
        self.rng, self.targets = rng, targets
        self.nodes: list[dict[str, Any]] = []
        self.leaves: list[tuple[int, float]] = []
        self.sets: list[list[float]] = []
        # A tree has at least one node; both branches of it may lead to the same leaf.
        self.roots = [self.node(3) for _ in range(trees)]

    def node(self, depth: int) -> int:
        rng, place = self.rng, len(self.nodes)
        mode = place % 7
        node: dict[str, Any] = {
            "mode": mode,
            "feature": int(rng.integers(3)),
            "split": float(rng.integers(-2, 3)),
            "missing": int(rng.integers(2)),
        }
        self.nodes.append(node)
        if mode == 6:
            node["members"] = [float(v) for v in rng.choice([-2, -1, 0, 1, 2], 2, replace=False)]
        for branch in ("true", "false"):
            if depth == 0 or rng.random() < 0.3:
                node[branch] = (1, len(self.leaves))
                self.leaves.append((int(rng.integers(self.targets)), float(np.float32(rng.normal()))))
            else:
                node[branch] = (0, self.node(depth - 1))
        return place

    def attributes(self) -> dict[str, Any]:
        members = [v for node in self.nodes if "members" in node for v in (*node["members"], NAN)]
        made = {
            "tree_roots": tuple(self.roots),
            "n_targets": self.targets,
            "nodes_featureids": tuple(n["feature"] for n in self.nodes),
            "nodes_modes": np.array([n["mode"] for n in self.nodes], np.uint8),
            "nodes_splits": np.array([n["split"] for n in self.nodes], np.float32),
            "nodes_missing_value_tracks_true": tuple(n["missing"] for n in self.nodes),
            "leaf_targetids": tuple(t for t, _ in self.leaves),
            "leaf_weights": np.array([w for _, w in self.leaves], np.float32),
            "membership_values": np.array(members, np.float32),
        }
        for branch in ("true", "false"):
            made[f"nodes_{branch}nodeids"] = tuple(n[branch][1] for n in self.nodes)
            made[f"nodes_{branch}leafs"] = tuple(n[branch][0] for n in self.nodes)
        return made

    def leaf(self, root: int, row: list[float]) -> tuple[int, float]:
        is_leaf, place = 0, root
        while not is_leaf:
            node = self.nodes[place]
            value = row[node["feature"]]
            if math.isnan(value):
                taken = bool(node["missing"])
            elif node["mode"] == 6:
                taken = value in node["members"]
            else:
                taken = MODES[MODE_NAMES[node["mode"]]](value, node["split"])
            is_leaf, place = node["true" if taken else "false"]
        return self.leaves[place]


@pytest.mark.parametrize(("aggregate", "transform"), list(product(range(4), range(5))))
def test_tree_ensemble_against_a_walk(aggregate: int, transform: int) -> None:
    rng = np.random.default_rng(aggregate * 5 + transform)
    forest = Forest(rng, 5, 3)
    x = rng.integers(-3, 4, (50, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = NAN
    combine = (lambda v: sum(v) / 5, sum, min, max)[aggregate]
    kind = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")[transform]
    expected = []
    for row in x.tolist():
        votes = [forest.leaf(root, row) for root in forest.roots]
        scores = [combine(v) if (v := [w for t, w in votes if t == target]) else 0.0 for target in range(3)]
        expected.append(TRANSFORMS[kind](scores))
    order = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2, "SOFTMAX_ZERO": 3, "PROBIT": 4}
    found = ml("TreeEnsemble", x, **forest.attributes(), aggregate_function=aggregate, post_transform=order[kind])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-4, atol=1e-5)
    assert {n["mode"] for n in forest.nodes} == set(range(7))


# Pooling --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_max_roi_pool_against_loops(op: Any, seed: int) -> None:
    """The regions of Fast R-CNN: both corners belong to a region, and bins may overlap."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 3, 9, 7)).astype(np.float32)
    scale, pooled = float(rng.choice([1.0, 0.5])), tuple(int(n) for n in rng.integers(1, 5, 2))
    corners = rng.integers(-3, 20, (8, 4))
    low, high = np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])
    rois = np.concatenate([rng.integers(0, 2, (8, 1)), low, high], axis=1).astype(np.float32)
    expected = np.zeros((8, 3, *pooled), np.float32)
    for k, (batch, *corner) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (int(math.copysign(math.floor(abs(c) * scale + 0.5), c)) for c in corner)
        height, width = max(y2 - y1 + 1, 1) / pooled[0], max(x2 - x1 + 1, 1) / pooled[1]
        for i, j in product(range(pooled[0]), range(pooled[1])):
            rows = [r for r in range(math.floor(i * height) + y1, math.ceil((i + 1) * height) + y1) if 0 <= r < 9]
            columns = [c for c in range(math.floor(j * width) + x1, math.ceil((j + 1) * width) + x1) if 0 <= c < 7]
            for channel in range(3):
                values = [x[int(batch), channel, r, c] for r in rows for c in columns]
                expected[k, channel, i, j] = max(values, default=0.0)
    np.testing.assert_array_equal(op("MaxRoiPool", x, rois, pooled_shape=pooled, spatial_scale=scale), expected)


@pytest.mark.parametrize(("p", "shape"), list(product((1, 2, 3, 5), ((2, 3, 4), (1, 2, 3, 4), (2, 1, 2, 3, 2)))))
def test_global_lp_pool_against_sums(op: Any, p: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(p).normal(size=shape)
    found = op("GlobalLpPool", x, p=p)
    assert found.shape == shape[:2] + (1,) * (len(shape) - 2)
    for n, c in product(range(shape[0]), range(shape[1])):
        expected = math.fsum(abs(v) ** p for v in x[n, c].ravel().tolist()) ** (1 / p)
        assert found[n, c].item() == pytest.approx(expected, rel=1e-12)


# Sequences and optionals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_sequences_are_lists(seed: int) -> None:
    """A random program of sequence ops, compiled as a whole, and the same on a Python list."""
    rng = np.random.default_rng(seed)
    b = ik.Builder("sequences")
    data = [rng.normal(size=(2, int(rng.integers(1, 4)))).astype(np.float32) for _ in range(6)]
    values = [b.input(f"x{i}", "float32", [2, None]) for i in range(6)]
    chosen = [int(i) for i in rng.integers(0, 6, rng.integers(0, 4))]
    sequence: Any = b.SequenceConstruct(*(values[i] for i in chosen)) if chosen else b.SequenceEmpty(dtype=1)
    mirror = [data[i] for i in chosen]
    for _ in range(10):
        index_type = rng.choice([np.int32, np.int64])
        place = None if rng.random() < 0.3 else int(rng.integers(-len(mirror), len(mirror) + 1))
        given = () if place is None else (np.array(place, index_type),)
        if mirror and rng.random() < 0.4:
            place = None if place is None else min(place, len(mirror) - 1)
            given = () if place is None else (np.array(place, index_type),)
            sequence = b.SequenceErase(sequence, *given)
            del mirror[-1 if place is None else place]
        else:
            i = int(rng.integers(6))
            sequence = b.SequenceInsert(sequence, values[i], *given)
            mirror.insert(len(mirror) if place is None else place, data[i])
    expected: dict[str, Any] = {"length": np.array(len(mirror), np.int64), "all": mirror}
    b.output(b.SequenceLength(sequence), "length")
    b.output(sequence, "all")
    if mirror:
        at = int(rng.integers(-len(mirror), len(mirror)))
        b.output(b.SequenceAt(sequence, np.int64(at)), "at")
        b.output(b.ConcatFromSequence(sequence, axis=-1), "joined")
        expected |= {"at": mirror[at], "joined": np.concatenate(mirror, axis=-1)}
    found = ik.compile(b.module()).run({f"x{i}": a for i, a in enumerate(data)})
    assert len(found["all"]) == len(mirror)
    for mine, theirs in zip(found["all"], mirror, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for name in expected.keys() - {"all"}:
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
def test_concat_from_sequence_stacks(axis: int, dtype: str) -> None:
    parts = [np.random.default_rng(i).integers(0, 2, (2, 3)).astype(dtype) for i in range(4)]
    b = ik.Builder("stack")
    values = [b.input(f"x{i}", dtype, [2, 3]) for i in range(4)]
    b.output(b.ConcatFromSequence(b.SequenceConstruct(*values), axis=axis, new_axis=1), "y")
    np.testing.assert_array_equal(ik.compile(b.module())(*parts), np.stack(parts, axis))


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_input(given: bool) -> None:
    """What is done depends on whether the caller gave something."""
    b = ik.Builder("optional")
    x = b.input("x", "float32", [2])
    inner = b.Optional(x)
    chosen = b.If(
        b.OptionalHasElement(inner) if given else b.OptionalHasElement(None),
        then_branch=lambda b: b.Neg(b.OptionalGetElement(inner)),
        else_branch=lambda b: b.Mul(x, np.float32(10)),
    )
    b.output(chosen, "y")
    value = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(ik.compile(b.module())(value), -value if given else value * 10)


# Random numbers -------------------------------------------------------------------------------------------------------


def distance(values: np.ndarray, distribution: Any) -> float:
    """Kolmogorov's: the largest distance between the share of the values below a point and what it should be."""
    ordered = np.sort(values.astype(np.float64).ravel())
    expected = np.array([distribution(v) for v in ordered.tolist()])
    places = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(expected - places[1:]).max(), np.abs(expected - places[:-1]).max()))


N = 4000
FAR = 2.2 / math.sqrt(N)
"""Beyond this distance is one sample in 10,000 of the right distribution (the seeds here are fixed)."""


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions(op: Any, dtype: str, like: bool) -> None:
    code = element_type(dtype).code
    shape = (40, N // 40)
    inputs, given = ([np.zeros(shape, np.float16)], {"dtype": code}) if like else ([], {"dtype": code, "shape": shape})
    suffix = "Like" if like else ""
    normal = op(f"RandomNormal{suffix}", *inputs, mean=-1.5, scale=0.25, **given)
    assert distance(normal, NormalDist(-1.5, 0.25).cdf) < FAR < distance(normal, NormalDist(-1.45, 0.25).cdf)
    uniform = op(f"RandomUniform{suffix}", *inputs, low=2.0, high=6.0, **given)
    assert distance(uniform, lambda v: (v - 2) / 4) < FAR < distance(uniform, lambda v: (v - 2) / 4.5)
    assert normal.dtype == uniform.dtype == np.dtype(dtype)
    # One number says nothing of the next.
    flat = normal.ravel().astype(np.float64)
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 4 / math.sqrt(N)


def test_multinomial_is_distributed_as_told(op: Any) -> None:
    logits = np.random.default_rng(3).normal(size=(3, 5))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    drawn = op("Multinomial", logits, sample_size=N)
    for row, expected in zip(drawn, shares, strict=True):
        observed = np.bincount(row, minlength=5)
        # Chi squared of 4 degrees of freedom: beyond 23.5 is one sample in 10,000.
        assert (np.square(observed - N * expected) / (N * expected)).sum() < 23.5
    assert not np.array_equal(drawn[0], drawn[1])
