"""The ops of ai.onnx.ml that are smooth functions of tensors, and why the others are not differentiated."""

from __future__ import annotations

import numpy as np

from irkit.errors import UnsupportedError
from irkit.ir.builder import Tensor
from irkit.ir.location import where
from irkit.passes.autodiff.registry import Vjp, proven_zero, refused, vjp
from irkit.passes.autodiff.rules.shape import copies

DOMAIN, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"

proven_zero("Binarizer LabelEncoder OneHotEncoder", "piecewise constant", domain=DOMAIN)
proven_zero("TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", "piecewise constant", domain=DOMAIN)
proven_zero("ArrayFeatureExtractor", "indices", [1], domain=DOMAIN)
refused("CastMap DictVectorizer ZipMap", "maps have no cotangents", domain=DOMAIN)
refused(
    "FeatureVectorizer LinearClassifier Normalizer SVMClassifier SVMRegressor",
    "models of ai.onnx.ml are differentiated only where they are written in ops of ai.onnx",
    domain=DOMAIN,
)
refused("Adagrad Adam Momentum", "an optimizer's step is differentiated only in ops of ai.onnx", domain=TRAINING)
refused("Gradient", "it must be expanded first (pass expand-gradient)", domain=TRAINING)


@vjp("Scaler", domain=DOMAIN)
def scaler(g: Vjp) -> Tensor:
    """``(x - offset) scale``, in float32."""
    scale = g.b.constant(np.asarray(g.attr("scale"), np.float32))
    return g.cast(g.b.Mul(g.ct, scale), g.x(0))


@vjp("Imputer", domain=DOMAIN)
def imputer(g: Vjp) -> Tensor:
    b, x = g.b, g.x(0)
    replaced = g.attr("replaced_value_float")
    given = b.IsNaN(x) if np.isnan(replaced) else b.Equal(x, g.const(replaced, x))
    return b.Where(given, g.const(0), g.ct)


@vjp("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(g: Vjp) -> Tensor:
    return copies(g, lambda p: g.b.op("onnx.ml.ArrayFeatureExtractor", p, g.x(1)))


@vjp("LinearRegressor", domain=DOMAIN)
def linear_regressor(g: Vjp) -> Tensor:
    if g.attr("post_transform") not in (None, "NONE"):
        reason = f"its gradient is known without a post_transform only, not with {g.attr('post_transform')}"
        raise UnsupportedError(reason, op=g.op.name, where=where(g.op))
    targets = g.attr("targets") or 1
    weights = np.asarray(g.attr("coefficients"), np.float32).reshape(targets, -1)
    found = g.b.MatMul(g.ct, g.b.constant(weights))
    return g.cast(g.reshape_like(found, g.x(0)), g.x(0))
