"""The ops of ai.onnx.ml in all their modes, against onnxruntime's kernels, which are another implementation.

Left out is what onnxruntime does otherwise than the specification, or not at all; ``test_ml`` has it, by hand: a
transform of a single score (it ignores it), SOFTMAX of a binary support vector machine, trees that vote for both of two
classes (it numbers the labels 0 and 1), NaN at a BRANCH_NEQ that missing values do not track, Binarizer of other types
than float.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import irkit as ik

RNG = np.random.default_rng(17)
X = RNG.normal(size=(7, 3)).astype(np.float32)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
NAMES = ["low", "middle", "high", "top"]
Call = tuple[str, list[Any], dict[str, Any], int]
"""Op, inputs, attributes, number of outputs."""


def floats(*shape: int, scale: float = 1.0) -> list[float]:
    return (RNG.normal(size=shape) * scale).astype(np.float32).ravel().tolist()


def labels(count: int, kind: str, suffix: str = "ints") -> dict[str, Any]:
    if kind == "strings":
        return {"classlabels_strings": NAMES[:count]}
    return {f"classlabels_{suffix}": [5 * i - 3 for i in range(count)]}


def linear() -> Iterator[tuple[str, Call]]:
    for transform, targets in product(TRANSFORMS, (1, 2, 3)):
        scale = 0.2 if transform == "PROBIT" else 1.0
        weights = {"coefficients": floats(targets, 3, scale=scale), "post_transform": transform}
        offset = 0.5 if transform == "PROBIT" else 0.0
        intercepts = {"intercepts": [v + offset for v in floats(targets, scale=scale)]}
        x = (X * scale).astype(np.float32) if transform == "PROBIT" else X
        name = f"{transform} {targets}"
        if targets > 1 or transform == "NONE":
            yield f"LinearRegressor {name}", ("LinearRegressor", [x], {**weights, **intercepts, "targets": targets}, 1)
        if targets > 1:
            for kind, several in product(("ints", "strings"), (0, 1)):
                options = {**weights, **intercepts, **labels(targets, kind), "multi_class": several}
                yield f"LinearClassifier {name} {kind} {several}", ("LinearClassifier", [x], options, 2)


def support_vectors() -> Iterator[tuple[str, Call]]:
    for kernel, transform in product(("LINEAR", "POLY", "RBF", "SIGMOID"), ("NONE", "SOFTMAX", "LOGISTIC")):
        shared = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 2.0], "post_transform": transform}
        vectors = {"support_vectors": floats(4, 3)}
        for one_class in (0, 1) if transform == "NONE" else ():
            options = {**shared, **vectors, "coefficients": floats(4), "rho": [0.1], "n_supports": 4}
            yield (
                f"SVMRegressor {kernel} {transform} {one_class}",
                (
                    "SVMRegressor",
                    [X],
                    {**options, "one_class": one_class},
                    1,
                ),
            )
        for classes, kind, probable in product((2, 3), ("ints", "strings"), (False, True)):
            if (classes, transform, probable) == (2, "SOFTMAX", False):
                continue
            pairs = classes * (classes - 1) // 2
            count = 2 * classes
            options = {
                **shared,
                **labels(classes, kind),
                "support_vectors": floats(count, 3),
                "coefficients": floats(classes - 1, count),
                "vectors_per_class": [2] * classes,
                "rho": floats(pairs),
            }
            if probable:
                options |= {"prob_a": [-1.5, -0.5, -1.0][:pairs], "prob_b": [0.1, 0.2, -0.3][:pairs]}
            name = f"SVMClassifier {kernel} {transform} {classes} {kind} {probable}"
            yield name, ("SVMClassifier", [X], options, 2)


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(prefix: str, outputs: int, trees: int = 3) -> dict[str, Any]:
    """Trees of a root, two nodes and four leaves."""
    made: dict[str, list[Any]] = {
        f"nodes_{k}": []
        for k in "treeids nodeids modes featureids values truenodeids falsenodeids missing_value_tracks_true".split()
    }
    votes: dict[str, list[Any]] = {f"{prefix}_{k}": [] for k in "treeids nodeids ids weights".split()}
    for tree in range(trees):
        for at in range(7):
            inner = at < 3
            mode = MODES[(tree * 3 + at) % 6] if inner else "LEAF"
            # Whole numbers, so that equality is met.
            row = (tree, at, mode, int(RNG.integers(3)) if inner else 0, float(RNG.integers(-1, 2)) if inner else 0.0)
            ends = (2 * at + 1, 2 * at + 2) if inner else (0, 0)
            tracks = int(RNG.integers(2)) if inner and mode != "BRANCH_NEQ" else int(inner)
            for values, value in zip(made.values(), (*row, *ends, tracks), strict=True):
                values.append(value)
            if not inner:
                for out in range(outputs) if tree == 0 else [int(RNG.integers(outputs))]:
                    for values, value in zip(votes.values(), (tree, at, out, *floats(1)), strict=True):
                        values.append(value)
    return {**made, **votes, "nodes_hitrates": [1.0] * 7 * trees}


def trees() -> Iterator[tuple[str, Call]]:
    x = RNG.integers(-2, 3, (9, 3)).astype(np.float32)
    x[2, 1] = np.nan
    x = np.concatenate([x, x[:, ::-1]])
    transforms = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    for aggregate, outputs, transform in product(("SUM", "AVERAGE", "MIN", "MAX"), (1, 3), transforms):
        if outputs == 1 and transform != "NONE":
            continue
        options = {
            **forest("target", outputs),
            "n_targets": outputs,
            "aggregate_function": aggregate,
            "post_transform": transform,
            "base_values": floats(outputs),
        }
        yield f"TreeEnsembleRegressor {aggregate} {outputs} {transform}", ("TreeEnsembleRegressor", [x], options, 1)
    for classes, kind, transform in product((3, 4), ("ints", "strings"), transforms):
        options = {**forest("class", classes), **labels(classes, kind, "int64s"), "post_transform": transform}
        for base in ({}, {"base_values": floats(classes)}):
            name = f"TreeEnsembleClassifier {classes} {kind} {transform} {len(base)}"
            yield name, ("TreeEnsembleClassifier", [x], {**options, **base}, 2)


def features() -> Iterator[tuple[str, Call]]:
    words = np.array([["a", "bc"], ["zz", "a"]], object)
    whole = np.array([[0, 3, -2], [7, 3, 1]])
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        x = (10 * X).astype(dtype)
        if dtype is np.float32:
            yield "Binarizer", ("Binarizer", [x], {"threshold": 1.5}, 1)
        yield f"Scaler {dtype.__name__}", ("Scaler", [x], {"offset": [1.0, -2.0, 0.5], "scale": [0.5, 2.0, -1.0]}, 1)
        yield f"Scaler, one {dtype.__name__}", ("Scaler", [x], {"offset": [1.0], "scale": [0.5]}, 1)
        for norm in ("MAX", "L1", "L2"):
            yield f"Normalizer {norm} {dtype.__name__}", ("Normalizer", [np.abs(x)], {"norm": norm}, 1)
        yield f"ArrayFeatureExtractor {dtype.__name__}", ("ArrayFeatureExtractor", [x, np.array([[2, 0, 2]])], {}, 1)
        yield (
            f"FeatureVectorizer {dtype.__name__}",
            ("FeatureVectorizer", [x, x[:, :2]], {"inputdimensions": [3, 2]}, 1),
        )
    yield "ArrayFeatureExtractor, text", ("ArrayFeatureExtractor", [words, np.array([1])], {}, 1)
    for value in (0.0, float("nan")):
        x = np.where(X > 0.5, np.float32(value), X)
        for filled in ([9.0], [7.0, 8.0, 9.0]):
            options = {"imputed_value_floats": filled, "replaced_value_float": value}
            yield f"Imputer {value} {len(filled)}", ("Imputer", [x], options, 1)
    for filled in ([9], [7, 8, 9]):
        options = {"imputed_value_int64s": filled, "replaced_value_int64": 3}
        yield f"Imputer, integers {len(filled)}", ("Imputer", [whole], options, 1)
    for zeros in (0, 1):
        known = whole % 4
        yield f"OneHotEncoder {zeros}", ("OneHotEncoder", [known], {"cats_int64s": [0, 1, 2, 3], "zeros": zeros}, 1)
    yield "OneHotEncoder, text", ("OneHotEncoder", [words], {"cats_strings": ["a", "zz"], "zeros": 1}, 1)
    yield "OneHotEncoder, floats", ("OneHotEncoder", [whole.astype(np.float32)], {"cats_int64s": [0, 3]}, 1)
    cats = {"cats_int64s": [3, 7, 1], "cats_strings": ["a", "bc", "q"]}
    yield "CategoryMapper", ("CategoryMapper", [whole], {**cats, "default_string": "none"}, 1)
    yield "CategoryMapper, text", ("CategoryMapper", [words], {**cats, "default_int64": -9}, 1)
    inputs = {"strings": words, "int64s": whole, "floats": np.array([0.5, np.nan, 2.0], np.float32)}
    keys = {"strings": ["a", "zz"], "int64s": [3, 7], "floats": [0.5, float("nan")]}
    values = {"strings": ["x", "y"], "int64s": [10, 20], "floats": [0.25, 0.75]}
    defaults = {
        "strings": {"default_string": "none"},
        "int64s": {"default_int64": -5},
        "floats": {"default_float": 8.5},
    }
    for k, v in product(keys, values):
        for default in ({}, defaults[v]):
            options = {f"keys_{k}": keys[k], f"values_{v}": values[v], **default}
            yield f"LabelEncoder {k} {v} {len(default)}", ("LabelEncoder", [inputs[k]], options, 1)


CALLS = dict(part for make in (linear, support_vectors, trees, features) for part in make())


@pytest.mark.parametrize("name", CALLS)
def test_as_onnxruntime(name: str) -> None:
    op, inputs, attributes, outputs = CALLS[name]
    b = ik.Builder("ml", opsets={"": 21, "ai.onnx.ml": 4})
    values = [b.input(f"x{i}", "string" if a.dtype == object else a.dtype, a.shape) for i, a in enumerate(inputs)]
    cls = "onnx.ml." + (f"{op}V3" if op in ("TreeEnsembleRegressor", "TreeEnsembleClassifier") else op)
    made = b.op(cls, *values, outputs=outputs, **attributes)
    for i, value in enumerate(made if isinstance(made, tuple | list) else [made]):
        b.output(value, f"y{i}")
    module = b.module()
    feeds = {f"x{i}": a for i, a in enumerate(inputs)}
    found, expected = (ik.compile(module, backend=k).run(feeds) for k in ("numpy", "onnxruntime"))
    for key, want in expected.items():
        assert found[key].dtype == want.dtype
        if want.dtype == object or want.dtype.kind in "iu":
            assert found[key].tolist() == want.tolist()
        else:
            # onnxruntime approximates the inverse of the normal distribution.
            atol = 2e-4 if attributes.get("post_transform") == "PROBIT" else 1e-5
            np.testing.assert_allclose(found[key], want, rtol=1e-4, atol=atol)
