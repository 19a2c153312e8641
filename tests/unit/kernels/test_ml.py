"""The ops of ai.onnx.ml, against values worked out by hand and trees walked in plain Python."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import onnx
import pytest

from irkit.backends.numpy.registry import KernelError, find_kernel

NAN = math.nan
F32 = np.float32


class Budget:
    def allocate(self, nbytes):
        if nbytes > 2**20:
            raise MemoryError


def ml(name, *inputs, **attributes):
    """Calls a kernel with the defaults of the op's schema."""
    kernel = find_kernel("ai.onnx.ml", name)
    filled = {}
    for attribute in onnx.defs.get_schema(name, "ai.onnx.ml").attributes.values():
        if attribute.default_value.type:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            filled[attribute.name] = value.decode() if isinstance(value, bytes) else value
    services = {"budget": Budget()} if "budget" in kernel.wants else {}
    with np.errstate(all="ignore"):
        return kernel.function(*inputs, **(filled | attributes), **services)


def close(array, expected, dtype=F32):
    assert array.dtype == dtype
    np.testing.assert_allclose(array, np.array(expected), rtol=1e-5, atol=1e-6)


def strings(*values):
    return np.array(values, object)


X = np.array([[1, -2], [0, 0], [3, 4]], F32)


def test_features():
    assert ml("ArrayFeatureExtractor", X, np.array([[1, 0, 1]])).tolist() == [[-2, 1, -2], [0, 0, 0], [4, 3, 4]]
    assert ml("ArrayFeatureExtractor", strings("a", "b"), np.array([1])).tolist() == [["b"]]
    for index in (2, -1):
        with pytest.raises(KernelError, match=f"index {index}"):
            ml("ArrayFeatureExtractor", X, np.array([index]))
    assert ml("Binarizer", np.array([1, 2, 3], np.int32), threshold=1.5).tolist() == [0, 1, 1]
    assert ml("Binarizer", np.array(NAN, F32)).tolist() == 0
    joined = ml("FeatureVectorizer", np.array([1, 2]), np.array([3]), inputdimensions=(2, 1))
    close(joined, [[1, 2, 3]])
    with pytest.raises(KernelError, match="inputdimensions"):
        ml("FeatureVectorizer", np.array([[1, 2]]), inputdimensions=(3,))
    close(ml("Scaler", np.array([[1, 2], [3, 4]], np.int64), offset=(1.0, 0.0), scale=(2.0,)), [[0, 4], [4, 8]])
    with pytest.raises(KernelError, match="offset has 3"):
        ml("Scaler", X, offset=(1.0, 2.0, 3.0), scale=(1.0,))


def test_imputer():
    x = np.array([[1, NAN], [NAN, 2]])
    assert ml("Imputer", x, replaced_value_float=NAN, imputed_value_floats=(7.0, 8.0)).tolist() == [[1, 8], [7, 2]]
    y = ml("Imputer", np.array([0, 3], np.int32), imputed_value_int64s=(9,))
    assert (y.tolist(), y.dtype) == ([9, 3], np.int32)
    # 0.1 as the float attribute it is equals a float32 element, which as float64 it would not.
    assert ml("Imputer", np.array([0.1], F32), replaced_value_float=0.1, imputed_value_floats=(1.0,)).tolist() == [1]
    with pytest.raises(KernelError, match="3 imputed values"):
        ml("Imputer", x, imputed_value_floats=(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("norm", "expected"),
    [("MAX", [[1, -2], [0, 0], [0.75, 1]]), ("L1", [[1 / 3, -2 / 3], [0, 0], [3 / 7, 4 / 7]]),
     ("L2", [[1 / math.sqrt(5), -2 / math.sqrt(5)], [0, 0], [0.6, 0.8]])],
)  # fmt: skip
def test_normalizer(norm, expected):
    for dtype in (F32, np.float64, np.int32):
        close(ml("Normalizer", X.astype(dtype), norm=norm), expected)
    close(ml("Normalizer", X[2], norm=norm), expected[2])
    assert ml("Normalizer", X[:, :0], norm=norm).shape == (3, 0)


def test_one_hot_encoder():
    assert ml("OneHotEncoder", np.array([2.7, 5.0]), cats_int64s=(2, 3)).tolist() == [[1, 0], [0, 0]]
    assert ml("OneHotEncoder", strings("b"), cats_strings=("a", "b")).tolist() == [[0, 1]]
    assert ml("OneHotEncoder", np.array(3), cats_int64s=(2, 3)).tolist() == [0, 1]
    with pytest.raises(KernelError, match="5"):
        ml("OneHotEncoder", np.array([2, 5]), cats_int64s=(2, 3), zeros=0)


def test_label_encoder():
    x = strings("Dori", "Amy", "Sally").reshape(3, 1)
    y = ml("LabelEncoder", x, keys_strings=("Amy", "Sally", "Amy"), values_int64s=(1, 6, 5))
    assert (y.tolist(), y.dtype) == ([[-1], [5], [6]], np.int64)
    y = ml("LabelEncoder", np.array([NAN, 0.1, 2], F32), keys_floats=(0.1, NAN), values_strings=("tenth", "none"))
    assert (y.tolist(), y.dtype) == (["none", "tenth", "_Unused"], object)
    keys = np.array([3, 1, 3], np.int16)
    y = ml("LabelEncoder", keys, keys_tensor=keys, values_tensor=np.array([0.5, 1.5, 2.5]))
    assert (y.tolist(), y.dtype) == ([2.5, 1.5, 2.5], np.float64)
    y = ml("LabelEncoder", np.array(7), keys_int64s=(1,), values_tensor=np.array([2], np.int16),
           default_tensor=np.array([9], np.int16))  # fmt: skip
    assert (y.tolist(), y.shape) == (9, ())
    assert math.copysign(1, ml("LabelEncoder", np.array([7]), keys_int64s=(1,), values_floats=(2.0,))[0]) == -1
    with pytest.raises(KernelError, match="dtype"):
        ml("LabelEncoder", np.array([1]), keys_floats=(1.0,), values_int64s=(1,))
    with pytest.raises(KernelError, match="2 keys and 1 values"):
        ml("LabelEncoder", np.array([1]), keys_int64s=(1, 2), values_int64s=(1,))


def test_category_mapper_and_maps():
    cats = {"cats_int64s": (4, 5), "cats_strings": ("a", "b")}
    assert ml("CategoryMapper", strings("b", "z"), **cats).tolist() == [5, -1]
    assert ml("CategoryMapper", np.array([4, 9]), **cats).tolist() == ["a", "_Unused"]
    assert ml("CastMap", {3: 1.5, 1: 2.5}).tolist() == [[2.5, 1.5]]
    assert ml("CastMap", {3: "7", 1: "2"}, cast_to="TO_INT64", map_form="SPARSE", max_map=5).tolist() == [
        [0, 2, 0, 7, 0]
    ]
    assert ml("CastMap", {0: 1.5}, cast_to="TO_STRING").tolist() == [["1.5"]]
    with pytest.raises(KernelError, match="keys 5 to 5"):
        ml("CastMap", {5: 1.0}, map_form="SPARSE", max_map=5)
    with pytest.raises(KernelError, match="convert"):
        ml("CastMap", {5: "x"})
    with pytest.raises(MemoryError):
        ml("CastMap", {5: 1.0}, map_form="SPARSE", max_map=2**40)
    y = ml("DictVectorizer", {"a": 4, "c": 8}, string_vocabulary=("a", "c", "b", "z"))
    assert (y.tolist(), y.dtype) == ([4, 8, 0, 0], np.int64)
    assert ml("DictVectorizer", {7: "x"}, int64_vocabulary=(1, 7)).tolist() == ["", "x"]
    assert ml("DictVectorizer", {7: np.float64(0.1)}, int64_vocabulary=(7,)).dtype == np.float64
    with pytest.raises(KernelError, match="'q'"):
        ml("DictVectorizer", {"q": 1}, string_vocabulary=("a",))
    assert ml("ZipMap", X[:1], classlabels_strings=("p", "n")) == [{"p": 1.0, "n": -2.0}]
    assert ml("ZipMap", X[0], classlabels_int64s=(7, 8)) == [{7: 1.0, 8: -2.0}]
    with pytest.raises(KernelError, match="column"):
        ml("ZipMap", X, classlabels_int64s=(7,))


def softmax(row):
    total = sum(math.exp(v) for v in row)
    return [math.exp(v) / total for v in row]


def logistic(v):
    return 1 / (1 + math.exp(-v))


TRANSFORMS = {
    "NONE": lambda row: row,
    "SOFTMAX": softmax,
    "LOGISTIC": lambda row: [logistic(v) for v in row],
    "SOFTMAX_ZERO": lambda row: [s if v else 0 for v, s in zip(row, _spread(row), strict=True)],
    "PROBIT": lambda row: [NormalDist().inv_cdf(v) if 0 < v < 1 else -math.inf if v == 0 else NAN for v in row],
}


def _spread(row):
    """The softmax of the non-zero entries, in their places."""
    shares = iter(softmax([v for v in row if v]))
    return [next(shares) if v else 0 for v in row]


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_linear(kind):
    # Scores: -1 + 1 + .5, 0 + .5 and 3 + 4 * -.5 + .5 for the first target, zero and products for the others.
    rows = [[0.5 + 1 + 1, -2.0, 0.25], [0.5, 0.0, 0.25], [0.5 + 3 - 2, 4.0, 0.25]]
    weights = {"coefficients": (1.0, -0.5, 0.0, 1.0, 0.0, 0.0), "intercepts": (0.5, 0.0, 0.25)}
    expected = [TRANSFORMS[kind](row) for row in rows]
    for dtype in (F32, np.float64, np.int64):
        close(ml("LinearRegressor", X.astype(dtype), targets=3, post_transform=kind, **weights), expected)
        labels, scores = ml(
            "LinearClassifier", X.astype(dtype), classlabels_ints=(7, 8, 9), post_transform=kind, **weights
        )
        assert (labels.tolist(), labels.dtype) == ([7, 7, 8], np.int64)
        close(scores, expected)


def test_linear_edges():
    labels, scores = ml("LinearClassifier", X[:, :1], coefficients=(1.0,), classlabels_strings=("no", "yes"))
    assert (labels.tolist(), labels.dtype) == (["yes", "no", "yes"], object)
    close(scores, [[0, 1], [1, 0], [-2, 3]])
    scores = ml("LinearClassifier", X[:1, :1], coefficients=(1.0,), classlabels_ints=(0, 1), post_transform="LOGISTIC")
    close(scores[1], [[logistic(-1), logistic(1)]])
    close(ml("LinearRegressor", X[2], coefficients=(1.0, 2.0)), [[11]])
    assert ml("LinearRegressor", X[:0], coefficients=(1.0, 2.0), post_transform="SOFTMAX").shape == (0, 1)
    with pytest.raises(KernelError, match="3 coefficients"):
        ml("LinearRegressor", X, coefficients=(1.0, 2.0, 3.0))
    with pytest.raises(KernelError, match="labels"):
        ml("LinearClassifier", X, coefficients=(1.0, 2.0))
    with pytest.raises(KernelError, match="post_transform"):
        ml("LinearRegressor", X, coefficients=(1.0, 2.0), post_transform="TANH")


VECTORS = [(1.0, 0.0), (0.0, 1.0), (-1.0, -1.0)]
KERNELS = {
    "LINEAR": lambda a, b: a[0] * b[0] + a[1] * b[1],
    "POLY": lambda a, b: (0.5 * (a[0] * b[0] + a[1] * b[1]) + 0.25) ** 3,
    "RBF": lambda a, b: math.exp(-0.5 * ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)),
    "SIGMOID": lambda a, b: math.tanh(0.5 * (a[0] * b[0] + a[1] * b[1]) + 0.25),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_svm(kind):
    kernel = {"kernel_type": kind, "kernel_params": (0.5, 0.25, 3.0)}
    vectors = {"support_vectors": tuple(v for vector in VECTORS for v in vector)}
    rows = X.tolist()
    alike = [[KERNELS[kind](row, vector) for vector in VECTORS] for row in rows]
    weights = (0.5, 0.25, -1.0)
    raw = [sum(w * k for w, k in zip(weights, near, strict=True)) + 0.125 for near in alike]
    regressor = {"coefficients": weights, "n_supports": 3, "rho": (0.125,)} | kernel | vectors
    close(ml("SVMRegressor", X, **regressor), [[v] for v in raw])
    close(ml("SVMRegressor", X, one_class=1, **regressor), [[1 if v > 0 else -1] for v in raw])

    binary = {"coefficients": weights, "vectors_per_class": (2, 1), "rho": (0.125,), "classlabels_strings": ("p", "q")}
    labels, scores = ml("SVMClassifier", X, **binary, **kernel, **vectors)
    assert labels.tolist() == ["p" if v > 0 else "q" for v in raw]
    close(scores, [[-v, v] for v in raw])
    _, scores = ml("SVMClassifier", X, prob_a=(-1.5,), prob_b=(0.5,), **binary, **kernel, **vectors)
    # The coupling of pairwise probabilities stops at 0.005 over the number of classes.
    np.testing.assert_allclose(scores[:, 0], [logistic(1.5 * v - 0.5) for v in raw], atol=0.0025)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)

    # One vector for each of three classes: the pair (i, j) weighs vector i by row j - 1 and vector j by row i.
    alpha = [[0.5, 0.25, -1.0], [0.75, -0.5, 0.25]]
    many = {"coefficients": (*alpha[0], *alpha[1]), "vectors_per_class": (1, 1, 1), "rho": (0.1, -0.2, 0.3)}
    labels, scores = ml("SVMClassifier", X, classlabels_ints=(5, 6, 7), **many, **kernel, **vectors)
    for label, score, near in zip(labels.tolist(), scores.tolist(), alike, strict=True):
        votes = [0, 0, 0]
        for pair, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
            decision = alpha[j - 1][i] * near[i] + alpha[i][j] * near[j] + many["rho"][pair]
            assert score[pair] == pytest.approx(decision, rel=1e-5, abs=1e-6)
            votes[i if decision > 0 else j] += 1
        assert label == 5 + votes.index(max(votes))


def test_svm_pairwise_coupling():
    """Pairwise probabilities that agree with one distribution give that distribution back."""
    p = [0.5, 0.3, 0.2]
    # A sigmoid of a = 0 and this b is p[i] / (p[i] + p[j]) for any decision.
    prob_b = tuple(math.log(p[j] / p[i]) for i, j in [(0, 1), (0, 2), (1, 2)])
    _, scores = ml(
        "SVMClassifier", X, classlabels_ints=(1, 2, 3), coefficients=(0.0,) * 6, vectors_per_class=(1, 1, 1),
        support_vectors=(0.0,) * 6, rho=(0.0,) * 3, prob_a=(0.0,) * 3, prob_b=prob_b,
    )  # fmt: skip
    np.testing.assert_allclose(scores, [p] * 3, atol=5e-3)


def test_svm_without_vectors_and_refusals():
    labels, scores = ml("SVMClassifier", X, classlabels_ints=(1, 2), coefficients=(1.0, 0.0, 0.0, 1.0), rho=(0.5,))
    close(scores, X + 0.5)
    assert labels.tolist() == [1, 1, 2]
    close(ml("SVMRegressor", X, coefficients=(1.0, 2.0), rho=(1.0,)), [[-2], [1], [12]])
    with pytest.raises(KernelError, match="support vectors"):
        ml("SVMRegressor", X, coefficients=(1.0,), n_supports=1, support_vectors=(1.0,), rho=(0.0,))
    with pytest.raises(KernelError, match="rho"):
        ml("SVMClassifier", X, classlabels_ints=(1, 2), vectors_per_class=(1, 1), coefficients=(1.0, 1.0))


MODES = {
    "BRANCH_LEQ": lambda a, b: a <= b,
    "BRANCH_LT": lambda a, b: a < b,
    "BRANCH_GTE": lambda a, b: a >= b,
    "BRANCH_GT": lambda a, b: a > b,
    "BRANCH_EQ": lambda a, b: a == b,
    "BRANCH_NEQ": lambda a, b: a != b,
}


def grow(random, depth, targets):
    """A random tree: (mode, feature, split, missing, true, false), or a list of (target, weight)."""
    if depth == 0 or random.random() < 0.2:
        return [(int(t), float(F32(random.normal()))) for t in random.choice(targets, random.integers(1, targets + 1))]
    node = (str(random.choice(list(MODES))), int(random.integers(3)), float(random.integers(-2, 3)))
    return (*node, int(random.integers(2)), grow(random, depth - 1, targets), grow(random, depth - 1, targets))


def walk(tree, row):
    while isinstance(tree, tuple):
        mode, feature, split, missing, true, false = tree
        value = row[feature]
        tree = true if (missing if math.isnan(value) else MODES[mode](value, split)) else false
    return tree


def classic(trees, prefix):
    """The attributes of TreeEnsembleRegressor or, with the prefix "class", TreeEnsembleClassifier."""
    out = {f"nodes_{k}": [] for k in "treeids nodeids modes featureids values truenodeids falsenodeids".split()}
    out |= {"nodes_missing_value_tracks_true": []}
    votes = {f"{prefix}_{k}": [] for k in "treeids nodeids ids weights".split()}

    def add(number, tree, ids):
        at, row = next(ids), len(out["nodes_nodeids"])
        inner = isinstance(tree, tuple)
        mode, feature, split, missing = tree[:4] if inner else ("LEAF", 0, 0.0, 0)
        for key, value in zip(out, (number, at, mode, feature, split, 0, 0, missing), strict=True):
            out[key].append(value)
        if inner:
            out["nodes_truenodeids"][row] = add(number, tree[4], ids)
            out["nodes_falsenodeids"][row] = add(number, tree[5], ids)
        else:
            for target, weight in tree:
                for key, value in zip(votes, (number, at, target, weight), strict=True):
                    votes[key].append(value)
        return at

    for number, tree in enumerate(trees):
        add(number, tree, iter(range(1000)))
    return {key: tuple(value) for key, value in (out | votes).items()}


AGGREGATES = {"SUM": sum, "AVERAGE": lambda v: sum(v) / 4, "MIN": min, "MAX": max}


@pytest.mark.parametrize("how", AGGREGATES)
def test_trees_against_a_walk(how):
    random = np.random.default_rng(11)
    trees = [grow(random, 4, 2) for _ in range(3)] + [[(1, 0.5)]]
    x = random.integers(-3, 4, (40, 3)).astype(F32)
    x[random.random(x.shape) < 0.1] = NAN
    base = (0.25, -0.5)
    expected = []
    for row in x.tolist():
        votes = [vote for tree in trees for vote in walk(tree, row)]
        by_target = [[w for target, w in votes if target == t] for t in range(2)]
        expected.append([base[t] + (AGGREGATES[how](v) if v else 0) for t, v in enumerate(by_target)])
    attributes = classic(trees, "target") | {"n_targets": 2, "aggregate_function": how, "base_values": base}
    close(ml("TreeEnsembleRegressor", x, **attributes), expected)
    if how == "SUM":
        del attributes["n_targets"], attributes["aggregate_function"]
        as_class = {key.replace("target_", "class_"): value for key, value in attributes.items()}
        labels, scores = ml("TreeEnsembleClassifier", x, classlabels_strings=("a", "b"), **as_class)
        close(scores, expected)
        assert labels.tolist() == ["a" if a >= b else "b" for a, b in expected]


STUMP = ("BRANCH_LEQ", 0, 0.5, 0, [(0, 0.25)], [(0, 0.75)])


@pytest.mark.parametrize(
    ("low", "kind", "scores", "labels"),
    [
        (0.25, "NONE", [[0.25, 0.75], [0.75, 0.25]], [8, 7]),
        (0.25, "LOGISTIC", [[logistic(-0.75), logistic(0.75)], [logistic(-0.25), logistic(0.25)]], [8, 7]),
        (-0.25, "NONE", [[-0.75, 0.75], [0.25, -0.25]], [8, 7]),
    ],
)
def test_binary_tree_classifier(low, kind, scores, labels):
    tree = (*STUMP[:4], [(0, low)], STUMP[5])
    found = ml(
        "TreeEnsembleClassifier", X[:2], classlabels_int64s=(7, 8), post_transform=kind, **classic([tree], "class")
    )
    assert found[0].tolist() == labels
    close(found[1], scores)


def test_trees_in_double():
    attributes = classic([STUMP], "target")
    del attributes["nodes_values"], attributes["target_weights"]
    x = np.array([[0.1 + 1e-12], [0.1]])
    attributes |= {"nodes_values_as_tensor": np.array([0.1, 0, 0]), "target_weights_as_tensor": np.array([1.0, 2.0])}
    assert ml("TreeEnsembleRegressor", x, n_targets=1, **attributes).tolist() == [[2], [1]]


MODERN = {
    "tree_roots": (0,),
    "nodes_featureids": (0, 1),
    "nodes_truenodeids": (0, 1),
    "nodes_trueleafs": (1, 0),
    "nodes_falsenodeids": (1, 1),
    "nodes_falseleafs": (0, 1),
    "leaf_targetids": (0, 1),
    "n_targets": 2,
}


def modern(dtype=F32, **changes):
    """A membership node over feature 0, then a comparison of feature 1 whose true branch is changed by the caller."""
    attributes = MODERN | {
        "nodes_modes": np.array([6, 0], np.uint8),
        "nodes_splits": np.array([0, 0], dtype),
        "leaf_weights": np.array([1.5, 2.5], dtype),
        "membership_values": np.array([1, 3, NAN], dtype),
        "nodes_truenodeids": (0, 0),
        "nodes_trueleafs": (1, 1),
    }
    return attributes | changes


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16])
def test_tree_ensemble(dtype):
    x = np.array([[1, 9], [2, 9], [2, -9], [3, 9], [NAN, 9]], dtype)
    y = ml("TreeEnsemble", x, **modern(dtype))
    close(y, [[1.5, 0], [0, 2.5], [1.5, 0], [1.5, 0], [0, 2.5]], dtype)
    y = ml("TreeEnsemble", x[-1:], **modern(dtype, nodes_missing_value_tracks_true=(1, 0)))
    close(y, [[1.5, 0]], dtype)
    y = ml("TreeEnsemble", x[:1], **modern(dtype), post_transform=1)
    np.testing.assert_allclose(y, [softmax([1.5, 0])], rtol=1e-3)
    assert ml("TreeEnsemble", x[:0], **modern(dtype)).shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_trueleafs": (1, 0)}, "circle"),
        ({"nodes_falsenodeids": (9, 1)}, "none of the 2 nodes"),
        ({"leaf_targetids": (0, 2)}, "target ids"),
        ({"membership_values": np.array([1, NAN, 2], F32)}, "2 sets for 1"),
        ({"nodes_featureids": (0, 5)}, "feature 5 of 2"),
        ({"tree_roots": (2,)}, "tree_roots"),
        ({"aggregate_function": 4}, "aggregate_function 4"),
        ({"nodes_featureids": (0,)}, "differ in length"),
    ],
)
def test_tree_ensemble_refuses(changes, message):
    x = np.array([[5, -9]], F32)
    with pytest.raises(KernelError, match=message):
        ml("TreeEnsemble", x, **modern(**changes | ({"nodes_truenodeids": (0, 1)} if message == "circle" else {})))


def test_classic_trees_refuse():
    good = classic([STUMP], "target")
    for key, value, message in [
        ("nodes_truenodeids", (9, 0, 0), "no node 9"),
        ("nodes_nodeids", (0, 1, 1), "twice"),
        ("nodes_modes", ("BRANCH_LEQ", "LEAF", "OTHER"), "'OTHER'"),
        ("nodes_modes", ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_LT"), "circle"),
        ("target_weights", (1.0,), "weights"),
        ("target_ids", (0, 3), "target ids"),
    ]:
        with pytest.raises(KernelError, match=message):
            ml("TreeEnsembleRegressor", X, n_targets=1, **(good | {key: value}))
