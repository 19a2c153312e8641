"""Classical machine learning and its training ops: where the official inference says little or nothing."""

from __future__ import annotations

from xdsl.ir import Attribute

from irkit.dialects.onnx.infer import Call, shape_rule
from irkit.ir.types import Dim, intern, tensor, tensor_info

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@shape_rule("Binarizer", "Imputer", domain=ML)
def same(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    return None if found is None else [intern(found)]


@shape_rule("Normalizer", "Scaler", domain=ML)
def same_shape_as_float(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    info = None if found is None else tensor_info(found)
    return None if info is None else [tensor("float32", info.shape)]


def _rows(call: Call) -> Dim:
    """How many rows an input of shape [N, C] or [C] has."""
    found = call.type(0)
    info = None if found is None else tensor_info(found)
    if info is None or info.shape is None:
        return None
    return info.shape[0] if len(info.shape) == 2 else 1


@shape_rule("LinearRegressor", domain=ML)
def linear(call: Call) -> list[Attribute]:
    return [tensor("float32", [_rows(call), call.attr("targets")])]


@shape_rule("SVMRegressor", domain=ML)
def support_vectors(call: Call) -> list[Attribute]:
    return [tensor("float32", [_rows(call), 1])]


@shape_rule("TreeEnsemble", domain=ML)
def tree_ensemble(call: Call) -> list[Attribute] | None:
    found = call.type(0)
    info = None if found is None else tensor_info(found)
    return None if info is None else [tensor(info.dtype, [_rows(call), call.attr("n_targets")])]


@shape_rule("TreeEnsembleRegressor", domain=ML)
def tree_regressor(call: Call) -> list[Attribute]:
    return [tensor("float32", [_rows(call), call.attr("n_targets")])]


@shape_rule("TreeEnsembleClassifier", domain=ML)
def tree_classifier(call: Call) -> list[Attribute]:
    labels = "string" if call.attr("classlabels_strings") else "int64"
    return [tensor(labels, [_rows(call)]), tensor("float32", [_rows(call), None])][: call.n_out]


@shape_rule("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call) -> list[Attribute]:
    widths = call.attr("inputdimensions")
    return [tensor("float32", [_rows(call), sum(widths) if widths else None])]


@shape_rule("Gradient", domain=TRAINING)
def gradient(call: Call) -> list[Attribute] | None:
    """The gradient by a variable is of its type. Operands beyond ``xs`` are held fixed."""
    found = [call.type(index) for index in range(call.n_out)]
    return None if None in found else [intern(t) for t in found if t is not None]
