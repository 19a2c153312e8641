"""Models with features that onnx's official test suite lacks."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto

from . import features_data, features_graph
from .build import named

__all__ = ["CHECKER_EXCEPTIONS", "feature_models"]

# Valid models, or such as occur in the field, that onnx's checker refuses all the same.
CHECKER_EXCEPTIONS: dict[str, str] = {
    "unsorted_nodes": "the specification wants nodes sorted, and many files are not",
    "unknown_rank": "the checker wants a shape on every graph input and output; onnxruntime doesn't",
    "untyped_values": "the checker wants a type on every graph output; some exporters leave it out",
    "explicit_default_domain": "the checker doesn't know that ai.onnx is another name of the default domain",
}


def feature_models() -> Iterator[tuple[str, ModelProto]]:
    """``(name, model)`` for each feature; the docstring of ``feature_<name>`` says what it is."""
    for module in (features_graph, features_data):
        for name, build in named(module, "feature_"):
            yield name, build()
