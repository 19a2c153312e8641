"""The corpora are what they claim to be: complete, valid where they should be, broken where they should be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from tests.corpus import adversarial, features, hostile, schemas
from tests.corpus.build import feeds_from_types
from tests.corpus.external import WEIGHT, hostile_models, valid_models
from tests.corpus.light import add_logits_output, light_feeds, light_model, magika_feeds, magika_model_path

# Features that onnxruntime's CPU build can't load, or its Python can't carry.
NOT_ON_ORT = frozenset(
    {
        "duplicate_node_names",
        "every_attribute_kind",
        "every_dtype_raw",
        "every_dtype_typed",
        "other_type_protos",
        "strings",
        "unknown_domain",
    }
)

# How onnxruntime says that it has no kernel for an op.
_LOAD_ERRORS = (ort_errors.NotImplemented, ort_errors.Fail, ort_errors.InvalidGraph)
_NO_KERNEL = (
    "Could not find an implementation",
    "is deprecated",
    "is not a registered function/op",
    "string_normalizer",
)


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _declared_shape(value: onnx.ValueInfoProto) -> list[int | None]:
    return [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]


@pytest.fixture(scope="module")
def schema_models() -> dict[str, onnx.ModelProto]:
    return dict(schemas.schema_models())


def test_one_model_for_every_schema(schema_models: dict[str, onnx.ModelProto]) -> None:
    every = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in schemas.OFFICIAL]
    assert len(schema_models) == len(every) == 659
    for schema in every:
        model = schema_models[f"{schema.domain or 'ai.onnx'}-{schema.name}-{schema.since_version}"]
        node = model.graph.node[-1]
        assert (node.domain, node.op_type) == (schema.domain, schema.name)
        assert {o.domain: o.version for o in model.opset_import}[schema.domain] == schema.since_version


def test_schema_models_pass_the_checker(schema_models: dict[str, onnx.ModelProto]) -> None:
    refused: dict[str, str] = {}
    for name, model in schema_models.items():
        try:
            onnx.checker.check_model(model, full_check=True)
        except onnx.checker.ValidationError as error:
            refused[name] = str(error)
    assert set(refused) == set(schemas.CHECKER_EXCEPTIONS)
    assert all("deprecated" in message for message in refused.values())


def test_schema_models_run_and_vary(schema_models: dict[str, onnx.ModelProto]) -> None:
    """Those that onnxruntime has kernels for run on two sets of feeds, with the shapes that are declared."""
    counts: Counter[str] = Counter()
    for name, model in schema_models.items():
        try:
            first = _run(model, schemas.feeds_for(model, 0))
        except _LOAD_ERRORS as error:
            if not any(reason in str(error) for reason in _NO_KERNEL):
                raise
            counts["no kernel"] += 1
            continue
        second = _run(model, schemas.feeds_for(model, 1))
        varies = False
        for output in model.graph.output:
            a, b = first[output.name], second[output.name]
            if isinstance(a, np.ndarray) and output.type.HasField("tensor_type"):
                declared = _declared_shape(output)
                assert len(declared) == a.ndim, name
                assert all(d is None or d == s for d, s in zip(declared, a.shape, strict=True)), name
                varies |= a.shape != b.shape or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
            else:
                varies |= str(a) != str(b)
        counts["varies" if varies else "constant"] += 1
    # Constants, shapes and lengths do not depend on what is fed.
    assert counts["varies"] >= 510, counts
    assert counts["varies"] + counts["constant"] >= 570, counts


def test_feature_models() -> None:
    models = dict(features.feature_models())
    assert len(models) >= 60
    refused = set()
    for name, model in models.items():
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:
            refused.add(name)
        if name not in NOT_ON_ORT:
            results = _run(model, feeds_from_types(model, 0))
            assert list(results) == [output.name for output in model.graph.output], name
    assert refused == set(features.CHECKER_EXCEPTIONS)


def test_adversarial_models() -> None:
    models = dict(adversarial.adversarial_models())
    assert len(models) >= 95
    assert set(models) >= adversarial.RANDOM | adversarial.FAILS_AT_RUN | adversarial.CRASHES_ORT
    refused = set()
    for name, model in models.items():
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            refused.add(name)
        if name not in adversarial.CRASHES_ORT | {"wrong_intermediate_type"}:
            _run(model, feeds_from_types(model, 0))
            _run(model, feeds_from_types(model, 1, special=True))
    assert refused == set(adversarial.CHECKER_EXCEPTIONS)


def test_random_cases_really_draw() -> None:
    """Were the two draws one, the difference would be 0 everywhere."""
    models = dict(adversarial.adversarial_models())
    for name in adversarial.RANDOM:
        if name.endswith("_subtracted"):
            assert np.any(_run(models[name], feeds_from_types(models[name], 0))["y"] != 0), name


def test_malformed_files_are_malformed() -> None:
    files = dict(hostile.malformed())
    assert len(files) >= 150
    accepted = set()
    for name, data in files.items():
        try:
            onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
        except Exception:  # onnx raises many kinds
            continue
        accepted.add(name)
    assert accepted == hostile.BEYOND_THE_CHECKER


def test_deep_and_explosive_models() -> None:
    depths = dict(hostile.deep())
    onnx.checker.check_model(onnx.load_from_string(depths["if_nested_19"]), full_check=True)
    with pytest.raises(Exception, match=r"MaxDepth|parsing"):
        onnx.load_from_string(depths["if_nested_32"])
    for name, model in hostile.bombs():
        onnx.checker.check_model(model)
        assert model.ByteSize() < 4000, name


def test_external_data(tmp_path: Path) -> None:
    valid = dict(valid_models(tmp_path / "valid"))
    hostiles = dict(hostile_models(tmp_path / "hostile"))
    assert len(valid) >= 16
    assert len(hostiles) >= 35
    x = np.ones(4, np.float32)
    for name, path in valid.items():
        if name != "unknown_key":  # onnxruntime refuses keys it does not know
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            assert np.array_equal(session.run(["y"], {"x": x})[0], x + WEIGHT), name


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_light_models_vary(name: str) -> None:
    model = light_model(name)
    onnx.checker.check_model(model)
    logits = add_logits_output(model)
    first, second = (_run(model, light_feeds(model, seed))[logits].ravel() for seed in (0, 1))
    scale = np.abs(first).max()
    assert np.isfinite(first).all()
    assert first.std() > 1e-2 * scale
    assert (first - second).std() > 1e-2 * scale
    again = light_model(name)
    add_logits_output(again)
    assert again == model


def test_magika_model() -> None:
    model = onnx.load(magika_model_path())
    feeds = magika_feeds(3)
    scores = _run(model, feeds)[model.graph.output[0].name]
    assert scores.shape == (3, 214)
    assert len({row.argmax() for row in scores}) > 1 or scores.std(0).max() > 1e-3


def test_corpora_are_deterministic() -> None:
    for build in (features.feature_models, adversarial.adversarial_models, hostile.bombs):
        first, second = ([(n, m.SerializeToString(deterministic=True)) for n, m in build()] for _ in range(2))
        assert first == second
    assert list(hostile.malformed()) == list(hostile.malformed())
