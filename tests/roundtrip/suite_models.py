"""All models of the official test suite, made by code or on disk, each with the inputs of its first data set."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

__all__ = ["suite_models"]


def suite_models() -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    """(id, model, feeds) of every test of the suite, 2033 in onnx 1.23.2. No feeds where they are no plain tensors."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        yield f"node/{case.name}", case.model, _feeds(case.model, case.data_sets[0][0] if case.data_sets else [])
    data = Path(onnx.backend.test.__file__).parent / "data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for folder in sorted((data / kind).iterdir()):
            model = onnx.load(folder / "model.onnx")
            yield f"{kind}/{folder.name}", model, _stored_feeds(model, folder / "test_data_set_0")
    for case in sorted(load_model_tests(kind="real"), key=lambda c: c.name):
        path = data / "light" / Path(case.url or "").name
        yield f"real/{case.name}", onnx.load(path), None


def _feeds(model: Any, values: Any) -> dict[str, Any] | None:
    names = [i.name for i in model.graph.input]
    plain = all(not isinstance(v, onnx.TypeProto | onnx.SequenceProto | onnx.OptionalProto) for v in values)
    return dict(zip(names, values, strict=False)) if plain else None


def _stored_feeds(model: Any, folder: Path) -> dict[str, Any] | None:
    values = []
    for index in range(len(model.graph.input)):
        file = folder / f"input_{index}.pb"
        if not file.exists() or model.graph.input[index].type.WhichOneof("value") != "tensor_type":
            return None if file.exists() else dict(zip([i.name for i in model.graph.input], values, strict=False))
        values.append(numpy_helper.to_array(onnx.load_tensor(file)))
    return dict(zip([i.name for i in model.graph.input], values, strict=True))
