"""ai.onnx.ml: tree ensembles. All samples go down all trees together, one level at a time.

Leaf values are added in float64. A NaN feature takes the branch that ``nodes_missing_value_tracks_true`` names, the
false one by default. A target that no leaf votes for is 0 before base values and transform. AVERAGE divides by the
number of trees. TreeEnsembleClassifier with two labels and votes for one class only is binary (see
``_scores.two_scores``): that score exceeds one half, or 0 if some weight is negative, for the second label to win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps

import numpy as np

from irkit.backends.numpy.kernels._indexing import Array
from irkit.backends.numpy.kernels._scores import POST_TRANSFORMS, class_labels, features, post_transform, two_scores
from irkit.backends.numpy.registry import KernelError, kernel

DOMAIN = "ai.onnx.ml"

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_MEMBER = _MODES.index("BRANCH_MEMBER")
_LEAF = -1
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_CELLS = 1 << 20
"""Samples are taken in blocks so that samples times trees stays about this large."""
_KEPT = 16
"""How many forests are kept built."""

_transform = post_transform
"""The function, where an attribute has its name."""


@dataclass(frozen=True)
class Forest:
    """Trees as parallel arrays over all their nodes; a leaf's branches are itself.

    Attributes:
        roots: the root of each tree.
        mode: index into ``_MODES``, or ``_LEAF``.
        feature: the feature that the node compares.
        split: what it is compared with.
        branches: ``[nodes, 2]``, the node to go to if the comparison is false, and if it is true.
        missing_true: whether NaN counts as true.
        members: for nodes of mode BRANCH_MEMBER, the values of the set.
    """

    roots: Array
    mode: Array
    feature: Array
    split: Array
    branches: Array
    missing_true: Array
    members: dict[int, Array]

    def leaves(self, x: Array) -> Array:
        """The leaf that each sample reaches in each tree, shape ``[N, trees]``."""
        inner = self.mode != _LEAF
        if inner.any():
            low, high = int(self.feature[inner].min()), int(self.feature[inner].max())
            if low < 0 or high >= x.shape[1]:
                raise KernelError(f"a node compares feature {low if low < 0 else high} of {x.shape[1]}")
        shape = (len(x), len(self.roots))
        node = np.broadcast_to(self.roots, shape).reshape(-1).copy()
        sample = np.repeat(np.arange(len(x)), len(self.roots))
        moving = np.flatnonzero(inner[node])
        for _ in range(len(self.mode)):
            if len(moving) == 0:
                return node.reshape(shape)
            at = node[moving]
            taken = self._decide(at, x[sample[moving], self.feature[at]])
            node[moving] = self.branches[at, taken.astype(np.int64)]
            moving = moving[inner[node[moving]]]
        if len(moving) == 0:
            return node.reshape(shape)
        raise KernelError("the branches of a tree run in a circle")

    def _decide(self, at: Array, value: Array) -> Array:
        """Whether the comparison of each node holds for the value given."""
        modes = self.mode[at]
        taken = np.zeros(len(at), dtype=np.bool_)
        for mode in np.unique(modes).tolist():
            here = np.flatnonzero(modes == mode)
            if mode == _MEMBER:
                for node in np.unique(at[here]).tolist():
                    those = here[at[here] == node]
                    taken[those] = np.isin(value[those], self.members[node])
            else:
                taken[here] = _COMPARE[mode](value[here], self.split[at[here]])
        # NaN is unequal to everything, yet goes the way of missing values.
        missing = value != value
        return np.where(missing, self.missing_true[at], taken) if missing.any() else taken


@dataclass(frozen=True)
class Votes:
    """The votes of leaves, sorted by node: those of node i are at ``start[i]`` to ``start[i + 1]``."""

    start: Array
    target: Array
    weight: Array

    @staticmethod
    def of(node: Array, target: Array, weight: Array, nodes: int, targets: int) -> Votes:
        if not len(node) == len(target) == len(weight):
            raise KernelError(f"there are {len(node)} leaf nodes, {len(target)} targets and {len(weight)} weights")
        if len(target) and (int(target.min()) < 0 or int(target.max()) >= targets):
            raise KernelError(f"target ids {int(target.min())} to {int(target.max())} are not all in [0, {targets})")
        order = np.argsort(node, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes))])
        return Votes(start, target[order], weight[order].astype(np.float64))


def _aggregate(forest: Forest, votes: Votes, x: Array, targets: int, how: str) -> Array:
    """The aggregated votes of all trees, float64 of shape ``[N, targets]``."""
    if how not in _AGGREGATES:
        raise KernelError(f"aggregate_function {how!r} is none of {', '.join(_AGGREGATES)}")
    out = np.zeros((len(x), targets))
    block = max(1, _CELLS // max(len(forest.roots), 1))
    for first in range(0, len(x), block):
        part = out[first : first + block]
        leaves = forest.leaves(x[first : first + block])
        count = votes.start[leaves + 1] - votes.start[leaves]
        total = int(count.sum())
        # The votes of leaf after leaf: each leaf's first, and then the number within the leaf.
        before = np.cumsum(count.reshape(-1)) - count.reshape(-1)
        index = np.repeat(votes.start[leaves].reshape(-1) - before, count.reshape(-1)) + np.arange(total)
        row = np.repeat(np.arange(len(part)), count.sum(axis=1))
        cell = row * targets + votes.target[index]
        if how in ("SUM", "AVERAGE"):
            part += np.bincount(cell, weights=votes.weight[index], minlength=part.size).reshape(part.shape)
        else:
            function, start = (np.minimum, np.inf) if how == "MIN" else (np.maximum, -np.inf)
            extreme = np.full(part.size, start)
            function.at(extreme, cell, votes.weight[index])
            voted = np.bincount(cell, minlength=part.size) > 0
            part[...] = np.where(voted, extreme, 0).reshape(part.shape)
    return out / max(len(forest.roots), 1) if how == "AVERAGE" else out


def _flags(given: Sequence[int] | None, count: int) -> Array:
    flags = np.zeros(count, dtype=np.bool_) if given is None else np.array(given, dtype=np.bool_)
    if len(flags) != count:
        raise KernelError(f"nodes_missing_value_tracks_true has {len(flags)} values for {count} nodes")
    return flags


def _floats(plain: Sequence[float] | None, tensor: Array | None) -> Array:
    """An attribute that is given as floats or, in double precision, as a tensor."""
    return np.array(plain or (), dtype=np.float32) if tensor is None else tensor.reshape(-1)


def _positions(trees: Array, ids: Array, wanted_trees: Array, wanted_ids: Array) -> Array:
    """Where in the list of nodes those stand that are wanted by tree and id."""
    if len(trees) != len(ids) or len(wanted_trees) != len(wanted_ids):
        raise KernelError("the lists of tree ids and node ids differ in length")
    _, tree_code = np.unique(np.concatenate([trees, wanted_trees]), return_inverse=True)
    distinct_ids, id_code = np.unique(np.concatenate([ids, wanted_ids]), return_inverse=True)
    code = tree_code * len(distinct_ids) + id_code
    distinct, place_of = np.unique(code, return_inverse=True)
    place = np.full(len(distinct), -1)
    place[place_of[: len(ids)]] = np.arange(len(ids))
    if np.count_nonzero(place >= 0) != len(ids):
        raise KernelError("a node id occurs twice in one tree")
    found = place[place_of[len(ids) :]]
    if found.size and found.min() < 0:
        lost = int(found.argmin())
        raise KernelError(f"tree {wanted_trees[lost]} has no node {wanted_ids[lost]}")
    return found


def _remember(build: Callable[..., tuple[Forest, Votes]]) -> Callable[..., tuple[Forest, Votes]]:
    """Keeps what was built from attributes, which are the same objects in every run of a model."""
    kept: dict[tuple[int, ...], tuple[tuple[object, ...], tuple[Forest, Votes]]] = {}

    @wraps(build)
    def wrapper(*args: object) -> tuple[Forest, Votes]:
        key = tuple(map(id, args))
        hit = kept.get(key)
        if hit is None:
            if len(kept) >= _KEPT:
                kept.clear()
            # The arguments are kept too, so that no other object can come by their identity.
            hit = kept[key] = (args, build(*args))
        return hit[1]

    return wrapper


@_remember
def _classic(
    tree_ids: Sequence[int],
    node_ids: Sequence[int],
    modes: Sequence[str],
    feature_ids: Sequence[int],
    values: Sequence[float] | None,
    values_tensor: Array | None,
    true_ids: Sequence[int],
    false_ids: Sequence[int],
    missing: Sequence[int] | None,
    vote_trees: Sequence[int],
    vote_nodes: Sequence[int],
    vote_targets: Sequence[int],
    weights: Sequence[float] | None,
    weights_tensor: Array | None,
    targets: int,
) -> tuple[Forest, Votes]:
    """The trees of the deprecated ops, whose leaves are nodes like the others and whose ids count within a tree."""
    trees, ids = np.array(tree_ids, dtype=np.int64), np.array(node_ids, dtype=np.int64)
    split = _floats(values, values_tensor)
    if not len(trees) == len(ids) == len(modes) == len(feature_ids) == len(split) == len(true_ids) == len(false_ids):
        raise KernelError("the nodes_* attributes differ in length")
    codes = {name: i for i, name in enumerate(_MODES[:_MEMBER])} | {"LEAF": _LEAF}
    unknown = set(modes) - set(codes)
    if unknown:
        raise KernelError(f"nodes_modes holds {min(unknown)!r}, which is none of {', '.join(codes)}")
    mode = np.array([codes[name] for name in modes], dtype=np.int64)
    inner = np.flatnonzero(mode != _LEAF)
    branches = np.stack([np.arange(len(ids))] * 2, axis=1)
    for side, child_ids in enumerate((false_ids, true_ids)):
        branches[inner, side] = _positions(trees, ids, trees[inner], np.array(child_ids, dtype=np.int64)[inner])
    # The root of a tree is its first node that is no other's child.
    free = np.setdiff1d(np.arange(len(ids)), branches[inner])
    _, first = np.unique(trees[free], return_index=True)
    if len(first) != len(np.unique(trees)):
        raise KernelError("the branches of a tree run in a circle")
    missing_true = _flags(missing, len(ids))
    feature = np.array(feature_ids, dtype=np.int64)
    forest = Forest(free[first], mode, feature, split, branches, missing_true, {})
    voters = _positions(trees, ids, np.array(vote_trees, dtype=np.int64), np.array(vote_nodes, dtype=np.int64))
    target = np.array(vote_targets, dtype=np.int64)
    return forest, Votes.of(voters, target, _floats(weights, weights_tensor), len(ids), targets)


def _add_base(scores: Array, plain: Sequence[float] | None, tensor: Array | None) -> Array:
    base = _floats(plain, tensor)
    if len(base) not in (0, 1, scores.shape[1]):
        raise KernelError(f"there are {len(base)} base values for {scores.shape[1]} scores")
    return scores + base if len(base) else scores


@kernel("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(
    x: Array,
    *,
    nodes_treeids: Sequence[int],
    nodes_nodeids: Sequence[int],
    nodes_modes: Sequence[str],
    nodes_featureids: Sequence[int],
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    target_treeids: Sequence[int],
    target_nodeids: Sequence[int],
    target_ids: Sequence[int],
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: Array | None = None,
    target_weights: Sequence[float] | None = None,
    target_weights_as_tensor: Array | None = None,
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: Array | None = None,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
) -> Array:
    forest, votes = _classic(
        nodes_treeids,
        nodes_nodeids,
        nodes_modes,
        nodes_featureids,
        nodes_values,
        nodes_values_as_tensor,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        target_treeids,
        target_nodeids,
        target_ids,
        target_weights,
        target_weights_as_tensor,
        n_targets,
    )
    scores = _aggregate(forest, votes, features(x), n_targets, aggregate_function)
    return _transform(_add_base(scores, base_values, base_values_as_tensor), post_transform)


@kernel("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(
    x: Array,
    *,
    nodes_treeids: Sequence[int],
    nodes_nodeids: Sequence[int],
    nodes_modes: Sequence[str],
    nodes_featureids: Sequence[int],
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    class_treeids: Sequence[int],
    class_nodeids: Sequence[int],
    class_ids: Sequence[int],
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: Array | None = None,
    class_weights: Sequence[float] | None = None,
    class_weights_as_tensor: Array | None = None,
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: Array | None = None,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    labels = class_labels(classlabels_int64s, classlabels_strings)
    forest, votes = _classic(
        nodes_treeids,
        nodes_nodeids,
        nodes_modes,
        nodes_featureids,
        nodes_values,
        nodes_values_as_tensor,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        class_treeids,
        class_nodeids,
        class_ids,
        class_weights,
        class_weights_as_tensor,
        len(labels),
    )
    scores = _aggregate(forest, votes, features(x), len(labels), "SUM")
    scores = _add_base(scores, base_values, base_values_as_tensor)
    if len(labels) != 2 or len(set(class_ids)) != 1:
        return labels[scores.argmax(axis=1)], _transform(scores, post_transform)
    probabilities = bool((votes.weight >= 0).all())
    score = scores[:, class_ids[0]]
    chosen = labels[(score > (0.5 if probabilities else 0.0)).astype(np.int64)]
    if class_ids[0] == 1:
        return chosen, _transform(scores, post_transform)
    return chosen, two_scores(score, post_transform, complement=probabilities)


def _member_sets(nodes: Array, values: Array | None) -> dict[int, Array]:
    """The set of each membership node: runs of ``values`` between NaNs, in the order of the nodes."""
    if len(nodes) == 0:
        return {}
    flat = np.zeros(0) if values is None else values.reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    runs = [run[~np.isnan(run)] for run in np.split(flat, ends)]
    if ends.size and ends[-1] == len(flat) - 1:
        runs.pop()
    if len(runs) != len(nodes):
        raise KernelError(f"membership_values holds {len(runs)} sets for {len(nodes)} nodes of mode BRANCH_MEMBER")
    return dict(zip(nodes.tolist(), runs, strict=True))


@_remember
def _modern(
    roots: Sequence[int],
    modes: Array,
    feature_ids: Sequence[int],
    splits: Array,
    true_ids: Sequence[int],
    true_leafs: Sequence[int],
    false_ids: Sequence[int],
    false_leafs: Sequence[int],
    missing: Sequence[int] | None,
    members: Array | None,
    leaf_targets: Sequence[int],
    leaf_weights: Array,
    targets: int,
) -> tuple[Forest, Votes]:
    """The trees of TreeEnsemble. In the forest its leaves follow the interior nodes."""
    inner, leaves = len(feature_ids), len(leaf_targets)
    mode = modes.reshape(-1).astype(np.int64)
    split = splits.reshape(-1)
    if not inner == len(mode) == len(split) == len(true_ids) == len(true_leafs) == len(false_ids) == len(false_leafs):
        raise KernelError("the nodes_* attributes differ in length")
    if inner and int(mode.max()) > _MEMBER:
        raise KernelError(f"nodes_modes holds {int(mode.max())}, modes go from 0 to {_MEMBER}")
    branches = np.stack([np.arange(inner + leaves)] * 2, axis=1)
    for side, (ids, leafs) in enumerate(((false_ids, false_leafs), (true_ids, true_leafs))):
        child, leaf = np.array(ids, dtype=np.int64), np.array(leafs, dtype=np.bool_)
        if np.any((child < 0) | (child >= np.where(leaf, leaves, inner))):
            raise KernelError(f"a branch leads to none of the {inner} nodes and {leaves} leaves")
        branches[:inner, side] = np.where(leaf, child + inner, child)
    root = np.array(roots, dtype=np.int64)
    if len(root) and (int(root.min()) < 0 or int(root.max()) >= inner):
        raise KernelError(f"tree_roots {list(roots)[:8]} are not all in [0, {inner})")
    blank = np.zeros(leaves, dtype=np.int64)
    forest = Forest(
        root,
        np.concatenate([mode, blank + _LEAF]),
        np.concatenate([np.array(feature_ids, dtype=np.int64), blank]),
        np.concatenate([split, blank.astype(split.dtype)]),
        branches,
        np.concatenate([_flags(missing, inner), blank.astype(np.bool_)]),
        _member_sets(np.flatnonzero(mode == _MEMBER), members),
    )
    target = np.array(leaf_targets, dtype=np.int64)
    voters = np.arange(leaves) + inner
    return forest, Votes.of(voters, target, leaf_weights.reshape(-1), inner + leaves, targets)


@kernel("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(
    x: Array,
    *,
    tree_roots: Sequence[int],
    nodes_modes: Array,
    nodes_featureids: Sequence[int],
    nodes_splits: Array,
    nodes_truenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_falseleafs: Sequence[int],
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    membership_values: Array | None = None,
    n_targets: int = 1,
    aggregate_function: int = 1,
    post_transform: int = 0,
) -> Array:
    if not (0 <= aggregate_function < len(_AGGREGATES) and 0 <= post_transform < len(POST_TRANSFORMS)):
        raise KernelError(f"aggregate_function {aggregate_function} or post_transform {post_transform} is unknown")
    forest, votes = _modern(
        tree_roots,
        nodes_modes,
        nodes_featureids,
        nodes_splits,
        nodes_truenodeids,
        nodes_trueleafs,
        nodes_falsenodeids,
        nodes_falseleafs,
        nodes_missing_value_tracks_true,
        membership_values,
        leaf_targetids,
        leaf_weights,
        n_targets,
    )
    scores = _aggregate(forest, votes, features(x), n_targets, _AGGREGATES[aggregate_function])
    return _transform(scores, POST_TRANSFORMS[post_transform], x.dtype)
