"""Classical models, and ops that draw random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from irkit.ir.op import OpSpec

from ..generate import Call, Context, allowed
from ..graph import Value
from ..registry import F32, I64, STRING, exact, samples

exact("ml.ArrayFeatureExtractor ml.Binarizer ml.LabelEncoder ml.CategoryMapper ml.OneHotEncoder ml.Imputer")
exact("ml.FeatureVectorizer")


def _table(g: Context, spec: OpSpec, columns: int | None = None) -> Value:
    """Rows of features."""
    width = columns or g.between(1, 4)
    fits = (lambda v: v.shape[1] == width) if columns else (lambda v: True)
    kinds = [d for d in allowed(spec, 0) if d.kind != "string"]
    return g.take(kinds, 2, 2, least=1, span=(-9, 9), fits=fits, shape=lambda: (g.between(1, 4), width))


def _floats(g: Context, *shape: int) -> list[float]:
    return [round(float(v), 3) for v in g.rng().standard_normal(shape).reshape(-1)]


@samples("ml.ArrayFeatureExtractor")
def array_feature_extractor(g: Context, spec: OpSpec) -> Call:
    x = g.take(allowed(spec, 0), 2, 3, least=1)
    return Call([x, g.make(I64[0], (g.between(1, 3),), (0, x.shape[-1] - 1))])


@samples("ml.Binarizer")
def binarizer(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(allowed(spec, 0), 0, 3)], g.maybe(threshold=[0.5, -1.0]))


@samples("ml.FeatureVectorizer")
def feature_vectorizer(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    others = [g.take([x.dtype], 2, 2, least=1, fits=lambda v: v.shape[0] == x.shape[0], shape=lambda: (x.shape[0], 2))]
    parts = [x, *others[: g.below(2)]]
    return Call(parts, {"inputdimensions": [v.shape[1] for v in parts]})


@samples("ml.Imputer")
def imputer(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    count = g.pick((x.shape[1], 1))
    if x.dtype.is_integer:
        return Call([x], {"imputed_value_int64s": [7] * count, "replaced_value_int64": g.between(0, 2)})
    return Call(
        [x], {"imputed_value_floats": [0.5 + i for i in range(count)], "replaced_value_float": g.pick((0.0, 1.0))}
    )


@samples("ml.Scaler")
def scaler(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    count = g.pick((x.shape[1], 1))
    return Call([x], {"offset": _floats(g, count), "scale": _floats(g, count)})


@samples("ml.Normalizer")
def normalizer(g: Context, spec: OpSpec) -> Call:
    return Call([_table(g, spec)], g.maybe(norm=["L1", "L2", "MAX"]))


@samples("ml.LabelEncoder")
def label_encoder(g: Context, spec: OpSpec) -> Call:
    keys, values = g.pick((("strings", "int64s"), ("int64s", "strings"), ("int64s", "floats"), ("strings", "strings")))
    given: dict[str, Any] = {
        "keys_strings": ["a", "b", "bé"],
        "keys_int64s": [1, 2, -3],
        "values_strings": ["x", "yy", ""],
        "values_int64s": [10, -2, 5],
        "values_floats": [0.5, 2.0, -1.0],
    }
    default = g.maybe(
        **{"int64s": {"default_int64": 9}, "strings": {"default_string": "?"}, "floats": {"default_float": 1.5}}[values]
    )
    x = g.take(STRING if keys == "strings" else I64, 0, 3)
    names = (f"keys_{keys}", f"values_{values}")
    return Call([x], {n: given[n] for n in names} | default)


@samples("ml.CategoryMapper")
def category_mapper(g: Context, spec: OpSpec) -> Call:
    x = g.take(g.pick((STRING, I64)), 0, 3)
    return Call(
        [x], {"cats_strings": ["a", "b", "bé"], "cats_int64s": [1, 2, 3]} | g.maybe(default_int64=7, default_string="?")
    )


@samples("ml.OneHotEncoder")
def one_hot_encoder(g: Context, spec: OpSpec) -> Call:
    texts = g.below(2)
    x = g.take(STRING, 1, 2) if texts else g.take([d for d in allowed(spec, 0) if d.is_integer], 1, 2)
    return Call([x], {"cats_strings": ["a", "b"]} if texts else {"cats_int64s": [1, 2, 5]})


_POST = ["SOFTMAX", "LOGISTIC", "NONE", "SOFTMAX_ZERO"]


@samples("ml.LinearRegressor")
def linear_regressor(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    targets = g.between(1, 3)
    attributes = {"targets": targets, "coefficients": _floats(g, targets * x.shape[1])}
    return Call([x], attributes | g.maybe(intercepts=[_floats(g, targets)], post_transform=["NONE"]))


@samples("ml.LinearClassifier")
def linear_classifier(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    classes = g.between(2, 4)
    labels = (
        {"classlabels_ints": [3, 5, 1, 8][:classes]}
        if g.below(2)
        else {"classlabels_strings": ["a", "b", "c", "d"][:classes]}
    )
    attributes = {"coefficients": _floats(g, classes * x.shape[1]), "intercepts": _floats(g, classes)}
    return Call([x], attributes | labels | g.maybe(post_transform=_POST), outputs=2)


@samples("ml.SVMRegressor")
def svm_regressor(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    count = g.between(1, 3)
    attributes: dict[str, Any] = {
        "kernel_type": g.pick(("LINEAR", "RBF", "POLY", "SIGMOID")),
        "kernel_params": [0.25, 0.5, 2.0],
        "n_supports": count,
        "support_vectors": _floats(g, count * x.shape[1]),
        "coefficients": _floats(g, count),
        "rho": _floats(g, 1),
    }
    return Call([x], attributes)


@samples("ml.SVMClassifier")
def svm_classifier(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec)
    classes = g.between(2, 3)
    per = [g.between(1, 2) for _ in range(classes)]
    total, pairs = sum(per), classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "kernel_type": g.pick(("LINEAR", "RBF", "POLY", "SIGMOID")),
        "kernel_params": [0.25, 0.5, 2.0],
        "vectors_per_class": per,
        "support_vectors": _floats(g, total * x.shape[1]),
        "coefficients": _floats(g, (classes - 1) * total),
        "rho": _floats(g, pairs),
        "classlabels_ints": [3, 5, 1][:classes],
    }
    if g.below(2):
        attributes |= {"prob_a": [-abs(v) - 0.1 for v in _floats(g, pairs)], "prob_b": _floats(g, pairs)}
    return Call([x], attributes, outputs=2)


_TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [0, 0, 0, 1, 0, 0],
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
}


@samples("ml.TreeEnsembleRegressor ml.TreeEnsembleClassifier")
def tree_ensemble(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec, 3)
    how = [g.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")) for _ in range(2)]
    modes = [how[0], "LEAF", "LEAF", how[0], "LEAF", "LEAF"]
    attributes = {**_TREE, "nodes_modes": modes, "nodes_values": [g.pick((0.25, 0.0)), 0.0, 0.0, -0.5, 0.0, 0.0]}
    kind = "class" if spec.op_type.endswith("Classifier") else "target"
    attributes |= {
        f"{kind}_treeids": [0, 0, 1, 1],
        f"{kind}_nodeids": [1, 2, 1, 2],
        f"{kind}_ids": [0, 1, 1, 2],
        f"{kind}_weights": _floats(g, 4),
    }
    if kind == "class":
        attributes |= {"classlabels_int64s": [10, 20, 30]} | g.maybe(post_transform=_POST)
        return Call([x], attributes, outputs=2)
    attributes |= {"n_targets": 3} | g.maybe(aggregate_function=["AVERAGE", "MIN", "MAX", "SUM"])
    return Call([x], attributes | g.maybe(base_values=[_floats(g, 3)]))


@samples("ml.TreeEnsemble")
def tree_ensemble_5(g: Context, spec: OpSpec) -> Call:
    x = _table(g, spec, 3)
    kind = x.array.dtype
    attributes: dict[str, Any] = {
        "n_targets": 2,
        "tree_roots": [0, 1],
        "nodes_featureids": [0, 2],
        "nodes_modes": np.array([g.pick((0, 1, 2, 3)), g.pick((0, 1, 2, 3))], np.uint8),
        "nodes_splits": np.array([0.25, -0.5], kind),
        "nodes_truenodeids": [0, 2],
        "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 3],
        "nodes_falseleafs": [1, 1],
        "leaf_targetids": [0, 1, 1, 0],
        "leaf_weights": np.array(_floats(g, 4), kind),
    }
    return Call([x], attributes | g.maybe(aggregate_function=[0, 1, 2, 3]))


@samples("RandomNormal RandomUniform", random=True)
def random(g: Context, spec: OpSpec) -> Call:
    return Call([], {"shape": list(g.dims(0, 3, 1))} | g.maybe(seed=[1.0, 2.0]))


@samples("RandomNormalLike RandomUniformLike Bernoulli", random=True)
def random_like(g: Context, spec: OpSpec) -> Call:
    return Call([g.take(F32, span=(0, 1))], g.maybe(seed=[1.0, 2.0]))


@samples("Multinomial", random=True)
def multinomial(g: Context, spec: OpSpec) -> Call:
    x = g.make(F32[0], (g.between(1, 3), g.between(1, 4)), (-2, 2))
    return Call([x], {"sample_size": g.between(1, 4)} | g.maybe(dtype=[6, 7]))
